//! What each kind declares, held both ways: each capability of each kind has a case.
//!
//! A field of `Capabilities` without a row here fails the run, and so does a kind in `KINDS`
//! without a server in the bed. So no combination is missing.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
use lockkeeper::Owner;
use lockkeeper::compat::{Acquired, Attempt, Capabilities, PlainKeeper, PlainStore, connect};
use testbench::daemon::{self, Daemon};
use testbench::plain::PlainTrial;
use testbench::relay::{Relay, Way};
use tokio::time::{sleep, timeout};

use crate::bed::{Bed, TAIR, TTL};
use crate::flash_sale::Counted;
use crate::sql;

type Claim = fn(Arc<Bed>, String) -> BoxFuture<'static, ()>;

/// A field of `Capabilities`, whether a kind declares it, and the cases of both.
struct Row {
    field: &'static str,
    is_declared: fn(&Capabilities) -> bool,
    holds: Claim,
    is_absent: Claim,
}

macro_rules! rows {
    ($($field:ident $is_declared:expr, $holds:ident, $is_absent:ident;)*) => {
        const ROWS: &[Row] = &[$(Row {
            field: stringify!($field),
            is_declared: $is_declared,
            holds: |bed, name| Box::pin($holds(bed, name)),
            is_absent: |bed, name| Box::pin($is_absent(bed, name)),
        }),*];
    };
}

rows![
    has_token |can| can.has_token, each_token_is_greater, no_guard_has_a_token;
    is_reentrant |can| can.is_reentrant, an_owner_enters_again, an_owner_is_refused_by_name;
    wakes_waiters |can| can.wakes_waiters, a_waiter_is_woken, a_waiter_asks_at_a_bounded_rate;
    ends_with_connection |can| can.ends_with_connection, a_cut_frees_it_soon, a_cut_keeps_it;
    survives_restart |can| can.survives_restart, it_is_held_after_a_restart, a_restart_is_its_loss;
    may_be_evicted |can| can.may_be_evicted, a_flood_evicts_it, a_flood_keeps_it;
    tells_loss_first |can| can.tells_loss_first, a_cut_is_told_before_the_next_grant,
        a_cut_may_be_told_late;
    frees_late_by |can| !can.frees_late_by.is_zero(), a_crash_frees_it_in_time,
        a_crash_frees_it_in_time;
    // What none has: there is no field.
    is_fair |_| false, nothing, a_late_client_can_be_first;
    is_shared |_| false, nothing, one_of_several_holds;
];

/// Each combination, with its case. `Err` if one is missing.
pub fn trials(beds: &[Arc<Bed>]) -> Result<Vec<PlainTrial>, String> {
    let runtime = tokio::runtime::Runtime::new().map_err(|error| error.to_string())?;
    let fields = format!("{:?}", Capabilities::of("any"));
    let fields = fields.split(['{', ',']).skip(1);
    let mut missing = Vec::new();
    for field in fields.filter_map(|part| Some(part.split_once(':')?.0.trim())) {
        if field != "kind" && !ROWS.iter().any(|row| row.field == field) {
            missing.push(field.to_owned());
        }
    }
    let mut all = Vec::new();
    for bed in beds {
        let declared = runtime.block_on(bed.capabilities());
        for row in ROWS {
            let is_declared = (row.is_declared)(&declared);
            let (word, claim) = match is_declared {
                true => ("declared", row.holds),
                false => ("absent", row.is_absent),
            };
            let bed = Arc::clone(bed);
            all.push(PlainTrial {
                kind: bed.kind,
                case: format!("{}_is_{word}", row.field),
                run: Box::new(move |name| claim(bed, name)),
            });
        }
    }
    println!(
        "{} combinations of {} kinds and {} capabilities, {} missing {missing:?}",
        all.len(),
        beds.len(),
        ROWS.len(),
        missing.len()
    );
    match missing.is_empty() {
        true => Ok(all),
        false => Err(format!("no case is known for {}", missing.join(", "))),
    }
}

async fn nothing(_bed: Arc<Bed>, _name: String) {
    panic!("no kind declares it");
}

async fn each_token_is_greater(bed: Arc<Bed>, name: String) {
    let mut last = None;
    for _ in 0..3 {
        let guard = bed.lock(&name).await.lock().await.unwrap();
        let token = guard.token_if_any();
        assert!(token.is_some() && token > last, "{token:?} after {last:?}");
        last = token;
        guard.release().await.unwrap();
    }
}

async fn no_guard_has_a_token(bed: Arc<Bed>, name: String) {
    let guard = bed.lock(&name).await.lock().await.unwrap();
    assert_eq!(guard.token_if_any(), None);
    guard.release().await.unwrap();
}

