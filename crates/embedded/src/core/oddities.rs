//! Faulty servers on request: one that lags behind, one that forgets a client's session, one that
//! is slow to remove the ephemerals of an expired session.
//!
//! Invariant: each fault happens only after a test asked for it, and to one session.

use std::collections::{HashMap, HashSet};
use std::mem;

use super::{Core, Effect, Now, Reply};
use crate::acl::Identity;
use crate::proto::Request;
use crate::sessions::ConnId;
use crate::tree::Tree;

/// The faults that tests asked for.
#[derive(Debug, Default)]
pub(super) struct Oddities {
    /// The state of the lagging server that each session connects to next.
    behind: HashMap<i64, Behind>,
    /// Sessions whose next connection is given another session.
    replaced: HashSet<i64>,
}

#[derive(Debug)]
struct Behind {
    tree: Tree,
    zxid: i64,
    /// The connection to the lagging server, once there is one.
    conn: Option<ConnId>,
}

impl Core {
    /// Connects the session next to a server that has seen no change since now. False if there is
    /// no such session.
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

    /// Gives the session's next connection a new session. False if there is no such session.
    pub(crate) fn replace_at_next_connection(&mut self, session: i64) -> bool {
        self.sessions.get(session).is_some() && self.oddities.replaced.insert(session)
    }

    /// Whether to answer the connect request with a new session. Asking clears the mark.
    pub(super) fn is_replaced(&mut self, session: i64) -> bool {
        self.oddities.replaced.remove(&session)
    }

    /// The last zxid known to the server that the session connects to.
    pub(super) fn zxid_seen_by(&mut self, session: i64, conn: ConnId) -> i64 {
        match self.oddities.behind.get_mut(&session) {
            Some(behind) => {
                behind.conn = Some(conn);
                behind.zxid
            }
            None => self.zxid,
        }
    }

    /// Expires a session, but leaves its ephemerals for [`Core::remove_ephemerals_of`]. False if
    /// there is no such session.
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

    /// Answers a read as the lagging server would. `None` once the session's server has caught up,
    /// which a sync, a write or a watch causes.
    pub(super) fn answer_from_behind(
        &mut self,
        conn: ConnId,
        session: i64,
        identities: &[Identity],
        request: &Request,
    ) -> Option<Reply> {
        let mut behind = self.oddities.behind.remove(&session)?;
        // Until the session reconnects, its old server answers.
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

    /// The ephemerals that a session has, or had when it expired, with the zxids of their creation.
    pub(crate) fn ephemerals_of(&self, session: i64) -> Vec<(String, i64)> {
        let paths = self.tree.ephemerals_of(session);
        paths
            .filter_map(|path| Some((path.to_string(), self.tree.get(path)?.czxid)))
            .collect()
    }

    /// Deletes the ephemerals that a session has, or had when it expired. Returns their number.
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
