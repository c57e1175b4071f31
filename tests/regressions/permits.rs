//! Permits that others' semaphores, and our own drafts, gave away twice or left lying.

use lockkeeper::Error;
use lockkeeper::embedded::{Match, Op};
use tokio::time::timeout;

use super::{SOON, own_session};
use crate::recipes::semaphore::{granted, queued, semaphore, waits};
use testbench::keeper;
use testbench::{World, case, eventually};

#[case]
async fn row_78_two_releases_at_once_let_two_waiters_in(world: World) {
    let semaphore = semaphore(&world, "two", 3).await;
    for _ in 0..20 {
        let a = semaphore.acquire().await.unwrap();
        let b = semaphore.acquire().await.unwrap();
        let c = semaphore.acquire().await.unwrap();
        let waiting = [waits(&semaphore, 1), waits(&semaphore, 1)];
        queued(&world.raw().await, "two", 2).await;

        let (first, second) = tokio::join!(a.release(), b.release());

        first.unwrap();
        second.unwrap();
        for waiting in waiting {
            granted(waiting).await.release().await.unwrap();
        }
        c.release().await.unwrap();
    }
}

#[case(embedded)]
async fn row_78_a_release_right_before_the_watch_is_not_slept_through(world: World) {
    let (a, b) = (keeper(&world).await, keeper(&world).await);
    let session = own_session(&b).await;
    let held = a.semaphore("late", 1).unwrap().acquire().await.unwrap();
    let path = format!("{}/locks/late/held", world.chroot());
    let about_to_watch = Match::op(Op::GetChildren).session(session).path(path);
    let hold = world.embedded().faults().on(about_to_watch).stop_before();
    let waiting = waits(&b.semaphore("late", 1).unwrap(), 1);
    hold.reached().await;

    // It has seen that no permit is free, and its watch comes too late to tell of this.
    held.release().await.unwrap();
    hold.release();

    granted(waiting).await.release().await.unwrap();
}

#[case(embedded)]
async fn row_78_a_resize_right_before_the_watch_is_not_slept_through(world: World) {
    let (a, b) = (keeper(&world).await, keeper(&world).await);
    let session = own_session(&b).await;
    let semaphore = a.semaphore("grown", 1).unwrap();
    let held = semaphore.acquire().await.unwrap();
    let path = format!("{}/locks/grown/limit", world.chroot());
    let about_to_watch = Match::op(Op::GetData).session(session).path(path);
    let hold = world.embedded().faults().on(about_to_watch).stop_before();
    let waiting = waits(&b.semaphore("grown", 1).unwrap(), 1);
    hold.reached().await;

    semaphore.resize(2).await.unwrap();
    hold.release();

    granted(waiting).await.release().await.unwrap();
    held.release().await.unwrap();
}

#[case(embedded)]
async fn row_79_a_resize_between_the_look_and_the_grant_lets_nobody_in(world: World) {
    let (a, b) = (keeper(&world).await, keeper(&world).await);
    let session = own_session(&b).await;
    let semaphore = a.semaphore("shrunk", 2).unwrap();
    let held = semaphore.acquire().await.unwrap();
    let path = format!("{}/locks/shrunk/limit", world.chroot());
    let about_to_take = Match::op(Op::Multi).session(session).path(path);
    let hold = world.embedded().faults().on(about_to_take).stop_before();
    let waiting = waits(&b.semaphore("shrunk", 2).unwrap(), 1);
    hold.reached().await;

    // It has seen one of two permits free.
    semaphore.resize(1).await.unwrap();
    hold.release();

    queued(&world.raw().await, "shrunk", 1).await;
    assert!(!waiting.is_finished());
    assert_eq!(semaphore.holders().await.unwrap().len(), 1);
    held.release().await.unwrap();
    granted(waiting).await.release().await.unwrap();
}

#[case(embedded)]
async fn row_79_a_head_that_was_removed_takes_no_permit(world: World) {
    let (a, b, c) = (
        keeper(&world).await,
        keeper(&world).await,
        keeper(&world).await,
    );
    let (session, faults) = (own_session(&b).await, world.embedded().faults());
    let held = a.semaphore("head", 1).unwrap().acquire().await.unwrap();
    let first = waits(&b.semaphore("head", 1).unwrap(), 1);
    let stranger = world.raw().await;
    queued(&stranger, "head", 1).await;
    let base = format!("{}/locks/head", world.chroot());
    let about_to_take = Match::op(Op::Multi)
        .session(session)
        .path(format!("{base}/limit"));
    let hold = faults.on(about_to_take).stop_before();
    let second = waits(&c.semaphore("head", 1).unwrap(), 1);
    queued(&stranger, "head", 2).await;
    held.release().await.unwrap();
    hold.reached().await;

    // The first has seen a free permit and is about to take it; an operator removes its ticket, and
    // the next takes it.
    let queue = a.queue("head").await.unwrap();
    faults
        .remove(&format!("{base}/queue/{}", queue[0].node))
        .unwrap();
    let permit = granted(second).await;
    hold.release();

    let error = timeout(SOON, first).await.unwrap().unwrap().unwrap_err();
    assert!(matches!(error, Error::PlaceLost { .. }), "{error}");
    assert_eq!(
        a.semaphore("head", 1)
            .unwrap()
            .holders()
            .await
            .unwrap()
            .len(),
        1
    );
    permit.check().await.unwrap();
    permit.release().await.unwrap();
}

