//! Leftovers: what a waiter, a try, a panic or a release may leave in the queue. Nothing, in every
//! case.
//!
//! Rows 9 to 15: the outcome is known, and yet something stayed.

use std::collections::{HashSet, VecDeque};
use std::ops::Not;
use std::time::Duration;

use futures_util::future::select_all;
use lockkeeper::Keeper;
use lockkeeper::embedded::{Code, Match};
use tokio::runtime::Handle;
use tokio::time::timeout;

use super::wire::Loss;
use super::{SOON, on_a_wire, own_session};
use testbench::{World, case, eventually, expect_panics};
use testbench::{children, keeper};

#[case]
async fn row_09_a_waiter_keeps_its_one_ticket_through_ten_cuts(world: World) {
    let (a, wire) = on_a_wire(&world).await;
    let (b, stranger) = (keeper(&world).await, world.raw().await);
    let first = b.mutex("kept").unwrap().lock().await.unwrap();
    let lock = a.mutex("kept").unwrap();
    let waiting = tokio::spawn(async move { lock.lock().await });
    let queued = || async { children(&stranger, "kept").await.len() == 2 };
    eventually("the waiter is queued", SOON, queued).await;
    let mut both = children(&stranger, "kept").await;
    both.sort();

    for _ in 0..10 {
        let before = wire.connections();
        wire.cut();
        let is_back = || async { wire.connections() > before };
        eventually("it is connected again", SOON, is_back).await;
        let mut now = children(&stranger, "kept").await;
        now.sort();
        assert_eq!(now, both);
    }

    first.release().await.unwrap();
    let guard = timeout(SOON, waiting).await.unwrap().unwrap().unwrap();
    assert_eq!(guard.node(), both[1]);
    guard.release().await.unwrap();
    assert!(children(&stranger, "kept").await.is_empty());
}

#[case]
async fn row_10_a_panic_leaves_nothing(world: World) {
    expect_panics();
    let (a, b) = (keeper(&world).await, keeper(&world).await);
    let stranger = world.raw().await;
    let guard = b.mutex("panic").unwrap().lock().await.unwrap();
    let lock = a.mutex("panic").unwrap();

    // While it waits.
    let (waiting, watching) = (lock.clone(), stranger.clone());
    let panicked = tokio::spawn(async move {
        let queued = || async { children(&watching, "panic").await.len() == 2 };
        tokio::select! {
            granted = waiting.lock() => granted.map(drop).unwrap(),
            () = eventually("it is queued", SOON, queued) => panic!("as the case wants it"),
        }
    });
    assert!(panicked.await.unwrap_err().is_panic());
    let alone = || async { children(&stranger, "panic").await == [guard.node()] };
    eventually("only the holder is left", SOON, alone).await;
    guard.release().await.unwrap();
    // While it holds.
    let panicked = tokio::spawn(async move {
        let _guard = lock.lock().await.unwrap();
        panic!("as the case wants it");
    });
    assert!(panicked.await.unwrap_err().is_panic());

    let next = timeout(SOON, b.mutex("panic").unwrap().lock())
        .await
        .unwrap();
    next.unwrap().release().await.unwrap();
    assert!(children(&stranger, "panic").await.is_empty());
}

#[case]
async fn row_11_a_try_on_a_held_lock_makes_no_ticket(world: World) {
    let (a, b) = (keeper(&world).await, keeper(&world).await);
    let stranger = world.raw().await;
    let guard = a.mutex("probed").unwrap().lock().await.unwrap();
    let lock = b.mutex("probed").unwrap();
    // A try at a server that is behind would join, and so write.
    let sees = async |count: usize| {
        let there = || async { b.queue("probed").await.unwrap().len() == count };
        eventually("it sees what the other did", SOON, there).await;
    };
    sees(1).await;

    for _ in 0..World::times(1000, 10_000) {
        assert!(lock.try_lock().await.unwrap().is_none());
    }

    assert_eq!(children(&stranger, "probed").await, [guard.node()]);
    guard.release().await.unwrap();
    sees(0).await;
    // Each ticket takes a number, even one that is removed at once.
    let next = lock.try_lock().await.unwrap().expect("the lock is free");
    assert_eq!(next.node(), "lock-0000000001");
    next.release().await.unwrap();
}

#[case]
async fn row_12_a_release_that_lost_its_connection_is_finished(world: World) {
    let (keeper, wire) = on_a_wire(&world).await;
    let stranger = world.raw().await;
    let session = own_session(&keeper).await;
    let lock = keeper.mutex("unconfirmed").unwrap();
    for loss in [Loss::Request, Loss::Reply] {
        for is_dropped in [false, true] {
            let guard = lock.lock().await.unwrap();

            wire.lose(loss, 0, 1);
            if is_dropped {
                drop(guard);
            } else {
                timeout(SOON, guard.release()).await.unwrap().unwrap();
            }

            let empty = || async { children(&stranger, "unconfirmed").await.is_empty() };
            eventually("the ticket is gone", SOON * 2, empty).await;
            assert!(!wire.forget(), "{loss:?} of the release");
            assert_eq!(own_session(&keeper).await, session, "the session lives");
        }
    }
}

