//! The recipes: what a caller locks. Each is a thin layer over the way in that they share
//! ([`acquire`]).

pub(crate) mod acquire;
pub(crate) mod conversion;
pub(crate) mod election;
pub(crate) mod linger;
pub(crate) mod multi;
pub(crate) mod mutex;
mod options;
pub(crate) mod rwlock;
pub(crate) mod semaphore;
