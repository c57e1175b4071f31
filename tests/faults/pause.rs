//! A holder whose process is stopped and continues. SIGSTOP stands for any pause, such as garbage
//! collection or a suspended laptop.
//!
//! The guard must know of its loss before it acts. The token covers a loss between its check and
//! its write.

use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::sleep;

use super::{SOON, T};
use testbench::checker::{assert_clean, violations};
use testbench::client::{Fleet, Process};
use testbench::events::{Event, What};
use testbench::store::Fence;
use testbench::{World, case, eventually};

fn is_granted(event: &Event, to: &str) -> bool {
    event.client == to && matches!(event.what, What::Granted { held: true, .. })
}

fn wrote(event: &Event, who: &str) -> bool {
    event.client == who && matches!(event.what, What::Write { .. })
}

/// A holder that writes for as long as it may, and a waiter.
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

/// How long the holder is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pause {
    /// For so many hundredths of its session timeout.
    Percent(u32),
    /// Until the next one has just been let in: no later moment is more dangerous.
    UntilTheNextWrites,
}

#[case(within = 90)]
async fn a_stopped_holder_lies_to_nobody(world: World) {
    use Pause::{Percent, UntilTheNextWrites};
    let pauses: &[Pause] = if World::soak() {
        &[
            Percent(50),
            Percent(95),
            Percent(105),
            Percent(200),
            Percent(1000),
            UntilTheNextWrites,
        ]
    } else {
        &[Percent(50), Percent(105), Percent(200), UntilTheNextWrites]
    };
    for round in 0..World::times(1, 10) {
        let runs = pauses.iter().map(|pause| one_pause(&world, round, *pause));
        let stale: usize = join_all(runs).await.into_iter().sum();
        println!("{} pauses, {stale} stale writes refused", pauses.len());
    }
}

/// Stops the holder once. Returns how many stale writes the store refused.
async fn one_pause(world: &World, round: usize, pause: Pause) -> usize {
    let lock = format!("{pause:?}-{round}").replace(['(', ')'], "");
    let fleet = Fleet::new(world.connect_string(), &lock, T, Fence::Refuses).await;
    let [a, b] = two(&fleet).await;

    a.stop();
    match pause {
        Pause::Percent(percent) => sleep(T * percent / 100).await,
        Pause::UntilTheNextWrites => {
            let is_next = |event: &Event| wrote(event, "b");
            fleet.sees("b writes", SOON, is_next).await;
        }
    }
    let before = fleet.events().len();
    a.go_on();

    // It either goes on holding or loses the lock, and then the next one gets it.
    let goes_on = || async {
        let events = fleet.events();
        let writes = |events: &[Event]| events.iter().filter(|event| wrote(event, "a")).count();
        let holds_on = writes(&events) >= writes(&events[..before]) + 3;
        holds_on || events.iter().any(|event| is_granted(event, "b"))
    };
    eventually("somebody goes on", SOON, goes_on).await;
    for client in [a, b] {
        client.ends(SOON).await;
    }
    let history = fleet.history();
    let events = &history.events;
    let is_lost = |event: &Event| event.client == "a" && matches!(event.what, What::Lost { .. });
    let (lost, next) = (
        events.iter().any(is_lost),
        events.iter().any(|event| is_granted(event, "b")),
    );
    println!("{pause:?} of T: lost {lost}, the next one was let in {next}");
    if !matches!(pause, Pause::Percent(..=100)) {
        assert!(lost && next, "lost {lost}, let in {next}");
    }
    assert_clean(&violations(&history));
    fleet.store().stale()
}

#[case(within = 90)]
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
