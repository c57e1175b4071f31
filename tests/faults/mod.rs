//! Guards under faults: each reports a loss before the lock is granted again, and none reports a
//! loss while its hold is healthy.
//!
//! The modules below it group the cases by fault. Every history goes through one checker,
//! `crates/testbench/src/checker.rs`.

pub(crate) mod blackhole;
pub(crate) mod dead;
pub(crate) mod epochs;
pub(crate) mod healthy;
pub(crate) mod partition;
pub(crate) mod pause;
pub(crate) mod storm;
pub(crate) mod swap;

use std::time::Duration;

use lockkeeper::{Guard, Keeper};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use testbench::client::child::look;
use testbench::events::{Log, Outcome, What, now};
use testbench::eventually;
use testbench::stall::Stall;

/// The session timeout of most fault cases.
pub(crate) const T: Duration = Duration::from_secs(1);
pub(crate) const SOON: Duration = Duration::from_secs(20);

/// Connects, once a server serves: a member may still be looking for a leader after a fault.
pub(crate) async fn keeper(connect_string: &str) -> Keeper {
    let connect = || async {
        let builder = Keeper::builder(connect_string).session_timeout(T);
        builder.connect().await.ok()
    };
    eventually("a keeper connects", SOON, connect).await
}

/// Takes the lock, and writes down how. Asks again when no server could be found.
pub(crate) async fn granted(keeper: &Keeper, lock: &str, log: &Log) -> Guard {
    let lock = keeper.mutex(lock).expect("a name");
    for attempt in 1.. {
        log.note(What::Asked {
            attempt,
            within_ns: None,
        });
        let guard = match lock.lock().await {
            Ok(guard) => guard,
            Err(error) if error.is_unreachable() => {
                let why = error.to_string();
                log.note(What::Failed { attempt, why });
                continue;
            }
            Err(error) => panic!("the lock is not granted: {error}"),
        };
        let t = now();
        let (token, held) = (u64::from(guard.token()), guard.is_held());
        log.note_at(
            t,
            What::Granted {
                attempt,
                token,
                held,
            },
        );
        return guard;
    }
    unreachable!("there are numbers enough")
}

/// Releases it, and writes down how that ended.
pub(crate) async fn released(guard: Guard, log: &Log) -> Outcome {
    let (token, lock) = (u64::from(guard.token()), guard.name().clone());
    log.note(What::Releasing { token });
    let outcome = match guard.release().await {
        Ok(()) => Outcome::Done,
        Err(error) if error.is_lost() => {
            println!("{token} of {lock} was lost: {error}");
            Outcome::Lost
        }
        Err(error) => panic!("a release ends with {error}"),
    };
    log.note(What::Released { token, outcome });
    outcome
}

/// Releases a healthy hold. A machine that stalls for long takes leases from all holders.
pub(crate) async fn released_well(guard: Guard, log: &Log, stall: &Stall) {
    let outcome = released(guard, log).await;
    let stall = stall.longest();
    assert!(
        outcome == Outcome::Done || stall > T / 20,
        "a healthy hold ends with {outcome:?}, and the longest stall was {stall:?}"
    );
}

/// Asks the guard all the time whether it is held, on a task of its own, and logs its answers and
/// when its `lost()` resolves. Ends, with the guard, when that is lost.
pub(crate) fn watched(guard: Guard, log: &Log) -> JoinHandle<Guard> {
    let (lost, token) = (guard.lost(), u64::from(guard.token()));
    let notice = {
        let log = log.clone();
        tokio::spawn(async move {
            lost.await;
            log.note(What::Lost { token });
        })
    };
    let log = log.clone();
    tokio::spawn(async move {
        while look(&guard, &log) {
            sleep(Duration::from_millis(2)).await;
        }
        // The limit of the case is the limit of a notice that never comes.
        notice.await.expect("the notice is written down");
        guard
    })
}
