//! The workloads of `lockkeeper bench`, taken in as they are, so that there is one definition of what is measured.
#![allow(dead_code, reason = "the tool uses all of it, a driver only a part")]

#[path = "../../src/bin/lockkeeper/access.rs"]
pub(crate) mod access;
#[path = "../../src/bin/lockkeeper/bench/floor.rs"]
pub(crate) mod floor;
#[path = "../../src/bin/lockkeeper/bench/ground.rs"]
pub(crate) mod ground;
#[path = "../../src/bin/lockkeeper/bench/ours.rs"]
pub(crate) mod ours;
#[path = "../../src/bin/lockkeeper/bench/sample.rs"]
pub(crate) mod sample;
