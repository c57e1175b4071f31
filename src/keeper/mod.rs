//! The keeper: the root that everyone starts from. It holds the sessions and gives out recipes.
//!
//! It does no locking itself, and what it gives out stays valid for as long as it is open.

mod builder;

pub use builder::KeeperBuilder;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::brief::Brief;
use crate::error::{Error, Result};
use crate::guard::local_holds::LocalHolds;
use crate::link::Create;
use crate::metrics::DEFAULT_CLASS;
use crate::name::LockName;
use crate::protocol::dialect::Dialect;
use crate::protocol::journal_page::JournalEntry;
use crate::protocol::ticket::{Recipe, TicketData};
use crate::queue::Queue;
use crate::queue::acl::WiderAcl;
use crate::queue::journal;
use crate::queue::journal::JournalWriter;
use crate::queue::view;
use crate::queue::view::{LockSummary, QueueEntry};
use crate::recipes::acquire::Acquirer;
use crate::recipes::election::Election;
use crate::recipes::multi::{MultiGuard, MultiLock};
use crate::recipes::mutex::Mutex;
use crate::recipes::rwlock::RwLock;
use crate::recipes::semaphore::Semaphore;
use crate::session::monitor::SessionEvents;
use crate::session::pool::Pool;

/// A connection to a ZooKeeper ensemble, and the source of locks.
///
/// Cheap to clone; clones share their sessions. Keep one for each process: it opens further
/// sessions by itself when very many tasks wait. [`close`](Self::close) it before the process ends;
/// otherwise tickets that were not released stay until the session times out.
///
/// On Linux it sets `TCP_NODELAY` on each connection that this process has to the keeper's servers,
/// also on those that are not its own: what is sent together then arrives together. Where that is
/// forbidden (`pidfd_getfd` in a sandbox) a lock that is free costs a round trip more, and nothing
/// else changes.
///
/// # Examples
///
/// ```
/// # use lockkeeper::{Keeper, embedded::EmbeddedServer};
/// # use std::time::Duration;
/// # #[tokio::main]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = EmbeddedServer::start().await?;
/// # let servers = server.connect_string();
/// let keeper = Keeper::builder(servers) // "zk1:2181,zk2:2181,zk3:2181/app"
///     .session_timeout(Duration::from_secs(6))
///     .root("/services/locks")
///     .connect()
///     .await?;
/// let guard = keeper.mutex("orders/42")?.lock().await?;
/// guard.release().await?;
/// keeper.close().await;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Keeper {
    pool: Arc<Pool>,
    root: Arc<str>,
    kind: Create,
    line: Arc<TicketData>,
    lock_delay: Duration,
    dialect: Dialect,
    local_holds: Arc<LocalHolds>,
    journal: Option<Arc<JournalWriter>>,
}

impl fmt::Debug for Keeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keeper")
            .field("servers", &Brief(self.pool.servers()))
            .field("root", &Brief(&self.root))
            .field("is_closed", &self.pool.is_closing())
            .finish_non_exhaustive()
    }
}

impl Keeper {
    #[cfg(test)]
    pub(crate) fn watched_bytes(&self) -> usize {
        self.pool.watched_bytes()
    }

    /// Connects with the default options.
    ///
    /// The connect string is ZooKeeper's: `host:port` pairs separated by commas (the port is 2181
    /// when left out), then, if wanted, a chroot that must exist: `zk1:2181,zk2:2181,zk3:2181/app`.
    ///
    /// # Errors
    ///
    /// As [`KeeperBuilder::connect`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a session that was opened is closed.
    pub async fn connect(connect_string: impl Into<String>) -> Result<Self> {
        Self::builder(connect_string).connect().await
    }

    /// Starts with the default options.
    pub fn builder(connect_string: impl Into<String>) -> KeeperBuilder {
        KeeperBuilder::new(connect_string.into())
    }

    /// Makes a fair lock with this name, which is text or a [`LockName`]. No I/O.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidName`] with the rule that the name breaks.
    pub fn mutex<N>(&self, name: N) -> Result<Mutex>
    where
        N: TryInto<LockName>,
        Error: From<N::Error>,
    {
        let recipe = self.dialect.lock();
        Ok(Mutex::new(self.acquirer(name.try_into()?, recipe, "mutex")))
    }

