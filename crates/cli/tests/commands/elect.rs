//! `elect` and `leader`: leading while a command runs, and who leads.

use std::process::Stdio;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::timeout;

use super::loss::{end, next_line, number};
use super::{DONE_LATER, Holder, job, one_line, outcome, tickets};
use crate::tool::{finished, lockkeeper};
use testbench::keeper;
use testbench::{World, case};

const SOON: Duration = Duration::from_secs(3);

/// `lockkeeper elect WORDS -- sh -c SCRIPT`.
fn elect(world: &World, words: &[&str], script: &str) -> Command {
    let mut command = lockkeeper(world);
    command.arg("elect").args(words);
    command.args(["--", "sh", "-c", script]);
    command
}

/// Somebody who leads until it is dropped or its input ends.
async fn leading(world: &World, words: &[&str]) -> Holder {
    let mut command = elect(world, words, "echo ready; read line");
    Holder::start(command.stdin(Stdio::piped())).await
}

async fn leader(world: &World, name: &str) -> Value {
    let shown = outcome(world, &["leader", name, "--json"]).await;
    assert_eq!((shown.code, shown.stderr.as_str()), (Some(0), ""));
    serde_json::from_str(&shown.stdout).unwrap()
}

#[case]
async fn elect_runs_its_command_while_it_leads(world: World) {
    let script = "echo $LOCKKEEPER_NAME; echo $LOCKKEEPER_NODE; echo $LOCKKEEPER_TOKEN; exit 3";
    let ended = finished(&mut elect(&world, &["jobs/nightly"], script)).await;
    let lines: Vec<&str> = ended.stdout.lines().collect();

    assert_eq!(
        lines[..2],
        ["jobs/nightly", "latch-0000000000"],
        "{ended:?}"
    );
    assert!(lines[2].parse::<u64>().is_ok(), "{ended:?}");
    assert_eq!(ended.code, Some(3), "{ended:?}");
    assert_eq!(tickets(&world, "jobs/nightly").await, 0, "it has resigned");
}

#[case]
async fn elect_ends_with_75_while_another_one_leads(world: World) {
    let holder = leading(&world, &["taken", "--id", "first"]).await;

    for words in [["taken", "--no-wait"], ["taken", "--wait=100ms"]] {
        let ended = finished(&mut elect(&world, &words, "echo never")).await;

        assert_eq!((ended.code, ended.stdout.as_str()), (Some(75), ""));
        one_line(&ended);
    }

    assert_eq!(leader(&world, "taken").await["value"], "first");
    holder.done().await;
}

#[case]
async fn an_elected_command_that_loses_its_leadership_is_ended(world: World) {
    let stranger = world.raw().await;
    let words = ["lost", "--session-timeout", "1s"];
    let mut command = elect(&world, &words, "echo ready; exec sleep 60");
    let mut holder = Holder::start(&mut command).await;
    let node = leader(&world, "lost").await["node"]
        .as_str()
        .unwrap()
        .to_owned();

    stranger
        .delete(&format!("/locks/lost/{node}"), None)
        .await
        .unwrap();

    let code = timeout(SOON * 2, holder.code()).await.expect("it is told");
    assert_eq!(code, Some(70));
}

#[case]
async fn nobody_leads_until_all_that_the_command_started_has_ended(world: World) {
    let mut holder = Holder::start(&mut elect(&world, &["job"], &job(DONE_LATER))).await;
    next_line(&mut holder).await;
    let mut next = elect(&world, &["job"], "echo elected $(date +%s%3N)");
    let next = tokio::spawn(async move { finished(&mut next).await });
    super::queued(&world, "job", 2).await;

    holder.signal(Signal::SIGTERM);
    let done = next_line(&mut holder).await;
    let elected = next.await.unwrap().stdout;

    assert!(
        number(&done) <= number(elected.trim_end()),
        "{done}, and {elected}"
    );
    assert_eq!(end(holder).await, (Some(143), Vec::new()));
}

#[case]
async fn a_leader_killed_with_9_is_followed_within_its_session_timeout(world: World) {
    let session_timeout = Duration::from_secs(8);
    let holder = leading(&world, &["killed", "--session-timeout", "8s"]).await;
    let election = keeper(&world).await.election("killed").unwrap();
    let token = election.leader().await.unwrap().unwrap().token;
    let next = election.clone();
    let next = tokio::spawn(async move { next.campaign("next").await });
    super::queued(&world, "killed", 2).await;

    holder.signal(Signal::SIGKILL);
    let killed = Instant::now();

    // A store beside ZooKeeper ends a session a fifth of its timeout later.
    let limit = session_timeout * 3 / 2 + Duration::from_secs(2);
    let next = timeout(limit, next).await.expect("it is followed in time");
    let next = next.unwrap().unwrap();
    assert!(next.token() > token && killed.elapsed() <= limit);
    next.resign().await.unwrap();
}

