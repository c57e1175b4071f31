//! Several locks in one transaction, as their users see them: whole or not at all, in order, and
//! without circles.
//!
//! The modules below it hold crowds, cancelled calls, and what is too large.

pub(crate) mod cancelled;
pub(crate) mod crowd;
pub(crate) mod size;
#[path = "../../examples/transfer.rs"]
#[allow(dead_code, reason = "its main")]
mod transfer;

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use lockkeeper::embedded::{Code, Match, Op};
use lockkeeper::{Error, Keeper, MultiGuard};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use testbench::dice::Dice;
use testbench::stall::Stall;
use testbench::{Make, World, case, eventually};
use testbench::{children, keeper};

pub(crate) const SOON: Duration = Duration::from_secs(3);
const A_WHILE: Duration = Duration::from_millis(150);

/// Locks these in a task.
fn locking(keeper: &Keeper, names: &[&str]) -> JoinHandle<lockkeeper::Result<MultiGuard>> {
    let set = keeper.multi_lock(names.iter().copied()).unwrap();
    tokio::spawn(async move { set.lock().await })
}

async fn soon(locking: JoinHandle<lockkeeper::Result<MultiGuard>>) -> MultiGuard {
    timeout(SOON, locking)
        .await
        .expect("it is granted")
        .unwrap()
        .unwrap()
}

/// Waits until each of these locks has so many tickets.
pub(crate) async fn queued(stranger: &testbench::Stranger, counts: &[(&str, usize)]) {
    for (name, count) in counts {
        let what = format!("{count} tickets in the queue of {name}");
        let there = || async { children(stranger, name).await.len() == *count };
        eventually(&what, SOON, there).await;
    }
}

/// Holds and releases these once, so that their directories are there.
pub(crate) async fn warm(keeper: &Keeper, names: &[&str]) {
    let guard = keeper.lock_all(names.iter().copied()).await.unwrap();
    guard.release().await.unwrap();
}

#[case]
async fn sets_in_any_order_do_not_wait_in_a_circle(world: World) {
    let keepers = [keeper(&world).await, keeper(&world).await];
    let tasks = (0..8).map(|task| {
        let keeper = keepers[task % 2].clone();
        tokio::spawn(async move {
            let mut dice = Dice(task as u64);
            for _ in 0..10 {
                let mut names = ["a", "b", "c", "d"];
                for at in (1..names.len()).rev() {
                    names.swap(at, dice.below(at as u64 + 1) as usize);
                }
                let guard = keeper.lock_all(names[..3].iter().copied()).await.unwrap();
                tokio::task::yield_now().await;
                guard.release().await.unwrap();
            }
        })
    });

    let all = timeout(SOON * 5, join_all(tasks)).await;

    for task in all.expect("nobody waits for ever") {
        task.unwrap();
    }
}

#[case]
async fn a_name_given_twice_is_one_lock(world: World) {
    let (keeper, stranger) = (keeper(&world).await, world.raw().await);
    let set = keeper.multi_lock(["b", "a", "b", "a", "a"]).unwrap();
    let names: Vec<&str> = set.names().map(lockkeeper::LockName::as_str).collect();
    assert_eq!(names, ["b", "a"]);

    let guard = timeout(SOON, set.lock()).await.unwrap().unwrap();

    queued(&stranger, &[("a", 1), ("b", 1)]).await;
    assert_eq!(
        guard.names().map(ToString::to_string).collect::<Vec<_>>(),
        ["b", "a"]
    );
    let queue = keeper.queue("a").await.unwrap();
    assert_eq!(
        queue[0].token,
        guard.token(),
        "one token is the identity of each ticket"
    );
    guard.release().await.unwrap();
    queued(&stranger, &[("a", 0), ("b", 0)]).await;
}

