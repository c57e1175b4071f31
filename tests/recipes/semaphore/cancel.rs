//! Every future of a semaphore, dropped after each number of polls: afterwards no permit is taken,
//! no call waits and no watch is left.

use std::future::Future;
use std::time::Duration;

use lockkeeper::{Keeper, Semaphore};
use tokio::runtime::Handle;
use tokio::time::timeout;

use super::{queued, waits};
use crate::recipes::cancel::cancelled_after;
use testbench::{World, case, eventually};
use testbench::{children, keeper};

const MOST_POLLS: usize = 200;
/// A busy machine may stop a server for seconds.
const SOON: Duration = Duration::from_secs(5);

/// The world, a keeper to cancel with and how it looks at rest.
struct Rest {
    world: World,
    stranger: testbench::Stranger,
    keeper: Keeper,
    tasks: usize,
}

impl Rest {
    async fn new(world: World) -> Self {
        let (stranger, keeper) = (world.raw().await, keeper(&world).await);
        let semaphore = keeper.semaphore("cut", 2).unwrap();
        semaphore.acquire().await.unwrap().release().await.unwrap();
        let tasks = Handle::current().metrics().num_alive_tasks();
        Self {
            world,
            stranger,
            keeper,
            tasks,
        }
    }

    fn semaphore(&self) -> Semaphore {
        self.keeper.semaphore("cut", 2).unwrap()
    }

    /// Nothing is left soon, and all permits are there.
    async fn is_back(&self, name: &str) {
        for (what, directory) in [("ticket", "queue"), ("permit", "held")] {
            let directory = format!("{name}/{directory}");
            let is_empty = || async { children(&self.stranger, &directory).await.is_empty() };
            eventually(&format!("no {what} is left"), SOON, is_empty).await;
        }
        if self.world.is_embedded() {
            let unwatched = || async { self.world.embedded().counters().watches == 0 };
            eventually("no watch is left", SOON, unwatched).await;
        }
        let semaphore = self.keeper.semaphore(name, 2).unwrap();
        let all = timeout(SOON, semaphore.acquire_many(2)).await;
        all.expect("all permits are there")
            .unwrap()
            .release()
            .await
            .unwrap();
        let resting = || async { Handle::current().metrics().num_alive_tasks() <= self.tasks };
        eventually("no task is left", SOON, resting).await;
    }

    /// Cancels a call after 0, 1, 2.. polls until one ends by itself.
    async fn cancel<T, F>(&self, call: impl Fn(Semaphore, usize) -> F)
    where
        F: Future<Output = Option<T>>,
    {
        for polls in 0..MOST_POLLS {
            let ended = call(self.semaphore(), polls).await.is_some();
            self.is_back("cut").await;
            if ended {
                assert!(polls > 0, "it never waits");
                return;
            }
        }
        panic!("it never ends");
    }
}

#[case(within = 120)]
async fn a_cancelled_acquire_leaves_nothing(world: World) {
    let rest = Rest::new(world).await;

    rest.cancel(|semaphore, polls| async move {
        cancelled_after(polls, semaphore.acquire())
            .await
            .map(Result::unwrap)
    })
    .await;
}

#[case(within = 120)]
async fn a_cancelled_first_acquire_leaves_nothing(world: World) {
    let rest = Rest::new(world).await;
    for polls in 0..MOST_POLLS {
        let name = format!("first-{polls}");
        let semaphore = rest.keeper.semaphore(name.as_str(), 2).unwrap();

        let acquired = cancelled_after(polls, semaphore.acquire()).await;

        let ended = acquired.is_some();
        drop(acquired.map(Result::unwrap));
        rest.is_back(&name).await;
        if ended {
            return;
        }
    }
    panic!("it never ends");
}

#[case(within = 120)]
async fn a_cancelled_acquire_of_several_leaves_nothing(world: World) {
    let rest = Rest::new(world).await;

    rest.cancel(|semaphore, polls| async move {
        cancelled_after(polls, semaphore.acquire_many(2))
            .await
            .map(Result::unwrap)
    })
    .await;
}

#[case(within = 120)]
async fn a_cancelled_head_leaves_nothing(world: World) {
    let rest = Rest::new(world).await;
    let other = keeper(&rest.world).await;

    // The permits are held by another session, so no poll ends the wait.
    for polls in 0..16 {
        let held = other
            .semaphore("cut", 2)
            .unwrap()
            .acquire_many(2)
            .await
            .unwrap();
        let semaphore = rest.semaphore();
        let waiting = timeout(
            Duration::from_millis(50),
            cancelled_after(polls, semaphore.acquire_many(2)),
        );
        assert!(!matches!(waiting.await, Ok(Some(_))), "nothing is free");
        queued(&rest.stranger, "cut", 0).await;
        assert_eq!(children(&rest.stranger, "cut/held").await, [held.node()]);
        held.release().await.unwrap();
    }

    drop(other);
    let rested = || async { Handle::current().metrics().num_alive_tasks() <= rest.tasks };
    eventually("the other keeper's tasks are gone", SOON, rested).await;
    rest.is_back("cut").await;
}

