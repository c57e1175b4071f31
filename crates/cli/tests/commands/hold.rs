//! How long a lock is held at least, and at most, whatever the command does.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use tokio::io::AsyncReadExt;
use tokio::process::Command;

use super::codes::remove_last;
use super::loss::{end, next_line};
use super::signals::ended;
use super::{Holder, outcome, tickets};
use crate::tool::{finished, lockkeeper};
use testbench::{World, case};

/// `lockkeeper run OPTIONS a sh -c SCRIPT`.
fn run(world: &World, options: &[&str], script: &str) -> Command {
    let mut command = lockkeeper(world);
    command
        .arg("run")
        .args(options)
        .args(["a", "sh", "-c", script]);
    command
}

/// A tool that holds the lock although its command has ended, with 7.
async fn kept(world: &World) -> Holder {
    let script = "echo ready; echo $$; exit 7";
    let mut command = run(world, &["--hold-at-least", "1h"], script);
    let mut holder = Holder::start(&mut command).await;
    ended(&next_line(&mut holder).await).await;
    holder
}

#[case]
async fn a_lock_is_held_at_least_for_so_long_and_a_signal_ends_that(world: World) {
    let mut holder = kept(&world).await;
    let meanwhile = outcome(&world, &["run", "--no-wait", "a", "true"]).await;
    assert_eq!(meanwhile.code, Some(75), "{meanwhile:?}");

    holder.signal(Signal::SIGTERM);

    assert_eq!(holder.code().await, Some(7), "the command's own code");
    assert_eq!(tickets(&world, "a").await, 0);

    let began = Instant::now();
    let ended = finished(&mut run(&world, &["--hold-at-least", "1"], "exit 5")).await;
    assert_eq!((ended.code, &*ended.stderr), (Some(5), ""));
    assert!(began.elapsed() >= Duration::from_secs(1));
    assert_eq!(tickets(&world, "a").await, 0);
}

#[case]
async fn a_lock_that_is_lost_before_it_was_held_at_least_so_long_ends_with_70(world: World) {
    let mut holder = kept(&world).await;

    remove_last(&world, "a").await;

    assert_eq!(holder.code().await, Some(70));
    let mut told = String::new();
    let mut stderr = holder.tool.stderr.take().unwrap();
    stderr.read_to_string(&mut told).await.unwrap();
    let says =
        "lockkeeper: a was lost after the command had ended, and before --hold-at-least was over";
    assert!(told.starts_with(says), "{told}");
}

#[case]
async fn a_lock_that_is_held_at_least_so_long_is_released_when_it_is_asked_for(world: World) {
    let mut holder = kept(&world).await;

    let broken = outcome(&world, &["break", "a", "--yes", "--grace", "30s"]).await;

    assert_eq!(broken.code, Some(0), "{broken:?}");
    assert_eq!(holder.code().await, Some(7));
}

#[case]
async fn a_command_that_was_told_to_end_does_not_hold_at_least(world: World) {
    let script = "echo ready; exec sleep 60";
    let mut command = run(&world, &["--hold-at-least", "1h"], script);
    let holder = Holder::start(&mut command).await;

    holder.signal(Signal::SIGTERM);

    assert_eq!(end(holder).await, (Some(143), Vec::new()));
}

#[case]
async fn a_lock_is_held_at_most_for_so_long_and_then_the_command_is_ended_with_124(world: World) {
    let told = "a: held for 2s (--hold-at-most); the command gets SIGTERM, and SIGKILL after ";
    let killed = "the command did not end within 200ms of SIGTERM: it gets SIGKILL";
    // A busy machine may be late with the trap, which SIGKILL would cut short.
    for (on_term, grace, kills) in [("exit 0", "10s", None), ("", "200ms", Some(killed))] {
        let told = format!("{told}{grace}");
        let says: Vec<&str> = [&*told].into_iter().chain(kills).collect();
        let options = ["--hold-at-most", "2s", "--grace", grace];
        let script = format!("trap '{on_term}' TERM; while :; do sleep 0.02; done");
        let ended = finished(&mut run(&world, &options, &script)).await;

        let lines = ended.stderr.lines();
        let said: Vec<&str> = lines
            .filter_map(|line| line.strip_prefix("lockkeeper: "))
            .collect();
        assert_eq!((ended.code, said), (Some(124), says), "{on_term}");
        assert_eq!(tickets(&world, "a").await, 0);
    }
    let ended = finished(&mut run(&world, &["--hold-at-most", "1h"], "exit 3")).await;
    assert_eq!((ended.code, &*ended.stderr), (Some(3), ""));
}
