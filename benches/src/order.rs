//! The runner's orders to a driver, and the driver's answers: one JSON line each.
//!
//! The lines are flat, because the drivers in Java and Python read and write them too. Times are
//! microseconds unless the name says otherwise. It measures nothing.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::spent::Spent;
use lockkeeper_cli::bench::sample::{HandOver, Sample, repeats};

/// One measurement.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub(crate) enum Order {
    /// Lock and release an uncontended lock, so many times, one after the other.
    Uncontended { rounds: usize },
    /// So many waiters queue up behind one holder; then it releases, and each releases as soon as
    /// it is granted. All of that `repeats` times.
    HandOver { waiters: usize, repeats: usize },
    /// So many tasks, each with a lock of its own, lock and release for so long through one
    /// connection.
    Independent { locks: usize, milliseconds: u64 },
    /// Two tasks lock and release one lock that lingers, for so long. Of Lockkeeper alone.
    Linger { milliseconds: u64 },
}

/// The first line of a driver: it is connected, and this is what it drives.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Hello {
    pub(crate) version: String,
}

/// A driver's measurements. Those that do not belong to the order are absent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Answer {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) mean_us: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) p50_us: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) p99_us: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) locks_per_s: Option<f64>,
    /// Until all waiters waited, the mean of the repeats.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) enqueue_ms: Option<f64>,
    /// Growth of the driver's resident anonymous memory while they queued up. It means something in
    /// a fresh process only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) bytes_per_waiter: Option<f64>,
    /// The driver's resource use for the whole order, if it counts that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) spent: Option<Spent>,
    /// Waiters that got an error in place of the lock.
    #[serde(default)]
    pub(crate) failed: usize,
    /// The first of these errors, or why there is no figure at all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
}

impl Order {
    /// A hand-over with so many repeats that there are at least 100 grants.
    pub(crate) fn hand_over(waiters: usize) -> Self {
        let repeats = repeats(waiters) as usize;
        Self::HandOver { waiters, repeats }
    }

    pub(crate) fn independent(locks: usize, time: Duration) -> Self {
        Self::Independent {
            locks,
            milliseconds: u64::try_from(time.as_millis()).unwrap_or(u64::MAX),
        }
    }
}

impl Answer {
    pub(crate) fn of_times(sample: &Sample) -> Self {
        Self {
            mean_us: Some(sample.mean_us()),
            p50_us: Some(sample.percentile_us(50.0)),
            p99_us: Some(sample.percentile_us(99.0)),
            ..Self::default()
        }
    }

    pub(crate) fn of_hand_over(measured: &HandOver) -> Self {
        Self {
            enqueue_ms: Some(measured.enqueue.as_secs_f64() * 1e3),
            bytes_per_waiter: measured.bytes_per_waiter,
            ..Self::of_times(&measured.sample)
        }
    }

    pub(crate) fn of_rate(locks_per_s: f64) -> Self {
        Self {
            locks_per_s: Some(locks_per_s),
            ..Self::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_is_a_flat_line_that_any_language_reads() {
        let line = |order| serde_json::to_string(&order).unwrap();

        assert_eq!(
            line(Order::hand_over(10)),
            r#"{"do":"hand_over","waiters":10,"repeats":20}"#
        );
        assert_eq!(
            line(Order::independent(64, Duration::from_secs(2))),
            r#"{"do":"independent","locks":64,"milliseconds":2000}"#
        );
    }
}
