//! Two holders in an ensemble that is cut in two: the side without a quorum grants nothing and
//! confirms nothing.

use std::future::Future;
use std::time::{Duration, Instant};

use futures_util::future::{Either, select};
use lockkeeper::{Guard, Keeper};
use tokio::time::timeout;

use super::{SOON, T};
use testbench::ensemble::{Cut, Ensemble};
use testbench::{World, case, eventually};

/// A member that is about to be alone, and its clients here and there.
struct Sides {
    ensemble: Ensemble,
    member: usize,
    alone: Keeper,
    together: Keeper,
}

/// An ensemble with a client at its leader or at a follower, and one at the others.
async fn sides(at_leader: bool, sync_limit: usize) -> Sides {
    let ensemble = Ensemble::start(sync_limit).await;
    let leader = ensemble.leader().await;
    let member = if at_leader {
        leader
    } else {
        (leader + 1) % ensemble.count()
    };
    let addresses = ensemble.addresses();
    let others: Vec<String> = (0..addresses.len())
        .filter(|other| *other != member)
        .map(|other| addresses[other].to_string())
        .collect();
    let connect = async |to: String| {
        let builder = Keeper::builder(to).session_timeout(T);
        builder.connect_timeout(T * 20).connect().await.unwrap()
    };
    let alone = connect(addresses[member].to_string()).await;
    let together = connect(others.join(",")).await;
    Sides {
        ensemble,
        member,
        alone,
        together,
    }
}

/// When the holder was told of its loss, and when the other one was granted the same lock, and what
/// was done meanwhile.
async fn told_and_granted(
    sides: &Sides,
    guard: &Guard,
    lock: &str,
    meanwhile: impl Future<Output = ()>,
) -> (Instant, Instant) {
    let lock = sides.together.mutex(lock).unwrap();
    let next = tokio::spawn(async move {
        let guard = lock.lock_timeout(T * 30).await.unwrap();
        let granted = Instant::now();
        drop(guard);
        granted
    });
    let told = async {
        guard.lost().await;
        Instant::now()
    };
    let told = match select(Box::pin(told), Box::pin(meanwhile)).await {
        Either::Left((told, _)) => told,
        Either::Right(((), told)) => told.await,
    };
    (told, next.await.unwrap())
}

#[case(real, within = 120)]
async fn row_24_a_leader_without_a_quorum_grants_nothing(_world: World) {
    let sides = sides(true, 5).await;
    let (here, there) = (
        sides.alone.mutex("free").unwrap(),
        sides.together.mutex("free").unwrap(),
    );
    let lock = sides.alone.mutex("held").unwrap();
    // Servers that have just elected a leader may be too slow for so short a session.
    let granted = || async {
        let held = lock.lock().await.ok()?;
        here.lock().await.ok()?.release().await.ok()?;
        held.check().await.ok().map(|()| held)
    };
    let held = eventually("both are granted", T * 20, granted).await;

    sides.ensemble.cut_off(sides.member, Cut::OthersSeeIt);
    let minority = async {
        let until = Instant::now() + T * 5;
        while Instant::now() < until {
            let tried = timeout(T / 5, here.try_lock()).await;
            assert!(!matches!(tried, Ok(Ok(Some(_)))), "it was granted");
            let locked = here.lock_timeout(T / 5).await;
            assert!(locked.is_err(), "it was granted");
        }
    };
    let majority = async {
        let locked = || async { there.lock_timeout(T).await.ok() };
        eventually("the majority grants", T * 20, locked).await
    };
    let ((), guard) = tokio::join!(minority, majority);

    assert!(!held.is_held());
    assert!(guard.token() > held.token());
    // Servers that have just elected a leader may be too slow for so short a session.
    drop(guard);
    sides.ensemble.join(sides.member).await;
    let locked = || async { here.lock_timeout(T).await.ok() };
    drop(eventually("the member is back", T * 30, locked).await);
}

#[case(real, within = 120)]
async fn row_65_a_leader_without_a_quorum_confirms_no_hold(_world: World) {
    // It takes the leader four seconds to see that it is alone; until then it answers what it can.
    let sides = sides(true, 20).await;
    let lock = sides.alone.mutex("checked").unwrap();
    // Servers that have just elected a leader may be too slow for so short a session.
    let checked = || async {
        let guard = lock.lock().await.ok()?;
        guard.check().await.ok().map(|()| guard)
    };
    let guard = eventually("a hold is confirmed", T * 20, checked).await;

    sides.ensemble.cut_off(sides.member, Cut::OthersSeeIt);
    let checked = timeout(SOON, guard.check())
        .await
        .expect("it ends by the clock");
    let path = "/fenced";
    let written = timeout(SOON, guard.fenced().create(path, "x").commit()).await;

    assert!(checked.unwrap_err().is_lost());
    assert!(
        written
            .expect("it ends by the clock")
            .unwrap_err()
            .is_lost()
    );
    assert!(!guard.is_held());
}

#[case(real, within = 120)]
async fn row_66_reads_on_a_follower_without_a_leader_keep_no_hold(_world: World) {
    let sides = sides(false, 20).await;
    let lock = sides.alone.mutex("read").unwrap();
    let guard = lock.lock().await.unwrap();

    sides.ensemble.cut_off(sides.member, Cut::Silent);
    // The follower answers these for seconds, from what it knows.
    let reading = async {
        loop {
            timeout(T / 10, lock.try_lock()).await.ok();
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let (told, granted) = told_and_granted(&sides, &guard, "read", reading).await;

    assert!(told < granted, "told {:?} too late", told - granted);
}

#[case(real, within = 120)]
async fn row_82_a_holder_on_a_deposed_leader_is_told_before_the_next_one_is_granted(_world: World) {
    let sides = sides(true, 20).await;
    let guard = sides.alone.mutex("deposed").unwrap().lock().await.unwrap();

    sides.ensemble.cut_off(sides.member, Cut::OthersSeeIt);
    let nothing = std::future::pending();
    let (told, granted) = told_and_granted(&sides, &guard, "deposed", nothing).await;

    assert!(told < granted, "told {:?} too late", told - granted);
    assert!(guard.release().await.unwrap_err().is_lost());
}
