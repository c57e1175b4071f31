//! What a janitor has to remove: as `session/janitor.rs` does it. (pure)
//!
//! Invariant, as there: no delete is repeated before the ticket was read and its identity compared.

use super::client::Request;
use super::seat::{Held, found};
use super::store::Tree;
use crate::protocol::mark::ReleasePlan;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Chore {
    /// Removes a ticket.
    Leave {
        held: Held,
        /// A look has just said that it is ours.
        is_ours: bool,
        /// It really was. Known to the search only.
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
    /// A ticket that must be looked at first.
    pub(super) fn doubtful(held: Held) -> Self {
        Self::Leave {
            held,
            is_ours: false,
            was_seen: false,
        }
    }

    /// A ticket that was just read.
    pub(super) fn seen(held: Held) -> Self {
        Self::Leave {
            held,
            is_ours: true,
            was_seen: true,
        }
    }

    pub(super) fn request(&self) -> Request {
        match self {
            Self::Leave {
                held,
                is_ours: true,
                ..
            } => Request::Writes(held.writes()),
            _ => Request::SyncedRead,
        }
    }

    pub(super) fn answered(&mut self, is_done: bool) {
        if is_done {
            *self = Self::Done;
        } else if let Self::Leave { held, is_ours, .. } = self {
            // Nothing was changed.
            held.plan = held.plan.clone().plainer();
            *is_ours = false;
        }
    }

    /// The reply to a delete was lost: the ticket is read before anything else.
    pub(super) fn lost(&mut self) {
        if let Self::Leave { is_ours, .. } = self {
            *is_ours = false;
        }
    }

    /// Takes in a look; what else is to be done by it.
    pub(super) fn looked(&mut self, me: usize, view: &Tree) -> Vec<Self> {
        match self {
            Self::Leave {
                held,
                is_ours,
                was_seen,
            } => {
                let there = view.node(held.directory, &held.name);
                *was_seen = view.identity(held.directory, held.czxid).is_some();
                *is_ours = there.is_some_and(|node| node.czxid == held.czxid);
                if !*is_ours {
                    *self = Self::Done;
                }
                Vec::new()
            }
            Self::Sweep {
                directories,
                attempt,
            } => {
                let found = found(directories, *attempt, view, me);
                *self = Self::Done;
                let leave = |(directory, name, czxid)| {
                    Self::seen(Held {
                        directory,
                        name,
                        czxid,
                        plan: ReleasePlan::Plain,
                    })
                };
                found.into_iter().map(leave).collect()
            }
            Self::Done => Vec::new(),
        }
    }
}
