//! Requests that change nodes, alone or as a transaction.
//!
//! Invariant: a failed write takes a zxid too, and checks run in ZooKeeper's order.
//! [`txn`](super::txn) makes, undoes and announces the changes.

use std::cmp::Ordering;
use std::sync::Arc;

use super::txn::{Change, Txn, What};
use super::{Core, Now};
use crate::acl::{self, Acl, Identity};
use crate::node::{Life, Node, Stat};
use crate::path;
use crate::proto::{Code, Create, CreateKind, Write};
use crate::reply::{Answer, Part};

/// The longest TTL that fits into ZooKeeper's field for it.
const MAX_TTL_MS: i64 = 0xff_ffff_ffff;

pub(super) enum Done {
    Created(String, Stat),
    Deleted,
    Changed(Stat),
    Checked,
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
            // In 3.8, a create with a TTL's flags but no TTL fails the whole request, if it is
            // reached.
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

    pub(super) fn step(&mut self, txn: &mut Txn, write: &Write) -> Result<Done, Code> {
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

    /// The checks run in ZooKeeper's order, so a request with two faults gets the same answer.
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
}

fn check_version(actual: i32, expected: i32) -> Result<(), Code> {
    if expected == -1 || expected == actual {
        Ok(())
    } else {
        Err(Code::BadVersion)
    }
}

/// The lifetime that the flags and the kind of a create ask for, and whether the node is
/// sequential.
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
    // A real server crashes when the TTL form of create comes without a TTL mode. This one refuses
    // it.
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

/// In a transaction, 3.8 returns the stat only of containers and TTL nodes.
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

/// The results of a failed transaction: 0 before the failed part, its code, then "runtime
/// inconsistency" for the parts that were not tried.
fn failed_parts(failed: usize, code: Code, count: usize) -> Vec<Part> {
    let result = |index: usize| match index.cmp(&failed) {
        Ordering::Less => 0,
        Ordering::Equal => code as i32,
        Ordering::Greater => Code::RuntimeInconsistency as i32,
    };
    (0..count).map(|index| Part::Error(result(index))).collect()
}
