//! Requests that change no node: reads, and the setting and removing of watches.
//!
//! Invariant: a one-shot watch is set only where ZooKeeper sets it: by an `exists` always, by other
//! reads only when they succeed. Nothing here takes a zxid.

use std::sync::Arc;

use super::{Core, Effect};
use crate::acl::{self, Identity};
use crate::node::Node;
use crate::proto::{Code, Read, Request, WatchedPaths};
use crate::reply::{Answer, Part};
use crate::sessions::ConnId;
use crate::watches::{EventKind, Mode, Tables};

impl Core {
    pub(super) fn read(
        &mut self,
        conn: ConnId,
        session: i64,
        identities: &[Identity],
        request: &Request,
    ) -> Result<Answer, Code> {
        match request {
            Request::Exists { path, watch } => self.exists(conn, path, *watch),
            Request::GetData { path, watch } => {
                let node = self.readable(path, identities)?;
                let answer = Answer::Data(node.data.clone(), node.stat());
                if *watch {
                    self.watches.watch_data(path, conn);
                }
                Ok(answer)
            }
            Request::GetChildren {
                path,
                watch,
                with_stat,
            } => {
                let node = self.readable(path, identities)?;
                let answer = Answer::Children(names(node), with_stat.then(|| node.stat()));
                if *watch {
                    self.watches.watch_children(path, conn);
                }
                Ok(answer)
            }
            Request::MultiRead(reads) => Ok(self.multi_read(reads, identities)),
            Request::GetAcl { path } => self.get_acl(path, identities),
            Request::GetEphemerals { prefix } => Ok(self.get_ephemerals(session, prefix)),
            Request::GetAllChildrenNumber { path } => self.all_children_number(path, identities),
            Request::Sync { path } => Ok(Answer::Path(path.clone())),
            Request::WhoAmI => {
                let user =
                    |identity: &Identity| (identity.scheme.to_owned(), identity.user().to_owned());
                Ok(Answer::Users(identities.iter().map(user).collect()))
            }
            Request::SetWatches(watched) => {
                self.set_watches(conn, watched);
                Ok(Answer::Empty)
            }
            watch => self.change_watches(conn, watch),
        }
    }

    fn change_watches(&mut self, conn: ConnId, request: &Request) -> Result<Answer, Code> {
        let found = match request {
            Request::AddWatch { path, mode } => {
                let mode = match mode {
                    0 => Mode::Persistent,
                    1 => Mode::Recursive,
                    _ => return Err(Code::MarshallingError),
                };
                self.watches.watch(path, conn, mode);
                return Ok(Answer::Count(0));
            }
            Request::CheckWatches { path, kind } => self.watches.contains(
                path,
                Tables::from_wire(*kind).ok_or(Code::MarshallingError)?,
            ),
            Request::RemoveWatches { path, kind } => self.watches.remove(
                path,
                conn,
                Tables::from_wire(*kind).ok_or(Code::MarshallingError)?,
            ),
            _ => return Err(Code::Unimplemented),
        };
        if found {
            Ok(Answer::Empty)
        } else {
            Err(Code::NoWatcher)
        }
    }

    fn readable(&self, path: &str, identities: &[Identity]) -> Result<&Node, Code> {
        let node = self.tree.get(path).ok_or(Code::NoNode)?;
        acl::check(&node.acl, acl::READ, identities)?;
        Ok(node)
    }

    /// Existence is public: no permission is needed.
    fn exists(&mut self, conn: ConnId, path: &str, watch: bool) -> Result<Answer, Code> {
        if path.contains('\0') {
            return Err(Code::BadArguments);
        }
        let stat = self.tree.get(path).map(Node::stat);
        if watch {
            self.watches.watch_data(path, conn);
        }
        Ok(Answer::Stat(stat.ok_or(Code::NoNode)?))
    }

    /// One frame can request the largest node ten thousand times. Reads stop once the reply is too
    /// long to send; queueing that reply ends the connection.
    fn multi_read(&self, reads: &[Read], identities: &[Identity]) -> Answer {
        let mut parts = Vec::new();
        let mut bytes = 0;
        for read in reads {
            if bytes > self.max_reply {
                break;
            }
            parts.push(match self.readable(read.path(), identities) {
                Err(code) => Part::Error(code as i32),
                Ok(node) => match read {
                    Read::Data { .. } => {
                        bytes += node.data_length();
                        Part::Data(node.data.clone(), node.stat())
                    }
                    Read::Children { .. } => {
                        bytes += node
                            .children
                            .iter()
                            .map(|name| name.len() + 4)
                            .sum::<usize>();
                        Part::Children(names(node))
                    }
                },
            });
        }
        Answer::Parts(parts)
    }

    fn get_acl(&self, path: &str, identities: &[Identity]) -> Result<Answer, Code> {
        let node = self.tree.get(path).ok_or(Code::NoNode)?;
        acl::check(&node.acl, acl::READ | acl::ADMIN, identities)?;
        let list = match acl::check(&node.acl, acl::ADMIN, identities) {
            Ok(()) => node.acl.to_vec(),
            Err(_) => acl::covered(&node.acl),
        };
        Ok(Answer::Acl(list, node.stat()))
    }

    /// The prefix is compared as a string, not by path elements.
    fn get_ephemerals(&self, session: i64, prefix: &str) -> Answer {
        let is_all = matches!(prefix.trim(), "" | "/");
        let paths = self
            .tree
            .ephemerals_of(session)
            .filter(|path| is_all || path.starts_with(prefix));
        Answer::Children(paths.cloned().collect(), None)
    }

    fn all_children_number(&self, path: &str, identities: &[Identity]) -> Result<Answer, Code> {
        self.readable(path, identities)?;
        // ZooKeeper counts its root twice, once as a child of the empty path.
        Ok(Answer::Count(
            self.tree.descendants(path) + usize::from(path.is_empty()),
        ))
    }

    /// A reconnected client sends its watches and the last zxid it saw. Events that it missed fire
    /// at once.
    fn set_watches(&mut self, conn: ConnId, watched: &WatchedPaths) {
        for path in &watched.data {
            match self.tree.get(path).map(|node| node.mzxid) {
                None => self.tell(conn, EventKind::Deleted, path),
                Some(mzxid) if mzxid > watched.seen_zxid => {
                    self.tell(conn, EventKind::DataChanged, path)
                }
                Some(_) => self.watches.watch_data(path, conn),
            }
        }
        for path in &watched.exist {
            match self.tree.get(path) {
                Some(_) => self.tell(conn, EventKind::Created, path),
                None => self.watches.watch_data(path, conn),
            }
        }
        for path in &watched.child {
            match self.tree.get(path).map(|node| node.pzxid) {
                None => self.tell(conn, EventKind::Deleted, path),
                Some(pzxid) if pzxid > watched.seen_zxid => {
                    self.tell(conn, EventKind::ChildrenChanged, path)
                }
                Some(_) => self.watches.watch_children(path, conn),
            }
        }
        for path in &watched.persistent {
            self.watches.watch(path, conn, Mode::Persistent);
        }
        for path in &watched.recursive {
            self.watches.watch(path, conn, Mode::Recursive);
        }
    }

    fn tell(&mut self, conn: ConnId, kind: EventKind, path: &str) {
        self.effects.push(Effect::Event {
            conn,
            kind,
            path: path.into(),
        });
    }
}

fn names(node: &Node) -> Vec<Arc<str>> {
    node.children.iter().cloned().collect()
}
