//! Plain locks for `run`: the connection to their store, and what of it is not settled yet.
//!
//! Invariant: a tool that ends in time leaves no lock behind. A try that was given up may still
//! take the lock, and the library takes it back in a task that ends with the process. So the tool
//! waits until each try has come to nothing, or its hold is released.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use lockkeeper::compat::{
    self, Acquired, Attempt, PlainKeeper, PlainLayer, PlainStore, StoreProblem, StoreResult,
};
use lockkeeper::{Error, Owner, QueueEntry};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout};

use crate::args::Run;
use crate::failure::Failure;
use crate::held::Wanted;
use crate::run::Source;

/// So long the tool waits for what is not settled. Then the end of the ttl frees the lock.
const PATIENCE: Duration = Duration::from_secs(2);
/// Between two connects: at first, and at most.
const PAUSES: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(1)];

/// A store with plain locks.
pub(crate) struct PlainSource {
    keeper: PlainKeeper<dyn PlainStore>,
    unsettled: Arc<Unsettled>,
}

impl PlainSource {
    /// Tries for so long; with a limit of zero, once.
    pub(crate) async fn connect(url: &str, limit: Duration) -> Result<Self, Failure> {
        let inner = if limit.is_zero() {
            compat::connect(url).await?
        } else {
            let (mut last, connecting) = (None, Instant::now());
            let connected = timeout(limit, connect(url, &mut last)).await;
            tracing::debug!(after = ?connecting.elapsed(), "connected, or gave up");
            match (connected, last) {
                (Ok(connected), _) => connected?,
                (Err(_), Some(error)) => return Err(error.into()),
                (Err(_), None) => return Err(Failure::NoStore { limit }),
            }
        };
        let unsettled = Arc::<Unsettled>::default();
        let keeper = PlainKeeper::new(Tracked {
            inner,
            unsettled: Arc::clone(&unsettled),
        })
        .erased();
        Ok(Self { keeper, unsettled })
    }

    pub(crate) fn wanted(&self, order: &Run) -> lockkeeper::Result<Wanted> {
        // Several names were refused before.
        let mut lock = self.keeper.mutex(order.names.join(" "))?;
        if let Some(ttl) = order.ttl {
            lock = lock.with_ttl(ttl)?;
        }
        if let Some(owner) = &order.owner {
            // A kind that is not reentrant refuses it.
            lock = lock.with_owner(&Owner::named(owner))?;
        }
        Ok(Wanted::Plain(lock))
    }
}

impl Source for PlainSource {
    async fn queue(&self, _: &str) -> lockkeeper::Result<Vec<QueueEntry>> {
        Ok(Vec::new())
    }

    async fn close(self) {
        if timeout(PATIENCE, self.unsettled.end()).await.is_err() {
            tracing::debug!("the store does not answer: the ttl frees the lock");
        }
    }
}

/// Connects, again and again while the store is not reachable.
async fn connect(
    url: &str,
    last: &mut Option<Error>,
) -> lockkeeper::Result<PlainKeeper<dyn PlainStore>> {
    let mut pause = PAUSES[0];
    loop {
        match compat::connect(url).await {
            Err(error) if is_passing(&error) => *last = Some(error),
            connected => return connected,
        }
        sleep(pause).await;
        pause = (pause * 2).min(PAUSES[1]);
    }
}

fn is_passing(error: &Error) -> bool {
    matches!(
        error,
        Error::Store {
            problem: StoreProblem::Unreachable(_) | StoreProblem::NoAnswer,
            ..
        }
    )
}

/// The secrets of what may be held in the store, and since when a try is under way.
#[derive(Debug, Default)]
struct Unsettled {
    secrets: Mutex<HashMap<Arc<str>, Option<Instant>>>,
    settled: Notify,
}

impl Unsettled {
    fn secrets(&self) -> MutexGuard<'_, HashMap<Arc<str>, Option<Instant>>> {
        self.secrets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(&self, attempt: &Attempt) {
        let secret = Arc::clone(&attempt.secret);
        self.secrets().insert(secret, Some(Instant::now()));
    }

    /// It has taken the lock.
    fn take(&self, attempt: &Attempt) {
        self.secrets().insert(Arc::clone(&attempt.secret), None);
    }

    fn settle(&self, attempt: &Attempt) {
        self.secrets().remove(&attempt.secret);
        self.settled.notify_waiters();
    }

    /// The store does not have it. One that is under way may still come, and the library asks again
    /// for as long.
    fn settle_unless_under_way(&self, attempt: &Attempt) {
        let began = self.secrets().get(&attempt.secret).copied().flatten();
        if began.is_none_or(|began| began.elapsed() >= attempt.ttl) {
            self.settle(attempt);
        }
    }

