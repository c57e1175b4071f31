//! Owners: a holder gets its lock again, from the same keeper or another, and no other owner gets
//! in beside it.

mod cancelled;
mod chance;
mod crossings;
mod guests;
mod hosts;

use std::time::Duration;

use lockkeeper::embedded::{EmbeddedServer, Op};
use lockkeeper::{Guard, Keeper, Mutex, Owner};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tracing::Level;
use tracing::instrument::WithSubscriber;

use testbench::heard::Heard;
use testbench::{World, case, eventually};
use testbench::{children, keeper};

const SOON: Duration = Duration::from_secs(3);
/// Long enough to see that a call waits.
const A_WHILE: Duration = Duration::from_millis(150);

fn owned(keeper: &Keeper, lock: &str, owner: &str) -> Mutex {
    let lock = keeper.mutex(lock).unwrap();
    lock.with_owner(&Owner::named(owner))
}

/// What ought to be granted.
async fn at_once(lock: &Mutex) -> Guard {
    let granted = timeout(SOON, lock.lock()).await;
    granted.expect("it is granted").unwrap()
}

/// A call that waits in a task of its own, and is in the queue.
async fn waiter(lock: Mutex) -> JoinHandle<Guard> {
    let mut place = timeout(SOON, lock.enqueue()).await.unwrap().unwrap();
    tokio::spawn(async move { place.granted().await.unwrap() })
}

async fn goes_on_waiting(waiter: &JoinHandle<Guard>) {
    tokio::time::sleep(A_WHILE).await;
    assert!(!waiter.is_finished(), "it was let in");
}

async fn comes_in(waiter: JoinHandle<Guard>) -> Guard {
    let granted = timeout(SOON, waiter).await;
    granted.expect("nobody is before it").unwrap()
}

async fn is_empty(stranger: &testbench::Stranger, lock: &str) {
    let empty = || async { children(stranger, lock).await.is_empty() };
    eventually("no ticket is left", SOON, empty).await;
}

fn requests(server: &EmbeddedServer) -> u64 {
    let counters = server.counters();
    counters.requests() - counters.get(Op::Ping)
}

/// The session of the first ticket in the queue.
async fn session_of(keeper: &Keeper, lock: &str) -> i64 {
    keeper.queue(lock).await.unwrap()[0].session.into()
}

#[case]
async fn an_owner_gets_its_own_hold_again_with_the_same_token(world: World) {
    let (keeper, stranger) = (keeper(&world).await, world.raw().await);
    let lock = owned(&keeper, "again", "job");

    let outer = at_once(&lock).await;
    // Another mutex of the same name and owner, and another task.
    let again = owned(&keeper.clone(), "again", "job");
    let inner = tokio::spawn(async move { again.lock().await.unwrap() });
    let inner = timeout(SOON, inner).await.unwrap().unwrap();

    assert_eq!(inner.token(), outer.token());
    assert_eq!(inner.node(), outer.node());
    assert_eq!(inner.owner(), Some(&Owner::named("job")));
    assert_eq!(children(&stranger, "again").await, [outer.node()]);
    inner.check().await.unwrap();
    drop(inner);
    outer.check().await.unwrap();
    outer.release().await.unwrap();
    assert!(children(&stranger, "again").await.is_empty());
}

#[case(embedded)]
async fn an_owner_locks_again_without_any_request(world: World) {
    let builder = Keeper::builder(world.connect_string());
    let builder = builder.session_timeout(Duration::from_secs(3600));
    let (keeper, server) = (builder.connect().await.unwrap(), world.embedded());
    let lock = owned(&keeper, "free", "job");
    let outer = at_once(&lock).await;
    let before = requests(server);

    let mut inner = Vec::new();
    for round in 0..1000 {
        inner.push(match round % 3 {
            0 => lock.lock().await.unwrap(),
            1 => lock.try_lock().await.unwrap().expect("it is ours"),
            _ => lock.lock_timeout(SOON).await.unwrap(),
        });
    }
    for guard in inner {
        guard.release().await.unwrap();
    }

    assert_eq!(requests(server), before);
    outer.release().await.unwrap();
    assert_eq!(requests(server), before + 1);
}

