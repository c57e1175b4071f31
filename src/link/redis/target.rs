//! A Redis server, or sentinels that know it, and how connections and sessions are opened there.
//!
//! Invariant: what is told of a URL is without its user and password.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redis::{AsyncConnectionConfig, RedisConnectionInfo, Script};
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::connect::{OpenConnection, connect};
use super::follower::Followers;
use super::greeted::Greeted;
use super::request::Keys;
use super::sentinels::{Named, Sentinels};
use super::url::{Address, Names, RedisUrl};
use super::weaknesses;
use crate::error::{AddressFailure, UnreachableReason};
use crate::link::engine::{Engine, Weakness};
use crate::link::stored::{Store, Ungreeted};
use crate::link::tls::TlsClient;
use crate::protocol::epoch::{CUT_OFF, LONGEST, Reaping};

/// Requests that wait to be sent. With the crate's 50, a burst would wait in another order.
const PIPELINED: usize = 1 << 16;

/// A function, because bugs that tests put into it are switched in bodies.
pub(super) fn script() -> &'static str {
    include_str!("script.lua")
}

/// The server, and what is asked of it.
#[derive(Clone)]
pub(crate) struct RedisTarget {
    place: PrimarySource,
    login: RedisConnectionInfo,
    is_secure: bool,
    tls: Option<TlsClient>,
    /// Host, port and database, or those of the sentinels.
    server: Arc<str>,
    keys: Keys,
    session_timeout: Duration,
    /// The root is declared to be new: nobody waits for clients of before.
    is_new: bool,
    /// The strictest of all clients decides.
    pub(crate) reaping: Reaping,
    script: Arc<str>,
}

#[derive(Clone)]
enum PrimarySource {
    Server(Address),
    Sentinels(Sentinels, Arc<Followers>),
}

/// Without user and password.
impl fmt::Debug for RedisTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisTarget")
            .field("server", &self.server)
            .field("is_secure", &self.is_secure)
            .finish_non_exhaustive()
    }
}

impl RedisTarget {
    /// For the URLs that [`RedisUrl`] reads.
    pub(crate) fn new(url: &str, session_timeout: Duration, is_new: bool) -> Result<Self, String> {
        let RedisUrl {
            names,
            login,
            is_secure,
            shown,
        } = RedisUrl::parse(url)?;
        let place = match names {
            Names::Server(address) => PrimarySource::Server(address),
            Names::Sentinels {
                addresses,
                primary,
                login,
            } => {
                let sentinels = Sentinels {
                    addresses: addresses.into(),
                    primary: primary.into(),
                    login,
                    tls: None,
                };
                PrimarySource::Sentinels(sentinels, Arc::default())
            }
        };
        Ok(Self {
            place,
            login,
            is_secure,
            tls: None,
            server: shown.into(),
            keys: Keys::new("lockkeeper"),
            session_timeout,
            is_new,
            reaping: Reaping::Usual,
            script: Script::new(script()).get_hash().into(),
        })
    }

    /// Refuses certificates that the scheme has no use for, and a scheme that needs some.
    pub(crate) fn secured(mut self, tls: Option<TlsClient>) -> Result<Self, String> {
        if self.is_secure && !cfg!(feature = "tls") {
            return Err("it needs the feature `tls` of lockkeeper".into());
        }
        match (self.is_secure, &tls) {
            (true, None) => {
                return Err("it asks for TLS, and no authority was given to trust (`Tls::with_ca`, or --tls-ca)".into());
            }
            (false, Some(_)) => {
                return Err(
                    "certificates for TLS were given, and this scheme has none: write rediss:// or rediss-sentinel://".into(),
                );
            }
            _ => {}
        }
        if let PrimarySource::Sentinels(sentinels, _) = &mut self.place {
            sentinels.tls.clone_from(&tls);
        }
        self.tls = tls;
        Ok(self)
    }

    pub(crate) const fn is_secure(&self) -> bool {
        self.is_secure
    }

