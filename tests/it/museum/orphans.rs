//! Orphans: tickets that nobody waits with and nobody will ever remove. None may be left behind.

use crate::mutex::{children, keeper};
use crate::support::World;

cases! {
    both:
        museum_11_a_try_on_a_held_lock_leaves_nothing;
}

async fn museum_11_a_try_on_a_held_lock_leaves_nothing(world: World) {
    let (a, b) = (keeper(&world).await, keeper(&world).await);
    let stranger = world.raw().await;
    let guard = a.mutex("probed").unwrap().lock().await.unwrap();
    let lock = b.mutex("probed").unwrap();

    for _ in 0..World::times(1000, 10_000) {
        assert!(lock.try_lock().await.unwrap().is_none());
    }

    assert_eq!(children(&stranger, "probed").await, [guard.node()]);
    guard.release().await.unwrap();
}
