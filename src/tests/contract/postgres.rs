//! What is PostgreSQL's own: histories, its rights and its schema, row locks.
//!
//! The files in `postgres/` are parts of it. It does nothing without
//! `LOCKKEEPER_TEST_ON=postgres`: the README's commands need no server.

mod clock;
mod connections;
mod histories;
mod refusals;
mod rows;
mod settings;
#[cfg(feature = "tls")]
mod tls;

use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::TryFutureExt;
use testbench::daemon::{self, Daemon};
use testbench::pooler::pgbouncer;
use testbench::relay::{Relay, Way};
use tokio::time::{sleep, timeout};

use super::bed::{is_on, ready};
use super::stores::{SESSION_TIMEOUT, is_over, is_recovering, leaves};
use super::{QUIET, SOON, children, is_quiet, node, numbered, ticket, told, until};
use crate::link::postgres::PostgresTarget;
use crate::link::{
    ANY_VERSION, Change, Code, Create, Fault, Found, Link, Opener, Read, Reply, Write,
};
use crate::{Error, Keeper};

/// So many names are a long list.
const OTHERS: usize = 20_000;

/// Runs a case with a server of its own, which is started by calls that block.
pub(super) fn on_postgres<F: Future<Output = ()>>(case: impl FnOnce(Daemon) -> F) {
    if !is_on("postgres") {
        return;
    }
    let server = daemon::postgres(&[]).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    let run = async {
        ready(server.address()).await;
        timeout(SOON * 3, case(server)).await.expect("it ends");
    };
    runtime.block_on(run);
}

pub(super) fn url(server: &Daemon) -> String {
    format!("postgres://postgres@{}/postgres", server.address())
}

async fn open_at(url: &str, is_new: bool) -> Result<Arc<dyn Link>, Fault> {
    let target = PostgresTarget::new(url, SESSION_TIMEOUT, is_new).unwrap();
    target.open(SOON).await
}

async fn open(server: &Daemon) -> Arc<dyn Link> {
    open_at(&url(server), true).await.unwrap()
}

/// Why there is no keeper, after one try.
async fn refusal(url: &str) -> Error {
    let once = Keeper::builder(url).connect_timeout(Duration::ZERO);
    once.connect().await.unwrap_err()
}

async fn client(server: &Daemon) -> tokio_postgres::Client {
    let plain = url(server);
    let (client, connection) = tokio_postgres::connect(&plain, tokio_postgres::NoTls)
        .await
        .unwrap();
    tokio::spawn(connection);
    client
}

pub(super) async fn run(server: &Daemon, sql: &str) {
    client(server).await.batch_execute(sql).await.unwrap();
}

async fn keeper(server: &Daemon) -> Keeper {
    let builder = Keeper::builder(url(server)).session_timeout(SESSION_TIMEOUT);
    builder.new_store(true).connect().await.unwrap()
}

#[test]
fn two_sessions_never_share_a_number() {
    on_postgres(async |server| {
        // Behind a pooler, tickets come by functions.
        let address = server.address();
        let pooler = tokio::task::spawn_blocking(move || pgbouncer(address, "").unwrap());
        let pooler = pooler.await.unwrap();
        let pooled = format!("{}?wake=poll", url(&pooler));
        let (ours, theirs) = (open(&server).await, open_at(&pooled, false).await.unwrap());
        ours.create("/a", b"", Create::Persistent).await.unwrap();
        let joins = |link: Arc<dyn Link>| async move {
            let kind = Create::EphemeralSequential;
            let sent: Vec<_> = (0..200).map(|_| link.create("/a/t-", b"", kind)).collect();
            let mut made = Vec::new();
            for sent in sent {
                let created = sent.await.unwrap();
                made.push((created.seq, created.czxid));
            }
            made
        };

        let (ours, theirs) = tokio::join!(tokio::spawn(joins(ours)), tokio::spawn(joins(theirs)));

        let mut all = [ours.unwrap(), theirs.unwrap()].concat();
        all.sort_unstable();
        assert!(all.iter().map(|(seq, _)| *seq).eq(0..400), "{all:?}");
        let rising = all.windows(2).all(|pair| pair[0].1 < pair[1].1);
        assert!(rising, "ids rise with numbers");
    });
}

