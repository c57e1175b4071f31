//! The usual locks on `PostgreSQL`: an advisory lock, a row that only one can insert, and one that
//! only one can lock.
//!
//! Each waiter has a connection of its own, as programs have. An advisory lock is waited for at the
//! server, in a queue. The others are asked for again after a pause, in any order.

use std::sync::{Arc, Mutex, PoisonError};

use tokio_postgres::types::Type;
use tokio_postgres::{Client, NoTls, SimpleQueryMessage};

use super::contender::Contender;
use super::polling::Refused;
use super::shared;
use crate::Result;
use crate::peer::Store;

const TABLE: &str =
    "CREATE TABLE IF NOT EXISTS bench_rows (lock text PRIMARY KEY, holder text NOT NULL)";

/// How a lock is asked for, and given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Advisory,
    UniqueRow,
    ForUpdate,
}

#[derive(Clone)]
pub(super) struct Postgres {
    way: Way,
    server: Arc<str>,
    aside: Arc<Client>,
    /// Connections that nobody uses at the moment: opening them is not measured.
    idle: Arc<Mutex<Vec<Arc<Client>>>>,
    refused: Refused,
}

/// The connection that holds it, and its name.
pub(super) struct Hold(Arc<Client>, String);

impl Postgres {
    pub(super) async fn connect(server: &str, aside: &str, way: Way) -> Result<Self> {
        let aside = open(aside).await?;
        aside.batch_execute(TABLE).await?;
        Ok(Self {
            way,
            server: server.into(),
            aside,
            idle: Arc::default(),
            refused: Refused::default(),
        })
    }

    /// Whether it has the lock now. An advisory lock is waited for meanwhile.
    async fn try_lock(&self, name: &str, client: &Client) -> Result<bool> {
        let ask = match self.way {
            Way::Advisory => "SELECT pg_advisory_lock(hashtextextended($1, 0))",
            Way::UniqueRow => {
                "INSERT INTO bench_rows VALUES ($1, 'holder') ON CONFLICT DO NOTHING RETURNING true"
            }
            Way::ForUpdate => return try_row(name, client).await,
        };
        let rows = client.query_typed(ask, &[(&name, Type::TEXT)]).await?;
        Ok(!rows.is_empty())
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<Arc<Client>>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A transaction that has the row, or none.
async fn try_row(name: &str, client: &Client) -> Result<bool> {
    // Both in one round trip. The names are our own.
    let both =
        format!("BEGIN; SELECT true FROM bench_rows WHERE lock = '{name}' FOR UPDATE SKIP LOCKED");
    let said = client.simple_query(&both).await?;
    let is_row = |message: &SimpleQueryMessage| matches!(message, SimpleQueryMessage::Row(_));
    let is_ours = said.iter().any(is_row);
    if !is_ours {
        client.batch_execute("ROLLBACK").await?;
    }
    Ok(is_ours)
}

async fn open(server: &str) -> Result<Arc<Client>> {
    let (client, connection) =
        tokio_postgres::connect(&shared::url(Store::Postgres, server), NoTls).await?;
    // It ends with its client.
    tokio::spawn(connection);
    Ok(Arc::new(client))
}

impl Contender for Postgres {
    type Seat = Arc<Client>;
    type Hold = Hold;

    async fn prepare(&self, name: &str) -> Result<()> {
        if self.way == Way::ForUpdate {
            let insert = format!(
                "INSERT INTO bench_rows VALUES ('{name}', 'anybody') ON CONFLICT DO NOTHING"
            );
            self.aside.batch_execute(&insert).await?;
        }
        Ok(())
    }

    async fn seat(&self) -> Result<Arc<Client>> {
        let idle = self.idle().pop();
        match idle {
            Some(client) => Ok(client),
            None => open(&self.server).await,
        }
    }

    async fn leave(&self, client: Arc<Client>) -> Result<()> {
        self.idle().push(client);
        Ok(())
    }

    async fn lock(&self, name: &str, client: &Arc<Client>) -> Result<Hold> {
        self.refused
            .until_granted(|| self.try_lock(name, client))
            .await?;
        Ok(Hold(Arc::clone(client), name.to_owned()))
    }

    async fn unlock(&self, Hold(client, name): Hold) -> Result<()> {
        let give = match self.way {
            Way::Advisory => "SELECT pg_advisory_unlock(hashtextextended($1, 0))",
            Way::UniqueRow => {
                "DELETE FROM bench_rows WHERE lock = $1 AND holder = 'holder' RETURNING true"
            }
            Way::ForUpdate => return Ok(client.batch_execute("COMMIT").await?),
        };
        let rows = client.query_typed(give, &[(&name, Type::TEXT)]).await?;
        match rows.first().map(|row| row.try_get(0)) {
            Some(Ok(true)) => Ok(()),
            _ => Err("the lock was no longer ours".into()),
        }
    }

    async fn all_wait(&self, _: &str, waiters: usize) -> Result<bool> {
        if self.way != Way::Advisory {
            return Ok(self.refused.count() >= waiters);
        }
        let count = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted";
        let waiting: i64 = self.aside.query_one(count, &[]).await?.try_get(0)?;
        Ok(usize::try_from(waiting)? >= waiters)
    }
}
