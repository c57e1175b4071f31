//! The base of the integration suites: servers to start, faults to inject, a checker of histories,
//! and a runner of cases.
//!
//! The checker uses none of Lockkeeper's locks, so that it shares no bug with the code under test.
//! The clients that it checks do use them.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::missing_errors_doc,
    clippy::new_without_default,
    clippy::should_implement_trait,
    clippy::missing_panics_doc,
    missing_docs,
    missing_debug_implementations,
    reason = "a tool box for tests"
)]

pub mod case;
pub mod checker;
pub mod client;
pub mod daemon;
pub mod dice;
pub mod ensemble;
pub mod events;
pub mod eventually;
pub mod frames;
pub mod heard;
pub mod herald;
mod java;
pub mod pair;
mod panics;
pub mod pg;
pub mod plain;
pub mod plan;
pub mod pooler;
pub mod ports;
pub mod process;
pub mod protocol;
pub mod proxy;
pub mod relay;
pub mod resp;
pub mod runner;
pub mod secure;
pub mod sentinel;
pub mod shown;
pub mod stall;
pub mod store;
pub mod stored;
pub mod stranger;
pub mod suite;
pub mod target;
pub mod tickets;
pub mod wire;
pub mod words;
mod world;
pub mod zookeeper;

pub use eventually::eventually;
pub use linkme;
pub use lockkeeper_testbench_macros::case;
pub use panics::expect_panics;
pub use stranger::{Change, Make, Stranger};
pub use tickets::{children, keeper};
pub use world::World;
