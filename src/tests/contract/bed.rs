//! The world of the cases: servers, and a way to them for each session that can be cut.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

#[cfg(any(feature = "postgres", feature = "redis"))]
use testbench::daemon::{self, Daemon};
#[cfg(feature = "postgres")]
use testbench::pooler::pgbouncer;
use testbench::relay::{Relay, Way};
use testbench::target::Target as On;
use testbench::zookeeper;
use zookeeper_embedded::EmbeddedServer;

use super::SOON;
use crate::link::zookeeper::Target;
use crate::link::{Create, Link, Opener};
use crate::tests::simulated::{SimOpener, SimWorld};

/// As short as servers grant it with their usual tick.
pub(super) const SESSION_TIMEOUT: Duration = Duration::from_secs(4);

/// What this run asks for, started before there is a runtime.
pub(super) enum Servers {
    Embedded,
    ZooKeeper(zookeeper::Servers),
    #[cfg(feature = "redis")]
    Redis(Daemon),
    #[cfg(feature = "postgres")]
    Postgres(Postgres),
}

/// A PostgreSQL server, and a way to it.
#[cfg(feature = "postgres")]
pub(super) struct Postgres {
    server: Arc<Daemon>,
    pooler: Option<Daemon>,
    wake: &'static str,
}

impl Servers {
    /// The contract is tested on each of them.
    pub(super) fn of_run() -> Vec<Self> {
        #[cfg(feature = "redis")]
        if is_on("redis") {
            return vec![Self::Redis(daemon::redis(&[]).unwrap())];
        }
        #[cfg(feature = "postgres")]
        if is_on("postgres") {
            let server = Arc::new(daemon::postgres(&["max_connections=500"]).unwrap());
            let pooler = pgbouncer(server.address(), "").unwrap();
            let ways = [("notify", None), ("poll", None), ("poll", Some(pooler))];
            let ways = ways.map(|(wake, pooler)| {
                let server = Arc::clone(&server);
                Self::Postgres(Postgres {
                    server,
                    pooler,
                    wake,
                })
            });
            return ways.into();
        }
        let on = On::from_env().unwrap();
        vec![match on.members() {
            None => Self::Embedded,
            Some(count) => Self::ZooKeeper(zookeeper::Servers::start(count).unwrap()),
        }]
    }
}

/// The suites of recipes do not run on these stores yet.
#[cfg(any(feature = "postgres", feature = "redis"))]
pub(super) fn is_on(store: &str) -> bool {
    std::env::var("LOCKKEEPER_TEST_ON").is_ok_and(|word| word == store)
}

enum World {
    Simulated(Arc<SimWorld>),
    Embedded(EmbeddedServer),
    ZooKeeper(zookeeper::Servers),
    #[cfg(feature = "redis")]
    Redis(Daemon),
    #[cfg(feature = "postgres")]
    Postgres(Postgres),
}

pub(super) struct Bed(World);

/// A session, and its way to the server.
pub(super) struct Session {
    pub(super) link: Arc<dyn Link>,
    way: Option<Relay>,
}

impl std::ops::Deref for Session {
    type Target = dyn Link;

    fn deref(&self) -> &Self::Target {
        &*self.link
    }
}

impl Session {
    /// Closes its connection, and lets no other be made until the way is opened.
    pub(super) fn cut(&self) {
        self.way.as_ref().unwrap().set(Way::Refusing);
    }

    /// Nothing arrives any more, in either direction, and no connection ends.
    pub(super) fn silence(&self) {
        self.way.as_ref().unwrap().set(Way::Silent);
    }

    pub(super) fn heal(&self) {
        self.way.as_ref().unwrap().set(Way::Open);
    }

    /// Gives the session up, as a keeper does that is closed.
    pub(super) fn close(self) -> Option<Relay> {
        drop(self.link);
        self.way
    }
}

impl Bed {
    pub(super) fn simulated() -> Self {
        let world = SimWorld::new(7, 0, 0);
        world.calm();
        Self(World::Simulated(world))
    }

