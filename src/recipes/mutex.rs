//! The mutex: one exclusive ticket. A thin layer over the queue; all state lives in places and
//! guards.

use std::fmt;
use std::time::Duration;

use tracing::{Instrument, Span};

use crate::brief::Brief;
use crate::error::{Error, Result};
use crate::guard::Guard;
use crate::metrics::Waiting;
use crate::name::LockName;
use crate::owner::Owner;
use crate::queue::Waiter;
use crate::recipes::acquire::Acquirer;
use crate::recipes::linger::Linger;

/// A fair distributed lock.
///
/// Granted in the order in which tickets reach the server, whatever process or language they come
/// from. It holds no state and does no I/O until asked: make one from a [`Keeper`](crate::Keeper),
/// clone it, share it.
///
/// Reentrant for an [`Owner`] only ([`with_owner`](Self::with_owner)): without one, locking a mutex
/// that the same task holds waits for ever, like any other contender, with a `warn` event that says
/// so.
///
/// # Cost
///
/// An uncontended `lock` sends 2 requests and a release 1. A contended `lock` sends 3 to queue up
/// and 1 when its turn comes. None of them grows with the queue.
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

impl fmt::Debug for Mutex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mutex")
            .field("name", &self.name())
            .field("has_owner", &self.acquirer.has_owner())
            .field("lingers", &self.linger.is_some())
            .finish_non_exhaustive()
    }
}

impl Mutex {
    pub(crate) fn new(acquirer: Acquirer) -> Self {
        let linger = None;
        Self { acquirer, linger }
    }

    /// The lock's name.
    pub fn name(&self) -> &LockName {
        self.acquirer.name()
    }

    /// Sets a short text, of at most 1024 bytes, that [`Keeper::queue`](crate::Keeper::queue) and
    /// `lockkeeper queue` show beside our tickets: what the work is, say. It is written into each
    /// ticket. A longer one is refused when the lock is asked for.
    #[must_use]
    pub fn with_label(mut self, label: impl Into<String>) -> Self {
        self.acquirer.queue.set_label(label.into());
        self
    }

    /// Names the trace that the work under the lock belongs to, in at most 1024 bytes: the trace id
    /// of W3C's `traceparent`, say. It is written into each ticket, and
    /// [`Keeper::queue`](crate::Keeper::queue) shows it. Whoever waits right behind a ticket of
    /// ours has it in its own trace, as the field `holder_trace` of its span `acquire` and of the
    /// event "waits for" (level debug), which costs no request. A longer one is refused when the
    /// lock is asked for.
    #[must_use]
    pub fn with_trace_id(mut self, trace_id: impl Into<String>) -> Self {
        self.acquirer.queue.set_trace(trace_id.into());
        self
    }

    /// Puts the lock into a class, by which the feature `metrics` counts its waits, holds and
    /// losses; without that feature nothing comes of it. A class is a sort of work and not a lock
    /// (`"orders"` for all of `orders/1`, `orders/2`, ...): each has time series of its own, which
    /// is why it stands in the program's text. Default: `"default"`. `docs/metrics.md` says what is
    /// counted.
    #[must_use]
    pub fn with_class(mut self, class: &'static str) -> Self {
        self.acquirer.set_class(class);
        self
    }

