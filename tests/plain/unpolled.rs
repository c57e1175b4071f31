//! Calls that are begun, and then neither polled nor dropped: nobody else waits for them.

use std::pin::pin;
use std::sync::Arc;

use futures_util::future::poll_immediate;
use futures_util::stream::{FuturesUnordered, StreamExt};
use lockkeeper::compat::{PlainMutex, PlainStore, connect};
use tokio::time::{Duration, sleep};

use crate::bed::{Bed, Case, TTL};
use crate::cut::{CutWay, Fault};
use crate::faults::arm;

pub const CASES: &[&[Case]] = &[
    crate::cases![if |kind| kind != "memory"; calls_that_are_polled_no_more_stop_no_other],
    crate::cases![if |kind| kind.starts_with("redis+") || kind == "memcached+add";
        a_call_that_connects_and_is_polled_no_more_stops_no_other,
    ],
];

/// More than a database is asked at once.
const MANY: usize = 6;

/// Locks of one client, behind ways.
struct Locks {
    locks: Vec<PlainMutex<dyn PlainStore>>,
    ways: Vec<CutWay>,
}

impl Locks {
    async fn new(bed: &Bed, name: &str, count: usize) -> Self {
        let mut ways = Vec::new();
        // Servers that must be counted are, from here on.
        drop(bed.keeper().await);
        for server in bed.servers().split(',') {
            ways.push(CutWay::to(server.parse().unwrap()).await);
        }
        let servers: Vec<String> = ways.iter().map(|way| way.address().to_string()).collect();
        let keeper = connect(&bed.url_at(&servers.join(","))).await.unwrap();
        let lock = |number| {
            let lock = keeper.mutex(format!("{name}{number:x}")).unwrap();
            lock.with_ttl(TTL).unwrap()
        };
        let locks: Vec<_> = (0..count).map(lock).collect();
        // Scripts are loaded, and a connection is open.
        locks[0].lock().await.unwrap().release().await.unwrap();
        Self { locks, ways }
    }
}

/// Of several calls at once the first answer is taken, and its taker works for a while.
async fn calls_that_are_polled_no_more_stop_no_other(bed: Arc<Bed>, name: String) {
    let Locks { locks, ways } = Locks::new(&bed, &name, 2 * MANY + 1).await;
    let mut held = Vec::new();
    for lock in &locks[..MANY] {
        held.push(lock.lock().await.unwrap());
    }
    for way in &ways {
        way.answer_after(Duration::from_millis(10));
    }

    let mut checks: FuturesUnordered<_> = held.iter().map(|guard| guard.check()).collect();
    checks.next().await.unwrap().unwrap();
    let asked = locks[MANY..2 * MANY].iter().map(|lock| lock.lock());
    let mut asked: FuturesUnordered<_> = asked.collect();
    let first = asked.next().await.unwrap().unwrap();
    sleep(TTL * 2).await;

    let lost: Vec<_> = held.iter().filter(|guard| !guard.is_held()).collect();
    assert!(lost.is_empty() && first.is_held(), "{lost:?} {first:?}");
    let other = locks[2 * MANY].clone();
    let other = tokio::spawn(async move { other.try_lock().await.unwrap() });
    other
        .await
        .unwrap()
        .expect("it is free")
        .release()
        .await
        .unwrap();
    drop((checks, asked));
}

/// It is just opening a connection that was lost.
async fn a_call_that_connects_and_is_polled_no_more_stops_no_other(bed: Arc<Bed>, name: String) {
    let Locks { locks, ways } = Locks::new(&bed, &name, 4).await;
    let guard = locks[0].lock().await.unwrap();
    for way in &ways {
        way.greet_after(TTL / 40);
    }
    arm(&ways, Fault::CutsAfterDelivery);
    locks[1].try_lock().await.map(drop).unwrap_err();

    let mut opens = pin!(locks[2].lock());
    let opened = poll_immediate(&mut opens).await;
    assert!(opened.is_none(), "it waits for the connection");
    sleep(TTL * 2).await;

    assert!(guard.is_held(), "it was renewed");
    let other = locks[3].clone();
    let other = tokio::spawn(async move { other.try_lock().await.unwrap() });
    other
        .await
        .unwrap()
        .expect("it is free")
        .release()
        .await
        .unwrap();
    opens.await.unwrap().release().await.unwrap();
    guard.release().await.unwrap();
}
