//! The semaphore: a number of permits, granted in the order of a queue. The state is in the permits
//! and at the servers.

mod permit;

pub use permit::Permit;

use std::sync::Arc;
use std::time::Duration;

use crate::brief::shows;
use crate::error::{Error, Result};
use crate::name::LockName;
use crate::queue::entry::QueueEntry;
use crate::queue::permits::PermitPool;
use crate::recipes::acquire::Acquirer;
use crate::recipes::options::option_methods;

/// A fair distributed semaphore: it limits parallel work across processes and machines.
///
/// It has a number of permits, the *limit*, which is stored with it. A call takes one permit or
/// [several](Self::acquire_many), all at once, in the order in which calls reached the servers. So
/// a call for many permits is not overtaken by calls for few, and never holds a part of them. A
/// permit comes back when the [`Permit`] is released or dropped, or when the session of its holder
/// ends.
///
/// It is cheap to clone. It holds no permits and does no I/O by itself: make one from a
/// [`Keeper`](crate::Keeper).
///
/// # The limit
///
/// The first user stores its limit. A handle with another limit is refused with
/// [`Error::LimitMismatch`] at its first look, because two programs that disagree would let in too
/// many. After that a handle, with its clones, follows the stored limit, which
/// [`resize`](Self::resize) changes for all users.
///
/// # At the servers
///
/// Below `<root>/<name>` are `queue` with a ticket for each waiter, `held` with a node for each
/// holder, and `limit`. So no other lock can have one of these three names; other names below the
/// semaphore's are free. `limit` stays, and the name's directory with it. To remove an unused
/// semaphore, delete the node `limit`; then the servers remove the rest.
///
/// The name is the semaphore's alone. While `limit` or a permit exists, any other lock of the name
/// is refused with [`Error::UnsafeMix`]. So is the semaphore while such a lock has a holder or
/// waiter.
///
/// The [lock delay](crate::KeeperBuilder::lock_delay) does not apply to semaphores.
///
/// # What it promises
///
/// At each transaction of the ensemble, the held permits are at most the limit at the time of the
/// last grant. As with a [`Guard`](crate::Guard), a holder that is paused or cut off can outlive
/// its session unknowingly, and overlap with the next holder. Shared holders have no fencing token,
/// because they are unordered.
///
/// # Cost
///
/// An uncontended `acquire` sends 5 requests and a release 1. Each waiter has one watch, and the
/// first waiter two more, whatever the limit and the number of waiters. A release wakes one client,
/// and a grant the next one. The first waiter lists the held permits, so its cost grows with the
/// number of their holders. A few thousand are fine.
///
/// # Examples
///
/// ```
/// # use lockkeeper::{Keeper, embedded::EmbeddedServer};
/// # #[tokio::main]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = EmbeddedServer::start().await?;
/// let keeper = Keeper::connect(server.connect_string()).await?;
/// let downloads = keeper.semaphore("downloads", 3)?;
/// let one = downloads.acquire().await?;
/// let two = downloads.acquire_many(2).await?;
/// assert!(downloads.try_acquire().await?.is_none(), "all three are held");
/// one.release().await?;
/// two.release().await?;
/// # keeper.close().await;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Semaphore {
    acquirer: Acquirer,
    permits: Arc<PermitPool>,
}

shows!(|semaphore| Semaphore {
    name: semaphore.name(),
    limit: semaphore.permits.limit(),
});

option_methods!(Semaphore, |semaphore| [&mut semaphore.acquirer]);

impl Semaphore {
    pub(crate) fn new(mut acquirer: Acquirer, limit: u32) -> Result<Self> {
        check_limit(limit)?;
        let permits = Arc::new(acquirer.queue.permits(limit));
        Ok(Self { acquirer, permits })
    }

    /// The semaphore's name.
    pub fn name(&self) -> &LockName {
        self.acquirer.name()
    }

    /// Waits for a permit, without a limit of time.
    ///
    /// # Errors
    ///
    /// As [`acquire_many`](Self::acquire_many).
    ///
    /// # Cancel safety
    ///
    /// As [`acquire_many`](Self::acquire_many).
    pub async fn acquire(&self) -> Result<Permit> {
        self.acquire_many(1).await
    }

    /// Waits for several permits, which are granted at once, without a limit of time. It waits
    /// through disconnects. If the session ends, it joins the queue again at its end, unless
    /// [`with_rejoin`](Self::with_rejoin) forbids that.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidOption`] for 0 permits. [`Error::TooManyPermits`] if the limit is lower: at
    /// once if this handle knows that, and during the wait after a [`resize`](Self::resize).
    /// [`Error::LimitMismatch`] if the stored limit differs from this handle's.
    /// [`Error::UnsafeMix`] if another lock or a semaphore of another library has this name.
    /// [`is_lost`](Error::is_lost) if another client removed our ticket, or the keeper was closed.
    /// [`Error::Unreachable`] if a new session was needed and no server gave one within the connect
    /// timeout. [`Error::Denied`] or [`Error::Refused`] if the servers refuse a request.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: dropped at any await, our ticket leaves the queue in the background, and no
    /// permit stays taken. The place in the queue is lost.
    pub async fn acquire_many(&self, permits: u32) -> Result<Permit> {
        let taken = self.acquirer.take_permits(&self.permits, permits);
        let hold = taken.await?;
        Ok(Permit::new(hold, permits))
    }

