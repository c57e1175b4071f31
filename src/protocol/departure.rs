//! How a ticket of ours leaves: what to send next, and what each answer means. (pure)
//!
//! Invariants: a ticket leaves by its name, without being read first, only if it was granted and
//! was seen to be ours a moment ago; a delete whose outcome is unknown is never repeated before the
//! ticket was read and its `czxid` compared, because the name may be a stranger's by then
//! (docs/failures.md row 71); it ends only when the ticket is known to be gone, or when the servers
//! refuse. It reads no clock and sends nothing: the place and the janitor do, and so does the
//! exhaustive search of the tests.

use std::time::Duration;

use super::answer::Answer;
use super::lease::Moment;
use super::mark::ReleasePlan;

/// For how long a ticket that was read and was ours may be removed by its name alone. No request
/// can ask for an identity and delete, so there is always a moment between the two; an operator
/// would have to break the ticket, and the server to remove the directory and somebody to take the
/// same number at the same version of the new one, all within it.
const FRESH: Duration = Duration::from_secs(1);

/// How far the removal of a ticket has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum DeleteProgress {
    /// The ticket was seen to be ours a moment ago: a delete may be sent at once.
    Fresh,
    /// The name may be somebody else's by now: read it first.
    Doubtful,
    /// A delete is under way: read the ticket before anything else.
    Sent,
    Ended(DepartureEnd),
}

/// How one ticket leaves.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Departure {
    plan: ReleasePlan,
    progress: DeleteProgress,
    /// A delete with an unknown outcome may have been done.
    was_sent: bool,
    /// When the ticket was last read and was ours.
    seen: Option<Moment>,
}

/// What has to be done for the ticket to leave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum DepartureStep<'a> {
    /// Delete the ticket by this plan.
    Delete(&'a ReleasePlan),
    /// Read the ticket after a sync.
    Read,
    End(DepartureEnd),
}

/// How a removal ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum DepartureEnd {
    /// Our delete removed the ticket.
    Removed,
    /// It was gone already.
    WasGone,
    /// We lack the right to read it, or to delete it.
    NoAuth,
    /// It has children, which none of ours ever has.
    NotEmpty,
}

/// What a read found at the path of a ticket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TicketRead {
    Ours,
    /// Nothing, or a node with another `czxid`.
    Gone,
    NoAuth,
    /// The read failed, or the server may lag behind.
    Unknown,
}

impl TicketRead {
    /// From the `czxid` that was found, if there is a node, for a ticket with this one.
    pub(crate) fn of(found: Option<i64>, mine: i64) -> Self {
        if found == Some(mine) {
            Self::Ours
        } else {
            Self::Gone
        }
    }
}

impl Departure {
    /// Of a ticket that was not granted: it is read first.
    pub(crate) fn doubtful() -> Self {
        Self {
            plan: ReleasePlan::Plain,
            progress: DeleteProgress::Doubtful,
            was_sent: false,
            seen: None,
        }
    }

    /// Of a ticket that was not granted, and has just been read.
    pub(crate) fn just_read() -> Self {
        Self {
            progress: DeleteProgress::Fresh,
            ..Self::doubtful()
        }
    }

    /// Of a ticket that was granted, and so seen to be ours at that moment.
    pub(crate) fn granted(plan: ReleasePlan, at: Moment) -> Self {
        Self {
            // Without a mark nothing ties the delete to this directory, and the grant may have been
            // read from a server that lags behind.
            progress: match plan {
                ReleasePlan::Plain => DeleteProgress::Doubtful,
                _ => DeleteProgress::Fresh,
            },
            plan,
            was_sent: false,
            seen: Some(at),
        }
    }

