//! Guests: the same owner from another keeper, in beside its host, whatever answers are lost and
//! whatever else is written.

use std::time::{Duration, Instant};

use lockkeeper::Keeper;
use lockkeeper::embedded::{Match, Op};
use tokio::time::timeout;

use super::{
    A_WHILE, SOON, at_once, comes_in, goes_on_waiting, is_empty, owned, session_of, waiter,
};
use testbench::{Make, World, case, eventually};
use testbench::{children, keeper};

#[case]
async fn the_same_owner_in_another_keeper_goes_in_with_the_same_token(world: World) {
    let [a, b, c] = [
        keeper(&world).await,
        keeper(&world).await,
        keeper(&world).await,
    ];
    let stranger = world.raw().await;
    let host = at_once(&owned(&a, "beside", "job")).await;
    let guest = at_once(&owned(&b, "beside", "job")).await;
    let third = at_once(&owned(&c, "beside", "job")).await;
    let inner = at_once(&owned(&b, "beside", "job")).await;

    assert_eq!(
        [guest.token(), third.token(), inner.token()],
        [host.token(); 3]
    );
    assert_eq!(
        inner.node(),
        guest.node(),
        "in one keeper they share a ticket"
    );
    assert_eq!(children(&stranger, "beside").await.len(), 3);
    let waiting = waiter(a.mutex("beside").unwrap()).await;
    for guard in [host, inner, third] {
        guard.check().await.unwrap();
        guard.release().await.unwrap();
    }
    goes_on_waiting(&waiting).await;
    guest
        .fenced()
        .create("/fenced", "x")
        .commit()
        .await
        .unwrap();
    let token = guest.token();
    guest.release().await.unwrap();

    let next = comes_in(waiting).await;
    assert!(next.token() > token);
    next.release().await.unwrap();
    is_empty(&stranger, "beside").await;
}

#[case]
async fn a_guest_goes_in_past_whoever_waits(world: World) {
    let [a, b] = [keeper(&world).await, keeper(&world).await];
    let host = at_once(&owned(&a, "past", "job")).await;
    let mut waiting = Vec::new();
    for lock in [
        a.mutex("past").unwrap(),
        owned(&b, "past", "another"),
        b.mutex("past").unwrap(),
    ] {
        waiting.push(waiter(lock).await);
    }

    let guest = at_once(&owned(&b, "past", "job")).await;

    host.release().await.unwrap();
    goes_on_waiting(&waiting[0]).await;
    drop(guest);
    for waiter in waiting {
        comes_in(waiter).await.release().await.unwrap();
    }
}

#[case]
async fn a_guest_comes_to_a_guest_when_the_host_has_gone(world: World) {
    let [a, b] = [keeper(&world).await, keeper(&world).await];
    let host = at_once(&owned(&a, "chain", "job")).await;
    let token = host.token();
    let waiting = waiter(b.mutex("chain").unwrap()).await;

    // Each goes in beside the one before it, which then goes.
    let mut last = host;
    for round in 0..6 {
        let keeper = if round % 2 == 0 { &b } else { &a };
        let next = at_once(&owned(keeper, "chain", "job")).await;
        assert_eq!(next.token(), token);
        last.release().await.unwrap();
        last = next;
    }
    goes_on_waiting(&waiting).await;
    last.release().await.unwrap();

    assert!(comes_in(waiting).await.token() > token);
}

#[case]
async fn an_owner_that_waited_goes_in_when_it_is_woken_behind_its_own_hold(world: World) {
    let [a, b, c] = [
        keeper(&world).await,
        keeper(&world).await,
        keeper(&world).await,
    ];
    let held = at_once(&c.mutex("woken").unwrap()).await;
    let host = waiter(owned(&a, "woken", "job")).await;
    let between = waiter(c.mutex("woken").unwrap()).await;
    let guest = waiter(owned(&b, "woken", "job")).await;

    held.release().await.unwrap();
    let host = comes_in(host).await;
    // Who stands between gives up, which wakes the one behind it.
    between.abort();
    let guest = comes_in(guest).await;

    assert_eq!(guest.token(), host.token());
    host.release().await.unwrap();
    guest.check().await.unwrap();
    guest.release().await.unwrap();
}