#[case(embedded)]
async fn row_79_a_head_whose_number_was_given_again_takes_no_permit(world: World) {
    let (a, b, c, d) = (
        keeper(&world).await,
        keeper(&world).await,
        keeper(&world).await,
        keeper(&world).await,
    );
    let (session, faults) = (own_session(&b).await, world.embedded().faults());
    let stranger = world.raw().await;
    let other = a.semaphore("again", 1).unwrap();
    let base = format!("{}/locks/again", world.chroot());
    other.acquire().await.unwrap().release().await.unwrap();
    faults.reap_containers();
    let about_to_take = Match::op(Op::Multi)
        .session(session)
        .path(format!("{base}/limit"));
    let hold = faults.on(about_to_take).stop_before();
    let first = waits(&b.semaphore("again", 1).unwrap(), 1);
    hold.reached().await;

    // The directory of the queue is made again, and its first number is given to another one, who
    // takes the permit; then a third has the same number.
    let ticket = a.queue("again").await.unwrap()[0].node.clone();
    faults.remove(&format!("{base}/queue/{ticket}")).unwrap();
    faults.reap_containers();
    let permit = granted(waits(&c.semaphore("again", 1).unwrap(), 1)).await;
    faults.reap_containers();
    let third = waits(&d.semaphore("again", 1).unwrap(), 1);
    queued(&stranger, "again", 1).await;
    let again = a.queue("again").await.unwrap()[1].node.clone();
    assert_eq!(again, ticket, "the number is given again");
    hold.release();

    let error = timeout(SOON, first).await.unwrap().unwrap().unwrap_err();
    assert!(matches!(error, Error::PlaceLost { .. }), "{error}");
    assert_eq!(other.holders().await.unwrap().len(), 1);
    permit.release().await.unwrap();
    granted(third).await.release().await.unwrap();
}

#[case(embedded)]
async fn row_79_heads_that_gave_up_do_not_make_a_new_queue_look_like_the_old(world: World) {
    let (a, b, c, d) = (
        keeper(&world).await,
        keeper(&world).await,
        keeper(&world).await,
        keeper(&world).await,
    );
    let (session, faults) = (own_session(&b).await, world.embedded().faults());
    let stranger = world.raw().await;
    let other = a.semaphore("old", 1).unwrap();
    let base = format!("{}/locks/old", world.chroot());
    // Two have taken permits in the queue: its version is 2, and so is the next number.
    for _ in 0..2 {
        other.acquire().await.unwrap().release().await.unwrap();
    }
    let about_to_take = Match::op(Op::Multi)
        .session(session)
        .path(format!("{base}/limit"));
    let hold = faults.on(about_to_take).stop_before();
    let first = waits(&b.semaphore("old", 1).unwrap(), 1);
    hold.reached().await;

    // Another one takes the permit that it has seen free; then the queue is made again, two give up
    // as its heads, and a third has the number.
    let ticket = a.queue("old").await.unwrap()[0].node.clone();
    faults.remove(&format!("{base}/queue/{ticket}")).unwrap();
    let permit = granted(waits(&c.semaphore("old", 1).unwrap(), 1)).await;
    faults.reap_containers();
    let late = d.semaphore("old", 1).unwrap();
    for _ in 0..2 {
        let given_up = waits(&late, 1);
        queued(&stranger, "old", 1).await;
        // Until it has its turn and both watches of a head, which no other waiter has here.
        let is_head = || async { world.embedded().counters().watches == 2 };
        eventually("it is the head", SOON, is_head).await;
        given_up.abort();
        queued(&stranger, "old", 0).await;
        let is_gone = || async { world.embedded().counters().watches == 0 };
        eventually("its watches are gone", SOON, is_gone).await;
    }
    let third = waits(&late, 1);
    queued(&stranger, "old", 1).await;
    let again = a.queue("old").await.unwrap()[1].node.clone();
    assert_eq!(again, ticket, "the number is given again");
    hold.release();

    let error = timeout(SOON, first).await.unwrap().unwrap().unwrap_err();
    assert!(matches!(error, Error::PlaceLost { .. }), "{error}");
    assert_eq!(other.holders().await.unwrap().len(), 1, "of a limit of 1");
    permit.release().await.unwrap();
    granted(third).await.release().await.unwrap();
}
