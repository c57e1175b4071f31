//! A case: a name, the servers that it runs on, and an async function that panics if its claim does
//! not hold.
//!
//! It does not know how cases are run. `#[case]` puts it in the list.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use linkme::distributed_slice;

use crate::World;

/// The future of one run of a case.
pub type Run = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The servers that a case is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Where {
    /// Every server: the rule. The same claim must hold on all of them.
    Every,
    /// Every server of ZooKeeper's protocol, for this reason.
    ZooKeeper(&'static str),
    /// It uses a hook of the embedded server.
    Embedded,
    /// It uses a hook that a connection of its own has on Redis.
    EmbeddedAndRedis,
    /// Redis alone has what it is about.
    Redis,
    /// PostgreSQL alone has what it is about.
    Postgres,
    /// It needs the real ZooKeeper.
    Real,
}

/// One registered case.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// The value of `module_path!()`.
    pub module: &'static str,
    pub name: &'static str,
    pub place: Where,
    /// It uses all processor time, or measures how fast many sessions return: no other case runs
    /// beside it.
    pub is_alone: bool,
    pub limit: Duration,
    pub run: fn(World) -> Run,
}

/// The cases of this binary.
#[distributed_slice]
pub static CASES: [Case];

impl Case {
    /// `module::name`, without the name of the binary.
    pub fn path(&self) -> String {
        let module = self.module.split_once("::");
        module.map_or_else(
            || self.name.to_owned(),
            |(_, inner)| format!("{inner}::{}", self.name),
        )
    }
}
