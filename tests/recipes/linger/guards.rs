//! Lingering for guards and for the tasks that wait here: which tasks are told of a loss, and which
//! tasks wait for which.

use std::time::Duration;

use futures_util::FutureExt;
use lockkeeper::embedded::{Match, Op};
use lockkeeper::{Guard, Keeper, Mutex};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tracing::instrument::WithSubscriber;
use tracing::{Instrument, Level};

use super::{LONG, SOON, lingering, once};
use testbench::heard::Heard;
use testbench::{World, case, eventually};
use testbench::{children, keeper};

/// A call that waits for its turn behind a guard of its keeper.
async fn behind(lock: &Mutex) -> JoinHandle<lockkeeper::Result<Guard>> {
    let lock = lock.clone();
    let call = tokio::spawn(async move { lock.lock().await });
    tokio::task::yield_now().await;
    call
}

/// A guard whose ticket has a waiter from its grant on.
async fn waited_for(world: &World, one: &Mutex, two: &Keeper) -> (Guard, JoinHandle<Guard>) {
    let stranger = world.raw().await;
    let (name, before) = (one.name().to_string(), two.mutex(one.name().clone()));
    let before = before.unwrap();
    let first = before.lock().await.unwrap();
    let queued = |count| {
        let (stranger, name) = (&stranger, &name);
        move || async move { children(stranger, name).await.len() == count }
    };
    let ours = behind(one).await;
    eventually("ours is in the queue", SOON, queued(2)).await;
    let theirs = tokio::spawn(async move { before.lock().await.unwrap() });
    eventually("theirs is behind it", SOON, queued(3)).await;
    first.release().await.unwrap();
    let ours = timeout(SOON, ours).await.unwrap().unwrap().unwrap();
    (ours, theirs)
}

#[case]
async fn calls_that_wait_here_end_when_the_keeper_is_closed(world: World) {
    let keeper = keeper(&world).await;
    let lock = lingering(&keeper, "closed");
    let guard = lock.lock().await.unwrap();
    let calls = [behind(&lock).await, behind(&lock).await];

    keeper.close().await;

    for call in calls {
        let error = timeout(SOON, call).await.expect("it ends").unwrap();
        assert!(error.unwrap_err().is_closed());
    }
    assert!(!guard.is_held());
}

#[case]
async fn calls_that_wait_here_behind_a_hold_that_is_not_passed_on_end_with_the_keeper(
    world: World,
) {
    let [one, two] = [keeper(&world).await, keeper(&world).await];
    let lock = lingering(&one, "closed");
    let (guard, theirs) = waited_for(&world, &lock, &two).await;
    let call = behind(&lock).await;

    one.close().await;

    let error = timeout(SOON, call).await.expect("it ends").unwrap();
    assert!(error.unwrap_err().is_closed());
    drop(timeout(SOON, theirs).await.unwrap().unwrap());
    assert!(!guard.is_held());
}

#[case(embedded)]
async fn a_lost_guard_that_is_kept_keeps_nobody_waiting(world: World) {
    let keeper = keeper(&world).await;
    let lock = lingering(&keeper, "lost");
    let guard = lock.lock().await.unwrap();
    let session = i64::from(keeper.queue("lost").await.unwrap()[0].session);
    let next = behind(&lock).await;

    world.embedded().faults().expire_session(session);
    timeout(SOON, guard.lost()).await.unwrap();

    let next = timeout(SOON, next).await.expect("it waits for nobody");
    let next = next.unwrap().unwrap();
    assert!(next.token() > guard.token());
    let after = behind(&lock).await;
    assert!(guard.release().await.unwrap_err().is_lost());
    let token = next.token();
    assert!(!after.is_finished(), "the lock is in use");
    next.release().await.unwrap();
    let after = timeout(SOON, after).await.unwrap().unwrap().unwrap();
    assert_eq!(after.token(), token, "it lingers as before");
}

#[case(embedded)]
async fn a_lost_guard_behind_which_others_stood_keeps_nobody_waiting(world: World) {
    let [one, two] = [keeper(&world).await, keeper(&world).await];
    let lock = lingering(&one, "lost");
    let (guard, theirs) = waited_for(&world, &lock, &two).await;
    let session = i64::from(two.queue("lost").await.unwrap()[0].session);
    let next = behind(&lock).await;

    world.embedded().faults().expire_session(session);
    timeout(SOON, guard.lost()).await.unwrap();

    drop(timeout(SOON, theirs).await.unwrap().unwrap());
    let next = timeout(SOON, next).await.expect("it waits for nobody");
    assert!(next.unwrap().unwrap().token() > guard.token());
}

#[case(embedded)]
async fn a_loss_is_not_told_to_a_guard_that_was_released_before(world: World) {
    let keeper = keeper(&world).await;
    let lock = lingering(&keeper, "earlier");
    let guard = lock.lock().await.unwrap();
    let [early, polled] = [guard.lost(), guard.lost()];
    let polled = tokio::spawn(polled);
    tokio::task::yield_now().await;
    guard.release().await.unwrap();
    let next = lock.lock().await.unwrap();
    let session = i64::from(keeper.queue("earlier").await.unwrap()[0].session);

    world.embedded().faults().expire_session(session);
    timeout(SOON, next.lost()).await.unwrap();

    assert!(early.clone().now_or_never().is_none(), "it had ended well");
    assert!(early.now_or_never().is_none(), "it had ended well");
    let told = timeout(Duration::from_millis(100), polled).await;
    assert!(told.is_err(), "it had ended well");
}

