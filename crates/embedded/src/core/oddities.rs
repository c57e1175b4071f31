//! Servers that are odd on purpose: one that lags behind, one that forgets who its client was, one
//! that is slow to remove what a session left.
//!
//! Invariant: nothing here happens unless a test asked for it, for one session each time.

use std::collections::{HashMap, HashSet};
use std::mem;

use super::{Core, Effect, Now, Reply};
use crate::acl::Identity;
use crate::proto::Request;
use crate::sessions::ConnId;
use crate::tree::Tree;

/// What tests asked for.
#[derive(Debug, Default)]
pub(super) struct Oddities {
    /// By session: what the server that it connects to next has seen.
    behind: HashMap<i64, Behind>,
    /// Sessions whose next connection is given another session.
    replaced: HashSet<i64>,
}

#[derive(Debug)]
struct Behind {
    tree: Tree,
    zxid: i64,
    /// The connection to the server that lags behind, once there is one.
    conn: Option<ConnId>,
}

impl Core {
    /// The session's next connection is to a server that has seen nothing since now. False if there
    /// is no such session.
    pub(crate) fn lag_at_next_connection(&mut self, session: i64) -> bool {
        let is_there = self.sessions.get(session).is_some();
        if is_there {
            let behind = Behind {
                tree: self.tree.clone(),
                zxid: self.zxid,
                conn: None,
            };
            self.oddities.behind.insert(session, behind);
        }
        is_there
    }

    /// The session's next connection is given a new session. False if there is no such session.
    pub(crate) fn replace_at_next_connection(&mut self, session: i64) -> bool {
        self.sessions.get(session).is_some() && self.oddities.replaced.insert(session)
    }

    /// Whether the connection request is to be answered with a new session.
    pub(super) fn is_replaced(&mut self, session: i64) -> bool {
        self.oddities.replaced.remove(&session)
    }

    /// The last change that the server knows which the session connects to.
    pub(super) fn zxid_seen_by(&mut self, session: i64, conn: ConnId) -> i64 {
        match self.oddities.behind.get_mut(&session) {
            Some(behind) => {
                behind.conn = Some(conn);
                behind.zxid
            }
            None => self.zxid,
        }
    }

    /// Ends a session, but leaves its ephemerals for [`Core::remove_ephemerals_of`]. False if there
    /// is no such session.
    pub(crate) fn expire_without_its_nodes(&mut self, session: i64) -> bool {
        let Some(ended) = self.sessions.remove(session) else {
            return false;
        };
        if let Some(conn) = ended.conn {
            self.effects.push(Effect::Close(conn));
            self.disconnect(conn);
        }
        true
    }

    /// Answers a read as the server does that lags behind. `None` when the session's server has
    /// seen everything: a sync, a write or a watch makes it catch up.
    pub(super) fn answer_from_behind(
        &mut self,
        conn: ConnId,
        session: i64,
        identities: &[Identity],
        request: &Request,
    ) -> Option<Reply> {
        let mut behind = self.oddities.behind.remove(&session)?;
        // Until then it is the old server that answers.
        if behind.conn != Some(conn) {
            self.oddities.behind.insert(session, behind);
            return None;
        }
        let is_plain_read = matches!(
            request,
            Request::MultiRead(_)
                | Request::Exists { watch: false, .. }
                | Request::GetData { watch: false, .. }
                | Request::GetChildren { watch: false, .. }
                | Request::GetAcl { .. }
                | Request::GetEphemerals { .. }
                | Request::GetAllChildrenNumber { .. }
        );
        if !is_plain_read && !matches!(request, Request::Ping) {
            return None;
        }
        mem::swap(&mut self.tree, &mut behind.tree);
        let result = match request {
            Request::Ping => Ok(super::Answer::Empty),
            read => self.read(conn, session, identities, read),
        };
        mem::swap(&mut self.tree, &mut behind.tree);
        let zxid = behind.zxid;
        self.oddities.behind.insert(session, behind);
        Some(Reply {
            zxid,
            result,
            is_last: false,
        })
    }

    /// Removes the ephemerals that a session has, or had when it ended; how many there were.
    pub(crate) fn remove_ephemerals_of(&mut self, session: i64, now: Now) -> usize {
        let mut txn = self.begin(session, None, now);
        let paths: Vec<_> = self.tree.ephemerals_of(session).cloned().collect();
        for path in &paths {
            self.remove(&mut txn, path);
        }
        self.commit(txn);
        paths.len()
    }
}
