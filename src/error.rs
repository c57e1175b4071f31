//! The one error type of the library.
//!
//! Every message names the lock or the path, what was being done, and why it failed. "Not now" is
//! never an error: the `try_*` methods say it with `Ok(None)`. The client crate's errors appear as
//! words only, so that its major version is not ours.

use std::convert::Infallible;
use std::fmt;
use std::time::Duration;

use thiserror::Error;

use crate::owner::Owner;

/// What went wrong, and with which lock.
///
/// Ask with the `is_*` methods rather than by matching: more variants will come.
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

    /// A connect string, root or timeout that cannot be used; nothing was sent.
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

    /// A request is longer than servers read (`jute.maxbuffer`): they would cut the connection, on
    /// which all locks of the session rest. It was not sent.
    #[error(
        "cannot {doing} {what}: that is a request of {bytes} bytes, and servers read {limit} at most"
    )]
    #[non_exhaustive]
    TooLarge {
        /// What was being done.
        doing: &'static str,
        /// The locks, the path below the chroot, or the credential's scheme.
        what: String,
        /// The bytes of the request: paths with the chroot, data and access lists as they are sent.
        bytes: usize,
        /// The most that servers read, unless somebody has set another `jute.maxbuffer` there.
        limit: usize,
    },

    /// No server gave a session within the connect timeout.
    #[error("no ZooKeeper session (tried for {waited:.1?}): {}", list(.addresses))]
    #[non_exhaustive]
    Unreachable {
        /// Each address with its own reason.
        addresses: Vec<AddressFailure>,
        /// How long was tried.
        waited: Duration,
    },

    /// The servers answer, but the chroot of the connect string does not exist there.
    #[error(
        "chroot {chroot} does not exist on {servers}: create it first, or leave it out of the connect string"
    )]
    #[non_exhaustive]
    ChrootMissing {
        /// The chroot.
        chroot: String,
        /// The servers of the connect string.
        servers: String,
    },

    /// The server refused an operation for lack of permission: another identity made the node. With
    /// a [`credential`](crate::KeeperBuilder::credential) and no [`acl`](crate::KeeperBuilder::acl)
    /// nobody else may touch what a keeper makes.
    #[error(
        "no permission to {doing} {path} on {servers}: it needs {needs}, which its access list does not give us. All who share a lock need the same credential, or a list that names them all (`acl`, --acl)"
    )]
    #[non_exhaustive]
    Denied {
        /// What was being done.
        doing: &'static str,
        /// The path, below the chroot.
        path: String,
        /// The right that we lack there: `READ`, `WRITE`, `CREATE` or `DELETE`. The last two are
        /// rights on the directory of a node.
        needs: &'static str,
        /// The servers of the connect string.
        servers: String,
    },

    /// A node that belongs to the lock lets others in than the keeper's
    /// [`acl`](crate::KeeperBuilder::acl) does: somebody else made it, or changed its list, and
    /// whoever may write there can call a second holder in. Our ticket leaves. See
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
        /// What is allowed to whom, as ZooKeeper's tools write it; hashes of digests are left out.
        allows: String,
        /// The servers of the connect string.
        servers: String,
    },

    /// The servers do not accept what is to prove who we are: they do not know its scheme, or do
    /// not believe it.
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
        /// What was being done.
        doing: &'static str,
        /// The path, below the chroot.
        path: String,
        /// The servers of the connect string.
        servers: String,
        /// The server's own words.
        why: String,
    },

    /// The ZooKeeper session ended, and with it every ticket that it held.
    #[error("the session ended while trying to {doing} {name}: {reason}")]
    #[non_exhaustive]
    SessionOver {
        /// The lock.
        name: String,
        /// What was being done.
        doing: &'static str,
        /// How the session ended.
        reason: &'static str,
    },

    /// A guard's lease ran out: no server confirmed its session for so long that others may hold
    /// the lock by now.
    #[error(
        "the hold of {name} is lost: no server confirmed the session in time, and others may hold the lock by now"
    )]
    #[non_exhaustive]
    LeaseOver {
        /// The lock.
        name: String,
    },

    /// A write's reply was lost: it may have happened, or not.
    #[error("whether it was possible to {doing} for {name} is unknown: {why}")]
    #[non_exhaustive]
    OutcomeUnknown {
        /// The lock.
        name: String,
        /// What was being done.
        doing: &'static str,
        /// What was seen instead of an answer.
        why: String,
    },

    /// Our ticket is gone although our session lives: somebody removed it.
    #[error("the place in the queue of {name} is lost: {why}")]
    #[non_exhaustive]
    PlaceLost {
        /// The lock.
        name: String,
        /// What was found instead of our ticket.
        why: &'static str,
    },

    /// The lock was not granted in time. Our ticket has left the queue.
    #[error("{name} was not granted {}", within(.waited))]
    #[non_exhaustive]
    TimedOut {
        /// The lock.
        name: String,
        /// How long was waited.
        waited: Duration,
    },

    /// The owner holds the lock for reading and asked to write: it would wait for itself.
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

    /// A read lock was not upgraded, because others hold the lock or wait in front.
    #[error("the read lock of {name} cannot be upgraded: {}", in_the_way(.others))]
    #[non_exhaustive]
    NotUpgradable {
        /// The lock.
        name: String,
        /// How many they are.
        others: usize,
    },

    /// A semaphore is used with another limit than the one that is stored with it.
    #[error(
        "semaphore {name} has a limit of {theirs}, not {ours}: use the same everywhere, or resize it"
    )]
    #[non_exhaustive]
    LimitMismatch {
        /// The semaphore.
        name: String,
        /// The limit that was given here.
        ours: u32,
        /// The limit that is stored.
        theirs: u32,
    },

    /// More permits were asked for than the semaphore has in all, so that they would never be
    /// there.
    #[error("semaphore {name} has a limit of {limit}, so {asked} permits at once are never there")]
    #[non_exhaustive]
    TooManyPermits {
        /// The semaphore.
        name: String,
        /// The permits that were asked for.
        asked: u32,
        /// The semaphore's limit.
        limit: u32,
    },

    /// In the lock's directory is a ticket that cannot share this queue, of another recipe or of
    /// another [`Dialect`](crate::Dialect), or the name is a [`Semaphore`](crate::Semaphore)'s: one
    /// of the two would pass the other by. Our ticket leaves, with the [`Place`](crate::Place) if
    /// there is one.
    #[error(
        "{name} cannot be locked beside {node}, which is {what}: use another name, or the same recipe and dialect everywhere"
    )]
    #[non_exhaustive]
    UnsafeMix {
        /// The lock.
        name: String,
        /// The node that was found.
        node: String,
        /// What it is.
        what: &'static str,
    },

    /// The [`Keeper`](crate::Keeper) was closed.
    #[error("the keeper was closed while trying to {doing} {name}")]
    #[non_exhaustive]
    Closed {
        /// The lock, or `the keeper` itself.
        name: String,
        /// What was being done.
        doing: &'static str,
    },
}

