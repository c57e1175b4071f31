//! The stores, the peers on each, their drivers, and their limits.
//!
//! It knows no server and no process.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// A server. A run is on one of the first three; etcd is beside ZooKeeper.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize, Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Store {
    #[default]
    #[value(name = "zookeeper")]
    ZooKeeper,
    Redis,
    Postgres,
    #[value(skip)]
    Etcd,
}

/// One way to lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Peer {
    Lockkeeper,
    /// The fewest raw operations of the store that could do it, with no error handled.
    Baseline,
    /// The same, each sent as soon as Lockkeeper sends its own, and not after the answer before.
    Pipelined,
    /// `Client::lock` of the client crate, released by an awaited delete.
    ClientLock,
    Curator,
    Kazoo,
    Etcd,
    /// `SET NX PX`, and again after a pause.
    SetNx,
    RedisPy,
    PythonRedisLock,
    NodeRedlock,
    Redisson,
    /// `pg_advisory_lock`.
    Advisory,
    /// An insert that may conflict, and again after a pause.
    UniqueRow,
    /// `FOR UPDATE SKIP LOCKED`, and again after a pause.
    ForUpdate,
}

/// Whoever waits by asking again does so after this long.
pub(crate) const PAUSE_MS: u64 = 10;

impl Store {
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::ZooKeeper => "ZooKeeper",
            Self::Redis => "Redis",
            Self::Postgres => "PostgreSQL",
            Self::Etcd => "etcd",
        }
    }

    /// As on the command line and in the files.
    pub(crate) fn key(self) -> &'static str {
        match self {
            Self::ZooKeeper => "zookeeper",
            Self::Redis => "redis",
            Self::Postgres => "postgres",
            Self::Etcd => "etcd",
        }
    }

    /// Who takes part in a run on it.
    pub(crate) fn peers(self) -> &'static [Peer] {
        match self {
            Self::ZooKeeper => &[
                Peer::Lockkeeper,
                Peer::Baseline,
                Peer::Pipelined,
                Peer::ClientLock,
                Peer::Curator,
                Peer::Kazoo,
                Peer::Etcd,
            ],
            Self::Redis => &[
                Peer::Lockkeeper,
                Peer::Baseline,
                Peer::SetNx,
                Peer::RedisPy,
                Peer::PythonRedisLock,
                Peer::NodeRedlock,
                Peer::Redisson,
            ],
            Self::Postgres => &[
                Peer::Lockkeeper,
                Peer::Baseline,
                Peer::Advisory,
                Peer::UniqueRow,
                Peer::ForUpdate,
            ],
            Self::Etcd => &[],
        }
    }
}

impl Peer {
    /// As on the command line and in the files.
    pub(crate) fn key(self) -> &'static str {
        match self {
            Self::Lockkeeper => "lockkeeper",
            Self::Baseline => "baseline",
            Self::Pipelined => "pipelined",
            Self::ClientLock => "client-lock",
            Self::Curator => "curator",
            Self::Kazoo => "kazoo",
            Self::Etcd => "etcd",
            Self::SetNx => "set-nx",
            Self::RedisPy => "redis-py",
            Self::PythonRedisLock => "python-redis-lock",
            Self::NodeRedlock => "node-redlock",
            Self::Redisson => "redisson",
            Self::Advisory => "advisory",
            Self::UniqueRow => "unique-row",
            Self::ForUpdate => "for-update",
        }
    }

    /// As a reader of the tables knows it.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Lockkeeper => "Lockkeeper",
            Self::Baseline => "baseline",
            Self::Pipelined => "pipelined baseline",
            Self::ClientLock => "client crate's lock",
            Self::Curator => "Curator",
            Self::Kazoo => "kazoo",
            Self::Etcd => "etcd",
            Self::SetNx => "SET NX",
            Self::RedisPy => "redis-py",
            Self::PythonRedisLock => "python-redis-lock",
            Self::NodeRedlock => "node-redlock",
            Self::Redisson => "Redisson",
            Self::Advisory => "advisory lock",
            Self::UniqueRow => "unique row",
            Self::ForUpdate => "FOR UPDATE",
        }
    }

    /// The server that it needs in a run on this store.
    pub(crate) fn server(self, on: Store) -> Store {
        match self {
            Self::Etcd => Store::Etcd,
            _ => on,
        }
    }

    /// Whether it is Lockkeeper, or what Lockkeeper could be at best.
    pub(crate) fn is_ours(self) -> bool {
        matches!(self, Self::Lockkeeper | Self::Baseline | Self::Pipelined)
    }

    /// Whether it needs a connection for each waiter, which is a process of the server.
    pub(crate) fn has_connections(self) -> bool {
        matches!(self, Self::Advisory | Self::UniqueRow | Self::ForUpdate)
    }

    /// Why a hand-over to so many waiters is not even tried. What is said here was measured or
    /// read, not guessed.
    pub(crate) fn refuses(self, waiters: usize) -> Option<&'static str> {
        match self {
            Self::Etcd if waiters > 1_000 => Some("not run: over two minutes a round"),
            _ if self.has_connections() && waiters > 1_000 => {
                Some("not run: a process of the server for each waiter")
            }
            _ if waiters <= 5_000 || self.is_ours() => None,
            // From about 17 700 names of its locks on, the list in one reply is over 1 MiB.
            Self::Curator if waiters > 17_000 => {
                Some("cannot: its client refuses a list that long")
            }
            // Each waiter keeps the whole list in memory.
            Self::ClientLock => Some("not run: by its growth, 8 GB"),
            Self::RedisPy | Self::PythonRedisLock | Self::NodeRedlock | Self::Redisson => {
                Some("not tried yet")
            }
            _ => Some("not run: minutes a round"),
        }
    }

    /// Whether a round of a crowd takes so long that fewer rounds must do.
    pub(crate) fn is_slow_at(self, waiters: usize) -> bool {
        waiters >= 5_000 && !self.is_ours()
    }

    /// Whether the growth of its process shows a waiter's memory. A JVM's and Node's show how their
    /// heaps were sized, and a baseline has no waiters but those of the measurement.
    pub(crate) fn shows_memory(self) -> bool {
        !matches!(
            self,
            Self::Curator | Self::Redisson | Self::NodeRedlock | Self::Baseline | Self::Pipelined
        )
    }
}
