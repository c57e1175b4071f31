//! Fail-overs of databases: a standby that follows later than it is asked, as is usual, and is then
//! made the primary.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use lockkeeper::Error;
use lockkeeper::compat::{PlainMutex, PlainStore, StoreProblem, connect};
use testbench::daemon::{self, Daemon};
use testbench::relay::{Relay, Way};
use tokio::time::{sleep, timeout};

use crate::bed::{Bed, Case, TTL};
use crate::sql::{self, is_session, is_sql};

pub const CASES: &[&[Case]] = &[
    crate::cases![if |kind| is_sql(kind) && !is_session(kind);
        a_lock_that_was_replicated_outlives_a_failover,
    ],
    crate::cases![if is_sql;
        a_standby_is_refused_until_it_is_promoted,
        a_promoted_standby_that_lagged_lets_a_second_client_in,
        an_old_primary_that_still_answers_lets_two_hold,
    ],
    crate::cases![if |kind| kind.starts_with("mysql+");
        a_primary_that_is_made_read_only_keeps_no_lock,
    ],
    // A lock of a connection to PostgreSQL needs a restart to be demoted.
    crate::cases![if |kind| is_sql(kind) && !(is_session(kind) && kind.starts_with("postgres"));
        a_primary_that_was_demoted_is_left_for_the_next,
    ],
];

/// Longer than a promotion takes on a busy machine.
const LONG_TTL: Duration = Duration::from_secs(10);
const PATIENCE: Duration = Duration::from_secs(60);

/// A primary, a standby that follows it, and the way between them.
struct Pair {
    kind: &'static str,
    primary: Daemon,
    way: Relay,
    standby: Daemon,
}

impl Pair {
    async fn start(kind: &'static str) -> Self {
        let is_postgres = kind.starts_with("postgres");
        let primary = match is_postgres {
            true => daemon::postgres(&[]),
            false => daemon::mariadb(&["--server-id=1", "--log-bin"]),
        };
        let primary = primary.unwrap();
        sql::create(kind, &sql::url(kind, &primary)).await.unwrap();
        let way = Relay::to(primary.address()).await;
        let followed = way.address();
        let standby = tokio::task::spawn_blocking(move || match is_postgres {
            true => daemon::postgres_standby(followed),
            false => daemon::mariadb(&["--server-id=2", "--log-bin", "--read-only"]),
        });
        let standby = standby.await.unwrap().unwrap();
        if !is_postgres {
            let follow = format!(
                "CHANGE MASTER TO MASTER_HOST = '127.0.0.1', MASTER_PORT = {}, \
                 MASTER_USER = 'root', MASTER_USE_GTID = slave_pos",
                followed.port()
            );
            sql::execute(kind, &standby, &follow).await;
            sql::execute(kind, &standby, "START SLAVE").await;
        }
        let pair = Self {
            kind,
            primary,
            way,
            standby,
        };
        pair.catch_up("begun").await;
        pair
    }

    /// All that the primary has committed by now is there. Commits come in their order.
    async fn catch_up(&self, mark: &str) {
        let create = format!("CREATE TABLE {mark} (nothing int)");
        sql::execute(self.kind, &self.primary, &create).await;
        let find = format!("SELECT 1 FROM information_schema.tables WHERE table_name = '{mark}'");
        let begun = Instant::now();
        while !self.answers(&find).await {
            assert!(begun.elapsed() < PATIENCE, "the standby does not follow");
            sleep(Duration::from_millis(50)).await;
        }
    }

    /// Whether the standby has such a row. PostgreSQL refuses connections until it has begun.
    async fn answers(&self, sql: &str) -> bool {
        if !self.kind.starts_with("postgres") {
            return sql::execute(self.kind, &self.standby, sql).await > 0;
        }
        let url = sql::url("postgres", &self.standby);
        let Ok((client, connection)) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await
        else {
            return false;
        };
        tokio::spawn(connection);
        client.execute(sql, &[]).await.unwrap() > 0
    }

    async fn promote(&self) {
        let steps: &[&str] = match self.kind.starts_with("postgres") {
            true => &["SELECT pg_promote()"],
            false => &["STOP SLAVE", "SET GLOBAL read_only = 0"],
        };
        for step in steps {
            sql::execute(self.kind, &self.standby, step).await;
        }
    }