    /// Ends when nothing is left.
    async fn end(&self) {
        loop {
            let settled = self.settled.notified();
            if self.secrets().is_empty() {
                return;
            }
            settled.await;
        }
    }
}

/// A store that knows what is not settled.
#[derive(Debug)]
struct Tracked {
    inner: PlainKeeper<dyn PlainStore>,
    unsettled: Arc<Unsettled>,
}

impl PlainLayer for Tracked {
    fn inner(&self) -> &dyn PlainStore {
        self.inner.store()
    }

    fn acquire<'a>(&'a self, attempt: &'a Attempt) -> BoxFuture<'a, StoreResult<Acquired>> {
        Box::pin(async move {
            self.unsettled.begin(attempt);
            let answer = self.inner.store().acquire(attempt).await;
            // Dropped, or without an answer, it may have taken the lock.
            match &answer {
                Ok(Acquired::Yes { .. }) => self.unsettled.take(attempt),
                Err(StoreProblem::NoAnswer) => {}
                Ok(Acquired::No { .. }) | Err(_) => self.unsettled.settle(attempt),
            }
            answer
        })
    }

    fn release<'a>(&'a self, attempt: &'a Attempt) -> BoxFuture<'a, StoreResult<bool>> {
        Box::pin(async move {
            let answer = self.inner.store().release(attempt).await;
            match &answer {
                Ok(true) => self.unsettled.settle(attempt),
                Ok(false) => self.unsettled.settle_unless_under_way(attempt),
                // The library asks again, also what was refused.
                Err(_) => {}
            }
            answer
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use futures_util::FutureExt;
    use lockkeeper::compat::{AttemptTurn, Capabilities, SeenVersion};

    use super::*;

    fn attempt(ttl: Duration) -> Attempt {
        Attempt {
            name: "job".into(),
            secret: "mine".into(),
            ttl,
            owner: None,
            seen: SeenVersion::default(),
            turn: AttemptTurn::default(),
        }
    }

    /// It refuses to release, once.
    #[derive(Debug, Default)]
    struct Demoted(AtomicBool);

    impl PlainStore for Demoted {
        fn server(&self) -> &str {
            "here"
        }

        fn capabilities(&self) -> Capabilities {
            Capabilities::of("demoted")
        }

        fn shortest_ttl(&self) -> Duration {
            Duration::ZERO
        }

        fn check_name(&self, _name: &str) -> Result<(), &'static str> {
            Ok(())
        }

        fn acquire<'a>(&'a self, _: &'a Attempt) -> BoxFuture<'a, StoreResult<Acquired>> {
            Box::pin(async { Ok(Acquired::Yes { token: None }) })
        }

        fn renew<'a>(&'a self, _: &'a Attempt) -> BoxFuture<'a, StoreResult<bool>> {
            Box::pin(async { Ok(true) })
        }

        fn release<'a>(&'a self, _: &'a Attempt) -> BoxFuture<'a, StoreResult<bool>> {
            let is_primary = self.0.swap(true, Ordering::SeqCst);
            Box::pin(async move { is_primary.then_some(true).ok_or(StoreProblem::Replica) })
        }
    }

    #[tokio::test]
    async fn a_release_that_was_refused_is_waited_for() {
        let unsettled = Arc::<Unsettled>::default();
        let is_settled = || unsettled.end().now_or_never().is_some();
        let tracked = Tracked {
            inner: PlainKeeper::new(Demoted::default()).erased(),
            unsettled: Arc::clone(&unsettled),
        };
        let mine = attempt(Duration::from_secs(60));
        PlainLayer::acquire(&tracked, &mine).await.unwrap();

        PlainLayer::release(&tracked, &mine).await.unwrap_err();
        assert!(!is_settled(), "it is asked again");
        PlainLayer::release(&tracked, &mine).await.unwrap();
        assert!(is_settled());
    }

    #[tokio::test]
    async fn a_try_that_may_still_come_is_settled_by_no_release_before_its_ttl() {
        let unsettled = Unsettled::default();
        let is_settled = || unsettled.end().now_or_never().is_some();
        let (now, later) = (attempt(Duration::ZERO), attempt(Duration::from_secs(60)));

        unsettled.begin(&later);
        unsettled.settle_unless_under_way(&later);
        assert!(!is_settled(), "it may come behind the release");
        unsettled.take(&later);
        unsettled.settle_unless_under_way(&later);
        assert!(is_settled(), "it was answered");

        unsettled.begin(&now);
        unsettled.settle_unless_under_way(&now);
        assert!(is_settled(), "it has come by then");
    }
}
