//! Other programs at the same key, row or server, with other kinds of lock or in long transactions.

use std::sync::Arc;
use std::time::{Duration, Instant};

use lockkeeper::Error;
use lockkeeper::compat::sql::SpringLock;
use lockkeeper::compat::{PlainGuard, PlainMutex, PlainStore, StoreProblem, connect};
use mysql_async::prelude::Queryable;
use testbench::{daemon, eventually};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::bed::{Bed, Case, TTL};
use crate::sql::{is_session, is_sql, url};

pub const CASES: &[&[Case]] = &[
    crate::cases![if is_on_one_redis; two_kinds_on_one_key_never_hold_both],
    crate::cases![if is_on_one_redis; a_strangers_long_script_is_waited_for],
    crate::cases![if |kind| is_on_one_redis(kind) || kind == "memcached+add";
        a_server_that_is_full_is_not_reachable,
    ],
    crate::cases![if |kind| kind == "redis+fenced";
        a_lock_with_the_name_of_a_counter_is_refused,
        a_counter_that_counts_no_grants_is_told_and_left,
    ],
    crate::cases![if |kind| kind == "redis+redlock";
        one_server_under_several_names_is_refused,
    ],
    crate::cases![if |kind| is_sql(kind) && !is_session(kind);
        a_row_that_a_stranger_keeps_locked_ends_no_other_hold,
    ],
    crate::cases![if |kind| kind.ends_with("+forupdate");
        a_row_that_a_stranger_has_just_made_is_a_held_lock,
    ],
    crate::cases![if |kind| kind == "mysql+row"; a_table_of_another_database_is_found],
];

const ON_ONE_REDIS: [&str; 3] = ["redis+setnx", "redis+fenced", "redis+redisson"];

fn is_on_one_redis(kind: &str) -> bool {
    ON_ONE_REDIS.contains(&kind)
}

/// A string and a hash exclude each other too: with an error, as they can never be one lock.
async fn two_kinds_on_one_key_never_hold_both(bed: Arc<Bed>, name: String) {
    for kind in ON_ONE_REDIS.iter().filter(|kind| **kind != bed.kind) {
        let ours = bed.lock(&name).await;
        let theirs = connect(&format!("{kind}://{}", bed.servers())).await;
        let theirs = theirs.unwrap().mutex(&name).unwrap();
        let theirs = theirs.with_ttl(TTL).unwrap();
        for (first, second) in [(&ours, &theirs), (&theirs, &ours)] {
            let guard = first.lock().await.unwrap();
            for _ in 0..3 {
                is_refused(second).await;
                guard.check().await.unwrap();
            }
            sleep(TTL / 2).await;
            is_refused(second).await;
            guard.release().await.unwrap();
            let next = second.try_lock().await.unwrap().expect("it is free");
            next.release().await.unwrap();
        }
    }
}

async fn is_refused(lock: &PlainMutex<dyn PlainStore>) {
    match lock.try_lock().await {
        Ok(None) => {}
        Err(Error::Store {
            problem: StoreProblem::OtherContent(_),
            ..
        }) => {}
        other => panic!("{other:?}"),
    }
}

/// The server answers nobody else meanwhile, but for those who stop it.
async fn a_strangers_long_script_is_waited_for(bed: Arc<Bed>, name: String) {
    let server = daemon::redis(&["--busy-reply-threshold", "50"]).unwrap();
    let url = format!("{}://{}", bed.kind, server.address());
    let keeper = connect(&url).await.unwrap();
    let (held, free) = (format!("{name}1"), format!("{name}2"));
    let lock = |name: &str| keeper.mutex(name).unwrap().with_ttl(TTL * 2).unwrap();
    let guard = lock(&held).lock().await.unwrap();
    let client = redis::Client::open(format!("redis://{}", server.address())).unwrap();
    let config = redis::AsyncConnectionConfig::new().set_response_timeout(None);
    let stranger = client.get_multiplexed_async_connection_with_config(&config);
    let mut stranger = stranger.await.unwrap();
    let mut operator = client.get_multiplexed_async_connection().await.unwrap();
    let busy = tokio::spawn(async move {
        let script = redis::Script::new("while true do end");
        let ended: redis::RedisResult<()> = script.invoke_async(&mut stranger).await;
        ended.unwrap_err()
    });
    let is_busy = || async {
        let asked: redis::RedisResult<String> =
            redis::cmd("PING").query_async(&mut operator.clone()).await;
        asked.err().filter(|error| error.code() == Some("BUSY"))
    };
    eventually("the script runs", TTL, is_busy).await;

    let waiter = tokio::spawn({
        let lock = lock(&free);
        async move { lock.lock().await }
    });
    let release = tokio::spawn(guard.release());
    sleep(TTL / 4).await;
    assert!(!waiter.is_finished() && !release.is_finished());
    let kill = redis::cmd("SCRIPT").arg("KILL").to_owned();
    let _killed: () = kill.query_async(&mut operator).await.unwrap();

    busy.await.unwrap();
    release.await.unwrap().expect("it is asked again");
    let got = timeout(TTL, waiter).await.expect("it is asked again");
    got.unwrap().unwrap().release().await.unwrap();
}

