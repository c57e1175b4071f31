//! The warning of a task that waits for itself.
//!
//! It knows which tasks were granted what, as long as they keep it. It only warns: a guard may have
//! gone to another task.

use std::collections::HashMap;
use std::sync::Arc;
use std::thread::{self, ThreadId};

use tokio::task;

use crate::latch::Latch;
use crate::name::LockName;
use crate::protocol::ticket::Mode;

/// So many directories stay when nobody holds there any more: most locks are soon taken again. A
/// crowd's memory goes.
const FEW: usize = 64;
/// What a list takes that had one holder.
const SMALL: usize = 4;

/// Those that hold, by the lock's directory.
type Tasks = HashMap<Arc<str>, Vec<(Task, Mode)>>;

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

/// The tasks of one keeper that hold something.
#[derive(Debug, Default)]
pub(crate) struct HoldingTasks(Latch<Tasks>);

impl HoldingTasks {
    /// The current task holds the lock with this directory, for as long as what is returned lives.
    pub(crate) fn enter(self: &Arc<Self>, path: &Arc<str>, kind: Mode) -> SelfWait {
        let task = Task::current();
        let mut tasks = self.0.lock();
        tasks
            .entry(Arc::clone(path))
            .or_default()
            .push((task, kind));
        SelfWait {
            tasks: Arc::clone(self),
            path: Arc::clone(path),
            task: (task, kind),
        }
    }

    /// Warns if the current task already holds what it is about to wait for, and would wait for
    /// itself.
    pub(crate) fn warn_of_self(&self, path: &Arc<str>, name: &LockName, kind: Mode) {
        let current = Task::current();
        let conflicts = |(task, held): &(Task, Mode)| {
            *task == current && (*held == Mode::Exclusive || kind == Mode::Exclusive)
        };
        let would_wait = {
            let tasks = self.0.lock();
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
pub(crate) struct SelfWait {
    tasks: Arc<HoldingTasks>,
    path: Arc<str>,
    task: (Task, Mode),
}

impl Drop for SelfWait {
    fn drop(&mut self) {
        let mut tasks = self.tasks.0.lock();
        if let Some(held) = tasks.get_mut(&self.path) {
            if let Some(at) = held.iter().position(|task| *task == self.task) {
                held.swap_remove(at);
            }
            let is_large = held.capacity() > SMALL;
            if held.is_empty() && (is_large || tasks.len() > FEW) {
                tasks.remove(&self.path);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locks_that_nobody_holds_are_forgotten() {
        let tasks = Arc::<HoldingTasks>::default();
        let enter = |name: i32| tasks.enter(&format!("/locks/{name}").into(), Mode::Exclusive);

        let all: Vec<SelfWait> = (0..1000).map(enter).collect();
        assert_eq!(tasks.0.lock().len(), 1000);
        drop(all);
        (0..1000).map(enter).for_each(drop);

        assert_eq!(tasks.0.lock().len(), FEW);
        let crowd = std::iter::repeat_with(|| enter(0)).take(1000);
        drop(crowd.collect::<Vec<_>>());
        assert!(tasks.0.lock().values().all(|held| held.capacity() <= SMALL));
    }
}