    /// What has to be done next.
    pub(crate) fn step(&self) -> DepartureStep<'_> {
        match self.progress {
            DeleteProgress::Fresh => DepartureStep::Delete(&self.plan),
            DeleteProgress::Doubtful | DeleteProgress::Sent => DepartureStep::Read,
            DeleteProgress::Ended(end) => DepartureStep::End(end),
        }
    }

    pub(crate) fn plan(&self) -> &ReleasePlan {
        &self.plan
    }

    /// The version of the directory at which the mark is left.
    pub(crate) fn marks_at(&self) -> Option<i32> {
        self.plan.marks_at()
    }

    /// Our own writes have brought the directory to this version.
    pub(crate) fn follow_version(&mut self, version: i32) {
        self.plan = self.plan.clone().at(version);
    }

    /// Its end proves nothing, so the next ticket reads the queue.
    pub(crate) fn forgo_mark(&mut self) {
        self.plan = self.plan.clone().unmarked();
    }

    /// Something else was seen in the ticket's place: it leaves by its identity alone.
    pub(crate) fn leave_in_doubt(&mut self) {
        self.plan = ReleasePlan::Plain;
        self.progress = DeleteProgress::Doubtful;
    }

    /// The ticket was read once more, and was ours at that moment.
    pub(crate) fn seen(&mut self, at: Moment) {
        self.seen = Some(at);
    }

    /// The ticket was read after a sync, to leave together with others.
    pub(crate) fn refresh(&mut self, at: Moment) {
        (self.progress, self.seen) = (DeleteProgress::Fresh, Some(at));
    }

    /// What was seen long ago may be otherwise by now.
    pub(crate) fn age(&mut self, now: Moment) {
        self.progress = match (self.progress, self.seen) {
            (DeleteProgress::Fresh, Some(seen)) if now <= seen + FRESH => DeleteProgress::Fresh,
            (DeleteProgress::Fresh, _) => DeleteProgress::Doubtful,
            (progress, _) => progress,
        };
    }

    /// Whether one more read would let the ticket leave together with others.
    pub(crate) fn needs_read(&self) -> bool {
        self.progress == DeleteProgress::Doubtful && self.plan != ReleasePlan::Plain
    }

    /// The plan of a ticket that may leave at once, by its name.
    pub(crate) fn by_name(&self) -> Option<&ReleasePlan> {
        let is_tied = matches!(
            self.plan,
            ReleasePlan::Marked { .. } | ReleasePlan::Unmarked { .. }
        );
        (is_tied && self.progress == DeleteProgress::Fresh).then_some(&self.plan)
    }

    /// A delete of the ticket is on its way.
    pub(crate) fn sent(&mut self) {
        self.progress = DeleteProgress::Sent;
    }

    /// Takes in the answer to a request by which so many tickets were to leave.
    pub(crate) fn answered(&mut self, answer: Answer, tickets: usize) {
        self.was_sent |= answer == Answer::Unknown;
        let is_plain = self.plan == ReleasePlan::Plain;
        self.progress = match answer {
            Answer::Done => DeleteProgress::Ended(DepartureEnd::Removed),
            Answer::NoAuth if is_plain => DeleteProgress::Ended(DepartureEnd::NoAuth),
            Answer::NotEmpty if is_plain => DeleteProgress::Ended(DepartureEnd::NotEmpty),
            Answer::NotNow | Answer::Unknown => DeleteProgress::Doubtful,
            // Another ticket may have been refused, so the mark is tried again.
            _ if tickets > 1 => DeleteProgress::Doubtful,
            // Nothing was changed. Whatever was wrong with the whole, the next try goes without its
            // outer part.
            _ => {
                self.plan = self.plan.clone().plainer();
                DeleteProgress::Doubtful
            }
        };
    }

    /// Takes in a read of the ticket.
    pub(crate) fn read(&mut self, found: TicketRead) {
        self.was_sent |= self.progress == DeleteProgress::Sent;
        self.progress = match found {
            TicketRead::Ours => DeleteProgress::Fresh,
            // Our delete was under way, so it was ours that removed the ticket.
            TicketRead::Gone if self.was_sent => DeleteProgress::Ended(DepartureEnd::Removed),
            TicketRead::Gone => DeleteProgress::Ended(DepartureEnd::WasGone),
            TicketRead::NoAuth => DeleteProgress::Ended(DepartureEnd::NoAuth),
            TicketRead::Unknown => DeleteProgress::Doubtful,
        };
    }
}
