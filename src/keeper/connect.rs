//! Opens a keeper: checks its options, then opens the first session.
//!
//! Invariant: an illegal option is refused before anything is sent.

use std::sync::Arc;
use std::time::Duration;

use tracing::warn;

use super::connect_string::{ConnectString, check_path};
use super::{Keeper, KeeperBuilder};
use crate::error::{Error, Result};
use crate::link::zookeeper::Target;
#[cfg(feature = "tls")]
use crate::link::zookeeper::check_tls;
use crate::link::{Create, Opener, size};
use crate::metrics;
use crate::protocol::acl::{Acl, Credential};
use crate::protocol::dialect::Dialect;
use crate::protocol::ticket::TicketData;
use crate::queue::journal::JournalWriter;
use crate::session::acls::AclCheck;
use crate::session::clock::SystemClock;
#[cfg(doc)]
use crate::session::heartbeat::LeaseStrength;
use crate::session::pool::{Access, Pool, check_tick};
use crate::session::too_large;

impl KeeperBuilder {
    /// Opens a session.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidOption`], and [`Error::TooLarge`] for a credential, before any I/O;
    /// [`Error::InvalidOption`] for [`LeaseStrength::Sync`] after it. [`Error::Unreachable`] with
    /// the reason of each address, if no server gave a session within the connect timeout.
    /// [`Error::ChrootMissing`], unless it is [to be made](Self::create_chroot);
    /// [`Error::Denied`] if we may not make it.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a session that was opened is closed.
    pub async fn connect(self) -> Result<Keeper> {
        let (opener, acls) = self.opener()?;
        let root = self.checked_root()?;
        if self.sends_secrets_in_clear() {
            warn!("a credential crosses the network as it is, because there is no TLS");
        }
        metrics::describe();
        let pool = Pool::open(Access {
            opener,
            connect_timeout: self.connect_timeout,
            close_timeout: self.close_timeout,
            session_timeout: self.session_timeout,
            strength: self.strength,
            tick: self.tick,
            clock: Arc::new(SystemClock),
            acls: Arc::new(acls),
        })
        .await?;
        warn_of_weaknesses(&pool).await;
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

    /// Checks the options for the connection.
    fn opener(&self) -> Result<(Arc<dyn Opener>, AclCheck)> {
        check_timeout("session timeout", self.session_timeout)?;
        if !self.connect_timeout.is_zero() {
            check_timeout("connect timeout", self.connect_timeout)?;
        }
        #[cfg(any(feature = "postgres", feature = "redis"))]
        if let Some(target) = self.store()? {
            return Ok((target, AclCheck::default()));
        }
        let target = self.zookeeper()?;
        let acls = AclCheck::new(&target.acl, &target.credentials, self.is_acl_strict);
        Ok((Arc::new(target), acls))
    }

    pub(crate) fn zookeeper(&self) -> Result<Target> {
        let ConnectString { servers, chroot } = ConnectString::parse(&self.connect_string)?;
        if self.is_new {
            let why = "it is of Redis and PostgreSQL: a ZooKeeper keeps what it has committed";
            return Err(Error::invalid("new store", "true", why));
        }
        if self.is_clock_strict {
            let why = "it is of Redis: a ZooKeeper measures time by clocks that do not step";
            return Err(Error::invalid("strict clock", "true", why));
        }
        self.check_tls()?;
        check_tick(self.tick, self.session_timeout)?;
        self.check_credentials()?;
        Ok(Target {
            servers,
            chroot,
            creates_chroot: self.creates_chroot,
            session_timeout: self.session_timeout,
            granted: Arc::default(),
            credentials: self.credentials.clone(),
            acl: self.checked_acl()?,
            #[cfg(feature = "tls")]
            tls: self.tls.clone(),
        })
    }

    fn check_tls(&self) -> Result<()> {
        if self.requires_tls && !self.has_tls() {
            let why = "TLS is required, and no authority was given to trust";
            let given = self.connect_string.trim();
            return Err(Error::invalid("connection", given, why));
        }
        #[cfg(feature = "tls")]
        if let Some(tls) = &self.tls {
            check_tls(tls).map_err(|why| Error::invalid("TLS certificates", "PEM text", why))?;
        }
        Ok(())
    }

    fn check_credentials(&self) -> Result<()> {
        for Credential { scheme, secret } in &self.credentials {
            size::check(size::credential(scheme, secret)).map_err(|over| {
                let what = format!("the credential for {scheme:?}");
                too_large("send", what, over)
            })?;
        }
        Ok(())
    }

    fn checked_acl(&self) -> Result<Acl> {
        let has_credential = !self.credentials.is_empty();
        let acl = match &self.acl {
            Some(acl) => acl.clone(),
            None if has_credential => Acl::creator(),
            None => Acl::open(),
        };
        if acl.needs_credential() && !has_credential {
            let why = "it stands for whoever we prove to be, and there is no credential";
            return Err(Error::invalid("access list", "auth", why));
        }
        Ok(acl)
    }

    fn checked_root(&self) -> Result<String> {
        if self.root != "/" {
            check_path(&self.root).map_err(|why| Error::invalid("root", &self.root, why))?;
        }
        Ok(self.root.clone())
    }
}

/// A store that cannot be asked now is asked again by operators.
async fn warn_of_weaknesses(pool: &Pool) {
    for weakness in pool.weaknesses().await.unwrap_or_default() {
        warn!(%weakness, "a setting of the store weakens the promises");
    }
}

fn check_timeout(what: &'static str, given: Duration) -> Result<()> {
    if i32::try_from(given.as_millis()).is_ok_and(|ms| ms >= 1) {
        return Ok(());
    }
    let why = "it must be at least 1 ms and at most 2147483647 ms";
    Err(Error::invalid(what, format!("{given:?}"), why))
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
        let error = Keeper::builder("zk1:2181")
            .require_tls(true)
            .connect()
            .await;

        let error = error.unwrap_err();
        assert!(
            error.is_invalid() && error.to_string().contains("TLS is required"),
            "{error}"
        );
    }
}
