//! What the cases stand on: a kind of lock, and its server.

use std::fmt;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
use lockkeeper::compat::{Capabilities, KINDS, PlainKeeper, PlainMutex, PlainStore, connect};
use testbench::daemon::{self, Daemon};
use testbench::plain::PlainTrial;

use crate::memory::Memory;
use crate::sql::Database;
use crate::tair::TairStandIn;

/// Long enough for a busy machine, and short enough to be waited for.
pub const TTL: Duration = Duration::from_secs(2);

/// Names the file of TairString's module, which Redis then loads instead of the stand-in.
pub const TAIR: &str = "LOCKKEEPER_TAIR_MODULE";

/// A case, for each kind of lock. The name of the lock is its own.
#[derive(Clone, Copy)]
pub struct Case {
    pub name: &'static str,
    /// The kinds that it is for.
    pub is_for: fn(&str) -> bool,
    pub run: fn(Arc<Bed>, String) -> BoxFuture<'static, ()>,
}

/// Makes cases of async functions: for all kinds of lock, for those that are named first, or for
/// those of which `if` says so.
#[macro_export]
macro_rules! cases {
    (if $is_for:expr; $($name:ident),* $(,)?) => {
        &[$($crate::bed::Case {
            name: stringify!($name),
            is_for: $is_for,
            run: |bed, name| Box::pin($name(bed, name)),
        }),*]
    };
    ($($name:ident),* $(,)?) => {
        $crate::cases![[] $($name),*];
    };
    ([$($kind:literal),*] $($name:ident),* $(,)?) => {
        pub const CASES: &[$crate::bed::Case] = &[$($crate::bed::Case {
            name: stringify!($name),
            is_for: |kind| KINDS_OF_CASES.is_empty() || KINDS_OF_CASES.contains(&kind),
            run: |bed, name| Box::pin($name(bed, name)),
        }),*];
        const KINDS_OF_CASES: &[&str] = &[$($kind),*];
    };
}

/// A kind of lock with its server.
pub struct Bed {
    pub kind: &'static str,
    server: Server,
}

enum Server {
    Memory(Memory),
    Redis(Daemon),
    /// Several independent ones, and when all may be counted.
    Redlock(Vec<Daemon>, Instant),
    Tair(TairStandIn),
    Memcached(Daemon),
    Sql(Database),
}

/// All kinds, with their servers started; or the store in memory alone. A filter that names a kind
/// starts no other one.
pub fn beds(filter: Option<&str>) -> Result<Vec<Arc<Bed>>, String> {
    let memory = Bed {
        kind: "memory",
        server: Server::Memory(Memory::default()),
    };
    let mut beds = vec![Arc::new(memory)];
    let word = std::env::var("LOCKKEEPER_TEST_ON").unwrap_or_default();
    if word == "plain" {
        let named = filter.and_then(|filter| filter.split_once("::"));
        let is_wanted = |kind: &str| named.is_none_or(|(named, _)| named == kind);
        for (kind, _) in KINDS.iter().filter(|(kind, _)| is_wanted(kind)) {
            beds.push(Arc::new(Bed::start(kind)?));
        }
    }
    Ok(beds)
}

/// Each case on each kind that it is for.
pub fn trials(beds: &[Arc<Bed>], cases: &[Case]) -> Vec<PlainTrial> {
    let mut trials = Vec::new();
    for bed in beds {
        for case in cases.iter().filter(|case| (case.is_for)(bed.kind)) {
            let (bed, run) = (Arc::clone(bed), case.run);
            trials.push(PlainTrial {
                kind: bed.kind,
                case: case.name.to_owned(),
                run: Box::new(move |name| run(bed, name)),
            });
        }
    }
    trials
}

impl Bed {
    fn start(kind: &'static str) -> Result<Self, String> {
        let server = match kind.split_once('+') {
            Some(("redis", "redlock")) => {
                let servers: Result<_, _> = (0..3).map(|_| daemon::redis(&[])).collect();
                Server::Redlock(servers?, Instant::now() + Duration::from_secs(32))
            }
            Some(("redis", "tair")) => match std::env::var(TAIR) {
                Err(_) => Server::Tair(TairStandIn::start()?),
                Ok(module) => Server::Redis(daemon::redis(&["--loadmodule", &module])?),
            },
            Some(("redis", _)) => Server::Redis(daemon::redis(&[])?),
            Some(("memcached", _)) => Server::Memcached(daemon::memcached(&[])?),
            Some(("postgres" | "mysql", _)) => Server::Sql(Database::start(kind)?),
            _ => return Err(format!("no server is known for {kind}")),
        };
        Ok(Self { kind, server })
    }

    /// A client of its own.
    pub async fn keeper(&self) -> PlainKeeper<dyn PlainStore> {
        match &self.server {
            Server::Memory(memory) => PlainKeeper::new(memory.clone()).erased(),
            _ => connect(&self.url().await).await.unwrap(),
        }
    }

