//! The exchange of one ticket for another in one transaction: which of the two a place answers for.
//! (pure)
//!
//! Invariant: until an answer or a read says which of the two is there, the place answers for both.
//! It sends nothing: the place does, and so does the exhaustive search of the tests.

use super::answer::Answer;

/// The tickets that a place answers for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Exchanging {
    /// The old one: nothing was sent, or nothing was changed.
    Old,
    /// Either may be there: no reply has come, and the attempt of the new one has to be looked for.
    Both,
    /// The new one, whose identity has to be read.
    Unidentified,
    New,
    /// The exchange was done, and somebody else has removed the new one.
    Neither,
}

impl Exchanging {
    /// Takes in the answer to the transaction.
    pub(crate) fn answered(answer: Answer) -> Self {
        match answer {
            Answer::Done => Self::Unidentified,
            Answer::Unknown => Self::Both,
            _ => Self::Old,
        }
    }

    /// Takes in whether a search or a read has found the new ticket.
    pub(crate) fn found(self, is_there: bool) -> Self {
        match (self, is_there) {
            (_, true) => Self::New,
            (Self::Old | Self::Both, false) => Self::Old,
            (Self::Unidentified | Self::New | Self::Neither, false) => Self::Neither,
        }
    }

    /// Whether the old ticket may be there.
    pub(crate) fn has_old(self) -> bool {
        matches!(self, Self::Old | Self::Both)
    }

    /// Whether the attempt may have made a ticket that nobody has identified.
    pub(crate) fn may_have_new(self) -> bool {
        matches!(self, Self::Both | Self::Unidentified)
    }
}
