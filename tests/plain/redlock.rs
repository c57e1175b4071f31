//! What is special to Redlock: its servers come and go.

use std::sync::Arc;
use std::time::{Duration, Instant};

use lockkeeper::Error;
use lockkeeper::compat::{PlainMutex, PlainStore, StoreProblem, connect};
use testbench::daemon::{self, Daemon, Signal};
use tokio::time::{sleep, timeout};

use crate::bed::Bed;

/// Servers are counted when they run for so long.
const TTL: Duration = Duration::from_millis(1500);

crate::cases![
    ["redis+redlock"]
    two_of_five_may_be_down,
    three_of_five_down_refuse_in_bounded_time,
    a_server_that_started_is_not_counted_for_a_ttl,
    a_slow_server_does_not_slow_the_others,
    servers_may_be_restarted_one_after_the_other,
    the_loss_of_a_majority_is_told,
    a_replica_is_refused,
    fewer_than_three_are_refused,
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
    sleep(Duration::from_secs(4)).await;
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
    let begun = Instant::now();
    lock.try_lock()
        .await
        .unwrap()
        .expect("it is free")
        .release()
        .await
        .unwrap();
    assert!(
        begun.elapsed() < Duration::from_millis(500),
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
    // Without the rule, these three would give the lock to another client.
    for empty in [0, 1, 2] {
        five.0[empty].kill();
        five.0[empty].launch().unwrap();
    }
    let other = five.lock(&name).await;
    let begun = Instant::now();
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
    lock.lock().await.unwrap().release().await.unwrap();
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
    // Their requests are in order, so that nothing is left.
    sleep(Duration::from_millis(300)).await;
    for one in &five.0 {
        let client = redis::Client::open(format!("redis://{}", one.address())).unwrap();
        let mut redis = client.get_multiplexed_async_connection().await.unwrap();
        let left: i64 = redis::cmd("EXISTS")
            .arg(&name)
            .query_async(&mut redis)
            .await
            .unwrap();
        assert_eq!(left, 0);
    }
}

async fn servers_may_be_restarted_one_after_the_other(_bed: Arc<Bed>, name: String) {
    let mut five = grown().await;
    let lock = five.lock(&name).await;
    let guard = lock.lock().await.unwrap();
    for one in 0..5 {
        five.0[one].kill();
        five.0[one].launch().unwrap();
        sleep(TTL).await;
        assert!(guard.is_held(), "after {one}");
        assert!(!matches!(lock.try_lock().await, Ok(Some(_))));
    }
    guard.release().await.unwrap();
}

async fn the_loss_of_a_majority_is_told(_bed: Arc<Bed>, name: String) {
    let five = grown().await;
    let lock = five.lock(&name).await;
    let guard = lock.lock().await.unwrap();
    for one in &five.0[..3] {
        let client = redis::Client::open(format!("redis://{}", one.address())).unwrap();
        let mut redis = client.get_multiplexed_async_connection().await.unwrap();
        let _flushed: () = redis::cmd("FLUSHALL")
            .query_async(&mut redis)
            .await
            .unwrap();
    }
    let begun = Instant::now();
    let lost = guard.lost().await;
    assert!(
        lost.is_lost() && begun.elapsed() < TTL * 2 / 3,
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
