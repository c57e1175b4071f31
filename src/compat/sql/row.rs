//! A row for each lock, with a token and the database's clock.
//!
//! Invariants: only the database's clock is read. A grant is one statement, and so is each change
//! of one: the row is the lock. A released row stays, so its token grows.
//!
//! `holder` is the secret, or `+secret+secret`, a line feed and the name of the owner: one secret
//! for each of the owner's guards. A count would be one too high for ever after an increment that
//! was not answered; a secret is put in and taken out once, however often that is asked.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt};

use super::schema::{Table, text};
use super::server::SqlServer;
use super::url::{DatabaseKind, SqlUrl};
use crate::compat::keeper::PlainKeeper;
use crate::compat::store::{
    Acquired, Attempt, Capabilities, FencedStore, PlainStore, ReentrantStore, StoreResult,
};
use crate::error::Result;
use crate::token::Token;

pub(super) const SHORTEST_TTL: Duration = Duration::from_millis(500);
const LONGEST_NAME: usize = 255;

/// Locks that are rows of a table of Lockkeeper's, in PostgreSQL, MariaDB or MySQL.
///
/// The table is `lockkeeper_locks`, or what the option `table` of the URL says. In PostgreSQL:
///
/// ```sql
/// CREATE TABLE lockkeeper_locks (name text PRIMARY KEY, holder text NOT NULL, host text NOT NULL,
///     token bigint NOT NULL, expires timestamptz NOT NULL)
/// ```
///
/// In MariaDB and MySQL:
///
/// ```sql
/// CREATE TABLE lockkeeper_locks (name varbinary(255) PRIMARY KEY, holder blob NOT NULL,
///     host varchar(255) NOT NULL, token bigint NOT NULL, expires datetime(6) NOT NULL)
/// ```
///
/// A lock is free when `expires` (in MariaDB and MySQL: in UTC) is in the past. Each grant counts
/// `token` up. Do not delete rows: their tokens would begin again.
///
/// It is reentrant for an [`Owner`](crate::Owner), in all processes that name it. All guards of
/// an owner that holds have the same token.
///
/// # What it cannot do
///
/// It is not fair. It is lost where the database loses a commit: with an asynchronous replica that
/// becomes the primary, or without durable commits. Its token is then given again. While an old
/// primary answers beside the promoted one, each of them has a holder. A step of the database's
/// clock forwards frees locks before their guards are lost. A guard of a lock that nobody else took
/// can also be lost by such a step.
#[derive(Debug)]
pub struct UniqueRow {
    server: Arc<SqlServer>,
    table: Table,
    host: String,
}

impl UniqueRow {
    /// Connects to `postgres+row://[user[:password]@]host[:port]/database` or `mysql+row://...`,
    /// with the option `table`.
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
            // As long as the column.
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

    async fn take(&self, attempt: &Attempt) -> StoreResult<Acquired> {
        let ttl = millis(attempt.ttl);
        let entry = entry(attempt);
        let holder = match &attempt.owner {
            Some(owner) => format!("{entry}\n{owner}"),
            None => entry,
        };
        let params = [&*attempt.name, &holder, &self.host, &ttl];
        let table = &self.table.name;
        let sql = self.server.dialect().pick(
            format!(
                "WITH taken AS (INSERT INTO {table} AS l (name, holder, host, token, expires) \
                 VALUES ($1, $2, $3, 1, clock_timestamp() + $4::bigint * interval '1 ms') \
                 ON CONFLICT (name) DO UPDATE SET host = excluded.host, \
                 holder = CASE WHEN l.expires <= clock_timestamp() THEN excluded.holder \
                 ELSE split_part(excluded.holder, chr(10), 1) || l.holder END, \
                 token = l.token + CASE WHEN l.expires <= clock_timestamp() THEN 1 ELSE 0 END, \
                 expires = greatest(l.expires, excluded.expires) \
                 WHERE l.expires <= clock_timestamp() OR (strpos(l.holder, chr(10)) > 0 AND \
                 substr(l.holder, strpos(l.holder, chr(10))) = \
                 substr(excluded.holder, strpos(excluded.holder, chr(10)))) RETURNING token) \
                 SELECT token, NULL::bigint FROM taken UNION ALL SELECT NULL, \
                 (extract(epoch FROM expires - clock_timestamp()) * 1000)::bigint FROM {table} \
                 WHERE name = $1 AND NOT EXISTS (SELECT FROM taken)"
            ),
            taken_in_mysql(table, attempt.owner.is_some()),
        );
        let answer = self.server.run_for(attempt, &sql, &params).await?;
        let token = match self.server.dialect() {
            #[cfg(feature = "postgres")]
            DatabaseKind::Postgres => answer.number(0),
            #[cfg(feature = "mysql")]
            DatabaseKind::MySql => match answer.affected {
                0 => None,
                1 => Some(1),
                _ => answer.last_id,
            },
        };
        match token {
            Some(token) => {
                SqlServer::granted(attempt);
                Ok(Acquired::Yes {
                    token: Some(Token::from(token)),
                })
            }
            None => self.taken(attempt, answer.millis(1)).await,
        }
    }

