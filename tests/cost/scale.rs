//! Crowds: thousands of waiters and of locks, in a process of their own, so that memory can be
//! measured.
//!
//! The process is this test binary again: with `LOCKKEEPER_CROWD` set, `main` runs [`child`]
//! instead of the suite. It says `queued` and `done` with its figures on stdout, and goes on when
//! it reads a line.

use std::process::{ExitCode, Stdio};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use lockkeeper::Keeper;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::runtime::Handle;
use tokio::time::sleep;

use testbench::{World, case, eventually};
use testbench::{children, keeper};

/// How many wait at once.
fn waiters() -> usize {
    World::times(5_000, 20_000)
}

/// How many locks are taken, one after the other.
fn locks(world: &World) -> usize {
    match world.protocol() {
        Some(_) => World::times(10_000, 1_000_000),
        None => World::times(10_000, 50_000),
    }
}

/// A crowd that comes no nearer to its end for so long stands still. How long all of it takes is
/// the machine's.
const STANDSTILL: Duration = Duration::from_secs(60);

#[case(within = 900)]
async fn a_crowd_of_waiters_queues_up_and_drains_in_one_process(world: World) {
    let waiters = waiters();
    let (keeper, stranger) = (keeper(&world).await, world.raw().await);
    let guard = keeper.mutex("crowd").unwrap().lock().await.unwrap();
    let mut crowd = Crowd::start(&world, &format!("wait {waiters}")).await;

    let in_queue = || async {
        let directory = stranger.check_stat("/locks/crowd").await.unwrap();
        directory.map_or(0, |stat| usize::try_from(stat.num_children).unwrap())
    };
    // In two halves: what the first one grows by is in part the process's own.
    for half in [waiters / 2, waiters] {
        let missing = || async { (half + 1).saturating_sub(in_queue().await) };
        none_left("the queue grows", missing).await;
        crowd.go_on().await;
    }
    let queued = crowd.says("queued").await;
    // A ticket is there a moment before its watch is.
    none_left("more waiters watch", || async {
        let watched = world.watched_by_session().await;
        waiters.saturating_sub(watched.values().map(|(paths, _)| paths).sum())
    })
    .await;
    let watched = world.watched_by_session().await;
    guard.release().await.unwrap();
    none_left("the queue drains", in_queue).await;
    let done = crowd.says("done").await;

    println!("crowd: {queued}; {done}; {} sessions watch", watched.len());
    assert!(figure(&queued, "bytes_per_waiter") < 4096, "{queued}");
    let watches: usize = watched.values().map(|(paths, _)| paths).sum();
    assert_eq!(watches, waiters, "one watch each");
    let most = watched.values().map(|(_, bytes)| bytes).max();
    // After a reconnect, ZooKeeper's client sends all paths at once.
    let bound = match world.protocol() {
        Some(_) => 1024 * 1024,
        None => 96 * 1024,
    };
    assert!(
        most.is_some_and(|bytes| *bytes <= bound),
        "no session watches more than {bound} bytes: {most:?}"
    );
    assert_eq!(figure(&done, "granted"), waiters);
    assert!(children(&stranger, "crowd").await.is_empty());
    crowd.ends().await;
}

#[case(within = 900)]
async fn a_crowd_of_locks_leaves_memory_tasks_and_watches_as_they_were(world: World) {
    let locks = locks(&world);
    let stranger = world.raw().await;
    let mut crowd = Crowd::start(&world, &format!("lock {locks}")).await;
    crowd.says("warm").await;
    let before = world.stored_bytes().await;
    crowd.go_on().await;

    let done = crowd.says("done").await;

    let after = world.stored_bytes().await;
    println!("locks: {done}; stored bytes {before:?}, then {after:?}");
    // What is deleted in PostgreSQL takes room until the next vacuum.
    if let (Some(before), Some(after)) = (before, after) {
        assert!(after < 2 * before + (32 << 20), "{before} to {after} bytes");
    }
    if World::soak() {
        let (first, last) = (figure(&done, "first_us"), figure(&done, "last_us"));
        assert!(2 * last < 3 * first, "{done}");
    }
    assert_eq!(figure(&done, "locks"), locks);
    let grown = figure(&done, "grown_bytes");
    assert!(grown < World::times(512 << 10, 1 << 20), "{done}");
    assert_eq!(figure(&done, "tasks_more"), 0, "{done}");
    for worker in children(&stranger, "crowd").await {
        assert!(
            children(&stranger, &format!("crowd/{worker}"))
                .await
                .is_empty()
        );
    }
    assert!(world.watched_by_session().await.is_empty());
    crowd.ends().await;
}

/// Waits until nothing is left. Whatever it is, it becomes less all the time.
async fn none_left<F: Future<Output = usize>>(what: &str, left: impl Fn() -> F) {
    let mut last = left().await;
    while last > 0 {
        eventually(what, STANDSTILL, || async { left().await < last }).await;
        last = left().await;
    }
}

/// The other process.
struct Crowd {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Crowd {
    async fn start(world: &World, order: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .env(
                "LOCKKEEPER_CROWD",
                format!("{order} {}", world.connect_string()),
            )
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines }
    }

