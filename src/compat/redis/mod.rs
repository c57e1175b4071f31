//! Plain locks on Redis.

mod connection;
mod redisson;
mod redlock;
mod setnx;
mod tair;
mod votes;
mod wakeups;

pub use redisson::Redisson;
pub use redlock::Redlock;
pub use setnx::{FencedSetNx, SetNx};
pub use tair::Tair;
