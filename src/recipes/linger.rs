//! Lingering: a mutex that keeps its place for a moment after a release, for the next task of the
//! same keeper.
//!
//! Invariants: a place is kept only where nobody else was in the queue at the grant, and for as
//! long as no word of anybody has come since: the directory's children are watched, and any change
//! among them ends it. A hold is followed until nobody uses it, so that its loss is known here too.
//! What is passed on is the cohort's.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::OptionFuture;
use tokio::time::sleep_until;
use tracing::Instrument;

use crate::error::Result;
use crate::guard::Guard;
use crate::guard::cohort::{Baton, Cohort, Handoff};
use crate::guard::held_ticket::HeldTicket;
use crate::guard::hold::Hold;
use crate::guard::local_turn::LocalTurn;
use crate::guard::lost::Lost;
use crate::protocol::ticket::Mode;
use crate::queue::Waiter;
use crate::recipes::acquire::Acquirer;
use crate::session::heartbeat::LeaseEntry;
use crate::session::watching::WatchSlot;
use crate::token::Token;

/// How one mutex lingers.
#[derive(Debug, Clone)]
pub(crate) struct Linger {
    cohort: Arc<Cohort>,
    time: Duration,
}

impl Linger {
    pub(crate) fn new(cohort: Arc<Cohort>, time: Duration) -> Self {
        Self { cohort, time }
    }

    /// Takes over what is kept when its turn in the cohort has come, or waits for the turn of a new
    /// ticket. `None` if it does not wait and would have to, or if the cohort is closed.
    pub(crate) async fn take(&self, acquirer: &Acquirer, waits: bool) -> Result<Option<Guard>> {
        let acquire = async {
            let waiting = acquirer.queue.metrics.wait();
            let baton = if waits {
                acquirer.warn_of_self();
                self.cohort.baton().await
            } else {
                self.cohort.try_baton()
            };
            let Some(baton) = baton else {
                return Ok(None);
            };
            let guard = match self.take_over(acquirer, baton) {
                Ok(guard) => Some(guard),
                Err(baton) => {
                    // On the heap: most calls wait for the baton, and never for a ticket.
                    let granted = Box::pin(acquirer.turn_if(waits)).await?;
                    granted.map(|(waiter, entry)| self.begin(acquirer, baton, waiter, entry))
                }
            };
            if guard.is_some() {
                waiting.granted();
            }
            Ok(guard)
        };
        acquire.instrument(acquirer.queue.span()).await
    }

    fn take_over(&self, acquirer: &Acquirer, baton: Baton) -> Result<Guard, Baton> {
        let (hold, handoff) = baton.take_over()?;
        tracing::debug!(token = u64::from(hold.token), "taken over");
        Ok(self.guard(acquirer, hold, handoff))
    }

    /// The first guard of a new ticket.
    fn begin(
        &self,
        acquirer: &Acquirer,
        baton: Baton,
        mut granted: Waiter,
        entry: LeaseEntry,
    ) -> Guard {
        let is_alone = granted.is_alone();
        let slot = granted.take_slot();
        let token = Token::new(granted.token());
        let all_held = vec![HeldTicket::new(granted, entry)];
        let hold = Hold::new(all_held, token, Mode::Exclusive, None, Vec::new());
        let handoff = Handoff::new(is_alone, baton);
        let queue = acquirer.queue.clone();
        let ticket = hold.held().place.ticket();
        let ticket = ticket.map_or_else(String::new, |(ticket, _)| ticket.name.clone());
        // Not answered, or answered with a list of more than our own ticket: somebody is there.
        let watch = async move {
            if is_alone {
                queue.watch_alone(slot, &ticket).await
            } else {
                None
            }
        };
        let end = TurnEnd(Arc::clone(&self.cohort), Arc::clone(&handoff));
        // For as long as the hold, so it is no part of what the caller does.
        let path = &**acquirer.queue.path();
        let span = tracing::debug_span!(parent: None, "linger", path);
        let follow = end.follow(watch, hold.lost());
        hold.held().session().spawn(follow.instrument(span));
        self.guard(acquirer, hold, handoff)
    }

    fn guard(&self, acquirer: &Acquirer, hold: Arc<Hold>, handoff: Arc<Handoff>) -> Guard {
        let self_wait = acquirer.self_wait(hold.kind);
        let turn = LocalTurn::new(Arc::clone(&hold), handoff, self.time, self_wait);
        Guard::in_turn(hold, turn)
    }
}

/// Ends the passing on of one hold when it is dropped, so also with the runtime of the task that
/// follows it. A task that waits for the baton then need not wait for the task that has it: a
/// ticket of its own is always right.
struct TurnEnd(Arc<Cohort>, Arc<Handoff>);

impl TurnEnd {
    /// Follows one hold: first until it is over for passing, and then, while it is used, until it
    /// is lost. A caller may keep a lost guard for long.
    async fn follow(self, watch: impl Future<Output = Option<WatchSlot>>, mut lost: Lost) {
        let Self(cohort, handoff) = &self;
        let watch = tokio::select! {
            biased;
            _ = &mut lost => None,
            watch = watch => watch,
        };
        if let Some(watch) = watch {
            self.when_over(watch, &mut lost).await;
        }
        cohort.end(handoff);
        while handoff.is_used() {
            tokio::select! {
                biased;
                _ = &mut lost => return,
                () = handoff.let_go() => {}
            }
        }
    }

    /// Waits until anything has changed in the queue, the hold is lost, or nobody has used it for
    /// too long.
    async fn when_over(&self, mut watch: WatchSlot, lost: &mut Lost) {
        let Self(cohort, handoff) = self;
        loop {
            let kept: OptionFuture<_> = cohort.kept_until(handoff).map(sleep_until).into();
            if handoff.is_over() {
                return;
            }
            tokio::select! {
                biased;
                _ = watch.changed() => return,
                _ = &mut *lost => return,
                Some(()) = kept => {}
                () = handoff.let_go() => {}
            }
        }
    }
}

impl Drop for TurnEnd {
    fn drop(&mut self) {
        self.0.end(&self.1);
        self.1.free_baton();
    }
}
