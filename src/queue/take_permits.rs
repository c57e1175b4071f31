//! Taking permits: through the queue of a semaphore to its head.
//!
//! Invariant: nothing is taken but by the head. Trying writes nothing where the permits are not
//! there or others wait.

use super::head::{Head, Tried};
use super::permits::PermitPool;
use super::place::TicketPlace;
use super::{Directory, Queue};
use crate::error::Result;
use crate::protocol::permits::{self, PermitVerdict};
use crate::session::heartbeat::LeaseEntry;

impl Queue {
    /// Makes this the queue of the semaphore's waiters, below the name, and says where the permits
    /// are.
    pub(crate) fn permits(&mut self, limit: u32) -> PermitPool {
        let base: Directory = self.directory.clone();
        let permits = PermitPool::new(&self.pool, self.name.clone(), base, limit);
        self.directory = self.directory.below(permits::QUEUE);
        let pool = &self.pool;
        let watched = permits.watched().map(|path| pool.sent_len(path.len()));
        self.head_watches = watched.sum();
        self.becomes = permits.permit_len();
        // A permit excludes nobody by itself, so there is nobody to wait for after its end.
        self.delay = std::time::Duration::ZERO;
        permits
    }

    /// Waits until so many permits are there for this call, after the calls before it.
    ///
    /// # Cancel safety
    ///
    /// Dropped at any await, the ticket or the permits, whichever is there, are removed by the
    /// janitor.
    pub(crate) async fn take_permits(
        &self,
        permits: &PermitPool,
        asked: u32,
    ) -> Result<(TicketPlace, LeaseEntry)> {
        Box::pin(permits.introduce(asked)).await?;
        let mut waiter = self.wanting(asked).join().await?;
        waiter.reach().await?;
        let place = waiter.into_place();
        // On the heap: among many waiters only one is the head.
        Box::pin(Head::new(self, place, permits, asked).take()).await
    }

    /// As [`take_permits`](Self::take_permits), if nobody is in the queue and they are there now.
    /// Writes nothing otherwise.
    pub(crate) async fn try_take_permits(
        &self,
        permits: &PermitPool,
        asked: u32,
    ) -> Result<Option<(TicketPlace, LeaseEntry)>> {
        let session = permits.introduce(asked).await?;
        let mut snapshot = permits.read(&session).await?;
        if snapshot.limit.is_some_and(|limit| asked > limit.value) {
            // A server that lags behind may not know of a resize yet.
            permits.catch_up(&session).await?;
            snapshot = permits.read(&session).await?;
        }
        let limit = permits.limit_or(&session, snapshot.limit).await?;
        if asked > limit {
            return Err(permits.too_many(asked, limit));
        }
        if permits::judge(snapshot.names(), asked, limit) != PermitVerdict::Fits
            || self.is_busy().await?
        {
            return Ok(None);
        }
        let mut waiter = self.wanting(asked).join().await?;
        if !waiter.try_granted().await? {
            waiter.into_place().leave().await.ok();
            return Ok(None);
        }
        let mut head = Head::new(self, waiter.into_place(), permits, asked);
        loop {
            match head.try_take().await? {
                Tried::Taken => {
                    let entry = head.begin_hold().await?;
                    return Ok(Some((head.place, entry)));
                }
                Tried::Again => head.pause().await?,
                Tried::Full => break,
            }
        }
        head.place.leave().await.ok();
        Ok(None)
    }

    /// This queue, with what is wanted in the ticket.
    fn wanting(&self, permits: u32) -> Self {
        let mut queue = self.clone();
        queue.line().permits = Some(permits);
        queue
    }
}
