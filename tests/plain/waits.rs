//! Waiting for a lock.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::time::{sleep, timeout};

use crate::bed::{Bed, TTL};

crate::cases![
    a_wait_ends_in_time_and_leaves_nothing,
    a_waiter_gets_a_released_lock,
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
