//! `run`: holds a lock while a command runs.
//!
//! Invariant: the lock is given back only after the command has ended, and the command never goes on after a pause
//! without a look whether the lock is still ours.

use std::ffi::OsString;

use lockkeeper::{Guard, Keeper, LockName, Mutex};
use nix::sys::signal::Signal;

use crate::args::{Run, Server};
use crate::child::{Change, Child};
use crate::failure::Failure;
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
    let code = ended(&mut child, signals, keeper, &guard).await?;
    child.take_terminal();

    let released = tokio::select! {
        released = guard.release() => Some(released),
        _ = signals.next() => None,
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
            Ok(code)
        }
        Some(Ok(())) | None => Ok(code),
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

enum Event {
    Signal(Signal),
    Child(Change),
}

/// Passes signals on until the command has ended; its exit code.
async fn ended(
    child: &mut Child,
    signals: &mut Signals,
    keeper: &Keeper,
    guard: &Guard,
) -> Result<u8, Failure> {
    loop {
        let event = tokio::select! {
            change = child.change() => Event::Child(change?),
            signal = signals.next() => Event::Signal(signal),
        };
        match event {
            Event::Child(Change::Ended(code)) => return Ok(code),
            Event::Signal(signal) => child.send(signal),
            Event::Child(Change::Stopped(signal)) => {
                if child.answer_stop(signal) {
                    if !is_held(keeper, guard).await {
                        report::say(format_args!(
                            "{} was lost while everything was stopped: the command gets TERM",
                            guard.name()
                        ));
                        child.send(Signal::SIGTERM);
                    }
                    child.go_on();
                }
            }
        }
    }
}

/// Asks the servers. No answer is no.
async fn is_held(keeper: &Keeper, guard: &Guard) -> bool {
    let queue = keeper.queue(guard.name()).await.unwrap_or_default();
    queue
        .iter()
        .any(|ticket| ticket.token == guard.token() && ticket.is_holder)
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
