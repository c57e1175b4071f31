//! The semaphore as its users see it: grants, their order, the number of permits, and their return.

#[path = "../../examples/rate_limit.rs"]
#[allow(dead_code, reason = "its main is not called")]
mod rate_limit;

pub mod cancel;
pub mod cost;
pub mod failures;
pub mod random;

use std::time::Duration;

use futures_util::future::BoxFuture;
use lockkeeper::{Error, Keeper, LockKind, Owner, Permit, Semaphore};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use zookeeper_client::{Acl, Acls, AuthId, CreateMode, Permission};

use testbench::{Make, World, case, eventually};
use testbench::{children, keeper};

const SOON: Duration = Duration::from_secs(3);
/// Long enough to see that a call waits.
const A_WHILE: Duration = Duration::from_millis(150);

pub(crate) async fn semaphore(world: &World, name: &str, limit: u32) -> Semaphore {
    keeper(world).await.semaphore(name, limit).unwrap()
}

/// A call that waits in a task of its own.
pub(crate) fn waits(semaphore: &Semaphore, permits: u32) -> JoinHandle<lockkeeper::Result<Permit>> {
    let semaphore = semaphore.clone();
    tokio::spawn(async move { semaphore.acquire_many(permits).await })
}

/// Calls that wait one after the other, in this order.
pub(crate) async fn line_up(
    semaphore: &Semaphore,
    stranger: &testbench::Stranger,
    name: &str,
    asked: &[u32],
) -> Vec<JoinHandle<lockkeeper::Result<Permit>>> {
    let mut waiting = Vec::new();
    for permits in asked {
        waiting.push(waits(semaphore, *permits));
        queued(stranger, name, waiting.len()).await;
    }
    waiting
}

/// Waits until so many wait in the queue.
pub(crate) async fn queued(stranger: &testbench::Stranger, name: &str, count: usize) {
    let queue = format!("{name}/queue");
    let all = || async { children(stranger, &queue).await.len() == count };
    eventually("they are in the queue", SOON, all).await;
}

pub(crate) async fn granted(waiting: JoinHandle<lockkeeper::Result<Permit>>) -> Permit {
    let ended = timeout(SOON, waiting).await.expect("it ends");
    ended.unwrap().expect("the permits are granted")
}

async fn refused(waiting: JoinHandle<lockkeeper::Result<Permit>>) -> Error {
    let ended = timeout(SOON, waiting).await.expect("it ends");
    ended.unwrap().expect_err("it is refused")
}

async fn still_waits(waiting: &mut JoinHandle<lockkeeper::Result<Permit>>) {
    let ended = timeout(A_WHILE, waiting).await;
    assert!(ended.is_err(), "it waits no longer: {ended:?}");
}

#[case]
async fn so_many_permits_and_no_more_are_handed_out(world: World) {
    let (one, two) = (
        semaphore(&world, "n", 3).await,
        semaphore(&world, "n", 3).await,
    );

    let first = one.acquire().await.unwrap();
    let second = two.acquire().await.unwrap();
    let third = one.acquire().await.unwrap();
    let mut fourth = waits(&two, 1);
    still_waits(&mut fourth).await;
    assert_eq!(one.available_permits().await.unwrap(), 0);
    second.release().await.unwrap();
    let fourth = granted(fourth).await;

    assert_eq!((first.permits(), fourth.permits()), (1, 1));
    assert_eq!(fourth.name().as_str(), "n");
    for permit in [first, third, fourth] {
        assert!(permit.is_held());
        permit.check().await.unwrap();
        permit.release().await.unwrap();
    }
    // The other keeper's server may be a moment ahead.
    let all = || async { one.available_permits().await.unwrap() == 3 };
    eventually("all permits are back", SOON, all).await;
}

#[case]
async fn several_permits_are_taken_all_at_once_or_not_at_all(world: World) {
    let (semaphore, stranger) = (semaphore(&world, "all", 5).await, world.raw().await);
    let one = semaphore.acquire_many(3).await.unwrap();

    let mut many = waits(&semaphore, 4);
    queued(&stranger, "all", 1).await;
    still_waits(&mut many).await;
    assert_eq!(
        semaphore.available_permits().await.unwrap(),
        2,
        "no part is taken"
    );
    one.release().await.unwrap();
    let many = granted(many).await;

    assert_eq!(many.permits(), 4);
    assert_eq!(semaphore.available_permits().await.unwrap(), 1);
    many.release().await.unwrap();
}

