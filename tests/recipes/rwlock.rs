//! The read-write lock as its users see it: sharing, exclusion, order, and conversion.

pub mod cancel;
pub mod changes;
pub mod cost;
pub mod random;
#[path = "../../examples/read_write.rs"]
#[allow(dead_code, reason = "its main")]
mod read_write;

use std::time::Duration;

use lockkeeper::{Error, Owner, ReadGuard, Result, RwLock, WriteGuard};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use testbench::{Make, World, case, eventually};
use testbench::{children, keeper};

const SOON: Duration = Duration::from_secs(3);
/// Long enough to see that a call waits.
const A_WHILE: Duration = Duration::from_millis(150);

/// Two keepers, so that contenders are in different sessions.
async fn two(world: &World, name: &str) -> (RwLock, RwLock) {
    let (a, b) = (keeper(world).await, keeper(world).await);
    (a.rw_lock(name).unwrap(), b.rw_lock(name).unwrap())
}

type Reading = JoinHandle<Result<ReadGuard>>;
type Writing = JoinHandle<Result<WriteGuard>>;

/// Starts a read call, and returns when its ticket is in the queue.
async fn ask_to_read(lock: &RwLock, stranger: &testbench::Stranger) -> Reading {
    let (before, lock) = (tickets(lock, stranger).await, lock.clone());
    let named = lock.clone();
    let asked = tokio::spawn(async move { lock.read().await });
    more_than(before, &named, stranger).await;
    asked
}

/// Starts a write call, and returns when its ticket is in the queue.
async fn ask_to_write(lock: &RwLock, stranger: &testbench::Stranger) -> Writing {
    let (before, lock) = (tickets(lock, stranger).await, lock.clone());
    let named = lock.clone();
    let asked = tokio::spawn(async move { lock.write().await });
    more_than(before, &named, stranger).await;
    asked
}

async fn tickets(lock: &RwLock, stranger: &testbench::Stranger) -> usize {
    children(stranger, lock.name().as_str()).await.len()
}

async fn more_than(before: usize, lock: &RwLock, stranger: &testbench::Stranger) {
    let more = || async { tickets(lock, stranger).await > before };
    eventually("the ticket is in the queue", SOON, more).await;
}

async fn granted<T>(asked: JoinHandle<Result<T>>) -> T {
    let granted = timeout(SOON, asked).await.expect("it is let in");
    granted.unwrap().unwrap()
}

async fn waits<T>(asked: &mut JoinHandle<Result<T>>) -> bool {
    timeout(A_WHILE, asked).await.is_err()
}

#[case]
async fn readers_share(world: World) {
    let (a, b) = two(&world, "shared").await;

    let guards = [
        a.read().await.unwrap(),
        a.read().await.unwrap(),
        timeout(SOON, b.read()).await.unwrap().unwrap(),
    ];

    assert!(guards.iter().all(ReadGuard::is_held));
    assert_eq!(guards[0].name(), a.name());
    for guard in guards {
        assert!(guard.node().starts_with("__READ__"), "{}", guard.node());
        guard.check().await.unwrap();
        guard.release().await.unwrap();
    }
}

#[case]
async fn a_writer_excludes_everybody(world: World) {
    let ((a, b), stranger) = (two(&world, "alone").await, world.raw().await);
    let first = a.write().await.unwrap();

    let mut writer = ask_to_write(&b, &stranger).await;
    assert!(waits(&mut writer).await);
    let token = first.token();
    first.release().await.unwrap();
    let second = granted(writer).await;
    assert!(second.token() > token);
    assert!(second.node().starts_with("__WRIT__"), "{}", second.node());
    let mut reader = ask_to_read(&a, &stranger).await;
    assert!(waits(&mut reader).await);
    drop(second);

    granted(reader).await.release().await.unwrap();
    assert!(children(&stranger, "alone").await.is_empty());
}

