//! Lingering: a mutex that keeps its place for a moment after a release, for the next task of the same keeper.
//!
//! Invariants: a place is kept only where nobody else was in the queue at the grant, and for as long as no word of anybody has come
//! since: the directory's children are watched, and any change among them ends it. A hold is followed until nobody uses it, so that
//! its loss is known here too. What is passed on is the cohort's.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::OptionFuture;
use tokio::time::sleep_until;
use tracing::Instrument;

use crate::error::Result;
use crate::guard::Guard;
use crate::guard::cohort::{Baton, Cohort, Passing};
use crate::guard::hold::{Lost, Tenure};
use crate::guard::local_turn::Stint;
use crate::queue::Waiter;
use crate::recipes::acquire::Door;
use crate::session::heartbeat::Hold;
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

    /// Waits for the turn in the cohort, and takes over what is kept or waits for the turn of a new ticket.
    pub(crate) async fn lock(&self, door: &Door) -> Result<Guard> {
        let acquire = async {
            let waiting = door.queue.meter().wait();
            door.warn_of_self();
            let Some(baton) = self.cohort.baton().await else {
                return Err(door.queue.lost("the cohort is closed"));
            };
            let guard = match self.take_over(door, baton) {
                Ok(guard) => guard,
                Err(baton) => {
                    // On the heap: most calls wait for the baton, and never for a ticket.
                    let (waiter, hold) = Box::pin(door.turn()).await?;
                    self.begin(door, baton, waiter, hold)
                }
            };
            waiting.granted();
            Ok(guard)
        };
        acquire.instrument(door.queue.span()).await
    }

    /// As [`lock`](Self::lock), if that needs no wait.
    pub(crate) async fn try_lock(&self, door: &Door) -> Result<Option<Guard>> {
        let acquire = async {
            let waiting = door.queue.meter().wait();
            let Some(baton) = self.cohort.try_baton() else {
                return Ok(None);
            };
            let guard = match self.take_over(door, baton) {
                Ok(guard) => Some(guard),
                Err(baton) => {
                    let granted = Box::pin(door.try_turn()).await?;
                    granted.map(|(waiter, hold)| self.begin(door, baton, waiter, hold))
                }
            };
            if guard.is_some() {
                waiting.granted();
            }
            Ok(guard)
        };
        acquire.instrument(door.queue.span()).await
    }

    fn take_over(&self, door: &Door, baton: Baton) -> Result<Guard, Baton> {
        let (tenure, passing) = baton.take_over()?;
        tracing::debug!(token = u64::from(tenure.token()), "taken over");
        Ok(self.guard(door, tenure, passing))
    }

    /// The first guard of a new ticket.
    fn begin(&self, door: &Door, baton: Baton, mut granted: Waiter, hold: Hold) -> Guard {
        let is_alone = granted.is_alone();
        let slot = granted.take_slot();
        let token = Token::new(granted.token());
        let tenure = Tenure::of_one(granted, hold, token);
        let passing = Passing::new(is_alone, baton);
        let queue = door.queue.clone();
        let ticket = tenure.seat().place.ticket();
        let ticket = ticket.map_or_else(String::new, |(ticket, _)| ticket.name.clone());
        // Not answered, or answered with a list of more than our own ticket: somebody is there.
        let watch = async move {
            if is_alone {
                queue.watch_alone(slot, &ticket).await
            } else {
                None
            }
        };
        let end = End(Arc::clone(&self.cohort), Arc::clone(&passing));
        // For as long as the hold, so it is no part of what the caller does.
        let path = &**door.queue.path();
        let span = tracing::debug_span!(parent: None, "linger", path);
        let follow = end.follow(watch, tenure.lost());
        tenure.seat().session().spawn(follow.instrument(span));
        self.guard(door, tenure, passing)
    }

    fn guard(&self, door: &Door, tenure: Arc<Tenure>, passing: Arc<Passing>) -> Guard {
        let presence = door.presence(tenure.kind());
        let stint = Stint::new(Arc::clone(&tenure), passing, self.time, presence);
        Guard::in_turn(tenure, stint)
    }
}

/// Ends the passing on of one hold when it is dropped, so also with the runtime of the task that follows it. Whoever waits for the
/// baton then need not wait for whoever has it: a ticket of its own is always right.
struct End(Arc<Cohort>, Arc<Passing>);

impl End {
    /// Follows one hold: first until it is over for passing, and then, while somebody uses it, until it is lost. Who has a guard
    /// that is lost may keep it for long.
    async fn follow(self, watch: impl Future<Output = Option<WatchSlot>>, mut lost: Lost) {
        let Self(cohort, passing) = &self;
        let watch = tokio::select! {
            biased;
            _ = &mut lost => None,
            watch = watch => watch,
        };
        if let Some(watch) = watch {
            self.when_over(watch, &mut lost).await;
        }
        cohort.end(passing);
        while passing.is_used() {
            tokio::select! {
                biased;
                _ = &mut lost => return,
                () = passing.let_go() => {}
            }
        }
    }

    /// Waits until anything has changed in the queue, the hold is lost, or nobody has used it for too long.
    async fn when_over(&self, mut watch: WatchSlot, lost: &mut Lost) {
        let Self(cohort, passing) = self;
        loop {
            let kept: OptionFuture<_> = cohort.kept_until(passing).map(sleep_until).into();
            if passing.is_over() {
                return;
            }
            tokio::select! {
                biased;
                _ = watch.changed() => return,
                _ = &mut *lost => return,
                Some(()) = kept => {}
                () = passing.let_go() => {}
            }
        }
    }
}

impl Drop for End {
    fn drop(&mut self) {
        self.0.end(&self.1);
        self.1.free_baton();
    }
}
