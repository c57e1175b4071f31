//! Requests that change nodes, alone or as a transaction.
//!
//! Invariant: a transaction happens wholly, at one zxid, or not at all, and fires its watches after its last part. A
//! write that fails takes a zxid all the same, as in the original.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::super::acl::{self, Acl, Identity};
use super::super::path;
use super::super::proto::{Code, Create, CreateKind, Write};
use super::super::reply::{Answer, Part};
use super::super::sessions::Session;
use super::super::tree::{Life, Node, Stat, Undo};
use super::super::watches::EventKind;
use super::{Core, Deleted, Effect, NextSibling, Now};

/// The longest TTL that fits where the original keeps it.
const MAX_TTL_MS: i64 = 0xff_ffff_ffff;

/// Changes that are made but not yet told.
struct Txn {
    zxid: i64,
    wall_ms: i64,
    session: i64,
    /// `None` may do everything: the server itself and the hooks for tests.
    identities: Option<Arc<[Identity]>>,
    in_multi: bool,
    undo: Vec<Undo>,
    changes: Vec<Change>,
    /// Sequence counters as this transaction sees them. The tree's stick at the end of the range, these go on into
    /// the negative, as the original's do while a change is pending.
    pending: HashMap<String, i32>,
}

/// One change to tell of. The lists decide who may hear of it: those of the node and of its parent at the time.
struct Change {
    path: String,
    acl: Arc<[Acl]>,
    what: What,
}

enum What {
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

enum Done {
    Created(String, Stat),
    Deleted,
    Changed(Stat),
    Checked,
}

impl Txn {
    fn check(&self, list: &[Acl], permission: i32) -> Result<(), Code> {
        match &self.identities {
            Some(identities) => acl::check(list, permission, identities),
            None => Ok(()),
        }
    }
}

impl Core {
    pub(super) fn write(
        &mut self,
        session: i64,
        identities: Arc<[Identity]>,
        write: &Write,
        now: Now,
    ) -> Result<Answer, Code> {
        let mut txn = self.begin(session, Some(identities), now);
        let done = self.step(&mut txn, write)?;
        self.commit(txn);
        Ok(match (done, write) {
            (
                Done::Created(path, _),
                Write::Create(Create {
                    kind: CreateKind::Plain,
                    ..
                }),
            ) => Answer::Path(path),
            (Done::Created(path, stat), _) => Answer::Created(path, stat),
            (Done::Changed(stat), _) => Answer::Stat(stat),
            (Done::Deleted | Done::Checked, _) => Answer::Empty,
        })
    }

    pub(super) fn multi(
        &mut self,
        session: i64,
        identities: Arc<[Identity]>,
        writes: &[Write],
        now: Now,
    ) -> Result<Answer, Code> {
        let mut txn = self.begin(session, Some(identities), now);
        txn.in_multi = true;
        let mut parts = Vec::with_capacity(writes.len());
        for (index, write) in writes.iter().enumerate() {
            // A create with a TTL's flags but no TTL breaks the whole request in 3.8, if it is reached.
            if matches!(
                write,
                Write::Create(Create {
                    kind: CreateKind::Plain,
                    flags: 5 | 6,
                    ..
                })
            ) {
                self.roll_back(txn);
                return Err(Code::MarshallingError);
            }
            match self.step(&mut txn, write) {
                Ok(done) => parts.push(part(done, write)),
                Err(code) => {
                    self.roll_back(txn);
                    return Ok(Answer::Parts(failed_parts(index, code, writes.len())));
                }
            }
        }
        self.commit(txn);
        Ok(Answer::Parts(parts))
    }

