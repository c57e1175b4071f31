//! The mutex: one exclusive ticket. It has no state: places and guards have it.

mod place;

pub use place::Place;

use std::time::Duration;

use crate::brief::shows;
#[cfg(doc)]
use crate::error::Error;
use crate::error::Result;
use crate::guard::Guard;
use crate::name::LockName;
use crate::owner::Owner;
use crate::recipes::acquire::Acquirer;
use crate::recipes::linger::Linger;
use crate::recipes::options::option_methods;

/// A fair distributed lock.
///
/// It is granted in the order in which tickets reach the servers, across processes and languages.
/// It has no state and does no I/O by itself: make one from a [`Keeper`](crate::Keeper), clone it,
/// share it.
///
/// It is reentrant for an [`Owner`] only ([`with_owner`](Self::with_owner)). Without one, a task
/// that locks a mutex which it holds waits for ever, and a `warn` event says so.
///
/// # Cost
///
/// An uncontended `lock` sends 2 requests and a release 1. A contended `lock` sends 3 to queue up
/// and 1 when its turn comes. No request grows with the queue.
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
#[derive(Clone)]
pub struct Mutex {
    acquirer: Acquirer,
    linger: Option<Linger>,
}

shows!(|mutex| Mutex {
    name: mutex.name(),
    has_owner: mutex.acquirer.has_owner(),
    lingers: mutex.linger.is_some(),
});

option_methods!(Mutex, |mutex| [&mut mutex.acquirer]);

impl Mutex {
    pub(crate) fn new(acquirer: Acquirer) -> Self {
        let linger = None;
        Self { acquirer, linger }
    }

    /// The lock's name.
    pub fn name(&self) -> &LockName {
        self.acquirer.name()
    }

    /// Locks in the name of an owner. While the owner holds the lock, its other calls get the same
    /// hold, with the same token. The lock is free when the last of these guards is gone.
    ///
    /// In this keeper that needs no round trip. A call from another keeper or process looks for the
    /// owner of the first ticket when it joins the queue, and each time it is woken there. Then it
    /// enters beside that ticket with the same token. It has a ticket of its own, which keeps
    /// others out when the first holder is gone.
    ///
    /// A second process of an owner may queue behind that owner's earlier call. It learns of the
    /// grant only when it is woken, or when another call of the owner comes to its keeper. So an
    /// owner that holds a lock should not wait for an earlier call of its own.
    ///
    /// After a background release or a lost lease, the owner's last ticket may still be leaving. A
    /// new call may then enter beside it, with the same token: no other holder was in between.
    ///
    /// Calls of one owner in one keeper wait for the result of the first. A pending call that is no
    /// longer polled blocks the owner's other calls.
    #[must_use]
    pub fn with_owner(mut self, owner: &Owner) -> Self {
        self.acquirer.set_owner(owner);
        self.watches_as_it_lingers()
    }

