//! Faults between two requests: refused deletes, busy servers, deleted directories, runtimes that
//! end.
//!
//! Each case was a defect of a draft of this library.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use lockkeeper::embedded::{Code, EmbeddedServer, Match, Op};
use lockkeeper::{Error, Keeper, Owner, SessionEvent};
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio::time::{sleep, timeout};
use zookeeper_client::{Acl, AuthId, Permission};

use testbench::relay::pass_on;
use testbench::{Make, World, case, eventually};
use testbench::{children, keeper};

const SOON: Duration = Duration::from_secs(3);

#[case(embedded)]
async fn row_71_a_long_held_guard_spares_a_strangers_ticket(world: World) {
    let (a, b) = (keeper(&world).await, keeper(&world).await);
    let (stranger, faults) = (world.raw().await, world.embedded().faults());
    let guard = a.mutex("long").unwrap().lock().await.unwrap();
    // The hold itself: long enough that its ticket must be read again before it is deleted by name.
    sleep(Duration::from_millis(1100)).await;
    faults
        .remove(&format!("{}/locks/long/{}", world.chroot(), guard.node()))
        .unwrap();
    faults.reap_containers();
    let held = b.mutex("long").unwrap().lock().await.unwrap();
    assert_eq!(held.node(), guard.node());

    let error = guard.release().await.unwrap_err();

    assert!(error.is_lost(), "{error}");
    assert_eq!(children(&stranger, "long").await, [held.node()]);
}

#[case(embedded)]
async fn row_71_a_refused_mark_spares_a_strangers_ticket(world: World) {
    let (a, b) = (keeper(&world).await, keeper(&world).await);
    let (stranger, faults) = (world.raw().await, world.embedded().faults());
    let guard = a.mutex("mark").unwrap().lock().await.unwrap();
    faults
        .remove(&format!("{}/locks/mark/{}", world.chroot(), guard.node()))
        .unwrap();
    faults.reap_containers();
    let held = b.mutex("mark").unwrap().lock().await.unwrap();
    assert_eq!(held.node(), guard.node());
    // The new directory is at another version than the one that A was granted in.
    faults
        .set_data(&format!("{}/locks/mark", world.chroot()), b"")
        .unwrap();

    drop(guard);
    a.close().await;

    assert_eq!(children(&stranger, "mark").await, [held.node()]);
}

#[case(embedded)]
async fn a_delete_that_a_busy_server_refuses_is_repeated(world: World) {
    let (a, b) = (keeper(&world).await, keeper(&world).await);
    let stranger = world.raw().await;
    let guard = a.mutex("busy").unwrap().lock().await.unwrap();
    let place = b.mutex("busy").unwrap().enqueue().await.unwrap();
    world
        .embedded()
        .faults()
        .on(Match::op(Op::Delete))
        .times(3)
        .fail(Code::Throttled);

    drop(place);

    let alone = || async { children(&stranger, "busy").await == [guard.node()] };
    eventually("the ticket is gone all the same", SOON, alone).await;
}

#[case(embedded)]
async fn a_busy_server_is_asked_again(world: World) {
    let (keeper, faults) = (keeper(&world).await, world.embedded().faults());
    for op in [Op::CreateContainer, Op::Create, Op::MultiRead] {
        for code in [Code::SessionMoved, Code::Throttled] {
            faults
                .on(Match::op(op).path_contains("/locks/again"))
                .times(2)
                .fail(code);

            let guard = timeout(SOON, keeper.mutex("again/x").unwrap().lock())
                .await
                .unwrap();

            guard
                .unwrap_or_else(|error| panic!("{op:?} {code:?}: {error}"))
                .release()
                .await
                .unwrap();
            faults.clear_rules();
            faults.reap_containers();
            faults.reap_containers();
        }
    }
}

