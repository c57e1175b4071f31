//! Eviction: an operator removes the ticket that was shown, and never another one.

use std::time::Duration;

use lockkeeper::Error;
use lockkeeper::embedded::{Code, Match, Op};
use tokio::time::timeout;

use testbench::{Make, World, case, eventually};
use testbench::{children, keeper};

const SOON: Duration = Duration::from_secs(3);

#[case]
async fn an_evicted_holder_learns_of_its_loss_and_the_next_one_comes_in(world: World) {
    let [a, b] = [keeper(&world).await, keeper(&world).await];
    let held = a.mutex("stuck").unwrap().lock().await.unwrap();
    let mut next = b.mutex("stuck").unwrap().enqueue().await.unwrap();
    let queue = b.queue("stuck").await.unwrap();

    assert!(b.evict("stuck", &queue[0]).await.unwrap());

    let next = timeout(SOON, next.granted()).await.unwrap().unwrap();
    let lost = timeout(SOON, held.lost())
        .await
        .expect("the next beat tells");
    assert!(lost.is_lost() && !held.is_held());
    assert!(held.release().await.unwrap_err().is_lost());
    // The ticket that was shown is gone, and the one there now is not touched.
    assert!(!b.evict("stuck", &queue[0]).await.unwrap());
    next.check().await.unwrap();
    next.release().await.unwrap();
}

#[case]
async fn an_evicted_waiter_loses_its_place_and_nobody_else_does(world: World) {
    let [a, b] = [keeper(&world).await, keeper(&world).await];
    let held = a.mutex("line").unwrap().lock().await.unwrap();
    let lock = b.mutex("line").unwrap();
    let (mut first, mut second) = (lock.enqueue().await.unwrap(), lock.enqueue().await.unwrap());
    let queue = a.queue("line").await.unwrap();

    assert!(a.evict("line", &queue[1]).await.unwrap());
    held.release().await.unwrap();

    let second = timeout(SOON, second.granted()).await.unwrap().unwrap();
    let error = timeout(SOON, first.granted()).await.unwrap().unwrap_err();
    assert!(matches!(error, Error::PlaceLost { .. }), "{error}");
    second.release().await.unwrap();
}

#[case]
async fn an_evicted_permit_is_free_again(world: World) {
    let [a, b] = [keeper(&world).await, keeper(&world).await];
    let held = a.semaphore("pool", 1).unwrap().acquire().await.unwrap();
    let waiting = tokio::spawn({
        let pool = b.semaphore("pool", 1).unwrap();
        async move { pool.acquire().await.unwrap() }
    });
    let queued = || async { b.queue("pool").await.unwrap().len() == 2 };
    eventually("one waits", SOON, queued).await;
    let queue = b.queue("pool").await.unwrap();
    assert!(queue[0].is_holder && !queue[1].is_holder, "{queue:?}");

    assert!(b.evict("pool", &queue[0]).await.unwrap());

    let next = timeout(SOON, waiting).await.expect("it is free").unwrap();
    assert!(held.check().await.unwrap_err().is_lost());
    next.release().await.unwrap();
}

#[case]
async fn an_entry_of_another_lock_is_refused(world: World) {
    let keeper = keeper(&world).await;
    let held = keeper.mutex("one/below").unwrap().lock().await.unwrap();
    let queue = keeper.queue("one/below").await.unwrap();

    for other in ["one", "two", "one/below/it", "one/belo"] {
        let error = keeper.evict(other, &queue[0]).await.unwrap_err();
        assert!(
            error.is_invalid() && error.to_string().contains(other),
            "{error}"
        );
    }

    held.check().await.unwrap();
    held.release().await.unwrap();
}

#[case]
async fn another_programs_node_with_children_is_not_evicted_and_that_is_said(world: World) {
    let (keeper, stranger) = (keeper(&world).await, world.raw().await);
    let options = Make::Persistent;
    let node = "/locks/theirs/lock-0000000000";
    for path in ["/locks", "/locks/theirs", node, &format!("{node}/below")] {
        stranger.create(path, b"", &options).await.unwrap();
    }
    let shown = || async { keeper.queue("theirs").await.unwrap().into_iter().next() };
    let theirs = eventually("it is shown", SOON, shown).await;

    let evicted = timeout(SOON, keeper.evict("theirs", &theirs)).await;

    let error = evicted.expect("it ends").unwrap_err();
    assert!(matches!(error, Error::Refused { .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains(node) && text.contains("children"), "{text}");
}

#[case(embedded)]
async fn a_ticket_that_stands_under_an_old_name_is_not_evicted(world: World) {
    let (keeper, faults) = (keeper(&world).await, world.embedded().faults());
    let lock = keeper.mutex("reborn").unwrap();
    let old = lock.lock().await.unwrap();
    let queue = keeper.queue("reborn").await.unwrap();
    old.release().await.unwrap();
    faults
        .remove(&format!("{}/locks/reborn", world.chroot()))
        .unwrap();
    let new = lock.lock().await.unwrap();
    assert_eq!(new.node(), queue[0].node, "the same name again");

    assert!(!keeper.evict("reborn", &queue[0]).await.unwrap());

    new.check().await.unwrap();
    new.release().await.unwrap();
}

#[case(embedded)]
async fn an_eviction_whose_answers_are_lost_is_done_once(world: World) {
    let [a, b] = [keeper(&world).await, keeper(&world).await];
    let (stranger, faults) = (world.raw().await, world.embedded().faults());
    for op in [Op::Sync, Op::MultiRead, Op::Delete] {
        let held = a.mutex("answers").unwrap().lock().await.unwrap();
        let next = a.mutex("answers").unwrap().enqueue().await.unwrap();
        let queue = b.queue("answers").await.unwrap();
        faults
            .on(Match::op(op).path_contains("answers"))
            .drop_reply();

        assert!(b.evict("answers", &queue[0]).await.unwrap(), "{op:?}");

        faults.clear_rules();
        let left = children(&stranger, "answers").await;
        assert_eq!(left, [queue[1].node.clone()], "{op:?}");
        drop((held, next));
        let empty = || async { children(&stranger, "answers").await.is_empty() };
        eventually("all have left", SOON, empty).await;
    }
}

#[case(embedded)]
async fn an_eviction_that_is_refused_says_so(world: World) {
    let keeper = keeper(&world).await;
    let held = keeper.mutex("barred").unwrap().lock().await.unwrap();
    let queue = keeper.queue("barred").await.unwrap();
    let delete = Match::op(Op::Delete).path_contains("barred");
    world.embedded().faults().on(delete).fail(Code::NoAuth);

    let error = keeper.evict("barred", &queue[0]).await.unwrap_err();

    assert!(error.is_denied(), "{error}");
    held.check().await.unwrap();
    held.release().await.unwrap();
}
