//! Errors that several parts of the library make, each in one way, and the parts of messages that
//! depend on a number.

use std::time::Duration;

use super::Error;

impl Error {
    /// The same error of a call for this lock.
    pub(crate) fn about(mut self, lock: impl ToString) -> Self {
        if let Self::Closed { name, .. } = &mut self {
            *name = lock.to_string();
        }
        self
    }

    /// An option has an illegal value.
    pub(crate) fn invalid(
        what: &'static str,
        given: impl Into<String>,
        why: impl Into<String>,
    ) -> Self {
        let (given, why) = (given.into(), why.into());
        Self::InvalidOption { what, given, why }
    }

    /// A ticket is no longer ours, for this reason.
    pub(crate) fn place_lost(lock: impl ToString, why: &'static str) -> Self {
        let name = lock.to_string();
        Self::PlaceLost { name, why }
    }
}

pub(super) fn within(waited: &Duration) -> String {
    if waited.is_zero() {
        return "at once".into();
    }
    format!("within {waited:?}")
}

pub(super) fn in_the_way(others: &usize) -> String {
    match others {
        1 => "another one holds it or waits in front".into(),
        others => format!("{others} others hold it or wait in front"),
    }
}
