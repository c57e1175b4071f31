//! A cohort: the tasks of one keeper that pass one hold of a lock on among them.
//!
//! They stand in the lock's queue as one, as in lock cohorting (Dice, Marathe and Shavit, PPoPP
//! 2012). Only the task with the baton has a ticket, and a hold that no other client asks for is
//! passed on without a request. Invariants: at most one of them holds, in the order of their calls.
//! A hold that is over for passing is never passed on again, whatever happens at the same time. A
//! hold that is kept while no task uses it goes back as soon as it is over. A lost hold keeps no
//! task waiting. The cohort sends nothing, and knows of no competitor until it is told.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use crate::guard::hold::{GuardState, Hold};
use crate::latch::Latch;

/// Guards that one ticket has at most, one after the other. Even if no word of a competitor
/// arrives, it waits for no more.
pub(crate) const MOST_GUARDS: u32 = 10_000;
/// With so many cohorts, those that are of no use any more are looked for.
const FEW_COHORTS: usize = 64;

/// The cohorts of one keeper, by the lock's directory.
#[derive(Debug, Default)]
pub(crate) struct Cohorts {
    all: Latch<HashMap<Arc<str>, Weak<Cohort>>>,
}

impl Cohorts {
    /// The cohort of the lock with this directory.
    pub(crate) fn of(&self, path: &Arc<str>) -> Arc<Cohort> {
        let mut all = self.all.lock();
        if let Some(cohort) = all.get(path).and_then(Weak::upgrade) {
            return cohort;
        }
        if all.len() >= FEW_COHORTS && all.len() == all.capacity() {
            // Each look pays for as many new ones as the map grows by.
            all.retain(|_, cohort| cohort.strong_count() > 0);
        }
        let cohort = Arc::new(Cohort::new());
        all.insert(Arc::clone(path), Arc::downgrade(&cohort));
        cohort
    }

    /// Gives back what is kept and not used.
    pub(crate) fn give_back(&self) {
        for cohort in self.live() {
            cohort.give_back();
        }
    }

    fn live(&self) -> Vec<Arc<Cohort>> {
        self.all.lock().values().filter_map(Weak::upgrade).collect()
    }
}

impl Drop for Cohorts {
    /// With the keeper and all its mutexes gone, no task can take over a hold, kept or in use.
    fn drop(&mut self) {
        for cohort in self.live() {
            cohort.is_closed.store(true, Ordering::SeqCst);
            cohort.give_back();
        }
    }
}

/// Tasks that pass one hold on among them.
#[derive(Debug)]
pub(crate) struct Cohort {
    /// One permit, given in the order of the calls.
    baton: Arc<Semaphore>,
    /// A hold that nobody uses just now.
    kept: Latch<Option<Kept>>,
    /// No task can come any more. Set before `kept` is emptied, and read under its latch.
    is_closed: AtomicBool,
}

struct Kept {
    hold: Arc<Hold>,
    handoff: Arc<Handoff>,
    until: Instant,
}

impl Kept {
    fn is_of(&self, handoff: &Arc<Handoff>) -> bool {
        Arc::ptr_eq(&self.handoff, handoff)
    }
}

impl Cohort {
    fn new() -> Self {
        Self {
            baton: Arc::new(Semaphore::new(1)),
            kept: Latch::new(None),
            is_closed: AtomicBool::new(false),
        }
    }

    /// Gives back the hold that is kept and not used.
    fn give_back(&self) {
        // Dropped without the latch: its ticket goes to the janitor.
        let kept = self.kept.lock().take();
        if let Some(kept) = kept {
            kept.handoff.stop();
        }
    }

    /// Waits for the baton, in the order of the calls. `None` never comes, because nobody closes
    /// the semaphore.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the baton goes to the next one.
    pub(crate) async fn baton(self: &Arc<Self>) -> Option<Baton> {
        let permit = Arc::clone(&self.baton).acquire_owned().await.ok()?;
        Some(Baton::new(self, permit))
    }

    /// The baton, if nobody has it or waits for it.
    pub(crate) fn try_baton(self: &Arc<Self>) -> Option<Baton> {
        let permit = Arc::clone(&self.baton).try_acquire_owned().ok()?;
        Some(Baton::new(self, permit))
    }

    /// This hold is not passed on any more; if nobody uses it, it goes back.
    pub(crate) fn end(&self, handoff: &Arc<Handoff>) {
        handoff.is_over.store(true, Ordering::SeqCst);
        // `keep` checks under the latch whether the hold is over, so one of the two sees the other.
        self.take_if(|kept| kept.is_of(handoff));
    }

    /// When the follower of the hold has to look again. An unused hold is kept until then; one that
    /// was unused for too long goes back. `None` while it is used. The task that lets go of it
    /// tells if that is too late ([`Handoff::let_go`]).
    pub(crate) fn kept_until(&self, handoff: &Arc<Handoff>) -> Option<Instant> {
        let now = Instant::now();
        let is_old = |kept: &Kept| kept.is_of(handoff) && kept.until <= now;
        if self.take_if(is_old) {
            handoff.is_over.store(true, Ordering::SeqCst);
        }
        let kept = self.kept.lock();
        let until = kept.as_ref().filter(|kept| kept.is_of(handoff));
        let until = until.map(|kept| kept.until);
        // Under the latch, so the next `keep` knows.
        *handoff.looks_at.lock() = until;
        until
    }