/// The result of every fallible call of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// The same, at the end of several tries that took so long in all.
    pub(crate) fn after(mut self, all: Duration) -> Self {
        if let Self::Unreachable { waited, .. } = &mut self {
            *waited = all;
        }
        self
    }

    /// The same of a call that was for this lock.
    pub(crate) fn about(mut self, lock: impl ToString) -> Self {
        if let Self::Closed { name, .. } = &mut self {
            *name = lock.to_string();
        }
        self
    }

    /// No session, but one of the addresses is known to be a server's.
    pub(crate) fn names_a_server(&self) -> bool {
        let is_server = |failure: &AddressFailure| failure.reason == UnreachableReason::NotServing;
        matches!(self, Self::Unreachable { addresses, .. } if addresses.iter().any(is_server))
    }

    /// A lock name or an option was refused, or a request is too large: before it was sent.
    pub fn is_invalid(&self) -> bool {
        matches!(
            self,
            Self::InvalidName { .. } | Self::InvalidOption { .. } | Self::TooLarge { .. }
        )
    }

    /// No server gave us a session: [`Error::Unreachable`], or [`Error::ChrootMissing`] behind the
    /// servers that did.
    pub fn is_unreachable(&self) -> bool {
        matches!(self, Self::Unreachable { .. } | Self::ChrootMissing { .. })
    }

    /// A `*_timeout` call ran out of time.
    pub fn is_timeout(&self) -> bool {
        matches!(self, Self::TimedOut { .. })
    }

    /// The hold or the place has ended: the session is over or could not be confirmed in time, the
    /// ticket was removed by somebody else, or the keeper was closed.
    pub fn is_lost(&self) -> bool {
        matches!(
            self,
            Self::SessionOver { .. }
                | Self::LeaseOver { .. }
                | Self::PlaceLost { .. }
                | Self::Closed { .. }
        )
    }

    /// A write of [`Guard::fenced`](crate::Guard::fenced) may have happened, or not:
    /// [`Error::OutcomeUnknown`].
    pub fn is_unknown(&self) -> bool {
        matches!(self, Self::OutcomeUnknown { .. })
    }

    /// The call can never be granted as it was made: the owner would wait for itself, the read lock
    /// cannot be upgraded now, the semaphore's limit is another or too low, a ticket stands there
    /// that cannot share the queue, or the lock's nodes are open to others. Nothing was changed.
    pub fn is_refusal(&self) -> bool {
        matches!(
            self,
            Self::HeldForReading { .. }
                | Self::NotUpgradable { .. }
                | Self::LimitMismatch { .. }
                | Self::TooManyPermits { .. }
                | Self::UnsafeMix { .. }
                | Self::WiderAcl { .. }
        )
    }

    /// The ZooKeeper session ended.
    pub fn is_session_over(&self) -> bool {
        matches!(self, Self::SessionOver { .. })
    }

    /// The [`Keeper`](crate::Keeper) was closed.
    pub fn is_closed(&self) -> bool {
        matches!(self, Self::Closed { .. })
    }

    /// The server refused for lack of permission, or does not accept who we say we are.
    pub fn is_denied(&self) -> bool {
        matches!(self, Self::Denied { .. } | Self::Unauthenticated { .. })
    }

    /// The same call may succeed later without anybody changing a setting.
    pub fn is_retryable(&self) -> bool {
        matches!(
            self,
            Self::TimedOut { .. }
                | Self::SessionOver { .. }
                | Self::LeaseOver { .. }
                | Self::PlaceLost { .. }
                | Self::Unreachable { .. }
        )
    }
}

