//! Plain locks, and how they wait.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, timeout};
use uuid::Uuid;

use super::guard::PlainGuard;
use super::hold::{PlainHold, in_time, settle};
use super::store::{Acquired, Attempt, PlainStore, StoreResult, failed};
use crate::brief::Brief;
use crate::error::{Error, Result, StoreProblem};
use crate::session::clock::{Clock, SystemClock};

const TTL: Duration = Duration::from_secs(30);
const LONGEST_TTL: Duration = Duration::from_secs(24 * 3600);
const SHORTEST_POLL: Duration = Duration::from_millis(50);
const LONGEST_POLL: Duration = Duration::from_secs(1);

/// A connection to a store, which makes its locks. Clones share the connection.
pub struct PlainKeeper<S: PlainStore + ?Sized> {
    store: Arc<S>,
}

impl<S: PlainStore> PlainKeeper<S> {
    /// The locks of a store that is connected already.
    pub fn new(store: S) -> Self {
        let store = Arc::new(store);
        Self { store }
    }
}

impl<S: PlainStore> PlainKeeper<S> {
    /// The same, without the kind in its type.
    pub fn erased(self) -> PlainKeeper<dyn PlainStore> {
        PlainKeeper { store: self.store }
    }
}

impl<S: PlainStore + ?Sized> PlainKeeper<S> {
    pub(super) fn of(store: Arc<S>) -> Self {
        Self { store }
    }

    /// The store.
    pub fn store(&self) -> &S {
        &self.store
    }

    /// A lock. Nothing is sent.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidName`] if the store cannot hold this name.
    pub fn mutex(&self, name: impl AsRef<str>) -> Result<PlainMutex<S>> {
        let name = name.as_ref();
        self.store
            .check_name(name)
            .map_err(|why| Error::InvalidName {
                name: name.to_owned(),
                why,
            })?;
        Ok(PlainMutex {
            store: Arc::clone(&self.store),
            name: name.into(),
            ttl: TTL,
            poll: (SHORTEST_POLL, LONGEST_POLL),
        })
    }
}

/// A plain lock, in the form that other programs use. It has no state, and no queue: any waiter may
/// be next.
pub struct PlainMutex<S: PlainStore + ?Sized> {
    store: Arc<S>,
    name: Arc<str>,
    ttl: Duration,
    poll: (Duration, Duration),
}

impl<S: PlainStore + ?Sized> PlainMutex<S> {
    /// The lock's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The store frees the lock of a crashed holder after so long; default 30 s. While a guard
    /// lives, it is renewed three times in each ttl.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidOption`] if the store cannot count it, if it is too short to be renewed, or
    /// above a day.
    pub fn with_ttl(mut self, ttl: Duration) -> Result<Self> {
        let shortest = self.store.shortest_ttl();
        if !(shortest..=LONGEST_TTL).contains(&ttl) {
            return Err(Error::invalid(
                "ttl",
                format!("{ttl:?}"),
                format!(
                    "{} needs {shortest:?} at least, to be renewed in time, and at most a day",
                    self.store.capabilities().kind
                ),
            ));
        }
        self.ttl = ttl;
        Ok(self)
    }

    /// A waiter asks again after a random pause. The pause grows from `shortest` to `longest`;
    /// default 50 ms to 1 s. So `n` waiters send about 1.3 `n` requests a second at most. Where the
    /// store wakes waiters, they ask only then, and after the other's ttl.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidOption`] if `shortest` is below 1 ms or above `longest`.
    pub fn with_poll(mut self, shortest: Duration, longest: Duration) -> Result<Self> {
        if shortest < Duration::from_millis(1) || shortest > longest {
            return Err(Error::invalid(
                "poll",
                format!("{shortest:?} to {longest:?}"),
                "the first must be 1ms at least, and not above the second",
            ));
        }
        self.poll = (shortest, longest);
        Ok(self)
    }

    /// Waits for the lock, without a limit of time. While the store is not reachable, it goes on
    /// for a ttl.
    ///
    /// # Errors
    ///
    /// [`Error::Store`] if the store refuses the request, or was not reachable for a ttl.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: dropped at any await, a request that was sent is taken back in the background.
    pub async fn lock(&self) -> Result<PlainGuard<S>> {
        let mut pauses = Pauses::new(self.poll);
        let (mut wake, mut failing_since) = (None, None);
        loop {
            let left = match self.try_in_task().await {
                Ok(TryOutcome::Held(guard)) => return Ok(guard),
                Ok(TryOutcome::Taken { left }) => left,
                Err(problem) => {
                    let since = *failing_since.get_or_insert_with(Instant::now);
                    if !problem.is_passing() || since.elapsed() >= self.ttl {
                        return Err(self.failed(problem));
                    }
                    sleep(pauses.next(None)).await;
                    continue;
                }
            };
            failing_since = None;
            if wake.is_none() && self.store.capabilities().wakes_waiters {
                // The next try comes after it, so no release is missed.
                let asked = self.store.wake(&self.name).await;
                wake = asked.map_err(|problem| self.failed(problem))?;
                continue;
            }
            match &wake {
                None => sleep(pauses.next(left)).await,
                Some(wake) => {
                    let limit = left.map_or(LONGEST_POLL, |left| left.max(SHORTEST_POLL));
                    timeout(limit, wake.notified()).await.unwrap_or_default();
                }
            }
        }
    }

