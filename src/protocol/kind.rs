//! The kinds of locks, with the words for them in spans, metrics and pages of the journal. (pure)
//!
//! The words stand in stored pages and in dashboards: they do not change.

use std::fmt;

use crate::brief::Brief;

/// The metrics and the spans of a set of locks, whose tickets are each a [`LockKind::Lock`].
pub(crate) const SEVERAL: &str = "several";

/// What a holder holds, or a waiter waits for.
///
/// It prints as one word: `lock`, `read`, `write`, `lead` or `permit`.
#[derive(Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LockKind {
    /// A lock that excludes all others: a [`Mutex`](crate::Mutex), or one of a
    /// [`MultiLock`](crate::MultiLock).
    Lock,
    /// A [read-write lock](crate::RwLock), shared with other readers.
    Read,
    /// A [read-write lock](crate::RwLock), for one writer.
    Write,
    /// The leadership of an [`Election`](crate::Election); a waiter for it is a candidate.
    Lead,
    /// Permits of a [`Semaphore`](crate::Semaphore).
    Permit,
    /// A word of a later version of this library, in an entry of the journal.
    Other(String),
}

impl LockKind {
    /// The word that it prints as.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Lock => "lock",
            Self::Read => "read",
            Self::Write => "write",
            Self::Lead => "lead",
            Self::Permit => "permit",
            Self::Other(word) => word,
        }
    }

    /// The kind that a page of the journal names.
    pub(crate) fn of_word(word: String) -> Self {
        let known = [
            Self::Lock,
            Self::Read,
            Self::Write,
            Self::Lead,
            Self::Permit,
        ];
        let known = known.into_iter().find(|kind| kind.as_str() == word);
        known.unwrap_or(Self::Other(word))
    }

    /// The label of its metrics.
    pub(crate) fn label(&self) -> &'static str {
        match self {
            Self::Lock => "mutex",
            Self::Read => "read",
            Self::Write => "write",
            Self::Lead => "leadership",
            Self::Permit => "permit",
            Self::Other(_) => "other",
        }
    }
}

impl fmt::Display for LockKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for LockKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lock => f.write_str("Lock"),
            Self::Read => f.write_str("Read"),
            Self::Write => f.write_str("Write"),
            Self::Lead => f.write_str("Lead"),
            Self::Permit => f.write_str("Permit"),
            Self::Other(word) => write!(f, "Other({:?})", Brief(word)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_is_read_as_it_prints_and_other_words_are_kept() {
        for word in ["lock", "read", "write", "lead", "permit", "barrier", ""] {
            let kind = LockKind::of_word(word.into());

            assert_eq!(kind.to_string(), word);
            assert_eq!(
                matches!(kind, LockKind::Other(_)),
                !"lockreadwriteleadpermit".contains(word) || word.is_empty()
            );
        }
    }
}
