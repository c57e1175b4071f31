//! Taking a lock and giving it back.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use lockkeeper::Error;
use tokio::task::{JoinSet, yield_now};
use tokio::time::{sleep, timeout};

use crate::bed::Bed;
use crate::flash_sale::Counted;

crate::cases![
    a_held_lock_is_not_given_twice,
    a_lock_and_a_release_ask_once_each,
    one_of_many_holds_at_a_time,
    a_dropped_guard_releases_soon,
    a_call_that_is_dropped_at_any_await_leaves_nothing,
    what_the_store_cannot_hold_is_refused,
];

async fn a_held_lock_is_not_given_twice(bed: Arc<Bed>, name: String) {
    let (a, b) = (bed.lock(&name).await, bed.lock(&name).await);
    let guard = a.lock().await.unwrap();
    assert!(guard.is_held() && guard.valid_for() > Duration::ZERO);
    assert!(a.try_lock().await.unwrap().is_none());
    assert!(b.try_lock().await.unwrap().is_none());
    guard.check().await.unwrap();

    guard.release().await.unwrap();

    let next = b.try_lock().await.unwrap().expect("it is free");
    assert_eq!(next.name(), name);
    next.release().await.unwrap();
}

async fn a_lock_and_a_release_ask_once_each(bed: Arc<Bed>, name: String) {
    let store = Counted::new(bed.keeper().await);
    let lock = lockkeeper::compat::PlainKeeper::new(store.clone());
    let lock = lock.mutex(&name).unwrap();

    lock.lock().await.unwrap().release().await.unwrap();

    assert_eq!(store.requests(), 2);
}

async fn one_of_many_holds_at_a_time(bed: Arc<Bed>, name: String) {
    let (count, inside) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let mut tasks = JoinSet::new();
    for _ in 0..8 {
        let lock = bed.lock(&name).await;
        let lock = lock.with_poll(Duration::from_millis(1), Duration::from_millis(20));
        let (lock, count, inside) = (lock.unwrap(), Arc::clone(&count), Arc::clone(&inside));
        tasks.spawn(async move {
            for _ in 0..10 {
                let guard = lock.lock().await.unwrap();
                assert_eq!(
                    inside.fetch_add(1, Ordering::SeqCst),
                    0,
                    "nobody else holds"
                );
                let seen = count.load(Ordering::SeqCst);
                sleep(Duration::from_millis(1)).await;
                count.store(seen + 1, Ordering::SeqCst);
                inside.fetch_sub(1, Ordering::SeqCst);
                guard.release().await.unwrap();
            }
        });
    }
    tasks.join_all().await;
    assert_eq!(count.load(Ordering::SeqCst), 80);
}

async fn a_dropped_guard_releases_soon(bed: Arc<Bed>, name: String) {
    let (a, b) = (bed.lock(&name).await, bed.lock(&name).await);
    drop(a.lock().await.unwrap());
    let next = timeout(Duration::from_secs(1), b.lock()).await;
    next.expect("it is free").unwrap().release().await.unwrap();
}

async fn a_call_that_is_dropped_at_any_await_leaves_nothing(bed: Arc<Bed>, name: String) {
    // What is left would stay for the ttl, and a waiter's pauses must not look like that.
    let poll = (Duration::from_millis(1), Duration::from_millis(20));
    let [a, b] = [bed.lock(&name).await, bed.lock(&name).await];
    let [a, b] = [a, b].map(|lock| lock.with_poll(poll.0, poll.1).unwrap());
    for microseconds in (0..40).map(|step| step * 50) {
        let late = Duration::from_micros(microseconds);
        if let Some(guard) = within(late, a.lock()).await {
            drop(guard.unwrap());
        }
        let next = timeout(Duration::from_secs(1), b.lock()).await;
        let next = next.expect("nothing is left").unwrap();
        // A release that is dropped goes on.
        if let Some(released) = within(late, next.release()).await {
            released.unwrap();
        }
    }
    let last = timeout(Duration::from_secs(1), a.lock()).await;
    last.expect("nothing is left")
        .unwrap()
        .release()
        .await
        .unwrap();
}

/// What comes of a call within this time, after which it is dropped. The runtime's own timers count
/// whole milliseconds, and most calls of a store take less.
async fn within<T>(limit: Duration, call: impl Future<Output = T>) -> Option<T> {
    let began = Instant::now();
    let over = async {
        while began.elapsed() < limit {
            yield_now().await;
        }
    };
    tokio::select! {
        biased;
        done = call => Some(done),
        () = over => None,
    }
}

async fn what_the_store_cannot_hold_is_refused(bed: Arc<Bed>, name: String) {
    let keeper = bed.keeper().await;
    let error = keeper.mutex("").unwrap_err();
    assert!(matches!(error, Error::InvalidName { .. }), "{error}");
    let lock = keeper.mutex(&name).unwrap();
    for ttl in [Duration::ZERO, Duration::from_millis(50), Duration::MAX] {
        let error = lock.clone().with_ttl(ttl).unwrap_err();
        assert!(error.is_invalid(), "{error}");
    }
    let poll = (Duration::from_secs(2), Duration::from_secs(1));
    assert!(lock.with_poll(poll.0, poll.1).unwrap_err().is_invalid());
}
