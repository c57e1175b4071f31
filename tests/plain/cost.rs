//! What a lock without waiters costs: round trips, and time beside the raw commands.

use std::sync::Arc;
use std::time::{Duration, Instant};

use lockkeeper::compat::{Attempt, PlainMutex, PlainStore, connect};
use redis::aio::MultiplexedConnection;
use tokio::time::sleep;

use crate::bed::{Bed, Case, TTL};
use crate::cut::CutWay;
use crate::redlock::so_many_have;

pub const CASES: &[&[Case]] = &[
    crate::cases![if |kind| kind.starts_with("redis+") || kind.starts_with("memcached+");
        a_lock_a_renewal_and_a_release_send_one_request_each,
    ],
    crate::cases![if |kind| ["redis+tair", "memcached+add"].contains(&kind);
        a_version_that_changed_unseen_is_read_again,
    ],
    crate::cases![if |kind| kind == "redis+setnx"; a_lock_costs_hardly_more_than_its_commands],
];

/// Counted on the way to each server. Tair and memcached compare only versions, which the guard
/// remembers of the last answer.
async fn a_lock_a_renewal_and_a_release_send_one_request_each(bed: Arc<Bed>, name: String) {
    drop(bed.keeper().await);
    let mut ways = Vec::new();
    for server in bed.servers().split(',') {
        ways.push(CutWay::to(server.parse().unwrap()).await);
    }
    let servers: Vec<String> = ways.iter().map(|way| way.address().to_string()).collect();
    let keeper = connect(&bed.url_at(&servers.join(","))).await.unwrap();
    let lock = keeper.mutex(&name).unwrap();
    // It loads scripts.
    let first = lock.lock().await.unwrap();
    first.check().await.unwrap();
    first.release().await.unwrap();
    let masters = Masters::of(&bed, &name);
    masters.all_have_it(false).await;
    let before: Vec<usize> = ways.iter().map(CutWay::requests).collect();

    for _ in 0..10 {
        let guard = lock.lock().await.unwrap();
        masters.all_have_it(true).await;
        guard.check().await.unwrap();
        guard.release().await.unwrap();
        masters.all_have_it(false).await;
    }
    // A renewal of the slowest server may be under way.
    sleep(Duration::from_millis(200)).await;

    for (way, before) in ways.iter().zip(before) {
        let sent = way.requests() - before;
        assert_eq!(sent, 30, "10 locks, 10 renewals and 10 releases");
    }
}

/// The servers of Redlock. One that is slow must not be behind: what it says of the last lock would
/// cost the next one more requests.
struct Masters {
    addresses: Vec<String>,
    name: String,
}

impl Masters {
    fn of(bed: &Bed, name: &str) -> Self {
        let servers = bed.servers();
        let addresses = servers.split(',').map(str::to_owned);
        let addresses = match bed.kind {
            "redis+redlock" => addresses.collect(),
            _ => Vec::new(),
        };
        let name = name.to_owned();
        Self { addresses, name }
    }

    async fn all_have_it(&self, is_held: bool) {
        let count = if is_held { self.addresses.len() } else { 0 };
        so_many_have(&self.addresses, &self.name, count).await;
    }
}

/// As by a renewal whose answer was lost.
async fn a_version_that_changed_unseen_is_read_again(bed: Arc<Bed>, name: String) {
    let keeper = bed.keeper().await;
    let lock = keeper.mutex(&name).unwrap();
    let guard = lock.lock().await.unwrap();
    let unseen = Attempt {
        name: name.as_str().into(),
        secret: guard.secret().into(),
        ttl: TTL,
        owner: None,
        seen: Default::default(),
    };
    assert!(keeper.store().renew(&unseen).await.unwrap());
    guard.check().await.unwrap();
    assert!(keeper.store().renew(&unseen).await.unwrap());

    guard.release().await.unwrap();

    let next = lock.try_lock().await.unwrap().expect("it is free");
    next.release().await.unwrap();
}

const RELEASE: &str =
    "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0";
const PAIRS: u32 = 2000;
const ROUNDS: usize = 7;

async fn raw(redis: &mut MultiplexedConnection, script: &str, name: &str) -> Duration {
    let begun = Instant::now();
    for _ in 0..PAIRS {
        let secret = uuid::Uuid::new_v4().simple().to_string();
        let mut set = redis::cmd("SET");
        set.arg(name).arg(&secret).arg("NX").arg("PX").arg(30_000);
        let taken: Option<String> = set.query_async(redis).await.unwrap();
        assert!(taken.is_some());
        let mut free = redis::cmd("EVALSHA");
        free.arg(script).arg(1).arg(name).arg(&secret);
        let freed: i64 = free.query_async(redis).await.unwrap();
        assert_eq!(freed, 1);
    }
    begun.elapsed()
}

async fn ours(lock: &PlainMutex<dyn PlainStore>) -> Duration {
    let begun = Instant::now();
    for _ in 0..PAIRS {
        lock.lock().await.unwrap().release().await.unwrap();
    }
    begun.elapsed()
}

/// The long form only: other cases would be measured too. An optimised build has the bound.
async fn a_lock_costs_hardly_more_than_its_commands(bed: Arc<Bed>, name: String) {
    if std::env::var_os("LOCKKEEPER_SOAK").is_none() {
        return;
    }
    let lock = bed.keeper().await.mutex(&name).unwrap();
    let mut redis = bed.redis().await;
    let mut load = redis::cmd("SCRIPT");
    let load = load.arg("LOAD").arg(RELEASE);
    let script: String = load.query_async(&mut redis).await.unwrap();
    let mut ratios = Vec::new();
    for round in 0..=ROUNDS {
        let name = format!("{name}:raw");
        let commands = raw(&mut redis, &script, &name).await;
        let locks = ours(&lock).await;
        let ratio = locks.as_secs_f64() / commands.as_secs_f64();
        println!("{commands:?} of commands, {locks:?} of locks: {ratio:.3}");
        // The first round warms up.
        if round > 0 {
            ratios.push(ratio);
        }
    }
    ratios.sort_by(f64::total_cmp);
    let median = ratios[ROUNDS / 2];
    println!(
        "{}: a lock and a release cost {median:.3} of the commands",
        bed.kind
    );
    assert!(cfg!(debug_assertions) || median <= 1.15, "{ratios:?}");
}