    /// Keeps the place for `time` after a release, for the next task of this keeper that locks the
    /// same name with a mutex that lingers. That task takes the place over without a request, much
    /// faster than a server answers. [`Duration::ZERO`], the default, keeps nothing.
    ///
    /// The lock is released
    ///
    /// - when no task has taken the place over for the `time` of the last guard's mutex,
    /// - as soon as the keeper learns of another ticket in the queue,
    /// - when the hold is lost, or doubtful when its turn comes,
    /// - after 10 000 guards,
    /// - when the keeper and all its mutexes are gone, or
    ///   [`Keeper::close`](crate::Keeper::close) is called.
    ///
    /// # What it costs others
    ///
    /// The tasks of one keeper share one ticket and wait for each other in the order of their
    /// calls. (This is lock cohorting: Dice, Marathe and Shavit, PPoPP 2012.) So the lock goes
    /// round among keepers, not among tasks. If many keepers want the lock, a task waits for the
    /// earlier tasks of its keeper, and for one turn of each other keeper before each of them.
    ///
    /// A competitor waits for the guard that lives when the keeper learns of it, as it would
    /// without lingering. That takes a fraction of a millisecond, in which the lock may still be
    /// passed on. If the news never comes, the limit of 10 000 guards ends it. An unused place
    /// stays for `time`, so choose a short time. A hold is not passed on if a competitor waited at
    /// its grant.
    ///
    /// To other clients a kept place is a held lock. [`try_lock`](Self::try_lock) writes nothing on
    /// a held lock that its server knows of, so it stays unnoticed: elsewhere it gives `None` for
    /// as long as the place is kept.
    ///
    /// # Guards that share a ticket
    ///
    /// Successive guards share one ticket, and so one [`token`](Guard::token). A resource that
    /// refuses *lower* tokens does not tell them apart. End a guard's work before the guard: a
    /// [`fenced`](Guard::fenced) write that was dropped on its way may commit while a successor
    /// holds.
    ///
    /// The guards also share the lease. Only the current guard is told of a loss. A lost guard, or
    /// one of a closed keeper, blocks no other task, even if it is not dropped. If the place is
    /// kept, [`Guard::release`] gives `Ok` without an answer of the servers. The queue shows the
    /// label of the first guard. Each ticket costs one more request to watch the queue, and one to
    /// remove the watch if no competitor came.
    ///
    /// A call that waits for another task has no ticket, and so no session that could end:
    /// [`with_rejoin`](Self::with_rejoin) applies from its turn on. A call in the middle of its
    /// turn that is no longer polled blocks the other tasks.
    ///
    /// Calls of an owner, and [`enqueue`](Self::enqueue), do not linger. They compete like other
    /// clients, and so do locks below this name, whose directories are in this lock's directory.
    ///
    /// # Examples
    ///
    /// ```
    /// # use lockkeeper::{Keeper, embedded::EmbeddedServer};
    /// # use std::time::Duration;
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = EmbeddedServer::start().await?;
    /// let keeper = Keeper::connect(server.connect_string()).await?;
    /// let lock = keeper.mutex("orders/42")?.with_linger(Duration::from_millis(50));
    /// let token = lock.lock().await?.token();
    /// // Without a round trip, under the same ticket.
    /// assert_eq!(lock.lock().await?.token(), token);
    /// # keeper.close().await;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn with_linger(mut self, time: Duration) -> Self {
        let lingers = !time.is_zero();
        self.linger = lingers.then(|| Linger::new(self.acquirer.cohort(), time));
        self.watches_as_it_lingers()
    }

    /// Waits for the lock, without a limit of time. It waits through disconnects. If the session
    /// ends, it joins the queue again at its end, unless [`with_rejoin`](Self::with_rejoin) forbids
    /// that.
    ///
    /// # Errors
    ///
    /// [`is_lost`](Error::is_lost) if another client removed our ticket, or the keeper was closed.
    /// [`Error::Unreachable`] if a new session was needed and no server gave one within the connect
    /// timeout. [`Error::Denied`] or [`Error::Refused`] if the servers refuse a request.
    /// [`is_refusal`](Error::is_refusal) if this lock cannot be granted here.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: dropped at any await, our ticket leaves the queue in the background, and blocks
    /// no other client. The place in the queue is lost. Use [`enqueue`](Self::enqueue) to keep it
    /// across a `select!`.
    pub async fn lock(&self) -> Result<Guard> {
        match self.lingers() {
            // On the heap, so that the future of a plain lock stays small.
            Some(linger) => {
                let guard = Box::pin(linger.take(&self.acquirer, true)).await?;
                guard.ok_or_else(|| self.acquirer.queue.lost("the cohort is closed"))
            }
            None => self.acquirer.lock().await.map(Guard::new),
        }
    }

    /// Takes the lock if it has no holder and no waiter. It reads first, and writes nothing if the
    /// lock is held.
    ///
    /// It reads a server that may lag behind, so right after a release elsewhere it may still give
    /// `None`, and right after a grant elsewhere it may write a ticket, which it takes back.
    ///
    /// # Errors
    ///
    /// As [`lock`](Self::lock). If the lock is not free, it is `Ok(None)`.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: dropped at any await, nothing is left in the queue.
    pub async fn try_lock(&self) -> Result<Option<Guard>> {
        match self.lingers() {
            Some(linger) => Box::pin(linger.take(&self.acquirer, false)).await,
            None => Ok(self.acquirer.try_lock().await?.map(Guard::new)),
        }
    }

    /// Waits for the lock for at most `limit`. Then our ticket leaves the queue, and the call
    /// returns within 100 ms, even if every server is dead.
    ///
    /// # Errors
    ///
    /// [`is_timeout`](Error::is_timeout) when the time is over, otherwise as [`lock`](Self::lock).
    ///
    /// # Cancel safety
    ///
    /// As [`lock`](Self::lock).
    pub async fn lock_timeout(&self, limit: Duration) -> Result<Guard> {
        self.acquirer.within(limit, self.lock()).await
    }

    /// Takes a place at the end of the queue. It returns when the ticket is created, before the
    /// lock is granted.
    ///
    /// # Errors
    ///
    /// As [`lock`](Self::lock).
    ///
    /// # Cancel safety
    ///
    /// As [`lock`](Self::lock).
    pub async fn enqueue(&self) -> Result<Place> {
        let mut acquirer = self.acquirer.clone();
        // A place does not linger.
        acquirer.queue.set_watchful(false);
        let (waiter, waiting, span) = acquirer.enqueue().await?;
        Ok(Place {
            waiter: Some((waiter, waiting)),
            acquirer,
            span,
        })
    }

    /// Only a hold that lingers needs room for a watch on others that come.
    fn watches_as_it_lingers(mut self) -> Self {
        let is_watchful = self.lingers().is_some();
        self.acquirer.queue.set_watchful(is_watchful);
        self
    }

    /// How it lingers. A ticket with an owner cannot be passed on.
    fn lingers(&self) -> Option<&Linger> {
        self.linger.as_ref().filter(|_| !self.acquirer.has_owner())
    }
}

#[cfg(test)]
mod tests {
    // A waiter's memory is its future, and a crowd has many.
    #[tokio::test]
    async fn the_future_of_a_lock_is_small() {
        let server = zookeeper_embedded::EmbeddedServer::start().await.unwrap();
        let keeper = crate::Keeper::connect(server.connect_string())
            .await
            .unwrap();
        let lock = keeper.mutex("small").unwrap();
        let lingering = lock.clone().with_linger(std::time::Duration::from_secs(1));
        let on_heap = lingering
            .lingers()
            .map(|linger| linger.take(&lingering.acquirer, true));

        for size in [
            size_of_val(&lock.lock()),
            on_heap.map_or(0, |lock| size_of_val(&lock)),
        ] {
            assert!((1..=1024).contains(&size), "{size}");
        }
    }
}