    async fn lock(&self, at: &Daemon, name: &str, ttl: Duration) -> PlainMutex<dyn PlainStore> {
        let keeper = connect(&sql::url(self.kind, at)).await.unwrap();
        keeper.mutex(name).unwrap().with_ttl(ttl).unwrap()
    }
}

async fn a_standby_is_refused_until_it_is_promoted(bed: Arc<Bed>, name: String) {
    let pair = Pair::start(bed.kind).await;
    let error = connect(&sql::url(bed.kind, &pair.standby))
        .await
        .unwrap_err();
    let is_told = matches!(
        &error,
        Error::Store {
            problem: StoreProblem::Replica,
            ..
        }
    );
    assert!(
        is_told && error.to_string().contains("name the primary"),
        "{error}"
    );

    pair.promote().await;

    let lock = pair.lock(&pair.standby, &name, TTL).await;
    lock.lock().await.unwrap().release().await.unwrap();
}

async fn a_lock_that_was_replicated_outlives_a_failover(bed: Arc<Bed>, name: String) {
    let mut pair = Pair::start(bed.kind).await;
    let first = pair.lock(&pair.primary, &name, LONG_TTL).await;
    let guard = first.lock().await.unwrap();
    pair.catch_up("taken").await;

    pair.primary.kill();
    pair.promote().await;
    let second = pair.lock(&pair.standby, &name, LONG_TTL).await;

    assert!(second.try_lock().await.unwrap().is_none(), "it is there");
    let begun = Instant::now();
    let next = loop {
        let next = second.try_lock().await.unwrap();
        let is_held = guard.is_held();
        if let Some(next) = next {
            assert!(!is_held, "two hold");
            break next;
        }
        assert!(begun.elapsed() < LONG_TTL * 2, "it was never freed");
        sleep(Duration::from_millis(20)).await;
    };
    println!("{}: free after {:?}", bed.kind, begun.elapsed());
    if guard.token_if_any().is_some() {
        assert!(next.token_if_any() > guard.token_if_any());
    }
    assert!(guard.release().await.unwrap_err().is_lost());
    next.check().await.unwrap();
    next.release().await.unwrap();
}

/// The lock had not reached it. One of a connection never does.
async fn a_promoted_standby_that_lagged_lets_a_second_client_in(bed: Arc<Bed>, name: String) {
    let mut pair = Pair::start(bed.kind).await;
    pair.way.set(Way::Silent);
    sleep(Duration::from_millis(100)).await;
    let first = pair.lock(&pair.primary, &name, LONG_TTL).await;
    let guard = first.lock().await.unwrap();

    pair.primary.kill();
    pair.promote().await;
    let second = pair.lock(&pair.standby, &name, LONG_TTL).await;
    let next = second.try_lock().await.unwrap().expect("it is not there");

    println!(
        "{}: two hold: {}",
        bed.kind,
        guard.is_held() && next.is_held()
    );
    if let Some(token) = guard.token_if_any() {
        assert_eq!(next.token_if_any(), Some(token), "tokens repeat");
    }
    let lost = timeout(LONG_TTL, guard.lost()).await;
    let lost = lost.expect("its lease ends");
    assert!(lost.is_lost(), "{lost}");
    next.check().await.unwrap();
    next.release().await.unwrap();
}

/// Nobody has stopped it. Each of the two databases renews its own holder.
async fn an_old_primary_that_still_answers_lets_two_hold(bed: Arc<Bed>, name: String) {
    let mut pair = Pair::start(bed.kind).await;
    let first = pair.lock(&pair.primary, &name, TTL).await;
    let guard = first.lock().await.unwrap();
    pair.catch_up("taken").await;

    pair.promote().await;
    let begun = Instant::now();
    let second = pair.lock(&pair.standby, &name, TTL).await;
    let next = second
        .lock_timeout(TTL * 3)
        .await
        .expect("it is free there");

    println!("{}: two hold after {:?}", bed.kind, begun.elapsed());
    guard.check().await.expect("the old primary says so");
    next.check().await.unwrap();
    assert!(guard.is_held() && next.is_held(), "two hold");
    pair.primary.kill();
    let lost = timeout(TTL, guard.lost()).await.expect("its lease ends");
    assert!(lost.is_lost(), "{lost}");
    next.check().await.unwrap();
    next.release().await.unwrap();
}

