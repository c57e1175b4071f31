//! What Redis servers do to a lock: replicas, passwords, restarts, and what is no Redis.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use lockkeeper::Error;
use lockkeeper::compat::{PlainMutex, PlainStore, StoreProblem, connect};
use testbench::daemon::{self, Daemon};
use testbench::eventually;
use testbench::relay::{Relay, Way};
use testbench::stall::Stall;
use tokio::time::{sleep, timeout};

use crate::bed::{Bed, TTL};

crate::cases![
    ["redis+setnx", "redis+fenced", "redis+redisson"]
    a_replica_is_refused,
    a_primary_that_was_demoted_is_left_for_the_next,
    a_wrong_password_is_denied,
    a_user_without_rights_is_denied,
    what_is_no_redis_is_told_so_in_bounded_time,
    another_type_under_the_name_is_told_so,
    a_restart_that_keeps_the_data_keeps_the_hold,
    a_restart_that_loses_the_data_is_told_with_the_next_renewal,
    a_server_that_is_away_for_long_ends_the_lease,
    a_connection_that_falls_silent_is_replaced,
    requests_that_are_given_up_one_after_the_other_replace_it_once,
];

async fn lock_on(bed: &Bed, server: &Daemon, name: &str) -> PlainMutex<dyn PlainStore> {
    let keeper = connect(&url(bed, server.address())).await.unwrap();
    keeper.mutex(name).unwrap().with_ttl(TTL).unwrap()
}

fn url(bed: &Bed, server: SocketAddr) -> String {
    format!("{}://{server}", bed.kind)
}

fn problem(error: &Error) -> &StoreProblem {
    match error {
        Error::Store { problem, .. } => problem,
        other => panic!("{other}"),
    }
}

async fn a_replica_is_refused(bed: Arc<Bed>, name: String) {
    let primary = daemon::redis(&[]).unwrap();
    let port = primary.address().port().to_string();
    let replica = daemon::redis(&["--replicaof", "127.0.0.1", &port]).unwrap();
    let error = connect(&url(&bed, replica.address())).await.unwrap_err();
    assert_eq!(problem(&error), &StoreProblem::Replica, "{error}");

    // A primary that becomes one while it is used.
    let lock = lock_on(&bed, &primary, &name).await;
    lock.lock().await.unwrap().release().await.unwrap();
    demote(&primary, &replica).await;
    let error = lock.try_lock().await.unwrap_err();
    assert_eq!(problem(&error), &StoreProblem::Replica, "{error}");
}

async fn demote(primary: &Daemon, next: &Daemon) {
    let client = redis::Client::open(format!("redis://{}", primary.address())).unwrap();
    let mut redis = client.get_multiplexed_async_connection().await.unwrap();
    let mut demote = redis::cmd("REPLICAOF");
    demote.arg("127.0.0.1").arg(next.address().port());
    let _demoted: () = demote.query_async(&mut redis).await.unwrap();
}

/// Its connections stay open. Whoever connects now comes to the next primary.
async fn a_primary_that_was_demoted_is_left_for_the_next(bed: Arc<Bed>, name: String) {
    let (first, second) = (daemon::redis(&[]).unwrap(), daemon::redis(&[]).unwrap());
    let way = Relay::to(first.address()).await;
    let lock = connect(&url(&bed, way.address())).await.unwrap();
    let lock = lock.mutex(&name).unwrap().with_ttl(TTL).unwrap();
    lock.lock().await.unwrap().release().await.unwrap();

    demote(&first, &second).await;
    way.lead_to(second.address());

    // The first try may be told.
    drop(lock.try_lock().await);
    let guard = lock.try_lock().await.expect("it is at the next primary");
    guard.expect("it is free").release().await.unwrap();
}

