//! The read-write lock: tickets that share and tickets that exclude, in one queue. A thin layer;
//! all state lives in places and guards.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use crate::brief::Brief;
use crate::error::{Error, Result};
use crate::guard::fenced::Fenced;
use crate::guard::hold::{GuardState, Hold};
use crate::guard::lost::Lost;
use crate::guard::{exclusive_methods, guard_methods, place_methods, revocable_methods};
use crate::name::LockName;
use crate::owner::Owner;
use crate::recipes::acquire::Acquirer;
use crate::token::Token;

/// A fair distributed read-write lock: many readers together, or one writer.
///
/// Granted in the order in which tickets reach the server, so that neither readers nor writers
/// starve: a reader waits for every writer who came before it, also for one who waits himself, and
/// readers behind a writer are let in together. It holds no state and does no I/O until asked: make
/// one from a [`Keeper`](crate::Keeper), clone it, share it. Its tickets have Curator's names
/// (`__READ__`, `__WRIT__`), and a queue can be shared with Curator.
///
/// Reentrant for an [`Owner`] only ([`with_owner`](Self::with_owner)): without one, a task that
/// asks again for what conflicts with what it holds waits for itself, for ever, with a `warn` event
/// that says so.
///
/// # Cost
///
/// An uncontended `read` or `write` sends 2 requests and a release 1. A writer who waits sends 3 to
/// queue up (4 behind a reader) and 1 when his turn comes, or 2 if it was not a writer who let him
/// in, whatever the length of the queue. A reader lists the queue once when it joins. A release
/// wakes those who waited for that very ticket: readers behind a writer, or one writer.
///
/// Readers leave no mark. With a [`lock_delay`](crate::KeeperBuilder::lock_delay) it is therefore
/// sat out behind readers too, unless the one before was a writer who released.
///
/// # Examples
///
/// ```
/// # use lockkeeper::{Keeper, embedded::EmbeddedServer};
/// # #[tokio::main]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = EmbeddedServer::start().await?;
/// let keeper = Keeper::connect(server.connect_string()).await?;
/// let table = keeper.rw_lock("prices")?;
/// let (one, other) = (table.read().await?, table.read().await?); // together
/// assert!(table.try_write().await?.is_none());
/// one.release().await?;
/// other.release().await?;
///
/// let writer = table.write().await?; // alone
/// println!("write with token {}", writer.token());
/// // Others may read now, and nobody has written in between.
/// let reader = writer.downgrade().await?;
/// reader.release().await?;
/// # keeper.close().await;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct RwLock {
    acquirers: Arc<Acquirers>,
}

impl fmt::Debug for RwLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RwLock")
            .field("name", &self.name())
            .field("has_owner", &self.acquirers.read.has_owner())
            .finish_non_exhaustive()
    }
}

#[derive(Debug, Clone)]
struct Acquirers {
    read: Acquirer,
    write: Acquirer,
}

impl RwLock {
    pub(crate) fn new(read: Acquirer, write: Acquirer) -> Self {
        let acquirers = Arc::new(Acquirers { read, write });
        Self { acquirers }
    }

    /// The lock's name.
    pub fn name(&self) -> &LockName {
        self.acquirers.read.name()
    }

    /// Sets a short text, of at most 1024 bytes, that [`Keeper::queue`](crate::Keeper::queue) and
    /// `lockkeeper queue` show beside our tickets: what the work is, say. It is written into each
    /// ticket. A longer one is refused when the lock is asked for.
    #[must_use]
    pub fn with_label(self, label: impl Into<String>) -> Self {
        let label = label.into();
        self.with(|acquirer| acquirer.queue.set_label(label.clone()))
    }

    /// As [`Mutex::with_trace_id`](crate::Mutex::with_trace_id).
    #[must_use]
    pub fn with_trace_id(self, trace_id: impl Into<String>) -> Self {
        let trace_id = trace_id.into();
        self.with(|acquirer| acquirer.queue.set_trace(trace_id.clone()))
    }

