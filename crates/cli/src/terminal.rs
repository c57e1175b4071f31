//! The terminal: who is in its foreground, and how a job of it stops.
//!
//! It only moves the foreground between our own process group and the command's, and never takes it
//! from a stranger.

use std::fs::{File, OpenOptions};

use nix::sys::signal::{SigSet, Signal, killpg};
use nix::unistd::{Pid, getpgrp, tcgetpgrp, tcsetpgrp};

/// The controlling terminal of this process.
pub(crate) struct Terminal(File);

impl Terminal {
    /// None for daemons, CI jobs and whatever else has no terminal.
    pub(crate) fn open() -> Option<Self> {
        let file = OpenOptions::new().read(true).write(true).open("/dev/tty");
        file.ok().map(Self)
    }

    /// Whether this process group has the foreground.
    pub(crate) fn is_with(&self, group: Pid) -> bool {
        tcgetpgrp(&self.0) == Ok(group)
    }

    /// Moves the foreground, if `from` has it. Says whether it did. Stops must be held.
    pub(crate) fn pass(&self, from: Pid, to: Pid) -> bool {
        if !self.is_with(from) {
            return false;
        }
        // Moving it from the background would stop us, if stops were not held.
        tcsetpgrp(&self.0, to).is_ok()
    }
}

/// What would stop a tool that is in the background of its terminal, or in the foreground without
/// its command.
const STOPS: [Signal; 2] = [Signal::SIGTSTP, Signal::SIGTTOU];

/// Keeps the terminal from stopping this process: a tool that stands still while its command goes
/// on would lose the lock under it.
pub(crate) fn hold_stops() {
    stops().thread_block().unwrap_or_default();
}

/// Undoes [`hold_stops`], for the command.
pub(crate) fn allow_stops() {
    stops().thread_unblock().unwrap_or_default();
}

fn stops() -> SigSet {
    SigSet::from_iter(STOPS)
}

/// Stops our process group as Ctrl-Z does, and returns when it goes on. Where no shell could wake
/// it again (an orphaned process group) the system does not stop it.
pub(crate) fn stop() {
    allow_stops();
    killpg(getpgrp(), Signal::SIGTSTP).unwrap_or_default();
    hold_stops();
}
