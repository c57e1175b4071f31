//! What goes over the wire, and when.

use std::sync::Arc;
use std::time::{Duration, Instant};

use lockkeeper::compat::connect;
use testbench::daemon;
use tokio::time::sleep;

use crate::bed::{Bed, Case, TTL};

pub const CASES: &[&[Case]] = &[
    crate::cases![if |kind| kind == "redis+setnx"; one_command_sets_a_lock_with_its_ttl],
    crate::cases![if |kind| kind == "redis+redisson"; a_release_at_any_moment_of_a_wait_wakes],
];

/// A crash between two would leave a lock for ever.
async fn one_command_sets_a_lock_with_its_ttl(bed: Arc<Bed>, name: String) {
    let server = daemon::redis(&[]).unwrap();
    let url = format!("{}://{}", bed.kind, server.address());
    let lock = connect(&url).await.unwrap().mutex(&name).unwrap();
    let guard = lock.lock().await.unwrap();
    let client = redis::Client::open(format!("redis://{}", server.address())).unwrap();
    let mut redis = client.get_multiplexed_async_connection().await.unwrap();
    let mut info = redis::cmd("INFO");
    let stats: String = info
        .arg("commandstats")
        .query_async(&mut redis)
        .await
        .unwrap();
    guard.release().await.unwrap();
    let writes = [
        "set", "setnx", "setex", "expire", "pexpire", "eval", "evalsha",
    ];
    let seen: Vec<&str> = stats
        .lines()
        .filter_map(|line| line.strip_prefix("cmdstat_")?.split_once(':'))
        .map(|(command, _)| command)
        .filter(|command| writes.contains(command))
        .collect();
    assert_eq!(seen, ["set"]);
}

/// Also before the subscription is there: each waiter here needs a new one.
async fn a_release_at_any_moment_of_a_wait_wakes(bed: Arc<Bed>, name: String) {
    for step in 0..60 {
        let guard = bed.lock(&name).await.lock().await.unwrap();
        let waiter = bed.lock(&name).await;
        let waiter = tokio::spawn(async move { waiter.lock().await });
        sleep(Duration::from_micros(step * 50)).await;
        let begun = Instant::now();
        guard.release().await.unwrap();
        let next = waiter.await.unwrap().unwrap();
        // Without a wake-up it would ask again when the rest of the ttl is over.
        let waited = begun.elapsed();
        assert!(waited < TTL / 2, "{waited:?} in step {step}");
        next.release().await.unwrap();
    }
}
