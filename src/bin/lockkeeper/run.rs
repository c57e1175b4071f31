//! `run`: holds a lock while a command runs.
//!
//! Invariant: the lock is given back only after the command has ended, the command is told to end before others can have
//! the lock, and it never goes on after a pause without a look whether the lock is still ours.

use std::ffi::OsString;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::OptionFuture;
use lockkeeper::{Guard, Keeper, LockName, Mutex};
use nix::sys::signal::Signal;
use tokio::time::{Instant, sleep_until};

use crate::args::{Run, Server};
use crate::child::{Change, Child};
use crate::failure::Failure;
use crate::lease::{Danger, Lease};
use crate::report;
use crate::signals::{self, Signals};

/// The longest label of a ticket, in characters.
const LABEL: usize = 40;

pub(crate) async fn run(server: &Server, order: &Run) -> Result<u8, Failure> {
    let name = LockName::new(&order.name)?;
    let mut signals = Signals::listen(signals::PASSED_ON)?;
    let connected = tokio::select! {
        keeper = server.connect() => Ok(keeper?),
        signal = signals.next() => Err(signal),
    };
    let keeper = match connected {
        Ok(keeper) => keeper,
        Err(signal) => return Ok(signals::code(signal)),
    };

    let result = under_lock(&keeper, &name, order, &mut signals).await;

    // Whoever is in a hurry sends another signal; the session timeout tidies up then.
    tokio::select! {
        () = keeper.close() => {}
        _ = signals.next() => {}
    }
    result
}

async fn under_lock(
    keeper: &Keeper,
    name: &LockName,
    order: &Run,
    signals: &mut Signals,
) -> Result<u8, Failure> {
    let lock = keeper.mutex(name)?.with_label(label(&order.command));
    let granted = tokio::select! {
        guard = acquire(&lock, order) => Ok(guard?),
        // Dropping the wait leaves the queue; closing the keeper sees it done.
        signal = signals.next() => Err(signal),
    };
    let guard = match granted {
        Ok(guard) => guard,
        Err(signal) => return Ok(signals::code(signal)),
    };

    let environment = [
        ("LOCKKEEPER_NAME", name.to_string()),
        ("LOCKKEEPER_TOKEN", guard.token().to_string()),
        ("LOCKKEEPER_NODE", guard.node().to_owned()),
    ];
    let mut child = Child::start(&order.command, environment)?;
    let end = ended(&mut child, signals, &guard, order.grace).await?;
    child.take_terminal();

    let released = tokio::select! {
        released = guard.release() => Some(released),
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

async fn acquire(lock: &Mutex, order: &Run) -> Result<Guard, Failure> {
    match order.wait {
        Some(limit) => Ok(lock.lock_timeout(limit).await?),
        None if order.no_wait => lock.try_lock().await?.ok_or_else(|| Failure::Taken {
            name: lock.name().clone(),
        }),
        None => Ok(lock.lock().await?),
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
    Signal(Signal),
}

/// Passes signals on until the command has ended, and ends it when the lock is lost or soon may be.
async fn ended(
    child: &mut Child,
    signals: &mut Signals,
    guard: &Guard,
    grace: Duration,
) -> Result<End, Failure> {
    let mut lease = Lease::of(guard);
    let mut told_to = false;
    let mut kill_at = None;
    loop {
        let grace_over: OptionFuture<_> = kill_at.map(sleep_until).into();
        let event = tokio::select! {
            // After a stop of this process all of them may be ready: a command that has ended needs no signal, and none
            // that came meanwhile goes before the loss.
            biased;
            change = child.change() => Event::Child(change?),
            danger = lease.danger(), if !told_to => Event::Danger(danger),
            Some(()) = grace_over => Event::GraceOver,
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
                        tell(child, guard, &danger, grace);
                        (told_to, kill_at) = (true, Instant::now().checked_add(grace));
                    }
                    child.go_on();
                }
            }
            Event::Danger(danger) => {
                tell(child, guard, &danger, grace);
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
            Event::Signal(signal) => child.send(signal),
        }
    }
}

/// Tells the command to end.
fn tell(child: &mut Child, guard: &Guard, danger: &Danger, grace: Duration) {
    report::say(format_args!(
        "{}: {danger}; the command gets TERM, and KILL after {}",
        guard.name(),
        humantime::format_duration(grace)
    ));
    child.send(Signal::SIGTERM);
    // Not all stops are seen: a shell that is stopped in the middle of starting something does not count as stopped.
    child.go_on();
}

/// The first words of the command, for those who look at the queue. Everybody there can read it, so it ends before
/// anything that may hold a secret: an option, an assignment, an address with a password.
fn label(command: &[OsString]) -> String {
    let is_plain = |word: &str| {
        !word.starts_with('-')
            && word
                .chars()
                .all(|c| c.is_alphanumeric() || "._/+-,".contains(c))
    };
    let words: Vec<_> = command
        .iter()
        .map(|word| word.to_string_lossy())
        .take_while(|word| is_plain(word))
        .collect();
    words.join(" ").chars().take(LABEL).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_tells_the_program_and_no_secret() {
        let label = |words: &str| label(&words.split(' ').map(OsString::from).collect::<Vec<_>>());

        assert_eq!(
            label("./backup.sh nightly full"),
            "./backup.sh nightly full"
        );
        assert_eq!(label("mysql -psecret db"), "mysql");
        assert_eq!(label("env PASSWORD=x cmd"), "env");
        assert_eq!(label("psql postgres://u:p@host/db"), "psql");
        assert_eq!(label(&"x".repeat(99)).len(), LABEL);
    }
}
