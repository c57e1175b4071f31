//! The tool, as a child process of a case.
//!
//! It never outlives the case: dropping the child kills it.

use std::process::Stdio;

use tokio::process::Command;
use tokio::signal::unix::{self, SignalKind};

use super::World;

/// The result of a finished command.
#[derive(Clone, Debug)]
pub struct Finished {
    /// None when a signal ended it.
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

/// Undoes the effect of a script that starts a suite with `&`: it ignores INT and QUIT, and every
/// child would ignore them too. A signal that is caught here has its default action in a child. A
/// signal that is not ignored is left alone.
pub fn heed_signals() {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.map_or(0, |mask| {
        u64::from_str_radix(mask.trim(), 16).expect("a mask of signals")
    });
    for signal in [
        SignalKind::hangup(),
        SignalKind::interrupt(),
        SignalKind::quit(),
        SignalKind::terminate(),
    ] {
        if ignored & (1 << (signal.as_raw_value() - 1)) != 0 {
            drop(unix::signal(signal).expect("the signal can be caught"));
        }
    }
}

/// The tool with the server of this world in its environment, no settings, no input, and both
/// outputs piped.
pub fn tool(program: &str, world: &World) -> Command {
    heed_signals();
    let mut command = Command::new(program);
    command
        .env("LOCKKEEPER_ZK", world.connect_string())
        .env("LOCKKEEPER_CONFIG", "/dev/null")
        .env_remove("RUST_LOG")
        .env_remove("TRACEPARENT");
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    command
}

/// Runs it to its end.
pub async fn finished(command: &mut Command) -> Finished {
    let output = command.output().await.expect("lockkeeper starts");
    let text = |bytes| String::from_utf8(bytes).expect("the output is text");
    Finished {
        code: output.status.code(),
        stdout: text(output.stdout),
        stderr: text(output.stderr),
    }
}
