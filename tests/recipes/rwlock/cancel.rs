//! Every future of the read-write lock, dropped after each number of polls: nothing is left, and
//! the lock is free.

use std::time::Duration;

use lockkeeper::Keeper;
use tokio::time::timeout;

use super::SOON;
use crate::recipes::cancel::{MOST_POLLS, Rest, cancelled_after};
use testbench::{World, case, eventually};
use testbench::{children, keeper};

#[case(within = 120)]
async fn a_cancelled_read_leaves_nothing(world: World) {
    let rest = Rest::new(world).await;

    let polls = rest
        .cancel(MOST_POLLS, |keeper: Keeper, _stranger, polls| async move {
            let lock = keeper.rw_lock("cut").unwrap();
            let read = cancelled_after(polls, lock.read()).await;
            read.map(Result::unwrap)
        })
        .await;

    assert!((1..MOST_POLLS).contains(&polls), "{polls}");
}

#[case(within = 120)]
async fn a_cancelled_write_leaves_nothing(world: World) {
    let rest = Rest::new(world).await;

    let polls = rest
        .cancel(MOST_POLLS, |keeper: Keeper, _stranger, polls| async move {
            let lock = keeper.rw_lock("cut").unwrap();
            let written = cancelled_after(polls, lock.write()).await;
            written.map(Result::unwrap)
        })
        .await;

    assert!((1..MOST_POLLS).contains(&polls), "{polls}");
}

#[case(within = 120)]
async fn a_cancelled_wait_to_read_or_to_write_leaves_nothing(world: World) {
    let rest = Rest::new(world).await;
    let other = keeper(&rest.world).await.rw_lock("cut").unwrap();

    for polls in 0..12 {
        let writer = timeout(SOON, other.write()).await.unwrap().unwrap();
        let lock = rest.keeper.rw_lock("cut").unwrap();
        let both = async {
            tokio::join!(
                cancelled_after(polls, lock.read()),
                cancelled_after(polls, lock.write())
            )
        };
        // Both are cancelled by their polls, or by the end of their time.
        if let Ok((read, written)) = timeout(Duration::from_millis(50), both).await {
            assert!(read.is_none() && written.is_none(), "the lock is held");
        }
        let alone = || async { children(&rest.stranger, "cut").await == [writer.node()] };
        eventually("their tickets are gone", SOON, alone).await;
        writer.release().await.unwrap();
    }
}

#[case(within = 120)]
async fn a_cancelled_try_leaves_nothing(world: World) {
    let rest = Rest::new(world).await;

    let read = rest
        .cancel(MOST_POLLS, |keeper: Keeper, _stranger, polls| async move {
            let lock = keeper.rw_lock("cut").unwrap();
            let taken = cancelled_after(polls, lock.try_read()).await;
            taken.map(|taken| taken.unwrap().expect("the lock is free"))
        })
        .await;
    let written = rest
        .cancel(MOST_POLLS, |keeper: Keeper, _stranger, polls| async move {
            let lock = keeper.rw_lock("cut").unwrap();
            let taken = cancelled_after(polls, lock.try_write()).await;
            taken.map(|taken| taken.unwrap().expect("the lock is free"))
        })
        .await;

    assert!((1..MOST_POLLS).contains(&read), "{read}");
    assert!((1..MOST_POLLS).contains(&written), "{written}");
}

#[case(within = 120)]
async fn a_cancelled_downgrade_releases(world: World) {
    let rest = Rest::new(world).await;

    let polls = rest
        .cancel(MOST_POLLS, |keeper: Keeper, _stranger, polls| async move {
            let writer = keeper.rw_lock("cut").unwrap().write().await.unwrap();
            let downgraded = cancelled_after(polls, writer.downgrade()).await;
            downgraded.map(Result::unwrap)
        })
        .await;

    assert!((1..MOST_POLLS).contains(&polls), "{polls}");
}

#[case(within = 120)]
async fn a_cancelled_upgrade_releases(world: World) {
    let rest = Rest::new(world).await;

    let polls = rest
        .cancel(MOST_POLLS, |keeper: Keeper, _stranger, polls| async move {
            let reader = keeper.rw_lock("cut").unwrap().read().await.unwrap();
            let upgraded = cancelled_after(polls, reader.try_upgrade()).await;
            upgraded.map(Result::unwrap)
        })
        .await;

    assert!((1..MOST_POLLS).contains(&polls), "{polls}");
}

#[case(within = 120)]
async fn a_cancelled_refusal_of_an_upgrade_releases(world: World) {
    let rest = Rest::new(world).await;

    let polls = rest
        .cancel(MOST_POLLS, |keeper: Keeper, stranger, polls| async move {
            let lock = keeper.rw_lock("cut").unwrap();
            let (reader, other) = (lock.read().await.unwrap(), lock.read().await.unwrap());
            let refused = cancelled_after(polls, reader.try_upgrade()).await;
            let refused = refused.map(Result::unwrap_err);
            if refused.is_none() {
                let alone = || async { children(&stranger, "cut").await == [other.node()] };
                eventually("the other alone is left", SOON, alone).await;
            }
            other.check().await.unwrap();
            refused
        })
        .await;

    assert!((1..MOST_POLLS).contains(&polls), "{polls}");
}
