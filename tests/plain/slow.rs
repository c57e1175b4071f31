//! Servers and networks that answer, but late.

use std::sync::Arc;
use std::time::{Duration, Instant};

use lockkeeper::compat::connect;
use tokio::time::sleep;

use crate::bed::Bed;
use crate::cut::{CutWay, Fault};

crate::cases![
    [
        "redis+setnx",
        "redis+fenced",
        "redis+redisson",
        "redis+redlock",
        "redis+tair",
        "memcached+add"
    ]
    a_connection_that_takes_longer_than_a_try_is_opened,
];

const TTL: Duration = Duration::from_secs(4);

/// A try has a quarter of the ttl, or a tenth at each server of Redlock.
async fn a_connection_that_takes_longer_than_a_try_is_opened(bed: Arc<Bed>, name: String) {
    drop(bed.keeper().await);
    let mut ways = Vec::new();
    for server in bed.servers().split(',') {
        ways.push(CutWay::to(server.parse().unwrap()).await);
    }
    let servers: Vec<String> = ways.iter().map(|way| way.address().to_string()).collect();
    let keeper = connect(&bed.url_at(&servers.join(","))).await.unwrap();
    let lock = keeper.mutex(&name).unwrap().with_ttl(TTL).unwrap();
    // Scripts are loaded.
    lock.lock().await.unwrap().release().await.unwrap();
    for way in &ways {
        way.greet_after(TTL * 3 / 10);
        way.arm(Fault::CutsAfterDelivery);
    }
    lock.try_lock().await.map(drop).unwrap_err();
    sleep(TTL / 4).await;

    let begun = Instant::now();
    let guard = lock.lock_timeout(TTL * 4).await.expect("it is connected");

    println!("{}: granted after {:?}", bed.kind, begun.elapsed());
    guard.check().await.unwrap();
    guard.release().await.unwrap();
}
