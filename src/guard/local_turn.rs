//! A turn: one guard's part of a hold that may be passed on.
//!
//! Invariants: only the task with the baton keeps a hold for the next one, and only while the hold
//! is surely good. Otherwise its ticket goes first, and the baton after it. It waits for nothing
//! but the servers' answer to a release.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::error::Result;
use crate::guard::cohort::{Baton, Handoff};
use crate::guard::hold::{GuardState, Hold};
use crate::guard::lost::Lost;
use crate::guard::self_wait::SelfWait;

/// One guard's part of a hold that may be passed on.
#[derive(Debug)]
pub(crate) struct LocalTurn {
    /// Gone once it was passed on, or is about to be released. Nobody but the guard has it too,
    /// which lets go of it first.
    hold: Option<Arc<Hold>>,
    handoff: Arc<Handoff>,
    /// How long the hold is kept after it.
    time: Duration,
    /// Whether it was passed on, for the callers of `lost`.
    is_passed_on: OnceLock<Arc<AtomicBool>>,
    _self_wait: SelfWait,
}

impl LocalTurn {
    pub(crate) fn new(
        hold: Arc<Hold>,
        handoff: Arc<Handoff>,
        time: Duration,
        self_wait: SelfWait,
    ) -> Self {
        Self {
            hold: Some(hold),
            handoff,
            time,
            is_passed_on: OnceLock::new(),
            _self_wait: self_wait,
        }
    }

    /// It is not kept for the next one.
    pub(crate) fn stop(&self) {
        self.handoff.stop();
    }

    /// A loss that is told only if it comes before the hold is passed on: then it is the next
    /// one's.
    pub(crate) fn lost(&self, hold: &Hold) -> Lost {
        let is_passed_on = self.is_passed_on.get_or_init(Arc::default);
        hold.lost().unless(Arc::clone(is_passed_on))
    }

    /// Ends the guard: the hold is kept for the next one, or released.
    ///
    /// # Cancel safety
    ///
    /// As the release of a hold: it goes on in the background.
    pub(crate) async fn release(mut self: Box<Self>) -> Result<()> {
        let Some((hold, baton)) = self.pass_on() else {
            return Ok(());
        };
        let released = hold.release().await;
        // Only now, so that the next one of ours does not queue up behind this ticket.
        drop(baton);
        released
    }

    /// Keeps the hold for the next one and gives the baton on; or gives back what is to be
    /// released: first the ticket, then the baton.
    fn pass_on(&mut self) -> Option<(Arc<Hold>, Option<Baton>)> {
        let hold = self.hold.take()?;
        // None after a loss: the next one has it already.
        let baton = self.handoff.take_baton();
        let is_good = !self.handoff.is_over() && hold.state() == GuardState::Held;
        let token = hold.token;
        let hold = match &baton {
            Some(baton) if is_good => match baton.cohort.keep(hold, &self.handoff, self.time) {
                Ok(()) => {
                    tracing::debug!(token = u64::from(token), "kept for the next one");
                    if let Some(is_passed_on) = self.is_passed_on.get() {
                        is_passed_on.store(true, Ordering::Relaxed);
                    }
                    return None;
                }
                Err(hold) => hold,
            },
            _ => hold,
        };
        self.handoff.stop();
        Some((hold, baton))
    }
}

impl Drop for LocalTurn {
    fn drop(&mut self) {
        drop(self.pass_on());
    }
}
