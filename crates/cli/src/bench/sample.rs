//! What a workload measured: times, and hand-overs from one grant to the next. (pure)
//!
//! It knows neither Lockkeeper nor ZooKeeper, and asks no clock: instants are arguments.

use std::error::Error;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

/// Whatever went wrong, on either side.
pub type Result<T, E = Box<dyn Error + Send + Sync>> = std::result::Result<T, E>;

/// What is longer counts as this long.
const LONGEST: Duration = Duration::from_secs(3600);
const DIGITS: u8 = 3;

/// So many uncontended locks are taken before those that are counted: the first one makes the
/// directory, and all of them let what ran before come to rest.
pub const NOT_COUNTED: usize = 20;

/// How often a queue of so many waiters is filled and drained for one measurement, so that each has
/// at least a hundred hand-overs.
pub fn repeats(waiters: usize) -> u32 {
    match waiters {
        0..=9 => 100,
        10..=99 => 20,
        100..=999 => 5,
        _ => 1,
    }
}

/// Times: a histogram of nanoseconds with three digits, and their exact sum.
#[derive(Debug, Clone)]
pub struct Sample {
    nanos: Histogram<u64>,
    sum: Duration,
}

impl Sample {
    pub fn new() -> Self {
        let Ok(nanos) = Histogram::new_with_max(nanos(LONGEST), DIGITS) else {
            unreachable!("an hour in three digits is within what a histogram takes");
        };
        Self {
            nanos,
            sum: Duration::ZERO,
        }
    }

    pub fn record(&mut self, time: Duration) {
        self.nanos.saturating_record(nanos(time));
        self.sum += time;
    }

    /// Takes the times of another sample in.
    pub fn merge(&mut self, other: &Self) {
        if self.nanos.add(&other.nanos).is_err() {
            unreachable!("both have the same bounds");
        }
        self.sum += other.sum;
    }

    pub fn count(&self) -> u64 {
        self.nanos.len()
    }

    /// Zero if nothing was recorded.
    pub fn mean_us(&self) -> f64 {
        match self.count() {
            0 => 0.0,
            count => self.sum.as_secs_f64() * 1e6 / count as f64,
        }
    }

    /// `percent` goes from 0 to 100.
    pub fn percentile_us(&self, percent: f64) -> f64 {
        us(self.nanos.value_at_percentile(percent))
    }

    pub fn min_us(&self) -> f64 {
        us(self.nanos.min())
    }

    pub fn max_us(&self) -> f64 {
        us(self.nanos.max())
    }
}

/// The times from one grant to the next, every holder releasing at once.
#[derive(Debug, Clone)]
pub struct HandOver {
    pub sample: Sample,
    /// From the first waiter's call until all are in the queue; the mean, if it was filled several
    /// times.
    pub enqueue: Duration,
    /// By how much the memory of this process grew while they queued up, where the system tells.
    /// Only the largest crowd so far shows it: the allocator keeps what it has got.
    pub bytes_per_waiter: Option<f64>,
}

impl HandOver {
    pub fn new() -> Self {
        Self {
            sample: Sample::new(),
            enqueue: Duration::ZERO,
            bytes_per_waiter: None,
        }
    }

    /// One drain of the queue: when the first holder began to release, and when each waiter was
    /// granted.
    pub fn record(&mut self, released: Instant, mut grants: Vec<Instant>) {
        grants.sort_unstable();
        let mut last = released;
        for grant in grants {
            self.sample.record(grant.saturating_duration_since(last));
            last = grant;
        }
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn us(nanos: u64) -> f64 {
    nanos as f64 / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_tells_mean_percentiles_and_bounds() {
        let mut sample = Sample::new();
        assert_eq!((sample.count(), sample.mean_us()), (0, 0.0));

        for ms in 1..=100 {
            sample.record(Duration::from_millis(ms));
        }
        let mut both = sample.clone();
        both.merge(&sample);

        assert_eq!((sample.count(), sample.mean_us()), (100, 50_500.0));
        assert_eq!((both.count(), both.mean_us()), (200, 50_500.0));
        for (is, expected) in [
            (both.percentile_us(50.0), 50_000.0),
            (both.percentile_us(99.0), 99_000.0),
            (both.min_us(), 1_000.0),
            (both.max_us(), 100_000.0),
        ] {
            assert!((is / expected - 1.0).abs() < 0.002, "{is} for {expected}");
        }
    }

    #[test]
    fn a_hand_over_goes_from_one_grant_to_the_next() {
        let begun = Instant::now();
        let at = |ms| begun + Duration::from_millis(ms);
        let mut hand_over = HandOver::new();

        hand_over.record(at(0), vec![at(9), at(2), at(5)]);

        assert_eq!(hand_over.sample.count(), 3);
        assert_eq!(hand_over.sample.mean_us(), 3_000.0);
    }

    #[test]
    fn every_size_has_at_least_a_hundred_hand_overs() {
        for waiters in [1, 9, 10, 42, 99, 100, 999, 1_000, 20_000] {
            assert!(waiters * repeats(waiters) as usize >= 100, "{waiters}");
        }
    }
}
