//! The cost of reading and writing, counted: requests, watches and wake-ups.

use std::time::Duration;

use lockkeeper::embedded::{Counters, Op};
use lockkeeper::{Keeper, RwLock};

use super::{Reading, SOON, Writing, granted};
use testbench::{World, case, eventually};

/// The lock in a keeper that sends no beat for ten minutes.
async fn another(world: &World) -> RwLock {
    let builder = Keeper::builder(world.connect_string());
    let builder = builder.session_timeout(Duration::from_secs(3600));
    let keeper = builder.connect().await.unwrap();
    keeper.rw_lock("cost").unwrap()
}

/// The same, when its directory is there.
async fn lock(world: &World) -> RwLock {
    let lock = another(world).await;
    lock.write().await.unwrap().release().await.unwrap();
    lock
}

/// Requests but for the pings.
fn requests(counters: &Counters) -> u64 {
    counters.requests() - counters.get(Op::Ping)
}

fn since(world: &World, before: &Counters) -> u64 {
    requests(&world.embedded().counters().since(before))
}

async fn reading(world: &World, lock: &RwLock) -> Reading {
    let (before, lock) = (world.embedded().counters().watches, lock.clone());
    let asked = tokio::spawn(async move { lock.read().await });
    watching(world, before + 1).await;
    asked
}

async fn writing(world: &World, lock: &RwLock) -> Writing {
    let (before, lock) = (world.embedded().counters().watches, lock.clone());
    let asked = tokio::spawn(async move { lock.write().await });
    watching(world, before + 1).await;
    asked
}

async fn watching(world: &World, watches: u64) {
    let watch = || async { world.embedded().counters().watches == watches };
    eventually("it watches", SOON, watch).await;
}

#[case(embedded)]
async fn an_uncontended_read_or_write_costs_two_requests_and_its_release_one(world: World) {
    let (lock, server) = (lock(&world).await, world.embedded());
    for _ in 0..20 {
        let before = server.counters();
        let reader = lock.read().await.unwrap();
        assert_eq!(since(&world, &before), 2);
        let other = lock.read().await.unwrap();
        assert_eq!(since(&world, &before), 4);
        reader.release().await.unwrap();
        other.release().await.unwrap();
        assert_eq!(since(&world, &before), 6);

        let before = server.counters();
        let writer = lock.write().await.unwrap();
        assert_eq!(since(&world, &before), 2);
        writer.release().await.unwrap();
        assert_eq!(since(&world, &before), 3);
        assert_eq!(server.counters().watches, 0);
    }
}

#[case(embedded)]
async fn a_writer_behind_a_writer_costs_three_requests_and_two_at_the_hand_over(world: World) {
    let lock = lock(&world).await;
    let writer = lock.write().await.unwrap();
    let before = world.embedded().counters();

    let next = writing(&world, &lock).await;
    assert_eq!(since(&world, &before), 3);
    let behind = [writing(&world, &lock).await, writing(&world, &lock).await];
    let before = world.embedded().counters();
    writer.release().await.unwrap();
    let next = granted(next).await;

    assert_eq!(since(&world, &before), 2);
    assert_eq!(world.embedded().counters().since(&before).events, 1);
    next.release().await.unwrap();
    for writer in behind {
        granted(writer).await.release().await.unwrap();
    }
}

#[case(embedded)]
async fn a_writer_behind_a_reader_costs_one_request_more(world: World) {
    let lock = lock(&world).await;
    let reader = lock.read().await.unwrap();
    let before = world.embedded().counters();

    let next = writing(&world, &lock).await;
    assert_eq!(since(&world, &before), 4);
    let _behind = writing(&world, &lock).await;
    let before = world.embedded().counters();
    reader.release().await.unwrap();
    let _next = granted(next).await;

    // The reader left no mark, so the writer lists.
    assert_eq!(since(&world, &before), 3);
    assert_eq!(world.embedded().counters().since(&before).events, 1);
}

#[case(embedded)]
async fn a_reader_behind_a_writer_costs_three_requests_and_two_at_the_hand_over(world: World) {
    let lock = lock(&world).await;
    let writer = lock.write().await.unwrap();
    let before = world.embedded().counters();

    let reader = reading(&world, &lock).await;
    assert_eq!(since(&world, &before), 3);
    let before = world.embedded().counters();
    writer.release().await.unwrap();
    let _reader = granted(reader).await;

    assert_eq!(since(&world, &before), 2);
    assert_eq!(world.embedded().counters().since(&before).events, 1);
}

