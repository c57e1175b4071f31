//! Wake-ups: a waiter whose turn has come gets the lock, for few requests, and leaves no watch
//! behind.
//!
//! Rows 33 to 42, but for those of `hangs`.

use std::time::{Duration, Instant};

use lockkeeper::embedded::{Match, Op};
use lockkeeper::{Guard, Keeper, Place, Result};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::wire::Wire;
use super::{SOON, on_a_wire, own_session};
use testbench::{World, case, eventually};
use testbench::{children, keeper};

/// Lets a keeper wait for a lock that is held, and returns when it has its watch.
pub(super) async fn waiter(
    world: &World,
    keeper: &Keeper,
    lock: &str,
) -> JoinHandle<Result<Guard>> {
    let before = watches(world).await;
    let mutex = keeper.mutex(lock).unwrap();
    let waiting = tokio::spawn(async move { mutex.lock().await });
    let watching = || async { watches(world).await > before };
    eventually("the waiter watches", SOON, watching).await;
    waiting
}

/// How many paths of this world are watched.
pub(crate) async fn watches(world: &World) -> usize {
    let sessions = world.watched_by_session().await;
    sessions.values().map(|(paths, _)| paths).sum()
}

/// Returns when as many connections have got through the wire again.
async fn again(wire: &Wire, before: usize, connections: usize) {
    let are_back = || async { wire.connections() >= before + connections };
    eventually("the clients are connected again", SOON, are_back).await;
}

#[case(embedded)]
async fn row_33_a_ticket_that_goes_before_it_is_watched_is_noticed(world: World) {
    let (a, b) = (keeper(&world).await, keeper(&world).await);
    let (stranger, faults) = (world.raw().await, world.embedded().faults());
    let session = own_session(&a).await;
    let lock = a.mutex("gone").unwrap();
    let watch = Match::op(Op::GetData).session(session);

    // The ticket right before its own, which it watches by arithmetic.
    let guard = b.mutex("gone").unwrap().lock().await.unwrap();
    let hold = faults.on(watch.clone()).stop_before();
    let mut place = lock.enqueue().await.unwrap();
    let (granted, ()) = tokio::join!(timeout(SOON, place.granted()), async {
        hold.reached().await;
        guard.release().await.unwrap();
        hold.release();
    });
    granted.unwrap().unwrap().release().await.unwrap();

    // The ticket that a list named.
    let guard = b.mutex("gone").unwrap().lock().await.unwrap();
    let between = b.mutex("gone").unwrap().enqueue().await.unwrap();
    let mut place = lock.enqueue().await.unwrap();
    drop(between);
    let two = || async { children(&stranger, "gone").await.len() == 2 };
    eventually("the one between them has left", SOON, two).await;
    let path = format!("{}/locks/gone/{}", world.chroot(), guard.node());
    let hold = faults.on(watch.path(path)).stop_before();
    let (granted, ()) = tokio::join!(timeout(SOON, place.granted()), async {
        hold.reached().await;
        guard.release().await.unwrap();
        hold.release();
    });
    granted.unwrap().unwrap().release().await.unwrap();
}

#[case]
async fn row_34_a_release_during_a_disconnect_wakes_the_waiter(world: World) {
    let ((a, wire), b) = (on_a_wire(&world).await, keeper(&world).await);
    let guard = b.mutex("missed").unwrap().lock().await.unwrap();
    let waiting = waiter(&world, &a, "missed").await;

    let before = wire.connections();
    wire.down();
    guard.release().await.unwrap();
    wire.up();
    again(&wire, before, 1).await;

    let granted = timeout(SOON, waiting).await.expect("it is woken");
    granted.unwrap().unwrap().release().await.unwrap();
}

#[case]
async fn row_35_a_release_after_a_reconnect_wakes_the_waiter(world: World) {
    let ((a, wire), b) = (on_a_wire(&world).await, keeper(&world).await);
    let guard = b.mutex("later").unwrap().lock().await.unwrap();
    let waiting = waiter(&world, &a, "later").await;

    for _ in 0..3 {
        let before = wire.connections();
        wire.cut();
        again(&wire, before, 1).await;
    }
    guard.release().await.unwrap();

    let granted = timeout(SOON, waiting).await.expect("it is woken");
    granted.unwrap().unwrap().release().await.unwrap();
}

#[case]
async fn row_38_no_watch_is_left_on_a_ticket_that_is_gone(world: World) {
    let (a, b) = (keeper(&world).await, keeper(&world).await);
    let stranger = world.raw().await;
    for _ in 0..World::times(50, 10_000) {
        let guard = b.mutex("watched").unwrap().lock().await.unwrap();
        let between = b.mutex("watched").unwrap().enqueue().await.unwrap();
        let mut place = a.mutex("watched").unwrap().enqueue().await.unwrap();
        drop(between);
        let two = || async { children(&stranger, "watched").await.len() == 2 };
        eventually("the one between them has left", SOON, two).await;

        let (granted, released) = tokio::join!(timeout(SOON, place.granted()), guard.release());

        released.unwrap();
        granted.unwrap().unwrap().release().await.unwrap();
    }
    assert_eq!(watches(&world).await, 0);
}

