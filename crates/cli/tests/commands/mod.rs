//! The command-line tool, run as its users do: what the command sees, and mutual exclusion of
//! processes.
//!
//! The modules below it hold the rest of its cases, and use what this file offers to them.

pub(crate) mod access;
pub(crate) mod bench;
pub(crate) mod breaking;
pub(crate) mod codes;
pub(crate) mod doctor;
pub(crate) mod elect;
pub(crate) mod hold;
pub(crate) mod kinds;
pub(crate) mod look;
pub(crate) mod loss;
pub(crate) mod nested;
pub(crate) mod pages;
mod settings;
pub(crate) mod signals;
mod stores;
mod tables;
pub(crate) mod terminal;
mod tls;
mod ui;
mod waiting;

use std::process::Stdio;
use std::time::Duration;

use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

use crate::tool::{Finished, finished, lockkeeper};
use testbench::{World, case, eventually};

/// A command that holds a lock: it says so on stdout, and ends when it may.
pub(crate) struct Holder {
    pub(crate) tool: Child,
    pub(crate) lines: Lines<BufReader<ChildStdout>>,
}

impl Holder {
    /// Starts `run` and waits until the command's first line is `ready`.
    pub(crate) async fn start(command: &mut Command) -> Self {
        let mut tool = command.spawn().unwrap();
        let mut lines = BufReader::new(tool.stdout.take().unwrap()).lines();
        let first = lines.next_line().await.unwrap();
        assert_eq!(
            first.as_deref(),
            Some("ready"),
            "the first line of the command"
        );
        Self { tool, lines }
    }

    /// Holds `name` until it is dropped or its input ends.
    pub(crate) async fn of(world: &World, name: &str) -> Self {
        let mut command = run(world, name, "echo ready; read line");
        Self::start(command.stdin(Stdio::piped())).await
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_raw(self.tool.id().expect("it runs") as i32)
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(self.pid(), signal).unwrap();
    }

    /// Lets the command of [`Holder::of`] end.
    pub(crate) async fn done(mut self) {
        drop(self.tool.stdin.take());
        self.code().await;
    }

    pub(crate) async fn code(&mut self) -> Option<i32> {
        self.tool.wait().await.unwrap().code()
    }
}

/// A script whose worker does something on TERM, of which the script itself dies at once. TERM may
/// come as soon as it is ready, and would end a `seq` that still counts.
pub(crate) fn job(on_term: &str) -> String {
    format!(
        "(turns=$(seq 2000); trap '{on_term}' TERM; echo ready; echo $$; for i in $turns; do sleep 0.02; done) & wait"
    )
}

/// Says when it is done, one second later.
pub(crate) const DONE_LATER: &str = "sleep 1; echo done $(date +%s%3N); exit";

/// Whether nobody is left in a process group.
pub(crate) fn is_gone(group: u64) -> bool {
    let group = i32::try_from(group).expect("a process group");
    killpg(Pid::from_raw(group), None).is_err()
}

/// `lockkeeper run NAME -- sh -c SCRIPT`.
pub(crate) fn run(world: &World, name: &str, script: &str) -> Command {
    let mut command = lockkeeper(world);
    command.args(["run", name, "--", "sh", "-c", script]);
    command
}

pub(crate) async fn outcome(world: &World, words: &[&str]) -> Finished {
    finished(lockkeeper(world).args(words)).await
}

/// Waits until that many tickets are in the queue of a lock.
pub(crate) async fn queued(world: &World, name: &str, count: usize) {
    let what = format!("{count} tickets in the queue of {name}");
    let there = || async { tickets(world, name).await == count };
    eventually(&what, Duration::from_secs(10), there).await;
}

/// How many tickets there are in the queue of a lock.
pub(crate) async fn tickets(world: &World, name: &str) -> usize {
    let queue = outcome(world, &["queue", name, "--json"]).await;
    let queue: Vec<serde_json::Value> = serde_json::from_str(&queue.stdout).unwrap();
    queue.len()
}

/// Exactly one line on stderr, from the tool.
pub(crate) fn one_line(finished: &Finished) -> &str {
    let line = finished.stderr.trim_end_matches('\n');
    assert!(
        line.starts_with("lockkeeper: ") && !line.contains('\n'),
        "one line of the tool: {finished:?}"
    );
    line
}

#[case]
async fn the_command_sees_its_lock_and_nothing_of_the_launcher(world: World) {
    let script = "echo $LOCKKEEPER_NAME; echo $LOCKKEEPER_NODE; echo $LOCKKEEPER_TOKEN; \
                  tr '\\0' ' ' < /proc/$$/cmdline | cut -c 1-5; awk '/SigBlk/ {print $2}' /proc/self/status";
    let ended = finished(&mut run(&world, "orders/42", script)).await;
    let lines: Vec<&str> = ended.stdout.lines().collect();

    assert_eq!(lines[..2], ["orders/42", "lock-0000000000"], "{ended:?}");
    assert!(lines[2].parse::<u64>().is_ok(), "{ended:?}");
    assert_eq!(lines[3..], ["sh -c", "0000000000000000"], "{ended:?}");
}

#[case]
async fn the_command_begins_behind_the_name_and_its_options_are_its_own(world: World) {
    let words = ["sh", "-c", "echo \"$LOCKKEEPER_NAME: $@\"", "x"];
    let own = ["--all", "--wait", "soon", "-v", "--help"];
    for order in [&["run"] as &[&str], &["run", "--wait", "5"], &["elect"]] {
        let ended = outcome(&world, &[order, &["nightly"], &words, &own].concat()).await;

        assert_eq!(ended.stdout, "nightly: --all --wait soon -v --help\n");
        assert_eq!((ended.code, &*ended.stderr), (Some(0), ""));
    }
}

#[case(within = 120)]
async fn eight_processes_count_without_losing_one(world: World) {
    const TIMES: usize = 50;
    let folder = TempDir::new().unwrap();
    std::fs::write(folder.path().join("count"), "0").unwrap();
    let script = "n=$(cat count); echo $((n+1)) > count; echo $LOCKKEEPER_TOKEN >> log";

    let mut loops = Vec::new();
    for _ in 0..8 {
        let (world, path) = (world.clone(), folder.path().to_owned());
        loops.push(tokio::spawn(async move {
            for _ in 0..TIMES {
                let ended = finished(run(&world, "counter", script).current_dir(&path)).await;
                assert_eq!(ended.code, Some(0), "{ended:?}");
            }
        }));
    }
    for counting in loops {
        counting.await.unwrap();
    }

    let count = std::fs::read_to_string(folder.path().join("count")).unwrap();
    let log = std::fs::read_to_string(folder.path().join("log")).unwrap();
    let tokens: Vec<u64> = log.lines().map(|line| line.parse().unwrap()).collect();
    assert_eq!(count.trim(), (8 * TIMES).to_string());
    assert_eq!(tokens.len(), 8 * TIMES);
    assert!(
        tokens.is_sorted_by(|a, b| a < b),
        "granted in the order of their creation: {tokens:?}"
    );
}