    /// Takes the lock if it is free.
    ///
    /// # Errors
    ///
    /// [`Error::Store`] if the store cannot be asked, or refuses. If the lock is not free, it is
    /// `Ok(None)`.
    ///
    /// # Cancel safety
    ///
    /// As [`lock`](Self::lock).
    pub async fn try_lock(&self) -> Result<Option<PlainGuard<S>>> {
        match self.try_in_task().await {
            Ok(TryOutcome::Held(guard)) => Ok(Some(guard)),
            Ok(TryOutcome::Taken { .. }) => Ok(None),
            Err(problem) => Err(self.failed(problem)),
        }
    }

    /// Waits for the lock for at most `limit`.
    ///
    /// # Errors
    ///
    /// [`is_timeout`](Error::is_timeout) when the time is over, otherwise as [`lock`](Self::lock).
    ///
    /// # Cancel safety
    ///
    /// As [`lock`](Self::lock).
    pub async fn lock_timeout(&self, limit: Duration) -> Result<PlainGuard<S>> {
        let locked = timeout(limit, self.lock()).await;
        locked.unwrap_or_else(|_| {
            Err(Error::TimedOut {
                name: self.name.to_string(),
                waited: limit,
            })
        })
    }

    /// A try goes on when its caller is dropped; what it took is then released.
    async fn try_in_task(&self) -> StoreResult<TryOutcome<S>> {
        let attempt = Attempt {
            name: Arc::clone(&self.name),
            secret: Uuid::new_v4().simple().to_string().into(),
            ttl: self.ttl,
        };
        let (done, tried) = oneshot::channel();
        let store = Arc::clone(&self.store);
        tokio::spawn(async move {
            // A guard that nobody takes is dropped, and so released.
            done.send(try_once(store, attempt).await)
                .unwrap_or_default();
        });
        tried.await.unwrap_or(Err(StoreProblem::NoAnswer))
    }

    fn failed(&self, problem: StoreProblem) -> Error {
        failed(&*self.store, "acquire", &self.name, problem)
    }
}

/// What a try came to.
enum TryOutcome<S: PlainStore + ?Sized> {
    Held(PlainGuard<S>),
    Taken { left: Option<Duration> },
}

/// Tries once. A request without an answer is settled: what it may have taken is released.
async fn try_once<S: PlainStore + ?Sized>(
    store: Arc<S>,
    attempt: Attempt,
) -> StoreResult<TryOutcome<S>> {
    let sent = SystemClock.now();
    match in_time(&attempt, store.acquire(&attempt)).await {
        Ok(Acquired::Yes { token }) => {
            let guard = PlainGuard::new(PlainHold::begin(store, attempt, token, sent));
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
                settle(&*store, &attempt, sent + attempt.ttl).await;
            }
            Err(problem)
        }
    }
}

/// The pauses of a waiter: random, and longer each time.
struct Pauses {
    now: Duration,
    longest: Duration,
}

impl Pauses {
    fn new((shortest, longest): (Duration, Duration)) -> Self {
        Self {
            now: shortest,
            longest,
        }
    }

    /// Between a half and the whole of the pause, and not much longer than the other holder can
    /// have the lock.
    fn next(&mut self, left: Option<Duration>) -> Duration {
        let (random, _) = Uuid::new_v4().as_u64_pair();
        // 53 bits are what an f64 holds.
        let part = 0.5 + (random >> 11) as f64 / (1u64 << 54) as f64;
        let pause = self.now.mul_f64(part);
        self.now = self.longest.min(self.now * 2);
        left.map_or(pause, |left| pause.min(left + Duration::from_millis(1)))
    }
}

impl<S: PlainStore + ?Sized> Clone for PlainKeeper<S> {
    fn clone(&self) -> Self {
        Self::of(Arc::clone(&self.store))
    }
}

impl<S: PlainStore + ?Sized> Clone for PlainMutex<S> {
    fn clone(&self) -> Self {
        Self {
            store: Arc::clone(&self.store),
            name: Arc::clone(&self.name),
            ..*self
        }
    }
}

impl<S: PlainStore + ?Sized> fmt::Debug for PlainKeeper<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = self.store.capabilities().kind;
        f.debug_struct("PlainKeeper")
            .field("kind", &kind)
            .field("server", &Brief(self.store.server()))
            .finish_non_exhaustive()
    }
}

impl<S: PlainStore + ?Sized> fmt::Debug for PlainMutex<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PlainMutex")
            .field("name", &Brief(&*self.name))
            .field("ttl", &self.ttl)
            .finish_non_exhaustive()
    }
}
