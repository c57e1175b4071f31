//! Where handlers and the reader meet: what was read, and what is looked at.
//!
//! Invariant: what nobody has looked at for a few seconds counts as not looked at.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use super::picture::Picture;

/// So long a look counts. Streams say each second that they go on.
const LOOKS: Duration = Duration::from_secs(5);
/// The most locks that are looked at one by one.
pub(super) const MOST: usize = 64;

pub(super) struct Desk {
    interest: Mutex<Interest>,
    /// Somebody came.
    came: Notify,
    pictures: watch::Receiver<Arc<Picture>>,
}

#[derive(Default)]
struct Interest {
    page: Option<Instant>,
    doctor: Option<Instant>,
    locks: HashMap<String, Instant>,
}

impl Desk {
    pub(super) fn new() -> (Self, watch::Sender<Arc<Picture>>) {
        let (publish, pictures) = watch::channel(Arc::default());
        let desk = Self {
            interest: Mutex::default(),
            came: Notify::new(),
            pictures,
        };
        (desk, publish)
    }

    pub(super) fn pictures(&self) -> watch::Receiver<Arc<Picture>> {
        self.pictures.clone()
    }

    pub(super) fn picture(&self) -> Arc<Picture> {
        self.pictures.borrow().clone()
    }

    /// Somebody looks at the locks.
    pub(super) fn look(&self) {
        self.came_to(|interest| &mut interest.page);
    }

    /// Somebody looks at what the doctor finds.
    pub(super) fn look_at_findings(&self) {
        self.look();
        self.came_to(|interest| &mut interest.doctor);
    }

    /// Somebody looks at one lock and at its journal. False if too many are looked at.
    pub(super) fn look_at(&self, name: &str) -> bool {
        self.look();
        let now = Instant::now();
        let mut interest = self.interest();
        interest.locks.retain(|_, at| now - *at < LOOKS);
        if interest.locks.len() >= MOST && !interest.locks.contains_key(name) {
            return false;
        }
        let is_new = interest.locks.insert(name.to_owned(), now).is_none();
        if is_new {
            self.came.notify_one();
        }
        true
    }

    pub(super) fn is_looked_at(&self) -> bool {
        is_fresh(self.interest().page)
    }

    pub(super) fn are_findings_looked_at(&self) -> bool {
        is_fresh(self.interest().doctor)
    }

    /// The locks that are looked at one by one.
    pub(super) fn watched(&self) -> Vec<String> {
        let interest = self.interest();
        let fresh = interest.locks.iter().filter(|(_, at)| is_fresh(Some(**at)));
        fresh.map(|(name, _)| name.clone()).collect()
    }

    /// Waits until somebody begins to look at something.
    pub(super) async fn somebody_comes(&self) {
        self.came.notified().await;
    }

    fn came_to(&self, what: impl Fn(&mut Interest) -> &mut Option<Instant>) {
        let mut interest = self.interest();
        let before = what(&mut interest).replace(Instant::now());
        if !is_fresh(before) {
            self.came.notify_one();
        }
    }

    fn interest(&self) -> MutexGuard<'_, Interest> {
        self.interest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_fresh(at: Option<Instant>) -> bool {
    at.is_some_and(|at| at.elapsed() < LOOKS)
}
