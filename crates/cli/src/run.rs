//! `run`: holds a lock while a command runs.
//!
//! Invariant: the lock is given back only after the command has ended.

use std::iter;
use std::time::Duration;

use lockkeeper::{Error, Keeper, LockName, QueueEntry};
use tokio::time::{Instant, sleep, sleep_until};

use crate::args::{Place, Run, Server, Work};
use crate::child::Child;
use crate::code;
use crate::failure::Failure;
use crate::held::{Held, Wanted};
use crate::nested;
use crate::plain::PlainSource;
use crate::report;
use crate::running::{self, End, Running};
use crate::signals::{self, Signals};
use crate::status::StatusLine;
use crate::waiting;

/// What gives locks, and tidies up when they are no longer needed.
pub(crate) trait Source {
    /// The queue of a lock; nobody is in it if such locks have none.
    async fn queue(&self, name: &str) -> lockkeeper::Result<Vec<QueueEntry>>;

    async fn close(self);
}

impl Source for Keeper {
    async fn queue(&self, name: &str) -> lockkeeper::Result<Vec<QueueEntry>> {
        Self::queue(self, name).await
    }

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

    let result = match want(&source) {
        Ok(wanted) => under_lock(&source, &wanted, names, work, &mut signals).await,
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

async fn under_lock<S: Source>(
    source: &S,
    wanted: &Wanted,
    names: &[String],
    order: &Work,
    signals: &mut Signals,
) -> Result<u8, Failure> {
    let name = names.join(", ");
    let granted = tokio::select! {
        held = acquire(source, wanted, names, order) => Ok(held?),
        // It ends with the wait only.
        never = waiting::tell(source, names) => match never {},
        // Dropping the wait leaves the queue; closing the keeper sees it done.
        signal = signals.next() => Err(signal),
    };
    let held = match granted {
        Ok(held) => held,
        Err(signal) => return Ok(signals::code(signal)),
    };
    let granted_at = Instant::now();

    let mut child = start(&held, order)?;
    let end = Running::new(&mut child, &name, order)
        .end(signals, &held)
        .await?;
    child.take_terminal();
    let kept = match order.hold_at_least.filter(|_| !end.is_told) {
        Some(least) => keep(&held, &name, granted_at + least, signals).await,
        None => Ok(()),
    };
    signals.forget();

    let left = Some(held.valid_for()).filter(|_| held.is_held());
    let lease_end = left.and_then(|left| Instant::now().checked_add(left));
    let released = tokio::select! {
        released = held.release() => Some(released),
        _ = signals.next() => None,
    };
    // After the release: what was about to end needs no word.
    running::say_rest(&child);
    kept?;
    let code = code(&end, &name);
    match released {
        Some(Err(source))
            if source.is_lost() && (end.is_endangered || !is_of_release(&source, lease_end)) =>
        {
            Err(Failure::Lost { name, source })
        }
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

/// Whether the lock was lost only because the servers were silent at its release: the command had
/// ended within the lease. Whoever ended the session or took the ticket may have done so before.
fn is_of_release(loss: &Error, lease_end: Option<Instant>) -> bool {
    let is_silence = matches!(loss, Error::LeaseOver { .. }) || loss.is_session_over();
    is_silence && lease_end.is_some_and(|end| end <= Instant::now())
}

fn start(held: &Held, order: &Work) -> Result<Child, Failure> {
    let secrets = secrets().filter(|_| order.unset_auth);
    let secrets = secrets.map(|variable| (variable, None));
    let environment = held.environment().into_iter().chain(secrets);
    let around = nested::environment(held);
    Child::start(&order.command, environment.chain([around]))
}

/// The variables that may have our secrets. A URL may have a password, whichever servers the
/// options name. A connect string of ZooKeeper has none.
fn secrets() -> impl Iterator<Item = &'static str> {
    let is_url = |variable: &&str| {
        let value = std::env::var_os(variable).unwrap_or_default();
        let value = value.to_string_lossy();
        value.contains("://") && !value.trim_start().starts_with("zookeeper://")
    };
    let servers = ["LOCKKEEPER_SERVERS", "LOCKKEEPER_ZK"].into_iter();
    iter::once("LOCKKEEPER_AUTH").chain(servers.filter(is_url))
}

fn code(end: &End, name: &str) -> Result<u8, Failure> {
    match end {
        End {
            is_endangered: true,
            ..
        } => Err(Failure::Endangered { name: name.into() }),
        End {
            is_overdue: true, ..
        } => Ok(code::OVERDUE),
        End { code, .. } => Ok(*code),
    }
}

async fn acquire<S: Source>(
    source: &S,
    wanted: &Wanted,
    names: &[String],
    order: &Work,
) -> Result<Held, Failure> {
    match order.wait {
        Some(limit) if !limit.is_zero() => Ok(wanted.take_within(limit).await?),
        None if !order.no_wait => {
            // On the heap: it is seldom needed.
            Box::pin(nested::check(source, wanted, names)).await?;
            Ok(wanted.take().await?)
        }
        _ => wanted.try_take().await?.ok_or_else(|| Failure::Taken {
            name: names.join(", "),
        }),
    }
}

/// Keeps the lock of a command that has ended, until then. A signal or a request ends that; the
/// work is done.
async fn keep(
    held: &Held,
    name: &str,
    until: Instant,
    signals: &mut Signals,
) -> Result<(), Failure> {
    let told = async { while !signals::is_ending(signals.next().await as i32) {} };
    let talk = async {
        let line = StatusLine::open();
        loop {
            if let Some(line) = &line {
                let left = report::span(until - Instant::now() + Duration::from_millis(999));
                line.show(|_| format!("holding {name} for {left} more (--hold-at-least)"));
            }
            sleep(Duration::from_secs(1)).await;
        }
    };
    tokio::select! {
        biased;
        source = held.lost() => Err(Failure::LostAfter { name: name.into(), source }),
        () = sleep_until(until) => Ok(()),
        Ok(()) = held.revoked() => Ok(()),
        () = told => Ok(()),
        never = talk => never,
    }
}