    /// Locks in the name of an owner: while the owner holds the lock, its further calls get the
    /// same hold again, with the same token. The lock is free for others when the last of its
    /// guards is gone.
    ///
    /// From this keeper that costs no round trip. From another one, in another process say, the
    /// call looks whose the first ticket is when it joins the queue and each time it is woken
    /// there, and goes in beside it; it then has the same token, and a ticket of its own, which
    /// keeps others out also when the first holder is gone. One that was in the queue already when
    /// its owner was granted elsewhere learns of that only when it is woken, or when another call
    /// of the owner comes to the same keeper: an owner that holds should not wait for a call of its
    /// own that began to wait before.
    ///
    /// An owner that asks again while its last ticket is still on its way out, after a release in
    /// the background or a lost lease, may go in beside that ticket, again with the same token:
    /// nobody else was in between.
    ///
    /// Calls of one owner in one keeper wait behind each other for what the first of them gets. A
    /// future that is in the middle of a call and is kept without being polled holds them up.
    #[must_use]
    pub fn with_owner(mut self, owner: &Owner) -> Self {
        self.acquirer.set_owner(owner);
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

    /// Keeps the place for a moment after a release, for the next task of this keeper that asks for
    /// the same lock with a mutex that lingers: it takes the place over without a request, in far
    /// less time than a server needs to answer. Default: not at all.
    ///
    /// The place is given up, and the lock released, when nobody has taken it over for the `time`
    /// of the mutex whose guard was the last; as soon as word comes that anybody else has joined
    /// the queue, from wherever; when the hold is lost, or doubtful when its turn comes; after 10
    /// 000 guards; and when the keeper and all its mutexes are gone.
    ///
    /// # What it costs others
    ///
    /// The tasks of one keeper stand in the queue as one, and wait for each other in the order of
    /// their calls; only one of them has a ticket. (The idea is lock cohorting: Dice, Marathe and
    /// Shavit, PPoPP 2012.) So the lock goes round among keepers, not tasks: with many keepers that
    /// all want it, a task waits for those of its own keeper before it, and for one turn of each
    /// other keeper for each of them.
    ///
    /// A competitor waits for the guard that is alive when word of it comes, as it would without
    /// this. In the time that the word needs, usually a fraction of a millisecond, the lock may
    /// still be passed on among us, and never more than 10 000 times, even if the word does not
    /// come at all. A place that nobody uses then stays for `time`, so choose it short. A hold on
    /// which somebody else waited at its grant is not passed on.
    ///
    /// Only who joins the queue is noticed. [`try_lock`](Self::try_lock) elsewhere writes nothing
    /// on a held lock, and to everybody else a kept place is a held lock, in `lockkeeper queue` and
    /// in what its session sends: so a `try_lock` says "not now" for as long as the place is kept
    /// or used here.
    ///
    /// # What it means for guards
    ///
    /// Successors share one ticket, and so one [`token`](Guard::token): a resource that refuses
    /// *lower* tokens does not tell them apart. They are one holder to everybody else, as the
    /// guards of one process; let a guard's work end before the guard does: a
    /// [`fenced`](Guard::fenced) write that was dropped on its way may still commit while a
    /// successor holds. They share the lease too, and a loss is told to whoever holds then, and to
    /// nobody before. A guard that is lost, or whose keeper was closed, keeps no other task
    /// waiting, also if it is not dropped. [`Guard::release`] says `Ok` without a word from the
    /// servers if the place is kept. The first one's label stays in the queue. One request more for
    /// each ticket watches who comes, and one takes that back where nobody came.
    ///
    /// A call that waits for its turn among the tasks has no ticket, and so no session that could
    /// end: [`without_rejoin`](Self::without_rejoin) concerns it from then on. One that is in the
    /// middle of its turn and is kept without being polled holds the others up, as its ticket does.
    ///
    /// Calls in the name of an owner do not linger, nor does [`enqueue`](Self::enqueue); both are
    /// competitors like any other. So are locks below this one's name, whose directories are in
    /// this one's. [`Keeper::close`](crate::Keeper::close) gives kept places up.
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
    /// let lock = keeper.mutex("orders/42")?.linger(Duration::from_millis(50));
    /// let token = lock.lock().await?.token();
    /// // Without a round trip, under the same ticket.
    /// assert_eq!(lock.lock().await?.token(), token);
    /// # keeper.close().await;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn linger(mut self, time: Duration) -> Self {
        self.linger = None;
        if !time.is_zero() {
            self.acquirer.queue.set_watchful();
            self.linger = Some(Linger::new(self.acquirer.cohort(), time));
        }
        self
    }

    /// Waits until it is our turn, however long that takes, through disconnects and also, unless
    /// [`without_rejoin`](Self::without_rejoin) says otherwise, through the end of the session,
    /// which costs the place in the queue.
    ///
    /// # Errors
    ///
    /// [`is_lost`](Error::is_lost) if our ticket was removed by somebody else or the keeper was
    /// closed while we waited. [`Error::Unreachable`] if a new session was needed and no server
    /// gave one within the connect timeout. [`Error::Denied`] or [`Error::Refused`] if the server
    /// refuses what is needed.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: dropped at any await, our ticket leaves the queue in the background, and nobody
    /// is blocked. The place in the queue is lost; use [`enqueue`](Self::enqueue) to keep it across
    /// a `select!`.
    pub async fn lock(&self) -> Result<Guard> {
        match self.lingers() {
            // On the heap, so that a lock that does not linger is no larger for it.
            Some(linger) => Box::pin(linger.lock(&self.acquirer)).await,
            None => self.acquirer.lock().await.map(Guard::new),
        }
    }

