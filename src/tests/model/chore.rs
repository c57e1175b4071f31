//! What a janitor has to remove. (pure)
//!
//! The real `Removal` decides what is sent and read; a sweep is modelled here.

use super::client::Request;
use super::held_ticket::{Found, Held, found, writes};
use super::store::Tree;
use crate::protocol::answer::Answer;
use crate::protocol::departure::Departure;
use crate::protocol::removal::{Removal, RemovalStep, TicketRead};

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Chore {
    /// Removes a ticket.
    Leave {
        directory: usize,
        name: String,
        czxid: i64,
        removal: Removal,
        /// It really was there at the last read. Known to the search only.
        was_seen: bool,
    },
    /// Removes whatever an attempt made, or nothing if that was not done.
    Sweep {
        directories: Vec<usize>,
        attempt: Option<i64>,
    },
    Done,
}

impl Chore {
    /// A ticket that leaves by itself.
    pub(super) fn leave(held: &Held, departure: Departure) -> Self {
        Self::Leave {
            directory: held.directory,
            name: held.name.clone(),
            czxid: held.czxid,
            removal: Removal::new(held.czxid, departure),
            was_seen: false,
        }
    }

    /// A ticket that was found by its attempt, just now.
    pub(super) fn found((directory, name, czxid): Found) -> Self {
        Self::Leave {
            directory,
            name,
            czxid,
            removal: Removal::new(czxid, Departure::just_read()),
            was_seen: true,
        }
    }

    pub(super) fn request(&self) -> Request {
        if let Self::Leave {
            directory,
            name,
            removal,
            ..
        } = self
        {
            if let RemovalStep::Delete(plan) = removal.step() {
                return Request::Writes(writes(*directory, name, plan));
            }
        }
        Request::SyncedRead
    }

    /// Takes in the answer to a delete.
    pub(super) fn answered(&mut self, answer: Answer) {
        if let Self::Leave { removal, .. } = self {
            removal.deleted(answer);
            self.forget_if_ended();
        }
    }

    /// Takes in a read; what else is to be done by it.
    pub(super) fn read(&mut self, me: usize, view: &Tree) -> Vec<Self> {
        match self {
            Self::Leave {
                directory,
                name,
                czxid,
                removal,
                was_seen,
            } => {
                let there = view.node(*directory, name);
                *was_seen = view.identity(*directory, *czxid).is_some();
                let nothing = TicketRead::Nothing;
                removal.seen(there.map_or(nothing, |node| TicketRead::Node(node.czxid)));
                self.forget_if_ended();
                Vec::new()
            }
            Self::Sweep {
                directories,
                attempt,
            } => {
                let found = found(directories, *attempt, view, me);
                *self = Self::Done;
                found.into_iter().map(Self::found).collect()
            }
            Self::Done => Vec::new(),
        }
    }

    fn forget_if_ended(&mut self) {
        if let Self::Leave { removal, .. } = self {
            if matches!(removal.step(), RemovalStep::End(_)) {
                *self = Self::Done;
            }
        }
    }
}
