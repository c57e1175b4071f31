//! Servers that end idle connections by their own settings.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use lockkeeper::compat::{PlainMutex, PlainStore, connect};
use testbench::daemon::{self, Daemon};
use testbench::relay::{Relay, Way};
use tokio::time::{sleep, timeout};

use crate::bed::{Bed, Case, TTL};
use crate::sql::{self, is_session, is_sql};

pub const CASES: &[&[Case]] = &[
    crate::cases![if is_session;
        an_idle_timeout_of_the_server_does_not_end_a_hold,
        an_idle_kill_comes_after_the_guard_was_told,
    ],
    // Those of advisory locks have no timeout between holds.
    crate::cases![if |kind| is_sql(kind) && kind != "postgres+advisory";
        a_connection_that_ended_while_nobody_used_it_is_replaced,
    ],
    crate::cases![if is_sql; connections_that_fall_silent_do_not_stop_the_next_tries],
    crate::cases![if |kind| is_sql(kind) && !is_session(kind);
        connections_that_fall_silent_end_no_hold,
        idle_connections_that_fall_silent_end_no_hold,
    ],
];

/// A server that ends each connection that is idle for a second, also in a transaction.
async fn impatient(kind: &str) -> (Daemon, String) {
    let server = match kind.starts_with("postgres") {
        true => daemon::postgres(&[
            "idle_session_timeout=1s",
            "idle_in_transaction_session_timeout=1s",
        ]),
        false => daemon::mariadb(&[
            "--wait-timeout=1",
            "--idle-transaction-timeout=1",
            "--idle-readonly-transaction-timeout=1",
            "--idle-write-transaction-timeout=1",
        ]),
    };
    let server = server.unwrap();
    let url = sql::url(kind, &server);
    sql::create(kind, &url).await.unwrap();
    (server, url)
}

/// The session's own timeout counts, which is the ttl.
async fn an_idle_timeout_of_the_server_does_not_end_a_hold(bed: Arc<Bed>, name: String) {
    let (_server, url) = impatient(bed.kind).await;
    let other = connect(&url).await.unwrap().mutex(&name).unwrap();
    let ttl = |seconds| Duration::from_secs(seconds);

    for had_shorter in [false, true] {
        // With connections of its own, of which the first has the server's own timeout.
        let keeper = connect(&url).await.unwrap();
        if had_shorter {
            let short = keeper.mutex(format!("{name:.20}")).unwrap();
            let short = short.with_ttl(ttl(1)).unwrap();
            short.lock().await.unwrap().release().await.ok();
        }
        let lock = keeper.mutex(&name).unwrap().with_ttl(ttl(9)).unwrap();
        stays_held(&lock, &other).await;
    }
}

/// Until its first renewal, which comes after three seconds, and some more.
async fn stays_held(lock: &PlainMutex<dyn PlainStore>, other: &PlainMutex<dyn PlainStore>) {
    let guard = lock.lock().await.unwrap();
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(4) {
        let next = other.try_lock().await.unwrap();
        assert!(next.is_none(), "two hold after {:?}", begun.elapsed());
        sleep(Duration::from_millis(50)).await;
    }
    guard.check().await.unwrap();
    guard.release().await.unwrap();
}

/// The client is there and hears nothing. The server frees its lock by the timeout of the session.
async fn an_idle_kill_comes_after_the_guard_was_told(bed: Arc<Bed>, name: String) {
    let way = Relay::to(bed.addresses()[0]).await;
    let url = bed.url_at(&way.address().to_string());
    let lock = connect(&url).await.unwrap().mutex(&name).unwrap();
    let guard = lock.with_ttl(TTL).unwrap().lock().await.unwrap();
    let other = bed.lock(&name).await;
    guard.check().await.unwrap();
    way.set(Way::Silent);
    let begun = Instant::now();

    let next = loop {
        let next = other.try_lock().await.unwrap();
        let is_held = guard.is_held();
        if let Some(next) = next {
            assert!(!is_held, "two hold after {:?}", begun.elapsed());
            break next;
        }
        assert!(begun.elapsed() < TTL * 3, "it was never freed");
        sleep(Duration::from_millis(5)).await;
    };

    println!("{}: ended after {:?}", bed.kind, begun.elapsed());
    let lost = timeout(TTL, guard.lost()).await.expect("it was told");
    assert!(lost.is_lost(), "{lost}");
    drop(guard);
    next.check().await.unwrap();
    next.release().await.unwrap();
}

