//! What lingering costs a competitor in another process: its wait, and what is passed on here meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::lingering;
use crate::mutex::keeper;
use crate::support::World;
use crate::support::client::Fleet;
use crate::support::events::{self, Nanos, What};
use crate::support::store::Fence;

cases! {
    both:
        a_competitor_in_another_process_waits_no_longer_than_is_promised within 120;
}

/// The promise.
const MOST_GUARDS: usize = 10_000;
/// From the client's default session timeout on nothing is doubtful here.
const TIMEOUT: Duration = Duration::from_secs(10);

async fn a_competitor_in_another_process_waits_no_longer_than_is_promised(world: World) {
    let trials = World::times(200, 1000);
    let keeper = keeper(&world).await;
    let lock = lingering(&keeper, "contended");
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
    let fleet = Fleet::new(world.connect_string(), "contended", TIMEOUT, Fence::Refuses).await;
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
                // The competitor may be in the queue from the last of our tickets before its own on; not before that one.
                let before = meanwhile.iter().filter(|(_, ours)| *ours < token);
                let last = before.clone().map(|(_, ours)| *ours).max();
                let of_last = before.filter(|(_, ours)| Some(*ours) == last).count();
                passed_before = of_last.max(passed_before);
            }
            _ => {}
        }
    }
    waits.sort_unstable();
    passed.sort_unstable();
    println!(
        "linger: {} trials beside {} guards here; the competitor's wait: median {} us, p99 {} us, most {} us; guards here meanwhile: median {}, p99 {}, most {}, most with the ticket before the competitor's {passed_before}",
        waits.len(),
        begun.len(),
        waits[waits.len() / 2] / 1000,
        waits[waits.len() * 99 / 100] / 1000,
        waits[waits.len() - 1] / 1000,
        passed[passed.len() / 2],
        passed[passed.len() * 99 / 100],
        passed[passed.len() - 1],
    );
    assert!(waits.len() >= trials);
    assert!(passed_before <= MOST_GUARDS, "{passed_before}");
    assert!(begun.len() > trials, "nothing was passed on");
}
