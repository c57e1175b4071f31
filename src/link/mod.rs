//! The link: the one seam between Lockkeeper and the store.
//!
//! A link is one session. It offers plain operations and session events and knows nothing of locks.
//! Another store, or a simulated world, can stand behind the trait. Invariants:
//!
//! - An operation is sent when its method is *called*, in the order of the calls.
//! - No request is sent that is larger than servers read.
//! - Every operation ends within the link's deadline.
//! - An operation that fails has the server's answer or an unknown outcome
//!   (docs/failures.md rows 53 and 56).

mod answer;
mod change;
pub(crate) mod diagnose;
pub(crate) mod engine;
pub(crate) mod pacer;
#[cfg(feature = "postgres")]
pub(crate) mod postgres;
#[cfg(feature = "redis")]
pub(crate) mod redis;
pub(crate) mod size;
#[cfg(any(feature = "postgres", feature = "redis"))]
pub(crate) mod stored;
pub(crate) mod tls;
pub(crate) mod zookeeper;

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::sync::watch;

pub(crate) use crate::error::{AddressFailure, Right, UnreachableReason};
use crate::protocol::acl::Entry;

pub(crate) use change::{Change, Watch};
use engine::{Engine, Weakness};
use size::{Envelope, TooLarge};

/// The answer to an operation that has already been sent.
pub(crate) type Reply<'a, T> = Pin<Box<dyn Future<Output = Result<T, Fault>> + Send + 'a>>;

/// Why an operation gave no result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The server answered with an error: nothing was changed.
    Answered(Code),
    /// The same, about this one of several writes.
    Refused(usize, Code),
    /// Anything else: it may have happened, may still happen, or may never. The text is for logs.
    Unknown(String),
}

/// A server's error code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Code {
    NoNode,
    NodeExists,
    NotEmpty,
    BadVersion,
    /// We lack this right.
    NoAuth(Right),
    /// The servers refused our credential.
    Unauthenticated,
    /// No server was asked: it would have cut the connection.
    TooLarge(TooLarge),
    /// Nothing was changed, try again: in the server's words, as it is throttled.
    NotNow(String),
    /// For so long the store gives no session, because it may have lost what it knew.
    #[cfg_attr(not(any(feature = "postgres", feature = "redis")), allow(dead_code))]
    Recovering(Duration),
    /// Every other code, in the server's words.
    Other(String),
}

impl Fault {
    /// Why another try may settle it: the outcome is unknown, or the server has no time.
    pub(crate) fn unclear(&self) -> Option<&str> {
        match self {
            Self::Answered(Code::NotNow(why)) | Self::Unknown(why) => Some(why),
            Self::Answered(_) | Self::Refused(..) => None,
        }
    }
}

impl From<TooLarge> for Fault {
    fn from(too_large: TooLarge) -> Self {
        Self::Answered(Code::TooLarge(too_large))
    }
}

/// A node's data, and the parts of its stat that we use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Node {
    pub(crate) data: Vec<u8>,
    pub(crate) czxid: i64,
    pub(crate) version: i32,
    pub(crate) owner: i64,
    pub(crate) num_children: i32,
    /// The last create or delete of a child; its own `czxid` before there was one.
    pub(crate) pzxid: i64,
    /// How often its access list was changed.
    pub(crate) aversion: i32,
}

/// A node's access list, and its version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AccessList {
    /// Without `ADMIN` the hashes of digests are covered.
    pub(crate) entries: Vec<Entry>,
    pub(crate) czxid: i64,
    pub(crate) aversion: i32,
}

/// The kinds of nodes that we create.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Create {
    /// A directory that the server removes once it is empty.
    Container,
    /// A directory that stays.
    Persistent,
    /// A node of this session with a number appended to its name.
    EphemeralSequential,
}

/// The node that `create` made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Created {
    /// The number appended to the name, for a sequential node.
    pub(crate) seq: i32,
    pub(crate) czxid: i64,
    /// The session of an ephemeral node.
    pub(crate) owner: i64,
    /// The directory at that moment, of a numbered node; see [`Link::tells_directory`].
    pub(crate) directory: Option<Box<Node>>,
}

/// One read of a `multi_read`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Read<'a> {
    Data(&'a str),
    Children(&'a str),
}

/// One result of a `multi_read`, at the same prefix of the history as the others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Found {
    Node(Node),
    Children(Vec<String>),
    Failed(Code),
}

/// One write of a `multi`: all happen or none.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Write<'a> {
    /// Changes nothing; refused unless the node is there, at this version.
    Check {
        path: &'a str,
        version: i32,
    },
    /// A node that stays.
    Create {
        path: &'a str,
        data: &'a [u8],
    },
    /// A node of this session, with a number appended to its name if it is sequential.
    Ephemeral {
        path: &'a str,
        data: &'a [u8],
        is_sequential: bool,
    },
    Set {
        path: &'a str,
        data: &'a [u8],
        version: i32,
    },
    Delete {
        path: &'a str,
        version: i32,
    },
    /// Of a ticket with this `czxid`. A store that can compare it removes no later node of that
    /// name; ZooKeeper cannot.
    DeleteTicket {
        path: &'a str,
        #[cfg_attr(
            not(any(feature = "postgres", feature = "redis")),
            allow(dead_code, reason = "only stores compare it")
        )]
        czxid: i64,
    },
}

/// At any version of the node.
pub(crate) const ANY_VERSION: i32 = -1;

impl<'a> Write<'a> {
    pub(crate) fn needs(&self) -> Right {
        match self {
            Self::Check { .. } => Right::Read,
            Self::Create { .. } | Self::Ephemeral { .. } => Right::Create,
            Self::Set { .. } => Right::Write,
            Self::Delete { .. } | Self::DeleteTicket { .. } => Right::Delete,
        }
    }