#[case]
async fn a_set_that_cannot_be_is_refused_before_any_io(world: World) {
    let keeper = keeper(&world).await;
    let none: [&str; 0] = [];
    let many = (0..129).map(|number| format!("many/{number}"));
    let long = (0..128).map(|number| format!("{number}{}", "/0123456789".repeat(64)));

    for refused in [
        keeper.multi_lock(none),
        keeper.multi_lock(many),
        keeper.multi_lock(long),
    ] {
        let error = refused.unwrap_err();
        assert!(matches!(error, Error::InvalidOption { .. }), "{error}");
    }
    let error = keeper.multi_lock(["fine", "not//fine"]).unwrap_err();
    assert!(matches!(error, Error::InvalidName { .. }), "{error}");
    let most = (0..128).map(|number| format!("many/{number}"));
    let guard = keeper.lock_all(most).await.unwrap();
    assert_eq!(guard.names().count(), 128);
    guard.release().await.unwrap();
}

#[case]
async fn a_set_is_held_whole_or_not_at_all(world: World) {
    let (a, b, stranger) = (
        keeper(&world).await,
        keeper(&world).await,
        world.raw().await,
    );
    let held = b.mutex("b").unwrap().lock().await.unwrap();
    let mut waiting = locking(&a, &["a", "b", "c"]);
    queued(&stranger, &[("a", 1), ("b", 2), ("c", 1)]).await;

    assert!(
        timeout(A_WHILE, &mut waiting).await.is_err(),
        "one is held by another"
    );
    assert!(
        b.mutex("a").unwrap().try_lock().await.unwrap().is_none(),
        "what is free is kept for the set"
    );
    held.release().await.unwrap();
    let guard = soon(waiting).await;

    assert!(guard.is_held() && guard.valid_for() > Duration::ZERO);
    guard.check().await.unwrap();
    guard.release().await.unwrap();
    for name in ["a", "b", "c"] {
        let next = timeout(SOON, b.mutex(name).unwrap().lock()).await;
        next.unwrap().unwrap().release().await.unwrap();
    }
}

#[case]
async fn a_set_keeps_its_place_among_single_locks(world: World) {
    let (a, b, stranger) = (
        keeper(&world).await,
        keeper(&world).await,
        world.raw().await,
    );
    let before = b.mutex("a").unwrap().lock().await.unwrap();
    let waiting = locking(&a, &["b", "a"]);
    queued(&stranger, &[("a", 2), ("b", 1)]).await;
    let single = b.mutex("b").unwrap();
    let after = tokio::spawn(async move { single.lock().await });
    queued(&stranger, &[("b", 2)]).await;

    let first = before.token();
    before.release().await.unwrap();
    let set = soon(waiting).await;
    assert!(!after.is_finished(), "whoever came later waits for the set");
    let second = set.token();
    set.release().await.unwrap();
    let last = timeout(SOON, after).await.unwrap().unwrap().unwrap();

    assert!(first < second && second < last.token());
    last.release().await.unwrap();
}

#[case]
async fn one_deadline_is_for_the_whole_set_and_names_what_was_waited_for(world: World) {
    let (a, b, stranger) = (
        keeper(&world).await,
        keeper(&world).await,
        world.raw().await,
    );
    let (first, last) = (b.mutex("x").unwrap(), b.mutex("z").unwrap());
    let (first, _last) = (first.lock().await.unwrap(), last.lock().await.unwrap());
    let set = a.multi_lock(["x", "y", "z"]).unwrap();
    let (limit, stall) = (Duration::from_secs(3), Stall::watch());

    let timed = async {
        let began = Instant::now();
        (set.lock_timeout(limit).await, began.elapsed())
    };
    let ((ended, took), ()) = tokio::join!(timed, async {
        queued(&stranger, &[("x", 2), ("y", 1), ("z", 2)]).await;
        first.release().await.unwrap();
    });

    let error = ended.unwrap_err();
    assert!(error.is_timeout(), "{error}");
    assert_eq!(
        error.to_string(),
        "z (of x, y, z) was not granted within 3s"
    );
    let most = limit + Duration::from_millis(150) + stall.longest();
    assert!(took >= limit && took < most, "{took:?}");
    queued(&stranger, &[("x", 0), ("y", 0), ("z", 1)]).await;
}

