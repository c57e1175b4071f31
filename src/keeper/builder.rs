//! The options of a keeper. Each setter takes a value, so a later call can change it.
//!
//! Nothing is checked here: `connect.rs` checks all options before it sends anything.

use std::time::Duration;

use super::connect_string::{has_password_in_clear, is_loopback, split};
use crate::brief::{Brief, shows};
#[cfg(doc)]
use crate::error::Error;
use crate::error::without_secrets;
#[cfg(doc)]
use crate::keeper::Keeper;
use crate::link::Create;
#[cfg(feature = "tls")]
use crate::link::tls::Tls;
use crate::protocol::acl::{Acl, Credential};
use crate::protocol::dialect::Dialect;
use crate::session::heartbeat::LeaseStrength;

const DEFAULT_SESSION_TIMEOUT: Duration = Duration::from_secs(10);
const DEFAULT_CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Enough for servers that elect a leader, and far from the 30 s that Kubernetes gives a pod.
const DEFAULT_CLOSE_TIMEOUT: Duration = Duration::from_secs(5);
const DEFAULT_ROOT: &str = "/locks";

/// Options for a [`Keeper`], from [`Keeper::builder`].
#[derive(Clone)]
#[must_use = "a builder does nothing until connect is called"]
pub struct KeeperBuilder {
    pub(super) connect_string: String,
    pub(super) session_timeout: Duration,
    pub(super) connect_timeout: Duration,
    pub(super) close_timeout: Duration,
    pub(super) root: String,
    pub(super) kind: Create,
    pub(super) strength: LeaseStrength,
    pub(super) tick: Option<Duration>,
    pub(super) lock_delay: Duration,
    pub(super) dialect: Dialect,
    pub(super) journal: usize,
    pub(super) is_new: bool,
    pub(super) is_clock_strict: bool,
    pub(super) creates_chroot: bool,
    pub(super) credentials: Vec<Credential>,
    pub(super) requires_tls: bool,
    /// `None` for the default of the credentials.
    pub(super) acl: Option<Acl>,
    pub(super) is_acl_strict: bool,
    #[cfg(feature = "tls")]
    pub(super) tls: Option<Tls>,
}

shows!(|builder| KeeperBuilder {
    // A URL that was meant for another store may have a password.
    connect_string: Brief(without_secrets(&builder.connect_string)),
    root: Brief(&builder.root),
    session_timeout: builder.session_timeout,
    has_credential: !builder.credentials.is_empty(),
    has_tls: builder.has_tls(),
});

impl KeeperBuilder {
    pub(super) fn new(connect_string: String) -> Self {
        Self {
            connect_string,
            session_timeout: DEFAULT_SESSION_TIMEOUT,
            connect_timeout: DEFAULT_CONNECT_TIMEOUT,
            close_timeout: DEFAULT_CLOSE_TIMEOUT,
            root: DEFAULT_ROOT.into(),
            kind: Create::Container,
            strength: LeaseStrength::default(),
            tick: None,
            lock_delay: Duration::ZERO,
            dialect: Dialect::default(),
            journal: 0,
            is_new: false,
            is_clock_strict: false,
            creates_chroot: false,
            credentials: Vec::new(),
            requires_tls: false,
            acl: None,
            is_acl_strict: true,
            #[cfg(feature = "tls")]
            tls: None,
        }
    }

    /// Sets the session timeout; default 10 s. If a client is silent for so long, the servers end
    /// its session, and its locks go to the next waiters. The servers limit it to 2 to 20 of their
    /// ticks, usually 4 to 40 s. If they grant another timeout, it counts, and the first session is
    /// opened twice.
    pub fn session_timeout(mut self, timeout: Duration) -> Self {
        self.session_timeout = timeout;
        self
    }

    /// Sets the time to try for a session before [`Error::Unreachable`]; default 10 s. Services
    /// start beside their servers, so each failed address is tried again until the time is over.
    /// [`Duration::ZERO`] tries each address once, for 5 s at most.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// Sets the longest time that [`Keeper::close`] takes; default 5 s. More than the session
    /// timeout counts as the session timeout, because servers that were silent for so long have
    /// ended the session themselves.
    ///
    /// A close usually takes milliseconds. It takes this time only if servers do not answer, or if
    /// very many releases are under way. A pod of Kubernetes has 30 s from SIGTERM to SIGKILL for
    /// its own work and for this.
    pub fn close_timeout(mut self, timeout: Duration) -> Self {
        self.close_timeout = timeout;
        self
    }

