//! What is on a page of the journal: a line for each hold. (pure)
//!
//! Invariant: a page never grows past its bounds, and other data is never taken for a page.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::brief::{Brief, shows};
use crate::protocol::kind::LockKind;
use crate::token::Token;

/// Servers take a megabyte, and every write sends the whole page.
const MOST_BYTES: usize = 256 * 1024;

/// One hold of a lock, as [`Keeper::journal`](crate::Keeper::journal) shows it.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct JournalEntry {
    /// The fencing token of an exclusive hold. Of a guest it is its host's.
    pub token: Token,
    /// The identity of its ticket: the [`QueueEntry::token`](crate::QueueEntry::token) of that.
    pub ticket: Token,
    /// The name of its node.
    pub node: String,
    /// What was held.
    pub kind: LockKind,
    /// The owner's name, if one was given.
    pub owner: Option<String>,
    /// The label, if one was given.
    pub label: Option<String>,
    /// The holder's host.
    pub host: String,
    /// The holder's process.
    pub pid: u32,
    /// When it was granted, by the host's clock.
    pub since: SystemTime,
    /// How long it waited.
    pub waited: Duration,
    /// From the grant until the release or drop of its guard, which may be long after a loss.
    /// `None` until then.
    pub held: Option<Duration>,
    /// How it ended. `None` if that is not written: it is still held; it is lost, and its guard
    /// still lives; or its process died, was cut off for good, or could not write.
    pub outcome: Option<HoldOutcome>,
}

// Without the owner's name, which is a secret: it lets its bearer in.
shows!(|entry| JournalEntry {
    token: entry.token,
    kind: entry.kind,
    host: Brief(&entry.host),
    pid: entry.pid,
    outcome: entry.outcome,
});

/// How a hold ended.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum HoldOutcome {
    /// Its guard was released.
    Released,
    /// Its guard was dropped; or its place was kept for other tasks of its keeper
    /// ([`Mutex::with_linger`](crate::Mutex::with_linger)), and none came.
    Dropped,
    /// It was lost, for this reason.
    Lost(String),
    /// A word of a later version of this library.
    Other(String),
}

impl fmt::Debug for HoldOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Released => f.write_str("Released"),
            Self::Dropped => f.write_str("Dropped"),
            Self::Lost(why) => write!(f, "Lost({:?})", Brief(why)),
            Self::Other(word) => write!(f, "Other({:?})", Brief(word)),
        }
    }
}

impl HoldOutcome {
    /// A word, and why.
    fn to_words(&self) -> (String, Option<String>) {
        match self {
            Self::Released => ("released".into(), None),
            Self::Dropped => ("dropped".into(), None),
            Self::Lost(why) => ("lost".into(), Some(why.clone())),
            Self::Other(word) => (word.clone(), None),
        }
    }

    fn of_words(word: String, why: Option<String>) -> Self {
        match &*word {
            "released" => Self::Released,
            "dropped" => Self::Dropped,
            "lost" => Self::Lost(why.unwrap_or_default()),
            _ => Self::Other(word),
        }
    }
}

impl fmt::Display for HoldOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Released => f.write_str("released"),
            Self::Dropped => f.write_str("dropped"),
            Self::Lost(why) => write!(f, "lost: {why}"),
            Self::Other(word) => f.write_str(word),
        }
    }
}

/// A hold as it is stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PageLine {
    /// Of the hold: it may go on under another ticket, and guests have the token of their host.
    pub(crate) id: Uuid,
    pub(crate) token: i64,
    pub(crate) ticket: i64,
    pub(crate) node: String,
    pub(crate) kind: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) owner: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) label: Option<String>,
    pub(crate) host: String,
    pub(crate) pid: u32,
    pub(crate) since_ms: u64,
    pub(crate) waited_ms: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) held_ms: Option<u64>,
    /// A word, so that those of later versions can be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ending: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) why: Option<String>,
}

impl PageLine {
    pub(crate) fn ended(mut self, held: Duration, outcome: HoldOutcome) -> Self {
        self.held_ms = Some(ms(held));
        let (word, why) = outcome.to_words();
        (self.ending, self.why) = (Some(word), why);
        self
    }

    fn entry(self) -> JournalEntry {
        JournalEntry {
            token: Token::new(self.token),
            ticket: Token::new(self.ticket),
            node: self.node,
            kind: LockKind::of_word(self.kind),
            owner: self.owner,
            label: self.label,
            host: self.host,
            pid: self.pid,
            since: time(self.since_ms).unwrap_or(UNIX_EPOCH),
            waited: Duration::from_millis(self.waited_ms),
            held: self.held_ms.map(Duration::from_millis),
            outcome: self
                .ending
                .map(|word| HoldOutcome::of_words(word, self.why)),
        }
    }
}

/// The last holds of one lock, the oldest first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Page(Vec<PageLine>);

impl Page {
    /// A page has a line of JSON for each hold. Other data is not a page.
    pub(crate) fn parse(data: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(data).ok()?;
        let lines = text.lines().map(serde_json::from_str);
        lines.collect::<Result<_, _>>().ok().map(Self)
    }

    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let lines = self
            .0
            .iter()
            .map(|line| serde_json::to_string(line).unwrap_or_default());
        lines.collect::<Vec<_>>().join("\n").into_bytes()
    }

    /// Puts a hold at its place in the order of grants, or its end beside its beginning. Holds of
    /// one token are mostly of one owner or one process.
    pub(crate) fn put(&mut self, line: PageLine) {
        match self.0.iter_mut().find(|there| there.id == line.id) {
            // An ended hold does not begin again.
            Some(there) if there.ending.is_some() && line.ending.is_none() => {}
            Some(there) => *there = line,
            None => self.0.push(line),
        }
        self.0.sort_by_key(|line| (line.token, line.since_ms));
    }

    pub(crate) fn put_all(&mut self, other: &Self) {
        for line in &other.0 {
            self.put(line.clone());
        }
    }

    /// Removes the oldest holds beyond so many.
    pub(crate) fn cut(&mut self, most: usize) {
        let over = self.0.len().saturating_sub(most);
        self.0.drain(..over);
    }

    /// Removes the oldest holds until the page is small enough for the servers.
    pub(crate) fn fit(&mut self) {
        let mut room = MOST_BYTES;
        let fits = |line: &&PageLine| {
            let text = serde_json::to_string(line).unwrap_or_default();
            let left = room.checked_sub(text.len() + 1);
            room = left.unwrap_or_default();
            left.is_some()
        };
        let kept = self.0.iter().rev().take_while(fits).count();
        self.0.drain(..self.0.len() - kept);
    }

    pub(crate) fn entries(self) -> Vec<JournalEntry> {
        self.0.into_iter().map(PageLine::entry).collect()
    }
}

/// The milliseconds of a duration.
pub(crate) fn ms(long: Duration) -> u64 {
    u64::try_from(long.as_millis()).unwrap_or(u64::MAX)
}

/// The moment so many milliseconds after the Unix epoch, if the platform can say it.
pub(crate) fn time(since_ms: u64) -> Option<SystemTime> {
    UNIX_EPOCH.checked_add(Duration::from_millis(since_ms))
}

/// Where the journal of the locks below a root is.
pub(crate) fn base(root: &str) -> String {
    match root {
        "/" => "/lockkeeper-journal".into(),
        root => format!("{root}-journal"),
    }
}

#[cfg(test)]
mod tests;