#[case(embedded)]
async fn a_delete_that_is_refused_without_a_reason_is_tried_less_and_less(world: World) {
    let keeper = keeper(&world).await;
    let (stranger, faults) = (world.raw().await, world.embedded().faults());
    let guard = keeper.mutex("refused").unwrap().lock().await.unwrap();
    for op in [Op::Multi, Op::Delete] {
        let ours = Match::op(op).path_contains("/locks/refused/");
        faults.on(ours).times(1_000_000).fail(Code::QuotaExceeded);
    }
    let before = world.embedded().counters();

    drop(guard);
    sleep(Duration::from_secs(2)).await;

    let asked = world.embedded().counters().since(&before).requests();
    assert!(asked < 100, "{asked} requests");
    faults.clear_rules();
    let is_gone = async || children(&stranger, "refused").await.is_empty();
    eventually("the ticket goes", SOON, is_gone).await;
}

#[case(embedded)]
async fn a_server_that_stays_busy_is_asked_less_and_less(world: World) {
    const GUARDS: usize = 50;
    // A dozen tries in three seconds, each with two looks.
    const MOST_EACH: u64 = 50;
    let connect = async || {
        // No beat falls into the time in which requests are counted.
        let hour = Duration::from_secs(3600);
        let builder = Keeper::builder(world.connect_string()).session_timeout(hour);
        builder.connect().await.unwrap()
    };
    let (near, far) = (connect().await, connect().await);
    let (stranger, faults) = (world.raw().await, world.embedded().faults());
    let owner = Owner::new();
    let guests = |keeper: &Keeper| keeper.mutex("guests").unwrap().with_owner(&owner);
    let _host = guests(&far).lock().await.unwrap();
    let permits = near.semaphore("permits", 1).unwrap();
    permits.acquire().await.unwrap().release().await.unwrap();
    let lock = |at: usize| near.mutex(format!("dropped/{at}")).unwrap();
    let guards = join_all((0..GUARDS).map(async |at| lock(at).lock().await.unwrap())).await;
    for op in [Op::Multi, Op::Delete] {
        let ours = Match::op(op).path_contains("/locks/");
        faults.on(ours).times(1_000_000).fail(Code::Throttled);
    }
    let before = world.embedded().counters();
    let permit = tokio::spawn(async move { permits.acquire().await });
    let guest = tokio::spawn({
        let guest = guests(&near);
        async move { guest.lock().await }
    });

    drop(guards);
    sleep(Duration::from_secs(3)).await;

    let asked = world.embedded().counters().since(&before).requests();
    let most = MOST_EACH * (GUARDS as u64 + 2);
    assert!(asked < most, "{asked} requests");
    faults.clear_rules();
    let permit = timeout(SOON, permit).await.unwrap().unwrap();
    let guest = timeout(SOON, guest).await.unwrap().unwrap();
    permit.unwrap().release().await.unwrap();
    guest.unwrap().release().await.unwrap();
    let all_are_gone = async || {
        let each = (0..GUARDS).map(|at| format!("dropped/{at}"));
        let left = join_all(each.map(async |at| children(&stranger, &at).await.len())).await;
        left.iter().sum::<usize>() == 0
    };
    eventually("all are gone", SOON, all_are_gone).await;
}

#[case(embedded)]
async fn a_ticket_that_cannot_be_read_holds_up_no_other(world: World) {
    let (a, b) = (keeper(&world).await, keeper(&world).await);
    let stranger = world.raw().await;
    let _held = b.mutex("bad").unwrap().lock().await.unwrap();
    let bad = a.mutex("bad").unwrap().enqueue().await.unwrap();
    let node = a.queue("bad").await.unwrap()[1].node.clone();
    let write_only = [Acl::new(Permission::WRITE, AuthId::anyone())];
    stranger
        .zookeeper()
        .set_acl(&format!("/locks/bad/{node}"), &write_only, None)
        .await
        .unwrap();
    let good = a.mutex("good").unwrap().lock().await.unwrap();

    drop(bad);
    drop(good);

    let next = timeout(SOON, b.mutex("good").unwrap().lock())
        .await
        .expect("the good lock is free")
        .unwrap();
    next.release().await.unwrap();
    timeout(SOON, a.close()).await.expect("the keeper closes");
    eventually("its session took the bad ticket with it", SOON, || async {
        children(&stranger, "bad").await.len() == 1
    })
    .await;
}

