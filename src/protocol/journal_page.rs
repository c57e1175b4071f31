//! What is on a page of the journal: a line for each hold. (pure)
//!
//! Invariant: a page never grows past its bounds, and what is not a page is never taken for one.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::brief::Brief;
use crate::token::Token;

/// Servers take a megabyte, and every write sends the whole page.
const MOST_BYTES: usize = 256 * 1024;

/// One hold of a lock, as [`Keeper::journal`](crate::Keeper::journal) shows it.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct JournalEntry {
    /// The fencing token of an exclusive hold. Of a guest it is its host's.
    pub token: Token,
    /// The identity of its ticket, which [`QueueEntry::token`](crate::QueueEntry::token) shows
    /// while it is there.
    pub ticket: Token,
    /// The name of its node.
    pub node: String,
    /// What it was for: `lock`, `read`, `write`, `lead` or `permit`.
    pub kind: String,
    /// The owner's name, if one was given.
    pub owner: Option<String>,
    /// The label, if one was given.
    pub label: Option<String>,
    /// The holder's host.
    pub host: String,
    /// The holder's process.
    pub pid: u32,
    /// When it was granted, by the host's clock, in milliseconds since the Unix epoch.
    pub since_ms: u64,
    /// How long it waited.
    pub waited: Duration,
    /// From the grant until its guard was released or dropped, which may be long after a loss; none
    /// as long as its end is not known.
    pub held: Option<Duration>,
    /// How it ended. None if nobody wrote that: it is still held; it is lost, and its guard still
    /// there; or its process died, was cut off for good, or could not write.
    pub ending: Option<Ending>,
}

/// Without the owner's name, which lets in whoever says it.
impl fmt::Debug for JournalEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JournalEntry")
            .field("token", &self.token)
            .field("kind", &Brief(&self.kind))
            .field("host", &Brief(&self.host))
            .field("pid", &self.pid)
            .field("ending", &self.ending)
            .finish_non_exhaustive()
    }
}

/// How a hold ended.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ending {
    /// Its guard was released.
    Released,
    /// Its guard was dropped; or its place was kept for others of its process
    /// ([`Mutex::linger`](crate::Mutex::linger)), and nobody came.
    Dropped,
    /// It was lost, and why.
    Lost(String),
    /// In a word of a later version.
    Other(String),
}

impl fmt::Debug for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Released => f.write_str("Released"),
            Self::Dropped => f.write_str("Dropped"),
            Self::Lost(why) => write!(f, "Lost({:?})", Brief(why)),
            Self::Other(word) => write!(f, "Other({:?})", Brief(word)),
        }
    }
}

impl Ending {
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

impl fmt::Display for Ending {
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
    pub(crate) fn ended(mut self, held: Duration, ending: Ending) -> Self {
        self.held_ms = Some(u64::try_from(held.as_millis()).unwrap_or(u64::MAX));
        let (word, why) = ending.to_words();
        (self.ending, self.why) = (Some(word), why);
        self
    }

    fn entry(self) -> JournalEntry {
        JournalEntry {
            token: Token::new(self.token),
            ticket: Token::new(self.ticket),
            node: self.node,
            kind: self.kind,
            owner: self.owner,
            label: self.label,
            host: self.host,
            pid: self.pid,
            since_ms: self.since_ms,
            waited: Duration::from_millis(self.waited_ms),
            held: self.held_ms.map(Duration::from_millis),
            ending: self.ending.map(|word| Ending::of_words(word, self.why)),
        }
    }
}

/// The last holds of one lock, the oldest first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Page(Vec<PageLine>);

impl Page {
    /// A line of JSON for each hold; what is not, is no page.
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

