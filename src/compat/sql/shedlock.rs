//! The table of ShedLock, as its JDBC provider uses it with the time of the database.
//!
//! Invariant: only the database's clock is read, in UTC, as `usingDbTime()` does.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt};

use super::row::{SHORTEST_TTL, check_name, millis};
use super::schema::{Table, text, time};
use super::server::SqlServer;
use super::url::{DatabaseKind, SqlUrl};
use crate::compat::keeper::PlainKeeper;
use crate::compat::store::{Acquired, Attempt, Capabilities, PlainStore, StoreResult};
use crate::error::Result;

const LONGEST_NAME: usize = 64;

/// The locks of ShedLock (Java) with its JDBC providers and `usingDbTime()`: either side waits
/// while the other one holds.
///
/// The table is `shedlock`, or what the option `table` of the URL says:
///
/// ```sql
/// CREATE TABLE shedlock (name varchar(64) NOT NULL PRIMARY KEY, lock_until timestamp(3) NOT NULL,
///     locked_at timestamp(3) NOT NULL, locked_by varchar(255) NOT NULL)
/// ```
///
/// `locked_by` is this host and the secret of the guard. The times are in UTC. In PostgreSQL a
/// column with a time zone is refused: it would mean another moment to a client with another zone.
///
/// # What it cannot do
///
/// It is not fair and has no token. ShedLock does not renew unless it is told to: its holders lose
/// their lock after `lockAtMostFor`. Clients without `usingDbTime()` use their own clocks. In
/// MariaDB and MySQL names are compared as the column's collation says, so `A` may be `a`. It is
/// lost where the database loses a commit.
///
/// A `timestamp` of MariaDB and MySQL is stored by the time zone of its session. So all clients
/// must have the same one, which is the server's unless they set another. In a zone with summer
/// time, times of one hour a year do not exist or exist twice: use UTC, or `datetime(3)`.
#[derive(Debug)]
pub struct ShedLock {
    server: Arc<SqlServer>,
    table: Table,
    host: String,
}

impl ShedLock {
    /// Connects to `postgres+shedlock://[user[:password]@]host[:port]/database` or
    /// `mysql+shedlock://...`, with the option `table`.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidOption`](crate::Error::InvalidOption) for a URL that is none;
    /// [`Error::Store`](crate::Error::Store) if there is no such database that writes, if it does
    /// not accept the user, or if the table is not there or has another shape.
    pub async fn connect(url: &str) -> Result<PlainKeeper<Self>> {
        let (server, table) = parts(url)?;
        table.check(&server).await?;
        let host = gethostname::gethostname().to_string_lossy().into_owned();
        Ok(PlainKeeper::new(Self {
            server,
            table,
            host: host.chars().take(60).collect(),
        }))
    }

    /// Makes the table that this URL names.
    ///
    /// # Errors
    ///
    /// As [`connect`](Self::connect); also if it is there already.
    pub async fn create_table(url: &str) -> Result<()> {
        let (server, table) = parts(url)?;
        table.create(&server).await
    }

    fn holder(&self, attempt: &Attempt) -> String {
        format!("{} {}", self.host, attempt.secret)
    }

    async fn take(&self, attempt: &Attempt) -> StoreResult<Acquired> {
        let (holder, ttl, table) = (self.holder(attempt), millis(attempt.ttl), &self.table.name);
        let taken = match self.server.dialect() {
            #[cfg(feature = "postgres")]
            DatabaseKind::Postgres => {
                let sql = format!(
                    "INSERT INTO {table} AS l (name, lock_until, locked_at, locked_by) \
                     VALUES ($1, {PG_NOW} + $2::bigint * interval '1 ms', {PG_NOW}, $3) \
                     ON CONFLICT (name) DO UPDATE SET lock_until = excluded.lock_until, \
                     locked_at = excluded.locked_at, locked_by = excluded.locked_by \
                     WHERE l.lock_until <= {PG_NOW}"
                );
                let params = [&*attempt.name, &ttl, &holder];
                self.server.run_for(attempt, &sql, &params).await?.affected > 0
            }
            #[cfg(feature = "mysql")]
            DatabaseKind::MySql => {
                // What it sets from left to right sees the old `lock_until`.
                let sql = format!(
                    "INSERT INTO {table} (name, lock_until, locked_at, locked_by) VALUES \
                     (?, {MY_NOW} + INTERVAL CAST(? AS SIGNED) * 1000 MICROSECOND, {MY_NOW}, ?) \
                     ON DUPLICATE KEY UPDATE \
                     locked_by = IF(lock_until <= {MY_NOW}, VALUES(locked_by), locked_by), \
                     locked_at = IF(lock_until <= {MY_NOW}, VALUES(locked_at), locked_at), \
                     lock_until = IF(lock_until <= {MY_NOW}, VALUES(lock_until), lock_until)"
                );
                let params = [&*attempt.name, &ttl, &holder];
                self.server.run_for(attempt, &sql, &params).await?.affected > 0
            }
        };
        if taken {
            SqlServer::granted(attempt);
            return Ok(Acquired::Yes { token: None });
        }
        let sql = self.server.dialect().pick(
            format!(
                "SELECT (extract(epoch FROM lock_until - {PG_NOW}) * 1000)::bigint \
                 FROM {table} WHERE name = $1"
            ),
            format!(
                "SELECT TIMESTAMPDIFF(MICROSECOND, {MY_NOW}, lock_until) DIV 1000 \
                 FROM {table} WHERE name = ?"
            ),
        );
        let left = self
            .server
            .ask_for(attempt, &sql, &[&attempt.name])
            .await?
            .millis(0);
        Ok(Acquired::No { left })
    }

