//! Latches: short locks around the state of this process.
//!
//! Invariant: no foreign code runs while a latch is locked: no event, no counter, no waker, no drop
//! of a value that may be the last of its kind. Such code may ask a guard, and would wait for
//! itself. So a value is set while the latch is locked, and told after it is open. In unit tests
//! [`Listener`] finds code that breaks this.

use std::fmt;
use std::sync::{Mutex, PoisonError};

use tokio::sync::watch;

/// A lock for a few instructions, without poison: its value is right after each of them.
#[derive(Default)]
pub(crate) struct Latch<T>(Mutex<T>);

/// Without the value: the formatter is not ours.
impl<T> fmt::Debug for Latch<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Latch")
    }
}

#[cfg(not(test))]
pub(crate) type Latched<'a, T> = std::sync::MutexGuard<'a, T>;
#[cfg(test)]
pub(crate) use taken::{Latched, Listener};

impl<T> Latch<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> Latched<'_, T> {
        let latched = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        #[cfg(test)]
        let latched = Latched::new(latched);
        latched
    }
}

/// Sets a value, and leaves its receivers to [`tell`].
pub(crate) fn set<T>(sender: &watch::Sender<T>, value: T) {
    sender.send_if_modified(|set| {
        *set = value;
        false
    });
}

/// Wakes the receivers of a value that was [`set`].
pub(crate) fn tell<T>(sender: &watch::Sender<T>) {
    sender.send_modify(|_| ());
}

#[cfg(test)]
mod taken {
    use std::backtrace::Backtrace;
    use std::cell::Cell;
    use std::ops::{Deref, DerefMut};
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Arc, MutexGuard, OnceLock};
    use std::task::Wake;

    use tracing::span::{Attributes, Id, Record as Values};
    use tracing::{Event, Metadata, Subscriber};

    thread_local! {
        static TAKEN: Cell<usize> = const { Cell::new(0) };
    }

    /// Stands for all foreign code. It remembers where it ran while its thread had a latch.
    #[derive(Debug, Clone, Default)]
    pub(crate) struct Listener {
        told: Arc<AtomicUsize>,
        too_early: Arc<OnceLock<String>>,
    }

    impl Listener {
        fn note(&self) {
            self.told.fetch_add(1, Ordering::Relaxed);
            if TAKEN.get() > 0 {
                let here = || Backtrace::force_capture().to_string();
                self.too_early.get_or_init(here);
            }
        }

        pub(crate) fn told(&self) -> usize {
            self.told.load(Ordering::Relaxed)
        }

        /// Where it ran while a latch was taken.
        pub(crate) fn too_early(&self) -> Option<&str> {
            self.too_early.get().map(String::as_str)
        }
    }

    impl Subscriber for Listener {
        fn enabled(&self, _: &Metadata<'_>) -> bool {
            true
        }

        fn new_span(&self, _: &Attributes<'_>) -> Id {
            self.note();
            Id::from_u64(1)
        }

        fn record(&self, _: &Id, _: &Values<'_>) {
            self.note();
        }

        fn record_follows_from(&self, _: &Id, _: &Id) {}

        fn event(&self, _: &Event<'_>) {
            self.note();
        }

        fn enter(&self, _: &Id) {
            self.note();
        }

        fn exit(&self, _: &Id) {
            self.note();
        }

        fn clone_span(&self, id: &Id) -> Id {
            self.note();
            id.clone()
        }

        fn try_close(&self, _: Id) -> bool {
            self.note();
            false
        }
    }

    impl Wake for Listener {
        fn wake(self: Arc<Self>) {
            self.note();
        }
    }

    #[cfg(feature = "metrics")]
    mod recorder {
        use std::sync::Arc;

        use metrics::{
            Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata,
            Recorder, SharedString, Unit,
        };

        use super::Listener;

        impl CounterFn for Listener {
            fn increment(&self, _: u64) {
                self.note();
            }

            fn absolute(&self, _: u64) {
                self.note();
            }
        }

        impl GaugeFn for Listener {
            fn increment(&self, _: f64) {
                self.note();
            }

            fn decrement(&self, _: f64) {
                self.note();
            }

            fn set(&self, _: f64) {
                self.note();
            }
        }

        impl HistogramFn for Listener {
            fn record(&self, _: f64) {
                self.note();
            }
        }

        impl Recorder for Listener {
            fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

            fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

            fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

            fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
                self.note();
                Counter::from_arc(Arc::new(self.clone()))
            }

            fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
                self.note();
                Gauge::from_arc(Arc::new(self.clone()))
            }

            fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
                self.note();
                Histogram::from_arc(Arc::new(self.clone()))
            }
        }
    }

    #[derive(Debug)]
    pub(crate) struct Latched<'a, T>(MutexGuard<'a, T>);

    impl<'a, T> Latched<'a, T> {
        pub(super) fn new(guard: MutexGuard<'a, T>) -> Self {
            TAKEN.set(TAKEN.get() + 1);
            Self(guard)
        }
    }

    impl<T> Drop for Latched<'_, T> {
        fn drop(&mut self) {
            TAKEN.set(TAKEN.get() - 1);
        }
    }

    impl<T> Deref for Latched<'_, T> {
        type Target = T;

        fn deref(&self) -> &T {
            &self.0
        }
    }

    impl<T> DerefMut for Latched<'_, T> {
        fn deref_mut(&mut self) -> &mut T {
            &mut self.0
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::*;

    /// Tries the latch whenever it is written to.
    struct TriesLatch<'a>(&'a Latch<Vec<u8>>);

    impl fmt::Write for TriesLatch<'_> {
        fn write_str(&mut self, _: &str) -> fmt::Result {
            assert!(self.0.0.try_lock().is_ok(), "it is taken");
            Ok(())
        }
    }

    #[test]
    fn a_latch_is_not_taken_while_it_is_shown() {
        let latch = Latch::new(vec![7; 100]);
        write!(TriesLatch(&latch), "{latch:?}").unwrap();
    }
}
