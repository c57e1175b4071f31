//! A stranger on PostgreSQL: a session by the functions of the link, and one that ends other
//! sessions.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::sleep;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, NoTls, Row};
use uuid::Uuid;
use zookeeper_client::{Error, Stat};

use super::{Change, LONGEST, Make, Result};

const SCHEMA: &str = include_str!("../../../../src/link/postgres/schema.sql");
const TIMEOUT: Duration = Duration::from_secs(10);
/// Nobody was there before, so a first session makes the root one that is not waited for.
const OPEN: &str = "SELECT status, pzxid FROM %S.open($1, $2, $3, 1, 10000000, %L, 5000000, true)";

type Parameter<'a> = (&'a (dyn ToSql + Sync), Type);

fn failed(error: impl std::fmt::Display) -> Error {
    Error::UnexpectedError(error.to_string())
}

fn of_server(error: tokio_postgres::Error) -> Error {
    match error.as_db_error() {
        Some(error) => failed(error),
        None => failed(error),
    }
}

fn read<'a, T: tokio_postgres::types::FromSql<'a>>(row: &'a Row, column: &str) -> Result<T> {
    row.try_get(column).map_err(of_server)
}

/// Schemas are spread over so many databases.
const DATABASES: usize = 8;

/// A schema in a database of a PostgreSQL server.
#[derive(Clone, Debug)]
pub struct Schema {
    pub server: SocketAddr,
    pub number: usize,
}

impl Schema {
    /// The connect string of a keeper whose connections go to this address.
    pub fn at(&self, address: SocketAddr) -> String {
        format!(
            "postgres://postgres@{address}/{}?schema={}",
            self.database(),
            self.name()
        )
    }

    pub fn name(&self) -> String {
        format!("it_{}", self.number)
    }

    /// The databases in which schemas are.
    pub(crate) fn databases() -> impl Iterator<Item = String> {
        (0..DATABASES).map(|number| format!("base_{number}"))
    }

    /// A notification wakes all that listen in its database, whatever their schema. So what runs
    /// beside a case is in others.
    fn database(&self) -> String {
        format!("base_{}", self.number % DATABASES)
    }

    /// Makes it, with a root that is new. `longest`: the largest session timeout there.
    pub(crate) async fn make(&self, longest: Duration) -> Result<()> {
        let client = self.connect().await?;
        let schema = SCHEMA.replace("%S", &self.name());
        client.batch_execute(&schema).await.map_err(of_server)?;
        Wire::on(client, self.name(), longest).await?.close().await;
        Ok(())
    }

    pub async fn connect(&self) -> Result<Client> {
        let server = self.server;
        let (host, port, base) = (server.ip(), server.port(), self.database());
        let url = format!("host={host} port={port} user=postgres dbname={base}");
        let (client, connection) = tokio_postgres::connect(&url, NoTls)
            .await
            .map_err(of_server)?;
        // It ends with its client.
        tokio::spawn(connection);
        Ok(client)
    }

    /// Of a statement in which `%S` stands for the schema.
    pub async fn ask(&self, sql: &str) -> Result<Vec<Row>> {
        let client = self.connect().await?;
        let sql = sql.replace("%S", &self.name());
        client.query_typed(&sql, &[]).await.map_err(of_server)
    }

    /// How many paths each session watches, and their bytes.
    pub async fn watched_by_session(&self) -> Result<BTreeMap<String, (usize, usize)>> {
        let rows = self.ask("SELECT DISTINCT session, path FROM %S.watches");
        let mut watched = BTreeMap::<String, (usize, usize)>::new();
        for row in rows.await? {
            let (session, path): (i64, String) = (read(&row, "session")?, read(&row, "path")?);
            let (paths, bytes) = watched.entry(session.to_string()).or_default();
            *paths += 1;
            *bytes += path.len();
        }
        Ok(watched)
    }

    /// Ends a session as the functions do: it is dead from now on, and whoever comes removes what
    /// it has left.
    pub async fn expire(&self, session: i64) -> Result<()> {
        let sql = format!("UPDATE %S.sessions SET dead = true WHERE id = {session}");
        self.ask(&sql).await.map(drop)
    }
}

/// A session, which lives until it is dropped.
#[derive(Debug)]
pub struct SchemaSession {
    wire: Arc<Wire>,
    beats: JoinHandle<()>,
}

impl Drop for SchemaSession {
    fn drop(&mut self) {
        self.beats.abort();
        let wire = Arc::clone(&self.wire);
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move { wire.close().await });
        }
    }
}

impl SchemaSession {
    pub async fn open(schema: &Schema) -> Result<Self> {
        Self::open_root(schema, LONGEST).await
    }