/// A statement sees what was committed before it began. So a node that comes while a transaction
/// waits for its locks is not locked, and its counter may be another's.
#[test]
fn a_node_that_comes_after_the_locks_is_not_there_yet() {
    on_postgres(async |server| {
        let (ours, other) = (open(&server).await, client(&server).await);
        ours.create("/x", b"", Create::Persistent).await.unwrap();
        for late in [
            numbered("/x/y/t-"),
            Write::set("/x/y", b"", ANY_VERSION),
            Write::delete("/x/y"),
        ] {
            let comes = "BEGIN; SELECT FROM lockkeeper.nodes WHERE dir = '' AND name = 'x' FOR UPDATE; \
                         INSERT INTO lockkeeper.nodes (dir, name, data, czxid, owner, pzxid, is_container) \
                         VALUES ('/x', 'y', '', 1, 0, 1, false)";
            other.batch_execute(comes).await.unwrap();
            let writes = [Write::set("/x", b"", ANY_VERSION), late];
            let mut waiting = pin!(ours.multi(&writes));
            assert!(timeout(QUIET, &mut waiting).await.is_err(), "it waits");
            other.batch_execute("COMMIT").await.unwrap();

            let refused = waiting.await.unwrap_err();
            assert_eq!(refused, Fault::Refused(1, Code::NoNode), "{late:?}");
            let goes = "DELETE FROM lockkeeper.nodes WHERE dir = '/x'";
            other.batch_execute(goes).await.unwrap();
        }
    });
}

/// A delete that has begun waits for the watch, or the watch for the delete. Nothing is missed.
#[test]
fn a_watch_that_is_armed_during_a_delete_is_told() {
    on_postgres(async |server| {
        let (ours, theirs) = (open(&server).await, open(&server).await);
        ours.create("/a", b"", Create::Persistent).await.unwrap();
        for turn in 0..400 {
            let mine = ticket(&*ours, "/a/t-").await;
            let czxid = node(&*ours, &mine).await.unwrap().czxid;
            let leaves = leaves(&mine, czxid);
            let gone: Reply<'_, ()> = match turn % 2 {
                0 => ours.delete(&mine),
                _ => Box::pin(ours.multi(&leaves).map_ok(drop)),
            };
            let (deleted, watched) = tokio::join!(gone, theirs.watch(&mine));
            deleted.unwrap();
            match watched {
                Ok((_, mut watch)) => assert_eq!(told(&mut watch).await, Change::Deleted),
                Err(fault) => assert_eq!(fault, Fault::Answered(Code::NoNode), "turn {turn}"),
            }
        }
        // The same where a transaction of another program has the node meanwhile.
        let mine = ticket(&*ours, "/t-").await;
        let name = mine.trim_start_matches('/');
        let other = client(&server).await;
        let delete =
            format!("BEGIN; DELETE FROM lockkeeper.nodes WHERE dir = '' AND name = '{name}'");
        other.batch_execute(&delete).await.unwrap();
        let watched = theirs.watch(&mine);
        tokio::pin!(watched);
        assert!(timeout(QUIET, &mut watched).await.is_err(), "it waits");
        other.batch_execute("COMMIT").await.unwrap();
        assert_eq!(watched.await.unwrap_err(), Fault::Answered(Code::NoNode));
    });
}

/// The reply that tells of it goes nowhere.
#[test]
fn a_watch_is_told_what_an_earlier_connection_still_does() {
    on_postgres(async |server| {
        let way = Relay::to(server.address()).await;
        let through = format!("postgres://postgres@{}/postgres", way.address());
        let target = PostgresTarget::new(&through, rows::LASTS, true).unwrap();
        let ours = target.open(SOON).await.unwrap();
        ours.create("/a", b"", Create::Persistent).await.unwrap();
        let mine = ticket(&*ours, "/a/t-").await;
        let (_, mut watch) = ours.watch(&mine).await.unwrap();
        let (other, looks) = (client(&server).await, client(&server).await);
        let row = "BEGIN; SELECT FROM lockkeeper.nodes WHERE name = 'a' FOR UPDATE";
        other.batch_execute(row).await.unwrap();
        let mut gone = pin!(ours.delete(&mine));
        assert!(timeout(QUIET, &mut gone).await.is_err(), "it waits");

        way.set(Way::Refusing);
        let cut = gone.await.unwrap_err();
        assert!(matches!(cut, Fault::Unknown(_)), "{cut:?}");
        way.set(Way::Open);
        until("the session waits to be moved", async || {
            let held_up = "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
            looks.query(held_up, &[]).await.unwrap().len() == 2
        })
        .await;
        // What is asked beside that is done by then.
        sleep(QUIET).await;
        other.batch_execute("COMMIT").await.unwrap();

        assert_eq!(told(&mut watch).await, Change::Deleted);
    });
}

