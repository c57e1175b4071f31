//! A `run` inside of another one: it is refused if it would wait for the one around it, and goes on
//! in all other cases.

use std::process::Stdio;
use std::time::Duration;

use lockkeeper::Keeper;
use lockkeeper::embedded::EmbeddedServer;

use super::{Holder, one_line};
use crate::tool::{Finished, finished, lockkeeper};
use testbench::{World, case, eventually};

/// What becomes of a script under a lock, where `$L` is the tool.
async fn under(world: &World, words: &[&str], script: &str) -> Finished {
    let mut command = lockkeeper(world);
    command
        .env("L", env!("CARGO_BIN_EXE_lockkeeper"))
        .args(words)
        .args(["--", "sh", "-c", script]);
    finished(&mut command).await
}

/// What becomes of one run in another one.
async fn inside(world: &World, outer: &str, inner: &str) -> Finished {
    let words: Vec<&str> = outer.split(' ').collect();
    let script = format!("\"$L\" {inner} -- echo inside; echo code $?");
    under(world, &words, &script).await
}

#[case]
async fn a_run_that_would_wait_for_the_run_around_it_is_wrong_usage(world: World) {
    for (outer, inner) in [
        ("run a", "run a"),
        ("run --shared b", "run b"),
        ("run c", "run --shared c"),
        ("run --permits 2/3 d", "run --permits 2/3 d"),
        ("run e f", "run f g"),
        ("run --owner one h", "run --owner two h"),
        ("elect i", "elect i"),
        ("run j", "run k -- \"$L\" run j"),
        // An owner that reads does not get the lock alone.
        ("run --owner one --shared l", "run --owner one l"),
    ] {
        let ended = inside(&world, outer, inner).await;

        assert_eq!(ended.stdout, "code 64\n", "{outer}: {ended:?}");
        let line = one_line(&ended);
        let holds = "the `lockkeeper` around this one holds ";
        assert!(line.contains(holds), "{line}");
        assert!(line.contains("this one a --wait"), "{line}");
        let has_owner = !["--permits", "elect", "run e f"]
            .map(|word| outer.contains(word))
            .contains(&true);
        assert_eq!(line.contains("--owner"), has_owner, "{line}");
    }
}

#[case]
async fn a_run_that_would_stand_behind_one_that_waits_for_the_run_around_it_is_wrong_usage(
    world: World,
) {
    for (outer, stranger, inner) in [
        ("run --shared a", "run a", "run --shared a"),
        (
            "run --permits 1/2 b",
            "run --permits 2/2 b",
            "run --permits 1/2 b",
        ),
    ] {
        let name = outer.rsplit(' ').next().unwrap();
        // It is no part of the work, so it may wait.
        let script = format!(
            "env -u LOCKKEEPER_NAME \"$L\" {stranger} -- true & \
             until \"$L\" queue {name} | grep -q waiting; do sleep 0.1; done; \
             \"$L\" {inner} -- echo inside; echo code $?; kill $!; wait"
        );
        let words: Vec<&str> = outer.split(' ').collect();
        let ended = under(&world, &words, &script).await;

        assert_eq!(ended.stdout, "code 64\n", "{outer}: {ended:?}");
        assert!(one_line(&ended).contains("around this one holds "));
    }
}

#[case]
async fn a_run_that_the_run_around_it_lets_in_is_not_refused(world: World) {
    for (outer, inner) in [
        ("run --shared b", "run --shared b"),
        ("run --permits 1/3 d", "run --permits 2/3 d"),
        ("run --owner one h", "run --owner one h"),
        ("run a", "run b"),
        ("run a", "run --root /others a"),
    ] {
        let ended = inside(&world, outer, inner).await;

        let told = (&*ended.stdout, &*ended.stderr);
        assert_eq!(told, ("inside\ncode 0\n", ""), "{outer}, {inner}");
    }
    // What has an end of its own has the code that it always has.
    for inner in ["run --no-wait a", "run --wait 0 a", "run --wait 200ms a"] {
        let ended = inside(&world, "run a", inner).await;

        assert_eq!(ended.stdout, "code 75\n", "{inner}: {ended:?}");
    }
}

#[case]
async fn a_run_that_has_outlived_the_command_around_it_waits_for_its_turn(world: World) {
    // Its parent is the tool, which still holds the lock.
    let script = "command=$$; (while kill -0 $command 2> /dev/null; do sleep 0.02; done; \
                  exec \"$L\" run a -- echo later) & exit 0";
    let ended = under(&world, &["run", "--hold-at-least", "3s", "a"], script).await;

    assert_eq!(ended.stdout, "later\n", "{ended:?}");
    assert!(!ended.stderr.contains("around this one"), "{ended:?}");
}

#[case(embedded)]
async fn a_run_on_other_servers_is_not_taken_for_the_run_around_it(world: World) {
    let other = EmbeddedServer::start().await.unwrap();
    // Its ticket has the same name as the one around.
    let mut command = lockkeeper(&world);
    command.env("LOCKKEEPER_ZK", other.connect_string()).args([
        "run",
        "a",
        "sh",
        "-c",
        "echo ready; read line",
    ]);
    let holder = Holder::start(command.stdin(Stdio::piped())).await;

    let inner = format!("run --zk {} -v a", other.connect_string());
    let world = world.clone();
    let nested = tokio::spawn(async move { inside(&world, "run a", &inner).await });
    let keeper = Keeper::connect(other.connect_string()).await.unwrap();
    let waits = || async { keeper.queue("a").await.unwrap().len() == 2 };
    eventually("it waits", Duration::from_secs(30), waits).await;
    holder.done().await;

    let ended = nested.await.unwrap();
    assert_eq!(ended.stdout, "inside\ncode 0\n", "{ended:?}");
    keeper.close().await;
}