#[case]
async fn an_owner_that_holds_gets_in_where_another_call_of_its_waits_already(world: World) {
    let [a, b, c] = [
        keeper(&world).await,
        keeper(&world).await,
        keeper(&world).await,
    ];
    let stranger = world.raw().await;
    let queued = |count| {
        let stranger = stranger.clone();
        async move { children(&stranger, "bell").await.len() == count }
    };
    let held = at_once(&c.mutex("bell").unwrap()).await;
    let host = waiter(owned(&a, "bell", "job")).await;
    let between = waiter(c.mutex("bell").unwrap()).await;
    let earlier = tokio::spawn({
        let lock = owned(&b, "bell", "job");
        async move { lock.lock().await.unwrap() }
    });
    eventually("the earlier call is in the queue", SOON, || queued(4)).await;
    goes_on_waiting(&earlier).await;
    held.release().await.unwrap();
    let host = comes_in(host).await;
    goes_on_waiting(&earlier).await;

    // The owner holds by one keeper and asks by the other, where an earlier call stands behind
    // another waiter, which waits for the owner.
    let inner = at_once(&owned(&b, "bell", "job")).await;

    assert_eq!(inner.token(), host.token());
    assert_eq!(comes_in(earlier).await.token(), host.token());
    inner.release().await.unwrap();
    host.release().await.unwrap();
    comes_in(between).await.release().await.unwrap();
}

#[case]
async fn another_programs_data_lets_guests_in_and_is_left_alone(world: World) {
    let [a, b, c] = [
        keeper(&world).await,
        keeper(&world).await,
        keeper(&world).await,
    ];
    let stranger = world.raw().await;
    at_once(&a.mutex("foreign").unwrap())
        .await
        .release()
        .await
        .unwrap();
    let data = b"3 of 5 \xff".as_slice();
    stranger
        .set_data("/locks/foreign", data, None)
        .await
        .unwrap();
    let host = at_once(&owned(&a, "foreign", "job")).await;
    let waiting = waiter(c.mutex("foreign").unwrap()).await;

    let guest = at_once(&owned(&b, "foreign", "job")).await;
    // Written between the two ends, as well.
    stranger
        .set_data("/locks/foreign", data, None)
        .await
        .unwrap();
    let third = at_once(&owned(&c, "foreign", "job")).await;

    for guard in [host, third] {
        guard.release().await.unwrap();
    }
    goes_on_waiting(&waiting).await;
    guest.check().await.unwrap();
    guest.release().await.unwrap();
    comes_in(waiting).await.release().await.unwrap();
    let (left, _) = stranger.get_data("/locks/foreign").await.unwrap();
    assert_eq!(left, data);
}

