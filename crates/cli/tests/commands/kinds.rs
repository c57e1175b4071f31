//! `run` of other kinds than one lock for one command: shared, permits, owners, several locks.

use std::process::Stdio;
use std::time::Duration;

use futures_util::future::join_all;
use nix::sys::signal::Signal;
use tokio::process::Command;
use tokio::time::timeout;

use super::{Holder, one_line, outcome, queued, tickets};
use crate::tool::{Finished, finished, lockkeeper};
use testbench::{World, case};

const HOLD: &str = "echo ready; read line; echo done";
const IN_TIME: Duration = Duration::from_secs(10);

/// `lockkeeper run WORDS -- sh -c SCRIPT`.
fn run_with(world: &World, words: &[&str], script: &str) -> Command {
    let mut command = lockkeeper(world);
    command
        .arg("run")
        .args(words)
        .args(["--", "sh", "-c", script]);
    command
}

/// Holds with these words until it is dropped or its input ends.
async fn holder(world: &World, words: &[&str]) -> Holder {
    Holder::start(run_with(world, words, HOLD).stdin(Stdio::piped())).await
}

/// What becomes of a run with these words that does not wait.
async fn at_once(world: &World, words: &[&str]) -> Finished {
    let words = [&["--no-wait"], words].concat();
    finished(&mut run_with(world, &words, "echo inside")).await
}

#[case]
async fn shared_runs_are_beside_each_other_and_a_plain_one_is_excluded(world: World) {
    let one = holder(&world, &["--shared", "table"]).await;
    let other = holder(&world, &["--shared", "table"]).await;

    let plain = at_once(&world, &["table"]).await;
    assert_eq!(plain.code, Some(75), "{plain:?}");
    let third = at_once(&world, &["--shared", "table"]).await;
    assert_eq!(third.stdout, "inside\n", "{third:?}");

    one.done().await;
    assert_eq!(
        at_once(&world, &["table"]).await.code,
        Some(75),
        "one still reads"
    );
    other.done().await;
    assert_eq!(at_once(&world, &["table"]).await.stdout, "inside\n");
}

#[case]
async fn a_shared_run_is_excluded_by_a_plain_one_and_waits_its_turn(world: World) {
    let plain = holder(&world, &["table"]).await;
    let reader = at_once(&world, &["--shared", "table"]).await;
    assert_eq!(reader.code, Some(75), "{reader:?}");

    let mut waits = run_with(&world, &["--shared", "table"], "echo read")
        .spawn()
        .unwrap();
    queued(&world, "table", 2).await;
    let mut last = run_with(&world, &["table"], "echo wrote").spawn().unwrap();
    queued(&world, "table", 3).await;
    assert_eq!(waits.try_wait().unwrap(), None);
    plain.done().await;

    for waiting in [&mut waits, &mut last] {
        let ended = timeout(IN_TIME, waiting.wait())
            .await
            .expect("its turn comes")
            .unwrap();
        assert_eq!(ended.code(), Some(0));
    }
    assert_eq!(tickets(&world, "table").await, 0);
}

#[case]
async fn permits_let_so_many_in_and_no_more(world: World) {
    let one = holder(&world, &["--permits", "1/2", "render"]).await;
    let other = holder(&world, &["--permits", "1/2", "render"]).await;

    let third = at_once(&world, &["--permits", "1/2", "render"]).await;
    assert_eq!(third.code, Some(75), "{third:?}");
    one.done().await;
    let third = at_once(&world, &["--permits", "1/2", "render"]).await;
    assert_eq!(third.stdout, "inside\n", "{third:?}");
    let both = at_once(&world, &["--permits", "2/2", "render"]).await;
    assert_eq!(both.code, Some(75), "{both:?}");

    other.done().await;
    let both = at_once(&world, &["--permits", "2/2", "render"]).await;
    assert_eq!(both.stdout, "inside\n", "{both:?}");
}

#[case]
async fn a_plain_run_and_permits_of_one_name_exclude_each_other(world: World) {
    let permit = holder(&world, &["--permits", "1/1", "job"]).await;
    for words in [&["job"][..], &["--shared", "job"], &["other", "job"]] {
        let plain = at_once(&world, words).await;
        assert_eq!((plain.code, &*plain.stdout), (Some(64), ""), "{plain:?}");
        let said = "job cannot be locked beside limit, which is the limit of a semaphore";
        assert!(one_line(&plain).contains(said), "{plain:?}");
    }
    permit.done().await;

    let plain = holder(&world, &["task"]).await;
    let permit = at_once(&world, &["--permits", "1/1", "task"]).await;
    assert_eq!((permit.code, &*permit.stdout), (Some(64), ""), "{permit:?}");
    assert!(one_line(&permit).contains("task cannot be locked beside lock-"));
    plain.done().await;
}

#[case]
async fn permits_of_another_limit_end_with_64(world: World) {
    let _one = holder(&world, &["--permits", "1/2", "render"]).await;

    let other = at_once(&world, &["--permits", "1/3", "render"]).await;

    assert_eq!(other.code, Some(64), "{other:?}");
    assert!(one_line(&other).contains("limit of 2, not 3"), "{other:?}");
}

