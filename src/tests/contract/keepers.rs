//! What keepers and sessions do on any store beside ZooKeeper: recipes there, and how soon somebody
//! learns of a session that has died.

use std::sync::Arc;
use std::time::{Duration, Instant};

use testbench::relay::{Relay, Way};
use tokio::time::timeout;

use super::stores::{SESSION_TIMEOUT, Server, is_over, on_store};
use super::{SOON, ticket, told};
use crate::error::UnreachableReason;
use crate::link::{Change, Link};
use crate::{Error, Keeper};

#[test]
fn tasks_of_two_keepers_take_turns_with_rising_tokens() {
    on_store(async |server| {
        let keepers = [server.keeper().await, server.keeper().await];
        assert_eq!(keepers[0].engine(), server.engine());
        let turns = Arc::new(std::sync::Mutex::new(Vec::new()));
        let tasks = (0..8).map(|task| {
            let (lock, turns) = (
                keepers[task % 2].mutex("orders/42").unwrap(),
                Arc::clone(&turns),
            );
            tokio::spawn(async move {
                for _ in 0..50 {
                    let guard = lock.lock().await.unwrap();
                    // Nobody else is inside, so the latch is free.
                    turns.try_lock().unwrap().push(guard.token());
                    guard.release().await.unwrap();
                }
            })
        });
        for task in tasks.collect::<Vec<_>>() {
            task.await.unwrap();
        }
        let turns = turns.lock().unwrap().clone();
        assert_eq!(turns.len(), 400);
        assert!(
            turns.windows(2).all(|pair| pair[0] < pair[1]),
            "tokens rise"
        );
        assert!(keepers[0].queue("orders/42").await.unwrap().is_empty());
        for keeper in keepers {
            keeper.close().await;
        }
    });
}

#[test]
fn every_recipe_holds_and_waits() {
    on_store(async |server| {
        let (ours, theirs) = (server.keeper().await, server.keeper().await);

        let reader = ours.rw_lock("files").unwrap().read().await.unwrap();
        let writer = theirs.rw_lock("files").unwrap();
        assert!(writer.try_write().await.unwrap().is_none());
        reader.release().await.unwrap();
        let written = writer.write().await.unwrap();
        written.release().await.unwrap();

        let permits = (
            ours.semaphore("jobs", 2).unwrap(),
            theirs.semaphore("jobs", 2).unwrap(),
        );
        let both = (
            permits.0.acquire().await.unwrap(),
            permits.1.acquire().await.unwrap(),
        );
        assert!(permits.0.try_acquire().await.unwrap().is_none());
        both.0.release().await.unwrap();
        both.1.release().await.unwrap();

        let set = ours.lock_all(["a", "b"]).await.unwrap();
        assert!(
            theirs
                .mutex("b")
                .unwrap()
                .try_lock()
                .await
                .unwrap()
                .is_none()
        );
        set.release().await.unwrap();

        let leads = ours
            .election("leader")
            .unwrap()
            .campaign("here")
            .await
            .unwrap();
        leads.resign().await.unwrap();
        ours.close().await;
        theirs.close().await;
    });
}

/// Its session is not closed, and its place goes to the next within one and a half timeouts.
#[test]
fn the_lock_of_a_client_that_dies_goes_to_the_next_once() {
    on_store(async |server| {
        let address = server.url();
        let (held, holds) = std::sync::mpsc::channel();
        let (die, dies) = tokio::sync::oneshot::channel::<()>();
        let holder = std::thread::spawn(move || {
            let runtime = tokio::runtime::Runtime::new().unwrap();
            runtime.block_on(async {
                let builder = Keeper::builder(address).session_timeout(SESSION_TIMEOUT);
                let keeper = builder.new_store(true).connect().await.unwrap();
                let guard = keeper.mutex("orders/42").unwrap().lock().await.unwrap();
                held.send(guard.token()).unwrap();
                dies.await.ok();
                // Its runtime ends with all tasks at this point, without a word to the server.
                std::mem::forget((keeper, guard));
            });
            runtime.shutdown_background();
        });
        let first = tokio::task::spawn_blocking(move || holds.recv().unwrap());
        let first = first.await.unwrap();
        let keeper = server.keeper().await;
        let lock = keeper.mutex("orders/42").unwrap();
        die.send(()).unwrap();
        let died = Instant::now();

        let guard = timeout(SOON, lock.lock()).await.unwrap().unwrap();

        let waited = died.elapsed();
        assert!(waited < SESSION_TIMEOUT * 5 / 2, "{waited:?}");
        assert!(first < guard.token());
        holder.join().unwrap();
        keeper.close().await;
    });
}

#[test]
fn a_store_that_recovers_is_waited_for_unless_one_try_was_asked_for() {
    on_store(async |server| {
        let once = Keeper::builder(server.url()).connect_timeout(Duration::ZERO);
        let error = once.connect().await.unwrap_err();
        let Error::Unreachable { addresses, .. } = &error else {
            panic!("{error}");
        };
        assert!(
            matches!(addresses[0].reason, UnreachableReason::Recovering(_)),
            "{error}"
        );
        assert!(
            error
                .to_string()
                .contains("clients of before may still hold locks"),
            "{error}"
        );
        // Declared too late: the pause has begun.
        let late = Keeper::builder(server.url()).new_store(true);
        // Long enough for a greeting on a busy machine.
        let late = late.connect_timeout(SOON / 4).connect();
        assert!(timeout(SOON / 2, late).await.is_err(), "it waits");
    });
}

/// A session of so long a timeout, and its way to the server.
async fn by_a_relay(server: &Server, timeout: Duration) -> (Arc<dyn Link>, Relay) {
    let way = Relay::to(server.address()).await;
    (server.open_at(way.address(), timeout).await, way)
}

/// A heartbeat of the waiter comes each ten seconds.
#[test]
fn a_waiter_with_a_long_timeout_sees_the_end_of_a_short_one_in_time() {
    on_store(async |server| {
        let (dies, way) = by_a_relay(&server, SESSION_TIMEOUT).await;
        let (waits, _way) = by_a_relay(&server, SESSION_TIMEOUT * 15).await;
        let ticket = ticket(&*dies, "/t-").await;
        let (_, mut watch) = waits.watch(&ticket).await.unwrap();
        // A healthy session is seen to be late by nobody.
        assert!(timeout(SESSION_TIMEOUT * 2, watch.changed()).await.is_err());

        way.set(Way::Silent);

        let silent = Instant::now();
        assert_eq!(told(&mut watch).await, Change::Deleted);
        let waited = silent.elapsed();
        let bound = SESSION_TIMEOUT * 6 / 5 + Duration::from_millis(1500);
        assert!(waited < bound, "{waited:?}");
    });
}

#[test]
fn a_session_that_no_server_answers_is_over_after_less_than_twice_its_timeout() {
    on_store(async |server| {
        for way in [Way::Silent, Way::Refusing] {
            let (link, relay) = by_a_relay(&server, SESSION_TIMEOUT).await;
            relay.set(way);

            let silent = Instant::now();
            is_over(&*link).await;
            let took = silent.elapsed();
            assert!(took > SESSION_TIMEOUT, "{way:?}: {took:?}");
            assert!(took < SESSION_TIMEOUT * 19 / 10, "{way:?}: {took:?}");
        }
    });
}