#[case]
async fn permits_are_handed_out_in_the_order_of_the_queue(world: World) {
    let (one, two) = (
        semaphore(&world, "fifo", 4).await,
        semaphore(&world, "fifo", 4).await,
    );
    let stranger = world.raw().await;
    let [a, b] = [
        one.acquire_many(2).await.unwrap(),
        two.acquire_many(2).await.unwrap(),
    ];

    let mut large = waits(&one, 3);
    queued(&stranger, "fifo", 1).await;
    let mut small = waits(&two, 1);
    queued(&stranger, "fifo", 2).await;
    a.release().await.unwrap();
    still_waits(&mut small).await;
    still_waits(&mut large).await;
    b.release().await.unwrap();

    let (large, small) = (granted(large).await, granted(small).await);
    assert_eq!((large.permits(), small.permits()), (3, 1));
    drop((large, small));
}

#[case]
async fn two_takers_of_two_with_a_limit_of_two_never_deadlock(world: World) {
    let takers = [
        semaphore(&world, "two", 2).await,
        semaphore(&world, "two", 2).await,
    ];
    let crowd = (0..8).map(|at| {
        let taker = takers[at % 2].clone();
        tokio::spawn(async move {
            for _ in 0..5 {
                let permit = taker.acquire_many(2).await.unwrap();
                tokio::task::yield_now().await;
                permit.release().await.unwrap();
            }
        })
    });

    let all = futures_util::future::join_all(crowd);

    for taker in timeout(SOON * 5, all).await.expect("nobody waits for ever") {
        taker.unwrap();
    }
    // The server of this session may be behind the last release.
    let are_back = || async { takers[0].available_permits().await.unwrap() == 2 };
    eventually("all permits are back", SOON, are_back).await;
}

#[case]
async fn more_permits_than_the_limit_are_refused(world: World) {
    let (semaphore, stranger) = (semaphore(&world, "many", 3).await, world.raw().await);

    for error in [
        semaphore.acquire_many(4).await.unwrap_err(),
        semaphore.try_acquire_many(4).await.unwrap_err(),
        semaphore
            .acquire_many_timeout(u32::MAX, SOON)
            .await
            .unwrap_err(),
    ] {
        assert!(
            matches!(&error, Error::TooManyPermits { name, limit: 3, .. } if name == "many"),
            "{error}"
        );
        assert!(error.is_refusal(), "{error}");
    }
    stranger.catch_up().await.unwrap();
    let root = stranger.check_stat("/locks").await.unwrap();
    assert!(root.is_none(), "nothing was sent");
    semaphore
        .acquire_many(3)
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    let error = semaphore.acquire_many(4).await.unwrap_err();
    assert!(matches!(error, Error::TooManyPermits { .. }), "{error}");
}

#[case]
async fn a_limit_or_a_number_of_zero_is_refused(world: World) {
    let keeper = keeper(&world).await;

    assert!(keeper.semaphore("zero", 0).unwrap_err().is_invalid());
    let semaphore = keeper.semaphore("zero", 1).unwrap();
    assert!(semaphore.acquire_many(0).await.unwrap_err().is_invalid());
    assert!(
        semaphore
            .try_acquire_many(0)
            .await
            .unwrap_err()
            .is_invalid()
    );
    assert!(semaphore.resize(0).await.unwrap_err().is_invalid());
    assert!(keeper.semaphore("a//b", 1).unwrap_err().is_invalid());
}

#[case]
async fn another_limit_than_the_stored_one_is_refused_and_both_are_named(world: World) {
    let (three, five) = (
        semaphore(&world, "limit", 3).await,
        semaphore(&world, "limit", 5).await,
    );
    assert_eq!(five.limit().await.unwrap(), 5, "nothing is stored yet");
    assert_eq!(five.stored_limit().await.unwrap(), None);
    let permit = three.acquire().await.unwrap();
    assert_eq!(five.stored_limit().await.unwrap(), Some(3));

    for error in [
        five.acquire().await.unwrap_err(),
        five.try_acquire().await.unwrap_err(),
        five.available_permits().await.unwrap_err(),
        five.limit().await.unwrap_err(),
    ] {
        assert!(
            matches!(&error, Error::LimitMismatch { name, ours: 5, theirs: 3, .. } if name == "limit"),
            "{error}"
        );
        let text = error.to_string();
        assert!(text.contains('5') && text.contains('3'), "{text}");
    }
    assert_eq!(three.limit().await.unwrap(), 3);
    drop(permit);
}

