//! What is counted of locks: waits, holds, losses, queues and sessions, of each kind, and never
//! more series than there are classes.

pub(crate) mod lookers;
pub(crate) mod page;
pub(crate) mod service;

use std::time::Duration;

use futures_util::future::join_all;
use lockkeeper::embedded::EmbeddedServer;
use lockkeeper::{Guard, Keeper, Owner};
use tokio::time::{sleep, timeout};

use page::{alone, metered, runtime};
use testbench::keeper;
use testbench::{World, case, eventually};

const SOON: Duration = Duration::from_secs(5);
const A_MOMENT: Duration = Duration::from_millis(50);

async fn until(what: &str, is_so: impl Fn() -> bool) {
    eventually(what, SOON, || async { is_so() }).await;
}

#[case]
async fn a_lock_is_counted_from_the_call_to_the_release(world: World) {
    metered(world, |world, meter| async move {
        let keeper = keeper(&world).await;
        let lock = keeper.mutex("counted").unwrap().with_class("orders");
        let meter = meter.of("orders", "mutex");
        assert_eq!(meter.four(), [0.0; 4], "nothing was asked for");

        let first = lock.lock().await.unwrap();
        assert_eq!(meter.four(), [0.0, 1.0, 1.0, 0.0]);
        let next = tokio::spawn(async move { lock.lock().await });
        until("the next one waits", || {
            meter.value("queue_length_count") == 2.0
        })
        .await;
        assert_eq!(meter.four(), [1.0, 1.0, 1.0, 0.0]);
        sleep(A_MOMENT).await;
        first.release().await.unwrap();
        let next = next.await.unwrap().unwrap();
        assert_eq!(meter.four(), [0.0, 1.0, 2.0, 1.0]);
        next.release().await.unwrap();

        assert_eq!(meter.four(), [0.0, 0.0, 2.0, 2.0]);
        let moment = A_MOMENT.as_secs_f64();
        for sum in ["wait_seconds_sum", "hold_seconds_sum"] {
            let seconds = meter.value(sum);
            assert!(
                (moment..moment + 5.0).contains(&seconds),
                "{sum}: {seconds}"
            );
        }
        keeper.close().await;
    })
    .await;
}

#[case]
async fn each_kind_of_lock_is_counted_as_itself(world: World) {
    metered(world, |world, meter| async move {
        let keeper = keeper(&world).await;
        /// Takes and releases, and looks meanwhile; how many locks that is.
        macro_rules! counts {
            ($kind:literal, $count:expr, $lock:expr, $take:ident($($with:expr)?)) => {
                let meter = meter.of("kinds", $kind);
                let guard = $lock.unwrap().with_class("kinds").$take($($with)?).await.unwrap();
                assert_eq!(meter.four(), [0.0, $count, 1.0, 0.0], $kind);
                guard.release().await.unwrap();
                assert_eq!(meter.four(), [0.0, 0.0, 1.0, $count], $kind);
            };
        }

        counts!("mutex", 1.0, keeper.mutex("mutex"), lock());
        counts!("read", 1.0, keeper.rw_lock("table"), read());
        counts!("write", 1.0, keeper.rw_lock("table"), write());
        counts!(
            "permit",
            1.0,
            keeper.semaphore("permits", 3),
            acquire_many(2)
        );
        counts!(
            "leadership",
            1.0,
            keeper.election("election"),
            campaign("me")
        );
        counts!("several", 3.0, keeper.multi_lock(["a", "b", "c"]), lock());

        // These locks were given no class.
        keeper
            .mutex("mutex")
            .unwrap()
            .try_lock()
            .await
            .unwrap()
            .unwrap()
            .release()
            .await
            .unwrap();
        assert_eq!(meter.of("default", "mutex").four(), [0.0, 0.0, 1.0, 1.0]);
        let kinds = meter
            .page()
            .series()
            .into_iter()
            .filter(|series| series.starts_with("lockkeeper_held{"));
        assert_eq!(kinds.count(), 6 + 1);
        keeper.close().await;
    })
    .await;
}

async fn taken(keeper: &Keeper, name: &str) -> Guard {
    let lock = keeper.mutex(name).unwrap().with_class("ends");
    lock.lock().await.unwrap()
}

/// Removes a guard's ticket as an operator does.
async fn evict(keeper: &Keeper, name: &str) {
    let queue = keeper.queue(name).await.unwrap();
    assert!(keeper.evict(name, &queue[0]).await.unwrap());
}