async fn an_owner_enters_again(bed: Arc<Bed>, name: String) {
    let owner = Owner::new();
    let lock = bed.lock(&name).await.with_owner(&owner).unwrap();
    let outer = lock.lock().await.unwrap();
    let inner = lock.try_lock().await.unwrap().expect("the same owner");
    outer.release().await.unwrap();
    assert!(bed.lock(&name).await.try_lock().await.unwrap().is_none());
    inner.release().await.unwrap();
}

async fn an_owner_is_refused_by_name(bed: Arc<Bed>, name: String) {
    let owner = Owner::named("geheim");
    let error = bed.lock(&name).await.with_owner(&owner).unwrap_err();
    assert!(error.is_invalid(), "{error}");
    assert!(error.to_string().contains(bed.kind), "{error}");
    assert!(!error.to_string().contains("geheim"), "{error}");
    // Without one, a second call is a stranger's.
    let lock = bed.lock(&name).await;
    let guard = lock.lock().await.unwrap();
    assert!(lock.try_lock().await.unwrap().is_none());
    guard.release().await.unwrap();
}

/// A waiter of a client that counts, with pauses that are too long for this case.
async fn waiting(bed: &Bed, name: &str) -> (Counted, tokio::task::JoinHandle<Duration>) {
    let store = Counted::new(bed.keeper().await);
    let lock = PlainKeeper::new(store.clone()).mutex(name).unwrap();
    let waiter = tokio::spawn(async move {
        let guard = lock.lock().await.unwrap();
        let valid = guard.valid_for();
        guard.release().await.unwrap();
        valid
    });
    (store, waiter)
}

async fn a_waiter_is_woken(bed: Arc<Bed>, name: String) {
    // With the ttl of 30 s: a waiter would ask again when it is over.
    let lock = bed.keeper().await.mutex(&name).unwrap();
    let guard = lock.lock().await.unwrap();
    let (store, waiter) = waiting(&bed, &name).await;
    sleep(TTL).await;
    let before = store.requests();
    sleep(TTL).await;
    assert_eq!(store.requests(), before, "it only waits");
    guard.release().await.unwrap();
    let woken = timeout(TTL, waiter).await;
    woken.expect("it is woken").unwrap();
}

async fn a_waiter_asks_at_a_bounded_rate(bed: Arc<Bed>, name: String) {
    let keeper = bed.keeper().await;
    assert!(keeper.store().wake(&name).await.unwrap().is_none());
    let guard = keeper.mutex(&name).unwrap().lock().await.unwrap();
    let (store, waiter) = waiting(&bed, &name).await;
    sleep(TTL * 2).await;
    let asked = store.requests();
    // 50 ms, 100 ms, ... 1 s, less up to a half of each.
    assert!((4..=16).contains(&asked), "{asked} in {:?}", TTL * 2);
    guard.release().await.unwrap();
    let got = timeout(TTL, waiter).await;
    got.expect("within the longest pause").unwrap();
}

/// A client whose connections go through a way that can be cut; none for the store in memory.
async fn behind_relays(bed: &Bed) -> Option<(Vec<Relay>, PlainKeeper<dyn PlainStore>)> {
    let servers = bed.addresses();
    if servers.is_empty() {
        return None;
    }
    let mut url = bed.url().await;
    let mut relays = Vec::new();
    for server in servers {
        let relay = Relay::to(server).await;
        url = url.replace(&server.to_string(), &relay.address().to_string());
        relays.push(relay);
    }
    Some((relays, connect(&url).await.unwrap()))
}

fn set(relays: &[Relay], way: Way) {
    for relay in relays {
        relay.set(way);
    }
}

async fn a_cut_frees_it_soon(bed: Arc<Bed>, name: String) {
    let (relays, keeper) = behind_relays(&bed).await.unwrap();
    let guard = keeper.mutex(&name).unwrap().lock().await.unwrap();
    set(&relays, Way::Refusing);
    // Far below the ttl of 30 s.
    let next = bed.lock(&name).await.lock_timeout(TTL * 2).await.unwrap();
    drop(guard);
    next.check().await.unwrap();
    next.release().await.unwrap();
}

async fn a_cut_keeps_it(bed: Arc<Bed>, name: String) {
    let Some((relays, keeper)) = behind_relays(&bed).await else {
        return;
    };
    let ttl = TTL * 3;
    let lock = keeper.mutex(&name).unwrap().with_ttl(ttl).unwrap();
    let guard = lock.lock().await.unwrap();
    for _ in 0..2 {
        set(&relays, Way::Refusing);
        let begun = Instant::now();
        while begun.elapsed() < ttl / 4 {
            assert!(bed.lock(&name).await.try_lock().await.unwrap().is_none());
            sleep(Duration::from_millis(50)).await;
        }
        set(&relays, Way::Open);
        guard.check().await.unwrap();
    }
    guard.release().await.unwrap();
}

