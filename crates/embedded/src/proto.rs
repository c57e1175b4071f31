//! Requests: their kinds and contents, and the protocol's names for operations and errors.
//!
//! Invariant: a request holds nothing beyond its frame. It applies nothing and knows no state.

mod decode;

use bytes::Bytes;

use super::acl::Acl;

/// A kind of request, as counted by [`Counters`](super::Counters) and chosen by
/// [`Match`](super::Match).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Op {
    /// Create of a persistent, ephemeral or TTL node, with or without a stat in the reply.
    Create,
    /// Create of a container.
    CreateContainer,
    /// Delete.
    Delete,
    /// Delete of an empty container.
    DeleteContainer,
    /// Existence and stat of a node.
    Exists,
    /// Read of a node's data.
    GetData,
    /// Write of a node's data.
    SetData,
    /// Read of an access list.
    GetAcl,
    /// Write of an access list.
    SetAcl,
    /// Read of the names of the children, with or without a stat.
    GetChildren,
    /// Number of all descendants.
    GetAllChildrenNumber,
    /// The session's own ephemeral nodes.
    GetEphemerals,
    /// Sync.
    Sync,
    /// Ping.
    Ping,
    /// Check of a version, on its own.
    Check,
    /// A transaction; its parts are not counted.
    Multi,
    /// Several reads in one request; its parts are not counted.
    MultiRead,
    /// A persistent watch is added.
    AddWatch,
    /// Check for a persistent watch.
    CheckWatches,
    /// A watch is removed.
    RemoveWatches,
    /// The client tells its watches after a reconnect (both forms).
    SetWatches,
    /// An identity is added to the connection.
    Auth,
    /// The identities of the connection.
    WhoAmI,
    /// The client ends its session.
    CloseSession,
    /// Anything else.
    Other,
}

/// The protocol's error codes that this server sends or a test may inject.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the names are the protocol's own")]
#[repr(i32)]
pub enum Code {
    RuntimeInconsistency = -2,
    ConnectionLoss = -4,
    MarshallingError = -5,
    Unimplemented = -6,
    OperationTimeout = -7,
    BadArguments = -8,
    NoNode = -101,
    NoAuth = -102,
    BadVersion = -103,
    NoChildrenForEphemerals = -108,
    NodeExists = -110,
    NotEmpty = -111,
    SessionExpired = -112,
    InvalidAcl = -114,
    AuthFailed = -115,
    SessionMoved = -118,
    NotReadOnly = -119,
    NoWatcher = -121,
    ReconfigDisabled = -123,
    QuotaExceeded = -125,
    Throttled = -127,
}

/// The first message of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ConnectRequest {
    pub(super) last_zxid: i64,
    pub(super) timeout_ms: i32,
    pub(super) session: i64,
    pub(super) password: Bytes,
    /// Clients before 3.4 do not send the read-only flag, and fail if it is in the reply.
    pub(super) knows_read_only: bool,
}

/// The form of a create. It decides the contents of the reply and, for containers and TTLs, the
/// kind of node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CreateKind {
    Plain,
    WithStat,
    Container,
    Ttl,
}

/// One create, as sent: modes and access lists are not checked yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Create {
    pub(super) kind: CreateKind,
    pub(super) path: String,
    pub(super) data: Option<Bytes>,
    pub(super) acl: Vec<Acl>,
    pub(super) flags: i32,
    pub(super) ttl: i64,
}

/// A write, alone or as part of a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Write {
    Create(Create),
    Delete {
        path: String,
        version: i32,
    },
    SetData {
        path: String,
        data: Option<Bytes>,
        version: i32,
    },
    Check {
        path: String,
        version: i32,
    },
}

impl Write {
    pub(super) fn path(&self) -> &str {
        match self {
            Self::Create(create) => &create.path,
            Self::Delete { path, .. } | Self::SetData { path, .. } | Self::Check { path, .. } => {
                path
            }
        }
    }
}

/// A part of a multi-read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Read {
    Data { path: String },
    Children { path: String },
}

impl Read {
    pub(super) fn path(&self) -> &str {
        match self {
            Self::Data { path } | Self::Children { path } => path,
        }
    }
}

/// The watches that a client had before it reconnected, by kind.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct WatchedPaths {
    pub(super) seen_zxid: i64,
    pub(super) data: Vec<String>,
    pub(super) exist: Vec<String>,
    pub(super) child: Vec<String>,
    pub(super) persistent: Vec<String>,
    pub(super) recursive: Vec<String>,
}

