//! A store of a case's own, on a primary with or without a replica that can be promoted; and what
//! happens to its servers.
//!
//! The way from the replica to its primary can be cut. Nothing is judged here.

use std::net::SocketAddr;
use std::time::Duration;

use redis::FromRedisValue;
use tokio::task::spawn_blocking;
use tokio_postgres::Row;

use crate::daemon::{self, Daemon, Signal};
use crate::eventually;
use crate::protocol::Protocol;
use crate::proxy::{Proxy, Way};
use crate::stored::Stored;
use crate::stranger::{Database, Schema};

const PATIENCE: Duration = Duration::from_secs(60);

/// What the documentation says to configure on a Redis server that has replicas.
pub const REPLICATED: &[&str] = &[
    "--appendonly",
    "yes",
    "--min-replicas-to-write",
    "1",
    "--min-replicas-max-lag",
    "2",
    "--repl-backlog-ttl",
    "0",
    "--repl-diskless-sync-delay",
    "0",
];

/// A standby looks for its primary more often than each five seconds. It gives up a connection that
/// has fallen silent before a minute has passed.
const SETTINGS: &[&str] = &[
    "max_connections=200",
    "wal_retrieve_retry_interval=200ms",
    "wal_receiver_timeout=2s",
];

/// A replica whose history is its primary's.
const FOLLOWS: &str = "master_link_status:up";

pub struct Pair {
    stored: Stored,
    primary: Option<Daemon>,
    replica: Option<Replica>,
    /// Ways to primaries of before.
    silent: Vec<Proxy>,
}

struct Replica {
    server: Daemon,
    way: Proxy,
}

