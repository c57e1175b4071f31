//! What came of a request of writes, as far as a decision depends on it. (pure)
//!
//! Invariant: `Unknown` is never read as "not done". It names no server and keeps no message.

/// The answer to one write, or to a transaction of several.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Answer {
    Done,
    NoNode,
    NodeExists,
    NotEmpty,
    NoAuth,
    /// The server is busy: nothing was changed, and the same request may succeed later.
    NotNow,
    /// Any other error code: nothing was changed.
    Refused,
    /// The reply was lost: the request may have been done, and may still be done.
    Unknown,
}
