//! The clients whose tickets may stand in one queue. A queue that cannot be shared is refused, by
//! name, and no ticket of ours is left there.

use std::time::Duration;

use futures_util::future::BoxFuture;
use lockkeeper::{Dialect, Error, Keeper, Owner};
use tokio::time::timeout;

use crate::regressions::wakeups::watches;
use testbench::{Make, Stranger, World, case, eventually};
use testbench::{children, keeper};

const SOON: Duration = Duration::from_secs(3);
const CURATOR: &str = "_c_01234567-89ab-cdef-0123-456789abcdef-";
const KAZOO: &str = "0123456789abcdef0123456789abcdef";

async fn kazoos(world: &World) -> Keeper {
    let builder = Keeper::builder(world.connect_string()).dialect(Dialect::Kazoo);
    builder.connect().await.unwrap()
}

/// Puts a ticket into a lock's directory, and makes that if it is not there. Its path.
async fn ticket(stranger: &Stranger, lock: &str, start: &str) -> String {
    let directory = format!("/locks/{lock}");
    let persistent = Make::Persistent;
    stranger.mkdir(&directory, &persistent).await.unwrap();
    let ephemeral = Make::EphemeralSequential;
    let path = format!("{directory}/{start}");
    let (_, number) = stranger.create(&path, b"x", &ephemeral).await.unwrap();
    format!("{path}{number}")
}

/// An ephemeral node without a number.
async fn lease(stranger: &Stranger, lock: &str, name: &str) -> String {
    let directory = format!("/locks/{lock}");
    let persistent = Make::Persistent;
    stranger.mkdir(&directory, &persistent).await.unwrap();
    let ephemeral = Make::Ephemeral;
    let path = format!("{directory}/{name}");
    stranger.create(&path, b"x", &ephemeral).await.unwrap();
    path
}

fn refused<T>(outcome: lockkeeper::Result<T>, path: &str) {
    let Err(error) = outcome else {
        panic!("{path} is not refused");
    };
    let found = path.rsplit_once('/').unwrap().1;
    assert!(error.is_refusal(), "{error}");
    assert!(
        matches!(&error, Error::UnsafeMix { node, .. } if node == found),
        "{error}"
    );
    assert!(error.to_string().contains(found), "{error}");
}

async fn only(stranger: &Stranger, lock: &str, path: &str) {
    let theirs = vec![path.rsplit_once('/').unwrap().1.to_owned()];
    let alone = || async { children(stranger, lock).await == theirs };
    eventually("nothing of ours is left", SOON, alone).await;
}

#[case]
async fn a_mutex_refuses_each_ticket_that_cannot_share_its_queue(world: World) {
    let (keeper, stranger) = (keeper(&world).await, world.raw().await);
    let lock = keeper.mutex("mixed").unwrap();
    for start in [
        format!("{KAZOO}__lock__"),
        format!("{KAZOO}__rlock__"),
        format!("{CURATOR}__READ__"),
        format!("{CURATOR}__WRIT__"),
        format!("{CURATOR}latch-"),
        format!("{CURATOR}lease-"),
        "read-".into(),
        "write-".into(),
        "semaphore-".into(),
        "x-72057594037927936-".into(),
        "01234567-89ab-cdef-0123-456789abcdef_".into(),
    ] {
        let path = ticket(&stranger, "mixed", &start).await;

        refused(lock.lock().await, &path);
        refused(lock.try_lock().await, &path);
        refused(lock.lock_timeout(SOON).await, &path);

        only(&stranger, "mixed", &path).await;
        stranger.delete(&path, None).await.unwrap();
    }
    let path = lease(&stranger, "mixed", KAZOO).await;
    refused(lock.lock().await, &path);
    stranger.delete(&path, None).await.unwrap();
    lock.lock().await.unwrap().release().await.unwrap();
}

#[case]
async fn a_read_write_lock_refuses_each_ticket_that_cannot_share_its_queue(world: World) {
    let (keeper, stranger) = (keeper(&world).await, world.raw().await);
    let lock = keeper.rw_lock("mixed").unwrap();
    for start in [
        format!("{KAZOO}__lock__"),
        format!("{KAZOO}__rlock__"),
        format!("{CURATOR}lock-"),
        format!("{CURATOR}latch-"),
        "read-".into(),
        "write-".into(),
    ] {
        let path = ticket(&stranger, "mixed", &start).await;

        refused(lock.read().await, &path);
        refused(lock.write().await, &path);
        refused(lock.try_read().await, &path);
        refused(lock.try_write().await, &path);

        only(&stranger, "mixed", &path).await;
        stranger.delete(&path, None).await.unwrap();
    }
    lock.write().await.unwrap().release().await.unwrap();
}

