//! Revocation: a holder is asked for its lock, and hears of it if it listens; nothing is taken from
//! it.

use std::time::{Duration, Instant};

use lockkeeper::embedded::{Code, Match, Op};
use lockkeeper::{Error, Keeper, Owner};
use tokio::time::timeout;

use crate::regressions::way;
use testbench::frames::{Matching, Operation};
use testbench::stall::Stall;
use testbench::{Make, World, case, eventually};
use testbench::{children, keeper};

const SOON: Duration = Duration::from_secs(3);
const SHORT: Duration = Duration::from_millis(200);

/// Asks for the first ticket of a queue.
async fn ask(keeper: &Keeper, name: &str, grace: Duration) -> lockkeeper::Result<bool> {
    let queue = keeper.queue(name).await.unwrap();
    keeper.revoke(name, &queue[0], grace).await
}

#[case]
async fn every_guard_hears_that_it_is_asked(world: World) {
    let [a, b] = [keeper(&world).await, keeper(&world).await];
    macro_rules! heard {
        ($name:literal, $guard:expr) => {
            let guard = $guard;
            let listening = async {
                guard.revoked().await.unwrap();
                guard.check().await.expect("it is ours still");
                guard.release().await.unwrap();
            };
            let (left, ()) = tokio::join!(ask(&b, $name, SOON), async {
                timeout(SOON, listening).await.expect($name)
            });
            assert!(left.unwrap(), $name);
        };
    }

    heard!("mutex", a.mutex("mutex").unwrap().lock().await.unwrap());
    heard!("read", a.rw_lock("read").unwrap().read().await.unwrap());
    heard!("write", a.rw_lock("write").unwrap().write().await.unwrap());
    heard!(
        "permit",
        a.semaphore("permit", 2).unwrap().acquire().await.unwrap()
    );
    // Whichever of them it is.
    heard!("two", a.lock_all(["one", "two"]).await.unwrap());
}

#[case]
async fn what_was_asked_stays_asked(world: World) {
    let [a, b] = [keeper(&world).await, keeper(&world).await];
    let guard = a.mutex("asked").unwrap().lock().await.unwrap();

    assert!(!ask(&b, "asked", Duration::ZERO).await.unwrap());
    assert!(!ask(&b, "asked", Duration::ZERO).await.unwrap());

    for _ in 0..2 {
        timeout(SOON, guard.revoked()).await.unwrap().unwrap();
    }
    guard.release().await.unwrap();
    let next = a.mutex("asked").unwrap().lock().await.unwrap();
    let early = timeout(SHORT, next.revoked()).await;
    assert!(early.is_err(), "the next one was not asked");
    next.release().await.unwrap();
}

#[case]
async fn curators_revoker_is_heard(world: World) {
    let (keeper, stranger) = (keeper(&world).await, world.raw().await);
    let guard = keeper.mutex("shared").unwrap().lock().await.unwrap();
    let path = format!("/locks/shared/{}", guard.node());
    let mut listening = tokio::spawn(async move {
        guard.revoked().await.unwrap();
        guard
    });

    // Other words are none to us.
    stranger
        .set_data(&path, b"something else", None)
        .await
        .unwrap();
    let early = timeout(SHORT, &mut listening).await;
    assert!(early.is_err(), "that was no request");
    stranger.set_data(&path, b"__REVOKE__", None).await.unwrap();

    let guard = timeout(SOON, listening).await.unwrap().unwrap();
    guard.release().await.unwrap();
}

#[case(
    zookeeper,
    why = "Curator is a client of ZooKeeper, and watches its node"
)]
async fn a_curator_that_listens_is_asked_in_its_words(world: World) {
    let (keeper, stranger) = (keeper(&world).await, world.raw().await);
    let persistent = Make::Persistent;
    stranger.mkdir("/locks/shared", &persistent).await.unwrap();
    let ephemeral = Make::EphemeralSequential;
    let start = "/locks/shared/_c_01234567-89ab-cdef-0123-456789abcdef-lock-";
    let (_, number) = stranger.create(start, b"", &ephemeral).await.unwrap();
    let path = format!("{start}{number}");
    let (_, _, watching) = stranger
        .zookeeper()
        .get_and_watch_data(&path)
        .await
        .unwrap();
    let curator = async {
        watching.changed().await;
        let (data, _) = stranger.get_data(&path).await.unwrap();
        assert_eq!(data, b"__REVOKE__");
        stranger.delete(&path, None).await.unwrap();
    };

    let (left, ()) = tokio::join!(ask(&keeper, "shared", SOON), curator);

    assert!(left.unwrap());
}

#[case]
async fn a_holder_that_does_not_listen_keeps_its_lock(world: World) {
    let [a, b] = [keeper(&world).await, keeper(&world).await];
    let guard = a.mutex("deaf").unwrap().lock().await.unwrap();
    let mut next = b.mutex("deaf").unwrap().enqueue().await.unwrap();

    assert!(!ask(&b, "deaf", SHORT).await.unwrap());

    let early = timeout(SHORT, next.granted()).await;
    assert!(early.is_err(), "it is not its turn");
    guard.check().await.unwrap();
    guard.release().await.unwrap();
    let next = timeout(SOON, next.granted()).await.unwrap().unwrap();
    next.release().await.unwrap();
}

