//! Sessions: how they begin, what they survive, what is told of them.

mod connect;
#[cfg(feature = "metrics")]
pub(crate) mod metrics;
mod reconnect;
mod runtimes;
mod security;
mod spans;
mod standalone;
mod traces;
