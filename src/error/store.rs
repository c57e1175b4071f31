//! The reasons why a store of a plain lock does not do what is asked.

use thiserror::Error;

/// The reason why a store of a plain lock did not do what was asked, with the way out.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum StoreProblem {
    /// No connection. Nothing was sent.
    #[error("no connection ({0})")]
    Unreachable(String),
    /// The connection was lost before the answer, or the answer did not come in time. The request
    /// may have happened.
    #[error("no answer came in time, so it may have happened")]
    NoAnswer,
    /// The lock is not ours: its ttl was over, or another client freed it. Another client may hold
    /// it.
    #[error("the lock is no longer ours there: another client freed it, or its ttl was over")]
    NotOurs,
    /// Another kind of server, or none that this lock can stand on.
    #[error("it is not usable for this lock: {0}")]
    WrongServer(String),
    /// A replica, or a server that only reads.
    #[error("it is a replica, which cannot give locks: name the primary")]
    Replica,
    /// User, password or rights.
    #[error("it is not permitted: {0}")]
    Denied(String),
    /// Something else has the lock's name.
    #[error("{0}: use another name")]
    OtherContent(String),
    /// A table or a column is missing, or has another shape.
    #[error("{0}")]
    Schema(String),
    /// A pooler that gives each request another connection.
    #[error("a pooler stands before the server, which breaks locks of a connection: {0}")]
    Pooler(String),
    /// Any other refusal.
    #[error("{0}")]
    Refused(String),
}

impl StoreProblem {
    /// Whether the request may have happened.
    pub(crate) fn is_unknown(&self) -> bool {
        matches!(self, Self::NoAnswer)
    }

    /// Whether the same request may succeed soon.
    pub(crate) fn is_passing(&self) -> bool {
        matches!(self, Self::NoAnswer | Self::Unreachable(_))
    }
}