#[case]
async fn readers_and_writers_are_let_in_in_the_order_of_the_queue(world: World) {
    let ((a, b), stranger) = (two(&world, "fair").await, world.raw().await);
    let first = a.read().await.unwrap();
    let mut writer = ask_to_write(&b, &stranger).await;
    let mut second = ask_to_read(&a, &stranger).await;
    let mut third = ask_to_read(&b, &stranger).await;
    let mut last = ask_to_write(&a, &stranger).await;

    // The lock is held for reading, and yet a reader behind the writer waits.
    assert!(waits(&mut second).await && waits(&mut writer).await);
    first.release().await.unwrap();
    let writer = granted(writer).await;
    assert!(waits(&mut third).await && waits(&mut last).await);
    writer.release().await.unwrap();
    let (second, third) = (granted(second).await, granted(third).await);
    assert!(waits(&mut last).await);
    second.release().await.unwrap();
    assert!(waits(&mut last).await);
    third.release().await.unwrap();

    granted(last).await.release().await.unwrap();
}

// They watch the same ticket.
#[case]
async fn readers_who_wait_in_one_session_are_all_let_in_though_some_leave(world: World) {
    let ((a, b), stranger) = (two(&world, "crowd").await, world.raw().await);
    for leaver in 0..4 {
        let writer = a.write().await.unwrap();
        let mut readers = Vec::new();
        for _ in 0..4 {
            readers.push(ask_to_read(&b, &stranger).await);
        }
        assert!(waits(&mut readers[0]).await);

        let left = readers.remove(leaver);
        left.abort();
        let gone = || async { tickets(&a, &stranger).await == 4 };
        eventually("its ticket is gone", SOON, gone).await;
        // The same reader again, which comes back to the same ticket.
        readers.push(ask_to_read(&b, &stranger).await);
        assert!(waits(&mut readers[0]).await);
        writer.release().await.unwrap();

        for reader in readers {
            granted(reader).await.release().await.unwrap();
        }
    }
}

#[case]
async fn a_try_says_not_now_where_it_would_have_to_wait(world: World) {
    let ((a, b), stranger) = (two(&world, "try").await, world.raw().await);
    let reader = b.try_read().await.unwrap().expect("it is free");
    let other = a.try_read().await.unwrap().expect("readers share");
    assert!(a.try_write().await.unwrap().is_none());
    let writer = ask_to_write(&a, &stranger).await;
    // A `try_read` does not overtake either.
    assert!(b.try_read().await.unwrap().is_none());
    reader.release().await.unwrap();
    other.release().await.unwrap();
    let writer = granted(writer).await;
    assert!(b.try_read().await.unwrap().is_none());
    assert!(b.try_write().await.unwrap().is_none());
    assert_eq!(children(&stranger, "try").await, [writer.node()]);
    writer.release().await.unwrap();

    let writer = a.try_write().await.unwrap().expect("it is free");
    writer.release().await.unwrap();
}

#[case]
async fn a_timed_call_leaves_the_queue(world: World) {
    let ((a, b), stranger) = (two(&world, "timed").await, world.raw().await);
    let writer = a.write().await.unwrap();

    let errors = [
        b.read_timeout(A_WHILE).await.unwrap_err(),
        b.write_timeout(A_WHILE).await.unwrap_err(),
    ];

    assert!(errors.iter().all(Error::is_timeout), "{errors:?}");
    let alone = || async { children(&stranger, "timed").await == [writer.node()] };
    eventually("their tickets are gone", SOON, alone).await;
    writer.release().await.unwrap();
    b.read_timeout(SOON).await.unwrap().release().await.unwrap();
    b.write_timeout(SOON)
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
}

