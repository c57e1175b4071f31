//! The removal of one ticket: what to send next, and what each answer means. (pure)
//!
//! Invariants: a delete whose outcome is unknown is never repeated before the ticket was read and
//! its `czxid` compared, because the name may be a stranger's by then (docs/failures.md row 71);
//! the removal ends only when the ticket is known to be gone, or when the servers refuse. It sends
//! nothing and waits for nothing: the janitor does, and so does the exhaustive search of the tests.

use super::answer::Answer;
use super::departure::{DeleteProgress, Departure};
use super::mark::ReleasePlan;

/// One ticket on its way out.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Removal {
    czxid: i64,
    plan: ReleasePlan,
    phase: RemovalPhase,
    /// A delete of ours may have been done.
    was_sent: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum RemovalPhase {
    /// A read has just shown our `czxid`.
    Ours,
    Unread,
    Ended(RemovalEnd),
}

/// What has to be done for the removal to go on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RemovalStep<'a> {
    /// Delete the ticket by this plan.
    Delete(&'a ReleasePlan),
    /// Read the ticket after a sync.
    Read,
    End(RemovalEnd),
}

/// How a removal ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum RemovalEnd {
    /// Our delete removed the ticket.
    Removed,
    /// It was gone already.
    WasGone,
    /// We lack the right to read it, or to delete it.
    NoAuth,
    /// It has children, which none of ours ever has.
    NotEmpty,
}

/// What a read found at the path of the ticket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TicketRead {
    /// A node with this `czxid`.
    Node(i64),
    Nothing,
    NoAuth,
    /// The read failed, or the server may lag behind.
    Unknown,
}

impl Removal {
    pub(crate) fn new(czxid: i64, departure: Departure) -> Self {
        let Departure { plan, progress, .. } = departure;
        Self {
            czxid,
            plan,
            phase: match progress {
                DeleteProgress::Fresh => RemovalPhase::Ours,
                DeleteProgress::Doubtful | DeleteProgress::Sent => RemovalPhase::Unread,
            },
            was_sent: progress == DeleteProgress::Sent,
        }
    }

    /// What has to be done next.
    pub(crate) fn step(&self) -> RemovalStep<'_> {
        match self.phase {
            RemovalPhase::Ours => RemovalStep::Delete(&self.plan),
            RemovalPhase::Unread => RemovalStep::Read,
            RemovalPhase::Ended(end) => RemovalStep::End(end),
        }
    }

    /// Takes in the answer to a delete.
    pub(crate) fn deleted(&mut self, answer: Answer) {
        self.was_sent |= answer == Answer::Unknown;
        let is_plain = self.plan == ReleasePlan::Plain;
        self.phase = match answer {
            Answer::Done => RemovalPhase::Ended(RemovalEnd::Removed),
            Answer::NoAuth if is_plain => RemovalPhase::Ended(RemovalEnd::NoAuth),
            Answer::NotEmpty if is_plain => RemovalPhase::Ended(RemovalEnd::NotEmpty),
            Answer::NotNow | Answer::Unknown => RemovalPhase::Unread,
            // Nothing was changed. Whatever was wrong with the whole, the next try goes without its
            // outer part.
            _ => {
                self.plan = std::mem::replace(&mut self.plan, ReleasePlan::Plain).plainer();
                RemovalPhase::Unread
            }
        };
    }

    /// Takes in a read of the ticket.
    pub(crate) fn seen(&mut self, found: TicketRead) {
        self.phase = match found {
            TicketRead::Node(czxid) if czxid == self.czxid => RemovalPhase::Ours,
            // Our delete was under way, so it was ours that removed the ticket.
            TicketRead::Node(_) | TicketRead::Nothing if self.was_sent => {
                RemovalPhase::Ended(RemovalEnd::Removed)
            }
            TicketRead::Node(_) | TicketRead::Nothing => RemovalPhase::Ended(RemovalEnd::WasGone),
            TicketRead::NoAuth => RemovalPhase::Ended(RemovalEnd::NoAuth),
            TicketRead::Unknown => RemovalPhase::Unread,
        };
    }
}