#[case]
async fn whoever_listens_hears_of_the_loss(world: World) {
    let [a, b] = [keeper(&world).await, keeper(&world).await];
    let guard = a.mutex("lost").unwrap().lock().await.unwrap();
    let queue = b.queue("lost").await.unwrap();

    let (heard, gone) = tokio::join!(timeout(SOON, guard.revoked()), b.evict("lost", &queue[0]));

    assert!(gone.unwrap());
    let error = heard.expect("it ends").unwrap_err();
    assert!(error.is_lost(), "{error}");
    assert!(guard.revoked().await.unwrap_err().is_lost());
    // Who is gone has given back what was asked for.
    assert!(b.revoke("lost", &queue[0], SOON).await.unwrap());
}

#[case]
async fn a_writer_that_becomes_a_reader_stays_asked(world: World) {
    let [a, b] = [keeper(&world).await, keeper(&world).await];
    let writer = a.rw_lock("softer").unwrap().with_label("me");
    let writer = writer.write().await.unwrap();
    assert!(!ask(&b, "softer", Duration::ZERO).await.unwrap());

    let reader = writer.downgrade().await.unwrap();

    timeout(SOON, reader.revoked()).await.unwrap().unwrap();
    let shown = || async { b.queue("softer").await.unwrap()[0].label.clone() };
    let is_shown = || async { shown().await.as_deref() == Some("me") };
    eventually("it is still known", SOON, is_shown).await;
    reader.release().await.unwrap();
}

#[case]
async fn an_owner_that_is_asked_comes_in_again_from_elsewhere(world: World) {
    let [a, b] = [keeper(&world).await, keeper(&world).await];
    let owner = Owner::named("nested");
    let outer = a.mutex("nested").unwrap().with_owner(&owner);
    let outer = outer.lock().await.unwrap();
    assert!(!ask(&b, "nested", Duration::ZERO).await.unwrap());

    let inner = b.mutex("nested").unwrap().with_owner(&owner);
    let inner = timeout(SOON, inner.lock()).await.expect("it is in already");

    inner.unwrap().release().await.unwrap();
    outer.release().await.unwrap();
}

#[case]
async fn a_hold_that_lingers_goes_when_it_is_asked_for(world: World) {
    let [a, b] = [keeper(&world).await, keeper(&world).await];
    let lock = a
        .mutex("kept")
        .unwrap()
        .with_linger(Duration::from_secs(60));
    let guard = lock.lock().await.unwrap();
    let asking = ask(&b, "kept", SOON);
    let following = async {
        timeout(SOON, guard.revoked()).await.unwrap().unwrap();
        guard.release().await.unwrap();
    };

    let (left, ()) = tokio::join!(asking, following);

    assert!(left.unwrap(), "it is not kept for the next one");
}

#[case]
async fn a_candidate_is_not_asked(world: World) {
    let [a, b] = [keeper(&world).await, keeper(&world).await];
    let leading = a.election("lead").unwrap().campaign("me").await.unwrap();

    let error = ask(&b, "lead", SOON).await.unwrap_err();

    assert!(matches!(error, Error::InvalidOption { .. }), "{error}");
    assert!(error.to_string().contains("candidate"), "{error}");
    let leader = b.election("lead").unwrap().leader().await.unwrap();
    assert_eq!(leader.unwrap().value, "me");
    leading.resign().await.unwrap();
}

#[case]
async fn an_entry_of_another_lock_is_not_asked(world: World) {
    let keeper = keeper(&world).await;
    let guard = keeper.mutex("one").unwrap().lock().await.unwrap();
    let queue = keeper.queue("one").await.unwrap();

    let error = keeper.revoke("two", &queue[0], SOON).await.unwrap_err();

    assert!(error.is_invalid(), "{error}");
    guard.release().await.unwrap();
}

#[case(embedded)]
async fn to_listen_costs_one_request_and_a_watch_that_is_taken_back(world: World) {
    let keeper = keeper(&world).await;
    let guard = keeper.mutex("cost").unwrap().lock().await.unwrap();
    let server = world.embedded();
    let reads = || server.counters().get(Op::GetData);
    let before = reads();

    let listening = timeout(SHORT, guard.revoked()).await;

    assert!(listening.is_err());
    assert_eq!(reads() - before, 1);
    let none_left = || async { server.counters().watches == 0 };
    eventually("the watch is taken back", SOON, none_left).await;
    guard.release().await.unwrap();
}

