//! One connection to a database, which runs one statement at a time.

#[cfg(feature = "mysql")]
use std::time::Duration;

use super::rows::SqlRows;
use super::url::DatabaseKind;
use crate::compat::store::StoreResult;
use crate::error::StoreProblem;

/// A connection of its own.
#[derive(Debug)]
pub(super) enum SqlSession {
    #[cfg(feature = "postgres")]
    Postgres(super::postgres::PostgresSession),
    #[cfg(feature = "mysql")]
    MySql(super::mysql::MySqlSession),
}

impl SqlSession {
    /// Runs one statement. Its parameters are text, `$1` or `?` in it.
    pub(super) async fn run(&mut self, sql: &str, params: &[&str]) -> StoreResult<SqlRows> {
        match self {
            #[cfg(feature = "postgres")]
            Self::Postgres(session) => session.run(sql, params).await,
            #[cfg(feature = "mysql")]
            Self::MySql(session) => session.run(sql, params).await,
        }
    }

    /// Runs one statement of a few that come again and again, outside of a transaction. MariaDB's
    /// client prepares each.
    pub(super) async fn run_again(&mut self, sql: &str, params: &[&str]) -> StoreResult<SqlRows> {
        match self {
            #[cfg(feature = "postgres")]
            Self::Postgres(session) => session.run_again(sql, params).await,
            #[cfg(feature = "mysql")]
            Self::MySql(session) => session.run(sql, params).await,
        }
    }

    /// Runs a statement that has neither parameters nor rows.
    pub(super) async fn batch(&mut self, sql: &str) -> StoreResult<()> {
        match self {
            #[cfg(feature = "postgres")]
            Self::Postgres(session) => session.batch(sql).await,
            #[cfg(feature = "mysql")]
            Self::MySql(session) => session.batch(sql).await,
        }
    }

    /// Sets the lease of the connection, unless it is so already. In PostgreSQL it comes with each
    /// lock.
    #[cfg(feature = "mysql")]
    pub(super) async fn lease(&mut self, ttl: Duration) -> StoreResult<()> {
        match self {
            #[cfg(feature = "postgres")]
            Self::Postgres(_) => Ok(()),
            Self::MySql(session) => session.lease(ttl).await,
        }
    }

    /// Statements of others may have changed it.
    pub(super) fn forget_lease(&mut self) {
        match self {
            #[cfg(feature = "postgres")]
            Self::Postgres(_) => {}
            #[cfg(feature = "mysql")]
            Self::MySql(session) => session.forget_setting(),
        }
    }

    pub(super) fn dialect(&self) -> DatabaseKind {
        match self {
            #[cfg(feature = "postgres")]
            Self::Postgres(_) => DatabaseKind::Postgres,
            #[cfg(feature = "mysql")]
            Self::MySql(_) => DatabaseKind::MySql,
        }
    }

    /// The same, if it is known that nothing between gives its statements to other connections.
    pub(super) fn straight(self) -> StoreResult<Self> {
        let is_straight = match &self {
            #[cfg(feature = "postgres")]
            Self::Postgres(session) => session.is_straight,
            #[cfg(feature = "mysql")]
            Self::MySql(session) => session.is_straight,
        };
        match is_straight {
            true => Ok(self),
            false => Err(StoreProblem::Pooler(
                "what the connection was greeted with, or set with, is not there. Name the server \
                 itself, and not the pooler"
                    .into(),
            )),
        }
    }

    /// Asks whether it is still there. One that fell silent does not look closed.
    pub(super) async fn is_alive(&mut self) -> bool {
        match self {
            #[cfg(feature = "postgres")]
            Self::Postgres(session) => session.batch("").await.is_ok(),
            #[cfg(feature = "mysql")]
            Self::MySql(session) => session.ping().await.is_ok(),
        }
    }

    /// Whether its end is known.
    pub(super) fn is_closed(&self) -> bool {
        match self {
            #[cfg(feature = "postgres")]
            Self::Postgres(session) => session.is_closed(),
            #[cfg(feature = "mysql")]
            Self::MySql(session) => session.is_closed(),
        }
    }
}
