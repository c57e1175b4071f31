//! The mutex: one exclusive ticket. A thin door over the queue; all state lives in places and guards.

use std::time::Duration;

use tokio::time::timeout;
use tracing::{Instrument, Span};

use crate::error::{Error, Result};
use crate::guard::Guard;
use crate::name::LockName;
use crate::queue::{Queue, Waiter};

/// A fair distributed lock.
///
/// Granted in the order in which tickets reach the server, whatever process or language they come from. It holds no
/// state and does no I/O until asked: make one from a [`Keeper`](crate::Keeper), clone it, share it.
///
/// Not reentrant: locking a mutex that the same task holds waits for ever, like any other contender.
///
/// # Cost
///
/// An uncontended `lock` sends 2 requests and a release 1. A contended `lock` sends 3 to queue up and 1 when its turn
/// comes. None of them grows with the queue.
///
/// # Examples
///
/// ```
/// # use lockkeeper::{Keeper, embedded::EmbeddedServer};
/// # #[tokio::main]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = EmbeddedServer::start().await?;
/// let keeper = Keeper::connect(server.connect_string()).await?;
/// let lock = keeper.mutex("orders/42")?;
/// let guard = lock.lock().await?;
/// println!("write with token {}", guard.token());
/// guard.release().await?;
/// # keeper.close().await;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Mutex {
    queue: Queue,
    rejoins: bool,
}

impl Mutex {
    pub(crate) fn new(queue: Queue) -> Self {
        Self {
            queue,
            rejoins: true,
        }
    }

    /// The lock's name.
    pub fn name(&self) -> &LockName {
        self.queue.name()
    }

    /// Sets a short text, of at most 1024 bytes, that [`Keeper::queue`](crate::Keeper::queue) and `lockkeeper queue` show beside our tickets: what the
    /// work is, say. It is written into each ticket. A longer one is refused when the lock is asked for.
    #[must_use]
    pub fn with_label(mut self, label: impl Into<String>) -> Self {
        self.queue.set_label(label.into());
        self
    }

    /// Makes calls fail with [`is_session_over`](Error::is_session_over) when the session ends while they wait. Otherwise they join
    /// the queue again, at its end, with the keeper's next session.
    #[must_use]
    pub fn without_rejoin(mut self) -> Self {
        self.rejoins = false;
        self
    }

    /// Waits until it is our turn, however long that takes, through disconnects and also, unless
    /// [`without_rejoin`](Self::without_rejoin) says otherwise, through the end of the session, which costs the place in the queue.
    ///
    /// # Errors
    ///
    /// [`is_lost`](Error::is_lost) if our ticket was removed by somebody else or the keeper was closed while we waited.
    /// [`Error::Unreachable`] if a new session was needed and no server gave one within the connect timeout.
    /// [`Error::Denied`] or [`Error::Refused`] if the server refuses what is needed.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: dropped at any await, our ticket leaves the queue in the background, and nobody is blocked. The place in
    /// the queue is lost; use [`enqueue`](Self::enqueue) to keep it across a `select!`.
    pub async fn lock(&self) -> Result<Guard> {
        let acquire = async {
            loop {
                match self.acquire().await {
                    Err(error) if self.joins_again(&error) => {}
                    result => return result,
                }
            }
        };
        acquire.instrument(self.queue.span()).await
    }

    /// Takes the lock if nobody holds it or waits for it. Reads first: on a held lock it writes nothing.
    ///
    /// What it reads may be a moment old: right after a release elsewhere it can still say "not now".
    ///
    /// # Errors
    ///
    /// As [`lock`](Self::lock). "Not now" is `Ok(None)`.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: dropped at any await, nothing is left in the queue.
    pub async fn try_lock(&self) -> Result<Option<Guard>> {
        let acquire = async {
            loop {
                match self.queue.try_join().await {
                    Ok(joined) => {
                        let guard = joined.map(|(waiter, hold)| Guard::new(waiter, hold));
                        return guard.transpose();
                    }
                    Err(error) if self.joins_again(&error) => {}
                    Err(error) => return Err(error),
                }
            }
        };
        acquire.instrument(self.queue.span()).await
    }

    /// Waits for our turn for at most `limit`. Then our ticket leaves the queue, and the call returns within 100 ms, even
    /// with every server dead.
    ///
    /// # Errors
    ///
    /// [`is_timeout`](Error::is_timeout) when the time is over, otherwise as [`lock`](Self::lock).
    ///
    /// # Cancel safety
    ///
    /// As [`lock`](Self::lock).
    pub async fn lock_timeout(&self, limit: Duration) -> Result<Guard> {
        let timed_out = |_| Error::TimedOut {
            name: self.name().to_string(),
            waited: limit,
        };
        timeout(limit, self.lock()).await.map_err(timed_out)?
    }

