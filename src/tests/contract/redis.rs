//! What is Redis's own: histories, late connections, keys of strangers; and recipes there.
//!
//! `by_hand.rs` is a part of it. Without `LOCKKEEPER_TEST_ON=redis` it does nothing: the README's
//! commands need no server.

mod by_hand;

use std::sync::Arc;
use std::time::{Duration, Instant};

use testbench::daemon::{self, Daemon};
use testbench::relay::{Relay, Way};
use tokio::time::timeout;

use super::bed::is_on;
use super::{SOON, children, node, ticket, told, until};
use crate::error::UnreachableReason;
use crate::link::redis::RedisTarget;
use crate::link::{Change, Code, Create, Fault, Link, Opener, SessionState};
use crate::protocol::epoch::Reaping;
use crate::{Engine, Error, Keeper};

const SESSION_TIMEOUT: Duration = Duration::from_secs(2);

/// Runs a case with a server of its own, which is started by calls that block.
fn on_redis<F: Future<Output = ()>>(options: &[&str], case: impl FnOnce(Daemon) -> F) {
    if !is_on("redis") {
        return;
    }
    let server = daemon::redis(options).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    let run = async { timeout(SOON * 3, case(server)).await.expect("it ends") };
    runtime.block_on(run);
}

fn url(server: &Daemon) -> String {
    format!("redis://{}", server.address())
}

async fn open(server: &Daemon) -> Arc<dyn Link> {
    let target = RedisTarget::new(&url(server), SESSION_TIMEOUT, true).unwrap();
    target.open(SOON).await.unwrap()
}

async fn refusal(server: &Daemon) -> Fault {
    let target = RedisTarget::new(&url(server), SESSION_TIMEOUT, false).unwrap();
    target.open(SOON).await.unwrap_err()
}

async fn ask(server: &Daemon, words: &[&str]) -> redis::Value {
    let client = redis::Client::open(url(server)).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let mut command = redis::cmd(words[0]);
    command.arg(&words[1..]);
    command.query_async(&mut connection).await.unwrap()
}

async fn is_over(link: &dyn Link) {
    let mut states = link.states();
    let over = states.wait_for(|state| matches!(state, SessionState::Over(_)));
    timeout(SOON, over).await.expect("it is over").unwrap();
}

async fn keeper(server: &Daemon) -> Keeper {
    let builder = Keeper::builder(url(server)).session_timeout(SESSION_TIMEOUT);
    builder.new_store(true).connect().await.unwrap()
}

fn is_recovering(fault: &Fault) -> bool {
    let Fault::Answered(Code::Recovering(left)) = fault else {
        return false;
    };
    (Duration::from_secs(25)..=Duration::from_secs(35)).contains(left)
}

#[test]
fn a_restart_that_may_have_lost_data_ends_sessions_and_grants_nothing_for_a_while() {
    for options in [&["--appendonly", "yes"][..], &[]] {
        on_redis(options, async |mut server| {
            let link = open(&server).await;
            link.create("/a", b"", Create::Persistent).await.unwrap();
            let (_, mut watch) = link.watch("/a").await.unwrap();

            server.kill();
            server.launch().unwrap();

            is_over(&*link).await;
            assert_eq!(told(&mut watch).await, Change::SessionOver);
            let refused = refusal(&server).await;
            assert!(is_recovering(&refused), "{refused:?}");
            // It is counted from the first look, and once.
            let again = refusal(&server).await;
            assert!(is_recovering(&again), "{again:?}");
        });
    }
}

#[test]
fn a_store_that_was_emptied_ends_sessions_and_grants_nothing_for_a_while() {
    on_redis(&[], async |server| {
        let link = open(&server).await;
        ticket(&*link, "/t-").await;

        ask(&server, &["FLUSHALL"]).await;

        let lost = link.sync("/").await;
        assert!(matches!(lost, Err(Fault::Unknown(_))), "{lost:?}");
        is_over(&*link).await;
        let refused = refusal(&server).await;
        assert!(is_recovering(&refused), "{refused:?}");
    });
}

