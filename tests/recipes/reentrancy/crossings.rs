//! Trouble around guests and places: visits that are refused, delays that come later, changes that
//! cross each other.
//!
//! Each case was a defect of a draft of this library.

use std::time::{Duration, Instant};

use lockkeeper::embedded::{Code, Match, Op};
use lockkeeper::{Error, Keeper, Owner};
use tokio::time::timeout;

use super::{SOON, comes_in, owned, waiter};
use testbench::{World, case, eventually};
use testbench::{children, keeper};

#[case]
async fn every_future_can_cross_threads(world: World) {
    fn check<F: Future + Send>(_future: &F) {}

    let (keeper, owner) = (keeper(&world).await, Owner::new());
    let lock = keeper.mutex("send").unwrap().with_owner(&owner);
    check(&lock.lock());
    check(&lock.try_lock());
    check(&lock.enqueue());
    let mut place = lock.enqueue().await.unwrap();
    check(&place.position());
    check(&place.advanced());
    check(&place.granted());
    let guard = place.granted().await.unwrap();
    check(&guard.check());
    check(&guard.run(async {}));
    check(&guard.fenced().commit());
    check(&guard.release());
    let table = keeper.rw_lock("table").unwrap().with_owner(&owner);
    check(&table.read());
    check(&table.write());
    check(&table.try_read());
    check(&table.try_write());
    let writer = table.write().await.unwrap();
    let reader = writer.downgrade();
    check(&reader);
    check(&reader.await.unwrap().try_upgrade());
    let slots = keeper.semaphore("slots", 2).unwrap();
    check(&slots.acquire());
    check(&slots.try_acquire());
    check(&slots.resize(3));
}

#[case]
async fn a_guest_that_is_in_has_nobody_before_it(world: World) {
    let (a, b, c) = (
        keeper(&world).await,
        keeper(&world).await,
        keeper(&world).await,
    );
    let owner = Owner::named("job");
    let lock = a.mutex("in").unwrap().with_owner(&owner);
    let _host = lock.lock().await.unwrap();
    let _waits = b.mutex("in").unwrap().enqueue().await.unwrap();
    let lock = c.mutex("in").unwrap().with_owner(&owner);
    let mut place = lock.enqueue().await.unwrap();

    timeout(SOON, place.advanced()).await.unwrap().unwrap();

    assert_eq!(place.position().await.unwrap(), 0);
}

/// Its server may lag, and not show the hold. Then a holder that asks again, through a keeper whose
/// call is in the queue already, would wait for that call, which waits for those behind the holder.
#[case(embedded)]
async fn a_call_that_is_told_of_its_owners_hold_lists_behind_a_sync(world: World) {
    let (a, b, c) = (
        keeper(&world).await,
        keeper(&world).await,
        keeper(&world).await,
    );
    let counters = || world.embedded().counters();
    let first = c.mutex("again").unwrap().lock().await.unwrap();
    let holder = waiter(owned(&a, "again", "job")).await;
    let behind = waiter(c.mutex("again").unwrap()).await;
    let call = || {
        let lock = owned(&b, "again", "job");
        tokio::spawn(async move { lock.lock().await.unwrap() })
    };
    let early = call();
    let all_wait = || async { counters().watches == 3 };
    eventually("all wait", SOON, all_wait).await;
    first.release().await.unwrap();
    let host = comes_in(holder).await;
    let before = counters();

    let late = call();

    let (early, late) = (comes_in(early).await, comes_in(late).await);
    assert_eq!([early.token(), late.token()], [host.token(); 2]);
    assert_eq!(counters().since(&before).get(Op::Sync), 1);
    drop((early, late, host));
    comes_in(behind).await.release().await.unwrap();
}

/// Otherwise a stream of calls would starve those that wait.
#[case(embedded)]
async fn a_call_that_comes_while_a_list_is_on_its_way_does_not_throw_it_away(world: World) {
    let (a, b) = (keeper(&world).await, keeper(&world).await);
    let embedded = world.embedded();
    let syncs = || embedded.counters().get(Op::Sync);
    let first = a.mutex("again").unwrap().lock().await.unwrap();
    let call = || {
        let lock = owned(&b, "again", "job");
        tokio::spawn(async move { lock.lock().await.unwrap() })
    };
    let mut calls = vec![call()];
    let waits = || async { embedded.counters().watches == 1 };
    eventually("it waits", SOON, waits).await;
    let (before, on_its_way) = (
        syncs(),
        embedded.faults().on(Match::op(Op::Sync)).hold_reply(),
    );
    calls.push(call());
    on_its_way.reached().await;

    calls.push(call());
    tokio::time::sleep(Duration::from_millis(100)).await;

    assert_eq!(syncs() - before, 1, "it waits for its answer");
    on_its_way.release();
    eventually("it looks once more", SOON, || async {
        syncs() - before == 2
    })
    .await;
    first.release().await.unwrap();
    for call in calls {
        drop(comes_in(call).await);
    }
}

