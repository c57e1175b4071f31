//! `run`: holds a lock while a command runs.
//!
//! Invariant: the lock is given back only after the command has ended, the command is told to end
//! before others can have the lock, and it never goes on after a pause without a look whether the
//! lock is still ours. A command that is told to end has ended when its process group is gone.

use std::pin::pin;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::OptionFuture;
use lockkeeper::{Keeper, LockName};
use nix::sys::signal::Signal;
use nix::unistd::Pid;
use tokio::time::{Instant, sleep_until};

use crate::args::{Place, Run, Server, Work};
use crate::child::{Change, Child};
use crate::failure::Failure;
use crate::held::{Held, Wanted};
use crate::lease::{Danger, Lease};
use crate::plain::PlainSource;
use crate::report;
use crate::signals::{self, Signals};

/// So many processes are told one by one.
const MOST: usize = 8;

/// What gives locks, and tidies up when they are no longer needed.
pub(crate) trait Source {
    async fn close(self);
}

impl Source for Keeper {
    async fn close(self) {
        Self::close(&self).await;
    }
}

pub(crate) async fn run(server: &Server, order: &Run) -> Result<u8, Failure> {
    match &server.place {
        Place::ZooKeeper(_) | Place::Store { .. } => {
            let connecting = keeper(server, &order.names, &order.work)?;
            let want = |keeper: &Keeper| Wanted::of(keeper, order);
            work(connecting, &order.names, &order.work, want).await
        }
        Place::Plain { url, .. } => {
            let connecting = PlainSource::connect(url, server.connect_timeout);
            let want = |source: &PlainSource| source.wanted(order);
            work(connecting, &order.names, &order.work, want).await
        }
    }
}

/// Connects to a coordinator. Names are checked before any server is asked.
pub(crate) fn keeper(
    server: &Server,
    names: &[String],
    work: &Work,
) -> Result<impl Future<Output = Result<Keeper, Failure>>, Failure> {
    for name in names {
        LockName::new(name)?;
    }
    Ok(server.connect_and_write(work.journal))
}

/// Does some work under what is wanted of a source, by these names.
pub(crate) async fn work<S: Source>(
    connecting: impl Future<Output = Result<S, Failure>>,
    names: &[String],
    work: &Work,
    want: impl FnOnce(&S) -> lockkeeper::Result<Wanted>,
) -> Result<u8, Failure> {
    let mut signals = Signals::listen(signals::PASSED_ON)?;
    let connected = tokio::select! {
        source = connecting => Ok(source?),
        signal = signals.next() => Err(signal),
    };
    let source = match connected {
        Ok(source) => source,
        Err(signal) => return Ok(signals::code(signal)),
    };

    let name = names.join(", ");
    let result = match want(&source) {
        Ok(wanted) => under_lock(&wanted, name, work, &mut signals).await,
        Err(refused) => Err(refused.into()),
    };

    // If you are in a hurry, send another signal; the session timeout tidies up then.
    signals.forget();
    tokio::select! {
        () = source.close() => {}
        _ = signals.next() => {}
    }
    result
}

async fn under_lock(
    wanted: &Wanted,
    name: String,
    order: &Work,
    signals: &mut Signals,
) -> Result<u8, Failure> {
    let granted = tokio::select! {
        held = acquire(wanted, &name, order) => Ok(held?),
        // Dropping the wait leaves the queue; closing the keeper sees it done.
        signal = signals.next() => Err(signal),
    };
    let held = match granted {
        Ok(held) => held,
        Err(signal) => return Ok(signals::code(signal)),
    };

    let secrets = held.secrets().iter().filter(|_| order.unset_auth);
    let secrets = secrets.map(|variable| (*variable, None));
    let environment = held.environment().into_iter().chain(secrets);
    let mut child = Child::start(&order.command, environment)?;
    let end = Running::new(&mut child, &name, order)
        .end(signals, &held)
        .await?;
    child.take_terminal();
    signals.forget();

    let released = tokio::select! {
        released = held.release() => Some(released),
        _ = signals.next() => None,
    };
    // After the release: what was about to end needs no word.
    say_rest(&child);
    let code = match (end.is_endangered, end.code) {
        (false, code) => Ok(code),
        (true, _) => Err(Failure::Endangered { name: name.clone() }),
    };
    match released {
        Some(Err(source)) if source.is_lost() => Err(Failure::Lost {
            name: name.clone(),
            source,
        }),
        Some(Err(refused)) => {
            report::say(format_args!(
                "{refused}; {} frees {name}",
                wanted.freed_by()
            ));
            code
        }
        Some(Ok(())) | None => code,
    }
}

