//! What sits under us: the client crate, whose failures are not to be felt in a lock.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use lockkeeper::embedded::Op;
use lockkeeper::{Keeper, KeeperBuilder};
use tokio::time::timeout;
use zookeeper_client::{AddWatchMode, Client, EventType};

use super::SOON;
use crate::mutex::{children, keeper};
use crate::support::{Cut, Relay, World, eventually};

cases! {
    both:
        museum_51_the_crate_loses_persistent_watches_and_no_waiter_feels_it,
        museum_52_two_thousand_waiters_with_long_names_survive_a_cut,
        museum_53_however_a_connection_ends_an_unanswered_create_is_found,
        museum_53_however_a_connection_ends_an_unanswered_release_is_known,
        museum_54_a_guard_that_is_dropped_while_its_link_is_reset_is_released,
        museum_55_a_lock_that_is_cancelled_below_a_long_path_leaves_nothing,
        museum_56_calls_made_while_disconnected_end_in_time,
        museum_60_a_runtime_that_ends_under_guards_and_waiters_panics_nowhere;
}

const T: Duration = Duration::from_secs(1);

/// Keepers of short sessions, with all their connections through the relay.
fn builder(relay: &Relay, world: &World) -> KeeperBuilder {
    Keeper::builder(relay.connect_string(world)).session_timeout(T)
}

async fn keeper_by(relay: &Relay, world: &World) -> Keeper {
    builder(relay, world).connect().await.unwrap()
}

async fn museum_51_the_crate_loses_persistent_watches_and_no_waiter_feels_it(world: World) {
    let (relay, near, stranger) = (
        Relay::of(&world).await,
        keeper(&world).await,
        world.raw().await,
    );
    let theirs = Client::connect(&relay.connect_string(&world))
        .await
        .unwrap();
    let ours = keeper_by(&relay, &world).await;
    let held = near.mutex("watched").unwrap().lock().await.unwrap();
    let mut waiter = ours.mutex("watched").unwrap().enqueue().await.unwrap();
    assert!(timeout(T / 10, waiter.granted()).await.is_err());
    let mut watcher = theirs
        .watch("/locks/watched", AddWatchMode::Persistent)
        .await
        .unwrap();
    let mut sees_a_change = async |what: &str| {
        let (data, theirs) = (what.as_bytes(), &theirs);
        stranger.set_data("/locks", b"", None).await.unwrap();
        stranger
            .set_data("/locks/watched", data, None)
            .await
            .unwrap();
        // What the server has sent before its answer has arrived with it.
        eventually("they are connected", SOON, || async {
            theirs.sync("/locks").await.is_ok()
        })
        .await;
        loop {
            match timeout(T / 5, watcher.changed()).await {
                Ok(event) if event.event_type == EventType::NodeDataChanged => return true,
                Ok(_) => {}
                Err(_) => return false,
            }
        }
    };
    assert!(sees_a_change("before").await, "it watches");

    relay.cut(Cut::Fin);
    let seen = sees_a_change("after").await;

    assert!(
        !seen,
        "the client crate keeps persistent watches across a reconnect now: say so in row 51 and in the link"
    );
    held.release().await.unwrap();
    let granted = timeout(SOON, waiter.granted()).await;
    let granted = granted.expect("our waiter is woken").unwrap();
    granted.release().await.unwrap();
    if world.is_embedded() {
        let watches = world.embedded().counters().get(Op::AddWatch);
        assert_eq!(watches, 1, "the only persistent watch was theirs");
    }
}

async fn museum_52_two_thousand_waiters_with_long_names_survive_a_cut(world: World) {
    const WAITERS: usize = 2000;
    let (relay, near) = (Relay::of(&world).await, keeper(&world).await);
    let far = builder(&relay, &world)
        .session_timeout(Duration::from_secs(4))
        .connect()
        .await
        .unwrap();
    let name = "n".repeat(100);
    let held = near.mutex(&name).unwrap().lock().await.unwrap();
    let lock = far.mutex(&name).unwrap();
    let places = join_all((0..WAITERS).map(|_| lock.enqueue())).await;
    let mut places: Vec<_> = places.into_iter().map(Result::unwrap).collect();
    for place in &mut places {
        // Each looks and watches; none is granted.
        assert!(futures_util::poll!(Box::pin(place.changed())).is_pending());
    }
    let crowd = join_all(places.into_iter().map(|mut place| async move {
        let guard = place.granted().await?;
        guard.release().await
    }));
    let crowd = tokio::spawn(crowd);
    tokio::time::sleep(T / 2).await;

    let connections = relay.connections();
    relay.cut(Cut::Fin);
    eventually("they connect again", SOON, || async {
        relay.connections() > connections
    })
    .await;
    held.release().await.unwrap();

    let ends = timeout(Duration::from_secs(20), crowd).await;
    let ends = ends.expect("no wake-up was lost").unwrap();
    assert_eq!(ends.len(), WAITERS);
    for end in ends {
        end.unwrap();
    }
}

