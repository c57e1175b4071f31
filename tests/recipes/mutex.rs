//! The mutex as its users see it: exclusion, order, tokens, giving up, looking at the queue.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use lockkeeper::{Error, Keeper, Token};
use tokio::time::{sleep, timeout};

use crate::recipes::semaphore::failures::lag;
use testbench::stall::Stall;
use testbench::{Make, World, case, children, eventually, keeper};

/// Two keepers, so that contenders are in different sessions.
async fn keepers(world: &World) -> [Keeper; 2] {
    [keeper(world).await, keeper(world).await]
}

#[case]
async fn a_crowd_is_let_in_one_by_one_in_the_order_of_its_tickets(world: World) {
    let keepers = keepers(&world).await;
    let inside = Arc::new(AtomicUsize::new(0));
    let grants = Arc::new(std::sync::Mutex::new(Vec::<Token>::new()));
    let crowd = (0..40).map(|worker| {
        let lock = keepers[worker % 2].mutex("crowd").unwrap();
        let (inside, grants) = (Arc::clone(&inside), Arc::clone(&grants));
        tokio::spawn(async move {
            for _ in 0..5 {
                let guard = lock.lock().await.unwrap();
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two are inside");
                grants.lock().unwrap().push(guard.token());
                tokio::task::yield_now().await;
                inside.fetch_sub(1, Ordering::SeqCst);
                guard.release().await.unwrap();
            }
        })
    });

    for worker in join_all(crowd).await {
        worker.unwrap();
    }

    let grants = grants.lock().unwrap().clone();
    assert_eq!(grants.len(), 200);
    assert!(
        grants.is_sorted(),
        "grants follow the order of the tickets: {grants:?}"
    );
}

#[case]
async fn a_released_lock_is_free_at_once(world: World) {
    let [one, two] = keepers(&world).await;
    let guard = one.mutex("free").unwrap().lock().await.unwrap();

    guard.release().await.unwrap();

    let second = two.mutex("free").unwrap();
    world.raw().await.catch_up().await.unwrap();
    let next = timeout(Duration::from_secs(2), second.lock())
        .await
        .unwrap()
        .unwrap();
    next.release().await.unwrap();
}

#[case]
async fn a_dropped_guard_releases_within_a_second(world: World) {
    let [one, two] = keepers(&world).await;
    let guard = one.mutex("dropped").unwrap().lock().await.unwrap();
    let waiter = tokio::spawn(async move { two.mutex("dropped").unwrap().lock().await });

    let (began, stall) = (Instant::now(), Stall::watch());
    drop(guard);

    let next = timeout(Duration::from_secs(5), waiter)
        .await
        .unwrap()
        .unwrap()
        .unwrap();
    let took = began.elapsed();
    assert!(took < Duration::from_secs(1) + stall.longest(), "{took:?}");
    next.release().await.unwrap();
}

#[case]
async fn a_released_lock_leaves_no_ticket(world: World) {
    let (keeper, stranger) = (keeper(&world).await, world.raw().await);

    let guard = keeper.mutex("clean").unwrap().lock().await.unwrap();
    assert_eq!(children(&stranger, "clean").await, [guard.node()]);
    guard.release().await.unwrap();

    assert!(children(&stranger, "clean").await.is_empty());
}

#[case]
async fn tokens_grow_from_grant_to_grant(world: World) {
    let [one, two] = keepers(&world).await;
    let mut tokens = Vec::new();
    for keeper in [&one, &two, &one, &two] {
        let guard = keeper.mutex("tokens").unwrap().lock().await.unwrap();
        tokens.push(guard.token());
        guard.release().await.unwrap();
    }

    assert!(
        tokens.windows(2).all(|pair| pair[0] < pair[1]),
        "{tokens:?}"
    );
}

#[case]
async fn try_lock_says_not_now_on_a_held_lock_and_takes_a_free_one(world: World) {
    let [one, two] = keepers(&world).await;
    let (first, second) = (one.mutex("try").unwrap(), two.mutex("try").unwrap());

    let guard = first.try_lock().await.unwrap().expect("the lock is free");
    world.raw().await.catch_up().await.unwrap();
    assert!(
        second
            .lock_timeout(Duration::from_millis(100))
            .await
            .unwrap_err()
            .is_timeout()
    );
    assert!(second.try_lock().await.unwrap().is_none());
    guard.release().await.unwrap();

    let free = || async { second.try_lock().await.unwrap() };
    let guard = eventually("the lock is free again", Duration::from_secs(2), free).await;
    guard.release().await.unwrap();
}