#[case(embedded)]
async fn a_parent_directory_that_goes_while_the_lower_one_is_made_is_made_again(world: World) {
    let (keeper, faults) = (keeper(&world).await, world.embedded().faults());
    keeper
        .mutex("orders")
        .unwrap()
        .lock()
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    let upper = format!("{}/locks/orders", world.chroot());
    let hold = faults
        .on(Match::op(Op::CreateContainer).path(format!("{upper}/42")))
        .stop_before();

    let (locked, ()) = tokio::join!(
        timeout(SOON, async {
            keeper.mutex("orders/42").unwrap().lock().await
        }),
        async {
            hold.reached().await;
            faults.remove(&upper).unwrap();
            hold.release();
        }
    );

    locked.unwrap().unwrap().release().await.unwrap();
}

#[case(embedded)]
async fn a_wait_that_ended_with_its_session_can_be_asked_again(world: World) {
    let (a, b) = (keeper(&world).await, keeper(&world).await);
    for _ in 0..20 {
        let guard = b.mutex("again").unwrap().lock().await.unwrap();
        let mut place = a.mutex("again").unwrap().enqueue().await.unwrap();
        assert!(
            timeout(Duration::from_millis(5), place.granted())
                .await
                .is_err()
        );
        world
            .embedded()
            .faults()
            .expire_session(a.queue("again").await.unwrap()[1].session);

        for _ in 0..3 {
            let error = timeout(SOON, place.granted()).await.unwrap().unwrap_err();
            assert!(error.is_lost(), "{error}");
        }
        guard.release().await.unwrap();
    }
}

/// An address that relays to a server, after a moment for each connection.
async fn slow_relay(to: std::net::SocketAddr, pause: Duration) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            tokio::spawn(async move {
                sleep(pause).await;
                pass_on(client, to).await;
            });
        }
    });
    address
}

#[case(embedded)]
async fn impatient_callers_get_a_session_in_the_end(world: World) {
    let server = world.embedded();
    let relay = slow_relay(server.addr(), Duration::from_millis(300)).await;
    let keeper = Keeper::connect(format!("{relay}{}", world.chroot()))
        .await
        .unwrap();
    let lock = keeper.mutex("impatient").unwrap();
    let guard = lock.lock().await.unwrap();
    server
        .faults()
        .expire_session(keeper.queue("impatient").await.unwrap()[0].session);
    drop(guard);

    let patience = Duration::from_millis(100);
    let locked = || async { lock.lock_timeout(patience).await.ok() };
    let guard = eventually(
        "one of many short calls is granted",
        Duration::from_secs(5),
        locked,
    )
    .await;

    guard.release().await.unwrap();
}

/// A keeper whose session has ended and whose server has turned silent.
async fn behind_a_silent_server(limit: Duration) -> (Keeper, TcpListener) {
    let server = EmbeddedServer::start().await.unwrap();
    let builder = Keeper::builder(server.connect_string()).session_timeout(Duration::from_secs(2));
    let keeper = builder.connect_timeout(limit).connect().await.unwrap();
    let lock = keeper.mutex("x").unwrap();
    let (guard, mut place) = (lock.lock().await.unwrap(), lock.enqueue().await.unwrap());
    assert!(
        timeout(Duration::from_millis(50), place.granted())
            .await
            .is_err()
    );
    server
        .faults()
        .expire_session(server.faults().sessions()[0].id);
    assert!(
        place.granted().await.unwrap_err().is_session_over(),
        "the keeper knows that its session is over"
    );
    drop(guard);
    server.stop().await;
    let silent = TcpListener::bind(server.addr()).await.unwrap();
    // The keeper may have opened another one a moment before the server stopped.
    let mut events = keeper.session_events();
    while !matches!(events.borrow(), SessionEvent::Over { .. }) {
        events.changed().await.unwrap();
    }
    (keeper, silent)
}