    /// Takes a permit if one is free and there is no waiter. It reads first, and otherwise writes
    /// nothing.
    ///
    /// # Errors
    ///
    /// As [`acquire_many`](Self::acquire_many). If the lock is not free, it is `Ok(None)`.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: dropped at any await, nothing is left behind.
    pub async fn try_acquire(&self) -> Result<Option<Permit>> {
        self.try_acquire_many(1).await
    }

    /// Takes several permits if they are free and there is no waiter. It reads first, and otherwise
    /// writes nothing.
    ///
    /// # Errors
    ///
    /// As [`acquire_many`](Self::acquire_many). If the lock is not free, it is `Ok(None)`.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: dropped at any await, nothing is left behind.
    pub async fn try_acquire_many(&self, permits: u32) -> Result<Option<Permit>> {
        let taken = self.acquirer.try_take_permits(&self.permits, permits);
        Ok(taken.await?.map(|hold| Permit::new(hold, permits)))
    }

    /// Waits for a permit for at most `limit`. Then our ticket leaves the queue, and the call
    /// returns within 100 ms, even if every server is dead.
    ///
    /// # Errors
    ///
    /// [`is_timeout`](Error::is_timeout) when the time is over, otherwise as
    /// [`acquire_many`](Self::acquire_many).
    ///
    /// # Cancel safety
    ///
    /// As [`acquire_many`](Self::acquire_many).
    pub async fn acquire_timeout(&self, limit: Duration) -> Result<Permit> {
        self.acquirer.within(limit, self.acquire()).await
    }

    /// Waits for several permits for at most `limit`, as
    /// [`acquire_timeout`](Self::acquire_timeout).
    ///
    /// # Errors
    ///
    /// [`is_timeout`](Error::is_timeout) when the time is over, otherwise as
    /// [`acquire_many`](Self::acquire_many).
    ///
    /// # Cancel safety
    ///
    /// As [`acquire_many`](Self::acquire_many).
    pub async fn acquire_many_timeout(&self, permits: u32, limit: Duration) -> Result<Permit> {
        let acquire = self.acquire_many(permits);
        self.acquirer.within(limit, acquire).await
    }

    /// The number of free permits. A waiter for more permits may be about to get them. It asks
    /// behind a `sync`, so it counts all changes on any server before the call. The answer is old
    /// when it arrives: it is for people and gauges.
    ///
    /// # Errors
    ///
    /// [`Error::LimitMismatch`]; [`is_lost`](Error::is_lost) if the session ended;
    /// [`Error::Unreachable`] if another one cannot be opened.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only reads.
    pub async fn available_permits(&self) -> Result<u32> {
        self.permits.left().await
    }

    /// The stored limit, or the limit of this handle before the first use of the semaphore. It asks
    /// behind a `sync`, as
    /// [`available_permits`](Self::available_permits) does.
    ///
    /// # Errors
    ///
    /// As [`available_permits`](Self::available_permits).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only reads.
    pub async fn limit(&self) -> Result<u32> {
        self.permits.stored_limit().await
    }

    /// The stored limit, or `None` if no limit is stored. This handle's own limit plays no part, so
    /// it tells whether the semaphore exists. It asks behind a `sync`, as
    /// [`available_permits`](Self::available_permits) does.
    ///
    /// # Errors
    ///
    /// [`Error::UnsafeMix`] if another lock or a semaphore of another library has this name in use.
    /// [`is_lost`](Error::is_lost) if the session ended; [`Error::Unreachable`] if another one
    /// cannot be opened.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only reads.
    pub async fn stored_limit(&self) -> Result<Option<u32>> {
        self.permits.any_stored_limit().await
    }

    /// The holders of permits, in the order in which they took them. It asks behind a `sync`, as
    /// [`available_permits`](Self::available_permits) does.
    ///
    /// # Errors
    ///
    /// [`is_lost`](Error::is_lost) if the session ended; [`Error::Unreachable`] if another one
    /// cannot be opened.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only reads.
    pub async fn holders(&self) -> Result<Vec<QueueEntry>> {
        self.acquirer.queue.permit_holders(&self.permits).await
    }

    /// Stores another limit, for all users of the semaphore. New permits go to the first waiters.
    /// With fewer permits, no holder loses its own; none is granted until enough have come back. A
    /// waiter for more than the new limit fails with [`Error::TooManyPermits`] when its turn comes.
    ///
    /// It also works if the stored limit differs from this handle's, which follows the new limit
    /// from then on. Programs that start later must give the new limit.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidOption`] for 0. [`is_lost`](Error::is_lost) if the session ended before the
    /// answer: the limit may be stored. Otherwise as
    /// [`available_permits`](Self::available_permits).
    ///
    /// # Cancel safety
    ///
    /// Dropped at any await, it may have stored the limit or not.
    pub async fn resize(&self, limit: u32) -> Result<()> {
        check_limit(limit)?;
        self.permits.resize(limit).await
    }
}

fn check_limit(limit: u32) -> Result<()> {
    if limit > 0 {
        return Ok(());
    }
    Err(Error::invalid("limit", "0", "it must be at least 1"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn semaphores_and_permits_can_cross_threads() {
        fn check<T: Send + Sync + 'static>() {}

        check::<Semaphore>();
        check::<Permit>();
    }
}
