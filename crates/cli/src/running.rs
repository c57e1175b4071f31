//! The command of `run` and `elect`, until it has ended.
//!
//! Invariant: the command is told to end before others can have the lock, and it never goes on
//! after a pause without a look whether the lock is still ours. A command that is told to end has
//! ended when its process group is gone.

use std::fmt::Display;
use std::pin::pin;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::OptionFuture;
use nix::sys::signal::Signal;
use nix::unistd::Pid;
use tokio::time::{Instant, sleep_until};

use crate::args::Work;
use crate::child::{Change, Child};
use crate::failure::Failure;
use crate::held::Held;
use crate::lease::{Danger, Lease};
use crate::report;
use crate::signals::{self, Signals};

/// So many processes are told one by one.
const MOST: usize = 8;

/// How the command ended.
pub(crate) struct End {
    pub(crate) code: u8,
    /// Whether it was told to: by a signal, a request, `--hold-at-most`, or for the sake of the
    /// lock.
    pub(crate) is_told: bool,
    pub(crate) is_endangered: bool,
    /// Whether the lock was held for as long as it may be.
    pub(crate) is_overdue: bool,
}

enum Event {
    Child(Change),
    Danger(Danger),
    GraceOver,
    Overdue,
    Revoked,
    Signal(Signal),
}

/// The command, until it has ended.
pub(crate) struct Running<'a> {
    child: &'a mut Child,
    name: &'a str,
    order: &'a Work,
    /// Its exit code. Others of its group may go on.
    code: Option<u8>,
    /// Whether it was told to end: then it has ended when no process of its group is left.
    is_told: bool,
    is_endangered: bool,
    /// When the lock was held for as long as it may be.
    due_at: Option<Instant>,
    is_overdue: bool,
    kill_at: Option<Instant>,
    is_killed: bool,
}

impl<'a> Running<'a> {
    /// Of a command whose lock was granted just now.
    pub(crate) fn new(child: &'a mut Child, name: &'a str, order: &'a Work) -> Self {
        let now = Instant::now();
        Self {
            child,
            name,
            order,
            code: None,
            is_told: false,
            is_endangered: false,
            due_at: order.hold_at_most.and_then(|most| now.checked_add(most)),
            is_overdue: false,
            kill_at: None,
            is_killed: false,
        }
    }

    /// Passes signals on until the command has ended, and ends it when the lock is lost or soon may
    /// be, or was held for as long as it may.
    pub(crate) async fn end(mut self, signals: &mut Signals, held: &Held) -> Result<End, Failure> {
        let mut lease = Lease::of(held, self.order.grace);
        let mut revoked = pin!(held.revoked().fuse());
        loop {
            let grace_over: OptionFuture<_> = self.kill_at.map(sleep_until).into();
            let overdue: OptionFuture<_> = self.due_at.map(sleep_until).into();
            let event = tokio::select! {
                // After a stop of this process all of them may be ready: a command that has ended
                // needs no signal, and none that came meanwhile goes before the loss.
                biased;
                change = self.child.change() => Event::Child(change?),
                danger = lease.danger(), if !self.is_endangered => Event::Danger(danger),
                Some(()) = grace_over => Event::GraceOver,
                Some(()) = overdue, if !self.is_endangered => Event::Overdue,
                // Only a request. That the lock is lost is a danger, and told as one.
                Ok(()) = &mut revoked, if !self.is_endangered => Event::Revoked,
                signal = signals.next() => Event::Signal(signal),
            };
            match event {
                Event::Child(Change::Ended(exit)) => {
                    self.code = Some(exit.code);
                    // A terminal sends its signals to the command, and not to us.
                    self.is_told |= exit.signal.is_some_and(signals::is_ending);
                    if !self.is_told && !self.order.wait_group {
                        return Ok(self.ended(exit.code));
                    }
                    self.limit_rest();
                }
                Event::Child(Change::Gone) => return Ok(self.ended(self.code.unwrap_or_default())),
                // What is to end does not stand still, and does not stop us.
                Event::Child(Change::Stopped(Signal::SIGTSTP)) if self.is_endangered => {
                    self.child.go_on();
                }
                Event::Child(Change::Stopped(_)) if self.is_endangered => {}
                Event::Child(Change::Stopped(signal)) => {
                    if self.child.answer_stop(signal) {
                        // We stood still with it. If there is something to tell, it is told before
                        // it goes on.
                        if let Some(danger) = lease.danger().now_or_never() {
                            self.tell(&danger);
                        }
                        self.child.go_on();
                    }
                }
                Event::Danger(danger) => self.tell(&danger),
                Event::GraceOver => self.kill(),
                Event::Overdue => self.tell_overdue(),
                Event::Revoked => {
                    self.terminate();
                    self.limit_rest();
                    report::say(format_args!(
                        "{}: another client asks for it back; the command gets SIGTERM",
                        self.name
                    ));
                }
                Event::Signal(signal) => {
                    self.child.send(signal);
                    self.is_told |= signals::is_ending(signal as i32);
                    self.limit_rest();
                }
            }
        }
    }

