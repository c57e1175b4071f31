//! A sweep for what lost creates have made: which of a session's own nodes it finds, and which of
//! those it removes. (pure)
//!
//! Invariants: a node whose data names an attempt is found by that attempt only; one whose data
//! names none is found only if it is a ticket or a permit that nobody answers for. What was found
//! is removed unless its caller takes it, or only wants to know of it. It lists and removes
//! nothing: the janitor does, and so does the exhaustive search of the tests.

use super::permits;
use super::ticket::Ticket;

/// What a caller wants with the ticket that its attempt has made, if it has made one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wish {
    /// It goes to the caller, and is removed if the caller is gone.
    Own,
    /// It stays, whether the caller waits for the answer or not.
    Know,
}

impl Wish {
    /// Whether a ticket that was found is removed; a caller that is gone was not told.
    pub(crate) fn is_orphan(self, is_told: bool) -> bool {
        self == Self::Own && !is_told
    }
}

/// Whether a node of our own session is one that the sweep is for: by whether the attempt that its
/// data names is looked for, if they name one.
pub(crate) fn finds(name: &str, wanted: Option<bool>, is_nobodys: impl FnOnce() -> bool) -> bool {
    let is_ticket = || Ticket::parse(name).is_some() || permits::weight(name).is_some();
    wanted.unwrap_or_else(|| is_ticket() && is_nobodys())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_names_no_attempt_is_found_only_as_a_ticket_that_nobody_answers_for() {
        let finds = |name, is_nobodys| finds(name, None, || is_nobodys);

        assert!(finds("lock-0000000003", true) && finds("permit-2-0000000003", true));
        assert!(!finds("lock-0000000003", false), "somebody waits with it");
        assert!(!finds("limit", true), "it is no ticket");
    }

    #[test]
    fn what_names_an_attempt_is_found_by_that_one_only() {
        assert!(finds("any", Some(true), || false));
        assert!(!finds("lock-0000000003", Some(false), || true));
    }

    #[test]
    fn what_a_caller_takes_over_or_asks_about_stays() {
        assert!(Wish::Own.is_orphan(false));
        assert!(!Wish::Own.is_orphan(true) && !Wish::Know.is_orphan(false));
    }
}
