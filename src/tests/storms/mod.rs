//! Random runs of the whole queue in a simulated ZooKeeper, behind every fault that its designers
//! could think of.
//!
//! A seed makes a run: a few sessions with several clients each lock, try, queue up, cancel,
//! release and drop, while connections break, sessions expire, followers lag, operators break
//! tickets, strangers write into directories, foreign clients come and go, and directories are
//! reaped. Then the weather calms down, and everybody must get the lock once more. The `referee`
//! reads the log.
//!
//! `LOCKKEEPER_SOAK=1` runs the long form; `LOCKKEEPER_SEED=n` runs one seed and prints its log.

mod referee;

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tracing::dispatcher::{self, Dispatch};

use crate::error::{Error, Result};
use crate::guard::Guard;
use crate::latch::Listener;
use crate::link::Create;
use crate::name::LockName;
use crate::protocol::lease::Moment;
use crate::protocol::ticket::Recipe;
use crate::queue::Queue;
use crate::recipes::acquire::Acquirer;
use crate::recipes::mutex::Mutex;
use crate::session::clock::Clock;
use crate::session::heartbeat::LeaseStrength;
use crate::session::pool::{Access, Pool};
use crate::tests::simulated::tree::{Action, Change};
use crate::tests::simulated::{Author, CALL, Dice, Entry, SimOpener, SimWorld, Step};
use referee::Referee;

const SHORT: u64 = 2_000;
const LONG: u64 = 20_000;
const DIRECTORY: &str = "/locks/it";
/// After the storm nothing may take longer than this (virtual time).
const PATIENCE: Duration = Duration::from_secs(30);
const FOREIGN_SESSION: i64 = 9_999;

/// The same for all seeds, because each new one is made known to everything that could tell it
/// something.
static LISTENER: LazyLock<(Listener, Dispatch)> = LazyLock::new(|| {
    let listener = Listener::default();
    (listener.clone(), Dispatch::new(listener))
});

#[test]
fn no_storm_breaks_the_queue() {
    if let Ok(seed) = std::env::var("LOCKKEEPER_SEED") {
        let (outcome, world) = run(seed.parse().unwrap());
        panic!("{}\n{outcome:?}", trace(&world));
    }
    let is_long = std::env::var("LOCKKEEPER_SOAK").is_ok_and(|word| word == "1");
    let seeds = if is_long { LONG } else { SHORT };
    let next = AtomicU64::new(0);
    let work = || {
        let (mut grants, mut broken) = (0, Vec::new());
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            // A few are enough to see what is wrong, and a hang takes its time.
            if seed >= seeds || broken.len() >= 5 {
                return (grants, broken);
            }
            match run(seed) {
                (Ok(count), _) => grants += count,
                (Err(why), world) => broken.push((seed, why, world)),
            }
        }
    };

    let (mut grants, mut broken) = (0, Vec::new());
    std::thread::scope(|scope| {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let workers: Vec<_> = (0..threads.min(8)).map(|_| scope.spawn(work)).collect();
        for worker in workers {
            let (more, seeds) = worker.join().unwrap();
            grants += more;
            broken.extend(seeds);
        }
    });

    broken.sort_by_key(|(seed, ..)| *seed);
    let whys: Vec<String> = broken
        .iter()
        .map(|(seed, why, _)| format!("seed {seed}: {why}"))
        .collect();
    if let Some((_, _, world)) = broken.first() {
        panic!("{}\n{}", trace(world), whys.join("\n"));
    }
    assert!(grants as u64 > seeds * 5, "only {grants} grants");
    let listener = &LISTENER.0;
    assert!(listener.told() > grants, "the listener hears nothing");
    assert_eq!(listener.too_early(), None, "with a latch");
}

/// The runtime's paused clock.
#[derive(Debug)]
struct VirtualClock(Instant);

impl Clock for VirtualClock {
    fn now(&self) -> Moment {
        self.0.elapsed()
    }

    fn until(&self, moment: Moment) -> BoxFuture<'static, ()> {
        Box::pin(sleep_until(self.0 + moment))
    }
}

