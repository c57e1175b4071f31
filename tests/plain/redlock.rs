//! What is special to Redlock: its servers come and go.

use std::sync::Arc;
use std::time::{Duration, Instant};

use lockkeeper::Error;
use lockkeeper::compat::{PlainMutex, PlainStore, StoreProblem, connect};
use testbench::daemon::{self, Daemon, Signal};
use testbench::stall::Stall;
use tokio::time::{sleep, timeout};

use crate::bed::Bed;

/// Servers are counted when they run for so long. Each must answer within a tenth of it, also on a
/// busy machine.
const TTL: Duration = Duration::from_secs(3);

crate::cases![
    ["redis+redlock"]
    two_of_five_may_be_down,
    three_of_five_down_refuse_in_bounded_time,
    a_server_that_started_is_not_counted_for_a_ttl,
    a_slow_server_does_not_slow_the_others,
    servers_may_be_restarted_one_after_the_other,
    the_loss_of_a_majority_is_told,
    a_strangers_key_at_one_server_is_not_overwritten,
    a_replica_is_refused,
    fewer_than_three_are_refused,
    what_a_minority_granted_is_given_back,
];

struct Five(Vec<Daemon>);

impl Five {
    fn start() -> Self {
        Self((0..5).map(|_| daemon::redis(&[]).unwrap()).collect())
    }

    fn url(&self) -> String {
        let addresses: Vec<String> = self.0.iter().map(|one| one.address().to_string()).collect();
        format!("redis+redlock://{}", addresses.join(","))
    }

    async fn lock(&self, name: &str) -> PlainMutex<dyn PlainStore> {
        let keeper = connect(&self.url()).await.unwrap();
        keeper.mutex(name).unwrap().with_ttl(TTL).unwrap()
    }
}

/// All can be counted.
async fn grown() -> Five {
    let five = Five::start();
    sleep(TTL + Duration::from_secs(2)).await;
    five
}

async fn two_of_five_may_be_down(_bed: Arc<Bed>, name: String) {
    let mut five = grown().await;
    let lock = five.lock(&name).await;
    let guard = lock.lock().await.unwrap();
    five.0[0].kill();
    five.0[3].kill();

    sleep(TTL * 2).await;
    assert!(guard.is_held());
    assert!(lock.try_lock().await.unwrap().is_none());
    guard.release().await.unwrap();

    // A client that comes now, too.
    let lock = five.lock(&name).await;
    let (stall, begun) = (Stall::watch(), Instant::now());
    lock.try_lock()
        .await
        .unwrap()
        .expect("it is free")
        .release()
        .await
        .unwrap();
    assert!(
        begun.elapsed() < Duration::from_millis(500) + stall.longest(),
        "{:?}",
        begun.elapsed()
    );
}

async fn three_of_five_down_refuse_in_bounded_time(_bed: Arc<Bed>, name: String) {
    let mut five = grown().await;
    let lock = five.lock(&name).await;
    let guard = lock.lock().await.unwrap();
    for down in [0, 1, 2] {
        five.0[down].kill();
    }

    let begun = Instant::now();
    let error = lock.try_lock().await.unwrap_err();
    assert!(begun.elapsed() < TTL, "{:?}", begun.elapsed());
    assert!(
        matches!(problem(&error), StoreProblem::Unreachable(_)),
        "{error}"
    );
    let lost = timeout(TTL, guard.lost()).await.expect("its lease ends");
    assert!(lost.is_lost());
    // It waits for servers for a ttl, and then says so.
    let begun = Instant::now();
    lock.lock().await.unwrap_err();
    assert!(begun.elapsed() < TTL * 3, "{:?}", begun.elapsed());
    assert!(connect(&five.url()).await.is_err());
}

