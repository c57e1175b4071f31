//! The raw operations of a lock on PostgreSQL.
//!
//! A free lock is a row that is inserted and deleted, which are two bare commits. A crowd has rows
//! that are numbered, a notification for the next one, and a read of the first.

use std::collections::HashMap;
use std::error::Error;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tokio::sync::{mpsc, oneshot};
use tokio_postgres::error::SqlState;
use tokio_postgres::tls::NoTlsStream;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{AsyncMessage, Client, Config, Connection, NoTls, Row, Socket};
use uuid::Uuid;

use super::baseline::RawLane;
use super::bench_dir::{RawStore, Reach};
use super::sample::Result;

/// Those who wait, by what wakes them.
type Waiting = Arc<Mutex<HashMap<String, oneshot::Sender<()>>>>;

/// A connection, and a table of our own beside Lockkeeper's.
pub struct PostgresDir {
    client: Arc<Client>,
    path: String,
    schema: String,
    /// The two tables are called so, with another end.
    table: String,
    channel: Arc<str>,
    waiting: Waiting,
}

impl RawStore for PostgresDir {
    type Lane = PostgresLane;
    const LEFT: &'static str = "drop its tables if they are, which begin with bench_";

    async fn open(reach: &Reach, path: &str) -> Result<Self> {
        let (config, schema) = config(&reach.servers)?;
        let (client, connection) = config.connect(NoTls).await?;
        let waiting = Waiting::default();
        // It ends with its client.
        tokio::spawn(wake(Arc::clone(&waiting), connection));
        let channel = format!("lockkeeper_bench_{}", Uuid::new_v4().simple());
        client.batch_execute(&format!("LISTEN {channel}")).await?;
        let id = path.split("/bench-").nth(1).unwrap_or_default();
        let id = id.split('/').next().unwrap_or_default();
        Ok(Self {
            client: Arc::new(client),
            path: path.to_owned(),
            table: format!("{schema}.bench_{id}"),
            schema,
            channel: channel.into(),
            waiting,
        })
    }

    async fn lane(&self, name: &str) -> Result<PostgresLane> {
        let table = &self.table;
        let make = format!(
            "CREATE TABLE IF NOT EXISTS {table}_locks (lock text PRIMARY KEY, holder text NOT NULL); \
             CREATE TABLE IF NOT EXISTS {table}_queue (lock text, number bigserial, PRIMARY KEY (lock, number))"
        );
        self.client.batch_execute(&make).await?;
        Ok(PostgresLane {
            client: Arc::clone(&self.client),
            table: table.clone(),
            lock: name.to_owned(),
            channel: Arc::clone(&self.channel),
            waiting: Arc::clone(&self.waiting),
        })
    }

    async fn tickets(&self, name: &str) -> Result<usize> {
        let sql = format!(
            "SELECT children FROM {}.nodes WHERE dir = $1 AND name = $2",
            self.schema
        );
        let asked: [Parameter<'_>; 2] = [(&self.path, Type::TEXT), (&name, Type::TEXT)];
        let rows = self.client.query_typed(&sql, &asked).await?;
        let Some(row) = rows.first() else {
            return Ok(0);
        };
        Ok(usize::try_from(row.try_get::<_, i32>(0)?)?)
    }

    /// Lockkeeper removes its empty directories by itself.
    async fn clear(self) -> Result<()> {
        let table = &self.table;
        let drop = format!("DROP TABLE IF EXISTS {table}_locks, {table}_queue");
        Ok(self.client.batch_execute(&drop).await?)
    }
}

/// What the URL says to PostgreSQL, and the schema that it says to us.
fn config(url: &str) -> Result<(Config, String)> {
    let (address, query) = url.split_once('?').unwrap_or((url, ""));
    let (mut schema, mut theirs) = ("lockkeeper", Vec::new());
    for part in query.split('&') {
        match part.split_once('=') {
            Some(("schema", name)) => schema = name,
            Some(("wake", "poll")) => {
                return Err("a pooler loses the notifications of the baseline: name the server itself, without wake=poll".into());
            }
            Some(("wake" | "sslmode", _)) => {}
            _ => theirs.push(part),
        }
    }
    let config = format!("{address}?{}", theirs.join("&")).parse()?;
    Ok((config, schema.to_owned()))
}

/// Whether it failed for lack of permission.
pub(super) fn is_denied(error: &(dyn Error + 'static)) -> bool {
    let error = error.downcast_ref::<tokio_postgres::Error>();
    let code = error.and_then(tokio_postgres::Error::code);
    code == Some(&SqlState::INSUFFICIENT_PRIVILEGE)
}

/// Wakes those whose number is told.
async fn wake(waiting: Waiting, mut connection: Connection<Socket, NoTlsStream>) {
    while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await {
        if let AsyncMessage::Notification(told) = message {
            let woken = locked(&waiting).remove(told.payload());
            if let Some(woken) = woken {
                woken.send(()).unwrap_or_default();
            }
        }
    }
    // Who still waits learns it by the end of the channel.
    locked(&waiting).clear();
}

fn locked(waiting: &Waiting) -> MutexGuard<'_, HashMap<String, oneshot::Sender<()>>> {
    waiting.lock().unwrap_or_else(PoisonError::into_inner)
}

type Parameter<'a> = (&'a (dyn ToSql + Sync), Type);