#[case]
async fn a_thousand_try_locks_on_a_held_lock_write_nothing(world: World) {
    let [one, two] = keepers(&world).await;
    let stranger = world.raw().await;
    let guard = one.mutex("probe").unwrap().lock().await.unwrap();
    let lock = two.mutex("probe").unwrap();
    stranger.catch_up().await.unwrap();
    // A server behind might not know the ticket yet; from here on ours does.
    eventually("our server knows", Duration::from_secs(2), || async {
        !two.queue("probe").await.unwrap().is_empty()
    })
    .await;
    let before = stranger.check_stat("/locks/probe").await.unwrap().unwrap();

    for _ in 0..World::times(1000, 10_000) {
        assert!(lock.try_lock().await.unwrap().is_none());
    }

    let after = stranger.check_stat("/locks/probe").await.unwrap().unwrap();
    assert_eq!(
        (before.cversion, before.pzxid, 1),
        (after.cversion, after.pzxid, after.num_children)
    );
    guard.release().await.unwrap();
}

#[case]
async fn a_timed_out_waiter_leaves_the_queue(world: World) {
    let [one, two] = keepers(&world).await;
    let stranger = world.raw().await;
    let guard = one.mutex("late").unwrap().lock().await.unwrap();

    let (began, stall) = (Instant::now(), Stall::watch());
    let error = two
        .mutex("late")
        .unwrap()
        .lock_timeout(Duration::from_millis(200))
        .await
        .unwrap_err();
    let took = began.elapsed();

    assert!(
        error.is_timeout() && error.to_string().contains("late"),
        "{error}"
    );
    assert!(
        took < Duration::from_millis(300) + stall.longest(),
        "{took:?}"
    );
    let alone = || async { children(&stranger, "late").await == [guard.node()] };
    eventually("the waiter's ticket is gone", Duration::from_secs(3), alone).await;
    guard.release().await.unwrap();
}

#[case]
async fn a_dropped_place_leaves_the_queue(world: World) {
    let [one, two] = keepers(&world).await;
    let stranger = world.raw().await;
    let guard = one.mutex("place").unwrap().lock().await.unwrap();
    let place = two.mutex("place").unwrap().enqueue().await.unwrap();
    assert_eq!(children(&stranger, "place").await.len(), 2);

    drop(place);

    let alone = || async { children(&stranger, "place").await == [guard.node()] };
    eventually("the place's ticket is gone", Duration::from_secs(3), alone).await;
}

#[case]
async fn a_place_moves_up_and_is_granted(world: World) {
    let [one, two] = keepers(&world).await;
    let lock = one.mutex("moves").unwrap();
    let first = lock.lock().await.unwrap();
    let second = lock.enqueue().await.unwrap();
    let mut third = two.mutex("moves").unwrap().enqueue().await.unwrap();
    assert_eq!(third.position().await.unwrap(), 2);

    // The place survives a wait that is given up.
    assert!(
        timeout(Duration::from_millis(100), third.granted())
            .await
            .is_err()
    );
    drop(second);
    timeout(Duration::from_secs(2), third.advanced())
        .await
        .unwrap()
        .unwrap();
    assert_eq!(third.position().await.unwrap(), 1);
    first.release().await.unwrap();
    let guard = timeout(Duration::from_secs(2), third.granted())
        .await
        .unwrap()
        .unwrap();

    assert_eq!(guard.name().as_str(), "moves");
    guard.release().await.unwrap();
}

#[case]
async fn a_spent_place_says_so(world: World) {
    let keeper = keeper(&world).await;
    let mut place = keeper.mutex("spent").unwrap().enqueue().await.unwrap();
    let _guard = place.granted().await.unwrap();

    let error = place.granted().await.unwrap_err();

    assert!(error.to_string().contains("guard already"), "{error}");
}

