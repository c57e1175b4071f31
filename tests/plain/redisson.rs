//! What is special to Redisson's lock.

use std::sync::Arc;
use std::time::{Duration, Instant};

use lockkeeper::Error;
use lockkeeper::compat::{PlainKeeper, StoreProblem, connect};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::bed::{Bed, TTL};
use crate::flash_sale::Counted;

crate::cases![
    ["redis+redisson"]
    a_hold_looks_like_one_of_redisson,
    a_release_is_published,
    waiters_ask_only_when_they_are_woken,
    each_release_lets_the_next_in_at_once,
    a_lost_subscription_is_made_again,
    a_lock_of_a_crashed_java_process_is_free_after_its_ttl,
    another_type_is_told_so,
    an_unused_subscription_ends,
];

async fn a_hold_looks_like_one_of_redisson(bed: Arc<Bed>, name: String) {
    let guard = bed.lock(&name).await.lock().await.unwrap();
    let mut redis = bed.redis().await;

    let fields: Vec<(String, i64)> = redis::cmd("HGETALL")
        .arg(&name)
        .query_async(&mut redis)
        .await
        .unwrap();

    let [(field, 1)] = &fields[..] else {
        panic!("{fields:?}");
    };
    let (client, thread) = field.rsplit_once(':').unwrap();
    assert_eq!(client.len(), 36);
    client.parse::<uuid::Uuid>().unwrap();
    thread.parse::<u64>().unwrap();
    let left: i64 = redis::cmd("PTTL")
        .arg(&name)
        .query_async(&mut redis)
        .await
        .unwrap();
    assert!((1..=2000).contains(&left), "{left}");
    guard.release().await.unwrap();
}

async fn a_release_is_published(bed: Arc<Bed>, name: String) {
    use futures_util::StreamExt;
    let mut listener = bed.redis_client().get_async_pubsub().await.unwrap();
    let channel = format!("redisson_lock__channel:{{{name}}}");
    listener.subscribe(&channel).await.unwrap();

    bed.lock(&name)
        .await
        .lock()
        .await
        .unwrap()
        .release()
        .await
        .unwrap();

    let message = listener.on_message().next().await.unwrap();
    assert_eq!(message.get_payload::<String>().unwrap(), "0");
}

async fn waiters_ask_only_when_they_are_woken(bed: Arc<Bed>, name: String) {
    let holder = bed
        .keeper()
        .await
        .mutex(&name)
        .unwrap()
        .lock()
        .await
        .unwrap();
    let store = Counted::new(bed.keeper().await);
    let lock = PlainKeeper::new(store.clone()).mutex(&name).unwrap();
    let mut waiters = JoinSet::new();
    for _ in 0..50 {
        let lock = lock.clone();
        waiters.spawn(async move { lock.lock().await.unwrap().release().await.unwrap() });
    }
    sleep(Duration::from_secs(2)).await;
    let before = store.requests();
    sleep(Duration::from_secs(4)).await;
    assert_eq!(store.requests(), before, "nobody asks");

    let begun = Instant::now();
    holder.release().await.unwrap();
    waiters.join_all().await;

    // One is woken by each release, so that each asks to hold once more, and to release.
    let asked = store.requests() - before;
    println!("50 waiters: {asked} requests in {:?}", begun.elapsed());
    assert!(asked <= 150, "{asked}");
}

async fn each_release_lets_the_next_in_at_once(bed: Arc<Bed>, name: String) {
    let mut guard = bed.lock(&name).await.lock().await.unwrap();
    for _ in 0..10 {
        let next = bed.lock(&name).await;
        let waiter = tokio::spawn(async move { next.lock().await });
        sleep(Duration::from_millis(200)).await;
        let begun = Instant::now();
        guard.release().await.unwrap();
        guard = waiter.await.unwrap().unwrap();
        let waited = begun.elapsed();
        // Without a wake-up it would ask again when the rest of the ttl is over.
        assert!(waited < TTL / 2, "{waited:?}");
    }
    guard.release().await.unwrap();
}

