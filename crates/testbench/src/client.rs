//! Clients in processes of their own, which can be stopped, continued and killed; and in tasks of
//! the case. This side starts and controls them.
//!
//! The process is this test binary again, as in `tests/cost/scale.rs`; its code is in `child`.
//! No client outlives the case that started it.

pub mod child;
mod held;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};
use tempfile::TempDir;
use tokio::process::{Child, Command};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::checker::{Accepted, History};
use super::events::{self, Event, Log, Tail, What};
use super::eventually;
use super::store::{Fence, Store};

/// How a client takes its turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Recipe {
    Mutex,
    Read,
    Write,
    /// One permit of so many.
    Permit(u32),
    Leader,
    /// Two locks at once, whose names begin with that of the lock.
    Set,
}

/// The loop of a client, which runs until it is told to end: lock, hold and write to the store,
/// release.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Order {
    pub name: String,
    pub connect_string: String,
    pub lock: String,
    pub recipe: Recipe,
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
            recipe: Recipe::Mutex,
            session_timeout: self.session_timeout,
            store: self.store.address(),
            log: self.path(),
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
        let child = command.spawn().expect("this binary starts again");
        self.client(order, Body::Process(Box::new(child)))
    }

    /// The same in a task of the case.
    pub fn spawn(&self, order: &Order) -> Process {
        let (tell, told) = watch::channel(false);
        let order = order.clone();
        let name = order.clone();
        let task = tokio::spawn(async move { child::live(&order, told).await });
        self.client(&name, Body::Task(tell, task))
    }

    fn client(&self, order: &Order, body: Body) -> Process {
        Process {
            body,
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
        events::read(&self.path())
    }

    /// What the log gets from now on.
    pub fn tail(&self) -> Tail {
        Tail::at_its_end(&self.path())
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("log")
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
        let mut tail = Tail::of(&self.path());
        let seen = || std::future::ready(tail.more().into_iter().find(|event| is(event)));
        eventually(what, within, seen).await
    }
}

impl Drop for Fleet {
    /// Keeps the log of a failed case, and prints its path.
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.folder.disable_cleanup(true);
            println!("the log is {}", self.path().display());
        }
    }
}

/// One client.
#[derive(Debug)]
pub struct Process {
    body: Body,
    name: String,
    log: Log,
}

#[derive(Debug)]
enum Body {
    Process(Box<Child>),
    Task(watch::Sender<bool>, JoinHandle<()>),
}

impl Drop for Body {
    fn drop(&mut self) {
        if let Self::Task(_, task) = self {
            task.abort();
        }
    }
}

impl Process {
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether it can be killed, but not stopped.
    pub fn is_task(&self) -> bool {
        matches!(self.body, Body::Task(..))
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

    /// Kills it with SIGKILL, and waits for its end. A task is dropped where it is.
    pub async fn kill(mut self) {
        match &mut self.body {
            Body::Process(child) => child.kill().await.expect("it ends"),
            Body::Task(_, task) => {
                task.abort();
                let ended = task.await;
                assert!(ended.is_ok() || ended.is_err_and(|error| error.is_cancelled()));
            }
        }
        self.note(What::Killed);
    }

    /// Tells it to release and end, and waits for that.
    pub async fn ends(mut self, within: Duration) {
        let name = &self.name;
        let ended = tokio::time::timeout(within, async {
            match &mut self.body {
                Body::Process(child) => {
                    drop(child.stdin.take());
                    let status = child.wait().await.expect("a child is waited for");
                    assert!(status.success(), "{name} ended with {status}");
                }
                Body::Task(tell, task) => {
                    tell.send_replace(true);
                    task.await.expect("the task ends well");
                }
            }
        });
        let ended = ended.await;
        ended.unwrap_or_else(|_| panic!("{name} does not end within {within:?}"));
    }

    fn note(&self, what: What) {
        self.log.note_of(events::now(), &self.name, what);
    }

    fn signal(&self, signal: Signal) {
        let Body::Process(child) = &self.body else {
            panic!("a task is not stopped");
        };
        let id = child.id().expect("it runs") as i32;
        kill_process(Pid::from_raw(id).expect("a process"), signal).expect("the signal is sent");
    }
}