    /// The connect string, as soon as the servers grant locks.
    pub async fn url(&self) -> String {
        match &self.server {
            Server::Sql(database) => return database.url(),
            Server::Redlock(_, counted) => {
                // The longest ttl of the cases after its start, a server is counted.
                tokio::time::sleep_until((*counted).into()).await;
            }
            _ => {}
        }
        format!("{}://{}", self.kind, self.servers())
    }

    /// The database of a kind in one.
    pub fn database(&self) -> &Database {
        match &self.server {
            Server::Sql(database) => database,
            _ => panic!("{} is in no database", self.kind),
        }
    }

    /// A lock of a client of its own.
    pub async fn lock(&self, name: &str) -> PlainMutex<dyn PlainStore> {
        let lock = self.keeper().await.mutex(name).unwrap();
        lock.with_ttl(TTL).unwrap()
    }

    /// Frees the lock as an operator would.
    pub async fn remove(&self, name: &str) {
        match &self.server {
            Server::Memory(memory) => memory.remove(name),
            Server::Sql(database) => database.remove(name).await,
            Server::Redis(_) => {
                let mut connection = self.redis().await;
                let removed = redis::cmd("DEL")
                    .arg(name)
                    .query_async(&mut connection)
                    .await;
                let removed: i64 = removed.unwrap();
                assert_eq!(removed, 1, "{name} was there");
            }
            Server::Redlock(daemons, _) => {
                for daemon in daemons {
                    let url = format!("redis://{}", daemon.address());
                    let client = redis::Client::open(url).unwrap();
                    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
                    let mut delete = redis::cmd("DEL");
                    let _removed: i64 =
                        delete.arg(name).query_async(&mut connection).await.unwrap();
                }
            }
            Server::Tair(server) => assert!(server.remove(name), "{name} was there"),
            Server::Memcached(_) => {
                let answer = self.memcached(&format!("delete {name}\r\n"));
                assert_eq!(answer, "DELETED\r\n", "{name} was there");
            }
        }
    }
}

impl Bed {
    /// What its kind declares.
    pub async fn capabilities(&self) -> Capabilities {
        match &self.server {
            // It would wait until its servers are counted.
            Server::Redlock(..) => {
                let url = format!("{}://{}", self.kind, self.servers());
                connect(&url).await.unwrap()
            }
            _ => self.keeper().await,
        }
        .store()
        .capabilities()
    }

    pub fn addresses(&self) -> Vec<SocketAddr> {
        match &self.server {
            Server::Memory(_) => Vec::new(),
            Server::Sql(database) => vec![database.server().address()],
            _ => {
                let servers = self.servers();
                servers.split(',').map(|one| one.parse().unwrap()).collect()
            }
        }
    }

    /// The addresses, as programs of others are given them.
    pub fn servers(&self) -> String {
        let addresses: Vec<String> = match &self.server {
            Server::Memory(_) => Vec::new(),
            Server::Sql(database) => vec![database.server().address().to_string()],
            Server::Redis(daemon) | Server::Memcached(daemon) => vec![daemon.address().to_string()],
            Server::Tair(server) => vec![server.address().to_string()],
            Server::Redlock(daemons, _) => daemons
                .iter()
                .map(|one| one.address().to_string())
                .collect(),
        };
        addresses.join(",")
    }

    /// The URL of its servers, at these addresses instead.
    pub fn url_at(&self, servers: &str) -> String {
        match &self.server {
            Server::Sql(database) => database.url().replace(&self.servers(), servers),
            _ => format!("{}://{servers}", self.kind),
        }
    }

    /// The version of a value of Tair.
    pub async fn tair_version(&self, name: &str) -> Option<i64> {
        if let Server::Tair(server) = &self.server {
            return server.version(name);
        }
        let mut get = redis::cmd("EXGET");
        let value = get.arg(name).query_async(&mut self.redis().await).await;
        let value: Option<(String, i64)> = value.unwrap();
        value.map(|(_, version)| version)
    }

    /// Sets what is no value of Tair, whatever is there.
    pub async fn set_string(&self, name: &str) {
        if let Server::Tair(server) = &self.server {
            return server.set_string(name);
        }
        let mut set = redis::cmd("SET");
        let set = set.arg(name).arg("x");
        let _set: () = set.query_async(&mut self.redis().await).await.unwrap();
    }

    /// Redis, for what a case asks of it without a lock.
    pub fn redis_client(&self) -> redis::Client {
        let Server::Redis(daemon) = &self.server else {
            panic!("{self:?} is not on one Redis");
        };
        redis::Client::open(format!("redis://{}", daemon.address())).unwrap()
    }

    pub async fn redis(&self) -> redis::aio::MultiplexedConnection {
        let client = self.redis_client();
        client.get_multiplexed_async_connection().await.unwrap()
    }

    /// Asks memcached for something whose answer is one line.
    pub fn memcached(&self, request: &str) -> String {
        let Server::Memcached(daemon) = &self.server else {
            panic!("{self:?} is no memcached");
        };
        ask(daemon.address(), request)
    }
}

/// Asks a server for something whose answer is one line.
pub fn ask(server: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(server).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer).unwrap();
    answer
}

impl fmt::Debug for Bed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind)
    }
}
