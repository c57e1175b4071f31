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

#[derive(Debug)]
struct Shared {
    began: Instant,
    /// When the thread began the nap that is under way, since `began`.
    nap_us: AtomicU64,
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
        self.longest_us.fetch_max(micros(late), Ordering::Relaxed);
    }

    /// How late the nap is that is under way.
    fn late(&self) -> Duration {
        let nap = Duration::from_micros(self.nap_us.load(Ordering::Relaxed));
        self.began.elapsed().saturating_sub(nap + NAP)
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

impl Stall {
    pub fn watch() -> Self {
        let shared = Arc::new(Shared {
            began: Instant::now(),
            nap_us: AtomicU64::new(0),
            longest_us: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
        });
        let (measured, theirs) = (shared.clone(), shared.clone());
        let goes_on = move || {
            let now = micros(measured.began.elapsed());
            measured.nap_us.store(now, Ordering::Relaxed);
            !measured.is_over.load(Ordering::Relaxed)
        };
        naps(goes_on, move |late| theirs.note(late));
        let theirs = shared.clone();
        let shown = shared.clone();
        tokio::spawn(task_naps(
            move || !theirs.is_over.load(Ordering::Relaxed),
            move |late| shown.note(late),
        ));
        Self(shared)
    }

    /// The longest stall so far. After one of the whole process, the case may ask before the thread
    /// runs again.
    pub fn longest(&self) -> Duration {
        let noted = Duration::from_micros(self.0.longest_us.load(Ordering::Relaxed));
        noted.max(self.0.late())
    }
}

impl Drop for Stall {
    fn drop(&mut self) {
        self.0.is_over.store(true, Ordering::Relaxed);
    }
}