async fn acquire(wanted: &Wanted, name: &str, order: &Work) -> Result<Held, Failure> {
    match order.wait {
        Some(limit) => Ok(wanted.take_within(limit).await?),
        None if order.no_wait => wanted.try_take().await?.ok_or_else(|| Failure::Taken {
            name: name.to_owned(),
        }),
        None => Ok(wanted.take().await?),
    }
}

/// How the command ended.
struct End {
    code: u8,
    /// Whether it was told to, for the sake of the lock.
    is_endangered: bool,
}

enum Event {
    Child(Change),
    Danger(Danger),
    GraceOver,
    Revoked,
    Signal(Signal),
}

/// The command, until it has ended.
struct Running<'a> {
    child: &'a mut Child,
    name: &'a str,
    order: &'a Work,
    /// Its exit code. Others of its group may go on.
    code: Option<u8>,
    /// Whether it was told to end: then it has ended when no process of its group is left.
    is_told: bool,
    is_endangered: bool,
    kill_at: Option<Instant>,
    is_killed: bool,
}

impl<'a> Running<'a> {
    fn new(child: &'a mut Child, name: &'a str, order: &'a Work) -> Self {
        Self {
            child,
            name,
            order,
            code: None,
            is_told: false,
            is_endangered: false,
            kill_at: None,
            is_killed: false,
        }
    }

    /// Passes signals on until the command has ended, and ends it when the lock is lost or soon may
    /// be.
    async fn end(mut self, signals: &mut Signals, held: &Held) -> Result<End, Failure> {
        let mut lease = Lease::of(held, self.order.grace);
        let mut revoked = pin!(held.revoked().fuse());
        loop {
            let grace_over: OptionFuture<_> = self.kill_at.map(sleep_until).into();
            let event = tokio::select! {
                // After a stop of this process all of them may be ready: a command that has ended
                // needs no signal, and none that came meanwhile goes before the loss.
                biased;
                change = self.child.change() => Event::Child(change?),
                danger = lease.danger(), if !self.is_endangered => Event::Danger(danger),
                Some(()) = grace_over => Event::GraceOver,
                // Only a request. That the lock is lost is a danger, and told as one.
                Ok(()) = &mut revoked, if !self.is_endangered => Event::Revoked,
                signal = signals.next() => Event::Signal(signal),
            };
            match event {
                Event::Child(Change::Ended(exit)) => {
                    self.code = Some(exit.code);
                    // A terminal sends its signals to the command, and not to us.
                    self.is_told |= exit.signal.is_some_and(is_ending);
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
                Event::Revoked => {
                    report::say(format_args!(
                        "{}: another client asks for it back; the command gets SIGTERM",
                        self.name
                    ));
                    self.child.send(Signal::SIGTERM);
                    self.child.go_on();
                    self.is_told = true;
                    self.limit_rest();
                }
                Event::Signal(signal) => {
                    self.child.send(signal);
                    self.is_told |= is_ending(signal as i32);
                    self.limit_rest();
                }
            }
        }
    }

    fn ended(&self, code: u8) -> End {
        End {
            code,
            is_endangered: self.is_endangered,
        }
    }

    /// Tells the command to end, for the sake of the lock.
    fn tell(&mut self, danger: &Danger) {
        let grace = self.order.grace;
        report::say(format_args!(
            "{}: {danger}; the command gets SIGTERM, and SIGKILL after {}",
            self.name,
            humantime::format_duration(grace)
        ));
        self.child.send(Signal::SIGTERM);
        // Not all stops are seen: a shell that is stopped in the middle of starting something does
        // not count as stopped.
        self.child.go_on();
        (self.is_told, self.is_endangered) = (true, true);
        self.limit(grace);
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
        match (self.code, rest(self.child)) {
            (None, _) => report::say(format_args!(
                "the command did not end within {grace} of SIGTERM: it gets SIGKILL"
            )),
            (Some(_), rest) => report::say(format_args!(
                "the rest of its process group{} did not end within {grace}: it gets SIGKILL",
                rest.unwrap_or_default()
            )),
        }
        self.child.send(Signal::SIGKILL);
        (self.kill_at, self.is_killed) = (None, true);
    }
}

fn is_ending(signal: i32) -> bool {
    signals::ENDING
        .iter()
        .any(|ending| *ending as i32 == signal)
}

/// Says what goes on without the lock.
fn say_rest(child: &Child) {
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