#[case]
async fn a_try_of_a_set_says_not_now_and_makes_no_directory(world: World) {
    let (a, b, stranger) = (
        keeper(&world).await,
        keeper(&world).await,
        world.raw().await,
    );
    let held = b.mutex("held").unwrap().lock().await.unwrap();
    let set = a.multi_lock(["free", "held"]).unwrap();
    // A server of an ensemble that is behind would let it join, and so write.
    assert_eq!(a.queue("held").await.unwrap().len(), 1);

    for _ in 0..20 {
        assert!(set.try_lock().await.unwrap().is_none());
    }

    assert!(
        stranger.check_stat("/locks/free").await.unwrap().is_none(),
        "nothing was written"
    );
    held.release().await.unwrap();
    stranger.catch_up().await.unwrap();
    let taken = || async { set.try_lock().await.unwrap() };
    let guard = eventually("the free set is taken", SOON, taken).await;
    assert!(b.mutex("free").unwrap().try_lock().await.unwrap().is_none());
    guard.release().await.unwrap();
}

#[case]
async fn a_lock_and_one_below_its_name_are_held_together(world: World) {
    let (keeper, stranger) = (keeper(&world).await, world.raw().await);

    let guard = timeout(SOON, keeper.lock_all(["orders", "orders/42"]))
        .await
        .unwrap()
        .unwrap();

    queued(&stranger, &[("orders", 2), ("orders/42", 1)]).await;
    guard.release().await.unwrap();
    queued(&stranger, &[("orders", 1), ("orders/42", 0)]).await;
}

#[case]
async fn a_ticket_broken_while_its_set_waits_ends_the_wait_of_all(world: World) {
    let (a, b, stranger) = (
        keeper(&world).await,
        keeper(&world).await,
        world.raw().await,
    );
    for broken in ["b", "c"] {
        let held = b.mutex("b").unwrap().lock().await.unwrap();
        let waiting = locking(&a, &["a", "b", "c"]);
        queued(&stranger, &[("a", 1), ("b", 2), ("c", 1)]).await;
        let mut tickets = children(&stranger, broken).await;
        tickets.retain(|ticket| ticket != held.node() || broken != "b");
        let path = format!("/locks/{broken}/{}", tickets[0]);
        stranger.delete(&path, None).await.unwrap();

        held.release().await.unwrap();
        let error = timeout(SOON, waiting).await.unwrap().unwrap().unwrap_err();

        let is_it = matches!(&error, Error::PlaceLost { name, .. } if name == broken);
        assert!(is_it, "{broken}: {error}");
        queued(&stranger, &[("a", 0), ("b", 0), ("c", 0)]).await;
    }
}

#[case]
async fn a_ticket_broken_while_its_set_is_held_is_named(world: World) {
    let builder = Keeper::builder(world.connect_string());
    let a = builder
        .session_timeout(Duration::from_secs(4))
        .connect()
        .await
        .unwrap();
    let stranger = world.raw().await;
    let guard = a.lock_all(["a", "b", "c"]).await.unwrap();
    let ticket = children(&stranger, "b").await.remove(0);

    stranger
        .delete(&format!("/locks/b/{ticket}"), None)
        .await
        .unwrap();
    let error = timeout(SOON, guard.lost()).await.expect("a beat notices");

    assert!(
        matches!(&error, Error::PlaceLost { name, .. } if name == "b"),
        "{error}"
    );
    assert!(!guard.is_held());
    let error = guard.release().await.unwrap_err();
    assert!(
        matches!(&error, Error::PlaceLost { name, .. } if name == "b"),
        "{error}"
    );
    queued(&stranger, &[("a", 0), ("b", 0), ("c", 0)]).await;
}

