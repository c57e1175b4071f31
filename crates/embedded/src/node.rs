//! One node: its contents, and its view for clients.
//!
//! Invariant: the counts that clients see are derived only here. It does not know its path or its
//! parent.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;

use super::acl::Acl;

/// What ends the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Life {
    Persistent,
    Ephemeral(i64),
    Container,
    /// Deleted after this many milliseconds without a child and without a write.
    Ttl(i64),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Node {
    pub(super) data: Option<Bytes>,
    pub(super) acl: Arc<[Acl]>,
    pub(super) children: BTreeSet<Arc<str>>,
    pub(super) life: Life,
    pub(super) czxid: i64,
    pub(super) mzxid: i64,
    pub(super) pzxid: i64,
    pub(super) ctime: i64,
    pub(super) mtime: i64,
    pub(super) version: i32,
    /// Counts creates of children only, and is the next sequence number. Clients see a different
    /// number: [`Node::stat`].
    pub(super) cversion: i32,
    pub(super) aversion: i32,
}

/// What clients see of a node besides its data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stat {
    pub(super) czxid: i64,
    pub(super) mzxid: i64,
    pub(super) pzxid: i64,
    pub(super) ctime: i64,
    pub(super) mtime: i64,
    pub(super) version: i32,
    pub(super) cversion: i32,
    pub(super) aversion: i32,
    pub(super) owner: i64,
    pub(super) data_length: usize,
    pub(super) children: usize,
}

impl Node {
    /// A new node. `data` is copied, so that it does not keep its whole frame in memory.
    pub(super) fn new(
        data: Option<&[u8]>,
        acl: Arc<[Acl]>,
        life: Life,
        zxid: i64,
        wall_ms: i64,
    ) -> Self {
        Self {
            data: data.map(Bytes::copy_from_slice),
            acl,
            children: BTreeSet::new(),
            life,
            czxid: zxid,
            mzxid: zxid,
            pzxid: zxid,
            ctime: wall_ms,
            mtime: wall_ms,
            version: 0,
            cversion: 0,
            aversion: 0,
        }
    }

    /// The number of changes to the children is derived: each present child was created once, and
    /// each deleted child was created and deleted. The owner session is shown for ephemerals only,
    /// never the marks of containers and TTL nodes.
    pub(super) fn stat(&self) -> Stat {
        let children = i32::try_from(self.children.len()).unwrap_or(i32::MAX);
        Stat {
            czxid: self.czxid,
            mzxid: self.mzxid,
            pzxid: self.pzxid,
            ctime: self.ctime,
            mtime: self.mtime,
            version: self.version,
            cversion: self.cversion.wrapping_mul(2).wrapping_sub(children),
            aversion: self.aversion,
            owner: if let Life::Ephemeral(session) = self.life {
                session
            } else {
                0
            },
            data_length: self.data_length(),
            children: self.children.len(),
        }
    }

    pub(super) fn data_length(&self) -> usize {
        self.data.as_ref().map_or(0, Bytes::len)
    }
}