#[case(embedded)]
async fn callers_who_wait_for_a_session_share_its_failure(_world: World) {
    let limit = Duration::from_secs(1);
    let (keeper, _silent) = behind_a_silent_server(limit).await;
    let tasks = Handle::current().metrics().num_alive_tasks();
    let began = Instant::now();

    let calls = (0..8).map(|number| {
        let lock = keeper.mutex(format!("lock-of-{number}")).unwrap();
        async move { lock.lock().await.map(drop).unwrap_err() }
    });
    let errors = join_all(calls).await;

    assert!(
        errors
            .iter()
            .all(|error| error.is_unreachable() || error.is_session_over()),
        "{errors:?}"
    );
    assert!(began.elapsed() < limit * 3, "{:?}", began.elapsed());
    for _ in 0..20 {
        keeper
            .mutex("x")
            .unwrap()
            .lock_timeout(Duration::from_millis(10))
            .await
            .unwrap_err();
    }
    assert!(
        Handle::current().metrics().num_alive_tasks() <= tasks + 4,
        "attempts do not pile up"
    );
}

#[case(embedded)]
async fn a_close_ends_calls_that_wait_for_a_session(_world: World) {
    let (keeper, _silent) = behind_a_silent_server(Duration::from_secs(10)).await;
    let lock = keeper.mutex("x").unwrap();
    let calls: Vec<_> = (0..4)
        .map(|_| {
            let lock = lock.clone();
            tokio::spawn(async move { lock.lock().await.map(drop) })
        })
        .collect();
    sleep(Duration::from_millis(50)).await;

    keeper.close().await;

    for call in calls {
        let error = timeout(Duration::from_secs(1), call)
            .await
            .expect("the call ends")
            .unwrap()
            .unwrap_err();
        assert!(error.is_lost(), "{error}");
    }
}

#[case(embedded)]
async fn a_close_that_was_cancelled_can_be_completed(world: World) {
    let keeper = keeper(&world).await;
    let guard = keeper.mutex("closed").unwrap().lock().await.unwrap();
    let session = i64::from(keeper.queue("closed").await.unwrap()[0].session);
    // One poll may take as long as all answers need.
    let faults = world.embedded().faults();
    let held = faults.on(Match::op(Op::CloseSession)).hold_reply();
    {
        let mut close = Box::pin(keeper.close());
        assert!(futures_util::poll!(close.as_mut()).is_pending());
    }
    held.release();

    timeout(SOON, keeper.close()).await.unwrap();

    let is_over = !world
        .embedded()
        .faults()
        .sessions()
        .iter()
        .any(|info| info.id == session);
    assert!(is_over, "the session is over although a guard is alive");
    assert!(guard.release().await.unwrap_err().is_lost());
}

#[case(embedded)]
async fn one_silent_server_does_not_hide_a_healthy_one(world: World) {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let both = format!(
        "{},{}",
        silent.local_addr().unwrap(),
        world.connect_string()
    );
    for seconds in [1, 10] {
        for _ in 0..4 {
            let builder = Keeper::builder(&both).session_timeout(Duration::from_secs(seconds));
            let keeper = builder
                .connect_timeout(Duration::from_secs(7))
                .connect()
                .await
                .unwrap();
            keeper.close().await;
        }
    }
}

