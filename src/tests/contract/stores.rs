//! The store of a run beside ZooKeeper, with a server for each case, and what is done there behind
//! the backs of sessions.
//!
//! Without `LOCKKEEPER_TEST_ON=redis` or `=postgres` its cases do nothing: the README's commands
//! need no server.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use testbench::daemon::Daemon;
use tokio::time::timeout;

use super::SOON;
#[cfg(feature = "redis")]
use super::bed::is_on;
#[cfg(feature = "postgres")]
use super::postgres;
#[cfg(feature = "redis")]
use super::redis;
#[cfg(feature = "postgres")]
use crate::link::postgres::PostgresTarget;
#[cfg(feature = "redis")]
use crate::link::redis::RedisTarget;
use crate::link::stored::ByHand;
use crate::link::{Code, Fault, Link, Opener, SessionState, Write};
use crate::protocol::epoch::{LONGEST, MARGIN};
use crate::{Engine, Keeper};

/// Of the sessions of a case, unless it says otherwise.
pub(super) const SESSION_TIMEOUT: Duration = Duration::from_secs(2);

/// A server of the store of this run.
pub(super) enum Server {
    #[cfg(feature = "redis")]
    Redis(Daemon),
    #[cfg(feature = "postgres")]
    Postgres(Daemon),
}

/// Runs a case with a server of its own.
pub(super) fn on_store<F: Future<Output = ()>>(case: impl FnOnce(Server) -> F) {
    #[cfg(feature = "redis")]
    if is_on("redis") {
        let options = ["--enable-debug-command", "yes"];
        return redis::on_redis(&options, |server| case(Server::Redis(server)));
    }
    #[cfg(feature = "postgres")]
    postgres::on_postgres(|server| case(Server::Postgres(server)));
}

impl Server {
    pub(super) fn address(&self) -> SocketAddr {
        match self {
            #[cfg(feature = "redis")]
            Self::Redis(server) => server.address(),
            #[cfg(feature = "postgres")]
            Self::Postgres(server) => server.address(),
        }
    }

    pub(super) fn engine(&self) -> Engine {
        match self {
            #[cfg(feature = "redis")]
            Self::Redis(_) => Engine::Redis,
            #[cfg(feature = "postgres")]
            Self::Postgres(_) => Engine::Postgres,
        }
    }

    /// The connect string for this server behind another address.
    pub(super) fn url_at(&self, address: SocketAddr) -> String {
        match self {
            #[cfg(feature = "redis")]
            Self::Redis(_) => format!("redis://{address}"),
            #[cfg(feature = "postgres")]
            Self::Postgres(_) => format!("postgres://postgres@{address}/postgres"),
        }
    }

    pub(super) fn url(&self) -> String {
        self.url_at(self.address())
    }

    pub(super) async fn keeper(&self) -> Keeper {
        let builder = Keeper::builder(self.url()).session_timeout(SESSION_TIMEOUT);
        builder.new_store(true).connect().await.unwrap()
    }

    /// A session that keeps itself alive.
    pub(super) async fn open(&self) -> Arc<dyn Link> {
        self.open_at(self.address(), SESSION_TIMEOUT).await
    }

    pub(super) async fn open_at(&self, address: SocketAddr, lasts: Duration) -> Arc<dyn Link> {
        let url = self.url_at(address);
        let opened = match self {
            #[cfg(feature = "redis")]
            Self::Redis(_) => {
                let target = RedisTarget::new(&url, lasts, true).unwrap();
                target.open(SOON).await
            }
            #[cfg(feature = "postgres")]
            Self::Postgres(_) => {
                let target = PostgresTarget::new(&url, lasts, true).unwrap();
                target.open(SOON).await
            }
        };
        opened.unwrap()
    }

    /// A connection with this number of the session with this id and secret.
    pub(super) async fn by_hand(
        &self,
        lasts: Duration,
        id: i64,
        secret: &str,
        number: u64,
    ) -> ByHand {
        let url = self.url();
        match self {
            #[cfg(feature = "redis")]
            Self::Redis(_) => {
                let target = RedisTarget::new(&url, lasts, true).unwrap();
                ByHand::connect(&target, id, secret, number).await
            }
            #[cfg(feature = "postgres")]
            Self::Postgres(_) => {
                let target = PostgresTarget::new(&url, lasts, true).unwrap();
                ByHand::connect(&target, id, secret, number).await
            }
        }
    }