    /// Sets the node above all locks; default `/locks`. It is made on demand. All programs that
    /// share a lock must use the same root.
    pub fn root(mut self, root: impl Into<String>) -> Self {
        self.root = root.into();
        self
    }

    /// Whether the chroot of the connect string is made if it does not exist; default `false`. It
    /// is for ZooKeeper.
    ///
    /// Without it a missing chroot is [`Error::ChrootMissing`], because it is most often a typing
    /// error. Its nodes stay, and have the keeper's [access list](Self::acl). Those that exist are
    /// left as they are.
    pub fn create_chroot(mut self, create: bool) -> Self {
        self.creates_chroot = create;
        self
    }

    /// Whether empty lock directories stay; default `false`. By default they are containers, which
    /// the servers remove, 10 000 a minute at most ([the guide](crate::guide::scale)). In
    /// [`Dialect::Kazoo`] they always stay.
    pub fn persistent_directories(mut self, persistent: bool) -> Self {
        self.kind = match persistent {
            true => Create::Persistent,
            false => Create::Container,
        };
        self
    }

    /// Sets the library to share locks with; default [`Dialect::Curator`]. All programs that share
    /// a lock must use the same dialect. In every dialect, semaphores are for Lockkeeper alone.
    pub fn dialect(mut self, dialect: Dialect) -> Self {
        self.dialect = dialect;
        self
    }

    /// Keeps a journal of the last `holds` holds of each lock: the holder, the duration and the
    /// outcome. The default 0 keeps none. Read it with [`Keeper::journal`] or `lockkeeper journal`.
    /// All keepers that write about a lock should give the same number.
    ///
    /// The page of a lock is one node of at most 256 KiB, below the root's name with `-journal`
    /// (`/locks-journal/orders/42`). A page stays until it is removed by hand. So a journal is not
    /// for lock names that are used once.
    ///
    /// A hold costs two more reads and two more writes, in the background. Holds in quick
    /// succession share them; processes that write one page at the same moment need more. While no
    /// server answers, the lines of up to 10 000 locks wait. If nothing may be written, a warning
    /// is logged. A process that dies loses its unwritten lines. A guard that outlives its dropped
    /// keeper gets no outcome.
    pub fn journal(mut self, holds: usize) -> Self {
        self.journal = holds;
        self
    }

    /// Whether the store is declared to be new; default `false`. It is for Redis and
    /// PostgreSQL.
    ///
    /// These may lose what they have answered when they start again, and a store that is empty may
    /// have been emptied. So nobody is given a session for 35 s then: clients of before may still
    /// think that they hold locks. A store that is surely new needs no such pause. With `true` an
    /// empty store serves at once; say so in tests, and never in a service.
    pub fn new_store(mut self, is_new: bool) -> Self {
        self.is_new = is_new;
        self
    }

    /// Whether one forward step of the server's clock may be of any size; default `false`. It is
    /// for Redis.
    ///
    /// By default a silent holder is told in time if the clock steps forward once by up to 0.3 of
    /// the session timeout. With `true` the size does not matter, and the lock of a crashed holder
    /// is free after 1.9 session timeouts instead of 1.2. The root keeps it: one strict client
    /// makes all of them strict. Two forward steps soon after each other are not covered.
    pub fn strict_clock(mut self, strict: bool) -> Self {
        self.is_clock_strict = strict;
        self
    }

    /// Adds a credential, which each connection proves to the servers: `("digest",
    /// "user:password")`. Call it once for each credential. The secret is never shown.
    ///
    /// Without TLS the secret crosses the network in clear, and a warning is logged: see
    /// [`require_tls`](Self::require_tls). Unless [`acl`](Self::acl) says otherwise, only this
    /// identity may then use the nodes of the keeper. If a server does not accept the credential,
    /// it ends the session.
    pub fn credential(mut self, scheme: impl Into<String>, secret: impl Into<Vec<u8>>) -> Self {
        self.credentials.push(Credential {
            scheme: scheme.into(),
            secret: secret.into(),
        });
        self
    }