    /// As [`Mutex::with_class`](crate::Mutex::with_class); readers and writers are counted apart.
    #[must_use]
    pub fn with_class(self, class: &'static str) -> Self {
        self.with(|acquirer| acquirer.set_class(class))
    }

    /// Locks in the name of an owner: while the owner holds the lock, its further calls get the
    /// same hold again. The lock is free for others when the last of its guards is gone.
    ///
    /// From this keeper that costs no round trip. A read in a read and a write in a write share the
    /// hold; so does a read in a write, whose guard keeps other readers out as well, also when the
    /// writer has gone before it. A write in a read is refused at once with
    /// [`Error::HeldForReading`], because it would wait for itself: see [`ReadGuard::try_upgrade`].
    ///
    /// From another keeper, in another process say, the owner goes in beside itself while it
    /// *writes*, to read or to write, as [`Mutex::with_owner`](crate::Mutex::with_owner) says.
    /// While it reads there, a call here waits in the queue like any other.
    #[must_use]
    pub fn with_owner(self, owner: &Owner) -> Self {
        self.with(|acquirer| acquirer.set_owner(owner))
    }

    /// Makes calls fail with [`is_session_over`](Error::is_session_over) when the session ends
    /// while they wait. Otherwise they join the queue again, at its end, with the keeper's next
    /// session.
    #[must_use]
    pub fn without_rejoin(self) -> Self {
        self.with(Acquirer::never_rejoin)
    }

    /// Waits until no writer is before us, however long that takes, through disconnects and also,
    /// unless [`without_rejoin`](Self::without_rejoin) says otherwise, through the end of the
    /// session, which costs the place in the queue.
    ///
    /// # Errors
    ///
    /// As [`Mutex::lock`](crate::Mutex::lock).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: dropped at any await, our ticket leaves the queue in the background, and nobody
    /// is blocked. The place in the queue is lost.
    pub async fn read(&self) -> Result<ReadGuard> {
        self.acquirers
            .read
            .lock()
            .await
            .map(|held| self.reader(held))
    }

    /// Waits until nobody is before us, neither writer nor reader, in the same way as
    /// [`read`](Self::read).
    ///
    /// # Errors
    ///
    /// As [`Mutex::lock`](crate::Mutex::lock); [`Error::HeldForReading`] if our owner holds the
    /// lock for reading in this keeper.
    ///
    /// # Cancel safety
    ///
    /// As [`read`](Self::read).
    pub async fn write(&self) -> Result<WriteGuard> {
        self.acquirers
            .write
            .lock()
            .await
            .map(|held| self.writer(held))
    }

    /// Takes the lock for reading if no writer holds it or waits for it. Reads first: where there
    /// is one it writes nothing.
    ///
    /// What it reads may be a moment old: right after a release elsewhere it can still say "not
    /// now".
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read). "Not now" is `Ok(None)`.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: dropped at any await, nothing is left in the queue.
    pub async fn try_read(&self) -> Result<Option<ReadGuard>> {
        let held = self.acquirers.read.try_lock().await?;
        Ok(held.map(|held| self.reader(held)))
    }

    /// Takes the lock for writing if nobody holds it or waits for it. Reads first: on a held lock
    /// it writes nothing.
    ///
    /// What it reads may be a moment old: right after a release elsewhere it can still say "not
    /// now".
    ///
    /// # Errors
    ///
    /// As [`write`](Self::write). "Not now" is `Ok(None)`.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: dropped at any await, nothing is left in the queue.
    pub async fn try_write(&self) -> Result<Option<WriteGuard>> {
        let held = self.acquirers.write.try_lock().await?;
        Ok(held.map(|held| self.writer(held)))
    }

    /// As [`read`](Self::read), for at most `limit`. Then our ticket leaves the queue, and the call
    /// returns within 100 ms, even with every server dead.
    ///
    /// # Errors
    ///
    /// [`is_timeout`](Error::is_timeout) when the time is over, otherwise as [`read`](Self::read).
    ///
    /// # Cancel safety
    ///
    /// As [`read`](Self::read).
    pub async fn read_timeout(&self, limit: Duration) -> Result<ReadGuard> {
        self.acquirers.read.within(limit, self.read()).await
    }

    /// As [`write`](Self::write), for at most `limit`. Then our ticket leaves the queue, and the
    /// call returns within 100 ms, even with every server dead.
    ///
    /// # Errors
    ///
    /// [`is_timeout`](Error::is_timeout) when the time is over, otherwise as
    /// [`write`](Self::write).
    ///
    /// # Cancel safety
    ///
    /// As [`read`](Self::read).
    pub async fn write_timeout(&self, limit: Duration) -> Result<WriteGuard> {
        self.acquirers.write.within(limit, self.write()).await
    }

    fn with(mut self, set: impl Fn(&mut Acquirer)) -> Self {
        let acquirers = Arc::make_mut(&mut self.acquirers);
        set(&mut acquirers.read);
        set(&mut acquirers.write);
        self
    }

    fn reader(&self, hold: Arc<Hold>) -> ReadGuard {
        let acquirers = Arc::clone(&self.acquirers);
        ReadGuard { hold, acquirers }
    }

    fn writer(&self, hold: Arc<Hold>) -> WriteGuard {
        let acquirers = Arc::clone(&self.acquirers);
        WriteGuard { hold, acquirers }
    }
}