    /// Takes the lock if nobody holds it or waits for it. Reads first: on a held lock it writes
    /// nothing.
    ///
    /// What it reads may be a moment old: right after a release elsewhere it can still say "not
    /// now".
    ///
    /// # Errors
    ///
    /// As [`lock`](Self::lock). "Not now" is `Ok(None)`.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: dropped at any await, nothing is left in the queue.
    pub async fn try_lock(&self) -> Result<Option<Guard>> {
        match self.lingers() {
            Some(linger) => Box::pin(linger.try_lock(&self.acquirer)).await,
            None => Ok(self.acquirer.try_lock().await?.map(Guard::new)),
        }
    }

    /// Waits for our turn for at most `limit`. Then our ticket leaves the queue, and the call
    /// returns within 100 ms, even with every server dead.
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

    /// Takes a place at the end of the queue and returns as soon as it is fixed, before it is
    /// granted.
    ///
    /// # Errors
    ///
    /// As [`lock`](Self::lock).
    ///
    /// # Cancel safety
    ///
    /// As [`lock`](Self::lock).
    pub async fn enqueue(&self) -> Result<Place> {
        let (waiter, waiting, span) = self.acquirer.enqueue().await?;
        Ok(Place {
            waiter: Some(waiter),
            waiting: Some(waiting),
            acquirer: self.acquirer.clone(),
            span,
        })
    }

    /// How it lingers. An owner's ticket says whose it is, so nobody else may have it.
    fn lingers(&self) -> Option<&Linger> {
        self.linger.as_ref().filter(|_| !self.acquirer.has_owner())
    }
}

/// A fixed place in the queue, from [`Mutex::enqueue`]. Dropping it leaves the queue.
///
/// It ends with its session: then every call says [`is_session_over`](Error::is_session_over),
/// because another place would be another one. [`Mutex::lock`] joins again by itself.
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
#[must_use = "a place that is dropped leaves the queue"]
pub struct Place {
    /// Gone once it became a guard.
    waiter: Option<Waiter>,
    waiting: Option<Waiting>,
    acquirer: Acquirer,
    span: Span,
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let node = self.waiter.as_ref().map(|waiter| waiter.node());
        f.debug_struct("Place")
            .field("name", &self.name())
            .field("node", &node.map(Brief))
            .finish_non_exhaustive()
    }
}

impl Place {
    /// The lock's name.
    pub fn name(&self) -> &LockName {
        self.acquirer.name()
    }

    /// Waits until it is our turn. To be called until it returns a guard; after that the place is
    /// spent.
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
        let entry = self.waiter()?.granted().instrument(span.clone()).await?;
        if let Some(waiting) = self.waiting.take() {
            waiting.granted();
        }
        match self.waiter.take() {
            Some(waiter) => span.in_scope(|| Ok(Guard::new(self.acquirer.hold(waiter, entry)))),
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

    /// How many are before us: 0 means that it is our turn. Lists the whole queue, so ask for
    /// people, not in a loop.
    ///
    /// # Errors
    ///
    /// As [`granted`](Self::granted).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only reads.
    pub async fn position(&self) -> Result<usize> {
        let waiter = self.waiter.as_ref().ok_or_else(|| self.spent())?;
        Ok(waiter.ahead().await?.len())
    }

    fn waiter(&mut self) -> Result<&mut Waiter> {
        let spent = self.spent();
        self.waiter.as_mut().ok_or(spent)
    }

    fn spent(&self) -> Error {
        Error::PlaceLost {
            name: self.acquirer.name().to_string(),
            why: "it has become a guard already",
        }
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
        let lingering = lock.clone().linger(std::time::Duration::from_secs(1));
        let on_heap = lingering
            .lingers()
            .map(|linger| linger.lock(&lingering.acquirer));

        for size in [
            size_of_val(&lock.lock()),
            on_heap.map_or(0, |lock| size_of_val(&lock)),
        ] {
            assert!((1..=1024).contains(&size), "{size}");
        }
    }
}
