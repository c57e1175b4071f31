//! The semaphore: so many permits, handed out in the order of a queue. A thin layer over the queue;
//! all state lives in the permits and at the servers.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::guard::hold::{GuardState, Hold};
use crate::guard::lost::Lost;
use crate::guard::{guard_methods, place_methods, revocable_methods};
use crate::name::LockName;
use crate::owner::Owner;
use crate::protocol::permits;
use crate::queue::permits::PermitPool;
use crate::queue::view::QueueEntry;
use crate::recipes::acquire::Acquirer;

/// A fair distributed semaphore: a limit on how much may go on at the same time, across processes
/// and machines.
///
/// It has a number of permits, the *limit*, which is stored with it. A call takes one or
/// [several](Self::acquire_many), waits until all that it asked for are there, and is served in the
/// order in which calls reached the servers: who asks for many is not overtaken by those who ask
/// for few, and never holds a part of what it asked for. Permits come back when the [`Permit`] is
/// released or dropped, and by themselves when the session of their holder ends.
///
/// Cheap to clone. It holds no permits and does no I/O until asked: make one from a
/// [`Keeper`](crate::Keeper).
///
/// # The limit
///
/// The first user stores its limit. A handle that gives another one is refused with
/// [`Error::LimitMismatch`], the first time that it, or one of its clones, looks: two programs that
/// disagree would otherwise let in more than one of them allows. After that a handle follows the
/// stored limit, which [`resize`](Self::resize) changes for everybody at once.
///
/// # At the servers
///
/// Below `<root>/<name>`: `queue` with a ticket for everybody who waits, `held` with a node for
/// each permit holder, and `limit`. So no other lock can have one of these three names; other names
/// below the semaphore's are free, also to locks. `limit` stays, and with it the name's own
/// directory; to forget a semaphore that nobody uses any more, remove the node `limit`, after which
/// the servers remove the rest.
///
/// The name is the semaphore's alone: while `limit` is there, or a permit in `held`, any other lock
/// of the same name is refused with [`Error::UnsafeMix`], and so is the semaphore while somebody
/// holds or waits for such a lock.
///
/// The [lock delay](crate::KeeperBuilder::lock_delay) does not apply to semaphores.
///
/// # What it promises
///
/// At each transaction of the ensemble the permits that are held are at most as many as the limit
/// was when the last of them was taken. As with a [`Guard`](crate::Guard), a holder that is paused
/// or cut off can outlive its session without knowing, and then overlap with whoever got its
/// permits; a permit says so as a guard does. There is no token, because permits order nothing.
///
/// # Cost
///
/// An uncontended `acquire` sends 5 requests and a release 1. Whoever waits has one watch, and the
/// first in the queue two more, whatever the limit and the number of waiters; a release wakes one
/// client, and a grant the next one. The first in the queue lists the permits that are held, so the
/// cost grows with the number of their holders: a few thousand are no trouble.
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