async fn a_server_that_is_full_is_not_reachable(bed: Arc<Bed>, _name: String) {
    let server = match bed.kind {
        "memcached+add" => daemon::memcached(&["-c", "40", "-t", "1"]),
        _ => daemon::redis(&["--maxclients", "4"]),
    };
    let server = server.unwrap();
    let url = format!("{}://{}", bed.kind, server.address());
    connect(&url).await.unwrap();
    let mut crowd = Vec::new();
    for _ in 0..80 {
        crowd.push(std::net::TcpStream::connect(server.address()).unwrap());
    }

    let error = connect(&url).await.unwrap_err();

    let Error::Store { problem, .. } = &error else {
        panic!("{error}");
    };
    assert!(matches!(problem, StoreProblem::Unreachable(_)), "{error}");
    drop(crowd);
    let connected = || async { connect(&url).await.ok() };
    eventually("there is room", TTL * 2, connected).await;
}

async fn a_lock_with_the_name_of_a_counter_is_refused(bed: Arc<Bed>, name: String) {
    let error = bed.keeper().await.mutex(format!("{name}:token"));
    let error = error.unwrap_err();
    assert!(matches!(error, Error::InvalidName { .. }), "{error}");
    assert!(error.to_string().contains(":token"), "{error}");
}

async fn a_counter_that_counts_no_grants_is_told_and_left(bed: Arc<Bed>, name: String) {
    let (mut redis, counter) = (bed.redis().await, format!("{name}:token"));
    let most = i64::MAX.to_string();
    for value in ["-5", "-1", "none", &most] {
        let mut set = redis::cmd("SET");
        let set = set.arg(&counter).arg(value);
        let _set: () = set.query_async(&mut redis).await.unwrap();

        let error = bed.lock(&name).await.try_lock().await.unwrap_err();

        let Error::Store { problem, .. } = &error else {
            panic!("{error}");
        };
        assert!(matches!(problem, StoreProblem::OtherContent(_)), "{error}");
        assert!(error.to_string().contains(&counter), "{error}");
        let mut get = redis::cmd("MGET");
        let get = get.arg(&counter).arg(&name);
        let there: (String, Option<String>) = get.query_async(&mut redis).await.unwrap();
        assert_eq!(there, (value.to_owned(), None));
    }
}

/// Three of its databases, or three of its names, are one server that can forget.
async fn one_server_under_several_names_is_refused(bed: Arc<Bed>, _name: String) {
    let addresses = bed.addresses();
    let (one, other) = (addresses[0], addresses[1]);
    let port = one.port();
    for (names, once) in [
        (format!("{one}/0,{one}/1,{other}"), format!("{one}/1")),
        (
            format!("{one},{other},localhost:{port}"),
            format!("localhost:{port}"),
        ),
    ] {
        let error = connect(&format!("redis+redlock://{names}")).await;
        let error = error.unwrap_err();
        let text = error.to_string();
        assert!(
            text.contains(&one.to_string()) && text.contains(&once) && text.contains("one server"),
            "{text}"
        );
    }
}

/// A connection of a stranger, in a transaction that goes on.
pub enum Stranger {
    Postgres(tokio_postgres::Client),
    MySql(Box<mysql_async::Conn>),
}