async fn a_server_that_started_is_not_counted_for_a_ttl(_bed: Arc<Bed>, name: String) {
    let mut five = grown().await;
    let first = five.lock(&name).await;
    let guard = first.lock().await.unwrap();
    // Without the rule, these three would give the lock to another client. The first of them
    // completes a majority again, so that its start is what counts.
    let begun = Instant::now();
    for empty in [0, 1, 2] {
        five.0[empty].kill();
        five.0[empty].launch().unwrap();
    }
    let other = five.lock(&name).await;
    while guard.is_held() {
        if let Ok(Some(_)) = other.try_lock().await {
            panic!("two hold after {:?}", begun.elapsed());
        }
        sleep(Duration::from_millis(20)).await;
    }
    drop(guard);
    let error = other.try_lock().await.unwrap_err();
    assert!(error.to_string().contains("may have forgotten"), "{error}");
    let next = timeout(Duration::from_secs(8), async {
        loop {
            if let Ok(Some(next)) = other.try_lock().await {
                return next;
            }
            sleep(Duration::from_millis(50)).await;
        }
    });
    let next = next.await.expect("they are counted again");
    assert!(begun.elapsed() >= TTL, "{:?}", begun.elapsed());
    next.release().await.unwrap();
}

async fn a_slow_server_does_not_slow_the_others(_bed: Arc<Bed>, name: String) {
    let five = grown().await;
    let lock = five.lock(&name).await;
    // All of them know the scripts from now on: one that a server does not know is sent once more,
    // and may come behind what was asked after it.
    let guard = lock.lock().await.unwrap();
    so_many_have(&addresses(&five.0), &name, 5).await;
    guard.release().await.unwrap();
    so_many_have(&addresses(&five.0), &name, 0).await;
    for slow in [2, 4] {
        five.0[slow].signal(Signal::STOP);
    }
    let begun = Instant::now();
    for _ in 0..10 {
        let guard = lock.lock().await.unwrap();
        guard.check().await.unwrap();
        guard.release().await.unwrap();
    }
    let waited = begun.elapsed();
    for slow in [2, 4] {
        five.0[slow].signal(Signal::CONT);
    }
    // Each of the three requests of a turn would wait for a tenth of the ttl.
    assert!(waited < TTL, "{waited:?}");
    // Their requests are in order, so that nothing is left until its ttl ends.
    let none = timeout(TTL / 2, so_many_have(&addresses(&five.0), &name, 0)).await;
    none.expect("nothing is left");
}

fn addresses(servers: &[Daemon]) -> Vec<String> {
    let addresses = servers.iter().map(Daemon::address);
    addresses.map(|address| address.to_string()).collect()
}

/// How many servers have the lock.
async fn how_many_have(servers: &[impl AsRef<str>], name: &str) -> usize {
    let mut count = 0;
    for server in servers {
        let client = redis::Client::open(format!("redis://{}", server.as_ref())).unwrap();
        let mut redis = client.get_multiplexed_async_connection().await.unwrap();
        let mut exists = redis::cmd("EXISTS");
        let there: usize = exists.arg(name).query_async(&mut redis).await.unwrap();
        count += there;
    }
    count
}

/// Returns when so many servers have the lock. A grant or a release needs no more than a majority,
/// so the request to a slow server may come after it.
pub async fn so_many_have(servers: &[impl AsRef<str>], name: &str, count: usize) {
    let begun = Instant::now();
    while how_many_have(servers, name).await != count {
        assert!(
            begun.elapsed() < Duration::from_secs(20),
            "never {count} of them"
        );
        sleep(Duration::from_millis(5)).await;
    }
}

/// A majority forgets a lock that all have.
pub async fn three_forget(servers: &[Daemon], name: &str) {
    so_many_have(&addresses(servers), name, servers.len()).await;
    for one in &servers[..3] {
        let client = redis::Client::open(format!("redis://{}", one.address())).unwrap();
        let mut redis = client.get_multiplexed_async_connection().await.unwrap();
        let flush = redis::cmd("FLUSHALL");
        let _flushed: () = flush.query_async(&mut redis).await.unwrap();
    }
}