#[case]
async fn junk_in_the_directory_is_ignored_and_never_deleted(world: World) {
    let (keeper, stranger) = (keeper(&world).await, world.raw().await);
    let junk = [
        "foo",
        "lock-abc",
        "größe",
        "lock-00000000001",
        "lease-0000000000",
    ];
    let lock = keeper.mutex("junk").unwrap();
    lock.lock().await.unwrap().release().await.unwrap();
    for name in junk {
        let options = Make::Persistent;
        stranger
            .create(&format!("/locks/junk/{name}"), b"", &options)
            .await
            .unwrap();
    }

    let guard = lock.try_lock().await.unwrap().expect("junk holds nothing");
    let mut place = lock.enqueue().await.unwrap();
    assert_eq!(place.position().await.unwrap(), 1);
    guard.release().await.unwrap();
    timeout(Duration::from_secs(2), place.granted())
        .await
        .unwrap()
        .unwrap()
        .release()
        .await
        .unwrap();

    let mut left = children(&stranger, "junk").await;
    left.sort();
    let mut expected = junk.map(String::from);
    expected.sort();
    assert_eq!(left, expected);
}

#[case]
async fn foreign_tickets_are_waited_for(world: World) {
    let (keeper, stranger) = (keeper(&world).await, world.raw().await);
    let lock = keeper.mutex("foreign").unwrap();
    lock.lock().await.unwrap().release().await.unwrap();
    let ephemeral = Make::EphemeralSequential;
    for start in [
        "_c_01234567-89ab-cdef-0123-456789abcdef-lock-",
        "0123456789abcdef0123456789abcdef-lock-",
    ] {
        let (_, sequence) = stranger
            .create(&format!("/locks/foreign/{start}"), b"x", &ephemeral)
            .await
            .unwrap();

        assert!(lock.try_lock().await.unwrap().is_none(), "{start} holds");
        let waiter = tokio::spawn({
            let lock = lock.clone();
            async move { lock.lock().await }
        });
        eventually("the waiter queues up", Duration::from_secs(2), || async {
            children(&stranger, "foreign").await.len() == 2
        })
        .await;
        assert!(!waiter.is_finished());
        stranger
            .delete(&format!("/locks/foreign/{start}{sequence}"), None)
            .await
            .unwrap();
        let guard = timeout(Duration::from_secs(2), waiter)
            .await
            .unwrap()
            .unwrap()
            .unwrap();
        guard.release().await.unwrap();
    }
}

// Curator revokes by writing into the holder's node.
#[case]
async fn a_data_change_on_the_ticket_ahead_wakes_nobody_for_good(world: World) {
    let [one, two] = keepers(&world).await;
    let stranger = world.raw().await;
    let guard = one.mutex("revoked").unwrap().lock().await.unwrap();
    let mut place = two.mutex("revoked").unwrap().enqueue().await.unwrap();
    assert!(
        timeout(Duration::from_millis(50), place.granted())
            .await
            .is_err()
    );

    for _ in 0..3 {
        let path = format!("/locks/revoked/{}", guard.node());
        stranger.set_data(&path, b"__REVOKE__", None).await.unwrap();
        assert!(
            timeout(Duration::from_millis(100), place.granted())
                .await
                .is_err(),
            "it is still held"
        );
    }

    guard.release().await.unwrap();
    timeout(Duration::from_secs(2), place.granted())
        .await
        .unwrap()
        .unwrap()
        .release()
        .await
        .unwrap();
}

#[case]
async fn a_lock_below_another_locks_name_works(world: World) {
    let [one, two] = keepers(&world).await;
    let below = one.mutex("up/below").unwrap().lock().await.unwrap();
    let guard = one.mutex("up").unwrap().lock().await.unwrap();
    let waiter = tokio::spawn(async move { two.mutex("up").unwrap().lock().await });

    guard.release().await.unwrap();

    let next = timeout(Duration::from_secs(2), waiter)
        .await
        .unwrap()
        .unwrap()
        .unwrap();
    next.release().await.unwrap();
    below.release().await.unwrap();
}

#[case]
async fn the_queue_shows_who_holds_and_who_waits(world: World) {
    let [one, two] = keepers(&world).await;
    assert!(one.queue("shown").await.unwrap().is_empty());
    let guard = one
        .mutex("shown")
        .unwrap()
        .with_label("nightly job")
        .lock()
        .await
        .unwrap();
    let place = two.mutex("shown").unwrap().enqueue().await.unwrap();

    let seen =
        || async { Some(one.queue("shown").await.unwrap()).filter(|queue| queue.len() == 2) };
    let queue = eventually("both are in the queue", Duration::from_secs(2), seen).await;

    assert_eq!(
        queue
            .iter()
            .map(|entry| entry.is_holder)
            .collect::<Vec<_>>(),
        [true, false]
    );
    assert_eq!(queue[0].token, guard.token());
    assert_eq!(queue[0].label.as_deref(), Some("nightly job"));
    assert_eq!(queue[1].pid, Some(std::process::id()));
    assert!(queue[0].session != queue[1].session && queue[0].since.is_some());
    drop(place);
}