#[case]
async fn a_downgrade_lets_readers_in_and_no_writer(world: World) {
    let ((a, b), stranger) = (two(&world, "down").await, world.raw().await);
    let writer = a.with_label("prices").write().await.unwrap();
    let (digits, lost) = (writer.node()[8..].to_owned(), writer.lost());
    let reader = ask_to_read(&b, &stranger).await;
    let mut next = ask_to_write(&b, &stranger).await;

    let own = writer.downgrade().await.unwrap();

    assert_eq!(own.node(), format!("__READ__{digits}"));
    own.check().await.unwrap();
    let reader = granted(reader).await;
    assert!(waits(&mut next).await);
    reader.release().await.unwrap();
    assert!(waits(&mut next).await);
    assert!(own.is_held());
    let (data, _) = stranger
        .get_data(&format!("/locks/down/{}", own.node()))
        .await
        .unwrap();
    assert!(String::from_utf8(data).unwrap().contains("prices"));
    own.release().await.unwrap();
    granted(next).await.release().await.unwrap();
    assert!(timeout(A_WHILE, lost).await.is_err(), "nothing was lost");
}

#[case]
async fn a_lone_reader_is_upgraded(world: World) {
    let ((a, b), stranger) = (two(&world, "up").await, world.raw().await);
    let reader = a.read().await.unwrap();
    let (old, lost) = (reader.node().to_owned(), reader.lost());

    let writer = timeout(SOON, reader.try_upgrade()).await.unwrap().unwrap();

    assert!(writer.node().starts_with("__WRIT__"), "{}", writer.node());
    assert!(writer.node()[8..] > old[8..], "{} {old}", writer.node());
    assert_eq!(children(&stranger, "up").await, [writer.node()]);
    writer.check().await.unwrap();
    assert!(b.try_read().await.unwrap().is_none());
    let next = ask_to_write(&b, &stranger).await;
    let token = writer.token();
    writer.release().await.unwrap();
    let next = granted(next).await;
    assert!(next.token() > token);
    next.release().await.unwrap();
    assert!(timeout(A_WHILE, lost).await.is_err(), "nothing was lost");
}

#[case]
async fn an_upgrade_beside_others_is_refused_and_the_guard_is_still_held(world: World) {
    let ((a, b), stranger) = (two(&world, "no").await, world.raw().await);
    let (reader, other) = (a.read().await.unwrap(), b.read().await.unwrap());

    // Beside another reader.
    let refused = reader.try_upgrade().await.unwrap_err();
    assert!(refused.error().is_refusal(), "{refused}");
    assert!(matches!(
        refused.error(),
        Error::NotUpgradable { others: 1, .. }
    ));
    let reader = refused.into_guard();
    assert_eq!(tickets(&a, &stranger).await, 2);
    other.release().await.unwrap();

    // Before a waiting writer.
    let mut writer = ask_to_write(&b, &stranger).await;
    let (reader, error) = reader.try_upgrade().await.unwrap_err().into_parts();
    assert!(error.is_refusal(), "{error}");
    reader.check().await.unwrap();
    assert!(waits(&mut writer).await);
    assert_eq!(tickets(&a, &stranger).await, 2);

    // As an error it gives the lock up.
    let error = Error::from(reader.try_upgrade().await.unwrap_err());
    assert!(error.is_refusal(), "{error}");
    granted(writer).await.release().await.unwrap();
}

#[case]
async fn two_readers_who_upgrade_at_once_both_come_back(world: World) {
    let ((a, b), stranger) = (two(&world, "both").await, world.raw().await);
    for _ in 0..5 {
        let (one, other) = (a.read().await.unwrap(), b.read().await.unwrap());

        let both = async { tokio::join!(one.try_upgrade(), other.try_upgrade()) };
        let (one, other) = timeout(SOON, both).await.expect("neither hangs");

        let guards = [
            one.unwrap_err().into_guard(),
            other.unwrap_err().into_guard(),
        ];
        assert!(guards.iter().all(ReadGuard::is_held));
        assert_eq!(tickets(&a, &stranger).await, 2);
        for guard in guards {
            guard.release().await.unwrap();
        }
    }
}