async fn servers_may_be_restarted_one_after_the_other(_bed: Arc<Bed>, name: String) {
    let mut five = grown().await;
    let lock = five.lock(&name).await;
    let guard = lock.lock().await.unwrap();
    for one in 0..5 {
        five.0[one].kill();
        five.0[one].launch().unwrap();
        // The next only when this one is counted again: a ttl, whole seconds of uptime, a renewal.
        sleep(TTL * 2).await;
        assert!(guard.is_held(), "after {one}");
        assert!(!matches!(lock.try_lock().await, Ok(Some(_))));
    }
    guard.release().await.unwrap();
}

async fn the_loss_of_a_majority_is_told(_bed: Arc<Bed>, name: String) {
    let five = grown().await;
    let lock = five.lock(&name).await;
    let guard = lock.lock().await.unwrap();
    three_forget(&five.0, &name).await;
    let (stall, begun) = (Stall::watch(), Instant::now());
    let lost = guard.lost().await;
    assert!(
        lost.is_lost() && begun.elapsed() < TTL * 2 / 3 + stall.longest(),
        "{:?}",
        begun.elapsed()
    );
    // What is left at the others is given back.
    drop(guard);
    let next = lock.lock_timeout(TTL).await.unwrap();
    next.release().await.unwrap();
}

async fn a_replica_is_refused(_bed: Arc<Bed>, _name: String) {
    let mut five = Five::start();
    let port = five.0[0].address().port().to_string();
    five.0[4] = daemon::redis(&["--replicaof", "127.0.0.1", &port]).unwrap();
    let error = connect(&five.url()).await.unwrap_err();
    assert_eq!(problem(&error), &StoreProblem::Replica, "{error}");
}

async fn fewer_than_three_are_refused(_bed: Arc<Bed>, _name: String) {
    let error = connect("redis+redlock://me:hidden@a,b").await.unwrap_err();
    assert!(
        error.is_invalid() && error.to_string().contains("at least 3"),
        "{error}"
    );
    assert!(!error.to_string().contains("hidden"), "{error}");
}

fn problem(error: &Error) -> &StoreProblem {
    match error {
        Error::Store { problem, .. } => problem,
        other => panic!("{other}"),
    }
}

/// A renewal sets our key again where it was lost, and nowhere else.
async fn a_strangers_key_at_one_server_is_not_overwritten(_bed: Arc<Bed>, name: String) {
    let five = grown().await;
    let guard = five.lock(&name).await.lock().await.unwrap();
    let client = redis::Client::open(format!("redis://{}", five.0[0].address())).unwrap();
    let mut server = client.get_multiplexed_async_connection().await.unwrap();
    let mut set = redis::cmd("SET");
    let set = set.arg(&name).arg("a stranger");
    let _set: () = set.query_async(&mut server).await.unwrap();

    // It is seen by those in which that server answers before a majority has.
    for _ in 0..100 {
        guard.check().await.unwrap();
        let mut get = redis::cmd("GET");
        let value: String = get.arg(&name).query_async(&mut server).await.unwrap();
        assert_eq!(value, "a stranger");
    }
    guard.release().await.unwrap();
    let mut get = redis::cmd("GET");
    let value: String = get.arg(&name).query_async(&mut server).await.unwrap();
    assert_eq!(value, "a stranger");
}

/// Two servers are another client's, and the third one has granted.
async fn what_a_minority_granted_is_given_back(bed: Arc<Bed>, name: String) {
    let lock = bed.lock(&name).await;
    let servers: Vec<String> = bed.servers().split(',').map(str::to_owned).collect();
    for server in &servers[..2] {
        let client = redis::Client::open(format!("redis://{server}")).unwrap();
        let mut redis = client.get_multiplexed_async_connection().await.unwrap();
        let mut set = redis::cmd("SET");
        let set = set.arg(&name).arg("a stranger").arg("PX").arg(60_000);
        let _set: () = set.query_async(&mut redis).await.unwrap();
    }
    for _ in 0..10 {
        assert!(lock.try_lock().await.unwrap().is_none());
        let freed = timeout(
            Duration::from_millis(500),
            so_many_have(&servers[2..], &name, 0),
        );
        freed.await.expect("it is given back");
    }
    assert_eq!(how_many_have(&servers, &name).await, 2, "they are left");
}