async fn a_wrong_password_is_denied(bed: Arc<Bed>, name: String) {
    let server = daemon::redis(&["--requirepass", "secret"]).unwrap();
    for login in ["", ":hidden@", "you:hidden@"] {
        let url = format!("{}://{login}{}", bed.kind, server.address());
        let error = connect(&url).await.unwrap_err();
        assert!(
            matches!(problem(&error), StoreProblem::Denied(_)),
            "{error}"
        );
        assert!(
            !format!("{error} {error:?}").contains("hidden"),
            "{error:?}"
        );
    }
    let url = format!("{}://:secret@{}", bed.kind, server.address());
    let keeper = connect(&url).await.unwrap();
    assert!(!format!("{:?} {:?}", keeper, keeper.store()).contains("secret"));
    let lock = keeper.mutex(&name).unwrap();
    lock.lock().await.unwrap().release().await.unwrap();
}

async fn a_user_without_rights_is_denied(bed: Arc<Bed>, name: String) {
    let server = daemon::redis(&["--user", "me", "on", ">secret", "~other:*", "+@all"]).unwrap();
    let url = format!("{}://me:secret@{}", bed.kind, server.address());
    let lock = connect(&url).await.unwrap().mutex(&name).unwrap();
    let error = lock.try_lock().await.unwrap_err();
    assert!(
        matches!(problem(&error), StoreProblem::Denied(_)),
        "{error}"
    );
}

async fn what_is_no_redis_is_told_so_in_bounded_time(bed: Arc<Bed>, _name: String) {
    let memcached = daemon::memcached(&[]).unwrap();
    let silent = says(b"");
    for server in [
        memcached.address(),
        says(b"HTTP/1.1 400 no\r\n\r\n"),
        silent,
    ] {
        let begun = Instant::now();
        let error = connect(&url(&bed, server)).await.unwrap_err();
        let is_told = match problem(&error) {
            StoreProblem::WrongServer(_) => true,
            StoreProblem::Unreachable(_) => server == silent,
            _ => false,
        };
        assert!(is_told, "{error}");
        assert!(
            begun.elapsed() < Duration::from_secs(8),
            "{:?}",
            begun.elapsed()
        );
    }
}

async fn another_type_under_the_name_is_told_so(bed: Arc<Bed>, name: String) {
    let mut redis = bed.redis().await;
    let mut push = redis::cmd("RPUSH");
    let _pushed: i64 = push
        .arg(&name)
        .arg("x")
        .query_async(&mut redis)
        .await
        .unwrap();
    let error = bed.lock(&name).await.lock().await.unwrap_err();
    assert!(
        matches!(problem(&error), StoreProblem::OtherContent(_)),
        "{error}"
    );
    bed.remove(&name).await;
}

async fn a_restart_that_keeps_the_data_keeps_the_hold(bed: Arc<Bed>, name: String) {
    let mut server = daemon::redis(&["--appendonly", "yes", "--appendfsync", "always"]).unwrap();
    let lock = lock_on(&bed, &server, &name).await;
    let guard = lock.lock().await.unwrap();
    for _ in 0..2 {
        server.kill();
        server.launch().unwrap();
        sleep(TTL).await;
        assert!(guard.is_held());
        assert!(lock.try_lock().await.unwrap().is_none());
    }
    guard.release().await.unwrap();
    lock.try_lock()
        .await
        .unwrap()
        .expect("it is free")
        .release()
        .await
        .unwrap();
}

async fn a_restart_that_loses_the_data_is_told_with_the_next_renewal(bed: Arc<Bed>, name: String) {
    let mut server = daemon::redis(&[]).unwrap();
    let lock = lock_on(&bed, &server, &name).await;
    let guard = lock.lock().await.unwrap();

    server.kill();
    server.launch().unwrap();

    let (begun, stall) = (Instant::now(), Stall::watch());
    let error = timeout(TTL, guard.lost()).await.expect("at the renewal");
    let after = begun.elapsed();
    assert!(matches!(problem(&error), StoreProblem::NotOurs), "{error}");
    assert!(after < TTL * 2 / 3 + stall.longest(), "{after:?}");
    let next = lock.lock_timeout(TTL).await.unwrap();
    next.release().await.unwrap();
}