#[case(embedded)]
async fn a_reader_is_woken_by_the_nearest_earlier_writer_only(world: World) {
    let (lock, server) = (lock(&world).await, world.embedded());
    let first = lock.write().await.unwrap();
    let second = writing(&world, &lock).await;
    let third = writing(&world, &lock).await;
    // In sessions of their own, because a session watches a ticket once for all its waiters.
    let readers = [
        reading(&world, &another(&world).await).await,
        reading(&world, &another(&world).await).await,
        reading(&world, &another(&world).await).await,
    ];
    let behind = writing(&world, &lock).await;
    let before = server.counters();

    let woken = || server.counters().since(&before).events;
    first.release().await.unwrap();
    let second = granted(second).await;
    assert_eq!(woken(), 1, "the second writer alone");
    second.release().await.unwrap();
    let third = granted(third).await;
    assert_eq!(woken(), 2, "the third writer alone");
    // One who leaves between them and the writer wakes the writer behind alone, who waits for the
    // next one then.
    let [one, other, leaving] = readers;
    leaving.abort();
    watching(&world, 3).await;
    eventually("the one behind is woken", SOON, || async { woken() == 3 }).await;
    third.release().await.unwrap();
    let (one, other) = (granted(one).await, granted(other).await);
    assert_eq!(woken(), 5, "the two readers alone");

    one.release().await.unwrap();
    other.release().await.unwrap();
    granted(behind).await.release().await.unwrap();
}

#[case(embedded)]
async fn one_release_lets_all_readers_in_for_one_request_each(world: World) {
    let lock = lock(&world).await;
    let writer = lock.write().await.unwrap();
    let mut readers = Vec::new();
    for asked in 1..=20 {
        let (lock, before) = (lock.clone(), world.embedded().counters());
        readers.push(tokio::spawn(async move { lock.read().await }));
        let watch = || async { since(&world, &before) == 3 };
        eventually("it watches", SOON, watch).await;
        assert_eq!(world.embedded().counters().watches, 1, "{asked} share it");
    }
    let before = world.embedded().counters();

    writer.release().await.unwrap();
    let mut guards = Vec::new();
    for reader in readers {
        guards.push(granted(reader).await);
    }

    assert_eq!(since(&world, &before), 1 + 20);
    assert_eq!(world.embedded().counters().since(&before).events, 1);
    assert_eq!(world.embedded().counters().watches, 0);
}

#[case(embedded)]
async fn a_try_where_somebody_is_writes_nothing(world: World) {
    let lock = lock(&world).await;
    let writer = lock.write().await.unwrap();
    let before = world.embedded().counters();
    assert!(lock.try_write().await.unwrap().is_none());
    assert!(lock.try_read().await.unwrap().is_none());
    let cost = world.embedded().counters().since(&before);
    assert_eq!((requests(&cost), cost.get(Op::MultiRead)), (4, 4));
    writer.release().await.unwrap();

    let _reader = lock.read().await.unwrap();
    let before = world.embedded().counters();
    assert!(lock.try_write().await.unwrap().is_none());
    let cost = world.embedded().counters().since(&before);
    assert_eq!((requests(&cost), cost.get(Op::MultiRead)), (2, 2));
}

#[case(embedded)]
async fn a_downgrade_costs_three_requests(world: World) {
    let lock = lock(&world).await;
    let writer = lock.write().await.unwrap();
    let before = world.embedded().counters();

    let reader = writer.downgrade().await.unwrap();

    assert_eq!(since(&world, &before), 3);
    reader.release().await.unwrap();
    assert_eq!(since(&world, &before), 4);
}

#[case(embedded)]
async fn an_upgrade_costs_five_requests_and_its_refusal_one(world: World) {
    let lock = lock(&world).await;
    let (reader, other) = (lock.read().await.unwrap(), lock.read().await.unwrap());
    let before = world.embedded().counters();
    let reader = reader.try_upgrade().await.unwrap_err().into_guard();
    let cost = world.embedded().counters().since(&before);
    assert_eq!((requests(&cost), cost.get(Op::MultiRead)), (1, 1));
    other.release().await.unwrap();

    let before = world.embedded().counters();
    let _writer = reader.try_upgrade().await.unwrap();

    assert_eq!(since(&world, &before), 5);
}
