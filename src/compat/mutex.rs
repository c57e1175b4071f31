//! Plain locks, and how they wait.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};
use uuid::Uuid;

use super::finish::finish_in;
use super::guard::PlainGuard;
use super::keeper::PlainKeeper;
use super::store::{
    Attempt, AttemptTurn, PlainStore, ReentrantStore, SeenVersion, StoreResult, failed,
};
use super::tries::{Pauses, TryOutcome, WakeToPass, try_once};
use crate::brief::Brief;
use crate::error::{Error, Result, StoreProblem};
use crate::owner::Owner;

const TTL: Duration = Duration::from_secs(30);
const LONGEST_TTL: Duration = Duration::from_secs(24 * 3600);
const SHORTEST_POLL: Duration = Duration::from_millis(50);
const LONGEST_POLL: Duration = Duration::from_secs(1);
const LONGEST_OWNER: usize = 1024;

/// A plain lock, in the form that other programs use. It has no state, and no queue: any waiter may
/// be next.
pub struct PlainMutex<S: PlainStore + ?Sized> {
    keeper: PlainKeeper<S>,
    name: Arc<str>,
    ttl: Duration,
    poll: (Duration, Duration),
    owner: Option<Owner>,
}

impl<S: ReentrantStore> PlainMutex<S> {
    /// Locks for an owner. While it holds, here or in another process that names it, each further
    /// call enters at once. Each guard has a truth of its own, and is renewed for itself. The lock
    /// is free when the last one is released, in whatever order.
    ///
    /// A process that crashes leaves its guard behind in the store. The lock is then free when no
    /// guard of the owner was renewed for a ttl. So an owner that enters again and again keeps the
    /// others out for as long.
    ///
    /// The owner's name stands in the store, for everyone who may read there.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidOption`] for a name that is empty, has a NUL, or is above 1024 bytes.
    pub fn with_owner(self, owner: &Owner) -> Result<Self> {
        self.owned_by(owner)
    }
}

impl PlainMutex<dyn PlainStore> {
    /// As `with_owner` of a [`ReentrantStore`].
    ///
    /// # Errors
    ///
    /// [`Error::InvalidOption`] if this kind of lock is not reentrant.
    pub fn with_owner(self, owner: &Owner) -> Result<Self> {
        let capabilities = self.store().capabilities();
        if capabilities.is_reentrant {
            return self.owned_by(owner);
        }
        let why = format!("a lock of {} is not reentrant", capabilities.kind);
        // Its name is a secret.
        Err(Error::invalid("owner", "with_owner", why))
    }
}

impl<S: PlainStore + ?Sized> PlainKeeper<S> {
    /// A lock. Nothing is sent.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidName`] if the store cannot hold this name.
    pub fn mutex(&self, name: impl AsRef<str>) -> Result<PlainMutex<S>> {
        let name = name.as_ref();
        let checked = self.store().check_name(name);
        checked.map_err(|why| Error::InvalidName {
            name: name.to_owned(),
            why,
        })?;
        Ok(PlainMutex {
            keeper: self.clone(),
            name: name.into(),
            ttl: TTL,
            poll: (SHORTEST_POLL, LONGEST_POLL),
            owner: None,
        })
    }
}

impl<S: PlainStore + ?Sized> PlainMutex<S> {
    fn store(&self) -> &S {
        &self.keeper.store
    }

