//! Several tickets of one transaction: when their hold may begin. (pure)
//!
//! Invariant: all were the first at one moment, and were ours. Being the first does not end by
//! itself, but a ticket that had its turn while others waited may have been removed meanwhile. It
//! reads nothing: the queue does, and so does the exhaustive search of the tests.

/// Whether all tickets were seen at one moment, at which none had to wait for another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct SeenTogether(bool);

impl SeenTogether {
    /// By whether each was the first when it was created. One alone is seen with its turn.
    pub(crate) fn new(mut are_first: impl ExactSizeIterator<Item = bool>) -> Self {
        Self(are_first.len() == 1 || are_first.all(|is_first| is_first))
    }

    /// Whether all must be read at one moment before their hold begins, now that each has had its
    /// turn. So it is unless they were, or if that was long ago for one of them.
    pub(crate) fn needs_read(&mut self, are_recent: bool) -> bool {
        !std::mem::replace(&mut self.0, true) || !are_recent
    }
}
