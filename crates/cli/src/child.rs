//! The command as a child process, with a process group of its own.
//!
//! It knows nothing of locks. Dropping it does not end the command.
//!
//! No event tells that a process group is gone: a pidfd is of one process. So the tool takes in
//! orphans, as process 1 does: then SIGCHLD tells of the end of all whose parent has ended. What
//! another process has taken out of the group keeps only a look at it again, after a pause that
//! grows.

use std::ffi::OsString;
use std::io::{self, IsTerminal};
use std::os::unix::process::CommandExt;
use std::process::{self, Command};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::prctl::set_child_subreaper;
use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::{Pid, getpgrp};
use rustix::process::{WaitOptions, wait};
use tokio::signal::unix::{self, SignalKind};
use tokio::time::{Instant, sleep_until};

use crate::failure::Failure;
use crate::process::alive_in;
use crate::shim;
use crate::terminal::{self, Terminal};

/// Also right when the file of this program was replaced while it ran.
const MYSELF: &str = "/proc/self/exe";

/// Between two looks at a group that says nothing: at first, and at most.
const PAUSES: [Duration; 2] = [Duration::from_millis(10), Duration::from_millis(500)];

pub(crate) struct Child {
    group: Pid,
    changes: unix::Signal,
    terminal: Option<Terminal>,
    is_stopped: bool,
    /// The command itself; others of its group may go on.
    has_ended: bool,
    /// When it was last looked for those that others do not wait for, and the pause until the next
    /// look.
    looked: Instant,
    pause: Duration,
}

/// What became of the command.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Change {
    /// The command itself ended; others of its process group may go on.
    Ended(Exit),
    /// After that: no process of its group is left.
    Gone,
    /// A signal stopped it. It may go on.
    Stopped(Signal),
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Exit {
    /// As a shell would show it.
    pub(crate) code: u8,
    /// The number of the signal that ended it.
    pub(crate) signal: Option<i32>,
}

