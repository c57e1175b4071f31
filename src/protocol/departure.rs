//! How a ticket of ours will leave: by which plan, and whether its name alone is enough. (pure)
//!
//! Invariant: a ticket leaves by its name, without being read first, only if it was granted and
//! was seen to be ours a moment ago (docs/failures.md row 71). The place keeps it while the ticket
//! is there, and `removal.rs` goes on from it. It reads no clock.

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
pub(super) enum DeleteProgress {
    /// Nothing was sent, and the ticket was seen to be ours a moment ago: it may be sent at once.
    Fresh,
    /// Nothing was sent, but the name may be somebody else's by now: read it first.
    Doubtful,
    /// A delete was sent and its outcome is unknown: read the ticket before anything else.
    Sent,
}

/// How one ticket will leave.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Departure {
    pub(super) plan: ReleasePlan,
    pub(super) progress: DeleteProgress,
    /// When the ticket was last read and was ours.
    seen: Option<Moment>,
}

impl Departure {
    /// Of a ticket that was not granted: it is read first.
    pub(crate) fn doubtful() -> Self {
        Self {
            plan: ReleasePlan::Plain,
            progress: DeleteProgress::Doubtful,
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
            seen: Some(at),
        }
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

    /// Takes in the answer to one request by which so many tickets were to leave. Whether they are
    /// gone; if not, each leaves by itself.
    pub(crate) fn answered(&mut self, answer: Answer, tickets: usize) -> bool {
        match answer {
            Answer::Done | Answer::Unknown => {}
            // Nothing was changed: the server is busy, or another ticket may have been refused. So
            // the mark is tried again.
            _ if tickets > 1 || answer == Answer::NotNow => {
                self.progress = DeleteProgress::Doubtful;
            }
            _ => self.leave_in_doubt(),
        }
        answer == Answer::Done
    }
}
