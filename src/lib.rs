//! Fair distributed locks on Apache ZooKeeper, with a fencing token for what they protect.
//!
//! # From the top
//!
//! A [`Keeper`] is a connection to a ZooKeeper ensemble; it gives out locks. A [`Mutex`] is a fair
//! lock with a name; it holds no state. A [`Guard`] is a lock that is held; it carries a [`Token`].
//! Those three are all that most programs need:
//!
//! ```
//! # use lockkeeper::embedded::EmbeddedServer;
//! use lockkeeper::Keeper;
//!
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let server = EmbeddedServer::start().await?;
//! # let servers = server.connect_string();
//! let keeper = Keeper::connect(servers).await?; // "zk1:2181,zk2:2181,zk3:2181/app"
//! let lock = keeper.mutex("orders/42")?;
//! let guard = lock.lock().await?; // fair: granted in the order of the queue
//! write_row("paid", guard.token()); // the resource refuses lower tokens than it has seen
//! guard.release().await?; // the answer is known; dropping the guard releases in the background
//! keeper.close().await;
//! # Ok(())
//! # }
//! # fn write_row(_: &str, _: lockkeeper::Token) {}
//! ```
//!
//! The other recipes ride the same queue and keep the same promises: [`RwLock`], [`Semaphore`],
//! [`MultiLock`] (several locks in one transaction), [`Election`], and [`Owner`] for a lock that
//! lets in again whoever holds it.
//!
//! # The words
//!
//! A lock is a *queue* at a *name*. Whoever wants it takes a *ticket*, an ephemeral sequential
//! node; that is its *place* in the queue. When nobody is before it, it is *granted* and becomes a
//! *guard*. A release leaves a *mark*, which lets the next one in with one small read. An *owner*
//! that holds a lock goes in again elsewhere as a *guest* of its first ticket. The *session* is who
//! you are to the servers.
//!
//! # What is promised
//!
//! - **Fair**: grants follow the order in which tickets were created at the servers, across
//!   processes and languages.
//! - **Exclusive while the session lives**: at each transaction of the ensemble at most one ticket
//!   is first. A process that is paused or cut off can outlive its session without knowing; no lock
//!   service can prevent that (see [`Token`]).
//! - **Tokens grow** with every grant, across sessions and restarts, while the ensemble keeps its
//!   data.
//! - **Cancel safe** means, of every `async fn` here: dropped at any await it leaves no ticket, no
//!   watch and no task behind, and blocks nobody. ([`Fenced::commit`] and [`Leadership::proclaim`]
//!   may have written or not.) What is lost is said in each method's *Cancel safety*.
//! - **Flat**: no step of the usual path of an exclusive lock depends on the length of the queue,
//!   and a release wakes exactly one waiter. A reader, and whoever has an owner and does not find
//!   the lock free, lists the queue once; the head of a semaphore lists the permits that are held;
//!   an observer lists the candidates when the leader changes.
//! - **Honest**: when a session ends, its guards say that they are lost before the servers can give
//!   the lock to somebody else, by a clock that counts pauses and, on Linux, suspended time
//!   ([`Guard`] says on what that rests). A ticket that somebody removes by hand is noticed with
//!   the next beat. It is advice all the same; the token is the guarantee.
//!
//! # Features
//!
//! None is on by default.
//!
//! - `embedded`: a ZooKeeper-compatible server in this process, for tests and demos (module
//!   `embedded`).
//! - `tls`: connections through TLS (`KeeperBuilder::tls`).
//! - `cli`: the `lockkeeper` command-line tool.
//! - `metrics`: waits, holds, losses and sessions are counted on the facade of the `metrics` crate,
//!   by the class of a lock ([`Mutex::with_class`]) and its kind, never by its name.
//!   `docs/metrics.md` says what each means.
//!
//! Needs ZooKeeper 3.6 or newer and a tokio runtime with I/O and time enabled (`enable_all`). The
//! tasks of a keeper run in the runtime in which it was connected, and end with it. Its locks may
//! be used from any other runtime with time enabled, and guards may be asked, and dropped, on any
//! thread.

// Says in the pages at docs.rs, which are built with nightly, what needs a feature. No other build
// sees it.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod brief;
mod error;
mod guard;
mod keeper;
mod latch;
mod link;
mod metrics;
mod name;
mod owner;
mod protocol;
mod queue;
mod recipes;
mod session;
#[cfg(any(test, all(fuzzing, feature = "embedded")))]
mod tests;
mod token;

pub use error::{AddressFailure, Error, Result, UnreachableReason};
pub use guard::Guard;
pub use guard::fenced::Fenced;
pub use guard::hold::GuardState;
pub use guard::lost::Lost;
pub use keeper::{Keeper, KeeperBuilder};
#[cfg(feature = "tls")]
pub use link::zookeeper::tls::Tls;
pub use name::LockName;
pub use owner::Owner;
pub use protocol::acl::Acl;
pub use protocol::dialect::Dialect;
pub use protocol::journal_page::{Ending, JournalEntry};
pub use protocol::leader::Leader;
pub use queue::acl::WiderAcl;
pub use queue::observe::Observer;
pub use queue::view::{EntryKind, LockSummary, QueueEntry};
pub use recipes::election::{Election, Leadership, Reign};
pub use recipes::multi::{MultiGuard, MultiLock};
pub use recipes::mutex::{Mutex, Place};
pub use recipes::rwlock::{NotUpgraded, ReadGuard, RwLock, WriteGuard};
pub use recipes::semaphore::{Permit, Semaphore};
pub use session::heartbeat::LeaseStrength;
pub use session::monitor::{SessionEvent, SessionEvents};
#[cfg(all(fuzzing, feature = "embedded"))]
#[doc(hidden)]
pub use tests::fuzzing;
pub use token::Token;

/// A ZooKeeper-compatible server in this process, for tests and demos: the crate
/// `zookeeper-embedded`.
///
/// **Not for production.** It keeps everything in memory. What a test can do to it is said at
/// [`Faults`](embedded::Faults).
#[cfg(feature = "embedded")]
pub mod embedded {
    #[doc(inline)]
    pub use zookeeper_embedded::*;
}

#[cfg(all(doctest, feature = "embedded"))]
mod pages {
    #[doc = include_str!("../README.md")]
    struct Readme;
    #[doc = include_str!("../docs/guarantees.md")]
    struct Guarantees;
    #[doc = include_str!("../docs/operating.md")]
    struct Operating;
    #[doc = include_str!("../docs/security.md")]
    struct Security;
    #[cfg(feature = "metrics")]
    #[doc = include_str!("../docs/metrics.md")]
    struct Metrics;
}