#[case(embedded)]
async fn whoever_listens_hears_of_the_end_of_its_session(world: World) {
    let keeper = keeper(&world).await;
    let guard = keeper.mutex("over").unwrap().lock().await.unwrap();
    let queue = keeper.queue("over").await.unwrap();
    let listening = tokio::spawn(async move { guard.revoked().await });
    let watched = || async { world.embedded().counters().watches == 1 };
    eventually("it listens", SOON, watched).await;

    world.embedded().faults().expire_session(queue[0].session);

    let heard = timeout(SOON, listening).await.expect("it ends").unwrap();
    assert!(heard.unwrap_err().is_lost());
}

#[case(embedded)]
async fn whoever_listens_hears_of_the_end_of_its_lease(world: World) {
    const T: Duration = Duration::from_secs(2);
    let proxy = world.proxy();
    let builder = Keeper::builder(way(&proxy, &world)).session_timeout(T);
    let guard = builder.connect().await.unwrap().mutex("silent").unwrap();
    let guard = guard.lock().await.unwrap();
    let lost = guard.lost();
    let listening = tokio::spawn(async move { guard.revoked().await });
    let watched = || async { world.embedded().counters().watches == 1 };
    eventually("it listens", SOON, watched).await;

    // The client waits for a frame of more than a gigabyte, on a connection that stays: nothing but
    // the clock tells.
    let page = b"HTTP/1.1 400 Bad Request".to_vec();
    proxy.replace_reply(Matching::op(Operation::MULTI), page);
    assert!(timeout(2 * T, lost).await.expect("it is lost").is_lost());

    let (began, stall) = (Instant::now(), Stall::watch());
    let heard = timeout(SOON, listening).await.expect("it is told");
    let took = began.elapsed();
    assert!(took < T / 10 + stall.longest(), "{took:?}");
    assert!(heard.unwrap().unwrap_err().is_lost());
}

#[case(embedded)]
async fn whoever_listens_hears_that_its_keeper_is_closed(world: World) {
    let keeper = keeper(&world).await;
    let guard = keeper.mutex("closed").unwrap().lock().await.unwrap();
    let listening = tokio::spawn(async move { guard.revoked().await });
    let watched = || async { world.embedded().counters().watches == 1 };
    eventually("it listens", SOON, watched).await;

    keeper.close().await;

    let heard = timeout(SOON, listening).await.expect("it ends").unwrap();
    assert!(heard.is_err());
}

#[case(embedded)]
async fn whoever_asks_is_told_of_the_end_of_its_session(world: World) {
    let [a, b] = [keeper(&world).await, keeper(&world).await];
    let guard = a.mutex("asked").unwrap().lock().await.unwrap();
    // Whose session it is, its own ticket tells.
    let own = b.mutex("own").unwrap().lock().await.unwrap();
    let session = i64::from(b.queue("own").await.unwrap()[0].session);
    let queue = b.queue("asked").await.unwrap();
    let asking = tokio::spawn(async move {
        let long = Duration::from_secs(60);
        b.revoke("asked", &queue[0], long).await
    });
    timeout(SOON, guard.revoked()).await.unwrap().unwrap();

    world.embedded().faults().expire_session(session);

    let told = timeout(SOON, asking).await.expect("it ends").unwrap();
    let error = told.unwrap_err();
    assert!(error.is_session_over(), "{error}");
    drop(own);
    guard.release().await.unwrap();
}

#[case(embedded)]
async fn a_ticket_under_an_old_name_is_not_asked(world: World) {
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

    assert!(keeper.revoke("reborn", &queue[0], SOON).await.unwrap());

    let early = timeout(SHORT, new.revoked()).await;
    assert!(early.is_err(), "it was not asked");
    new.release().await.unwrap();
}

#[case(embedded)]
async fn a_request_whose_answers_are_lost_arrives(world: World) {
    let [a, b] = [keeper(&world).await, keeper(&world).await];
    let (stranger, faults) = (world.raw().await, world.embedded().faults());
    for op in [Op::MultiRead, Op::Multi] {
        let guard = a.mutex("answers").unwrap().lock().await.unwrap();
        let queue = b.queue("answers").await.unwrap();
        faults
            .on(Match::op(op).path_contains("answers"))
            .drop_reply();

        assert!(
            !b.revoke("answers", &queue[0], SHORT).await.unwrap(),
            "{op:?}"
        );

        faults.clear_rules();
        timeout(SOON, guard.revoked()).await.unwrap().unwrap();
        guard.release().await.unwrap();
        let empty = || async { children(&stranger, "answers").await.is_empty() };
        eventually("it has left", SOON, empty).await;
    }
}

#[case(embedded)]
async fn a_request_that_is_refused_says_so(world: World) {
    let keeper = keeper(&world).await;
    let guard = keeper.mutex("barred").unwrap().lock().await.unwrap();
    let queue = keeper.queue("barred").await.unwrap();
    let read = Match::op(Op::MultiRead).path_contains("barred");
    world.embedded().faults().on(read).fail(Code::NoAuth);

    let error = keeper.revoke("barred", &queue[0], SOON).await.unwrap_err();

    assert!(error.is_denied(), "{error}");
    guard.check().await.unwrap();
    guard.release().await.unwrap();
}