#[case]
async fn locks_lists_what_is_in_use(world: World) {
    let keeper = keeper(&world).await;
    assert!(keeper.locks().await.unwrap().is_empty());
    let _a = keeper.mutex("a/deep/one").unwrap().lock().await.unwrap();
    let _b = keeper.mutex("b").unwrap().lock().await.unwrap();
    let _c = keeper.mutex("b").unwrap().enqueue().await.unwrap();
    keeper
        .mutex("idle")
        .unwrap()
        .lock()
        .await
        .unwrap()
        .release()
        .await
        .unwrap();

    let locks = keeper.locks().await.unwrap();

    let seen: Vec<(&str, usize)> = locks
        .iter()
        .map(|lock| (lock.name.as_str(), lock.tickets))
        .collect();
    assert_eq!(seen, [("a/deep/one", 1), ("b", 2)]);
    for (top, below) in [
        ("a", &locks[..1]),
        ("a/deep/one", &locks[..1]),
        ("b", &locks[1..]),
        ("idle", &[]),
        ("b/none", &[]),
    ] {
        assert_eq!(keeper.locks_below(top).await.unwrap(), below, "{top}");
    }
}

#[case(embedded)]
async fn a_server_that_lags_behind_hides_nobody_from_a_list(world: World) {
    let (a, b) = (keeper(&world).await, keeper(&world).await);
    for name in ["queue", "list"] {
        lag(&world, &b).await;

        let guard = a.mutex(name).unwrap().lock().await.unwrap();

        if name == "queue" {
            let queue = b.queue(name).await.unwrap();
            assert_eq!(queue.len(), 1, "{queue:?}");
            assert_eq!(queue[0].node, guard.node());
        } else {
            let locks = b.locks().await.unwrap();
            assert_eq!(locks.len(), 1, "{locks:?}");
            assert_eq!(locks[0].name, name);
        }
        guard.release().await.unwrap();
    }
}

#[case]
async fn closing_a_keeper_ends_waits_and_frees_its_locks(world: World) {
    let [one, two] = keepers(&world).await;
    let stranger = world.raw().await;
    let guard = one.mutex("closed").unwrap().lock().await.unwrap();
    let waiter = tokio::spawn({
        let lock = one.mutex("closed").unwrap();
        async move { lock.lock().await }
    });
    let other = tokio::spawn(async move { two.mutex("closed").unwrap().lock().await });
    eventually("all are queued", Duration::from_secs(2), || async {
        children(&stranger, "closed").await.len() == 3
    })
    .await;

    timeout(Duration::from_secs(5), one.close()).await.unwrap();

    let ended = timeout(Duration::from_secs(3), waiter)
        .await
        .unwrap()
        .unwrap()
        .unwrap_err();
    assert!(ended.is_closed(), "{ended}");
    let next = timeout(Duration::from_secs(3), other)
        .await
        .unwrap()
        .unwrap()
        .unwrap();
    assert!(guard.release().await.unwrap_err().is_lost());
    assert!(
        one.mutex("closed")
            .unwrap()
            .lock()
            .await
            .unwrap_err()
            .is_closed()
    );
    assert!(one.locks().await.unwrap_err().is_closed());
    assert_eq!(children(&stranger, "closed").await, [next.node()]);
}

#[case]
async fn a_broken_ticket_is_told_to_holder_and_waiter(world: World) {
    let [one, two] = keepers(&world).await;
    let stranger = world.raw().await;
    let guard = one.mutex("broken").unwrap().lock().await.unwrap();
    let mut waiting = one.mutex("broken").unwrap().enqueue().await.unwrap();

    for ticket in children(&stranger, "broken").await {
        stranger
            .delete(&format!("/locks/broken/{ticket}"), None)
            .await
            .unwrap();
    }

    let error = timeout(Duration::from_secs(2), waiting.granted())
        .await
        .unwrap()
        .unwrap_err();
    assert!(matches!(error, Error::PlaceLost { .. }), "{error}");
    let error = timeout(Duration::from_secs(2), guard.release())
        .await
        .unwrap()
        .unwrap_err();
    assert!(matches!(error, Error::PlaceLost { .. }), "{error}");
    let next = timeout(Duration::from_secs(2), two.mutex("broken").unwrap().lock()).await;
    next.unwrap().unwrap().release().await.unwrap();
}

