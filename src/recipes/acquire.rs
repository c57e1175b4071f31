//! The acquirer: the way that recipes share into a queue, again after the end of a session, and in
//! again for an owner.
//!
//! It knows what a call is for and how long it may take; turns are the queue's, and what is held
//! the hold's.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, OwnedMutexGuard};
use tokio::task;
use tokio::time::timeout;
use tracing::{Instrument, Span};

use crate::error::{Error, Result};
use crate::guard::cohort::Cohort;
use crate::guard::held_ticket::HeldTicket;
use crate::guard::hold::Hold;
use crate::guard::local_holds::LocalHolds;
use crate::guard::self_wait::SelfWait;
use crate::metrics::Waiting;
use crate::name::LockName;
use crate::owner::Owner;
use crate::protocol::kind::LockKind;
use crate::protocol::ticket::Mode;
use crate::queue::permits::PermitPool;
use crate::queue::place::TicketPlace;
use crate::queue::{Queue, Waiter};
use crate::session::heartbeat::LeaseEntry;
use crate::token::Token;

/// One way into one queue.
#[derive(Debug, Clone)]
pub(crate) struct Acquirer {
    pub(crate) queue: Queue,
    local_holds: Arc<LocalHolds>,
    owner: Option<Owner>,
    /// Whether its calls join again at the end of a session.
    pub(crate) rejoins: bool,
}

impl Acquirer {
    pub(crate) fn new(queue: Queue, local_holds: Arc<LocalHolds>) -> Self {
        Self {
            queue,
            local_holds,
            owner: None,
            rejoins: true,
        }
    }

    pub(crate) fn name(&self) -> &LockName {
        self.queue.name()
    }

    pub(crate) fn set_owner(&mut self, owner: &Owner) {
        self.queue.line().owner = Some(owner.as_str().to_owned());
        self.owner = Some(owner.clone());
    }

    pub(crate) fn set_class(&mut self, class: &'static str) {
        let metrics = &self.local_holds.metrics;
        self.queue.metrics = self.queue.metrics.in_class(class, metrics);
    }

    /// Waits for the turn of a new ticket, or gets the owner's hold again.
    pub(crate) async fn lock(&self) -> Result<Arc<Hold>> {
        let taken = self.take(true).await?;
        // Only a try comes back with nothing.
        taken.ok_or_else(|| self.queue.lost("the walk ended without a turn"))
    }

    /// As [`lock`](Self::lock), if that needs no wait.
    pub(crate) async fn try_lock(&self) -> Result<Option<Arc<Hold>>> {
        self.take(false).await
    }

    async fn take(&self, waits: bool) -> Result<Option<Arc<Hold>>> {
        let waiting = self.queue.metrics.wait();
        let take = async {
            // On the heap, so that a call without an owner does not pay for those with one.
            if let Some(owner) = &self.owner {
                return Box::pin(self.take_again(owner, waits)).await;
            }
            if waits {
                self.warn_of_self();
            }
            let granted = self.turn_if(waits).await?;
            Ok(granted.map(|(waiter, entry)| self.hold(waiter, entry)))
        };
        let taken = take.instrument(self.queue.span()).await?;
        if taken.is_some() {
            waiting.granted();
        }
        Ok(taken)
    }

    /// Takes a place at the end of the queue.
    pub(crate) async fn enqueue(&self) -> Result<(Waiter, Waiting, Span)> {
        let waiting = self.queue.metrics.wait();
        let span = self.queue.span();
        let join = again(self.rejoins, || self.queue.join());
        let waiter = join.instrument(span.clone()).await?;
        Ok((waiter, waiting, span))
    }

    /// The slot of the owner, if there is one, as soon as no other call of the owner is under way.
    pub(crate) async fn slot(&self) -> Option<OwnedMutexGuard<Weak<Hold>>> {
        let owner = self.owner.as_ref()?;
        let slot = self.local_holds.slot(self.queue.path(), owner);
        Some(slot.lock_owned().await)
    }

    pub(crate) fn has_owner(&self) -> bool {
        self.owner.is_some()
    }

    /// The tasks of this keeper that want this lock.
    pub(crate) fn cohort(&self) -> Arc<Cohort> {
        self.local_holds.cohorts.of(self.queue.path())
    }

    /// Warns if this task is about to wait for itself.
    pub(crate) fn warn_of_self(&self) {
        let (tasks, kind) = (&self.local_holds.tasks, self.queue.kind());
        tasks.warn_of_self(self.queue.path(), self.name(), kind);
    }

    /// The current task holds in this way.
    pub(crate) fn self_wait(&self, kind: Mode) -> SelfWait {
        self.local_holds.tasks.enter(self.queue.path(), kind)
    }

    /// What was granted, for a guard.
    pub(crate) fn hold(&self, granted: Waiter, entry: LeaseEntry) -> Arc<Hold> {
        let token = Token::new(granted.token());
        // A reader that is a guest of a writer holds as the writer does.
        let kind = granted.kind();
        let self_wait = self.self_wait(kind);
        let (held, owner) = (HeldTicket::new(granted, entry), self.owner.clone());
        let hold = Hold::new(vec![held], token, kind, owner, vec![self_wait]);
        if let Some(owner) = &self.owner {
            let slot = self.local_holds.slot(self.queue.path(), owner);
            // The call with the slot remembers what it got itself.
            if let Ok(mut held) = slot.try_lock() {
                if usable(&held).is_none() {
                    *held = Arc::downgrade(&hold);
                }
            }
        }
        hold
    }

