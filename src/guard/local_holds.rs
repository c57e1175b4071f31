//! The holds of one keeper: reentrancy in memory.
//!
//! It knows only what this keeper was granted, and decides nothing: each hold itself says whether it is still good. It sends nothing.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use tokio::sync::Notify;

use crate::guard::cohort::Cohorts;
use crate::guard::hold::Tenure;
use crate::guard::self_wait::HoldingTasks;
use crate::latch::Latch;
use crate::metrics::Meters;
use crate::owner::Owner;

const FEW_GATES: usize = 64;

/// The hold of one owner at one lock, if there is one; whoever asks for it holds the gate until it knows.
pub(crate) type Gate = tokio::sync::Mutex<Weak<Tenure>>;

/// A gate, and the bell that whoever has it listens to.
type GateWithBell = (Arc<Gate>, Arc<Notify>);

/// The holds of one keeper.
#[derive(Debug, Default)]
pub(crate) struct Holders {
    gates: Latch<Gates>,
    pub(crate) tasks: Arc<HoldingTasks>,
    pub(crate) cohorts: Cohorts,
    pub(crate) meters: Meters,
}

#[derive(Debug, Default)]
struct Gates {
    all: HashMap<(Arc<str>, Owner), GateWithBell>,
    /// With so many, those that are of no use any more are looked for.
    most: usize,
}

impl Holders {
    /// The gate of an owner at the lock with this directory.
    pub(crate) fn gate(&self, path: &Arc<str>, owner: &Owner) -> Arc<Gate> {
        self.gate_with_bell(path, owner).0
    }

    /// The same, with the bell that whoever has the gate listens to while it waits in the queue: the owner may have come to hold
    /// elsewhere.
    pub(crate) fn gate_with_bell(&self, path: &Arc<str>, owner: &Owner) -> GateWithBell {
        let mut gates = self.gates.lock();
        if gates.all.len() >= gates.most {
            gates.all.retain(|_, (gate, _)| {
                let is_used = Arc::strong_count(gate) > 1;
                is_used || gate.try_lock().is_ok_and(|held| held.strong_count() > 0)
            });
            // Each look pays for as many calls as there are gates.
            gates.most = FEW_GATES.max(2 * gates.all.len());
        }
        let gate = gates.all.entry((Arc::clone(path), owner.clone()));
        gate.or_default().clone()
    }
}