#[test]
fn a_replica_is_refused_and_its_promotion_is_another_history() {
    on_redis(&[], async |primary| {
        let port = primary.address().port().to_string();
        let replica = tokio::task::spawn_blocking(move || {
            daemon::redis(&["--replicaof", "127.0.0.1", &port]).unwrap()
        });
        let replica = replica.await.unwrap();
        // The first replica gives its primary another history.
        until("the replica follows", async || {
            let told = ask(&replica, &["INFO", "replication"]).await;
            let told: String = redis::from_redis_value(told).unwrap();
            told.contains("master_link_status:up")
        })
        .await;
        let link = open(&primary).await;
        link.create("/a", b"", Create::Persistent).await.unwrap();
        let refused = Keeper::builder(url(&replica)).connect_timeout(Duration::ZERO);
        let refused = refused.connect().await.unwrap_err();
        assert!(refused.to_string().contains("it is a replica"), "{refused}");
        until("the replica has the node", async || {
            let keys = ask(&replica, &["EXISTS", "{lockkeeper}:root"]).await;
            keys == redis::Value::Int(1)
        })
        .await;

        ask(&replica, &["REPLICAOF", "NO", "ONE"]).await;

        let refused = refusal(&replica).await;
        assert!(is_recovering(&refused), "{refused:?}");
    });
}

#[test]
fn a_key_that_holds_something_else_is_told_and_changes_nothing() {
    on_redis(&[], async |server| {
        let link = open(&server).await;
        link.create("/a", b"", Create::Persistent).await.unwrap();
        ask(&server, &["SET", "{lockkeeper}:watches:/a", "a stranger's"]).await;

        let refused = link
            .create("/a/b", b"", Create::Persistent)
            .await
            .unwrap_err();

        assert!(
            matches!(refused, Fault::Answered(Code::Other(_))),
            "{refused:?}"
        );
        assert!(children(&*link, "/a").await.is_empty());
    });
}

#[test]
fn a_server_without_memory_refuses_for_now() {
    on_redis(&[], async |server| {
        let link = open(&server).await;
        ask(&server, &["CONFIG", "SET", "maxmemory", "1"]).await;

        let refused = link
            .create("/a", b"", Create::Persistent)
            .await
            .unwrap_err();

        assert!(
            matches!(refused, Fault::Answered(Code::NotNow(_))),
            "{refused:?}"
        );
        ask(&server, &["CONFIG", "SET", "maxmemory", "0"]).await;
        link.create("/a", b"", Create::Persistent).await.unwrap();
    });
}

#[test]
fn a_store_that_refuses_sessions_is_told_in_its_own_words() {
    for (command, words) in [
        (["CONFIG", "SET", "maxmemory", "1"], "used memory"),
        (
            ["CONFIG", "SET", "min-replicas-to-write", "1"],
            "NOREPLICAS",
        ),
        (["ACL", "SETUSER", "default", "-evalsha"], "may not write"),
    ] {
        on_redis(&[], async |server| {
            ask(&server, &command).await;

            let once = Keeper::builder(url(&server)).connect_timeout(Duration::ZERO);
            let error = once.new_store(true).connect().await.unwrap_err();

            assert!(error.is_unreachable(), "{error}");
            let text = error.to_string();
            assert!(
                text.contains(words) && !text.contains("ZooKeeper"),
                "{text}"
            );
        });
    }
}

/// Its session expires meanwhile, as the server's script does not run.
#[test]
fn a_heartbeat_that_the_server_refuses_extends_no_lease() {
    on_redis(&[], async |server| {
        let keeper = keeper(&server).await;
        let lock = keeper.mutex("orders/42").unwrap();
        let guard = lock.lock().await.unwrap();

        ask(&server, &["ACL", "SETUSER", "default", "-evalsha"]).await;

        let lost = timeout(SESSION_TIMEOUT, guard.lost()).await;
        assert!(lost.expect("its lease ends").is_lost());
        ask(&server, &["ACL", "SETUSER", "default", "+@all"]).await;
        drop(guard);
        let next = timeout(SOON, lock.lock()).await.unwrap().unwrap();
        next.release().await.unwrap();
        keeper.close().await;
    });
}

