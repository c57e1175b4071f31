//! What a statement gave, as text.

use std::time::Duration;

/// What a statement gave.
#[derive(Debug, Default)]
pub(super) struct SqlRows {
    pub(super) rows: Vec<Vec<Option<String>>>,
    /// Rows that were written.
    pub(super) affected: u64,
    /// The number that a statement of MariaDB or MySQL has set.
    #[cfg(feature = "mysql")]
    pub(super) last_id: Option<u64>,
}

impl SqlRows {
    /// A column of the first row, if it is there and not null.
    pub(super) fn cell(&self, column: usize) -> Option<&str> {
        self.rows.first()?.get(column)?.as_deref()
    }

    pub(super) fn number(&self, column: usize) -> Option<u64> {
        self.cell(column)?.parse().ok()
    }

    /// Milliseconds, which may be below zero.
    pub(super) fn millis(&self, column: usize) -> Option<Duration> {
        let left: i64 = self.cell(column)?.parse().ok()?;
        Some(Duration::from_millis(left.try_into().unwrap_or(0)))
    }
}