#[case]
async fn a_set_writes_only_while_all_its_tickets_are_there(world: World) {
    let (a, stranger) = (keeper(&world).await, world.raw().await);
    let guard = a.lock_all(["a", "b"]).await.unwrap();
    guard.fenced().create("/moved", "1").commit().await.unwrap();
    let ticket = children(&stranger, "b").await.remove(0);
    stranger
        .delete(&format!("/locks/b/{ticket}"), None)
        .await
        .unwrap();

    let error = guard
        .fenced()
        .set("/moved", "2", None)
        .commit()
        .await
        .unwrap_err();

    assert!(error.is_lost(), "{error}");
    stranger.catch_up().await.unwrap();
    assert_eq!(stranger.get_data("/moved").await.unwrap().0, b"1");
}

#[case]
async fn the_example_moves_money_and_loses_none(world: World) {
    let total = transfer::transfer(&world.connect_string()).await.unwrap();

    assert_eq!(total, 4_000);
}

#[case(embedded)]
async fn a_set_costs_two_requests_and_its_release_one(world: World) {
    let (keeper, server) = (keeper(&world).await, world.embedded());
    let names: Vec<String> = (0..32).map(|number| format!("cost/{number}")).collect();
    let set = keeper.multi_lock(names).unwrap();
    set.lock().await.unwrap().release().await.unwrap();
    let before = server.counters();

    let guard = set.lock().await.unwrap();
    let locked = server.counters();
    guard.release().await.unwrap();
    let released = server.counters();

    let (locking, releasing) = (locked.since(&before), released.since(&locked));
    assert_eq!(
        (locking.get(Op::Multi), locking.get(Op::MultiRead)),
        (1, 1),
        "{locking:?}"
    );
    assert_eq!(releasing.get(Op::Multi), 1, "{releasing:?}");
    assert_eq!(
        releasing.get(Op::Delete) + releasing.get(Op::MultiRead),
        0,
        "{releasing:?}"
    );
}

#[case(embedded)]
async fn a_set_of_one_costs_no_more(world: World) {
    let (keeper, server) = (keeper(&world).await, world.embedded());
    let set = keeper.multi_lock(["one"]).unwrap();
    set.lock().await.unwrap().release().await.unwrap();
    let before = server.counters();

    let guard = set.lock().await.unwrap();

    let locking = server.counters().since(&before);
    assert_eq!(locking.get(Op::MultiRead), 1, "{locking:?}");
    guard.release().await.unwrap();
}

#[case(embedded)]
async fn a_try_of_a_set_sits_the_lock_delay_out_once(world: World) {
    let delay = Duration::from_millis(400);
    let builder = Keeper::builder(world.connect_string()).lock_delay(delay);
    let keeper = builder.connect().await.unwrap();
    // How the earlier holds in these directories ended is unknown.
    let set = keeper.multi_lock(["a", "b", "c", "d"]).unwrap();
    let began = Instant::now();

    let guard = set.try_lock().await.unwrap().expect("nobody has them");

    let took = began.elapsed();
    assert!(took >= delay && took < 3 * delay, "{took:?}");
    guard.release().await.unwrap();
}

#[case(embedded)]
async fn a_deadline_before_all_were_confirmed_names_the_set(world: World) {
    // Its client waits longer for an answer than the deadline is away.
    let patient = Keeper::builder(world.connect_string()).session_timeout(SOON * 20);
    let (a, b) = (patient.connect().await.unwrap(), keeper(&world).await);
    let stranger = world.raw().await;
    let held = b.mutex("b").unwrap().lock().await.unwrap();
    let set = a.multi_lock(["a", "b"]).unwrap();
    let limit = Duration::from_secs(3);

    let (ended, hold) = tokio::join!(set.lock_timeout(limit), async {
        queued(&stranger, &[("a", 1), ("b", 2)]).await;
        let watches = || async { world.embedded().counters().watches == 1 };
        eventually("it watches", SOON, watches).await;
        // The look at both together, after which they are held.
        let both = Match::op(Op::MultiRead).path_contains("/locks/a");
        let hold = world.embedded().faults().on(both).hold_reply();
        held.release().await.unwrap();
        let looked = timeout(SOON, hold.reached()).await;
        looked.expect("it looks before its time is over");
        hold
    });

    let error = ended.unwrap_err();
    assert_eq!(error.to_string(), "a, b was not granted within 3s");
    hold.release();
}

