//! Changes without a request: sessions expire, containers are deleted, a test's hook writes.
//!
//! Invariant: each is a transaction like any other, so its watches fire. No permission is checked.

use std::sync::Arc;
use std::time::Duration;

use super::{Core, Now};
use crate::node::{Life, Node};
use crate::path;
use crate::proto::{Code, Write};
use crate::sessions::Session;

impl Core {
    /// Ends a session and deletes its ephemerals in one change.
    pub(super) fn end_session(&mut self, session: i64) -> Option<Session> {
        let ended = self.sessions.remove(session)?;
        let now = Now {
            uptime: Duration::ZERO,
            wall_ms: 0,
        };
        self.remove_ephemerals_of(session, now);
        Some(ended)
    }

    /// Deletes an empty container or TTL node. As in ZooKeeper, no permission is checked.
    pub(super) fn delete_container(&mut self, path: &str, now: Now) -> Result<(), Code> {
        let mut txn = self.begin(0, None, now);
        if path::split(path).is_none() || path.contains('\0') || path::is_special(path) {
            return Err(Code::BadArguments);
        }
        let node = self.tree.get(path).ok_or(Code::NoNode)?;
        if !node.children.is_empty() {
            return Err(Code::NotEmpty);
        }
        if matches!(node.life, Life::Ephemeral(_)) {
            return Err(Code::BadVersion);
        }
        self.remove(&mut txn, path);
        self.commit(txn);
        Ok(())
    }

    /// Deletes the containers that had children and have none now, and the TTL nodes whose time is
    /// over.
    pub(crate) fn reap(&mut self, now: Now) -> usize {
        let is_over = |node: &Node| match node.life {
            Life::Container => node.cversion > 0,
            Life::Ttl(ttl) => now.wall_ms.saturating_sub(node.mtime) > ttl,
            Life::Persistent | Life::Ephemeral(_) => false,
        };
        let over: Vec<Arc<str>> = self
            .tree
            .mortal()
            .filter(|(_, node)| node.children.is_empty() && is_over(node))
            .map(|(path, _)| path.clone())
            .collect();
        over.into_iter()
            .filter(|path| self.delete_container(path, now).is_ok())
            .count()
    }

    /// Applies a write as if another client with every permission had sent it.
    pub(crate) fn write_from_outside(&mut self, write: &Write, now: Now) -> Result<(), Code> {
        let mut txn = self.begin(0, None, now);
        self.step(&mut txn, write)?;
        self.commit(txn);
        Ok(())
    }
}
