//! What a lock without waiters costs: round trips, and time beside the raw commands.

use std::sync::Arc;
use std::time::{Duration, Instant};

use lockkeeper::compat::{Attempt, PlainMutex, PlainStore, connect};
use testbench::eventually;
use tokio::time::sleep;

use crate::bed::{Bed, Case, TTL};
use crate::cut::CutWay;
use crate::raw::Raw;
use crate::redlock::so_many_have;

pub const CASES: &[&[Case]] = &[
    crate::cases![if |kind| kind.starts_with("redis+") || kind.starts_with("memcached+");
        a_lock_a_renewal_and_a_release_send_one_request_each,
    ],
    crate::cases![if |kind| ["redis+tair", "memcached+add"].contains(&kind);
        a_version_that_changed_unseen_is_read_again,
    ],
    crate::cases![if |kind| kind != "memory"; a_lock_costs_hardly_more_than_its_commands],
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
    let sent = || {
        let ways = ways.iter().zip(&before);
        ways.map(|(way, before)| way.requests() - before)
    };
    let is_all = || async { sent().all(|sent| sent >= 30) };
    eventually("each server was asked", Duration::from_secs(20), is_all).await;
    // More than that would be seen by then.
    sleep(Duration::from_millis(200)).await;

    for sent in sent() {
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
        turn: Default::default(),
    };
    assert!(keeper.store().renew(&unseen).await.unwrap());
    guard.check().await.unwrap();
    assert!(keeper.store().renew(&unseen).await.unwrap());

    guard.release().await.unwrap();

    let next = lock.try_lock().await.unwrap().expect("it is free");
    next.release().await.unwrap();
}

/// Ours and the raw commands take turns: so short that a busy machine is as busy for both.
const TURN: Duration = Duration::from_millis(20);
const TURNS: usize = 20;
const ROUNDS: usize = 9;

/// How long so many pairs took.
#[derive(Default)]
struct Timed {
    seconds: f64,
    pairs: f64,
}

impl Timed {
    fn mean(&self) -> f64 {
        self.seconds / self.pairs
    }
}

async fn ours(lock: &PlainMutex<dyn PlainStore>, timed: &mut Timed) {
    let begun = Instant::now();
    while begun.elapsed() < TURN {
        lock.lock().await.unwrap().release().await.unwrap();
        timed.pairs += 1.0;
    }
    timed.seconds += begun.elapsed().as_secs_f64();
}

async fn commands(raw: &mut Raw, kind: &str, name: &str, timed: &mut Timed) {
    let begun = Instant::now();
    while begun.elapsed() < TURN {
        raw.pair(kind, name).await;
        timed.pairs += 1.0;
    }
    timed.seconds += begun.elapsed().as_secs_f64();
}

/// The ratios of rounds, in order. Each turn begins with the other one.
async fn ratios(bed: &Bed, name: &str) -> Vec<f64> {
    let lock = bed.keeper().await.mutex(name).unwrap();
    let mut raw = Raw::connect(bed).await;
    let name = format!("{name}r");
    let mut ratios = Vec::new();
    // In the first one they warm up, and make their rows.
    for _ in 0..=ROUNDS {
        let (mut locks, mut pairs) = (Timed::default(), Timed::default());
        for turn in 0..TURNS {
            if turn % 2 == 0 {
                ours(&lock, &mut locks).await;
            }
            commands(&mut raw, bed.kind, &name, &mut pairs).await;
            if turn % 2 == 1 {
                ours(&lock, &mut locks).await;
            }
        }
        ratios.push(locks.mean() / pairs.mean());
    }
    ratios.remove(0);
    ratios.sort_by(f64::total_cmp);
    ratios
}

/// What the median may be, with one thread. Redis is what the promise is for.
fn bound(kind: &str) -> f64 {
    if kind.starts_with("redis+") {
        1.15
    } else {
        2.0
    }
}

/// The long form only, alone and optimised: beside other cases, these would be measured too.
async fn a_lock_costs_hardly_more_than_its_commands(bed: Arc<Bed>, _name: String) {
    if std::env::var_os("LOCKKEEPER_SOAK").is_none() {
        return;
    }
    // Servers of Redlock must be counted.
    drop(bed.keeper().await);
    for threads in [1, 2] {
        // The shortest column takes 64 characters.
        let (bed, name) = (Arc::clone(&bed), format!("{}{threads}", bed.kind));
        let measured = move || {
            let runtime = match threads {
                1 => tokio::runtime::Builder::new_current_thread(),
                _ => tokio::runtime::Builder::new_multi_thread(),
            }
            .worker_threads(threads)
            .enable_all()
            .build()
            .unwrap();
            let kind = bed.kind;
            let ratios = runtime
                .block_on(async { tokio::spawn(async move { ratios(&bed, &name).await }).await });
            (kind, ratios.unwrap())
        };
        let (kind, ratios) = tokio::task::spawn_blocking(measured).await.unwrap();
        let (least, median, most) = (ratios[0], ratios[ROUNDS / 2], ratios[ROUNDS - 1]);
        println!(
            "| {kind} | {threads} | {median:.2} | {least:.2} to {most:.2} | of its raw commands"
        );
        let is_judged = threads == 1 && !cfg!(debug_assertions);
        assert!(!is_judged || median <= bound(kind), "{kind}: {ratios:?}");
    }
}