impl fmt::Debug for Semaphore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Semaphore")
            .field("name", &self.name())
            .field("limit", &self.permits.limit())
            .finish_non_exhaustive()
    }
}

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

    /// Sets a short text, of at most 1024 bytes, that [`holders`](Self::holders) and
    /// [`Keeper::queue`](crate::Keeper::queue) show beside our permits and tickets. A longer one is
    /// refused when permits are asked for.
    #[must_use]
    pub fn with_label(mut self, label: impl Into<String>) -> Self {
        self.acquirer.queue.set_label(label.into());
        self
    }

    /// As [`Mutex::with_trace_id`](crate::Mutex::with_trace_id).
    #[must_use]
    pub fn with_trace_id(mut self, trace_id: impl Into<String>) -> Self {
        self.acquirer.queue.set_trace(trace_id.into());
        self
    }

    /// As [`Mutex::with_class`](crate::Mutex::with_class).
    #[must_use]
    pub fn with_class(mut self, class: &'static str) -> Self {
        self.acquirer.set_class(class);
        self
    }

    /// Makes calls fail with [`is_session_over`](Error::is_session_over) when the session ends
    /// while they wait. Otherwise they join the queue again, at its end, with the keeper's next
    /// session.
    #[must_use]
    pub fn without_rejoin(mut self) -> Self {
        self.acquirer.never_rejoin();
        self
    }

    /// Waits for a permit, however long that takes.
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

    /// Waits for so many permits at once, through disconnects and also, unless
    /// [`without_rejoin`](Self::without_rejoin) says otherwise, through the end of the session,
    /// which costs the place in the queue.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidOption`] for 0 permits. [`Error::TooManyPermits`] if so many are never
    /// there: before anything is sent if the limit of this handle says so, and also in the middle
    /// of the wait if the semaphore was made smaller meanwhile. [`Error::LimitMismatch`] if the
    /// stored limit is another one than this handle's. [`Error::UnsafeMix`] if another lock has
    /// this name, or another library's semaphore. [`is_lost`](Error::is_lost) if our ticket was
    /// removed by somebody else or the keeper was closed while we waited. [`Error::Unreachable`] if
    /// a new session was needed and no server gave one within the connect timeout.
    /// [`Error::Denied`] or [`Error::Refused`] if the server refuses what is needed.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: dropped at any await, our ticket leaves the queue and no permit stays taken, in
    /// the background. The place in the queue is lost.
    pub async fn acquire_many(&self, permits: u32) -> Result<Permit> {
        let taken = self.acquirer.take_permits(&self.permits, permits);
        taken.await.map(Permit::new)
    }

    /// Takes a permit if one is there and nobody waits. Reads first: otherwise it writes nothing.
    ///
    /// # Errors
    ///
    /// As [`acquire_many`](Self::acquire_many). "Not now" is `Ok(None)`.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: dropped at any await, nothing is left behind.
    pub async fn try_acquire(&self) -> Result<Option<Permit>> {
        self.try_acquire_many(1).await
    }

    /// Takes so many permits if they are there and nobody waits. Reads first: otherwise it writes
    /// nothing.
    ///
    /// # Errors
    ///
    /// As [`acquire_many`](Self::acquire_many). "Not now" is `Ok(None)`.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: dropped at any await, nothing is left behind.
    pub async fn try_acquire_many(&self, permits: u32) -> Result<Option<Permit>> {
        let taken = self.acquirer.try_take_permits(&self.permits, permits);
        Ok(taken.await?.map(Permit::new))
    }

    /// Waits for a permit for at most `limit`. Then our ticket leaves the queue, and the call
    /// returns within 100 ms, even with every server dead.
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

    /// Waits for so many permits for at most `limit`, as
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
        self.acquirer
            .within(limit, self.acquire_many(permits))
            .await
    }

    /// How many permits nobody holds. They may be meant for somebody who waits for more of them. It
    /// asks behind a `sync`: what was taken or given back before the call, on whichever server, is
    /// counted. The answer may be old when it is there: it is for people and gauges.
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
        self.acquirer.queue.permits_left(&self.permits).await
    }

    /// How many permits there are in all, as it is stored; before anybody has used the semaphore,
    /// the limit of this handle. It asks behind a `sync`, as
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
        self.acquirer.queue.stored_limit(&self.permits).await
    }

    /// Who holds permits, in the order in which they were taken. It asks behind a `sync`, as
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

    /// Stores another limit, for everybody who uses the semaphore. More permits go to whoever waits
    /// first. With fewer, nobody loses what it holds: nothing is handed out until so many came back
    /// that it fits. Whoever waits for more than there are now in all is told
    /// [`Error::TooManyPermits`] when its turn comes.
    ///
    /// Also the way to agree on a new limit: unlike the other calls it does not mind that the
    /// stored limit is another one than this handle's, which follows the new one from then on.
    /// Programs that start later must give the new limit.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidOption`] for 0. [`is_lost`](Error::is_lost) if the session ended before the
    /// answer came: it may have been done. Otherwise as
    /// [`available_permits`](Self::available_permits).
    ///
    /// # Cancel safety
    ///
    /// Dropped at any await, the limit is the old one or the new one.
    pub async fn resize(&self, limit: u32) -> Result<()> {
        check_limit(limit)?;
        self.acquirer.queue.resize(&self.permits, limit).await
    }
}

fn check_limit(limit: u32) -> Result<()> {
    if limit > 0 {
        return Ok(());
    }
    Err(Error::InvalidOption {
        what: "limit",
        given: "0".into(),
        why: "it must be at least 1".into(),
    })
}

/// Permits of a [`Semaphore`] that are held, taken and given back all at once.
///
/// Drop it to give them back in the background, or [`release`](Self::release) it to know the
/// answer. What it says of the hold, and on what that rests, is the same as of a
/// [`Guard`](crate::Guard).
#[must_use = "the permits are given back when this is dropped"]
#[clippy::has_significant_drop]
pub struct Permit {
    pub(crate) hold: Arc<Hold>,
}

guard_methods!(Permit);
revocable_methods!(Permit);
place_methods!(Permit);

impl Permit {
    /// How many permits these are.
    pub fn permits(&self) -> u32 {
        // Its node was named by us.
        permits::weight(self.node()).unwrap_or_default()
    }
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
