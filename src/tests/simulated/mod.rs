//! A simulated ZooKeeper: one committed history, and sessions that each read at their own prefix of
//! it.
//!
//! A seed decides every delay, lag and fault. Invariants, the ones that ZooKeeper gives: a
//! session's requests are handled in the order in which they were sent; its prefix only grows,
//! contains its own writes, and reaches the end with a sync; a watch tells before any answer from a
//! later prefix. It knows nothing of locks.

pub(crate) mod session;
mod tests;
pub(crate) mod tree;

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use crate::link::{Code, Link, Opener, Reply};
use session::{SimLink, Watches};
use tree::{Action, Change, Tree};

tokio::task_local! {
    /// Which call of the test a request is made for; the janitor's requests are made for none.
    pub(crate) static CALL: u32;
}

/// Splitmix64: the same seed throws the same numbers. Everybody who throws has dice of his own.
#[derive(Debug, Clone)]
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64, whose: u64) -> Self {
        let mut dice = Self(seed ^ whose.wrapping_mul(0xd134_2543_de82_ef95));
        dice.next();
        dice
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `limit`.
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        let limit = u64::try_from(limit.max(1)).unwrap_or(1);
        usize::try_from(self.next() % limit).unwrap_or(0)
    }

    pub(crate) fn percent(&mut self, chance: usize) -> bool {
        self.below(100) < chance
    }

    pub(crate) fn ms(&mut self, limit: usize) -> Duration {
        Duration::from_millis(u64::try_from(self.below(limit)).unwrap_or(0))
    }
}

/// Who committed something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Author {
    Session(i64),
    /// The server, for a session that expired or was closed.
    End(i64),
    /// Somebody else, who is not one of our sessions.
    Other(&'static str),
}

/// What happened, in the order in which it did.
#[derive(Debug, Clone)]
pub(crate) enum Entry {
    Commit {
        zxid: i64,
        author: Author,
        call: Option<u32>,
        changes: Vec<Change>,
    },
    /// A read was served at a prefix.
    VerifiedRead {
        session: i64,
        call: Option<u32>,
        paths: Vec<String>,
        prefix: i64,
    },
    /// A delete was sent, or has reached its end at the server.
    Deleting {
        session: i64,
        path: String,
        is_over: bool,
    },
    Fault {
        session: i64,
        what: &'static str,
    },
    /// What the test says of its calls.
    Step {
        call: u32,
        step: Step,
    },
}

/// How far a call of the test has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    /// It begins; a steady one never gives its ticket up by itself.
    DeleteProgress { is_steady: bool },
    /// It was granted the ticket with this identity.
    Granted { czxid: i64 },
    /// Its caller is about to let go.
    LetGo,
    /// Its release was confirmed.
    Released,
    /// It was told that its ticket was taken from it.
    PlaceLost,
}

/// The history and everybody who reads it.
#[derive(Debug)]
pub(crate) struct SimWorld {
    history: Mutex<History>,
    head: watch::Sender<i64>,
    next_session: AtomicI64,
    is_stormy: AtomicBool,
    pub(crate) seed: u64,
    /// The chance of a fault for each request in a storm.
    pub(crate) fault_percent: usize,
    started: Instant,
}

#[derive(Debug, Default)]
struct History {
    tree: Tree,
    commits: Vec<Arc<[Change]>>,
    log: Vec<(Duration, Entry)>,
    watches: Vec<(i64, Arc<Watches>)>,
}

impl SimWorld {
    pub(crate) fn new(seed: u64, first_number: i32, fault_percent: usize) -> Arc<Self> {
        let mut history = History::default();
        history.tree.first_number = first_number;
        Arc::new(Self {
            history: Mutex::new(history),
            head: watch::Sender::new(0),
            next_session: AtomicI64::new(1),
            is_stormy: AtomicBool::new(true),
            seed,
            fault_percent,
            started: Instant::now(),
        })
    }

