//! The client's side: a process that locks, holds, writes to the store, releases, and logs each
//! step.
//!
//! It uses the library as a careful user would: it checks the guard before each write and stops
//! when it is lost. Fencing is for a loss between that check and the write.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use lockkeeper::{Error, Guard, Keeper};
use rustix::process::{Signal, set_parent_process_death_signal};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::Order;
use super::held::{Held, Lock};
use crate::events::{Log, Outcome, What, now};
use crate::stall;
use crate::store::Writer;

/// The environment variable with the order.
pub(crate) const ORDER: &str = "LOCKKEEPER_CLIENT";

/// A shorter stall is within every bound.
const WORTH_A_LINE: Duration = Duration::from_millis(5);

/// The process's `main`, if this process is a client.
pub fn child() -> Option<ExitCode> {
    let order = std::env::var(ORDER).ok()?;
    let order: Order = serde_json::from_str(&order).expect("an order");
    // A stopped process would not notice that its parent has ended.
    set_parent_process_death_signal(Some(Signal::KILL)).expect("a signal");
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    let (tell, told) = watch::channel(false);
    std::thread::spawn(move || {
        // On a line, an end of file or an error alike, the client is to end.
        std::io::stdin().read_line(&mut String::new()).unwrap_or(0);
        tell.send_replace(true);
    });
    runtime.block_on(live(&order, told));
    Some(ExitCode::SUCCESS)
}

pub(super) async fn live(order: &Order, mut told: watch::Receiver<bool>) {
    let log = Log::open(&order.log, &order.name, &order.lock).expect("a log");
    let theirs = log.clone();
    let lives = Arc::new(());
    let lived = Arc::downgrade(&lives);
    tokio::spawn(stall::task_naps(
        move || lived.strong_count() > 0,
        move |late| {
            if late > WORTH_A_LINE {
                let for_ns = nanos(late);
                theirs.note(What::Stalled { for_ns });
            }
        },
    ));
    let mut writer = Writer::connect(order.store, &order.lock, &order.name).await;
    let Some(keeper) = connect(order, &told).await else {
        return;
    };
    let lock = Lock::of(&keeper, order.recipe, &order.lock);
    let mut attempt = 0;
    while !*told.borrow() {
        attempt += 1;
        let within_ns = order.patience.map(nanos);
        log.note(What::Asked { attempt, within_ns });
        let answer = tokio::select! {
            answer = lock.take(order.patience) => Some(answer),
            _ = told.wait_for(|told| *told) => None,
        };
        match answer {
            Some(Ok(guard)) => {
                turn(order, attempt, guard, &log, &mut writer, &told).await;
                sleep(order.pause).await;
            }
            Some(Err(error)) => {
                let why = chain(&error);
                log.note(What::Failed { attempt, why });
                // Not a wait: a pause, so that a dead ensemble is not asked in a tight loop.
                sleep(Duration::from_millis(20)).await;
            }
            None => log.note(What::Cancelled { attempt }),
        }
    }
    keeper.close().await;
}

async fn connect(order: &Order, told: &watch::Receiver<bool>) -> Option<Keeper> {
    while !*told.borrow() {
        let builder = Keeper::builder(&order.connect_string).session_timeout(order.session_timeout);
        match builder.connect().await {
            Ok(keeper) => return Some(keeper),
            // A fault may be active.
            Err(error) if error.is_unreachable() => {}
            Err(error) => panic!("{}", chain(&error)),
        }
    }
    None
}

/// One hold, from the grant to the end of its release.
async fn turn(
    order: &Order,
    attempt: u64,
    guard: Held,
    log: &Log,
    writer: &mut Writer,
    told: &watch::Receiver<bool>,
) {
    let t = now();
    let held = guard.is_held();
    // Who shares has no token, and writes nothing; nobody else has the same number.
    let token = guard.token().unwrap_or(t);
    if let Some((takes, of)) = guard.share() {
        log.note_at(t, What::Shares { token, takes, of });
    }
    log.note_at(
        t,
        What::Granted {
            attempt,
            token,
            held,
        },
    );
    let (lost, theirs) = (guard.lost(), log.clone());
    let notice = tokio::spawn(async move {
        lost.await;
        theirs.note(What::Lost { token });
    });

    let mut left = order.writes.unwrap_or(u64::MAX);
    while left > 0
        && !*told.borrow()
        && look_at(log, token, || guard.is_held(), || guard.valid_for())
    {
        sleep(order.work).await;
        left -= 1;
        if guard.token().is_some() {
            let accepted = writer.write(token).await;
            log.note(What::Write { token, accepted });
        }
    }

    log.note(What::Releasing { token });
    let outcome = match guard.release().await {
        Ok(()) => Outcome::Done,
        Err(error) if error.is_lost() => Outcome::Lost,
        Err(_) => Outcome::Unknown,
    };
    if outcome == Outcome::Lost {
        // If no notice comes, the checker reports it.
        timeout(Duration::from_secs(1), notice).await.ok();
    } else {
        notice.abort();
    }
    log.note(What::Released { token, outcome });
}

/// Asks the guard, and logs the answer and the time of the question.
pub fn look(guard: &Guard, log: &Log) -> bool {
    let token = u64::from(guard.token());
    look_at(log, token, || guard.is_held(), || guard.valid_for())
}

fn look_at(
    log: &Log,
    token: u64,
    is_held: impl FnOnce() -> bool,
    valid_for: impl FnOnce() -> Duration,
) -> bool {
    let t = now();
    let held = is_held();
    let left = valid_for();
    let until_ns = (!left.is_zero()).then(|| now() + nanos(left));
    log.note_at(
        t,
        What::HeldSeen {
            token,
            held,
            until_ns,
        },
    );
    held
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).expect("a short time")
}

fn chain(error: &Error) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(error) = source {
        text += &format!(": {error}");
        source = error.source();
    }
    text
}