#[case(embedded)]
async fn a_set_that_finds_a_stranger_under_its_number_spares_it(world: World) {
    let (a, b) = (keeper(&world).await, keeper(&world).await);
    let (stranger, faults) = (world.raw().await, world.embedded().faults());
    let held = b.mutex("b").unwrap().lock().await.unwrap();
    let waiting = locking(&a, &["a", "b"]);
    queued(&stranger, &[("a", 1), ("b", 2)]).await;
    let watches = || async { world.embedded().counters().watches == 1 };
    eventually("it has its turn at one of them", SOON, watches).await;

    // An operator breaks that ticket, its directory goes, and another one has its number in the
    // next.
    let ticket = children(&stranger, "a").await.remove(0);
    faults
        .remove(&format!("{}/locks/a/{ticket}", world.chroot()))
        .unwrap();
    faults.reap_containers();
    let other = b.mutex("a").unwrap().lock().await.unwrap();
    assert_eq!(other.node(), ticket);
    held.release().await.unwrap();

    let error = timeout(SOON, waiting).await.unwrap().unwrap().unwrap_err();
    assert!(
        matches!(&error, Error::PlaceLost { name, .. } if name == "a"),
        "{error}"
    );
    a.close().await;
    other.check().await.expect("it is the other one's");
    other.release().await.unwrap();
}

#[case(embedded)]
async fn a_set_that_was_held_for_long_is_released_in_one_transaction(world: World) {
    let (keeper, server) = (keeper(&world).await, world.embedded());
    let names: Vec<String> = (0..32).map(|number| format!("cost/{number}")).collect();
    let guard = keeper.lock_all(names).await.unwrap();
    // The hold itself: long enough that the tickets must be read again before they are deleted by
    // name.
    tokio::time::sleep(Duration::from_millis(1100)).await;
    let before = server.counters();

    guard.release().await.unwrap();

    let cost = server.counters().since(&before);
    let (reads, writes) = (cost.get(Op::MultiRead), cost.get(Op::Multi));
    // A beat may come in between.
    assert!(
        reads <= 2 && writes <= 2 && cost.get(Op::Delete) == 0,
        "{cost:?}"
    );
}

#[case(embedded)]
async fn a_set_that_waits_is_looked_at_together_before_it_is_held(world: World) {
    let builder = Keeper::builder(world.connect_string());
    // Beats every quarter of a second: what was seen before the wait is old after it.
    let a = builder
        .session_timeout(Duration::from_millis(1500))
        .connect()
        .await
        .unwrap();
    let (b, stranger) = (keeper(&world).await, world.raw().await);
    let held = b.mutex("b").unwrap().lock().await.unwrap();
    let waiting = locking(&a, &["a", "b", "c"]);
    queued(&stranger, &[("a", 1), ("b", 2), ("c", 1)]).await;
    let before = world.embedded().counters();
    // The wait itself: longer than a beat.
    tokio::time::sleep(Duration::from_millis(400)).await;

    held.release().await.unwrap();
    let guard = soon(waiting).await;

    let cost = world.embedded().counters().since(&before);
    assert!(
        cost.get(Op::GetChildren) == 0 && cost.get(Op::MultiRead) >= 2,
        "{cost:?}"
    );
    guard.release().await.unwrap();
}

