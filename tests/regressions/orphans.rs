//! Orphans: tickets without a waiter that no client will ever remove. None may be left behind.
//!
//! Rows 1 to 8: the outcome of a create or of a delete is unknown.

use std::time::Duration;

use lockkeeper::embedded::{Code, Match, Op};
use lockkeeper::{Error, Place};
use tokio::time::timeout;
use zookeeper_client::{Acl, AuthId, Permission};

use super::wire::Loss;
use super::{SOON, on_a_wire, own_session};
use crate::recipes::cancel::cancelled_after;
use testbench::{Stranger, World, case, eventually};
use testbench::{children, keeper};

/// No ticket is left in a lock's queue.
async fn is_empty(stranger: &Stranger, lock: &str) {
    let empty = || async { children(stranger, lock).await.is_empty() };
    eventually("no ticket is left", SOON * 2, empty).await;
}

#[case]
async fn row_01_a_ticket_whose_create_had_no_reply_is_adopted(world: World) {
    let (keeper, wire) = on_a_wire(&world).await;
    let stranger = world.raw().await;
    let lock = keeper.mutex("adopted").unwrap();
    lock.lock().await.unwrap().release().await.unwrap();

    wire.lose(Loss::Reply, 0, 1);
    let guard = timeout(SOON, lock.lock()).await.unwrap().unwrap();

    assert!(!wire.forget(), "the reply was lost");
    assert_eq!(children(&stranger, "adopted").await, [guard.node()]);
    guard.release().await.unwrap();
    is_empty(&stranger, "adopted").await;
}

/// What Curator's `Revoker` writes.
async fn revoke(stranger: &Stranger, lock: &str, node: &str) {
    let path = format!("/locks/{lock}/{node}");
    stranger.set_data(&path, b"__REVOKE__", None).await.unwrap();
}

/// Waits for so many tickets in a lock's queue. Their names, in order.
async fn tickets(stranger: &Stranger, lock: &str, count: usize) -> Vec<String> {
    let are_there = || async { children(stranger, lock).await.len() == count };
    eventually("the create has happened", SOON * 4, are_there).await;
    let mut nodes = children(stranger, lock).await;
    nodes.sort();
    nodes
}

async fn takes_its_turn(mut place: Place) {
    let granted = timeout(SOON, place.granted()).await.unwrap();
    granted.unwrap().release().await.unwrap();
}

#[case]
async fn row_01_a_ticket_that_curator_wrote_over_before_its_reply_was_lost_goes(world: World) {
    let (keeper, wire) = on_a_wire(&world).await;
    let stranger = world.raw().await;
    let lock = keeper.mutex("asked").unwrap();
    lock.lock().await.unwrap().release().await.unwrap();
    // A waiter, and a caller that has given up by then.
    for waits in [true, false] {
        let lock = lock.clone();
        let locking = async move {
            let guard = lock.lock().await.unwrap();
            let node = guard.node().to_owned();
            guard.release().await.unwrap();
            node
        };
        wire.mute();
        let locking = tokio::spawn(locking);
        let orphan = tickets(&stranger, "asked", 1).await.remove(0);
        revoke(&stranger, "asked", &orphan).await;
        if !waits {
            locking.abort();
        }
        wire.fail().await;

        if waits {
            let granted = timeout(SOON, locking)
                .await
                .expect("it is not behind itself");
            assert_ne!(granted.unwrap(), orphan);
        }
        is_empty(&stranger, "asked").await;
    }
}

#[case(zookeeper, why = "access lists and credentials")]
async fn row_01_a_ticket_that_may_not_be_read_when_its_reply_was_lost_goes(world: World) {
    let (keeper, wire) = on_a_wire(&world).await;
    let stranger = world.raw().await;
    let lock = keeper.mutex("hidden").unwrap();
    lock.lock().await.unwrap().release().await.unwrap();
    wire.mute();
    let locking = tokio::spawn(async move { lock.lock().await.map(drop) });
    let orphan = tickets(&stranger, "hidden", 1).await.remove(0);
    let path = format!("/locks/hidden/{orphan}");
    let unread = [Acl::new(Permission::WRITE, AuthId::anyone())];
    stranger
        .zookeeper()
        .set_acl(&path, &unread, None)
        .await
        .unwrap();
    locking.abort();
    wire.fail().await;

    is_empty(&stranger, "hidden").await;
}