    /// Ends the faults and the long delays.
    pub(crate) fn calm(&self) {
        self.is_stormy.store(false, Ordering::Relaxed);
    }

    pub(crate) fn is_stormy(&self) -> bool {
        self.is_stormy.load(Ordering::Relaxed)
    }

    pub(crate) fn log(&self, entry: Entry) {
        self.history().log.push((self.started.elapsed(), entry));
    }

    pub(crate) fn entries(&self) -> Vec<(Duration, Entry)> {
        self.history().log.clone()
    }

    /// What sessions wrote into nodes that were there.
    pub(crate) fn written(&self) -> Vec<Vec<u8>> {
        let history = self.history();
        let changes = history.log.iter().flat_map(|(_, entry)| match entry {
            Entry::Commit {
                author: Author::Session(_),
                changes,
                ..
            } => &changes[..],
            _ => &[],
        });
        let data = changes.filter_map(|change| match change {
            Change::Set { data, .. } => Some(data.clone()),
            _ => None,
        });
        data.collect()
    }

    /// The tree at the end of the history.
    pub(crate) fn tree(&self) -> Tree {
        self.history().tree.clone()
    }

    /// Watches that are armed on any session.
    pub(crate) fn watch_count(&self) -> usize {
        let history = self.history();
        history
            .watches
            .iter()
            .map(|(_, watches)| watches.count())
            .sum()
    }

    /// Commits all actions or none; a session's nodes are its own.
    pub(crate) fn commit(
        &self,
        author: Author,
        session: i64,
        call: Option<u32>,
        actions: &[Action],
    ) -> Result<Vec<Change>, (usize, Code)> {
        let mut history = self.history();
        let zxid = end_of(&history) + 1;
        let changes = history.tree.plan(actions, session, zxid)?;
        for change in &changes {
            history.tree.apply(change);
        }
        history.commits.push(changes.clone().into());
        // A check alone is a commit without a change.
        if !changes.is_empty() {
            let entry = Entry::Commit {
                zxid,
                author,
                call,
                changes: changes.clone(),
            };
            history.log.push((self.started.elapsed(), entry));
        }
        self.head.send_replace(zxid);
        Ok(changes)
    }

    /// Removes a session's nodes; returns the prefix before that.
    fn end_session(&self, session: i64) -> i64 {
        let before = self.end();
        let own = self.tree().of_session(session);
        let removals: Vec<Action> = own.into_iter().map(Action::delete).collect();
        // They are all there, and have no children.
        self.commit(Author::End(session), session, None, &removals)
            .ok();
        before
    }

    fn end(&self) -> i64 {
        end_of(&self.history())
    }

    fn commits_between(&self, from: i64, to: i64) -> Vec<Arc<[Change]>> {
        let index = |prefix: i64| usize::try_from(prefix).unwrap_or(0);
        self.history().commits[index(from)..index(to)].to_vec()
    }

    fn history(&self) -> MutexGuard<'_, History> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn end_of(history: &History) -> i64 {
    i64::try_from(history.commits.len()).unwrap_or(i64::MAX)
}

/// Opens sessions in a simulated world.
#[derive(Debug, Clone)]
pub(crate) struct SimOpener(pub(crate) Arc<SimWorld>);

impl Opener for SimOpener {
    fn open(&self, _limit: Duration) -> Reply<'static, Arc<dyn Link>> {
        let world = Arc::clone(&self.0);
        Box::pin(async move {
            let id = world.next_session.fetch_add(1, Ordering::Relaxed);
            let (link, watches) = SimLink::start(Arc::clone(&world), id);
            world.history().watches.push((id, watches));
            let link: Arc<dyn Link> = Arc::new(link);
            Ok(link)
        })
    }

    fn servers(&self) -> &'static str {
        "simulated:2181"
    }

    fn chroot(&self) -> &'static str {
        ""
    }

    fn envelope(&self) -> crate::link::size::Envelope {
        crate::link::size::Envelope::default()
    }
}
