//! A holder whose process is stopped and goes on: SIGSTOP is a pause of any kind, a collection of garbage or a laptop's lid.
//!
//! The guard must know before it acts, and what it does between its look and its write is for the token to catch.

use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::sleep;

use super::{SOON, T};
use crate::support::World;
use crate::support::checker::{assert_clean, violations};
use crate::support::client::{Fleet, Process};
use crate::support::events::{Event, What};
use crate::support::store::Fence;

cases! {
    both:
        a_stopped_holder_lies_to_nobody within 90,
        without_tokens_the_pause_breaks_the_store within 90;
}

fn is_granted(event: &Event, to: &str) -> bool {
    event.client == to && matches!(event.what, What::Granted { held: true, .. })
}

fn wrote(event: &Event, who: &str) -> bool {
    event.client == who && matches!(event.what, What::Write { .. })
}

/// A holder that writes for as long as it may, and one who waits.
async fn two(fleet: &Fleet) -> [Process; 2] {
    let mut holder = fleet.order("a");
    // Most of the time it is between its look at the guard and its write.
    (holder.writes, holder.work) = (None, Duration::from_millis(30));
    let a = fleet.start(&holder);
    fleet
        .sees("a writes", SOON, |event| wrote(event, "a"))
        .await;
    let mut next = fleet.order("b");
    next.writes = None;
    let b = fleet.start(&next);
    let asked = |event: &Event| event.client == "b" && matches!(event.what, What::Asked { .. });
    fleet.sees("b asks", SOON, asked).await;
    [a, b]
}

async fn a_stopped_holder_lies_to_nobody(world: World) {
    let pauses: &[u32] = if World::soak() {
        &[50, 95, 105, 200, 1000]
    } else {
        &[50, 105, 200]
    };
    for round in 0..World::times(1, 10) {
        let runs = pauses
            .iter()
            .map(|percent| one_pause(&world, round, *percent));
        let stale: usize = join_all(runs).await.into_iter().sum();
        println!("{} pauses, {stale} stale writes refused", pauses.len());
    }
}

/// Stops the holder for so many hundredths of its session timeout. Returns how many stale writes the store refused.
async fn one_pause(world: &World, round: usize, percent: u32) -> usize {
    let lock = format!("pause-{percent}-{round}");
    let fleet = Fleet::new(world.connect_string(), &lock, T, Fence::Refuses).await;
    let [a, b] = two(&fleet).await;

    a.stop();
    // The pause itself.
    sleep(T * percent / 100).await;
    let before = fleet.events().len();
    a.go_on();

    // It either goes on holding or loses the lock, and then the next one gets it.
    let goes_on = || async {
        let events = fleet.events();
        let since = &events[before.min(events.len())..];
        let holds_on = since.iter().filter(|event| wrote(event, "a")).count() >= 3;
        holds_on || events.iter().any(|event| is_granted(event, "b"))
    };
    crate::support::eventually("somebody goes on", SOON, goes_on).await;
    for client in [a, b] {
        client.ends(SOON).await;
    }
    let history = fleet.history();
    let lost = history
        .events
        .iter()
        .any(|event| is_granted(event, "b") && percent < 100);
    println!("a pause of {percent} % of T: b was let in early: {lost}");
    if percent >= 105 {
        assert!(
            history
                .events
                .iter()
                .any(|event| matches!(event.what, What::Lost { .. })),
            "nobody was told of a loss"
        );
    }
    assert_clean(&violations(&history));
    fleet.store().stale()
}

async fn without_tokens_the_pause_breaks_the_store(world: World) {
    // The stop may hit the few moments in which the holder is not about to write.
    for round in 0..10 {
        let lock = format!("control-{round}");
        let fleet = Fleet::new(world.connect_string(), &lock, T, Fence::Missing).await;
        let [a, b] = two(&fleet).await;

        a.stop();
        fleet
            .sees("b writes", SOON, |event| wrote(event, "b"))
            .await;
        let went_on = fleet.events().len();
        a.go_on();
        let told = |event: &Event| event.client == "a" && matches!(event.what, What::Lost { .. });
        fleet.sees("a is told", SOON, told).await;
        for client in [a, b] {
            client.ends(SOON).await;
        }

        let found = violations(&fleet.history());
        assert!(found.iter().all(|one| one.id == "S2"), "{found:?}");
        if !found.is_empty() {
            println!(
                "without tokens {} stale writes got through (log of {went_on} lines)",
                found.len()
            );
            return;
        }
    }
    panic!("ten pauses did no harm, so the other case shows nothing");
}