    /// The line that starts with this word.
    async fn says(&mut self, word: &str) -> String {
        let line = self
            .lines
            .next_line()
            .await
            .unwrap()
            .unwrap_or_else(|| panic!("it ends without `{word}`"));
        assert!(line.starts_with(word), "{line}");
        line
    }

    async fn go_on(&mut self) {
        self.child
            .stdin
            .as_mut()
            .unwrap()
            .write_all(b"\n")
            .await
            .unwrap();
    }

    async fn ends(mut self) {
        self.go_on().await;
        assert!(self.child.wait().await.unwrap().success());
    }
}

/// A figure out of `word name=1 other=2`.
fn figure(line: &str, name: &str) -> usize {
    let words = line.split_whitespace();
    let mut figures = words.filter_map(|word| word.split_once('='));
    let (_, value) = figures
        .find(|(key, _)| *key == name)
        .unwrap_or_else(|| panic!("no {name} in {line}"));
    value.parse().unwrap()
}

/// The other process's `main`, if this is it.
pub(crate) fn child() -> Option<ExitCode> {
    let order = std::env::var("LOCKKEEPER_CROWD").ok()?;
    let words: Vec<&str> = order.split(' ').collect();
    let [what, count, connect_string] = words[..] else {
        return Some(ExitCode::from(2));
    };
    let count: usize = count.parse().unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let keeper = Keeper::builder(connect_string)
            .session_timeout(Duration::from_secs(30))
            .connect()
            .await
            .unwrap();
        match what {
            "wait" => wait(&keeper, count).await,
            "lock" => lock(&keeper, count).await,
            _ => panic!("{what}"),
        }
        read_line().await;
        keeper.close().await;
    });
    Some(ExitCode::SUCCESS)
}

/// Queues a crowd on a lock that another client holds, and lets it drain.
async fn wait(keeper: &Keeper, count: usize) {
    let began = Instant::now();
    let (granted, mut grants) = tokio::sync::mpsc::unbounded_channel();
    let mut halves = [0; 2];
    for bytes in &mut halves {
        for _ in 0..count / 2 {
            let (lock, granted) = (keeper.mutex("crowd").unwrap(), granted.clone());
            tokio::spawn(async move {
                let guard = lock.lock().await.unwrap();
                granted.send(guard.token()).unwrap();
                guard.release().await.unwrap();
            });
        }
        // The other side sees when all are in the queue, so that no list of ours is in the figure.
        read_line().await;
        // Their tickets are there; give the last ones their watch before memory is read.
        settle().await;
        *bytes = resident_bytes();
    }
    drop(granted);
    let enqueue_ms = began.elapsed().as_millis();
    let per_waiter = halves[1].saturating_sub(halves[0]) / (count / 2);
    println!("queued bytes_per_waiter={per_waiter} enqueue_ms={enqueue_ms}");

    let mut last = grants.recv().await.unwrap();
    let began = Instant::now();
    let mut seen = 1;
    while let Some(token) = grants.recv().await {
        assert!(last < token, "grants follow the order of the tickets");
        last = token;
        seen += 1;
    }
    let mean_us = began.elapsed().as_micros() / seen as u128;
    println!("done granted={seen} mean_us={mean_us}");
}

/// Locks and releases many times on several locks at once; memory and tasks are as before.
async fn lock(keeper: &Keeper, count: usize) {
    // Warm first: allocators and maps get their size.
    rounds(keeper, count / 10).await;
    println!("warm");
    read_line().await;
    let tasks = Handle::current().metrics().num_alive_tasks();
    let (mut times, mut bytes) = (Vec::new(), Vec::new());
    for _ in 0..10 {
        let began = Instant::now();
        rounds(keeper, count / 10).await;
        times.push(began.elapsed().as_micros() / (count as u128 / 10));
        bytes.push(resident_bytes());
    }

    // The task that brought the last answer ends a moment after it.
    let more = || {
        let now = Handle::current().metrics().num_alive_tasks();
        now.saturating_sub(tasks)
    };
    for _ in 0..100 {
        if more() > 0 {
            sleep(Duration::from_millis(10)).await;
        }
    }
    let more = more();
    // What the first half grows by is in part the process's own.
    let grown = bytes[9].saturating_sub(bytes[4]);
    let (first, last) = (times[0], times[9]);
    println!(
        "done locks={count} grown_bytes={grown} tasks_more={more} first_us={first} last_us={last}"
    );
}

async fn rounds(keeper: &Keeper, count: usize) {
    const WORKERS: usize = 10;
    let workers = (0..WORKERS).map(|worker| async move {
        let lock = keeper.mutex(format!("crowd/{worker}")).unwrap();
        for _ in 0..count / WORKERS {
            lock.lock().await.unwrap().release().await.unwrap();
        }
    });
    join_all(workers).await;
}

async fn read_line() {
    let read = || std::io::stdin().read_line(&mut String::new());
    tokio::task::spawn_blocking(read).await.unwrap().unwrap();
}

/// Waits until memory has stopped growing.
async fn settle() {
    let mut last = 0;
    eventually("memory is at rest", Duration::from_secs(20), || {
        let now = resident_bytes();
        let at_rest = now == last;
        last = now;
        async move {
            sleep(Duration::from_millis(300)).await;
            at_rest
        }
    })
    .await;
}

/// Resident memory of this process.
fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: usize = statm.split_whitespace().nth(1).unwrap().parse().unwrap();
    pages * 4096
}