/// A name that is a [`LockName`](crate::LockName) already cannot be refused.
impl From<Infallible> for Error {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}

/// One address of the connect string and why it gave no session.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct AddressFailure {
    /// Host and port as in the connect string.
    pub address: String,
    /// What was found there.
    pub reason: UnreachableReason,
}

impl AddressFailure {
    pub(crate) fn new(address: String, reason: UnreachableReason) -> Self {
        Self { address, reason }
    }
}

/// Why an address gave no session.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum UnreachableReason {
    /// The host name has no address.
    NotResolved(String),
    /// The connection was refused or failed.
    Refused(String),
    /// Nothing answered in time.
    Silent,
    /// Something answered that does not speak ZooKeeper's protocol.
    NotZooKeeper,
    /// It is a ZooKeeper server, but it gave no session in time: an ensemble without a quorum, one
    /// that is starting, or one that was not reached before the time was over.
    NotServing,
    /// It can be connected to, but gave no session over TLS: one side does not believe the other's
    /// certificate, the name is another, it speaks no TLS there, or it is not serving.
    NoTlsSession,
}

impl fmt::Display for AddressFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.address)?;
        match &self.reason {
            UnreachableReason::NotResolved(why) => write!(f, "the name does not resolve ({why})"),
            UnreachableReason::Refused(why) => write!(f, "no connection ({why})"),
            UnreachableReason::Silent => {
                f.write_str("accepts or ignores connections, but stays silent")
            }
            UnreachableReason::NotZooKeeper => {
                f.write_str("answers, but is not a ZooKeeper server")
            }
            UnreachableReason::NoTlsSession => f.write_str(
                "can be connected to, but gave no session over TLS (certificates, names, no TLS there, or not serving)",
            ),
            UnreachableReason::NotServing => f.write_str(
                "is a ZooKeeper server, but gave no session in time (no quorum, still starting, or not reached)",
            ),
        }
    }
}

fn within(waited: &Duration) -> String {
    if waited.is_zero() {
        return "at once".into();
    }
    format!("within {waited:?}")
}

fn in_the_way(others: &usize) -> String {
    match others {
        1 => "another one holds it or waits in front".into(),
        others => format!("{others} others hold it or wait in front"),
    }
}

fn list(addresses: &[AddressFailure]) -> String {
    let texts: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    texts.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_can_cross_threads_and_be_cloned() {
        fn check<T: Send + Sync + Clone + std::error::Error + 'static>() {}

        check::<Error>();
    }

    #[test]
    fn messages_say_what_was_done_with_which_lock_and_count_right() {
        let name = || "x".to_owned();
        let timed_out = |ms| Error::TimedOut {
            name: name(),
            waited: Duration::from_millis(ms),
        };
        let not_upgradable = |others| Error::NotUpgradable {
            name: name(),
            others,
        };
        let closed = Error::Closed {
            name: "the keeper".into(),
            doing: "join the queue of",
        };
        let too_many = Error::TooManyPermits {
            name: name(),
            asked: 2,
            limit: 1,
        };
        for (error, said) in [
            (timed_out(0), "x was not granted at once"),
            (timed_out(1500), "x was not granted within 1.5s"),
            (
                not_upgradable(1),
                "the read lock of x cannot be upgraded: another one holds it or waits in front",
            ),
            (
                not_upgradable(2),
                "the read lock of x cannot be upgraded: 2 others hold it or wait in front",
            ),
            (
                closed.about("x"),
                "the keeper was closed while trying to join the queue of x",
            ),
            (
                too_many,
                "semaphore x has a limit of 1, so 2 permits at once are never there",
            ),
        ] {
            assert_eq!(error.to_string(), said);
        }
    }

    #[test]
    fn unreachable_names_each_address_with_its_reason() {
        let error = Error::Unreachable {
            addresses: vec![
                AddressFailure::new("a:1".into(), UnreachableReason::Silent),
                AddressFailure::new("b:2".into(), UnreachableReason::NotZooKeeper),
            ],
            waited: Duration::from_secs(3),
        };

        let text = error.to_string();

        assert!(
            text.contains("a:1: accepts") && text.contains("b:2: answers"),
            "{text}"
        );
    }
}