    /// Sets the access list of the nodes that the keeper makes. The default is [`Acl::creator`]
    /// with a [`credential`](Self::credential), and [`Acl::open`] without one. All programs that
    /// share a lock must use the same list.
    pub fn acl(mut self, acl: Acl) -> Self {
        self.acl = Some(acl);
        self
    }

    /// Whether a lock whose directory has a wider access list than the keeper's
    /// [`acl`](Self::acl) is refused with [`Error::WiderAcl`]; default `true`. With `false`, a
    /// warning is logged instead.
    ///
    /// The keeper's list protects the nodes that the keeper makes. A directory that another program
    /// made keeps its own list, and a client that may write there can call a second holder in. The
    /// list is read at the first use of a directory, and again after a change: one request each. If
    /// the keeper's list is open, nothing is read.
    pub fn strict_acl(mut self, strict: bool) -> Self {
        self.is_acl_strict = strict;
        self
    }

    /// Connects to all servers through TLS, and verifies their certificates and names.
    ///
    /// On ZooKeeper the connect string must have their TLS ports (`secureClientPort`). On Redis the
    /// scheme must be `rediss://` or `rediss-sentinel://`. On PostgreSQL nothing is sent in clear
    /// then, with `?sslmode=verify-full` and without it.
    #[cfg(feature = "tls")]
    pub fn tls(mut self, tls: Tls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// Whether [`connect`](Self::connect) fails without TLS; default `false`.
    pub fn require_tls(mut self, required: bool) -> Self {
        self.requires_tls = required;
        self
    }

    /// Whether a credential would cross the network in clear, or the password of a URL. It would if
    /// there is one and no TLS, and a server is not on this machine (`localhost` or a loopback
    /// address). [`connect`](Self::connect) then logs a warning.
    pub fn sends_secrets_in_clear(&self) -> bool {
        let given = self.connect_string.trim();
        if has_password_in_clear(given, self.has_tls()) {
            return true;
        }
        let (servers, _) = split(given);
        let is_remote = !servers.split(',').all(is_loopback);
        is_remote && !self.has_tls() && !self.credentials.is_empty()
    }

    pub(super) fn has_tls(&self) -> bool {
        #[cfg(feature = "tls")]
        return self.tls.is_some();
        #[cfg(not(feature = "tls"))]
        false
    }

    /// Sets the answers of servers that extend the lease of a guard; default
    /// [`LeaseStrength::Quorum`].
    pub fn lease_strength(mut self, strength: LeaseStrength) -> Self {
        self.strength = strength;
        self
    }

    /// Declares the servers' `tickTime`, so that guards survive longer silences of the servers.
    /// With a session timeout of 10 s and a tick of 2 s they survive up to 4 s instead of 1.4 s.
    /// Without it, half of the session timeout is assumed, the longest tick that servers allow.
    ///
    /// If the real tick is longer than declared, a guard may believe too long that it is held. For
    /// clients of observers behind an ObserverMaster, declare twice the tick, because an answer
    /// takes two hops there.
    ///
    /// A server that stands alone needs no declaration: it is asked with `srvr` at each connect.
    /// Guards then survive silences of up to 6 s. This needs a connect string with the one address
    /// of one server, no TLS, and an answer to `srvr`.
    pub fn tick_time(mut self, tick: Duration) -> Self {
        self.tick = Some(tick);
        self
    }

    /// Withholds a lock for this time after a holder that may not have ended well; default zero.
    /// Such a holder crashed, lost its session, gave up its place, or is of another library, whose
    /// holders leave no mark. It is for resources that cannot check tokens: writes of the old
    /// holder have time to arrive. All users of a lock should set the same delay.
    ///
    /// The delay begins when the next waiter learns that it is first. A hold that had guests (see
    /// [`Owner`](crate::Owner)) leaves no mark either. A guest waits as its host does, which may
    /// not hold yet. A container forgets its past when the servers remove it. So the first ticket
    /// of a new directory waits too: see [`persistent_directories`](Self::persistent_directories).
    /// [`try_lock`](crate::Mutex::try_lock) sits the delay out, because leaving would begin it
    /// anew.
    pub fn lock_delay(mut self, delay: Duration) -> Self {
        self.lock_delay = delay;
        self
    }
}
