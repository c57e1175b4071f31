//! The metrics: what is counted of locks and of sessions, on the `metrics` facade; nothing at all
//! without the feature `metrics`.
//!
//! Invariants: no label is ever the name of a lock, so that there are as many series as a program
//! has classes and kinds; and what a gauge counts is counted by a value, so that the gauge comes
//! down again whatever ends that. It sends nothing and decides nothing.

/// The class of whatever was not put into one.
pub(crate) const DEFAULT_CLASS: &str = "default";

/// Why a hold was lost.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Reason {
    Lease,
    Session,
    Ticket,
    Closed,
}

pub(crate) use form::{
    Holding, LockMetrics, MetricsTable, OpenSession, Waiting, describe, reconnected,
};

#[cfg(feature = "metrics")]
mod form {
    use std::collections::HashMap;
    use std::fmt;
    use std::sync::{Arc, Once, OnceLock};
    use std::time::Instant;

    use metrics::{Counter, Gauge, Histogram, Unit};
    use metrics::{
        counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram,
    };

    use super::Reason;
    use crate::latch::Latch;

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
            describe_histogram!(
                WAIT,
                Unit::Seconds,
                "How long calls took that came back with a guard."
            );
            describe_gauge!(
                WAITING,
                Unit::Count,
                "Calls for a guard that are under way."
            );
            describe_histogram!(
                QUEUE,
                Unit::Count,
                "Others in the queue when a ticket of ours had just joined it."
            );
            describe_histogram!(
                HOLD,
                Unit::Seconds,
                "How long locks were held that were given back or lost."
            );
            describe_gauge!(HELD, Unit::Count, "Locks that are held.");
            describe_counter!(
                LOST,
                Unit::Count,
                "Locks that were lost while they were held."
            );
            describe_counter!(
                TIMEOUTS,
                Unit::Count,
                "Calls whose time limit was over before they had a guard."
            );
            describe_gauge!(SESSIONS, Unit::Count, "Sessions that are open.");
            describe_counter!(BEGUN, Unit::Count, "Sessions that were opened.");
            describe_counter!(
                RECONNECTS,
                Unit::Count,
                "Connections that came back within a session."
            );
        });
    }

    /// The metrics of one keeper, however many locks are counted by each.
    #[derive(Debug, Default)]
    pub(crate) struct MetricsTable(Latch<HashMap<(&'static str, &'static str), LockMetrics>>);

    impl MetricsTable {
        pub(crate) fn of(&self, class: &'static str, kind: &'static str) -> LockMetrics {
            let mut all = self.0.lock();
            let metrics = all.entry((class, kind));
            metrics
                .or_insert_with(|| LockMetrics::new(class, kind))
                .clone()
        }
    }

    /// What is counted of the locks of one class and kind. The default one counts nothing.
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

    struct Handles {
        wait: Histogram,
        waiting: Gauge,
        queue: Histogram,
        hold: Histogram,
        held: Gauge,
        lost: [Counter; REASONS.len()],
        timeouts: Counter,
    }

    impl fmt::Debug for Handles {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.debug_struct("Handles").finish_non_exhaustive()
        }
    }

    impl Counts {
        fn handles(&self) -> &Handles {
            if let Some(handles) = self.handles.get() {
                return handles;
            }
            // Registered before the cell is locked: a recorder may look at a lock. Twice is as good
            // as once.
            let handles = Handles::register(self.class, self.kind);
            self.handles.get_or_init(|| handles)
        }
    }

    impl Handles {
        fn register(class: &'static str, kind: &'static str) -> Self {
            Self {
                wait: histogram!(WAIT, "class" => class, "kind" => kind),
                waiting: gauge!(WAITING, "class" => class, "kind" => kind),
                queue: histogram!(QUEUE, "class" => class, "kind" => kind),
                hold: histogram!(HOLD, "class" => class, "kind" => kind),
                held: gauge!(HELD, "class" => class, "kind" => kind),
                // All from the beginning: the first increase of a counter that was not there is
                // none.
                lost: REASONS.map(
                    |reason| counter!(LOST, "class" => class, "kind" => kind, "reason" => reason),
                ),
                timeouts: counter!(TIMEOUTS, "class" => class, "kind" => kind),
            }
        }
    }

    impl LockMetrics {
        fn new(class: &'static str, kind: &'static str) -> Self {
            let handles = OnceLock::new();
            Self(Some(Arc::new(Counts {
                class,
                kind,
                handles,
            })))
        }

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

        /// A ticket has joined a queue and seen so many nodes there, with its own.
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

    /// A call for a guard, until it ends in whatever way.
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
            // Only so that it is there.
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
}

#[cfg(not(feature = "metrics"))]
mod form {
    use super::Reason;

    #[derive(Debug, Default)]
    pub(crate) struct MetricsTable;

    // No unit, which nobody may ask for its default.
    #[derive(Debug, Clone, Default)]
    pub(crate) struct LockMetrics(());

    #[derive(Debug)]
    pub(crate) struct Waiting;

    #[derive(Debug)]
    pub(crate) enum Holding {}

    pub(crate) struct OpenSession;

    impl MetricsTable {
        pub(crate) fn of(&self, _class: &'static str, _kind: &'static str) -> LockMetrics {
            LockMetrics(())
        }
    }

    impl LockMetrics {
        pub(crate) fn in_class(&self, _class: &'static str, _all: &MetricsTable) -> Self {
            Self(())
        }

        pub(crate) fn wait(&self) -> Waiting {
            Waiting
        }

        pub(crate) fn timed_out(&self) {}

        pub(crate) fn joined(&self, _nodes: i32) {}

        pub(crate) fn hold(&self) -> Option<Holding> {
            None
        }
    }

    impl Waiting {
        pub(crate) fn granted(self) {}
    }

    impl Holding {
        pub(crate) fn lost(self, _reason: Reason) {
            match self {}
        }
    }

    impl OpenSession {
        pub(crate) fn begin() -> Self {
            Self
        }
    }

    pub(crate) fn describe() {}

    pub(crate) fn reconnected() {}
}
