//! What happens to programs and networks, for each kind of lock: a holder that is paused, requests
//! with an unknown outcome, and a server that restarts.

use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lockkeeper::compat::{PlainMutex, PlainStore, connect};
use rustix::process::{Pid, Signal, kill_process, set_parent_process_death_signal};
use testbench::daemon;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::{sleep, timeout};

use crate::bed::{Bed, Case, TTL};
use crate::cut::{CutWay, FAULTS, Fault};
use crate::sql;

pub const CASES: &[&[Case]] = &[
    crate::cases![if |kind| kind != "memory";
        a_paused_process_knows_of_its_loss_before_it_acts,
        an_acquire_of_unknown_outcome_is_settled,
        a_renewal_of_unknown_outcome_lets_nobody_in,
        a_release_of_unknown_outcome_is_settled,
    ],
    crate::cases![if |kind| kind.ends_with("+fenced") || kind.ends_with("+row");
        a_paused_process_is_refused_by_its_token,
    ],
    crate::cases![if |kind| kind.contains("sql+") || kind.contains("postgres+")
            || kind.contains("memcached+");
        a_restart_of_the_server_does_what_the_kind_declares,
    ],
];

/// What the server may need beyond a ttl: it looks at its clock from time to time, and a waiter
/// asks from time to time.
const SLACK: Duration = Duration::from_millis(2500);

/// The environment variable of a process that only holds.
const HOLDER: &str = "LOCKKEEPER_PLAIN_HOLDER";

/// The process's work, if it is one that only holds. It is told each line to look at its guard.
pub fn holder() -> bool {
    let Ok(order) = std::env::var(HOLDER) else {
        return false;
    };
    set_parent_process_death_signal(Some(Signal::KILL)).expect("a signal");
    let (url, name) = order.split_once('|').expect("a URL and a name");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let guard = runtime.block_on(async {
        let lock = connect(url).await.unwrap().mutex(name).unwrap();
        lock.with_ttl(TTL).unwrap().lock().await.unwrap()
    });
    let token = guard.token_if_any().map_or(0, u64::from);
    println!("holding {token}");
    let mut line = String::new();
    while std::io::stdin().read_line(&mut line).unwrap() > 0 {
        let is_held = guard.is_held();
        let worked = runtime.block_on(guard.run(async {}));
        println!("{} {}", is_held, worked.is_ok());
    }
    true
}

struct Holder {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Holder {
    async fn start(bed: &Bed, name: &str) -> (Self, u64) {
        let order = format!("{}|{name}", bed.url_at(&bed.servers()));
        let mut child = Command::new(std::env::current_exe().unwrap())
            .env(HOLDER, order)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut holder = Self { child, lines };
        let line = holder.line().await;
        let token = line.strip_prefix("holding ").expect("it holds");
        let token = token.parse().unwrap();
        (holder, token)
    }

    async fn line(&mut self) -> String {
        let line = self.lines.next_line().await.unwrap();
        line.expect("it lives")
    }

    fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id().expect("it runs")).unwrap();
        kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
    }

    async fn ask(&mut self) {
        self.child
            .stdin
            .as_mut()
            .unwrap()
            .write_all(b"look\n")
            .await
            .unwrap();
    }
}

async fn a_paused_process_knows_of_its_loss_before_it_acts(bed: Arc<Bed>, name: String) {
    let lock = bed.lock(&name).await;
    let (mut holder, _) = Holder::start(&bed, &name).await;
    holder.ask().await;
    assert_eq!(holder.line().await, "true true");
    assert!(lock.try_lock().await.unwrap().is_none());

    holder.signal(Signal::STOP);
    let begun = Instant::now();
    let next = timeout(TTL + SLACK, lock.lock()).await;
    let next = next.expect("it is free after the ttl").unwrap();
    println!("{}: free after {:?}", bed.kind, begun.elapsed());
    // What it finds when it goes on.
    holder.ask().await;
    holder.signal(Signal::CONT);

    assert_eq!(holder.line().await, "false false");
    next.check().await.unwrap();
    drop(holder);
    sleep(TTL / 2).await;
    next.check().await.unwrap();
    next.release().await.unwrap();
}