fn trace(world: &SimWorld) -> String {
    let lines = world.entries().into_iter().map(|(at, entry)| match entry {
        Entry::Commit {
            zxid,
            author,
            call,
            changes,
        } => {
            let changes: Vec<String> = changes.iter().map(describe).collect();
            format!("{at:?} {zxid} {author:?} {call:?}: {}", changes.join(", "))
        }
        Entry::Fault { session, what } => format!("{at:?} session {session}: {what}"),
        other => format!("{at:?} {other:?}"),
    });
    lines.collect::<Vec<_>>().join("\n")
}

fn describe(change: &Change) -> String {
    match change {
        Change::Created { path, .. } => format!("+{path}"),
        Change::Deleted { path, czxid, .. } => format!("-{path} ({czxid})"),
        Change::Set {
            path,
            data,
            version,
        } => format!("{path} v{version} = {}", String::from_utf8_lossy(data)),
    }
}

fn run(seed: u64) -> (Result<usize, String>, Arc<SimWorld>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    let storm = async {
        let mut dice = Dice::new(seed, 0);
        let is_near_end = dice.percent(6);
        let first_number = if is_near_end {
            i32::MAX - i32::try_from(dice.below(12)).unwrap_or(0)
        } else {
            0
        };
        let fault_percent = [0, 3, 8, 15][dice.below(4)];
        let world = SimWorld::new(seed, first_number, fault_percent);
        let outcome = storm(&world, dice, is_near_end).await;
        let judged = {
            let log = world.entries();
            Referee::judge(log.iter().map(|(_, entry)| entry))
        };
        (judged.and_then(|grants| outcome.map(|()| grants)), world)
    };
    dispatcher::with_default(&LISTENER.1, || runtime.block_on(storm))
}

async fn storm(world: &Arc<SimWorld>, mut dice: Dice, is_near_end: bool) -> Result<(), String> {
    let calls = Arc::new(AtomicU32::new(0));
    let (calm, calmed) = watch::channel(false);
    let mut pools = Vec::new();
    for _ in 0..2 + dice.below(2) {
        let access = Access {
            opener: Arc::new(SimOpener(Arc::clone(world))),
            connect_timeout: Duration::from_secs(10),
            close_timeout: Duration::from_secs(4),
            session_timeout: Duration::from_secs(4),
            strength: LeaseStrength::Quorum,
            tick: None,
            clock: Arc::new(VirtualClock(Instant::now())),
            acls: Arc::default(),
        };
        pools.push(Pool::open(access).await.unwrap());
    }
    let clients = 3 + dice.below(4);
    let busy = [5, 30, 120][dice.below(3)];
    let mut tasks = Vec::new();
    for number in 0..clients {
        let name = LockName::new("it").unwrap();
        let pool = Arc::clone(&pools[number % pools.len()]);
        let queue = Queue::new(
            pool,
            "/locks",
            name,
            Create::Container,
            Recipe::Lock,
            Arc::default(),
            Duration::ZERO,
        );
        let client = Client {
            world: Arc::clone(world),
            lock: Mutex::new(Acquirer::new(queue, Arc::default())),
            calls: Arc::clone(&calls),
            dice: Dice::new(world.seed, 1_000 + number as u64),
            calmed: calmed.clone(),
            is_near_end,
            busy,
        };
        tasks.push(tokio::spawn(client.live()));
    }
    let weather = Weather {
        world: Arc::clone(world),
        dice: Dice::new(world.seed, 999),
        is_near_end,
    };
    let weather = tokio::spawn(weather.blow(calm));
    timeout(PATIENCE, weather)
        .await
        .map_err(|_| "the storm does not end")?
        .map_err(|error| error.to_string())?;
    for task in tasks {
        let lived = timeout(PATIENCE, task).await;
        lived
            .map_err(|_| "L1: a client waits for ever")?
            .map_err(|error| error.to_string())??;
    }
    sleep(Duration::from_secs(5)).await;
    if world.watch_count() > 0 {
        return Err(format!("S7: {} watches are left", world.watch_count()));
    }
    let left: Vec<String> = world.tree().children(DIRECTORY);
    if !left.is_empty() {
        return Err(format!("S5: orphans: {left:?}"));
    }
    for pool in pools {
        let closed = timeout(PATIENCE, pool.close(Instant::now() + pool.close_timeout())).await;
        closed.map_err(|_| "a keeper does not close")?;
    }
    Ok(())
}

