//! The keeper: the root that everyone starts from. It holds the sessions and gives out recipes.
//!
//! It does no locking itself, and what it gives out stays valid for as long as it is open.

use std::sync::Arc;
use std::time::Duration;

use crate::access::{Acl, Credential};
use crate::door::Door;
use crate::election::Election;
use crate::error::{Error, Result};
use crate::holders::Holders;
use crate::link::Create;
use crate::link::zookeeper::Target;
#[cfg(feature = "tls")]
use crate::link::zookeeper::check_tls;
use crate::meter::{self, DEFAULT_CLASS};
use crate::multi::{MultiGuard, MultiLock};
use crate::mutex::Mutex;
use crate::name::LockName;
use crate::queue::Queue;
use crate::queue::dialect::Dialect;
use crate::queue::journal::{self, JournalEntry, Scribe};
use crate::queue::ticket::{Claim, DataLine};
use crate::queue::view::{self, LockSummary, QueueEntry};
use crate::rwlock::RwLock;
use crate::semaphore::Semaphore;
use crate::session::clock::SystemClock;
use crate::session::pool::{Access, Pool};
use crate::session::pulse::LeaseStrength;
use crate::session::watchman::SessionEvents;
#[cfg(feature = "tls")]
use crate::tls::Tls;

const DEFAULT_SESSION_TIMEOUT: Duration = Duration::from_secs(10);
const DEFAULT_CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const DEFAULT_ROOT: &str = "/locks";

/// A connection to a ZooKeeper ensemble, and the source of locks.
///
/// Cheap to clone; clones share their sessions. Keep one for each process: it opens further sessions by itself when very
/// many tasks wait. [`close`](Self::close) it before the process ends; otherwise tickets that were not released stay until
/// the session times out.
///
/// On Linux it sets `TCP_NODELAY` on each connection that this process has to the keeper's servers, also on those that are not its
/// own: what is sent together then arrives together. Where that is forbidden (`pidfd_getfd` in a sandbox) a lock that is free costs a
/// round trip more, and nothing else changes.
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
#[derive(Debug, Clone)]
pub struct Keeper {
    pool: Arc<Pool>,
    root: Arc<str>,
    kind: Create,
    line: Arc<DataLine>,
    session_timeout: Duration,
    lock_delay: Duration,
    dialect: Dialect,
    holders: Arc<Holders>,
    scribe: Option<Arc<Scribe>>,
}

/// Options for a [`Keeper`], from [`Keeper::builder`].
#[derive(Debug, Clone)]
#[must_use = "a builder does nothing until connect is called"]
pub struct KeeperBuilder {
    connect_string: String,
    session_timeout: Duration,
    connect_timeout: Duration,
    root: String,
    kind: Create,
    strength: LeaseStrength,
    lock_delay: Duration,
    dialect: Dialect,
    journal: usize,
    credentials: Vec<Credential>,
    acl: Acl,
    #[cfg(feature = "tls")]
    tls: Option<Tls>,
}