/// The resource keeps the largest token that it has seen, and compares.
async fn write(bed: &Bed, name: &str, token: u64) -> bool {
    if bed.kind.starts_with("redis") {
        let script = redis::Script::new(
            "if tonumber(redis.call('get', KEYS[1]) or '0') > tonumber(ARGV[1]) then return 0 end \
             redis.call('set', KEYS[1], ARGV[1]) return 1",
        );
        let mut redis = bed.redis().await;
        let mut call = script.key(format!("{name}:resource"));
        let call = call.arg(token);
        return call.invoke_async(&mut redis).await.unwrap();
    }
    let database = bed.database();
    let update = format!("UPDATE fenced SET token = {token} WHERE id = 1 AND token <= {token}");
    database.execute(&update).await == 1
}

async fn a_paused_process_is_refused_by_its_token(bed: Arc<Bed>, name: String) {
    if !bed.kind.starts_with("redis") {
        let database = bed.database();
        let create = "CREATE TABLE fenced (id int PRIMARY KEY, token bigint)";
        database.execute(create).await;
        database.execute("INSERT INTO fenced VALUES (1, 0)").await;
    }
    let (holder, old) = Holder::start(&bed, &name).await;
    assert!(write(&bed, &name, old).await);
    holder.signal(Signal::STOP);
    let next = bed.lock(&name).await.lock_timeout(TTL + SLACK).await;
    let next = next.unwrap();
    let new = next.token_if_any().map_or(0, u64::from);
    assert!(new > old && write(&bed, &name, new).await);

    // The write that it had on its way when it was paused.
    assert!(!write(&bed, &name, old).await, "{old} after {new}");
    next.release().await.unwrap();
}

/// A lock behind ways that can be cut, one for each server.
async fn behind_ways(bed: &Bed, name: &str) -> (PlainMutex<dyn PlainStore>, Vec<CutWay>) {
    let mut ways = Vec::new();
    // Servers that must be counted are, from here on.
    drop(bed.keeper().await);
    for server in bed.servers().split(',') {
        ways.push(CutWay::to(server.parse().unwrap()).await);
    }
    let servers: Vec<String> = ways.iter().map(|way| way.address().to_string()).collect();
    let keeper = connect(&bed.url_at(&servers.join(","))).await.unwrap();
    let lock = keeper.mutex(name).unwrap().with_ttl(TTL).unwrap();
    // Scripts are loaded, and a connection is open.
    lock.lock().await.unwrap().release().await.unwrap();
    (lock, ways)
}

pub fn arm(ways: &[CutWay], fault: Fault) {
    for way in ways {
        way.arm(fault);
    }
}

fn has_struck(ways: &[CutWay]) {
    assert!(ways.iter().all(|way| way.struck() > 0), "nothing was cut");
}

/// The next client gets the lock, and nothing late touches it.
async fn is_free_in_time(bed: &Bed, other: &PlainMutex<dyn PlainStore>, what: &str) {
    let begun = Instant::now();
    let next = timeout(TTL + SLACK, other.lock()).await;
    let next = next.unwrap_or_else(|_| panic!("{what}: something is left"));
    let next = next.unwrap();
    println!("{}: {what}: free after {:?}", bed.kind, begun.elapsed());
    sleep(TTL / 2).await;
    next.check().await.expect(what);
    next.release().await.expect(what);
}

async fn an_acquire_of_unknown_outcome_is_settled(bed: Arc<Bed>, name: String) {
    let other = bed.lock(&name).await;
    for fault in FAULTS {
        let (lock, ways) = behind_ways(&bed, &name).await;
        arm(&ways, fault);
        let begun = Instant::now();
        let got = lock.try_lock().await;
        assert!(begun.elapsed() < TTL + SLACK, "{:?}", begun.elapsed());
        has_struck(&ways);
        // Some kinds ask again by themselves.
        if let Ok(Some(guard)) = got {
            assert!(guard.is_held());
            assert!(other.try_lock().await.unwrap().is_none(), "{fault:?}");
            guard.release().await.unwrap();
        }
        is_free_in_time(&bed, &other, &format!("{fault:?} in acquire")).await;
    }
}

