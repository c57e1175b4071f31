//! Fair distributed locks on Apache ZooKeeper, with a fencing token for what they protect.
//!
//! ```toml
//! [dependencies]
//! lockkeeper = { path = "../lockkeeper" } # a clone, until Lockkeeper is published
//! tokio = { version = "1", features = ["macros", "rt-multi-thread"] }
//! ```
//!
//! # From the top
//!
//! A [`Keeper`] is a connection to a ZooKeeper ensemble, and makes locks. A [`Mutex`] is a fair
//! lock with a name, and has no state. A [`Guard`] is a held lock, and has a [`Token`]. Most
//! programs need only these:
//!
//! ```
//! # use lockkeeper::embedded::EmbeddedServer;
//! use lockkeeper::Keeper;
//!
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let server = EmbeddedServer::start().await?;
//! # let servers = server.connect_string();
//! let keeper = Keeper::connect(servers).await?; // "zk1:2181,zk2:2181,zk3:2181"
//! let lock = keeper.mutex("orders/42")?;
//! let guard = lock.lock().await?; // fair: granted in the order of the queue
//! write_row("paid", guard.token()); // the row refuses lower tokens than it has seen
//! guard.release().await?; // waits for the answer; a drop releases in the background
//! keeper.close().await;
//! # Ok(())
//! # }
//! # fn write_row(_: &str, _: lockkeeper::Token) {}
//! ```
//!
//! The other recipes use the same queue and make the same promises: [`RwLock`], [`Semaphore`],
//! [`MultiLock`] for several locks in one transaction, and [`Election`]. With an [`Owner`], a lock
//! is reentrant.
//!
//! # Guides
//!
//! The pages of `docs/` are in the module `guide`.
//!
//! - Use it: [guarantees](guide::guarantees), [recipes](guide::recipes), [which
//!   lock](guide::choosing), [coming from another lock](guide::coming_from), [scripts, cron and
//!   systemd](guide::shell), [the tool](guide::tool).
//! - Run it: [operating](guide::operating), [engines](guide::engines), [security](guide::security),
//!   [metrics](guide::metrics), [scale](guide::scale).
//! - Share it: [queues with Java and Python](guide::sharing), [versions](guide::versions).
//!
//! # The words
//!
//! A lock is a *queue* at a *name*. A client takes a *ticket*, an ephemeral sequential znode, which
//! is its *place* in the queue. A ticket with no other before it is *granted*, and becomes a *hold*
//! with a *guard*. A release leaves a *mark*, so the next waiter needs one small read. An *owner*
//! that holds a lock enters again as a *guest* of its first ticket. The *session* is the identity
//! of a client at the servers.
//!
//! # What is promised
//!
//! - **Fair**: locks are granted in the order in which the servers created the tickets, across
//!   processes and languages.
//! - **Exclusive while the session lives**: at each transaction of the ensemble at most one ticket
//!   is first. A process that is paused or cut off can outlive its session unknowingly. No lock
//!   service can prevent that: see [`Token`].
//! - **Tokens grow** with every grant, across sessions and restarts, while the ensemble keeps its
//!   data.
//! - **Cancel safe**: an `async fn` that is dropped at any await leaves no ticket, watch or task,
//!   and blocks no other client. ([`Fenced::commit`] and [`Leadership::proclaim`] may have
//!   written.) The section *Cancel safety* of each method says what is lost.
//! - **Flat**: no step of the usual path of an exclusive lock depends on the length of the queue,
//!   and a release wakes one waiter. Some calls list the queue once: a reader, and an owner that
//!   finds the lock taken. The head of a semaphore lists the held permits. An observer lists the
//!   candidates when the leader changes.
//! - **Honest**: when a session ends, its guards are lost before the servers can grant the lock to
//!   another client. The clock counts pauses and, on Linux, suspended time ([`Guard`] lists the
//!   conditions). A ticket that is removed by hand is noticed with the next heartbeat. All this is
//!   advice: only the token is a guarantee.
//!
//! # Features
//!
//! None is on by default.
//!
//! - `embedded`: a ZooKeeper-compatible server in this process, for tests and demos (module
//!   `embedded`).
//! - `tls`: connections through TLS (`KeeperBuilder::tls`), on each engine that is built in.
//! - `metrics`: waits, holds, losses and sessions are counted on the facade of the `metrics` crate.
//!   The labels are the class of a lock ([`Mutex::with_class`]) and its kind, never its name.
//!   [`guide::metrics`] explains each metric.
//! - `redis`, `postgres`, `mysql`, `memcached`: the plain locks of other programs on these stores,
//!   in [`compat`].
//!
//! The tool `lockkeeper` is the crate `lockkeeper-cli`.
//!
//! Lockkeeper needs ZooKeeper 3.6 or newer and a tokio runtime with I/O and time (`enable_all`).
//! The tasks of a keeper run in the runtime in which it was connected, and end with it. Its locks
//! may be used from any other runtime with time, and guards may be asked and dropped on any thread.

// The pages at docs.rs show the features of items. They are built with nightly, and no other build
// sees this attribute.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod brief;
pub mod compat;
mod error;
mod guard;
#[cfg(doc)]
pub mod guide;
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
mod session_id;
#[cfg(any(test, all(fuzzing, feature = "embedded")))]
mod tests;
mod token;

pub use error::{AddressFailure, Error, Result, Right, UnreachableReason};
pub use guard::Guard;
pub use guard::fenced::Fenced;
pub use guard::hold::GuardState;
pub use guard::lost::Lost;
pub use keeper::{Keeper, KeeperBuilder};
pub use link::engine::{Engine, Weakness};
#[cfg(feature = "tls")]
pub use link::tls::Tls;
pub use name::LockName;
pub use owner::Owner;
pub use protocol::acl::Acl;
pub use protocol::dialect::Dialect;
pub use protocol::journal_page::{HoldOutcome, JournalEntry};
pub use protocol::kind::LockKind;
pub use protocol::leader::Leader;
pub use queue::acl::WiderAcl;
pub use queue::census::LockSummary;
pub use queue::entry::QueueEntry;
pub use queue::observe::Observer;

pub use recipes::election::{Election, Leadership};
pub use recipes::multi::{MultiGuard, MultiLock};
pub use recipes::mutex::{Mutex, Place};
pub use recipes::rwlock::{ReadGuard, RwLock, UpgradeError, WriteGuard};
pub use recipes::semaphore::{Permit, Semaphore};
pub use session::heartbeat::LeaseStrength;
pub use session::monitor::{SessionEvent, SessionEvents};
pub use session_id::SessionId;
#[cfg(all(fuzzing, feature = "embedded"))]
#[doc(hidden)]
pub use tests::fuzzing;
pub use token::Token;

/// A ZooKeeper-compatible server in this process, for tests and demos: the crate
/// `zookeeper-embedded`.
///
/// **Not for production.** It keeps everything in memory. Tests inject failures with
/// [`Faults`](embedded::Faults).
#[cfg(feature = "embedded")]
pub mod embedded {
    #[doc(inline)]
    pub use zookeeper_embedded::*;
}

#[cfg(all(doctest, feature = "embedded"))]
mod page {
    #[doc = include_str!("../README.md")]
    struct Readme;
}