#[case(embedded)]
async fn a_counter_that_ran_out_in_one_queue_is_waited_out_by_the_set(world: World) {
    let (a, b) = (keeper(&world).await, keeper(&world).await);
    let (stranger, faults) = (world.raw().await, world.embedded().faults());
    let path = format!("{}/locks/end", world.chroot());
    // At its end the counter gives the last number, which is no place, or collides with the ticket
    // that has it.
    for collides in [false, true] {
        warm(&a, &["end", "other"]).await;
        faults.set_sequence(&path, i32::MAX - 1).unwrap();
        let held = b.mutex("end").unwrap().lock().await.unwrap();
        let last = "/locks/end/lock-2147483647";
        if collides {
            let options = Make::Ephemeral;
            stranger.create(last, b"", &options).await.unwrap();
        }

        let waiting = locking(&a, &["other", "end"]);
        let looks = world.embedded().counters().get(Op::MultiRead);
        let waits = || async { world.embedded().counters().get(Op::MultiRead) > looks + 1 };
        eventually("it waits for the directory to be empty", SOON, waits).await;
        queued(
            &stranger,
            &[("other", 0), ("end", 1 + usize::from(collides))],
        )
        .await;
        held.release().await.unwrap();
        if collides {
            stranger.delete(last, None).await.unwrap();
        }
        let guard = soon(waiting).await;

        let ticket = children(&stranger, "end").await.remove(0);
        assert_eq!(ticket, "lock-0000000000", "numbers have begun again");
        guard.release().await.unwrap();
        queued(&stranger, &[("other", 0), ("end", 0)]).await;
    }
}

#[case(embedded)]
async fn a_busy_server_is_asked_again_for_a_set(world: World) {
    let (a, faults) = (keeper(&world).await, world.embedded().faults());
    warm(&a, &["a", "b"]).await;
    for op in [Op::Multi, Op::MultiRead] {
        for code in [Code::SessionMoved, Code::Throttled] {
            faults
                .on(Match::op(op).path_contains("/locks/a"))
                .times(2)
                .fail(code);

            let guard = timeout(SOON, a.lock_all(["a", "b"])).await.unwrap();

            guard
                .unwrap_or_else(|error| panic!("{op:?} {code:?}: {error}"))
                .release()
                .await
                .unwrap();
            assert_eq!(faults.armed_rules(), 0, "the server was busy");
        }
    }
}

#[case(embedded)]
async fn a_set_that_waited_through_the_end_of_its_session_joins_again(world: World) {
    let (a, b, stranger) = (
        keeper(&world).await,
        keeper(&world).await,
        world.raw().await,
    );
    let held = b.mutex("b").unwrap().lock().await.unwrap();
    let waiting = locking(&a, &["a", "b"]);
    queued(&stranger, &[("a", 1), ("b", 2)]).await;
    let before = children(&stranger, "a").await;

    world
        .embedded()
        .faults()
        .expire_session(a.queue("a").await.unwrap()[0].session);
    let again = || async {
        let now = children(&stranger, "a").await;
        now.len() == 1 && now != before
    };
    eventually("it stands in the queue again", SOON, again).await;
    held.release().await.unwrap();

    soon(waiting).await.release().await.unwrap();
}

#[case(embedded)]
async fn a_set_without_rejoin_says_that_its_session_is_over(world: World) {
    let (a, b, stranger) = (
        keeper(&world).await,
        keeper(&world).await,
        world.raw().await,
    );
    let _held = b.mutex("b").unwrap().lock().await.unwrap();
    let set = a
        .multi_lock(["a", "b"])
        .unwrap()
        .with_rejoin(false)
        .with_label("once");
    let waiting = tokio::spawn(async move { set.lock().await });
    queued(&stranger, &[("a", 1), ("b", 2)]).await;
    let queue = a.queue("a").await.unwrap();
    assert_eq!(queue[0].label.as_deref(), Some("once"));

    world.embedded().faults().expire_session(queue[0].session);

    let error = timeout(SOON * 2, waiting)
        .await
        .unwrap()
        .unwrap()
        .unwrap_err();
    assert!(error.is_session_over(), "{error}");
    queued(&stranger, &[("a", 0), ("b", 1)]).await;
}
