//! The known trouble of each lock, shown: when two clients hold, and what the first of them is
//! told.

use std::sync::Arc;
use std::time::{Duration, Instant};

use lockkeeper::Error;
use lockkeeper::compat::{StoreProblem, connect};
use testbench::daemon;
use testbench::relay::{Relay, Way};
use tokio::time::{sleep, timeout};

use crate::bed::{Bed, Case, TTL};
use crate::redlock::three_forget;
use crate::sql;

pub const CASES: &[&[Case]] = &[
    crate::cases![if |kind| ["redis+setnx", "redis+fenced", "redis+redisson"].contains(&kind);
        a_promoted_replica_that_lagged_lets_a_second_client_in,
        a_redis_that_evicts_lets_a_second_client_in_and_tells_the_first,
    ],
    crate::cases![if |kind| kind.starts_with("memcached+");
        an_evicted_lock_lets_a_second_client_in_and_is_told,
    ],
    crate::cases![if |kind| kind == "postgres+row" || kind == "postgres+advisory";
        a_standby_is_refused,
    ],
    crate::cases![if |kind| kind == "redis+redlock";
        three_of_five_that_forget_while_they_run_let_a_second_client_in,
    ],
];

/// The lock has not reached the replica when it is promoted.
async fn a_promoted_replica_that_lagged_lets_a_second_client_in(bed: Arc<Bed>, name: String) {
    let primary = daemon::redis(&["--repl-diskless-sync-delay", "0"]).unwrap();
    let link = Relay::to(primary.address()).await;
    let port = link.address().port().to_string();
    let replica = daemon::redis(&["--replicaof", "127.0.0.1", &port]).unwrap();
    let ask = |server| redis::Client::open(format!("redis://{server}")).unwrap();
    let client = ask(replica.address());
    let mut redis = client.get_multiplexed_async_connection().await.unwrap();
    loop {
        let mut info = redis::cmd("INFO");
        let info = info.arg("replication");
        let info: String = info.query_async(&mut redis).await.unwrap();
        if info.contains("master_link_status:up") {
            break;
        }
        sleep(Duration::from_millis(50)).await;
    }
    link.set(Way::Silent);
    sleep(Duration::from_millis(100)).await;
    let url = |server| format!("{}://{server}", bed.kind);
    let first = connect(&url(primary.address())).await.unwrap();
    let first = first.mutex(&name).unwrap().with_ttl(TTL).unwrap();
    let guard = first.lock().await.unwrap();

    drop(primary);
    let mut promote = redis::cmd("REPLICAOF");
    promote.arg("NO").arg("ONE");
    let _promoted: () = promote.query_async(&mut redis).await.unwrap();
    let second = connect(&url(replica.address())).await.unwrap();
    let second = second.mutex(&name).unwrap().with_ttl(TTL).unwrap();
    let next = second.try_lock().await.unwrap().expect("it was forgotten");

    println!(
        "{}: two hold: {}",
        bed.kind,
        guard.is_held() && next.is_held()
    );
    let lost = timeout(TTL, guard.lost()).await.expect("its lease ends");
    assert!(lost.is_lost(), "{lost}");
    next.check().await.unwrap();
    next.release().await.unwrap();
}

/// As a cache is configured. A lock has a ttl, so it goes under each policy but `noeviction`.
async fn a_redis_that_evicts_lets_a_second_client_in_and_tells_the_first(
    bed: Arc<Bed>,
    name: String,
) {
    for policy in ["allkeys-lru", "volatile-ttl"] {
        let cache = ["--maxmemory", "3mb", "--maxmemory-policy", policy];
        let server = daemon::redis(&cache).unwrap();
        let lock = connect(&format!("{}://{}", bed.kind, server.address())).await;
        let lock = lock.unwrap().mutex(&name).unwrap();
        let lock = lock.with_ttl(TTL * 5).unwrap();
        let guard = lock.lock().await.unwrap();
        let client = redis::Client::open(format!("redis://{}", server.address())).unwrap();
        let mut redis = client.get_multiplexed_async_connection().await.unwrap();
        let mut count = 0;
        while is_there(&mut redis, &name).await {
            let mut fill = redis::pipe();
            for number in count..count + 100 {
                let mut set = redis::cmd("SET");
                set.arg(format!("f{number}")).arg("x".repeat(500));
                fill.add_command(set.arg("EX").arg(1000).to_owned())
                    .ignore();
            }
            let _filled: () = fill.query_async(&mut redis).await.unwrap();
            count += 100;
            assert!(count < 100_000, "{policy} spares it");
        }

        let begun = Instant::now();
        let next = lock.try_lock().await.unwrap().expect("it was evicted");

        let lost = timeout(TTL * 5, guard.lost()).await.expect("it is told");
        println!("{}: {policy}: told after {:?}", bed.kind, begun.elapsed());
        assert!(lost.is_lost(), "{lost}");
        drop(next);
    }
}

