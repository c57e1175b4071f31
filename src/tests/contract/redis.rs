//! What is Redis's own: histories, keys of strangers, a strict clock.
//!
//! Parts of it are `clock.rs`, `refusals.rs`, `sentinels.rs` and `tls.rs`. Without
//! `LOCKKEEPER_TEST_ON=redis` it does nothing: the README's commands need no server.

mod clock;
mod refusals;
mod sentinels;
#[cfg(feature = "tls")]
mod tls;

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::try_join_all;
use testbench::daemon::{self, Daemon};
use testbench::relay::{Relay, Way};
use tokio::time::timeout;

use super::bed::is_on;
use super::stores::{SESSION_TIMEOUT, is_over, is_recovering};
use super::{SOON, children, node, ticket, told, until};
use crate::Keeper;
use crate::link::redis::RedisTarget;
use crate::link::{Change, Code, Create, Fault, Link, Opener, Read, SessionState, Write};
use crate::protocol::epoch::{CUT_OFF, LONGEST, Reaping};

/// Runs a case with a server of its own, which is started by calls that block.
pub(super) fn on_redis<F: Future<Output = ()>>(options: &[&str], case: impl FnOnce(Daemon) -> F) {
    if !is_on("redis") {
        return;
    }
    let server = daemon::redis(options).unwrap();
    run(case(server));
}

/// Runs a case on servers that were started before, by calls that block.
fn run(case: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async { timeout(SOON * 6, case).await.expect("it ends") });
}