    /// Lets the lock end after so long, if it is the attempt's.
    async fn end_after(&self, attempt: &Attempt, left: Duration) -> StoreResult<bool> {
        let (holder, left, name) = (self.holder(attempt), millis(left), &*attempt.name);
        let table = &self.table.name;
        let sql = self.server.dialect().pick(
            format!(
                "UPDATE {table} SET lock_until = {PG_NOW} + $1::bigint * interval '1 ms' \
                 WHERE name = $2 AND locked_by = $3 AND lock_until > {PG_NOW}"
            ),
            format!(
                "UPDATE {table} SET lock_until = \
                 {MY_NOW} + INTERVAL CAST(? AS SIGNED) * 1000 MICROSECOND \
                 WHERE name = ? AND locked_by = ? AND lock_until > {MY_NOW}"
            ),
        );
        let params = [&*left, name, &*holder];
        let done = self.server.run_for(attempt, &sql, &params).await?;
        Ok(done.affected > 0)
    }
}

/// The database's clock in UTC, in PostgreSQL, MariaDB and MySQL.
/// The column has milliseconds and rounds, so a released lock would be held for up to half of one.
const PG_NOW: &str = "date_trunc('milliseconds', timezone('utc', clock_timestamp()))";
const MY_NOW: &str = "UTC_TIMESTAMP(3)";

impl PlainStore for ShedLock {
    fn server(&self) -> &str {
        self.server.server()
    }

    fn capabilities(&self) -> Capabilities {
        let dialect = self.server.dialect();
        Capabilities {
            survives_restart: true,
            ..Capabilities::of(dialect.pick("postgres+shedlock", "mysql+shedlock"))
        }
    }

    fn shortest_ttl(&self) -> Duration {
        SHORTEST_TTL
    }

    fn check_name(&self, name: &str) -> Result<(), &'static str> {
        check_name(
            name,
            LONGEST_NAME,
            "it is longer than 64 bytes, which is all that ShedLock's column has",
        )
    }

    fn acquire<'a>(&'a self, attempt: &'a Attempt) -> BoxFuture<'a, StoreResult<Acquired>> {
        async move { self.take(attempt).await.map_err(|p| self.table.explain(p)) }.boxed()
    }

    fn renew<'a>(&'a self, attempt: &'a Attempt) -> BoxFuture<'a, StoreResult<bool>> {
        self.end_after(attempt, attempt.ttl).boxed()
    }

    fn release<'a>(&'a self, attempt: &'a Attempt) -> BoxFuture<'a, StoreResult<bool>> {
        self.end_after(attempt, Duration::ZERO).boxed()
    }
}

fn parts(url: &str) -> Result<(Arc<SqlServer>, Table)> {
    let url = SqlUrl::parse(url, "shedlock", &["table"])?;
    let name = url.identifier("table", "shedlock")?;
    let table = Table {
        create: format!(
            "CREATE TABLE {name} (name varchar(64) NOT NULL PRIMARY KEY, \
             lock_until timestamp(3) NOT NULL, \
             locked_at timestamp(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3), \
             locked_by varchar(255) NOT NULL)"
        ),
        columns: vec![
            ("name".into(), text(url.dialect)),
            ("lock_until".into(), time(url.dialect)),
            ("locked_at".into(), time(url.dialect)),
            ("locked_by".into(), text(url.dialect)),
        ],
        key: vec!["name".into()],
        name,
    };
    Ok((SqlServer::of(&url)?, table))
}