    /// Connects to the server, or to the one that sentinels name.
    async fn connect(
        &self,
        config: AsyncConnectionConfig,
        limit: Duration,
    ) -> Result<(OpenConnection, Option<Named>), Ungreeted> {
        if self.is_secure && self.tls.is_none() {
            return Err(Ungreeted::refusing(
                "TLS was asked for, without an authority to trust",
            ));
        }
        let config = config
            .set_connection_timeout(None)
            .set_response_timeout(None)
            .set_pipeline_buffer_size(PIPELINED);
        let (address, named) = match &self.place {
            PrimarySource::Server(address) => (address.clone(), None),
            PrimarySource::Sentinels(sentinels, _) => {
                let named = sentinels.ask(limit / 2).await?;
                (named.primary.clone(), Some(named))
            }
        };
        // With sentinels, what is left of the limit: a silent server is told by its name.
        let limit = if named.is_some() {
            limit * 2 / 5
        } else {
            limit
        };
        let opened = connect(&address, self.tls.as_ref(), &self.login, config, limit);
        let Some(named) = named else {
            return Ok((opened.await?, None));
        };
        let opened = timeout(limit, opened).await;
        let opened = opened.unwrap_or(Err(Ungreeted::Unreachable(UnreachableReason::Silent)));
        let opened = opened.map_err(|why| of_primary(why, Some(&named)))?;
        Ok((opened, Some(named)))
    }

    async fn handshake(
        &self,
        session: i64,
        number: u64,
        limit: Duration,
    ) -> Result<Greeted, Ungreeted> {
        let (pushed, pushes) = mpsc::unbounded_channel();
        let config = AsyncConnectionConfig::new().set_push_sender(pushed);
        let (mut open, named) = self.connect(config, limit).await?;
        let greeted = self.greeting(session, &mut open).await;
        let incarnation = greeted.map_err(|why| of_primary(why, named.as_ref()))?;
        let followed = match (&self.place, named) {
            (PrimarySource::Sentinels(sentinels, followers), Some(named)) => {
                // No server grants more than that.
                let rhythm = self.session_timeout.min(LONGEST) / 3;
                Some(followers.follow(sentinels, named, rhythm).await)
            }
            _ => None,
        };
        Ok(Greeted {
            number,
            open,
            followed,
            pushes,
            keys: self.keys.clone(),
            script: Arc::clone(&self.script),
            incarnation,
        })
    }

    /// Learns which history the server has, and makes it ready for a session.
    async fn greeting(&self, session: i64, open: &mut OpenConnection) -> Result<String, Ungreeted> {
        let replication: String =
            redis::from_redis_value(open.ask("INFO", &["replication"]).await?)
                .map_err(|_| Ungreeted::refusing("it is no Redis server"))?;
        let line = |name: &str| {
            let mut lines = replication.lines();
            lines
                .find_map(|line| line.strip_prefix(name))
                .map(str::to_owned)
        };
        if line("role:").as_deref() != Some("master") {
            return Err(Ungreeted::refusing("it is a replica, name its primary"));
        }
        let incarnation = line("master_replid:")
            .ok_or_else(|| Ungreeted::refusing("it does not name its history"))?;
        open.ask("SCRIPT", &["LOAD", script()]).await?;
        let channel = format!("{}{session}", self.keys.channels());
        open.ask("SUBSCRIBE", &[&channel]).await?;
        Ok(incarnation)
    }
}

/// Of a server that a sentinel has named: both are told.
fn of_primary(why: Ungreeted, named: Option<&Named>) -> Ungreeted {
    match (why, named) {
        (Ungreeted::Unreachable(reason), Some(Named { primary, by, .. })) => {
            let address = format!("{primary}, the primary that sentinel {by} names");
            Ungreeted::Each(vec![AddressFailure::new(address, reason)])
        }
        (why, _) => why,
    }
}

impl Store for RedisTarget {
    type Connection = Greeted;
    const ENGINE: Engine = Engine::Redis;
    /// A primary that stood still for longer may be none any more, and takes a while to see it: it
    /// hears its replica's old words first. What another connection asks comes after them.
    const MOST_SILENT: Duration = CUT_OFF;

    fn server(&self) -> &str {
        &self.server
    }

    fn session_timeout(&self) -> Duration {
        self.session_timeout
    }

    fn is_new(&self) -> bool {
        self.is_new
    }

    fn reaping(&self) -> Reaping {
        self.reaping
    }

    async fn greet(
        &self,
        session: i64,
        number: u64,
        limit: Duration,
    ) -> Result<Greeted, Ungreeted> {
        let greeted = timeout(limit, self.handshake(session, number, limit)).await;
        greeted.unwrap_or(Err(Ungreeted::Unreachable(UnreachableReason::Silent)))
    }

    async fn weaknesses(&self, limit: Duration) -> Result<Vec<Weakness>, UnreachableReason> {
        let asked = timeout(limit, async {
            let (mut open, _) = self.connect(AsyncConnectionConfig::new(), limit).await?;
            weaknesses::ask(&mut open).await
        });
        let asked = asked.await.map_err(|_| UnreachableReason::Silent)?;
        asked.map_err(Ungreeted::reason)
    }
}
