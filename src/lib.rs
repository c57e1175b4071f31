//! Fair distributed locks on Apache ZooKeeper.
#[cfg(feature = "embedded")]
pub mod embedded;
