//! The table of Spring Integration's `JdbcLockRegistry`.
//!
//! Invariants: a lock is expired when its `CREATED_DATE` is older than the table's ttl, as Spring
//! Integration 6 judges it. Only the database's clock is read, in UTC.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt};
use md5::{Digest, Md5};
use uuid::Uuid;

use super::row::{SHORTEST_TTL, check_name};
use super::rows::SqlRows;
use super::schema::{Table, text, time};
use super::server::SqlServer;
use super::url::SqlUrl;
use crate::compat::keeper::PlainKeeper;
use crate::compat::store::{Acquired, Attempt, Capabilities, PlainStore, StoreResult};
use crate::error::{Error, Result};

const LONGEST_NAME: usize = 64 * 1024;
/// Of `DefaultLockRepository`.
const THEIR_TTL: u64 = 10_000;

/// The locks of Spring Integration's `JdbcLockRegistry` (6.0 to 6.5), in either direction: either
/// side waits while the other one holds.
///
/// The table is `INT_LOCK`, as Spring's own scripts make it. The options of the URL are `prefix`
/// (default `INT_`), `region` (default `DEFAULT`), and `ttl` in milliseconds (default 10000): these
/// must be those of the `DefaultLockRepository`. The key is `UUID.nameUUIDFromBytes` of the name.
///
/// `CREATED_DATE` is in UTC, as Spring Integration 6 writes it. Spring's clients compare it with
/// their own clocks and their ttl. A guard with another ttl writes a date that is as much later or
/// earlier, so that Spring frees its lock after the guard's ttl. Spring Integration 7 has another
/// column (`EXPIRED_AFTER`), and 4 and 5 write local times: neither is supported.
///
/// # What it cannot do
///
/// It is not fair and has no token. Spring's clients judge by their own clocks: one that is ahead
/// by more than a tenth of the ttl takes a held lock. Spring's holders do not renew unless they are
/// told to. It is lost where the database loses a commit.
#[derive(Debug)]
pub struct SpringLock {
    server: Arc<SqlServer>,
    table: Table,
    region: String,
    /// What the others take for the ttl, in milliseconds.
    theirs: u64,
}

impl SpringLock {
    /// Connects to `postgres+spring://[user[:password]@]host[:port]/database` or
    /// `mysql+spring://...`, with the options `prefix`, `region` and `ttl`.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidOption`] for a URL that is none; [`Error::Store`] if there is no such
    /// database that writes, if it does not accept the user, or if the table is not there or has
    /// another shape.
    pub async fn connect(url: &str) -> Result<PlainKeeper<Self>> {
        let store = Self::of(url)?;
        store.table.check(&store.server).await?;
        Ok(PlainKeeper::new(store))
    }

    /// Makes the table that this URL names.
    ///
    /// # Errors
    ///
    /// As [`connect`](Self::connect); also if it is there already.
    pub async fn create_table(url: &str) -> Result<()> {
        let store = Self::of(url)?;
        store.table.create(&store.server).await
    }

    /// What the lock of a name has as `LOCK_KEY`.
    pub fn key(name: &str) -> String {
        let digest: [u8; 16] = Md5::digest(name.as_bytes()).into();
        uuid::Builder::from_md5_bytes(digest)
            .into_uuid()
            .to_string()
    }

    fn of(url: &str) -> Result<Self> {
        let url = SqlUrl::parse(url, "spring", &["prefix", "region", "ttl"])?;
        let name = url.identifier("prefix", "INT_")? + "LOCK";
        let given = url.option("ttl").unwrap_or_default();
        let theirs = match url.option("ttl").map_or(Ok(THEIR_TTL), str::parse) {
            Ok(ttl) if ttl >= 1000 => ttl,
            _ => {
                return Err(Error::InvalidOption {
                    what: "ttl",
                    given: given.to_owned(),
                    why: "it is in milliseconds, and 1000 at least".into(),
                });
            }
        };
        let time_type = url.dialect.pick("TIMESTAMP", "DATETIME(6)");
        let table = Table {
            create: format!(
                "CREATE TABLE {name} (LOCK_KEY CHAR(36) NOT NULL, REGION VARCHAR(100) NOT NULL, \
                 CLIENT_ID CHAR(36), CREATED_DATE {time_type} NOT NULL, \
                 PRIMARY KEY (LOCK_KEY, REGION))"
            ),
            columns: vec![
                ("lock_key".into(), text(url.dialect)),
                ("region".into(), text(url.dialect)),
                ("client_id".into(), text(url.dialect)),
                ("created_date".into(), time(url.dialect)),
            ],
            key: vec!["lock_key".into(), "region".into()],
            name,
        };
        Ok(Self {
            server: SqlServer::of(&url)?,
            table,
            region: url.option("region").unwrap_or("DEFAULT").to_owned(),
            theirs,
        })
    }

    /// Runs a statement with the key and the region as its first parameters.
    async fn run(&self, sql: &str, attempt: &Attempt, more: &[&str]) -> StoreResult<SqlRows> {
        let key = Self::key(&attempt.name);
        let mut params = vec![&*key, &*self.region];
        params.extend(more);
        let sql = self.filled(sql, attempt);
        self.server.run_for(attempt, &sql, &params).await
    }

