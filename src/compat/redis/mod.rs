//! Plain locks on Redis.

mod connection;
mod setnx;

pub use setnx::{FencedSetNx, SetNx};