/// One task that uses the lock.
struct Client {
    world: Arc<SimWorld>,
    lock: Mutex,
    calls: Arc<AtomicU32>,
    dice: Dice,
    calmed: watch::Receiver<bool>,
    is_near_end: bool,
    /// Milliseconds that it idles at most.
    busy: usize,
}

impl Client {
    async fn live(mut self) -> Result<(), String> {
        for _ in 0..2 + self.dice.below(5) {
            sleep(self.dice.ms(self.busy)).await;
            self.act().await?;
        }
        self.calmed.wait_for(|calm| *calm).await.ok();
        for _ in 0..20 {
            let call = self.begin(true);
            match CALL.scope(call, self.lock.lock()).await {
                Ok(guard) => {
                    self.hold(call, guard).await?;
                    return Ok(());
                }
                Err(error) => self.failed(call, &error)?,
            }
        }
        Err("L1: nothing but errors after the storm".into())
    }

    async fn act(&mut self) -> Result<(), String> {
        match self.dice.below(10) {
            0..=3 => {
                let call = self.begin(true);
                let locked = CALL.scope(call, self.lock.lock()).await;
                self.hold_or_fail(call, locked).await
            }
            4 => {
                let call = self.begin(false);
                match CALL.scope(call, self.lock.try_lock()).await {
                    Ok(Some(guard)) => self.hold(call, guard).await,
                    Ok(None) => Ok(()),
                    Err(error) => self.failed(call, &error),
                }
            }
            5..=7 => self.cancelled_lock().await,
            _ => self.queue_up().await,
        }
    }

    async fn cancelled_lock(&mut self) -> Result<(), String> {
        let call = self.begin(true);
        let lock = self.lock.clone();
        let locking = CALL.scope(call, lock.lock());
        let locked = if self.dice.percent(50) {
            let limit = self.dice.ms(80);
            timeout(limit, locking).await.ok()
        } else {
            Polls::new(locking, self.dice.below(20)).await
        };
        match locked {
            Some(locked) => self.hold_or_fail(call, locked).await,
            None => {
                self.say(call, Step::LetGo);
                Ok(())
            }
        }
    }

    async fn queue_up(&mut self) -> Result<(), String> {
        let call = self.begin(true);
        let mut place = match CALL.scope(call, self.lock.enqueue()).await {
            Ok(place) => place,
            Err(error) => return self.failed(call, &error),
        };
        if self.dice.percent(40) {
            sleep(self.dice.ms(60)).await;
            self.say(call, Step::LetGo);
            drop(place);
            return Ok(());
        }
        loop {
            let granting = CALL.scope(call, place.granted());
            match Polls::new(granting, self.dice.below(12)).await {
                Some(granted) => return self.hold_or_fail(call, granted).await,
                None if self.dice.percent(10) => {
                    self.say(call, Step::LetGo);
                    return Ok(());
                }
                None => sleep(self.dice.ms(20)).await,
            }
        }
    }

    async fn hold_or_fail(&mut self, call: u32, locked: Result<Guard>) -> Result<(), String> {
        match locked {
            Ok(guard) => self.hold(call, guard).await,
            Err(error) => self.failed(call, &error),
        }
    }

    async fn hold(&mut self, call: u32, guard: Guard) -> Result<(), String> {
        let czxid = i64::try_from(u64::from(guard.token())).unwrap_or(-1);
        self.say(call, Step::Granted { czxid });
        sleep(self.dice.ms(30)).await;
        self.say(call, Step::LetGo);
        let released = match self.dice.below(4) {
            0 => {
                drop(guard);
                return Ok(());
            }
            1 => Polls::new(guard.release(), self.dice.below(6)).await,
            _ => Some(guard.release().await),
        };
        match released {
            Some(Ok(())) => self.say(call, Step::Released),
            Some(Err(error)) => return self.failed(call, &error),
            None => {}
        }
        Ok(())
    }

    fn begin(&self, is_steady: bool) -> u32 {
        let call = self.calls.fetch_add(1, Ordering::Relaxed);
        // At the end of the counter a ticket may be given up for a better one.
        let is_steady = is_steady && !self.is_near_end;
        self.say(call, Step::DeleteProgress { is_steady });
        call
    }

    /// Nothing but a loss is a reason to fail.
    fn failed(&self, call: u32, error: &Error) -> Result<(), String> {
        self.say(call, Step::LetGo);
        match error {
            Error::PlaceLost { .. } => self.say(call, Step::PlaceLost),
            Error::SessionOver { .. } | Error::LeaseOver { .. } => {}
            other => return Err(format!("call {call} failed: {other:?}")),
        }
        Ok(())
    }

