//! When the holds of a keeper are first renewed: one timer for all of them.
//!
//! Invariants: a hold that lives for so long is told at its time, once. A hold that ends before
//! costs neither a task nor a wake-up: the timer is woken only for a time before the one that it
//! sleeps for.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};

use crate::latch::Latch;

/// A hold that waits for its first renewal.
pub(super) trait FirstRenewal: Send + Sync {
    /// It is time. This waits for nothing.
    fn begin_renewing(self: Arc<Self>);
}

/// Known to the timer by its time, and by a number of its own.
pub(super) type RenewalKey = (Instant, u64);

/// The timer, and the runtime of its keeper.
pub(super) struct RenewalTimer {
    pub(super) runtime: Handle,
    shared: Arc<TimerState>,
    task: Latch<Option<JoinHandle<()>>>,
}

#[derive(Default)]
struct TimerState {
    waiting: Latch<FirstRenewals>,
    /// There is one before the time that the task sleeps for.
    earlier: Notify,
}

#[derive(Default)]
struct FirstRenewals {
    holds: BTreeMap<RenewalKey, Arc<dyn FirstRenewal>>,
    last: u64,
    /// The task sleeps until then; without a time, until it is told of a hold.
    until: Option<Instant>,
}

impl RenewalTimer {
    pub(super) fn new(runtime: Handle) -> Self {
        Self {
            runtime,
            shared: Arc::default(),
            task: Latch::new(None),
        }
    }

    pub(super) fn add(&self, at: Instant, hold: Arc<dyn FirstRenewal>) -> RenewalKey {
        let mut waiting = self.shared.waiting.lock();
        waiting.last += 1;
        let key = (at, waiting.last);
        waiting.holds.insert(key, hold);
        let is_earlier = waiting.until.is_none_or(|until| at < until);
        drop(waiting);
        if is_earlier {
            self.wake();
        }
        key
    }

    /// The hold ends before its time.
    pub(super) fn remove(&self, key: RenewalKey) {
        let ended = self.shared.waiting.lock().holds.remove(&key);
        drop(ended);
    }

    fn wake(&self) {
        self.shared.earlier.notify_one();
        let mut task = self.task.lock();
        if task.as_ref().is_none_or(JoinHandle::is_finished) {
            *task = Some(self.runtime.spawn(Arc::clone(&self.shared).ring()));
        }
    }
}

impl TimerState {
    async fn ring(self: Arc<Self>) {
        loop {
            let (due, until) = self.due(Instant::now());
            for hold in due {
                hold.begin_renewing();
            }
            let over = async {
                match until {
                    Some(until) => sleep_until(until).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = over => {}
                () = self.earlier.notified() => {}
            }
        }
    }

    /// The holds whose time has come, and the next time.
    fn due(&self, now: Instant) -> (Vec<Arc<dyn FirstRenewal>>, Option<Instant>) {
        let mut waiting = self.waiting.lock();
        let later = waiting.holds.split_off(&(now, u64::MAX));
        let due = std::mem::replace(&mut waiting.holds, later);
        let first = waiting.holds.first_key_value();
        waiting.until = first.map(|((at, _), _)| *at);
        let until = waiting.until;
        drop(waiting);
        (due.into_values().collect(), until)
    }
}

/// No hold and no keeper is left.
impl Drop for RenewalTimer {
    fn drop(&mut self) {
        if let Some(task) = self.task.lock().take() {
            task.abort();
        }
    }
}