/// The ends of a connection in row 53, each with what its client is told.
fn ends() -> Vec<(&'static str, Option<Cut>)> {
    let mut mismatch = vec![0, 0, 0, 16];
    // An answer to a request that nobody sent: xid, zxid, no error.
    mismatch.extend(0x7000_0000_i32.to_be_bytes());
    mismatch.extend([0; 12]);
    vec![
        ("fin", Some(Cut::Fin)),
        ("reset", Some(Cut::Reset)),
        ("silence", None),
        ("garbage", Some(Cut::Bytes(vec![0, 0, 0, 3, 255, 0, 255]))),
        ("short", Some(Cut::Bytes(vec![0, 0, 0, 0]))),
        ("mismatch", Some(Cut::Bytes(mismatch))),
    ]
}

/// Ends the connection whose answers were held, and lets the next one pass.
async fn end(relay: &Relay, how: Option<Cut>) {
    let connections = relay.connections();
    let is_told = how.is_some();
    if let Some(how) = how {
        relay.cut(how);
    }
    if is_told {
        // The cut comes before what was held.
        tokio::task::yield_now().await;
    }
    eventually("the client gives the connection up", SOON, || async {
        relay.connections() > connections
    })
    .await;
    relay.open();
}

async fn museum_53_however_a_connection_ends_an_unanswered_create_is_found(world: World) {
    let (relay, stranger) = (Relay::of(&world).await, world.raw().await);
    let keeper = keeper_by(&relay, &world).await;
    for (name, how) in ends() {
        let lock = keeper.mutex(name).unwrap();
        lock.lock().await.unwrap().release().await.unwrap();
        relay.hold_answers();
        let locking = tokio::spawn(async move { lock.lock().await });
        eventually("the create is applied", SOON, || async {
            children(&stranger, name).await.len() == 1
        })
        .await;

        end(&relay, how).await;

        let guard = timeout(SOON, locking).await;
        let guard = guard.unwrap_or_else(|_| panic!("{name}: it hangs"));
        let guard = guard
            .unwrap()
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(children(&stranger, name).await, [guard.node()], "{name}");
        guard.release().await.unwrap();
    }
}

async fn museum_53_however_a_connection_ends_an_unanswered_release_is_known(world: World) {
    let (relay, stranger) = (Relay::of(&world).await, world.raw().await);
    let keeper = keeper_by(&relay, &world).await;
    for (name, how) in ends() {
        let guard = keeper.mutex(name).unwrap().lock().await.unwrap();
        relay.hold_answers();
        let releasing = tokio::spawn(guard.release());
        eventually("the release is applied", SOON, || async {
            children(&stranger, name).await.is_empty()
        })
        .await;

        end(&relay, how).await;

        let released = timeout(SOON, releasing).await;
        let released = released.unwrap_or_else(|_| panic!("{name}: it hangs"));
        released
            .unwrap()
            .unwrap_or_else(|error| panic!("{name}: {error}"));
    }
}

async fn museum_54_a_guard_that_is_dropped_while_its_link_is_reset_is_released(world: World) {
    let (relay, near, stranger) = (
        Relay::of(&world).await,
        keeper(&world).await,
        world.raw().await,
    );
    let far = keeper_by(&relay, &world).await;
    let stays = far.mutex("stays").unwrap().lock().await.unwrap();
    for _ in 0..3 {
        let guard = far.mutex("dropped").unwrap().lock().await.unwrap();
        let mut waiter = near.mutex("dropped").unwrap().enqueue().await.unwrap();

        // The delete is on its way, and never arrives.
        relay.hold_requests();
        drop(guard);
        tokio::time::sleep(T / 50).await;
        relay.cut(Cut::Reset);
        relay.open();

        let next = timeout(SOON, waiter.granted()).await;
        let next = next.expect("the queue moves on").unwrap();
        assert_eq!(children(&stranger, "dropped").await, [next.node()]);
        next.release().await.unwrap();
    }
    assert_eq!(
        children(&stranger, "stays").await,
        [stays.node()],
        "the session lives"
    );
    stays.release().await.unwrap();
}

