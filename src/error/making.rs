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

    /// A connect string cannot be used.
    pub(crate) fn invalid_url(url: &str, why: impl Into<String>) -> Self {
        Self::invalid("connect string", without_secrets(url), why)
    }

    /// A ticket is no longer ours, for this reason.
    pub(crate) fn place_lost(lock: impl ToString, why: &'static str) -> Self {
        let name = lock.to_string();
        Self::PlaceLost { name, why }
    }
}

/// A URL without its user and options: before its last `@` and behind its `?` there may be a
/// password. If the one stands in the other, nothing of it can be told.
pub(crate) fn without_secrets(url: &str) -> &str {
    match (url.find('?'), url.rfind('@')) {
        (Some(query), Some(at)) if query < at => "***",
        (query, at) => {
            let hosts = at.map_or(0, |at| at + 1);
            &url[hosts..query.unwrap_or(url.len())]
        }
    }
}

/// Where an `@` behind the `?` would be taken for the end of a user and password.
#[cfg(any(feature = "mysql", feature = "postgres"))]
pub(crate) const AT_IN_OPTIONS: &str =
    "an @ in an option is written %40, and a ? in a password %3F";

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_part_of_a_url_that_may_be_a_password_is_told() {
        for (url, told) in [
            ("redis://h:1/2", "redis://h:1/2"),
            ("redis://me:se@cret@h:1/2", "h:1/2"),
            ("postgres://me@h/db?user=me&password=secret", "h/db"),
            ("postgres://h/db?password=secret", "postgres://h/db"),
            ("postgres://h/db?user=me@corp&password=secret", "***"),
            ("redis-sentinel://h/main?sentinel_password=p@secret", "***"),
            ("postgres://me:p?secret@h/db", "***"),
            ("zk1:2181,zk2:2181/app", "zk1:2181,zk2:2181/app"),
        ] {
            assert_eq!(without_secrets(url), told, "{url}");
        }
    }
}