#[case]
async fn a_larger_limit_wakes_the_first_in_the_queue(world: World) {
    let (one, two) = (
        semaphore(&world, "up", 1).await,
        semaphore(&world, "up", 1).await,
    );
    let held = one.acquire().await.unwrap();
    let mut waiting = waits(&two, 1);
    still_waits(&mut waiting).await;

    one.resize(2).await.unwrap();

    let more = granted(waiting).await;
    assert_eq!(two.limit().await.unwrap(), 2);
    // The other one's server may not know of the second permit yet.
    assert_eq!(two.available_permits().await.unwrap(), 0);
    drop((held, more));
}

#[case]
async fn a_smaller_limit_takes_nothing_away_and_hands_nothing_out(world: World) {
    let semaphore = semaphore(&world, "down", 3).await;
    let held = [
        semaphore.acquire().await.unwrap(),
        semaphore.acquire().await.unwrap(),
        semaphore.acquire().await.unwrap(),
    ];

    semaphore.resize(1).await.unwrap();

    let mut waiting = waits(&semaphore, 1);
    let [a, b, c] = held;
    for permit in [&a, &b, &c] {
        permit.check().await.unwrap();
    }
    assert_eq!(semaphore.available_permits().await.unwrap(), 0);
    a.release().await.unwrap();
    still_waits(&mut waiting).await;
    b.release().await.unwrap();
    still_waits(&mut waiting).await;
    c.release().await.unwrap();
    granted(waiting).await.release().await.unwrap();
}

#[case]
async fn a_limit_that_shrinks_below_what_is_waited_for_is_told_to_who_waits(world: World) {
    let (semaphore, stranger) = (semaphore(&world, "shrink", 4).await, world.raw().await);
    let held = semaphore.acquire().await.unwrap();
    let first = waits(&semaphore, 4);
    queued(&stranger, "shrink", 1).await;
    let second = waits(&semaphore, 3);
    queued(&stranger, "shrink", 2).await;
    let third = waits(&semaphore, 2);
    queued(&stranger, "shrink", 3).await;

    semaphore.resize(2).await.unwrap();

    for (waiting, wanted) in [(first, 4), (second, 3)] {
        let error = refused(waiting).await;
        assert!(
            matches!(error, Error::TooManyPermits { asked, limit: 2, .. } if asked == wanted),
            "{error}"
        );
    }
    held.release().await.unwrap();
    granted(third).await.release().await.unwrap();
}

#[case]
async fn every_handle_follows_a_new_limit(world: World) {
    let (one, two) = (
        semaphore(&world, "live", 1).await,
        semaphore(&world, "live", 1).await,
    );
    two.acquire().await.unwrap().release().await.unwrap();

    one.resize(3).await.unwrap();
    world.raw().await.catch_up().await.unwrap();

    let many = timeout(SOON, two.acquire_many(3)).await.unwrap().unwrap();
    assert_eq!(many.permits(), 3);
    many.release().await.unwrap();
    // A handle that looks now must know of the new limit, and one that disagrees can set it.
    let late = semaphore(&world, "live", 1).await;
    assert!(late.acquire().await.is_err());
    late.resize(1).await.unwrap();
    late.acquire().await.unwrap().release().await.unwrap();
}

#[case]
async fn concurrent_resizes_all_end(world: World) {
    let handles = [
        semaphore(&world, "race", 9).await,
        semaphore(&world, "race", 9).await,
    ];
    let resizes = (1..=20).map(|new: u32| {
        let handle = handles[new as usize % 2].clone();
        tokio::spawn(async move { handle.resize(new).await })
    });

    let all = timeout(SOON * 2, futures_util::future::join_all(resizes)).await;

    for resize in all.expect("each ends") {
        resize.unwrap().unwrap();
    }
    let limit = handles[0].limit().await.unwrap();
    assert!((1..=20).contains(&limit), "{limit}");
}