#[case]
async fn an_owner_shares_its_hold_within_a_keeper(world: World) {
    let (keeper, stranger) = (keeper(&world).await, world.raw().await);
    let lock = keeper
        .rw_lock("own")
        .unwrap()
        .with_owner(&Owner::named("job"));

    let (one, other) = (lock.read().await.unwrap(), lock.read().await.unwrap());
    assert_eq!(one.node(), other.node());
    one.release().await.unwrap();
    assert!(other.is_held());
    // It is the only one now.
    let writer = other.try_upgrade().await.unwrap();
    let (again, reader) = (lock.write().await.unwrap(), lock.read().await.unwrap());
    assert_eq!(
        (again.token(), reader.node()),
        (writer.token(), writer.node())
    );
    writer.release().await.unwrap();
    again.release().await.unwrap();
    // What is left of a writer's hold is a writer's.
    assert!(reader.node().starts_with("__WRIT__"));
    let token = reader.try_upgrade().await.unwrap().token();
    let (one, other) = (lock.write().await.unwrap(), lock.write().await.unwrap());
    assert!(one.token() > token);
    let reader = one.downgrade().await.unwrap();
    assert!(
        reader.node().starts_with("__WRIT__"),
        "somebody still writes"
    );
    other.release().await.unwrap();
    reader.release().await.unwrap();
    eventually("nothing is left", SOON, || async {
        children(&stranger, "own").await.is_empty()
    })
    .await;

    // A downgraded hold is the owner's as well.
    let reader = lock.write().await.unwrap().downgrade().await.unwrap();
    assert!(reader.node().starts_with("__READ__"));
    let beside = lock.read().await.unwrap();
    assert_eq!(beside.node(), reader.node());
    let refused = lock.write().await.unwrap_err();
    assert!(matches!(refused, Error::HeldForReading { .. }), "{refused}");
}

#[case]
async fn an_owner_who_reads_cannot_write_beside_itself(world: World) {
    let (keeper, stranger) = (keeper(&world).await, world.raw().await);
    let lock = keeper
        .rw_lock("held")
        .unwrap()
        .with_owner(&Owner::named("job"));
    let (one, other) = (lock.read().await.unwrap(), lock.read().await.unwrap());

    let refusals = [
        timeout(SOON, lock.write()).await.unwrap().unwrap_err(),
        timeout(SOON, lock.try_write()).await.unwrap().unwrap_err(),
        Error::from(other.try_upgrade().await.unwrap_err()),
    ];

    assert!(refusals.iter().all(Error::is_refusal), "{refusals:?}");
    assert_eq!(children(&stranger, "held").await, [one.node()]);
    one.release().await.unwrap();
    lock.write().await.unwrap().release().await.unwrap();
}

#[case]
async fn an_owner_who_writes_elsewhere_is_visited_to_read_and_to_write(world: World) {
    let ((a, b), stranger) = (two(&world, "visit").await, world.raw().await);
    let job = Owner::named("job");
    let (a, mine, strange) = (a.with_owner(&job), b.clone().with_owner(&job), b);
    let host = a.write().await.unwrap();

    let guest = timeout(SOON, mine.read())
        .await
        .expect("it goes in")
        .unwrap();
    let same = mine.write().await.unwrap();
    assert_eq!((same.token(), same.node()), (host.token(), guest.node()));
    drop((guest, same));
    eventually("the guest has left", SOON, || async {
        children(&stranger, "visit").await == [host.node()]
    })
    .await;
    let guest = timeout(SOON, mine.write())
        .await
        .expect("it goes in")
        .unwrap();
    assert_eq!(guest.token(), host.token());
    let mut other = ask_to_read(&strange, &stranger).await;
    host.release().await.unwrap();
    assert!(waits(&mut other).await, "the guest keeps others out");

    // A guest can share as well: its host is gone, so others come in.
    let guest = guest.downgrade().await.unwrap();
    let other = granted(other).await;
    guest.check().await.unwrap();
    guest.release().await.unwrap();
    other.release().await.unwrap();
}

