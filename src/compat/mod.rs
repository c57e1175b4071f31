//! The field's plain locks, in the exact form that other programs use, with guards that tell the
//! truth.
//!
//! Use them to share a lock with a program that exists. For a lock of your own, use a
//! [`Keeper`](crate::Keeper): its queue is fair, every grant has a token, and a crashed holder's
//! lock is free when its session ends.
//!
//! Each kind is a [`PlainStore`]. Its [`PlainKeeper`] makes a [`PlainMutex`] for each name, and a
//! held one is a [`PlainGuard`], with a lease that ends before the store frees the lock.
//!
//! # What no plain lock can do
//!
//! - None is fair: any waiter may be next.
//! - Most have no token. A process that is paused between a check of its guard and its write can
//!   write after another client got the lock, and nothing refuses that write.
//! - All are as safe as the store's data. If a server forgets a lock, two clients hold it.

mod connect;
mod finish;
mod guard;
mod hold;
mod keeper;
mod layer;
mod lease;
#[cfg(feature = "memcached")]
pub mod memcached;
mod mutex;
#[cfg(feature = "redis")]
pub mod redis;
mod renewals;
#[cfg(any(feature = "mysql", feature = "postgres"))]
pub mod sql;
mod store;
mod tries;
#[cfg(any(feature = "memcached", feature = "mysql", feature = "postgres"))]
mod turns;

pub use crate::error::StoreProblem;
pub use connect::{KINDS, connect};
pub use guard::PlainGuard;
pub use keeper::PlainKeeper;
pub use layer::PlainLayer;
pub use mutex::PlainMutex;
pub use store::{
    Acquired, Attempt, AttemptTurn, Capabilities, FencedStore, PlainStore, ReentrantStore,
    SeenVersion, StoreResult,
};
