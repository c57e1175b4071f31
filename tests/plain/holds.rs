//! A hold, and how it is lost.

use std::sync::Arc;
use std::time::Duration;

use lockkeeper::compat::StoreProblem;
use lockkeeper::{Error, GuardState};
use testbench::stall::Stall;
use tokio::time::{sleep, timeout};

use crate::bed::{Bed, TTL};

crate::cases![
    a_hold_lives_as_long_as_its_guard,
    a_removed_lock_is_lost_with_the_next_renewal,
    a_strangers_lock_is_not_touched,
    a_strangers_lock_is_not_renewed,
    work_ends_with_the_hold,
    a_released_hold_is_not_lost,
];

async fn a_hold_lives_as_long_as_its_guard(bed: Arc<Bed>, name: String) {
    let (a, b) = (bed.lock(&name).await, bed.lock(&name).await);
    let stall = Stall::watch();
    let guard = a.lock().await.unwrap();
    for _ in 0..10 {
        sleep(TTL / 4).await;
        let left = guard.valid_for() + stall.longest();
        assert!(guard.is_held() && left > TTL / 5, "{guard:?}");
        assert!(b.try_lock().await.unwrap().is_none());
    }
    assert_eq!(guard.state(), GuardState::Held);
    guard.release().await.unwrap();
}

async fn a_removed_lock_is_lost_with_the_next_renewal(bed: Arc<Bed>, name: String) {
    let guard = bed.lock(&name).await.lock().await.unwrap();
    bed.remove(&name).await;

    let error = timeout(TTL, guard.lost())
        .await
        .expect("within a third of the ttl");

    // The end of the lease would be another error.
    let is_told = matches!(
        &error,
        Error::Store {
            problem: StoreProblem::NotOurs,
            ..
        }
    );
    assert!(is_told && error.is_lost(), "{error}");
    assert_eq!(
        (guard.state(), guard.valid_for()),
        (GuardState::Lost, Duration::ZERO)
    );
    assert!(guard.check().await.unwrap_err().is_lost());
    assert!(guard.release().await.unwrap_err().is_lost());
}

async fn a_strangers_lock_is_not_touched(bed: Arc<Bed>, name: String) {
    let (a, b) = (bed.lock(&name).await, bed.lock(&name).await);
    let guard = a.lock().await.unwrap();
    bed.remove(&name).await;
    let stranger = b.try_lock().await.unwrap().expect("it is free");

    let error = guard.release().await.unwrap_err();

    assert!(error.is_lost(), "{error}");
    stranger.check().await.unwrap();
    stranger.release().await.unwrap();
}

async fn a_strangers_lock_is_not_renewed(bed: Arc<Bed>, name: String) {
    let guard = bed.lock(&name).await.lock().await.unwrap();
    bed.remove(&name).await;
    let stranger = bed.lock(&name).await.try_lock().await.unwrap();
    let stranger = stranger.expect("it is free");

    let error = guard.check().await.unwrap_err();

    assert!(error.is_lost() && !guard.is_held(), "{error}");
    stranger.check().await.unwrap();
    stranger.release().await.unwrap();
}

async fn work_ends_with_the_hold(bed: Arc<Bed>, name: String) {
    let guard = bed.lock(&name).await.lock().await.unwrap();
    assert_eq!(guard.run(async { 42 }).await.unwrap(), 42);
    bed.remove(&name).await;
    let error = guard.run(std::future::pending::<()>()).await.unwrap_err();
    assert!(error.is_lost(), "{error}");
    drop(guard);
    let next = timeout(TTL * 2, bed.lock(&name).await.lock()).await;
    next.expect("it is free").unwrap().release().await.unwrap();
}

async fn a_released_hold_is_not_lost(bed: Arc<Bed>, name: String) {
    let guard = bed.lock(&name).await.lock().await.unwrap();
    let (after_release, lock) = (guard.lost(), bed.lock(&name).await);
    guard.release().await.unwrap();
    let guard = lock.lock().await.unwrap();
    let after_drop = guard.lost();
    drop(guard);

    let lost =
        async { tokio::select!(error = after_release => error, error = after_drop => error) };

    let lost = timeout(TTL + TTL / 2, lost).await;
    assert!(lost.is_err(), "{lost:?}");
}
