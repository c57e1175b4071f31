//! The servers' data as far as locks use it: directories with a version, a counter and nodes.
//! (pure)
//!
//! Invariants: a request of several writes commits as a whole or not at all; an identity is given
//! once. Identities count the requests that create something instead of all requests: only their
//! order is ever looked at, and the same queue that came about by another way is then the same
//! state.

use crate::protocol::answer::Answer;
use std::hash::{Hash, Hasher};
use std::rc::Rc;

/// An ephemeral node.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Node {
    pub(super) name: String,
    pub(super) czxid: i64,
    /// The client in whose session it lives.
    pub(super) owner: usize,
    /// The identity of the ticket that was given its number: its own, but for a guest and for a
    /// writer that became a reader. Known to the search only, which judges by it.
    pub(super) order: i64,
    pub(super) is_shared: bool,
    pub(super) data: Rc<[u8]>,
}

// Whose it is stands with the client: see `World::fingerprint`.
impl Hash for Node {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.name, self.czxid, self.order, &self.data).hash(state);
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Directory {
    pub(super) data: Rc<[u8]>,
    pub(super) version: i32,
    /// The next number. Every child uses one up, numbered or not.
    pub(super) next: i32,
    /// The identity that its last change gave to a child; 0 if that change took one away.
    pub(super) newest: i64,
    pub(super) nodes: Vec<Rc<Node>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Tree {
    pub(super) zxid: i64,
    pub(super) directories: Vec<Option<Rc<Directory>>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Write {
    /// Creates a directory, if it is not there.
    Make {
        directory: usize,
    },
    Check {
        directory: usize,
        version: i32,
    },
    CheckNode {
        directory: usize,
        name: String,
    },
    Set {
        directory: usize,
        data: Rc<[u8]>,
        version: i32,
    },
    Create(Create),
    Delete {
        directory: usize,
        name: String,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Create {
    pub(super) directory: usize,
    /// The name, or the start of it.
    pub(super) name: String,
    pub(super) is_sequential: bool,
    pub(super) is_shared: bool,
    /// None for a number of its own.
    pub(super) order: Option<i64>,
    pub(super) data: Rc<[u8]>,
}

/// What a request of several writes did.
#[derive(Debug)]
pub(super) struct Commit {
    pub(super) tree: Tree,
    /// The names of what was created.
    pub(super) names: Vec<String>,
    pub(super) deleted: Vec<(usize, Rc<Node>)>,
}

impl Tree {
    pub(super) fn new(directories: usize) -> Self {
        let directory = Directory {
            data: Rc::from([]),
            version: 0,
            next: 0,
            newest: 0,
            nodes: Vec::new(),
        };
        Self {
            zxid: 0,
            directories: vec![Some(Rc::new(directory)); directories],
        }
    }

    pub(super) fn directory(&self, at: usize) -> Option<&Directory> {
        self.directories[at].as_deref()
    }

    pub(super) fn node(&self, directory: usize, name: &str) -> Option<&Rc<Node>> {
        let nodes = &self.directory(directory)?.nodes;
        nodes.iter().find(|node| node.name == name)
    }

    pub(super) fn identity(&self, directory: usize, czxid: i64) -> Option<&Rc<Node>> {
        let nodes = &self.directory(directory)?.nodes;
        nodes.iter().find(|node| node.czxid == czxid)
    }

    /// Every node with its directory.
    pub(super) fn nodes(&self) -> impl Iterator<Item = (usize, &Rc<Node>)> {
        let each = self.directories.iter().enumerate();
        each.flat_map(|(at, directory)| {
            let nodes = directory.iter().flat_map(|directory| &directory.nodes);
            nodes.map(move |node| (at, node))
        })
    }

    /// Commits all writes, or refuses them all.
    pub(super) fn commit(&self, owner: usize, writes: &[Write]) -> Result<Commit, Answer> {
        let mut tree = self.clone();
        let (mut names, mut deleted) = (Vec::new(), Vec::new());
        if writes.iter().any(|write| matches!(write, Write::Create(_))) {
            tree.zxid += 1;
        }
        for write in writes {
            match write {
                Write::Make { directory } => {
                    if tree.directories[*directory].is_none() {
                        tree.directories[*directory] = Self::new(1).directories.remove(0);
                    }
                }
                Write::Check { directory, version } => {
                    if tree.there(*directory)?.version != *version {
                        return Err(Answer::Refused);
                    }
                }
                Write::CheckNode { directory, name } => {
                    tree.node(*directory, name).ok_or(Answer::NoNode)?;
                }
                Write::Set {
                    directory,
                    data,
                    version,
                } => {
                    let there = tree.there(*directory)?;
                    if there.version != *version {
                        return Err(Answer::Refused);
                    }
                    there.data = Rc::clone(data);
                    there.version += 1;
                }
                Write::Create(create) => names.push(tree.create(owner, create)?),
                Write::Delete { directory, name } => {
                    let there = tree.there(*directory)?;
                    let at = there.nodes.iter().position(|node| node.name == *name);
                    let node = there.nodes.remove(at.ok_or(Answer::NoNode)?);
                    there.newest = 0;
                    deleted.push((*directory, node));
                }
            }
        }
        Ok(Commit {
            tree,
            names,
            deleted,
        })
    }

    fn there(&mut self, directory: usize) -> Result<&mut Directory, Answer> {
        let there = self.directories[directory].as_mut();
        there.map(Rc::make_mut).ok_or(Answer::NoNode)
    }

    fn create(&mut self, owner: usize, create: &Create) -> Result<String, Answer> {
        let czxid = self.zxid;
        let there = self.there(create.directory)?;
        let name = if create.is_sequential {
            format!("{}{:010}", create.name, there.next)
        } else {
            create.name.clone()
        };
        if there.nodes.iter().any(|node| node.name == name) {
            return Err(Answer::NodeExists);
        }
        there.next += 1;
        there.newest = czxid;
        there.nodes.push(Rc::new(Node {
            name: name.clone(),
            czxid,
            owner,
            order: create.order.unwrap_or(czxid),
            is_shared: create.is_shared,
            data: Rc::clone(&create.data),
        }));
        Ok(name)
    }

    /// Takes nodes away, all at one moment.
    pub(super) fn without(&self, is_gone: impl Fn(usize, &Node) -> bool) -> Self {
        let mut tree = self.clone();
        for (at, directory) in tree.directories.iter_mut().enumerate() {
            if let Some(directory) = directory {
                if directory.nodes.iter().any(|node| is_gone(at, node)) {
                    let there = Rc::make_mut(directory);
                    there.nodes.retain(|node| !is_gone(at, node));
                    there.newest = 0;
                }
            }
        }
        tree
    }
}