#[case]
async fn leader_shows_who_leads(world: World) {
    let named = leading(&world, &["named", "--id", "10.0.0.7:80"]).await;
    let unnamed = leading(&world, &["unnamed"]).await;

    let table = outcome(&world, &["leader", "named"]).await;
    let shown = leader(&world, "named").await;
    let other = leader(&world, "unnamed").await;

    assert_eq!((table.code, table.stderr.as_str()), (Some(0), ""));
    let rows: Vec<Vec<&str>> = table
        .stdout
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(rows[0], ["VALUE", "TOKEN", "NODE", "LABEL", "HOST", "PID"]);
    let pid = named.tool.id().unwrap().to_string();
    let token = shown["token"].to_string();
    assert_eq!(
        rows[1][..4],
        ["10.0.0.7:80", &token, "latch-0000000000", "sh"]
    );
    assert_eq!((rows.len(), rows[1].last()), (2, Some(&pid.as_str())));
    assert_eq!(shown["value"], "10.0.0.7:80");
    assert_eq!(shown["label"], "sh");
    assert_eq!(shown["pid"].to_string(), pid);
    let host = other["host"].as_str().unwrap();
    let id = format!("{host}:{}", unnamed.tool.id().unwrap());
    assert_eq!(other["value"], id, "host and process");
    named.done().await;
    unnamed.done().await;
}

#[case]
async fn that_nobody_leads_is_said_on_stderr_and_is_not_an_error(world: World) {
    let table = outcome(&world, &["leader", "a/b"]).await;
    let json = outcome(&world, &["leader", "a/b", "--json"]).await;

    assert_eq!((table.code, table.stdout.as_str()), (Some(0), ""));
    assert_eq!(one_line(&table), "lockkeeper: nobody leads a/b");
    assert_eq!(
        (json.code, json.stdout.as_str(), json.stderr.as_str()),
        (Some(0), "null\n", "")
    );
}

/// A `leader --watch` with its lines.
fn watch(world: &World, words: &[&str]) -> (Child, Lines<BufReader<ChildStdout>>) {
    let mut command = lockkeeper(world);
    command.args(["leader", "--watch"]).args(words);
    let mut watching = command.spawn().unwrap();
    let output = watching.stdout.take().unwrap();
    (watching, BufReader::new(output).lines())
}

#[case]
async fn leader_watch_shows_each_leader_once_in_order(world: World) {
    let keepers = [keeper(&world).await, keeper(&world).await];
    let (mut watching, mut lines) = watch(&world, &["watched", "--json"]);
    let (mut plain, mut plain_lines) = watch(&world, &["watched"]);
    assert_eq!(lines.next_line().await.unwrap().as_deref(), Some("null"));

    let mut led = Vec::new();
    let mut seen = Vec::new();
    for round in 0..10_usize {
        let election = keepers[round % 2].election("watched").unwrap();
        let value = format!("leader-{round}");
        let leadership = election.campaign(value.as_str()).await.unwrap();
        led.push((value.clone(), u64::from(leadership.token())));
        // Each is shown while it leads.
        loop {
            let line = timeout(SOON, lines.next_line()).await.expect("a line");
            let leader: Value = serde_json::from_str(&line.unwrap().unwrap()).unwrap();
            if !leader.is_null() {
                let shown = leader["value"].as_str().unwrap().to_owned();
                seen.push((shown, leader["token"].as_u64().unwrap()));
                break;
            }
        }
        let line = timeout(SOON, plain_lines.next_line())
            .await
            .expect("a line");
        let line = line.unwrap().unwrap();
        let words: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(words[..2], [value, led[round].1.to_string()], "{line}");
        leadership.resign().await.unwrap();
    }

    assert_eq!(seen, led);
    for tool in [&mut watching, &mut plain] {
        let pid = Pid::from_raw(tool.id().unwrap() as i32);
        kill(pid, Signal::SIGINT).unwrap();
        assert_eq!(tool.wait().await.unwrap().code(), Some(0));
    }
    assert_eq!(
        plain_lines.next_line().await.unwrap(),
        None,
        "no more lines"
    );
}
