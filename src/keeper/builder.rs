//! The options of a keeper, and what is refused before anything is sent.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use tracing::warn;

use super::Keeper;
use crate::brief::Brief;
use crate::error::{Error, Result};
use crate::link::zookeeper::Target;
#[cfg(feature = "tls")]
use crate::link::zookeeper::check_tls;
#[cfg(feature = "tls")]
use crate::link::zookeeper::tls::Tls;
use crate::link::{Create, size};
use crate::metrics;
use crate::name::LockName;
use crate::protocol::acl::{Acl, Credential};
use crate::protocol::dialect::Dialect;
use crate::protocol::ticket::TicketData;
use crate::queue::journal::JournalWriter;
use crate::session::acls::AclCheck;
use crate::session::clock::SystemClock;
use crate::session::heartbeat::LeaseStrength;
use crate::session::pool::{Access, Pool, check_tick};
use crate::session::too_large;

const DEFAULT_SESSION_TIMEOUT: Duration = Duration::from_secs(10);
const DEFAULT_CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const DEFAULT_ROOT: &str = "/locks";

/// Options for a [`Keeper`], from [`Keeper::builder`].
#[derive(Clone)]
#[must_use = "a builder does nothing until connect is called"]
pub struct KeeperBuilder {
    connect_string: String,
    session_timeout: Duration,
    connect_timeout: Duration,
    root: String,
    kind: Create,
    strength: LeaseStrength,
    tick: Option<Duration>,
    lock_delay: Duration,
    dialect: Dialect,
    journal: usize,
    credentials: Vec<Credential>,
    requires_tls: bool,
    /// That of the credentials if none was given.
    acl: Option<Acl>,
    is_acl_strict: bool,
    #[cfg(feature = "tls")]
    tls: Option<Tls>,
}

impl fmt::Debug for KeeperBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeeperBuilder")
            .field("connect_string", &Brief(&self.connect_string))
            .field("root", &Brief(&self.root))
            .field("session_timeout", &self.session_timeout)
            .field("has_credential", &!self.credentials.is_empty())
            .field("has_tls", &self.has_tls())
            .finish_non_exhaustive()
    }
}

impl KeeperBuilder {
    pub(super) fn new(connect_string: String) -> Self {
        Self {
            connect_string,
            session_timeout: DEFAULT_SESSION_TIMEOUT,
            connect_timeout: DEFAULT_CONNECT_TIMEOUT,
            root: DEFAULT_ROOT.into(),
            kind: Create::Container,
            strength: LeaseStrength::default(),
            tick: None,
            lock_delay: Duration::ZERO,
            dialect: Dialect::default(),
            journal: 0,
            credentials: Vec::new(),
            requires_tls: false,
            acl: None,
            is_acl_strict: true,
            #[cfg(feature = "tls")]
            tls: None,
        }
    }

    /// How long the servers wait for a silent client before they end its session and give its locks
    /// to others; default 10 s. The servers bound it to 2 to 20 of their ticks, usually 4 to 40 s.
    /// What they grant counts; where it is not what was asked for, the first session is opened
    /// twice.
    pub fn session_timeout(mut self, timeout: Duration) -> Self {
        self.session_timeout = timeout;
        self
    }

    /// How long to try for a session before [`Error::Unreachable`]; default 10 s. Addresses that
    /// refuse, names that do not resolve and servers that give no session are asked again until the
    /// time is over, because services start beside their servers. [`Duration::ZERO`] tries each
    /// address once, for 5 s at most.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// The node below which all locks are; default `/locks`. Made on demand. Everybody who shares a
    /// lock must use the same.
    pub fn root(mut self, root: impl Into<String>) -> Self {
        self.root = root.into();
        self
    }

    /// Makes lock directories that stay when they are empty, instead of containers that the servers
    /// remove, 10 000 a minute at most (`docs/scale.md`).
    pub fn persistent_directories(mut self) -> Self {
        self.kind = Create::Persistent;
        self
    }

    /// Which other libraries the locks are shared with; default [`Dialect::Curator`]. Everybody who
    /// shares a lock must use the same. Semaphores are Lockkeeper's own in any dialect.
    pub fn dialect(mut self, dialect: Dialect) -> Self {
        self.dialect = dialect;
        self
    }

    /// Writes down who held a lock, for how long, and how that ended: the last so many holds of
    /// each lock; default 0, which writes nothing. Read it with [`Keeper::journal`] or
    /// `lockkeeper journal`.
    ///
    /// A lock's page is one node below the root's name with `-journal` behind it
    /// (`/locks-journal/orders/42`), of 256 KiB at most. It stays until somebody removes it, so a
    /// journal is not for locks whose names are never used again. A hold costs two reads and two
    /// writes more, behind its back (and more where several processes write the page at the same
    /// moment): no call waits for them, and holds that follow each other faster than that share
    /// them. What a process has not written when it dies is lost, and so is the end of a guard that
    /// outlives its dropped keeper. While no server answers the lines of up to 10 000 locks wait;
    /// where nothing may be written a warning is logged. All keepers that write about a lock should
    /// give the same number.
    pub fn journal(mut self, holds: usize) -> Self {
        self.journal = holds;
        self
    }

