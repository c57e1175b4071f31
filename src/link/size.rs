//! How many bytes a request has on the wire. (pure)
//!
//! Servers cut a connection that sends more than they read. All other requests under way in the
//! session are lost with it, and the next try is cut again. Invariant: the count is what the client
//! crate sends, to the byte (`tests/sent.rs` reads the frames). So no request is refused that
//! servers would read.

use crate::protocol::acl::Entry;

use super::{Read, Write};

/// The most bytes of a request that servers read, unless their `jute.maxbuffer` is set.
pub(crate) const MOST: usize = 0xfffff;

/// The number of a request and its kind.
const HEADER: usize = 4 + 4;
/// Before each operation of several, and after the last one: its kind, whether it is the end, and
/// an error.
const PART: usize = 4 + 1 + 4;
/// Before a string, data or a list.
const LENGTH: usize = 4;
const VERSION: usize = 4;
const FLAGS: usize = 4;
const RIGHTS: usize = 4;
const WATCH: usize = 1;

/// A request of so many bytes, which servers do not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TooLarge(pub(crate) usize);

/// Refuses a request that servers do not read.
pub(crate) fn check(bytes: usize) -> Result<(), TooLarge> {
    if bytes <= MOST {
        Ok(())
    } else {
        Err(TooLarge(bytes))
    }
}

/// The bytes of a request that proves a credential.
pub(crate) fn credential(scheme: &str, secret: &[u8]) -> usize {
    const KIND: usize = 4;
    HEADER + KIND + LENGTH + scheme.len() + LENGTH + secret.len()
}

/// The parts of every request of a keeper: its chroot, and the access list of its nodes.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Envelope {
    chroot: usize,
    list: usize,
}

impl Envelope {
    pub(crate) fn new(chroot: &str, list: &[Entry]) -> Self {
        let entries = list
            .iter()
            .map(|entry| RIGHTS + LENGTH + entry.scheme.len() + LENGTH + entry.id.len());
        Self {
            chroot: chroot.len(),
            list: LENGTH + entries.sum::<usize>(),
        }
    }

    /// The bytes of one create.
    pub(crate) fn create(&self, path: &str, data: &[u8]) -> usize {
        HEADER + self.node(path, data)
    }

    /// The bytes of one request with all of these.
    pub(crate) fn writes(&self, writes: &[Write<'_>]) -> usize {
        let parts = writes.iter().map(|write| {
            let body = match *write {
                Write::Check { path, .. }
                | Write::Delete { path, .. }
                | Write::DeleteTicket { path, .. } => self.path(path) + VERSION,
                Write::Create { path, data } | Write::Ephemeral { path, data, .. } => {
                    self.node(path, data)
                }
                Write::Set { path, data, .. } => self.path(path) + LENGTH + data.len() + VERSION,
            };
            PART + body
        });
        HEADER + parts.sum::<usize>() + PART
    }

    /// The bytes of one request with all of these.
    pub(crate) fn reads(&self, reads: &[Read<'_>]) -> usize {
        let parts = reads.iter().map(|read| {
            let (Read::Data(path) | Read::Children(path)) = *read;
            PART + self.path(path) + WATCH
        });
        HEADER + parts.sum::<usize>() + PART
    }

    fn node(&self, path: &str, data: &[u8]) -> usize {
        self.path(path) + LENGTH + data.len() + self.list + FLAGS
    }

    fn path(&self, path: &str) -> usize {
        let is_chroot = path == "/" && self.chroot > 0;
        LENGTH + self.chroot + if is_chroot { 0 } else { path.len() }
    }
}
