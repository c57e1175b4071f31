//! One connection to a database, which runs one statement at a time.

use super::url::Dialect;
use crate::compat::store::StoreResult;

/// A connection of its own.
#[derive(Debug)]
pub(super) enum SqlSession {
    #[cfg(feature = "postgres")]
    Postgres(super::postgres::PostgresSession),
    #[cfg(feature = "mysql")]
    MySql(super::mysql::MySqlSession),
}

/// What a statement gave.
#[derive(Debug, Default)]
pub(super) struct Answer {
    pub(super) rows: Vec<Vec<Option<String>>>,
    /// Rows that were written.
    pub(super) affected: u64,
    /// The number that a statement of MariaDB or MySQL has set.
    pub(super) last_id: Option<u64>,
}

impl Answer {
    /// A column of the first row, if it is there and not null.
    pub(super) fn cell(&self, column: usize) -> Option<&str> {
        self.rows.first()?.get(column)?.as_deref()
    }

    pub(super) fn number(&self, column: usize) -> Option<u64> {
        self.cell(column)?.parse().ok()
    }

    /// Milliseconds, which may be below zero.
    pub(super) fn millis(&self, column: usize) -> Option<std::time::Duration> {
        let left: i64 = self.cell(column)?.parse().ok()?;
        Some(std::time::Duration::from_millis(
            left.try_into().unwrap_or(0),
        ))
    }
}

impl SqlSession {
    /// Runs one statement. Its parameters are text, `$1` or `?` in it.
    pub(super) async fn run(&mut self, sql: &str, params: &[&str]) -> StoreResult<Answer> {
        match self {
            #[cfg(feature = "postgres")]
            Self::Postgres(session) => session.run(sql, params).await,
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

    pub(super) fn dialect(&self) -> Dialect {
        match self {
            #[cfg(feature = "postgres")]
            Self::Postgres(_) => Dialect::Postgres,
            #[cfg(feature = "mysql")]
            Self::MySql(_) => Dialect::MySql,
        }
    }

    /// Whether it is known that no pooler is between.
    #[cfg(feature = "postgres")]
    pub(super) fn is_straight(&self) -> bool {
        match self {
            Self::Postgres(session) => session.is_straight,
            #[cfg(feature = "mysql")]
            Self::MySql(_) => false,
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