    /// Puts a hold at its place, or its end beside its beginning. Tokens are given in the order of
    /// grants; those who share one are of one owner or one process, mostly.
    pub(crate) fn put(&mut self, line: PageLine) {
        match self.0.iter_mut().find(|there| there.id == line.id) {
            // What ended does not begin again.
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

    /// Takes the oldest away until so many are left.
    pub(crate) fn cut(&mut self, most: usize) {
        let over = self.0.len().saturating_sub(most);
        self.0.drain(..over);
    }

    /// Takes the oldest away until the page is not too large for the servers.
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

/// Where the journal of the locks below a root is.
pub(crate) fn base(root: &str) -> String {
    match root {
        "/" => "/lockkeeper-journal".into(),
        root => format!("{root}-journal"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(token: i64, ending: Option<Ending>) -> PageLine {
        let line = PageLine {
            id: Uuid::from_u128(token.unsigned_abs().into()),
            token,
            ticket: token,
            node: format!("lock-{token:010}"),
            kind: "lock".into(),
            owner: None,
            label: Some("me".into()),
            host: "here".into(),
            pid: 7,
            since_ms: 1,
            waited_ms: 2,
            held_ms: None,
            ending: None,
            why: None,
        };
        match ending {
            Some(ending) => line.ended(Duration::from_millis(3), ending),
            None => line,
        }
    }

    fn page(tokens: std::ops::Range<i64>) -> Page {
        Page(tokens.map(|token| line(token, None)).collect())
    }

    #[test]
    fn a_page_is_read_as_it_was_written() {
        let mut written = page(1..4);
        written.put(line(2, Some(Ending::Lost("its lease ended".into()))));
        written.put(line(3, Some(Ending::Released)));

        assert_eq!(Page::parse(&written.to_bytes()), Some(written));
        assert_eq!(Page::parse(b""), Some(Page::default()));
    }

    #[test]
    fn what_is_no_page_is_not_taken_for_one() {
        for data in [&b"released"[..], b"{}", b"\xff", b"[]", b"{\"token\":1}"] {
            assert_eq!(Page::parse(data), None, "{data:?}");
        }
    }

    #[test]
    fn an_end_stands_beside_its_beginning_whatever_comes_first() {
        let mut first = page(1..3);
        first.put(line(1, Some(Ending::Dropped)));
        let mut last = Page::default();
        last.put(line(1, Some(Ending::Dropped)));
        last.put_all(&page(1..3));

        assert_eq!(first.0.len(), 2);
        assert_eq!(first, last);
    }

    #[test]
    fn holds_stand_in_the_order_of_their_grants_whoever_writes_first() {
        let mut page = page(2..4);
        page.put(line(1, None));

        let tokens = page.0.iter().map(|line| line.token);
        assert_eq!(tokens.collect::<Vec<_>>(), [1, 2, 3]);
    }

    #[test]
    fn a_hold_that_goes_on_under_another_ticket_is_one_line() {
        let mut page = page(1..3);
        page.put(PageLine {
            node: "__READ__0000000001".into(),
            ticket: 9,
            ..line(1, None)
        });

        assert_eq!(page.0.len(), 2);
        assert_eq!(page.0[0].ticket, 9);
    }

    #[test]
    fn the_word_of_a_later_version_is_read_and_kept() {
        let mut later = line(1, Some(Ending::Released));
        later.ending = Some("handed on".into());
        let page = Page::parse(&Page(vec![later]).to_bytes()).unwrap();

        assert_eq!(Page::parse(&page.to_bytes()).unwrap(), page);
        let ending = page.entries().remove(0).ending;
        assert_eq!(ending, Some(Ending::Other("handed on".into())));
    }

    #[test]
    fn a_page_keeps_the_newest_within_its_bounds() {
        let mut by_number = page(0..100);
        by_number.cut(10);
        assert_eq!(by_number, page(90..100));

        let mut by_bytes = Page((0..1000).map(|token| line(token, None)).collect());
        for line in &mut by_bytes.0 {
            line.label = Some("x".repeat(1024));
        }
        by_bytes.fit();
        assert!(by_bytes.to_bytes().len() <= MOST_BYTES);
        assert!(by_bytes.0.len() > 200, "{}", by_bytes.0.len());
        assert_eq!(by_bytes.0.last().unwrap().token, 999);
    }
}