    /// Proves to the servers who we are, with each connection: `("digest", "user:password")`. May
    /// be given several times. The secret is shown by nothing. Without TLS it crosses the network
    /// as it is, to whoever listens at an address of the connect string, and a warning is logged:
    /// see [`require_tls`](Self::require_tls). Unless [`acl`](Self::acl) says otherwise, nobody
    /// else may touch what the keeper makes from then on.
    ///
    /// A server that does not know the scheme, or does not believe it, ends the session.
    pub fn credential(mut self, scheme: impl Into<String>, secret: impl Into<Vec<u8>>) -> Self {
        self.credentials.push(Credential {
            scheme: scheme.into(),
            secret: secret.into(),
        });
        self
    }

    /// Who may do what with the nodes that the keeper makes; default [`Acl::creator`] with a
    /// [`credential`](Self::credential), and [`Acl::open`] without one. Everybody who shares a lock
    /// must use the same.
    pub fn acl(mut self, acl: Acl) -> Self {
        self.acl = Some(acl);
        self
    }

    /// Whether a lock is refused with [`Error::WiderAcl`] where the access list of its directory
    /// allows somebody more than the keeper's [`acl`](Self::acl) does; default `true`. `false` only
    /// logs a warning.
    ///
    /// The keeper's list protects what the keeper makes. A directory that a stranger has made
    /// first, or that an earlier program left open, keeps its own list, and whoever may write there
    /// can call a second holder in. The list is read when a directory is first used, and again when
    /// it was changed or the directory was made again: one request each. Nothing is read if the
    /// keeper's list is open.
    pub fn strict_acl(mut self, strict: bool) -> Self {
        self.is_acl_strict = strict;
        self
    }

