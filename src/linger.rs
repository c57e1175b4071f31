//! Lingering: a mutex that keeps its place for a moment after a release, for the next task of the same keeper.
//!
//! Invariants: a place is kept only where nobody else was in the queue at the grant, and for as long as no word of anybody has come
//! since: the directory's children are watched, and any change among them ends it. What is passed on is the cohort's.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep_until;
use tracing::Instrument;

use crate::cohort::{Baton, Cohort, Passing, Stint};
use crate::door::Door;
use crate::error::Result;
use crate::guard::Guard;
use crate::link::Watch;
use crate::queue::Waiter;
use crate::session::pulse::Hold;
use crate::tenure::{Lost, Tenure};
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

    /// Waits for the turn in the cohort, and takes over what is kept or waits for the turn of a new ticket.
    pub(crate) async fn lock(&self, door: &Door) -> Result<Guard> {
        door.warn_of_self();
        let Some(baton) = self.cohort.baton().await else {
            return Err(door.queue.lost("the cohort is closed"));
        };
        match Self::take_over(door, baton) {
            Ok(guard) => Ok(guard),
            Err(baton) => {
                let turn = door.turn().instrument(door.queue.span());
                let (waiter, hold) = turn.await?;
                Ok(self.begin(door, baton, waiter, hold))
            }
        }
    }

    /// As [`lock`](Self::lock), if that needs no wait.
    pub(crate) async fn try_lock(&self, door: &Door) -> Result<Option<Guard>> {
        let Some(baton) = self.cohort.try_baton() else {
            return Ok(None);
        };
        match Self::take_over(door, baton) {
            Ok(guard) => Ok(Some(guard)),
            Err(baton) => {
                let turn = door.try_turn().instrument(door.queue.span());
                let granted = turn.await?;
                Ok(granted.map(|(waiter, hold)| self.begin(door, baton, waiter, hold)))
            }
        }
    }

    fn take_over(door: &Door, baton: Baton) -> Result<Guard, Baton> {
        let Some((tenure, passing)) = baton.take_over() else {
            return Err(baton);
        };
        tracing::debug!(token = u64::from(tenure.token()), "taken over");
        Ok(guard(door, baton, tenure, passing))
    }

    /// The first guard of a new ticket.
    fn begin(&self, door: &Door, baton: Baton, granted: Waiter, hold: Hold) -> Guard {
        let is_alone = granted.is_alone();
        let session = Arc::clone(granted.session());
        let token = Token::new(granted.token());
        let tenure = Tenure::of_one(granted, hold, token);
        let passing = Passing::new(is_alone, self.time);
        if is_alone {
            let queue = door.queue.clone();
            let end = End(Arc::clone(&self.cohort), Arc::clone(&passing));
            let lost = tenure.lost();
            let watch = async move {
                // Not answered, or answered with a list of more than our own ticket: somebody is there.
                if let Some(watch) = queue.watch_alone(&session).await {
                    drop(session);
                    end.when_over(watch, lost).await;
                }
            };
            tokio::spawn(watch.in_current_span());
        }
        guard(door, baton, tenure, passing)
    }
}

fn guard(door: &Door, baton: Baton, tenure: Arc<Tenure>, passing: Arc<Passing>) -> Guard {
    let presence = door.presence(tenure.kind());
    let stint = Stint::new(baton, Arc::clone(&tenure), passing, presence);
    Guard::in_turn(tenure, stint)
}

/// Ends the passing on of one hold when it is dropped, so also with the runtime of the task that watches.
struct End(Arc<Cohort>, Arc<Passing>);

impl End {
    /// Waits until anything has changed in the queue, the hold is lost, or nobody has used it for too long.
    async fn when_over(self, mut watch: Watch, lost: Lost) {
        let Self(cohort, passing) = &self;
        tokio::pin!(lost);
        while !passing.is_over() {
            let look_again = cohort.expire(passing);
            tokio::select! {
                biased;
                _ = watch.changed() => return,
                _ = &mut lost => return,
                () = sleep_until(look_again) => {}
            }
        }
    }
}

impl Drop for End {
    fn drop(&mut self) {
        self.0.end(&self.1);
    }
}
