//! Many waiters, and many tries, as their server counts them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use testbench::eventually;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::at_server::AtServer;
use crate::bed::Bed;

crate::cases![
    two_hundred_waiters_do_not_ask_all_the_time,
    a_thousand_tries_leave_nothing,
];

/// What a try on a held lock sends to its servers, as docs/choosing.md says. Most kinds ask for the
/// rest of the other's ttl too.
fn requests_of_a_try(kind: &str) -> u64 {
    match kind {
        "memory" | "redis+redisson" | "postgres+row" | "postgres+advisory" | "mysql+getlock" => 1,
        // It begins a transaction, and ends it. A savepoint comes with its begin.
        "postgres+forupdate" => 3,
        "mysql+forupdate" => 4,
        // To each of three servers, and a release.
        "redis+redlock" => 6,
        _ => 2,
    }
}

/// Each asks at most once in half of the longest pause, when its pauses have grown.
async fn two_hundred_waiters_do_not_ask_all_the_time(bed: Arc<Bed>, name: String) {
    let wakes = bed.capabilities().await.wakes_waiters;
    let server = AtServer::start(bed.kind).await;
    let holder = server.lock(&name).await.lock().await.unwrap();
    let lock = server.lock(&name).await;
    let mut waiters = JoinSet::new();
    for _ in 0..200 {
        let lock = lock.clone();
        waiters.spawn(async move { lock.lock().await.map(drop) });
    }
    sleep(Duration::from_secs(3)).await;
    let (begun, before) = (Instant::now(), server.requests().await);

    sleep(Duration::from_secs(4)).await;

    let asked = server.requests().await - before;
    let rate = asked as f64 / begun.elapsed().as_secs_f64();
    println!("{}: 200 waiters send {rate:.0} requests a second", bed.kind);
    // Half of the pauses are longer than 0.75 s.
    let (fewest, most) = match wakes {
        true => (0.0, 20.0),
        false => (100.0, 400.0 * requests_of_a_try(bed.kind) as f64),
    };
    assert!((fewest..=most).contains(&rate), "{rate}");
    waiters.shutdown().await;
    holder.release().await.unwrap();
}

async fn a_thousand_tries_leave_nothing(bed: Arc<Bed>, name: String) {
    let server = AtServer::start(bed.kind).await;
    let (a, b) = (server.lock(&name).await, server.lock(&name).await);
    let guard = a.lock().await.unwrap();
    // The first tries load scripts, at the slowest server after the answer of the others.
    for _ in 0..20 {
        let before = server.requests().await;
        assert!(b.try_lock().await.unwrap().is_none());
        sleep(Duration::from_millis(20)).await;
        if server.requests().await - before == requests_of_a_try(bed.kind) {
            break;
        }
    }
    let (requests, connections) = (server.requests().await, server.connections().await);

    // Redlock gives up an answer that comes late, and with it the connection: so many tries at once
    // keep its servers busy for longer on a slow machine.
    let (tasks, b_of_tries) = match bed.kind {
        "redis+redlock" => (5_u64, b.clone().with_ttl(Duration::from_secs(20)).unwrap()),
        _ => (50, b.clone()),
    };
    let begun = Instant::now();
    let mut tries = JoinSet::new();
    for _ in 0..tasks {
        let b = b_of_tries.clone();
        tries.spawn(async move {
            for _ in 0..1000 / tasks {
                assert!(b.try_lock().await.unwrap().is_none());
            }
        });
    }
    drop(b_of_tries);
    tries.join_all().await;

    let requests = server.requests().await - requests;
    let connections = server.connections().await - connections;
    println!(
        "{}: 1000 tries on a held lock: {requests} requests, {connections} new connections",
        bed.kind
    );
    // Each of two clients may find an answer of each of three servers late once in a second.
    let given_up = match bed.kind {
        "redis+redlock" => 6 * begun.elapsed().as_secs(),
        _ => 0,
    };
    assert!(connections <= 4 + given_up, "{connections}");
    // The holder renews, and a new connection asks who it is.
    let exactly = 1000 * requests_of_a_try(bed.kind);
    let more = 10 + 4 * connections;
    // What is under way on a connection that is given up may not arrive.
    let lost = if bed.kind == "redis+redlock" {
        4 * tasks * connections
    } else {
        0
    };
    // In a crowd, nobody asks for the rest of the other's ttl.
    let unasked = match bed.kind {
        "memcached+add" | "mysql+row" => 1000,
        kind if kind.ends_with("+shedlock") || kind.ends_with("+spring") => 1000,
        _ => 0,
    };
    let bounds = exactly - lost - unasked..=exactly + more;
    assert!(bounds.contains(&requests), "{requests}");
    guard.release().await.unwrap();
    let next = b.try_lock().await.unwrap().expect("it is free");
    next.release().await.unwrap();
    drop((a, b));
    let limit = Duration::from_secs(5);
    eventually("no lock is left", limit, || async {
        (server.held(&name).await == 0).then_some(())
    })
    .await;
    eventually("no connection is left", limit, || async {
        (server.clients().await == 0).then_some(())
    })
    .await;
}
