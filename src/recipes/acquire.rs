//! The acquirer: the way that recipes share into a queue, again after the end of a session, and in
//! again for an owner.
//!
//! It knows what a call is for and how long it may take; turns are the queue's, and what is held
//! the hold's.

use std::future::Future;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, OwnedMutexGuard};
use tokio::task;
use tokio::time::timeout;
use tracing::{Instrument, Span};

use crate::error::{Error, Result};
use crate::guard::cohort::Cohort;
use crate::guard::hold::{HeldTicket, Hold};
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
    rejoins: bool,
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
        self.queue.set_owner(owner.as_str());
        self.owner = Some(owner.clone());
    }

    pub(crate) fn set_class(&mut self, class: &'static str) {
        self.queue.set_class(class, &self.local_holds.metrics);
    }

    pub(crate) fn set_rejoin(&mut self, rejoins: bool) {
        self.rejoins = rejoins;
    }

    /// Waits for the turn of a new ticket, or gets the owner's hold again.
    pub(crate) async fn lock(&self) -> Result<Arc<Hold>> {
        let acquire = async {
            let waiting = self.queue.metrics().wait();
            let held = if let Some(owner) = &self.owner {
                // On the heap, so that who has no owner does not pay for those who have.
                let taken = Box::pin(self.take_again(owner, true)).await?;
                // Only a try comes back with nothing.
                taken.ok_or_else(|| self.queue.lost("the walk ended without a turn"))?
            } else {
                self.warn_of_self();
                let (waiter, entry) = self.turn().await?;
                self.hold(waiter, entry)
            };
            waiting.granted();
            Ok(held)
        };
        acquire.instrument(self.queue.span()).await
    }

    /// As [`lock`](Self::lock), if that needs no wait.
    pub(crate) async fn try_lock(&self) -> Result<Option<Arc<Hold>>> {
        let acquire = async {
            let waiting = self.queue.metrics().wait();
            let taken = match &self.owner {
                Some(owner) => Box::pin(self.take_again(owner, false)).await?,
                None => self
                    .try_turn()
                    .await?
                    .map(|(waiter, entry)| self.hold(waiter, entry)),
            };
            if taken.is_some() {
                waiting.granted();
            }
            Ok(taken)
        };
        acquire.instrument(self.queue.span()).await
    }

    /// Takes a place at the end of the queue.
    pub(crate) async fn enqueue(&self) -> Result<(Waiter, Waiting, Span)> {
        let waiting = self.queue.metrics().wait();
        let span = self.queue.span();
        let join = async {
            loop {
                match self.queue.join().await {
                    Err(error) if self.joins_again(&error) => {}
                    result => return result,
                }
            }
        };
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
        let kind = self.queue.kind();
        self.local_holds
            .tasks
            .warn_of_self(self.queue.path(), self.name(), kind);
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
        let hold = Hold::new(
            vec![HeldTicket::new(granted, entry)],
            token,
            kind,
            self.owner.clone(),
            vec![self_wait],
        );
        if let Some(owner) = &self.owner {
            let slot = self.local_holds.slot(self.queue.path(), owner);
            // Whoever has the slot remembers what it got itself.
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
        let acquire = async {
            let (began, waiting) = (Instant::now(), self.queue.metrics().wait());
            let taken = loop {
                match self.queue.take_permits(permits, asked).await {
                    Err(error) if self.joins_again(&error) => {}
                    taken => break taken?,
                }
            };
            waiting.granted();
            Ok(self.of_permits(taken, began))
        };
        acquire.instrument(self.queue.span()).await
    }

    /// As [`take_permits`](Self::take_permits), if that needs no wait.
    pub(crate) async fn try_take_permits(
        &self,
        permits: &PermitPool,
        asked: u32,
    ) -> Result<Option<Arc<Hold>>> {
        let acquire = async {
            let (began, waiting) = (Instant::now(), self.queue.metrics().wait());
            let taken = loop {
                match self.queue.try_take_permits(permits, asked).await {
                    Err(error) if self.joins_again(&error) => {}
                    taken => break taken?,
                }
            };
            if taken.is_some() {
                waiting.granted();
            }
            Ok(taken.map(|taken| self.of_permits(taken, began)))
        };
        acquire.instrument(self.queue.span()).await
    }

    fn of_permits(&self, (place, entry): (TicketPlace, LeaseEntry), began: Instant) -> Arc<Hold> {
        let held = HeldTicket::of(self.name().clone(), place, entry, self.queue.metrics());
        let waited = began.elapsed();
        let waited_ms = u64::try_from(waited.as_millis()).unwrap_or(u64::MAX);
        let token = Token::new(held.czxid());
        let held = held.recorded(
            self.queue.draft(LockKind::Permit).map(Box::new),
            token,
            waited,
        );
        tracing::debug!(waited_ms, token = u64::from(token), "granted");
        Hold::new(vec![held], token, Mode::Shared, None, Vec::new())
    }

    /// Ends a call when its time is over.
    pub(crate) async fn within<T>(
        &self,
        limit: Duration,
        call: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let timed_out = |_| {
            self.queue.metrics().timed_out();
            Error::TimedOut {
                name: self.name().to_string(),
                waited: limit,
            }
        };
        timeout(limit, call).await.map_err(timed_out)?
    }

    /// Waits for the turn of a new ticket.
    pub(crate) async fn turn(&self) -> Result<(Waiter, LeaseEntry)> {
        loop {
            match self.turn_once().await {
                Err(error) if self.joins_again(&error) => {}
                result => return result,
            }
        }
    }

    async fn turn_once(&self) -> Result<(Waiter, LeaseEntry)> {
        let mut waiter = self.queue.join().await?;
        let entry = waiter.granted().await?;
        Ok((waiter, entry))
    }

    /// As [`turn`](Self::turn), but with each stroke of the wake it looks whether the owner has
    /// come to hold elsewhere.
    async fn take_by(&self, wake: &Notify) -> Result<Arc<Hold>> {
        loop {
            match self.take_once_by(wake).await {
                Err(error) if self.joins_again(&error) => {}
                result => return result,
            }
        }
    }

    async fn take_once_by(&self, wake: &Notify) -> Result<Arc<Hold>> {
        let mut waiter = self.queue.join().await?;
        loop {
            let entry = tokio::select! {
                biased;
                entry = waiter.granted() => entry?,
                () = wake.notified() => {
                    waiter.nudge();
                    continue;
                }
            };
            return Ok(self.hold(waiter, entry));
        }
    }

    /// As [`turn`](Self::turn), if that needs no wait.
    pub(crate) async fn try_turn(&self) -> Result<Option<(Waiter, LeaseEntry)>> {
        loop {
            match self.queue.try_join().await {
                Err(error) if self.joins_again(&error) => {}
                joined => return joined,
            }
        }
    }

    /// Gets the hold that the owner has in this keeper, or takes one. The owner's other calls wait
    /// for the outcome, because it may be theirs as well.
    async fn take_again(&self, owner: &Owner, waits: bool) -> Result<Option<Arc<Hold>>> {
        let (slot, wake) = self.local_holds.slot_with_wake(self.queue.path(), owner);
        let mut held = match slot.try_lock() {
            Ok(held) => held,
            Err(_) if waits => {
                // Whoever is on its way joined the queue before this call: the owner may hold
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
            if hold.kind() == Mode::Shared && self.queue.kind() == Mode::Exclusive {
                return Err(Error::HeldForReading {
                    name: self.name().to_string(),
                    owner: owner.clone(),
                });
            }
            tracing::debug!(token = u64::from(hold.token()), "in again");
            return Ok(Some(hold));
        }
        let taken = if waits {
            Some(self.take_by(&wake).await?)
        } else {
            let turn = self.try_turn().await?;
            turn.map(|(waiter, entry)| self.hold(waiter, entry))
        };
        if let Some(hold) = &taken {
            *held = Arc::downgrade(hold);
        }
        Ok(taken)
    }

    /// Whether the end of a session is a reason to begin again.
    pub(crate) fn joins_again(&self, error: &Error) -> bool {
        joins_again(self.rejoins, error)
    }
}

/// Whether the end of a session is a reason to begin again, for who does so at all.
pub(crate) fn joins_again(rejoins: bool, error: &Error) -> bool {
    let joins_again = rejoins && error.is_session_over();
    if joins_again {
        tracing::debug!(%error, "joins again");
    }
    joins_again
}

/// The hold, if it is still one.
fn usable(held: &Weak<Hold>) -> Option<Arc<Hold>> {
    held.upgrade().filter(|held| held.loss().is_none())
}