/// One decoded request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Request {
    Write(Write),
    Multi(Vec<Write>),
    MultiRead(Vec<Read>),
    DeleteContainer {
        path: String,
    },
    Exists {
        path: String,
        watch: bool,
    },
    GetData {
        path: String,
        watch: bool,
    },
    GetChildren {
        path: String,
        watch: bool,
        with_stat: bool,
    },
    GetAcl {
        path: String,
    },
    SetAcl {
        path: String,
        acl: Vec<Acl>,
        version: i32,
    },
    GetEphemerals {
        prefix: String,
    },
    GetAllChildrenNumber {
        path: String,
    },
    Sync {
        path: String,
    },
    AddWatch {
        path: String,
        mode: i32,
    },
    CheckWatches {
        path: String,
        kind: i32,
    },
    RemoveWatches {
        path: String,
        kind: i32,
    },
    SetWatches(WatchedPaths),
    Auth {
        scheme: String,
        secret: Bytes,
    },
    Sasl,
    WhoAmI,
    Ping,
    CloseSession,
    Reconfig,
    /// Well framed but invalid, such as a read in a transaction: answered with `MarshallingError`.
    Senseless {
        op: Op,
        is_write: bool,
    },
    /// An operation that the protocol does not have. It is answered with `Unimplemented`, then the
    /// connection is closed.
    Unknown,
}

impl Request {
    /// The kind of this request.
    pub(super) fn op(&self) -> Op {
        match self {
            Self::Write(Write::Create(create)) if create.kind == CreateKind::Container => {
                Op::CreateContainer
            }
            Self::Write(Write::Create(_)) => Op::Create,
            Self::Write(Write::Delete { .. }) => Op::Delete,
            Self::Write(Write::SetData { .. }) => Op::SetData,
            Self::Write(Write::Check { .. }) => Op::Check,
            Self::Multi(_) => Op::Multi,
            Self::MultiRead(_) => Op::MultiRead,
            Self::DeleteContainer { .. } => Op::DeleteContainer,
            Self::Exists { .. } => Op::Exists,
            Self::GetData { .. } => Op::GetData,
            Self::GetChildren { .. } => Op::GetChildren,
            Self::GetAcl { .. } => Op::GetAcl,
            Self::SetAcl { .. } => Op::SetAcl,
            Self::GetEphemerals { .. } => Op::GetEphemerals,
            Self::GetAllChildrenNumber { .. } => Op::GetAllChildrenNumber,
            Self::Sync { .. } => Op::Sync,
            Self::AddWatch { .. } => Op::AddWatch,
            Self::CheckWatches { .. } => Op::CheckWatches,
            Self::RemoveWatches { .. } => Op::RemoveWatches,
            Self::SetWatches(_) => Op::SetWatches,
            Self::Auth { .. } => Op::Auth,
            Self::WhoAmI => Op::WhoAmI,
            Self::Ping => Op::Ping,
            Self::CloseSession => Op::CloseSession,
            Self::Senseless { op, .. } => *op,
            Self::Sasl | Self::Reconfig | Self::Unknown => Op::Other,
        }
    }

    /// Whether any path that this request names satisfies `wanted`.
    pub(super) fn any_path(&self, mut wanted: impl FnMut(&str) -> bool) -> bool {
        match self {
            Self::Write(write) => wanted(write.path()),
            Self::Multi(writes) => writes.iter().any(|write| wanted(write.path())),
            Self::MultiRead(reads) => reads.iter().any(|read| wanted(read.path())),
            Self::Exists { path, .. }
            | Self::DeleteContainer { path }
            | Self::GetData { path, .. }
            | Self::GetChildren { path, .. }
            | Self::GetAcl { path }
            | Self::SetAcl { path, .. }
            | Self::GetEphemerals { prefix: path }
            | Self::GetAllChildrenNumber { path }
            | Self::Sync { path }
            | Self::AddWatch { path, .. }
            | Self::CheckWatches { path, .. }
            | Self::RemoveWatches { path, .. } => wanted(path),
            Self::SetWatches(paths) => [
                &paths.data,
                &paths.exist,
                &paths.child,
                &paths.persistent,
                &paths.recursive,
            ]
            .into_iter()
            .flatten()
            .any(|path| wanted(path)),
            _ => false,
        }
    }
}
