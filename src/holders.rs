//! Who in this process holds what: reentrancy in memory, and the warning of a task that waits for itself.
//!
//! It knows only what this keeper was granted, and decides nothing: whether a hold is still good, the hold itself says. It
//! sends nothing.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::thread::{self, ThreadId};

use tokio::sync::Notify;
use tokio::task;

use crate::cohort::Cohorts;
use crate::latch::Latch;
use crate::meter::Meters;
use crate::name::LockName;
use crate::owner::Owner;
use crate::queue::ticket::Kind;
use crate::tenure::Tenure;

const FEW_GATES: usize = 64;

/// The hold of one owner at one lock, if there is one; whoever asks for it holds the gate until it knows.
pub(crate) type Gate = tokio::sync::Mutex<Weak<Tenure>>;

/// A gate, and the bell that whoever has it listens to.
type GateWithBell = (Arc<Gate>, Arc<Notify>);

/// The holds of one keeper.
#[derive(Debug, Default)]
pub(crate) struct Holders {
    gates: Latch<Gates>,
    tasks: Latch<Tasks>,
    pub(crate) cohorts: Cohorts,
    pub(crate) meters: Meters,
}

#[derive(Debug, Default)]
struct Gates {
    all: HashMap<(Arc<str>, Owner), GateWithBell>,
    /// With so many, those that are of no use any more are looked for.
    most: usize,
}

/// Those that hold, by the lock's directory.
type Tasks = HashMap<Arc<str>, Vec<(Task, Kind)>>;

/// A task, or the main one of a runtime, which has no number and stays on its thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Task {
    Spawned(task::Id),
    Main(ThreadId),
}

impl Task {
    fn current() -> Self {
        task::try_id().map_or_else(|| Self::Main(thread::current().id()), Self::Spawned)
    }
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

    /// The current task holds the lock with this directory, for as long as what is returned lives.
    pub(crate) fn enter(self: &Arc<Self>, path: &Arc<str>, kind: Kind) -> Presence {
        let task = Task::current();
        let mut tasks = self.tasks.lock();
        tasks
            .entry(Arc::clone(path))
            .or_default()
            .push((task, kind));
        Presence {
            holders: Arc::clone(self),
            path: Arc::clone(path),
            task: (task, kind),
        }
    }

    /// Warns if the current task already holds what it is about to wait for, and would wait for itself.
    pub(crate) fn warn_of_self(&self, path: &Arc<str>, name: &LockName, kind: Kind) {
        let current = Task::current();
        let conflicts = |(task, held): &(Task, Kind)| {
            *task == current && (*held == Kind::Exclusive || kind == Kind::Exclusive)
        };
        let would_wait = {
            let tasks = self.tasks.lock();
            let held = tasks.get(path);
            held.is_some_and(|held| held.iter().any(conflicts))
        };
        if would_wait {
            tracing::warn!(
                name = name.as_str(),
                "this task already holds the lock: unless its guard has gone elsewhere, it is about to wait for itself, for ever; give both calls one owner to let it in again"
            );
        }
    }
}

/// A task holds a lock.
#[derive(Debug)]
pub(crate) struct Presence {
    holders: Arc<Holders>,
    path: Arc<str>,
    task: (Task, Kind),
}

impl Drop for Presence {
    fn drop(&mut self) {
        let mut tasks = self.holders.tasks.lock();
        if let Some(held) = tasks.get_mut(&self.path) {
            if let Some(at) = held.iter().position(|task| *task == self.task) {
                held.swap_remove(at);
            }
            if held.is_empty() {
                tasks.remove(&self.path);
            }
        }
    }
}