#[case(zookeeper, why = "access lists and credentials", within = 120)]
async fn row_01_a_caller_gets_no_place_behind_its_tickets_that_may_not_be_read(world: World) {
    // More than twice as many as are removed at the same time.
    const GONE: usize = 600;
    let (keeper, wire) = on_a_wire(&world).await;
    let stranger = world.raw().await;
    let lock = keeper.mutex("unread").unwrap();
    lock.lock().await.unwrap().release().await.unwrap();
    wire.mute();
    let calls = || {
        let lock = lock.clone();
        tokio::spawn(async move { lock.lock().await })
    };
    let gone: Vec<_> = (0..GONE).map(|_| calls()).collect();
    let waits = calls();
    let unread = [Acl::new(Permission::WRITE, AuthId::anyone())];
    for orphan in tickets(&stranger, "unread", GONE + 1).await {
        let path = format!("/locks/unread/{orphan}");
        stranger
            .zookeeper()
            .set_acl(&path, &unread, None)
            .await
            .unwrap();
    }
    gone.iter().for_each(tokio::task::JoinHandle::abort);

    wire.fail().await;

    let guard = timeout(SOON * 4, waits).await.unwrap().unwrap().unwrap();
    assert_eq!(children(&stranger, "unread").await, [guard.node()]);
    guard.release().await.unwrap();
}

#[case(zookeeper, why = "access lists and credentials")]
async fn row_01_a_waiting_ticket_that_may_not_be_read_stays(world: World) {
    let (keeper, wire) = on_a_wire(&world).await;
    let stranger = world.raw().await;
    let lock = keeper.mutex("seen").unwrap();
    let guard = lock.lock().await.unwrap();
    let place = lock.enqueue().await.unwrap();
    let known = tickets(&stranger, "seen", 2).await;
    let path = format!("/locks/seen/{}", known[1]);
    let unread = [Acl::new(Permission::WRITE, AuthId::anyone())];
    stranger
        .zookeeper()
        .set_acl(&path, &unread, None)
        .await
        .unwrap();

    wire.lose(Loss::Reply, 0, 1);
    let last = timeout(SOON, lock.enqueue()).await.unwrap().unwrap();

    assert!(!wire.forget(), "the reply was lost");
    assert_eq!(tickets(&stranger, "seen", 3).await[..2], known);
    drop((guard, place, last));
}

#[case]
async fn row_01_a_set_of_which_curator_wrote_over_one_is_made_again(world: World) {
    let (keeper, wire) = on_a_wire(&world).await;
    let stranger = world.raw().await;
    let set = || keeper.lock_all(["one", "two"]);
    set().await.unwrap().release().await.unwrap();
    wire.mute();

    let (granted, ()) = tokio::join!(timeout(SOON * 2, set()), async {
        let orphan = tickets(&stranger, "two", 1).await.remove(0);
        revoke(&stranger, "two", &orphan).await;
        wire.fail().await;
    });

    let granted = granted.expect("it is not behind itself").unwrap();
    for lock in ["one", "two"] {
        assert_eq!(children(&stranger, lock).await.len(), 1);
    }
    granted.release().await.unwrap();
}

#[case]
async fn row_01_a_waiting_ticket_that_curator_wrote_over_stays(world: World) {
    let (keeper, wire) = on_a_wire(&world).await;
    let stranger = world.raw().await;
    let lock = keeper.mutex("known").unwrap();
    let guard = lock.lock().await.unwrap();
    let place = lock.enqueue().await.unwrap();
    let known = tickets(&stranger, "known", 2).await;
    for node in &known {
        revoke(&stranger, "known", node).await;
    }

    wire.lose(Loss::Reply, 0, 1);
    let last = timeout(SOON, lock.enqueue()).await.unwrap().unwrap();

    assert!(!wire.forget(), "the reply was lost");
    assert_eq!(tickets(&stranger, "known", 3).await[..2], known);
    guard.release().await.unwrap();
    takes_its_turn(place).await;
    takes_its_turn(last).await;
}

#[case]
async fn row_01_an_answer_that_nobody_took_in_is_no_orphan(world: World) {
    let (keeper, wire) = on_a_wire(&world).await;
    let stranger = world.raw().await;
    let lock = keeper.mutex("unpolled").unwrap();
    lock.lock().await.unwrap().release().await.unwrap();
    // Answered, and not polled any more. Its one poll may take as long as all answers need.
    wire.mute();
    let mut asked = Box::pin(lock.lock());
    assert!(futures_util::poll!(&mut asked).is_pending());
    wire.up();
    let first = tickets(&stranger, "unpolled", 1).await;
    keeper.queue("unpolled").await.unwrap();
    revoke(&stranger, "unpolled", &first[0]).await;

    wire.mute();
    let (next, ()) = tokio::join!(timeout(SOON, lock.enqueue()), async {
        let both = tickets(&stranger, "unpolled", 2).await;
        revoke(&stranger, "unpolled", &both[1]).await;
        wire.fail().await;
    });

    // Whose is whose is known as soon as the first one is.
    let next = next.unwrap().unwrap();
    assert_eq!(children(&stranger, "unpolled").await.len(), 3);
    let guard = timeout(SOON, asked).await.unwrap().unwrap();
    assert_eq!(guard.node(), first[0]);
    let two = || async { children(&stranger, "unpolled").await.len() == 2 };
    eventually("the one that nobody has goes", SOON, two).await;
    guard.release().await.unwrap();
    takes_its_turn(next).await;
}