impl Keeper {
    /// Connects with the default options.
    ///
    /// The connect string is ZooKeeper's: `host:port` pairs separated by commas (the port is 2181 when left out), then,
    /// if wanted, a chroot that must exist: `zk1:2181,zk2:2181,zk3:2181/app`.
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
        KeeperBuilder {
            connect_string: connect_string.into(),
            session_timeout: DEFAULT_SESSION_TIMEOUT,
            connect_timeout: DEFAULT_CONNECT_TIMEOUT,
            root: DEFAULT_ROOT.into(),
            kind: Create::Container,
            strength: LeaseStrength::default(),
            lock_delay: Duration::ZERO,
            dialect: Dialect::default(),
            journal: 0,
            credentials: Vec::new(),
            acl: Acl::default(),
            #[cfg(feature = "tls")]
            tls: None,
        }
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
        let claim = self.dialect.lock();
        Ok(Mutex::new(self.door(name.try_into()?, claim, "mutex")))
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
        let read = self.door(name.clone(), self.dialect.read(), "read");
        let write = self.door(name, self.dialect.write(), "write");
        Ok(RwLock::new(read, write))
    }

    /// Makes a semaphore with this name, of so many permits. No I/O.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidName`] with the rule that the name breaks; [`Error::InvalidOption`] for a limit of 0.
    pub fn semaphore<N>(&self, name: N, limit: u32) -> Result<Semaphore>
    where
        N: TryInto<LockName>,
        Error: From<N::Error>,
    {
        let door = self.door(name.try_into()?, Claim::Lock, "permit");
        Semaphore::new(door, limit)
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
        let claim = self.dialect.lead();
        let door = self.door(name.try_into()?, claim, "leadership");
        Ok(Election::new(door))
    }

    /// Makes a set of fair locks that are taken together, all or none, and without deadlocks. No I/O. Names that are given twice
    /// count once.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidName`] with the rule that a name breaks. [`Error::InvalidOption`] for no name at all, for more than 128, and
    /// for names so long that one session could not watch them all (512 bytes each on average).
    pub fn multi_lock<I>(&self, names: I) -> Result<MultiLock>
    where
        I: IntoIterator,
        I::Item: TryInto<LockName>,
        Error: From<<I::Item as TryInto<LockName>>::Error>,
    {
        let names = names.into_iter().map(|name| Ok(name.try_into()?));
        let names = names.collect::<Result<_>>()?;
        let queue = |name| self.counted(name, self.dialect.lock(), "several");
        MultiLock::new(names, Arc::clone(&self.holders), queue)
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

    /// Lists the locks below the root that somebody holds or waits for, by name.
    ///
    /// # Errors
    ///
    /// [`is_lost`](Error::is_lost) if the session ended; [`Error::Unreachable`] if another one cannot be opened.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only reads.
    pub async fn locks(&self) -> Result<Vec<LockSummary>> {
        let session = self.pool.home("list the locks below").await?;
        view::locks(&session, &self.root).await
    }

    /// Lists everybody in a lock's queue, in its order. Empty when nobody uses the lock.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidName`]; otherwise as [`locks`](Self::locks).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only reads.
    pub async fn queue<N>(&self, name: N) -> Result<Vec<QueueEntry>>
    where
        N: TryInto<LockName>,
        Error: From<N::Error>,
    {
        self.queue_of(name.try_into()?, Claim::Lock).entries().await
    }

    /// Removes a ticket that [`queue`](Self::queue) has shown, whosever it is: an operator's tool for a holder that hangs, or a
    /// waiter that nobody wants any more. `true` if it was removed now, `false` if it was gone already, whoever stands in its
    /// place: a ticket is known by its token, and no other one is touched.
    ///
    /// Who is evicted is not asked. A guard of its learns that it is [lost](crate::GuardState::Lost) with the next beat of its session, within
    /// a sixth of the session timeout for each hundred locks that the session holds, or at once from [`check`](crate::Guard::check); until then it may work on while the next in the queue is let in, which only
    /// a resource that compares tokens notices. The call of one that waits ends with [`Error::PlaceLost`], but
    /// not before whoever it waits for has left: only then does it look. A guest of an evicted holder stays, and is evicted
    /// by its own entry.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidName`]; [`Error::InvalidOption`] if the entry is not of this lock. [`Error::Denied`] if we may not remove or read
    /// the ticket. [`Error::Refused`] if it is another program's node and has children. Otherwise as [`locks`](Self::locks).
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
        self.queue_of(name.try_into()?, Claim::Lock)
            .evict(entry)
            .await
    }

    /// Asks whoever has a ticket that [`queue`](Self::queue) has shown to give it back, and once that is written waits for it, for at
    /// most `grace`. `true` if the ticket is gone by then: released, lost, gone before, or exchanged for another one by a
    /// [downgrade](crate::WriteGuard::downgrade), which hears the request too. A holder that listens ends its work and releases:
    /// [`Guard::revoked`](crate::Guard::revoked), a command under `lockkeeper run`, Curator's revocable locks. One that does not keeps its
    /// lock; [`evict`](Self::evict) removes it. Whoever waits hears of it once it holds.
    ///
    /// This adds a word to the data of our own tickets, and writes `__REVOKE__` into others, as Curator's `Revoker` does. It wakes the one
    /// behind the ticket, once.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidName`]; [`Error::InvalidOption`] if the entry is not of this lock, or a candidate of an election: Curator's
    /// `LeaderLatch` behind it would then miss its end. [`Error::Denied`] if we may not write into the ticket or read it. Otherwise as
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
        self.queue_of(name.try_into()?, Claim::Lock)
            .revoke(entry, grace)
            .await
    }

    /// The last holds of a lock that were written down, the oldest first, by the keepers that keep a
    /// [journal](KeeperBuilder::journal). Empty if there are none.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidName`]; [`Error::Refused`] if another program keeps something there; [`Error::Denied`] if we may not read it.
    /// Otherwise as [`locks`](Self::locks).
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

    /// Follows the keeper's own session: lost, doubtful, opened again. Further sessions, which the keeper opens for very many waiters,
    /// are not in it.
    pub fn session_events(&self) -> SessionEvents {
        self.pool.events()
    }

    /// Closes the keeper and all its clones: waiting calls end with [`is_closed`](Error::is_closed), releases that were
    /// under way are finished, and the sessions end, which removes every ticket that is left. Guards that are still alive
    /// have then lost their locks.
    ///
    /// A future of this keeper that is in the middle of a request and is kept without being polled keeps its session until it
    /// is dropped.
    ///
    /// Ends within about twice the session timeout even with every server dead; the servers then remove the tickets when
    /// the session times out.
    ///
    /// # Cancel safety
    ///
    /// Dropped at any await, the keeper is closed, but not everything was waited for.
    pub async fn close(&self) {
        self.holders.cohorts.give_back();
        if let Some(scribe) = &self.scribe {
            scribe.close(self.session_timeout / 2).await;
        }
        self.pool.close(self.session_timeout).await;
    }

    fn door(&self, name: LockName, claim: Claim, kind: &'static str) -> Door {
        let queue = self.counted(name, claim, kind);
        Door::new(queue, Arc::clone(&self.holders))
    }

    /// The queue of a recipe, which is counted as this kind.
    fn counted(&self, name: LockName, claim: Claim, kind: &'static str) -> Queue {
        let mut queue = self.queue_of(name, claim);
        queue.set_meter(self.holders.meters.of(DEFAULT_CLASS, kind));
        queue
    }

    fn queue_of(&self, name: LockName, claim: Claim) -> Queue {
        let mut queue = Queue::new(
            Arc::clone(&self.pool),
            &self.root,
            name,
            self.kind,
            claim,
            Arc::clone(&self.line),
            self.lock_delay,
        );
        if let Some(scribe) = &self.scribe {
            queue.set_scribe(scribe);
        }
        queue
    }
}

