//! Turns of requests, of which a store is asked a few at once.
//!
//! Invariants: the first that waits has the next turn, whatever its ttl. Nobody is told that a
//! store does not answer, while it answers others.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};

use super::store::{Attempt, StoreResult};
use crate::error::StoreProblem;
use crate::latch::Latch;

/// Databases end a wait for a row after two seconds, and that is an answer.
const SHORTEST_SILENCE: Duration = Duration::from_secs(3);

/// So many turns at once, for those who wait in their order.
#[derive(Debug)]
pub(super) struct Turns {
    places: Arc<Semaphore>,
    /// When one that had its turn was last answered.
    answered: Latch<Instant>,
}

impl Turns {
    pub(super) fn new(width: usize) -> Arc<Self> {
        Arc::new(Self {
            places: Arc::new(Semaphore::new(width)),
            answered: Latch::new(Instant::now()),
        })
    }

    /// A store that answers nobody for so long is not there.
    pub(super) fn silence(attempt: &Attempt) -> Duration {
        attempt.patience().max(SHORTEST_SILENCE)
    }

    /// The next turn.
    pub(super) async fn next(
        self: Arc<Self>,
        silence: Duration,
    ) -> StoreResult<OwnedSemaphorePermit> {
        let begun = Instant::now();
        let mut turn = Box::pin(Arc::clone(&self.places).acquire_owned());
        let why = loop {
            let answered = begun.max(*self.answered.lock());
            match timeout_at(answered + silence, &mut turn).await {
                Ok(Ok(turn)) => return Ok(turn),
                Ok(Err(_)) => break "the client is closed",
                Err(_) if *self.answered.lock() > answered => {}
                Err(_) => break "the requests before it are not answered",
            }
        };
        Err(StoreProblem::Unreachable(why.into()))
    }

    /// The next turn, for a try. It leaves with its caller.
    pub(super) async fn of_try(
        self: Arc<Self>,
        attempt: Attempt,
    ) -> StoreResult<OwnedSemaphorePermit> {
        attempt.turn.await_it();
        let turn = tokio::select! {
            biased;
            () = attempt.turn.left() => Err(StoreProblem::Unreachable("it was given up".into())),
            turn = self.next(Self::silence(&attempt)) => turn,
        };
        attempt.turn.begin();
        turn
    }

    /// A turn, if nobody waits for one.
    pub(super) fn at_once(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.places).try_acquire_owned().ok()
    }

    /// A turn, if it comes soon. A lease does not wait for others.
    #[cfg(any(feature = "mysql", feature = "postgres"))]
    pub(super) async fn soon(self: Arc<Self>, limit: Duration) -> Option<OwnedSemaphorePermit> {
        let turn = Arc::clone(&self.places).acquire_owned();
        timeout_at(Instant::now() + limit, turn).await.ok()?.ok()
    }

    /// What one that had its turn was told. A refusal is an answer, too.
    pub(super) fn told<T>(&self, answer: &StoreResult<T>) {
        if !matches!(answer, Err(StoreProblem::NoAnswer)) {
            *self.answered.lock() = Instant::now();
        }
    }
}