#[test]
fn tasks_of_two_keepers_take_turns_with_rising_tokens() {
    on_redis(&[], async |server| {
        let keepers = [keeper(&server).await, keeper(&server).await];
        assert_eq!(keepers[0].engine(), Engine::Redis);
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
    on_redis(&[], async |server| {
        let (ours, theirs) = (keeper(&server).await, keeper(&server).await);

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
    on_redis(&[], async |server| {
        let address = url(&server);
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
        let keeper = keeper(&server).await;
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

/// The silent session is strict, and those that find it are not.
#[test]
fn one_strict_client_makes_all_wait_for_a_whole_lease() {
    on_redis(&[], async |server| {
        let way = Relay::to(server.address()).await;
        let url_of_way = format!("redis://{}", way.address());
        let mut strict = RedisTarget::new(&url_of_way, SESSION_TIMEOUT, true).unwrap();
        strict.reaping = Reaping::Strict;
        let silent = strict.open(SOON).await.unwrap();
        let mine = ticket(&*silent, "/t-").await;
        let usual = open(&server).await;

        way.set(Way::Silent);
        let since = Instant::now();
        until("the ticket is gone", async || {
            node(&*usual, &mine).await.is_none()
        })
        .await;

        let waited = since.elapsed();
        assert!(waited > SESSION_TIMEOUT * 3 / 2, "{waited:?}");
    });
}

#[test]
fn what_is_of_zookeeper_is_refused_by_name_before_any_io() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let on_redis = || Keeper::builder("redis://me:secret@nowhere.invalid:1");
        for (builder, option) in [
            (on_redis().credential("digest", "a:b"), "credential"),
            (on_redis().acl(crate::Acl::open()), "access list"),
            (on_redis().tick_time(Duration::from_secs(1)), "tick time"),
            (on_redis().dialect(crate::Dialect::Kazoo), "dialect"),
            (
                on_redis().lease_strength(crate::LeaseStrength::Sync),
                "lease strength",
            ),
            (on_redis().require_tls(true), "TLS is required"),
            (Keeper::builder("redis://a:1/x"), "connect string"),
            (Keeper::builder("zk1:2181").new_store(true), "new store"),
            (
                Keeper::builder("zk1:2181").strict_clock(true),
                "strict clock",
            ),
        ] {
            let error = builder.connect().await.unwrap_err();
            let text = format!("{error} {error:?}");
            assert!(error.is_invalid() && text.contains(option), "{text}");
            assert!(!text.contains("secret"), "{text}");
        }
    });
}

#[test]
fn a_store_that_recovers_is_waited_for_unless_one_try_was_asked_for() {
    on_redis(&[], async |server| {
        let once = Keeper::builder(url(&server)).connect_timeout(Duration::ZERO);
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
        let late = Keeper::builder(url(&server)).new_store(true);
        let late = late.connect_timeout(Duration::from_millis(200)).connect();
        assert!(
            timeout(Duration::from_secs(2), late).await.is_err(),
            "it waits"
        );
    });
}

/// A session of so long a timeout, and its way to the server.
async fn by_a_relay(server: &Daemon, timeout: Duration) -> (Arc<dyn Link>, Relay) {
    let way = Relay::to(server.address()).await;
    let url = format!("redis://{}", way.address());
    let target = RedisTarget::new(&url, timeout, true).unwrap();
    (target.open(SOON).await.unwrap(), way)
}

/// A heartbeat of the waiter comes each ten seconds.
#[test]
fn a_waiter_with_a_long_timeout_sees_the_end_of_a_short_one_in_time() {
    on_redis(&[], async |server| {
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
    on_redis(&[], async |server| {
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
