//! The holds of one keeper: reentrancy in memory.
//!
//! It knows only what this keeper was granted, and decides nothing: each hold itself says whether
//! it is still good. It sends nothing.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use tokio::sync::Notify;

use crate::guard::cohort::Cohorts;
use crate::guard::hold::Hold;
use crate::guard::self_wait::HoldingTasks;
use crate::latch::Latch;
use crate::metrics::MetricsTable;
use crate::owner::Owner;

const FEW_SLOTS: usize = 64;

/// The hold of one owner at one lock, if there is one. A call holds the slot until it knows.
pub(crate) type OwnerSlot = tokio::sync::Mutex<Weak<Hold>>;

/// A slot, and the wake that the call with the slot listens to.
type SlotWithWake = (Arc<OwnerSlot>, Arc<Notify>);

/// The holds of one keeper.
#[derive(Debug, Default)]
pub(crate) struct LocalHolds {
    slots: Latch<OwnerSlots>,
    pub(crate) tasks: Arc<HoldingTasks>,
    pub(crate) cohorts: Cohorts,
    pub(crate) metrics: MetricsTable,
}

#[derive(Debug, Default)]
struct OwnerSlots {
    all: HashMap<(Arc<str>, Owner), SlotWithWake>,
    /// With so many, those that are of no use any more are looked for.
    most: usize,
}

impl LocalHolds {
    /// The slot of an owner at the lock with this directory.
    pub(crate) fn slot(&self, path: &Arc<str>, owner: &Owner) -> Arc<OwnerSlot> {
        self.slot_with_wake(path, owner).0
    }

    /// The same, with the wake that a call with the slot listens to while it waits in the queue:
    /// the owner may have come to hold elsewhere.
    pub(crate) fn slot_with_wake(&self, path: &Arc<str>, owner: &Owner) -> SlotWithWake {
        let mut slots = self.slots.lock();
        if slots.all.len() >= slots.most {
            slots.all.retain(|_, (slot, _)| {
                let is_used = Arc::strong_count(slot) > 1;
                is_used || slot.try_lock().is_ok_and(|held| held.strong_count() > 0)
            });
            // Each look pays for as many calls as there are slots.
            slots.most = FEW_SLOTS.max(2 * slots.all.len());
        }
        let slot = slots.all.entry((Arc::clone(path), owner.clone()));
        slot.or_default().clone()
    }
}
