//! The watches of all connections, by path.
//!
//! Invariant: a connection has at most one watch per path and table, as in ZooKeeper 3.8. A later
//! watch replaces an earlier one of another mode, so a one-shot watch ends a persistent one on the
//! same path. It does not know the tree and sends nothing: firing returns the connections to
//! notify.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use super::path;
use super::sessions::ConnId;

/// What happened to a node; the numbers are the protocol's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EventKind {
    Created = 1,
    Deleted = 2,
    DataChanged = 3,
    ChildrenChanged = 4,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    OneShot,
    Persistent,
    Recursive,
}

/// The tables of a removal or a check; the numbers are the protocol's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tables {
    Child,
    Data,
    Any,
}

impl Tables {
    pub(super) fn from_wire(kind: i32) -> Option<Self> {
        match kind {
            1 => Some(Self::Child),
            2 => Some(Self::Data),
            3 => Some(Self::Any),
            _ => None,
        }
    }

    fn has_child(self) -> bool {
        matches!(self, Self::Child | Self::Any)
    }

    fn has_data(self) -> bool {
        matches!(self, Self::Data | Self::Any)
    }
}

#[derive(Debug, Default)]
struct Table {
    by_path: HashMap<Arc<str>, BTreeMap<ConnId, Mode>>,
    by_conn: HashMap<ConnId, HashSet<Arc<str>>>,
    recursive: usize,
    count: usize,
}

impl Table {
    fn add(&mut self, path: &str, conn: ConnId, mode: Mode) {
        let path = match self.by_path.get_key_value(path) {
            Some((path, _)) => path.clone(),
            None => Arc::from(path),
        };
        let replaced = self
            .by_path
            .entry(path.clone())
            .or_default()
            .insert(conn, mode);
        if replaced.is_none() {
            self.count += 1;
            self.by_conn.entry(conn).or_default().insert(path);
        }
        self.recursive += usize::from(mode == Mode::Recursive);
        self.recursive -= usize::from(replaced == Some(Mode::Recursive));
    }

    fn remove(&mut self, path: &str, conn: ConnId) -> bool {
        let Some(watchers) = self.by_path.get_mut(path) else {
            return false;
        };
        let Some(mode) = watchers.remove(&conn) else {
            return false;
        };
        if watchers.is_empty() {
            self.by_path.remove(path);
        }
        self.count -= 1;
        self.recursive -= usize::from(mode == Mode::Recursive);
        if let Some(paths) = self.by_conn.get_mut(&conn) {
            paths.remove(path);
            if paths.is_empty() {
                self.by_conn.remove(&conn);
            }
        }
        true
    }

    fn forget(&mut self, conn: ConnId) {
        for path in self.by_conn.remove(&conn).unwrap_or_default() {
            let Some(watchers) = self.by_path.get_mut(&path) else {
                continue;
            };
            if let Some(mode) = watchers.remove(&conn) {
                self.count -= 1;
                self.recursive -= usize::from(mode == Mode::Recursive);
            }
            if watchers.is_empty() {
                self.by_path.remove(&path);
            }
        }
    }

    /// Adds to `told` every connection that this event concerns, and ends its one-shot watches.
    fn fire(&mut self, path: &str, kind: EventKind, told: &mut BTreeSet<ConnId>) {
        let mut spent = Vec::new();
        for (&conn, &mode) in self.by_path.get(path).into_iter().flatten() {
            if mode != Mode::Recursive || kind != EventKind::ChildrenChanged {
                told.insert(conn);
            }
            if mode == Mode::OneShot {
                spent.push(conn);
            }
        }
        for conn in spent {
            self.remove(path, conn);
        }
        if self.recursive == 0 || kind == EventKind::ChildrenChanged {
            return;
        }
        let mut above = path;
        while above != "/" {
            let Some((parent, _)) = path::split(above) else {
                break;
            };
            above = parent;
            let watchers = self.by_path.get(above).into_iter().flatten();
            told.extend(
                watchers
                    .filter(|(_, mode)| **mode == Mode::Recursive)
                    .map(|(conn, _)| *conn),
            );
        }
    }
}

/// ZooKeeper's two tables: watches on a node itself, and on its children.
#[derive(Debug, Default)]
pub(super) struct Watches {
    data: Table,
    child: Table,
}

impl Watches {
    /// A one-shot watch on a node's data or existence.
    pub(super) fn watch_data(&mut self, path: &str, conn: ConnId) {
        self.data.add(path, conn, Mode::OneShot);
    }

    /// A one-shot watch on a node's children.
    pub(super) fn watch_children(&mut self, path: &str, conn: ConnId) {
        self.child.add(path, conn, Mode::OneShot);
    }

    /// A persistent watch is in both tables.
    pub(super) fn watch(&mut self, path: &str, conn: ConnId, mode: Mode) {
        self.data.add(path, conn, mode);
        self.child.add(path, conn, mode);
    }

