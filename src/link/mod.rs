//! The link: the one seam between Lockkeeper and ZooKeeper.
//!
//! A link is one session. It offers plain operations and session events and knows nothing of locks.
//! Invariants: an operation is sent when its method is *called*, in the order of the calls; nothing
//! is sent that is larger than servers read; every operation ends within the link's deadline; and
//! an operation that fails says either what the server answered or that the outcome is unknown,
//! never anything else (docs/failures.md rows 53 and 56). Another store, or a simulated world, can
//! stand behind the trait.

pub(crate) mod diagnose;
pub(crate) mod pacer;
pub(crate) mod size;
pub(crate) mod zookeeper;

use std::fmt;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;

use tokio::sync::watch;

pub(crate) use crate::error::Right;
use crate::protocol::acl::Entry;

use size::{Envelope, TooLarge};

/// The answer to an operation that has already been sent.
pub(crate) type Reply<'a, T> = Pin<Box<dyn Future<Output = Result<T, Fault>> + Send + 'a>>;

/// Why an operation gave no result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The server answered with an error: nothing was changed.
    Answered(Code),
    /// Anything else: it may have happened, may still happen, or may never. The text says what was
    /// seen.
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
    /// We are not who we say we are.
    Unauthenticated,
    /// No server was asked: it would have cut the connection.
    TooLarge(TooLarge),
    /// Not now, in the server's words: it is throttled, or our session has moved. Nothing was
    /// changed; try again.
    NotNow(String),
    /// Every other code, in the server's words.
    Other(String),
}

impl From<TooLarge> for Fault {
    fn from(too_large: TooLarge) -> Self {
        Self::Answered(Code::TooLarge(too_large))
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoNode => "no such node",
            Self::NodeExists => "the node exists already",
            Self::NotEmpty => "the node has children",
            Self::BadVersion => "the version differs",
            Self::Unauthenticated => "authentication failed",
            Self::NoAuth(_) => "no permission",
            Self::TooLarge(_) => "it is too large",
            Self::NotNow(words) | Self::Other(words) => words,
        })
    }
}

/// A node's data and what we use of its stat.
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

/// A node's access list, and which one it is.
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

/// What `create` made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Created {
    /// The number appended to the name, for a sequential node.
    pub(crate) seq: i32,
    pub(crate) czxid: i64,
    /// The session of an ephemeral node.
    pub(crate) owner: i64,
}

/// One read of a `multi_read`.
#[derive(Debug, Clone, Copy)]
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
}

impl Write<'_> {
    pub(crate) fn needs(&self) -> Right {
        match self {
            Self::Check { .. } => Right::Read,
            Self::Create { .. } | Self::Ephemeral { .. } => Right::Create,
            Self::Set { .. } => Right::Write,
            Self::Delete { .. } => Right::Delete,
        }
    }
}

/// Whatever version the node is at.
pub(crate) const ANY_VERSION: i32 = -1;

impl<'a> Write<'a> {
    pub(crate) fn check(path: &'a str) -> Self {
        let version = ANY_VERSION;
        Self::Check { path, version }
    }

    pub(crate) fn delete(path: &'a str) -> Self {
        let version = ANY_VERSION;
        Self::Delete { path, version }
    }
}

/// A watch on a node, or on a directory's children, that was armed. Dropping it takes it back from
/// the server.
pub(crate) struct Watch {
    /// The mutex is never locked: it lets whatever holds a watch be shared between threads, as a
    /// future alone cannot.
    told: Mutex<Pin<Box<dyn Future<Output = Change> + Send>>>,
    /// What it told, for whoever asks again.
    change: Option<Change>,
}

impl Watch {
    /// A watch that tells when the future ends. A panic in there is the end of the session: the
    /// client crate panics when its own task is gone, as in a runtime that shuts down
    /// (docs/failures.md row 60).
    pub(crate) fn new(told: impl Future<Output = Change> + Send + 'static) -> Self {
        let told = AssertUnwindSafe(told)
            .catch_unwind()
            .map(|told| told.unwrap_or(Change::SessionOver));
        Self {
            told: Mutex::new(Box::pin(told)),
            change: None,
        }
    }

    /// Waits until the watch fires. Asked again, it says the same.
    pub(crate) async fn changed(&mut self) -> Change {
        if let Some(change) = self.change {
            return change;
        }
        let change = self
            .told
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner)
            .as_mut()
            .await;
        self.change = Some(change);
        change
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Watch")
    }
}

/// What a watch told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    /// The node is gone, or the directory whose children were watched.
    Deleted,
    /// What was watched has changed: the node's data, or which children there are. The watch is
    /// spent.
    Changed,
    SessionOver,
}

/// What the client believes of its session. Not proof of anything (docs/failures.md row 59); good
/// for waiting.
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
    /// What the server granted when the session was opened.
    fn session_timeout(&self) -> Duration;
    /// The connect string's servers, for messages.
    fn servers(&self) -> &str;
    fn create<'a>(&'a self, path: &'a str, data: &[u8], kind: Create) -> Reply<'a, Created>;
    fn delete(&self, path: &str) -> Reply<'_, ()>;
    /// Reads a node and watches it. On a missing node no watch is left.
    fn watch(&self, path: &str) -> Reply<'_, (Node, Watch)>;
    /// Lists a directory's children, without their paths, and watches which there are. On a missing
    /// node no watch is left.
    fn watch_children(&self, path: &str) -> Reply<'_, (Vec<String>, Watch)>;
    fn multi_read(&self, reads: &[Read<'_>]) -> Reply<'_, Vec<Found>>;
    fn access_list(&self, path: &str) -> Reply<'_, AccessList>;
    /// The paths of the nodes that were created, in the order of the writes that created them, with
    /// their numbers.
    fn multi(&self, writes: &[Write<'_>]) -> Reply<'_, Vec<String>>;
    /// As `multi`, and tells which of the writes the server refused, and why.
    fn attempt(&self, writes: &[Write<'_>]) -> Reply<'_, Result<Vec<String>, (usize, Code)>>;
    /// This session's ephemeral nodes whose path starts with a plain string.
    fn ephemerals(&self, prefix: &str) -> Reply<'_, Vec<String>>;
    /// Answers once this server has seen everything that was committed before.
    fn sync(&self, path: &str) -> Reply<'_, ()>;
    /// The session's states; they outlive the link and end with [`SessionState::Over`].
    fn states(&self) -> watch::Receiver<SessionState>;
    /// The number of the connection that the session has now, once the server behind it has said
    /// that it stands alone. What is sent and answered while this stays the same is answered by
    /// that server, on that connection.
    fn standalone(&self) -> Option<u64> {
        None
    }
    /// Told when another connection has got such a number. It may be lost again by then.
    fn proofs(&self) -> watch::Receiver<u64> {
        watch::channel(0).1
    }
}

/// Where sessions come from.
pub(crate) trait Opener: Send + Sync + fmt::Debug {
    /// Opens a session; tries every server once, each for no more than its share of `limit`.
    fn open(&self, limit: Duration) -> Reply<'static, Arc<dyn Link>>;
    /// The connect string's servers, without the chroot.
    fn servers(&self) -> &str;
    /// Starts with `/`, or is empty.
    fn chroot(&self) -> &str;
    /// What stands in every request.
    fn envelope(&self) -> Envelope;
    /// Whether the servers are spoken to through TLS.
    fn is_secure(&self) -> bool {
        false
    }
}