    fn say(&self, call: u32, step: Step) {
        self.world.log(Entry::Step { call, step });
    }
}

/// Polls a future a few times and then gives up: a cancel at every await.
struct Polls<F> {
    future: Pin<Box<F>>,
    left: usize,
}

impl<F: Future> Polls<F> {
    fn new(future: F, left: usize) -> Self {
        let future = Box::pin(future);
        Self { future, left }
    }
}

impl<F: Future> Future for Polls<F> {
    type Output = Option<F::Output>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if self.left == 0 {
            return Poll::Ready(None);
        }
        self.left -= 1;
        match pin!(&mut self.future).poll(context) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if self.left == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    }
}

/// Everybody else who touches the directory.
struct Weather {
    world: Arc<SimWorld>,
    dice: Dice,
    is_near_end: bool,
}

impl Weather {
    async fn blow(mut self, calm: watch::Sender<bool>) {
        let pace = [8, 25, 100][self.dice.below(3)];
        for _ in 0..self.dice.below(80) {
            sleep(self.dice.ms(pace)).await;
            self.strike();
        }
        self.world.calm();
        self.remove_foreign(100);
        calm.send_replace(true);
    }

    fn strike(&mut self) {
        match self.dice.below(12) {
            // At its end the counter gives a broken ticket's name again at once, between a look and
            // its delete.
            0 if !self.is_near_end => self.break_ticket(),
            1 => self.write_old_mark(),
            // Near its end a directory with a stranger's data is never removed, so nobody would be
            // granted any more.
            2 if !self.is_near_end => self.write(b"10.0.0.7"),
            3 => self.write(b""),
            4 => self.come("lock-"),
            5 if !self.is_near_end => {
                let path = format!("{DIRECTORY}/junk");
                let (data, kind) = (Vec::new(), Create::Persistent);
                self.act("stranger", Action::Create { path, data, kind });
            }
            6 | 7 => self.remove_foreign(50),
            _ => self.act("reaper", Action::delete(DIRECTORY)),
        }
    }

    /// Removes one ticket by hand, or the whole directory.
    fn break_ticket(&mut self) {
        let tickets = self.world.tree().children(DIRECTORY);
        if self.dice.percent(30) {
            for ticket in tickets {
                let path = format!("{DIRECTORY}/{ticket}");
                self.act("operator", Action::delete(path));
            }
            self.act("operator", Action::delete(DIRECTORY));
        } else if !tickets.is_empty() {
            let path = format!("{DIRECTORY}/{}", tickets[self.dice.below(tickets.len())]);
            self.act("operator", Action::delete(path));
        }
    }

    /// Writes back what a session wrote before.
    fn write_old_mark(&mut self) {
        let mut marks = self.world.written();
        if !marks.is_empty() {
            let mark = marks.swap_remove(self.dice.below(marks.len()));
            self.write(&mark);
        }
    }

    fn write(&self, data: &[u8]) {
        let (path, data, version) = (DIRECTORY.into(), data.to_vec(), -1);
        self.act(
            "stranger",
            Action::Set {
                path,
                data,
                version,
            },
        );
    }

    fn come(&mut self, tag: &str) {
        let id = self.dice.below(usize::MAX);
        let path = format!(
            "{DIRECTORY}/_c_00000000-0000-4000-8000-{:012x}-{tag}",
            id >> 20
        );
        let (data, kind) = (b"10.0.0.7".to_vec(), Create::EphemeralSequential);
        self.act("foreigner", Action::Create { path, data, kind });
    }

    fn remove_foreign(&mut self, percent: usize) {
        for child in self.world.tree().children(DIRECTORY) {
            let is_foreign = child.starts_with("_c_") || child == "junk";
            if is_foreign && self.dice.percent(percent) {
                let path = format!("{DIRECTORY}/{child}");
                self.act("foreigner", Action::delete(path));
            }
        }
    }

    fn act(&self, who: &'static str, action: Action) {
        // Refused if the directory is not there, or not empty for the reaper.
        let author = Author::Other(who);
        let written = self.world.commit(author, FOREIGN_SESSION, None, &[action]);
        written.ok();
    }
}
