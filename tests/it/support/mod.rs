//! What a case stands on: a world with servers of its own kind, and words to look at them from outside.
//!
//! Nothing here uses Lockkeeper's locks: the suite's own eyes must not share a bug with what they look at.
#![allow(
    dead_code,
    unused_imports,
    reason = "a tool box: not every build uses every tool"
)]

#[macro_use]
pub(crate) mod case;
pub(crate) mod checker;
pub(crate) mod client;
pub(crate) mod dice;
pub(crate) mod ensemble;
pub(crate) mod events;
pub(crate) mod eventually;
pub(crate) mod frames;
pub(crate) mod heard;
pub(crate) mod herald;
mod java;
pub(crate) mod list;
mod panics;
pub(crate) mod plan;
pub(crate) mod ports;
#[cfg(feature = "cli")]
pub(crate) mod process;
pub(crate) mod proxy;
pub(crate) mod relay;
pub(crate) mod runner;
pub(crate) mod stall;
pub(crate) mod store;
pub(crate) mod target;
pub(crate) mod words;
mod world;
pub(crate) mod zookeeper;

pub(crate) use eventually::eventually;
pub(crate) use panics::expect_panics;
pub(crate) use world::World;