async fn is_there(redis: &mut redis::aio::MultiplexedConnection, name: &str) -> bool {
    let mut exists = redis::cmd("EXISTS");
    exists.arg(name).query_async(redis).await.unwrap()
}

async fn an_evicted_lock_lets_a_second_client_in_and_is_told(bed: Arc<Bed>, name: String) {
    let small = ["-m", "2", "-o", "no_lru_maintainer,no_lru_crawler"];
    let server = daemon::memcached(&small).unwrap();
    let url = format!("{}://{}", bed.kind, server.address());
    let lock = connect(&url).await.unwrap().mutex(&name).unwrap();
    let lock = lock.with_ttl(TTL * 5).unwrap();
    let guard = lock.lock().await.unwrap();
    // Memory is fought for by items of about the same size.
    let mut fill = String::new();
    for number in 0..100_000 {
        let size = 40 + number % 10 * 10;
        let value = "x".repeat(size);
        fill += &format!("set f{number:010} 0 0 {size} noreply\r\n{value}\r\n");
    }
    let address = server.address();
    let filled = tokio::task::spawn_blocking(move || {
        use std::io::{Read, Write};
        let mut stream = std::net::TcpStream::connect(address).unwrap();
        stream.write_all(fill.as_bytes()).unwrap();
        stream.write_all(b"version\r\n").unwrap();
        stream.read(&mut [0; 64]).unwrap()
    });
    assert!(filled.await.unwrap() > 0);

    let begun = Instant::now();
    let next = lock.try_lock().await.unwrap().expect("it was evicted");

    let lost = timeout(TTL * 5, guard.lost())
        .await
        .expect("at the renewal");
    println!("{}: told after {:?}", bed.kind, begun.elapsed());
    assert!(lost.is_lost() && begun.elapsed() < TTL * 5 / 2, "{lost}");
    next.check().await.unwrap();
    next.release().await.unwrap();
}

async fn a_standby_is_refused(bed: Arc<Bed>, _name: String) {
    let mut server = daemon::postgres(&[]).unwrap();
    let url = sql::url(bed.kind, &server);
    sql::create(bed.kind, &url).await.unwrap();
    server.kill();
    std::fs::write(server.folder().join("data/standby.signal"), "").unwrap();
    server.launch().unwrap();
    let begun = Instant::now();
    loop {
        let error = connect(&url).await.unwrap_err();
        match error {
            Error::Store {
                problem: StoreProblem::Replica,
                ..
            } => break,
            // It replays its log first.
            error => assert!(begun.elapsed() < Duration::from_secs(20), "{error}"),
        }
        sleep(Duration::from_millis(100)).await;
    }
}

/// No uptime tells that, as it does after a restart.
async fn three_of_five_that_forget_while_they_run_let_a_second_client_in(
    _bed: Arc<Bed>,
    name: String,
) {
    // Each of the three must answer within a tenth of it, also on a busy machine.
    let ttl = Duration::from_secs(5);
    let servers: Vec<_> = (0..5).map(|_| daemon::redis(&[]).unwrap()).collect();
    let addresses: Vec<String> = servers
        .iter()
        .map(|one| one.address().to_string())
        .collect();
    let url = format!("redis+redlock://{}", addresses.join(","));
    // They count once they run for a ttl.
    sleep(ttl + Duration::from_secs(2)).await;
    let lock = connect(&url).await.unwrap().mutex(&name).unwrap();
    let lock = lock.with_ttl(ttl).unwrap();
    let guard = lock.lock().await.unwrap();
    three_forget(&servers, &name).await;

    let next = lock.try_lock().await.unwrap();

    let next = next.expect("a majority has forgotten the first");
    assert!(guard.is_held(), "two hold until the next renewal");
    timeout(ttl, guard.lost()).await.expect("it is told");
    next.check().await.unwrap();
    next.release().await.unwrap();
}