#[case]
async fn an_election_refuses_each_ticket_that_cannot_share_its_queue(world: World) {
    let (keeper, stranger) = (keeper(&world).await, world.raw().await);
    let election = keeper.election("mixed").unwrap();
    for start in [format!("{CURATOR}lock-"), format!("{KAZOO}__lock__")] {
        let path = ticket(&stranger, "mixed", &start).await;

        refused(election.campaign("me").await, &path);
        refused(election.try_campaign("me").await, &path);

        only(&stranger, "mixed", &path).await;
        stranger.delete(&path, None).await.unwrap();
    }
}

#[case]
async fn a_semaphore_refuses_those_of_other_libraries(world: World) {
    let (keeper, stranger) = (keeper(&world).await, world.raw().await);
    let curators = ticket(&stranger, "curator/leases", &format!("{CURATOR}lease-")).await;
    let kazoos = lease(&stranger, "kazoo", KAZOO).await;
    let mutex = ticket(&stranger, "mutex", "lock-").await;
    for (name, path) in [
        ("curator", &curators),
        ("kazoo", &kazoos),
        ("mutex", &mutex),
    ] {
        let semaphore = keeper.semaphore(name, 2).unwrap();

        refused(semaphore.acquire().await, path);
        refused(semaphore.try_acquire().await, path);
    }
    only(&stranger, "kazoo", &kazoos).await;
}

#[case]
async fn nets_locks_are_refused_beside_curators_and_not_alone(world: World) {
    let (keeper, stranger) = (keeper(&world).await, world.raw().await);
    let lock = keeper.mutex("mixed").unwrap();
    let nets = ticket(&stranger, "mixed", "lock-").await;
    let early = timeout(Duration::from_millis(200), lock.lock()).await;
    assert!(early.is_err(), "each sees the other: it is waited for");

    // It sees no reader and no writer.
    let both = keeper.rw_lock("mixed").unwrap();
    refused(both.read().await, &nets);
    refused(both.write().await, &nets);
    only(&stranger, "mixed", &nets).await;

    let curators = ticket(&stranger, "mixed", &format!("{CURATOR}lock-")).await;
    refused(lock.lock().await, &nets);

    // Ours have such names as well, and stand beside Curator's.
    stranger.delete(&nets, None).await.unwrap();
    let mut ours = [lock.enqueue().await.unwrap(), lock.enqueue().await.unwrap()];
    stranger.delete(&curators, None).await.unwrap();
    for place in &mut ours {
        let guard = timeout(SOON, place.granted()).await.unwrap().unwrap();
        guard.release().await.unwrap();
    }
}

#[case]
async fn locks_below_may_be_called_like_nodes_of_other_recipes(world: World) {
    let keeper = keeper(&world).await;
    let mut below = Vec::new();
    for name in [KAZOO, "semaphore-0000000001", "x-1-0000000001", "leases"] {
        let lock = keeper.mutex(format!("tenant/{name}")).unwrap();
        below.push(lock.lock().await.unwrap());
    }

    for _ in 0..2 {
        let (reader, permit) = (
            keeper.rw_lock("tenant").unwrap().read().await.unwrap(),
            keeper
                .semaphore("tenant/pool", 2)
                .unwrap()
                .acquire()
                .await
                .unwrap(),
        );
        assert!(
            keeper
                .mutex("tenant")
                .unwrap()
                .try_lock()
                .await
                .unwrap()
                .is_none()
        );
        reader.release().await.unwrap();
        permit.release().await.unwrap();
        keeper
            .mutex("tenant")
            .unwrap()
            .lock()
            .await
            .unwrap()
            .release()
            .await
            .unwrap();
    }
    let permit = keeper
        .semaphore("tenant", 2)
        .unwrap()
        .acquire()
        .await
        .unwrap();
    permit.release().await.unwrap();
    for guard in below {
        guard.release().await.unwrap();
    }
}

#[case]
async fn an_upgrade_beside_a_stranger_keeps_the_read_lock(world: World) {
    let (keeper, stranger) = (keeper(&world).await, world.raw().await);
    let lock = keeper.rw_lock("mixed").unwrap();
    let reader = lock.read().await.unwrap();
    let theirs = lease(&stranger, "mixed", KAZOO).await;

    let kept = reader.try_upgrade().await.unwrap_err();

    assert!(kept.error().is_refusal(), "{}", kept.error());
    assert!(kept.error().to_string().contains(KAZOO), "{}", kept.error());
    let reader = kept.into_guard();
    reader.check().await.expect("it is held as before");
    stranger.delete(&theirs, None).await.unwrap();
    reader.release().await.unwrap();
}

