//! The cost of lingering for a competitor in another process: its wait, and the guards passed on
//! here meanwhile.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lockkeeper::Mutex;

use super::lingering;
use testbench::client::Fleet;
use testbench::events::{self, Nanos, What};
use testbench::keeper;
use testbench::store::Fence;
use testbench::{World, case};

/// The promise.
const MOST_GUARDS: usize = 10_000;
/// How many times as long as without lingering a competitor may wait. One more turn of ours makes
/// it twice as long. Guards that are passed on need the processor that all share, and double that.
const MOST_TIMES: u32 = 4;
/// From the client's default session timeout on nothing is doubtful here.
const TIMEOUT: Duration = Duration::from_secs(10);

#[case(alone, within = 120)]
async fn a_competitor_in_another_process_waits_no_longer_than_is_promised(world: World) {
    let trials = World::times(200, 1000);
    let keeper = keeper(&world).await;
    let plain = keeper.mutex("plain").unwrap();
    let fair = compete(&world, plain, trials / 4).await;
    println!("linger: without it {fair}");

    let kept = compete(&world, lingering(&keeper, "contended"), trials).await;

    println!("linger: {kept}");
    assert!(kept.passed_before <= MOST_GUARDS, "{kept}");
    assert!(kept.guards > trials, "nothing was passed on: {kept}");
    // What it waits for beside the hand-overs is what it waits for in a queue without lingering.
    assert!(
        kept.median() <= MOST_TIMES * fair.median(),
        "{kept}; without it {fair}"
    );
}

/// What a competitor met.
struct Met {
    /// From asking to the grant, in order.
    waits: Vec<Nanos>,
    /// Guards here.
    guards: usize,
    /// Guards here while it waited, in order.
    meanwhile: Vec<usize>,
    /// The most with the ticket before the competitor's, while it waited.
    passed_before: usize,
}

impl Met {
    fn median(&self) -> Duration {
        Duration::from_nanos(self.waits[self.waits.len() / 2])
    }
}

impl fmt::Display for Met {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = |part: usize, length: usize| (length * part / 100).min(length - 1);
        let wait = |part| self.waits[of(part, self.waits.len())] / 1000;
        let passed = |part| self.meanwhile[of(part, self.meanwhile.len())];
        write!(
            f,
            "{} trials beside {} guards here; the competitor's wait: median {} us, p99 {} us, most {} us; guards here meanwhile: \
             median {}, p99 {}, most {}, most with the ticket before the competitor's {}",
            self.waits.len(),
            self.guards,
            wait(50),
            wait(99),
            wait(100),
            passed(50),
            passed(99),
            passed(100),
            self.passed_before
        )
    }
}

/// Lets a competitor in another process ask for a lock so many times that two tasks here take
/// without a pause.
async fn compete(world: &World, lock: Mutex, trials: usize) -> Met {
    let is_over = Arc::new(AtomicBool::new(false));
    let ours: Vec<_> = (0..2)
        .map(|_| {
            let (lock, is_over) = (lock.clone(), Arc::clone(&is_over));
            tokio::spawn(async move {
                let mut begun: Vec<(Nanos, u64)> = Vec::new();
                while !is_over.load(Ordering::Relaxed) {
                    let guard = lock.lock().await.unwrap();
                    begun.push((events::now(), guard.token().into()));
                    guard.release().await.unwrap();
                }
                begun
            })
        })
        .collect();
    let name = lock.name().as_str();
    let fleet = Fleet::new(world.connect_string(), name, TIMEOUT, Fence::Refuses).await;
    let mut order = fleet.order("competitor");
    (order.writes, order.pause) = (Some(0), Duration::from_millis(3));
    let competitor = fleet.start(&order);

    let is_last = |event: &events::Event| match event.what {
        What::Granted { attempt, .. } => attempt == trials as u64,
        _ => false,
    };
    fleet
        .sees("all trials", Duration::from_secs(100), is_last)
        .await;
    is_over.store(true, Ordering::Relaxed);
    let mut begun = Vec::new();
    for ours in ours {
        begun.extend(ours.await.unwrap());
    }
    begun.sort_unstable();
    competitor.ends(Duration::from_secs(5)).await;

    let (mut asked, mut waits, mut passed) = (0, Vec::new(), Vec::new());
    let mut passed_before = 0;
    for event in fleet.events() {
        match event.what {
            What::Asked { .. } => asked = event.t_ns,
            What::Granted { token, .. } => {
                waits.push(event.t_ns - asked);
                let until = |t| begun.partition_point(|(begun, _)| *begun < t);
                let meanwhile = &begun[until(asked)..until(event.t_ns)];
                passed.push(meanwhile.len());
                // The competitor may be in the queue from the last of our tickets before its own
                // on; not before that one.
                let before = meanwhile.iter().filter(|(_, ours)| *ours < token);
                let last = before.clone().map(|(_, ours)| *ours).max();
                let of_last = before.filter(|(_, ours)| Some(*ours) == last).count();
                passed_before = of_last.max(passed_before);
            }
            _ => {}
        }
    }
    assert!(waits.len() >= trials);
    waits.sort_unstable();
    passed.sort_unstable();
    Met {
        waits,
        guards: begun.len(),
        meanwhile: passed,
        passed_before,
    }
}
