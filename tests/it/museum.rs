//! The museum: failures of others and of our own drafts, each as a case that must hold for ever.
//!
//! The numbers are rows of the catalogue of failures that the project keeps. Each case is seen to fail with its rule taken
//! out (`tests/mutants`).

pub mod designs;
pub mod hangs;
pub mod leftovers;
pub mod orphans;
pub mod wakeups;
mod wire;

use std::time::Duration;

use lockkeeper::Keeper;

use crate::support::World;
use wire::Wire;

const SOON: Duration = Duration::from_secs(3);

/// The session that holds or waits with the first ticket of a lock.
async fn session_of(keeper: &Keeper, lock: &str) -> i64 {
    keeper
        .queue(lock)
        .await
        .unwrap()
        .first()
        .expect("somebody is in the queue")
        .session
}

/// The session of a keeper that nothing is known of yet.
async fn own_session(keeper: &Keeper) -> i64 {
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