/// The rows of one lock.
pub struct PostgresLane {
    client: Arc<Client>,
    table: String,
    lock: String,
    channel: Arc<str>,
    waiting: Waiting,
}

impl PostgresLane {
    /// One statement, which is one commit. It is not prepared, as Lockkeeper's are not.
    async fn ask(&self, sql: &str, more: &[Parameter<'_>]) -> Result<Row> {
        let sql = sql.replace("%T", &self.table);
        let mut parameters: Vec<Parameter<'_>> = vec![(&self.lock, Type::TEXT)];
        parameters.extend_from_slice(more);
        let rows = self.client.query_typed(&sql, &parameters).await?;
        let row = rows.into_iter().next();
        row.ok_or_else(|| format!("{} was another's", self.lock).into())
    }
}

impl RawLane for PostgresLane {
    type Ticket = i64;

    async fn pass(&self) -> Result<()> {
        let secret = Uuid::new_v4().simple().to_string();
        let holder: [Parameter<'_>; 1] = [(&secret, Type::TEXT)];
        let take = "INSERT INTO %T_locks (lock, holder) VALUES ($1, $2) RETURNING true";
        self.ask(take, &holder).await?;
        let give = "DELETE FROM %T_locks WHERE lock = $1 AND holder = $2 RETURNING true";
        self.ask(give, &holder).await.map(drop)
    }

    async fn join(&self) -> Result<i64> {
        let join = "INSERT INTO %T_queue (lock) VALUES ($1) RETURNING number";
        Ok(self.ask(join, &[]).await?.try_get(0)?)
    }

    async fn wait(&self, armed: mpsc::UnboundedSender<()>) -> Result<Instant> {
        let mine = self.join().await?;
        let (wake, woken) = oneshot::channel();
        locked(&self.waiting).insert(mine.to_string(), wake);
        // The receiver is there until all are armed.
        armed.send(()).unwrap_or_default();
        woken.await?;
        let look = "SELECT min(number) FROM %T_queue WHERE lock = $1";
        let first: i64 = self.ask(look, &[]).await?.try_get(0)?;
        if first != mine {
            return Err(format!("{mine} was woken in the turn of {first}").into());
        }
        let granted = Instant::now();
        self.leave(&mine).await?;
        Ok(granted)
    }

    async fn leave(&self, ticket: &i64) -> Result<()> {
        let leave = "WITH gone AS (DELETE FROM %T_queue WHERE lock = $1 AND number = $2) \
                     SELECT true FROM pg_notify($3, coalesce( \
                     (SELECT min(number)::text FROM %T_queue WHERE lock = $1 AND number > $2), ''))";
        let channel = &*self.channel;
        let more: [Parameter<'_>; 2] = [(ticket, Type::INT8), (&channel, Type::TEXT)];
        self.ask(leave, &more).await.map(drop)
    }
}
