//! A holder whose packets go nowhere.
//!
//! Nothing arrives that could tell it of its loss: only its own clock can.

use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::{Instant, sleep_until};

use super::{SOON, T, granted, keeper, released, watched};
use crate::mutex::children;
use crate::support::checker::{Bounds, assert_clean, stays_alive, violations};
use crate::support::client::Fleet;
use crate::support::events::{Event, Outcome, What, now};
use crate::support::proxy::{Proxies, Way};
use crate::support::store::Fence;
use crate::support::{World, eventually};

cases! {
    both:
        a_holder_in_a_black_hole_knows_before_the_next_one_is_let_in within 60;
}

async fn a_holder_in_a_black_hole_knows_before_the_next_one_is_let_in(world: World) {
    for round in 0..World::times(1, 50) {
        let ways = [Way::Both, Way::ToServer, Way::ToClient];
        let runs = ways.map(|way| one_black_hole(&world, way, round));
        join_all(runs).await;
    }
}

/// The time of the first event like this.
fn time(events: &[Event], is: impl Fn(&Event) -> bool) -> Option<u64> {
    Some(events.iter().find(|event| is(event))?.t_ns)
}

async fn one_black_hole(world: &World, way: Way, round: usize) {
    let lock = format!("hole-{way:?}-{round}");
    let fleet = Fleet::new(world.connect_string(), &lock, T, Fence::Refuses).await;
    let (log_a, log_b) = (fleet.log().of("a"), fleet.log().of("b"));
    let proxies = Proxies::before(world);
    let (a, b) = (
        keeper(&proxies.connect_string()).await,
        keeper(&world.connect_string()).await,
    );
    let guard = granted(&a, &lock, &log_a).await;
    let waiting = {
        let (b, lock, log) = (b.clone(), lock.clone(), log_b.clone());
        tokio::spawn(async move { granted(&b, &lock, &log).await })
    };
    eventually("both are in the queue", SOON, || async {
        b.queue(lock.as_str())
            .await
            .is_ok_and(|queue| queue.len() == 2)
    })
    .await;

    let kind = format!("black hole {way:?}");
    fleet.log().note(What::Fault { kind });
    proxies.black_hole(way);
    let (began, begun) = (Instant::now(), now());
    let watched = watched(guard, &log_a);
    // B's session is healthy, and it is let in when A's ends at the servers.
    let next = waiting.await.unwrap();
    let guard = watched.await.unwrap();
    sleep_until(began + 3 * T).await;
    proxies.heal();

    let is_held = guard.is_held();
    assert_eq!(released(guard, &log_a).await, Outcome::Lost);
    assert_eq!(released(next, &log_b).await, Outcome::Done);
    assert!(!is_held, "what was lost stays lost after the heal");
    let history = fleet.history();
    let events = &history.events;
    let lost = time(events, |event| matches!(event.what, What::Lost { .. })).unwrap();
    let let_in = time(events, |event| {
        event.client == "b" && matches!(event.what, What::Granted { .. })
    });
    let ahead = Duration::from_nanos(let_in.unwrap().saturating_sub(lost));
    println!(
        "{way:?}: lost {:?} after the cut, {ahead:?} ahead",
        Duration::from_nanos(lost - begun)
    );
    assert_clean(&violations(&history));
    assert_clean(&stays_alive(
        &history,
        &Bounds {
            notice: Duration::from_millis(50),
            ..Bounds::within(Duration::from_secs(5))
        },
    ));
    let stranger = world.raw().await;
    eventually("nothing is left behind", SOON, || async {
        children(&stranger, &lock).await.is_empty()
    })
    .await;
    a.close().await;
    b.close().await;
}