pub(super) fn url(server: &Daemon) -> String {
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

pub(super) async fn ask(server: &Daemon, words: &[&str]) -> redis::Value {
    let client = redis::Client::open(url(server)).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let mut command = redis::cmd(words[0]);
    command.arg(&words[1..]);
    command.query_async(&mut connection).await.unwrap()
}

async fn keeper(server: &Daemon) -> Keeper {
    let builder = Keeper::builder(url(server)).session_timeout(SESSION_TIMEOUT);
    builder.new_store(true).connect().await.unwrap()
}

#[test]
fn a_restart_that_may_have_lost_data_ends_sessions_and_grants_nothing_for_a_while() {
    for options in [&["--appendonly", "yes"][..], &[]] {
        on_redis(options, async |mut server| {
            let link = open(&server).await;
            link.create("/a", b"", Create::Persistent).await.unwrap();
            let (_, mut watch) = link.watch("/a").await.unwrap();

            let since = Instant::now();
            server.kill();
            server.launch().unwrap();

            is_over(&*link).await;
            assert_eq!(told(&mut watch).await, Change::SessionOver);
            let refused = refusal(&server).await;
            assert!(is_recovering(&refused, since), "{refused:?}");
            // It is counted from the first look, and once.
            let again = refusal(&server).await;
            assert!(is_recovering(&again, since), "{again:?}");
        });
    }
}

#[test]
fn a_store_that_was_emptied_ends_sessions_and_grants_nothing_for_a_while() {
    on_redis(&[], async |server| {
        let link = open(&server).await;
        ticket(&*link, "/t-").await;

        let since = Instant::now();
        ask(&server, &["FLUSHALL"]).await;

        let lost = link.sync("/").await;
        assert!(matches!(lost, Err(Fault::Unknown(_))), "{lost:?}");
        is_over(&*link).await;
        let refused = refusal(&server).await;
        assert!(is_recovering(&refused, since), "{refused:?}");
    });
}

#[test]
fn watches_of_the_dead_do_not_pile_up() {
    on_redis(&[], async |server| {
        let link = open(&server).await;
        // Beside a living one, and alone.
        for (path, living, at_most) in [("/a", 1, 4), ("/b", 0, 0)] {
            link.create(path, b"", Create::Persistent).await.unwrap();
            let mut watches = Vec::new();
            for _ in 0..living {
                watches.push(link.watch(path).await.unwrap().1);
            }
            for _ in 0..20 {
                let dying = open(&server).await;
                let _watch = dying.watch(path).await.unwrap();
                let session = dying.session_id().to_string();
                ask(&server, &["ZADD", "{lockkeeper}:sessions", "-1", &session]).await;
            }
            watches.push(link.watch(path).await.unwrap().1);

            let set = format!("{{lockkeeper}}:watches:{path}");
            let left = ask(&server, &["SCARD", &set]).await;
            let left: usize = redis::from_redis_value(left).unwrap();
            assert!(left <= at_most, "{left} watch {path}");
            // The living are told.
            link.multi(&[Write::set(path, b"new", 0)]).await.unwrap();
            for watch in &mut watches {
                assert_eq!(told(watch).await, Change::Changed);
            }
        }
    });
}

#[test]
fn a_watch_that_is_taken_back_leaves_its_node_as_it_was() {
    on_redis(&[], async |server| {
        let link = open(&server).await;
        link.create("/a", b"", Create::Persistent).await.unwrap();
        let stored = async || ask(&server, &["HGET", "{lockkeeper}:in:", "a"]).await;
        let before = stored().await;

        let (_, watch) = link.watch("/a").await.unwrap();
        assert_ne!(stored().await, before);
        drop(watch);
        link.sync("/").await.unwrap();

        assert_eq!(stored().await, before);
    });
}

/// Of the server's memory, without the buffers of its clients.
async fn stored_bytes(server: &Daemon) -> usize {
    let told = ask(server, &["INFO", "memory"]).await;
    let told: String = redis::from_redis_value(told).unwrap();
    let bytes = |name: &str| -> usize {
        let mut lines = told.lines();
        let value = lines.find_map(|line| line.strip_prefix(name)).unwrap();
        value.parse().unwrap()
    };
    bytes("used_memory:") - bytes("mem_clients_normal:")
}

#[test]
#[expect(clippy::print_stdout, reason = "the figure is its result")]
fn a_waiter_takes_at_most_400_bytes_of_the_server() {
    const WAITERS: usize = 2_000;
    on_redis(&["--appendonly", "no"], async |server| {
        let keeper = keeper(&server).await;
        let lock = keeper.mutex("crowd").unwrap();
        let _held = lock.lock().await.unwrap();
        let before = stored_bytes(&server).await;
        for _ in 0..WAITERS {
            let lock = lock.clone();
            tokio::spawn(async move { lock.lock().await });
        }
        let watched = "local watched = 0
            for _, node in ipairs(redis.call('HVALS', KEYS[1])) do
                if cmsgpack.unpack(node)[9] then watched = watched + 1 end
            end
            return watched";
        let watched = ["EVAL", watched, "1", "{lockkeeper}:in:/locks/crowd"];
        until("each watches the one before", async || {
            ask(&server, &watched).await == redis::Value::Int(WAITERS as i64)
        })
        .await;

        let each = (stored_bytes(&server).await - before) / WAITERS;
        println!("a waiter takes {each} bytes of Redis");
        assert!((100..=400).contains(&each), "{each} bytes");
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

        let since = Instant::now();
        ask(&replica, &["REPLICAOF", "NO", "ONE"]).await;

        let refused = refusal(&replica).await;
        assert!(is_recovering(&refused, since), "{refused:?}");
    });
}

#[test]
fn a_key_that_holds_something_else_is_told_and_changes_nothing() {
    on_redis(&[], async |server| {
        let link = open(&server).await;
        link.create("/a", b"", Create::Persistent).await.unwrap();
        // Several are in a key of their own.
        let _watch = link.watch_children("/a").await.unwrap();
        let _another = link.watch_children("/a").await.unwrap();
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

/// It would fail after the first write, and Redis takes nothing back.
#[test]
fn what_a_stranger_wrote_into_a_set_of_watches_stops_nobody() {
    on_redis(&[], async |server| {
        let link = open(&server).await;
        link.create("/a", b"", Create::Persistent).await.unwrap();
        // Several are in a set.
        let (_, mut watch) = link.watch("/a").await.unwrap();
        let _another = link.watch("/a").await.unwrap();
        let strange = ["SADD", "{lockkeeper}:watches:/a", "a stranger's", "", "d:"];
        ask(&server, &strange).await;
        link.multi(&[Write::set("/a", b"new", 0)]).await.unwrap();
        assert_eq!(told(&mut watch).await, Change::Changed);

        let (_, mut watch) = link.watch("/a").await.unwrap();
        link.multi(&[Write::set("/a", b"newer", 1)]).await.unwrap();
        assert_eq!(told(&mut watch).await, Change::Changed);
        // Each one that watches removes two.
        let (_, mut watch) = link.watch("/a").await.unwrap();
        let left = ask(&server, &["SCARD", "{lockkeeper}:watches:/a"]).await;
        assert_eq!(left, redis::Value::Int(1));
        link.create("/a/b", b"", Create::Persistent).await.unwrap();
        link.delete("/a/b").await.unwrap();
        link.delete("/a").await.unwrap();
        assert_eq!(told(&mut watch).await, Change::Deleted);
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

/// Another server may have taken over its name.
#[test]
fn a_session_leaves_a_connection_on_which_all_is_refused() {
    on_redis(&[], async |server| {
        let link = open(&server).await;
        let mut states = link.states();

        ask(&server, &["CONFIG", "SET", "maxmemory", "1"]).await;

        let left = states.wait_for(|state| *state == SessionState::Disconnected);
        // Refused for two thirds of its timeout, from its next heartbeat on.
        let left = timeout(SESSION_TIMEOUT * 2, left).await.map(drop);
        left.expect("it leaves");
    });
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
fn a_lock_is_one_script_and_its_release_another() {
    const TURNS: usize = 100;
    on_redis(&[], async |server| {
        let scripts = async || {
            let told = ask(&server, &["INFO", "commandstats"]).await;
            let told: String = redis::from_redis_value(told).unwrap();
            let line = told.split("cmdstat_evalsha:calls=").nth(1).unwrap();
            line.split(',').next().unwrap().parse::<usize>().unwrap()
        };
        let builder = Keeper::builder(url(&server)).session_timeout(Duration::from_secs(30));
        let keeper = builder.new_store(true).connect().await.unwrap();
        let lock = keeper.mutex("orders/42").unwrap();
        lock.lock().await.unwrap().release().await.unwrap();
        let before = scripts().await;

        for _ in 0..TURNS {
            lock.lock().await.unwrap().release().await.unwrap();
        }

        // Those of the session itself come with time.
        let sent = scripts().await - before;
        assert!((2 * TURNS..5 * TURNS / 2).contains(&sent), "{sent}");
        keeper.close().await;
    });
}

/// A request moves the deadline only where too little is left, or too much.
#[test]
fn a_deadline_is_no_nearer_than_the_timeout_and_not_far_beyond() {
    on_redis(&[], async |server| {
        // A turn takes less than a 64th of it, on a busy machine too.
        let lasts = SESSION_TIMEOUT * 8;
        let target = RedisTarget::new(&url(&server), lasts, true).unwrap();
        let link = target.open(SOON).await.unwrap();
        let (deadlines, session) = ("{lockkeeper}:sessions", link.session_id().to_string());
        let now = async || {
            let told: [i64; 2] = redis::from_redis_value(ask(&server, &["TIME"]).await).unwrap();
            told[0] * 1_000_000 + told[1]
        };
        let granted = i64::try_from(lasts.as_micros()).unwrap();
        let (mut last, mut moved, mut kept) = (0, 0, 0);
        // As after a step of the clock, too, in 200ths of the timeout. The last one leaves a little
        // less than that.
        for part in [0, 0, 0, 0, 1000, 0, -100, 0, 25, 0, -4] {
            let step = granted * part / 200;
            for _ in 0..10 {
                if step != 0 {
                    let stepped = (last + step).to_string();
                    ask(&server, &["ZADD", deadlines, &stepped, &session]).await;
                }
                let before = now().await;
                link.sync("/").await.unwrap();
                let answer = ask(&server, &["ZSCORE", deadlines, &session]).await;
                let deadline: f64 = redis::from_redis_value(answer).unwrap();
                let (deadline, after) = (deadline as i64, now().await);

                let left = (deadline - after, deadline - before);
                assert!(
                    left.1 >= granted && left.0 <= granted + granted / 64 + 1,
                    "{left:?}"
                );
                if deadline == last {
                    kept += 1;
                } else {
                    moved += 1;
                }
                last = deadline;
            }
        }
        assert!(
            moved >= 40 && kept > 0,
            "moved {moved} times, kept {kept} times"
        );
    });
}

/// Its history is the same until it has asked its primary for another one.
#[test]
fn a_primary_that_has_become_a_replica_answers_no_read() {
    on_redis(&[], async |server| {
        let link = open(&server).await;
        let root = [Read::Data("/")];
        link.multi_read(&root).await.unwrap();

        ask(&server, &["REPLICAOF", "127.0.0.1", "1"]).await;
        let read = timeout(SOON, link.multi_read(&root)).await.unwrap();

        assert!(matches!(read, Err(Fault::Unknown(_))), "{read:?}");
    });
}

/// A second names a thousand of them, and no more.
#[test]
fn a_crowd_of_empty_containers_is_removed_in_time() {
    on_redis(&[], async |server| {
        let link = open(&server).await;
        let paths: Vec<String> = (0..3_000).map(|number| format!("/{number}")).collect();
        for some in paths.chunks(500) {
            let made = some
                .iter()
                .map(|path| link.create(path, b"", Create::Container));
            try_join_all(made).await.unwrap();
            let members = some.iter().flat_map(|path| ["1", path]);
            let since_long = ["ZADD", "{lockkeeper}:empty"].into_iter().chain(members);
            ask(&server, &since_long.collect::<Vec<_>>()).await;
        }

        until("all are gone", async || {
            children(&*link, "/").await.is_empty()
        })
        .await;
    });
}

/// It stood still, and another server may have taken over.
#[test]
fn a_server_that_is_silent_for_long_is_left_long_before_a_session_is_over() {
    on_redis(&[], async |server| {
        let target = RedisTarget::new(&url(&server), LONGEST, true).unwrap();
        let link = target.open(SOON).await.unwrap();
        let mut states = link.states();

        server.freeze();
        let (_asked, since) = (link.sync("/"), Instant::now());
        let left = states.wait_for(|state| *state == SessionState::Disconnected);
        timeout(LONGEST / 3, left)
            .await
            .expect("it leaves")
            .unwrap();

        let waited = since.elapsed();
        assert!(waited >= CUT_OFF, "{waited:?}");
        server.thaw();
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