    pub(super) async fn on(servers: Servers) -> Self {
        Self(match servers {
            Servers::Embedded => World::Embedded(EmbeddedServer::start().await.unwrap()),
            Servers::ZooKeeper(servers) => World::ZooKeeper(servers),
            #[cfg(feature = "redis")]
            Servers::Redis(server) => World::Redis(server),
            #[cfg(feature = "postgres")]
            Servers::Postgres(postgres) => {
                ready(postgres.server.address()).await;
                World::Postgres(postgres)
            }
        })
    }

    pub(super) fn engine(&self) -> &'static str {
        match &self.0 {
            World::Simulated(_) => "the simulated link",
            World::Embedded(_) => "the embedded server",
            World::ZooKeeper(_) => "ZooKeeper",
            #[cfg(feature = "redis")]
            World::Redis(_) => "Redis",
            #[cfg(feature = "postgres")]
            World::Postgres(postgres) => match (postgres.wake, &postgres.pooler) {
                ("notify", _) => "PostgreSQL",
                (_, None) => "PostgreSQL, polling",
                (_, Some(_)) => "PostgreSQL, polling behind PgBouncer",
            },
        }
    }

    pub(super) fn has_ways(&self) -> bool {
        !matches!(self.0, World::Simulated(_))
    }

    /// A session, in a part of the tree that another session of the case may be given, too.
    pub(super) async fn open(&self) -> Session {
        let server = match &self.0 {
            World::Simulated(world) => {
                let opener = SimOpener(Arc::clone(world));
                let link = opener.open(SOON).await.unwrap();
                return Session { link, way: None };
            }
            World::Embedded(server) => server.addr(),
            World::ZooKeeper(servers) => servers.addresses()[0],
            #[cfg(feature = "redis")]
            World::Redis(server) => server.address(),
            #[cfg(feature = "postgres")]
            World::Postgres(postgres) => {
                let pooler = postgres.pooler.as_ref();
                pooler.unwrap_or(&postgres.server).address()
            }
        };
        let way = Relay::to(server).await;
        let link = match &self.0 {
            #[cfg(feature = "redis")]
            World::Redis(_) => redis_link(way.address()).await,
            #[cfg(feature = "postgres")]
            World::Postgres(postgres) => postgres_link(way.address(), postgres.wake).await,
            _ => zookeeper_link(way.address()).await,
        };
        let way = Some(way);
        Session { link, way }
    }

    /// Two sessions, and a directory that no other case has.
    pub(super) async fn pair(&self) -> (Session, Session, String) {
        let (ours, theirs) = (self.open().await, self.open().await);
        let root = format!("/{}", uuid::Uuid::new_v4().simple());
        ours.create(&root, b"", Create::Persistent).await.unwrap();
        theirs.sync(&root).await.unwrap();
        (ours, theirs, root)
    }
}

async fn zookeeper_link(server: SocketAddr) -> Arc<dyn Link> {
    let target = Target {
        servers: server.to_string(),
        session_timeout: SESSION_TIMEOUT,
        ..Target::default()
    };
    target.open(SOON).await.unwrap()
}

#[cfg(feature = "redis")]
async fn redis_link(server: SocketAddr) -> Arc<dyn Link> {
    use crate::link::redis::RedisTarget;
    let target = RedisTarget::new(&format!("redis://{server}"), SESSION_TIMEOUT, true).unwrap();
    target.open(SOON).await.unwrap()
}

#[cfg(feature = "postgres")]
async fn postgres_link(server: SocketAddr, wake: &str) -> Arc<dyn Link> {
    use crate::link::postgres::PostgresTarget;
    let url = format!("postgres://postgres@{server}/postgres?wake={wake}");
    let target = PostgresTarget::new(&url, SESSION_TIMEOUT, true).unwrap();
    target.open(SOON).await.unwrap()
}

/// A server of PostgreSQL listens before it serves.
#[cfg(feature = "postgres")]
pub(super) async fn ready(server: SocketAddr) {
    let url = format!("postgres://postgres@{server}/postgres");
    super::until("the server serves", async || {
        let opened = tokio_postgres::connect(&url, tokio_postgres::NoTls).await;
        opened.is_ok()
    })
    .await;
}
