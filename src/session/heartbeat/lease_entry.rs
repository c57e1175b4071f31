//! A hold's entry under the lease, and its loss.
//!
//! Invariant: each question observes the clock and the session first, so no answer is older than
//! the loss that it should tell. Nothing here sends a request.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use super::Heartbeat;
use crate::error::Error;
use crate::metrics::{LockMetrics, Reason};
use crate::session::ending::End;

/// How a hold was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Loss {
    /// No server confirmed the session for so long that it may be over.
    Lapsed,
    Ended(End),
    /// The ticket is gone, or another client's stands under its name.
    Gone(&'static str),
}

impl Loss {
    /// The reason in the metrics.
    pub(super) fn reason(self) -> Reason {
        match self {
            Self::Lapsed => Reason::Lease,
            Self::Ended(End::Over(_)) => Reason::Session,
            Self::Ended(End::Closed) => Reason::Closed,
            Self::Gone(_) => Reason::Ticket,
        }
    }

    /// The error for the former holder.
    pub(crate) fn while_trying(self, doing: &'static str, name: impl ToString) -> Error {
        match self {
            Self::Lapsed => Error::LeaseOver {
                name: name.to_string(),
            },
            Self::Ended(end) => end.while_trying(doing, name),
            Self::Gone(why) => Error::place_lost(name, why),
        }
    }
}

/// One granted ticket, for as long as its guard lives.
#[derive(Debug)]
pub(crate) struct LeaseEntry(pub(super) LossWatch);

impl LeaseEntry {
    /// Counts the hold for as long as it lasts. It is counted in the heartbeat's entry, so that a
    /// loss takes it off the gauge while its guard still lives.
    pub(crate) fn count(&self, metrics: &LockMetrics) {
        let Some(holding) = metrics.hold() else {
            return;
        };
        let watch = &self.0;
        let uncounted = match watch.heartbeat.observed().entries.get_mut(&watch.id) {
            Some(entry) => entry.holding.replace(holding),
            None => Some(holding),
        };
        // It was lost before it was counted.
        if let Some(holding) = uncounted {
            let loss = *watch.loss.borrow();
            holding.lost(loss.map_or(Reason::Session, Loss::reason));
        }
    }

    /// How it was lost, if it was.
    pub(crate) fn loss(&self) -> Option<Loss> {
        self.0.loss()
    }

    /// For how long the lease lasts; nothing once the hold is lost.
    pub(crate) fn valid_for(&self) -> Duration {
        let state = self.0.heartbeat.observed();
        match state.lease.valid_until(state.now) {
            Some(end) if self.0.loss.borrow().is_none() => end - state.now,
            _ => Duration::ZERO,
        }
    }

    /// Whether the hold is surely good, or the connection is down or a heartbeat is missing. The
    /// loss, if it was lost.
    pub(crate) fn surely_held(&self) -> Result<bool, Loss> {
        let heartbeat = &self.0.heartbeat;
        let state = heartbeat.observed();
        let loss = *self.0.loss.borrow();
        let is_good = || heartbeat.is_connected() && !state.lease.is_late(state.now);
        loss.map_or_else(|| Ok(is_good()), Err)
    }

    /// For a task that may outlive the guard.
    pub(crate) fn loss_watch(&self) -> LossWatch {
        self.0.clone()
    }

    /// A read found that the ticket is gone.
    pub(crate) fn lose(&self, why: &'static str) {
        self.0.heartbeat.observed().lose(self.0.id, why);
    }
}

impl Drop for LeaseEntry {
    fn drop(&mut self) {
        let entry = self.0.heartbeat.state.lock().entries.remove(&self.0.id);
        // Only now: it is counted until then, and counters are not ours.
        drop(entry);
    }
}

/// Sees a hold's loss, and does not keep the hold alive.
#[derive(Debug, Clone)]
pub(crate) struct LossWatch {
    pub(super) heartbeat: Arc<Heartbeat>,
    pub(super) id: u64,
    pub(super) loss: watch::Receiver<Option<Loss>>,
}

impl LossWatch {
    /// How the hold was lost, if it was.
    pub(crate) fn loss(&self) -> Option<Loss> {
        self.heartbeat.observe();
        *self.loss.borrow()
    }

    /// The ticket is about to be removed by us: from now on only the lease and the session decide.
    /// Says how the hold was lost already, if it was.
    pub(crate) fn begin_release(&self) -> Option<Loss> {
        self.heartbeat.observed().hide(self.id);
        *self.loss.borrow()
    }

    /// The ticket is not removed after all.
    pub(crate) fn stay(&self) {
        if let Some(entry) = self.heartbeat.observed().entries.get_mut(&self.id) {
            entry.is_hidden = false;
        }
    }

    /// Waits for the loss. Never ends after the hold was given up without one.
    pub(crate) async fn lost(mut self) -> Loss {
        // An error means that the hold was given up. Its last value still counts.
        self.loss.wait_for(Option::is_some).await.map(drop).ok();
        let loss = *self.loss.borrow();
        match loss {
            Some(loss) => loss,
            None => std::future::pending().await,
        }
    }
}