    /// Waits for so many permits.
    pub(crate) async fn take_permits(&self, permits: &PermitPool, asked: u32) -> Result<Arc<Hold>> {
        let (began, waiting) = (Instant::now(), self.queue.metrics.wait());
        let take = again(self.rejoins, || self.queue.take_permits(permits, asked));
        let span = self.queue.span();
        let taken = take.instrument(span.clone()).await?;
        waiting.granted();
        Ok(span.in_scope(|| self.of_permits(taken, began)))
    }

    /// As [`take_permits`](Self::take_permits), if that needs no wait.
    pub(crate) async fn try_take_permits(
        &self,
        permits: &PermitPool,
        asked: u32,
    ) -> Result<Option<Arc<Hold>>> {
        let (began, waiting) = (Instant::now(), self.queue.metrics.wait());
        let take = again(self.rejoins, || self.queue.try_take_permits(permits, asked));
        let span = self.queue.span();
        let Some(taken) = take.instrument(span.clone()).await? else {
            return Ok(None);
        };
        waiting.granted();
        Ok(Some(span.in_scope(|| self.of_permits(taken, began))))
    }

    fn of_permits(&self, (place, entry): (TicketPlace, LeaseEntry), began: Instant) -> Arc<Hold> {
        let held = HeldTicket::of(self.name().clone(), place, entry, &self.queue.metrics);
        let token = Token::new(held.czxid());
        let draft = self.queue.draft(LockKind::Permit).map(Box::new);
        let held = held.recorded(draft, token, began.elapsed());
        Hold::new(vec![held], token, Mode::Shared, None, Vec::new())
    }

    /// Ends a call when its time is over.
    pub(crate) async fn within<T>(
        &self,
        limit: Duration,
        call: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let timed_out = |_| {
            self.queue.metrics.timed_out();
            Error::TimedOut {
                name: self.name().to_string(),
                waited: limit,
            }
        };
        timeout(limit, call).await.map_err(timed_out)?
    }

    /// Waits for the turn of a new ticket. `None` if it does not wait, and would have to.
    pub(crate) async fn turn_if(&self, waits: bool) -> Result<Option<(Waiter, LeaseEntry)>> {
        if !waits {
            return Box::pin(again(self.rejoins, || self.queue.try_join())).await;
        }
        let turn = async || {
            let mut waiter = self.queue.join().await?;
            let entry = waiter.granted().await?;
            Ok(Some((waiter, entry)))
        };
        again(self.rejoins, turn).await
    }

    /// Waits for the turn of a new ticket. Each wake-up has the waiter look whether the owner has
    /// come to hold elsewhere.
    async fn turn_or_wake(&self, wake: &Arc<Notify>) -> Result<(Waiter, LeaseEntry)> {
        let turn = async || {
            let mut waiter = self.queue.join().await?;
            waiter.heeds(Arc::clone(wake));
            let entry = waiter.granted().await?;
            Ok((waiter, entry))
        };
        again(self.rejoins, turn).await
    }

    /// Gets the hold that the owner has in this keeper, or takes one. The owner's other calls wait
    /// for the outcome, because it may be theirs as well.
    async fn take_again(&self, owner: &Owner, waits: bool) -> Result<Option<Arc<Hold>>> {
        let (slot, wake) = self.local_holds.slot_with_wake(self.queue.path(), owner);
        let mut held = match slot.try_lock() {
            Ok(held) => held,
            Err(_) if waits => {
                // A call that is on its way joined the queue before this one: the owner may hold
                // elsewhere by now, and even wait for this call to come in.
                wake.notify_one();
                slot.lock().await
            }
            Err(_) => {
                // Another call of the owner may just be coming out with the hold.
                task::yield_now().await;
                match slot.try_lock() {
                    Ok(held) => held,
                    // It is on its way.
                    Err(_) => return Ok(None),
                }
            }
        };
        if let Some(hold) = usable(&held) {
            if hold.kind == Mode::Shared && self.queue.kind() == Mode::Exclusive {
                return Err(Error::HeldForReading {
                    name: self.name().to_string(),
                    owner: owner.clone(),
                });
            }
            tracing::debug!(token = u64::from(hold.token), "in again");
            return Ok(Some(hold));
        }
        let granted = if waits {
            Some(self.turn_or_wake(&wake).await?)
        } else {
            self.turn_if(false).await?
        };
        Ok(granted.map(|(waiter, entry)| {
            let hold = self.hold(waiter, entry);
            *held = Arc::downgrade(&hold);
            hold
        }))
    }
}

/// Begins a call again when its session has ended, unless that was forbidden: the next ticket takes
/// a place at the end of the queue. No other loop joins again.
pub(crate) async fn again<T, F>(rejoins: bool, call: impl Fn() -> F) -> Result<T>
where
    F: Future<Output = Result<T>>,
{
    loop {
        match call().await {
            Err(error) if rejoins && error.is_session_over() => {
                tracing::debug!(%error, "joins again");
            }
            result => return result,
        }
    }
}

/// The hold, if it is still one.
fn usable(held: &Weak<Hold>) -> Option<Arc<Hold>> {
    held.upgrade().filter(|held| held.loss().is_none())
}
