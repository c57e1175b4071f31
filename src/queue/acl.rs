//! The access lists of a lock's nodes. A client that may write there can forge a mark, a note, a
//! permit or a limit.
//!
//! Invariant: what was read of a directory counts only if its list is known to let in nobody beyond
//! ours: the list of the same node (`czxid`), as it was when that was read (`aversion`). Nothing is
//! asked where our own list is open.
//!
//! Comparing costs no request where nothing changed. What was compared is remembered by path,
//! `czxid` and `aversion`, and all of them stand in what was read anyway. The meaning of `auth`
//! is known to servers only, so it is read off a ticket of ours.

use super::Queue;
use super::place::TicketPlace;
use crate::brief::{Brief, shows};
use crate::error::{Error, Result};
use crate::link::{AccessList, Code, Node};
use crate::protocol::journal_page;
use crate::protocol::permits::{HELD, LIMIT, QUEUE};
use crate::session::{Failure, Session, failed};

const CHECKING: &str = "check the access list of";

/// A node of a lock that lets others in than the keeper's access list does; from
/// [`Keeper::wider_acls`](crate::Keeper::wider_acls).
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct WiderAcl {
    /// The node, below the chroot.
    pub path: String,
    /// The list as ZooKeeper's tools write it; hashes of digests are left out.
    pub allows: String,
}

shows!(|wider| WiderAcl {
    path: Brief(&wider.path),
    allows: Brief(&wider.allows),
});

impl Queue {
    /// The directories of a lock, and what else its access lists protect, as far as they are wider
    /// than ours.
    pub(crate) async fn wider_acls(&self, root: &str) -> Result<Vec<WiderAcl>> {
        let session = self.pool.home(CHECKING, &self.name).await?;
        let mut wider = Vec::new();
        if session.acls.is_open {
            return Ok(wider);
        }
        let path = self.path();
        let caught_up = session.catch_up(path).await;
        caught_up.map_err(|ended| self.failed_to(CHECKING, &session, ended))?;
        let parts = [QUEUE, HELD, LIMIT].map(|part| format!("{path}/{part}"));
        let page = format!("{}/{}", journal_page::base(root), self.name);
        for path in [path.to_string(), page].into_iter().chain(parts) {
            let list = read(&session, &self.name, &path).await?;
            let allows = list.and_then(|list| session.acls.beyond(&list));
            wider.extend(allows.map(|allows| WiderAcl {
                path,
                allows: allows.to_string(),
            }));
        }
        Ok(wider)
    }
}

impl TicketPlace {
    /// Whether a node of the lock, as it was read, is open to nobody beyond our list. `false` if it
    /// has changed since: read it again.
    pub(super) async fn checks_acl(
        &self,
        name: impl ToString + Copy,
        path: &str,
        node: &Node,
    ) -> Result<bool> {
        let session = self.session();
        if session.acls.knows(path, node, true) {
            return Ok(true);
        }
        // On the heap: once for each directory.
        Box::pin(self.compare(name, path, node)).await
    }

    async fn compare(&self, name: impl ToString + Copy, path: &str, node: &Node) -> Result<bool> {
        let session = self.session();
        let Some(list) = current(session, name, path, node).await? else {
            return Ok(false);
        };
        let is_wider = session.acls.beyond(&list).is_some();
        let asks_own = is_wider || !session.acls.is_settled();
        if session.acls.needs_own && asks_own && !self.settle_own(name).await? {
            return Ok(false);
        }
        judge(session, name, path, &list)
    }

    /// Learns what the servers make of our list, of `auth` in particular, from our own ticket.
    /// `false` if that is gone, which the next look says.
    async fn settle_own(&self, name: impl ToString + Copy) -> Result<bool> {
        let (Some(mine), Some((_, czxid))) = (self.path(), self.ticket()) else {
            return Ok(false);
        };
        let session = self.session();
        let own = read(session, name, &mine).await?;
        match own.filter(|own| own.czxid == czxid) {
            None => Ok(false),
            Some(own) if own.aversion == 0 => {
                session.acls.settle(own);
                Ok(true)
            }
            Some(_) => {
                let why = "somebody has changed the access list of the ticket";
                Err(Error::place_lost(name, why))
            }
        }
    }
}

/// As [`TicketPlace::checks_acl`], for a call without a ticket: the identities behind `auth` may be
/// known by the names of users only.
pub(super) async fn check(
    session: &Session,
    name: impl ToString + Copy,
    path: &str,
    node: &Node,
) -> Result<bool> {
    if session.acls.knows(path, node, false) {
        return Ok(true);
    }
    match current(session, name, path, node).await? {
        Some(list) => judge(session, name, path, &list),
        None => Ok(false),
    }
}

/// The list of a node, if it is the one that the node had when it was read.
async fn current(
    session: &Session,
    name: impl ToString,
    path: &str,
    node: &Node,
) -> Result<Option<AccessList>> {
    let list = read(session, name, path).await?;
    Ok(list.filter(|list| (list.czxid, list.aversion) == (node.czxid, node.aversion)))
}

/// The list of a node, if that is there.
pub(super) async fn read(
    session: &Session,
    name: impl ToString,
    path: &str,
) -> Result<Option<AccessList>> {
    match session.read(|link| link.access_list(path)).await {
        Ok(list) => Ok(Some(list)),
        Err(Failure::Answered(Code::NoNode)) => Ok(None),
        Err(failure) => Err(failed(session, CHECKING, name, path, failure)),
    }
}

fn judge(session: &Session, name: impl ToString, path: &str, list: &AccessList) -> Result<bool> {
    if let Some(allows) = session.acls.beyond(list) {
        let wider = Error::WiderAcl {
            name: name.to_string(),
            path: path.to_owned(),
            allows: allows.to_string(),
            servers: session.servers().to_owned(),
        };
        if session.acls.is_strict {
            return Err(wider);
        }
        tracing::warn!(target: "lockkeeper::acl", "not refused: {wider}");
    }
    session.acls.learn(path, list);
    Ok(true)
}
