//! Failures of our own drafts: directories that are made again, numbers that start again, data of
//! others.

use std::time::Duration;

use lockkeeper::Error;
use lockkeeper::embedded::{Match, Op};
use tokio::time::timeout;

use super::{SOON, own_session, session_of};
use testbench::{Make, World, case, eventually};
use testbench::{children, keeper};

#[case(embedded)]
async fn row_61_a_directory_that_is_removed_before_each_create_is_made_again(world: World) {
    let (keeper, faults) = (keeper(&world).await, world.embedded().faults());
    let directory = format!("{}/locks/reaped", world.chroot());
    let lock = keeper.mutex("reaped").unwrap();
    lock.lock().await.unwrap().release().await.unwrap();

    for _ in 0..100 {
        let hold = faults
            .on(Match::op(Op::Create).path_prefix(&directory))
            .stop_before();
        let (guard, ()) = tokio::join!(timeout(SOON, lock.lock()), async {
            hold.reached().await;
            faults.remove(&directory).unwrap();
            hold.release();
        });
        guard.unwrap().unwrap().release().await.unwrap();
    }
}

#[case(embedded)]
async fn row_71_a_release_is_never_repeated_on_a_strangers_ticket(world: World) {
    let (a, b) = (keeper(&world).await, keeper(&world).await);
    let (stranger, faults) = (world.raw().await, world.embedded().faults());
    let guard = a.mutex("reused").unwrap().lock().await.unwrap();
    let (name, session) = (guard.node().to_owned(), session_of(&a, "reused").await);
    // The release commits, its reply is lost, and whatever A sends next is held back.
    faults
        .on(Match::op(Op::Multi).session(session))
        .drop_reply();
    let hold = faults
        .on(Match::any().session(session))
        .times(1000)
        .stop_before();

    let releasing = tokio::spawn(guard.release());
    eventually("the release has committed", SOON, || async {
        children(&stranger, "reused").await.is_empty()
    })
    .await;
    faults.reap_containers();
    let held = b.mutex("reused").unwrap().lock().await.unwrap();
    assert_eq!(
        held.node(),
        name,
        "the directory has started its numbers again"
    );
    faults.clear_rules();
    hold.release();
    timeout(SOON, releasing)
        .await
        .unwrap()
        .unwrap()
        .expect("our release is known to have removed our ticket");

    // All that A's janitor will ever do is done: it answered.
    assert_eq!(children(&stranger, "reused").await, [held.node()]);
    held.release().await.unwrap();
}

#[case(embedded)]
async fn row_71_a_place_that_leaves_late_spares_a_strangers_ticket(world: World) {
    let (a, b) = (keeper(&world).await, keeper(&world).await);
    let (stranger, faults) = (world.raw().await, world.embedded().faults());
    let directory = format!("{}/locks/late", world.chroot());
    let place = a.mutex("late").unwrap().enqueue().await.unwrap();
    let node = a.queue("late").await.unwrap()[0].node.clone();

    faults.remove(&format!("{directory}/{node}")).unwrap();
    faults.reap_containers();
    let held = b.mutex("late").unwrap().lock().await.unwrap();
    assert_eq!(held.node(), node);
    drop(place);
    // All the janitor's work for the place is done when the keeper is closed.
    a.close().await;

    assert_eq!(children(&stranger, "late").await, [held.node()]);
    held.release().await.unwrap();
}

#[case(embedded)]
async fn row_72_a_broken_ticket_is_not_taken_for_alone(world: World) {
    let (a, b) = (keeper(&world).await, keeper(&world).await);
    let faults = world.embedded().faults();
    let session = own_session(&a).await;
    let directory = format!("{}/locks/alone", world.chroot());
    let lock = a.mutex("alone").unwrap();
    lock.lock().await.unwrap().release().await.unwrap();
    let hold = faults
        .on(Match::op(Op::MultiRead)
            .session(session)
            .path_prefix(&directory))
        .stop_before();

    let first = tokio::spawn(async move { lock.lock().await.map(drop) });
    hold.reached().await;
    let mut second = b.mutex("alone").unwrap().enqueue().await.unwrap();
    // A's ticket is broken between its create and the read that was sent with it; that finds one
    // child, which is B's.
    faults
        .remove(&format!("{directory}/lock-0000000001"))
        .unwrap();
    hold.release();

    let error = timeout(SOON, first).await.unwrap().unwrap().unwrap_err();
    assert!(matches!(error, Error::PlaceLost { .. }), "{error}");
    timeout(SOON, second.granted())
        .await
        .unwrap()
        .unwrap()
        .release()
        .await
        .unwrap();
}

#[case(embedded)]
async fn row_73_a_broken_ticket_is_not_granted_by_a_mark(world: World) {
    let (a, b, c) = (
        keeper(&world).await,
        keeper(&world).await,
        keeper(&world).await,
    );
    let faults = world.embedded().faults();
    let session = own_session(&b).await;
    let directory = format!("{}/locks/mark", world.chroot());
    let guard = a.mutex("mark").unwrap().lock().await.unwrap();
    let (mut second, mut third) = (
        b.mutex("mark").unwrap().enqueue().await.unwrap(),
        c.mutex("mark").unwrap().enqueue().await.unwrap(),
    );
    assert!(
        timeout(Duration::from_millis(50), second.granted())
            .await
            .is_err()
    );
    assert!(
        timeout(Duration::from_millis(50), third.granted())
            .await
            .is_err()
    );
    let hold = faults
        .on(Match::op(Op::MultiRead)
            .session(session)
            .path_prefix(&directory))
        .stop_before();

    let second = tokio::spawn(async move { second.granted().await.map(drop) });
    guard.release().await.unwrap();
    hold.reached().await;
    faults
        .remove(&format!("{directory}/lock-0000000001"))
        .unwrap();
    hold.release();

    let error = timeout(SOON, second).await.unwrap().unwrap().unwrap_err();
    assert!(matches!(error, Error::PlaceLost { .. }), "{error}");
    timeout(SOON, third.granted())
        .await
        .unwrap()
        .unwrap()
        .release()
        .await
        .unwrap();
}