impl Pair {
    /// A primary alone, whose root allows sessions of so long a timeout.
    pub async fn alone(protocol: Protocol, options: &'static [&'static str]) -> Self {
        let primary = blocking(move || match protocol {
            Protocol::Redis => daemon::redis(options),
            Protocol::Postgres => {
                let server = daemon::postgres_in_memory(options)?;
                daemon::postgres_databases(&server, Schema::databases().take(1))?;
                Ok(server)
            }
        })
        .await;
        Self {
            stored: stored(protocol, primary.address()),
            primary: Some(primary),
            replica: None,
            silent: Vec::new(),
        }
    }

    /// A primary and its replica, configured as the documentation says. A replica of PostgreSQL is
    /// waited for with [`wait_for_it`](Self::wait_for_it) only.
    pub async fn start(protocol: Protocol) -> Self {
        let options = match protocol {
            Protocol::Redis => REPLICATED,
            Protocol::Postgres => SETTINGS,
        };
        let mut pair = Self::alone(protocol, options).await;
        let way = Proxy::of_bytes(pair.address()).expect("a port for a proxy");
        let followed = way.address();
        let server = blocking(move || match protocol {
            Protocol::Redis => daemon::redis(REPLICATED),
            Protocol::Postgres => daemon::postgres_standby_with(followed, SETTINGS),
        })
        .await;
        pair.replica = Some(Replica { server, way });
        if protocol == Protocol::Redis {
            pair.redis_follows().await;
        }
        pair.catches_up().await;
        pair
    }

    /// Makes the root, at the replica too if there is one.
    pub async fn make(&self, longest: Duration) {
        let make = || async { self.stored.make(longest).await.ok() };
        eventually("the root is made", PATIENCE, make).await;
        if self.replica.is_some() {
            self.catches_up().await;
        }
    }

    pub fn protocol(&self) -> Protocol {
        self.stored.protocol()
    }

    /// The part of the store that is ours, at the primary.
    pub fn stored(&self) -> &Stored {
        &self.stored
    }

    pub fn address(&self) -> SocketAddr {
        self.stored.server()
    }

    pub fn primary(&mut self) -> &mut Daemon {
        self.primary
            .as_mut()
            .expect("it is not with another thread")
    }

    fn replica(&self) -> &Replica {
        self.replica.as_ref().expect("there is a replica")
    }

    /// Something with the primary that blocks.
    pub async fn with<T: Send + 'static>(
        &mut self,
        act: impl FnOnce(&mut Daemon) -> T + Send + 'static,
    ) -> T {
        let mut primary = self.primary.take().expect("one thing at a time");
        let (primary, done) = spawn_blocking(move || {
            let done = act(&mut primary);
            (primary, done)
        })
        .await
        .expect("it does not panic");
        self.primary = Some(primary);
        done
    }

    pub async fn kill(&mut self) {
        self.with(Daemon::kill).await;
    }

    /// As `pg_ctl stop -m immediate` does it.
    pub async fn end_at_once(&mut self) {
        let ended = self.with(|primary| primary.end(Signal::QUIT)).await;
        ended.expect("it ends");
    }

    pub async fn launch(&mut self) {
        self.with(Daemon::launch).await.expect("it starts again");
    }

    /// Nothing comes to the replica any more.
    pub fn part(&self) {
        self.replica().way.black_hole(Way::Both);
    }

    /// It hears of its primary again.
    pub fn rejoin(&self) {
        self.replica().way.heal();
    }

    /// Commits wait for the standby from now on.
    pub async fn wait_for_it(&self) {
        for sql in [
            "ALTER SYSTEM SET synchronous_standby_names = '*'",
            "SELECT pg_reload_conf()",
        ] {
            self.postgres(self.address(), sql).await;
        }
        let waits = || async {
            let asked = "SELECT FROM pg_stat_replication WHERE sync_state = 'sync'";
            !self.postgres(self.address(), asked).await.is_empty()
        };
        eventually("commits wait for the standby", PATIENCE, waits).await;
    }

    /// Makes the replica the primary, and gives the old one, as it is.
    pub async fn promote(&mut self) -> Daemon {
        let Replica { server, way } = self.replica.take().expect("there is a replica");
        // The old one hears nothing more, and not that its replica has gone.
        way.black_hole(Way::Both);
        self.silent.push(way);
        let address = server.address();
        match self.protocol() {
            Protocol::Redis => {
                drop(redis::<String>(address, &["REPLICAOF", "NO", "ONE"]).await);
            }
            Protocol::Postgres => drop(self.postgres(address, "SELECT pg_promote()").await),
        }
        self.stored = self.stored.of(address);
        let old = self.primary.replace(server);
        old.expect("one thing at a time")
    }

    /// Makes the old primary the replica of the new one. Redis keeps the server; PostgreSQL makes
    /// another one.
    pub async fn follow(&mut self, mut old: Daemon) {
        let way = Proxy::of_bytes(self.address()).expect("a port for a proxy");
        let (followed, protocol) = (way.address(), self.protocol());
        let server = blocking(move || match protocol {
            Protocol::Redis => {
                old.kill();
                old.launch().map(|()| old)
            }
            Protocol::Postgres => {
                drop(old);
                daemon::postgres_standby_with(followed, SETTINGS)
            }
        })
        .await;
        self.replica = Some(Replica { server, way });
        if protocol == Protocol::Redis {
            self.redis_follows().await;
        }
    }

    async fn redis_follows(&self) {
        let replica = self.replica();
        let port = replica.way.address().port().to_string();
        let (server, number) = (replica.server.address(), 0);
        let database = Database { server, number };
        let follow = ["REPLICAOF", "127.0.0.1", &port];
        // One that starts refuses it.
        let follows = || async { database.ask::<String>(&follow).await.is_ok() };
        eventually("the replica follows", PATIENCE, follows).await;
    }

    /// All that was written by now is at the replica.
    pub async fn catches_up(&self) {
        let (primary, replica) = (self.address(), self.replica().server.address());
        match self.protocol() {
            Protocol::Redis => {
                let written = || async { offset(&told(primary).await?, "master_repl_offset:") };
                let written = eventually("the primary says what it has", PATIENCE, written).await;
                let has_all = || async {
                    // Before the first sync its offset is no part of the primary's history.
                    let told = told(replica).await.filter(|told| told.contains(FOLLOWS));
                    told.and_then(|told| offset(&told, "slave_repl_offset:")) >= Some(written)
                };
                eventually("the replica has all", PATIENCE, has_all).await;
            }
            Protocol::Postgres => {
                let written = self
                    .postgres(primary, "SELECT pg_current_wal_lsn()::text")
                    .await;
                let written: String = written[0].get(0);
                let mark =
                    format!("SELECT FROM pg_stat_replication WHERE flush_lsn >= '{written}'");
                let has_all = || async { !self.postgres(primary, &mark).await.is_empty() };
                eventually("the standby has all", PATIENCE, has_all).await;
            }
        }
    }

    /// A server that starts is asked again.
    async fn postgres(&self, server: SocketAddr, sql: &str) -> Vec<Row> {
        let url = format!("host=127.0.0.1 port={} user=postgres", server.port());
        let rows = || async {
            let opened = tokio_postgres::connect(&url, tokio_postgres::NoTls).await;
            let (client, connection) = opened.ok()?;
            tokio::spawn(connection);
            client.query(sql, &[]).await.ok()
        };
        eventually(sql, PATIENCE, rows).await
    }
}

fn stored(protocol: Protocol, server: SocketAddr) -> Stored {
    let number = 0;
    match protocol {
        Protocol::Redis => Stored::Redis(Database { server, number }),
        Protocol::Postgres => Stored::Postgres(Schema { server, number }),
    }
}

async fn blocking(start: impl FnOnce() -> Result<Daemon, String> + Send + 'static) -> Daemon {
    let started = spawn_blocking(start).await;
    started.expect("it does not panic").expect("it starts")
}

/// What a Redis server says of its replication. One that starts says nothing.
async fn told(server: SocketAddr) -> Option<String> {
    let database = Database { server, number: 0 };
    database.ask(&["INFO", "replication"]).await.ok()
}

fn offset(told: &str, name: &str) -> Option<i64> {
    let line = told.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|number| number.parse().ok())
}

/// One question on a connection of its own.
pub async fn redis<T: FromRedisValue>(server: SocketAddr, words: &[&str]) -> T {
    let database = Database { server, number: 0 };
    database.ask(words).await.expect("an answer")
}