/// Servers of its own, which are killed and started again, with all that they had on their disks.
async fn restarted(bed: &Bed) -> Option<(Vec<Daemon>, PlainKeeper<dyn PlainStore>)> {
    let durable = &["--appendonly", "yes", "--appendfsync", "always"];
    let (family, kind) = bed.kind.split_once('+')?;
    let servers = match (family, kind) {
        (_, "tair") => match std::env::var(TAIR) {
            Err(_) => return None,
            Ok(module) => {
                let with_module = [durable as &[&str], &["--loadmodule", &module]].concat();
                vec![daemon::redis(&with_module).unwrap()]
            }
        },
        (_, "redlock") => (0..3).map(|_| daemon::redis(durable).unwrap()).collect(),
        ("redis", _) => vec![daemon::redis(durable).unwrap()],
        ("memcached", _) => vec![daemon::memcached(&[]).unwrap()],
        ("postgres", _) => vec![daemon::postgres(&[]).unwrap()],
        _ => vec![daemon::mariadb(&[]).unwrap()],
    };
    let url = if matches!(family, "postgres" | "mysql") {
        let url = sql::url(bed.kind, &servers[0]);
        sql::create(bed.kind, &url).await.unwrap();
        url
    } else {
        let addresses = servers.iter().map(|one| one.address().to_string());
        let addresses: Vec<String> = addresses.collect();
        format!("{}://{}", bed.kind, addresses.join(","))
    };
    if kind == "redlock" {
        // Until they are counted for a ttl.
        sleep(RESTARTED_TTL + Duration::from_secs(2)).await;
    }
    Some((servers, connect(&url).await.unwrap()))
}

const RESTARTED_TTL: Duration = Duration::from_secs(12);

async fn it_is_held_after_a_restart(bed: Arc<Bed>, name: String) {
    let Some((mut servers, keeper)) = restarted(&bed).await else {
        // The stand-in of Tair cannot be killed: its clients see the same.
        return a_cut_keeps_it(bed, name).await;
    };
    let lock = keeper.mutex(&name).unwrap();
    let lock = lock.with_ttl(RESTARTED_TTL).unwrap();
    let guard = lock.lock().await.unwrap();
    for server in &mut servers {
        server.kill();
        server.launch().unwrap();
    }
    guard.check().await.unwrap();
    assert!(!matches!(lock.try_lock().await, Ok(Some(_))));
    guard.release().await.unwrap();
}

async fn a_restart_is_its_loss(bed: Arc<Bed>, name: String) {
    let Some((mut servers, keeper)) = restarted(&bed).await else {
        let guard = bed.lock(&name).await.lock().await.unwrap();
        bed.remove(&name).await;
        assert!(timeout(TTL, guard.lost()).await.expect("soon").is_lost());
        return;
    };
    let lock = keeper.mutex(&name).unwrap();
    let lock = lock.with_ttl(RESTARTED_TTL).unwrap();
    let guard = lock.lock().await.unwrap();
    servers[0].kill();
    servers[0].launch().unwrap();
    let lost = timeout(RESTARTED_TTL / 2, guard.lost()).await;
    let lost = lost.expect("with a renewal");
    assert!(lost.is_lost(), "{lost}");
    let next = lock.lock_timeout(RESTARTED_TTL).await.unwrap();
    next.release().await.unwrap();
}

/// In a server with little memory, as other programs fill it.
async fn a_flood_evicts_it(bed: Arc<Bed>, name: String) {
    use std::io::Write;
    let server = daemon::memcached(&["-m", "2"]).unwrap();
    let url = format!("{}://{}", bed.kind, server.address());
    let lock = connect(&url).await.unwrap().mutex(&name).unwrap();
    let guard = lock.lock().await.unwrap();
    let mut stream = std::net::TcpStream::connect(server.address()).unwrap();
    // So long as a lock, which is in the same class of items.
    let length = name.len();
    for count in 0..100_000 {
        let key = format!("{count:0length$}");
        write!(stream, "ms {key} 32 T100 q\r\n{:032}\r\n", count).unwrap();
    }
    let next = lock.lock_timeout(TTL).await.expect("it was evicted");
    // And is told with the next renewal.
    assert!(guard.check().await.unwrap_err().is_lost());
    next.release().await.unwrap();
}

