//! Advisory locks of a PostgreSQL session.
//!
//! Invariants: each hold has a connection of its own, straight to the server. The server frees it
//! when that connection ends, or is silent for the ttl.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt};
use md5::{Digest, Md5};

use super::held::HeldSessions;
use super::row::{SHORTEST_TTL, check_name, millis};
use super::rows::SqlRows;
use super::server::{SqlServer, ping_limit};
use super::session::SqlSession;
use super::url::{DatabaseKind, SqlUrl};
use crate::compat::keeper::PlainKeeper;
use crate::compat::store::{Acquired, Attempt, Capabilities, PlainStore, StoreResult};
use crate::error::{Error, Result, StoreProblem};

const LONGEST_NAME: usize = 64 * 1024;

/// `pg_try_advisory_lock(key)` of PostgreSQL 14 or newer, shared with each program that locks the
/// same key in the same database.
///
/// The key is the first 8 bytes of the MD5 of the name. A script computes it as
///
/// ```sql
/// SELECT pg_advisory_lock(('x' || substr(md5('my-lock'), 1, 16))::bit(64)::bigint);
/// ```
///
/// The lease is `idle_session_timeout`: the server ends the connection of a silent client after the
/// ttl. A connection that ends frees the lock at once, and its guard is lost with the next renewal.
/// Each held lock takes one of the server's `max_connections`.
///
/// # What it cannot do
///
/// It is not fair and has no token. No hold survives a restart or a fail-over of the server, and
/// the next client can then hold before the guard is told, until its lease ends. Two names with the
/// same 64 bits are one lock. Behind a pooler, the lock would belong to a connection that clients
/// share: that is refused ([`StoreProblem::Pooler`]), also for a pooler that keeps whole sessions.
#[derive(Debug)]
pub struct AdvisoryLock {
    server: Arc<SqlServer>,
    held: HeldSessions,
}

impl AdvisoryLock {
    /// Connects to `postgres+advisory://[user[:password]@]host[:port]/database`.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidOption`](crate::Error::InvalidOption) for a URL that is none;
    /// [`Error::Store`](crate::Error::Store) if there is no such database that writes, if it does
    /// not accept the user, or if a pooler stands before it.
    pub async fn connect(url: &str) -> Result<PlainKeeper<Self>> {
        let parsed = SqlUrl::parse(url, "advisory", &[])?;
        if parsed.dialect != DatabaseKind::Postgres {
            return Err(Error::invalid_url(
                url,
                "MariaDB and MySQL have mysql+getlock",
            ));
        }
        let server = SqlServer::of(&parsed)?;
        let session = server.open().await.and_then(SqlSession::straight);
        let session =
            session.map_err(|problem| server.failed("connect to", "the store", problem))?;
        server.put_back(session);
        Ok(PlainKeeper::new(Self {
            server,
            held: HeldSessions::default(),
        }))
    }

    /// The key of a name.
    pub fn key(name: &str) -> i64 {
        let digest: [u8; 16] = Md5::digest(name.as_bytes()).into();
        let (first, _) = digest.split_at(8);
        first
            .iter()
            .fold(0, |key, byte| key << 8 | i64::from(*byte))
    }

    async fn take(&self, attempt: &Attempt) -> StoreResult<Acquired> {
        let tried = try_take(Arc::clone(&self.server), attempt.clone());
        let (session, answer) = self.server.in_try(attempt, tried).await?;
        match (answer.cell(0), answer.cell(1)) {
            (Some(_), Some(process)) => {
                self.held.insert(attempt, session, process.to_owned());
                Ok(Acquired::Yes { token: None })
            }
            _ => {
                self.server.put_back(session);
                Ok(Acquired::No { left: None })
            }
        }
    }

    async fn prolong(&self, attempt: &Attempt) -> StoreResult<bool> {
        let Some(held) = self.held.get(&attempt.secret) else {
            return Ok(false);
        };
        let process = self.held.on(&attempt.secret, ask_process).await?;
        match process.flatten() {
            None => Ok(false),
            Some(process) if process == held.mark => Ok(true),
            Some(_) => {
                self.held.close(&attempt.secret).await;
                Err(StoreProblem::Pooler("its process has changed".into()))
            }
        }
    }

    async fn free(&self, attempt: &Attempt) -> StoreResult<bool> {
        let key = Self::key(&attempt.name).to_string();
        let freed = self.held.end(&attempt.secret, &self.server, |session| {
            unlock(session, key)
        });
        Ok(freed.await?.unwrap_or(false))
    }
}

impl PlainStore for AdvisoryLock {
    fn server(&self) -> &str {
        self.server.server()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            ends_with_connection: true,
            tells_loss_first: false,
            ..Capabilities::of("postgres+advisory")
        }
    }

    fn shortest_ttl(&self) -> Duration {
        SHORTEST_TTL
    }

    fn check_name(&self, name: &str) -> Result<(), &'static str> {
        check_name(name, LONGEST_NAME, "it is longer than 64 KiB")
    }

    fn acquire<'a>(&'a self, attempt: &'a Attempt) -> BoxFuture<'a, StoreResult<Acquired>> {
        self.take(attempt).boxed()
    }

    fn renew<'a>(&'a self, attempt: &'a Attempt) -> BoxFuture<'a, StoreResult<bool>> {
        self.prolong(attempt).boxed()
    }

    fn release<'a>(&'a self, attempt: &'a Attempt) -> BoxFuture<'a, StoreResult<bool>> {
        self.free(attempt).boxed()
    }
}

/// Dropped, it closes the connection, and the server then frees what it took.
async fn try_take(server: Arc<SqlServer>, attempt: Attempt) -> StoreResult<(SqlSession, SqlRows)> {
    let key = AdvisoryLock::key(&attempt.name).to_string();
    let ttl = millis(attempt.ttl);
    let mut session = server.take(ping_limit(&attempt)).await?.straight()?;
    let sql = "SELECT CASE WHEN pg_try_advisory_lock($1::bigint) \
               THEN set_config('idle_session_timeout', $2, false) END, pg_backend_pid()";
    let mut answer = session.run_again(sql, &[&key, &ttl]).await;
    if matches!(answer, Err(StoreProblem::NoAnswer)) {
        // It had ended while nobody used it. A lock that it still got ended with it.
        session = server.open().await?.straight()?;
        answer = session.run_again(sql, &[&key, &ttl]).await;
    }
    Ok((session, answer?))
}

/// Only this connection can free its lock. So it has the lock if it is the same process there.
fn ask_process(session: &mut SqlSession) -> BoxFuture<'_, StoreResult<Option<String>>> {
    async move {
        let answer = session.run_again("SELECT pg_backend_pid()", &[]).await?;
        Ok(answer.cell(0).map(str::to_owned))
    }
    .boxed()
}

fn unlock(session: &mut SqlSession, key: String) -> BoxFuture<'_, StoreResult<bool>> {
    async move {
        let sql = "SELECT pg_advisory_unlock($1::bigint), \
                   set_config('idle_session_timeout', '0', false)";
        let answer = session.run_again(sql, &[&key]).await?;
        Ok(answer.cell(0) == Some("true"))
    }
    .boxed()
}

#[cfg(test)]
mod tests {
    use super::AdvisoryLock;

    #[test]
    fn a_key_is_what_a_script_computes() {
        // SELECT ('x' || substr(md5('my-lock'), 1, 16))::bit(64)::bigint
        assert_eq!(AdvisoryLock::key("my-lock"), -1_323_429_866_322_628_863);
        assert_eq!(AdvisoryLock::key(""), -3_162_216_497_309_240_828);
    }
}
