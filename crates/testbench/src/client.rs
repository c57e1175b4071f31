//! Clients in processes of their own, which can be stopped, continued and killed. This side starts
//! and controls them.
//!
//! The process is this test binary again, as in `tests/cost/scale.rs`; its code is in `child`.
//! No process outlives the case that started it.

pub mod child;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};
use tempfile::TempDir;
use tokio::process::{Child, Command};

use super::checker::{Accepted, History};
use super::events::{self, Event, Log, What};
use super::eventually;
use super::store::{Fence, Store};

/// The loop of a client, which runs until it is told to end: lock, hold and write to the store,
/// release.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Order {
    pub name: String,
    pub connect_string: String,
    pub lock: String,
    pub session_timeout: Duration,
    pub store: SocketAddr,
    pub log: PathBuf,
    /// A call for the lock is given up after this time.
    pub patience: Option<Duration>,
    /// The work between the check of the guard and the write, when a pause does harm.
    pub work: Duration,
    /// Writes for each hold. Without a number, it holds until it loses the lock or is told to end.
    pub writes: Option<u64>,
    /// Between a hold and the next call.
    pub pause: Duration,
}

/// Clients of one lock, their log and their store.
#[derive(Debug)]
pub struct Fleet {
    folder: TempDir,
    store: Store,
    lock: String,
    connect_string: String,
    session_timeout: Duration,
    log: Log,
}

impl Fleet {
    pub async fn new(
        connect_string: String,
        lock: &str,
        session_timeout: Duration,
        fence: Fence,
    ) -> Self {
        let folder = tempfile::Builder::new()
            .prefix("lockkeeper-it-")
            .tempdir()
            .expect("a temporary folder");
        let log = Log::open(&folder.path().join("log"), "bench", lock).expect("a log");
        Self {
            folder,
            store: Store::start(fence).await,
            lock: lock.to_owned(),
            connect_string,
            session_timeout,
            log,
        }
    }

    /// An order for a client of this fleet, which writes every 10 ms, three times for each hold.
    pub fn order(&self, name: &str) -> Order {
        Order {
            name: name.to_owned(),
            connect_string: self.connect_string.clone(),
            lock: self.lock.clone(),
            session_timeout: self.session_timeout,
            store: self.store.address(),
            log: self.folder.path().join("log"),
            patience: None,
            work: Duration::from_millis(10),
            writes: Some(3),
            pause: Duration::ZERO,
        }
    }

    pub fn start(&self, order: &Order) -> Process {
        let order_json = serde_json::to_string(order).expect("an order is JSON");
        let mut command = Command::new(std::env::current_exe().expect("this binary"));
        command.env(child::ORDER, order_json);
        command.stdin(Stdio::piped()).kill_on_drop(true);
        Process {
            child: command.spawn().expect("this binary starts again"),
            name: order.name.clone(),
            log: self.log.clone(),
        }
    }

    pub fn log(&self) -> &Log {
        &self.log
    }

    pub fn store(&self) -> &Store {
        &self.store
    }

    pub fn events(&self) -> Vec<Event> {
        events::read(&self.folder.path().join("log"))
    }

    /// The history so far.
    pub fn history(&self) -> History {
        let accepted: Vec<Accepted> = self.store.accepted();
        History {
            events: self.events(),
            accepted,
        }
    }

    /// Waits until the log has a matching event, and returns the first.
    pub async fn sees(&self, what: &str, within: Duration, is: impl Fn(&Event) -> bool) -> Event {
        let seen = || async { self.events().into_iter().find(|event| is(event)) };
        eventually(what, within, seen).await
    }
}

impl Drop for Fleet {
    /// Keeps the log of a failed case, and prints its path.
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.folder.disable_cleanup(true);
            println!("the log is {}", self.folder.path().join("log").display());
        }
    }
}

/// One client process.
#[derive(Debug)]
pub struct Process {
    child: Child,
    name: String,
    log: Log,
}

impl Process {
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Stops it with SIGSTOP.
    pub fn stop(&self) {
        self.note(What::Stopped);
        self.signal(Signal::STOP);
    }

    /// Lets it go on.
    pub fn go_on(&self) {
        self.note(What::Continued);
        self.signal(Signal::CONT);
    }

    /// Kills it with SIGKILL, and waits for its end.
    pub async fn kill(mut self) {
        self.child.kill().await.expect("it ends");
        self.note(What::Killed);
    }

    /// Tells it to release and end, and waits for that.
    pub async fn ends(mut self, within: Duration) {
        drop(self.child.stdin.take());
        let ended = tokio::time::timeout(within, self.child.wait()).await;
        let status = ended
            .unwrap_or_else(|_| panic!("{} does not end within {within:?}", self.name))
            .expect("a child is waited for");
        assert!(status.success(), "{} ended with {status}", self.name);
    }

    fn note(&self, what: What) {
        self.log.note_of(events::now(), &self.name, what);
    }

    fn signal(&self, signal: Signal) {
        let id = self.child.id().expect("it runs") as i32;
        kill_process(Pid::from_raw(id).expect("a process"), signal).expect("the signal is sent");
    }
}