impl KeeperBuilder {
    /// How long the servers wait for a silent client before they end its session and give its locks to others; default
    /// 10 s. The servers bound it to 2 to 20 of their ticks, usually 4 to 40 s.
    pub fn session_timeout(mut self, timeout: Duration) -> Self {
        self.session_timeout = timeout;
        self
    }

    /// How long to try for a session before [`Error::Unreachable`]; default 10 s. Servers that are there but give no session yet,
    /// and those of a keeper that needs another session, are asked again until the time is over. A first connect that finds no
    /// server of ZooKeeper ends as soon as each address was tried.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// The node below which all locks are; default `/locks`. Made on demand. Everybody who shares a lock must use the same.
    pub fn root(mut self, root: impl Into<String>) -> Self {
        self.root = root.into();
        self
    }

    /// Makes lock directories that stay when they are empty, instead of containers that the servers remove.
    pub fn persistent_directories(mut self) -> Self {
        self.kind = Create::Persistent;
        self
    }

    /// Which other libraries the locks are shared with; default [`Dialect::Curator`]. Everybody who shares a lock must use the
    /// same. Semaphores are Lockkeeper's own in any dialect.
    pub fn dialect(mut self, dialect: Dialect) -> Self {
        self.dialect = dialect;
        self
    }

    /// Writes down who held a lock, for how long, and how that ended: the last so many holds of each lock; default 0, which writes nothing.
    /// Read it with [`Keeper::journal`] or `lockkeeper journal`.
    ///
    /// A lock's page is one node below the root's name with `-journal` behind it (`/locks-journal/orders/42`), of 256 KiB at most. It stays
    /// until somebody removes it, so a journal is not for locks whose names are never used again. A hold costs up to a read and two
    /// writes more, behind its back: no call waits for them, and holds that follow each other faster than that share them. What a
    /// process has not written when it dies is lost, and so is the end of a guard that outlives its dropped keeper: a hold without an end is
    /// still held, or ended in one of these ways. Where
    /// nothing may be written a warning is logged. All keepers that write about a lock should give the same number.
    pub fn journal(mut self, holds: usize) -> Self {
        self.journal = holds;
        self
    }