#[case]
async fn a_hold_that_ends_in_whatever_way_is_counted_no_more(world: World) {
    metered(world, |world, meter| async move {
        let keeper = keeper(&world).await;
        let meter = meter.of("ends", "mutex");
        let held = || meter.value("held");

        taken(&keeper, "released").await.release().await.unwrap();
        assert_eq!(held(), 0.0, "released");
        drop(taken(&keeper, "dropped").await);
        assert_eq!(held(), 0.0, "dropped");
        let releasing = taken(&keeper, "cancelled").await.release();
        timeout(Duration::ZERO, releasing).await.ok();
        assert_eq!(held(), 0.0, "a release that was cancelled");
        let lost = taken(&keeper, "lost").await;
        evict(&keeper, "lost").await;
        assert!(lost.check().await.unwrap_err().is_lost());
        assert_eq!(held(), 0.0, "lost, although the guard is there");
        let kept = taken(&keeper, "kept").await;
        assert_eq!(held(), 1.0);
        keeper.close().await;
        assert_eq!(held(), 0.0, "the keeper was closed");

        drop((lost, kept));
        assert_eq!(meter.four(), [0.0, 0.0, 5.0, 5.0]);
    })
    .await;
}

#[case]
async fn a_call_that_ends_in_whatever_way_waits_no_more(world: World) {
    metered(world, |world, meter| async move {
        let keeper = keeper(&world).await;
        let lock = keeper.mutex("ends").unwrap().with_class("ends");
        let meter = meter.of("ends", "mutex");
        let waiting = || meter.value("waiting");
        let guard = lock.lock().await.unwrap();

        assert!(lock.try_lock().await.unwrap().is_none());
        assert_eq!(waiting(), 0.0, "not now");
        assert!(lock.lock_timeout(A_MOMENT).await.unwrap_err().is_timeout());
        assert_eq!((waiting(), meter.value("timeouts_total")), (0.0, 1.0));
        assert!(timeout(A_MOMENT, lock.lock()).await.is_err());
        assert_eq!(
            (waiting(), meter.value("timeouts_total")),
            (0.0, 1.0),
            "dropped"
        );
        let place = lock.enqueue().await.unwrap();
        assert_eq!(waiting(), 1.0, "a place waits");
        drop(place);
        assert_eq!(waiting(), 0.0);
        let mut place = lock.enqueue().await.unwrap();
        drop(guard);
        let guard = place.granted().await.unwrap();
        assert_eq!(meter.four(), [0.0, 1.0, 2.0, 1.0], "a place was granted");
        let next = tokio::spawn(async move { lock.lock().await });
        until("it waits", || waiting() == 1.0).await;
        keeper.close().await;
        assert!(next.await.unwrap().unwrap_err().is_closed());

        assert_eq!(meter.four(), [0.0, 0.0, 2.0, 2.0]);
        drop(guard);
    })
    .await;
}

#[case]
async fn a_lost_lock_is_counted_once_and_by_its_reason(world: World) {
    metered(world, |world, meter| async move {
        let keeper = keeper(&world).await;
        let meter = meter.of("ends", "mutex");
        taken(&keeper, "fine").await.release().await.unwrap();
        assert_eq!(meter.value("lost_total"), 0.0);

        let looked = taken(&keeper, "looked").await;
        evict(&keeper, "looked").await;
        for _ in 0..3 {
            assert!(looked.check().await.unwrap_err().is_lost());
        }
        assert!(looked.release().await.unwrap_err().is_lost());
        assert_eq!(meter.lost("ticket"), 1.0, "found by a check");
        let released = taken(&keeper, "released").await;
        evict(&keeper, "released").await;
        assert!(released.release().await.unwrap_err().is_lost());
        assert_eq!(meter.lost("ticket"), 2.0, "found by its release");
        let closed = taken(&keeper, "closed").await;
        keeper.close().await;
        drop(closed);

        assert_eq!(meter.lost("closed"), 1.0);
        assert_eq!(meter.value("lost_total"), 3.0, "and for no other reason");
    })
    .await;
}