    pub(crate) fn check(path: &'a str) -> Self {
        let version = ANY_VERSION;
        Self::Check { path, version }
    }

    pub(crate) fn set(path: &'a str, data: &'a [u8], version: i32) -> Self {
        Self::Set {
            path,
            data,
            version,
        }
    }

    pub(crate) fn delete(path: &'a str) -> Self {
        let version = ANY_VERSION;
        Self::Delete { path, version }
    }
}

/// The client's idea of its session. It proves nothing (docs/failures.md row 59), and is good for
/// waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SessionState {
    Connected,
    Disconnected,
    /// Final, with the reason.
    Over(&'static str),
}

/// One ZooKeeper session. It is closed when the last reference to it is dropped.
pub(crate) trait Link: Send + Sync + fmt::Debug {
    fn session_id(&self) -> i64;
    /// Whether each request names the session that it is of. No server can then answer it for
    /// another one.
    fn names_session(&self) -> bool {
        false
    }
    /// The timeout that the server granted when the session was opened.
    fn session_timeout(&self) -> Duration;
    fn create<'a>(&'a self, path: &'a str, data: &[u8], kind: Create) -> Reply<'a, Created>;
    /// Whether the answer to a `create` has the directory, so that nobody need read it.
    fn tells_directory(&self) -> bool {
        false
    }
    fn delete(&self, path: &str) -> Reply<'_, ()>;
    /// As `delete`, of a ticket with this `czxid` alone where the store can compare it.
    fn delete_ticket(&self, path: &str, _czxid: i64) -> Reply<'_, ()> {
        self.delete(path)
    }
    /// Reads a node and watches it. On a missing node no watch is left.
    fn watch(&self, path: &str) -> Reply<'_, (Node, Watch)>;
    /// Lists the names of a directory's children, and watches the list. On a missing node no watch
    /// is left.
    fn watch_children(&self, path: &str) -> Reply<'_, (Vec<String>, Watch)>;
    fn multi_read(&self, reads: &[Read<'_>]) -> Reply<'_, Vec<Found>>;
    fn access_list(&self, path: &str) -> Reply<'_, AccessList>;
    /// Does all of the writes or none. The answer has the paths of the nodes that were created,
    /// with their numbers, in the order of the writes.
    fn multi(&self, writes: &[Write<'_>]) -> Reply<'_, Vec<String>>;
    /// Reads at one moment, behind all that was committed before the call.
    fn read_behind_sync(&self, path: &str, reads: &[Read<'_>]) -> Reply<'_, Vec<Found>> {
        // Sent back to back; the session answers in order.
        let (synced, found) = (self.sync(path), self.multi_read(reads));
        Box::pin(async move {
            match synced.await {
                Err(fault) if fault.unclear().is_some() => Err(fault),
                // Not every server syncs a missing node, and that is an answer too.
                _ => found.await,
            }
        })
    }
    /// This session's ephemeral nodes whose path starts with a plain string.
    fn ephemerals(&self, prefix: &str) -> Reply<'_, Vec<String>>;
    /// Answers once this server has seen all earlier commits.
    fn sync(&self, path: &str) -> Reply<'_, ()>;
    /// The session's states; they outlive the link and end with [`SessionState::Over`].
    fn states(&self) -> watch::Receiver<SessionState>;
    /// The number of the connection that the session has now, once the server behind it has said
    /// that it stands alone. While the number stays the same, that server answers all requests, on
    /// that connection.
    fn standalone(&self) -> Option<u64> {
        None
    }
    /// Told when another connection has got such a number. It may be lost again by then.
    fn proofs(&self) -> watch::Receiver<u64> {
        watch::channel(0).1
    }
}

/// The most bytes of paths that one session watches on ZooKeeper. After a reconnect the client
/// sends them all. Above 128 KiB it splits them into requests with one xid, knows the answer to one
/// of them only, and fails (docs/failures.md row 52). The rest of the 128 KiB is for watches that
/// were dropped before their requests were answered: until then the client keeps them.
pub(crate) const MOST_WATCHED: usize = 96 * 1024;

/// Where sessions come from.
pub(crate) trait Opener: Send + Sync + fmt::Debug {
    /// Opens a session; tries every server once, each for no more than its share of `limit`.
    fn open(&self, limit: Duration) -> Reply<'static, Arc<dyn Link>>;
    /// The connect string's servers, without the chroot.
    fn servers(&self) -> &str;
    /// Starts with `/`, or is empty.
    fn chroot(&self) -> &str;
    /// Opens sessions without the chroot, if that is to be made where it does not exist.
    fn above_chroot(&self) -> Option<Arc<dyn Opener>> {
        None
    }
    /// The most bytes of paths that one session watches.
    fn most_watched(&self) -> usize {
        MOST_WATCHED
    }
    /// The parts of every request.
    fn envelope(&self) -> Envelope;
    fn is_secure(&self) -> bool {
        false
    }
    fn engine(&self) -> Engine {
        Engine::ZooKeeper
    }
    /// What in the store's configuration weakens the promises, as far as it can be asked.
    fn weaknesses(
        &self,
        _limit: Duration,
    ) -> BoxFuture<'_, Result<Vec<Weakness>, UnreachableReason>> {
        Box::pin(std::future::ready(Ok(Vec::new())))
    }
    /// Finds out within `limit` why each address gave no session.
    fn failures(&self, limit: Duration) -> BoxFuture<'_, Vec<AddressFailure>> {
        Box::pin(diagnose::failures(self.servers(), self.is_secure(), limit))
    }
}