#[case(embedded)]
async fn row_13_twenty_expiries_leave_one_ticket_of_a_waiter(world: World) {
    let (a, b) = (keeper(&world).await, keeper(&world).await);
    let (stranger, faults) = (world.raw().await, world.embedded().faults());
    let guard = b.mutex("expired").unwrap().lock().await.unwrap();
    let lock = a.mutex("expired").unwrap();
    let waiting = tokio::spawn(async move { lock.lock().await });
    let mut sessions = HashSet::new();
    for _ in 0..20 {
        let joined = || async {
            let queue = b.queue("expired").await.unwrap();
            assert!(queue.len() <= 2, "the holder and one more: {queue:?}");
            let session = i64::from(queue.get(1)?.session);
            sessions.contains(&session).not().then_some(session)
        };
        let session = eventually("the waiter is queued again", SOON, joined).await;
        let tickets = children(&stranger, "expired").await;
        assert_eq!(tickets.len(), 2, "the holder and one more: {tickets:?}");
        assert!(
            tickets
                .iter()
                .all(|ticket| ticket.len() == guard.node().len()),
            "{tickets:?}"
        );

        sessions.insert(session);
        faults.expire_session(session);
    }
    guard.release().await.unwrap();

    let guard = timeout(SOON, waiting).await.unwrap().unwrap().unwrap();
    assert_eq!(
        guard.node(),
        "lock-0000000021",
        "one ticket for each session"
    );
    guard.release().await.unwrap();
    assert!(children(&stranger, "expired").await.is_empty());
}

#[case]
async fn row_14_waiters_that_time_out_in_a_silence_leave_the_queue(world: World) {
    let (a, wire) = on_a_wire(&world).await;
    let (b, stranger) = (keeper(&world).await, world.raw().await);
    let guard = b.mutex("silent").unwrap().lock().await.unwrap();
    let lock = a.mutex("silent").unwrap();
    let waiter = |limit: u64| {
        let lock = lock.clone();
        tokio::spawn(async move {
            lock.lock_timeout(Duration::from_millis(limit))
                .await
                .map(drop)
        })
    };

    let mut waiters: Vec<_> = (0..8).map(|_| waiter(3000)).collect();
    let queued = || async { children(&stranger, "silent").await.len() == 9 };
    eventually("half of them are queued", SOON, queued).await;
    wire.silence();
    waiters.extend((0..8).map(|_| waiter(300)));
    for waiter in waiters {
        let ended = timeout(SOON * 2, waiter).await.unwrap().unwrap();
        assert!(ended.unwrap_err().is_timeout());
    }
    wire.up();

    // Sooner than their session would have ended.
    let alone = || async { children(&stranger, "silent").await == [guard.node()] };
    eventually("only the holder is left", SOON * 2, alone).await;
    guard.release().await.unwrap();
}

#[case(embedded)]
async fn row_15_nothing_goes_on_after_a_release(world: World) {
    let builder = Keeper::builder(world.connect_string()).session_timeout(Duration::from_secs(2));
    let (keeper, faults) = (builder.connect().await.unwrap(), world.embedded().faults());
    let lock = keeper.mutex("over").unwrap();
    lock.lock().await.unwrap().release().await.unwrap();
    let tasks = Handle::current().metrics().num_alive_tasks();

    let mut lost = VecDeque::new();
    for round in 0..World::times(1000, 100_000) {
        let guard = lock.lock().await.unwrap();
        lost.push_front(guard.lost());
        lost.truncate(100);
        for _ in 0..round % 5 {
            tokio::task::yield_now().await;
        }
        if round % 2 == 0 {
            guard.release().await.unwrap();
        }
    }

    let resting = || async { Handle::current().metrics().num_alive_tasks() <= tasks };
    eventually("no task is left", SOON, resting).await;
    let empty = || async { keeper.queue("over").await.unwrap().is_empty() };
    eventually("the last one is gone", SOON, empty).await;
    faults
        .on(Match::any().path_contains("/locks/over"))
        .fail(Code::NoAuth);
    // More than two beats of a hold that would go on.
    let beats = Duration::from_millis(800);
    assert!(
        timeout(beats, select_all(lost)).await.is_err(),
        "what was given back is never told to be lost"
    );
    assert_eq!(faults.armed_rules(), 1, "nobody asks for the lock any more");
}