#[case(within = 120)]
async fn a_cancelled_grant_of_a_waiter_leaves_nothing(world: World) {
    let rest = Rest::new(world).await;

    // All its polls but the first ones come after it waited as the head, and was woken.
    rest.cancel(|semaphore, polls| async move {
        let held = semaphore.acquire_many(2).await.unwrap();
        let releasing = async {
            tokio::time::sleep(Duration::from_millis(20)).await;
            held.release().await.unwrap();
        };
        let waiting = cancelled_after(polls, semaphore.acquire());
        let ended = tokio::select! {
            biased;
            ended = waiting => Some(ended),
            () = async { releasing.await; std::future::pending().await } => None,
        };
        ended.flatten().map(Result::unwrap)
    })
    .await;
}

#[case(within = 120)]
async fn a_cancelled_try_acquire_leaves_nothing(world: World) {
    let rest = Rest::new(world).await;

    rest.cancel(|semaphore, polls| async move {
        let tried = cancelled_after(polls, semaphore.try_acquire_many(2)).await;
        tried.map(|taken| taken.unwrap().expect("all are free"))
    })
    .await;
}

#[case(within = 120)]
async fn a_cancelled_timed_acquire_leaves_nothing(world: World) {
    let rest = Rest::new(world).await;

    rest.cancel(|semaphore, polls| async move {
        let timed = semaphore.acquire_many_timeout(2, SOON);
        cancelled_after(polls, timed).await.map(Result::unwrap)
    })
    .await;
}

#[case(within = 120)]
async fn a_cancelled_give_back_gives_back(world: World) {
    let rest = Rest::new(world).await;

    rest.cancel(|semaphore, polls| async move {
        let permit = semaphore.acquire_many(2).await.unwrap();
        cancelled_after(polls, permit.release())
            .await
            .map(Result::unwrap)
    })
    .await;
}

#[case(within = 120)]
async fn a_cancelled_resize_leaves_the_old_or_the_new_limit(world: World) {
    let rest = Rest::new(world).await;

    rest.cancel(|semaphore, polls| async move {
        let ended = cancelled_after(polls, semaphore.resize(3))
            .await
            .map(Result::unwrap);
        let limit = semaphore.limit().await;
        // A handle that has not looked yet is right to mind the new one.
        assert!(
            ended.is_none() || limit.as_ref().is_ok_and(|limit| *limit == 3),
            "{limit:?}"
        );
        assert!(
            matches!(
                limit,
                Ok(2 | 3) | Err(lockkeeper::Error::LimitMismatch { theirs: 3, .. })
            ),
            "{limit:?}"
        );
        // What was cancelled may still be under way: the second of these is behind it.
        semaphore.resize(3).await.unwrap();
        semaphore.resize(2).await.unwrap();
        ended
    })
    .await;
}

#[case(within = 120)]
async fn a_cancelled_look_at_a_semaphore_leaves_nothing(world: World) {
    let rest = Rest::new(world).await;
    let held = keeper(&rest.world)
        .await
        .semaphore("seen", 1)
        .unwrap()
        .acquire()
        .await
        .unwrap();
    let waiting = waits(&rest.keeper.semaphore("seen", 1).unwrap(), 1);
    queued(&rest.stranger, "seen", 1).await;
    let keeper = &rest.keeper;
    let semaphore = || keeper.semaphore("seen", 1).unwrap();

    for polls in 1..MOST_POLLS {
        let (a, b, c) = (semaphore(), semaphore(), semaphore());
        let looks = (
            cancelled_after(polls, a.available_permits()).await,
            cancelled_after(polls, b.limit()).await,
            cancelled_after(polls, c.holders()).await,
            cancelled_after(polls, keeper.queue("seen")).await,
            cancelled_after(polls, keeper.locks()).await,
        );
        if let (Some(left), Some(limit), Some(holders), Some(queue), Some(locks)) = looks {
            assert_eq!((left.unwrap(), limit.unwrap()), (0, 1));
            assert_eq!((holders.unwrap().len(), queue.unwrap().len()), (1, 2));
            assert_eq!(locks.unwrap().len(), 1);
            drop(held);
            super::granted(waiting).await.release().await.unwrap();
            return;
        }
    }
    panic!("they never end");
}
