//! What the cases stand on: a kind of lock, and its server.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use lockkeeper::compat::{KINDS, PlainKeeper, PlainMutex, PlainStore, connect};
use testbench::daemon::{self, Daemon};

use crate::memory::Memory;
use crate::sql::Database;

/// Long enough for a busy machine, and short enough to be waited for.
pub const TTL: Duration = Duration::from_secs(2);

/// A case, for each kind of lock. The name of the lock is its own.
#[derive(Clone, Copy)]
pub struct Case {
    pub name: &'static str,
    /// The kinds that it is for.
    pub is_for: fn(&str) -> bool,
    pub run: fn(Arc<Bed>, String) -> BoxFuture<'static, ()>,
}

/// Makes cases of async functions; `if` says for which kinds.
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
        pub const CASES: &[$crate::bed::Case] = &[$($crate::bed::Case {
            name: stringify!($name),
            is_for: |_| true,
            run: |bed, name| Box::pin($name(bed, name)),
        }),*];
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
    Sql(Database),
}

/// All kinds, with their servers started; or the store in memory alone.
pub fn beds() -> Result<Vec<Arc<Bed>>, String> {
    let memory = Bed {
        kind: "memory",
        server: Server::Memory(Memory::default()),
    };
    let mut beds = vec![Arc::new(memory)];
    let word = std::env::var("LOCKKEEPER_TEST_ON").unwrap_or_default();
    if word == "plain" {
        for (kind, _) in KINDS {
            beds.push(Arc::new(Bed::start(kind)?));
        }
    }
    Ok(beds)
}

impl Bed {
    fn start(kind: &'static str) -> Result<Self, String> {
        let server = match kind.split_once('+') {
            Some(("redis", _)) => Server::Redis(daemon::redis(&[])?),
            Some(("postgres" | "mysql", _)) => Server::Sql(Database::start(kind)?),
            _ => return Err(format!("no server is known for {kind}")),
        };
        Ok(Self { kind, server })
    }

    /// A client of its own.
    pub async fn keeper(&self) -> PlainKeeper<dyn PlainStore> {
        match &self.server {
            Server::Memory(memory) => PlainKeeper::new(memory.clone()).erased(),
            Server::Redis(daemon) => {
                let url = format!("{}://{}", self.kind, daemon.address());
                connect(&url).await.unwrap()
            }
            Server::Sql(database) => connect(&database.url()).await.unwrap(),
        }
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
            Server::Redis(daemon) => {
                let client = redis::Client::open(format!("redis://{}", daemon.address())).unwrap();
                let mut connection = client.get_multiplexed_async_connection().await.unwrap();
                let removed = redis::cmd("DEL")
                    .arg(name)
                    .query_async(&mut connection)
                    .await;
                let removed: i64 = removed.unwrap();
                assert_eq!(removed, 1, "{name} was there");
            }
        }
    }
}

impl fmt::Debug for Bed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind)
    }
}
