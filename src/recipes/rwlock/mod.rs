//! The read-write lock: shared and exclusive tickets in one queue. It has no state: guards have it.

mod guards;

pub use guards::{ReadGuard, UpgradeError, WriteGuard};

use std::sync::Arc;
use std::time::Duration;

use crate::brief::shows;
#[cfg(doc)]
use crate::error::Error;
use crate::error::Result;
use crate::guard::hold::Hold;
use crate::name::LockName;
use crate::owner::Owner;
use crate::recipes::acquire::Acquirer;
use crate::recipes::options::option_methods;

/// A fair distributed read-write lock: many readers together, or one writer.
///
/// It is granted in the order in which tickets reach the servers, so neither readers nor writers
/// starve. A reader waits for all earlier writers, also for waiting ones. Readers behind a writer
/// are granted together. It has no state and does no I/O by itself: make one from a
/// [`Keeper`](crate::Keeper), clone it, share it. Its tickets have Curator's names (`__READ__`,
/// `__WRIT__`), and it can share a queue with Curator.
///
/// It is reentrant for an [`Owner`] only ([`with_owner`](Self::with_owner)). Without one, a task
/// that asks again in conflict with its own hold waits for ever, and a `warn` event says so.
///
/// # Cost
///
/// An uncontended `read` or `write` sends 2 requests and a release 1. A waiting writer sends 3 to
/// queue up (4 behind a reader) and 1 when its turn comes (2 behind a reader), whatever the length
/// of the queue. A reader lists the queue once when it joins. A release wakes the waiters for its
/// own ticket: the readers behind a writer, or one writer.
///
/// Readers leave no mark. So a [`lock_delay`](crate::KeeperBuilder::lock_delay) applies behind
/// readers too, and only a writer's release ends it early.
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
/// // Others may read now, and no writer came in between.
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

shows!(|lock| RwLock {
    name: lock.name(),
    has_owner: lock.acquirers.read.has_owner(),
});

#[derive(Debug, Clone)]
struct Acquirers {
    read: Acquirer,
    write: Acquirer,
}

option_methods!(RwLock, |lock| {
    let Acquirers { read, write } = Arc::make_mut(&mut lock.acquirers);
    [read, write]
});

impl RwLock {
    pub(crate) fn new(read: Acquirer, write: Acquirer) -> Self {
        let acquirers = Arc::new(Acquirers { read, write });
        Self { acquirers }
    }

    /// The lock's name.
    pub fn name(&self) -> &LockName {
        self.acquirers.read.name()
    }

    /// Locks in the name of an owner. While the owner holds the lock, its other calls get the same
    /// hold. The lock is free when the last of these guards is gone.
    ///
    /// In this keeper that needs no round trip. A read in a read and a write in a write share the
    /// hold. So does a read in a write: its guard keeps other readers out, also when the writer is
    /// gone before it. A write in a read is refused at once with [`Error::HeldForReading`], because
    /// it would wait for itself: see [`ReadGuard::try_upgrade`].
    ///
    /// From another keeper or process, the owner enters beside itself only while it *writes* there,
    /// to read or to write: see [`Mutex::with_owner`](crate::Mutex::with_owner). While it reads
    /// there, a call here waits in the queue.
    #[must_use]
    pub fn with_owner(self, owner: &Owner) -> Self {
        self.with(|acquirer| acquirer.set_owner(owner))
    }

    /// Waits until no writer is before us, without a limit of time. It waits through disconnects.
    /// If the session ends, it joins the queue again at its end, unless
    /// [`with_rejoin`](Self::with_rejoin) forbids that.
    ///
    /// # Errors
    ///
    /// As [`Mutex::lock`](crate::Mutex::lock).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: dropped at any await, our ticket leaves the queue in the background, and blocks
    /// no other client. The place in the queue is lost.
    pub async fn read(&self) -> Result<ReadGuard> {
        let held = self.acquirers.read.lock().await?;
        Ok(self.reader(held))
    }

    /// Waits until no writer and no reader is before us, in the same way as [`read`](Self::read).
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
        let held = self.acquirers.write.lock().await?;
        Ok(self.writer(held))
    }

    /// Takes the lock for reading if no writer holds it or waits for it. It reads first, and writes
    /// nothing if there is a writer.
    ///
    /// It reads a server that may lag behind, so right after a release elsewhere it may still give
    /// `None`.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read). If the lock is not free, it is `Ok(None)`.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: dropped at any await, nothing is left in the queue.
    pub async fn try_read(&self) -> Result<Option<ReadGuard>> {
        let held = self.acquirers.read.try_lock().await?;
        Ok(held.map(|held| self.reader(held)))
    }

    /// Takes the lock for writing if it has no holder and no waiter. It reads first, and writes
    /// nothing if the lock is held.
    ///
    /// It reads a server that may lag behind, so right after a release elsewhere it may still give
    /// `None`.
    ///
    /// # Errors
    ///
    /// As [`write`](Self::write). If the lock is not free, it is `Ok(None)`.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: dropped at any await, nothing is left in the queue.
    pub async fn try_write(&self) -> Result<Option<WriteGuard>> {
        let held = self.acquirers.write.try_lock().await?;
        Ok(held.map(|held| self.writer(held)))
    }

    /// As [`read`](Self::read), for at most `limit`. Then our ticket leaves the queue, and the call
    /// returns within 100 ms, even if every server is dead.
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
    /// call returns within 100 ms, even if every server is dead.
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

    fn reader(&self, hold: Arc<Hold>) -> ReadGuard {
        let acquirers = Arc::clone(&self.acquirers);
        ReadGuard { hold, acquirers }
    }

    fn writer(&self, hold: Arc<Hold>) -> WriteGuard {
        let acquirers = Arc::clone(&self.acquirers);
        WriteGuard { hold, acquirers }
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
        check::<UpgradeError>();
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
