//! The seam between plain locks and their stores.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::sync::Notify;

use crate::error::{Error, Result, StoreProblem};
use crate::latch::Latch;
use crate::owner::Owner;
use crate::protocol::lease::Moment;
use crate::session::clock::{Clock, SystemClock};
use crate::token::Token;

/// A store has this part of the ttl to answer.
const PATIENCE: u32 = 4;

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
    /// A [`ReentrantStore`] lets it in beside other attempts of this owner. Others ignore it.
    pub owner: Option<Owner>,
    /// For a store that compares versions and not secrets.
    pub seen: SeenVersion,
    /// For a store that is asked a few things at once.
    pub turn: AttemptTurn,
}

impl Attempt {
    /// A store has so long to answer.
    pub(crate) fn patience(&self) -> Duration {
        self.ttl / PATIENCE
    }
}

/// The version at which a store last saw an attempt's own value, so that a renewal or a release
/// need not read it first. It is a hint: the store compares it. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct SeenVersion(Arc<Latch<Option<(u64, u64)>>>);

impl SeenVersion {
    /// Remembers what the store answered on a connection.
    pub fn saw(&self, connection: u64, version: u64) {
        *self.0.lock() = Some((connection, version));
    }

    /// The version, if it was seen on this connection. A server that starts again may count its
    /// versions from the beginning, and then a stranger's value can have the same one.
    pub fn on(&self, connection: u64) -> Option<u64> {
        let seen = *self.0.lock();
        seen.filter(|(there, _)| *there == connection)
            .map(|(_, version)| version)
    }

    /// Whether it was ever seen: the attempt is that of a holder.
    #[cfg(feature = "memcached")]
    pub(super) fn is_any(&self) -> bool {
        self.0.lock().is_some()
    }
}

/// The turn of an attempt at a store that is asked a few things at once. The wait for it takes
/// nothing of the store's time to answer, nor of the lease. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct AttemptTurn(Arc<TurnShared>);

#[derive(Debug, Default)]
struct TurnShared {
    state: Latch<TurnState>,
    left: Notify,
}

#[cfg_attr(
    not(any(feature = "memcached", feature = "mysql", feature = "postgres")),
    allow(dead_code)
)]
#[derive(Debug, Clone, Copy, Default)]
enum TurnState {
    #[default]
    Unlimited,
    Awaited,
    Left,
    Begun(Moment),
}

#[cfg_attr(
    not(any(feature = "memcached", feature = "mysql", feature = "postgres")),
    allow(dead_code)
)]
impl AttemptTurn {
    /// From now on it waits for its turn.
    pub(super) fn await_it(&self) {
        *self.0.state.lock() = TurnState::Awaited;
    }

    /// It is sent now.
    pub(super) fn begin(&self) {
        *self.0.state.lock() = TurnState::Begun(SystemClock.now());
    }

    /// Nobody waits for it any more. What was sent goes on.
    pub(super) fn leave(&self) {
        let mut state = self.0.state.lock();
        if matches!(*state, TurnState::Awaited) {
            *state = TurnState::Left;
            self.0.left.notify_one();
        }
    }

    /// Ends when it was left.
    pub(super) async fn left(&self) {
        while !matches!(*self.0.state.lock(), TurnState::Left) {
            self.0.left.notified().await;
        }
    }

    /// When it was sent, if it was asked for at `asked`. `None` while it waits.
    pub(super) fn sent(&self, asked: Moment) -> Option<Moment> {
        match *self.0.state.lock() {
            TurnState::Unlimited => Some(asked),
            TurnState::Awaited | TurnState::Left => None,
            TurnState::Begun(at) => Some(at.max(asked)),
        }
    }
}

/// Without the secret and the owner.
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
///
/// What none can do has no field. No plain lock is fair, has readers, or lets several clients in
/// but as one owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    /// The name of the kind, as in the connect string: `redis+setnx`.
    pub kind: &'static str,
    /// Each grant has a number that is greater than the last.
    pub has_token: bool,
    /// An owner that holds enters again: the type is a [`ReentrantStore`].
    pub is_reentrant: bool,
    /// Waiters are woken by a release; otherwise they ask again and again.
    pub wakes_waiters: bool,
    /// The lock is free as soon as the connection of a crashed holder is closed; otherwise when
    /// the ttl is over.
    pub ends_with_connection: bool,
    /// A hold survives a restart of the server, if the server keeps its data.
    pub survives_restart: bool,
    /// The server may forget a lock at any time, to make room.
    pub may_be_evicted: bool,
    /// Whatever happens to the network, a guard is lost before the next client holds. Otherwise
    /// two can hold until the next renewal.
    pub tells_loss_first: bool,
    /// A crashed holder's lock is free at most so long after its ttl.
    pub frees_late_by: Duration,
}

impl Capabilities {
    /// A kind that can only exclude, for the ttl.
    pub const fn of(kind: &'static str) -> Self {
        Self {
            kind,
            has_token: false,
            is_reentrant: false,
            wakes_waiters: false,
            ends_with_connection: false,
            survives_restart: false,
            may_be_evicted: false,
            tells_loss_first: true,
            frees_late_by: Duration::ZERO,
        }
    }
}

/// A store whose grants have numbers.
///
/// Only its guards have `token`:
///
/// ```compile_fail,E0599
/// # use lockkeeper::compat::{FencedStore, PlainGuard, PlainStore};
/// fn token<S: PlainStore>(guard: &PlainGuard<S>) {
///     guard.token();
/// }
/// ```
///
/// ```
/// # use lockkeeper::compat::{FencedStore, PlainGuard, PlainStore};
/// fn token<S: FencedStore>(guard: &PlainGuard<S>) {
///     guard.token();
/// }
/// ```
pub trait FencedStore: PlainStore {}

/// A store whose locks let an owner in again: [`PlainMutex::with_owner`](super::PlainMutex).
///
/// Each guard of an owner is an attempt of its own, with its own secret: nothing is counted that
/// an unanswered request could leave one too high. The lock is free when none is left. Every grant
/// beside another one sets the lock's ttl to its own at least, and never shortens it.
///
/// Only its locks have `with_owner`:
///
/// ```compile_fail,E0599
/// # use lockkeeper::{Owner, compat::{PlainMutex, PlainStore, ReentrantStore}};
/// fn owned<S: PlainStore>(lock: PlainMutex<S>, owner: &Owner) {
///     let _ = lock.with_owner(owner);
/// }
/// ```
///
/// ```
/// # use lockkeeper::{Owner, compat::{PlainMutex, PlainStore, ReentrantStore}};
/// fn owned<S: ReentrantStore>(lock: PlainMutex<S>, owner: &Owner) {
///     let _ = lock.with_owner(owner);
/// }
/// ```
pub trait ReentrantStore: PlainStore {}

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
