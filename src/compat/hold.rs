//! The hold of a plain lock: its lease, its renewal and its release.
//!
//! Invariants: a hold begins only with a confirmed answer. It is lost at the latest when its lease
//! ends, by the clock and not by a packet. It touches only what has its own secret.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, timeout};

use super::lease::{PlainLease, PlainLoss};
use super::renewals::{FirstRenewal, RenewalKey, RenewalTimer};
use super::store::{Attempt, PlainStore, StoreResult, failed};
use crate::error::{Error, Result, StoreProblem};
use crate::latch::Latch;
use crate::protocol::lease::Moment;
use crate::session::clock::{Clock, SystemClock};
use crate::session::setbacks::Setbacks;
use crate::token::Token;

/// A renewal is sent so often in a ttl.
const RENEWALS: u32 = 3;
/// What still came is freed after this part of the time that it took to come.
const LATER: u32 = 10;

pub(super) struct PlainHold<S: PlainStore + ?Sized> {
    pub(super) store: Arc<S>,
    pub(super) attempt: Attempt,
    pub(super) token: Option<Token>,
    lease: Latch<PlainLease>,
    lost: Notify,
    pub(super) runtime: Handle,
    renewal: Latch<Renewal>,
}

/// Who renews a hold.
enum Renewal {
    /// Nobody yet, or no longer.
    Nobody,
    /// The timer will tell when it is time.
    Waits(Arc<RenewalTimer>, RenewalKey),
    /// A task of its own.
    Runs(AbortHandle),
    /// Nobody, ever again.
    Stopped,
}

impl Renewal {
    fn end(self) {
        match self {
            Self::Nobody | Self::Stopped => {}
            Self::Waits(timer, key) => timer.remove(key),
            Self::Runs(task) => task.abort(),
        }
    }
}

/// Frees what an unanswered acquire may have taken. On another connection the acquire can still be
/// under way, and come behind the release. So it is freed again and again until it was ours once,
/// or until a store that answers has not had it for a ttl. It gives up after three.
pub(super) async fn settle<S: PlainStore + ?Sized>(store: &S, attempt: &Attempt, sent: Moment) {
    let mut setbacks = Setbacks::default();
    while SystemClock.now() < sent + attempt.ttl * 3 {
        match free(store, attempt).await {
            Some(true) => return,
            Some(false) if SystemClock.now() >= sent + attempt.ttl => return,
            _ => sleep(setbacks.pause().max((SystemClock.now() - sent) / LATER)).await,
        }
    }
}

/// Frees what is ours, if the store answers. `None` if it does not, or refuses.
async fn free<S: PlainStore + ?Sized>(store: &S, attempt: &Attempt) -> Option<bool> {
    let freed = in_time(attempt, store.release(attempt)).await;
    let told = |problem: &StoreProblem| {
        tracing::debug!(%problem, server = store.server(), "cannot free a plain lock");
    };
    freed.inspect_err(told).ok()
}

/// A request without an answer is one with an unknown outcome. Its time begins when it is sent.
pub(super) async fn in_time<T>(
    attempt: &Attempt,
    answer: impl Future<Output = StoreResult<T>>,
) -> StoreResult<T> {
    let (asked, patience) = (SystemClock.now(), attempt.patience());
    let mut answer = pin!(answer);
    let mut limit = patience;
    loop {
        if let Ok(answered) = timeout(limit, &mut answer).await {
            return answered;
        }
        let sent = attempt.turn.sent(asked);
        let waited = sent.map_or(Duration::ZERO, |sent| SystemClock.now() - sent);
        if waited >= patience {
            return Err(StoreProblem::NoAnswer);
        }
        limit = patience - waited;
    }
}

async fn within<T>(
    limit: Duration,
    answer: impl Future<Output = StoreResult<T>>,
) -> StoreResult<T> {
    let answered = timeout(limit, answer).await;
    answered.unwrap_or(Err(StoreProblem::NoAnswer))
}

impl<S: PlainStore + ?Sized> FirstRenewal for PlainHold<S> {
    fn begin_renewing(self: Arc<Self>) {
        self.spawn_renewing(Duration::ZERO);
    }
}

impl<S: PlainStore + ?Sized> PlainHold<S> {
    /// It is renewed in the runtime of a keeper, or else in the current one.
    pub(super) fn begin(
        store: Arc<S>,
        attempt: Attempt,
        token: Option<Token>,
        sent: Moment,
        timer: Option<Arc<RenewalTimer>>,
    ) -> Arc<Self> {
        let runtime = timer.as_ref().map(|timer| timer.runtime.clone());
        let every = attempt.ttl / RENEWALS;
        let hold = Arc::new(Self {
            lease: Latch::new(PlainLease::new(attempt.ttl, sent)),
            store,
            attempt,
            token,
            lost: Notify::new(),
            runtime: runtime.unwrap_or_else(Handle::current),
            renewal: Latch::new(Renewal::Nobody),
        });
        match timer {
            None => hold.spawn_renewing(every),
            Some(timer) => {
                let waits = Arc::clone(&hold) as Arc<dyn FirstRenewal>;
                let key = timer.add(Instant::now() + every, waits);
                hold.renews(Renewal::Waits(timer, key));
            }
        }
        hold
    }

    fn spawn_renewing(self: &Arc<Self>, pause: Duration) {
        let renewing = Arc::clone(self).keep_renewing(pause);
        let renewing = self.runtime.spawn(renewing).abort_handle();
        self.renews(Renewal::Runs(renewing));
    }

