//! Plain locks on memcached.

mod add;
mod client;

pub use add::MemcachedAdd;
