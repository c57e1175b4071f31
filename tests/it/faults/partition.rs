//! A holder behind a cut through the ensemble: its server is there and answers, and is no longer a part of it.
//!
//! On real servers only; the ensemble is the case's own.

use std::time::Duration;

use tokio::time::{Instant, timeout};

use super::{T, granted, keeper, released, released_well, watched};
use crate::support::World;
use crate::support::checker::{Bounds, assert_clean, stays_alive, violations};
use crate::support::client::Fleet;
use crate::support::ensemble::{Cut, Ensemble};
use crate::support::events::{Event, Outcome, What};
use crate::support::stall::Stall;
use crate::support::store::Fence;

cases! {
    real:
        a_holder_on_a_leader_without_a_quorum_knows_in_time within 180,
        a_holder_on_a_follower_without_a_leader_knows_in_time within 180;
}

/// Which member the holder is connected to, and cut off with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Behind {
    Leader,
    Follower,
}

async fn a_holder_on_a_leader_without_a_quorum_knows_in_time(_world: World) {
    // A deposed leader answers for as long as it may: two seconds, twice the session timeout.
    partitions(Behind::Leader, Cut::OthersSeeIt).await;
}

async fn a_holder_on_a_follower_without_a_leader_knows_in_time(_world: World) {
    partitions(Behind::Follower, Cut::Silent).await;
}

async fn partitions(behind: Behind, cut: Cut) {
    let ensemble = Ensemble::start(10).await;
    for round in 0..World::times(1, 20) {
        one_partition(&ensemble, behind, cut, round).await;
    }
}

async fn one_partition(ensemble: &Ensemble, behind: Behind, cut: Cut, round: usize) {
    let lock = format!("partition-{round}");
    let stall = Stall::watch();
    let leader = ensemble.leader().await;
    let member = match behind {
        Behind::Leader => leader,
        Behind::Follower => (leader + 1) % ensemble.count(),
    };
    let mut others = ensemble.addresses();
    let its = others.remove(member).to_string();
    let others: Vec<String> = others.iter().map(ToString::to_string).collect();
    let fleet = Fleet::new(ensemble.connect_string(), &lock, T, Fence::Refuses).await;
    let (log_a, log_b) = (fleet.log().of("a"), fleet.log().of("b"));
    let (a, b) = (keeper(&its).await, keeper(&others.join(",")).await);
    let guard = granted(&a, &lock, &log_a).await;

    fleet.log().note(What::Fault {
        kind: format!("{behind:?} {cut:?}"),
    });
    ensemble.cut_off(member, cut);
    let began = Instant::now();
    let watched = watched(guard, &log_a);
    // Their side has to find a leader first, which may take longer than its session lasts.
    let next = timeout(Duration::from_secs(90), granted(&b, &lock, &log_b))
        .await
        .expect("the side with the quorum grants the lock");
    let let_in = began.elapsed();
    let guard = watched.await.unwrap();

    assert_eq!(released(guard, &log_a).await, Outcome::Lost);
    ensemble.join(member).await;
    ensemble.serves().await;
    released_well(next, &log_b, &stall).await;
    let history = fleet.history();
    let lost = history
        .events
        .iter()
        .find(|event| matches!(event.what, What::Lost { .. }));
    let ahead = history
        .events
        .iter()
        .find(|event: &&Event| event.client == "b" && matches!(event.what, What::Granted { .. }))
        .map(|event| event.t_ns)
        .zip(lost.map(|event| event.t_ns))
        .map(|(granted, lost)| Duration::from_nanos(granted.saturating_sub(lost)));
    println!(
        "{behind:?}: the other side granted {let_in:?} after the cut, {ahead:?} after the loss"
    );
    assert_clean(&violations(&history));
    let bounds = Bounds {
        notice: Duration::from_millis(50) + stall.longest(),
        ..Bounds::within(Duration::from_secs(60))
    };
    assert_clean(&stays_alive(&history, &bounds));
    a.close().await;
    b.close().await;
}
