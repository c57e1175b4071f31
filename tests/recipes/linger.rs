//! A mutex that lingers: which tasks may take a place over without a request, what ends that, and
//! its cost for a competitor.

pub mod competitor;
pub mod ends;
pub mod guards;
pub mod storm;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use lockkeeper::embedded::{Counters, Op};
use lockkeeper::{Keeper, Mutex, Owner, Token};
use tokio::time::timeout;

use testbench::{World, case, eventually};
use testbench::{children, keeper};

const SOON: Duration = Duration::from_secs(3);
/// Longer than any case.
const LONG: Duration = Duration::from_secs(3600);

fn lingering(keeper: &Keeper, name: &str) -> Mutex {
    keeper.mutex(name).unwrap().with_linger(LONG)
}

/// Locks and releases, and tells under which token.
async fn once(lock: &Mutex) -> Token {
    let guard = timeout(SOON, lock.lock()).await.unwrap().unwrap();
    let token = guard.token();
    guard.release().await.unwrap();
    token
}

fn requests(counters: &Counters) -> u64 {
    counters.requests() - counters.get(Op::Ping)
}

#[case]
async fn a_place_is_taken_over_under_the_same_token(world: World) {
    let (keeper, stranger) = (keeper(&world).await, world.raw().await);
    let lock = lingering(&keeper, "same");
    let first = once(&lock).await;
    let node = children(&stranger, "same").await;

    for _ in 0..100 {
        // Another object of the same lock is as good.
        assert_eq!(once(&lingering(&keeper, "same")).await, first);
    }
    drop(lock.lock().await.unwrap());

    assert_eq!(once(&lock).await, first, "a drop keeps the place too");
    assert_eq!(children(&stranger, "same").await, node);
}

#[case(embedded)]
async fn taking_over_costs_no_request_and_a_ticket_one_more(world: World) {
    let keeper = Keeper::builder(world.connect_string()).session_timeout(LONG);
    let (keeper, server) = (keeper.connect().await.unwrap(), world.embedded());
    let lock = lingering(&keeper, "cost");
    once(&keeper.mutex("cost").unwrap()).await;
    let before = server.counters();

    once(&lock).await;
    let watched = || async { server.counters().watches == before.watches + 1 };
    eventually("who comes is watched", SOON, watched).await;
    let kept = server.counters();
    for _ in 0..1000 {
        once(&lock).await;
    }

    assert_eq!(requests(&kept.since(&before)), 3, "create, look, watch");
    assert_eq!(requests(&server.counters().since(&kept)), 0);
}

#[case(embedded)]
async fn a_place_that_nobody_takes_over_costs_two_requests_more(world: World) {
    let keeper = Keeper::builder(world.connect_string()).session_timeout(LONG);
    let (keeper, server) = (keeper.connect().await.unwrap(), world.embedded());
    let lock = keeper.mutex("cost").unwrap();
    once(&lock).await;
    let before = server.counters();

    once(&lock.with_linger(Duration::from_millis(50))).await;

    let asked = || async { requests(&server.counters().since(&before)) == 5 };
    eventually("create, look, watch, release, no watch", SOON, asked).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(asked().await, "{:?}", server.counters().since(&before));
    assert_eq!(server.counters().watches, before.watches);
}

#[case(embedded, alone)]
async fn a_ticket_has_ten_thousand_guards_at_most(world: World) {
    let keeper = keeper(&world).await;
    let lock = lingering(&keeper, "many");

    let first = once(&lock).await;
    for guard in 1..10_000 {
        assert_eq!(once(&lock).await, first, "guard {guard}");
    }

    assert!(
        once(&lock).await > first,
        "the word of a competitor may be lost"
    );
}

#[case]
async fn tasks_of_one_keeper_get_the_lock_in_the_order_of_their_calls(world: World) {
    let keeper = keeper(&world).await;
    let lock = lingering(&keeper, "order");
    let guard = lock.lock().await.unwrap();
    let turns = Arc::new(std::sync::Mutex::new(Vec::new()));
    let calls = (0..20).map(|call| {
        let (lock, turns) = (lock.clone(), Arc::clone(&turns));
        async move {
            let guard = lock.lock().await.unwrap();
            turns.lock().unwrap().push(call);
            guard.release().await.unwrap();
        }
    });
    let all = tokio::spawn(join_all(calls));
    let stranger = world.raw().await;
    assert_eq!(children(&stranger, "order").await, [guard.node()]);

    drop(guard);

    timeout(SOON, all).await.unwrap().unwrap();
    assert_eq!(*turns.lock().unwrap(), (0..20).collect::<Vec<_>>());
}