// A visit is a matter of names: what it rests on must have been seen a moment ago.
#[case(embedded)]
async fn a_refused_visit_spares_strangers_when_it_is_asked_for_again(world: World) {
    let (a, b, c, d) = (
        keeper(&world).await,
        keeper(&world).await,
        keeper(&world).await,
        keeper(&world).await,
    );
    let (stranger, faults) = (world.raw().await, world.embedded().faults());
    let owner = Owner::named("job");
    let lock = a.mutex("visit").unwrap().with_owner(&owner);
    let host = lock.lock().await.unwrap();
    let lock = b.mutex("visit").unwrap().with_owner(&owner);
    let mut place = lock.enqueue().await.unwrap();
    faults
        .on(Match::op(Op::Multi).path_contains("/visit/_c_"))
        .fail(Code::NoAuth);
    let error = place.granted().await.unwrap_err();
    assert!(matches!(error, Error::Denied { .. }), "{error}");

    // Meanwhile an operator clears the queue, the directory goes, and strangers take the same
    // numbers.
    let root = format!("{}/locks/visit", world.chroot());
    faults.remove(&format!("{root}/{}", host.node())).unwrap();
    faults.remove(&format!("{root}/lock-0000000001")).unwrap();
    faults.reap_containers();
    let held = c.mutex("visit").unwrap().lock().await.unwrap();
    let _waits = d.mutex("visit").unwrap().enqueue().await.unwrap();

    let told = timeout(SOON, place.granted()).await.unwrap();

    let mut left = children(&stranger, "visit").await;
    left.sort();
    assert_eq!(left, [held.node(), "lock-0000000001"], "{told:?}");
    assert!(told.unwrap_err().is_lost());
}

#[case(embedded)]
async fn a_guest_that_came_too_late_still_sits_the_lock_delay_out(world: World) {
    let delay = Duration::from_millis(600);
    let patient = || Keeper::builder(world.connect_string()).lock_delay(delay);
    let (a, b) = (patient().connect().await, patient().connect().await);
    let (a, b) = (a.unwrap(), b.unwrap());
    let (crashing, faults) = (keeper(&world).await, world.embedded().faults());
    let first = crashing.mutex("late").unwrap().lock().await.unwrap();
    first.release().await.unwrap();
    let owner = Owner::named("job");
    let lock = a.mutex("late").unwrap().with_owner(&owner);
    let host = lock.lock().await.unwrap();
    let mut second = crashing.mutex("late").unwrap().enqueue().await.unwrap();
    let lock = b.mutex("late").unwrap().with_owner(&owner);
    let mut place = lock.enqueue().await.unwrap();
    // The host releases after the visitor has seen it, and before the visit.
    let visit = faults
        .on(Match::op(Op::Multi).path_contains("/late/_c_"))
        .stop_before();
    let visitor = tokio::spawn(async move { (place.granted().await, Instant::now()) });
    visit.reached().await;
    host.release().await.unwrap();
    let _held = second.granted().await.unwrap();
    visit.release();
    // The visitor finds that the host is gone, and waits for the second one.
    tokio::time::sleep(Duration::from_millis(100)).await;

    let crashed = Instant::now();
    crashing.close().await;

    let (granted, at) = timeout(SOON, visitor).await.unwrap().unwrap();
    let _guard = granted.unwrap();
    assert!(at - crashed >= delay, "{:?}", at - crashed);
}

#[case(embedded)]
async fn a_place_learns_that_it_moved_up_although_the_one_before_was_changed_first(world: World) {
    let (a, b, c) = (
        keeper(&world).await,
        keeper(&world).await,
        keeper(&world).await,
    );
    let faults = world.embedded().faults();
    let _held = a.mutex("moves").unwrap().lock().await.unwrap();
    let _before = b.mutex("moves").unwrap().enqueue().await.unwrap();
    let mut place = c.mutex("moves").unwrap().enqueue().await.unwrap();
    assert!(
        timeout(Duration::from_millis(100), place.advanced())
            .await
            .is_err()
    );
    let before = format!("{}/locks/moves/lock-0000000001", world.chroot());
    let again = faults.on(Match::any().path(before.as_str())).stop_before();
    let moves = tokio::spawn(async move { place.advanced().await.map(|()| place) });
    faults.set_data(&before, b"someone wrote").unwrap();
    again.reached().await;
    faults.remove(&before).unwrap();
    again.release();

    let moved = timeout(SOON, moves).await;

    let place = moved.expect("it moved up").unwrap().unwrap();
    assert_eq!(place.position().await.unwrap(), 1);
}

#[case(embedded)]
async fn a_release_that_a_busy_server_puts_off_is_no_crash(world: World) {
    let delay = Duration::from_millis(1500);
    let (a, faults) = (keeper(&world).await, world.embedded().faults());
    let patient = Keeper::builder(world.connect_string()).lock_delay(delay);
    let patient = patient.connect().await.unwrap();
    let guard = a.mutex("busy").unwrap().lock().await.unwrap();
    let mut place = patient.mutex("busy").unwrap().enqueue().await.unwrap();
    let next = tokio::spawn(async move { place.granted().await });
    let ticket = format!("/locks/busy/{}", guard.node());
    faults
        .on(Match::op(Op::Multi).path_contains(ticket.as_str()))
        .fail(Code::Throttled);
    let began = Instant::now();

    guard.release().await.unwrap();

    let _guard = timeout(SOON, next).await.unwrap().unwrap().unwrap();
    assert!(began.elapsed() < delay, "{:?}", began.elapsed());
}
