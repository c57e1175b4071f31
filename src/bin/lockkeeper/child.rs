//! The command as a child process, with a process group of its own.
//!
//! It knows nothing of locks. Dropping it does not end the command.

use std::ffi::OsString;
use std::io::{self, IsTerminal};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{self, Command, ExitStatus};

use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::{Pid, getpgrp};
use tokio::signal::unix::{self, SignalKind};

use crate::failure::Failure;
use crate::shim;
use crate::terminal::{self, Terminal};

/// Also right when the file of this program was replaced while it ran.
const MYSELF: &str = "/proc/self/exe";

pub(crate) struct Child {
    process: process::Child,
    group: Pid,
    changes: unix::Signal,
    terminal: Option<Terminal>,
    is_stopped: bool,
}

/// What became of the command.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Change {
    /// It ended, with the exit code that a shell would show.
    Ended(u8),
    /// A signal stopped it. It may go on.
    Stopped(Signal),
}

impl Child {
    /// Starts the command; what has no value in the environment is taken out of it. Must be called on the main thread: the command gets TERM when that thread dies.
    pub(crate) fn start(
        command: &[OsString],
        environment: [(&str, Option<String>); 3],
    ) -> Result<Self, Failure> {
        // Before the start, so that no change is missed.
        let changes = unix::signal(SignalKind::child()).map_err(Failure::System)?;
        let terminal = Terminal::open();
        let place = match &terminal {
            // In a pipeline somebody else of our group may need the terminal; the command gets it when it asks.
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
            process,
            changes,
            terminal,
            is_stopped: false,
        })
    }

    /// Waits until the command ends or is stopped.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: what it finds it returns at once.
    pub(crate) async fn change(&mut self) -> Result<Change, Failure> {
        loop {
            if let Some(status) = self.process.try_wait().map_err(Failure::System)? {
                return Ok(Change::Ended(code(status)));
            }
            let flags = WaitPidFlag::WSTOPPED | WaitPidFlag::WNOHANG;
            if let Ok(WaitStatus::Stopped(_, signal)) = waitid(Id::Pid(self.group), flags) {
                self.is_stopped = true;
                return Ok(Change::Stopped(signal));
            }
            self.changes.recv().await;
        }
    }

    /// Sends a signal to the command's process group.
    pub(crate) fn send(&mut self, signal: Signal) {
        tracing::debug!(%signal, "passed on to the command");
        // It may have ended just now.
        killpg(self.group, signal).unwrap_or_default();
        if self.is_stopped {
            // A stopped process would take notice only when it goes on.
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

    /// Does what a stop of the command means for the terminal. Returns true if the tool itself was stopped too, so that
    /// the session may have ended meanwhile; the command is still stopped then.
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
        // Otherwise somebody stopped the command by hand: we go on and hold the lock for it.
        is_job
    }
}

fn code(status: ExitStatus) -> u8 {
    let code = status
        .code()
        .unwrap_or_else(|| 128 + status.signal().unwrap_or_default());
    // Both fit: exit codes have eight bits and signals six.
    u8::try_from(code).unwrap_or(u8::MAX)
}
