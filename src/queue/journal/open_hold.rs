//! A hold that has begun and not ended, with the line that its end completes.

use std::time::{Duration, Instant};

use crate::name::LockName;
use crate::protocol::journal_page::{HoldOutcome, PageLine};
use crate::session::End;
use crate::session::heartbeat::{Loss, LossWatch};

/// A hold that has begun.
#[derive(Debug, Clone)]
pub(super) struct OpenHold {
    pub(super) name: LockName,
    pub(super) line: PageLine,
    pub(super) began: Instant,
    pub(super) loss_watch: LossWatch,
}

impl OpenHold {
    /// Its line with this outcome, unless it was lost before.
    pub(super) fn ended(&self, held: Duration, outcome: HoldOutcome) -> PageLine {
        let loss = self.loss_watch.loss();
        let outcome = loss.map_or(outcome, |loss| HoldOutcome::Lost(why(loss)));
        self.line.clone().ended(held, outcome)
    }
}

pub(super) fn why(loss: Loss) -> String {
    match loss {
        Loss::Lapsed => "its lease ended".into(),
        Loss::Ended(End::Closed) => "its keeper was closed".into(),
        Loss::Ended(End::Over(reason)) => format!("its session ended: {reason}"),
        Loss::Gone(why) => why.into(),
    }
}