    fn ended(&self, code: u8) -> End {
        End {
            code,
            is_told: self.is_told,
            is_endangered: self.is_endangered,
            is_overdue: self.is_overdue,
        }
    }

    /// Tells the command to end, for the sake of the lock.
    fn tell(&mut self, danger: &Danger) {
        self.is_endangered = true;
        self.tell_to_end(danger);
    }

    fn tell_overdue(&mut self) {
        (self.due_at, self.is_overdue) = (None, true);
        let most = self.order.hold_at_most.unwrap_or_default();
        let most = humantime::format_duration(most);
        self.tell_to_end(format_args!("held for {most} (--hold-at-most)"));
    }

    fn tell_to_end(&mut self, why: impl Display) {
        let grace = self.order.grace;
        self.terminate();
        self.limit(grace);
        report::say(format_args!(
            "{}: {why}; the command gets SIGTERM, and SIGKILL after {}",
            self.name,
            humantime::format_duration(grace)
        ));
    }

    /// The signal goes before any word of it: words may fail.
    fn terminate(&mut self) {
        self.child.send(Signal::SIGTERM);
        // Not all stops are seen: a shell that is stopped in the middle of starting something does
        // not count as stopped.
        self.child.go_on();
        self.is_told = true;
    }

    fn limit(&mut self, grace: Duration) {
        let limit = Instant::now().checked_add(grace);
        self.kill_at = self.kill_at.or(limit);
    }

    /// A command that is asked to end may take its time. What it leaves has no such say: it may
    /// take the grace.
    fn limit_rest(&mut self) {
        if self.is_told && self.code.is_some() && !self.is_killed {
            self.limit(self.order.grace);
        }
    }

    fn kill(&mut self) {
        let grace = humantime::format_duration(self.order.grace);
        let rest = rest(self.child);
        self.child.send(Signal::SIGKILL);
        (self.kill_at, self.is_killed) = (None, true);
        match (self.code, rest) {
            (None, _) => report::say(format_args!(
                "the command did not end within {grace} of SIGTERM: it gets SIGKILL"
            )),
            (Some(_), rest) => report::say(format_args!(
                "the rest of its process group{} did not end within {grace}: it gets SIGKILL",
                rest.unwrap_or_default()
            )),
        }
    }
}

/// Says what goes on without the lock.
pub(crate) fn say_rest(child: &Child) {
    if let Some(rest) = rest(child) {
        report::say(format_args!(
            "the command has ended, and the rest of its process group{rest} goes on without the lock; --wait-group keeps the lock for it"
        ));
    }
}

/// Who of the command's process group goes on without it, as far as that can be known.
fn rest(child: &Child) -> Option<String> {
    if child.is_gone() {
        return None;
    }
    match child.rest().as_deref() {
        Some([]) => None,
        Some(pids) if pids.len() <= MOST => {
            let pids: Vec<String> = pids.iter().map(Pid::to_string).collect();
            Some(format!(" (pid {})", pids.join(", ")))
        }
        Some(pids) => Some(format!(" ({} processes)", pids.len())),
        None => Some(String::new()),
    }
}