#[case]
async fn a_queue_is_counted_as_it_was_when_it_was_joined(world: World) {
    metered(world, |world, meter| async move {
        let keeper = keeper(&world).await;
        let table = keeper.rw_lock("table").unwrap().with_class("queues");
        let (reads, writes) = (meter.of("queues", "read"), meter.of("queues", "write"));
        let holder = table.write().await.unwrap();
        let mut crowd = Vec::new();

        // None, one, two, three: what a speculative read or the list of a reader says anyway.
        for ahead in 1..=3 {
            let table = table.clone();
            crowd.push(tokio::spawn(async move {
                if ahead == 2 {
                    return table.read().await.map(drop);
                }
                table.write().await.map(drop)
            }));
            let joined = || reads.value("queue_length_count") + writes.value("queue_length_count");
            until("it has joined", || joined() == f64::from(ahead + 1)).await;
        }

        assert_eq!(writes.value("queue_length_sum"), 0.0 + 1.0 + 3.0);
        assert_eq!(reads.value("queue_length_sum"), 2.0);
        drop(holder);
        for waiter in join_all(crowd).await {
            waiter.unwrap().unwrap();
        }
        keeper.close().await;
    })
    .await;
}

#[case]
async fn guards_of_one_hold_are_one_hold_and_a_guest_is_another(world: World) {
    metered(world, |world, meter| async move {
        let (one, other) = (keeper(&world).await, keeper(&world).await);
        let owner = Owner::named("job");
        let [here, there] = [&one, &other].map(|keeper| {
            let lock = keeper.mutex("owned").unwrap().with_class("owners");
            lock.with_owner(&owner)
        });
        let meter = meter.of("owners", "mutex");

        let (outer, inner) = (here.lock().await.unwrap(), here.lock().await.unwrap());
        assert_eq!(meter.four(), [0.0, 1.0, 2.0, 0.0], "two guards of one hold");
        let guest = there.lock().await.unwrap();
        assert_eq!(meter.value("held"), 2.0, "a guest has a ticket of its own");
        outer.release().await.unwrap();
        assert_eq!(meter.value("held"), 2.0);
        inner.release().await.unwrap();
        assert_eq!(meter.value("held"), 1.0);
        guest.release().await.unwrap();

        assert_eq!(meter.four(), [0.0, 0.0, 3.0, 2.0]);
        one.close().await;
        other.close().await;
    })
    .await;
}

#[case]
async fn a_place_that_lingers_is_held_until_it_is_given_up(world: World) {
    metered(world, |world, meter| async move {
        let keeper = keeper(&world).await;
        let lock = keeper.mutex("lingers").unwrap().with_class("linger");
        let lock = lock.with_linger(Duration::from_secs(600));
        let meter = meter.of("linger", "mutex");

        for _ in 0..3 {
            lock.lock().await.unwrap().release().await.unwrap();
        }

        assert_eq!(
            meter.four(),
            [0.0, 1.0, 3.0, 0.0],
            "one hold, and three that had it"
        );
        keeper.close().await;
        assert_eq!(meter.four(), [0.0, 0.0, 3.0, 1.0]);
        assert_eq!(meter.value("lost_total"), 0.0, "given up is not lost");
    })
    .await;
}

#[case]
async fn a_hold_that_changes_its_kind_is_counted_as_the_other(world: World) {
    metered(world, |world, meter| async move {
        let keeper = keeper(&world).await;
        let table = keeper.rw_lock("table").unwrap().with_class("changes");
        let (reads, writes) = (meter.of("changes", "read"), meter.of("changes", "write"));
        let held = || (reads.value("held"), writes.value("held"));
        let ended = || {
            (
                reads.value("hold_seconds_count"),
                writes.value("hold_seconds_count"),
            )
        };

        let writer = table.write().await.unwrap();
        assert_eq!(held(), (0.0, 1.0));
        let reader = writer.downgrade().await.unwrap();
        assert_eq!((held(), ended()), ((1.0, 0.0), (0.0, 1.0)));
        let writer = reader.try_upgrade().await.unwrap();
        assert_eq!((held(), ended()), ((0.0, 1.0), (1.0, 1.0)));
        writer.release().await.unwrap();

        assert_eq!((held(), ended()), ((0.0, 0.0), (1.0, 2.0)));
        assert_eq!(meter.value("lost_total"), 0.0, "none was lost");
        keeper.close().await;
    })
    .await;
}

#[case]
async fn sessions_are_counted_from_their_beginning_to_their_end(world: World) {
    metered(world, |world, meter| async move {
        let sessions = || (meter.value("sessions"), meter.value("sessions_begun_total"));
        let one = keeper(&world).await;
        let other = keeper(&world).await;
        assert_eq!(sessions(), (2.0, 2.0));

        one.close().await;
        until("one is over", || sessions() == (1.0, 2.0)).await;
        drop(other);

        until("nobody has the other", || sessions() == (0.0, 2.0)).await;
        assert_eq!(meter.value("reconnects_total"), 0.0);
    })
    .await;
}