    /// A statement in which `{now}`, `{ttl}` and `{lead}` stand for times, and numbers for its
    /// parameters.
    fn filled(&self, sql: &str, attempt: &Attempt) -> String {
        let dialect = self.server.dialect();
        let now = dialect.pick("timezone('utc', clock_timestamp())", "UTC_TIMESTAMP(6)");
        let millis = |count: i128| {
            dialect.pick(
                format!("{count} * interval '1 ms'"),
                format!("INTERVAL {} MICROSECOND", count * 1000),
            )
        };
        let (ours, theirs) = (attempt.ttl.as_millis(), self.theirs.into());
        let ours = i128::try_from(ours).unwrap_or(i128::MAX);
        let mut sql = sql
            .replace("{table}", &self.table.name)
            .replace("{now}", now)
            .replace("{ttl}", &millis(theirs))
            .replace("{lead}", &millis(ours - theirs));
        for number in 1..=3 {
            let place = dialect.pick(format!("${number}"), "?".to_owned());
            sql = sql.replace(&format!("{{{number}}}"), &place);
        }
        sql
    }

    async fn take(&self, attempt: &Attempt) -> StoreResult<Acquired> {
        let client = client(attempt);
        let sql = self.server.dialect().pick(
            "INSERT INTO {table} AS l (LOCK_KEY, REGION, CLIENT_ID, CREATED_DATE) \
             VALUES ({1}, {2}, {3}, {now} + {lead}) ON CONFLICT (LOCK_KEY, REGION) DO UPDATE \
             SET CLIENT_ID = excluded.CLIENT_ID, CREATED_DATE = excluded.CREATED_DATE \
             WHERE l.CREATED_DATE < {now} - {ttl}",
            // What it sets from left to right sees the old CREATED_DATE.
            "INSERT INTO {table} (LOCK_KEY, REGION, CLIENT_ID, CREATED_DATE) \
             VALUES ({1}, {2}, {3}, {now} + {lead}) ON DUPLICATE KEY UPDATE \
             CLIENT_ID = IF(CREATED_DATE < {now} - {ttl}, VALUES(CLIENT_ID), CLIENT_ID), \
             CREATED_DATE = IF(CREATED_DATE < {now} - {ttl}, VALUES(CREATED_DATE), CREATED_DATE)",
        );
        if self.run(sql, attempt, &[&client]).await?.affected > 0 {
            SqlServer::granted(attempt);
            return Ok(Acquired::Yes { token: None });
        }
        let sql = self.server.dialect().pick(
            "SELECT (extract(epoch FROM CREATED_DATE + {ttl} - {now}) * 1000)::bigint \
             FROM {table} WHERE LOCK_KEY = {1} AND REGION = {2}",
            "SELECT TIMESTAMPDIFF(MICROSECOND, {now}, CREATED_DATE + {ttl}) DIV 1000 \
             FROM {table} WHERE LOCK_KEY = {1} AND REGION = {2}",
        );
        let (sql, key) = (self.filled(sql, attempt), Self::key(&attempt.name));
        let params = [&*key, &*self.region];
        let left = self.server.ask_for(attempt, &sql, &params).await?.millis(0);
        Ok(Acquired::No { left })
    }

    async fn prolong(&self, attempt: &Attempt) -> StoreResult<bool> {
        let sql = "UPDATE {table} SET CREATED_DATE = {now} + {lead} WHERE LOCK_KEY = {1} \
                   AND REGION = {2} AND CLIENT_ID = {3} AND CREATED_DATE >= {now} - {ttl}";
        let done = self.run(sql, attempt, &[&client(attempt)]).await?;
        Ok(done.affected > 0)
    }

    async fn free(&self, attempt: &Attempt) -> StoreResult<bool> {
        let sql = "DELETE FROM {table} WHERE LOCK_KEY = {1} AND REGION = {2} AND CLIENT_ID = {3}";
        let done = self.run(sql, attempt, &[&client(attempt)]).await?;
        Ok(done.affected > 0)
    }
}

impl PlainStore for SpringLock {
    fn server(&self) -> &str {
        self.server.server()
    }

    fn capabilities(&self) -> Capabilities {
        let dialect = self.server.dialect();
        Capabilities {
            survives_restart: true,
            ..Capabilities::of(dialect.pick("postgres+spring", "mysql+spring"))
        }
    }

    fn shortest_ttl(&self) -> Duration {
        SHORTEST_TTL
    }

    fn check_name(&self, name: &str) -> Result<(), &'static str> {
        check_name(name, LONGEST_NAME, "it is longer than 64 KiB")
    }

    fn acquire<'a>(&'a self, attempt: &'a Attempt) -> BoxFuture<'a, StoreResult<Acquired>> {
        async move { self.take(attempt).await.map_err(|p| self.table.explain(p)) }.boxed()
    }

    fn renew<'a>(&'a self, attempt: &'a Attempt) -> BoxFuture<'a, StoreResult<bool>> {
        self.prolong(attempt).boxed()
    }

    fn release<'a>(&'a self, attempt: &'a Attempt) -> BoxFuture<'a, StoreResult<bool>> {
        self.free(attempt).boxed()
    }
}

/// The secret in the form of Spring's clients.
fn client(attempt: &Attempt) -> String {
    let secret = Uuid::parse_str(&attempt.secret);
    secret.map_or_else(|_| attempt.secret.to_string(), |id| id.to_string())
}

#[cfg(test)]
mod tests {
    use super::SpringLock;

    #[test]
    fn a_key_is_that_of_java() {
        // UUID.nameUUIDFromBytes("my-lock".getBytes()).toString()
        assert_eq!(
            SpringLock::key("my-lock"),
            "eda23b8c-64b2-3f01-8c10-660455d15168"
        );
    }
}
