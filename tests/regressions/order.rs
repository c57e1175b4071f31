//! Order and names: counters that end, directories that start again, and children that are no
//! tickets.

use lockkeeper::embedded::Op;
use lockkeeper::{Keeper, Mutex};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use zookeeper_client::Error;

use super::{A_WHILE, SOON};
use testbench::{Make, World, case, eventually};
use testbench::{children, keeper};

/// Takes and releases a lock once, so that its directory is there.
async fn made(keeper: &Keeper, name: &str) -> Mutex {
    let lock = keeper.mutex(name).unwrap();
    lock.lock().await.unwrap().release().await.unwrap();
    lock
}

#[case(embedded)]
async fn row_43_a_ticket_past_the_wrap_stands_behind_those_before_it(world: World) {
    let (keeper, stranger) = (keeper(&world).await, world.raw().await);
    let lock = made(&keeper, "wrap").await;
    world
        .embedded()
        .faults()
        .set_sequence(&format!("{}/locks/wrap", world.chroot()), i32::MAX - 3)
        .unwrap();
    let first = lock.lock().await.unwrap();
    let mut second = lock.enqueue().await.unwrap();
    // The lists hold a ticket of a client whose counter went on past its end, in each of the ways
    // to write that.
    let options = Make::Ephemeral;
    for late in ["lock--2147483648", "__WRIT__-2147483640"] {
        let path = format!("/locks/wrap/{late}");
        stranger.create(&path, b"", &options).await.unwrap();
    }
    // Only a list shows them; a break makes the next in line ask for one.
    stranger
        .delete(&format!("/locks/wrap/{}", first.node()), None)
        .await
        .unwrap();

    let second = timeout(SOON, second.granted()).await;

    let second = second.expect("it waits for nobody").unwrap();
    assert!(second.token() > first.token());
    let queue = keeper.queue("wrap").await.unwrap();
    assert_eq!(queue[0].node, second.node(), "{queue:?}");
    second.release().await.unwrap();
}

#[case(embedded)]
async fn row_43_thirty_two_locks_across_the_end_of_the_counter_stay_in_order(world: World) {
    let keeper = keeper(&world).await;
    let lock = made(&keeper, "count").await;
    let directory = format!("{}/locks/count", world.chroot());
    let faults = world.embedded().faults();
    faults.set_sequence(&directory, 2_147_483_640).unwrap();

    // Each next one asks while the one before it holds, so that the directory is never empty on the
    // way.
    let mut held = lock.lock().await.unwrap();
    let mut grants = vec![(held.token(), held.node().to_owned())];
    for _ in 1..32 {
        let creates = || world.embedded().counters().get(Op::Create);
        let (before, lock) = (creates(), lock.clone());
        let next: JoinHandle<_> = tokio::spawn(async move { lock.lock().await });
        eventually("the next one has asked", SOON, || async {
            creates() > before
        })
        .await;
        held.release().await.unwrap();
        held = timeout(SOON, next).await.unwrap().unwrap().unwrap();
        grants.push((held.token(), held.node().to_owned()));
    }

    assert!(
        grants.is_sorted_by(|(before, _), (after, _)| before < after),
        "{grants:?}"
    );
    assert!(
        grants.iter().any(|(_, node)| node == "lock-2147483640"),
        "{grants:?}"
    );
    assert!(
        grants.iter().any(|(_, node)| node == "lock-0000000001"),
        "{grants:?}"
    );
    held.release().await.unwrap();
}

#[case]
async fn row_45_what_is_no_ticket_neither_joins_nor_breaks_the_queue(world: World) {
    let (a, b) = (keeper(&world).await, keeper(&world).await);
    let stranger = world.raw().await;
    made(&a, "junk").await;
    let options = Make::Persistent;
    // Each would stand before every ticket if a careless reader took it for one.
    let junk = [
        "foo",
        "lock-",
        "lock-abc",
        "lock-00000000000",
        "lock-000000000",
        "lock-+000000000",
        "lock- 000000000",
        "x-lock-0000000000",
        "lock-0000000000x",
        "LOCK-0000000000",
        "größe-\u{660}",
        "-0000000000",
    ];
    for name in junk {
        let path = format!("/locks/junk/{name}");
        stranger.create(&path, b"", &options).await.unwrap();
    }

    let lock = b.mutex("junk").unwrap();
    let first = timeout(SOON, a.mutex("junk").unwrap().lock()).await;
    let first = first.expect("nobody is before it").unwrap();
    let mut second = lock.enqueue().await.unwrap();
    assert_eq!(second.position().await.unwrap(), 1);
    assert!(timeout(A_WHILE, second.granted()).await.is_err());
    first.release().await.unwrap();
    let second = timeout(SOON, second.granted()).await;
    let second = second.expect("it follows").unwrap();

    let queue = a.queue("junk").await.unwrap();
    assert_eq!(queue.len(), 1, "only tickets are shown: {queue:?}");
    second.release().await.unwrap();
    assert!(lock.try_lock().await.unwrap().is_some());
    eventually("all tickets are gone, and nothing else", SOON, || async {
        let mut left = children(&stranger, "junk").await;
        let mut junk: Vec<String> = junk.iter().map(ToString::to_string).collect();
        left.sort_unstable();
        junk.sort_unstable();
        left == junk
    })
    .await;
}

#[case]
async fn row_46_a_directory_that_is_made_again_gives_greater_tokens(world: World) {
    let (keeper, stranger) = (keeper(&world).await, world.raw().await);
    let lock = keeper.mutex("again").unwrap();
    let mut grants = Vec::new();
    for _ in 0..3 {
        // In the middle of a life of the directory, so that its numbers go back between the rounds.
        for _ in 0..3 {
            let guard = lock.lock().await.unwrap();
            grants.push((guard.token(), guard.node().to_owned()));
            guard.release().await.unwrap();
        }
        stranger.delete("/locks/again", None).await.unwrap();
    }

    let numbers: Vec<&str> = grants.iter().map(|(_, node)| &**node).collect();
    let life = ["lock-0000000000", "lock-0000000001", "lock-0000000002"];
    assert_eq!(
        numbers,
        [life, life, life].concat(),
        "the numbers start again"
    );
    assert!(
        grants.is_sorted_by(|(before, _), (after, _)| before < after),
        "{grants:?}"
    );
}

#[case]
async fn row_46_a_directory_with_a_ticket_in_it_cannot_be_made_again(world: World) {
    let (a, b) = (keeper(&world).await, keeper(&world).await);
    let stranger = world.raw().await;
    let held = a.mutex("one").unwrap().lock().await.unwrap();

    let removed = stranger.delete("/locks/one", None).await;
    let mut second = b.mutex("one").unwrap().enqueue().await.unwrap();

    assert_eq!(removed, Err(Error::NotEmpty));
    assert!(
        timeout(A_WHILE, second.granted()).await.is_err(),
        "there is one queue"
    );
    held.release().await.unwrap();
    let second = timeout(SOON, second.granted()).await.unwrap().unwrap();
    second.release().await.unwrap();
}
