//! `GET_LOCK` of MariaDB and MySQL.
//!
//! Invariants: each hold has a connection of its own. The server frees it when that connection
//! ends, or is silent for the ttl.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt};

use super::held::HeldSessions;
use super::row::check_name;
use super::rows::SqlRows;
use super::server::{SqlServer, ping_limit};
use super::session::SqlSession;
use super::url::{DatabaseKind, SqlUrl};
use crate::compat::keeper::PlainKeeper;
use crate::compat::store::{Acquired, Attempt, Capabilities, PlainStore, StoreResult};
use crate::error::{Error, Result, StoreProblem};

const LONGEST_NAME: usize = 64;
/// `wait_timeout` counts whole seconds.
pub(super) const ONE_SECOND: Duration = Duration::from_secs(1);

/// `GET_LOCK(name, 0)` of MariaDB and MySQL, shared with each program that gets the same name on
/// the same server, in any of its databases.
///
/// A name has 64 bytes at most, and the server takes `A` and `a` for the same name.
///
/// The lease is `wait_timeout`, the ttl in whole seconds: the server ends the connection of a
/// silent client after it. A connection that ends frees the lock at once, and its guard is lost
/// with the next renewal. Each held lock takes one of the server's `max_connections`.
///
/// # What it cannot do
///
/// It is not fair and has no token. No hold survives a restart or a fail-over of the server, and
/// the next client can then hold before the guard is told, until its lease ends. The nodes of a
/// Galera cluster do not share such locks. Behind a proxy that greets its clients itself, as
/// MaxScale and ProxySQL do, the lock would belong to a connection that clients share: that is
/// refused ([`StoreProblem::Pooler`]). One that forwards connections as they are is not seen, and
/// does no harm.
#[derive(Debug)]
pub struct GetLock {
    server: Arc<SqlServer>,
    held: HeldSessions,
}

impl GetLock {
    /// Connects to `mysql+getlock://[user[:password]@]host[:port]/database`.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidOption`](crate::Error::InvalidOption) for a URL that is none;
    /// [`Error::Store`](crate::Error::Store) if there is no such database that writes, if it does
    /// not accept the user, or if a proxy that shares connections stands before it.
    pub async fn connect(url: &str) -> Result<PlainKeeper<Self>> {
        let parsed = SqlUrl::parse(url, "getlock", &[])?;
        if parsed.dialect != DatabaseKind::MySql {
            return Err(Error::invalid_url(url, "PostgreSQL has postgres+advisory"));
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

    async fn take(&self, attempt: &Attempt) -> StoreResult<Acquired> {
        let tried = try_take(Arc::clone(&self.server), attempt.clone());
        let (session, answer) = self.server.in_try(attempt, tried).await?;
        match (answer.cell(0), answer.cell(1)) {
            // It may have been made a replica since the connection was opened.
            (_, None | Some("1")) => Err(StoreProblem::Replica),
            (Some("1"), _) => {
                self.held.insert(attempt, session, String::new());
                Ok(Acquired::Yes { token: None })
            }
            _ => {
                self.server.put_back(session);
                Ok(Acquired::No { left: None })
            }
        }
    }

    async fn prolong(&self, attempt: &Attempt) -> StoreResult<bool> {
        let sql = "SELECT IS_USED_LOCK(?) = CONNECTION_ID() AND NOT @@global.read_only";
        let name = Arc::clone(&attempt.name);
        let asked = self
            .held
            .on(&attempt.secret, |session| ask(session, sql, name));
        let is_ours = asked.await?.unwrap_or(false);
        if !is_ours {
            self.held.close(&attempt.secret).await;
        }
        Ok(is_ours)
    }

    async fn free(&self, attempt: &Attempt) -> StoreResult<bool> {
        let name = Arc::clone(&attempt.name);
        let freed = self.held.end(&attempt.secret, &self.server, |session| {
            ask(session, "SELECT RELEASE_LOCK(?)", name)
        });
        Ok(freed.await?.unwrap_or(false))
    }
}

impl PlainStore for GetLock {
    fn server(&self) -> &str {
        self.server.server()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            ends_with_connection: true,
            tells_loss_first: false,
            frees_late_by: ONE_SECOND,
            ..Capabilities::of("mysql+getlock")
        }
    }

    fn shortest_ttl(&self) -> Duration {
        ONE_SECOND
    }

    fn check_name(&self, name: &str) -> Result<(), &'static str> {
        check_name(
            name,
            LONGEST_NAME,
            "it is longer than 64 bytes, which is all that GET_LOCK takes",
        )
    }

    fn acquire<'a>(&'a self, attempt: &'a Attempt) -> BoxFuture<'a, StoreResult<Acquired>> {
        let taken = self.take(attempt);
        async { taken.await.inspect_err(|p| self.server.heed(p)) }.boxed()
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
    let mut session = server.take(ping_limit(&attempt)).await?.straight()?;
    let mut answer = try_get(&mut session, &attempt).await;
    if matches!(answer, Err(StoreProblem::NoAnswer)) {
        // It had ended while nobody used it. A lock that it still got ended with it.
        session = server.open().await?.straight()?;
        answer = try_get(&mut session, &attempt).await;
    }
    Ok((session, answer?))
}

async fn try_get(session: &mut SqlSession, attempt: &Attempt) -> StoreResult<SqlRows> {
    session.lease(attempt.ttl).await?;
    let sql = "SELECT GET_LOCK(?, 0), @@global.read_only";
    session.run(sql, &[&attempt.name]).await
}

fn ask<'a>(
    session: &'a mut SqlSession,
    sql: &'static str,
    name: Arc<str>,
) -> BoxFuture<'a, StoreResult<bool>> {
    async move { Ok(session.run(sql, &[&name]).await?.cell(0) == Some("1")) }.boxed()
}
