//! Sets: several locks in one transaction, when the transaction's reply or some of its tickets are
//! gone.
//!
//! Row 76: a set must not deadlock on itself, nor leave tickets behind.

use lockkeeper::Error;
use lockkeeper::embedded::{Match, Op};
use tokio::time::timeout;

use super::{A_WHILE, SOON, own_session};
use crate::recipes::cancel::cancelled_after;
use crate::recipes::multi::{queued, warm};
use testbench::{Stranger, World, case};
use testbench::{children, keeper};

const SET: [&str; 3] = ["a", "b", "c"];
const NOBODY: [(&str, usize); 3] = [("a", 0), ("b", 0), ("c", 0)];
const ONE_EACH: [(&str, usize); 3] = [("a", 1), ("b", 1), ("c", 1)];

/// The tickets of the set, one in each queue.
async fn tickets(stranger: &Stranger) -> Vec<String> {
    let mut tickets = Vec::new();
    for name in SET {
        tickets.extend(children(stranger, name).await);
    }
    tickets
}

#[case(embedded)]
async fn row_76_a_set_whose_create_had_no_reply_is_adopted_whole(world: World) {
    let (keeper, stranger) = (keeper(&world).await, world.raw().await);
    let faults = world.embedded().faults();
    warm(&keeper, &SET).await;
    let create = Match::op(Op::Multi).path_contains("/locks/a");
    faults.on(create).drop_reply();

    let guard = timeout(SOON, keeper.lock_all(SET)).await.unwrap().unwrap();

    assert_eq!(faults.armed_rules(), 0, "the reply was lost");
    let next = "lock-0000000001";
    assert_eq!(tickets(&stranger).await, [next; 3], "the set was made once");
    guard.check().await.unwrap();
    guard.release().await.unwrap();
    queued(&stranger, &NOBODY).await;
}

#[case(embedded)]
async fn row_76_a_set_of_which_a_ticket_is_missing_after_a_lost_reply_is_made_again(world: World) {
    let (keeper, stranger) = (keeper(&world).await, world.raw().await);
    let faults = world.embedded().faults();
    for broken in SET {
        warm(&keeper, &SET).await;
        faults
            .on(Match::op(Op::Multi).path_contains("/locks/a"))
            .drop_reply();
        let search = faults.on(Match::op(Op::GetEphemerals)).stop_before();

        let set = keeper.multi_lock(SET).unwrap();
        let waiting = tokio::spawn(async move { set.lock().await });
        timeout(SOON, search.reached())
            .await
            .expect("it looks for its tickets");
        let (made, ticket) = (tickets(&stranger).await, children(&stranger, broken).await);
        faults
            .remove(&format!("{}/locks/{broken}/{}", world.chroot(), ticket[0]))
            .unwrap();
        search.release();
        let guard = timeout(SOON, waiting)
            .await
            .expect("it does not wait for itself");
        let guard = guard.unwrap().unwrap();

        queued(&stranger, &ONE_EACH).await;
        for old in made {
            assert!(
                !tickets(&stranger).await.contains(&old),
                "{old} was made before"
            );
        }
        guard.check().await.unwrap();
        guard.release().await.unwrap();
        queued(&stranger, &NOBODY).await;
    }
}

#[case(embedded)]
async fn row_76_a_set_dropped_at_any_poll_after_a_lost_reply_leaves_nothing(world: World) {
    let (keeper, stranger) = (keeper(&world).await, world.raw().await);
    let faults = world.embedded().faults();
    warm(&keeper, &SET).await;
    for polls in 1.. {
        assert!(polls < 200, "it waits for something else");
        faults
            .on(Match::op(Op::Multi).path_contains("/locks/a"))
            .drop_reply();

        let set = keeper.multi_lock(SET).unwrap();
        let taken = cancelled_after(polls, set.lock()).await;
        let is_done = taken.is_some();
        if let Some(guard) = taken {
            guard.unwrap().release().await.unwrap();
        }

        // The session is the same, so nothing but the janitor can have removed them.
        own_session(&keeper).await;
        faults.clear_rules();
        queued(&stranger, &NOBODY).await;
        if is_done {
            break;
        }
    }
}

#[case(embedded)]
async fn row_76_a_release_that_is_refused_is_finished_ticket_by_ticket(world: World) {
    let (keeper, stranger) = (keeper(&world).await, world.raw().await);
    for broken in SET {
        let guard = keeper.lock_all(SET).await.unwrap();
        let ticket = children(&stranger, broken).await.remove(0);
        stranger
            .delete(&format!("/locks/{broken}/{ticket}"), None)
            .await
            .unwrap();

        let error = timeout(SOON, guard.release()).await.unwrap().unwrap_err();

        let is_it = matches!(&error, Error::PlaceLost { name, .. } if name == broken);
        assert!(is_it, "{broken}: {error}");
        assert!(
            tickets(&stranger).await.is_empty(),
            "the others are gone when it returns"
        );
    }
}

#[case(embedded)]
async fn row_76_a_release_that_had_no_reply_is_finished_ticket_by_ticket(world: World) {
    let (keeper, stranger) = (keeper(&world).await, world.raw().await);
    let faults = world.embedded().faults();
    for is_applied in [true, false] {
        let guard = keeper.lock_all(SET).await.unwrap();
        let release = faults.on(Match::op(Op::Multi).path_contains("/locks/a"));
        let session = own_session(&keeper).await;
        let stopped = (!is_applied).then(|| release.stop_before());
        if is_applied {
            faults
                .on(Match::op(Op::Multi).path_contains("/locks/a"))
                .drop_reply();
        }

        let releasing = tokio::spawn(guard.release());
        if let Some(stopped) = stopped {
            timeout(SOON, stopped.reached()).await.unwrap();
            faults.cut(session);
            stopped.release();
        }

        let released = timeout(SOON, releasing).await.unwrap().unwrap();
        assert!(released.is_ok(), "{released:?}");
        queued(&stranger, &NOBODY).await;
        timeout(A_WHILE * 10, keeper.lock_all(SET))
            .await
            .unwrap()
            .unwrap()
            .release()
            .await
            .unwrap();
    }
}
