//! A cohort: the tasks of one keeper that pass one hold of a lock on among them.
//!
//! They stand in the lock's queue as one, as in lock cohorting (Dice, Marathe and Shavit, PPoPP 2012): whoever has the baton is the
//! only one with a ticket, and a hold that nobody else asks for is passed on without a word to the servers. Invariants: at most one
//! of them holds, in the order of their calls; a hold that is over for passing is never passed on again, whatever happens at the same
//! time; a hold that is kept while nobody uses it goes back as soon as it is over. It sends nothing, and knows of no competitor
//! until it is told.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use crate::error::Result;
use crate::holders::Presence;
use crate::tenure::{GuardState, Tenure};

/// Guards that one ticket has at most, one after the other. Even if no word of a competitor arrives, it waits for no more.
pub(crate) const MOST_GUARDS: u32 = 10_000;
/// With so many cohorts, those that are of no use any more are looked for.
const FEW_COHORTS: usize = 64;

/// The cohorts of one keeper, by the lock's directory.
#[derive(Debug, Default)]
pub(crate) struct Cohorts {
    all: Mutex<HashMap<Arc<str>, Weak<Cohort>>>,
}

impl Cohorts {
    /// The cohort of the lock with this directory.
    pub(crate) fn of(&self, path: &Arc<str>) -> Arc<Cohort> {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
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
        let cohorts: Vec<_> = {
            let all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
            all.values().filter_map(Weak::upgrade).collect()
        };
        for cohort in cohorts {
            drop(cohort.kept().take());
        }
    }
}

/// Tasks that pass one hold on among them.
pub(crate) struct Cohort {
    /// One permit, given in the order of the calls.
    baton: Arc<Semaphore>,
    /// A hold that nobody uses just now.
    kept: Mutex<Option<Kept>>,
}

struct Kept {
    tenure: Arc<Tenure>,
    passing: Arc<Passing>,
    until: Instant,
}

impl Cohort {
    fn new() -> Self {
        Self {
            baton: Arc::new(Semaphore::new(1)),
            kept: Mutex::new(None),
        }
    }

    /// Waits for the baton, in the order of the calls. `None` never comes, because nobody closes the semaphore.
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
    pub(crate) fn end(&self, passing: &Arc<Passing>) {
        passing.is_over.store(true, Ordering::SeqCst);
        // Whoever keeps it looks whether it is over while it has the lock, so one of the two sees the other.
        self.take_if(|kept| Arc::ptr_eq(&kept.passing, passing));
    }

    /// The hold goes back if nobody has used it for too long. Tells when to look again.
    pub(crate) fn expire(&self, passing: &Arc<Passing>) -> Instant {
        let now = Instant::now();
        let is_old = |kept: &Kept| Arc::ptr_eq(&kept.passing, passing) && kept.until <= now;
        if self.take_if(is_old) {
            passing.is_over.store(true, Ordering::SeqCst);
        }
        match &*self.kept() {
            Some(kept) if Arc::ptr_eq(&kept.passing, passing) => kept.until,
            _ => after(now, passing.linger),
        }
    }

    fn take_if(&self, is_right: impl FnOnce(&Kept) -> bool) -> bool {
        let taken = {
            let mut kept = self.kept();
            kept.as_ref().is_some_and(is_right).then(|| kept.take())
        };
        // Dropped without the lock: its ticket goes to the janitor.
        taken.is_some()
    }

    /// Keeps a hold for the next one, unless it is over for passing.
    fn keep(&self, tenure: Arc<Tenure>, passing: &Arc<Passing>) -> Result<(), Arc<Tenure>> {
        let until = after(Instant::now(), passing.linger);
        let mut kept = self.kept();
        if passing.is_over() {
            return Err(tenure);
        }
        *kept = Some(Kept {
            tenure,
            passing: Arc::clone(passing),
            until,
        });
        Ok(())
    }

    fn kept(&self) -> std::sync::MutexGuard<'_, Option<Kept>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Cohort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cohort").finish_non_exhaustive()
    }
}

fn after(now: Instant, time: Duration) -> Instant {
    /// As good as never.
    const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);
    now + time.min(YEAR)
}

/// Whether one hold, with one ticket, may still be passed on.
#[derive(Debug)]
pub(crate) struct Passing {
    is_over: AtomicBool,
    /// Guards that it may still have.
    left: AtomicU32,
    /// How long it is kept while nobody uses it.
    linger: Duration,
}

impl Passing {
    /// Of a hold that has its first guard; over from the beginning if somebody else is in the queue already.
    pub(crate) fn new(is_alone: bool, linger: Duration) -> Arc<Self> {
        Arc::new(Self {
            is_over: AtomicBool::new(!is_alone),
            left: AtomicU32::new(MOST_GUARDS - 1),
            linger,
        })
    }

    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::SeqCst)
    }

    /// One guard more. Whoever takes the last one does not pass on.
    fn pass(&self) {
        if self.left.fetch_sub(1, Ordering::Relaxed) <= 1 {
            self.is_over.store(true, Ordering::SeqCst);
        }
    }
}

/// The turn of one task among the tasks of its keeper.
#[derive(Debug)]
pub(crate) struct Baton {
    cohort: Arc<Cohort>,
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
    pub(crate) fn take_over(&self) -> Option<(Arc<Tenure>, Arc<Passing>)> {
        let Kept {
            tenure, passing, ..
        } = self.cohort.kept().take()?;
        let is_good = !passing.is_over() && tenure.state() == GuardState::Held;
        is_good.then(|| {
            passing.pass();
            (tenure, passing)
        })
    }
}

/// One guard's part of a hold that may be passed on.
#[derive(Debug)]
pub(crate) struct Stint {
    baton: Baton,
    /// Gone once it was passed on, or is about to be released.
    tenure: Option<Arc<Tenure>>,
    passing: Arc<Passing>,
    _presence: Presence,
}

impl Stint {
    pub(crate) fn new(
        baton: Baton,
        tenure: Arc<Tenure>,
        passing: Arc<Passing>,
        presence: Presence,
    ) -> Self {
        Self {
            baton,
            tenure: Some(tenure),
            passing,
            _presence: presence,
        }
    }

    /// Ends the guard: the hold is kept for the next one, or released.
    ///
    /// # Cancel safety
    ///
    /// As the release of a tenure: it goes on in the background.
    pub(crate) async fn release(mut self, tenure: Arc<Tenure>) -> Result<()> {
        if self.passes_on() {
            tracing::debug!(token = u64::from(tenure.token()), "kept for the next one");
            return Ok(());
        }
        // The baton stays here until the release is known, so that the next one of ours does not queue up behind this ticket.
        tenure.release().await
    }

    /// Whether the hold is kept for the next one. If not, the guard's tenure is the last.
    fn passes_on(&mut self) -> bool {
        let Some(tenure) = self.tenure.take() else {
            return false;
        };
        !self.passing.is_over()
            && tenure.state() == GuardState::Held
            && self.baton.cohort.keep(tenure, &self.passing).is_ok()
    }
}

impl Drop for Stint {
    fn drop(&mut self) {
        self.passes_on();
    }
}