#[case]
async fn our_own_mutex_and_read_write_lock_exclude_each_other(world: World) {
    let keeper = keeper(&world).await;
    let owner = Owner::named("in-again");
    let (mutex, both) = (keeper.mutex("own").unwrap(), keeper.rw_lock("own").unwrap());

    let reader = both.read().await.unwrap();
    assert!(mutex.try_lock().await.unwrap().is_none());
    let mut place = mutex.clone().with_owner(&owner).enqueue().await.unwrap();
    reader.release().await.unwrap();
    let holder = timeout(SOON, place.granted()).await.unwrap().unwrap();

    // A guest of it, by its name one of ours as well.
    let other = Keeper::connect(world.connect_string()).await.unwrap();
    let guest = other.mutex("own").unwrap().with_owner(&owner);
    let guest = timeout(SOON, guest.lock()).await.unwrap().unwrap();
    assert!(both.try_read().await.unwrap().is_none());
    let mut waiting = Box::pin(both.write());
    let early = timeout(Duration::from_millis(200), &mut waiting).await;
    assert!(early.is_err());
    holder.release().await.unwrap();
    guest.release().await.unwrap();
    let writer = timeout(SOON, waiting).await.unwrap().unwrap();
    writer.release().await.unwrap();
}

#[case]
async fn a_set_of_locks_refuses_what_one_of_them_does(world: World) {
    let (keeper, stranger) = (keeper(&world).await, world.raw().await);
    let path = ticket(&stranger, "b", &format!("{KAZOO}__lock__")).await;

    refused(keeper.lock_all(["a", "b"]).await, &path);

    only(&stranger, "b", &path).await;
    let others = || async { children(&stranger, "a").await.is_empty() };
    eventually("nothing is left in the other one", SOON, others).await;
}

#[case]
async fn whoever_waits_learns_of_a_stranger_that_came_meanwhile(world: World) {
    let (keeper, stranger) = (keeper(&world).await, world.raw().await);
    let lock = keeper.mutex("mixed").unwrap();
    let held = lock.lock().await.unwrap();
    let path = ticket(&stranger, "mixed", &format!("{KAZOO}__lock__")).await;

    // Kazoo does not see the holder, and has the lock by now.
    refused(timeout(SOON, lock.lock()).await.unwrap(), &path);

    held.release().await.unwrap();
    only(&stranger, "mixed", &path).await;
}

#[case]
async fn whoever_was_woken_before_its_first_list_learns_of_nets_lock(world: World) {
    let (keeper, stranger) = (keeper(&world).await, world.raw().await);
    let nets = ticket(&stranger, "mixed", "lock-").await;
    let (lock, both) = (
        keeper.mutex("mixed").unwrap(),
        keeper.rw_lock("mixed").unwrap(),
    );
    let ways: [(_, BoxFuture<'static, lockkeeper::Result<()>>); 2] = [
        (
            "__READ__",
            Box::pin(async move { both.write().await.map(drop) }),
        ),
        (
            "lock-",
            Box::pin(async move { lock.lock().await.map(drop) }),
        ),
    ];
    for (start, way) in ways {
        // Whom .NET's does not see.
        let unseen = ticket(
            &stranger,
            "mixed",
            &format!("{CURATOR}{}", &start.replace("READ", "WRIT")),
        )
        .await;
        // It leaves without a mark, and who waits behind it has not listed the queue.
        let before = ticket(&stranger, "mixed", start).await;
        let waiting = tokio::spawn(way);
        let watching = || async { watches(&world).await == 1 };
        eventually("it watches the number before its own", SOON, watching).await;

        stranger.delete(&before, None).await.unwrap();

        let ended = timeout(SOON, waiting).await;
        refused(ended.expect("it does not wait behind it").unwrap(), &nets);
        stranger.delete(&unseen, None).await.unwrap();
        only(&stranger, "mixed", &nets).await;
    }
}

#[case(
    zookeeper,
    why = "Kazoo is a client of ZooKeeper, and its dialect is refused elsewhere"
)]
async fn in_kazoos_dialect_a_mutex_has_kazoos_names_and_waits_for_them(world: World) {
    let (keeper, stranger) = (kazoos(&world).await, world.raw().await);
    let lock = keeper.mutex("shared").unwrap();
    let guard = lock.lock().await.unwrap();
    assert_eq!(guard.node(), "__lock__0000000000");
    guard.release().await.unwrap();
    let theirs = ticket(&stranger, "shared", &format!("{KAZOO}__lock__")).await;

    assert!(lock.try_lock().await.unwrap().is_none());
    let mut waiting = [lock.enqueue().await.unwrap(), lock.enqueue().await.unwrap()];
    let [first, second] = &mut waiting;
    let early = timeout(Duration::from_millis(200), first.granted()).await;
    assert!(early.is_err(), "kazoo holds it");
    stranger.delete(&theirs, None).await.unwrap();
    let guard = timeout(SOON, first.granted()).await.unwrap().unwrap();
    guard.release().await.unwrap();

    let guard = timeout(SOON, second.granted()).await.unwrap().unwrap();
    guard.release().await.unwrap();
}

