//! Transactions: changes that fire no watch until all of them are made.
//!
//! Invariant: a transaction happens wholly, at one zxid, or not at all. It fires its watches after
//! its last change. It does not judge whether a change is allowed.

use std::collections::HashMap;
use std::sync::Arc;

use super::{Core, Deleted, Effect, NextSibling, Now};
use crate::acl::{self, Acl, Identity};
use crate::path;
use crate::proto::Code;
use crate::tree::Undo;
use crate::watches::EventKind;

/// Changes that are made, but whose watches have not fired.
pub(super) struct Txn {
    pub(super) zxid: i64,
    pub(super) wall_ms: i64,
    pub(super) session: i64,
    /// `None` has every permission: the server itself and the hooks for tests.
    pub(super) identities: Option<Arc<[Identity]>>,
    pub(super) in_multi: bool,
    pub(super) undo: Vec<Undo>,
    pub(super) changes: Vec<Change>,
    /// Sequence counters as this transaction sees them. The tree's counters stop at the end of the
    /// range. These wrap to negative numbers, as ZooKeeper's do while a change is pending.
    pub(super) pending: HashMap<String, i32>,
}

/// One change to announce. The access lists of the node and its parent at that time decide which
/// watchers hear of it.
pub(super) struct Change {
    pub(super) path: String,
    pub(super) acl: Arc<[Acl]>,
    pub(super) what: What,
}

pub(super) enum What {
    Created {
        parent_acl: Arc<[Acl]>,
    },
    DataChanged,
    Deleted {
        parent_acl: Arc<[Acl]>,
        czxid: i64,
        children_left: usize,
        next_sibling: Option<NextSibling>,
    },
}

impl Txn {
    pub(super) fn check(&self, list: &[Acl], permission: i32) -> Result<(), Code> {
        match &self.identities {
            Some(identities) => acl::check(list, permission, identities),
            None => Ok(()),
        }
    }
}

impl Core {
    pub(super) fn begin(
        &mut self,
        session: i64,
        identities: Option<Arc<[Identity]>>,
        now: Now,
    ) -> Txn {
        self.zxid += 1;
        Txn {
            zxid: self.zxid,
            wall_ms: now.wall_ms,
            session,
            identities,
            in_multi: false,
            undo: Vec::new(),
            changes: Vec::new(),
            pending: HashMap::new(),
        }
    }

    pub(super) fn roll_back(&mut self, txn: Txn) {
        for undo in txn.undo.into_iter().rev() {
            self.tree.undo(undo);
        }
    }

    /// Removes a node. The caller has made every check.
    pub(super) fn remove(&mut self, txn: &mut Txn, path: &str) {
        let Some(node) = self.tree.get(path) else {
            return;
        };
        let (czxid, acl) = (node.czxid, node.acl.clone());
        txn.undo.extend(self.tree.remove(path, txn.zxid));
        let Some(parent) = path::split(path).and_then(|(parent, _)| self.tree.get(parent)) else {
            return;
        };
        let (parent_acl, children_left) = (parent.acl.clone(), parent.children.len());
        let next_sibling = if self.journal.is_on() {
            self.next_sibling(path)
        } else {
            None
        };
        let what = What::Deleted {
            parent_acl,
            czxid,
            children_left,
            next_sibling,
        };
        txn.changes.push(Change {
            path: path.to_owned(),
            acl,
            what,
        });
    }

    /// Fires the watches of every change, in order.
    pub(super) fn commit(&mut self, txn: Txn) {
        for Change { path, acl, what } in txn.changes {
            match what {
                What::Created { parent_acl } => {
                    self.fire(&path, EventKind::Created, &acl);
                    self.fire_parent(&path, &parent_acl);
                }
                What::DataChanged => {
                    self.fire(&path, EventKind::DataChanged, &acl);
                }
                What::Deleted {
                    parent_acl,
                    czxid,
                    children_left,
                    next_sibling,
                } => {
                    let events = self.fire(&path, EventKind::Deleted, &acl)
                        + self.fire_parent(&path, &parent_acl);
                    if self.journal.is_on() {
                        self.journal.record(Deleted {
                            path,
                            czxid,
                            zxid: txn.zxid,
                            in_multi: txn.in_multi,
                            events: u32::try_from(events).unwrap_or(u32::MAX),
                            children_left: u32::try_from(children_left).unwrap_or(u32::MAX),
                            next_sibling,
                        });
                    }
                }
            }
        }
    }

    fn fire_parent(&mut self, path: &str, acl: &[Acl]) -> usize {
        match path::split(path) {
            Some((parent, _)) => self.fire(parent, EventKind::ChildrenChanged, acl),
            None => 0,
        }
    }

    /// Fires the watches of one path and returns their number. A watcher without read permission
    /// gets no event, but its one-shot watch is spent, as in 3.8 since CVE-2024-23944.
    fn fire(&mut self, path: &str, kind: EventKind, acl: &[Acl]) -> usize {
        let mut told = self.watches.fire(path, kind);
        if acl::check(acl, acl::READ, &[]).is_err() {
            told.retain(|conn| {
                let peer = self.peers.get(conn);
                peer.is_some_and(|peer| acl::check(acl, acl::READ, &peer.identities).is_ok())
            });
        }
        if told.is_empty() {
            return 0;
        }
        let path: Arc<str> = path.into();
        let count = told.len();
        self.effects
            .extend(told.into_iter().map(|conn| Effect::Event {
                conn,
                kind,
                path: path.clone(),
            }));
        count
    }
}