#[case(embedded)]
async fn an_expired_session_is_told_to_holder_and_waiter(world: World) {
    let [one, two] = keepers(&world).await;
    let guard = one.mutex("over").unwrap().lock().await.unwrap();
    let mut waiting = one.mutex("over").unwrap().enqueue().await.unwrap();

    world
        .embedded()
        .faults()
        .expire_session(one.queue("over").await.unwrap()[0].session);

    let error = timeout(Duration::from_secs(10), waiting.granted())
        .await
        .unwrap()
        .unwrap_err();
    assert!(
        error.is_session_over() && error.to_string().contains("over"),
        "{error}"
    );
    let error = timeout(Duration::from_secs(10), guard.release())
        .await
        .unwrap()
        .unwrap_err();
    assert!(error.is_session_over(), "{error}");
    let next = timeout(Duration::from_secs(2), two.mutex("over").unwrap().lock()).await;
    next.unwrap().unwrap().release().await.unwrap();
}

#[case(embedded)]
async fn a_keeper_goes_on_with_a_new_session(world: World) {
    let keeper = keeper(&world).await;
    let lock = keeper.mutex("again").unwrap();
    let guard = lock.lock().await.unwrap();
    let mut waiting = lock.enqueue().await.unwrap();

    world
        .embedded()
        .faults()
        .expire_session(keeper.queue("again").await.unwrap()[0].session);
    assert!(waiting.granted().await.unwrap_err().is_session_over());

    let next = timeout(Duration::from_secs(2), lock.lock())
        .await
        .unwrap()
        .unwrap();
    assert!(next.token() > guard.token());
}

#[case(embedded)]
async fn a_place_that_was_alone_long_ago_is_looked_at_again(world: World) {
    let builder = Keeper::builder(world.connect_string());
    let builder = builder.session_timeout(Duration::from_secs(1));
    let (a, b) = (builder.connect().await.unwrap(), keeper(&world).await);
    let lock = a.mutex("old").unwrap();
    lock.lock().await.unwrap().release().await.unwrap();
    let mut place = lock.enqueue().await.unwrap();
    let node = a.queue("old").await.unwrap()[0].node.clone();
    let path = format!("{}/locks/old/{node}", world.chroot());
    world.embedded().faults().remove(&path).unwrap();
    let held = b.mutex("old").unwrap().lock().await.unwrap();

    // What was seen with the create is good for a sixth of the session timeout.
    sleep(Duration::from_millis(300)).await;
    let error = place.granted().await.unwrap_err();

    assert!(matches!(error, Error::PlaceLost { .. }), "{error}");
    held.release().await.unwrap();
}

#[case(embedded)]
async fn with_every_server_dead_a_timed_call_ends_in_time(world: World) {
    let keeper = keeper(&world).await;
    let lock = keeper.mutex("dead").unwrap();
    let guard = lock.lock().await.unwrap();
    let mut waiting = lock.enqueue().await.unwrap();
    world.embedded().stop().await;
    for limit in [50, 300] {
        let limit = Duration::from_millis(limit);
        let (began, stall) = (Instant::now(), Stall::watch());

        let error = lock.lock_timeout(limit).await.unwrap_err();
        let took = began.elapsed();

        assert!(error.is_timeout(), "{error}");
        let most = limit + Duration::from_millis(100) + stall.longest();
        assert!(took < most, "{took:?}");
    }
    assert!(
        timeout(Duration::from_millis(50), waiting.granted())
            .await
            .is_err()
    );
    // The servers come back within the session's time, and all goes on; what timed out has left
    // nothing.
    world.embedded().restart().await.unwrap();
    guard.release().await.unwrap();
    let guard = timeout(Duration::from_secs(5), waiting.granted())
        .await
        .unwrap()
        .unwrap();
    let stranger = world.raw().await;
    let alone = || async { children(&stranger, "dead").await == [guard.node()] };
    eventually("only the holder is left", Duration::from_secs(5), alone).await;
}
