//! What is refused is named, with its server, and left as it was.

use std::sync::Arc;

use lockkeeper::Error;
use lockkeeper::compat::{StoreProblem, connect};
use redis::aio::MultiplexedConnection;
use testbench::daemon;
use testbench::relay::{Relay, Way};

use crate::bed::{Bed, Case};
use crate::redis_servers::says;
use crate::sql::is_sql;
use crate::tair::TairStandIn;

pub const CASES: &[&[Case]] = &[
    crate::cases![if |kind| kind != "memory";
        a_server_that_is_not_there_is_named,
        another_server_behind_the_port_is_named,
    ],
    crate::cases![if |kind| kind == "redis+redlock" || kind == "redis+tair";
        a_replica_is_named_with_the_way_out,
    ],
    crate::cases![if |kind| kind == "redis+redlock"; a_user_without_rights_is_denied_everywhere],
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

/// It answers the first words in another language, as a web server does.
async fn another_server_behind_the_port_is_named(bed: Arc<Bed>, name: String) {
    let others: Vec<String> = bed
        .addresses()
        .iter()
        .map(|_| says(b"HTTP/1.1 400 Bad Request\r\n\r\n").to_string())
        .collect();
    let url = bed.url_at(&others.join(","));
    let error = match connect(&url).await {
        Err(error) => error,
        Ok(keeper) => keeper.mutex(&name).unwrap().try_lock().await.unwrap_err(),
    };
    let Error::Store { problem, .. } = &error else {
        panic!("{error}");
    };
    // A database's client waits for the rest of an answer, and then says what did not answer.
    let is_told = match problem {
        StoreProblem::WrongServer(why) => why.contains("does not speak"),
        StoreProblem::Unreachable(why) => is_sql(bed.kind) && why.contains("server answers there"),
        _ => false,
    };
    assert!(
        is_told && error.to_string().contains(&others[0]),
        "{error:?}"
    );
}

async fn a_replica_is_named_with_the_way_out(bed: Arc<Bed>, _name: String) {
    let (mut servers, mut stand_ins, mut daemons) = (Vec::new(), Vec::new(), Vec::new());
    for _ in bed.addresses() {
        if bed.kind == "redis+tair" {
            let replica = TairStandIn::start().unwrap();
            replica.set_replica();
            servers.push(replica.address().to_string());
            stand_ins.push(replica);
        } else {
            let server = daemon::redis(&["--replicaof", "127.0.0.1", "1"]).unwrap();
            servers.push(server.address().to_string());
            daemons.push(server);
        }
    }
    let error = connect(&bed.url_at(&servers.join(","))).await.unwrap_err();
    let Error::Store { problem, .. } = &error else {
        panic!("{error}");
    };
    assert_eq!(problem, &StoreProblem::Replica, "{error}");
    let text = error.to_string();
    assert!(
        text.contains(&servers[0]) && text.contains("name the primary"),
        "{text}"
    );
}

/// Rights that one of the servers gives leave nothing there.
async fn a_user_without_rights_is_denied_everywhere(_bed: Arc<Bed>, name: String) {
    let poor = ["--user", "me", "on", ">secret", "~other:*", "+@all"];
    let rich = ["--user", "me", "on", ">secret", "~*", "+@all"];
    let mut daemons = vec![daemon::redis(&rich).unwrap()];
    daemons.extend((0..2).map(|_| daemon::redis(&poor).unwrap()));
    let servers: Vec<String> = daemons
        .iter()
        .map(|one| format!("me:secret@{}", one.address()))
        .collect();
    let url = format!("redis+redlock://{}", servers.join(","));
    let lock = connect(&url).await.unwrap().mutex(&name).unwrap();
    let error = lock.try_lock().await.unwrap_err();
    let Error::Store { problem, .. } = &error else {
        panic!("{error}");
    };
    assert!(matches!(problem, StoreProblem::Denied(_)), "{error}");
    let text = error.to_string();
    assert!(text.contains(&name) && !text.contains("secret"), "{text}");
    let client = redis::Client::open(format!("redis://{}", daemons[0].address())).unwrap();
    let mut redis = client.get_multiplexed_async_connection().await.unwrap();
    assert_eq!(keys(&mut redis, &name).await, [""; 0]);
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
