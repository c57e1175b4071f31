//! The metrics: counts of locks and of sessions, on the `metrics` facade; nothing without the
//! feature `metrics`.
//!
//! Invariants: no label is ever the name of a lock, so there are as many series as a program has
//! classes and kinds. A value stands for each count in a gauge, so the gauge comes down again
//! however the value ends. It sends nothing and decides nothing.

use std::collections::HashMap;
use std::sync::{Arc, Once, OnceLock};
use std::time::Instant;

#[cfg(feature = "metrics")]
use metrics::{
    Counter, Gauge, Histogram, Unit, counter, describe_counter, describe_gauge, describe_histogram,
    gauge, histogram,
};
#[cfg(not(feature = "metrics"))]
use nothing::{
    Nothing as Counter, Nothing as Gauge, Nothing as Histogram, Unit, nothing as counter,
    nothing as describe_counter, nothing as describe_gauge, nothing as describe_histogram,
    nothing as gauge, nothing as histogram,
};

use crate::latch::Latch;

/// The class of a lock that was not put into one.
pub(crate) const DEFAULT_CLASS: &str = "default";

/// Why a hold was lost.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Reason {
    Lease,
    Session,
    Ticket,
    Closed,
}

const WAIT: &str = "lockkeeper_wait_seconds";
const WAITING: &str = "lockkeeper_waiting";
const QUEUE: &str = "lockkeeper_queue_length";
const HOLD: &str = "lockkeeper_hold_seconds";
const HELD: &str = "lockkeeper_held";
const LOST: &str = "lockkeeper_lost_total";
const TIMEOUTS: &str = "lockkeeper_timeouts_total";
const SESSIONS: &str = "lockkeeper_sessions";
const BEGUN: &str = "lockkeeper_sessions_begun_total";
const RECONNECTS: &str = "lockkeeper_reconnects_total";

/// In the order of [`Reason`].
const REASONS: [&str; 4] = ["lease", "session", "ticket", "closed"];

/// Says once in a process what the names mean.
pub(crate) fn describe() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        for (name, unit, text) in [
            (
                WAIT,
                Unit::Seconds,
                "How long calls took that came back with a guard.",
            ),
            (
                QUEUE,
                Unit::Count,
                "Others in the queue when a ticket of ours had just joined it.",
            ),
            (
                HOLD,
                Unit::Seconds,
                "How long locks were held that were given back or lost.",
            ),
        ] {
            describe_histogram!(name, unit, text);
        }
        for (name, text) in [
            (WAITING, "Calls for a guard that are under way."),
            (HELD, "Locks that are held."),
            (SESSIONS, "Sessions that are open."),
        ] {
            describe_gauge!(name, Unit::Count, text);
        }
        for (name, text) in [
            (LOST, "Locks that were lost while they were held."),
            (
                TIMEOUTS,
                "Calls whose time limit was over before they had a guard.",
            ),
            (BEGUN, "Sessions that were opened."),
            (RECONNECTS, "Connections that came back within a session."),
        ] {
            describe_counter!(name, Unit::Count, text);
        }
    });
}

/// The metrics of one keeper. Locks of one class and kind share theirs.
#[derive(Debug, Default)]
pub(crate) struct MetricsTable(Latch<HashMap<(&'static str, &'static str), LockMetrics>>);

impl MetricsTable {
    pub(crate) fn of(&self, class: &'static str, kind: &'static str) -> LockMetrics {
        if cfg!(not(feature = "metrics")) {
            return LockMetrics::default();
        }
        let new = || {
            let handles = OnceLock::new();
            LockMetrics(Some(Arc::new(Counts {
                class,
                kind,
                handles,
            })))
        };
        let mut all = self.0.lock();
        all.entry((class, kind)).or_insert_with(new).clone()
    }
}

/// The counts of the locks of one class and kind. The default one counts nothing.
#[derive(Debug, Clone, Default)]
pub(crate) struct LockMetrics(Option<Arc<Counts>>);

#[derive(Debug)]
struct Counts {
    class: &'static str,
    kind: &'static str,
    /// Registered when there is something to count: a lock is made before it is put into its
    /// class.
    handles: OnceLock<Handles>,
}

#[derive(Debug)]
struct Handles {
    wait: Histogram,
    waiting: Gauge,
    queue: Histogram,
    hold: Histogram,
    held: Gauge,
    lost: [Counter; REASONS.len()],
    timeouts: Counter,
}

