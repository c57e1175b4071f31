//! Every public future, dropped after each number of polls: afterwards there is no ticket, no watch
//! and no task, and the lock is free.

use std::future::{Future, poll_fn};
use std::ops::ControlFlow;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use lockkeeper::{Keeper, Mutex, SessionEvent};
use tokio::runtime::Handle;
use tokio::task::yield_now;
use tokio::time::timeout;

use testbench::stall::Stall;
use testbench::{Make, World, case, eventually};
use testbench::{children, keeper};

/// Far more polls than any of the futures needs; a call that is still not done then waits for
/// something else.
pub(crate) const MOST_POLLS: usize = 200;
/// A busy machine may stop a server for seconds.
const SOON: Duration = Duration::from_secs(5);

/// Polls a future so many times, then drops it. `Some` if it ended before.
pub(crate) async fn cancelled_after<F: Future>(polls: usize, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut left = polls;
    poll_fn(|context| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        match future.as_mut().poll(context) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            // Dropped right after its last poll, while its request is under way.
            Poll::Pending if left == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

/// The world, a keeper to cancel with and how it looks at rest.
pub(crate) struct Rest {
    pub(crate) world: World,
    pub(crate) stranger: testbench::Stranger,
    pub(crate) keeper: Keeper,
    tasks: usize,
}

impl Rest {
    pub(crate) async fn new(world: World) -> Self {
        let (stranger, keeper) = (world.raw().await, keeper(&world).await);
        keeper
            .mutex("cut")
            .unwrap()
            .lock()
            .await
            .unwrap()
            .release()
            .await
            .unwrap();
        let tasks = Handle::current().metrics().num_alive_tasks();
        Self {
            world,
            stranger,
            keeper,
            tasks,
        }
    }

    /// Nothing is left soon, and the lock is free.
    pub(crate) async fn is_back(&self) {
        // Answered behind whatever the cancelled call has sent: a ticket that is still to come
        // would be in the way of the lock below.
        self.keeper.queue("cut").await.unwrap();
        eventually("no ticket is left", SOON, || async {
            children(&self.stranger, "cut").await.is_empty()
        })
        .await;
        if self.world.is_embedded() {
            let unwatched = || async { self.world.embedded().counters().watches == 0 };
            eventually("no watch is left", SOON, unwatched).await;
        }
        let guard = timeout(SOON, self.keeper.mutex("cut").unwrap().lock())
            .await
            .expect("the lock is free")
            .unwrap();
        guard.release().await.unwrap();
        let resting = || async { Handle::current().metrics().num_alive_tasks() <= self.tasks };
        eventually("no task is left", SOON, resting).await;
    }

    /// Cancels a call after 0, 1, 2.. polls until one ends by itself, or `most` times if none can
    /// end.
    pub(crate) async fn cancel<T, F>(
        &self,
        most: usize,
        call: impl Fn(Keeper, testbench::Stranger, usize) -> F,
    ) -> usize
    where
        F: Future<Output = Option<T>>,
    {
        for polls in 0..most {
            let ended = call(self.keeper.clone(), self.stranger.clone(), polls)
                .await
                .is_some();
            self.is_back().await;
            if ended {
                return polls;
            }
        }
        most
    }
}

#[case(within = 120)]
async fn a_cancelled_lock_leaves_nothing(world: World) {
    let rest = Rest::new(world).await;

    let polls = rest
        .cancel(MOST_POLLS, |keeper: Keeper, _stranger, polls| async move {
            let lock = keeper.mutex("cut").unwrap();
            cancelled_after(polls, lock.lock())
                .await
                .map(Result::unwrap)
        })
        .await;

    assert!((1..MOST_POLLS).contains(&polls), "{polls}");
}

#[case(within = 120)]
async fn a_cancelled_wait_leaves_nothing(world: World) {
    let rest = Rest::new(world).await;
    let other = keeper(&rest.world).await;

    // Held by another session, so no poll ends it; the holder releases after the cancel.
    for polls in 0..12 {
        let guard = timeout(Duration::from_secs(2), other.mutex("cut").unwrap().lock())
            .await
            .unwrap()
            .unwrap();
        let lock = rest.keeper.mutex("cut").unwrap();
        let waiting = timeout(
            Duration::from_millis(50),
            cancelled_after(polls, lock.lock()),
        );
        assert!(!matches!(waiting.await, Ok(Some(_))), "the lock is held");
        let (cancelled, stall) = (Instant::now(), Stall::watch());
        let alone = || async { children(&rest.stranger, "cut").await == [guard.node()] };
        eventually("the waiter's ticket is gone", SOON, alone).await;
        // The second of docs/guarantees.md. How long a server beside us stops is not measured.
        if rest.world.is_embedded() {
            let took = cancelled.elapsed();
            assert!(took < Duration::from_secs(1) + stall.longest(), "{took:?}");
        }
        guard.release().await.unwrap();
    }

    drop(other);
    let rested = || async { Handle::current().metrics().num_alive_tasks() <= rest.tasks };
    eventually(
        "the other keeper's tasks are gone",
        Duration::from_secs(2),
        rested,
    )
    .await;
    rest.is_back().await;
}

#[case(within = 120)]
async fn a_cancelled_try_lock_leaves_nothing(world: World) {
    let rest = Rest::new(world).await;

    let polls = rest
        .cancel(MOST_POLLS, |keeper: Keeper, _stranger, polls| async move {
            let lock = keeper.mutex("cut").unwrap();
            cancelled_after(polls, lock.try_lock())
                .await
                .map(|taken| taken.unwrap().expect("the lock is free"))
        })
        .await;

    assert!((1..MOST_POLLS).contains(&polls), "{polls}");
}

#[case(within = 120)]
async fn a_cancelled_timed_lock_leaves_nothing(world: World) {
    let rest = Rest::new(world).await;

    let polls = rest
        .cancel(MOST_POLLS, |keeper: Keeper, _stranger, polls| async move {
            let lock = keeper.mutex("cut").unwrap();
            cancelled_after(polls, lock.lock_timeout(Duration::from_secs(5)))
                .await
                .map(Result::unwrap)
        })
        .await;

    assert!((1..MOST_POLLS).contains(&polls), "{polls}");
}

/// A mutex that keeps its place for no longer than its end is waited for.
fn lingering(keeper: &Keeper) -> Mutex {
    keeper
        .mutex("cut")
        .unwrap()
        .with_linger(Duration::from_millis(5))
}

#[case(within = 120)]
async fn a_cancelled_lingering_lock_leaves_nothing(world: World) {
    let rest = Rest::new(world).await;

    let polls = rest
        .cancel(MOST_POLLS, |keeper: Keeper, _stranger, polls| async move {
            cancelled_after(polls, lingering(&keeper).lock())
                .await
                .map(Result::unwrap)
        })
        .await;
    let tried = rest
        .cancel(MOST_POLLS, |keeper: Keeper, _stranger, polls| async move {
            cancelled_after(polls, lingering(&keeper).try_lock())
                .await
                .map(|taken| taken.unwrap().expect("the lock is free"))
        })
        .await;

    assert!((1..MOST_POLLS).contains(&polls), "{polls}");
    assert!((1..MOST_POLLS).contains(&tried), "{tried}");
}

#[case(within = 120)]
async fn a_cancelled_lingering_release_keeps_or_releases(world: World) {
    let rest = Rest::new(world).await;
    let other = keeper(&rest.world).await;

    let mut polls = 0;
    loop {
        let guard = lingering(&rest.keeper).lock().await.unwrap();
        // With a competitor the release has to reach the servers.
        let next = tokio::spawn({
            let lock = other.mutex("cut").unwrap();
            async move { lock.lock().await.unwrap() }
        });
        let queued = || async { children(&rest.stranger, "cut").await.len() == 2 };
        eventually("the competitor waits", SOON, queued).await;
        guard.check().await.unwrap();
        let released = cancelled_after(polls, guard.release()).await;
        let next = timeout(SOON, next).await.unwrap();
        next.unwrap().release().await.unwrap();
        if released.is_some() {
            break;
        }
        polls += 1;
    }

    assert!((1..MOST_POLLS).contains(&polls), "{polls}");
    drop(other);
    let rested = || async { Handle::current().metrics().num_alive_tasks() <= rest.tasks };
    let other = "the other keeper's tasks are gone";
    eventually(other, Duration::from_secs(2), rested).await;
    rest.is_back().await;
}

#[case(within = 120)]
async fn a_cancelled_enqueue_leaves_nothing(world: World) {
    let rest = Rest::new(world).await;

    let polls = rest
        .cancel(MOST_POLLS, |keeper: Keeper, _stranger, polls| async move {
            let lock = keeper.mutex("cut").unwrap();
            cancelled_after(polls, lock.enqueue())
                .await
                .map(Result::unwrap)
        })
        .await;

    assert!((1..MOST_POLLS).contains(&polls), "{polls}");
}

#[case(within = 120)]
async fn a_cancelled_grant_keeps_the_place_until_it_is_dropped(world: World) {
    let rest = Rest::new(world).await;

    let polls = rest
        .cancel(MOST_POLLS, |keeper: Keeper, stranger, polls| async move {
            let mut place = keeper.mutex("cut").unwrap().enqueue().await.unwrap();
            let cancelled = cancelled_after(polls, place.granted()).await;
            assert_eq!(
                children(&stranger, "cut").await.len(),
                1,
                "the place is kept"
            );
            cancelled.map(Result::unwrap)
        })
        .await;

    assert!((1..MOST_POLLS).contains(&polls), "{polls}");
}

#[case(within = 120)]
async fn a_cancelled_change_keeps_the_place_until_it_is_dropped(world: World) {
    let rest = Rest::new(world).await;

    let polls = rest
        .cancel(MOST_POLLS, |keeper: Keeper, stranger, polls| async move {
            let mut place = keeper.mutex("cut").unwrap().enqueue().await.unwrap();
            let cancelled = cancelled_after(polls, place.advanced()).await;
            assert_eq!(
                children(&stranger, "cut").await.len(),
                1,
                "the place is kept"
            );
            cancelled.map(Result::unwrap)
        })
        .await;

    assert!((1..MOST_POLLS).contains(&polls), "{polls}");
}

#[case(within = 120)]
async fn a_cancelled_position_keeps_the_place_until_it_is_dropped(world: World) {
    let rest = Rest::new(world).await;

    let polls = rest
        .cancel(MOST_POLLS, |keeper: Keeper, stranger, polls| async move {
            let place = keeper.mutex("cut").unwrap().enqueue().await.unwrap();
            let cancelled = cancelled_after(polls, place.position()).await;
            assert_eq!(
                children(&stranger, "cut").await.len(),
                1,
                "the place is kept"
            );
            cancelled.map(Result::unwrap)
        })
        .await;

    assert!((1..MOST_POLLS).contains(&polls), "{polls}");
}

#[case(within = 120)]
async fn a_cancelled_release_releases(world: World) {
    let rest = Rest::new(world).await;

    let polls = rest
        .cancel(MOST_POLLS, |keeper: Keeper, _stranger, polls| async move {
            let guard = keeper.mutex("cut").unwrap().lock().await.unwrap();
            cancelled_after(polls, guard.release())
                .await
                .map(Result::unwrap)
        })
        .await;

    assert!((1..MOST_POLLS).contains(&polls), "{polls}");
}

#[case(within = 120)]
async fn a_cancelled_check_keeps_the_lock(world: World) {
    let rest = Rest::new(world).await;

    let polls = rest
        .cancel(MOST_POLLS, |keeper: Keeper, _stranger, polls| async move {
            let guard = keeper.mutex("cut").unwrap().lock().await.unwrap();
            let checked = cancelled_after(polls, guard.check()).await;
            assert!(guard.is_held(), "a cancelled check says nothing");
            guard.release().await.unwrap();
            checked.map(Result::unwrap)
        })
        .await;

    assert!((1..MOST_POLLS).contains(&polls), "{polls}");
}

#[case(within = 120)]
async fn a_cancelled_listener_leaves_no_watch_and_keeps_the_lock(world: World) {
    let rest = Rest::new(world).await;

    // No waiter asks, so it never ends by itself.
    rest.cancel(12, |keeper: Keeper, _stranger, polls| async move {
        let guard = keeper.mutex("cut").unwrap().lock().await.unwrap();
        let heard = cancelled_after(polls, async {
            tokio::select! {
                heard = guard.revoked() => heard.unwrap(),
                () = tokio::time::sleep(Duration::from_millis(50)) => {}
            }
        });
        heard.await;
        assert!(guard.is_held(), "a cancelled listener says nothing");
        guard.release().await.unwrap();
        None::<()>
    })
    .await;
}

#[case(within = 120)]
async fn a_cancelled_request_takes_nothing_from_the_holder(world: World) {
    let rest = Rest::new(world).await;

    let polls = rest
        .cancel(MOST_POLLS, |keeper: Keeper, _stranger, polls| async move {
            let guard = keeper.mutex("cut").unwrap().lock().await.unwrap();
            let queue = keeper.queue("cut").await.unwrap();
            let asking = keeper.revoke("cut", &queue[0], Duration::from_millis(20));
            let asked = cancelled_after(polls, asking).await;
            guard.check().await.unwrap();
            guard.release().await.unwrap();
            asked.map(Result::unwrap)
        })
        .await;

    assert!((1..MOST_POLLS).contains(&polls), "{polls}");
}

#[case(within = 120)]
async fn a_cancelled_run_drops_the_work_and_keeps_the_lock(world: World) {
    let rest = Rest::new(world).await;

    let polls = rest
        .cancel(MOST_POLLS, |keeper: Keeper, _stranger, polls| async move {
            let guard = keeper.mutex("cut").unwrap().lock().await.unwrap();
            let work = Arc::new(());
            let inside = Arc::clone(&work);
            let ran = cancelled_after(
                polls,
                guard.run(async move {
                    for _ in 0..5 {
                        yield_now().await;
                    }
                    drop(inside);
                }),
            )
            .await;
            assert_eq!(Arc::strong_count(&work), 1, "the work is dropped");
            assert!(guard.is_held());
            guard.release().await.unwrap();
            ran.map(Result::unwrap)
        })
        .await;

    assert!((1..MOST_POLLS).contains(&polls), "{polls}");
}

#[case(within = 120)]
async fn a_cancelled_fenced_write_happens_once_or_never(world: World) {
    let rest = Rest::new(world).await;
    let root = format!("/fenced-{}", uuid::Uuid::new_v4());
    let options = Make::Persistent;
    rest.stranger.create(&root, b"", &options).await.unwrap();

    let polls = rest
        .cancel(MOST_POLLS, |keeper: Keeper, stranger, polls| {
            let path = format!("{root}/{polls}");
            async move {
                let guard = keeper.mutex("cut").unwrap().lock().await.unwrap();
                let write = guard.fenced().create(&path, "once");
                let written = cancelled_after(polls, write.commit()).await;
                assert!(guard.is_held());
                guard.release().await.unwrap();
                // The release went the same way, so the write has happened by now or never will.
                let found = stranger.get_data(&path).await.ok();
                if written.is_some() {
                    assert_eq!(found.map(|(data, _)| data), Some(b"once".to_vec()));
                }
                written.map(Result::unwrap)
            }
        })
        .await;

    assert!((1..MOST_POLLS).contains(&polls), "{polls}");
}

#[case(within = 120)]
async fn a_cancelled_look_at_the_session_misses_nothing(world: World) {
    let rest = Rest::new(world).await;
    for polls in 0..8 {
        let other = keeper(&rest.world).await;
        let mut events = other.session_events();

        // The session's beginning may still be news; after that nothing is, and none polls again.
        let looking = cancelled_after(polls, events.changed());
        timeout(Duration::from_millis(20), looking).await.ok();
        other.close().await;

        timeout(SOON, async {
            while events.borrow() != SessionEvent::Closed {
                events.changed().await.unwrap();
            }
        })
        .await
        .expect("the end is told");
        drop((events, other));
        rest.is_back().await;
    }
}

#[case(within = 120)]
async fn a_cancelled_look_leaves_nothing(world: World) {
    let rest = Rest::new(world).await;

    let locks = rest
        .cancel(MOST_POLLS, |keeper: Keeper, _stranger, polls| async move {
            cancelled_after(polls, keeper.locks())
                .await
                .map(Result::unwrap)
        })
        .await;
    let queue = rest
        .cancel(MOST_POLLS, |keeper: Keeper, _stranger, polls| async move {
            cancelled_after(polls, keeper.queue("cut"))
                .await
                .map(Result::unwrap)
        })
        .await;

    assert!(
        (1..MOST_POLLS).contains(&locks) && (1..MOST_POLLS).contains(&queue),
        "{locks} {queue}"
    );
}

#[case(within = 120)]
async fn a_cancelled_campaign_leaves_nothing(world: World) {
    let rest = Rest::new(world).await;

    let waits = rest
        .cancel(MOST_POLLS, |keeper: Keeper, _stranger, polls| async move {
            let election = keeper.election("cut").unwrap();
            cancelled_after(polls, election.campaign("value"))
                .await
                .map(Result::unwrap)
        })
        .await;
    let tries = rest
        .cancel(MOST_POLLS, |keeper: Keeper, _stranger, polls| async move {
            let election = keeper.election("cut").unwrap();
            cancelled_after(polls, election.try_campaign("value"))
                .await
                .map(|taken| taken.unwrap().expect("nobody leads"))
        })
        .await;
    let timed = rest
        .cancel(MOST_POLLS, |keeper: Keeper, _stranger, polls| async move {
            let election = keeper.election("cut").unwrap();
            let limit = Duration::from_secs(5);
            cancelled_after(polls, election.campaign_timeout("value", limit))
                .await
                .map(Result::unwrap)
        })
        .await;

    for polls in [waits, tries, timed] {
        assert!((1..MOST_POLLS).contains(&polls), "{waits} {tries} {timed}");
    }
}

#[case(within = 120)]
async fn a_cancelled_proclamation_keeps_leadership(world: World) {
    let rest = Rest::new(world).await;

    let polls = rest
        .cancel(MOST_POLLS, |keeper: Keeper, _stranger, polls| async move {
            let election = keeper.election("cut").unwrap();
            let leadership = election.campaign("value").await.unwrap();
            let said = cancelled_after(polls, leadership.proclaim("cut off")).await;
            assert!(leadership.is_held());
            // Whatever the outcome of the first one, the second one holds.
            leadership.proclaim("said").await.unwrap();
            assert_eq!(election.leader().await.unwrap().unwrap().value, "said");
            leadership.resign().await.unwrap();
            said.map(Result::unwrap)
        })
        .await;

    assert!((1..MOST_POLLS).contains(&polls), "{polls}");
}

#[case(within = 120)]
async fn a_cancelled_look_for_the_leader_leaves_nothing(world: World) {
    let rest = Rest::new(world).await;

    let leader = rest
        .cancel(MOST_POLLS, |keeper: Keeper, _stranger, polls| async move {
            let election = keeper.election("cut").unwrap();
            let leadership = election.campaign("value").await.unwrap();
            let leader = cancelled_after(polls, election.leader()).await;
            leadership.resign().await.unwrap();
            leader.map(|leader| leader.unwrap().expect("somebody leads"))
        })
        .await;
    let participants = rest
        .cancel(MOST_POLLS, |keeper: Keeper, _stranger, polls| async move {
            let election = keeper.election("cut").unwrap();
            cancelled_after(polls, election.participants())
                .await
                .map(Result::unwrap)
        })
        .await;

    assert!(
        (1..MOST_POLLS).contains(&leader) && (1..MOST_POLLS).contains(&participants),
        "{leader} {participants}"
    );
}

#[case(within = 120)]
async fn a_cancelled_observer_misses_nothing(world: World) {
    let rest = Rest::new(world).await;
    let soon = Duration::from_secs(3);

    // The first leader, a new value, and the end of all: each by an observer that was interrupted
    // before.
    let polls = rest
        .cancel(MOST_POLLS, |keeper: Keeper, _stranger, polls| async move {
            let election = keeper.election("cut").unwrap();
            let mut observer = election.observe();
            let leadership = election.campaign("first").await.unwrap();
            let first = cancelled_after(polls, observer.changed()).await;
            if first.is_none() {
                timeout(soon, observer.changed()).await.unwrap().unwrap();
            }
            assert_eq!(observer.borrow().unwrap().value, "first");

            leadership.proclaim("second").await.unwrap();
            let second = cancelled_after(polls, observer.changed()).await;
            if second.is_none() {
                timeout(soon, observer.changed()).await.unwrap().unwrap();
            }
            assert_eq!(observer.borrow().unwrap().value, "second");

            leadership.resign().await.unwrap();
            let third = cancelled_after(polls, observer.changed()).await;
            if third.is_none() {
                timeout(soon, observer.changed()).await.unwrap().unwrap();
            }
            assert_eq!(observer.borrow(), None);
            first.and(second).and(third)
        })
        .await;
    assert!((1..MOST_POLLS).contains(&polls), "{polls}");

    // Without a candidate, no poll ends it.
    for polls in 0..12 {
        let election = rest.keeper.election("cut").unwrap();
        let mut observer = election.observe();
        let nobody = cancelled_after(polls, observer.changed());
        let nobody = timeout(Duration::from_millis(50), nobody).await;
        assert!(!matches!(nobody, Ok(Some(_))), "nobody leads");
        let leadership = election.campaign("first").await.unwrap();
        timeout(soon, observer.changed()).await.unwrap().unwrap();
        assert_eq!(observer.borrow().unwrap().token, leadership.token());
        leadership.resign().await.unwrap();
        drop(observer);
        rest.is_back().await;
    }
}

#[case(within = 120)]
async fn a_cancelled_lead_leaves_nothing(world: World) {
    let rest = Rest::new(world).await;

    let polls = rest
        .cancel(MOST_POLLS, |keeper: Keeper, _stranger, polls| async move {
            let election = keeper.election("cut").unwrap();
            let mut rounds = 0;
            let led = election.lead("value", async move |leadership| {
                rounds += 1;
                yield_now().await;
                assert!(leadership.is_held());
                if rounds < 2 {
                    ControlFlow::Continue(())
                } else {
                    ControlFlow::Break(())
                }
            });
            cancelled_after(polls, led).await.map(Result::unwrap)
        })
        .await;

    assert!((1..MOST_POLLS).contains(&polls), "{polls}");
}

#[case(within = 120)]
async fn a_cancelled_close_closes(world: World) {
    let rest = Rest::new(world).await;
    for polls in 1..MOST_POLLS {
        let other = keeper(&rest.world).await;
        let guard = other.mutex("cut").unwrap().lock().await.unwrap();

        let ended = cancelled_after(polls, other.close()).await.is_some();

        assert!(
            other
                .mutex("cut")
                .unwrap()
                .lock()
                .await
                .unwrap_err()
                .is_closed()
        );
        drop((guard, other));
        rest.is_back().await;
        if ended {
            return;
        }
    }
    panic!("close never ended");
}

#[case(within = 120)]
async fn a_cancelled_connect_leaves_no_session(world: World) {
    let rest = Rest::new(world).await;
    for polls in 0..MOST_POLLS {
        let connected = cancelled_after(polls, Keeper::connect(rest.world.connect_string())).await;
        let ended = connected.is_some();

        drop(connected);
        rest.is_back().await;
        if rest.world.is_embedded() {
            let two = || async { rest.world.embedded().counters().sessions == 2 };
            eventually(
                "only the two sessions at rest are left",
                Duration::from_secs(2),
                two,
            )
            .await;
        }
        if ended {
            return;
        }
    }
    panic!("connect never ended");
}
