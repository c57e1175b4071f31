//! The heartbeat's state: the lease, and each hold that is registered under it.
//!
//! Invariant: a loss is set while the state is locked, so each reader sees it before it acts. It is
//! told after the latch is open again, because events, counters and wakers are not ours.

use std::collections::BTreeMap;
use std::mem;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use tokio::sync::watch;

use super::lease_entry::Loss;
use crate::latch::{self, Latched};
use crate::metrics::Holding;
use crate::protocol::lease::{Lease, Moment};

/// Registered tickets that one heartbeat checks; more go round.
const BATCH: usize = 100;
/// After so many heartbeats a ticket is read too, because a check knows names only.
///
/// Without it, this would stay unnoticed: an operator removes a directory, and another client gets
/// the same number in the new one. The read comes beside a heartbeat, never instead of one. It is
/// answered without a quorum, so it extends no lease, and a heartbeat less would leave 0.4 of the
/// timeout instead of 0.5.
const READ_EVERY: u64 = 10;

#[derive(Debug)]
pub(super) struct HeartbeatState {
    pub(super) lease: Lease,
    pub(super) entries: BTreeMap<u64, Registration>,
    next_id: u64,
    /// Heartbeats that were sent.
    sent: u64,
}

#[derive(Debug)]
pub(super) struct Registration {
    path: Arc<str>,
    czxid: i64,
    told: watch::Sender<Option<Loss>>,
    /// The last heartbeat that checked it; 0 if the result is not known.
    checked: u64,
    /// The heartbeat from which on it is to be read.
    read_at: u64,
    /// It is not checked: the server does not let us, or it is being released and will be gone.
    pub(super) is_hidden: bool,
    /// Counts it, once a guard has it.
    pub(super) holding: Option<Holding>,
}

/// A registered ticket, for one heartbeat.
#[derive(Debug, Clone)]
pub(super) struct CheckedTicket {
    pub(super) id: u64,
    pub(super) path: Arc<str>,
    pub(super) czxid: i64,
}

impl HeartbeatState {
    pub(super) fn new(lease: Lease) -> Self {
        Self {
            lease,
            entries: BTreeMap::new(),
            next_id: 0,
            sent: 0,
        }
    }

    /// Adds a ticket that was seen a moment ago.
    pub(super) fn register(
        &mut self,
        path: Arc<str>,
        czxid: i64,
    ) -> (u64, watch::Receiver<Option<Loss>>) {
        let id = self.next_id;
        self.next_id += 1;
        let (told, loss) = watch::channel(None);
        let entry = Registration {
            path,
            czxid,
            told,
            checked: self.sent,
            read_at: self.sent + READ_EVERY,
            is_hidden: false,
            holding: None,
        };
        self.entries.insert(id, entry);
        (id, loss)
    }

    /// The tickets that were not checked for longest, for the next heartbeat, and whether they are
    /// to be read too.
    pub(super) fn next_batch(&mut self) -> (Vec<CheckedTicket>, bool) {
        self.sent += 1;
        let sent = self.sent;
        let turn = |(id, entry): &(&u64, &mut Registration)| (entry.checked, **id);
        let visible = |(_, entry): &(&u64, &mut Registration)| !entry.is_hidden;
        let mut batch: Vec<_> = self.entries.iter_mut().filter(visible).collect();
        if batch.len() > BATCH {
            batch.select_nth_unstable_by_key(BATCH, turn);
            batch.truncate(BATCH);
        }
        batch.sort_unstable_by_key(turn);
        let is_due = batch.iter().any(|(_, entry)| entry.read_at <= sent);
        let batch = batch.into_iter().map(|(id, entry)| {
            entry.checked = sent;
            if is_due {
                entry.read_at = sent + READ_EVERY;
            }
            CheckedTicket {
                id: *id,
                path: Arc::clone(&entry.path),
                czxid: entry.czxid,
            }
        });
        (batch.collect(), is_due)
    }

    /// A heartbeat has told nothing of these tickets: they come first in the next one, which reads
    /// them.
    pub(super) fn check_again(&mut self, batch: &[CheckedTicket]) {
        for ticket in batch {
            if let Some(entry) = self.entries.get_mut(&ticket.id) {
                (entry.checked, entry.read_at) = (0, 0);
            }
        }
    }

    pub(super) fn hide(&mut self, id: u64) {
        if let Some(entry) = self.entries.get_mut(&id) {
            entry.is_hidden = true;
        }
    }
}

/// The state for a moment. A loss is set from then on, and told when the latch is open again.
pub(super) struct Observed<'a> {
    // Dropped in this order.
    state: Latched<'a, HeartbeatState>,
    untold: Untold<'a>,
    pub(super) now: Moment,
}

/// Losses that are not told yet, and a change of the lease.
#[derive(Default)]
struct Untold<'a> {
    losses: Vec<(Registration, Loss)>,
    leased: Option<&'a watch::Sender<bool>>,
}

impl Drop for Untold<'_> {
    fn drop(&mut self) {
        let lapsed = self.losses.iter().filter(|(_, loss)| *loss == Loss::Lapsed);
        let entries = lapsed.count();
        if entries > 0 {
            tracing::warn!(
                entries,
                "the lease ended: no server confirmed the session in time"
            );
        }
        for (entry, loss) in self.losses.drain(..) {
            if let Loss::Gone(why) = loss {
                tracing::warn!(ticket = &*entry.path, why, "a held lock is lost");
            }
            latch::tell(&entry.told);
            if let Some(holding) = entry.holding {
                holding.lost(loss.reason());
            }
        }
        if let Some(leased) = self.leased {
            latch::tell(leased);
        }
    }
}

impl<'a> Observed<'a> {
    pub(super) fn new(state: Latched<'a, HeartbeatState>, now: Moment) -> Self {
        let untold = Untold::default();
        Self { state, untold, now }
    }

    /// Lets tasks that wait for a lease know whether there is one.
    pub(super) fn publish_lease(&mut self, leased: &'a watch::Sender<bool>) {
        let is_leased = self.lease.valid_until(self.now).is_some();
        if *leased.borrow() != is_leased {
            latch::set(leased, is_leased);
            self.untold.leased = Some(leased);
        }
    }

    pub(super) fn lose_all(&mut self, loss: Loss) {
        for entry in mem::take(&mut self.entries).into_values() {
            self.lose_one(entry, loss);
        }
    }

    fn lose_one(&mut self, entry: Registration, loss: Loss) {
        latch::set(&entry.told, Some(loss));
        self.untold.losses.push((entry, loss));
    }

    /// A heartbeat did not find the ticket.
    pub(super) fn miss(&mut self, id: u64, why: &'static str) {
        // It may have been released since the heartbeat was sent, or be about to be.
        if self.entries.get(&id).is_some_and(|entry| !entry.is_hidden) {
            self.lose(id, why);
        }
    }

    pub(super) fn lose(&mut self, id: u64, why: &'static str) {
        if let Some(entry) = self.entries.remove(&id) {
            self.lose_one(entry, Loss::Gone(why));
        }
    }
}

impl Deref for Observed<'_> {
    type Target = HeartbeatState;

    fn deref(&self) -> &HeartbeatState {
        &self.state
    }
}

impl DerefMut for Observed<'_> {
    fn deref_mut(&mut self) -> &mut HeartbeatState {
        &mut self.state
    }
}