#[case]
async fn try_acquire_says_not_now_and_takes_what_is_free(world: World) {
    let (one, two) = (
        semaphore(&world, "try", 2).await,
        semaphore(&world, "try", 2).await,
    );
    let stranger = world.raw().await;

    let permit = one.try_acquire().await.unwrap().expect("two are free");
    // A server of an ensemble that is behind would let a try join, and so write.
    assert_eq!(two.stored_limit().await.unwrap(), Some(2));
    assert!(
        two.try_acquire_many(2).await.unwrap().is_none(),
        "one is free"
    );
    let second = two.try_acquire().await.unwrap().expect("one is free");
    let versions = || async {
        stranger.catch_up().await.unwrap();
        let queue = stranger
            .check_stat("/locks/try/queue")
            .await
            .unwrap()
            .unwrap();
        (queue.version, queue.cversion)
    };
    assert_eq!(one.available_permits().await.unwrap(), 0);
    let before = versions().await;
    for _ in 0..20 {
        assert!(one.try_acquire().await.unwrap().is_none(), "none is free");
    }
    assert_eq!(versions().await, before, "nothing was written");
    permit.release().await.unwrap();
    second.release().await.unwrap();

    // With a waiter in the queue, the free permits are its own.
    let held = one.acquire().await.unwrap();
    let waiting = waits(&two, 2);
    queued(&stranger, "try", 1).await;
    assert!(one.try_acquire().await.unwrap().is_none(), "somebody waits");
    held.release().await.unwrap();
    granted(waiting).await.release().await.unwrap();
}

#[case]
async fn a_try_for_more_than_there_are_by_now_is_refused(world: World) {
    let (one, two) = (
        semaphore(&world, "tried", 3).await,
        semaphore(&world, "tried", 3).await,
    );
    two.acquire().await.unwrap().release().await.unwrap();
    one.resize(1).await.unwrap();

    for _ in 0..2 {
        // "Not now" would be for ever.
        let error = two.try_acquire_many(2).await.unwrap_err();
        assert!(
            matches!(
                error,
                Error::TooManyPermits {
                    asked: 2,
                    limit: 1,
                    ..
                }
            ),
            "{error}"
        );
    }

    one.resize(2).await.unwrap();
    let both = two.try_acquire_many(2).await.unwrap();
    both.expect("two are there").release().await.unwrap();
}

#[case]
async fn a_timed_out_waiter_takes_nothing_and_blocks_nobody(world: World) {
    let (semaphore, stranger) = (semaphore(&world, "late", 2).await, world.raw().await);
    let held = semaphore.acquire().await.unwrap();

    let many = semaphore
        .acquire_many_timeout(2, A_WHILE)
        .await
        .unwrap_err();
    let error = timeout(SOON, semaphore.acquire_timeout(SOON))
        .await
        .unwrap();

    assert!(many.is_timeout(), "{many}");
    let second = error.expect("nobody is in front any more");
    let none = semaphore.acquire_timeout(A_WHILE).await.unwrap_err();
    assert!(none.is_timeout(), "{none}");
    queued(&stranger, "late", 0).await;
    assert_eq!(children(&stranger, "late/held").await.len(), 2);
    drop((held, second));
}

#[case]
async fn permits_of_a_lost_session_come_back(world: World) {
    let short = Keeper::builder(world.connect_string()).session_timeout(Duration::from_secs(1));
    let short = short.connect().await.unwrap();
    let (lost, semaphore) = (
        short.semaphore("lost", 2).unwrap(),
        semaphore(&world, "lost", 2).await,
    );
    let permit = lost.acquire_many(2).await.unwrap();
    let waiting = waits(&semaphore, 1);
    let session = i64::from(semaphore.holders().await.unwrap()[0].session);

    // Another client ends the session, as its expiry would.
    end_session(&world, session).await;

    let granted = timeout(SOON * 2, waiting).await.unwrap().unwrap().unwrap();
    let told = timeout(SOON, permit.lost())
        .await
        .expect("the holder is told");
    assert!(told.is_lost(), "{told}");
    assert!(!permit.is_held());
    assert!(permit.release().await.unwrap_err().is_lost());
    granted.release().await.unwrap();
}