#[case]
async fn a_lock_is_free_when_the_last_guard_of_its_owner_goes_in_whatever_order(world: World) {
    let [keeper, other] = [keeper(&world).await, keeper(&world).await];
    let lock = owned(&keeper, "order", "job");
    for (first, second, third) in [
        (0, 1, 2),
        (0, 2, 1),
        (1, 0, 2),
        (1, 2, 0),
        (2, 0, 1),
        (2, 1, 0),
    ] {
        let mut guards = Vec::new();
        for _ in 0..3 {
            guards.push(Some(at_once(&lock).await));
        }
        let next = waiter(other.mutex("order").unwrap()).await;
        for (at, is_released) in [(first, true), (second, false)] {
            let guard = guards[at].take().unwrap();
            if is_released {
                guard.release().await.unwrap();
            } else {
                drop(guard);
            }
        }
        tokio::task::yield_now().await;
        assert!(!next.is_finished(), "one guard is left");
        let last = guards[third].take().unwrap();
        // A release in the background asks three times: it would be seen by the last of these.
        for _ in 0..6 {
            last.check().await.unwrap();
        }
        let token = last.token();
        last.release().await.unwrap();

        let next = comes_in(next).await;
        assert!(next.token() > token);
        next.release().await.unwrap();
    }
}

#[case]
async fn another_owner_and_nobody_wait_for_the_owner_that_holds(world: World) {
    let [keeper, other] = [keeper(&world).await, keeper(&world).await];
    let outer = at_once(&owned(&keeper, "wait", "job")).await;

    let waiters = [
        waiter(owned(&keeper, "wait", "another")).await,
        waiter(keeper.mutex("wait").unwrap()).await,
        waiter(owned(&other, "wait", "another job")).await,
        waiter(other.mutex("wait").unwrap()).await,
    ];
    for waiter in &waiters {
        goes_on_waiting(waiter).await;
    }
    outer.release().await.unwrap();

    let mut token = None;
    for waiter in waiters {
        let guard = comes_in(waiter).await;
        assert!(Some(guard.token()) > token);
        token = Some(guard.token());
        guard.release().await.unwrap();
    }
}

#[case]
async fn a_try_lock_of_the_owner_that_holds_gets_in_and_others_get_nothing(world: World) {
    let [keeper, other] = [keeper(&world).await, keeper(&world).await];
    let stranger = world.raw().await;
    let outer = at_once(&owned(&keeper, "try", "job")).await;
    let writes = || async {
        let stat = stranger.check_stat("/locks/try").await.unwrap().unwrap();
        stat.pzxid.max(stat.mzxid)
    };
    stranger.catch_up().await.unwrap();
    // A server of an ensemble that is behind would let the other one join, and so write.
    assert_eq!(other.queue("try").await.unwrap().len(), 1);
    let before = writes().await;

    for lock in [
        owned(&keeper, "try", "another"),
        owned(&other, "try", "another"),
        keeper.mutex("try").unwrap(),
    ] {
        assert!(lock.try_lock().await.unwrap().is_none());
    }
    stranger.catch_up().await.unwrap();
    assert_eq!(writes().await, before, "they wrote nothing");
    let inner = owned(&keeper, "try", "job").try_lock().await.unwrap();
    let inner = inner.expect("it is the owner's");
    let guest = owned(&other, "try", "job").try_lock().await.unwrap();
    let guest = guest.expect("it is the owner's elsewhere");

    assert_eq!([inner.token(), guest.token()], [outer.token(); 2]);
    for guard in [outer, inner, guest] {
        guard.release().await.unwrap();
    }
    is_empty(&stranger, "try").await;
}

#[case]
async fn calls_of_one_owner_that_wait_together_share_the_hold(world: World) {
    let [keeper, other] = [keeper(&world).await, keeper(&world).await];
    let stranger = world.raw().await;
    let held = at_once(&other.mutex("together").unwrap()).await;
    let calls: Vec<_> = (0..5)
        .map(|_| {
            let lock = owned(&keeper, "together", "job");
            tokio::spawn(async move { lock.lock().await.unwrap() })
        })
        .collect();
    let queued = || async { children(&stranger, "together").await.len() == 2 };
    eventually("one of them is in the queue", SOON, queued).await;

    held.release().await.unwrap();

    let mut guards = Vec::new();
    for call in calls {
        guards.push(comes_in(call).await);
    }
    let token = guards[0].token();
    assert!(guards.iter().all(|guard| guard.token() == token));
    assert_eq!(children(&stranger, "together").await.len(), 1);
    drop(guards);
    is_empty(&stranger, "together").await;
}