async fn a_renewal_of_unknown_outcome_lets_nobody_in(bed: Arc<Bed>, name: String) {
    let other = bed.lock(&name).await;
    for fault in FAULTS {
        let (lock, ways) = behind_ways(&bed, &name).await;
        let guard = lock.lock().await.unwrap();
        arm(&ways, fault);
        let begun = Instant::now();
        let mut next = None;
        while begun.elapsed() < TTL * 2 && next.is_none() {
            next = other.try_lock().await.unwrap();
            let is_double = next.is_some() && guard.is_held();
            // The server frees a closed connection's lock at once, and tells no client.
            let is_declared = other_ends_early(&bed).await && fault == Fault::CutsAfterDelivery;
            assert!(!is_double || is_declared, "{fault:?}: two hold");
            sleep(Duration::from_millis(20)).await;
        }
        has_struck(&ways);
        println!("{}: {fault:?} in a renewal: {:?}", bed.kind, guard.state());
        match next {
            Some(next) => {
                timeout(TTL, guard.lost()).await.expect("it is told");
                drop(guard);
                sleep(TTL / 4).await;
                next.check().await.unwrap();
                next.release().await.unwrap();
            }
            None => drop(guard.release().await),
        }
        is_free_in_time(&bed, &other, &format!("{fault:?} in a renewal")).await;
    }
}

async fn other_ends_early(bed: &Bed) -> bool {
    let keeper = bed.keeper().await;
    keeper.store().capabilities().ends_with_connection
}

async fn a_release_of_unknown_outcome_is_settled(bed: Arc<Bed>, name: String) {
    let other = bed.lock(&name).await;
    for fault in FAULTS {
        let (lock, ways) = behind_ways(&bed, &name).await;
        let guard = lock.lock().await.unwrap();
        arm(&ways, fault);
        let begun = Instant::now();
        let released = guard.release().await;
        // It waits until the lease ends, if nobody answers.
        assert!(begun.elapsed() < TTL * 5 / 4, "{:?}", begun.elapsed());
        has_struck(&ways);
        let is_told = released
            .as_ref()
            .map_or_else(|error| error.is_lost(), |()| true);
        assert!(is_told, "{fault:?}: {released:?}");
        // What is told as released is free. At some servers of Redlock it may end with its ttl.
        if released.is_ok() && bed.kind != "redis+redlock" {
            let next = other.try_lock().await.unwrap();
            let next = next.unwrap_or_else(|| panic!("{fault:?}: it is not free"));
            next.release().await.unwrap();
        }
        is_free_in_time(&bed, &other, &format!("{fault:?} in release")).await;
    }
}

/// A database may need some seconds to recover, and a lease bears them.
async fn a_restart_of_the_server_does_what_the_kind_declares(bed: Arc<Bed>, name: String) {
    let ttl = Duration::from_secs(12);
    let (family, _) = bed.kind.split_once('+').unwrap();
    let mut server = match family {
        "postgres" => daemon::postgres(&[]).unwrap(),
        "mysql" => daemon::mariadb(&[]).unwrap(),
        _ => daemon::memcached(&[]).unwrap(),
    };
    let url = match family {
        "memcached" => format!("{}://{}", bed.kind, server.address()),
        _ => sql::url(bed.kind, &server),
    };
    if family != "memcached" {
        sql::create(bed.kind, &url).await.unwrap();
    }
    let keeper = connect(&url).await.unwrap();
    let declared = keeper.store().capabilities();
    let lock = keeper.mutex(&name).unwrap().with_ttl(ttl).unwrap();
    let guard = lock.lock().await.unwrap();

    server.kill();
    server.launch().unwrap();

    if declared.survives_restart {
        sleep(ttl + ttl / 8).await;
        guard.check().await.expect("it survives");
        assert!(lock.try_lock().await.unwrap().is_none());
        guard.release().await.unwrap();
    } else {
        let begun = Instant::now();
        let lost = timeout(ttl, guard.lost()).await.expect("within the lease");
        println!("{}: told after {:?}", bed.kind, begun.elapsed());
        assert!(lost.is_lost(), "{lost}");
    }
    let next = lock.lock_timeout(ttl).await.unwrap();
    next.release().await.unwrap();
}
