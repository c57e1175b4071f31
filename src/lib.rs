//! Fair distributed locks on Apache ZooKeeper.
#[cfg(feature = "embedded")]
pub mod embedded;
mod error;
mod guard;
mod keeper;
mod link;
mod mutex;
mod name;
mod queue;
mod session;
#[cfg(test)]
mod simulation;
mod token;

pub use error::{AddressFailure, Error, Result, ServerError, UnreachableReason};
pub use guard::Guard;
pub use keeper::{Keeper, KeeperBuilder};
pub use mutex::{Mutex, Place};
pub use name::{IntoLockName, LockName};
pub use queue::view::{LockSummary, QueueEntry};
pub use token::Token;