#[case]
async fn row_02_a_ticket_that_came_of_a_given_up_create_is_removed(world: World) {
    let (keeper, wire) = on_a_wire(&world).await;
    let stranger = world.raw().await;
    let session = own_session(&keeper).await;
    let lock = keeper.mutex("late").unwrap();
    lock.lock().await.unwrap().release().await.unwrap();

    wire.mute();
    let (given_up, ()) = tokio::join!(lock.lock_timeout(Duration::from_millis(300)), async {
        let created = || async { children(&stranger, "late").await.len() == 1 };
        eventually("the create has happened", SOON, created).await;
        wire.down();
    });
    assert!(given_up.unwrap_err().is_timeout());
    assert_eq!(children(&stranger, "late").await.len(), 1);
    wire.up();

    is_empty(&stranger, "late").await;
    assert_eq!(own_session(&keeper).await, session, "the session lives");
}

#[case]
async fn row_03_a_connection_lost_at_any_request_leaves_nothing(world: World) {
    let (a, wire) = on_a_wire(&world).await;
    let (b, stranger) = (keeper(&world).await, world.raw().await);
    let lock = a.mutex("steps").unwrap();
    for loss in [Loss::Request, Loss::Reply] {
        for pass in 0.. {
            assert!(pass < 20, "a lock does not need so many requests");
            let guard = b.mutex("steps").unwrap().lock().await.unwrap();

            wire.lose(loss, pass, 1);
            let (granted, ()) = tokio::join!(timeout(SOON, lock.lock()), async {
                let queued = || async { children(&stranger, "steps").await.len() == 2 };
                eventually("the other is queued", SOON, queued).await;
                guard.release().await.unwrap();
            });
            let granted = granted.unwrap_or_else(|_| panic!("{loss:?} of request {pass}"));
            granted.unwrap().release().await.unwrap();

            is_empty(&stranger, "steps").await;
            if wire.forget() {
                break;
            }
        }
    }
}

#[case(embedded)]
async fn row_03_an_error_at_any_request_leaves_nothing(world: World) {
    let (a, b) = (keeper(&world).await, keeper(&world).await);
    let (stranger, faults) = (world.raw().await, world.embedded().faults());
    let session = own_session(&a).await;
    let directory = format!("{}/locks/steps", world.chroot());
    let walk = [Op::Create, Op::MultiRead, Op::GetData, Op::Multi];
    for code in [Code::NoAuth, Code::QuotaExceeded, Code::MarshallingError] {
        for op in walk {
            let guard = b.mutex("steps").unwrap().lock().await.unwrap();
            let rule = Match::op(op).session(session).path_prefix(&directory);
            faults.on(rule).fail(code);

            let lock = a.mutex("steps").unwrap();
            let cycle = tokio::spawn(async move { lock.lock().await?.release().await });
            let is_past =
                || async { cycle.is_finished() || world.embedded().counters().watches == 1 };
            eventually("it has failed or waits", SOON, is_past).await;
            guard.release().await.unwrap();

            let ended = timeout(SOON, cycle).await.unwrap().unwrap();
            assert_eq!(faults.armed_rules(), 0, "{op:?} met the error");
            if let Err(error) = ended {
                assert!(
                    error.is_denied() || matches!(error, Error::Refused { .. }),
                    "{op:?}: {error}"
                );
            }
            is_empty(&stranger, "steps").await;
        }
    }
}

#[case]
async fn row_04_a_lock_dropped_at_any_poll_after_a_lost_reply_leaves_nothing(world: World) {
    let (keeper, wire) = on_a_wire(&world).await;
    let stranger = world.raw().await;
    let lock = keeper.mutex("polls").unwrap();
    lock.lock().await.unwrap().release().await.unwrap();
    for polls in 1.. {
        assert!(polls < 100, "a lock does not need so many polls");
        wire.lose(Loss::Reply, 0, 1);

        let ended = timeout(SOON, cancelled_after(polls, lock.lock()))
            .await
            .unwrap();

        let is_granted = ended.is_some();
        drop(ended.transpose().unwrap());
        is_empty(&stranger, "polls").await;
        wire.forget();
        let next = timeout(SOON, lock.lock()).await.expect("the lock is free");
        next.unwrap().release().await.unwrap();
        if is_granted {
            break;
        }
    }
}

