//! A record of deletions, for tests that ask which client could go on when a node was deleted.
//!
//! Invariant: it never holds more than its capacity; the oldest entries are dropped first. It is
//! off until started, and costs nothing while off.

use std::collections::VecDeque;
use std::ops::Bound;

use super::Core;
use crate::node::Life;
use crate::path;
use crate::tree::Tree;

/// One node that was deleted, as recorded by
/// [`EmbeddedServer::take_journal`](crate::EmbeddedServer).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Deleted {
    /// The path of the node.
    pub path: String,
    /// The zxid at which it had been created: its identity.
    pub czxid: i64,
    /// The zxid of the change that deleted it.
    pub zxid: i64,
    /// Whether the deletion was part of a transaction.
    pub in_multi: bool,
    /// How many watch events were queued because of this deletion.
    pub events: u32,
    /// How many children the parent had afterwards.
    pub children_left: u32,
    /// The child that came next after it, if any.
    pub next_sibling: Option<NextSibling>,
}

/// The next child by name among those whose names differ only in the digits at the end.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct NextSibling {
    /// Its path.
    pub path: String,
    /// The session that owns it, or 0 if it is not ephemeral.
    pub owner_session: i64,
    /// Whether that session had an open connection at the time.
    pub connected: bool,
}

#[derive(Debug, Default)]
pub(super) struct Journal {
    capacity: usize,
    deleted: VecDeque<Deleted>,
}

impl Journal {
    pub(super) fn start(&mut self, capacity: usize) {
        self.capacity = capacity;
        self.deleted.clear();
    }

    pub(super) fn is_on(&self) -> bool {
        self.capacity > 0
    }

    pub(super) fn record(&mut self, deleted: Deleted) {
        if self.deleted.len() >= self.capacity {
            self.deleted.pop_front();
        }
        self.deleted.push_back(deleted);
    }

    pub(super) fn take(&mut self) -> Vec<Deleted> {
        self.deleted.drain(..).collect()
    }
}

impl Core {
    /// The child that came after `path`, which is deleted already.
    pub(super) fn next_sibling(&self, path: &str) -> Option<NextSibling> {
        let (path, node) = next_in(&self.tree, path)?;
        let owner_session = if let Life::Ephemeral(session) = node {
            session
        } else {
            0
        };
        let connected = self.conn_of(owner_session).is_some();
        Some(NextSibling {
            path,
            owner_session,
            connected,
        })
    }
}

fn next_in(tree: &Tree, path: &str) -> Option<(String, Life)> {
    fn stem(name: &str) -> &str {
        name.trim_end_matches(|c: char| c.is_ascii_digit())
    }
    let (parent, name) = path::split(path)?;
    let stem_of_name = stem(name);
    let children = &tree.get(parent)?.children;
    let next = children
        .range::<str, _>((Bound::Excluded(name), Bound::Unbounded))
        .take_while(|other| other.starts_with(stem_of_name))
        .find(|other| stem(other) == stem_of_name)?;
    let path = path::join(parent, next);
    let life = tree.get(&path)?.life;
    Some((path, life))
}
