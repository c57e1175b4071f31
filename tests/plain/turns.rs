//! More requests of one client than its store is asked at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::BoxFuture;
use lockkeeper::compat::{
    Attempt, PlainKeeper, PlainLayer, PlainMutex, PlainStore, StoreProblem, StoreResult, connect,
};
use lockkeeper::{Error, Owner};
use testbench::proxy::Proxy;
use testbench::relay::{Relay, Way};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::bed::{self, Bed, Case};
use crate::cut::CutWay;
use crate::neighbours::Stranger;

pub const CASES: &[&[Case]] = &[
    // To Redis, requests are sent behind one another.
    crate::cases![if |kind| !kind.starts_with("redis+") && kind != "memory";
        crowds_on_a_slow_network_take_nothing_back,
        a_crowd_with_long_ttls_does_not_starve_a_short_one,
        callers_that_have_gone_leave_the_queue,
        a_crowd_at_a_silent_server_is_told_in_time,
        connections_that_fall_silent_fail_no_waiter,
    ],
    crate::cases![if |kind| kind.ends_with("+row");
        a_stranger_at_one_row_ends_no_hold_of_another,
        a_stranger_at_many_rows_costs_few_connections,
    ],
];

const TTL: Duration = Duration::from_secs(4);

/// Counts what is taken back.
#[derive(Debug, Clone)]
struct TakesBack {
    inner: PlainKeeper<dyn PlainStore>,
    releases: Arc<AtomicUsize>,
}

impl PlainLayer for TakesBack {
    fn inner(&self) -> &dyn PlainStore {
        self.inner.store()
    }

    fn release<'a>(&'a self, attempt: &'a Attempt) -> BoxFuture<'a, StoreResult<bool>> {
        self.releases.fetch_add(1, Ordering::SeqCst);
        self.inner.store().release(attempt)
    }
}

fn crowd(lock: &PlainMutex<impl PlainStore + ?Sized>, size: usize) -> JoinSet<Result<(), Error>> {
    let mut waiters = JoinSet::new();
    for _ in 0..size {
        let lock = lock.clone();
        waiters.spawn(async move { lock.lock().await?.release().await });
    }
    waiters
}

async fn keeper_at(bed: &Bed, server: &str) -> PlainKeeper<dyn PlainStore> {
    connect(&bed.url_at(server)).await.unwrap()
}

/// A lock that is held for longer than the case takes.
async fn held(bed: &Bed, name: &str) -> lockkeeper::compat::PlainGuard<dyn PlainStore> {
    let lock = bed.keeper().await.mutex(name).unwrap();
    lock.lock().await.unwrap()
}

/// Some have just more tries than there is time for, and some many more. The server answers all.
async fn crowds_on_a_slow_network_take_nothing_back(bed: Arc<Bed>, name: String) {
    let guard = held(&bed, &name).await;
    let way = CutWay::to(bed.addresses()[0]).await;
    let server = way.address().to_string();
    let mut waiters = Vec::new();
    let releases = Arc::<AtomicUsize>::default();
    for size in [12, 24, 200] {
        let inner = keeper_at(&bed, &server).await;
        let releases = Arc::clone(&releases);
        let keeper = PlainKeeper::new(TakesBack { inner, releases });
        // A try of several requests also opens a connection in a quarter of it.
        let lock = keeper.mutex(&name).unwrap().with_ttl(TTL * 2).unwrap();
        waiters.push(crowd(&lock, size));
    }
    way.answer_after(Duration::from_millis(100));

    sleep(TTL * 5).await;

    assert_eq!(releases.load(Ordering::SeqCst), 0, "taken back");
    for waiters in &mut waiters {
        let ended = waiters.try_join_next();
        assert!(ended.is_none(), "{ended:?}");
    }
    guard.release().await.unwrap();
    let mut first = waiters.swap_remove(0);
    while let Some(ended) = timeout(TTL * 4, first.join_next())
        .await
        .expect("it is free")
    {
        ended.unwrap().unwrap();
        if waiters.iter().all(|others| others.len() > 1) {
            break;
        }
    }
}

/// What it asks for is free. It stands behind the others, however little it can wait.
async fn a_crowd_with_long_ttls_does_not_starve_a_short_one(bed: Arc<Bed>, name: String) {
    let (other, name) = (format!("{name:.50}1"), format!("{name:.50}2"));
    let guard = held(&bed, &other).await;
    let way = CutWay::to(bed.addresses()[0]).await;
    let keeper = keeper_at(&bed, &way.address().to_string()).await;
    let short = keeper.mutex(&name).unwrap().with_ttl(bed::TTL).unwrap();
    short.lock().await.unwrap().release().await.unwrap();
    way.answer_after(Duration::from_millis(50));
    let mut waiters = crowd(&keeper.mutex(&other).unwrap(), 100);
    sleep(Duration::from_secs(1)).await;

    let got = short.lock_timeout(Duration::from_secs(20)).await;

    way.answer_after(Duration::ZERO);
    got.expect("it is free").release().await.unwrap();
    waiters.shutdown().await;
    guard.release().await.unwrap();
}