#[case(embedded)]
async fn row_05_a_close_during_a_create_leaves_nothing(world: World) {
    let (keeper, stranger) = (keeper(&world).await, world.raw().await);
    let lock = keeper.mutex("closing").unwrap();
    lock.lock().await.unwrap().release().await.unwrap();
    let hold = world
        .embedded()
        .faults()
        .on(Match::op(Op::Create))
        .hold_reply();

    let locking = tokio::spawn(async move { lock.lock().await.map(drop) });
    hold.reached().await;
    assert_eq!(children(&stranger, "closing").await.len(), 1);
    let closing = tokio::spawn(async move { keeper.close().await });
    // Sooner than the client gives up a connection on which nothing is answered.
    let ended = timeout(Duration::from_secs(1), locking).await;
    let error = ended.unwrap().unwrap().unwrap_err();
    assert!(error.is_closed(), "{error}");
    hold.release();

    is_empty(&stranger, "closing").await;
    timeout(SOON, closing).await.unwrap().unwrap();
}

#[case(embedded)]
async fn row_05_a_call_dropped_during_a_create_leaves_nothing(world: World) {
    let (keeper, stranger) = (keeper(&world).await, world.raw().await);
    let lock = keeper.mutex("dropped").unwrap();
    lock.lock().await.unwrap().release().await.unwrap();
    let hold = world
        .embedded()
        .faults()
        .on(Match::op(Op::Create))
        .hold_reply();

    tokio::select! {
        granted = lock.lock() => panic!("without a reply: {granted:?}"),
        () = hold.reached() => {}
    }
    assert_eq!(children(&stranger, "dropped").await.len(), 1);
    hold.release();

    is_empty(&stranger, "dropped").await;
}

#[case(embedded)]
async fn row_06_a_try_that_loses_its_connection_leaves_no_contender(world: World) {
    let (a, b, c) = (
        keeper(&world).await,
        keeper(&world).await,
        keeper(&world).await,
    );
    let (stranger, faults) = (world.raw().await, world.embedded().faults());
    let session = own_session(&a).await;
    for lost in [Op::Delete, Op::Sync, Op::MultiRead] {
        // It looks, sees a free lock, and is overtaken before its ticket is made.
        let create = faults
            .on(Match::op(Op::Create).session(session))
            .stop_before();
        let lock = a.mutex("tried").unwrap();
        let trying = tokio::spawn(async move { lock.try_lock().await });
        create.reached().await;
        let guard = b.mutex("tried").unwrap().lock().await.unwrap();
        let leaving = faults
            .on(Match::op(Op::MultiRead).session(session))
            .stop_before();
        create.release();
        leaving.reached().await;
        let hold = faults.on(Match::op(lost).session(session)).stop_before();
        leaving.release();
        hold.reached().await;
        faults.cut(session);
        hold.release();

        let tried = timeout(SOON, trying).await.unwrap().unwrap().unwrap();
        assert!(tried.is_none(), "{lost:?}");
        let alone = || async { children(&stranger, "tried").await == [guard.node()] };
        eventually("only the holder is left", SOON, alone).await;
        guard.release().await.unwrap();
        let next = timeout(SOON, c.mutex("tried").unwrap().lock())
            .await
            .unwrap()
            .unwrap();
        assert_eq!(children(&stranger, "tried").await, [next.node()]);
        next.release().await.unwrap();
    }
}

#[case]
async fn row_07_two_hundred_cuts_leave_the_lock_free(world: World) {
    let (a, wire) = on_a_wire(&world).await;
    let (b, stranger) = (keeper(&world).await, world.raw().await);
    let lock = a.mutex("cuts").unwrap();
    for round in 0..World::times(200, 20_000) {
        // Spread over the three requests of a cycle, and over what follows a loss.
        let (pass, loss) = match round * 7 % 10 {
            even if even % 2 == 0 => (even / 2, Loss::Request),
            odd => (odd / 2, Loss::Reply),
        };
        wire.lose(loss, pass, 1);
        let guard = timeout(SOON, lock.lock()).await.unwrap().unwrap();
        timeout(SOON, guard.release()).await.unwrap().unwrap();
    }
    wire.forget();

    is_empty(&stranger, "cuts").await;
    // Synced: its server may be behind.
    assert!(b.queue("cuts").await.unwrap().is_empty());
    let free = b.mutex("cuts").unwrap().try_lock().await.unwrap();
    free.expect("the lock is free").release().await.unwrap();
}

#[case]
async fn row_08_three_lost_replies_in_a_row_make_one_ticket(world: World) {
    let (keeper, wire) = on_a_wire(&world).await;
    let stranger = world.raw().await;
    let lock = keeper.mutex("thrice").unwrap();
    lock.lock().await.unwrap().release().await.unwrap();

    wire.lose(Loss::Reply, 0, 3);
    let guard = timeout(SOON, lock.lock()).await.unwrap().unwrap();

    assert!(!wire.forget(), "three replies were lost");
    assert_eq!(children(&stranger, "thrice").await, [guard.node()]);
    guard.release().await.unwrap();
    is_empty(&stranger, "thrice").await;
}