    fn owned_by(mut self, owner: &Owner) -> Result<Self> {
        let name = owner.as_str();
        if name.is_empty() || name.len() > LONGEST_OWNER || name.contains('\0') {
            let why = format!("its name has 1 to {LONGEST_OWNER} bytes, and no NUL");
            return Err(Error::invalid(
                "owner",
                format!("{} bytes", name.len()),
                why,
            ));
        }
        self.owner = Some(owner.clone());
        Ok(self)
    }

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
        let shortest = self.store().shortest_ttl();
        if !(shortest..=LONGEST_TTL).contains(&ttl) {
            return Err(Error::invalid(
                "ttl",
                format!("{ttl:?}"),
                format!(
                    "{} needs {shortest:?} at least, to be renewed in time, and at most a day",
                    self.store().capabilities().kind
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
    /// A call that is neither polled nor dropped renews nothing: what it took is free after the
    /// ttl.
    pub async fn lock(&self) -> Result<PlainGuard<S>> {
        let mut pauses = Pauses::new(self.poll);
        let (mut wake, mut failing_since) = (None, None);
        let mut woken = WakeToPass::default();
        loop {
            let tried = self.try_to_the_end().await;
            if tried.is_ok() {
                woken.heed();
            }
            let left = match tried {
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
            if wake.is_none() && self.store().capabilities().wakes_waiters {
                // The next try comes after it, so no release is missed.
                let (store, name) = (Arc::clone(&self.keeper.store), Arc::clone(&self.name));
                let asked = async move { store.wake(&name).await };
                let asked = finish_in(&self.keeper.runtime(), asked).await;
                let asked = asked.unwrap_or(Err(StoreProblem::NoAnswer));
                wake = asked.map_err(|problem| self.failed(problem))?;
                continue;
            }
            match &wake {
                None => sleep(pauses.next(left)).await,
                Some(wake) => {
                    let limit = left.map_or(LONGEST_POLL, |left| left.max(SHORTEST_POLL));
                    if timeout(limit, wake.notified()).await.is_ok() {
                        woken = WakeToPass::of(wake);
                    }
                }
            }
        }
    }

    /// Takes the lock if it is free. A database and memcached are asked a few things at once: there
    /// a try waits for the tries of its keeper that came before it, while these are answered.
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
        match self.try_to_the_end().await {
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

    /// Tries so often at most, with such pauses between. `None` if the lock was never free.
    ///
    /// Many programs try `SELECT ... FOR UPDATE NOWAIT` 4 times, with pauses of a second.
    ///
    /// # Errors
    ///
    /// As [`try_lock`](Self::try_lock), with the first try that is not answered.
    ///
    /// # Cancel safety
    ///
    /// As [`lock`](Self::lock).
    pub async fn lock_in_tries(
        &self,
        tries: u32,
        pause: Duration,
    ) -> Result<Option<PlainGuard<S>>> {
        for number in 0..tries {
            if number > 0 {
                sleep(pause).await;
            }
            if let Some(guard) = self.try_lock().await? {
                return Ok(Some(guard));
            }
        }
        Ok(None)
    }

    /// A try goes on when its caller is dropped; what it took is then released.
    async fn try_to_the_end(&self) -> StoreResult<TryOutcome<S>> {
        let attempt = Attempt {
            name: Arc::clone(&self.name),
            secret: Uuid::new_v4().simple().to_string().into(),
            ttl: self.ttl,
            owner: self.owner.clone(),
            seen: SeenVersion::default(),
            turn: AttemptTurn::default(),
        };
        let PlainKeeper { store, timer } = self.keeper.clone();
        // A guard that nobody takes is dropped, and so released.
        let runtime = self.keeper.runtime();
        let mut leaves = LeavesOnDrop(Some(attempt.turn.clone()));
        let tried = finish_in(&runtime, try_once(store, attempt, timer)).await;
        leaves.0 = None;
        tried.unwrap_or(Err(StoreProblem::NoAnswer))
    }

    fn failed(&self, problem: StoreProblem) -> Error {
        failed(self.store(), "acquire", &self.name, problem)
    }
}

/// A try that is dropped while it waits for its turn.
struct LeavesOnDrop(Option<AttemptTurn>);

impl Drop for LeavesOnDrop {
    fn drop(&mut self) {
        if let Some(turn) = &self.0 {
            turn.leave();
        }
    }
}

impl<S: PlainStore + ?Sized> Clone for PlainMutex<S> {
    fn clone(&self) -> Self {
        Self {
            keeper: self.keeper.clone(),
            name: Arc::clone(&self.name),
            owner: self.owner.clone(),
            ..*self
        }
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
