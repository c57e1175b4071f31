//! Wake-ups and hangs: a waiter whose turn has come gets the lock, and a call that cannot end well ends with an error.

use std::time::Duration;

use tokio::time::timeout;

use crate::mutex::keeper;
use crate::support::World;

cases! {
    both:
        museum_37_a_lock_of_a_closed_keeper_is_refused_at_once;
}

async fn museum_37_a_lock_of_a_closed_keeper_is_refused_at_once(world: World) {
    let keeper = keeper(&world).await;
    let lock = keeper.mutex("closed").unwrap();
    keeper.close().await;

    let limit = Duration::from_millis(100);
    assert!(timeout(limit, lock.lock()).await.unwrap().is_err());
    assert!(timeout(limit, lock.try_lock()).await.unwrap().is_err());
    assert!(timeout(limit, lock.enqueue()).await.unwrap().is_err());
}