/// A read-write lock that is held for reading, with others who read.
///
/// It promises what a [`Guard`](crate::Guard) does, but for the token: readers share, so their
/// numbers order nothing. Drop it to release in the background, or [`release`](Self::release) it to
/// know the answer.
#[must_use = "the lock is released when the guard is dropped"]
#[clippy::has_significant_drop]
pub struct ReadGuard {
    pub(crate) hold: Arc<Hold>,
    acquirers: Arc<Acquirers>,
}

/// A read-write lock that is held for writing, alone.
///
/// It promises what a [`Guard`](crate::Guard) does. Drop it to release in the background, or
/// [`release`](Self::release) it to know the answer.
#[must_use = "the lock is released when the guard is dropped"]
#[clippy::has_significant_drop]
pub struct WriteGuard {
    pub(crate) hold: Arc<Hold>,
    acquirers: Arc<Acquirers>,
}

guard_methods!(@known ReadGuard);
revocable_methods!(ReadGuard);
place_methods!(ReadGuard);
guard_methods!(@known WriteGuard);
revocable_methods!(WriteGuard);
place_methods!(WriteGuard);
exclusive_methods!(WriteGuard);

impl WriteGuard {
    /// Goes on as a reader, in the same place of the queue: nobody writes in between, not even one
    /// who waits already. Readers who wait behind us, up to the next writer, are let in.
    ///
    /// Sends 3 requests. While our owner has other guards of the same hold in this keeper, the lock
    /// is not shared with others: the reader that is returned has the writers' hold as it is, and
    /// keeps others out for as long as any guard of that hold lives, whatever the other guards do
    /// later. The same [`lost`](Self::lost) futures go on only until here: a loss after the
    /// downgrade is told by the reader's.
    ///
    /// # Errors
    ///
    /// [`is_lost`](Error::is_lost) if the hold had ended before or ends meanwhile, because somebody
    /// removed the ticket, say. [`Error::Denied`] or [`Error::Refused`] if the server refuses the
    /// new ticket. Then the lock is released in the background.
    ///
    /// # Cancel safety
    ///
    /// Dropped at any await, the lock is released in the background.
    pub async fn downgrade(self) -> Result<ReadGuard> {
        let Self { hold, acquirers } = self;
        let hold = Box::pin(acquirers.read.downgraded(hold)).await?;
        Ok(ReadGuard { hold, acquirers })
    }
}

