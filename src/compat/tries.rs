//! One try to take a plain lock, and the pauses between tries.
//!
//! Invariant: what a try took has a guard, or is released.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use uuid::Uuid;

use super::guard::PlainGuard;
use super::hold::{PlainHold, in_time, settle};
use super::renewals::RenewalTimer;
use super::store::{Acquired, Attempt, PlainStore, StoreResult};
use crate::error::StoreProblem;
use crate::session::clock::{Clock, SystemClock};

/// What a try came to.
pub(super) enum TryOutcome<S: PlainStore + ?Sized> {
    Held(PlainGuard<S>),
    Taken { left: Option<Duration> },
}

/// Tries once. A request without an answer is settled in the background: what it may have taken,
/// or still takes, is released. It must come to its end, in the runtime of its keeper.
pub(super) async fn try_once<S: PlainStore + ?Sized>(
    store: Arc<S>,
    attempt: Attempt,
    timer: Option<Arc<RenewalTimer>>,
) -> StoreResult<TryOutcome<S>> {
    let asked = SystemClock.now();
    let answer = in_time(&attempt, store.acquire(&attempt)).await;
    let sent = attempt.turn.sent(asked).unwrap_or(asked);
    match answer {
        Ok(Acquired::Yes { token }) => {
            let guard = PlainGuard::new(PlainHold::begin(store, attempt, token, sent, timer));
            // The answer may have taken longer than the lease.
            if guard.is_held() {
                Ok(TryOutcome::Held(guard))
            } else {
                Err(StoreProblem::NoAnswer)
            }
        }
        Ok(Acquired::No { left }) => Ok(TryOutcome::Taken { left }),
        Err(problem) => {
            if problem.is_unknown() {
                tokio::spawn(async move { settle(&*store, &attempt, sent).await });
            }
            Err(problem)
        }
    }
}

/// What woke a waiter. If the waiter fails or goes without a look at the lock, another one is woken
/// instead: the store wakes one for each release.
#[derive(Default)]
pub(super) struct WakeToPass(Option<Arc<Notify>>);

impl WakeToPass {
    pub(super) fn of(wake: &Arc<Notify>) -> Self {
        Self(Some(Arc::clone(wake)))
    }

    /// The waiter has looked.
    pub(super) fn heed(&mut self) {
        self.0 = None;
    }
}

impl Drop for WakeToPass {
    fn drop(&mut self) {
        if let Some(others) = &self.0 {
            others.notify_one();
        }
    }
}

/// The pauses of a waiter: random, and longer each time.
pub(super) struct Pauses {
    now: Duration,
    longest: Duration,
}

impl Pauses {
    pub(super) fn new((shortest, longest): (Duration, Duration)) -> Self {
        Self {
            now: shortest,
            longest,
        }
    }

    /// Between a half and the whole of the pause, and not much longer than the other holder can
    /// have the lock.
    pub(super) fn next(&mut self, left: Option<Duration>) -> Duration {
        let (random, _) = Uuid::new_v4().as_u64_pair();
        // 53 bits are what an f64 holds.
        let part = 0.5 + (random >> 11) as f64 / (1u64 << 54) as f64;
        let pause = self.now.mul_f64(part);
        self.now = self.longest.min(self.now * 2);
        left.map_or(pause, |left| pause.min(left + Duration::from_millis(1)))
    }
}