/// Otherwise it would be made or removed for a session that others have seen to its end.
#[test]
fn a_session_is_not_ended_while_its_ticket_comes_or_goes() {
    on_postgres(async |server| {
        let (ours, other) = (open(&server).await, client(&server).await);
        ours.create("/a", b"", Create::Persistent).await.unwrap();
        let mine = ticket(&*ours, "/a/t-").await;
        let czxid = node(&*ours, &mine).await.unwrap().czxid;
        let leaves = leaves(&mine, czxid);
        for writes in [&[numbered("/a/t-")][..], &leaves] {
            let row = "BEGIN; SELECT FROM lockkeeper.nodes WHERE name = 'a' FOR UPDATE";
            other.batch_execute(row).await.unwrap();
            let mut waiting = pin!(ours.multi(writes));
            assert!(timeout(QUIET, &mut waiting).await.is_err(), "it waits");

            // As who looks at a session that may be over.
            let free = "SELECT FROM lockkeeper.sessions FOR UPDATE SKIP LOCKED";
            let free = client(&server).await.query(free, &[]).await.unwrap();

            assert!(free.is_empty(), "{writes:?}");
            other.batch_execute("COMMIT").await.unwrap();
            waiting.await.unwrap();
        }
    });
}

/// A statement does not see what was committed while it waited for the directory.
#[test]
fn a_ticket_that_goes_while_its_leave_waits_leaves_nothing_in_its_directory() {
    on_postgres(async |server| {
        let (ours, other) = (open(&server).await, client(&server).await);
        ours.create("/a", b"", Create::Persistent).await.unwrap();
        let mine = ticket(&*ours, "/a/t-").await;
        let czxid = node(&*ours, &mine).await.unwrap().czxid;
        let gone = Write::DeleteTicket { path: &mine, czxid };
        let leaves = [Write::set("/a", b"left", 0), gone];
        let goes = "BEGIN; UPDATE lockkeeper.nodes SET children = 0 WHERE name = 'a'; \
                    DELETE FROM lockkeeper.nodes WHERE starts_with(name, 't-')";
        other.batch_execute(goes).await.unwrap();
        let mut waiting = pin!(ours.multi(&leaves));
        assert!(timeout(QUIET, &mut waiting).await.is_err(), "it waits");
        other.batch_execute("COMMIT").await.unwrap();

        let refused = waiting.await.unwrap_err();

        let is_asked_again = matches!(refused, Fault::Answered(Code::NotNow(_)));
        assert!(is_asked_again, "{refused:?}");
        let directory = node(&*ours, "/a").await.unwrap();
        assert_eq!((directory.data.len(), directory.num_children), (0, 0));
        let again = ours.multi(&leaves).await.unwrap_err();
        assert_eq!(again, Fault::Refused(1, Code::NoNode));
    });
}

/// A row that another program locks holds work up, and no heartbeat.
#[test]
fn a_lock_is_held_while_another_program_has_its_rows() {
    on_postgres(async |server| {
        let builder = Keeper::builder(url(&server)).session_timeout(rows::LASTS);
        let keeper = builder.new_store(true).connect().await.unwrap();
        let lock = keeper.mutex("orders/42").unwrap();
        let guard = lock.lock().await.unwrap();
        let other = client(&server).await;
        let rows = "BEGIN; SELECT FROM lockkeeper.nodes WHERE dir <> '' OR name <> '' FOR UPDATE";
        other.batch_execute(rows).await.unwrap();
        // More tickets that wait for the row of their directory than requests are under way.
        let next = (0..100).map(|_| {
            let lock = lock.clone();
            tokio::spawn(async move { lock.lock().await.unwrap().release().await })
        });
        let next: Vec<_> = next.collect();

        let lost = timeout(rows::LASTS, guard.lost()).await;

        assert!(lost.is_err(), "it is held");
        other.batch_execute("COMMIT").await.unwrap();
        guard.release().await.unwrap();
        for next in next {
            next.await.unwrap().unwrap();
        }
        keeper.close().await;
    });
}

#[test]
fn a_watch_is_told_once() {
    on_postgres(async |server| {
        let (ours, theirs) = (open(&server).await, open(&server).await);
        let mine = ticket(&*ours, "/t-").await;
        let (_, mut watch) = theirs.watch(&mine).await.unwrap();
        let other = client(&server).await;
        let left = async || {
            let rows = other.query("SELECT FROM lockkeeper.watches", &[]).await;
            rows.unwrap().len()
        };
        assert_eq!(left().await, 1);
        ours.multi(&[Write::set(&mine, b"new", 0)]).await.unwrap();
        assert_eq!(told(&mut watch).await, Change::Changed);
        assert_eq!(left().await, 0, "a watch that fired is gone");
    });
}