impl Stranger {
    pub async fn begin(bed: &Bed, statement: &str) -> Self {
        let server = bed.database().server();
        if bed.kind.starts_with("postgres") {
            let url = url("postgres", server);
            let opened = tokio_postgres::connect(&url, tokio_postgres::NoTls).await;
            let (client, connection) = opened.unwrap();
            tokio::spawn(connection);
            return Self::Postgres(client)
                .with("BEGIN")
                .await
                .with(statement)
                .await;
        }
        let conn = Self::MySql(Box::new(bed.database().conn().await));
        conn.with("START TRANSACTION").await.with(statement).await
    }

    /// One statement more.
    pub async fn with(mut self, statement: &str) -> Self {
        match &mut self {
            Self::Postgres(client) => client.batch_execute(statement).await.unwrap(),
            Self::MySql(conn) => conn.query_drop(statement).await.unwrap(),
        }
        self
    }

    pub async fn end(self, end: &str) {
        self.with(end).await;
    }
}

/// The row of a lock that is held, as a stranger makes it.
fn row(kind: &str, name: &str) -> String {
    let (family, table) = kind.split_once('+').unwrap();
    let now = match family {
        "postgres" => "timezone('utc', now())",
        _ => "UTC_TIMESTAMP(3)",
    };
    match table {
        "row" => format!("INSERT INTO lockkeeper_locks VALUES ('{name}', 'x', 'x', 1, now())"),
        "shedlock" => format!("INSERT INTO shedlock VALUES ('{name}', {now}, {now}, 'x')"),
        "spring" => format!(
            "INSERT INTO INT_LOCK VALUES ('{}', 'DEFAULT', 'x', {now})",
            SpringLock::key(name)
        ),
        _ => format!("INSERT INTO lockkeeper_rows VALUES ('{name}')"),
    }
}

/// Each try waits for the row's transaction. There are more of them than statements run at once,
/// and the renewals of another lock pass them.
async fn a_row_that_a_stranger_keeps_locked_ends_no_other_hold(bed: Arc<Bed>, name: String) {
    let keeper = bed.keeper().await;
    let (held, blocked) = (format!("{:.50}1", name), format!("{:.50}2", name));
    let lock = |name: &str| keeper.mutex(name).unwrap().with_ttl(TTL).unwrap();
    let guard = lock(&held).lock().await.unwrap();
    let stranger = Stranger::begin(&bed, &row(bed.kind, &blocked)).await;
    let mut waiters: JoinSet<Result<PlainGuard<dyn PlainStore>, Error>> = JoinSet::new();
    for _ in 0..30 {
        let lock = lock(&blocked);
        waiters.spawn(async move { lock.lock().await });
    }
    let begun = Instant::now();
    while begun.elapsed() < TTL * 3 {
        assert!(guard.is_held(), "lost after {:?}", begun.elapsed());
        sleep(Duration::from_millis(50)).await;
    }

    guard.release().await.expect("it passes the tries");

    waiters.shutdown().await;
    stranger.end("ROLLBACK").await;
    let next = timeout(TTL * 3, lock(&blocked).lock()).await;
    next.expect("it is free").unwrap().release().await.unwrap();
}

/// As by a program that makes the row and works in one transaction.
async fn a_row_that_a_stranger_has_just_made_is_a_held_lock(bed: Arc<Bed>, name: String) {
    let lock = bed.lock(&name).await;
    let stranger = Stranger::begin(&bed, &row(bed.kind, &name)).await;
    let begun = Instant::now();
    for _ in 0..3 {
        let tried = lock.try_lock().await.expect("it is only held");
        assert!(tried.is_none(), "{tried:?}");
    }
    println!("{}: 3 tries in {:?}", bed.kind, begun.elapsed());
    let waiter = tokio::spawn(async move { lock.lock().await });
    sleep(TTL * 2).await;
    assert!(!waiter.is_finished());

    stranger.end("COMMIT").await;

    let next = timeout(TTL, waiter).await.expect("it is free").unwrap();
    next.unwrap().release().await.unwrap();
}

async fn a_table_of_another_database_is_found(bed: Arc<Bed>, name: String) {
    let server = daemon::mariadb(&[]).unwrap();
    let url = format!("{}?table=other.locks", url(bed.kind, &server));
    crate::sql::create(bed.kind, &url).await.unwrap_err();
    crate::sql::execute(bed.kind, &server, "CREATE DATABASE other").await;
    crate::sql::create(bed.kind, &url).await.unwrap();
    let lock = connect(&url).await.unwrap().mutex(&name).unwrap();
    lock.lock().await.unwrap().release().await.unwrap();
}
