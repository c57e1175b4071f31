//! The options of `bench`, and its help.

use std::time::Duration;

use clap::Args;
use clap::builder::RangedU64ValueParser;

use crate::grammar::parse_some_duration;

const NOTES: &str = "\
Measures locks on your ensemble, and beside them the baseline: the raw operations that a fair lock cannot do without. Both
take turns, A B A B, so that a changing load hits both. A first round warms up and is not counted. The table shows the
medians of the rounds with the lowest and the highest, in microseconds, the percentiles of all single times, and the ratio
to the baseline of the same round. For times a low ratio is good, for locks in a second a high one.

  lock + release     an uncontended lock
  hand-over at N     the time from one grant to the next while N wait and every holder releases at once
  lock + release     an uncontended lock while the largest crowd waits for another one; its baseline is the same lock just
    beside N         before, alone
  N locks at once    locks in a second, by N tasks on one session with a lock each
  one that lingers   locks in a second of one lock that keeps its place, by two tasks of this process: no requests
  memory per waiter  the growth of this process's heap and stacks while the largest crowd queues up, divided by its
                     size; not shown for crowds below a hundred

Load: the run of half a minute creates and removes about 32 000 tickets, one after the other or in crowds of --waiters at
once. Twice a round it drives the ensemble to its limit of commits for --time. Each ticket is two commits, so expect
thousands of commits a second while it runs, and slower answers for other clients. It needs a handful of sessions, and
one more for each thousand waiters or so. All its nodes are below one directory of its own under --root, bench-<8 digits>.
The directory is removed at the end, also after an error, SIGINT or SIGTERM. A second SIGINT or SIGTERM does not wait for
that. If the bench is killed, the servers remove its nodes within minutes. It touches no other locks.

Fields of --json: rounds; uncontended {mean_us, min_us, max_us, p50_us, p99_us, shortest_us, longest_us, count, baseline_us,
baseline_min_us, baseline_max_us, baseline_p50_us, baseline_p99_us, ratio, ratio_min, ratio_max}; hand_over [the same, and waiters,
enqueue_ms, baseline_enqueue_ms]; beside {the same as uncontended, and waiters}; independent {locks, locks_per_s, min_per_s,
max_per_s, baseline_per_s, baseline_min_per_s, baseline_max_per_s, ratio, ratio_min, ratio_max}; linger {tasks, locks_per_s,
min_per_s, max_per_s}; memory {waiters, bytes_per_waiter}. mean_us, locks_per_s, those of the baseline (baseline_..) and the ratio are
medians of the rounds. shortest_us and longest_us are single times.

Examples:
  lockkeeper bench
  lockkeeper bench --waiters 1,1000,10000 --rounds 9 --json
  lockkeeper --zk zk1:2181/staging bench --rounds 1 --waiters 10 --time 100ms   a second or two

Exit codes:
   0  done
  64  wrong usage
  69  no server, or a session ended
  77  the server denies permission
 130  SIGINT ended it, and 143 SIGTERM";

const MOST_WAITERS: u64 = 100_000;

/// What is to be measured.
#[derive(Debug, Args)]
#[command(after_long_help = NOTES)]
pub(crate) struct Order {
    /// The number of rounds, after a first one that is not counted
    #[arg(long, value_name = "N", default_value = "5", value_parser = RangedU64ValueParser::<usize>::new().range(1..=1000))]
    pub(crate) rounds: usize,

    /// The number of waiters at a hand-over, one size or several
    #[arg(long, value_name = "N,..", default_value = "1,10,100,1000", value_delimiter = ',',
        value_parser = RangedU64ValueParser::<usize>::new().range(1..=MOST_WAITERS))]
    waiters: Vec<usize>,

    /// The number of independent locks that are used at once
    #[arg(long, value_name = "N", default_value = "64", value_parser = RangedU64ValueParser::<usize>::new().range(1..=1000))]
    pub(crate) locks: usize,

    /// How long they are used in each round
    #[arg(long, value_name = "TIME", default_value = "500ms", value_parser = parse_some_duration)]
    pub(crate) time: Duration,
}

impl Order {
    /// The sizes of the crowds, each once, the smallest first.
    pub(crate) fn crowds(&self) -> Vec<usize> {
        let mut crowds = self.waiters.clone();
        crowds.sort_unstable();
        crowds.dedup();
        crowds
    }
}
