//! The one who asks the servers. It lists the locks, and reads their queues in rounds.
//!
//! Invariant: on average it sends no more requests a second than it may, and a tenth of that while
//! nobody looks; the library does not tell how many directories without tickets a list has read.
//! All reads of one round are before all reads of the next. What is looked at, and what has changed
//! its length, is read first.

use std::collections::{BTreeSet, HashMap};
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures_util::stream::{self, StreamExt};
use lockkeeper::{Keeper, LockName, LockSummary, QueueEntry};
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use super::desk::Desk;
use super::picture::Picture;
use super::visit::Visit;
use crate::args::{Server, Ui};
use crate::doctor::{self, Finding, Queue};
use crate::failure::Failure;
use crate::journal::{self, Story};
use crate::look;
use crate::report;

/// Between two looks while somebody looks, and while nobody does.
const PAUSE: Duration = Duration::from_secs(1);
const IDLE: Duration = Duration::from_secs(10);
/// The doctor comes no more often.
const BETWEEN_VISITS: Duration = Duration::from_secs(10);
/// A journal is read again after that.
const BETWEEN_JOURNALS: Duration = Duration::from_secs(5);
/// So many queues are read at the same time.
const AT_ONCE: usize = 16;
/// The nodes that one request reads.
const NODES: usize = 100;

pub(super) struct Reader {
    server: Server,
    keeper: Keeper,
    requests: u32,
    many: usize,
    desk: Arc<Desk>,
    publish: watch::Sender<Arc<Picture>>,
    picture: Picture,
    round: Round,
    /// The queues at the end of the round before.
    before: Option<Vec<Queue>>,
    visit: Option<Visit>,
    visited: Option<Instant>,
    /// When the journals of locks were read.
    journals: HashMap<String, Instant>,
}

/// What has been read since the last time that everything had been read.
struct Round {
    began: Instant,
    read: BTreeSet<String>,
    /// Directories and queues that may not be read, and why.
    denied: Vec<String>,
    open: Vec<Finding>,
}

/// What was read of one queue.
struct Read {
    name: String,
    queue: Result<Vec<QueueEntry>, lockkeeper::Error>,
    open: Result<Vec<Finding>, lockkeeper::Error>,
}

/// What is read next.
struct Choice {
    /// What access lists cost, for each lock.
    lists: u32,
    room: u32,
    chosen: HashMap<String, u32>,
}

impl Choice {
    fn take<'a>(&mut self, locks: impl Iterator<Item = &'a LockSummary>) {
        // Whatever the first one costs, it comes to its turn.
        let mut is_first = true;
        for lock in locks {
            let cost = 3 + requests(lock.tickets) + self.lists;
            if cost > self.room && !is_first {
                break;
            }
            is_first = false;
            if !self.chosen.contains_key(&lock.name) {
                self.room = self.room.saturating_sub(cost);
                self.chosen.insert(lock.name.clone(), cost);
            }
        }
    }
}

impl Round {
    fn begin() -> Self {
        Self {
            began: Instant::now(),
            read: BTreeSet::new(),
            denied: Vec::new(),
            open: Vec::new(),
        }
    }
}

impl Reader {
    pub(super) fn new(
        server: &Server,
        order: &Ui,
        keeper: Keeper,
        desk: Arc<Desk>,
        publish: watch::Sender<Arc<Picture>>,
    ) -> Self {
        Self {
            server: server.clone(),
            keeper,
            requests: order.requests,
            many: order.many,
            desk,
            publish,
            picture: Picture::default(),
            round: Round::begin(),
            before: None,
            visit: None,
            visited: None,
            journals: HashMap::new(),
        }
    }

    /// Reads for ever.
    pub(super) async fn read(mut self) {
        loop {
            let mut cost = 0;
            let limit = self.server.read_timeout;
            let looked = look::within(limit, self.look(&mut cost)).await;
            self.picture.error = looked.err().map(|failure| report::in_one_line(&failure));
            self.publish.send_replace(Arc::new(self.picture.clone()));
            let owed = Duration::from_secs_f64(f64::from(cost) / f64::from(self.requests));
            sleep(owed.max(PAUSE)).await;
            if !self.desk.is_looked_at() {
                let idle = sleep(IDLE.saturating_sub(PAUSE).max(owed * 9));
                tokio::select! {
                    () = idle => {}
                    () = self.desk.somebody_comes() => {}
                }
            }
        }
    }

    /// One look at the locks, and at as many queues as may be read.
    async fn look(&mut self, cost: &mut u32) -> Result<(), Failure> {
        *cost = 3;
        let locks = self.keeper.locks().await?;
        *cost += requests(locks.len());
        let names = locks.iter().map(|lock| &*lock.name).collect();
        self.picture.keep(&names);
        self.picture.read = Some(SystemTime::now());
        for lock in locks.iter().filter(|lock| lock.is_denied) {
            self.picture.put(&lock.name, Arc::default(), true);
            if self.round.read.insert(lock.name.clone()) {
                let why = format!("the directory of {} may not be read", lock.name);
                self.round.denied.push(why);
            }
        }
        let watched = self.desk.watched();
        let chosen = self.chosen(&locks, &watched, self.requests.saturating_sub(*cost));
        self.read_queues(chosen, cost).await?;
        self.read_journals(watched, cost).await;
        if locks
            .iter()
            .all(|lock| self.round.read.contains(&lock.name))
        {
            self.end_round(cost).await;
        }
        Ok(())
    }

