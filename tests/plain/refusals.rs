//! What is refused is named, with its server, and left as it was.

use std::sync::Arc;

use lockkeeper::Error;
use lockkeeper::compat::{StoreProblem, connect};
use redis::aio::MultiplexedConnection;
use testbench::relay::{Relay, Way};

use crate::bed::{Bed, Case};

pub const CASES: &[&[Case]] = &[
    crate::cases![if |kind| kind != "memory"; a_server_that_is_not_there_is_named],
    crate::cases![if is_redis; a_strangers_key_is_named_and_left],
    crate::cases![if |kind| kind == "redis+fenced"; a_strangers_counter_leaves_no_lock_behind],
    crate::cases![if |kind| kind != "memory"; a_name_or_a_ttl_is_refused_before_anything_is_sent],
];

fn is_redis(kind: &str) -> bool {
    kind.starts_with("redis+") && kind != "redis+tair"
}

async fn a_server_that_is_not_there_is_named(bed: Arc<Bed>, _name: String) {
    let mut url = bed.url().await;
    let mut relays = Vec::new();
    for server in bed.addresses() {
        let relay = Relay::to(server).await;
        url = url.replace(&server.to_string(), &relay.address().to_string());
        relay.set(Way::Refusing);
        while tokio::net::TcpStream::connect(relay.address())
            .await
            .is_ok()
        {
            tokio::task::yield_now().await;
        }
        relays.push(relay);
    }
    let error = connect(&url).await.unwrap_err();
    let Error::Store { problem, .. } = &error else {
        panic!("{error}");
    };
    assert!(matches!(problem, StoreProblem::Unreachable(_)), "{error}");
    let address = relays[0].address().to_string();
    assert!(error.to_string().contains(&address), "{error}");
}

async fn servers(bed: &Bed) -> Vec<MultiplexedConnection> {
    drop(bed.keeper().await);
    let mut all = Vec::new();
    for server in bed.addresses() {
        let client = redis::Client::open(format!("redis://{server}")).unwrap();
        all.push(client.get_multiplexed_async_connection().await.unwrap());
    }
    all
}

async fn push(redis: &mut MultiplexedConnection, key: &str) {
    let mut push = redis::cmd("RPUSH");
    let pushed: i64 = push.arg(key).arg("x").query_async(redis).await.unwrap();
    assert_eq!(pushed, 1);
}

/// All keys that begin with the lock's name.
async fn keys(redis: &mut MultiplexedConnection, name: &str) -> Vec<String> {
    let mut keys = redis::cmd("KEYS");
    keys.arg(format!("{name}*"))
        .query_async(redis)
        .await
        .unwrap()
}

async fn a_strangers_key_is_named_and_left(bed: Arc<Bed>, name: String) {
    let mut servers = servers(&bed).await;
    for redis in &mut servers {
        push(redis, &name).await;
    }
    let error = bed.lock(&name).await.try_lock().await.unwrap_err();
    let Error::Store { problem, .. } = &error else {
        panic!("{error}");
    };
    assert!(matches!(problem, StoreProblem::OtherContent(_)), "{error}");
    let text = error.to_string();
    assert!(text.contains(&name) && text.contains("list"), "{text}");
    assert!(text.contains(&bed.addresses()[0].to_string()), "{text}");
    for redis in &mut servers {
        assert_eq!(keys(redis, &name).await, [name.as_str()]);
        let mut ttl = redis::cmd("PTTL");
        let left: i64 = ttl.arg(&name).query_async(redis).await.unwrap();
        assert_eq!(left, -1, "it has no ttl of ours");
    }
    bed.remove(&name).await;
}

async fn a_strangers_counter_leaves_no_lock_behind(bed: Arc<Bed>, name: String) {
    let (mut servers, counter) = (servers(&bed).await, format!("{name}:token"));
    push(&mut servers[0], &counter).await;
    let error = bed.lock(&name).await.try_lock().await.unwrap_err();
    let Error::Store { problem, .. } = &error else {
        panic!("{error}");
    };
    assert!(matches!(problem, StoreProblem::OtherContent(_)), "{error}");
    assert_eq!(keys(&mut servers[0], &name).await, [counter]);
}

async fn a_name_or_a_ttl_is_refused_before_anything_is_sent(bed: Arc<Bed>, name: String) {
    let keeper = bed.keeper().await;
    for bad in [String::new(), "n".repeat(64 * 1024 + 1)] {
        let error = keeper.mutex(&bad).unwrap_err();
        assert!(matches!(error, Error::InvalidName { .. }), "{error}");
    }
    let shortest = keeper.store().shortest_ttl();
    let lock = keeper.mutex(&name).unwrap();
    let lock = lock.with_ttl(shortest).unwrap();
    let error = lock.with_ttl(shortest - std::time::Duration::from_millis(1));
    let text = error.unwrap_err().to_string();
    // The way out.
    assert!(
        text.contains(bed.kind) && text.contains(&format!("{shortest:?}")),
        "{text}"
    );
}
