//! The terminal: who is in its foreground, and how a job of it stops.
//!
//! It only moves the foreground between our own process group and the command's, and never takes it from a stranger.

use std::fs::{File, OpenOptions};

use nix::sys::signal::{SigSet, SigmaskHow, Signal, killpg};
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

    /// Moves the foreground, if `from` has it. Says whether it did.
    pub(crate) fn pass(&self, from: Pid, to: Pid) -> bool {
        if !self.is_with(from) {
            return false;
        }
        // Whoever moves it from the background gets a TTOU, which would stop us.
        let Ok(before) = only(Signal::SIGTTOU).thread_swap_mask(SigmaskHow::SIG_BLOCK) else {
            return false;
        };
        let passed = tcsetpgrp(&self.0, to);
        before.thread_set_mask().unwrap_or_default();
        passed.is_ok()
    }
}

/// Makes Ctrl-Z wait: a tool that is stopped while its command goes on would lose the lock under it.
pub(crate) fn hold_stops() {
    only(Signal::SIGTSTP).thread_block().unwrap_or_default();
}

/// Undoes [`hold_stops`], for the command.
pub(crate) fn allow_stops() {
    only(Signal::SIGTSTP).thread_unblock().unwrap_or_default();
}

/// Stops our process group as Ctrl-Z does, and returns when it goes on. Where nobody could wake it again (an orphaned
/// process group) the system does not stop it.
pub(crate) fn stop() {
    allow_stops();
    killpg(getpgrp(), Signal::SIGTSTP).unwrap_or_default();
    hold_stops();
}

fn only(signal: Signal) -> SigSet {
    SigSet::from_iter([signal])
}