#[case(embedded)]
async fn a_waiter_survives_the_end_of_its_sessions_runtime(world: World) {
    let connect_string = world.connect_string();
    let outcomes = tokio::task::spawn_blocking(move || {
        let outcome = |round: usize| {
            let theirs = tokio::runtime::Builder::new_multi_thread()
                .worker_threads(1)
                .enable_all()
                .build()
                .unwrap();
            let (_guard, mut place) = theirs.block_on(async {
                let keeper = Keeper::connect(&connect_string).await.unwrap();
                let lock = keeper.mutex(format!("runtime/{round}")).unwrap();
                (lock.lock().await.unwrap(), lock.enqueue().await.unwrap())
            });
            let waiting = std::thread::spawn(move || {
                let ours = tokio::runtime::Builder::new_current_thread()
                    .enable_all()
                    .build()
                    .unwrap();
                ours.block_on(async { place.granted().await.map(drop) })
            });
            std::thread::sleep(Duration::from_millis(50));
            theirs.shutdown_timeout(Duration::from_secs(1));
            waiting.join()
        };
        (0..5).map(outcome).collect::<Vec<_>>()
    })
    .await
    .unwrap();

    for outcome in outcomes {
        let error = outcome.expect("the waiter does not panic").unwrap_err();
        assert!(error.is_lost(), "{error}");
    }
}

#[case(embedded)]
async fn a_keeper_survives_the_end_of_its_sessions_runtime(world: World) {
    let connect_string = world.connect_string();
    let held = tokio::task::spawn_blocking(move || {
        let runtime = || {
            tokio::runtime::Builder::new_multi_thread()
                .worker_threads(1)
                .enable_all()
                .build()
                .unwrap()
        };
        let theirs = runtime();
        let keeper = theirs
            .block_on(Keeper::connect(connect_string.as_str()))
            .unwrap();
        let old = theirs
            .block_on(keeper.mutex("old").unwrap().lock())
            .unwrap();
        theirs.shutdown_timeout(Duration::from_secs(1));
        assert!(!old.is_held(), "nobody keeps its session alive");

        runtime().block_on(async {
            let lock = keeper.mutex("new").unwrap();
            let guard = timeout(Duration::from_secs(5), lock.lock()).await;
            let guard = guard.expect("another session is opened").unwrap();
            let is_held = guard.is_held();
            guard.release().await.unwrap();
            keeper.close().await;
            is_held
        })
    });

    assert!(held.await.unwrap());
}

#[case(embedded)]
async fn a_lock_that_is_not_polled_any_more_holds_up_no_other(world: World) {
    let builder = Keeper::builder(world.connect_string());
    let builder = builder.session_timeout(Duration::from_secs(3600));
    let (keeper, faults) = (builder.connect().await.unwrap(), world.embedded().faults());
    let guard = keeper.mutex("whoami").unwrap().lock().await.unwrap();
    let session = i64::from(keeper.queue("whoami").await.unwrap()[0].session);
    guard.release().await.unwrap();
    // After a reconnect the first grant looks whether it is still our session.
    assert!(faults.cut(session));
    let back = || async {
        faults
            .sessions()
            .iter()
            .any(|it| it.id == session && it.connected)
    };
    eventually("it is connected again", SOON, back).await;
    let lock = keeper.mutex("first").unwrap();
    let looks = Match::op(Op::Sync).path_contains("/locks/first/lock-");
    let hold = faults.on(looks).hold_reply();
    let mut first = std::pin::pin!(lock.lock());
    tokio::select! {
        granted = &mut first => panic!("it is asked first: {granted:?}"),
        reached = timeout(SOON, hold.reached()) => reached.expect("it looks"),
    }
    hold.release();

    // As in the arm of a `select!`, while the first one is kept for the next round.
    let second = timeout(SOON, keeper.mutex("second").unwrap().lock()).await;

    second
        .expect("nobody is before it")
        .unwrap()
        .release()
        .await
        .unwrap();
    first.await.unwrap().release().await.unwrap();
}

#[case(embedded)]
async fn a_create_whose_speculative_read_was_lost_is_granted_by_a_look(world: World) {
    let (keeper, stranger) = (keeper(&world).await, world.raw().await);
    let faults = world.embedded().faults();
    let lock = keeper.mutex("lost").unwrap();
    lock.lock().await.unwrap().release().await.unwrap();
    faults
        .on(Match::op(Op::MultiRead).path_contains("/locks/lost"))
        .drop_reply();
    let before = world.embedded().counters();

    let guard = timeout(SOON, lock.lock()).await.expect("it looks").unwrap();

    assert_eq!(faults.armed_rules(), 0);
    assert_eq!(children(&stranger, "lost").await, [guard.node()]);
    // The create itself was answered, and is not sent again.
    let created = world.embedded().counters().since(&before);
    assert_eq!(created.get(Op::Create), 1);
    guard.release().await.unwrap();
    assert!(children(&stranger, "lost").await.is_empty());
}

