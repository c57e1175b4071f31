//! The built tool as a child process, on the store of a kind.

use std::process::Stdio;
use std::time::{Duration, SystemTime};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
pub use testbench::process::finished;
use testbench::process::heed_signals;
use testbench::relay::{Relay, Way};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::timeout;

use crate::bed::Bed;

/// Longer than any loss takes.
pub const LONG: Duration = Duration::from_secs(30);

/// Prints when it got TERM, in milliseconds, and ends as if all were well.
pub const HEEDS: &str = "trap 'echo TERM $(date +%s%3N); exit 0' TERM; echo ready; \
                         while :; do sleep 0.02; done";

/// `lockkeeper` with this store in its environment, no input, and both outputs piped.
pub fn lockkeeper(url: &str) -> Command {
    heed_signals();
    let mut command = Command::new(env!("CARGO_BIN_EXE_lockkeeper"));
    command
        .env("LOCKKEEPER_SERVERS", url)
        .env_remove("RUST_LOG")
        .env_remove("TRACEPARENT")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    command
}

/// `lockkeeper run OPTIONS NAME -- sh -c SCRIPT`.
pub fn run(url: &str, options: &[&str], name: &str, script: &str) -> Command {
    let mut command = lockkeeper(url);
    command
        .arg("run")
        .args(options)
        .args([name, "--", "sh", "-c", script]);
    command
}

/// A command that holds a lock.
pub struct Holder {
    pub tool: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Holder {
    /// Starts it and waits until the command's first line is `ready`.
    pub async fn start(command: &mut Command) -> Self {
        let mut tool = command.spawn().unwrap();
        let lines = BufReader::new(tool.stdout.take().unwrap()).lines();
        let mut holder = Self { tool, lines };
        let first = timeout(LONG, holder.lines.next_line()).await;
        let first = first.expect("granted in time").unwrap();
        if first.as_deref() != Some("ready") {
            panic!("{first:?}: {:?}", holder.end().await);
        }
        holder
    }

    pub fn signal(&self, signal: Signal) {
        let pid = self.tool.id().expect("it runs");
        kill(Pid::from_raw(pid as i32), signal).unwrap();
    }

    pub async fn next_line(&mut self) -> String {
        let line = timeout(LONG, self.lines.next_line()).await;
        line.expect("a line in time").unwrap().unwrap_or_default()
    }

    /// The exit code and what the tool said.
    pub async fn end(mut self) -> (Option<i32>, String) {
        let ended = timeout(LONG, self.tool.wait()).await;
        let code = ended.expect("the tool ends").unwrap().code();
        let mut text = String::new();
        let mut stderr = self.tool.stderr.take().unwrap();
        // Processes that were left may have it too.
        let read = timeout(Duration::from_secs(1), stderr.read_to_string(&mut text)).await;
        read.map(drop).unwrap_or_default();
        (code, text)
    }
}

/// Relays to all servers of a kind, and its URL by way of them.
pub async fn relayed(bed: &Bed) -> (Vec<Relay>, String) {
    let mut url = bed.url().await;
    let servers = match bed.servers() {
        servers if servers.is_empty() => bed.database().server().address().to_string(),
        servers => servers,
    };
    let mut relays = Vec::new();
    for server in servers.split(',') {
        let relay = Relay::to(server.parse().unwrap()).await;
        url = url.replace(server, &relay.address().to_string());
        relays.push(relay);
    }
    (relays, url)
}

pub fn set(relays: &[Relay], way: Way) {
    for relay in relays {
        relay.set(way);
    }
}

pub fn now_ms() -> u128 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.unwrap().as_millis()
}

/// The number at the end of a line.
pub fn number(line: &str) -> u128 {
    line.trim_end().rsplit(' ').next().unwrap().parse().unwrap()
}
