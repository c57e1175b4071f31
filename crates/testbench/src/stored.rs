//! The part of a store beside ZooKeeper that is a case's own: a database of Redis, or a schema of
//! PostgreSQL.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use zookeeper_client::Error;

use super::protocol::Protocol;
use super::stranger::{Database, Schema, SchemaSession, Session, Stranger};

pub(crate) enum Stored {
    Redis(Database),
    Postgres(Schema),
}

impl Stored {
    /// Makes it; nobody waits for clients of before.
    pub(crate) async fn make(&self) -> Result<(), Error> {
        match self {
            Self::Redis(database) => Session::open(database).await.map(drop),
            Self::Postgres(schema) => schema.make().await,
        }
    }

    /// The connect string of a keeper whose connections go to this address.
    pub(crate) fn at(&self, address: SocketAddr) -> String {
        match self {
            Self::Redis(database) => database.at(address),
            Self::Postgres(schema) => schema.at(address),
        }
    }

    pub(crate) fn protocol(&self) -> Protocol {
        match self {
            Self::Redis(_) => Protocol::Redis,
            Self::Postgres(_) => Protocol::Postgres,
        }
    }

    pub(crate) async fn stranger(&self) -> Result<Stranger, Error> {
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

    /// How many paths each session watches, and their bytes.
    pub(crate) async fn watched(&self) -> Result<BTreeMap<String, (usize, usize)>, Error> {
        match self {
            Self::Redis(database) => database.watched_by_session().await,
            Self::Postgres(schema) => schema.watched_by_session().await,
        }
    }
}
