//! What a session asks of its store. (pure)

use std::time::Duration;

use crate::link::{ANY_VERSION, Create, Read, Write};
use crate::protocol::epoch::Reaping;

/// An operation, before it is known on which connection it leaves.
#[derive(Debug, Clone)]
pub(crate) enum StoreRequest {
    /// Opens the session of the connection.
    Open {
        asked: Duration,
        longest: Duration,
        margin: Duration,
        is_new: bool,
        #[cfg_attr(not(feature = "redis"), allow(dead_code))]
        reaping: Reaping,
    },
    Multi(Vec<StoredWrite>),
    Read(Vec<(WatchKind, String)>),
    Watch {
        kind: WatchKind,
        path: String,
        number: u64,
    },
    Unwatch {
        /// PostgreSQL finds it without.
        #[cfg_attr(not(feature = "redis"), allow(dead_code))]
        kind: WatchKind,
        path: String,
        number: u64,
    },
    Rearm(Vec<Rearmed>),
    /// This session's nodes whose path starts so.
    Ephemerals(String),
    /// A heartbeat, which also finds what dead sessions have left.
    Touch,
    /// Looks at a session that may be over.
    Bury(i64),
    /// Removes nodes of a dead session.
    Reap(i64, Vec<String>),
    /// Removes a container that is empty.
    Collect(String),
    Close,
}

/// One write of a `multi`.
#[derive(Debug, Clone)]
pub(crate) struct StoredWrite {
    pub(crate) kind: WriteKind,
    pub(crate) path: String,
    pub(crate) data: Vec<u8>,
    /// Of the node; of the directory in a [`WriteKind::Leave`].
    pub(crate) version: i32,
    /// Of the ticket that is deleted; 0 for any node.
    pub(crate) czxid: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WriteKind {
    Check,
    Create,
    Container,
    Ephemeral,
    Sequential,
    Set,
    Delete,
    /// A ticket is deleted while its directory is at a version. Data, if there is any, is the
    /// directory's from then on. It stands for a check or a set of the directory and a delete in
    /// it, which is how holders leave: each row is then written once.
    Leave,
}

impl WriteKind {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Check => "check",
            Self::Create => "create",
            Self::Container => "container",
            Self::Ephemeral => "ephemeral",
            Self::Sequential => "sequential",
            Self::Set => "set",
            Self::Delete => "delete",
            Self::Leave => "leave",
        }
    }
}

/// What a watch is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WatchKind {
    Data,
    Children,
}

impl WatchKind {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Data => "d",
            Self::Children => "c",
        }
    }
}

/// A watch that a new connection arms again, and what was seen when it was armed.
#[derive(Debug, Clone)]
pub(crate) struct Rearmed {
    pub(crate) number: u64,
    pub(crate) kind: WatchKind,
    pub(crate) path: String,
    pub(crate) czxid: i64,
    /// The version, or the last change of children.
    pub(crate) last: i64,
}