/// Each notification wakes each connection that listens, whoever it is for.
#[test]
fn a_keeper_listens_only_while_it_watches() {
    on_postgres(async |server| {
        run(&server, "ALTER ROLE postgres SET log_statement TO 'all'").await;
        let log = server.folder().join("log");
        let count = |word: &str| {
            let log = std::fs::read_to_string(&log).unwrap();
            log.matches(&format!("LOG:  statement: {word}")).count()
        };
        let (ours, theirs) = (open(&server).await, open(&server).await);
        for turn in 1..=2 {
            let mine = ticket(&*ours, "/t-").await;
            assert_eq!(count("LISTEN"), turn - 1, "nobody watches");
            let (_, mut watch) = theirs.watch(&mine).await.unwrap();
            // The connection is looked at each third of it.
            sleep(SESSION_TIMEOUT).await;
            assert_eq!((count("LISTEN"), count("UNLISTEN")), (turn, turn - 1));
            ours.delete(&mine).await.unwrap();
            assert_eq!(told(&mut watch).await, Change::Deleted);
            until("it listens no more", async || count("UNLISTEN") == turn).await;
        }
        let mine = ticket(&*ours, "/t-").await;
        let (_, watch) = theirs.watch(&mine).await.unwrap();
        drop(watch);
        until("nor for a dropped one", async || count("UNLISTEN") == 3).await;
    });
}

/// Watches come as the connection is about to listen no more.
#[test]
fn a_watch_that_comes_as_the_last_one_goes_is_told() {
    on_postgres(async |server| {
        let (ours, theirs) = (open(&server).await, open(&server).await);
        let ends = Instant::now() + SESSION_TIMEOUT * 3;
        while Instant::now() < ends {
            let mine = ticket(&*ours, "/t-").await;
            let (_, mut watch) = theirs.watch(&mine).await.unwrap();
            ours.delete(&mine).await.unwrap();
            assert_eq!(told(&mut watch).await, Change::Deleted);
        }
    });
}

/// The first of the two lists takes the server so long that tickets move meanwhile.
#[test]
fn a_read_of_a_long_list_and_another_shows_one_moment() {
    on_postgres(async |server| {
        let (ours, theirs) = (open(&server).await, open(&server).await);
        for path in ["/a", "/b"] {
            ours.create(path, b"", Create::Persistent).await.unwrap();
        }
        let others = format!(
            "INSERT INTO lockkeeper.nodes (dir, name, data, czxid, pzxid) \
             SELECT '/a', 'other-' || number, '', 1, 1 FROM generate_series(1, {OTHERS}) AS number"
        );
        run(&server, &others).await;
        let mut at = ticket(&*ours, "/b/t-").await;
        let moves = async {
            for to in ["/a/t-", "/b/t-"].into_iter().cycle() {
                let writes = [numbered(to), Write::delete(&at)];
                at = ours.multi(&writes).await.unwrap().remove(0);
            }
        };
        let reads = async {
            for turn in 0..20 {
                let lists = [Read::Children("/a"), Read::Children("/b")];
                let found = theirs.multi_read(&lists).await.unwrap();
                let count = |found: &Found| match found {
                    Found::Children(names) => names.len(),
                    other => panic!("{other:?}"),
                };
                let seen: usize = found.iter().map(count).sum();
                assert_eq!(seen, OTHERS + 1, "turn {turn}");
            }
        };
        tokio::select! {
            () = reads => {}
            () = moves => {}
        }
    });
}

/// Opposite orders of the same directories wait for each other in one order.
#[test]
fn writes_in_several_directories_do_not_block_each_other_for_ever() {
    on_postgres(async |server| {
        let (ours, theirs) = (open(&server).await, open(&server).await);
        for path in ["/a", "/b"] {
            ours.create(path, b"", Create::Persistent).await.unwrap();
        }
        let joins = |link: Arc<dyn Link>, paths: [&'static str; 2]| async move {
            for _ in 0..200 {
                link.multi(&paths.map(numbered)).await.unwrap();
            }
        };
        let (one, two) = tokio::join!(
            tokio::spawn(joins(Arc::clone(&ours), ["/a/t-", "/b/t-"])),
            // A session that is dropped takes its tickets along.
            tokio::spawn(joins(Arc::clone(&theirs), ["/b/t-", "/a/t-"])),
        );
        one.unwrap();
        two.unwrap();
        assert_eq!(children(&*ours, "/a").await.len(), 400);
    });
}