#[case(within = 120)]
async fn runs_under_two_locks_in_any_order_do_not_wait_in_a_circle(world: World) {
    const TIMES: usize = 12;
    let orders = [["a", "b"], ["b", "a"], ["a", "b"], ["b", "a"]];
    let loops = orders.map(|names| {
        let world = world.clone();
        tokio::spawn(async move {
            for _ in 0..TIMES {
                let ended = finished(&mut run_with(&world, &names, "echo inside")).await;
                assert_eq!(ended.stdout, "inside\n", "{ended:?}");
            }
        })
    });

    let all = timeout(Duration::from_secs(60), join_all(loops)).await;

    for ended in all.expect("nobody waits for ever") {
        ended.unwrap();
    }
    assert_eq!(
        (tickets(&world, "a").await, tickets(&world, "b").await),
        (0, 0)
    );
}

#[case]
async fn the_command_sees_all_its_locks(world: World) {
    let script = "echo \"$LOCKKEEPER_NAME\"; echo \"$LOCKKEEPER_NODE\"; echo $LOCKKEEPER_TOKEN";
    finished(&mut run_with(&world, &["b b"], "true")).await;

    let ended = finished(&mut run_with(&world, &["b b", "a", "a"], script)).await;

    let lines: Vec<&str> = ended.stdout.lines().collect();
    let expected = ["b b", "a", "lock-0000000001", "lock-0000000000"];
    assert_eq!(lines[..4], expected, "{ended:?}");
    assert!(
        lines.len() == 5 && lines[4].parse::<u64>().is_ok(),
        "{ended:?}"
    );
}

#[case]
async fn a_command_without_a_token_inherits_none(world: World) {
    let tool = env!("CARGO_BIN_EXE_lockkeeper");
    for option in ["--shared", "--permits=1/1"] {
        let inner = format!(
            "'{tool}' run {option} inner -- sh -c 'echo ${{LOCKKEEPER_TOKEN-none}} $LOCKKEEPER_NAME'"
        );

        let ended = finished(&mut run_with(&world, &["outer"], &inner)).await;

        assert_eq!(ended.stdout, "none inner\n", "{ended:?}");
    }
}

#[case]
async fn an_owner_comes_in_again_from_another_process(world: World) {
    let tool = env!("CARGO_BIN_EXE_lockkeeper");
    let inner = format!(
        "echo $LOCKKEEPER_TOKEN; '{tool}' run --owner txn ledger -- sh -c 'echo $LOCKKEEPER_TOKEN'"
    );

    let words = ["--owner", "txn", "--wait", "10s", "ledger"];
    let ended = finished(&mut run_with(&world, &words, &inner)).await;

    let tokens: Vec<&str> = ended.stdout.lines().collect();
    assert!(
        tokens.len() == 2 && tokens[0] == tokens[1],
        "one hold, one token: {ended:?}"
    );
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let _host = holder(&world, &["--owner", "txn", "ledger"]).await;
    let stranger = at_once(&world, &["--owner", "other", "ledger"]).await;
    assert_eq!(stranger.code, Some(75), "{stranger:?}");
    let guest = at_once(&world, &["--owner", "txn", "ledger"]).await;
    assert_eq!(guest.stdout, "inside\n", "{guest:?}");
}

#[case]
async fn a_guest_goes_on_when_its_host_is_killed(world: World) {
    let tool = env!("CARGO_BIN_EXE_lockkeeper");
    // The shell between them dies with the host: the tool of the guest is not its command, but a
    // child of that.
    let inner = format!("'{tool}' run --owner txn ledger -- sh -c '{HOLD}'; true");
    let words = ["--session-timeout", "3s", "--owner", "txn", "ledger"];
    let host = Holder::start(run_with(&world, &words, &inner).stdin(Stdio::piped())).await;
    queued(&world, "ledger", 2).await;

    host.signal(Signal::SIGKILL);
    queued(&world, "ledger", 1).await;
    let stranger = at_once(&world, &["ledger"]).await;
    assert_eq!(stranger.code, Some(75), "the guest is inside: {stranger:?}");
    let mut next = run_with(&world, &["ledger"], "echo next").spawn().unwrap();
    queued(&world, "ledger", 2).await;
    assert_eq!(next.try_wait().unwrap(), None);

    let (mut lines, mut host) = (host.lines, host.tool);
    drop(host.stdin.take());
    let line = timeout(IN_TIME, lines.next_line())
        .await
        .expect("the guest ends")
        .unwrap();
    assert_eq!(line.as_deref(), Some("done"), "it was not disturbed");
    let ended = timeout(IN_TIME, next.wait())
        .await
        .expect("its turn comes")
        .unwrap();
    assert_eq!(ended.code(), Some(0));
    assert_eq!(tickets(&world, "ledger").await, 0);
}

#[case]
async fn mixes_that_cannot_be_end_with_64(world: World) {
    for words in [
        &["--shared", "--permits", "1/2", "a"] as &[&str],
        &["--permits", "1/2", "--owner", "me", "a"],
        &["--shared", "a", "b"],
        &["--permits", "1/2", "a", "b"],
        &["--owner", "me", "a", "b"],
        &["--permits", "3/2", "a"],
        &["--permits", "0/2", "a"],
        &["--permits", "2", "a"],
        &["--permits", "-1/2", "a"],
        &["--owner", "", "a"],
        &["--shared"],
    ] {
        let ended = finished(&mut run_with(&world, words, "echo inside")).await;

        assert_eq!(ended.code, Some(64), "{words:?}: {ended:?}");
        assert_eq!(ended.stdout, "", "{words:?}");
        assert!(ended.stderr.contains("--help"), "{words:?}: {ended:?}");
    }
    for words in [
        &["run", "a", "b//c", "--", "true"] as &[&str],
        &["run", "a", "/b", "--", "true"],
    ] {
        let ended = outcome(&world, words).await;
        assert_eq!(ended.code, Some(64), "{words:?}: {ended:?}");
    }
}
