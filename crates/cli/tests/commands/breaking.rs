//! `break`: an operator removes a ticket, asked or not.

use std::process::Stdio;

use serde_json::Value;

use super::loss::{end, next_line, number};
use super::{DONE_LATER, Holder, job, one_line, outcome, queued, run, tickets};
use crate::tool::{finished, lockkeeper};
use testbench::{World, case};

async fn nodes(world: &World, name: &str) -> Vec<String> {
    let queue = outcome(world, &["queue", name, "--json"]).await;
    let queue: Vec<Value> = serde_json::from_str(&queue.stdout).unwrap();
    let nodes = queue
        .iter()
        .map(|entry| entry["node"].as_str().unwrap().to_owned());
    nodes.collect()
}

#[case]
async fn break_removes_the_holder_and_the_next_one_runs(world: World) {
    let mut holder = Holder::of(&world, "stuck").await;
    let waiting = run(&world, "stuck", "echo in")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    queued(&world, "stuck", 2).await;
    let node = nodes(&world, "stuck").await.remove(0);

    let broken = outcome(&world, &["break", "stuck", "--yes", "--grace", "0s"]).await;

    assert_eq!((broken.code, broken.stdout.as_str()), (Some(0), ""));
    let told: Vec<&str> = broken.stderr.lines().collect();
    assert!(
        told[0].contains(&node) && told[0].contains("holder"),
        "{broken:?}"
    );
    assert!(
        told[0].contains("label sh") && told[0].contains("pid "),
        "{broken:?}"
    );
    assert_eq!(
        told[1..],
        [format!(
            "lockkeeper: removed {node} from the queue of stuck"
        )]
    );
    assert_eq!(holder.code().await, Some(70), "its lock was lost");
    let next = waiting.wait_with_output().await.unwrap();
    assert_eq!(next.stdout, b"in\n");
}

#[case]
async fn break_asks_a_command_to_end_first(world: World) {
    let script = "trap 'echo asked; exit 3' TERM; echo ready; while :; do sleep 0.1; done";
    let mut command = run(&world, "asked", script);
    let mut holder = Holder::start(command.stdin(Stdio::null())).await;
    let node = nodes(&world, "asked").await.remove(0);

    let broken = outcome(&world, &["break", "asked", "--yes", "--json"]).await;

    assert_eq!(
        (broken.code, broken.stdout.as_str()),
        (Some(0), "{\"removed\":true}\n")
    );
    let told: Vec<&str> = broken.stderr.lines().collect();
    assert_eq!(
        told[1..],
        [
            format!("lockkeeper: {node} is asked to release asked, for 5s"),
            format!("lockkeeper: {node} has gone from the queue of asked")
        ]
    );
    let last = holder.lines.next_line().await.unwrap();
    assert_eq!(last.as_deref(), Some("asked"));
    assert_eq!(holder.code().await, Some(3), "its command's own");
    assert_eq!(tickets(&world, "asked").await, 0);
}

#[case]
async fn break_waits_for_all_that_the_command_started(world: World) {
    let mut holder = Holder::start(&mut run(&world, "job", &job(DONE_LATER))).await;
    next_line(&mut holder).await;
    let mut next = run(&world, "job", "echo granted $(date +%s%3N)");
    let next = tokio::spawn(async move { finished(&mut next).await });
    queued(&world, "job", 2).await;

    let broken = outcome(&world, &["break", "job", "--yes", "--grace", "30s"]).await;
    let done = next_line(&mut holder).await;
    let granted = next.await.unwrap().stdout;

    assert!(
        number(&done) <= number(granted.trim_end()),
        "{done}, and {granted}"
    );
    assert!(
        broken.stderr.contains("has gone from the queue"),
        "{broken:?}"
    );
    assert_eq!(end(holder).await.0, Some(143), "its command's own");
}

#[case]
async fn break_removes_a_holder_that_does_not_follow(world: World) {
    let script = "trap '' TERM; echo ready; while :; do sleep 0.1; done";
    let mut command = run(&world, "deaf", script);
    command.stdin(Stdio::null());
    let mut holder = Holder::start(&mut command).await;
    let node = nodes(&world, "deaf").await.remove(0);

    let broken = outcome(&world, &["break", "deaf", "--yes", "--grace", "300ms"]).await;

    assert_eq!(broken.code, Some(0), "{broken:?}");
    let told: Vec<&str> = broken.stderr.lines().collect();
    assert_eq!(
        told[1..],
        [
            format!("lockkeeper: {node} is asked to release deaf, for 300ms"),
            format!("lockkeeper: removed {node} from the queue of deaf")
        ]
    );
    assert_eq!(holder.code().await, Some(70), "its lock was lost");
}

#[case]
async fn break_removes_the_ticket_that_is_named_and_no_other(world: World) {
    let holder = Holder::of(&world, "named").await;
    let mut waiting = run(&world, "named", "true").spawn().unwrap();
    queued(&world, "named", 2).await;
    let node = nodes(&world, "named").await.remove(1);

    let words = ["break", "named", "--json", "--yes", "--node", &node];
    let broken = outcome(&world, &words).await;
    let again = outcome(&world, &words).await;

    assert_eq!(
        (broken.code, broken.stdout.as_str()),
        (Some(0), "{\"removed\":true}\n")
    );
    assert!(broken.stderr.contains("waiting"), "{broken:?}");
    assert_eq!(
        (again.code, again.stdout.as_str()),
        (Some(1), "{\"removed\":false}\n")
    );
    assert!(one_line(&again).contains("is not in the queue of named"));
    assert_eq!(tickets(&world, "named").await, 1);
    holder.done().await;
    assert!(
        !waiting.wait().await.unwrap().success(),
        "its place was lost"
    );
}

#[case]
async fn break_says_when_there_is_nothing_to_remove(world: World) {
    let broken = outcome(&world, &["break", "nobody", "--yes"]).await;

    assert_eq!((broken.code, broken.stdout.as_str()), (Some(1), ""));
    assert_eq!(
        one_line(&broken),
        "lockkeeper: nobody holds or waits for nobody"
    );
}

#[case]
async fn break_without_a_terminal_and_a_yes_is_wrong_usage(world: World) {
    let holder = Holder::of(&world, "kept").await;

    let mut command = lockkeeper(&world);
    let broken = finished(command.args(["break", "kept"]).stdin(Stdio::null())).await;

    assert_eq!(broken.code, Some(64));
    assert!(one_line(&broken).contains("--yes"), "{broken:?}");
    assert_eq!(tickets(&world, "kept").await, 1);
    holder.done().await;
}
