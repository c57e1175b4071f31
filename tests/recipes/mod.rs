//! The recipes, as their users see them.

pub(crate) mod between_requests;
pub(crate) mod cancel;
pub(crate) mod election;
mod evict;
mod guard;
mod hand_over;
mod journal;
mod linger;
pub(crate) mod multi;
pub(crate) mod mutex;
mod reentrancy;
mod revoke;
mod rwlock;
pub(crate) mod semaphore;
