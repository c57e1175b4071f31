//! A crowd fights for one lock, some of it is killed, and the server's own counters prove that all
//! went well.
//!
//! `cargo run --release --example demo` in this folder needs no server, no arguments and under ten
//! seconds. Every "process" below is a runtime of its own with its own keeper; killing one drops
//! its runtime, so that it ends without a word to the server, as after `kill -9`. The last line
//! says what happened; the exit code is 1 if any of it is bad.
//!
//! With servers, or the URL of another store, it plays there. Only the embedded server counts
//! wake-ups, so the proof leaves them out then:
//! `cargo run --release --features redis --example demo -- redis://localhost:6379`
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "an example")]

use std::collections::HashSet;
use std::io::IsTerminal;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use lockkeeper::embedded::{EmbeddedServer, NextSibling};
use lockkeeper::{Keeper, Token};
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::sleep;

const GRANTS: u64 = 240;
const PROCESSES: usize = 6;
const WORKERS: usize = 8;
const LOCK: &str = "demo/printer";
/// Short, so that the others need not wait long for a killed process.
const SESSION: Duration = Duration::from_millis(600);
const WORK: Duration = Duration::from_millis(12);

fn main() -> ExitCode {
    let runtime = Runtime::new().unwrap();
    let proof = runtime.block_on(run());
    println!("{}", proof.line());
    if proof.is_good() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

async fn run() -> Proof {
    let (servers, embedded) = match std::env::args().nth(1) {
        Some(servers) => (servers, None),
        None => {
            let server = EmbeddedServer::start().await.unwrap();
            server.journal(100_000);
            (server.connect_string(), Some(server))
        }
    };
    let observer = Keeper::connect(&*servers).await.unwrap();
    println!(
        "{PROCESSES} processes with {WORKERS} workers each want {LOCK:?} on {}",
        observer.engine()
    );
    let ledger = Ledger::new();
    let mut processes: Vec<Process> = (0..PROCESSES)
        .map(|number| Process::start(number, &servers, &ledger))
        .collect();

    let mut kills = vec![GRANTS * 2 / 3, GRANTS / 3];
    let mut round = 0;
    while ledger.granted() < GRANTS {
        sleep(Duration::from_millis(100)).await;
        round += 1;
        // A worker that gives up in the middle of its wait, as a request does whose client went
        // away.
        let process = round % processes.len();
        processes[process].drop_worker(round, &ledger);
        if kills.last().is_some_and(|at| ledger.granted() >= *at) {
            kills.pop();
            let number = processes.len() - 1 - kills.len();
            let fresh = Process::start(PROCESSES + kills.len(), &servers, &ledger);
            let victim = std::mem::replace(&mut processes[number], fresh);
            tokio::task::spawn_blocking({
                let ledger = ledger.clone();
                move || victim.kill(&ledger)
            })
            .await
            .unwrap();
        }
    }
    ledger.view().finish_and_clear();
    for process in processes {
        tokio::task::spawn_blocking(move || process.end())
            .await
            .unwrap();
    }
    let tickets = tickets_left(&observer).await;
    observer.close().await;
    let server = match embedded {
        Some(server) => Some(Counted::at(&server, tickets).await),
        None => None,
    };
    let ledger = ledger.lock();
    println!(
        "{} grants, {} workers dropped in mid-wait, {} processes killed",
        ledger.tokens.len(),
        ledger.dropped,
        ledger.killed,
    );
    Proof {
        grants: ledger.tokens.len(),
        overlaps: ledger.overlaps,
        is_fifo: ledger.tokens.is_sorted_by(|earlier, later| earlier < later),
        wakeups_per_release: server.as_ref().map(|server| server.wakeups_per_release),
        left_behind: server.map_or(tickets, |server| server.left_behind),
    }
}

/// Tickets of killed processes stay until their sessions expire. Servers may grant longer ones
/// than we ask for.
async fn tickets_left(observer: &Keeper) -> u64 {
    let patience = Instant::now() + Duration::from_secs(20);
    loop {
        let tickets = observer.queue(LOCK).await.unwrap().len() as u64;
        if tickets == 0 || Instant::now() > patience {
            return tickets;
        }
        sleep(Duration::from_millis(20)).await;
    }
}

/// What the embedded server has counted.
struct Counted {
    wakeups_per_release: f64,
    left_behind: u64,
}

impl Counted {
    async fn at(server: &EmbeddedServer, tickets: u64) -> Self {
        // Killed processes leave their sessions to the server, which ends them after their timeout.
        let patience = Instant::now() + SESSION * 3;
        while server.counters().sessions > 0 && Instant::now() < patience {
            sleep(Duration::from_millis(20)).await;
        }
        let counters = server.counters();
        // A release is a delete with its mark, in one multi. Its successor was alive if it was
        // connected, and held and released in its turn: one that was just giving up has no watch
        // any more.
        let journal = server.take_journal();
        let releases: Vec<_> = journal.iter().filter(|deleted| deleted.in_multi).collect();
        let released: HashSet<&str> = releases
            .iter()
            .map(|deleted| deleted.path.as_str())
            .collect();
        let is_alive = |next: &NextSibling| next.connected && released.contains(next.path.as_str());
        let with_successor = releases
            .iter()
            .filter(|deleted| deleted.next_sibling.as_ref().is_some_and(is_alive));
        let wakeups: Vec<u32> = with_successor.map(|deleted| deleted.events).collect();
        Self {
            wakeups_per_release: f64::from(wakeups.iter().sum::<u32>()) / wakeups.len() as f64,
            left_behind: tickets + counters.watches + counters.sessions,
        }
    }
}

/// A process of the crowd: a runtime that can be killed, a keeper, and workers that want the lock
/// again and again.
struct Process {
    number: usize,
    runtime: Runtime,
    keeper: Keeper,
    workers: Vec<JoinHandle<()>>,
}

impl Process {
    fn start(number: usize, servers: &str, ledger: &Ledger) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let connect = Keeper::builder(servers).session_timeout(SESSION).connect();
        let keeper = std::thread::scope(|scope| {
            // Not on a thread of the main runtime, which cannot wait for another one.
            scope
                .spawn(|| runtime.block_on(connect))
                .join()
                .unwrap()
                .unwrap()
        });
        let mut process = Self {
            number,
            runtime,
            keeper,
            workers: Vec::new(),
        };
        for worker in 0..WORKERS {
            process.workers.push(process.hire(worker, ledger));
        }
        process
    }

    fn hire(&self, worker: usize, ledger: &Ledger) -> JoinHandle<()> {
        let lock = self
            .keeper
            .mutex(LOCK)
            .unwrap()
            .with_label(format!("worker {worker}"));
        let (who, ledger) = ((self.number, worker), ledger.clone());
        self.runtime.spawn(async move {
            let mut over = ledger.over.subscribe();
            while ledger.granted() < GRANTS {
                let waiting = Waiting::new(&ledger);
                let guard = tokio::select! {
                    guard = lock.lock() => guard.unwrap(),
                    _ = over.wait_for(|over| *over) => return,
                };
                drop(waiting);
                let turn = ledger.enter(who, guard.token());
                sleep(WORK).await;
                if turn == GRANTS {
                    // The last one sends the others home while it still holds, so that there is no
                    // further grant.
                    ledger.over.send_replace(true);
                    while ledger.lock().waiting > 0 {
                        sleep(Duration::from_millis(1)).await;
                    }
                }
                ledger.leave(who);
                guard.release().await.unwrap();
            }
        })
    }

    /// Drops a worker that waits, and hires another one.
    fn drop_worker(&mut self, round: usize, ledger: &Ledger) {
        let worker = round % WORKERS;
        let holds = ledger
            .lock()
            .inside
            .is_some_and(|(process, _)| process == self.number);
        if !holds && !*ledger.over.borrow() {
            self.workers[worker].abort();
            self.workers[worker] = self.hire(worker, ledger);
            ledger.lock().dropped += 1;
        }
    }

    /// Ends without a word to anybody. The server gives the lock on when the session times out.
    fn kill(self, ledger: &Ledger) {
        let number = self.number;
        self.runtime.shutdown_timeout(Duration::from_secs(2));
        drop(self.keeper);
        let mut ledger = ledger.lock();
        ledger.killed += 1;
        if ledger.inside.is_some_and(|(process, _)| process == number) {
            ledger.inside = None;
        }
    }

    /// Ends as a process should.
    fn end(self) {
        self.runtime.block_on(async {
            for worker in self.workers {
                worker.await.ok();
            }
            self.keeper.close().await;
        });
    }
}

