//! Optimistic locking by a version column.
//!
//! Invariant: a row is written only at the version that was read. Nothing is held.

use std::sync::Arc;

use super::server::SqlServer;
use super::url::{SqlUrl, identifier};
use crate::error::Result;

/// Rows with a version, as the optimistic locking of many mappers writes them.
///
/// Nothing is held between [`read`](Self::read) and [`update_if`](Self::update_if), so there is no
/// guard: of two writers that have read the same version, one is told of a [`VersionConflict`].
/// It needs an integer column that each writer counts up.
#[derive(Debug)]
pub struct VersionColumn {
    server: Arc<SqlServer>,
    table: String,
    key: String,
    version: String,
}

/// A row as it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct VersionedRow {
    /// Its version then.
    pub version: i64,
    /// The columns that were asked for, as text. A null is `None`.
    pub columns: Vec<Option<String>>,
}

/// The row is not at the version that was read. Nothing was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[error("another client has written the row since it was read at version {read} (now: {now:?})")]
pub struct VersionConflict {
    /// The version that the update was for.
    pub read: i64,
    /// The version now; `None` if there is no such row.
    pub now: Option<i64>,
}

impl VersionColumn {
    /// Connects to `postgres+version://[user[:password]@]host[:port]/database` or
    /// `mysql+version://...`, for the rows of a table. Options of the URL name the columns: `key`
    /// (default `id`) and `version` (default `version`).
    ///
    /// # Errors
    ///
    /// [`Error::InvalidOption`](crate::Error::InvalidOption) for a URL or a name that is none;
    /// [`Error::Store`](crate::Error::Store) if there is no such database or table.
    pub async fn connect(url: &str, table: &str) -> Result<Self> {
        let url = SqlUrl::parse(url, "version", &["key", "version"])?;
        let rows = Self {
            server: SqlServer::of(&url)?,
            table: identifier(table)?,
            key: url.identifier("key", "id")?,
            version: url.identifier("version", "version")?,
        };
        let Self { key, version, .. } = &rows;
        let none = format!("SELECT {key}, {version} FROM {table} WHERE 1 = 0");
        let asked = rows.server.run(&none, &[]).await;
        asked.map_err(|problem| rows.server.failed("use", table, problem))?;
        Ok(rows)
    }

    /// Reads some columns of a row, and its version.
    ///
    /// # Errors
    ///
    /// [`Error::Store`](crate::Error::Store).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub async fn read(&self, key: &str, columns: &[&str]) -> Result<Option<VersionedRow>> {
        let dialect = self.server.dialect();
        let mut selected = self.version.clone();
        for column in columns {
            let column = identifier(column)?;
            selected += &dialect.pick(
                format!(", {column}::text"),
                format!(", CAST({column} AS CHAR)"),
            );
        }
        let (table, place) = (&self.table, dialect.pick("$1", "?"));
        let sql = format!(
            "SELECT {selected} FROM {table} WHERE {} = {place}",
            self.key
        );
        let answer = self.server.run(&sql, &[key]).await;
        let answer = answer.map_err(|problem| self.server.failed("read", key, problem))?;
        let version = answer.cell(0).and_then(|version| version.parse().ok());
        let row = answer.rows.into_iter().next();
        Ok(version.zip(row).map(|(version, mut row)| VersionedRow {
            version,
            columns: row.split_off(1),
        }))
    }

    /// Writes some columns of a row if it is still at a version, and counts the version up. It
    /// returns the new version.
    ///
    /// # Errors
    ///
    /// [`Error::Store`](crate::Error::Store). If the connection was lost before the answer, the
    /// update may have happened: read again. A conflict is the inner error.
    ///
    /// # Cancel safety
    ///
    /// Dropped, the update may happen.
    pub async fn update_if(
        &self,
        key: &str,
        version: i64,
        set: &[(&str, Option<&str>)],
    ) -> Result<Result<i64, VersionConflict>> {
        let dialect = self.server.dialect();
        let mut params = Vec::new();
        let mut place = |param| {
            params.push(param);
            dialect.pick(format!("${}", params.len()), "?".to_owned())
        };
        let mut changes = Vec::new();
        for (column, value) in set {
            let value = value.map_or_else(|| "NULL".to_owned(), &mut place);
            changes.push(format!("{} = {value}, ", identifier(column)?));
        }
        let read = version.to_string();
        let (table, column, changes) = (&self.table, &self.version, changes.concat());
        let key_place = place(key);
        let version_place = place(&read);
        let sql = format!(
            "UPDATE {table} SET {changes}{column} = {column} + 1 \
             WHERE {} = {key_place} AND {column} = {version_place}",
            self.key
        );
        let done = self.server.run(&sql, &params).await;
        let done = done.map_err(|problem| self.server.failed("update", key, problem))?;
        if done.affected > 0 {
            return Ok(Ok(version + 1));
        }
        let now = self.read(key, &[]).await?.map(|row| row.version);
        Ok(Err(VersionConflict { read: version, now }))
    }
}