    pub(super) fn remove(&mut self, path: &str, conn: ConnId, tables: Tables) -> bool {
        let child = tables.has_child() && self.child.remove(path, conn);
        let data = tables.has_data() && self.data.remove(path, conn);
        child || data
    }

    /// As in ZooKeeper 3.8, any connection's watch on the path counts.
    pub(super) fn contains(&self, path: &str, tables: Tables) -> bool {
        (tables.has_child() && self.child.by_path.contains_key(path))
            || (tables.has_data() && self.data.by_path.contains_key(path))
    }

    /// Drops the watches of a connection, which end with it.
    pub(super) fn forget(&mut self, conn: ConnId) {
        self.data.forget(conn);
        self.child.forget(conn);
    }

    /// The connections to notify of a change to the node itself. A deletion also ends the watches
    /// on its children.
    pub(super) fn fire(&mut self, path: &str, kind: EventKind) -> BTreeSet<ConnId> {
        let mut told = BTreeSet::new();
        if kind == EventKind::ChildrenChanged {
            self.child.fire(path, kind, &mut told);
            return told;
        }
        self.data.fire(path, kind, &mut told);
        if kind == EventKind::Deleted {
            self.child.fire(path, kind, &mut told);
        }
        told
    }

    pub(super) fn len(&self) -> usize {
        self.data.count + self.child.count
    }

    /// Connections with a data-table watch, and the paths they watch: what `wchs` and `wchc` show.
    pub(super) fn by_conn(&self) -> impl Iterator<Item = (ConnId, &HashSet<Arc<str>>)> {
        self.data.by_conn.iter().map(|(conn, paths)| (*conn, paths))
    }

    /// How many paths have a data-table watch.
    pub(super) fn paths(&self) -> usize {
        self.data.by_path.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: ConnId = ConnId(1);
    const B: ConnId = ConnId(2);

    fn told(watches: &mut Watches, path: &str, kind: EventKind) -> Vec<ConnId> {
        watches.fire(path, kind).into_iter().collect()
    }

    #[test]
    fn a_one_shot_watch_fires_once() {
        let mut watches = Watches::default();
        watches.watch_data("/a", A);

        assert_eq!(told(&mut watches, "/a", EventKind::DataChanged), [A]);
        assert!(told(&mut watches, "/a", EventKind::DataChanged).is_empty());
        assert_eq!(watches.len(), 0);
    }

    #[test]
    fn a_deletion_is_told_once_and_ends_both_watches() {
        let mut watches = Watches::default();
        watches.watch_data("/a", A);
        watches.watch_children("/a", A);
        watches.watch_children("/a", B);

        assert_eq!(told(&mut watches, "/a", EventKind::Deleted), [A, B]);
        assert_eq!(watches.len(), 0);
    }

    #[test]
    fn a_persistent_watch_keeps_firing_until_replaced_by_a_one_shot() {
        let mut watches = Watches::default();
        watches.watch("/a", A, Mode::Persistent);

        assert_eq!(told(&mut watches, "/a", EventKind::DataChanged), [A]);
        watches.watch_data("/a", A);
        assert_eq!(told(&mut watches, "/a", EventKind::DataChanged), [A]);
        assert!(told(&mut watches, "/a", EventKind::DataChanged).is_empty());
        assert_eq!(told(&mut watches, "/a", EventKind::ChildrenChanged), [A]);
    }

    #[test]
    fn a_recursive_watch_hears_of_all_below_but_not_of_child_lists() {
        let mut watches = Watches::default();
        watches.watch("/", A, Mode::Recursive);

        assert_eq!(told(&mut watches, "/a/b/c", EventKind::Created), [A]);
        assert_eq!(told(&mut watches, "/a/b/c", EventKind::Deleted), [A]);
        assert!(told(&mut watches, "/", EventKind::ChildrenChanged).is_empty());
    }

    #[test]
    fn a_dead_connection_leaves_nothing() {
        let mut watches = Watches::default();
        watches.watch_data("/a", A);
        watches.watch("/b", A, Mode::Recursive);
        watches.watch_data("/a", B);

        watches.forget(A);

        assert_eq!(watches.len(), 1);
        assert!(told(&mut watches, "/b/x", EventKind::Created).is_empty());
    }

    #[test]
    fn removal_says_whether_there_was_one() {
        let mut watches = Watches::default();
        watches.watch_children("/a", A);

        assert!(!watches.remove("/a", A, Tables::Data));
        assert!(!watches.remove("/a", B, Tables::Any));
        assert!(watches.contains("/a", Tables::Any));
        assert!(watches.remove("/a", A, Tables::Any));
        assert!(!watches.contains("/a", Tables::Any));
    }
}