    /// Proves to the servers who we are, with each connection: `("digest", "user:password")`. May be given several times. The secret is
    /// shown by nothing, but it crosses the network as it is: use TLS.
    ///
    /// A server that does not know the scheme, or does not believe it, ends the session.
    pub fn credential(mut self, scheme: impl Into<String>, secret: impl Into<Vec<u8>>) -> Self {
        self.credentials.push(Credential {
            scheme: scheme.into(),
            secret: secret.into(),
        });
        self
    }

    /// Who may do what with the nodes that the keeper makes; default [`Acl::open`]. Everybody who shares a lock should use the same.
    pub fn acl(mut self, acl: Acl) -> Self {
        self.acl = acl;
        self
    }

    /// Speaks to all servers through TLS, at the ports of the connect string (ZooKeeper's `secureClientPort`).
    #[cfg(feature = "tls")]
    pub fn tls(mut self, tls: Tls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// What proves to a guard that its session lives; default [`LeaseStrength::Quorum`].
    pub fn lease_strength(mut self, strength: LeaseStrength) -> Self {
        self.strength = strength;
        self
    }

    /// How long a lock is withheld after a holder that may not have ended well: it crashed, lost its session, gave up its place, or
    /// was another program's (which never says). For resources that cannot check tokens, so that what the old holder sent has
    /// time to arrive; default zero. Every user of a lock should set the same.
    ///
    /// A hold that had guests (see [`Owner`](crate::Owner)) ends without a word too. A guest waits like its host, which may not be in yet.
    /// The wait begins when the next in the queue learns that it is the first. In a container, which forgets its past when it is
    /// removed, the first ticket of a new directory waits too: see [`persistent_directories`](Self::persistent_directories).
    /// [`try_lock`](Mutex::try_lock) sits the delay out, because leaving would begin it anew.
    pub fn lock_delay(mut self, delay: Duration) -> Self {
        self.lock_delay = delay;
        self
    }

    /// Opens a session.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidOption`] before any I/O, or after it for [`LeaseStrength::Sync`]; [`Error::Unreachable`], with each address and what was found there, when no
    /// server gave a session within the connect timeout; [`Error::ChrootMissing`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a session that was opened is closed.
    pub async fn connect(self) -> Result<Keeper> {
        let target = self.target()?;
        let root = self.checked_root()?;
        meter::describe();
        let pool = Pool::open(Access {
            opener: Arc::new(target),
            connect_timeout: self.connect_timeout,
            session_timeout: self.session_timeout,
            strength: self.strength,
            clock: Arc::new(SystemClock),
        })
        .await?;
        let host = gethostname::gethostname().to_string_lossy().into_owned();
        let line = DataLine {
            host,
            pid: std::process::id(),
            ..DataLine::default()
        };
        let session_timeout = self.session_timeout;
        let scribe = (self.journal > 0).then(|| Scribe::new(&pool, &root, self.journal));
        Ok(Keeper {
            pool,
            root: root.into(),
            kind: match self.dialect {
                // Kazoo makes a directory once, and does not expect it to go.
                Dialect::Kazoo => Create::Persistent,
                Dialect::Curator => self.kind,
            },
            line: Arc::new(line),
            session_timeout,
            lock_delay: self.lock_delay,
            dialect: self.dialect,
            holders: Arc::default(),
            scribe,
        })
    }

    /// Splits and checks the connect string.
    pub(crate) fn target(&self) -> Result<Target> {
        let given = self.connect_string.trim();
        let refuse = |why: String| Error::InvalidOption {
            what: "connect string",
            given: given.into(),
            why,
        };
        let (servers, chroot) = given.find('/').map_or((given, ""), |at| given.split_at(at));
        let chroot = if chroot == "/" { "" } else { chroot };
        for server in servers.split(',') {
            check_server(server).map_err(refuse)?;
        }
        if chroot.contains(',') {
            return Err(refuse(
                "the chroot stands once, behind the last server, and has no ','".into(),
            ));
        }
        if !chroot.is_empty() {
            check_path(chroot).map_err(refuse)?;
        }
        let too_short = |what, given: Duration| Error::InvalidOption {
            what,
            given: format!("{given:?}"),
            why: "it must be at least 1 ms and at most 2147483647 ms".into(),
        };
        for (what, given) in [
            ("session timeout", self.session_timeout),
            ("connect timeout", self.connect_timeout),
        ] {
            if i32::try_from(given.as_millis()).map_or(true, |ms| ms < 1) {
                return Err(too_short(what, given));
            }
        }
        if self.acl.needs_credential() && self.credentials.is_empty() {
            return Err(Error::InvalidOption {
                what: "access list",
                given: "auth".into(),
                why: "it stands for whoever we prove to be, and there is no credential".into(),
            });
        }
        #[cfg(feature = "tls")]
        if let Some(tls) = &self.tls {
            check_tls(tls).map_err(|why| Error::InvalidOption {
                what: "TLS certificates",
                given: "PEM text".into(),
                why,
            })?;
        }
        Ok(Target {
            servers: servers.into(),
            chroot: chroot.into(),
            session_timeout: self.session_timeout,
            credentials: self.credentials.clone(),
            acl: self.acl.clone(),
            #[cfg(feature = "tls")]
            tls: self.tls.clone(),
        })
    }

    fn checked_root(&self) -> Result<String> {
        if self.root == "/" {
            return Ok(self.root.clone());
        }
        check_path(&self.root)
            .map(|()| self.root.clone())
            .map_err(|why| Error::InvalidOption {
                what: "root",
                given: self.root.clone(),
                why,
            })
    }
}

fn check_server(server: &str) -> Result<(), String> {
    let (host, port) = match server
        .strip_prefix('[')
        .and_then(|rest| rest.split_once(']'))
    {
        Some((host, port)) => (
            host,
            port.strip_prefix(':')
                .or_else(|| port.is_empty().then_some("2181")),
        ),
        None => server
            .rsplit_once(':')
            .map_or((server, Some("2181")), |(host, port)| (host, Some(port))),
    };
    if host.is_empty() {
        return Err("a host name is missing (it looks like zk1:2181,zk2:2181/chroot)".into());
    }
    let is_never_in_a_name = |c: char| c.is_whitespace() || c.is_control() || "[]".contains(c);
    if host.contains(is_never_in_a_name) {
        return Err(format!("{host:?} is not a host name"));
    }
    match port.and_then(|port| port.parse::<u16>().ok()) {
        Some(1..) => Ok(()),
        _ => Err(format!(
            "{server:?} has no port number from 1 to 65535 after its ':'"
        )),
    }
}

/// A root or chroot: `/` and then what is legal for a lock name.
fn check_path(path: &str) -> Result<(), String> {
    let Some(relative) = path.strip_prefix('/') else {
        return Err("a path must start with '/'".into());
    };
    match LockName::new(relative) {
        Ok(_) => Ok(()),
        Err(Error::InvalidName { why, .. }) => Err(why.into()),
        Err(other) => Err(other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn illegal_options_are_refused_before_any_io() {
        for (given, word) in [
            ("", "host name is missing"),
            ("a:1,", "host name is missing"),
            ("a:x", "port number"),
            ("a:0", "port number"),
            ("a:70000", "port number"),
            ("a b:1", "not a host name"),
            ("[::1", "not a host name"),
            ("a]:1", "not a host name"),
            ("a:1/x,y", "stands once"),
            ("a:1/x,b:1/x", "stands once"),
            ("a:1/x/", "end with '/'"),
            ("a:1//x", "start with '/'"),
        ] {
            let error = Keeper::connect(given).await.unwrap_err();

            assert!(
                error.is_invalid() && error.to_string().contains(word),
                "{given}: {error}"
            );
        }
        let error = Keeper::builder("a:1")
            .root("locks")
            .connect()
            .await
            .unwrap_err();
        assert!(error.to_string().contains("must start with '/'"), "{error}");
        let error = Keeper::builder("a:1")
            .session_timeout(Duration::ZERO)
            .connect()
            .await
            .unwrap_err();
        assert!(error.to_string().contains("session timeout"), "{error}");
    }

    #[test]
    fn addresses_of_every_form_are_accepted() {
        for server in ["zk1", "zk1:2181", "10.0.0.1:1", "[::1]:2181", "[::1]"] {
            assert_eq!(check_server(server), Ok(()), "{server}");
        }
    }
}
