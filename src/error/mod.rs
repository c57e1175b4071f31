//! The one error type of the library.
//!
//! Each message names the lock or the path, the operation and the reason. "Not now" is never an
//! error: the `try_*` methods return `Ok(None)` for it. Errors of the client crate appear as words
//! only, so its major version is not part of this API.

mod connect;
mod making;
mod questions;
mod right;
mod store;

pub(crate) use connect::list;
pub use connect::{AddressFailure, UnreachableReason};
#[cfg(any(feature = "mysql", feature = "postgres"))]
pub(crate) use making::AT_IN_OPTIONS;
pub(crate) use making::without_secrets;
use making::{in_the_way, within};
pub use right::Right;
pub use store::StoreProblem;

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;

use crate::owner::Owner;

/// A failed call: the reason, and the lock.
///
/// Ask with the `is_*` methods instead of matching, because variants will be added. Messages are
/// for people and may change. [`source`](std::error::Error::source) gives the [`io::Error`] under
/// [`Error::Unreachable`]; no other variant has a source.
///
/// # Examples
///
/// ```
/// # use lockkeeper::{Keeper, embedded::EmbeddedServer};
/// # use std::time::Duration;
/// # #[tokio::main]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = EmbeddedServer::start().await?;
/// # let keeper = Keeper::connect(server.connect_string()).await?;
/// let lock = keeper.mutex("orders/42")?;
/// match lock.lock_timeout(Duration::from_secs(5)).await {
///     Ok(guard) => guard.release().await?,
///     Err(error) if error.is_timeout() => println!("busy, try later"),
///     Err(error) if error.is_denied() => println!("check the access list: {error}"),
///     Err(error) => return Err(error.into()),
/// }
/// # keeper.close().await;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Error)]
#[non_exhaustive]
pub enum Error {
    /// A lock name that breaks one of the rules of [`LockName`](crate::LockName); nothing was sent.
    #[error("lock name {name:?} is refused: {why}")]
    #[non_exhaustive]
    InvalidName {
        /// The name as it was given.
        name: String,
        /// The rule that it breaks.
        why: &'static str,
    },

    /// An option has an illegal value, the connect string for example. Nothing was sent.
    #[error("{what} {given:?} is refused: {why}")]
    #[non_exhaustive]
    InvalidOption {
        /// Which option.
        what: &'static str,
        /// The value as it was given.
        given: String,
        /// The rule that it breaks.
        why: String,
    },