impl Counts {
    fn handles(&self) -> &Handles {
        if let Some(handles) = self.handles.get() {
            return handles;
        }
        let (class, kind) = (self.class, self.kind);
        // Registered before the cell is locked: a recorder may ask a lock. Twice is as good as
        // once.
        let handles = Handles {
            wait: histogram!(WAIT, "class" => class, "kind" => kind),
            waiting: gauge!(WAITING, "class" => class, "kind" => kind),
            queue: histogram!(QUEUE, "class" => class, "kind" => kind),
            hold: histogram!(HOLD, "class" => class, "kind" => kind),
            held: gauge!(HELD, "class" => class, "kind" => kind),
            // All from the beginning: readers do not see the first increase of a new counter.
            lost: REASONS
                .map(|reason| counter!(LOST, "class" => class, "kind" => kind, "reason" => reason)),
            timeouts: counter!(TIMEOUTS, "class" => class, "kind" => kind),
        };
        self.handles.get_or_init(|| handles)
    }
}

impl LockMetrics {
    fn handles(&self) -> Option<&Handles> {
        self.0.as_deref().map(Counts::handles)
    }

    /// The metrics for the same kind in another class.
    pub(crate) fn in_class(&self, class: &'static str, all: &MetricsTable) -> Self {
        self.0
            .as_ref()
            .map_or_else(Self::default, |counts| all.of(class, counts.kind))
    }

    /// A call for a guard begins.
    pub(crate) fn wait(&self) -> Waiting {
        if let Some(handles) = self.handles() {
            handles.waiting.increment(1.0);
        }
        Waiting {
            metrics: self.clone(),
            since: Instant::now(),
        }
    }

    /// A call was given up when its time was over.
    pub(crate) fn timed_out(&self) {
        if let Some(handles) = self.handles() {
            handles.timeouts.increment(1);
        }
    }

    /// A ticket has joined a queue with so many nodes, its own included.
    pub(crate) fn joined(&self, nodes: i32) {
        if let Some(handles) = self.handles() {
            handles.queue.record(f64::from(nodes.max(1)) - 1.0);
        }
    }

    /// A hold begins.
    pub(crate) fn hold(&self) -> Option<Holding> {
        let counts = Arc::clone(self.0.as_ref()?);
        counts.handles().held.increment(1.0);
        Some(Holding {
            counts,
            since: Instant::now(),
        })
    }
}

/// A call for a guard, until it ends in any way.
#[derive(Debug)]
pub(crate) struct Waiting {
    metrics: LockMetrics,
    since: Instant,
}

impl Waiting {
    /// It has a guard.
    pub(crate) fn granted(self) {
        if let Some(handles) = self.metrics.handles() {
            handles.wait.record(self.since.elapsed().as_secs_f64());
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if let Some(handles) = self.metrics.handles() {
            handles.waiting.decrement(1.0);
        }
    }
}

/// A hold, until it is given back or lost.
#[derive(Debug)]
pub(crate) struct Holding {
    counts: Arc<Counts>,
    since: Instant,
}

impl Holding {
    pub(crate) fn lost(self, reason: Reason) {
        self.counts.handles().lost[reason as usize].increment(1);
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        let handles = self.counts.handles();
        handles.held.decrement(1.0);
        handles.hold.record(self.since.elapsed().as_secs_f64());
    }
}

/// A session, until it is over.
pub(crate) struct OpenSession(Gauge);

impl OpenSession {
    pub(crate) fn begin() -> Self {
        counter!(BEGUN).increment(1);
        // So that it is there.
        counter!(RECONNECTS).increment(0);
        let sessions = gauge!(SESSIONS);
        sessions.increment(1.0);
        Self(sessions)
    }
}

impl Drop for OpenSession {
    fn drop(&mut self) {
        self.0.decrement(1.0);
    }
}

/// The connection of a session has come back.
pub(crate) fn reconnected() {
    counter!(RECONNECTS).increment(1);
}

/// Stands for the facade without the feature.
#[cfg(not(feature = "metrics"))]
mod nothing {
    pub(super) enum Unit {
        Seconds,
        Count,
    }

    #[derive(Debug)]
    pub(super) struct Nothing;

    impl Nothing {
        pub(super) fn increment<T>(&self, _: T) {}

        pub(super) fn decrement<T>(&self, _: T) {}

        pub(super) fn record<T>(&self, _: T) {}
    }

    macro_rules! nothing {
        ($name:expr $(, $more:expr $(=> $value:expr)?)*) => {{
            let _unused = ($name, $($more $(, $value)?),*);
            $crate::metrics::nothing::Nothing
        }};
    }
    pub(super) use nothing;
}