async fn a_lost_subscription_is_made_again(_bed: Arc<Bed>, name: String) {
    // Its own, as all subscriptions are cut.
    let server = testbench::daemon::redis(&[]).unwrap();
    let client = redis::Client::open(format!("redis://{}", server.address())).unwrap();
    let mut redis = client.get_multiplexed_async_connection().await.unwrap();
    let url = format!("redis+redisson://{}", server.address());
    let lock = connect(&url).await.unwrap().mutex(&name).unwrap();
    let guard = lock.lock().await.unwrap();
    let waiter = tokio::spawn(async move { lock.lock().await });
    let channel = format!("redisson_lock__channel:{{{name}}}");
    for _ in 0..3 {
        eventually_subscribed(&mut redis, &channel, 1).await;
        let client = subscriber(&mut redis).await;
        for client in client {
            let mut killed = redis::cmd("CLIENT");
            killed.arg("KILL").arg("ID").arg(client);
            let _killed: i64 = killed.query_async(&mut redis).await.unwrap();
        }
    }
    // It may be free before the subscription is there again.
    let begun = Instant::now();
    guard.release().await.unwrap();
    waiter.await.unwrap().unwrap().release().await.unwrap();
    assert!(
        begun.elapsed() < Duration::from_secs(5),
        "{:?}",
        begun.elapsed()
    );
}

/// No client publishes its end.
async fn a_lock_of_a_crashed_java_process_is_free_after_its_ttl(bed: Arc<Bed>, name: String) {
    let mut redis = bed.redis().await;
    let field = "0e8b5f30-8d3f-4c5a-9a1b-6c1f5c1d2e3f:42";
    let set = redis::cmd("HSET").arg(&name).arg(field).arg(2).to_owned();
    let _set: i64 = set.query_async(&mut redis).await.unwrap();
    let expire = redis::cmd("PEXPIRE").arg(&name).arg(1000).to_owned();
    let _set: i64 = expire.query_async(&mut redis).await.unwrap();
    let lock = bed.lock(&name).await;
    assert!(lock.try_lock().await.unwrap().is_none());

    let begun = Instant::now();
    let guard = lock.lock().await.unwrap();

    let waited = begun.elapsed();
    assert!(
        waited > Duration::from_millis(500) && waited < TTL,
        "{waited:?}"
    );
    guard.release().await.unwrap();
}

async fn another_type_is_told_so(bed: Arc<Bed>, name: String) {
    let mut redis = bed.redis().await;
    let _set: () = redis::cmd("SET")
        .arg(&name)
        .arg("x")
        .query_async(&mut redis)
        .await
        .unwrap();
    let lock = bed.lock(&name).await;
    let error = lock.lock().await.unwrap_err();
    let Error::Store { problem, .. } = &error else {
        panic!("{error}")
    };
    assert!(matches!(problem, StoreProblem::OtherContent(_)), "{error}");

    bed.remove(&name).await;
    let guard = lock.lock().await.unwrap();
    let _set: () = redis::cmd("SET")
        .arg(&name)
        .arg("x")
        .query_async(&mut redis)
        .await
        .unwrap();
    assert!(guard.check().await.unwrap_err().is_lost());
    assert!(guard.release().await.unwrap_err().is_lost());
    bed.remove(&name).await;
}

async fn an_unused_subscription_ends(bed: Arc<Bed>, name: String) {
    let mut redis = bed.redis().await;
    let guard = bed.lock(&name).await.lock().await.unwrap();
    let keeper = bed.keeper().await;
    let lock = keeper.mutex(&name).unwrap();
    let limit = Duration::from_millis(500);
    assert!(lock.lock_timeout(limit).await.unwrap_err().is_timeout());
    let channel = format!("redisson_lock__channel:{{{name}}}");
    eventually_subscribed(&mut redis, &channel, 1).await;
    eventually_subscribed(&mut redis, &channel, 0).await;
    guard.release().await.unwrap();
}

async fn eventually_subscribed(
    redis: &mut redis::aio::MultiplexedConnection,
    channel: &str,
    count: i64,
) {
    for _ in 0..2000 {
        let asked = redis::cmd("PUBSUB").arg("NUMSUB").arg(channel).to_owned();
        let (_, subscribed): (String, i64) = asked.query_async(redis).await.unwrap();
        if subscribed == count {
            return;
        }
        sleep(Duration::from_millis(10)).await;
    }
    panic!("{channel} has not {count} subscribers");
}

/// The connections that listen.
async fn subscriber(redis: &mut redis::aio::MultiplexedConnection) -> Vec<String> {
    let asked = redis::cmd("CLIENT")
        .arg("LIST")
        .arg("TYPE")
        .arg("PUBSUB")
        .to_owned();
    let list: String = asked.query_async(redis).await.unwrap();
    let ids = list.lines().filter_map(|line| line.strip_prefix("id="));
    ids.filter_map(|rest| Some(rest.split_once(' ')?.0.to_owned()))
        .collect()
}