/// Ends a session at the servers: by the hook, or by removing what it has, which is all that its
/// end would do to others.
async fn end_session(world: &World, session: i64) {
    if world.is_embedded() {
        assert!(world.embedded().faults().expire_session(session));
        return;
    }
    let stranger = world.raw().await;
    for permit in children(&stranger, "lost/held").await {
        let path = format!("/locks/lost/held/{permit}");
        stranger.delete(&path, None).await.unwrap();
    }
}

#[case]
async fn the_queue_shows_who_holds_permits_and_who_waits(world: World) {
    let (keeper, stranger) = (keeper(&world).await, world.raw().await);
    let semaphore = keeper.semaphore("seen", 5).unwrap().with_label("backup");
    let two = semaphore.acquire_many(2).await.unwrap();
    let three = semaphore.acquire_many(3).await.unwrap();
    let waiting = waits(&semaphore, 4);
    queued(&stranger, "seen", 1).await;

    let holders = semaphore.holders().await.unwrap();
    let queue = keeper.queue("seen").await.unwrap();

    let kinds: Vec<_> = queue
        .iter()
        .map(|entry| (entry.is_holder, (entry.kind.clone(), entry.permits)))
        .collect();
    let permit = |permits| (LockKind::Permit, Some(permits));
    assert_eq!(
        kinds,
        [(true, permit(2)), (true, permit(3)), (false, permit(4))]
    );
    assert_eq!(queue[..2], holders);
    assert_eq!(holders[0].node, two.node());
    for entry in &queue {
        assert_eq!(entry.label.as_deref(), Some("backup"));
        assert_eq!(entry.pid, Some(std::process::id()));
        assert!(entry.host.is_some() && entry.since.is_some());
        assert_ne!(i64::from(entry.session), 0);
    }
    drop((two, three));
    granted(waiting).await.release().await.unwrap();
    eventually("nobody is left", SOON, || async {
        keeper.queue("seen").await.unwrap().is_empty()
    })
    .await;
}

#[case]
async fn locks_shows_a_semaphore_under_its_name(world: World) {
    let (keeper, stranger) = (keeper(&world).await, world.raw().await);
    let semaphore = keeper.semaphore("a/pool", 2).unwrap();
    let held = [
        semaphore.acquire().await.unwrap(),
        semaphore.acquire().await.unwrap(),
    ];
    let waiting = waits(&semaphore, 1);
    queued(&stranger, "a/pool", 1).await;
    let guard = keeper.mutex("a").unwrap().lock().await.unwrap();

    let locks = keeper.locks().await.unwrap();

    let locks: Vec<_> = locks
        .iter()
        .map(|lock| (lock.name.as_str(), lock.tickets))
        .collect();
    assert_eq!(locks, [("a", 1), ("a/pool", 3)]);
    guard.release().await.unwrap();
    drop(held);
    granted(waiting).await.release().await.unwrap();
    eventually("nothing is in use", SOON, || async {
        keeper.locks().await.unwrap().is_empty()
    })
    .await;
}

/// Every way to a lock with this name is refused, because of this node.
async fn no_lock_has(keeper: &Keeper, stranger: &testbench::Stranger, name: &str, found: &str) {
    let there = || async {
        let mut nodes = children(stranger, name).await;
        nodes.sort();
        nodes
    };
    let before = there().await;
    let (lock, both) = (keeper.mutex(name).unwrap(), keeper.rw_lock(name).unwrap());
    let (lingering, election) = (
        lock.clone().with_linger(SOON),
        keeper.election(name).unwrap(),
    );
    let owned = lock.clone().with_owner(&Owner::new());
    let ways: [BoxFuture<'_, lockkeeper::Result<()>>; 14] = [
        Box::pin(async { lock.lock().await.map(drop) }),
        Box::pin(async { lock.try_lock().await.map(drop) }),
        Box::pin(async { lock.lock_timeout(SOON).await.map(drop) }),
        Box::pin(async { lock.enqueue().await?.granted().await.map(drop) }),
        Box::pin(async { owned.lock().await.map(drop) }),
        Box::pin(async { lingering.lock().await.map(drop) }),
        Box::pin(async { lingering.try_lock().await.map(drop) }),
        Box::pin(async { both.read().await.map(drop) }),
        Box::pin(async { both.try_read().await.map(drop) }),
        Box::pin(async { both.write().await.map(drop) }),
        Box::pin(async { keeper.lock_all(["free", name]).await.map(drop) }),
        Box::pin(async {
            keeper
                .multi_lock(["free", name])?
                .try_lock()
                .await
                .map(drop)
        }),
        Box::pin(async { election.campaign("me").await.map(drop) }),
        Box::pin(async { election.try_campaign("me").await.map(drop) }),
    ];
    for (at, way) in ways.into_iter().enumerate() {
        let ended = timeout(SOON, way).await.expect("it does not wait");
        let error = ended.expect_err("it is refused");
        assert!(
            matches!(&error, Error::UnsafeMix { node, .. } if node == found),
            "way {at}: {error}"
        );
        assert!(error.to_string().contains(found), "{error}");
        // A ticket is taken back behind its error.
        let is_as_before = || async { there().await == before };
        eventually("its ticket leaves", SOON, is_as_before).await;
    }
}

