//! The heartbeat of a session: it keeps the session's lease, and the holds that live by it.
//!
//! One task for each session sends a heartbeat every sixth of the session timeout, or every tenth
//! while something is held. A heartbeat is a `sync` while no ticket of ours is in a queue.
//! Otherwise it is a commit without a change (`multi{check(held tickets)}`): only a live quorum
//! answers a commit, but a deposed leader answers a `sync` for many ticks. Waiting tickets make
//! commits too: the lease of a waiter is the one that its grant will rest on.
//!
//! Invariants: a hold begins only under a lease. It is lost at the latest when that lease ends, by
//! the clock and not by a packet. A loss is final. The heartbeat changes no node, and removes none.

mod lease_entry;
mod request;
mod state;
mod task;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::watch;

use super::arrival::stamped;
use super::clock::Clock;
use super::ending::{End, EndListener};
use crate::latch::Latch;
use crate::link::{Link, SessionState};
use crate::protocol::lease::{Lease, Moment};

pub(crate) use lease_entry::{LeaseEntry, Loss, LossWatch};
use state::{HeartbeatState, Observed};

/// What proves that the session is alive.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum LeaseStrength {
    /// While a ticket is held or waits, heartbeats are commits without a change: a server that is
    /// cut off from its quorum cannot answer them. A session that waits sends one commit each sixth
    /// of the session timeout, and a session that holds one each tenth.
    #[default]
    Quorum,
    /// Heartbeats are always `sync`s, so they cost no commits. But a leader that is cut off answers
    /// them for a few of its ticks, and a guard may believe in its lock for that long. Refused
    /// where the server had to raise the session timeout to its minimum.
    Sync,
}

#[derive(Debug)]
pub(crate) struct Heartbeat {
    clock: Arc<dyn Clock>,
    strength: LeaseStrength,
    ending: EndListener,
    states: watch::Receiver<SessionState>,
    state: Latch<HeartbeatState>,
    leased: watch::Sender<bool>,
    /// Tickets of ours in queues, also those that wait.
    tickets: AtomicUsize,
    /// How often the client has connected again.
    reconnects: AtomicU64,
    /// After how many of them the session was last known to be ours.
    recognised: AtomicU64,
    /// No request is answered for another session.
    is_named: bool,
}

impl Heartbeat {
    pub(super) fn new(
        link: &dyn Link,
        ending: EndListener,
        clock: Arc<dyn Clock>,
        strength: LeaseStrength,
        tick: Option<Duration>,
        opening: Moment,
    ) -> Self {
        let lease = Lease::new(link.session_timeout(), tick, opening, clock.now());
        let is_leased = lease.valid_until(clock.now()).is_some();
        Self {
            clock,
            strength,
            ending,
            states: link.states(),
            state: Latch::new(HeartbeatState::new(lease)),
            leased: watch::Sender::new(is_leased),
            tickets: AtomicUsize::new(0),
            reconnects: AtomicU64::new(0),
            recognised: AtomicU64::new(0),
            is_named: link.names_session(),
        }
    }

    /// A ticket of ours is about to be in a queue.
    pub(crate) fn ticket_comes(&self) {
        self.tickets.fetch_add(1, Ordering::Relaxed);
    }

    /// A ticket of ours is gone, or in the hands of the janitor.
    pub(crate) fn ticket_goes(&self) {
        self.tickets.fetch_sub(1, Ordering::Relaxed);
    }

    fn has_tickets(&self) -> bool {
        self.tickets.load(Ordering::Relaxed) > 0
    }

    /// How often the client has connected again, if the session was not recognised since.
    ///
    /// Each create tells its session. After a reconnect, the first heartbeat or the first grant
    /// asks for this session's own tickets. A session that the server changed in silence is
    /// renounced. Where requests name their session that cannot be, and nothing is asked.
    pub(crate) fn is_strange(&self) -> Option<u64> {
        let reconnects = self.reconnects.load(Ordering::Relaxed);
        (!self.is_named && self.recognised.load(Ordering::Relaxed) < reconnects)
            .then_some(reconnects)
    }

    /// The session is ours, after so many reconnects.
    pub(crate) fn recognised(&self, reconnects: u64) {
        self.recognised.fetch_max(reconnects, Ordering::Relaxed);
    }

    /// Begins a hold if there is a lease now.
    pub(crate) fn try_begin_hold(
        self: &Arc<Self>,
        path: Arc<str>,
        czxid: i64,
    ) -> Result<Option<LeaseEntry>, End> {
        let mut state = self.observed();
        if let Some(end) = self.ending.end() {
            return Err(end);
        }
        if state.lease.valid_until(state.now).is_none() {
            return Ok(None);
        }
        let (id, loss) = state.register(path, czxid);
        let heartbeat = Arc::clone(self);
        Ok(Some(LeaseEntry(LossWatch {
            heartbeat,
            id,
            loss,
        })))
    }

    /// Whether that moment is no longer ago than the last heartbeat should be.
    pub(crate) fn is_recent(&self, moment: Moment) -> bool {
        let state = self.observed();
        state.now <= moment + state.lease.rhythm()
    }

    /// The session's clock.
    pub(crate) fn now(&self) -> Moment {
        self.clock.now()
    }

    /// Waits for an answer; with it, the moment at which it came, or an earlier one.
    pub(crate) async fn stamped<T>(&self, answer: impl Future<Output = T>) -> (Moment, T) {
        stamped(&self.clock, answer).await
    }

    /// Waits until that moment of the session's clock.
    pub(crate) async fn until(&self, moment: Moment) {
        self.clock.until(moment).await;
    }

    /// Waits until there is a lease.
    pub(crate) async fn leased(&self) {
        // The sender is in here, so it outlives the wait.
        let mut leased = self.leased.subscribe();
        leased.wait_for(|leased| *leased).await.map(drop).ok();
    }

    /// The state after all that the clock and the client have to say, with the moment: a second
    /// question to the clock might find that the lease has ended since, and no hold was told.
    fn observed(&self) -> Observed<'_> {
        let state = self.state.lock();
        // Read with the latch, so that no extension that is based on an earlier moment can follow.
        let mut observed = Observed::new(state, self.clock.now());
        if let Some(end) = self.ending.end() {
            observed.lose_all(Loss::Ended(end));
        }
        let now = observed.now;
        if observed.lease.end_if_over(now) {
            observed.lose_all(Loss::Lapsed);
            observed.publish_lease(&self.leased);
        }
        observed
    }

    /// Tells every hold of the session's end.
    pub(super) fn observe(&self) {
        drop(self.observed());
    }

    fn is_connected(&self) -> bool {
        *self.states.borrow() == SessionState::Connected
    }
}

/// Goes with the heartbeat's task, even if that ends with its runtime: the holds are told of the
/// session's end, although none may ask. A session that is given up has no tickets left, and its
/// holds are being given back.
#[derive(Debug)]
pub(super) struct ObserveOnDrop(pub(super) Arc<Heartbeat>);

impl Drop for ObserveOnDrop {
    fn drop(&mut self) {
        if self.0.has_tickets() {
            self.0.observe();
        }
    }
}