#[case(
    zookeeper,
    why = "Kazoo is a client of ZooKeeper, and its dialect is refused elsewhere"
)]
async fn in_kazoos_dialect_readers_and_writers_have_kazoos_names(world: World) {
    let (keeper, stranger) = (kazoos(&world).await, world.raw().await);
    let lock = keeper.rw_lock("shared").unwrap();
    let first = lock.read().await.unwrap();
    let theirs = ticket(&stranger, "shared", &format!("{KAZOO}__rlock__")).await;
    let second = timeout(SOON, lock.read()).await.unwrap().unwrap();
    assert!(lock.try_write().await.unwrap().is_none());
    for guard in [first, second] {
        guard.release().await.unwrap();
    }
    assert!(lock.try_write().await.unwrap().is_none(), "kazoo reads");
    stranger.delete(&theirs, None).await.unwrap();

    let writer = timeout(SOON, lock.write()).await.unwrap().unwrap();
    let names = children(&stranger, "shared").await;
    assert!(
        names.len() == 1 && names[0].starts_with("__lock__"),
        "{names:?}"
    );
    let reader = writer.downgrade().await.unwrap();
    let names = children(&stranger, "shared").await;
    assert!(
        names.len() == 1 && names[0].starts_with("__rlock__"),
        "{names:?}"
    );
    reader.release().await.unwrap();
}

#[case(
    zookeeper,
    why = "Kazoo is a client of ZooKeeper, and its dialect is refused elsewhere"
)]
async fn in_kazoos_dialect_a_candidate_is_a_lock(world: World) {
    let (keeper, stranger) = (kazoos(&world).await, world.raw().await);
    let election = keeper.election("shared").unwrap();
    let theirs = ticket(&stranger, "shared", &format!("{KAZOO}__lock__")).await;

    assert!(election.try_campaign("me").await.unwrap().is_none());
    stranger.delete(&theirs, None).await.unwrap();

    let leading = timeout(SOON, election.campaign("me"))
        .await
        .unwrap()
        .unwrap();
    let names = children(&stranger, "shared").await;
    assert!(
        names.len() == 1 && names[0].starts_with("__lock__"),
        "{names:?}"
    );
    leading.resign().await.unwrap();
}

#[case(embedded)]
async fn in_kazoos_dialect_a_directory_stays(world: World) {
    let (keeper, stranger) = (kazoos(&world).await, world.raw().await);
    keeper
        .mutex("shared")
        .unwrap()
        .lock()
        .await
        .unwrap()
        .release()
        .await
        .unwrap();

    world.embedded().faults().reap_containers();

    let stat = stranger.check_stat("/locks/shared").await.unwrap();
    assert!(stat.is_some(), "it is no container");
}

#[case(
    zookeeper,
    why = "Kazoo is a client of ZooKeeper, and its dialect is refused elsewhere"
)]
async fn in_kazoos_dialect_others_are_refused(world: World) {
    let (keeper, stranger) = (kazoos(&world).await, world.raw().await);
    let lock = keeper.mutex("mixed").unwrap();
    for start in [
        "lock-".into(),
        format!("{CURATOR}lock-"),
        format!("{KAZOO}__rlock__"),
    ] {
        let path = ticket(&stranger, "mixed", &start).await;

        refused(lock.lock().await, &path);
        refused(lock.try_lock().await, &path);

        only(&stranger, "mixed", &path).await;
        stranger.delete(&path, None).await.unwrap();
    }
}

#[case(embedded)]
async fn the_subclass_in_the_docs_is_the_one_of_the_crowds(_world: World) {
    let (docs, member) = (
        include_str!("../../docs/sharing.md"),
        include_str!("../../crates/cli/tests/interop/members/member.py"),
    );
    let subclass = docs.split("class SharedLock(Lock):").nth(1).unwrap();
    let subclass = subclass.split("```").next().unwrap().trim_end();

    assert!(subclass.contains("_NODE_NAME") && subclass.contains("_EXCLUDE_NAMES"));
    assert!(member.contains(subclass), "{subclass}");
}
