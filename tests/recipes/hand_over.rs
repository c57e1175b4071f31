//! What may befall a waiter that asks right behind a release of its own session.

use std::time::Duration;

use futures_util::future::join;
use lockkeeper::embedded::{Match, Op};
use lockkeeper::{Guard, Keeper, Mutex};
use tokio::runtime::Builder;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::cancel::cancelled_after;
use testbench::{Stranger, World, case, eventually};
use testbench::{children, keeper};

const SOON: Duration = Duration::from_secs(5);

/// A waiter with so many before it.
async fn waits(lock: &Mutex, before: usize, stranger: &Stranger) -> JoinHandle<Guard> {
    let waiting = tokio::spawn({
        let lock = lock.clone();
        async move { lock.lock().await.unwrap() }
    });
    let queued = || async { children(stranger, "hand").await.len() == before + 1 };
    eventually("it stands in the queue", SOON, queued).await;
    waiting
}

async fn granted(waiting: JoinHandle<Guard>, whom: &str) -> Guard {
    let granted = timeout(SOON, waiting).await;
    granted
        .unwrap_or_else(|_| panic!("{whom} is not granted"))
        .unwrap()
}

#[case(embedded)]
async fn a_waiter_that_is_given_up_behind_a_release_lets_the_next_one_in(world: World) {
    let (keeper, stranger) = (keeper(&world).await, world.raw().await);
    let lock = keeper.mutex("hand").unwrap();
    let watches = |count| {
        let world = &world;
        move || async move { world.embedded().counters().watches == count }
    };
    let mut granted_within = None;
    for polls in 1..20 {
        let guard = lock.lock().await.unwrap();
        let mut first = Box::pin(lock.lock());
        tokio::select! {
            granted = &mut first => panic!("it is held: {granted:?}"),
            () = eventually("it waits", SOON, watches(1)) => {}
        }
        let next = waits(&lock, 2, &stranger).await;
        eventually("both wait", SOON, watches(2)).await;

        let (released, first) = join(guard.release(), cancelled_after(polls, first)).await;

        released.unwrap();
        if let Some(first) = first {
            granted_within = granted_within.or(Some(polls));
            first.unwrap().release().await.unwrap();
        }
        let next = granted(next, "the next one").await;
        let alone = || async { children(&stranger, "hand").await == [next.node()] };
        eventually("the given up one has gone", SOON, alone).await;
        next.release().await.unwrap();
        eventually("no watch is left", SOON, watches(0)).await;
    }

    // Some were given up before, and some were not.
    assert!(
        granted_within.is_some_and(|polls| polls > 1),
        "{granted_within:?}"
    );
}

#[case(embedded)]
async fn a_cut_between_a_release_and_the_read_behind_it_keeps_nobody_waiting(world: World) {
    let (keeper, stranger) = (keeper(&world).await, world.raw().await);
    let lock = keeper.mutex("hand").unwrap();
    for lost in [Op::Multi, Op::MultiRead] {
        let guard = lock.lock().await.unwrap();
        let next = waits(&lock, 1, &stranger).await;
        let watched = || async { world.embedded().counters().watches == 1 };
        eventually("it waits", SOON, watched).await;
        let faults = world.embedded().faults();
        let ours = Match::op(lost).path_contains("/locks/hand");
        faults.on(ours).drop_reply();

        let released = timeout(SOON, guard.release()).await;

        released.expect("the release ends").unwrap();
        let next = granted(next, "the next one").await;
        assert_eq!(faults.armed_rules(), 0, "{lost:?}");
        assert_eq!(children(&stranger, "hand").await, [next.node()]);
        next.release().await.unwrap();
        assert!(children(&stranger, "hand").await.is_empty());
    }
}

#[case]
async fn a_waiter_on_another_runtime_hears_of_a_release(world: World) {
    let stranger = world.raw().await;
    let keeper = Keeper::connect(&world.connect_string()).await.unwrap();
    let lock = keeper.mutex("hand").unwrap();
    for _ in 0..10 {
        let guard = lock.lock().await.unwrap();
        let theirs = lock.clone();
        let waiting = tokio::task::spawn_blocking(move || {
            let runtime = Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async { theirs.lock().await.unwrap() })
        });
        let queued = || async { children(&stranger, "hand").await.len() == 2 };
        eventually("it stands in the queue", SOON, queued).await;

        guard.release().await.unwrap();

        granted(waiting, "it").await.release().await.unwrap();
    }
}