async fn museum_55_a_lock_that_is_cancelled_below_a_long_path_leaves_nothing(world: World) {
    let (relay, near, stranger) = (
        Relay::of(&world).await,
        keeper(&world).await,
        world.raw().await,
    );
    let far = keeper_by(&relay, &world).await;
    let name = "services/orders/eu-west/42";
    let held = near.mutex(name).unwrap().lock().await.unwrap();
    let lock = far.mutex(name).unwrap();
    let stays = far.mutex("stays").unwrap().lock().await.unwrap();
    let tickets = async |count| {
        let counted = || async { children(&stranger, name).await.len() == count };
        eventually("as many tickets as there should be", SOON, counted).await;
    };

    // While it waits.
    let mut waiting = tokio::spawn({
        let lock = lock.clone();
        async move { lock.lock().await.map(drop) }
    });
    tickets(2).await;
    assert!(timeout(T / 20, &mut waiting).await.is_err());
    waiting.abort();
    tickets(1).await;
    // Before it knows its ticket.
    relay.hold_answers();
    let waiting = tokio::spawn(async move { lock.lock().await.map(drop) });
    tickets(2).await;
    waiting.abort();
    relay.open();
    tickets(1).await;

    assert_eq!(children(&stranger, name).await, [held.node()]);
    assert_eq!(children(&stranger, "stays").await, [stays.node()]);
    stays.release().await.unwrap();
    held.release().await.unwrap();
}

async fn museum_56_calls_made_while_disconnected_end_in_time(world: World) {
    let relay = Relay::of(&world).await;
    let builder = builder(&relay, &world).connect_timeout(T / 2);
    let keeper = builder.connect().await.unwrap();
    let guard = keeper.mutex("held").unwrap().lock().await.unwrap();
    let lock = keeper.mutex("other").unwrap();
    // The crate says that a session is over at 1.8 times its timeout at the latest; then another may be tried for.
    let at_most = T * 9 / 5 + T / 2 + T / 2;

    relay.shut();
    let began = Instant::now();
    let short = async {
        let error = lock.lock_timeout(T / 5).await.unwrap_err();
        assert!(error.is_timeout(), "{error}");
        assert!(began.elapsed() < T / 5 + T / 10, "{:?}", began.elapsed());
    };
    let rest = async {
        let calls = tokio::join!(
            async { lock.lock().await.map(drop) },
            async { lock.try_lock().await.map(drop) },
            async { lock.enqueue().await.map(drop) },
            async { keeper.queue("held").await.map(drop) },
            async { keeper.locks().await.map(drop) },
            guard.release(),
        );
        let (locked, tried, queued, looked, listed, released) = calls;
        for ended in [locked, tried, queued, looked, listed, released] {
            let error = ended.unwrap_err();
            assert!(error.is_lost() || error.is_unreachable(), "{error}");
        }
    };
    let ended = timeout(at_most, async { tokio::join!(short, rest) }).await;

    assert!(
        ended.is_ok(),
        "a call was still under way after {at_most:?}"
    );
    timeout(T * 2, keeper.close()).await.expect("it closes");
}

async fn museum_60_a_runtime_that_ends_under_guards_and_waiters_panics_nowhere(world: World) {
    let connect_string = world.connect_string();
    // Panics on threads of this name are this case's.
    let name = std::thread::current().name().unwrap().to_owned();
    let outcome = tokio::task::spawn_blocking(move || {
        for round in 0..5 {
            let theirs = tokio::runtime::Builder::new_multi_thread()
                .worker_threads(1)
                .thread_name(&name)
                .enable_all()
                .build()
                .unwrap();
            let kept = theirs.block_on(async {
                let keeper = Keeper::connect(&connect_string).await.unwrap();
                let lock = keeper.mutex(format!("ends/{round}")).unwrap();
                let inside = keeper.mutex(format!("inside/{round}")).unwrap();
                let (guard, place) = (lock.lock().await.unwrap(), lock.enqueue().await.unwrap());
                let in_a_task = inside.lock().await.unwrap();
                // These end with the runtime, in whatever order it drops them.
                tokio::spawn(async move {
                    let _held = in_a_task;
                    std::future::pending::<()>().await;
                });
                for _ in 0..3 {
                    let lock = inside.clone();
                    tokio::spawn(async move { lock.lock().await.map(drop) });
                }
                tokio::task::yield_now().await;
                (guard, place, keeper)
            });
            theirs.shutdown_timeout(SOON);
            let dropped = catch_unwind(AssertUnwindSafe(|| drop(kept)));
            assert!(dropped.is_ok(), "a drop without a runtime panics");
        }
    });
    outcome.await.unwrap();
}