    fn take_if(&self, is_right: impl FnOnce(&Kept) -> bool) -> bool {
        let taken = {
            let mut kept = self.kept.lock();
            kept.as_ref().is_some_and(is_right).then(|| kept.take())
        };
        // Dropped without the lock: its ticket goes to the janitor.
        taken.is_some()
    }

    /// Keeps a hold for the next one, unless it is over for passing.
    pub(crate) fn keep(
        &self,
        hold: Arc<Hold>,
        handoff: &Arc<Handoff>,
        time: Duration,
    ) -> Result<(), Arc<Hold>> {
        let until = after(Instant::now(), time);
        let mut kept = self.kept.lock();
        if handoff.is_over() || self.is_closed.load(Ordering::SeqCst) {
            return Err(hold);
        }
        let before = kept.replace(Kept {
            hold,
            handoff: Arc::clone(handoff),
            until,
        });
        let is_sooner = {
            let mut looks_at = handoff.looks_at.lock();
            let is_sooner = looks_at.is_none_or(|looks_at| until < looks_at);
            if is_sooner {
                *looks_at = Some(until);
            }
            is_sooner
        };
        drop(kept);
        // None, because the task that keeps the hold has the baton.
        drop(before);
        // Not each time: a task that is woken costs more than all of this.
        if is_sooner {
            handoff.let_go.notify_one();
        }
        Ok(())
    }
}

fn after(now: Instant, time: Duration) -> Instant {
    /// As good as never.
    const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);
    now + time.min(YEAR)
}

/// Whether one hold, with one ticket, may still be passed on.
#[derive(Debug)]
pub(crate) struct Handoff {
    is_over: AtomicBool,
    /// Guards that it may still have.
    left: AtomicU32,
    /// The baton of the task that uses the hold. It goes on without that task once the hold is
    /// lost.
    baton: Latch<Option<Baton>>,
    /// The task no longer uses the hold.
    let_go: Notify,
    /// When the follower looks at the hold again without being told.
    looks_at: Latch<Option<Instant>>,
}

impl Handoff {
    /// Of a hold that has its first guard; over from the beginning if somebody else is in the queue
    /// already.
    pub(crate) fn new(is_alone: bool, baton: Baton) -> Arc<Self> {
        Arc::new(Self {
            is_over: AtomicBool::new(!is_alone),
            left: AtomicU32::new(MOST_GUARDS - 1),
            baton: Latch::new(Some(baton)),
            let_go: Notify::new(),
            looks_at: Latch::new(None),
        })
    }

    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::SeqCst)
    }

    /// Whether somebody uses the hold.
    pub(crate) fn is_used(&self) -> bool {
        self.baton.lock().is_some()
    }

    /// Waits until the task that uses the hold has let go of it. It may end before.
    pub(crate) async fn let_go(&self) {
        self.let_go.notified().await;
    }

    /// The next task need not wait for the one that uses the hold.
    pub(crate) fn free_baton(&self) {
        drop(self.take_baton());
    }

    pub(crate) fn take_baton(&self) -> Option<Baton> {
        self.baton.lock().take()
    }

    /// One guard more. The task that takes the last one does not pass on.
    fn pass(&self, baton: Baton) {
        // There was none: its task has just given it back.
        *self.baton.lock() = Some(baton);
        if self.left.fetch_sub(1, Ordering::Relaxed) <= 1 {
            self.is_over.store(true, Ordering::SeqCst);
        }
    }

    /// It is not passed on, and nobody uses it.
    pub(crate) fn stop(&self) {
        self.is_over.store(true, Ordering::SeqCst);
        self.let_go.notify_one();
    }
}

/// The turn of one task among the tasks of its keeper.
#[derive(Debug)]
pub(crate) struct Baton {
    pub(crate) cohort: Arc<Cohort>,
    _permit: OwnedSemaphorePermit,
}

impl Baton {
    fn new(cohort: &Arc<Cohort>, permit: OwnedSemaphorePermit) -> Self {
        Self {
            cohort: Arc::clone(cohort),
            _permit: permit,
        }
    }

    /// The hold that was kept, if it is still good. One that is doubtful or lost goes back.
    pub(crate) fn take_over(self) -> Result<(Arc<Hold>, Arc<Handoff>), Self> {
        let cohort = Arc::clone(&self.cohort);
        let kept_hold = cohort
            .kept
            .lock()
            .as_ref()
            .map(|kept| Arc::clone(&kept.hold));
        // Without the latch, because a look may find a loss. Nobody else keeps anything: we have
        // the baton.
        let is_held = kept_hold.is_some_and(|hold| hold.state() == GuardState::Held);
        let mut kept = cohort.kept.lock();
        let taken = kept.take();
        match taken {
            Some(good) if is_held && !good.handoff.is_over() => {
                // With the latch, so that the follower finds the hold kept or used.
                good.handoff.pass(self);
                drop(kept);
                Ok((good.hold, good.handoff))
            }
            bad => {
                drop(kept);
                if let Some(bad) = bad {
                    bad.handoff.stop();
                }
                Err(self)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cohorts_of_names_that_nobody_uses_are_forgotten() {
        let cohorts = Cohorts::default();
        let used: Arc<str> = "/locks/used".into();
        let kept = cohorts.of(&used);

        for name in 0..100_000 {
            cohorts.of(&format!("/locks/{name}").into());
        }

        let known = cohorts.all.lock().capacity();
        assert!(known < 4 * FEW_COHORTS, "{known}");
        assert!(Arc::ptr_eq(&kept, &cohorts.of(&used)));
    }
}