    /// Makes a fair read-write lock with this name, which is text or a [`LockName`]. No I/O.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidName`] with the rule that the name breaks.
    pub fn rw_lock<N>(&self, name: N) -> Result<RwLock>
    where
        N: TryInto<LockName>,
        Error: From<N::Error>,
    {
        let name = name.try_into()?;
        let read = self.acquirer(name.clone(), self.dialect.read(), "read");
        let write = self.acquirer(name, self.dialect.write(), "write");
        Ok(RwLock::new(read, write))
    }

    /// Makes a semaphore with this name, of so many permits. No I/O.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidName`] with the rule that the name breaks; [`Error::InvalidOption`] for a
    /// limit of 0.
    pub fn semaphore<N>(&self, name: N, limit: u32) -> Result<Semaphore>
    where
        N: TryInto<LockName>,
        Error: From<N::Error>,
    {
        let acquirer = self.acquirer(name.try_into()?, Recipe::Lock, "permit");
        Semaphore::new(acquirer, limit)
    }

    /// Makes an election with this name, which is text or a [`LockName`]. No I/O.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidName`] with the rule that the name breaks.
    pub fn election<N>(&self, name: N) -> Result<Election>
    where
        N: TryInto<LockName>,
        Error: From<N::Error>,
    {
        let recipe = self.dialect.lead();
        let acquirer = self.acquirer(name.try_into()?, recipe, "leadership");
        Ok(Election::new(acquirer))
    }

    /// Makes a set of fair locks that are taken together, all or none, and without deadlocks. No
    /// I/O. Names that are given twice count once.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidName`] with the rule that a name breaks. [`Error::InvalidOption`] for no
    /// name at all, for more than 128, and for names so long that one session could not watch them
    /// all (512 bytes each on average, with root and chroot).
    pub fn multi_lock<I>(&self, names: I) -> Result<MultiLock>
    where
        I: IntoIterator,
        I::Item: TryInto<LockName>,
        Error: From<<I::Item as TryInto<LockName>>::Error>,
    {
        let names = names.into_iter().map(|name| Ok(name.try_into()?));
        let names = names.collect::<Result<_>>()?;
        let queue = |name| self.counted(name, self.dialect.lock(), "several");
        MultiLock::new(names, Arc::clone(&self.local_holds), queue)
    }

    /// Takes several locks together: [`multi_lock`](Self::multi_lock) and [`MultiLock::lock`].
    ///
    /// # Errors
    ///
    /// As those two.
    ///
    /// # Cancel safety
    ///
    /// As [`MultiLock::lock`].
    ///
    /// # Examples
    ///
    /// ```
    /// # use lockkeeper::{Keeper, embedded::EmbeddedServer};
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = EmbeddedServer::start().await?;
    /// # let keeper = Keeper::connect(server.connect_string()).await?;
    /// let guard = keeper.lock_all(["accounts/17", "accounts/4"]).await?;
    /// guard.release().await?;
    /// # keeper.close().await;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn lock_all<I>(&self, names: I) -> Result<MultiGuard>
    where
        I: IntoIterator,
        I::Item: TryInto<LockName>,
        Error: From<<I::Item as TryInto<LockName>>::Error>,
    {
        // The names are not kept across the wait.
        let lock = self.multi_lock(names)?;
        lock.lock().await
    }

    /// Lists the locks below the root that somebody holds or waits for, by name. It asks behind a
    /// `sync`: what was there before the call, on whichever server, is in the list.
    ///
    /// # Errors
    ///
    /// [`Error::Denied`] if we may not read the root; what we may not read below it is
    /// [said](LockSummary::is_denied). [`is_lost`](Error::is_lost) if the session ended;
    /// [`Error::Unreachable`] if another one cannot be opened.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only reads.
    pub async fn locks(&self) -> Result<Vec<LockSummary>> {
        let session = self.pool.home("list the locks below", &self.root).await?;
        view::locks(&session, &self.root).await
    }

    /// Lists everybody in a lock's queue, in its order. Empty when nobody uses the lock. It asks
    /// behind a `sync`, as [`locks`](Self::locks) does.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidName`]; [`Error::Denied`] if we may not read its directory or one of its
    /// tickets; otherwise as [`locks`](Self::locks).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only reads.
    pub async fn queue<N>(&self, name: N) -> Result<Vec<QueueEntry>>
    where
        N: TryInto<LockName>,
        Error: From<N::Error>,
    {
        self.queue_of(name.try_into()?, Recipe::Lock)
            .entries()
            .await
    }

