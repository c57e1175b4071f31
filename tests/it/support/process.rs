//! The built `lockkeeper` binary, as a child process of a case.
//!
//! It never outlives the case: dropping the child kills it.

use std::process::Stdio;

use tokio::process::Command;

use super::World;

/// What a finished command left.
#[derive(Clone, Debug)]
pub(crate) struct Finished {
    /// None when a signal ended it.
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// `lockkeeper` with the server of this world in its environment, no input, and both outputs piped.
pub(crate) fn lockkeeper(world: &World) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lockkeeper"));
    command
        .env("LOCKKEEPER_ZK", world.connect_string())
        .env_remove("RUST_LOG");
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    command
}

/// Runs it to its end.
pub(crate) async fn finished(command: &mut Command) -> Finished {
    let output = command.output().await.expect("lockkeeper starts");
    let text = |bytes| String::from_utf8(bytes).expect("the output is text");
    Finished {
        code: output.status.code(),
        stdout: text(output.stdout),
        stderr: text(output.stderr),
    }
}