/// Every way to this semaphore is refused, because of a ticket in the queue of its name.
async fn is_refused(semaphore: &Semaphore) {
    let ways: [BoxFuture<'_, lockkeeper::Result<()>>; 5] = [
        Box::pin(async { semaphore.acquire().await.map(drop) }),
        Box::pin(async { semaphore.try_acquire().await.map(drop) }),
        Box::pin(async { semaphore.acquire_timeout(SOON).await.map(drop) }),
        Box::pin(async { semaphore.resize(7).await }),
        Box::pin(async { semaphore.available_permits().await.map(drop) }),
    ];
    for (at, way) in ways.into_iter().enumerate() {
        let ended = timeout(SOON, way).await.expect("it does not wait");
        let error = ended.expect_err("it is refused");
        assert!(
            matches!(&error, Error::UnsafeMix { node, .. } if node.starts_with("lock-")),
            "way {at}: {error}"
        );
    }
}

#[case]
async fn a_name_with_a_limit_or_permits_is_no_other_locks(world: World) {
    let (keeper, stranger) = (keeper(&world).await, world.raw().await);
    let semaphore = keeper.semaphore("both", 1).unwrap();
    let permit = semaphore.acquire().await.unwrap();
    no_lock_has(&keeper, &stranger, "both", "limit").await;

    // Removing the limit while permits are held frees nothing yet.
    stranger.delete("/locks/both/limit", None).await.unwrap();
    no_lock_has(
        &keeper,
        &stranger,
        "both",
        &format!("held/{}", permit.node()),
    )
    .await;
    let queue = keeper.queue("both").await.unwrap();
    assert_eq!(queue.len(), 1, "it is still shown: {queue:?}");

    // No permit is held, and the name is the semaphore's even so.
    permit.release().await.unwrap();
    semaphore.acquire().await.unwrap().release().await.unwrap();
    no_lock_has(&keeper, &stranger, "both", "limit").await;

    stranger.delete("/locks/both/limit", None).await.unwrap();
    let free = timeout(SOON, keeper.mutex("both").unwrap().lock()).await;
    free.unwrap().unwrap().release().await.unwrap();
}

#[case]
async fn a_name_with_a_lock_is_no_semaphores(world: World) {
    let (keeper, stranger) = (keeper(&world).await, world.raw().await);
    let used = keeper.semaphore("both", 1).unwrap();
    used.acquire().await.unwrap().release().await.unwrap();
    stranger.delete("/locks/both/limit", None).await.unwrap();
    let guard = keeper.mutex("both").unwrap().lock().await.unwrap();

    // Also where this handle has looked before.
    for semaphore in [used, keeper.semaphore("both", 1).unwrap()] {
        is_refused(&semaphore).await;
    }

    let node = guard.node().to_owned();
    guard.release().await.unwrap();
    assert!(!children(&stranger, "both").await.contains(&node));
    let permit = keeper.semaphore("both", 1).unwrap().acquire().await;
    permit.unwrap().release().await.unwrap();
}