    /// Removes a ticket that [`queue`](Self::queue) has shown, whosever it is: an operator's tool
    /// for a holder that hangs, or a waiter that nobody wants any more. `true` if it was removed
    /// now, `false` if it was gone already, whoever stands in its place: a ticket is known by its
    /// token, and no other one is touched.
    ///
    /// Who is evicted is not asked. A guard of its learns that it is
    /// [lost](crate::GuardState::Lost) with the next beat of its session, within a tenth of the
    /// session timeout for each hundred locks that the session holds, or at once from
    /// [`check`](crate::Guard::check); until then it may work on while the next in the queue is let
    /// in, which only a resource that compares tokens notices. The call of one that waits ends with
    /// [`Error::PlaceLost`], but not before whoever it waits for has left: only then does it look.
    /// A guest of an evicted holder stays, and is evicted by its own entry.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidName`]; [`Error::InvalidOption`] if the entry is not of this lock.
    /// [`Error::Denied`] if we may not remove or read the ticket. [`Error::Refused`] if it is
    /// another program's node and has children. Otherwise as [`locks`](Self::locks).
    ///
    /// # Cancel safety
    ///
    /// Dropped at any await after its first poll, the ticket may still be removed.
    ///
    /// # Examples
    ///
    /// ```
    /// # use lockkeeper::{Keeper, embedded::EmbeddedServer};
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = EmbeddedServer::start().await?;
    /// # let keeper = Keeper::connect(server.connect_string()).await?;
    /// let stuck = keeper.mutex("orders/42")?.lock().await?;
    /// let queue = keeper.queue("orders/42").await?;
    /// assert!(keeper.evict("orders/42", &queue[0]).await?);
    /// assert!(!keeper.evict("orders/42", &queue[0]).await?);
    /// assert!(stuck.check().await.unwrap_err().is_lost());
    /// # keeper.close().await;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn evict<N>(&self, name: N, entry: &QueueEntry) -> Result<bool>
    where
        N: TryInto<LockName>,
        Error: From<N::Error>,
    {
        self.queue_of(name.try_into()?, Recipe::Lock)
            .evict(entry)
            .await
    }

    /// Asks whoever has a ticket that [`queue`](Self::queue) has shown to give it back, and once
    /// that is written waits for it, for at most `grace`. `true` if the ticket is gone by then:
    /// released, lost, gone before, or exchanged for another one by a
    /// [downgrade](crate::WriteGuard::downgrade), which hears the request too. A holder that
    /// listens ends its work and releases: [`Guard::revoked`](crate::Guard::revoked), a command
    /// under `lockkeeper run`, Curator's revocable locks. One that does not keeps its lock;
    /// [`evict`](Self::evict) removes it. Whoever waits hears of it once it holds.
    ///
    /// This adds a word to the data of our own tickets, and writes `__REVOKE__` into others, as
    /// Curator's `Revoker` does. It wakes the one behind the ticket, once.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidName`]; [`Error::InvalidOption`] if the entry is not of this lock, or a
    /// candidate of an election: Curator's `LeaderLatch` behind it would then miss its end.
    /// [`Error::Denied`] if we may not write into the ticket or read it. Otherwise as
    /// [`locks`](Self::locks).
    ///
    /// # Cancel safety
    ///
    /// Dropped at any await after its first poll, the holder may have been asked.
    ///
    /// # Examples
    ///
    /// See [`Guard::revoked`](crate::Guard::revoked).
    pub async fn revoke<N>(&self, name: N, entry: &QueueEntry, grace: Duration) -> Result<bool>
    where
        N: TryInto<LockName>,
        Error: From<N::Error>,
    {
        self.queue_of(name.try_into()?, Recipe::Lock)
            .revoke(entry, grace)
            .await
    }

