//! The events that clients, the store and the fault injector log, and the clock that they share.
//!
//! One JSON line for each event. Times come from the machine's clock that counts suspended time
//! too, so the lines of several processes can be ordered. Nothing is judged here.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};

/// Nanoseconds since the machine started.
pub type Nanos = u64;

pub fn now() -> Nanos {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    u64::try_from(now.tv_sec).expect("after the start") * 1_000_000_000
        + u64::try_from(now.tv_nsec).expect("a part of a second")
}

/// One line of the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    pub t_ns: Nanos,
    pub client: String,
    pub lock: String,
    #[serde(flatten)]
    pub what: What,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum What {
    /// A call for the lock begins; it promises to end within that time.
    Asked {
        attempt: u64,
        within_ns: Option<Nanos>,
    },
    /// The call has a place in the queue: a later call comes later.
    Queued {
        attempt: u64,
    },
    /// The call ended with a guard. `held` is the guard's answer right after `t_ns` was read. It
    /// can be false if the process was stopped between the grant and its log line.
    Granted {
        attempt: u64,
        token: u64,
        held: bool,
    },
    /// What is granted next takes so many of so many parts of the lock, which several may hold.
    /// Such a guard has no token; its number is another one for each.
    Shares {
        token: u64,
        takes: u64,
        of: u64,
    },
    /// The call ended without a guard.
    Failed {
        attempt: u64,
        why: String,
    },
    /// The call was dropped.
    Cancelled {
        attempt: u64,
    },
    /// The guard's answer whether it is held. `t_ns` was read before it. `until_ns` is the end of
    /// the lease as the guard reported it, by a clock that was read afterwards.
    HeldSeen {
        token: u64,
        held: bool,
        until_ns: Option<Nanos>,
    },
    /// The guard's `lost()` resolved.
    Lost {
        token: u64,
    },
    /// The store was asked to write.
    Write {
        token: u64,
        accepted: bool,
    },
    /// A release begins.
    Releasing {
        token: u64,
    },
    /// It ended.
    Released {
        token: u64,
        outcome: Outcome,
    },
    /// A fault begins.
    Fault {
        kind: String,
    },
    /// The faults have ended.
    Healed,
    /// The servers end a session early. Who has a ticket with one of these tokens may learn of it
    /// this much later; until then it may even be granted, from an answer of before.
    Revoked {
        tokens: Vec<u64>,
        within_ns: Nanos,
    },
    /// The machine kept a thread of this client from running, for so long until now.
    Stalled {
        for_ns: Nanos,
    },
    /// The process of this client was stopped, went on, was killed.
    Stopped,
    Continued,
    Killed,
    /// At rest: the tickets in the lock's directory, and the guards and waiters that are alive.
    Rest {
        tickets: u64,
        live: u64,
    },
    /// The watches that the servers keep for us, before anything and at rest.
    Watches {
        before: u64,
        after: u64,
    },
}

/// How a release ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The server has removed our ticket.
    Done,
    /// The hold had ended before.
    Lost,
    /// The outcome is unknown.
    Unknown,
}

/// Writes a client's lines, each with one call, so that a killed process leaves whole lines.
#[derive(Clone, Debug)]
pub struct Log {
    file: Arc<Mutex<File>>,
    client: String,
    lock: String,
}

impl Log {
    /// Appends to a file.
    pub fn open(path: &Path, client: &str, lock: &str) -> io::Result<Self> {
        let file = File::options().create(true).append(true).open(path)?;
        Ok(Self {
            file: Arc::new(Mutex::new(file)),
            client: client.to_owned(),
            lock: lock.to_owned(),
        })
    }

    /// The same log, as another client writes it.
    pub fn of(&self, client: &str) -> Self {
        Self {
            client: client.to_owned(),
            ..self.clone()
        }
    }

    pub fn note(&self, what: What) {
        self.note_at(now(), what);
    }

    pub fn note_at(&self, t_ns: Nanos, what: What) {
        self.note_of(t_ns, &self.client, what);
    }

    /// Notes something about another client.
    pub fn note_of(&self, t_ns: Nanos, client: &str, what: What) {
        let event = Event {
            t_ns,
            client: client.to_owned(),
            lock: self.lock.clone(),
            what,
        };
        let mut line = serde_json::to_vec(&event).expect("an event is JSON");
        line.push(b'\n');
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        file.write_all(&line).expect("the log takes a line");
    }
}

/// All whole lines of a log, in the order of their time. Lines of the same time keep their order.
pub fn read(path: &Path) -> Vec<Event> {
    Tail::of(path).more()
}

/// Reads what is added to a log. Whoever waits for a line reads each once: a log grows for as long
/// as one waits, and whoever reads all of it again and again keeps the clients from running.
#[derive(Debug)]
pub struct Tail {
    log: BufReader<File>,
    /// Of a line whose end was not there yet.
    begun: Vec<u8>,
}

impl Tail {
    /// From its first line.
    pub fn of(path: &Path) -> Self {
        let file = File::open(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        Self {
            log: BufReader::new(file),
            begun: Vec::new(),
        }
    }

    /// From here on.
    pub fn at_its_end(path: &Path) -> Self {
        let mut tail = Self::of(path);
        tail.more();
        tail
    }

    /// All whole lines that are new, as [`read`] has them.
    pub fn more(&mut self) -> Vec<Event> {
        let mut events = Vec::new();
        loop {
            let read = self.log.read_until(b'\n', &mut self.begun);
            read.expect("a log can be read");
            let Some(line) = self.begun.strip_suffix(b"\n") else {
                break;
            };
            let event: Result<Event, _> = serde_json::from_slice(line);
            events.push(event.unwrap_or_else(|error| panic!("{}: {error}", line.escape_ascii())));
            self.begun.clear();
        }
        events.sort_by_key(|event| event.t_ns);
        events
    }
}
