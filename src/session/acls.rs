//! Which directories are open only to clients that the keeper's access list allows.
//!
//! Invariant: a comparison counts for one list of one node, by `czxid` and `aversion`. A directory
//! that was made again, or whose list was changed, is read again. It asks no server.

use std::collections::HashMap;
use std::sync::Arc;

use crate::latch::Latch;
use crate::link::{AccessList, Node};
use crate::protocol::acl::{Acl, Allowed, Credential, Entry};

/// So many nodes are remembered; then the list of each is read once more.
const MOST: usize = 16 * 1024;

/// A keeper's access list, and the nodes that were compared with it.
#[derive(Debug)]
pub(crate) struct AclCheck {
    /// There is nothing to compare: every client may do everything.
    pub(crate) is_open: bool,
    pub(crate) is_strict: bool,
    /// The resolved list must be read from a node of our own.
    pub(crate) needs_own: bool,
    known: Latch<KnownList>,
}

#[derive(Debug)]
struct KnownList {
    allowed: Allowed,
    is_settled: bool,
    nodes: HashMap<Arc<str>, Compared>,
}

/// Which list of which node was compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Compared {
    czxid: i64,
    aversion: i32,
    /// Compared with our list as servers resolve it, and not by the names of users.
    is_sure: bool,
}

impl Default for AclCheck {
    fn default() -> Self {
        Self::new(&Acl::open(), &[], true)
    }
}

impl AclCheck {
    /// `is_strict`: a wider list is refused, and not only warned of.
    pub(crate) fn new(acl: &Acl, credentials: &[Credential], is_strict: bool) -> Self {
        Self {
            is_open: acl.is_open(),
            is_strict,
            needs_own: acl.needs_credential(),
            known: Latch::new(KnownList {
                allowed: Allowed::asked(acl, credentials),
                is_settled: false,
                nodes: HashMap::new(),
            }),
        }
    }

    /// Whether the resolved list is known.
    pub(crate) fn is_settled(&self) -> bool {
        !self.needs_own || self.known.lock().is_settled
    }

    /// Whether this node was compared, with the list that it had when it was read. `surely`: not
    /// only by the names of users.
    pub(crate) fn knows(&self, path: &str, node: &Node, surely: bool) -> bool {
        let is_same = |compared: &Compared| {
            compared.czxid == node.czxid
                && compared.aversion == node.aversion
                && (compared.is_sure || !surely)
        };
        self.is_open || self.known.lock().nodes.get(path).is_some_and(is_same)
    }

    /// The node was compared; not surely, if our resolved list came since and would refuse it.
    pub(crate) fn learn(&self, path: &str, list: &AccessList) {
        // Asked first: the comparison below then is with the resolved list.
        let is_settled = self.is_settled();
        let is_sure = is_settled && (!self.is_strict || self.beyond(list).is_none());
        self.note(path, list.czxid, list.aversion, is_sure);
    }

    /// We have made the node, so its list is ours.
    pub(crate) fn made(&self, path: &str, czxid: i64) {
        if !self.is_open {
            self.note(path, czxid, 0, true);
        }
    }

    fn note(&self, path: &str, czxid: i64, aversion: i32, is_sure: bool) {
        let mut known = self.known.lock();
        if known.nodes.len() >= MOST {
            known.nodes.clear();
        }
        let compared = Compared {
            czxid,
            aversion,
            is_sure,
        };
        known.nodes.insert(path.into(), compared);
    }

    /// Takes in our list as servers resolve it.
    pub(crate) fn settle(&self, own: AccessList) {
        let mut known = self.known.lock();
        known.allowed = Allowed::settled(own.entries);
        known.is_settled = true;
    }

    /// The first entry that allows more than our list.
    pub(crate) fn beyond(&self, list: &AccessList) -> Option<Entry> {
        self.known.lock().allowed.beyond(&list.entries)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(czxid: i64, aversion: i32) -> Node {
        Node {
            data: Vec::new(),
            czxid,
            version: 0,
            owner: 0,
            num_children: 0,
            pzxid: czxid,
            aversion,
        }
    }

    fn list(czxid: i64, aversion: i32, id: &str) -> AccessList {
        let entries = id.parse::<Acl>().unwrap();
        AccessList {
            entries: entries.entries().to_vec(),
            czxid,
            aversion,
        }
    }

    /// Our check, before our resolved list is known, and the list of a stranger with our user name.
    fn with_a_stranger_of_our_name() -> (AclCheck, AccessList) {
        let credential = Credential {
            scheme: "digest".into(),
            secret: b"a:secret".to_vec(),
        };
        let acls = AclCheck::new(&Acl::creator(), &[credential], true);
        (acls, list(1, 0, "digest:a:B=:cdrwa"))
    }

    #[test]
    fn a_list_that_was_compared_by_names_is_compared_again_with_a_ticket() {
        let (acls, strangers) = with_a_stranger_of_our_name();

        assert_eq!(acls.beyond(&strangers), None, "by the name it is ours");
        acls.learn("/d", &strangers);
        assert!(acls.knows("/d", &node(1, 0), false));
        assert!(!acls.knows("/d", &node(1, 0), true));

        acls.settle(list(2, 0, "digest:a:A=:cdrwa"));
        assert!(acls.beyond(&strangers).is_some());
        acls.learn("/d", &list(1, 0, "digest:a:A=:cdrwa"));
        assert!(acls.knows("/d", &node(1, 0), true));
        for other in [node(1, 1), node(2, 0)] {
            assert!(!acls.knows("/d", &other, false), "{other:?}");
        }
    }

    #[test]
    fn a_list_that_was_compared_just_before_ours_was_known_is_compared_again() {
        let (acls, strangers) = with_a_stranger_of_our_name();

        assert_eq!(acls.beyond(&strangers), None, "by the name it is ours");
        acls.settle(list(2, 0, "digest:a:A=:cdrwa"));
        acls.learn("/d", &strangers);

        assert!(!acls.knows("/d", &node(1, 0), true));
    }

    #[test]
    fn remembered_nodes_are_bounded() {
        let acls = AclCheck::new(&"ip:10.0.0.0/8:cdrw".parse().unwrap(), &[], true);

        for number in 0..=MOST {
            acls.made(&number.to_string(), 1);
        }

        assert_eq!(acls.known.lock().nodes.len(), 1);
        assert!(acls.knows(&MOST.to_string(), &node(1, 0), true));
        assert!(AclCheck::default().knows("/d", &node(1, 0), true));
    }
}
