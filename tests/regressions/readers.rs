//! Readers and writers: which calls must not wait for which, and whose end proves nothing.

use lockkeeper::RwLock;
use tokio::time::timeout;

use super::{A_WHILE, SOON};
use testbench::{World, case, eventually};
use testbench::{children, keeper};

/// Three locks in sessions of their own, and an outside client that reads the nodes.
async fn three(world: &World, name: &str) -> ([RwLock; 3], testbench::Stranger) {
    let lock = async || keeper(world).await.rw_lock(name).unwrap();
    let locks = [lock().await, lock().await, lock().await];
    (locks, world.raw().await)
}

/// Returns when so many tickets are in the queue.
async fn queued(stranger: &testbench::Stranger, name: &str, count: usize) {
    let there = || async { children(stranger, name).await.len() == count };
    eventually("the ticket is in the queue", SOON, there).await;
}

#[case]
async fn row_48_a_reader_does_not_wait_for_a_later_writer(world: World) {
    let ([a, b, c], stranger) = three(&world, "later").await;
    for is_marked in [true, false] {
        let (writer, b, c) = (a.write().await.unwrap(), b.clone(), c.clone());
        let reading = tokio::spawn(async move { b.read().await });
        queued(&stranger, "later", 2).await;
        let writing = tokio::spawn(async move { c.write().await });
        queued(&stranger, "later", 3).await;

        // Without a mark the reader lists, and sees the other writer.
        if is_marked {
            writer.release().await.unwrap();
        } else {
            drop(writer.downgrade().await.unwrap());
        }

        // Each would wait for the other if the reader waited for it.
        let reader = timeout(SOON, reading).await.expect("it is let in");
        reader.unwrap().unwrap().release().await.unwrap();
        let writer = timeout(SOON, writing).await.expect("it is let in");
        writer.unwrap().unwrap().release().await.unwrap();
    }
}

#[case]
async fn row_48_a_reader_who_upgrades_does_not_wait_for_itself(world: World) {
    let ([a, b, _], stranger) = three(&world, "itself").await;
    let reader = a.read().await.unwrap();

    let upgraded = timeout(SOON, reader.try_upgrade()).await;

    let writer = upgraded.expect("its own read is not in the way").unwrap();
    assert_eq!(children(&stranger, "itself").await, [writer.node()]);
    let reading = tokio::spawn(async move { b.read().await });
    queued(&stranger, "itself", 2).await;
    writer.release().await.unwrap();
    let reader = timeout(SOON, reading).await.expect("it is let in");
    reader.unwrap().unwrap().release().await.unwrap();
}

#[case]
async fn row_48_a_writer_who_has_downgraded_is_not_in_the_way_of_its_next_write(world: World) {
    let ([a, b, _], stranger) = three(&world, "next").await;
    for _ in 0..3 {
        let reader = a.write().await.unwrap().downgrade().await.unwrap();
        let other = b.clone();
        let reading = tokio::spawn(async move { other.read().await });
        let beside = timeout(SOON, reading).await.expect("readers share");
        reader.release().await.unwrap();
        beside.unwrap().unwrap().release().await.unwrap();
        assert!(children(&stranger, "next").await.is_empty());

        let writer = timeout(SOON, a.write()).await.expect("it is free");
        writer.unwrap().release().await.unwrap();
    }
}

#[case]
async fn row_75_a_reader_who_leaves_lets_no_writer_in_beside_another(world: World) {
    let ([a, b, c], stranger) = three(&world, "beside").await;
    let (first, second) = (a.read().await.unwrap(), b.read().await.unwrap());
    // It watches the second, which is the nearest.
    let mut writing = tokio::spawn(async move { c.write().await });
    queued(&stranger, "beside", 3).await;
    assert!(timeout(A_WHILE, &mut writing).await.is_err());

    second.release().await.unwrap();

    let early = timeout(A_WHILE, &mut writing).await;
    assert!(early.is_err(), "the first still reads");
    first.check().await.unwrap();
    first.release().await.unwrap();
    let writer = timeout(SOON, writing).await.expect("it is let in");
    writer.unwrap().unwrap().release().await.unwrap();
}
