//! A small tree of nodes with ZooKeeper's rules for names, numbers and versions. (pure)
//!
//! It knows of no session's state and no time. Invariant: two trees that were given the same
//! changes are the same.

use std::collections::BTreeMap;

use crate::link::{ANY_VERSION, Code, Create, Node};

/// One node.
#[derive(Debug, Clone)]
pub(crate) struct Znode {
    pub(crate) data: Vec<u8>,
    pub(crate) czxid: i64,
    pub(crate) version: i32,
    /// The session of an ephemeral node, or 0.
    pub(crate) owner: i64,
    /// The number that the next sequential child gets: how many children were ever made.
    pub(crate) counter: i32,
    /// The last create or delete of a child.
    pub(crate) pzxid: i64,
    pub(crate) is_container: bool,
}

/// One committed change of one node.
#[derive(Debug, Clone)]
pub(crate) enum Change {
    Created {
        path: String,
        node: Znode,
    },
    Deleted {
        path: String,
        czxid: i64,
        zxid: i64,
    },
    Set {
        path: String,
        data: Vec<u8>,
        version: i32,
    },
}

/// One write of a request.
#[derive(Debug, Clone)]
pub(crate) enum Action {
    Create {
        path: String,
        data: Vec<u8>,
        kind: Create,
    },
    Ephemeral {
        path: String,
        data: Vec<u8>,
        is_sequential: bool,
    },
    Set {
        path: String,
        data: Vec<u8>,
        version: i32,
    },
    Delete {
        path: String,
        version: i32,
    },
    /// Refused unless the node is there, at this version.
    Check {
        path: String,
        version: i32,
    },
}

impl Action {
    /// Removes a node at whatever version.
    pub(crate) fn delete(path: impl Into<String>) -> Self {
        let (path, version) = (path.into(), ANY_VERSION);
        Self::Delete { path, version }
    }
}

/// Whose end ends a node, and whether it is numbered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Life {
    Container,
    Persistent,
    Ephemeral { is_sequential: bool },
}

impl From<Create> for Life {
    fn from(kind: Create) -> Self {
        match kind {
            Create::Container => Self::Container,
            Create::Persistent => Self::Persistent,
            Create::EphemeralSequential => Self::Ephemeral {
                is_sequential: true,
            },
        }
    }
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Tree {
    nodes: BTreeMap<String, Znode>,
    /// Where the numbers of the first container start.
    pub(crate) first_number: i32,
}

impl Tree {
    pub(crate) fn get(&self, path: &str) -> Option<&Znode> {
        self.nodes.get(path)
    }

    pub(crate) fn node(&self, path: &str) -> Option<Node> {
        let znode = self.nodes.get(path)?;
        Some(Node {
            data: znode.data.clone(),
            czxid: znode.czxid,
            version: znode.version,
            owner: znode.owner,
            num_children: i32::try_from(self.children(path).len()).unwrap_or(i32::MAX),
            pzxid: znode.pzxid,
            aversion: 0,
        })
    }

    pub(crate) fn children(&self, path: &str) -> Vec<String> {
        let start = format!("{path}/");
        let below = self.nodes.range(start.clone()..);
        below
            .map_while(|(child, _)| child.strip_prefix(&start))
            .filter(|child| !child.contains('/'))
            .map(str::to_owned)
            .collect()
    }

    pub(crate) fn of_session(&self, session: i64) -> Vec<String> {
        let own = self.nodes.iter().filter(|(_, node)| node.owner == session);
        own.map(|(path, _)| path.clone()).collect()
    }

    /// What a request would change: all of it, or nothing and the action that is refused.
    pub(crate) fn plan(
        &self,
        actions: &[Action],
        session: i64,
        zxid: i64,
    ) -> Result<Vec<Change>, (usize, Code)> {
        let mut scratch = self.clone();
        let mut changes = Vec::new();
        for (at, action) in actions.iter().enumerate() {
            let change = scratch.change(action, session, zxid);
            if let Some(change) = change.map_err(|code| (at, code))? {
                scratch.apply(&change);
                changes.push(change);
            }
        }
        Ok(changes)
    }

