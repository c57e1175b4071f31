//! Processes that cannot outlive the runner, whatever ends it.
//!
//! Each is started through this binary again, which asks the system for KILL when the runner dies
//! and then becomes the program. They have a process group of their own, so that a ^C at the
//! terminal reaches the runner alone, which then stops them.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Stdio;

use clap::Args;
use rustix::process::{Signal, getppid, set_parent_process_death_signal};
use tokio::process::Command;

use crate::Result;

/// The hidden subcommand.
#[derive(Debug, Args)]
pub(crate) struct TiedArgs {
    runner: i32,
    program: OsString,
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

/// Returns only if the program cannot be run.
pub(crate) fn become_program(args: TiedArgs) -> Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    if getppid().map(|parent| parent.as_raw_nonzero().get()) != Some(args.runner) {
        return Err("the runner is gone".into());
    }
    let error = std::process::Command::new(&args.program)
        .args(args.arguments)
        .exec();
    Err(format!("cannot run {}: {error}", args.program.display()).into())
}

/// A command for such a process. What it says on stderr goes to `log`.
///
/// It must be spawned on a thread that lives as long as the runner: the signal comes when that
/// *thread* ends.
pub(crate) fn command(program: impl AsRef<OsStr>, log: &Path) -> Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command
        .arg("tied")
        .arg(std::process::id().to_string())
        .arg("--")
        .arg(program);
    let log = File::options().create(true).append(true).open(log)?;
    command.stdin(Stdio::null()).stdout(Stdio::null());
    command.stderr(log).process_group(0).kill_on_drop(true);
    Ok(command)
}

/// The end of what a process said, for an error message.
pub(crate) fn last_words(log: &Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(20)..].join("\n  | ")
}