    /// Takes a place at the end of the queue and returns as soon as it is fixed, before it is granted.
    ///
    /// # Errors
    ///
    /// As [`lock`](Self::lock).
    ///
    /// # Cancel safety
    ///
    /// As [`lock`](Self::lock).
    pub async fn enqueue(&self) -> Result<Place> {
        let span = self.queue.span();
        let join = async {
            loop {
                match self.queue.join().await {
                    Err(error) if self.joins_again(&error) => {}
                    result => return result,
                }
            }
        };
        let waiter = join.instrument(span.clone()).await?;
        Ok(Place {
            waiter: Some(waiter),
            name: self.name().clone(),
            span,
        })
    }

    async fn acquire(&self) -> Result<Guard> {
        let mut waiter = self.queue.join().await?;
        let hold = waiter.granted().await?;
        Guard::new(waiter, hold)
    }

    /// Whether a session's end is a reason to begin again.
    fn joins_again(&self, error: &Error) -> bool {
        let joins_again = self.rejoins && error.is_session_over();
        if joins_again {
            tracing::debug!(%error, "joins again");
        }
        joins_again
    }
}

/// A fixed place in the queue, from [`Mutex::enqueue`]. Dropping it leaves the queue.
///
/// It ends with its session: then every call says [`is_session_over`](Error::is_session_over), because another place would be another
/// one. [`Mutex::lock`] joins again by itself.
///
/// # Examples
///
/// ```
/// # use lockkeeper::{Keeper, embedded::EmbeddedServer};
/// # #[tokio::main]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = EmbeddedServer::start().await?;
/// let keeper = Keeper::connect(server.connect_string()).await?;
/// let lock = keeper.mutex("orders/42")?;
/// let first = lock.lock().await?;
///
/// let mut place = lock.enqueue().await?;
/// assert_eq!(place.position().await?, 1);
/// first.release().await?;
/// let guard = place.granted().await?;
/// # drop(guard);
/// # keeper.close().await;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "a place that is dropped leaves the queue"]
pub struct Place {
    /// Gone once it became a guard.
    waiter: Option<Waiter>,
    name: LockName,
    span: Span,
}

impl Place {
    /// The lock's name.
    pub fn name(&self) -> &LockName {
        &self.name
    }

    /// Waits until it is our turn. To be called until it returns a guard; after that the place is spent.
    ///
    /// # Errors
    ///
    /// As [`Mutex::lock`]; [`Error::PlaceLost`] if the place has become a guard already.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe, and the place stays ours: call it again to go on waiting.
    pub async fn granted(&mut self) -> Result<Guard> {
        let span = self.span.clone();
        let hold = self.waiter()?.granted().instrument(span.clone()).await?;
        match self.waiter.take() {
            Some(waiter) => span.in_scope(|| Guard::new(waiter, hold)),
            None => Err(self.spent()),
        }
    }

    /// Waits until the place before ours has changed: we moved up, or it is our turn (then
    /// [`granted`](Self::granted) returns without waiting).
    ///
    /// # Errors
    ///
    /// As [`granted`](Self::granted).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe, and the place stays ours.
    pub async fn changed(&mut self) -> Result<()> {
        let span = self.span.clone();
        self.waiter()?.changed().instrument(span).await
    }

    /// How many are before us: 0 means that it is our turn. Lists the whole queue, so ask for people, not in a loop.
    ///
    /// # Errors
    ///
    /// As [`granted`](Self::granted).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only reads.
    pub async fn position(&self) -> Result<usize> {
        self.waiter
            .as_ref()
            .ok_or_else(|| self.spent())?
            .position()
            .await
    }

    fn waiter(&mut self) -> Result<&mut Waiter> {
        let spent = self.spent();
        self.waiter.as_mut().ok_or(spent)
    }

    fn spent(&self) -> Error {
        Error::PlaceLost {
            name: self.name.to_string(),
            why: "it has become a guard already",
        }
    }
}

#[cfg(all(test, feature = "embedded"))]
mod tests {
    // A waiter's memory is its future, and a crowd has many.
    #[tokio::test]
    async fn the_future_of_a_lock_is_small() {
        let server = crate::embedded::EmbeddedServer::start().await.unwrap();
        let keeper = crate::Keeper::connect(server.connect_string())
            .await
            .unwrap();
        let lock = keeper.mutex("small").unwrap();

        assert!(
            size_of_val(&lock.lock()) <= 1024,
            "{}",
            size_of_val(&lock.lock())
        );
    }
}