    /// The last holds of a lock that were written down, the oldest first, by the keepers that keep
    /// a [journal](KeeperBuilder::journal). Empty if there are none.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidName`]; [`Error::Refused`] if another program keeps something there;
    /// [`Error::Denied`] if we may not read it. Otherwise as [`locks`](Self::locks).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only reads.
    ///
    /// # Examples
    ///
    /// ```
    /// # use lockkeeper::{Ending, Keeper, embedded::EmbeddedServer};
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = EmbeddedServer::start().await?;
    /// # let servers = server.connect_string();
    /// let keeper = Keeper::builder(&servers).journal(100).connect().await?;
    /// let guard = keeper.mutex("orders/42")?.with_label("refund").lock().await?;
    /// guard.release().await?;
    /// keeper.close().await; // what is still to be written is written
    ///
    /// # let keeper = Keeper::connect(servers).await?;
    /// let journal = keeper.journal("orders/42").await?;
    /// assert_eq!(journal[0].label.as_deref(), Some("refund"));
    /// assert_eq!(journal[0].ending, Some(Ending::Released));
    /// # keeper.close().await;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn journal<N>(&self, name: N) -> Result<Vec<JournalEntry>>
    where
        N: TryInto<LockName>,
        Error: From<N::Error>,
    {
        journal::read(&self.pool, &self.root, &name.try_into()?).await
    }

    /// The nodes of a lock whose access lists let others in than the keeper's
    /// [`acl`](KeeperBuilder::acl) does: its directories, a semaphore's limit, and its page of the
    /// journal. None if the keeper's list is open. What `auth` stands for in it is known by the
    /// names of users as long as the keeper has locked nothing.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidName`]; [`Error::Denied`] if we may not read one of the nodes. Otherwise as
    /// [`locks`](Self::locks).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only reads.
    ///
    /// # Examples
    ///
    /// ```
    /// # use lockkeeper::{Keeper, embedded::EmbeddedServer};
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = EmbeddedServer::start().await?;
    /// # let servers = server.connect_string();
    /// let stranger = Keeper::connect(&servers).await?;
    /// let _taken = stranger.mutex("orders/42")?.lock().await?;
    ///
    /// let keeper = Keeper::builder(servers).credential("digest", "orders:from-your-vault");
    /// let keeper = keeper.connect().await?;
    /// let wider = keeper.wider_acls("orders/42").await?;
    /// assert_eq!(wider[0].allows, "world:anyone:cdrwa");
    /// assert!(keeper.mutex("orders/42")?.lock().await.unwrap_err().is_refusal());
    /// # keeper.close().await;
    /// # stranger.close().await;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn wider_acls<N>(&self, name: N) -> Result<Vec<WiderAcl>>
    where
        N: TryInto<LockName>,
        Error: From<N::Error>,
    {
        let queue = self.queue_of(name.try_into()?, Recipe::Lock);
        queue.wider_acls(&self.root).await
    }

    /// Follows the keeper's own session: lost, doubtful, opened again. Further sessions, which the
    /// keeper opens for very many waiters, are not in it.
    pub fn session_events(&self) -> SessionEvents {
        self.pool.events()
    }

    /// Closes the keeper and all its clones: waiting calls end with
    /// [`is_closed`](Error::is_closed), releases that were under way are finished, and the sessions
    /// end, which removes every ticket that is left. Guards that are still alive have then lost
    /// their locks.
    ///
    /// A future of this keeper that is in the middle of a request and is kept without being polled
    /// keeps its session until it is dropped.
    ///
    /// Ends within about twice the session timeout that was granted even with every server dead,
    /// and half of one more with a journal; the servers then remove the tickets when the session
    /// times out.
    ///
    /// # Cancel safety
    ///
    /// Dropped at any await, the keeper is closed, but not everything was waited for: tickets may
    /// stay until it is closed once more, or all that came from it is dropped.
    pub async fn close(&self) {
        self.local_holds.cohorts.give_back();
        if let Some(journal) = &self.journal {
            let _closes = self.pool.closes();
            journal.close(self.pool.session_timeout() / 2).await;
        }
        self.pool.close().await;
    }

    fn acquirer(&self, name: LockName, recipe: Recipe, kind: &'static str) -> Acquirer {
        let queue = self.counted(name, recipe, kind);
        Acquirer::new(queue, Arc::clone(&self.local_holds))
    }

    /// The queue of a recipe, which is counted as this kind.
    fn counted(&self, name: LockName, recipe: Recipe, kind: &'static str) -> Queue {
        let mut queue = self.queue_of(name, recipe);
        queue.set_metrics(self.local_holds.metrics.of(DEFAULT_CLASS, kind));
        queue
    }

    fn queue_of(&self, name: LockName, recipe: Recipe) -> Queue {
        let mut queue = Queue::new(
            Arc::clone(&self.pool),
            &self.root,
            name,
            self.kind,
            recipe,
            Arc::clone(&self.line),
            self.lock_delay,
        );
        if let Some(journal) = &self.journal {
            queue.set_journal(journal);
        }
        queue
    }
}