    fn change(&self, action: &Action, session: i64, zxid: i64) -> Result<Option<Change>, Code> {
        match action {
            Action::Create { path, data, kind } => {
                let life = Life::from(*kind);
                self.creation(path, data, life, session, zxid).map(Some)
            }
            Action::Ephemeral {
                path,
                data,
                is_sequential,
            } => {
                let is_sequential = *is_sequential;
                let life = Life::Ephemeral { is_sequential };
                self.creation(path, data, life, session, zxid).map(Some)
            }
            // Nobody writes into the root.
            Action::Check { path, .. } if path == "/" => Ok(None),
            Action::Check { path, version } => self.at_version(path, *version).map(|_| None),
            Action::Set {
                path,
                data,
                version,
            } => {
                let node = self.at_version(path, *version)?;
                Ok(Some(Change::Set {
                    path: path.clone(),
                    data: data.clone(),
                    version: node.version + 1,
                }))
            }
            Action::Delete { path, version } => {
                let node = self.at_version(path, *version)?;
                if !self.children(path).is_empty() {
                    return Err(Code::NotEmpty);
                }
                Ok(Some(Change::Deleted {
                    path: path.clone(),
                    czxid: node.czxid,
                    zxid,
                }))
            }
        }
    }

    fn at_version(&self, path: &str, version: i32) -> Result<&Znode, Code> {
        let node = self.nodes.get(path).ok_or(Code::NoNode)?;
        if version == ANY_VERSION || version == node.version {
            Ok(node)
        } else {
            Err(Code::BadVersion)
        }
    }

    fn creation(
        &self,
        path: &str,
        data: &[u8],
        life: Life,
        session: i64,
        zxid: i64,
    ) -> Result<Change, Code> {
        let parent = parent(path);
        let directory = self.nodes.get(parent);
        let number = match directory {
            Some(directory) => directory.counter,
            None if parent.is_empty() => 0,
            None => return Err(Code::NoNode),
        };
        let path = match life {
            Life::Ephemeral {
                is_sequential: true,
            } => format!("{path}{number:010}"),
            _ => path.to_owned(),
        };
        if self.nodes.contains_key(&path) {
            return Err(Code::NodeExists);
        }
        if directory.is_some_and(|directory| directory.owner != 0) {
            return Err(Code::Other("ephemeral nodes have no children".into()));
        }
        let is_container = life == Life::Container;
        let node = Znode {
            data: data.to_vec(),
            czxid: zxid,
            version: 0,
            owner: match life {
                Life::Ephemeral { .. } => session,
                Life::Container | Life::Persistent => 0,
            },
            counter: if is_container { self.first_number } else { 0 },
            pzxid: zxid,
            is_container,
        };
        Ok(Change::Created { path, node })
    }

    pub(crate) fn apply(&mut self, change: &Change) {
        match change {
            Change::Created { path, node } => {
                if let Some(directory) = self.nodes.get_mut(parent(path)) {
                    // The server's counter sticks at its end, and then creates are not noted.
                    if let Some(counter) = directory.counter.checked_add(1) {
                        (directory.counter, directory.pzxid) = (counter, node.czxid);
                    }
                }
                if node.is_container {
                    self.first_number = 0;
                }
                self.nodes.insert(path.clone(), node.clone());
            }
            Change::Deleted { path, zxid, .. } => {
                if let Some(directory) = self.nodes.get_mut(parent(path)) {
                    directory.pzxid = *zxid;
                }
                self.nodes.remove(path);
            }
            Change::Set {
                path,
                data,
                version,
            } => {
                if let Some(node) = self.nodes.get_mut(path) {
                    (node.data, node.version) = (data.clone(), *version);
                }
            }
        }
    }
}

impl Change {
    pub(crate) fn path(&self) -> &str {
        match self {
            Self::Created { path, .. } | Self::Deleted { path, .. } | Self::Set { path, .. } => {
                path
            }
        }
    }
}

/// The path of the directory that a path is in.
pub(crate) fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(parent, _)| parent)
}
