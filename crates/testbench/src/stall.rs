//! Measures how long the machine kept one of our threads, or a task of the case, from running. A
//! bound on time adds this on a busy machine.
//!
//! It excuses no wrong answer, only a late one, and by no more than was measured.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const NAP: Duration = Duration::from_millis(5);

/// Measures from its begin until it is dropped.
#[derive(Debug)]
pub struct Stall(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    longest_us: AtomicU64,
    is_over: AtomicBool,
}

/// Sleeps repeatedly while `goes_on`, and reports how late each sleep ended. As a task: the machine
/// prefers a thread that only sleeps to those that work.
pub async fn task_naps(goes_on: impl Fn() -> bool, late: impl Fn(Duration)) {
    while goes_on() {
        let began = Instant::now();
        tokio::time::sleep(NAP).await;
        late(began.elapsed().saturating_sub(NAP));
    }
}

/// The same on its own thread.
fn naps(goes_on: impl Fn() -> bool + Send + 'static, late: impl Fn(Duration) + Send + 'static) {
    std::thread::spawn(move || {
        while goes_on() {
            let began = Instant::now();
            std::thread::sleep(NAP);
            late(began.elapsed().saturating_sub(NAP));
        }
    });
}

impl Shared {
    fn note(&self, late: Duration) {
        let late = u64::try_from(late.as_micros()).unwrap_or(u64::MAX);
        self.longest_us.fetch_max(late, Ordering::Relaxed);
    }
}

impl Stall {
    pub fn watch() -> Self {
        let shared = Arc::new(Shared::default());
        let (measured, theirs) = (shared.clone(), shared.clone());
        naps(
            move || !measured.is_over.load(Ordering::Relaxed),
            move |late| theirs.note(late),
        );
        let theirs = shared.clone();
        let shown = shared.clone();
        tokio::spawn(task_naps(
            move || !theirs.is_over.load(Ordering::Relaxed),
            move |late| shown.note(late),
        ));
        Self(shared)
    }

    /// The longest stall so far.
    pub fn longest(&self) -> Duration {
        Duration::from_micros(self.0.longest_us.load(Ordering::Relaxed))
    }
}

impl Drop for Stall {
    fn drop(&mut self) {
        self.0.is_over.store(true, Ordering::Relaxed);
    }
}