    /// A request is longer than servers read (`jute.maxbuffer`). It was not sent: the server would
    /// have closed the connection, on which all locks of the session rest.
    #[error(
        "cannot {doing} {what}: that is a request of {bytes} bytes, and servers read {limit} at most"
    )]
    #[non_exhaustive]
    TooLarge {
        /// The operation.
        doing: &'static str,
        /// The locks, the path below the chroot, or the credential's scheme.
        what: String,
        /// The bytes of the request, with its paths, data and access lists.
        bytes: usize,
        /// The limit of servers with the default `jute.maxbuffer`.
        limit: usize,
    },

    /// No server gave a session within the connect timeout.
    #[error("no session (tried for {waited:.1?}): {}", list(.addresses))]
    #[non_exhaustive]
    Unreachable {
        /// Each address with its own reason.
        addresses: Vec<AddressFailure>,
        /// The time from the first try to the last.
        waited: Duration,
        /// The failure of the network under the first address that has one.
        source: Option<Arc<io::Error>>,
    },

    /// The servers answer, but the chroot of the connect string does not exist there.
    #[error(
        "chroot {chroot} does not exist on {servers}: have it made (`create_chroot`, --create-chroot), or leave it out of the connect string"
    )]
    #[non_exhaustive]
    ChrootMissing {
        /// The chroot.
        chroot: String,
        /// The servers of the connect string.
        servers: String,
    },

    /// The access list of a node does not give us the right that an operation needs. Another
    /// identity made the node: a keeper with a [`credential`](crate::KeeperBuilder::credential) and
    /// no [`acl`](crate::KeeperBuilder::acl) makes nodes that only this identity may use.
    #[error(
        "no permission to {doing} {path} on {servers}: it needs {needs}, which its access list does not give us. All who share a lock need the same credential, or a list that names them all (`acl`, --acl)"
    )]
    #[non_exhaustive]
    Denied {
        /// The operation.
        doing: &'static str,
        /// The path, below the chroot.
        path: String,
        /// The missing right.
        needs: Right,
        /// The servers of the connect string.
        servers: String,
    },

    /// A node of the lock has a wider access list than the keeper's
    /// [`acl`](crate::KeeperBuilder::acl). Another identity made the node, or changed its list. A
    /// client that may write there can call a second holder in, so our ticket leaves. See
    /// [`strict_acl`](crate::KeeperBuilder::strict_acl).
    #[error(
        "{name} is refused: the access list of {path} on {servers} allows {allows}, which ours does not. Remove that node while nobody uses the lock, or give it your list (setAcl); or use the list that it has (`acl`, --acl), or only be warned (`strict_acl(false)`, --no-strict-acl)"
    )]
    #[non_exhaustive]
    WiderAcl {
        /// The lock.
        name: String,
        /// The node, below the chroot.
        path: String,
        /// The wider entries, as ZooKeeper's tools write them, without the hashes of digests.
        allows: String,
        /// The servers of the connect string.
        servers: String,
    },

    /// The servers do not accept the credential: they do not know its scheme, or the secret is
    /// wrong.
    #[error(
        "the servers do not accept the credential ({servers}): they do not know its scheme, or do not believe it"
    )]
    #[non_exhaustive]
    Unauthenticated {
        /// The servers of the connect string.
        servers: String,
    },

    /// The server answered an operation with an error that no retry would change.
    #[error("cannot {doing} {path} on {servers}: {why}")]
    #[non_exhaustive]
    Refused {
        /// The operation.
        doing: &'static str,
        /// The path, below the chroot.
        path: String,
        /// The servers of the connect string.
        servers: String,
        /// The answer of the server.
        why: String,
    },

    /// The ZooKeeper session ended, and all its tickets with it.
    #[error("the session ended while trying to {doing} {name}: {reason}")]
    #[non_exhaustive]
    SessionOver {
        /// The lock.
        name: String,
        /// The operation.
        doing: &'static str,
        /// How the session ended.
        reason: &'static str,
    },

    /// The lease of a guard expired: no server confirmed the session in time. Another client may
    /// hold the lock by now.
    #[error(
        "the hold of {name} is lost: no server confirmed the session in time, and others may hold the lock by now"
    )]
    #[non_exhaustive]
    LeaseOver {
        /// The lock.
        name: String,
    },

    /// The reply to a write was lost, so the write may have happened.
    #[error("could not confirm {doing} for {name}: {why}; it may have happened")]
    #[non_exhaustive]
    OutcomeUnknown {
        /// The lock.
        name: String,
        /// The operation.
        doing: &'static str,
        /// The failure that came in place of an answer.
        why: String,
    },

    /// Our ticket is gone although our session lives: another client removed it.
    #[error("the place in the queue of {name} is lost: {why}")]
    #[non_exhaustive]
    PlaceLost {
        /// The lock.
        name: String,
        /// The reason, as far as it is known.
        why: &'static str,
    },

    /// The lock was not granted in time. Our ticket has left the queue.
    #[error("{name} was not granted {}", within(.waited))]
    #[non_exhaustive]
    TimedOut {
        /// The lock.
        name: String,
        /// The time limit of the call.
        waited: Duration,
    },

    /// The owner holds the lock for reading and asks to write. It would wait for itself.
    #[error(
        "the owner holds {name} for reading and cannot have it for writing as well: release it first, or try to upgrade it"
    )]
    #[non_exhaustive]
    HeldForReading {
        /// The lock.
        name: String,
        /// The owner.
        owner: Owner,
    },

    /// A read lock was not upgraded, because other tickets hold the lock or wait for it.
    #[error("the read lock of {name} cannot be upgraded: {}", in_the_way(.others))]
    #[non_exhaustive]
    NotUpgradable {
        /// The lock.
        name: String,
        /// The number of those tickets.
        others: usize,
    },

    /// The limit of this handle differs from the stored limit of the semaphore.
    #[error(
        "semaphore {name} has a limit of {theirs}, not {ours}: use the same everywhere, or resize it"
    )]
    #[non_exhaustive]
    LimitMismatch {
        /// The semaphore.
        name: String,
        /// The limit of this handle.
        ours: u32,
        /// The stored limit.
        theirs: u32,
    },

    /// A call asked for more permits than the limit of the semaphore.
    #[error("cannot acquire {asked} permits of semaphore {name}: the limit is {limit}")]
    #[non_exhaustive]
    TooManyPermits {
        /// The semaphore.
        name: String,
        /// The permits of the call.
        asked: u32,
        /// The semaphore's limit.
        limit: u32,
    },

    /// The lock's directory has a ticket that cannot share this queue: it is of another recipe, or
    /// of another [`Dialect`](crate::Dialect), or the name belongs to a
    /// [`Semaphore`](crate::Semaphore). Both could hold at the same time, so our ticket leaves, and
    /// its [`Place`](crate::Place) ends.
    #[error(
        "{name} cannot be locked beside {node}, which is {what}: use another name, or the same recipe and dialect everywhere"
    )]
    #[non_exhaustive]
    UnsafeMix {
        /// The lock.
        name: String,
        /// That node.
        node: String,
        /// Its description.
        what: &'static str,
    },

    /// A store of a plain lock did not do what was asked, or the lock is not ours there.
    #[error("cannot {doing} {name} on {server}: {problem}")]
    #[non_exhaustive]
    Store {
        /// The lock, or `the store`.
        name: String,
        /// The operation.
        doing: &'static str,
        /// The server, without user and password.
        server: Box<str>,
        /// The reason, and the way out.
        problem: StoreProblem,
    },

    /// The [`Keeper`](crate::Keeper) was closed.
    #[error("the keeper was closed while trying to {doing} {name}")]
    #[non_exhaustive]
    Closed {
        /// The lock, or `the keeper`.
        name: String,
        /// The operation.
        doing: &'static str,
    },
}

/// The result of every fallible call of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A [`LockName`](crate::LockName) cannot be refused.
impl From<Infallible> for Error {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}

#[cfg(test)]
mod tests;