#[case(embedded)]
async fn a_loss_is_told_to_whoever_asked_a_guard_that_held_then(world: World) {
    let keeper = keeper(&world).await;
    let lock = lingering(&keeper, "holder");
    once(&lock).await;
    let guard = lock.lock().await.unwrap();
    let lost = guard.lost();
    let session = i64::from(keeper.queue("holder").await.unwrap()[0].session);

    world.embedded().faults().expire_session(session);
    timeout(SOON, guard.lost()).await.unwrap();
    drop(guard);

    assert!(timeout(SOON, lost).await.unwrap().is_lost());
}

#[case]
async fn the_time_is_that_of_the_mutex_that_released(world: World) {
    let (keeper, stranger) = (keeper(&world).await, world.raw().await);
    let short = keeper.mutex("times").unwrap();
    let short = short.with_linger(Duration::from_millis(50));
    let first = once(&lingering(&keeper, "times")).await;
    // The answers to these come after that to the watch: it is waited for the longer time by now.
    keeper.queue("times").await.unwrap();
    assert_eq!(children(&stranger, "times").await.len(), 1, "it is kept");

    assert_eq!(once(&short).await, first);

    let gone = || async { children(&stranger, "times").await.is_empty() };
    eventually("it goes back after the shorter time", SOON, gone).await;
    let first = once(&short).await;
    assert_eq!(once(&lingering(&keeper, "times")).await, first);
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(children(&stranger, "times").await.len(), 1, "it is kept");
}

#[case]
async fn what_is_kept_goes_back_with_the_keeper_and_its_mutexes(world: World) {
    let (keeper, stranger) = (keeper(&world).await, world.raw().await);
    let lock = lingering(&keeper, "orphan");
    once(&lock).await;

    drop(keeper);
    assert_eq!(children(&stranger, "orphan").await.len(), 1, "it is kept");
    drop(lock);

    let gone = || async { children(&stranger, "orphan").await.is_empty() };
    eventually("nobody can take it over", SOON, gone).await;
}

#[case]
async fn a_guard_that_outlives_its_keeper_and_its_mutexes_is_not_kept(world: World) {
    let stranger = world.raw().await;
    for is_released in [true, false] {
        let keeper = keeper(&world).await;
        let lock = lingering(&keeper, "outlived");
        let guard = lock.lock().await.unwrap();
        drop((keeper, lock));

        if is_released {
            guard.release().await.unwrap();
        } else {
            drop(guard);
        }

        let gone = || async { children(&stranger, "outlived").await.is_empty() };
        eventually("nobody can take it over", SOON, gone).await;
    }
}

#[case(embedded)]
async fn a_ticket_that_was_replaced_before_the_watch_is_not_passed_on(world: World) {
    // No session sends a heartbeat, which would find out too.
    let quiet = || Keeper::builder(world.connect_string()).session_timeout(LONG);
    let [one, two] = [
        quiet().connect().await.unwrap(),
        quiet().connect().await.unwrap(),
    ];
    let faults = world.embedded().faults();
    let lock = lingering(&one, "replaced");
    let watching = faults.on(Match::op(Op::GetChildren)).stop_before();
    let first = once(&lock).await;
    watching.reached().await;

    let entry = &two.queue("replaced").await.unwrap()[0];
    assert!(two.evict("replaced", entry).await.unwrap());
    let theirs = two.mutex("replaced").unwrap().lock().await.unwrap();
    watching.release();
    // The answer to this comes after that to the watch.
    one.queue("replaced").await.unwrap();

    // It has come, and a task takes it in.
    let refused = || async {
        let ours = lock.lock_timeout(Duration::from_millis(200)).await;
        ours.is_err_and(|error| error.is_timeout())
    };
    eventually("two hold it", SOON, refused).await;
    assert!(theirs.token() > first);
}

#[case]
async fn a_span_of_the_caller_ends_with_the_caller(world: World) {
    let (keeper, log) = (keeper(&world).await, Heard::default());
    let lock = lingering(&keeper, "span");

    let call = async {
        let request = tracing::info_span!("request");
        once(&lock).instrument(request).await
    };
    call.with_subscriber(log.listener(Level::DEBUG)).await;

    let ended = log.lines("request: it::");
    assert_eq!(ended.len(), 1, "{:?}", log.lines(""));
    assert!(ended[0].contains("close"), "{ended:?}");
    assert!(lock.try_lock().await.unwrap().is_some(), "it is kept");
}

#[case]
async fn a_grant_is_told_in_the_span_of_its_acquire(world: World) {
    let (keeper, log) = (keeper(&world).await, Heard::default());
    let lock = lingering(&keeper, "told");

    let call = async {
        once(&lock).await;
        once(&lock).await;
    };
    call.with_subscriber(log.listener(Level::DEBUG)).await;

    for what in ["granted", "taken over"] {
        let told = log.lines(what);
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(told[0].contains("acquire{path=\"/locks/told\""), "{told:?}");
    }
}