    async fn open_root(schema: &Schema, longest: Duration) -> Result<Self> {
        let wire = Arc::new(Wire::open(schema, longest).await?);
        let theirs = Arc::clone(&wire);
        let beats = tokio::spawn(async move {
            loop {
                sleep(theirs.granted / 4).await;
                // A session that is over has failed its case.
                theirs.write("check", "/", b"", None).await.ok();
            }
        });
        Ok(Self { wire, beats })
    }

    pub(super) fn id(&self) -> i64 {
        self.wire.id
    }

    pub(super) async fn create(&self, path: &str, data: &[u8], make: Make) -> Result<(Stat, i64)> {
        let rows = self.wire.write(make.word(), path, data, None).await?;
        let made = rows.first().ok_or_else(|| failed("nothing was made"))?;
        let (_, stat) = self.node(read(made, "path")?).await?;
        Ok((stat, read::<i32>(made, "version")?.into()))
    }

    pub(super) async fn write(
        &self,
        kind: &str,
        path: &str,
        data: &[u8],
        version: Option<i32>,
    ) -> Result<()> {
        self.wire.write(kind, path, data, version).await.map(drop)
    }

    pub(super) async fn commit(&self, changes: &[Change<'_>]) -> Result<()> {
        let writes = changes.iter().map(|change| match *change {
            Change::Delete(path) => ("delete", path, &b""[..], -1),
            Change::Create(path, make) => (make.word(), path, &b""[..], -1),
        });
        self.wire.multi(writes.collect()).await.map(drop)
    }

    pub(super) async fn node(&self, path: &str) -> Result<(Vec<u8>, Stat)> {
        let row = self.wire.read("d", path).await?;
        let data: Vec<u8> = read(&row, "data")?;
        let czxid = read(&row, "czxid")?;
        let stat = Stat {
            czxid,
            mzxid: czxid,
            pzxid: read(&row, "pzxid")?,
            ctime: 0,
            mtime: 0,
            version: read(&row, "version")?,
            cversion: 0,
            aversion: 0,
            ephemeral_owner: read(&row, "owner")?,
            data_length: data.len() as i32,
            num_children: read(&row, "children")?,
        };
        Ok((data, stat))
    }

    pub(super) async fn names(&self, path: &str) -> Result<Vec<String>> {
        read(&self.wire.read("c", path).await?, "names")
    }
}

/// The connection of a session.
struct Wire {
    id: i64,
    secret: String,
    incarnation: String,
    schema: String,
    granted: Duration,
    client: Client,
}

impl std::fmt::Debug for Wire {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Wire")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

/// The directory of a path, and its name there. The root is two empty words.
fn split(path: &str) -> (&str, &str) {
    path.rsplit_once('/').unwrap_or_default()
}

impl Wire {
    async fn open(schema: &Schema, longest: Duration) -> Result<Self> {
        Self::on(schema.connect().await?, schema.name(), longest).await
    }

    async fn on(client: Client, schema: String, longest: Duration) -> Result<Self> {
        let hello = format!("SELECT {schema}.hello()");
        let rows = client.query_typed(&hello, &[]).await.map_err(of_server)?;
        let first = rows.first().ok_or_else(|| failed("no greeting"))?;
        let mut wire = Self {
            id: (Uuid::new_v4().as_u64_pair().0 >> 1) as i64,
            secret: Uuid::new_v4().simple().to_string(),
            incarnation: first.try_get(0).map_err(of_server)?,
            schema,
            granted: TIMEOUT,
            client,
        };
        let longest = longest.as_micros().to_string();
        let open = OPEN.replace("%S", &wire.schema).replace("%L", &longest);
        let rows = wire.client.query_typed(&open, &wire.caller()[..3]).await;
        for row in rows.map_err(of_server)? {
            let status: &str = read(&row, "status")?;
            if status != "ok" {
                return Err(failed(status));
            }
            let granted = read::<i64>(&row, "pzxid")?;
            wire.granted = Duration::from_micros(granted.try_into().map_err(failed)?);
        }
        Ok(wire)
    }

    async fn close(&self) {
        let closed = async {
            let mut rows = self.call("close", &[]).await?;
            loop {
                let row = rows.first().ok_or_else(|| failed("no reply"))?;
                let paths: Vec<String> = read::<Option<_>>(row, "names")?.unwrap_or_default();
                if paths.is_empty() {
                    return Ok::<_, Error>(());
                }
                let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
                let [lock_dirs, lock_names, dirs, names, up_dirs, up_names] = places(&paths);
                let reap: [Parameter<'_>; 7] = [
                    (&self.id, Type::INT8),
                    (&lock_dirs, Type::TEXT_ARRAY),
                    (&lock_names, Type::TEXT_ARRAY),
                    (&dirs, Type::TEXT_ARRAY),
                    (&names, Type::TEXT_ARRAY),
                    (&up_dirs, Type::TEXT_ARRAY),
                    (&up_names, Type::TEXT_ARRAY),
                ];
                rows = self.call("reap", &reap).await?;
            }
        };
        // Otherwise its session expires.
        closed.await.ok();
    }