/// More of them than are asked in ten seconds.
async fn callers_that_have_gone_leave_the_queue(bed: Arc<Bed>, name: String) {
    let (other, name) = (format!("{name:.50}1"), format!("{name:.50}2"));
    let guard = held(&bed, &other).await;
    let way = CutWay::to(bed.addresses()[0]).await;
    let keeper = keeper_at(&bed, &way.address().to_string()).await;
    let lock = keeper.mutex(&name).unwrap();
    lock.lock().await.unwrap().release().await.unwrap();
    way.answer_after(Duration::from_millis(100));
    let mut waiters = crowd(&keeper.mutex(&other).unwrap(), 500);
    sleep(TTL / 4).await;

    waiters.shutdown().await;

    let got = timeout(TTL, lock.try_lock()).await;
    let got = got.expect("nobody else waits").unwrap();
    way.answer_after(Duration::ZERO);
    got.expect("it is free").release().await.unwrap();
    guard.release().await.unwrap();
}

/// Those that had no turn are told as late as those that had one.
async fn a_crowd_at_a_silent_server_is_told_in_time(bed: Arc<Bed>, name: String) {
    let guard = held(&bed, &name).await;
    let relay = Relay::to(bed.addresses()[0]).await;
    let keeper = keeper_at(&bed, &relay.address().to_string()).await;
    let lock = keeper.mutex(&name).unwrap().with_ttl(TTL).unwrap();
    let mut waiters = crowd(&lock, 20);
    sleep(TTL / 6).await;

    relay.set(Way::Silent);

    while let Some(told) = timeout(TTL * 3, waiters.join_next())
        .await
        .expect("in time")
    {
        let error = told.unwrap().unwrap_err();
        let Error::Store { problem, .. } = &error else {
            panic!("{error}");
        };
        let told = matches!(
            problem,
            StoreProblem::Unreachable(_) | StoreProblem::NoAnswer
        );
        assert!(told, "{error}");
    }
    guard.release().await.unwrap();
}

/// All that are asked are never heard of again, and each that is opened then is served.
async fn connections_that_fall_silent_fail_no_waiter(bed: Arc<Bed>, name: String) {
    let guard = held(&bed, &name).await;
    let relay = Relay::to(bed.addresses()[0]).await;
    let keeper = keeper_at(&bed, &relay.address().to_string()).await;
    let lock = keeper.mutex(&name).unwrap().with_ttl(TTL).unwrap();
    // Each place is taken all the time.
    let often = Duration::from_millis(1);
    let lock = lock.with_poll(often, often).unwrap();
    let mut waiters = crowd(&lock, 20);
    sleep(TTL / 6).await;
    relay.set(Way::Silent);
    sleep(TTL / 30).await;

    relay.set(Way::Open);

    let ended = timeout(TTL * 2, waiters.join_next()).await;
    assert!(ended.is_err(), "{ended:?}");
    guard.release().await.unwrap();
    let first = timeout(TTL, waiters.join_next()).await;
    first.expect("it is free").unwrap().unwrap().unwrap();
}

/// Keeps the row of a held lock.
fn held_row(name: &str) -> String {
    format!("UPDATE lockkeeper_locks SET host = 'x' WHERE name = '{name}'")
}

/// More guards than statements of holders run at once are on that row.
async fn a_stranger_at_one_row_ends_no_hold_of_another(bed: Arc<Bed>, name: String) {
    let (blocked, name) = (format!("{name:.50}1"), format!("{name:.50}2"));
    let keeper = bed.keeper().await;
    let owner = Owner::named("one");
    let many = keeper.mutex(&blocked).unwrap().with_ttl(TTL * 2).unwrap();
    let many = many.with_owner(&owner).unwrap();
    let mut guards = Vec::new();
    for _ in 0..12 {
        guards.push(many.lock().await.unwrap());
    }
    let other = keeper.mutex(&name).unwrap().with_ttl(bed::TTL).unwrap();
    let other = other.lock().await.unwrap();
    let stranger = Stranger::begin(&bed, &held_row(&blocked)).await;

    sleep(TTL * 2).await;

    assert!(other.is_held(), "its row is free");
    stranger.end("ROLLBACK").await;
    other.release().await.unwrap();
    drop(guards);
}

/// Renewals of more holds than a database has connections to spare.
async fn a_stranger_at_many_rows_costs_few_connections(bed: Arc<Bed>, name: String) {
    let proxy = Proxy::of_bytes(bed.addresses()[0]).unwrap();
    let keeper = keeper_at(&bed, &proxy.address().to_string()).await;
    let name = format!("{name:.50}");
    let mut guards = Vec::new();
    for number in 0..60 {
        let lock = keeper.mutex(format!("{name}{number}")).unwrap();
        let lock = lock.with_ttl(TTL * 3).unwrap();
        guards.push(lock.lock().await.unwrap());
    }
    let rows = (0..60).map(|number| held_row(&format!("{name}{number}")));
    let rows: Vec<String> = rows.collect();
    let mut stranger = Stranger::begin(&bed, &rows[0]).await;
    for row in &rows[1..] {
        stranger = stranger.with(row).await;
    }
    let (begun, mut most) = (Instant::now(), 0);
    // Each renewal comes after a third of the ttl, and waits for its turn a little.
    while begun.elapsed() < TTL * 3 / 2 {
        most = most.max(proxy.connections());
        sleep(Duration::from_millis(10)).await;
    }
    stranger.end("ROLLBACK").await;

    println!("{}: {most} connections", bed.kind);
    assert!((20..=40).contains(&most), "{most} connections");
    sleep(TTL * 2).await;
    for guard in guards {
        guard.release().await.expect("it was renewed");
    }
}
