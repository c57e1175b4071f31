//! The stores that a keeper can be on.

use std::fmt;

use crate::brief::{Brief, shows};

/// The store that a [`Keeper`](crate::Keeper) is on, by the scheme of its connect string.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Engine {
    /// Apache ZooKeeper: no scheme, or `zookeeper://`.
    ZooKeeper,
    /// Redis, 7.0 and newer: `redis://`. It needs the feature `redis`, and is **not finished**.
    ///
    /// After a start, a promotion or a `FLUSHALL`, data may be lost. Then every session is over.
    /// For 35 s none is given, because clients of before may still think that they hold locks. A
    /// connect waits for that. Options that are ZooKeeper's own are refused by name.
    Redis,
}

impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ZooKeeper => "ZooKeeper",
            Self::Redis => "Redis",
        })
    }
}

/// A setting of the store that weakens the promises: one of [`Keeper::weaknesses`].
///
/// [`Keeper::weaknesses`]: crate::Keeper::weaknesses
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Weakness {
    /// The setting, as the store calls it.
    pub setting: String,
    /// What it costs, and what to set.
    pub why: String,
}

shows!(|weakness| Weakness {
    setting: Brief(&weakness.setting),
    why: Brief(&weakness.why),
});

impl fmt::Display for Weakness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.setting, self.why)
    }
}