#[case]
async fn a_call_of_an_owner_that_gives_up_lets_the_next_one_ask(world: World) {
    let [keeper, other] = [keeper(&world).await, keeper(&world).await];
    let stranger = world.raw().await;
    let held = at_once(&other.mutex("gone").unwrap()).await;
    let lock = owned(&keeper, "gone", "job");
    let first = tokio::spawn({
        let lock = lock.clone();
        async move { lock.lock().await }
    });
    let queued = || async { children(&stranger, "gone").await.len() == 2 };
    eventually("the first call is in the queue", SOON, queued).await;

    // Behind the first one's back: not now, and not in time.
    assert!(lock.try_lock().await.unwrap().is_none());
    let late = lock.lock_timeout(A_WHILE).await;
    assert!(late.unwrap_err().is_timeout());
    let second = tokio::spawn({
        let lock = lock.clone();
        async move { lock.lock().await.unwrap() }
    });
    first.abort();
    assert!(first.await.unwrap_err().is_cancelled());
    eventually("the second call is in the queue", SOON, queued).await;
    held.release().await.unwrap();

    comes_in(second).await.release().await.unwrap();
    is_empty(&stranger, "gone").await;
}

#[case]
async fn a_hold_that_came_of_a_place_is_entered_again(world: World) {
    let (keeper, stranger) = (keeper(&world).await, world.raw().await);
    let lock = owned(&keeper, "place", "job");
    let mut place = lock.enqueue().await.unwrap();
    let outer = timeout(SOON, place.granted()).await.unwrap().unwrap();

    let inner = at_once(&lock).await;

    assert_eq!(inner.token(), outer.token());
    assert_eq!(children(&stranger, "place").await, [outer.node()]);
    outer.release().await.unwrap();
    inner.check().await.unwrap();
    inner.release().await.unwrap();
}

#[case(embedded)]
async fn a_lost_hold_is_not_entered_again(world: World) {
    let keeper = keeper(&world).await;
    let lock = owned(&keeper, "lost", "job");
    let outer = at_once(&lock).await;
    let inner = at_once(&lock).await;
    let lost = outer.lost();

    let session = session_of(&keeper, "lost").await;
    assert!(world.embedded().faults().expire_session(session));
    timeout(SOON, lost).await.unwrap();
    let anew = at_once(&lock).await;

    assert!(anew.token() > outer.token(), "another hold");
    assert!(!inner.is_held() && !outer.is_held());
    assert!(inner.release().await.unwrap_err().is_lost());
    drop(outer);
    anew.check().await.unwrap();
    assert_eq!(at_once(&lock).await.token(), anew.token());
    anew.release().await.unwrap();
}

fn warnings(heard: &Heard) -> usize {
    heard.lines("is about to wait for itself").len()
}

#[case]
async fn a_task_that_locks_again_without_an_owner_is_warned(world: World) {
    let (keeper, log) = (keeper(&world).await, Heard::default());
    let (lock, heard) = (keeper.mutex("self").unwrap(), log.clone());

    let task = async move {
        let guard = lock.lock().await.unwrap();
        let other = keeper.mutex("other").unwrap().lock().await.unwrap();
        other.release().await.unwrap();
        assert!(lock.try_lock().await.unwrap().is_none());
        assert_eq!(warnings(&heard), 0, "nothing waits for itself yet");

        let again = lock.lock_timeout(A_WHILE).await;
        assert!(again.unwrap_err().is_timeout());
        assert_eq!(warnings(&heard), 1);

        // Another task waits for this one, and not for itself.
        let (elsewhere, listening) = (lock.clone(), heard.listener(Level::WARN));
        let elsewhere = async move { elsewhere.lock_timeout(A_WHILE).await.is_err() };
        let elsewhere = tokio::spawn(elsewhere.with_subscriber(listening));
        assert!(elsewhere.await.unwrap());
        assert_eq!(warnings(&heard), 1);

        guard.release().await.unwrap();
        lock.lock().await.unwrap().release().await.unwrap();
        assert_eq!(warnings(&heard), 1, "it held nothing any more");
    };
    let listening = log.listener(Level::WARN);
    tokio::spawn(task.with_subscriber(listening)).await.unwrap();
}