#[case(embedded)]
async fn a_lock_that_is_dropped_between_its_create_and_its_speculative_read_leaves_nothing(
    world: World,
) {
    let (keeper, stranger) = (keeper(&world).await, world.raw().await);
    let faults = world.embedded().faults();
    let lock = keeper.mutex("between").unwrap();
    lock.lock().await.unwrap().release().await.unwrap();
    let speculative_read = faults
        .on(Match::op(Op::MultiRead).path_contains("/locks/between"))
        .hold_reply();

    // The reply to the create is before the one that is held.
    tokio::select! {
        granted = lock.lock() => panic!("it has not seen the directory: {granted:?}"),
        reached = timeout(SOON, speculative_read.reached()) => reached.expect("it is sent with the create"),
    }
    assert_eq!(children(&stranger, "between").await.len(), 1);
    speculative_read.release();

    let empty = || async { children(&stranger, "between").await.is_empty() };
    eventually("the janitor removes the ticket", SOON, empty).await;
    lock.lock().await.unwrap().release().await.unwrap();
}

#[case(embedded)]
async fn an_answer_that_nobody_took_in_grants_nothing_later(world: World) {
    const T: Duration = Duration::from_secs(1);
    let (holder, stranger) = (keeper(&world).await, world.raw().await);
    let keeper = Keeper::builder(world.connect_string()).session_timeout(T);
    let (keeper, faults) = (keeper.connect().await.unwrap(), world.embedded().faults());
    // With the create, and by the check after a wait.
    for (name, op) in [
        ("kept/speculative", Op::Create),
        ("kept/look", Op::MultiRead),
    ] {
        let guard = holder.mutex(name).unwrap().lock().await.unwrap();
        let lock = keeper.mutex(name).unwrap();
        let mut waiting = std::pin::pin!(lock.lock());
        let answer = if op == Op::Create {
            guard.release().await.unwrap();
            faults.on(Match::op(op).path_contains(name)).hold_reply()
        } else {
            let waits = async {
                let watches = || async { world.embedded().counters().watches == 1 };
                eventually("it waits", SOON, watches).await;
            };
            tokio::select! {
                granted = &mut waiting => panic!("it is held: {granted:?}"),
                () = waits => {}
            }
            let answer = faults.on(Match::op(op).path_contains(name)).hold_reply();
            guard.release().await.unwrap();
            answer
        };
        tokio::select! {
            granted = &mut waiting => panic!("it has not seen its turn: {granted:?}"),
            reached = timeout(SOON, answer.reached()) => reached.expect("it asks"),
        }
        answer.release();

        // Kept without being polled, as in an arm of a `select!`.
        sleep(Duration::from_millis(50)).await;
        let node = children(&stranger, name).await.remove(0);
        let path = format!("{}/locks/{name}/{node}", world.chroot());
        faults.remove(&path).unwrap();
        sleep(T / 4).await;
        let error = waiting.await.expect_err(name);

        assert!(matches!(error, Error::PlaceLost { .. }), "{name}: {error}");
    }
}

#[case]
async fn a_label_that_is_too_long_is_refused_before_any_io(world: World) {
    let keeper = keeper(&world).await;
    let lock = keeper.mutex("label").unwrap();

    let error = lock
        .clone()
        .with_label("x".repeat(1025))
        .lock()
        .await
        .unwrap_err();

    assert!(
        error.is_invalid() && error.to_string().contains("label"),
        "{error}"
    );
    lock.with_label("x".repeat(1024))
        .lock()
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
}

