//! The part of a store beside ZooKeeper that is a case's own: a database of Redis, or a schema of
//! PostgreSQL.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use zookeeper_client::Error;

use super::protocol::Protocol;
use super::stranger::{Database, Schema, SchemaSession, Session, Stranger};

/// The memory of all keys of a database.
const SIZE: &str = "local bytes = 0
for _, key in ipairs(redis.call('KEYS', '*')) do bytes = bytes + redis.call('MEMORY', 'USAGE', key) end
return bytes";

#[derive(Clone, Debug)]
pub enum Stored {
    Redis(Database),
    Postgres(Schema),
}

impl Stored {
    /// Makes it; nobody waits for clients of before. `longest`: the largest session timeout there.
    pub async fn make(&self, longest: Duration) -> Result<(), Error> {
        match self {
            Self::Redis(database) => Session::open_root(database, longest).await.map(drop),
            Self::Postgres(schema) => schema.make(longest).await,
        }
    }

    pub fn server(&self) -> SocketAddr {
        match self {
            Self::Redis(database) => database.server,
            Self::Postgres(schema) => schema.server,
        }
    }

    /// The same part of another server.
    #[must_use]
    pub fn of(&self, server: SocketAddr) -> Self {
        match self {
            Self::Redis(Database { number, .. }) => Self::Redis(Database {
                server,
                number: *number,
            }),
            Self::Postgres(Schema { number, .. }) => Self::Postgres(Schema {
                server,
                number: *number,
            }),
        }
    }

    /// The connect string of a keeper whose connections go to this address.
    pub fn at(&self, address: SocketAddr) -> String {
        match self {
            Self::Redis(database) => database.at(address),
            Self::Postgres(schema) => schema.at(address),
        }
    }

    pub fn protocol(&self) -> Protocol {
        match self {
            Self::Redis(_) => Protocol::Redis,
            Self::Postgres(_) => Protocol::Postgres,
        }
    }

    pub async fn stranger(&self) -> Result<Stranger, Error> {
        Ok(match self {
            Self::Redis(database) => Stranger::Redis(Arc::new(Session::open(database).await?)),
            Self::Postgres(schema) => {
                Stranger::Postgres(Arc::new(SchemaSession::open(schema).await?))
            }
        })
    }

    /// Ends a session, as if its client had been silent for too long.
    pub(crate) async fn expire(&self, session: i64) -> Result<(), Error> {
        match self {
            Self::Redis(database) => database.expire(session).await,
            Self::Postgres(schema) => schema.expire(session).await,
        }
    }

    /// How many sessions it knows.
    pub async fn sessions(&self) -> Result<usize, Error> {
        match self {
            Self::Redis(database) => database.ask(&["ZCARD", "{lockkeeper}:sessions"]).await,
            Self::Postgres(schema) => {
                let rows = schema.ask("SELECT FROM %S.sessions").await?;
                Ok(rows.len())
            }
        }
    }

    /// What its keys take, or its tables with their indexes.
    pub(crate) async fn bytes(&self) -> Result<i64, Error> {
        match self {
            Self::Redis(database) => database.ask(&["EVAL", SIZE, "0"]).await,
            Self::Postgres(schema) => {
                let sizes = "SELECT sum(pg_total_relation_size(oid))::bigint FROM pg_class
                     WHERE relnamespace = '%S'::regnamespace AND relkind = 'r'";
                let rows = schema.ask(sizes).await?;
                Ok(rows.first().map_or(0, |row| row.get(0)))
            }
        }
    }

    /// How many paths each session watches, and their bytes.
    pub async fn watched(&self) -> Result<BTreeMap<String, (usize, usize)>, Error> {
        match self {
            Self::Redis(database) => database.watched_by_session().await,
            Self::Postgres(schema) => schema.watched_by_session().await,
        }
    }
}