/// A try does not fail with a connection that the server has ended before it.
async fn a_connection_that_ended_while_nobody_used_it_is_replaced(bed: Arc<Bed>, name: String) {
    let (server, url) = impatient(bed.kind).await;
    let lock = connect(&url).await.unwrap().mutex(&name).unwrap();
    // The last hold's ttl stays the timeout of its connection.
    let lock = lock.with_ttl(Duration::from_secs(1)).unwrap();
    // So short a hold may be over before its release, on a busy machine.
    lock.lock().await.unwrap().release().await.ok();
    let connections = match bed.kind.starts_with("postgres") {
        true => "SELECT 1 FROM pg_stat_activity WHERE application_name = 'lockkeeper'",
        false => "SELECT 1 FROM information_schema.processlist WHERE command = 'Sleep'",
    };
    let begun = Instant::now();
    while sql::execute(bed.kind, &server, connections).await > 0 {
        assert!(begun.elapsed() < Duration::from_secs(20), "it is not ended");
        sleep(Duration::from_millis(100)).await;
    }

    let guard = lock.try_lock().await.expect("it is not asked in vain");

    guard.expect("it is free").release().await.ok();
}

/// Neither closed nor answered, and each of them with a statement.
async fn connections_that_fall_silent_do_not_stop_the_next_tries(bed: Arc<Bed>, name: String) {
    let way = Relay::to(bed.addresses()[0]).await;
    let keeper = connect(&bed.url_at(&way.address().to_string())).await;
    let keeper = keeper.unwrap();
    let lock = |number: usize| {
        let lock = keeper.mutex(format!("{name}{number}")).unwrap();
        lock.with_ttl(TTL).unwrap()
    };
    for unused in [Duration::ZERO, Duration::from_secs(1)] {
        // Some connections are kept. One that was not used for a second is asked first.
        let locks = || (0..8).map(lock);
        for guard in join_all(locks().map(|lock| async move { lock.lock().await })).await {
            guard.unwrap().release().await.unwrap();
        }
        sleep(unused).await;
        way.set(Way::Silent);
        let asked = join_all(locks().map(|lock| async move { lock.try_lock().await })).await;
        assert!(asked.iter().all(Result::is_err), "{asked:?}");
        way.set(Way::Open);
        let (again, begun) = (lock(9), Instant::now());

        let guard = loop {
            match again.lock_timeout(Duration::from_secs(20)).await {
                Ok(guard) => break guard,
                Err(error) => assert!(begun.elapsed() < Duration::from_secs(20), "{error}"),
            }
        };

        println!("{}: granted again after {:?}", bed.kind, begun.elapsed());
        guard.release().await.unwrap();
    }
}

/// Each has one of them. Those that are opened later are served.
async fn connections_that_fall_silent_end_no_hold(bed: Arc<Bed>, name: String) {
    survive_silence(&bed, &name, 4, 4).await;
}

async fn idle_connections_that_fall_silent_end_no_hold(bed: Arc<Bed>, name: String) {
    survive_silence(&bed, &name, 8, 1).await;
}

/// Some locks at once fill the idle connections, and some of them are held.
async fn survive_silence(bed: &Bed, name: &str, used: usize, held: usize) {
    let ttl = TTL * 4;
    let way = Relay::to(bed.addresses()[0]).await;
    let keeper = connect(&bed.url_at(&way.address().to_string())).await;
    let keeper = keeper.unwrap();
    let locks = (0..used).map(|number| {
        let lock = keeper.mutex(format!("{name}{number}")).unwrap();
        lock.with_ttl(ttl).unwrap()
    });
    let guards = join_all(locks.map(|lock| async move { lock.lock().await })).await;
    let mut guards: Vec<_> = guards.into_iter().map(Result::unwrap).collect();
    for guard in guards.split_off(held) {
        guard.release().await.unwrap();
    }

    way.set(Way::Silent);
    sleep(TTL / 10).await;
    way.set(Way::Open);
    sleep(ttl * 3 / 2).await;

    let lost: Vec<_> = guards.iter().filter(|guard| !guard.is_held()).collect();
    assert!(lost.is_empty(), "renewed on other connections: {lost:?}");
    for guard in guards {
        guard.release().await.unwrap();
    }
}
