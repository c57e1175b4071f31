//! The peers: their names, their drivers, and their limits.
//!
//! It knows no server and no process.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// One way to lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Peer {
    Lockkeeper,
    /// The fewest raw operations of the client crate that could do it, with no error handled.
    Baseline,
    /// The same, each sent as soon as Lockkeeper sends its own, and not after the answer before.
    Pipelined,
    /// `Client::lock` of the client crate, released by an awaited delete.
    ClientLock,
    Curator,
    Kazoo,
    Etcd,
    Redis,
}

/// The server that a peer needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Store {
    ZooKeeper,
    Etcd,
    Redis,
}

impl Peer {
    pub(crate) const ALL: [Self; 8] = [
        Self::Lockkeeper,
        Self::Baseline,
        Self::Pipelined,
        Self::ClientLock,
        Self::Curator,
        Self::Kazoo,
        Self::Etcd,
        Self::Redis,
    ];

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
            Self::Redis => "redis",
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
            Self::Redis => "Redis",
        }
    }

    pub(crate) fn store(self) -> Store {
        match self {
            Self::Etcd => Store::Etcd,
            Self::Redis => Store::Redis,
            _ => Store::ZooKeeper,
        }
    }

    /// Why a hand-over to so many waiters is not even tried. What is said here was measured or
    /// read, not guessed.
    pub(crate) fn refuses(self, waiters: usize) -> Option<&'static str> {
        match self {
            Self::Etcd if waiters > 1_000 => Some("not run: over two minutes a round"),
            _ if waiters <= 5_000 => None,
            Self::Lockkeeper | Self::Baseline | Self::Pipelined => None,
            // From about 17 700 names of its locks on, the list in one reply is over 1 MiB.
            Self::Curator if waiters > 17_000 => {
                Some("cannot: its client refuses a list that long")
            }
            // Each waiter keeps the whole list in memory.
            Self::ClientLock => Some("not run: by its growth, 8 GB"),
            _ => Some("not run: minutes a round"),
        }
    }

    /// Whether a round of a crowd takes so long that fewer rounds must do.
    pub(crate) fn is_slow_at(self, waiters: usize) -> bool {
        waiters >= 5_000 && !matches!(self, Self::Lockkeeper | Self::Baseline | Self::Pipelined)
    }

    /// Whether the growth of its process shows a waiter's memory. A JVM's shows how its heap was
    /// sized, and a baseline has no waiters but those of the measurement.
    pub(crate) fn shows_memory(self) -> bool {
        !matches!(self, Self::Curator | Self::Baseline | Self::Pipelined)
    }
}