impl ReadGuard {
    /// Goes on as a writer if nobody else holds the lock or waits for it. It never waits for
    /// others, so that two readers who try at the same time both come back: one of them may have
    /// been let in, or none.
    ///
    /// Reads first: where others are it writes nothing. Otherwise it takes a writer's ticket at the
    /// end of the queue, gives it up at once if anything but its own ticket is before it, and else
    /// gives up the reader's. So nobody else writes in between.
    ///
    /// Other guards of the same owner that read in this keeper count as others. A guard that its
    /// owner took while writing holds as the writer does already, and becomes a writer of that same
    /// hold without a request.
    ///
    /// # Errors
    ///
    /// [`NotUpgraded`] with the guard, which is still held but for the errors that say otherwise,
    /// and one of these: [`Error::NotUpgradable`] if others hold the lock or wait for it;
    /// [`is_lost`](Error::is_lost) if our hold, or the writer's place, has ended; otherwise as
    /// [`RwLock::write`]. Whether the guard is still held it says itself
    /// ([`is_held`](Self::is_held)).
    ///
    /// # Cancel safety
    ///
    /// Dropped at any await, the lock is released in the background.
    ///
    /// # Examples
    ///
    /// ```
    /// # use lockkeeper::{Keeper, embedded::EmbeddedServer};
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = EmbeddedServer::start().await?;
    /// let keeper = Keeper::connect(server.connect_string()).await?;
    /// let table = keeper.rw_lock("prices")?;
    /// let (first, second) = (table.read().await?, table.read().await?);
    ///
    /// let refused = first.try_upgrade().await.unwrap_err();
    /// assert!(refused.error().is_refusal() && refused.guard().is_held());
    /// second.release().await?;
    /// let writer = refused.into_guard().try_upgrade().await?;
    /// # writer.release().await?;
    /// # keeper.close().await;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn try_upgrade(self) -> Result<WriteGuard, NotUpgraded> {
        let Self { hold, acquirers } = self;
        match Box::pin(acquirers.write.upgraded(hold)).await {
            Ok(hold) => Ok(WriteGuard { hold, acquirers }),
            Err((hold, error)) => {
                let guard = Self { hold, acquirers };
                Err(NotUpgraded { guard, error })
            }
        }
    }
}

/// A read lock that was not upgraded, with the reason.
///
/// As an [`Error`] it is the reason alone, and the guard is dropped: a `?` releases the lock in the
/// background.
pub struct NotUpgraded {
    guard: ReadGuard,
    error: Error,
}

impl fmt::Debug for NotUpgraded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let why = self.error.to_string();
        f.debug_struct("NotUpgraded")
            .field("guard", &self.guard)
            .field("why", &Brief(why))
            .finish_non_exhaustive()
    }
}

impl NotUpgraded {
    /// The guard, as it was.
    pub fn guard(&self) -> &ReadGuard {
        &self.guard
    }

    /// Gives the guard back.
    pub fn into_guard(self) -> ReadGuard {
        self.guard
    }

    /// Why it was not upgraded.
    pub fn error(&self) -> &Error {
        &self.error
    }

    /// Gives both back.
    pub fn into_parts(self) -> (ReadGuard, Error) {
        (self.guard, self.error)
    }
}

impl fmt::Display for NotUpgraded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl std::error::Error for NotUpgraded {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.error.source()
    }
}

impl From<NotUpgraded> for Error {
    fn from(refused: NotUpgraded) -> Self {
        refused.error
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guards_and_their_refusals_can_cross_threads() {
        fn check<T: Send + Sync + 'static>() {}

        check::<RwLock>();
        check::<ReadGuard>();
        check::<WriteGuard>();
        check::<NotUpgraded>();
    }

    // A waiter's memory is its future, and a crowd has many.
    #[tokio::test]
    async fn the_futures_of_a_read_and_a_write_are_small() {
        let server = zookeeper_embedded::EmbeddedServer::start().await.unwrap();
        let keeper = crate::Keeper::connect(server.connect_string())
            .await
            .unwrap();
        let lock = keeper.rw_lock("small").unwrap();

        let sizes = (size_of_val(&lock.read()), size_of_val(&lock.write()));

        assert!(sizes.0 <= 1024 && sizes.1 <= 1024, "{sizes:?}");
    }
}