    fn begin(&mut self, session: i64, identities: Option<Arc<[Identity]>>, now: Now) -> Txn {
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

    fn roll_back(&mut self, txn: Txn) {
        for undo in txn.undo.into_iter().rev() {
            self.tree.undo(undo);
        }
    }

    fn step(&mut self, txn: &mut Txn, write: &Write) -> Result<Done, Code> {
        match write {
            Write::Create(create) => self.create(txn, create),
            Write::Delete { path, version } => self.delete(txn, path, *version),
            Write::SetData {
                path,
                data,
                version,
            } => self.set_data(txn, path, data.as_deref(), *version),
            Write::Check { path, version } => {
                let node = self.valid_node(path)?;
                txn.check(&node.acl, acl::READ)?;
                check_version(node.version, *version)?;
                Ok(Done::Checked)
            }
        }
    }

    /// The order of the checks is the original's, so that a request with two faults gets the same answer.
    fn create(&mut self, txn: &mut Txn, create: &Create) -> Result<Done, Code> {
        let (life, is_sequential) = mode(create, txn.session)?;
        let (parent_path, _) = path::split(&create.path).ok_or(Code::BadArguments)?;
        if create.path.contains('\0') {
            return Err(Code::BadArguments);
        }
        let identities = txn.identities.as_deref().unwrap_or(&[]);
        let list = acl::settle(&create.acl, identities)?;
        let parent = self.tree.get(parent_path).ok_or(Code::NoNode)?;
        txn.check(&parent.acl, acl::CREATE)?;
        let number = txn
            .pending
            .get(parent_path)
            .copied()
            .unwrap_or(parent.cversion);
        let new_path = if is_sequential {
            format!("{}{number:010}", create.path)
        } else {
            create.path.clone()
        };
        if !path::is_valid(&new_path) {
            return Err(Code::BadArguments);
        }
        if self.tree.get(&new_path).is_some() {
            return Err(Code::NodeExists);
        }
        if matches!(parent.life, Life::Ephemeral(_)) {
            return Err(Code::NoChildrenForEphemerals);
        }
        let next = number.wrapping_add(1);
        let node = Node::new(
            create.data.as_deref(),
            self.tree.intern(list),
            life,
            txn.zxid,
            txn.wall_ms,
        );
        let stat = node.stat();
        let (acl, parent_acl) = (node.acl.clone(), parent.acl.clone());
        txn.undo.extend(self.tree.insert(&new_path, node, next));
        if txn.in_multi {
            txn.pending.insert(parent_path.to_owned(), next);
        }
        txn.changes.push(Change {
            path: new_path.clone(),
            acl,
            what: What::Created { parent_acl },
        });
        Ok(Done::Created(new_path, stat))
    }

    fn delete(&mut self, txn: &mut Txn, path: &str, version: i32) -> Result<Done, Code> {
        let (parent, _) = path::split(path).ok_or(Code::BadArguments)?;
        if path.contains('\0') || path::is_special(path) {
            return Err(Code::BadArguments);
        }
        let parent = self.tree.get(parent).ok_or(Code::NoNode)?;
        txn.check(&parent.acl, acl::DELETE)?;
        let node = self.tree.get(path).ok_or(Code::NoNode)?;
        check_version(node.version, version)?;
        if !node.children.is_empty() {
            return Err(Code::NotEmpty);
        }
        self.remove(txn, path);
        Ok(Done::Deleted)
    }

    /// Removes a node about which everything was checked.
    fn remove(&mut self, txn: &mut Txn, path: &str) {
        let Some(undo) = self.tree.remove(path, txn.zxid) else {
            return;
        };
        let (czxid, acl) = match &undo {
            Undo::Remove { node, .. } => (node.czxid, node.acl.clone()),
            _ => return,
        };
        let Some(parent) = path::split(path).and_then(|(parent, _)| self.tree.get(parent)) else {
            return;
        };
        let (parent_acl, children_left) = (parent.acl.clone(), parent.children.len());
        let next_sibling = if self.journal.is_on() {
            self.next_sibling(path)
        } else {
            None
        };
        txn.undo.push(undo);
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

    fn set_data(
        &mut self,
        txn: &mut Txn,
        path: &str,
        data: Option<&[u8]>,
        version: i32,
    ) -> Result<Done, Code> {
        let node = self.valid_node(path)?;
        txn.check(&node.acl, acl::WRITE)?;
        check_version(node.version, version)?;
        txn.changes.push(Change {
            path: path.to_owned(),
            acl: node.acl.clone(),
            what: What::DataChanged,
        });
        txn.undo
            .extend(self.tree.set_data(path, data, txn.zxid, txn.wall_ms));
        let stat = self.tree.get(path).map(Node::stat).ok_or(Code::NoNode)?;
        Ok(Done::Changed(stat))
    }

    pub(super) fn set_acl(
        &mut self,
        path: &str,
        list: &[Acl],
        version: i32,
        identities: &[Identity],
    ) -> Result<Answer, Code> {
        self.zxid += 1;
        if !path::is_valid(path) {
            return Err(Code::BadArguments);
        }
        let list = self.tree.intern(acl::settle(list, identities)?);
        let node = self.tree.get_mut(path).ok_or(Code::NoNode)?;
        acl::check(&node.acl, acl::ADMIN, identities)?;
        check_version(node.aversion, version)?;
        node.acl = list;
        node.aversion = node.aversion.wrapping_add(1);
        Ok(Answer::Stat(node.stat()))
    }

    fn valid_node(&self, path: &str) -> Result<&Node, Code> {
        if !path::is_valid(path) {
            return Err(Code::BadArguments);
        }
        self.tree.get(path).ok_or(Code::NoNode)
    }

    /// Tells the watchers of every change, in order.
    fn commit(&mut self, txn: Txn) {
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

    /// Tells the watchers of one path; how many there were. A watcher that may not read the node is told nothing,
    /// though its one-shot watch is spent, as in the releases of 3.8 since CVE-2024-23944.
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

    /// Ends a session: its ephemerals go in one change.
    pub(super) fn end_session(&mut self, session: i64) -> Option<Session> {
        let ended = self.sessions.remove(session)?;
        let now = Now {
            uptime: Duration::ZERO,
            wall_ms: 0,
        };
        let mut txn = self.begin(session, None, now);
        let paths: Vec<Arc<str>> = self.tree.ephemerals_of(session).cloned().collect();
        for path in paths {
            self.remove(&mut txn, &path);
        }
        self.commit(txn);
        Some(ended)
    }

    /// Deletes an empty container or TTL node; as in the original, nobody's rights are asked.
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

    /// Deletes the containers that had children and have none now, and the TTL nodes whose time is over.
    pub(in crate::embedded) fn reap(&mut self, now: Now) -> usize {
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

    /// Applies a write as if another client with every right had sent it.
    pub(in crate::embedded) fn write_from_outside(
        &mut self,
        write: &Write,
        now: Now,
    ) -> Result<(), Code> {
        let mut txn = self.begin(0, None, now);
        self.step(&mut txn, write)?;
        self.commit(txn);
        Ok(())
    }
}

fn check_version(actual: i32, expected: i32) -> Result<(), Code> {
    if expected == -1 || expected == actual {
        Ok(())
    } else {
        Err(Code::BadVersion)
    }
}

/// What the flags and the kind of a create ask for together: whose end ends the node, and whether it is numbered.
fn mode(create: &Create, session: i64) -> Result<(Life, bool), Code> {
    let (is_ephemeral, is_sequential, has_ttl) = match create.flags {
        0 | 4 => (false, false, false),
        1 => (true, false, false),
        2 => (false, true, false),
        3 => (true, true, false),
        5 => (false, false, true),
        6 => (false, true, true),
        _ => return Err(Code::BadArguments),
    };
    let is_ttl_good = if has_ttl {
        (1..=MAX_TTL_MS).contains(&create.ttl)
    } else {
        create.ttl < 0
    };
    // A real server falls over when the TTL form of create comes without a TTL mode; this one refuses it.
    if !is_ttl_good || (create.kind == CreateKind::Ttl && !has_ttl) {
        return Err(Code::BadArguments);
    }
    let life = match create.kind {
        CreateKind::Container => Life::Container,
        CreateKind::Ttl => Life::Ttl(create.ttl),
        CreateKind::Plain | CreateKind::WithStat if is_ephemeral => Life::Ephemeral(session),
        CreateKind::Plain | CreateKind::WithStat => Life::Persistent,
    };
    Ok((life, is_sequential))
}

/// In a transaction 3.8 tells the stat only of containers and TTL nodes.
fn part(done: Done, write: &Write) -> Part {
    match done {
        Done::Created(path, stat) => {
            let has_stat = matches!(
                write,
                Write::Create(Create {
                    kind: CreateKind::Container | CreateKind::Ttl,
                    ..
                })
            );
            Part::Created(path, has_stat.then_some(stat))
        }
        Done::Deleted => Part::Deleted,
        Done::Changed(stat) => Part::Stat(stat),
        Done::Checked => Part::Checked,
    }
}

/// 0 before the part that failed, its code, and "runtime inconsistency" for those that were never tried.
fn failed_parts(failed: usize, code: Code, count: usize) -> Vec<Part> {
    let result = |index: usize| match index.cmp(&failed) {
        Ordering::Less => 0,
        Ordering::Equal => code as i32,
        Ordering::Greater => Code::RuntimeInconsistency as i32,
    };
    (0..count).map(|index| Part::Error(result(index))).collect()
}