impl Child {
    /// Starts the command; what has no value in the environment is taken out of it. Must be called
    /// on the main thread: the command gets TERM when that thread dies.
    pub(crate) fn start(
        command: &[OsString],
        environment: impl IntoIterator<Item = (&'static str, Option<String>)>,
    ) -> Result<Self, Failure> {
        // Before the start, so that no change is missed.
        let changes = unix::signal(SignalKind::child()).map_err(Failure::System)?;
        let terminal = Terminal::open();
        let place = match &terminal {
            // In a pipeline another process of our group may need the terminal; the command gets
            // it when it asks.
            Some(_) if io::stdin().is_terminal() && io::stdout().is_terminal() => shim::FOREGROUND,
            _ => shim::BACKGROUND,
        };
        let mut starts = Command::new(MYSELF);
        for (name, value) in environment {
            match value {
                Some(value) => starts.env(name, value),
                None => starts.env_remove(name),
            };
        }
        // Without it, process 1 takes the orphans in, and the looks alone find the end
        // of the group.
        set_child_subreaper(true).unwrap_or_default();
        // Dropped, it is not waited for: `reap` does that, for all children.
        let process = starts
            .arg0("lockkeeper")
            .args([shim::WORD, &process::id().to_string(), place])
            .args(command)
            .process_group(0)
            .spawn()
            .map_err(Failure::Start)?;
        Ok(Self {
            // A process id is a positive i32 by the system's rules.
            group: Pid::from_raw(process.id() as i32),
            changes,
            terminal,
            is_stopped: false,
            has_ended: false,
            looked: Instant::now(),
            pause: PAUSES[0],
        })
    }

    /// Waits until the command ends or is stopped, and then until its process group is gone.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: what it finds it returns at once.
    pub(crate) async fn change(&mut self) -> Result<Change, Failure> {
        loop {
            match self.reap()? {
                Some(exit) if !self.has_ended => {
                    self.has_ended = true;
                    return Ok(Change::Ended(exit));
                }
                _ => {}
            }
            if self.has_ended && self.is_gone() {
                return Ok(Change::Gone);
            }
            let flags = WaitPidFlag::WSTOPPED | WaitPidFlag::WNOHANG;
            let whose = match self.has_ended {
                true => Id::PGid(self.group),
                false => Id::Pid(self.group),
            };
            if let Ok(WaitStatus::Stopped(_, signal)) = waitid(whose, flags) {
                self.is_stopped = true;
                return Ok(Change::Stopped(signal));
            }
            tokio::select! {
                _ = self.changes.recv() => {}
                () = sleep_until(self.looked + self.pause), if self.has_ended => {
                    self.looked = Instant::now();
                    self.pause = (self.pause * 2).min(PAUSES[1]);
                    // A parent that has left the group may never wait for its dead.
                    if self.rest().is_some_and(|rest| rest.is_empty()) {
                        // Ours may have died just now, and we may wait for a reader next.
                        self.reap()?;
                        return Ok(Change::Gone);
                    }
                }
            }
        }
    }

    /// Waits for all children that have ended; they are the command, and orphans. Returns the end
    /// of the command.
    fn reap(&self) -> Result<Option<Exit>, Failure> {
        let mut exit = None;
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) if pid.as_raw_nonzero().get() == self.group.as_raw() => {
                    let signal = status.terminating_signal();
                    let code = match signal {
                        Some(signal) => 128 + signal,
                        None => status.exit_status().unwrap_or_default(),
                    };
                    // Both fit: exit codes have eight bits and signals six.
                    let code = u8::try_from(code).unwrap_or(u8::MAX);
                    exit = Some(Exit { code, signal });
                }
                Ok(Some(_)) | Err(rustix::io::Errno::INTR) => {}
                Ok(None) | Err(rustix::io::Errno::CHILD) => return Ok(exit),
                Err(error) => return Err(Failure::System(error.into())),
            }
        }
    }

    /// Whether no process of the command's group is left. The command itself has ended.
    pub(crate) fn is_gone(&self) -> bool {
        // The number is given again only when no process of the group is left; a process that has
        // it is a stranger then.
        killpg(self.group, None) == Err(Errno::ESRCH) || kill(self.group, None) != Err(Errno::ESRCH)
    }

    /// Those of its process group that have not ended, if this host shows them.
    pub(crate) fn rest(&self) -> Option<Vec<Pid>> {
        alive_in(self.group)
    }

    /// Sends a signal to the command's process group.
    pub(crate) fn send(&mut self, signal: Signal) {
        tracing::debug!(%signal, "passed on to the command");
        // It may have ended just now.
        killpg(self.group, signal).unwrap_or_default();
        if self.is_stopped || self.has_ended {
            // A stopped process would take notice only when it goes on. Not all stops of what the
            // command left are seen.
            self.go_on();
        }
    }

    /// Lets a stopped command go on.
    pub(crate) fn go_on(&mut self) {
        self.is_stopped = false;
        killpg(self.group, Signal::SIGCONT).unwrap_or_default();
    }

    /// Gives the terminal to the command, if it is ours to give.
    pub(crate) fn give_terminal(&self) -> bool {
        let terminal = self.terminal.as_ref();
        terminal.is_some_and(|terminal| terminal.pass(getpgrp(), self.group))
    }

    /// Takes the terminal back, if the command has it.
    pub(crate) fn take_terminal(&self) -> bool {
        let terminal = self.terminal.as_ref();
        terminal.is_some_and(|terminal| terminal.pass(self.group, getpgrp()))
    }

    /// Does what a stop of the command means for the terminal. Returns true if the tool itself was
    /// stopped too, so that the session may have ended meanwhile; the command is still stopped
    /// then.
    pub(crate) fn answer_stop(&mut self, signal: Signal) -> bool {
        let asks_for_terminal = matches!(signal, Signal::SIGTTIN | Signal::SIGTTOU);
        if asks_for_terminal && self.give_terminal() {
            self.go_on();
            return false;
        }
        let is_job = self.terminal.is_some() && (self.take_terminal() || asks_for_terminal);
        if is_job {
            terminal::stop();
            self.give_terminal();
        }
        // Otherwise the command was stopped by hand: we go on and hold the lock for it.
        is_job
    }
}