#[case]
async fn row_74_a_mark_is_known_by_identity_and_not_by_number(world: World) {
    let (a, b, c) = (
        keeper(&world).await,
        keeper(&world).await,
        keeper(&world).await,
    );
    let stranger = world.raw().await;
    let guard = a.mutex("old").unwrap().lock().await.unwrap();
    let second = b.mutex("old").unwrap().enqueue().await.unwrap();
    let mut third = c.mutex("old").unwrap().enqueue().await.unwrap();
    assert!(
        timeout(Duration::from_millis(100), third.granted())
            .await
            .is_err()
    );

    // The mark of an earlier life of the directory, in which number 1 held and released.
    stranger
        .set_data(
            "/locks/old",
            br#"{"lockkeeper_released":{"czxid":1,"seq":1}}"#,
            None,
        )
        .await
        .unwrap();
    drop(second);
    eventually("the second leaves", SOON, || async {
        children(&stranger, "old").await.len() == 2
    })
    .await;

    assert!(
        timeout(Duration::from_millis(300), third.granted())
            .await
            .is_err(),
        "the first still holds"
    );
    guard.release().await.unwrap();
    timeout(SOON, third.granted())
        .await
        .unwrap()
        .unwrap()
        .release()
        .await
        .unwrap();
}

#[case(embedded)]
async fn row_80_a_counter_at_its_end_keeps_the_queue_in_order(world: World) {
    let (a, b) = (keeper(&world).await, keeper(&world).await);
    let faults = world.embedded().faults();
    let directory = format!("{}/locks/end", world.chroot());
    a.mutex("end")
        .unwrap()
        .lock()
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    faults.set_sequence(&directory, i32::MAX - 8).unwrap();
    let first = a.mutex("end").unwrap().lock().await.unwrap();

    let (granted, mut grants) = tokio::sync::mpsc::unbounded_channel();
    let mut crowd = Vec::new();
    for worker in 0..32 {
        let lock = if worker % 2 == 0 {
            a.mutex("end")
        } else {
            b.mutex("end")
        }
        .unwrap();
        let granted = granted.clone();
        crowd.push(tokio::spawn(async move {
            let guard = lock.lock().await.unwrap();
            granted
                .send((guard.token(), guard.node().to_owned()))
                .unwrap();
            guard.release().await.unwrap();
        }));
    }
    drop(granted);
    eventually("the last numbers are taken", SOON, || async {
        a.queue("end").await.unwrap().len() >= 8
    })
    .await;
    first.release().await.unwrap();
    for worker in crowd {
        timeout(Duration::from_secs(20), worker)
            .await
            .unwrap()
            .unwrap();
    }

    let mut seen = Vec::new();
    while let Some(grant) = grants.recv().await {
        seen.push(grant);
    }
    assert_eq!(seen.len(), 32);
    assert!(
        seen.is_sorted_by_key(|(token, _)| *token),
        "tokens increase: {seen:?}"
    );
    assert!(
        seen.iter().any(|(_, node)| node == "lock-0000000000"),
        "numbers start again: {seen:?}"
    );
    assert!(
        !seen.iter().any(|(_, node)| node == "lock-2147483647"),
        "the last number orders nothing: {seen:?}"
    );
}

#[case(embedded)]
async fn row_80_a_used_up_directory_with_other_nodes_is_a_clear_error(world: World) {
    let (keeper, stranger) = (keeper(&world).await, world.raw().await);
    let lock = keeper.mutex("stuck").unwrap();
    lock.lock().await.unwrap().release().await.unwrap();
    let options = Make::Persistent;
    stranger
        .create("/locks/stuck/other", b"", &options)
        .await
        .unwrap();
    let directory = format!("{}/locks/stuck", world.chroot());
    world
        .embedded()
        .faults()
        .set_sequence(&directory, i32::MAX)
        .unwrap();

    let error = timeout(SOON, lock.lock()).await.unwrap().unwrap_err();

    let text = error.to_string();
    assert!(
        text.contains("counter has run out") && text.contains("other"),
        "{text}"
    );
    assert_eq!(children(&stranger, "stuck").await, ["other"]);
}

#[case]
async fn row_85_foreign_directory_data_is_never_written_over(world: World) {
    let (a, b) = (keeper(&world).await, keeper(&world).await);
    let stranger = world.raw().await;
    a.mutex("semaphore")
        .unwrap()
        .lock()
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    // As kazoo's semaphore keeps its limit.
    stranger
        .set_data("/locks/semaphore", b"5", None)
        .await
        .unwrap();

    let guard = a.mutex("semaphore").unwrap().lock().await.unwrap();
    let waiter = tokio::spawn(async move { b.mutex("semaphore").unwrap().lock().await });
    eventually("both are queued", SOON, || async {
        children(&stranger, "semaphore").await.len() == 2
    })
    .await;
    guard.release().await.unwrap();
    timeout(SOON, waiter)
        .await
        .unwrap()
        .unwrap()
        .unwrap()
        .release()
        .await
        .unwrap();

    let (data, _) = stranger.get_data("/locks/semaphore").await.unwrap();
    assert_eq!(data, b"5");
}