    /// Speaks to all servers through TLS, at the ports of the connect string (ZooKeeper's
    /// `secureClientPort`).
    #[cfg(feature = "tls")]
    pub fn tls(mut self, tls: Tls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// Refuses to connect without TLS.
    pub fn require_tls(mut self) -> Self {
        self.requires_tls = true;
        self
    }

    /// Whether a credential would cross the network as it is: there is one, there is no TLS, and
    /// not all servers are on this machine (`localhost` or a loopback address).
    /// [`connect`](Self::connect) logs a warning then.
    pub fn sends_secrets_in_clear(&self) -> bool {
        let (servers, _) = split(self.connect_string.trim());
        let is_remote = !servers.split(',').all(is_loopback);
        is_remote && !self.has_tls() && !self.credentials.is_empty()
    }

    fn has_tls(&self) -> bool {
        #[cfg(feature = "tls")]
        return self.tls.is_some();
        #[cfg(not(feature = "tls"))]
        false
    }

    /// What proves to a guard that its session lives; default [`LeaseStrength::Quorum`].
    pub fn lease_strength(mut self, strength: LeaseStrength) -> Self {
        self.strength = strength;
        self
    }

    /// The servers' `tickTime`, as their configuration has it: with it a guard survives longer
    /// silences of the servers, of up to 4 s in place of 1.4 s at a session timeout of 10 s and a
    /// tick of 2 s. Where the servers' tick is longer than declared here, a guard may believe too
    /// long that it is held. Where clients may be connected to observers behind an ObserverMaster,
    /// whose word takes two hops, declare twice the tick. Without it, half of the session timeout
    /// is assumed, which is the longest that servers allow.
    ///
    /// A server that stands alone needs no such time, whatever is declared: it is asked (`srvr`, at
    /// each connect), and silences of up to 6 s are survived then. That takes a connect string with
    /// one address of one server, without TLS, and a server that answers.
    pub fn tick_time(mut self, tick: Duration) -> Self {
        self.tick = Some(tick);
        self
    }

    /// How long a lock is withheld after a holder that may not have ended well: it crashed, lost
    /// its session, gave up its place, or was another program's (which never says). For resources
    /// that cannot check tokens, so that what the old holder sent has time to arrive; default zero.
    /// Every user of a lock should set the same.
    ///
    /// A hold that had guests (see [`Owner`](crate::Owner)) ends without a word too. A guest waits
    /// like its host, which may not be in yet. The wait begins when the next in the queue learns
    /// that it is the first. In a container, which forgets its past when it is removed, the first
    /// ticket of a new directory waits too: see
    /// [`persistent_directories`](Self::persistent_directories).
    /// [`try_lock`](crate::Mutex::try_lock) sits the delay out, because leaving would begin it
    /// anew.
    pub fn lock_delay(mut self, delay: Duration) -> Self {
        self.lock_delay = delay;
        self
    }

    /// Opens a session.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidOption`], and [`Error::TooLarge`] for a credential, before any I/O, or after
    /// it for [`LeaseStrength::Sync`]; [`Error::Unreachable`], with each address and what was found
    /// there, when no server gave a session within the connect timeout; [`Error::ChrootMissing`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a session that was opened is closed.
    pub async fn connect(self) -> Result<Keeper> {
        let target = self.target()?;
        let acls = AclCheck::new(&target.acl, &target.credentials, self.is_acl_strict);
        let root = self.checked_root()?;
        if self.sends_secrets_in_clear() {
            warn!("a credential crosses the network as it is, because there is no TLS");
        }
        metrics::describe();
        let pool = Pool::open(Access {
            opener: Arc::new(target),
            connect_timeout: self.connect_timeout,
            session_timeout: self.session_timeout,
            strength: self.strength,
            tick: self.tick,
            clock: Arc::new(SystemClock),
            acls: Arc::new(acls),
        })
        .await?;
        let host = gethostname::gethostname().to_string_lossy().into_owned();
        let line = TicketData {
            host,
            pid: std::process::id(),
            ..TicketData::default()
        };
        let journal = (self.journal > 0).then(|| JournalWriter::new(&pool, &root, self.journal));
        Ok(Keeper {
            pool,
            root: root.into(),
            kind: match self.dialect {
                // Kazoo makes a directory once, and does not expect it to go.
                Dialect::Kazoo => Create::Persistent,
                Dialect::Curator => self.kind,
            },
            line: Arc::new(line),
            lock_delay: self.lock_delay,
            dialect: self.dialect,
            local_holds: Arc::default(),
            journal,
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
        let (servers, chroot) = split(given);
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
            let is_once = what == "connect timeout" && given.is_zero();
            let is_usable = i32::try_from(given.as_millis()).is_ok_and(|ms| ms >= 1);
            if !is_usable && !is_once {
                return Err(too_short(what, given));
            }
        }
        if self.requires_tls && !self.has_tls() {
            return Err(Error::InvalidOption {
                what: "connection",
                given: given.into(),
                why: "TLS is required, and no authority was given to trust".into(),
            });
        }
        check_tick(self.tick, self.session_timeout)?;
        for Credential { scheme, secret } in &self.credentials {
            size::check(size::credential(scheme, secret)).map_err(|over| {
                let what = format!("the credential for {scheme:?}");
                too_large("send", what, over)
            })?;
        }
        let acl = match &self.acl {
            Some(acl) => acl.clone(),
            None if self.credentials.is_empty() => Acl::open(),
            None => Acl::creator(),
        };
        if acl.needs_credential() && self.credentials.is_empty() {
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
            granted: Arc::default(),
            credentials: self.credentials.clone(),
            acl,
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

/// The servers and the chroot of a connect string.
fn split(connect_string: &str) -> (&str, &str) {
    let chroot = connect_string.find('/');
    chroot.map_or((connect_string, ""), |at| connect_string.split_at(at))
}

/// Whether a server is on this machine by its address; no name is looked up.
fn is_loopback(server: &str) -> bool {
    let host = match server
        .strip_prefix('[')
        .and_then(|rest| rest.split_once(']'))
    {
        Some((host, _)) => host,
        None => server.rsplit_once(':').map_or(server, |(host, _)| host),
    };
    let address = host.parse::<IpAddr>();
    host.eq_ignore_ascii_case("localhost")
        || address.is_ok_and(|address| address.to_canonical().is_loopback())
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
        for tick in [Duration::ZERO, Duration::from_millis(5001), Duration::MAX] {
            let builder = Keeper::builder("a:1").tick_time(tick);
            let error = builder.connect().await.unwrap_err();
            assert!(error.to_string().contains("tick time"), "{error}");
        }
    }

    #[test]
    fn a_secret_is_in_clear_without_tls_beyond_this_machine() {
        let in_clear = |servers: &str| {
            let builder = Keeper::builder(servers).credential("digest", "user:password");
            builder.sends_secrets_in_clear()
        };

        for servers in [
            "zk1",
            "localhost:1,10.0.0.1:1",
            "[2001:db8::1]:1/app",
            "localhost.example",
        ] {
            assert!(in_clear(servers), "{servers}");
            assert!(!Keeper::builder(servers).sends_secrets_in_clear());
        }
        for servers in [
            "localhost",
            "LocalHost:1/app",
            "127.0.0.1:1,127.3.2.1",
            "[::1]:1/app",
            "[::ffff:127.0.0.1]",
        ] {
            assert!(!in_clear(servers), "{servers}");
        }
    }

    #[tokio::test]
    async fn nothing_connects_without_tls_where_it_is_required() {
        let error = Keeper::builder("zk1:2181").require_tls().connect().await;

        let error = error.unwrap_err();
        assert!(
            error.is_invalid() && error.to_string().contains("TLS is required"),
            "{error}"
        );
    }

    #[test]
    fn addresses_of_every_form_are_accepted() {
        for server in ["zk1", "zk1:2181", "10.0.0.1:1", "[::1]:2181", "[::1]"] {
            assert_eq!(check_server(server), Ok(()), "{server}");
        }
    }
}
