//! Chooses Redis or PostgreSQL by the scheme of a URL, and refuses options that are ZooKeeper's
//! own.
//!
//! Invariant: no refusal shows a user or a password.

use std::sync::Arc;

use super::KeeperBuilder;
#[cfg(feature = "redis")]
use super::connect_string::REDIS;
use crate::error::{Error, Result, without_secrets};
use crate::link::Opener;
#[cfg(feature = "postgres")]
use crate::link::postgres::PostgresTarget;
#[cfg(feature = "redis")]
use crate::link::redis::RedisTarget;
use crate::link::tls::TlsClient;
use crate::protocol::dialect::Dialect;
#[cfg(feature = "redis")]
use crate::protocol::epoch::Reaping;
use crate::session::heartbeat::LeaseStrength;

/// Where sessions come from, and whether connections have TLS.
type Chosen = (Arc<dyn Opener>, bool);

impl KeeperBuilder {
    /// Another store than ZooKeeper, by its scheme.
    pub(super) fn store(&self) -> Result<Option<Arc<dyn Opener>>> {
        let given = self.connect_string.trim();
        let (chosen, with_tls) = match given.split_once("://") {
            #[cfg(feature = "redis")]
            Some((scheme, _)) if REDIS.contains(&scheme) => {
                self.check_store_options("Redis")?;
                (self.redis(given), "rediss:// or rediss-sentinel://")
            }
            #[cfg(feature = "postgres")]
            Some(("postgres" | "postgresql", _)) => {
                self.check_store_options("PostgreSQL")?;
                if self.is_clock_strict {
                    let why = "it is of Redis, and this keeper is on PostgreSQL";
                    return Err(Error::invalid("strict clock", "true", why));
                }
                (self.postgres(given), "?sslmode=verify-full")
            }
            _ => return Ok(None),
        };
        let refuse = |what, why| Err(Error::invalid(what, without_secrets(given), why));
        match chosen? {
            Ok((_, false)) if self.requires_tls => refuse(
                "connection",
                format!("TLS is required, and the URL does not ask for it with {with_tls}"),
            ),
            Ok((opener, _)) => Ok(Some(opener)),
            Err(why) => refuse("connect string", why),
        }
    }

    #[cfg(feature = "redis")]
    fn redis(&self, url: &str) -> Result<Result<Chosen, String>> {
        let tls = self.tls_client()?;
        let target = RedisTarget::new(url, self.session_timeout, self.is_new);
        let target = target.and_then(|target| target.secured(tls));
        Ok(target.map(|mut target| {
            if self.is_clock_strict {
                target.reaping = Reaping::Strict;
            }
            let is_secure = target.is_secure();
            (Arc::new(target) as _, is_secure)
        }))
    }

    #[cfg(feature = "postgres")]
    fn postgres(&self, url: &str) -> Result<Result<Chosen, String>> {
        let tls = self.tls_client()?;
        let target = PostgresTarget::new(url, self.session_timeout, self.is_new);
        let target = target.and_then(|target| target.secured(tls));
        Ok(target.map(|target| {
            let is_secure = target.is_secure();
            (Arc::new(target) as _, is_secure)
        }))
    }

    #[cfg(feature = "tls")]
    fn tls_client(&self) -> Result<Option<TlsClient>> {
        let client = self.tls.as_ref().map(TlsClient::new).transpose();
        client.map_err(|why| Error::invalid("TLS certificates", "PEM text", why))
    }

    #[cfg(not(feature = "tls"))]
    const fn tls_client(&self) -> Result<Option<TlsClient>> {
        Ok(None)
    }

    fn check_store_options(&self, store: &str) -> Result<()> {
        let is_of_zookeeper = [
            ("credential", !self.credentials.is_empty()),
            ("access list", self.acl.is_some()),
            ("strict access list", !self.is_acl_strict),
            ("tick time", self.tick.is_some()),
            ("chroot to create", self.creates_chroot),
            ("dialect", self.dialect != Dialect::default()),
            ("lease strength", self.strength != LeaseStrength::default()),
        ];
        match is_of_zookeeper.into_iter().find(|(_, is_given)| *is_given) {
            None => Ok(()),
            Some((option, _)) => {
                let why = format!(
                    "it is of ZooKeeper, and this keeper is on {store}: users and passwords stand in the URL there"
                );
                Err(Error::invalid(option, "given", why))
            }
        }
    }
}
