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
    /// `redis://user:password@host:6379/0` names the primary. `redis-sentinel://s1,s2,s3/mymaster`
    /// names sentinels and the primary that they watch. They are asked at each connect, and when
    /// they decide for another primary. Their own user and password are the options
    /// `sentinel_username` and `sentinel_password`. With `rediss://` and `rediss-sentinel://` all
    /// connections have TLS, with the certificates of [`KeeperBuilder::tls`]. That needs the
    /// feature `tls`.
    ///
    /// [`KeeperBuilder::tls`]: crate::KeeperBuilder
    ///
    /// After a start, a promotion or a `FLUSHALL`, data may be lost. Then every session is over.
    /// For 35 s none is given, because clients of before may still think that they hold locks. A
    /// connect waits for that. Options that are ZooKeeper's own are refused by name.
    Redis,
    /// PostgreSQL, 13 and newer: `postgres://`. It needs the feature `postgres`, and is **not
    /// finished**.
    ///
    /// `postgres://user:password@host:5432/database` names the primary. A schema of ours,
    /// `lockkeeper` or what `?schema=` says, is made at the first connect. For that, the user needs
    /// `CREATE` on the database. If another user has made the schema before, `USAGE` on it and all
    /// rights on its tables are enough. Transactions must be `read committed`, as by default.
    ///
    /// With the certificates of [`KeeperBuilder::tls`](crate::KeeperBuilder) all connections have
    /// TLS. `?sslmode=verify-full` asks for it, and so does `require`. Both verify the certificate
    /// and its name. `disable` is the other mode that is accepted.
    ///
    /// Each session has two connections, and each keeper another one for notifications.
    /// `?wake=poll` asks for events instead, up to each 10 ms while something waits. That also
    /// works behind a pooler that shares connections, as PgBouncer does it in transaction mode.
    /// With the default `?wake=notify` such a pooler is refused.
    ///
    /// After a start, a promotion, a crash of one of its processes, or the loss of the schema, data
    /// may be lost. Then every session is over. For 35 s none is given, because clients of before
    /// may still think that they hold locks. A connect waits for that. Options that are ZooKeeper's
    /// own are refused by name.
    Postgres,
}

impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ZooKeeper => "ZooKeeper",
            Self::Redis => "Redis",
            Self::Postgres => "PostgreSQL",
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