impl StoreRequest {
    pub(crate) fn multi(writes: &[Write<'_>]) -> Self {
        if let &[before, Write::DeleteTicket { path, czxid }] = writes {
            if let Some(leave) = StoredWrite::leave(before, path, czxid) {
                return Self::Multi(vec![leave]);
            }
        }
        let writes = writes.iter().map(|write| match *write {
            Write::Check { path, version } => {
                StoredWrite::new(WriteKind::Check, path, b"", version)
            }
            Write::Create { path, data } => StoredWrite::new(WriteKind::Create, path, data, 0),
            Write::Ephemeral {
                path,
                data,
                is_sequential: true,
            } => StoredWrite::new(WriteKind::Sequential, path, data, 0),
            Write::Ephemeral { path, data, .. } => {
                StoredWrite::new(WriteKind::Ephemeral, path, data, 0)
            }
            Write::Set {
                path,
                data,
                version,
            } => StoredWrite::new(WriteKind::Set, path, data, version),
            Write::Delete { path, version } => {
                StoredWrite::new(WriteKind::Delete, path, b"", version)
            }
            Write::DeleteTicket { path, czxid } => StoredWrite::delete(path, czxid),
        });
        Self::Multi(writes.collect())
    }

    pub(crate) fn create(path: &str, data: &[u8], kind: Create) -> Self {
        let kind = match kind {
            Create::Container => WriteKind::Container,
            Create::Persistent => WriteKind::Create,
            Create::EphemeralSequential => WriteKind::Sequential,
        };
        Self::Multi(vec![StoredWrite::new(kind, path, data, 0)])
    }

    /// `czxid`: 0 for any node of that name.
    pub(crate) fn delete(path: &str, czxid: i64) -> Self {
        Self::Multi(vec![StoredWrite::delete(path, czxid)])
    }

    pub(super) fn read(reads: &[Read<'_>]) -> Self {
        let reads = reads.iter().map(|read| match *read {
            Read::Data(path) => (WatchKind::Data, path.to_owned()),
            Read::Children(path) => (WatchKind::Children, path.to_owned()),
        });
        Self::Read(reads.collect())
    }

    /// Whether it changes nothing but the session's deadline.
    pub(crate) fn is_heartbeat(&self) -> bool {
        match self {
            Self::Touch => true,
            Self::Multi(writes) => writes.iter().all(|write| write.kind == WriteKind::Check),
            _ => false,
        }
    }
}

impl StoredWrite {
    fn new(kind: WriteKind, path: &str, data: &[u8], version: i32) -> Self {
        Self {
            kind,
            path: path.to_owned(),
            data: data.to_vec(),
            version,
            czxid: 0,
        }
    }

    /// None if what comes before the delete is no check of the directory's version, with or
    /// without data for it.
    fn leave(before: Write<'_>, path: &str, czxid: i64) -> Option<Self> {
        let (directory, data, version) = match before {
            Write::Check { path, version } => (path, &b""[..], version),
            Write::Set {
                path,
                data,
                version,
            } if !data.is_empty() => (path, data, version),
            _ => return None,
        };
        let is_in_it = path.rsplit_once('/')?.0 == directory && version != ANY_VERSION;
        is_in_it.then(|| Self {
            czxid,
            ..Self::new(WriteKind::Leave, path, data, version)
        })
    }

    fn delete(path: &str, czxid: i64) -> Self {
        let any = Self::new(WriteKind::Delete, path, b"", ANY_VERSION);
        Self { czxid, ..any }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(writes: &[Write<'_>]) -> Vec<WriteKind> {
        match StoreRequest::multi(writes) {
            StoreRequest::Multi(writes) => writes.iter().map(|write| write.kind).collect(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_check_of_the_directory_and_a_delete_in_it_are_one_write() {
        use WriteKind::{Check, Delete, Leave, Set};

        let check = |path, version| Write::Check { path, version };
        let set = |data| Write::set("/a", data, 3);
        let gone = |path| Write::DeleteTicket { path, czxid: 7 };

        assert_eq!(kinds(&[check("/a", 3), gone("/a/x")]), [Leave]);
        assert_eq!(kinds(&[set(b"mark"), gone("/a/x")]), [Leave]);
        // No data at all means another thing there.
        assert_eq!(kinds(&[set(b""), gone("/a/x")]), [Set, Delete]);
        assert_eq!(kinds(&[check("/a", -1), gone("/a/x")]), [Check, Delete]);
        assert_eq!(kinds(&[check("/b", 3), gone("/a/x")]), [Check, Delete]);
        assert_eq!(kinds(&[check("/a", 3), gone("/a/x/y")]), [Check, Delete]);
        let two = [check("/a", 3), gone("/a/x"), gone("/a/y")];
        assert_eq!(kinds(&two), [Check, Delete, Delete]);
    }
}