async fn a_flood_keeps_it(bed: Arc<Bed>, name: String) {
    let guard = bed.lock(&name).await.lock().await.unwrap();
    let keeper = bed.keeper().await;
    for other in 0..200 {
        let lock = keeper.mutex(format!("{name}{other}")).unwrap();
        lock.lock().await.unwrap().release().await.unwrap();
    }
    guard.check().await.unwrap();
    assert!(bed.lock(&name).await.try_lock().await.unwrap().is_none());
    guard.release().await.unwrap();
}

async fn a_cut_is_told_before_the_next_grant(bed: Arc<Bed>, name: String) {
    for way in [Way::Silent, Way::Refusing] {
        let Some((relays, keeper)) = behind_relays(&bed).await else {
            return;
        };
        let lock = keeper.mutex(&name).unwrap().with_ttl(TTL).unwrap();
        let guard = lock.lock().await.unwrap();
        let lost = tokio::spawn(guard.lost());
        set(&relays, way);
        let other = bed.lock(&name).await;
        let poll = (Duration::from_millis(5), Duration::from_millis(5));
        let other = other.with_poll(poll.0, poll.1).unwrap();
        let next = timeout(TTL * 4, other.lock()).await;
        let next = next.expect("its ttl is over").unwrap();
        assert!(!guard.is_held(), "{way:?}");
        timeout(TTL / 4, lost).await.expect("it was told").unwrap();
        next.release().await.unwrap();
    }
}

async fn a_cut_may_be_told_late(bed: Arc<Bed>, name: String) {
    let (relays, keeper) = behind_relays(&bed).await.unwrap();
    // With the ttl of 30 s, and so a renewal after 10 s.
    let guard = keeper.mutex(&name).unwrap().lock().await.unwrap();
    set(&relays, Way::Refusing);
    let next = bed.lock(&name).await.lock_timeout(TTL * 2).await.unwrap();
    assert!(guard.is_held(), "not told yet");
    assert!(guard.check().await.unwrap_err().is_lost());
    next.release().await.unwrap();
}

async fn a_crash_frees_it_in_time(bed: Arc<Bed>, name: String) {
    let keeper = bed.keeper().await;
    let late = keeper.store().capabilities().frees_late_by;
    let attempt = Attempt {
        name: name.as_str().into(),
        secret: "0e8b5f308d3f4c5a9a1b6c1f5c1d2e31".into(),
        ttl: TTL,
        owner: None,
        seen: Default::default(),
        turn: Default::default(),
    };
    let begun = Instant::now();
    let taken = keeper.store().acquire(&attempt).await.unwrap();
    assert!(matches!(taken, Acquired::Yes { .. }));
    // No task renews it.
    let other = bed.lock(&name).await;
    let poll = (Duration::from_millis(50), Duration::from_millis(50));
    let next = other.with_poll(poll.0, poll.1).unwrap().lock().await;
    let waited = begun.elapsed();
    assert!(waited >= TTL.mul_f64(0.9), "{waited:?}");
    // Half a second for the pauses and the machine.
    assert!(waited <= TTL + late + TTL / 4, "{waited:?}");
    next.unwrap().release().await.unwrap();
}

/// A client that has waited for long is passed by one that has just come.
async fn a_late_client_can_be_first(bed: Arc<Bed>, name: String) {
    let late = bed.lock(&name).await;
    for round in 0..20 {
        let holder = late.lock().await.unwrap();
        let waiter = bed.lock(&name).await;
        let waiter = tokio::spawn(async move { waiter.lock().await });
        sleep(Duration::from_millis(300)).await;
        // It asks right behind the release, before anyone can be told of it.
        let (released, first) = tokio::join!(holder.release(), late.try_lock());
        released.unwrap();
        let first = match first.unwrap() {
            None => late.try_lock().await.unwrap(),
            first => first,
        };
        let was_first = first.is_some();
        drop(first);
        waiter.await.unwrap().unwrap().release().await.unwrap();
        if was_first {
            println!("{}: passed in round {round}", bed.kind);
            return;
        }
    }
    panic!("the longest waiter was always the first");
}

async fn one_of_several_holds(bed: Arc<Bed>, name: String) {
    let mut tries = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let lock = bed.lock(&name).await;
        tries.spawn(async move { lock.try_lock().await.unwrap() });
    }
    let guards: Vec<_> = tries.join_all().await.into_iter().flatten().collect();
    assert!(guards.len() <= 1, "{guards:?}");
    for guard in guards {
        assert!(bed.lock(&name).await.try_lock().await.unwrap().is_none());
        guard.release().await.unwrap();
    }
}