#[case]
async fn another_programs_ticket_with_an_owner_lets_nobody_in(world: World) {
    let (keeper, stranger) = (keeper(&world).await, world.raw().await);
    at_once(&keeper.mutex("theirs").unwrap())
        .await
        .release()
        .await
        .unwrap();
    let options = Make::EphemeralSequential;
    let theirs = stranger.create("/locks/theirs/lock-", br#"{"owner":"job"}"#, &options);
    let (_, theirs) = theirs.await.unwrap();

    let lock = owned(&keeper, "theirs", "job");
    assert!(lock.try_lock().await.unwrap().is_none());
    let waiting = waiter(lock).await;
    goes_on_waiting(&waiting).await;
    let path = format!("/locks/theirs/lock-{theirs}");
    stranger.delete(&path, None).await.unwrap();

    comes_in(waiting).await.release().await.unwrap();
}

#[case]
async fn the_queue_shows_a_guest_beside_its_host(world: World) {
    let [a, b] = [keeper(&world).await, keeper(&world).await];
    let host = at_once(&owned(&a, "shown", "job")).await;
    let guest = at_once(&owned(&b, "shown", "job")).await;
    let waiting = waiter(owned(&a, "shown", "another")).await;

    let queue = a.queue("shown").await.unwrap();

    let owners: Vec<_> = queue.iter().map(|entry| entry.owner.as_deref()).collect();
    assert_eq!(owners, [Some("job"), Some("job"), Some("another")]);
    let holds: Vec<bool> = queue.iter().map(|entry| entry.is_holder).collect();
    assert_eq!(holds, [true, true, false], "{queue:?}");
    assert!(queue.iter().any(|entry| entry.node == host.node()));
    drop((guest, host));
    drop(comes_in(waiting).await);
}

/// A keeper that sends no beat for an hour.
async fn quiet(world: &World) -> Keeper {
    let builder = Keeper::builder(world.connect_string());
    let builder = builder.session_timeout(Duration::from_secs(3600));
    builder.connect().await.unwrap()
}

#[case(embedded)]
async fn a_guest_costs_five_requests(world: World) {
    let ([a, b], server) = ([quiet(&world).await, quiet(&world).await], world.embedded());
    let host = at_once(&owned(&a, "cost", "job")).await;
    let before = super::requests(server);

    let guest = at_once(&owned(&b, "cost", "job")).await;

    // The create, two looks, the exchange and a look at what came of it.
    assert!(
        super::requests(server) - before <= 6,
        "{}",
        super::requests(server) - before
    );
    let before = super::requests(server);
    guest.release().await.unwrap();
    assert_eq!(super::requests(server) - before, 1);
    host.release().await.unwrap();
}

#[case(embedded)]
async fn a_guest_whose_answers_are_lost_is_let_in_once(world: World) {
    let [a, b] = [keeper(&world).await, keeper(&world).await];
    let (stranger, faults) = (world.raw().await, world.embedded().faults());
    let host = at_once(&owned(&a, "reply", "job")).await;
    let other = at_once(&b.mutex("whoami").unwrap()).await;
    let session = session_of(&b, "whoami").await;
    other.release().await.unwrap();
    let here = |op| Match::op(op).session(session).path_contains("reply");

    for op in [Op::Create, Op::Multi, Op::MultiRead, Op::GetEphemerals] {
        for times in 1..=3 {
            faults.clear_rules();
            faults.on(here(op)).times(times).drop_reply();
            if op == Op::GetEphemerals {
                faults
                    .on(Match::op(op).session(session))
                    .times(times)
                    .drop_reply();
                faults.on(here(Op::Multi)).drop_reply();
            }
            let guest = at_once(&owned(&b, "reply", "job")).await;
            assert_eq!(guest.token(), host.token());
            faults.clear_rules();
            assert_eq!(
                children(&stranger, "reply").await.len(),
                2,
                "{op:?} {times}"
            );
            guest.check().await.unwrap();
            guest.release().await.unwrap();
            let alone = || async { children(&stranger, "reply").await == [host.node()] };
            eventually("the guest has left", SOON, alone).await;
        }
    }
    host.release().await.unwrap();
}

#[case(embedded)]
async fn a_guest_sits_out_the_lock_delay_of_a_host_that_is_not_in_yet(world: World) {
    let delay = Duration::from_secs(2);
    let patient = || {
        Keeper::builder(world.connect_string())
            .lock_delay(delay)
            .connect()
    };
    let [a, b] = [patient().await.unwrap(), patient().await.unwrap()];
    let crashing = keeper(&world).await;
    at_once(&crashing.mutex("delay").unwrap())
        .await
        .release()
        .await
        .unwrap();
    let crashed = at_once(&crashing.mutex("delay").unwrap()).await;
    let host = waiter(owned(&a, "delay", "job")).await;
    let began = Instant::now();
    crashing.close().await;
    assert!(!crashed.is_held());

    let guest = timeout(delay + SOON, owned(&b, "delay", "job").lock()).await;

    let guest = guest.expect("it is granted").unwrap();
    assert!(began.elapsed() >= delay, "{:?}", began.elapsed());
    assert_eq!(comes_in(host).await.token(), guest.token());
    // Where one guest was let in, the next one knows that the delay is over.
    let began = Instant::now();
    let third = patient().await.unwrap();
    let third = timeout(SOON, owned(&third, "delay", "job").lock()).await;
    assert!(began.elapsed() < delay - A_WHILE, "{:?}", began.elapsed());
    assert_eq!(third.unwrap().unwrap().token(), guest.token());
}