#[case]
async fn a_limit_that_came_beside_a_queue_lets_nobody_in_beside_it(world: World) {
    let (keeper, stranger) = (keeper(&world).await, world.raw().await);
    let lock = keeper.mutex("both").unwrap();
    let semaphore = keeper.semaphore("both", 1).unwrap();
    let guard = lock.lock().await.unwrap();
    let mut next = lock.enqueue().await.unwrap();
    assert!(timeout(A_WHILE, next.granted()).await.is_err());

    // As by a semaphore that looked before there was a ticket, and stored its limit only now.
    let persistent = Make::Persistent;
    let limit = "/locks/both/limit";
    stranger.create(limit, b"1", &persistent).await.unwrap();

    is_refused(&semaphore).await;
    guard.release().await.unwrap();
    // By the mark of the one before it, which was there before the limit.
    let guard = timeout(SOON, next.granted()).await.unwrap().unwrap();
    is_refused(&semaphore).await;
    guard.release().await.unwrap();
    no_lock_has(&keeper, &stranger, "both", "limit").await;
    semaphore.acquire().await.unwrap().release().await.unwrap();
}

#[case]
async fn a_lock_that_is_refused_takes_no_call_for_permits_along(world: World) {
    let [ours, theirs] = [keeper(&world).await, keeper(&world).await];
    let stranger = world.raw().await;
    let semaphore = ours.semaphore("both", 1).unwrap();
    semaphore.acquire().await.unwrap().release().await.unwrap();

    let lock = theirs.mutex("both").unwrap();
    let refused = async {
        loop {
            let error = lock.lock().await.expect_err("it is the semaphore's");
            assert!(matches!(error, Error::UnsafeMix { .. }), "{error}");
            let is_gone = || async {
                let mut nodes = children(&stranger, "both").await.into_iter();
                !nodes.any(|node| node.starts_with("lock-"))
            };
            eventually("its ticket leaves", SOON, is_gone).await;
        }
    };
    let permits = async {
        for _ in 0..20 {
            semaphore.acquire().await?.release().await?;
            ours.semaphore("both", 1)?.available_permits().await?;
            drop(ours.semaphore("both", 1)?.try_acquire().await?);
        }
        Ok::<(), Error>(())
    };
    tokio::select! {
        taken = permits => taken.unwrap(),
        () = refused => {}
    }
}

#[case(zookeeper, why = "access lists and credentials")]
async fn a_semaphores_node_that_may_not_be_read_frees_no_name(world: World) {
    let (keeper, stranger) = (keeper(&world).await, world.raw().await);
    let anyone = Make::Persistent;
    let hidden = [Acl::new(
        Permission::CREATE | Permission::DELETE,
        AuthId::anyone(),
    )];
    let hidden = CreateMode::Persistent.with_acls(Acls::new(&hidden));
    for path in ["/locks", "/locks/limit", "/locks/held"] {
        stranger.create(path, b"", &anyone).await.unwrap();
    }
    let denied = |ended: lockkeeper::Result<()>, node: &str| {
        let error = ended.expect_err("nobody can tell who holds by it");
        let Error::Denied { path, .. } = &error else {
            panic!("{error}");
        };
        assert!(path.ends_with(node), "{error}");
    };
    for name in ["limit", "held"] {
        let node = format!("/locks/{name}/{name}");
        stranger
            .zookeeper()
            .create(&node, b"1", &hidden)
            .await
            .unwrap();
        let lock = keeper.mutex(name).unwrap();
        let locked = timeout(SOON, lock.lock()).await.unwrap();
        denied(locked.map(drop), &node);
        denied(lock.try_lock().await.map(drop), &node);
        let reader = keeper.rw_lock(name).unwrap();
        denied(reader.read().await.map(drop), &node);
    }

    // Nor does a queue that may not be.
    stranger
        .zookeeper()
        .create("/locks/shut", b"", &hidden)
        .await
        .unwrap();
    let semaphore = keeper.semaphore("shut", 1).unwrap();
    let taken = timeout(SOON, semaphore.acquire()).await.unwrap();
    denied(taken.map(drop), "/locks/shut");
}

#[case]
async fn locks_below_a_lock_may_be_called_like_a_semaphores_nodes(world: World) {
    let keeper = keeper(&world).await;
    let names = ["orders/queue", "orders/held", "orders/limit"];
    for in_use in [true, false] {
        let mut below = Vec::new();
        for name in names {
            below.push(keeper.mutex(name).unwrap().lock().await.unwrap());
        }
        if !in_use {
            for guard in below.drain(..) {
                guard.release().await.unwrap();
            }
        }
        let lock = keeper.mutex("orders").unwrap();
        lock.lock().await.unwrap().release().await.unwrap();
        let taken = lock.try_lock().await.unwrap();
        let queue = keeper.queue("orders").await.unwrap();
        let kinds: Vec<_> = queue.iter().map(|entry| entry.kind.clone()).collect();
        assert_eq!(kinds, [LockKind::Lock]);
        taken.unwrap().release().await.unwrap();
        let reader = keeper.rw_lock("orders").unwrap().read().await.unwrap();
        reader.release().await.unwrap();
    }
}

