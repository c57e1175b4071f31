//! What this process spent on an order, apart from time: allocations, and switches of its threads.
//!
//! The counters never stop, so timed rounds are counted too: a few additions for each allocation,
//! the same for every driver in Rust. It measures no time and knows no workload.

use std::alloc::System;
use std::fs;

use serde::{Deserialize, Serialize};
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Totals, or what came between two of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Spent {
    /// Allocations and reallocations.
    pub(crate) allocations: u64,
    pub(crate) allocated_bytes: u64,
    /// How often a thread had nothing more to do and waited.
    pub(crate) waits: u64,
}

impl Spent {
    pub(crate) fn so_far() -> Self {
        let stats = ALLOCATOR.stats();
        let number = |count: usize| count as u64;
        Self {
            allocations: number(stats.allocations) + number(stats.reallocations),
            allocated_bytes: number(stats.bytes_allocated),
            waits: waits().unwrap_or_default(),
        }
    }

    pub(crate) fn since(self, earlier: Self) -> Self {
        Self {
            allocations: self.allocations - earlier.allocations,
            allocated_bytes: self.allocated_bytes - earlier.allocated_bytes,
            // A thread that has ended takes its count with it.
            waits: self.waits.saturating_sub(earlier.waits),
        }
    }
}

/// Voluntary switches of the threads that there are; none where there is no `/proc`.
fn waits() -> Option<u64> {
    let mut all = 0;
    for thread in fs::read_dir("/proc/self/task").ok()? {
        let Ok(status) = fs::read_to_string(thread.ok()?.path().join("status")) else {
            // It has ended meanwhile.
            continue;
        };
        let mut lines = status.lines();
        let count = lines.find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        all += count?.trim().parse::<u64>().ok()?;
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allocations_are_counted_in_bytes_too() {
        let before = Spent::so_far();
        let block = std::hint::black_box(vec![0_u8; 100_000]);
        let spent = Spent::so_far().since(before);
        assert!(spent.allocations >= 1 && spent.allocated_bytes >= 100_000);
        drop(block);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_thread_that_sleeps_has_waited() {
        std::thread::sleep(std::time::Duration::from_millis(2));

        // No difference: a thread of another test that ends meanwhile takes its count with it.
        assert!(Spent::so_far().waits >= 1);
    }
}
