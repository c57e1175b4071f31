//! The nodes, and the changes that can be made to them and undone.
//!
//! Invariant: every node but the root is in its parent's set of children, ephemerals are listed by
//! their session, and undoing changes in reverse order restores the tree exactly. It checks no
//! rights, versions or paths and fires no watches.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use bytes::Bytes;

use super::acl::{self, Acl};
use super::node::{Life, Node};
use super::path;

/// How to take one change back.
#[derive(Debug)]
pub(super) enum Undo {
    Insert {
        path: Arc<str>,
        parent_cversion: i32,
        parent_pzxid: i64,
    },
    Remove {
        path: Arc<str>,
        node: Box<Node>,
        parent_pzxid: i64,
    },
    SetData {
        path: Arc<str>,
        data: Option<Bytes>,
        mzxid: i64,
        mtime: i64,
        version: i32,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Tree {
    nodes: HashMap<Arc<str>, Node>,
    ephemerals: HashMap<i64, BTreeSet<Arc<str>>>,
    /// Containers and TTL nodes, which the reaper checks.
    mortal: BTreeSet<Arc<str>>,
    open: Arc<[Acl]>,
    bytes: usize,
}

impl Tree {
    /// A tree with the nodes that a fresh server has.
    pub(super) fn new() -> Self {
        let open: Arc<[Acl]> = vec![Acl::world(acl::ALL)].into();
        let mut tree = Self {
            nodes: HashMap::new(),
            ephemerals: HashMap::new(),
            mortal: BTreeSet::new(),
            open: open.clone(),
            bytes: "/".len(),
        };
        let node = || Node::new(Some(b""), open.clone(), Life::Persistent, 0, 0);
        tree.nodes.insert("/".into(), node());
        for path in ["/zookeeper", "/zookeeper/quota", "/zookeeper/config"] {
            tree.insert(path, node(), 0);
        }
        if let Some(config) = tree.get_mut("/zookeeper/config") {
            config.acl = vec![Acl::world(acl::READ)].into();
            config.aversion = -1;
        }
        tree
    }

    /// The node of a path. The empty path is the root, as in ZooKeeper.
    pub(super) fn get(&self, path: &str) -> Option<&Node> {
        self.nodes.get(if path.is_empty() { "/" } else { path })
    }

    pub(super) fn get_mut(&mut self, path: &str) -> Option<&mut Node> {
        self.nodes.get_mut(path)
    }

    /// The number of nodes. ZooKeeper counts its root twice.
    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Bytes in paths and data.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn ephemerals_of(&self, session: i64) -> impl Iterator<Item = &Arc<str>> {
        self.ephemerals.get(&session).into_iter().flatten()
    }

    /// Sessions that own ephemerals, and their paths.
    pub(super) fn ephemerals(&self) -> impl Iterator<Item = (i64, &BTreeSet<Arc<str>>)> {
        self.ephemerals
            .iter()
            .map(|(session, paths)| (*session, paths))
    }

    pub(super) fn mortal(&self) -> impl Iterator<Item = (&Arc<str>, &Node)> {
        self.mortal
            .iter()
            .filter_map(|path| Some((path, self.nodes.get(path)?)))
    }

    /// The number of nodes below this path. It is a loop and not a recursion, because clients
    /// decide how deep a tree is.
    pub(super) fn descendants(&self, path: &str) -> usize {
        let mut count = 0;
        let mut pending = vec![if path.is_empty() {
            "/".to_owned()
        } else {
            path.to_owned()
        }];
        while let Some(path) = pending.pop() {
            for name in self
                .get(&path)
                .map(|node| &node.children)
                .into_iter()
                .flatten()
            {
                count += 1;
                pending.push(path::join(&path, name));
            }
        }
        count
    }

    /// Shares the default list, which nearly every node has.
    pub(super) fn intern(&self, acl: Vec<Acl>) -> Arc<[Acl]> {
        if acl[..] == self.open[..] {
            self.open.clone()
        } else {
            acl.into()
        }
    }

    /// Adds a node below an existing parent. `cversion` is the parent's new count, which is taken
    /// only if it is larger. So the count and the parent's pzxid stop at the end of the range.
    pub(super) fn insert(&mut self, path: &str, node: Node, cversion: i32) -> Option<Undo> {
        let (parent_path, name) = path::split(path)?;
        let zxid = node.czxid;
        let parent = self.nodes.get_mut(parent_path)?;
        let path: Arc<str> = path.into();
        let undo = Undo::Insert {
            path: path.clone(),
            parent_cversion: parent.cversion,
            parent_pzxid: parent.pzxid,
        };
        parent.children.insert(name.into());
        if cversion > parent.cversion {
            parent.cversion = cversion;
            parent.pzxid = zxid;
        }
        self.enlist(&path, &node);
        self.nodes.insert(path, node);
        Some(undo)
    }

    /// Removes a node that has no children.
    pub(super) fn remove(&mut self, path: &str, zxid: i64) -> Option<Undo> {
        let (parent_path, name) = path::split(path)?;
        let (path, node) = self.nodes.remove_entry(path)?;
        self.delist(&path, &node);
        let mut parent_pzxid = 0;
        if let Some(parent) = self.nodes.get_mut(parent_path) {
            parent_pzxid = parent.pzxid;
            parent.children.remove(name);
            parent.pzxid = parent.pzxid.max(zxid);
        }
        Some(Undo::Remove {
            path,
            node: Box::new(node),
            parent_pzxid,
        })
    }

    pub(super) fn set_data(
        &mut self,
        path: &str,
        data: Option<&[u8]>,
        zxid: i64,
        wall_ms: i64,
    ) -> Option<Undo> {
        let (key, _) = self.nodes.get_key_value(path)?;
        let key = key.clone();
        let node = self.nodes.get_mut(path)?;
        let before = node.data_length();
        let undo = Undo::SetData {
            path: key,
            data: node.data.take(),
            mzxid: node.mzxid,
            mtime: node.mtime,
            version: node.version,
        };
        node.data = data.map(Bytes::copy_from_slice);
        node.mzxid = zxid;
        node.mtime = wall_ms;
        node.version = node.version.wrapping_add(1);
        self.bytes = (self.bytes + node.data_length()).saturating_sub(before);
        Some(undo)
    }

    /// Undoes one change; call in the reverse order of the changes.
    pub(super) fn undo(&mut self, undo: Undo) {
        match undo {
            Undo::Insert {
                path,
                parent_cversion,
                parent_pzxid,
            } => {
                if let Some(node) = self.nodes.remove(&path) {
                    self.delist(&path, &node);
                }
                if let Some((parent, name)) = self.parent_mut(&path) {
                    parent.children.remove(name);
                    parent.cversion = parent_cversion;
                    parent.pzxid = parent_pzxid;
                }
            }
            Undo::Remove {
                path,
                node,
                parent_pzxid,
            } => {
                if let Some((parent, name)) = self.parent_mut(&path) {
                    parent.children.insert(name.into());
                    parent.pzxid = parent_pzxid;
                }
                self.enlist(&path, &node);
                self.nodes.insert(path, *node);
            }
            Undo::SetData {
                path,
                data,
                mzxid,
                mtime,
                version,
            } => {
                if let Some(node) = self.nodes.get_mut(&path) {
                    self.bytes = (self.bytes + data.as_ref().map_or(0, Bytes::len))
                        .saturating_sub(node.data_length());
                    (node.data, node.mzxid, node.mtime, node.version) =
                        (data, mzxid, mtime, version);
                }
            }
        }
    }

    fn parent_mut<'p>(&mut self, path: &'p str) -> Option<(&mut Node, &'p str)> {
        let (parent, name) = path::split(path)?;
        Some((self.nodes.get_mut(parent)?, name))
    }

    fn enlist(&mut self, path: &Arc<str>, node: &Node) {
        self.bytes += path.len() + node.data_length();
        match node.life {
            Life::Ephemeral(session) => {
                self.ephemerals
                    .entry(session)
                    .or_default()
                    .insert(path.clone());
            }
            Life::Container | Life::Ttl(_) => {
                self.mortal.insert(path.clone());
            }
            Life::Persistent => {}
        }
    }

    fn delist(&mut self, path: &Arc<str>, node: &Node) {
        self.bytes = self.bytes.saturating_sub(path.len() + node.data_length());
        match node.life {
            Life::Ephemeral(session) => {
                if let Some(paths) = self.ephemerals.get_mut(&session) {
                    paths.remove(path);
                    if paths.is_empty() {
                        self.ephemerals.remove(&session);
                    }
                }
            }
            Life::Container | Life::Ttl(_) => {
                self.mortal.remove(path);
            }
            Life::Persistent => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(tree: &Tree, life: Life, zxid: i64) -> Node {
        Node::new(Some(b"x"), tree.open.clone(), life, zxid, zxid)
    }

    fn snapshot(tree: &Tree) -> Vec<(Arc<str>, Node)> {
        let mut nodes: Vec<_> = tree
            .nodes
            .iter()
            .map(|(path, node)| (path.clone(), node.clone()))
            .collect();
        nodes.sort_by(|a, b| a.0.cmp(&b.0));
        nodes
    }

    #[test]
    fn a_fresh_tree_looks_like_a_fresh_server() {
        let tree = Tree::new();

        let root = tree.get("/").unwrap().stat();
        let zookeeper = tree.get("/zookeeper").unwrap().stat();

        assert_eq!((root.cversion, root.children), (-1, 1));
        assert_eq!((zookeeper.cversion, zookeeper.children), (-2, 2));
        assert_eq!(tree.get("/zookeeper/config").unwrap().stat().aversion, -1);
    }

    #[test]
    fn seen_cversion_counts_creates_and_deletes() {
        let mut tree = Tree::new();
        tree.insert("/a", node(&tree, Life::Persistent, 1), 1);

        tree.insert("/a/x", node(&tree, Life::Persistent, 2), 1);
        assert_eq!(tree.get("/a").unwrap().stat().cversion, 1);
        tree.remove("/a/x", 3);
        assert_eq!(tree.get("/a").unwrap().stat().cversion, 2);
        assert_eq!(tree.get("/a").unwrap().cversion, 1);
    }

    #[test]
    fn the_counter_sticks_at_its_end() {
        let mut tree = Tree::new();
        tree.get_mut("/").unwrap().cversion = i32::MAX;

        tree.insert(
            "/a",
            node(&tree, Life::Persistent, 9),
            i32::MAX.wrapping_add(1),
        );

        assert_eq!(tree.get("/").unwrap().cversion, i32::MAX);
        assert_eq!(tree.get("/").unwrap().pzxid, 0);
    }

    #[test]
    fn undoing_in_reverse_restores_everything() {
        let mut tree = Tree::new();
        tree.insert("/a", node(&tree, Life::Ephemeral(7), 1), 1);
        tree.insert("/c", node(&tree, Life::Container, 1), 2);
        let (before, bytes) = (snapshot(&tree), tree.bytes());

        let mut undo = vec![tree.set_data("/a", Some(b"longer"), 2, 2).unwrap()];
        undo.push(tree.remove("/a", 2).unwrap());
        undo.push(
            tree.insert("/c/x", node(&tree, Life::Ephemeral(8), 2), 1)
                .unwrap(),
        );
        for change in undo.into_iter().rev() {
            tree.undo(change);
        }

        assert_eq!(snapshot(&tree), before);
        assert_eq!(tree.bytes(), bytes);
        assert_eq!(tree.ephemerals_of(7).count(), 1);
        assert_eq!(tree.ephemerals_of(8).count(), 0);
        assert_eq!(tree.mortal().count(), 1);
    }

    #[test]
    fn descendants_are_counted_at_any_depth() {
        let mut tree = Tree::new();
        for path in ["/a", "/a/b", "/a/b/c", "/ab"] {
            tree.insert(path, node(&tree, Life::Persistent, 1), 1);
        }

        assert_eq!(tree.descendants("/a"), 2);
        assert_eq!(tree.descendants("/"), 7);
    }
}