    /// It goes on so, unless it was stopped or is further already.
    fn renews(&self, next: Renewal) {
        let mut renewal = self.renewal.lock();
        let ended = match (&*renewal, next) {
            (Renewal::Stopped, next) | (Renewal::Runs(_), next @ Renewal::Waits(..)) => next,
            (_, next) => std::mem::replace(&mut *renewal, next),
        };
        drop(renewal);
        ended.end();
    }

    async fn keep_renewing(self: Arc<Self>, mut pause: Duration) {
        let every = self.attempt.ttl / RENEWALS;
        let mut setbacks = Setbacks::default();
        loop {
            sleep(pause).await;
            let sent = SystemClock.now();
            if self.loss().is_some() {
                return;
            }
            match in_time(&self.attempt, self.store.renew(&self.attempt)).await {
                Ok(true) => {
                    self.lease.lock().renewed(sent, SystemClock.now());
                    setbacks = Setbacks::default();
                    pause = every;
                }
                Ok(false) => return self.gone(),
                Err(problem) => {
                    tracing::debug!(%problem, name = &*self.attempt.name, "a renewal failed");
                    self.lease.lock().doubt();
                    pause = setbacks.pause().min(every);
                }
            }
        }
    }

    pub(super) fn loss(&self) -> Option<PlainLoss> {
        self.lease.lock().loss(SystemClock.now())
    }

    pub(super) fn valid_for(&self) -> Duration {
        self.lease.lock().left(SystemClock.now())
    }

    pub(super) fn is_suspect(&self) -> bool {
        self.lease.lock().is_suspect()
    }

    /// Ends when the hold is lost, and never after a release.
    pub(super) async fn lost(&self) -> PlainLoss {
        loop {
            let told = self.lost.notified();
            let (until, is_released) = {
                let lease = self.lease.lock();
                (lease.until(), lease.is_released())
            };
            if is_released {
                return std::future::pending().await;
            }
            if let Some(loss) = self.loss() {
                return loss;
            }
            tokio::select! {
                () = told => {}
                () = SystemClock.until(until) => {}
            }
        }
    }

    /// Nothing renews it any more.
    pub(super) fn runtime_ends(&self) -> Error {
        self.error(PlainLoss::Expired)
    }

    pub(super) fn error(&self, loss: PlainLoss) -> Error {
        let name = self.attempt.name.to_string();
        match loss {
            PlainLoss::Expired => Error::LeaseOver { name },
            PlainLoss::Gone => failed(&*self.store, "hold", &name, StoreProblem::NotOurs),
        }
    }

    /// Asks the store whether the lock is still ours. It must run in a task of the hold's runtime:
    /// it may open a connection.
    pub(super) async fn check(self: Arc<Self>) -> Result<()> {
        let mut setbacks = Setbacks::default();
        loop {
            let sent = SystemClock.now();
            if let Some(loss) = self.loss() {
                return Err(self.error(loss));
            }
            match in_time(&self.attempt, self.store.renew(&self.attempt)).await {
                Ok(true) => self.lease.lock().renewed(sent, SystemClock.now()),
                Ok(false) => self.gone(),
                Err(problem) if problem.is_passing() => {
                    sleep(setbacks.pause()).await;
                    continue;
                }
                Err(problem) => {
                    return Err(failed(&*self.store, "check", &self.attempt.name, problem));
                }
            }
            return match self.loss() {
                Some(loss) => Err(self.error(loss)),
                None => Ok(()),
            };
        }
    }

    /// Ends the renewal. The caller frees the lock.
    pub(super) fn stop(&self) {
        self.renews(Renewal::Stopped);
    }

    /// The store says that the lock is not ours.
    fn gone(&self) {
        self.lease.lock().gone();
        self.lost.notify_waiters();
    }

    /// It is released, and can no longer be lost.
    fn end(&self) {
        self.lease.lock().release(SystemClock.now());
    }

    /// Frees the lock in the background.
    pub(super) fn free(self: &Arc<Self>) {
        self.stop();
        self.end();
        let hold = Arc::clone(self);
        self.runtime.spawn(async move {
            let until = SystemClock.now() + hold.attempt.ttl;
            let mut setbacks = Setbacks::default();
            // What was confirmed cannot come again: one answer is enough. After the ttl the store
            // has freed it.
            while free(&*hold.store, &hold.attempt).await.is_none() && SystemClock.now() < until {
                sleep(setbacks.pause()).await;
            }
        });
    }

    /// Frees the lock, and waits for the answer until the lease ends. It must come to its end, in
    /// the hold's runtime.
    pub(super) async fn release(self: Arc<Self>) -> Result<()> {
        self.stop();
        let (mut setbacks, mut is_repeated) = (Setbacks::default(), false);
        loop {
            if let Some(loss) = self.loss() {
                self.free();
                return Err(self.error(loss));
            }
            let limit = self.valid_for().min(self.attempt.patience());
            match within(limit, self.store.release(&self.attempt)).await {
                // An earlier request without an answer may have freed it.
                Ok(was_ours) if was_ours || is_repeated => {
                    self.end();
                    return Ok(());
                }
                Ok(_) => {
                    self.gone();
                    return Err(self.error(PlainLoss::Gone));
                }
                Err(problem) if problem.is_passing() => {
                    is_repeated |= problem.is_unknown();
                    sleep(setbacks.pause().min(self.valid_for())).await;
                }
                Err(problem) => {
                    // The store may free it soon, and nothing renews it meanwhile.
                    self.free();
                    return Err(failed(&*self.store, "release", &self.attempt.name, problem));
                }
            }
        }
    }
}