async fn a_server_that_is_away_for_long_ends_the_lease(bed: Arc<Bed>, name: String) {
    let mut server = daemon::redis(&[]).unwrap();
    let lock = lock_on(&bed, &server, &name).await;
    let (begun, guard) = (Instant::now(), lock.lock().await.unwrap());
    server.kill();
    let lost = guard.lost().await;
    assert!(
        lost.is_lost() && begun.elapsed() < TTL,
        "{:?}",
        begun.elapsed()
    );
    let error = lock.try_lock().await.unwrap_err();
    assert!(
        matches!(problem(&error), StoreProblem::Unreachable(_)),
        "{error}"
    );
    // A call that waits goes on when it is back.
    let waiter = tokio::spawn(async move { lock.lock().await });
    sleep(TTL / 2).await;
    server.launch().unwrap();
    let next = timeout(TTL, waiter).await.expect("it is back").unwrap();
    next.unwrap().release().await.unwrap();
}

/// A server that says this to the first words of each client, and then waits.
pub fn says(words: &[u8]) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, words) = (listener.local_addr().unwrap(), words.to_vec());
    std::thread::spawn(move || {
        let mut clients = Vec::new();
        for client in listener.incoming() {
            let mut client = client.unwrap();
            client.read(&mut [0; 64]).map(drop).unwrap_or_default();
            client.write_all(&words).unwrap_or_default();
            clients.push(client);
        }
    });
    address
}

/// It is neither closed nor answered, as behind a firewall that has forgotten it.
async fn a_connection_that_falls_silent_is_replaced(bed: Arc<Bed>, name: String) {
    let server = daemon::redis(&[]).unwrap();
    let relay = Relay::to(server.address()).await;
    let keeper = connect(&url(&bed, relay.address())).await.unwrap();
    let lock = keeper.mutex(&name).unwrap().with_ttl(TTL * 2).unwrap();
    let guard = lock.lock().await.unwrap();

    relay.set(Way::Silent);
    sleep(TTL / 4).await;
    relay.set(Way::Open);

    sleep(TTL * 3).await;
    assert!(guard.is_held(), "renewed on another connection");
    guard.release().await.unwrap();
}

async fn requests_that_are_given_up_one_after_the_other_replace_it_once(
    bed: Arc<Bed>,
    name: String,
) {
    let server = daemon::redis(&[]).unwrap();
    let client = redis::Client::open(format!("redis://{}", server.address())).unwrap();
    let mut asker = client.get_multiplexed_async_connection().await.unwrap();
    for _ in 0..20 {
        let relay = Relay::to(server.address()).await;
        let keeper = connect(&url(&bed, relay.address())).await.unwrap();
        let lock = keeper.mutex(&name).unwrap();
        lock.lock().await.unwrap().release().await.unwrap();
        let before = connections(&mut asker).await;
        // What falls silent stays so; other connections are served again.
        relay.set(Way::Silent);
        sleep(TTL / 10).await;
        relay.set(Way::Open);
        sleep(TTL / 10).await;

        // The longer the ttl, the longer an answer is waited for.
        let tries = (1..=5).map(|number| {
            let lock = lock.clone().with_ttl(TTL / 2 * (1 + number)).unwrap();
            async move { lock.try_lock().await.map(drop) }
        });
        let tries = join_all(tries).await;

        // On a busy machine it was not silent in time.
        if tries.iter().all(Result::is_err) {
            let limit = Duration::from_secs(5);
            let opened =
                || async { (connections(&mut asker.clone()).await > before).then_some(()) };
            eventually("another connection", limit, opened).await;
            assert_eq!(connections(&mut asker).await - before, 1);
            return;
        }
    }
    panic!("it never fell silent");
}

async fn connections(asker: &mut redis::aio::MultiplexedConnection) -> u64 {
    let told: redis::InfoDict = redis::cmd("INFO")
        .arg("stats")
        .query_async(asker)
        .await
        .unwrap();
    told.get("total_connections_received").unwrap()
}