// Curator's downgrade: a plain reader with the digits of the writer that made it.
#[case]
async fn a_lock_delay_without_an_end_is_waited_out_for_ever(world: World) {
    let builder = Keeper::builder(world.connect_string()).lock_delay(Duration::MAX);
    let keeper = builder.connect().await.unwrap();
    let stranger = world.raw().await;

    // A directory that is removed when it is empty forgets how its last holder has ended.
    let limit = Duration::from_millis(200);
    let waited = keeper.mutex("ever").unwrap().lock_timeout(limit).await;

    assert!(waited.unwrap_err().is_timeout());
    let gone = || async { children(&stranger, "ever").await.is_empty() };
    eventually("the ticket is gone", SOON, gone).await;
}

#[case]
async fn a_younger_ticket_with_a_lower_number_is_waited_for_quietly(world: World) {
    let (keeper, stranger) = (keeper(&world).await, world.raw().await);
    let lock = keeper.rw_lock("downgrade").unwrap();
    lock.write().await.unwrap().release().await.unwrap();
    let start = "/locks/downgrade/_c_01234567-89ab-cdef-0123-456789abcdef-";
    let writer = Make::EphemeralSequential;
    let (_, digits) = stranger
        .create(&format!("{start}__WRIT__"), b"", &writer)
        .await
        .unwrap();
    let mut waiting = Box::pin(lock.write());
    let early = timeout(Duration::from_millis(100), &mut waiting).await;
    assert!(early.is_err());
    let reader = Make::Ephemeral;
    stranger
        .create(&format!("{start}__READ__{digits}"), b"", &reader)
        .await
        .unwrap();
    let before = world.is_embedded().then(|| world.embedded().counters());
    stranger
        .delete(&format!("{start}__WRIT__{digits}"), None)
        .await
        .unwrap();

    let early = timeout(Duration::from_millis(300), &mut waiting).await;
    assert!(early.is_err(), "the reader is waited for");
    if let Some(before) = before {
        let cost = world.embedded().counters().since(&before);
        assert!(cost.requests() < 12, "it waits without asking: {cost:?}");
    }
    stranger
        .delete(&format!("{start}__READ__{digits}"), None)
        .await
        .unwrap();
    let writer = timeout(SOON, waiting).await.unwrap().unwrap();
    writer.release().await.unwrap();
}

#[case(embedded)]
async fn one_sweep_settles_every_create_whose_reply_was_lost(world: World) {
    let (keeper, server) = (keeper(&world).await, world.embedded());
    let count = World::times(500, 20_000);
    let sweeps = || server.counters().get(Op::GetEphemerals);
    let locks: Vec<_> = (0..count)
        .map(|number| keeper.mutex(format!("swept/{number}")).unwrap())
        .collect();
    // The directories are there already, so that one create makes each ticket.
    for lock in &locks {
        lock.lock().await.unwrap().release().await.unwrap();
    }
    // The first reply is held back, and with it all that come after it on this connection.
    let hold = server
        .faults()
        .on(Match::op(Op::Create).path_contains("/swept/"))
        .hold_reply();
    let (before, made) = (sweeps(), server.counters().get(Op::Create));
    let locking = tokio::spawn(join_all(
        locks
            .into_iter()
            .map(|lock| async move { lock.lock().await.unwrap() }),
    ));
    let stranger = world.raw().await;
    eventually("all are committed", SOON, || async {
        server.counters().get(Op::Create) == made + count as u64
    })
    .await;

    server.faults().cut_all();
    drop(hold);
    let guards = timeout(SOON * 10, locking).await.unwrap().unwrap();

    let swept = sweeps() - before;
    // Those that hear of it while a list is asked wait for the next one.
    let most = (count as u64 / 500).max(4);
    assert!(
        (1..=most).contains(&swept),
        "{swept} lists for {count} creates"
    );
    for guard in guards.iter().step_by(50) {
        let tickets = children(&stranger, guard.name().as_str()).await;
        assert_eq!(tickets, [guard.node()], "one ticket each");
    }
    drop(guards);
}