    /// The rest of the other's ttl. In PostgreSQL the statement has told it.
    async fn taken(&self, attempt: &Attempt, left: Option<Duration>) -> StoreResult<Acquired> {
        let Some(table) = self.server.dialect().pick(None, Some(&self.table.name)) else {
            return Ok(Acquired::No { left });
        };
        let left = "TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), expires) DIV 1000";
        let sql = format!("SELECT {left} FROM {table} WHERE name = ?");
        let answer = self.server.ask_for(attempt, &sql, &[&attempt.name]).await?;
        Ok(Acquired::No {
            left: answer.millis(0),
        })
    }

    /// Changes the row if it is the attempt's.
    async fn change(&self, attempt: &Attempt, set: &str, params: &[&str]) -> StoreResult<bool> {
        let table = &self.table.name;
        let is_ours = match (&attempt.owner, self.server.dialect().pick(true, false)) {
            (None, true) => "holder = $2",
            (None, false) => "holder = ?",
            (Some(_), true) => "strpos(split_part(holder, chr(10), 1), $2) > 0",
            (Some(_), false) => "LOCATE(?, SUBSTRING_INDEX(holder, CHAR(10 USING utf8mb4), 1)) > 0",
        };
        let sql = self.server.dialect().pick(
            format!(
                "UPDATE {table} SET {set} \
                 WHERE name = $1 AND {is_ours} AND expires > clock_timestamp()"
            ),
            format!(
                "UPDATE {table} SET {set} \
                 WHERE name = ? AND {is_ours} AND expires > UTC_TIMESTAMP(6)"
            ),
        );
        let changed = self.server.run_for(attempt, &sql, params).await?;
        Ok(changed.affected > 0)
    }

    /// It never shortens the lease of the owner's other guards.
    async fn prolong(&self, attempt: &Attempt) -> StoreResult<bool> {
        let (ttl, name, entry) = (millis(attempt.ttl), &*attempt.name, &*entry(attempt));
        let (set, params) = self.server.dialect().pick(
            (
                "expires = greatest(expires, clock_timestamp() + $3::bigint * interval '1 ms')",
                [name, entry, &ttl],
            ),
            (
                // An update that changes nothing is not counted.
                "expires = GREATEST(expires + INTERVAL 1 MICROSECOND, \
                 UTC_TIMESTAMP(6) + INTERVAL CAST(? AS SIGNED) * 1000 MICROSECOND)",
                [&ttl, name, entry],
            ),
        );
        self.change(attempt, set, &params).await
    }

    /// It is free when no secret is left.
    async fn free(&self, attempt: &Attempt) -> StoreResult<bool> {
        let (name, entry) = (&*attempt.name, &*entry(attempt));
        let (set, params) = self.server.dialect().pick(
            (
                "holder = replace(holder, $2, ''), expires = CASE WHEN \
                 left(replace(holder, $2, ''), 1) = '+' THEN expires ELSE clock_timestamp() END",
                vec![name, entry],
            ),
            match attempt.owner {
                None => ("expires = UTC_TIMESTAMP(6), holder = ''", vec![name, entry]),
                Some(_) => (
                    "expires = IF(LEFT(REPLACE(holder, ?, ''), 1) = '+', expires, \
                     UTC_TIMESTAMP(6)), holder = REPLACE(holder, ?, '')",
                    vec![entry, entry, name, entry],
                ),
            },
        );
        self.change(attempt, set, &params).await
    }
}

impl FencedStore for UniqueRow {}

impl ReentrantStore for UniqueRow {}

impl PlainStore for UniqueRow {
    fn server(&self) -> &str {
        self.server.server()
    }

    fn capabilities(&self) -> Capabilities {
        let kind = self.server.dialect().pick("postgres+row", "mysql+row");
        Capabilities {
            has_token: true,
            is_reentrant: true,
            survives_restart: true,
            ..Capabilities::of(kind)
        }
    }