#[case]
async fn an_owner_who_reads_elsewhere_is_waited_for(world: World) {
    let ((a, b), stranger) = (two(&world, "elsewhere").await, world.raw().await);
    let job = Owner::named("job");
    let (a, b) = (a.with_owner(&job), b.with_owner(&job));
    let reader = a.read().await.unwrap();
    let beside = timeout(SOON, b.read())
        .await
        .expect("readers share")
        .unwrap();
    assert_ne!(beside.node(), reader.node());
    beside.release().await.unwrap();

    assert!(b.try_write().await.unwrap().is_none());
    let mut writer = ask_to_write(&b, &stranger).await;
    assert!(waits(&mut writer).await);
    reader.release().await.unwrap();

    granted(writer).await.release().await.unwrap();
}

#[case]
async fn foreign_readers_and_writers_are_respected(world: World) {
    let ((a, _), stranger) = (two(&world, "foreign").await, world.raw().await);
    a.read().await.unwrap().release().await.unwrap();
    let options = Make::EphemeralSequential;
    let protected = "/locks/foreign/_c_01234567-89ab-cdef-0123-456789abcdef-";
    let join = async |tag: &str| {
        let path = format!("{protected}{tag}");
        let (_, seq) = stranger.create(&path, b"", &options).await.unwrap();
        format!("{path}{seq}")
    };
    let foreign_reader = join("__READ__").await;
    let reader = timeout(SOON, a.read())
        .await
        .expect("readers share")
        .unwrap();
    let foreign_writer = join("__WRIT__").await;
    let mut second = ask_to_read(&a, &stranger).await;
    assert!(waits(&mut second).await);
    assert!(reader.try_upgrade().await.is_err());

    stranger.delete(&foreign_reader, None).await.unwrap();
    assert!(waits(&mut second).await);
    stranger.delete(&foreign_writer, None).await.unwrap();

    granted(second).await.release().await.unwrap();
}

#[case]
async fn the_example_runs(world: World) {
    let written = timeout(SOON * 4, read_write::read_write(&world.connect_string())).await;

    let written = written.unwrap().unwrap();
    assert!((1..=20).contains(&written), "{written}");
}

#[case(embedded)]
async fn who_waits_when_the_session_ends_joins_again(world: World) {
    let ((a, b), stranger) = (two(&world, "again").await, world.raw().await);
    let own = b.clone().with_rejoin(false);
    let writer = a.write().await.unwrap();
    let (reading, writing) = (
        ask_to_read(&b, &stranger).await,
        ask_to_write(&b, &stranger).await,
    );
    let (once, again) = (
        ask_to_read(&own, &stranger).await,
        ask_to_write(&own, &stranger).await,
    );
    let waiting = children(&stranger, "again").await;
    let waiting = waiting.iter().find(|node| **node != writer.node()).unwrap();
    let (_, stat) = stranger
        .get_data(&format!("/locks/again/{waiting}"))
        .await
        .unwrap();

    assert!(
        world
            .embedded()
            .faults()
            .expire_session(stat.ephemeral_owner)
    );

    let ended = [
        timeout(SOON, once).await.unwrap().unwrap().unwrap_err(),
        timeout(SOON, again).await.unwrap().unwrap().unwrap_err(),
    ];
    assert!(ended.iter().all(Error::is_session_over), "{ended:?}");
    let back = || async { tickets(&a, &stranger).await == 3 };
    eventually("the others are in the queue again", SOON, back).await;
    writer.release().await.unwrap();
    // In any order.
    let both = async {
        tokio::join!(
            async { granted(reading).await.release().await.unwrap() },
            async { granted(writing).await.release().await.unwrap() }
        )
    };
    timeout(SOON, both).await.expect("both are let in");
}
