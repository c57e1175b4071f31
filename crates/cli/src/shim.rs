//! The moment between us and the command: the tool starts itself again, as this, and this becomes
//! the command.
//!
//! It asks for TERM when the tool dies, takes the terminal if it may, and executes. It has no
//! runtime and no threads. The wish for TERM ends with the exec of a set-user-ID program; the
//! system drops it there.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;

use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use nix::unistd::{Pid, getpgid, getpgrp, getppid};

use crate::terminal::{self, Terminal};
use crate::{code, report, signals};

/// The hidden subcommand: `__exec PARENT foreground|background CMD ARGS..`.
pub(crate) const WORD: &str = "__exec";
pub(crate) const FOREGROUND: &str = "foreground";
pub(crate) const BACKGROUND: &str = "background";

/// Returns only when that failed, with the exit code that a shell would give.
pub(crate) fn become_command(mut words: impl Iterator<Item = OsString>) -> u8 {
    let parent = words.next().and_then(|word| word.to_str()?.parse().ok());
    let place = words.next();
    let (Some(parent), Some(place), Some(command)) = (parent, place, words.next()) else {
        report::say("__exec is for lockkeeper itself: use `lockkeeper run`");
        return code::USAGE;
    };
    let parent = Pid::from_raw(parent);
    if let Err(error) = set_pdeathsig(Signal::SIGTERM) {
        report::say(format_args!("cannot ask for a signal on death: {error}"));
        return code::CANNOT_RUN;
    }
    if getppid() != parent {
        // The tool died before we asked.
        return signals::code(Signal::SIGTERM);
    }
    terminal::hold_stops();
    if place == FOREGROUND {
        if let (Some(terminal), Ok(group)) = (Terminal::open(), getpgid(Some(parent))) {
            terminal.pass(group, getpgrp());
        }
    }
    terminal::allow_stops();

    let error = Command::new(&command).args(words).exec();
    report::say(format_args!(
        "cannot run {}: {error}",
        command.to_string_lossy()
    ));
    match error.kind() {
        std::io::ErrorKind::NotFound => code::NOT_FOUND,
        _ => code::CANNOT_RUN,
    }
}
