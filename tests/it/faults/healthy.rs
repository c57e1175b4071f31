//! Holders that lose their connection and nothing else: no guard gives up a lock that it has.

use std::time::Duration;

use lockkeeper::Keeper;
use tokio::time::{Instant, sleep_until};

use super::{granted, released, watched};
use crate::support::World;
use crate::support::checker::{assert_clean, recovery, violations};
use crate::support::client::Fleet;
use crate::support::ensemble::Ensemble;
use crate::support::events::{Outcome, What};
use crate::support::proxy::{End, Proxies};
use crate::support::store::Fence;

cases! {
    both:
        a_healthy_holder_keeps_its_token_through_reconnects within 60;
    real:
        a_healthy_holder_keeps_its_token_through_a_leader_change within 180;
}

async fn a_healthy_holder_keeps_its_token_through_reconnects(world: World) {
    // Longer than the stalls of a machine on which servers start.
    const T: Duration = Duration::from_secs(3);
    let fleet = Fleet::new(world.connect_string(), "healthy", T, Fence::Refuses).await;
    let log = fleet.log().of("a");
    let proxies = Proxies::before(&world);
    let builder = Keeper::builder(proxies.connect_string()).session_timeout(T);
    let keeper = builder.connect().await.unwrap();
    let guard = granted(&keeper, "healthy", &log).await;
    let watched = watched(guard, &log);
    let began = Instant::now();

    let mut cuts = 0;
    let thirds = 3 * World::times(3, 50);
    for third in 0..thirds {
        sleep_until(began + T * u32::try_from(third).unwrap() / 3).await;
        let end = if third % 2 == 0 { End::Rst } else { End::Fin };
        // A try that the client gave up may still be open beside it.
        cuts += usize::from(proxies.cut(end).await > 0);
    }

    sleep_until(began + T * u32::try_from(thirds).unwrap() / 3).await;

    let is_lost = watched.is_finished();
    watched.abort();
    let history = fleet.history();
    let looks: Vec<u64> = history
        .events
        .iter()
        .filter(|event| matches!(event.what, What::HeldSeen { .. }))
        .map(|event| event.t_ns)
        .collect();
    let stall = looks.windows(2).map(|pair| pair[1] - pair[0]).max();
    let stall = Duration::from_nanos(stall.unwrap_or(0));
    println!(
        "{cuts} cuts, {} looks, the longest stall {stall:?}",
        looks.len()
    );
    assert!(
        !is_lost,
        "the hold is lost; the longest stall was {stall:?}"
    );
    assert_eq!(cuts, thirds, "each cut hits a connection");
    assert_clean(&violations(&history));
    assert_clean(&recovery(&history, None));
    keeper.close().await;
}

async fn a_healthy_holder_keeps_its_token_through_a_leader_change(_world: World) {
    // Long enough that an election is short beside it.
    const LONG: Duration = Duration::from_secs(10);
    let mut ensemble = Ensemble::start(5).await;
    for round in 0..World::times(1, 10) {
        let lock = format!("healthy-{round}");
        let hosts: Vec<String> = ensemble
            .addresses()
            .iter()
            .map(ToString::to_string)
            .collect();
        let fleet = Fleet::new(hosts.join(","), &lock, LONG, Fence::Refuses).await;
        let log = fleet.log().of("a");
        let keeper = Keeper::builder(hosts.join(","))
            .session_timeout(LONG)
            .connect()
            .await
            .unwrap();
        let guard = granted(&keeper, &lock, &log).await;
        let leader = ensemble.leader().await;

        let began = Instant::now();
        ensemble.with(move |servers| servers.kill(leader)).await;
        ensemble.leader_but(Some(leader)).await;
        let took = began.elapsed();
        let checked = guard.check().await;

        println!(
            "a new leader after {took:?}, an answer after {:?}",
            began.elapsed()
        );
        assert!(
            took > LONG * 3 / 10 || checked.is_ok(),
            "{checked:?} after {:?}",
            began.elapsed()
        );
        ensemble
            .with(move |servers| servers.launch(leader))
            .await
            .unwrap();
        ensemble.serves().await;
        if checked.is_ok() {
            assert_eq!(released(guard, &log).await, Outcome::Done);
            assert_clean(&recovery(&fleet.history(), None));
        }
        keeper.close().await;
    }
}