#[case]
async fn a_permit_that_an_operator_removes_is_told_to_its_holder(world: World) {
    let (semaphore, stranger) = (semaphore(&world, "broken", 1).await, world.raw().await);
    let permit = semaphore.acquire().await.unwrap();
    let waiting = waits(&semaphore, 1);
    queued(&stranger, "broken", 1).await;

    let path = format!("/locks/broken/held/{}", permit.node());
    stranger.delete(&path, None).await.unwrap();

    let next = granted(waiting).await;
    assert!(permit.check().await.unwrap_err().is_lost());
    assert!(!permit.is_held());
    assert!(permit.release().await.unwrap_err().is_lost());
    next.check().await.unwrap();
    next.release().await.unwrap();
}

#[case]
async fn a_removed_limit_is_stored_again(world: World) {
    let (semaphore, stranger) = (semaphore(&world, "gone", 1).await, world.raw().await);
    let permit = semaphore.acquire().await.unwrap();
    let mut waiting = waits(&semaphore, 1);
    queued(&stranger, "gone", 1).await;

    let limit = "/locks/gone/limit";
    stranger.delete(limit, None).await.unwrap();

    let stored = || async {
        let stored = stranger.get_data(limit).await;
        stored.is_ok_and(|(data, _)| data == b"1")
    };
    eventually("it is stored again", SOON, stored).await;
    still_waits(&mut waiting).await;
    permit.release().await.unwrap();
    granted(waiting).await.release().await.unwrap();
}

#[case]
async fn a_stored_limit_that_is_no_number_is_refused(world: World) {
    let (semaphore, stranger) = (semaphore(&world, "odd", 1).await, world.raw().await);
    semaphore.acquire().await.unwrap().release().await.unwrap();

    stranger
        .set_data("/locks/odd/limit", b"lots", None)
        .await
        .unwrap();
    stranger.catch_up().await.unwrap();

    for error in [
        semaphore.acquire().await.unwrap_err(),
        semaphore.available_permits().await.unwrap_err(),
    ] {
        assert!(matches!(error, Error::Refused { .. }), "{error}");
        assert!(error.to_string().contains("/locks/odd/limit"), "{error}");
    }
}

#[case]
async fn junk_among_the_permits_counts_for_nothing(world: World) {
    let (semaphore, stranger) = (semaphore(&world, "junk", 2).await, world.raw().await);
    semaphore.acquire().await.unwrap().release().await.unwrap();
    let options = Make::Persistent;
    for junk in ["lease-1-0000000000", "permit-0-x", "permit-9999999999-x"] {
        let path = format!("/locks/junk/held/{junk}");
        stranger.create(&path, b"", &options).await.unwrap();
    }

    let both = timeout(SOON, semaphore.acquire_many(2))
        .await
        .unwrap()
        .unwrap();

    assert_eq!(semaphore.holders().await.unwrap().len(), 1);
    both.release().await.unwrap();
    assert_eq!(children(&stranger, "junk/held").await.len(), 3);
}

#[case]
async fn closing_a_keeper_gives_its_permits_back(world: World) {
    let (one, two) = (keeper(&world).await, keeper(&world).await);
    let held = one.semaphore("closed", 1).unwrap().acquire().await.unwrap();
    let other = one.semaphore("closed", 1).unwrap();
    let ended = waits(&other, 1);
    queued(&world.raw().await, "closed", 1).await;
    let waiting = waits(&two.semaphore("closed", 1).unwrap(), 1);

    one.close().await;

    let error = timeout(SOON, ended).await.unwrap().unwrap().unwrap_err();
    assert!(error.is_closed(), "{error}");
    granted(waiting).await.release().await.unwrap();
    assert!(!held.is_held());
}

#[case]
async fn the_example_never_overloads_its_service(world: World) {
    let most = rate_limit::calls(&world.connect_string()).await.unwrap();

    assert!((1..=4).contains(&most), "{most}");
}