    /// The server's clock steps, as a session's times see it.
    pub(super) async fn step(&self, id: i64, seconds: i64) {
        let back = -seconds * 1_000_000;
        match self {
            #[cfg(feature = "redis")]
            Self::Redis(server) => {
                let (id, back) = (id.to_string(), back.to_string());
                redis::ask(server, &["ZINCRBY", "{lockkeeper}:sessions", &back, &id]).await;
                let record = format!("{{lockkeeper}}:session:{id}");
                for mark in ["m", "md"] {
                    let is_there = redis::ask(server, &["HEXISTS", &record, mark]).await;
                    if is_there == ::redis::Value::Int(1) {
                        redis::ask(server, &["HINCRBY", &record, mark, &back]).await;
                    }
                }
            }
            #[cfg(feature = "postgres")]
            Self::Postgres(server) => {
                let sql = format!(
                    "UPDATE lockkeeper.sessions SET deadline = deadline + {back}, marked = marked + {back} WHERE id = {id}"
                );
                postgres::run(server, &sql).await;
            }
        }
    }

    /// A session is dead from now on, and what it has left is still there.
    pub(super) async fn end(&self, id: i64) {
        match self {
            #[cfg(feature = "redis")]
            Self::Redis(server) => {
                let id = id.to_string();
                redis::ask(server, &["ZADD", "{lockkeeper}:sessions", "-1", &id]).await;
            }
            #[cfg(feature = "postgres")]
            Self::Postgres(server) => {
                let sql = format!("UPDATE lockkeeper.sessions SET dead = true WHERE id = {id}");
                postgres::run(server, &sql).await;
            }
        }
    }

    /// What a promotion does to the identity of the server, without a second one.
    pub(super) async fn begin_another_history(&self) {
        match self {
            #[cfg(feature = "redis")]
            Self::Redis(server) => drop(redis::ask(server, &["DEBUG", "CHANGE-REPL-ID"]).await),
            #[cfg(feature = "postgres")]
            Self::Postgres(server) => {
                postgres::run(server, "UPDATE lockkeeper.alive SET mark = 'another'").await;
            }
        }
    }

    /// The last change in the root, which is empty, was this one.
    pub(super) async fn set_last(&self, id: i64) {
        match self {
            #[cfg(feature = "redis")]
            Self::Redis(server) => {
                let script = "local root = {'', 0, 0, '', tonumber(ARGV[1]), 0, 0, 0} \
                              return redis.call('HSET', KEYS[1], '', cmsgpack.pack(root))";
                let (key, id) = ("{lockkeeper}:root", id.to_string());
                redis::ask(server, &["EVAL", script, "1", key, &id]).await;
            }
            #[cfg(feature = "postgres")]
            Self::Postgres(server) => {
                let sql = format!(
                    "UPDATE lockkeeper.nodes SET pzxid = {id} WHERE dir = '' AND name = ''"
                );
                postgres::run(server, &sql).await;
            }
        }
    }
}

/// The ticket leaves the directory `/a`, which nobody has changed, and marks nothing.
pub(super) fn leaves(path: &str, czxid: i64) -> [Write<'_>; 2] {
    let (directory, version) = ("/a", 0);
    let unchanged = Write::Check {
        path: directory,
        version,
    };
    [unchanged, Write::DeleteTicket { path, czxid }]
}

pub(super) async fn is_over(link: &dyn Link) {
    let mut states = link.states();
    let over = states.wait_for(|state| matches!(state, SessionState::Over(_)));
    timeout(SOON, over).await.expect("it is over").unwrap();
}

/// Whether the store has begun another history after that moment, and its whole pause is counted
/// from then on.
pub(super) fn is_recovering(fault: &Fault, since: Instant) -> bool {
    const WHOLE: Duration = LONGEST.saturating_add(MARGIN);
    let Fault::Answered(Code::Recovering(left)) = fault else {
        return false;
    };
    // Servers count in microseconds.
    *left <= WHOLE && *left + since.elapsed() + Duration::from_millis(1) >= WHOLE
}