    fn shortest_ttl(&self) -> Duration {
        SHORTEST_TTL
    }

    fn check_name(&self, name: &str) -> Result<(), &'static str> {
        check_name(name, LONGEST_NAME, "it is longer than 255 bytes")
    }

    fn acquire<'a>(&'a self, attempt: &'a Attempt) -> BoxFuture<'a, StoreResult<Acquired>> {
        let taken = async move { self.take(attempt).await.map_err(|p| self.table.explain(p)) };
        taken.boxed()
    }

    fn renew<'a>(&'a self, attempt: &'a Attempt) -> BoxFuture<'a, StoreResult<bool>> {
        self.prolong(attempt).boxed()
    }

    fn release<'a>(&'a self, attempt: &'a Attempt) -> BoxFuture<'a, StoreResult<bool>> {
        self.free(attempt).boxed()
    }
}

/// What it sets from left to right sees the old `expires`, and an owner that stays. Without an
/// owner, the server has less to read.
fn taken_in_mysql(table: &str, has_owner: bool) -> String {
    let free = "expires <= UTC_TIMESTAMP(6)";
    let set = if has_owner {
        let again = "(LOCATE(CHAR(10 USING utf8mb4), holder) > 0 AND \
                     CAST(SUBSTR(holder, LOCATE(CHAR(10 USING utf8mb4), holder)) AS BINARY) = \
                     CAST(SUBSTR(VALUES(holder), \
                     LOCATE(CHAR(10 USING utf8mb4), VALUES(holder))) AS BINARY))";
        format!(
            "token = IF({free}, LAST_INSERT_ID(token + 1), \
             IF({again}, LAST_INSERT_ID(token), token)), \
             host = IF({free} OR {again}, VALUES(host), host), \
             holder = IF({free}, VALUES(holder), IF({again}, CONCAT(SUBSTRING_INDEX(\
             VALUES(holder), CHAR(10 USING utf8mb4), 1), holder), holder)), \
             expires = IF({free} OR {again}, GREATEST(expires, VALUES(expires)), expires)"
        )
    } else {
        format!(
            "token = IF({free}, LAST_INSERT_ID(token + 1), token), \
             host = IF({free}, VALUES(host), host), \
             holder = IF({free}, VALUES(holder), holder), \
             expires = IF({free}, VALUES(expires), expires)"
        )
    };
    format!(
        "INSERT INTO {table} (name, holder, host, token, expires) VALUES \
         (?, ?, ?, 1, UTC_TIMESTAMP(6) + INTERVAL CAST(? AS SIGNED) * 1000 MICROSECOND) \
         ON DUPLICATE KEY UPDATE {set}"
    )
}

/// What `holder` has of a guard.
fn entry(attempt: &Attempt) -> String {
    let mark = attempt.owner.as_ref().map_or("", |_| "+");
    format!("{mark}{}", attempt.secret)
}

fn parts(url: &str) -> Result<(Arc<SqlServer>, Table)> {
    let url = SqlUrl::parse(url, "row", &["table"])?;
    let name = url.identifier("table", "lockkeeper_locks")?;
    let dialect = url.dialect;
    let table = Table {
        create: dialect.pick(
            format!(
                "CREATE TABLE {name} (name text PRIMARY KEY, holder text NOT NULL, \
                 host text NOT NULL, token bigint NOT NULL, expires timestamptz NOT NULL)"
            ),
            format!(
                "CREATE TABLE {name} (name varbinary(255) PRIMARY KEY, \
                 holder blob NOT NULL, host varchar(255) NOT NULL, \
                 token bigint NOT NULL, expires datetime(6) NOT NULL)"
            ),
        ),
        columns: vec![
            ("name".into(), text(dialect)),
            ("holder".into(), text(dialect)),
            ("host".into(), text(dialect)),
            ("token".into(), &["bigint"]),
            (
                "expires".into(),
                dialect.pick(&["timestamp with time zone"], &["datetime(6)"]),
            ),
        ],
        key: vec!["name".into()],
        name,
    };
    Ok((SqlServer::of(&url)?, table))
}

pub(super) fn check_name(
    name: &str,
    longest: usize,
    too_long: &'static str,
) -> Result<(), &'static str> {
    if name.is_empty() {
        Err("it is empty")
    } else if name.contains('\0') {
        Err("it contains a NUL, which a text of SQL cannot hold")
    } else if name.len() > longest {
        Err(too_long)
    } else {
        Ok(())
    }
}

pub(super) fn millis(ttl: Duration) -> String {
    ttl.as_millis().to_string()
}