#[case]
async fn one_that_gives_up_lets_the_next_one_go(world: World) {
    let keeper = keeper(&world).await;
    let lock = lingering(&keeper, "impatient");
    let guard = lock.lock().await.unwrap();
    let waits = |lock: Mutex| tokio::spawn(async move { once(&lock).await });
    let impatient = waits(lock.clone());
    tokio::task::yield_now().await;
    let next = waits(lock.clone());
    let token = guard.token();

    impatient.abort();
    assert!(impatient.await.unwrap_err().is_cancelled());
    drop(guard);

    assert_eq!(timeout(SOON, next).await.unwrap().unwrap(), token);
}

#[case]
async fn try_lock_takes_a_kept_place_and_says_not_now_on_a_used_one(world: World) {
    let keepers = [keeper(&world).await, keeper(&world).await];
    let [lock, other] = keepers.each_ref().map(|keeper| lingering(keeper, "try"));

    let guard = lock.try_lock().await.unwrap().expect("it is free");
    let token = guard.token();
    assert!(lock.try_lock().await.unwrap().is_none());
    // A server of an ensemble that is behind would let it join, and so end the place.
    assert_eq!(keepers[1].queue("try").await.unwrap().len(), 1);
    assert!(other.try_lock().await.unwrap().is_none());
    guard.release().await.unwrap();
    assert!(other.try_lock().await.unwrap().is_none(), "nobody joins");

    let again = lock.try_lock().await.unwrap().expect("it is kept");
    assert_eq!(again.token(), token);
    assert!(other.try_lock().await.unwrap().is_none());
}

#[case]
async fn a_timed_call_gives_up_in_time_and_leaves_nothing(world: World) {
    let (keeper, stranger) = (keeper(&world).await, world.raw().await);
    let lock = lingering(&keeper, "timed");
    let guard = lock.lock().await.unwrap();

    let error = lock
        .lock_timeout(Duration::from_millis(50))
        .await
        .unwrap_err();

    assert!(error.is_timeout(), "{error}");
    assert_eq!(children(&stranger, "timed").await, [guard.node()]);
    guard.release().await.unwrap();
    once(&lock).await;
}

#[case]
async fn an_owners_ticket_is_not_passed_on(world: World) {
    let (keeper, stranger) = (keeper(&world).await, world.raw().await);
    let plain = lingering(&keeper, "owned");
    let owned = plain.clone().with_owner(&Owner::named("txn-42"));

    let guard = owned.lock().await.unwrap();
    assert_eq!(once(&owned).await, guard.token(), "it is reentrant");
    let token = guard.token();
    guard.release().await.unwrap();

    assert!(children(&stranger, "owned").await.is_empty());
    let kept = once(&plain).await;
    assert!(kept > token);
    assert!(once(&owned).await > kept, "nor does an owner take one over");
}

#[case]
async fn a_place_from_enqueue_is_a_competitor(world: World) {
    let keeper = keeper(&world).await;
    let lock = lingering(&keeper, "place");
    let first = once(&lock).await;

    let mut place = lock.enqueue().await.unwrap();
    let guard = timeout(SOON, place.granted()).await.unwrap().unwrap();

    assert!(guard.token() > first);
}

#[case(alone)]
async fn crowds_that_linger_and_crowds_that_do_not_exclude_each_other(world: World) {
    let keepers = [keeper(&world).await, keeper(&world).await];
    let inside = Arc::new(AtomicUsize::new(0));
    let tokens = Arc::new(std::sync::Mutex::new(Vec::<Token>::new()));
    let crowd = (0..12).map(|worker| {
        let lock = keepers[worker % 2].mutex("crowd").unwrap();
        let lock = match worker % 3 {
            0 => lock,
            1 => lock.with_linger(Duration::from_millis(2)),
            _ => lock.with_linger(LONG),
        };
        let (inside, tokens) = (Arc::clone(&inside), Arc::clone(&tokens));
        tokio::spawn(async move {
            for round in 0..40 {
                let guard = lock.lock().await.unwrap();
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two are inside");
                tokens.lock().unwrap().push(guard.token());
                tokio::task::yield_now().await;
                inside.fetch_sub(1, Ordering::SeqCst);
                match round % 3 {
                    0 => drop(guard),
                    _ => guard.release().await.unwrap(),
                }
            }
        })
    });

    for worker in timeout(10 * SOON, join_all(crowd)).await.unwrap() {
        worker.unwrap();
    }

    let tokens = tokens.lock().unwrap();
    assert_eq!(tokens.len(), 12 * 40);
    assert!(tokens.is_sorted(), "{tokens:?}");
}
