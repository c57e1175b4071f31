//! Waiting for a lock.

use std::sync::Arc;
use std::time::{Duration, Instant};

use lockkeeper::compat::PlainKeeper;
use tokio::time::{sleep, timeout};

use crate::bed::{Bed, TTL};
use crate::flash_sale::Counted;

crate::cases![
    a_wait_ends_in_time_and_leaves_nothing,
    a_waiter_gets_a_released_lock,
    a_call_with_a_number_of_tries_ends_after_them,
];

async fn a_wait_ends_in_time_and_leaves_nothing(bed: Arc<Bed>, name: String) {
    let (a, b) = (bed.lock(&name).await, bed.lock(&name).await);
    let guard = a.lock().await.unwrap();
    let (limit, begun) = (Duration::from_millis(300), Instant::now());

    let error = b.lock_timeout(limit).await.unwrap_err();

    assert!(error.is_timeout(), "{error}");
    assert!(begun.elapsed() < limit + Duration::from_millis(500));
    guard.release().await.unwrap();
    // A try of the wait may have been under way; what it took is given back.
    let next = timeout(Duration::from_secs(1), a.lock()).await;
    next.expect("it is free").unwrap().release().await.unwrap();
}

async fn a_waiter_gets_a_released_lock(bed: Arc<Bed>, name: String) {
    let (a, b) = (bed.lock(&name).await, bed.lock(&name).await);
    let guard = a.lock().await.unwrap();
    let waiter = tokio::spawn(async move { b.lock().await });
    // Longer than a ttl: the holder renews.
    sleep(TTL + TTL / 2).await;
    assert!(!waiter.is_finished() && guard.is_held());

    guard.release().await.unwrap();

    let next = waiter.await.unwrap().unwrap();
    next.release().await.unwrap();
}

/// As the pattern of `SELECT ... FOR UPDATE` with 4 tries and pauses of a second.
async fn a_call_with_a_number_of_tries_ends_after_them(bed: Arc<Bed>, name: String) {
    let store = Counted::new(bed.keeper().await);
    let lock = PlainKeeper::new(store.clone()).mutex(&name).unwrap();
    let guard = bed.lock(&name).await.lock().await.unwrap();
    let (pause, begun) = (Duration::from_millis(100), Instant::now());

    let got = lock.lock_in_tries(4, pause).await.unwrap();

    assert!(got.is_none() && store.requests() == 4, "{got:?}");
    assert!(begun.elapsed() >= pause * 3, "{:?}", begun.elapsed());
    let waiter = tokio::spawn(async move { lock.lock_in_tries(600, pause).await });
    sleep(pause * 2).await;
    guard.release().await.unwrap();
    let got = timeout(TTL * 2, waiter).await.expect("it is free").unwrap();
    got.unwrap().expect("it is free").release().await.unwrap();
}