#[case(within = 120)]
async fn row_39_a_crowd_with_long_names_survives_a_reconnect(world: World) {
    let ((a, wire), b) = (on_a_wire(&world).await, keeper(&world).await);
    // The client crate loses a session that watches more than 128 KiB of paths: 450 of these.
    let waiters = World::times(600, 2000);
    let name = format!("crowd/{}", "x".repeat(240));
    let guard = b.mutex(&*name).unwrap().lock().await.unwrap();
    let crowd: Vec<_> = (0..waiters)
        .map(|_| {
            // Whose session is lost fails.
            let lock = a.mutex(&*name).unwrap().with_rejoin(false);
            tokio::spawn(async move { lock.lock().await?.release().await })
        })
        .collect();
    let patience = Duration::from_secs(30);
    let watching = || async { watches(&world).await == waiters };
    eventually("all watch", patience, watching).await;

    let queue = async || {
        let queue = b.queue(&*name).await.unwrap().into_iter();
        queue.map(|entry| entry.session).collect::<Vec<_>>()
    };
    let queued = queue().await;

    // Whether the client loses its way depends on how its bytes are cut into packets, so not once
    // only.
    let (sessions, cuts) = (world.watched_by_session().await.len(), 5);
    for _ in 0..cuts {
        let before = wire.connections();
        wire.cut();
        again(&wire, before, sessions).await;
        // The watches are sent before anything else, so an answer follows on them.
        timeout(SOON, a.queue("other")).await.unwrap().unwrap();
    }
    assert_eq!(queue().await, queued, "no session was lost");
    guard.release().await.unwrap();

    for waiter in crowd {
        timeout(patience, waiter)
            .await
            .expect("it is granted")
            .unwrap()
            .unwrap();
    }
    assert_eq!(watches(&world).await, 0);
    // A try that is too slow is given up, and another is made.
    assert!(
        wire.connections() >= sessions * (1 + cuts),
        "each session reconnected after each cut"
    );
}

#[case]
async fn row_40_a_participant_makes_one_ticket_per_grant_whoever_vanishes(world: World) {
    let (a, b, c) = (
        keeper(&world).await,
        keeper(&world).await,
        keeper(&world).await,
    );
    let stranger = world.raw().await;
    let rounds = World::times(10, 1000);
    let mut last = String::new();
    let wait = |mut place: Place| tokio::spawn(async move { place.granted().await });
    for round in 0..rounds {
        let join = async |keeper: &Keeper| keeper.mutex("vanish").unwrap().enqueue().await.unwrap();
        let guard = c.mutex("vanish").unwrap().lock().await.unwrap();
        let (first, one, second, two) = (
            join(&c).await,
            join(&a).await,
            join(&c).await,
            join(&b).await,
        );
        let three = || async { children(&stranger, "vanish").await.len() == 3 };
        let watching = || async { watches(&world).await == 2 };

        let participants = if round % 2 == 0 {
            // They vanish before any candidate looks for them.
            drop((first, second));
            eventually("those between them have left", SOON, three).await;
            [wait(one), wait(two)]
        } else {
            // They vanish while they are watched.
            let waiting = [wait(one), wait(two)];
            eventually("both watch", SOON, watching).await;
            drop((first, second));
            eventually("those between them have left", SOON, three).await;
            waiting
        };
        eventually("both watch", SOON, watching).await;
        guard.release().await.unwrap();
        for participant in participants {
            let guard = timeout(SOON, participant).await.unwrap().unwrap().unwrap();
            guard.node().clone_into(&mut last);
            guard.release().await.unwrap();
        }
    }

    assert_eq!(
        last,
        format!("lock-{:010}", rounds * 5 - 1),
        "five tickets in each round"
    );
}

#[case]
async fn row_42_a_storm_of_reconnects_costs_few_requests(world: World) {
    const PARTICIPANTS: usize = 8;
    let wire = Wire::start(&world).await;
    let guard = keeper(&world)
        .await
        .mutex("storm")
        .unwrap()
        .lock()
        .await
        .unwrap();
    let mut waiters = Vec::new();
    for _ in 0..PARTICIPANTS {
        let keeper = Keeper::connect(wire.connect_string()).await.unwrap();
        waiters.push((waiter(&world, &keeper, "storm").await, keeper));
    }

    let storms = World::times(10, 50);
    let (began, requests) = (Instant::now(), wire.requests());
    for _ in 0..storms {
        let before = wire.connections();
        wire.cut();
        again(&wire, before, PARTICIPANTS).await;
        // The row's pace is the claim: a poll in the quiet between two storms is counted.
        sleep(Duration::from_millis(100)).await;
    }

    let (cost, took) = (wire.requests() - requests, began.elapsed());
    assert!(
        cost <= 6 * PARTICIPANTS * storms,
        "{cost} requests in {took:?}"
    );
    guard.release().await.unwrap();
    for (waiter, keeper) in waiters {
        let guard = timeout(SOON, waiter).await.unwrap().unwrap().unwrap();
        guard.release().await.unwrap();
        drop(keeper);
    }
}
