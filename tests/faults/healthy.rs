//! Holders that lose only their connection: no guard gives up a lock that it has.

use std::time::Duration;

use futures_util::future::join_all;
use lockkeeper::{Keeper, KeeperBuilder};
use tokio::time::{Instant, sleep_until};

use super::{granted, released, watched};
use testbench::checker::{assert_clean, recovery, violations};
use testbench::client::Fleet;
use testbench::ensemble::Ensemble;
use testbench::events::Outcome;
use testbench::proxy::{End, Proxies, Proxy, Way};
use testbench::stall::Stall;
use testbench::store::Fence;
use testbench::{World, case};

#[case(within = 180)]
async fn a_healthy_holder_keeps_its_token_through_reconnects(world: World) {
    for round in 0..3 {
        if reconnects(&world, round).await {
            return;
        }
    }
    panic!("the machine stalled three times");
}

/// Cuts a holder's connection three times in each session timeout. False if the machine stalled,
/// which is not health.
async fn reconnects(world: &World, round: usize) -> bool {
    let timeout = Duration::from_secs(World::times(3, 10) as u64);
    let lock = format!("healthy-{round}");
    let fleet = Fleet::new(world.connect_string(), &lock, timeout, Fence::Refuses).await;
    let log = fleet.log().of("a");
    let proxies = Proxies::before(world);
    let builder = Keeper::builder(proxies.connect_string()).session_timeout(timeout);
    let keeper = builder.connect().await.unwrap();
    let guard = granted(&keeper, &lock, &log).await;
    let watched = watched(guard, &log);
    let (began, stall) = (Instant::now(), Stall::watch());

    let mut cuts = 0;
    let thirds = 3 * World::times(3, 50);
    for third in 0..thirds {
        sleep_until(began + timeout * u32::try_from(third).unwrap() / 3).await;
        let end = if third % 2 == 0 { End::Rst } else { End::Fin };
        // An attempt that the client gave up may still be open beside it.
        cuts += usize::from(proxies.cut(end).await > 0);
        if watched.is_finished() {
            break;
        }
    }
    sleep_until(began + timeout * u32::try_from(thirds).unwrap() / 3).await;

    let (is_lost, stall) = (watched.is_finished(), stall.longest());
    watched.abort();
    // Before the keeper closes, which its guard would count as a loss.
    let history = fleet.history();
    println!("{cuts} cuts of {thirds}, lost {is_lost}, the longest stall {stall:?}");
    keeper.close().await;
    if is_lost && stall > timeout / 20 {
        return false;
    }
    assert!(
        !is_lost,
        "the hold is lost; the longest stall was {stall:?}"
    );
    assert!(
        cuts >= thirds * 9 / 10,
        "{cuts} of {thirds} cuts hit a connection"
    );
    assert_clean(&violations(&history));
    assert_clean(&recovery(&history, None));
    true
}

#[case(real, within = 180)]
async fn a_healthy_holder_keeps_its_token_through_a_leader_change(_world: World) {
    let mut ensemble = Ensemble::start(5).await;
    let wanted = World::times(1, 10);
    let mut counted = 0;
    for round in 0..3 * wanted {
        counted += usize::from(one_leader_change(&mut ensemble, round).await);
        if counted == wanted {
            return;
        }
    }
    panic!("only {counted} of {} elections were short", 3 * wanted);
}

/// Kills the leader under a holder. False if the others took so long to find another one that the
/// hold may be lost.
async fn one_leader_change(ensemble: &mut Ensemble, round: usize) -> bool {
    // An election is short beside it.
    const LONG: Duration = Duration::from_secs(10);
    let lock = format!("healthy-{round}");
    let hosts = ensemble.connect_string();
    let fleet = Fleet::new(hosts.clone(), &lock, LONG, Fence::Refuses).await;
    let log = fleet.log().of("a");
    let builder = Keeper::builder(hosts).session_timeout(LONG);
    let keeper = builder.connect().await.unwrap();
    let guard = granted(&keeper, &lock, &log).await;
    let leader = ensemble.leader().await;

    let began = Instant::now();
    ensemble.with(move |servers| servers.kill(leader)).await;
    ensemble.leader_but(Some(leader)).await;
    let took = began.elapsed();
    let checked = guard.check().await;
    let answered = began.elapsed();
    let launched = ensemble.with(move |servers| servers.launch(leader)).await;
    launched.unwrap();
    ensemble.serves().await;

    println!("a new leader after {took:?}, an answer after {answered:?}: {checked:?}");
    let is_short = took < LONG * 3 / 10;
    if is_short {
        checked.unwrap();
        assert_eq!(released(guard, &log).await, Outcome::Done);
        assert_clean(&recovery(&fleet.history(), None));
    }
    keeper.close().await;
    is_short
}

/// Servers that grant this timeout at most, and a keeper to be that asks for three times as much.
fn granting(world: &World, granted: Duration) -> (Proxies, KeeperBuilder) {
    let proxies = Proxies::before(world);
    let ask_for_at_most = |proxy: &Proxy| proxy.ask_for_at_most(granted);
    proxies.each.iter().for_each(ask_for_at_most);
    // Named twice, a server is not known to stand alone. Its leases are the shortest.
    let hosts = proxies.each.iter().map(|proxy| proxy.address().to_string());
    let hosts = hosts.collect::<Vec<_>>().join(",");
    let connect = format!("{hosts},{hosts}{}", world.chroot());
    let builder = Keeper::builder(connect).session_timeout(granted * 3);
    (proxies, builder)
}

// The client crate looked for another connection after a fifth of what was asked for, when what was
// granted was almost over.
#[case(
    zookeeper,
    why = "a handshake that grants less than was asked for",
    within = 60
)]
async fn who_asked_for_more_than_was_granted_survives_a_silent_connection(world: World) {
    // What a busy machine takes away is less than what is left of the lease.
    let granted = Duration::from_secs(6);
    let tries = (0..World::times(4, 40)).map(|number| {
        let (proxies, builder) = granting(&world, granted);
        async move {
            let keeper = builder.connect().await.unwrap();
            let lock = keeper.mutex(format!("asked-{number}")).unwrap();
            let guard = lock.lock().await.unwrap();
            let stall = Stall::watch();
            let lost = guard.lost();

            for proxy in &proxies.each {
                proxy.end_towards(Way::ToServer);
            }
            let silence = tokio::time::timeout(granted * 2, lost).await;

            let stall = stall.longest();
            assert!(silence.is_err(), "lost in spite of {stall:?}: {silence:?}");
            guard.release().await.unwrap();
            keeper.close().await;
        }
    });
    join_all(tries).await;
}

#[case(
    zookeeper,
    why = "a handshake that grants less than was asked for",
    within = 60
)]
async fn who_asked_for_more_than_was_granted_closes_by_what_was(world: World) {
    let granted = Duration::from_secs(1);
    let (proxies, builder) = granting(&world, granted);
    let builder = builder.session_timeout(granted * 30).journal(10);
    let keeper = builder.connect().await.unwrap();
    let lock = keeper.mutex("closed").unwrap();
    let _guard = lock.lock().await.unwrap();
    proxies.black_hole(Way::Both);
    let (began, stall) = (Instant::now(), Stall::watch());

    keeper.close().await;

    let (took, stall) = (began.elapsed(), stall.longest());
    assert!(
        took < granted * 3 + stall,
        "{took:?} with stalls of {stall:?}"
    );
}