    async fn write(
        &self,
        kind: &str,
        path: &str,
        data: &[u8],
        version: Option<i32>,
    ) -> Result<Vec<Row>> {
        self.multi(vec![(kind, path, data, version.unwrap_or(-1))])
            .await
    }

    async fn multi(&self, writes: Vec<(&str, &str, &[u8], i32)>) -> Result<Vec<Row>> {
        let paths: Vec<&str> = writes.iter().map(|write| write.1).collect();
        let kinds: Vec<&str> = writes.iter().map(|write| write.0).collect();
        let datas: Vec<&[u8]> = writes.iter().map(|write| write.2).collect();
        let versions: Vec<i32> = writes.iter().map(|write| write.3).collect();
        let [lock_dirs, lock_names, dirs, names, up_dirs, up_names] = places(&paths);
        let any = vec![0_i64; writes.len()];
        let multi: [Parameter<'_>; 10] = [
            (&lock_dirs, Type::TEXT_ARRAY),
            (&lock_names, Type::TEXT_ARRAY),
            (&kinds, Type::TEXT_ARRAY),
            (&dirs, Type::TEXT_ARRAY),
            (&names, Type::TEXT_ARRAY),
            (&up_dirs, Type::TEXT_ARRAY),
            (&up_names, Type::TEXT_ARRAY),
            (&datas, Type::BYTEA_ARRAY),
            (&versions, Type::INT4_ARRAY),
            (&any, Type::INT8_ARRAY),
        ];
        self.call("multi", &multi).await
    }

    /// A node, or the names in a directory.
    async fn read(&self, kind: &str, path: &str) -> Result<Row> {
        let (dir, name) = split(path);
        let [kinds, dirs, names] = [[kind], [dir], [name]].map(Vec::from);
        let paths = vec![path.strip_suffix('/').unwrap_or(path)];
        let read: [Parameter<'_>; 4] =
            [&kinds, &dirs, &names, &paths].map(|words| (words as _, Type::TEXT_ARRAY));
        let rows = self.call("read", &read).await?;
        let row = rows.into_iter().next().ok_or(Error::NoNode)?;
        match row.try_get::<_, Option<i64>>("czxid") {
            Ok(None) => Err(Error::NoNode),
            _ => Ok(row),
        }
    }

    fn caller(&self) -> [Parameter<'_>; 4] {
        [
            (&self.incarnation, Type::TEXT),
            (&self.id, Type::INT8),
            (&self.secret, Type::TEXT),
            (&1_i64, Type::INT8),
        ]
    }

    async fn call(&self, function: &str, more: &[Parameter<'_>]) -> Result<Vec<Row>> {
        let mut parameters = self.caller().to_vec();
        parameters.extend_from_slice(more);
        let places: Vec<String> = (1..=parameters.len()).map(|at| format!("${at}")).collect();
        let sql = format!(
            "SELECT * FROM {}.{function}({})",
            self.schema,
            places.join(", ")
        );
        let rows = self.client.query_typed(&sql, &parameters).await;
        let rows = rows.map_err(of_server)?;
        let Some(first) = rows.first() else {
            return Ok(rows);
        };
        match read(first, "status")? {
            "ok" => Ok(rows),
            "refused" => Err(match read(first, "path")? {
                "no node" => Error::NoNode,
                "exists" => Error::NodeExists,
                "not empty" => Error::NotEmpty,
                "version" => Error::BadVersion,
                other => failed(other),
            }),
            "over" => Err(Error::SessionExpired),
            other => Err(failed(other)),
        }
    }
}

/// The rows that a write at these paths locks; what it is about; and the directories of that.
fn places<'a>(paths: &[&'a str]) -> [Vec<&'a str>; 6] {
    let own: Vec<(&str, &str)> = paths.iter().map(|path| split(path)).collect();
    let up: Vec<(&str, &str)> = own.iter().map(|(dir, _)| split(dir)).collect();
    let all: Vec<(&str, &str)> = own.iter().chain(&up).copied().collect();
    let dirs = |places: &[(&'a str, &'a str)]| places.iter().map(|place| place.0).collect();
    let names = |places: &[(&'a str, &'a str)]| places.iter().map(|place| place.1).collect();
    [
        dirs(&all),
        names(&all),
        dirs(&own),
        names(&own),
        dirs(&up),
        names(&up),
    ]
}
