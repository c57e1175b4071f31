//! `run`: holds a lock while a command runs.
//!
//! Invariant: the lock is given back only after the command has ended, the command is told to end before others can have
//! the lock, and it never goes on after a pause without a look whether the lock is still ours.

use std::path::Path;
use std::pin::pin;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::OptionFuture;
use lockkeeper::{Keeper, LockName};
use nix::sys::signal::Signal;
use tokio::time::{Instant, sleep_until};

use crate::args::{Run, Server, Work};
use crate::child::{Change, Child};
use crate::failure::Failure;
use crate::held::{Badge, Held, Wanted};
use crate::lease::{Danger, Lease};
use crate::report;
use crate::signals::{self, Signals};
use crate::trace;

/// The longest label that we choose, in characters.
const LABEL: usize = 40;

pub(crate) async fn run(server: &Server, order: &Run) -> Result<u8, Failure> {
    let want = |keeper: &Keeper, badge| Wanted::of(keeper, order, badge);
    work(server, &order.names, &order.work, want).await
}

/// Does some work under what is wanted of a keeper, with this badge, by these names.
pub(crate) async fn work(
    server: &Server,
    names: &[String],
    work: &Work,
    want: impl FnOnce(&Keeper, Badge) -> lockkeeper::Result<Wanted>,
) -> Result<u8, Failure> {
    // Before any server is asked.
    for name in names {
        LockName::new(name)?;
    }
    let mut signals = Signals::listen(signals::PASSED_ON)?;
    let connected = tokio::select! {
        keeper = server.connect_and_write(work.journal) => Ok(keeper?),
        signal = signals.next() => Err(signal),
    };
    let keeper = match connected {
        Ok(keeper) => keeper,
        Err(signal) => return Ok(signals::code(signal)),
    };

    let name = names.join(", ");
    let badge = Badge {
        label: label(work),
        trace_id: trace::own(),
    };
    let result = match want(&keeper, badge) {
        Ok(wanted) => under_lock(&wanted, name, work, &mut signals).await,
        Err(refused) => Err(refused.into()),
    };

    // Whoever is in a hurry sends another signal; the session timeout tidies up then.
    signals.forget();
    tokio::select! {
        () = keeper.close() => {}
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

    let mut child = Child::start(&order.command, held.environment())?;
    let end = ended(&mut child, signals, &held, &name, order.grace).await?;
    child.take_terminal();
    signals.forget();

    let released = tokio::select! {
        released = held.release() => Some(released),
        _ = signals.next() => None,
    };
    let code = match (end.told_to, end.code) {
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
                "{refused}; the end of the session frees {name}"
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
    told_to: bool,
}

enum Event {
    Child(Change),
    Danger(Danger),
    GraceOver,
    Revoked,
    Signal(Signal),
}

/// Passes signals on until the command has ended, and ends it when the lock is lost or soon may be.
async fn ended(
    child: &mut Child,
    signals: &mut Signals,
    held: &Held,
    name: &str,
    grace: Duration,
) -> Result<End, Failure> {
    let mut lease = Lease::of(held);
    let mut told_to = false;
    let mut kill_at = None;
    let mut revoked = pin!(held.revoked().fuse());
    loop {
        let grace_over: OptionFuture<_> = kill_at.map(sleep_until).into();
        let event = tokio::select! {
            // After a stop of this process all of them may be ready: a command that has ended needs no signal, and none
            // that came meanwhile goes before the loss.
            biased;
            change = child.change() => Event::Child(change?),
            danger = lease.danger(), if !told_to => Event::Danger(danger),
            Some(()) = grace_over => Event::GraceOver,
            // Only a request. That the lock is lost is a danger, and told as one.
            Ok(()) = &mut revoked, if !told_to => Event::Revoked,
            signal = signals.next() => Event::Signal(signal),
        };
        match event {
            Event::Child(Change::Ended(code)) => return Ok(End { code, told_to }),
            // What is to end does not stand still, and does not stop us.
            Event::Child(Change::Stopped(Signal::SIGTSTP)) if told_to => child.go_on(),
            Event::Child(Change::Stopped(_)) if told_to => {}
            Event::Child(Change::Stopped(signal)) => {
                if child.answer_stop(signal) {
                    // We stood still with it. If there is something to tell, it is told before it goes on.
                    if let Some(danger) = lease.danger().now_or_never() {
                        tell(child, name, &danger, grace);
                        (told_to, kill_at) = (true, Instant::now().checked_add(grace));
                    }
                    child.go_on();
                }
            }
            Event::Danger(danger) => {
                tell(child, name, &danger, grace);
                (told_to, kill_at) = (true, Instant::now().checked_add(grace));
            }
            Event::GraceOver => {
                report::say(format_args!(
                    "the command did not end within {} of TERM: it gets KILL",
                    humantime::format_duration(grace)
                ));
                child.send(Signal::SIGKILL);
                kill_at = None;
            }
            Event::Revoked => {
                report::say(format_args!(
                    "{name}: somebody asks for it back; the command gets TERM"
                ));
                child.send(Signal::SIGTERM);
                child.go_on();
            }
            Event::Signal(signal) => child.send(signal),
        }
    }
}

/// Tells the command to end.
fn tell(child: &mut Child, name: &str, danger: &Danger, grace: Duration) {
    report::say(format_args!(
        "{name}: {danger}; the command gets TERM, and KILL after {}",
        humantime::format_duration(grace)
    ));
    child.send(Signal::SIGTERM);
    // Not all stops are seen: a shell that is stopped in the middle of starting something does not count as stopped.
    child.go_on();
}

/// What those who look at the queue see: the text that was given, or the program's name. Its arguments may be secrets, and everybody
/// there can read it.
fn label(work: &Work) -> String {
    let program = || {
        let program = Path::new(work.command.first()?).file_name()?;
        Some(program.to_string_lossy().chars().take(LABEL).collect())
    };
    work.label.clone().or_else(program).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::{Arguments, Order};

    #[test]
    fn a_label_tells_the_program_and_no_argument() {
        let label = |words: &str| {
            let words = format!("lockkeeper run x {words}");
            let arguments = Arguments::try_parse_from(words.split(' ')).unwrap();
            let Order::Run(run) = arguments.order else {
                panic!("{words}");
            };
            label(&run.work)
        };

        assert_eq!(label("-- ./login.sh hunter2"), "login.sh");
        assert_eq!(label("-- mysql -psecret db"), "mysql");
        assert_eq!(label("-- env PASSWORD=x cmd"), "env");
        assert_eq!(label(&format!("-- {}", "x".repeat(99))).len(), LABEL);
        assert_eq!(label("--label nightly -- ./backup.sh full"), "nightly");
    }
}
