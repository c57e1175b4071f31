//! The regressions: failures of others and of our own drafts, each as a case that must hold for
//! ever.
//!
//! The numbers are rows of the catalogue of failures, `docs/failures.md`. Each case fails if its
//! rule is taken out (`tests/mutants`).

pub mod client;
pub mod designs;
pub mod hangs;
pub mod held_locks;
pub mod leases;
pub mod leftovers;
pub mod order;
pub mod orphans;
pub mod owners;
pub mod paused;
pub mod permits;
pub mod quorum;
pub mod readers;
pub mod server;
pub mod sets;
pub mod wakeups;
mod wire;

use std::time::Duration;

use lockkeeper::Keeper;

use testbench::World;
use testbench::proxy::Proxy;
use wire::Wire;

const SOON: Duration = Duration::from_secs(3);
/// Long enough to see that a call waits.
const A_WHILE: Duration = Duration::from_millis(150);
/// The session timeout of keepers whose sessions are to end soon.
const T: Duration = Duration::from_secs(1);

/// The session that holds or waits with the first ticket of a lock.
async fn session_of(keeper: &Keeper, lock: &str) -> i64 {
    keeper
        .queue(lock)
        .await
        .unwrap()
        .first()
        .expect("somebody is in the queue")
        .session
        .into()
}

/// The session of a keeper that nothing is known of yet.
pub(crate) async fn own_session(keeper: &Keeper) -> i64 {
    let guard = keeper.mutex("whoami").unwrap().lock().await.unwrap();
    let session = session_of(keeper, "whoami").await;
    guard.release().await.unwrap();
    session
}

/// A keeper at the end of a wire of its own.
async fn on_a_wire(world: &World) -> (Keeper, Wire) {
    let wire = Wire::start(world).await;
    let keeper = Keeper::connect(wire.connect_string()).await.unwrap();
    (keeper, wire)
}

/// The way to the case's part of the tree through this proxy alone.
pub(crate) fn way(proxy: &Proxy, world: &World) -> String {
    world.connect_string_at(&[proxy.address()])
}

/// A keeper of short sessions, with all its connections through the proxy.
async fn keeper_by(proxy: &Proxy, world: &World) -> Keeper {
    let builder = Keeper::builder(way(proxy, world)).session_timeout(T);
    builder.connect().await.unwrap()
}

/// The same with sessions that outlast what a busy machine does to them.
async fn calm_keeper_by(proxy: &Proxy, world: &World) -> Keeper {
    let builder = Keeper::builder(way(proxy, world)).session_timeout(T * 4);
    builder.connect().await.unwrap()
}
