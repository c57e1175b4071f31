//! The keeper: the root of the API. It owns the sessions and makes the recipes.
//!
//! It locks nothing itself. Its recipes stay usable until it is closed.

mod builder;
mod connect;
mod connect_string;
mod operators;
#[cfg(any(feature = "postgres", feature = "redis"))]
mod stores;

pub use builder::KeeperBuilder;

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::brief::{Brief, shows};
use crate::error::{Error, Result};
use crate::guard::local_holds::LocalHolds;
use crate::link::Create;
use crate::link::engine::Engine;
use crate::metrics::DEFAULT_CLASS;
use crate::name::LockName;
use crate::protocol::dialect::Dialect;
use crate::protocol::kind::{LockKind, SEVERAL};
use crate::protocol::ticket::{Recipe, TicketData};
use crate::queue::Queue;
use crate::queue::journal::JournalWriter;
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
/// It is cheap to clone, and clones share their sessions. Keep one for each process: it opens more
/// sessions by itself when very many tasks wait. [`close`](Self::close) it before the process ends.
/// Otherwise tickets that were not released stay until the session expires.
///
/// On Linux it sets `TCP_NODELAY` on each connection of this process to the keeper's servers, so
/// that requests which are sent together arrive together. If a sandbox forbids that
/// (`pidfd_getfd`), a free lock costs one more round trip.
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
/// let keeper = Keeper::builder(servers) // "zk1:2181,zk2:2181,zk3:2181"
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

shows!(|keeper| Keeper {
    servers: Brief(keeper.pool.servers()),
    root: Brief(&keeper.root),
    is_closed: keeper.pool.is_closing(),
});

impl Keeper {
    #[cfg(test)]
    pub(crate) fn watched_bytes(&self) -> usize {
        self.pool.watched_bytes()
    }

    /// Connects with the default options.
    ///
    /// The connect string is ZooKeeper's: pairs of `host:port` separated by commas, and an optional
    /// chroot, which must exist (or see [`create_chroot`](KeeperBuilder::create_chroot)):
    /// `zk1:2181,zk2:2181,zk3:2181/app`. The default port is 2181.
    /// The scheme `zookeeper://` may stand before it. Schemes of plain locks are for
    /// [`compat::connect`](crate::compat::connect).
    ///
    /// With the feature `redis` it may be `redis://[user:password@]host[:port][/database]`. **That
    /// engine is not finished**: its link keeps the contract that ZooKeeper's keeps, but not all of
    /// the suite has run on it. [`Engine`] has the URLs for sentinels and for TLS. With the feature
    /// `postgres` it may be `postgres://[user:password@]host[:port]/database`, to which the same
    /// applies.
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

    /// The store that the keeper is on.
    pub fn engine(&self) -> Engine {
        self.pool.engine()
    }

    /// Gives the default options, to change some of them.
    pub fn builder(connect_string: impl Into<String>) -> KeeperBuilder {
        KeeperBuilder::new(connect_string.into())
    }

    /// Makes a fair lock. The name is text or a [`LockName`]. No I/O.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidName`] with the broken rule.
    pub fn mutex<N: TryInto<LockName, Error: Into<Error>>>(&self, name: N) -> Result<Mutex> {
        let acquirer = self.acquirer(LockName::of(name)?, LockKind::Lock);
        Ok(Mutex::new(acquirer))
    }

    /// Makes a fair read-write lock. No I/O.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidName`] with the broken rule.
    pub fn rw_lock<N: TryInto<LockName, Error: Into<Error>>>(&self, name: N) -> Result<RwLock> {
        let name = LockName::of(name)?;
        let read = self.acquirer(name.clone(), LockKind::Read);
        let write = self.acquirer(name, LockKind::Write);
        Ok(RwLock::new(read, write))
    }

    /// Makes a semaphore with `limit` permits. No I/O.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidName`] with the broken rule; [`Error::InvalidOption`] for a
    /// limit of 0.
    pub fn semaphore<N>(&self, name: N, limit: u32) -> Result<Semaphore>
    where
        N: TryInto<LockName, Error: Into<Error>>,
    {
        let acquirer = self.acquirer(LockName::of(name)?, LockKind::Permit);
        Semaphore::new(acquirer, limit)
    }

    /// Makes an election. No I/O.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidName`] with the broken rule.
    pub fn election<N: TryInto<LockName, Error: Into<Error>>>(&self, name: N) -> Result<Election> {
        let acquirer = self.acquirer(LockName::of(name)?, LockKind::Lead);
        Ok(Election::new(acquirer))
    }

    /// Makes a set of fair locks, which are taken together, all or none, without deadlocks. A name
    /// that is given twice counts once. No I/O.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidName`] with the broken rule. [`Error::InvalidOption`] for no name, for more
    /// than 128 names, and for paths so long that one session cannot watch them all (512 bytes each
    /// on average, with root and chroot).
    pub fn multi_lock<I>(&self, names: I) -> Result<MultiLock>
    where
        I: IntoIterator<Item: TryInto<LockName, Error: Into<Error>>>,
    {
        let names = names.into_iter().map(LockName::of);
        let names = names.collect::<Result<_>>()?;
        let acquirer = |name| self.counted(name, LockKind::Lock, SEVERAL);
        MultiLock::new(names, acquirer)
    }

    /// Takes several locks together: [`multi_lock`](Self::multi_lock) and [`MultiLock::lock`].
    ///
    /// # Errors
    ///
    /// As these two.
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
        I: IntoIterator<Item: TryInto<LockName, Error: Into<Error>>>,
    {
        // The names are not kept across the wait.
        let lock = self.multi_lock(names)?;
        lock.lock().await
    }

    /// Follows the first session of the keeper and its successors. Sessions that the keeper opens
    /// for very many waiters are not followed.
    pub fn session_events(&self) -> SessionEvents {
        self.pool.events()
    }

    /// Closes the keeper and all its clones. Waiting calls end with
    /// [`is_closed`](Error::is_closed), and releases that have begun are finished. Then the
    /// sessions end, which removes all tickets that are left. Guards that still live are lost.
    ///
    /// It returns within the [`close_timeout`](KeeperBuilder::close_timeout), 5 s by default, even
    /// if every server is dead. In that case the servers remove the tickets when the session
    /// expires. If a future of this keeper is in the middle of a request and is not polled any
    /// more, its session lives until the future is dropped.
    ///
    /// # Cancel safety
    ///
    /// Dropped at any await, the keeper is closed, but tickets may stay. They go when `close` is
    /// called again, or when all recipes and guards of the keeper are dropped.
    pub async fn close(&self) {
        let limit = self.pool.close_timeout();
        let deadline = Instant::now() + limit;
        self.local_holds.cohorts.give_back();
        if let Some(journal) = &self.journal {
            let _closes = self.pool.closes();
            journal.close(limit / 2).await;
        }
        self.pool.close(deadline).await;
    }

    fn acquirer(&self, name: LockName, kind: LockKind) -> Acquirer {
        let label = kind.label();
        self.counted(name, kind, label)
    }

    /// The way into the queue of a recipe, with the metrics of this label.
    fn counted(&self, name: LockName, kind: LockKind, label: &'static str) -> Acquirer {
        let mut queue = self.queue_of(name, self.dialect.recipe(&kind));
        queue.metrics = self.local_holds.metrics.of(DEFAULT_CLASS, label);
        Acquirer::new(queue, Arc::clone(&self.local_holds))
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
        queue.journal = self.journal.clone();
        queue
    }
}
