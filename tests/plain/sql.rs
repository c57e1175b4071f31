//! Databases for the cases, and what an operator does in them.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use lockkeeper::Result;
use lockkeeper::compat::sql::UniqueRow;
use mysql_async::prelude::Queryable;
use testbench::daemon::{self, Daemon};

/// A database of one kind of lock.
pub struct Database {
    kind: &'static str,
    server: &'static Daemon,
}

/// One server of each for all kinds: each kind has its own table.
fn server(family: &str) -> std::result::Result<&'static Daemon, String> {
    static POSTGRES: OnceLock<std::result::Result<Daemon, String>> = OnceLock::new();
    static MARIADB: OnceLock<std::result::Result<Daemon, String>> = OnceLock::new();
    let started = match family {
        "postgres" => POSTGRES.get_or_init(|| daemon::postgres(&["max_connections=500"])),
        _ => MARIADB.get_or_init(|| daemon::mariadb(&[])),
    };
    started.as_ref().map_err(Clone::clone)
}

/// The URL of a server's database.
pub fn url(kind: &str, server: &Daemon) -> String {
    match kind.split_once('+').map_or(kind, |(family, _)| family) {
        "postgres" => format!("{kind}://postgres@{}/postgres", server.address()),
        _ => format!("{kind}://root@{}/test", server.address()),
    }
}

impl Database {
    pub fn start(kind: &'static str) -> std::result::Result<Self, String> {
        let (family, _) = kind.split_once('+').unwrap_or((kind, ""));
        let server = server(family)?;
        let database = Self { kind, server };
        let runtime = tokio::runtime::Runtime::new().map_err(|error| error.to_string())?;
        runtime
            .block_on(create(kind, &database.url()))
            .map_err(|error| error.to_string())?;
        Ok(database)
    }

    pub fn url(&self) -> String {
        url(self.kind, self.server)
    }

    /// Frees the lock as an operator would.
    pub async fn remove(&self, name: &str) {
        let sql = match self.kind {
            "postgres+row" => format!(
                "UPDATE lockkeeper_locks SET holder = '', expires = now() WHERE name = '{name}'"
            ),
            "mysql+row" => format!(
                "UPDATE lockkeeper_locks SET holder = '', expires = UTC_TIMESTAMP() \
                 WHERE name = '{name}'"
            ),
            other => panic!("nothing is known of {other}"),
        };
        assert_eq!(self.execute(&sql).await, 1, "{name} was there");
    }

    /// Runs a statement as an operator. It returns how many rows it has written, or read.
    pub async fn execute(&self, sql: &str) -> u64 {
        execute(self.kind, self.server, sql).await
    }
}

pub async fn execute(kind: &str, server: &Daemon, sql: &str) -> u64 {
    if kind.starts_with("postgres") {
        let url = url("postgres", server);
        let (client, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls)
            .await
            .unwrap();
        tokio::spawn(connection);
        return client.execute(sql, &[]).await.unwrap();
    }
    let mut conn = mysql_async::Conn::from_url(url("mysql", server)).await.unwrap();
    let rows: Vec<mysql_async::Row> = conn.query(sql).await.unwrap();
    let written = conn.affected_rows().max(rows.len() as u64);
    conn.disconnect().await.unwrap();
    written
}

/// Makes the table of a kind, as soon as the server takes connections.
async fn create(kind: &str, url: &str) -> Result<()> {
    let begun = Instant::now();
    loop {
        let created = match kind.split_once('+') {
            Some((_, "row")) => UniqueRow::create_table(url).await,
            _ => Ok(()),
        };
        match created {
            // Said by a server that starts.
            Err(error) if begun.elapsed() < Duration::from_secs(20) && is_passing(&error) => {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            other => return other,
        }
    }
}

fn is_passing(error: &lockkeeper::Error) -> bool {
    matches!(
        error,
        lockkeeper::Error::Store {
            problem: lockkeeper::compat::StoreProblem::Unreachable(_)
                | lockkeeper::compat::StoreProblem::NoAnswer,
            ..
        }
    )
}
