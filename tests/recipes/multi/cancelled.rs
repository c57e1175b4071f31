//! Every call on a set of locks, dropped after each number of polls: afterwards there is no ticket
//! and no watch, and every lock of the set is free.

use std::future::Future;
use std::time::Duration;

use lockkeeper::{Keeper, MultiLock};
use tokio::time::timeout;

use super::{SOON, queued, warm};
use crate::recipes::cancel::cancelled_after;
use testbench::keeper;
use testbench::{World, case, eventually};

const SET: [&str; 3] = ["a", "b", "c"];
const NOBODY: [(&str, usize); 3] = [("a", 0), ("b", 0), ("c", 0)];
/// Far more polls than any of the calls needs.
const MOST_POLLS: usize = 200;
/// A call that was answered within its first poll is asked again, so often at most: on a busy
/// machine a server may be that quick.
const MOST_TRIES: usize = 100;

/// Cancels a call after 1, 2, 3.. polls until one ends by itself. It asks a server, so one that was
/// polled once has been cancelled.
async fn cancel<T, F>(world: &World, call: impl Fn(MultiLock) -> F)
where
    F: Future<Output = lockkeeper::Result<T>>,
{
    let (a, b, stranger) = (keeper(world).await, keeper(world).await, world.raw().await);
    warm(&a, &SET).await;
    let mut polls = 1;
    for _ in 0..MOST_POLLS + MOST_TRIES {
        let set = a.multi_lock(SET).unwrap();

        let ended = cancelled_after(polls, call(set)).await;
        let is_ended = ended.is_some();
        drop(ended.map(Result::unwrap));

        // Answered behind whatever the cancelled call has sent: tickets that are still to come
        // would be in the way of the next call.
        a.queue(SET[0]).await.unwrap();
        is_at_rest(world, &b, &stranger).await;
        match (is_ended, polls) {
            (true, 1) => {}
            (true, _) => return,
            (false, _) => polls += 1,
        }
    }
    panic!("the call never ends, or asks no server ({polls} polls)");
}

async fn is_at_rest(world: &World, other: &Keeper, stranger: &testbench::Stranger) {
    queued(stranger, &NOBODY).await;
    if world.is_embedded() {
        let unwatched = || async { world.embedded().counters().watches == 0 };
        eventually("no watch is left", SOON, unwatched).await;
    }
    let guard = timeout(SOON, other.lock_all(SET))
        .await
        .expect("the locks are free");
    guard.unwrap().release().await.unwrap();
}

#[case(within = 120)]
async fn a_cancelled_lock_of_a_set_leaves_nothing(world: World) {
    cancel(&world, |set| async move { set.lock().await }).await;
}

#[case(within = 120)]
async fn a_cancelled_try_of_a_set_leaves_nothing(world: World) {
    cancel(&world, |set| async move {
        let taken = set.try_lock().await?;
        Ok(taken.expect("the locks are free"))
    })
    .await;
}

#[case(within = 120)]
async fn a_cancelled_timed_lock_of_a_set_leaves_nothing(world: World) {
    cancel(&world, |set| async move { set.lock_timeout(SOON).await }).await;
}

#[case(within = 120)]
async fn a_cancelled_release_of_a_set_releases_all(world: World) {
    let (a, b, stranger) = (
        keeper(&world).await,
        keeper(&world).await,
        world.raw().await,
    );
    for polls in 1..MOST_POLLS {
        let guard = a.lock_all(SET).await.unwrap();

        let ended = cancelled_after(polls, guard.release()).await;

        is_at_rest(&world, &b, &stranger).await;
        if let Some(released) = ended {
            released.unwrap();
            return;
        }
    }
    panic!("a release never ends");
}

#[case(within = 120)]
async fn a_cancelled_wait_of_a_set_leaves_nothing(world: World) {
    let (a, b, stranger) = (
        keeper(&world).await,
        keeper(&world).await,
        world.raw().await,
    );
    warm(&a, &SET).await;
    for polls in 1..16 {
        let held = timeout(SOON, b.mutex("b").unwrap().lock())
            .await
            .unwrap()
            .unwrap();
        let set = a.multi_lock(SET).unwrap();

        let waiting = cancelled_after(polls, set.lock());
        let ended = timeout(Duration::from_millis(50), waiting).await;

        assert!(!matches!(ended, Ok(Some(_))), "one of the locks is held");
        queued(&stranger, &[("a", 0), ("b", 1), ("c", 0)]).await;
        held.release().await.unwrap();
        is_at_rest(&world, &b, &stranger).await;
    }
}