/// A server with a user `app`. The operator may write also where it only reads, but gets no lock
/// that needs no write.
async fn with_user(kind: &str) -> Daemon {
    let is_postgres = kind.starts_with("postgres");
    let server = match is_postgres {
        true => daemon::postgres(&[]),
        false => daemon::mariadb(&[]),
    };
    let server = server.unwrap();
    sql::create(kind, &sql::url(kind, &server)).await.unwrap();
    let makes = [
        "CREATE USER app IDENTIFIED BY ''",
        "GRANT ALL ON test.* TO app",
    ];
    for make in makes.iter().filter(|_| !is_postgres) {
        sql::execute(kind, &server, make).await;
    }
    server
}

/// Its connections stay open. Whoever connects now comes to the next primary.
async fn a_primary_that_was_demoted_is_left_for_the_next(bed: Arc<Bed>, name: String) {
    let (first, second) = (with_user(bed.kind).await, with_user(bed.kind).await);
    let way = Relay::to(first.address()).await;
    let url = sql::url(bed.kind, &first).replace("root@", "app@");
    let url = url.replace(&first.address().to_string(), &way.address().to_string());
    let keeper = connect(&url).await.unwrap();
    let lock = |number: usize| {
        let lock = keeper.mutex(format!("{name}{number}")).unwrap();
        lock.with_ttl(TTL).unwrap()
    };
    // Several connections are kept.
    let locks = (0..8).map(lock);
    let locked = join_all(locks.map(|lock| async move { lock.lock().await }));
    for guard in locked.await {
        guard.unwrap().release().await.unwrap();
    }

    let demote: &[&str] = match bed.kind.starts_with("postgres") {
        true => &[
            "ALTER SYSTEM SET default_transaction_read_only = on",
            "SELECT pg_reload_conf()",
        ],
        false => &["SET GLOBAL read_only = 1"],
    };
    for step in demote {
        sql::execute(bed.kind, &first, step).await;
    }
    way.lead_to(second.address());
    // PostgreSQL's connections hear of it a moment later.
    sleep(Duration::from_millis(200)).await;

    // The first try may be told.
    drop(lock(9).try_lock().await);
    let guard = lock(9).try_lock().await.expect("it is at the next primary");
    guard.expect("it is free").release().await.unwrap();
    assert!(lock(9).try_lock().await.unwrap().is_some());
}

/// As is done before another server is promoted. Connections stay open, and some locks need no
/// write.
async fn a_primary_that_is_made_read_only_keeps_no_lock(bed: Arc<Bed>, name: String) {
    let server = with_user(bed.kind).await;
    let operator = sql::url(bed.kind, &server);
    let keeper = connect(&operator.replace("root@", "app@")).await.unwrap();
    let lock = |name: &str| keeper.mutex(name).unwrap().with_ttl(TTL).unwrap();
    let (held, free) = (lock(&name), lock("another"));
    let guard = held.lock().await.unwrap();
    let mut tries = vec![free];
    if is_session(bed.kind) {
        tries.push(connect(&operator).await.unwrap().mutex("another").unwrap());
    }
    for free in &tries {
        // Its connection is kept.
        free.lock().await.unwrap().release().await.unwrap();
    }

    let begun = Instant::now();
    sql::execute(bed.kind, &server, "SET GLOBAL read_only = 1").await;

    println!("{}: read-only after {:?}", bed.kind, begun.elapsed());
    for free in &tries {
        let tried = free.try_lock().await.unwrap_err();
        let is_told = matches!(
            &tried,
            Error::Store {
                problem: StoreProblem::Replica,
                ..
            }
        );
        assert!(is_told, "{tried}");
    }
    let lost = timeout(TTL, guard.lost()).await.expect("it is told");
    assert!(lost.is_lost(), "{lost}");
}