    /// The queues to read now, with what they cost: as many as there is room for.
    /// Half of the room is for what is looked at and for what has changed its length. The rest is
    /// for what was not read in this round, so that each round ends.
    fn chosen(&self, locks: &[LockSummary], watched: &[String], room: u32) -> Vec<(String, u32)> {
        let has_changed = |lock: &&LockSummary| {
            let known = self.picture.rows.get(&lock.name);
            known.is_none_or(|row| !row.is_denied && row.queue.len() != lock.tickets)
        };
        let may_be_read = || locks.iter().filter(|lock| !lock.is_denied);
        let is_watched = |lock: &&LockSummary| watched.contains(&lock.name);
        let is_unread = |lock: &&LockSummary| !self.round.read.contains(&lock.name);
        let first = may_be_read().filter(is_watched);
        let changed = may_be_read().filter(|lock| has_changed(lock) && !is_watched(lock));
        let mut choice = Choice {
            lists: 3 * u32::from(self.desk.are_findings_looked_at()),
            room: room / 2,
            chosen: HashMap::new(),
        };
        choice.take(first.chain(changed));
        choice.room += room.div_ceil(2);
        choice.take(may_be_read().filter(is_unread));
        choice.chosen.into_iter().collect()
    }

    async fn read_queues(
        &mut self,
        chosen: Vec<(String, u32)>,
        cost: &mut u32,
    ) -> Result<(), Failure> {
        let with_lists = self.desk.are_findings_looked_at();
        let keeper = self.keeper.clone();
        *cost += chosen.iter().map(|(_, cost)| cost).sum::<u32>();
        let reads = stream::iter(chosen).map(|(name, _)| read(&keeper, name, with_lists));
        let mut reads = pin!(reads.buffer_unordered(AT_ONCE));
        while let Some(Read { name, queue, open }) = reads.next().await {
            let is_first = !self.round.read.contains(&name);
            match queue {
                Err(error) if error.is_denied() => {
                    self.picture.put(&name, Arc::default(), true);
                    self.deny(is_first, &error);
                }
                queue => self.picture.put(&name, Arc::new(queue?), false),
            }
            match open {
                Err(error) if error.is_denied() => self.deny(is_first, &error),
                open if is_first => self.round.open.extend(open?),
                _ => {}
            }
            self.round.read.insert(name);
        }
        Ok(())
    }

    fn deny(&mut self, is_first: bool, error: &lockkeeper::Error) {
        if is_first {
            self.round.denied.push(error.to_string());
        }
    }

    /// The journals of the locks that are looked at.
    async fn read_journals(&mut self, watched: Vec<String>, cost: &mut u32) {
        let is_watched = |name: &String| watched.contains(name);
        self.journals.retain(|name, _| is_watched(name));
        self.picture.journals.retain(|name, _| is_watched(name));
        let is_due = |name: &String| {
            let read = self.journals.get(name);
            read.is_none_or(|read| read.elapsed() >= BETWEEN_JOURNALS)
        };
        let due: Vec<String> = watched.into_iter().filter(is_due).collect();
        // Three looks at the most, each at the journal and the queue.
        *cost += 3 * 5 * u32::try_from(due.len()).unwrap_or(u32::MAX);
        let keeper = self.keeper.clone();
        let reads = stream::iter(due).map(async |name| {
            let entries = entries(&keeper, &name).await;
            (name, entries)
        });
        let mut reads = pin!(reads.buffer_unordered(AT_ONCE));
        while let Some((name, entries)) = reads.next().await {
            self.picture.put_journal(&name, entries);
            self.journals.insert(name, Instant::now());
        }
    }

    /// Everything has been read since the last time: the doctor can compare.
    async fn end_round(&mut self, cost: &mut u32) {
        let rows = self.picture.rows.iter();
        let now: Vec<Queue> = rows
            .map(|(name, row)| (name.clone(), row.queue.clone()))
            .collect();
        let before = self.before.take().unwrap_or_default();
        self.picture.mark(doctor::lasting_circles(&before, &now));
        self.picture.round = Some(self.round.began.elapsed());
        let Round { denied, open, .. } = std::mem::replace(&mut self.round, Round::begin());
        if let Some(visit) = self.visit.take() {
            let mut examined = visit.compare(&before, &now, self.many);
            examined.findings.extend(open);
            examined.findings.sort();
            examined.unchecked.extend(denied);
            self.picture.examined = Some(Arc::new(examined));
            self.picture.next();
        }
        let is_due = self.visited.is_none_or(|at| at.elapsed() >= BETWEEN_VISITS);
        if is_due && self.desk.are_findings_looked_at() {
            *cost += 5;
            self.visit = Some(Visit::pay(&self.server, &self.keeper, &now).await);
            self.visited = Some(Instant::now());
        } else if is_due && self.picture.examined.take().is_some() {
            // Nobody looks: what was found grows old.
            self.picture.next();
        }
        self.before = Some(now);
    }
}

async fn read(keeper: &Keeper, name: String, with_lists: bool) -> Read {
    let queue = keeper.queue(&*name).await;
    let open = match with_lists {
        true => doctor::open_nodes(keeper, &name).await,
        false => Ok(Vec::new()),
    };
    Read { name, queue, open }
}

async fn entries(keeper: &Keeper, name: &str) -> Result<Vec<Value>, String> {
    let name = LockName::new(name).map_err(|error| error.to_string())?;
    let story = Story::read(keeper, &name).await;
    let entries = story.journal.as_ref().map_err(ToString::to_string)?;
    Ok(entries
        .iter()
        .map(|entry| journal::object(entry, &story))
        .collect())
}

/// So many requests read so many nodes.
fn requests(nodes: usize) -> u32 {
    u32::try_from(nodes.div_ceil(NODES)).unwrap_or(u32::MAX)
}