#[case(embedded)]
async fn what_a_session_held_is_counted_as_lost_with_it(world: World) {
    metered(world, |world, meter| async move {
        let keeper = keeper(&world).await;
        let faults = world.embedded().faults();
        let guards = [taken(&keeper, "one").await, taken(&keeper, "two").await];
        let ends = meter.of("ends", "mutex");
        let session = i64::from(keeper.queue("one").await.unwrap()[0].session);

        assert!(faults.cut(session));
        until("it connects again", || {
            meter.value("reconnects_total") == 1.0
        })
        .await;
        assert_eq!(ends.four(), [0.0, 2.0, 2.0, 0.0], "doubtful is not lost");
        assert!(faults.expire_session(session));
        let lost = timeout(SOON, guards[0].lost()).await.unwrap();

        assert!(lost.is_lost());
        assert_eq!(ends.four(), [0.0, 0.0, 2.0, 2.0]);
        assert_eq!((ends.lost("session"), ends.value("lost_total")), (2.0, 2.0));
        drop(guards);
        assert_eq!(ends.value("lost_total"), 2.0);
        keeper.close().await;
    })
    .await;
}

#[case(embedded)]
async fn a_lease_that_ends_is_counted_as_one(world: World) {
    metered(world, |_, meter| async move {
        let server = EmbeddedServer::start().await.unwrap();
        let keeper = Keeper::builder(server.connect_string());
        let keeper = keeper
            .session_timeout(Duration::from_millis(900))
            .connect()
            .await
            .unwrap();
        let guard = taken(&keeper, "leased").await;
        let meter = meter.of("ends", "mutex");

        server.stop().await;
        // The guard is not asked.
        until("the lease is over", || meter.value("held") == 0.0).await;

        assert_eq!((meter.lost("lease"), meter.value("lost_total")), (1.0, 1.0));
        drop(guard);
        assert_eq!(meter.four(), [0.0, 0.0, 1.0, 1.0]);
    })
    .await;
}

#[case(embedded)]
async fn a_runtime_that_is_gone_holds_nothing(world: World) {
    alone(move |meter| {
        let runtime = runtime();
        let (keeper, guard, place) = runtime.block_on(async {
            let keeper = keeper(&world).await;
            let guard = taken(&keeper, "gone").await;
            let lock = keeper.mutex("gone").unwrap().with_class("ends");
            let place = lock.enqueue().await.unwrap();
            (keeper, guard, place)
        });
        let ends = meter.of("ends", "mutex");
        assert_eq!(
            (ends.four(), meter.value("sessions")),
            ([1.0, 1.0, 1.0, 0.0], 1.0)
        );

        drop(runtime);

        assert_eq!((ends.value("held"), meter.value("sessions")), (0.0, 0.0));
        assert_eq!(ends.lost("session"), 1.0);
        drop((place, guard, keeper));
        assert_eq!(ends.four(), [0.0, 0.0, 1.0, 1.0]);
    })
    .await;
}

#[case(embedded, within = 120)]
async fn ten_thousand_names_of_three_classes_have_as_many_series_as_three_names(world: World) {
    metered(world, |world, meter| async move {
        const CLASSES: [&str; 3] = ["orders", "prices", "reports"];
        let keeper = keeper(&world).await;
        let take = |name: usize| {
            let lock = keeper
                .mutex(format!("{}/{name}", CLASSES[name % 3]))
                .unwrap();
            let lock = lock.with_class(CLASSES[name % 3]);
            async move { lock.lock().await.unwrap().release().await.unwrap() }
        };
        join_all((0..3).map(take)).await;
        let few = meter.page().series();

        for many in (3..10_000).collect::<Vec<_>>().chunks(100) {
            join_all(many.iter().copied().map(take)).await;
        }

        let all = meter.page().series();
        let count: f64 = CLASSES
            .iter()
            .map(|class| meter.of(class, "mutex").value("wait_seconds_count"))
            .sum();
        assert_eq!(count, 10_000.0);
        assert_eq!(all, few);
        // Of each class two gauges, three histograms, one counter, and one more for each reason of
        // a loss; and three of sessions.
        assert_eq!(all.len(), 3 * (2 + 3 + 1 + 4) + 3, "{all:#?}");
        keeper.close().await;
    })
    .await;
}