/// What happened, written down by those who were inside.
#[derive(Clone)]
struct Ledger {
    inner: Arc<Mutex<Pages>>,
    over: watch::Sender<bool>,
    view: ProgressBar,
}

struct Pages {
    inside: Option<(usize, usize)>,
    tokens: Vec<Token>,
    overlaps: usize,
    waiting: usize,
    dropped: usize,
    killed: usize,
}

impl Ledger {
    fn new() -> Self {
        let on_terminal = std::io::stdout().is_terminal();
        let target = if on_terminal {
            ProgressDrawTarget::stdout()
        } else {
            ProgressDrawTarget::hidden()
        };
        let style = ProgressStyle::with_template("{bar:30.green/dim} {pos:>3}/{len} grants  {msg}")
            .unwrap();
        let view = ProgressBar::with_draw_target(Some(GRANTS), target).with_style(style);
        let pages = Pages {
            inside: None,
            tokens: Vec::new(),
            overlaps: 0,
            waiting: 0,
            dropped: 0,
            killed: 0,
        };
        Self {
            inner: Arc::new(Mutex::new(pages)),
            over: watch::Sender::new(false),
            view,
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Pages> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn view(&self) -> &ProgressBar {
        &self.view
    }

    fn granted(&self) -> u64 {
        self.lock().tokens.len() as u64
    }

    /// A worker is inside; says how many grants there have been.
    fn enter(&self, who: (usize, usize), token: Token) -> u64 {
        let mut pages = self.lock();
        if pages.inside.replace(who).is_some() {
            pages.overlaps += 1;
        }
        pages.tokens.push(token);
        let granted = pages.tokens.len() as u64;
        let (process, worker) = who;
        let now = format!(
            "process {process} worker {worker} holds with token {token}; {} wait, {} dropped, {} killed",
            pages.waiting, pages.dropped, pages.killed,
        );
        if self.view.is_hidden() && granted % 40 == 1 {
            println!("grant {granted}: {now}");
        }
        self.view.set_position(granted);
        self.view.set_message(now);
        granted
    }

    fn leave(&self, who: (usize, usize)) {
        let mut pages = self.lock();
        if pages.inside == Some(who) {
            pages.inside = None;
        } else {
            pages.overlaps += 1;
        }
    }
}

/// Counts a worker as waiting until it is granted, gives up or is dropped.
struct Waiting(Ledger);

impl Waiting {
    fn new(ledger: &Ledger) -> Self {
        ledger.lock().waiting += 1;
        Self(ledger.clone())
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.lock().waiting -= 1;
    }
}

struct Proof {
    grants: usize,
    overlaps: usize,
    is_fifo: bool,
    /// None where nobody counts them.
    wakeups_per_release: Option<f64>,
    left_behind: u64,
}

impl Proof {
    fn line(&self) -> String {
        let fifo = if self.is_fifo { "ok" } else { "broken" };
        let Self {
            grants,
            overlaps,
            wakeups_per_release,
            left_behind,
            ..
        } = self;
        let wakeups = wakeups_per_release.map_or(String::new(), |wakeups| {
            format!(" wakeups_per_release={wakeups:.2}")
        });
        format!(
            "proof: grants={grants} overlaps={overlaps} fifo={fifo}{wakeups} left_behind={left_behind}"
        )
    }

    fn is_good(&self) -> bool {
        self.grants as u64 == GRANTS
            && self.overlaps == 0
            && self.is_fifo
            && self
                .wakeups_per_release
                .is_none_or(|wakeups| (wakeups - 1.0).abs() < 0.005)
            && self.left_behind == 0
    }
}
