//! What a janitor has to remove. (pure)
//!
//! The real `Departure` decides what is sent and read, and the real `sweep` what is found.

use super::client::Request;
use super::held_ticket::{Found, Held, found};
use super::store::Tree;
use crate::protocol::answer::Answer;
use crate::protocol::departure::{Departure, DepartureStep, TicketRead};
use crate::protocol::sweep::Wish;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Chore {
    /// Removes a ticket.
    Leave {
        held: Held,
        /// It really was there at the last read. Known to the search only.
        was_seen: bool,
    },
    /// Removes whatever an attempt made, or nothing if that was not done.
    Sweep {
        directories: Vec<usize>,
        attempt: Option<i64>,
    },
}

impl Chore {
    /// A ticket that was found by its attempt, just now.
    pub(super) fn found(found: Found) -> Self {
        Self::Leave {
            held: Held::new(found, Departure::just_read()),
            was_seen: true,
        }
    }

    pub(super) fn request(&self) -> Request {
        match self {
            Self::Leave { held, .. } if held.departure.step() != DepartureStep::Read => {
                Request::Writes(held.writes())
            }
            _ => Request::SyncedRead,
        }
    }

    /// Takes in the answer to a delete.
    pub(super) fn answered(&mut self, answer: Answer) {
        if let Self::Leave { held, .. } = self {
            held.departure.answered(answer, 1);
        }
    }

    /// Takes in a read; what else is to be done by it.
    pub(super) fn read(&mut self, me: usize, view: &Tree) -> Vec<Self> {
        match self {
            Self::Leave { held, was_seen } => {
                let there = view.node(held.directory, &held.name);
                *was_seen = view.identity(held.directory, held.czxid).is_some();
                let there = there.map(|node| node.czxid);
                held.departure.read(TicketRead::of(there, held.czxid));
                Vec::new()
            }
            Self::Sweep {
                directories,
                attempt,
            } => {
                let mut found = found(directories, *attempt, view, me);
                // Nothing is left to look for.
                directories.clear();
                // Nobody waits for the answer.
                found.retain(|_| Wish::Own.is_orphan(false));
                found.into_iter().map(Self::found).collect()
            }
        }
    }

    pub(super) fn is_done(&self) -> bool {
        match self {
            Self::Leave { held, .. } => matches!(held.departure.step(), DepartureStep::End(_)),
            Self::Sweep { directories, .. } => directories.is_empty(),
        }
    }
}
