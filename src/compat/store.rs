//! The seam between plain locks and their stores.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::sync::Notify;

use crate::error::{Error, Result, StoreProblem};
use crate::token::Token;

/// A store with one kind of plain lock, in the form that other programs use.
///
/// The futures may be dropped at any await. What they had sent may still happen: a caller then
/// asks again with the same [`Attempt`].
pub trait PlainStore: fmt::Debug + Send + Sync + 'static {
    /// The server as errors name it: without user and password.
    fn server(&self) -> &str;

    /// What this kind of lock can do.
    fn capabilities(&self) -> Capabilities;

    /// The shortest ttl that the store can count.
    fn shortest_ttl(&self) -> Duration;

    /// Checks a name before anything is sent.
    ///
    /// # Errors
    ///
    /// The rule that the name breaks.
    fn check_name(&self, name: &str) -> Result<(), &'static str>;

    /// Takes the lock if it is free, for the ttl of the attempt.
    fn acquire<'a>(&'a self, attempt: &'a Attempt) -> BoxFuture<'a, StoreResult<Acquired>>;

    /// Sets the rest of the lock's life to the ttl. `false` if the lock is not the attempt's.
    fn renew<'a>(&'a self, attempt: &'a Attempt) -> BoxFuture<'a, StoreResult<bool>>;

    /// Frees the lock. `false` if the lock is not the attempt's: then nothing was changed.
    fn release<'a>(&'a self, attempt: &'a Attempt) -> BoxFuture<'a, StoreResult<bool>>;

    /// What tells waiters of a release, if the store does. It is asked for once before a wait, and
    /// a try follows.
    fn wake<'a>(&'a self, _name: &'a str) -> BoxFuture<'a, StoreResult<Option<Arc<Notify>>>> {
        Box::pin(async { Ok(None) })
    }
}

/// What a store answers, or why it does not.
pub type StoreResult<T> = Result<T, StoreProblem>;

/// One try of one client to hold a lock, and then its hold.
#[derive(Clone)]
pub struct Attempt {
    /// The lock's name in the store.
    pub name: Arc<str>,
    /// Proves the hold: no other attempt has the same.
    pub secret: Arc<str>,
    /// The store frees the lock when it was not renewed for so long.
    pub ttl: Duration,
}

/// Without the secret.
impl fmt::Debug for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Attempt")
            .field("name", &crate::brief::Brief(&*self.name))
            .field("ttl", &self.ttl)
            .finish_non_exhaustive()
    }
}

/// What came of a try.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Acquired {
    /// The lock is the attempt's.
    Yes {
        /// The number of this grant, where the store has one.
        token: Option<Token>,
    },
    /// Another client has the lock.
    No {
        /// The rest of the other's ttl, if it is known.
        left: Option<Duration>,
    },
}

/// What a kind of lock can do. Each `true` is held by a test of all locks, and each `false` too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    /// The name of the kind, as in the connect string: `redis+setnx`.
    pub kind: &'static str,
    /// Each grant has a number that is greater than the last.
    pub has_token: bool,
    /// Waiters are woken by a release; otherwise they ask again and again.
    pub wakes_waiters: bool,
    /// The lock is free as soon as the connection of a crashed holder is closed; otherwise when
    /// the ttl is over.
    pub ends_with_connection: bool,
    /// A hold survives a restart of the server, if the server keeps its data.
    pub survives_restart: bool,
    /// The server may forget a lock at any time, to make room.
    pub may_be_evicted: bool,
}

impl Capabilities {
    /// A kind that can only exclude.
    pub const fn of(kind: &'static str) -> Self {
        Self {
            kind,
            has_token: false,
            wakes_waiters: false,
            ends_with_connection: false,
            survives_restart: false,
            may_be_evicted: false,
        }
    }
}

/// A store whose grants have numbers.
pub trait FencedStore: PlainStore {}

/// The error of a call for a lock of this store.
pub(super) fn failed(
    store: &(impl PlainStore + ?Sized),
    doing: &'static str,
    name: &str,
    problem: StoreProblem,
) -> Error {
    Error::Store {
        name: name.to_owned(),
        doing,
        server: store.server().into(),
        problem,
    }
}
