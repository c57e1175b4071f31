//! Events between the requests of a downgrade and of an upgrade.

use std::time::{Duration, Instant};

use lockkeeper::embedded::{Code, Match, Op};
use lockkeeper::{Error, Keeper, Owner};
use tokio::time::timeout;

use super::{SOON, ask_to_read, ask_to_write, granted, tickets, two, waits};
use testbench::{Make, World, case, eventually};
use testbench::{children, keeper};

/// The session timeout of keepers whose beats are to come soon.
const T: Duration = Duration::from_secs(1);

/// The transaction in which a writer becomes a reader.
fn exchange(name: &str) -> Match {
    Match::op(Op::Multi).path_contains(format!("/locks/{name}/__READ__"))
}

#[case]
async fn a_downgrade_under_short_beats_is_no_loss(world: World) {
    // On a busy machine servers may be too slow for a lease of a shorter session.
    let timeout = if world.is_embedded() { 3 * T } else { 10 * T };
    let builder = Keeper::builder(world.connect_string()).session_timeout(timeout);
    let keeper = builder.connect().await.unwrap();
    let lock = keeper.rw_lock("beats").unwrap();
    let (mut lost, began) = (Vec::new(), Instant::now());

    // Long enough for several beats.
    while lost.len() < 3 * 40 || began.elapsed() < timeout / 2 {
        let writer = lock.write().await.unwrap();
        lost.push(writer.lost());
        let reader = writer.downgrade().await.unwrap();
        lost.push(reader.lost());
        let writer = reader.try_upgrade().await.unwrap();
        lost.push(writer.lost());
        writer.release().await.unwrap();
    }

    for lost in lost {
        assert!(futures_util::FutureExt::now_or_never(lost).is_none());
    }
}

#[case]
async fn an_upgrade_after_the_last_other_reader_left_does_not_wait_for_a_lock_delay(world: World) {
    let builder = Keeper::builder(world.connect_string()).persistent_directories(true);
    let keeper = builder.lock_delay(SOON * 10).connect().await.unwrap();
    let lock = keeper.rw_lock("delay").unwrap();
    // The first of a directory that stays has no lost holder to wait for.
    let writer = timeout(SOON, lock.write()).await.unwrap().unwrap();
    writer.release().await.unwrap();
    let reader = timeout(SOON, lock.read())
        .await
        .expect("the writer ended well");

    let upgraded = timeout(SOON, reader.unwrap().try_upgrade()).await;

    let writer = upgraded.expect("it follows itself").unwrap();
    writer.downgrade().await.unwrap().release().await.unwrap();
}

#[case(embedded)]
async fn a_downgrade_whose_reply_is_lost_keeps_the_place(world: World) {
    let ((a, b), stranger) = (two(&world, "lost").await, world.raw().await);
    for times in 1..3 {
        let writer = a.write().await.unwrap();
        let digits = writer.node()[8..].to_owned();
        let reader = ask_to_read(&b, &stranger).await;
        let mut next = ask_to_write(&b, &stranger).await;
        let faults = world.embedded().faults();
        faults.on(exchange("lost")).times(times).drop_reply();

        let own = timeout(SOON * 2, writer.downgrade()).await.unwrap();

        let own = own.unwrap();
        faults.clear_rules();
        assert_eq!(own.node(), format!("__READ__{digits}"));
        own.check().await.unwrap();
        let reader = granted(reader).await;
        assert!(waits(&mut next).await);
        assert_eq!(tickets(&a, &stranger).await, 3);
        reader.release().await.unwrap();
        own.release().await.unwrap();
        granted(next).await.release().await.unwrap();
        assert_eq!(tickets(&a, &stranger).await, 0);
    }
}

#[case(embedded)]
async fn a_downgrade_that_a_busy_server_refuses_is_repeated(world: World) {
    let ((a, b), stranger) = (two(&world, "busy").await, world.raw().await);
    let writer = a.write().await.unwrap();
    let mut next = ask_to_write(&b, &stranger).await;
    let faults = world.embedded().faults();
    faults.on(exchange("busy")).times(3).fail(Code::Throttled);

    let own = timeout(SOON, writer.downgrade()).await.unwrap().unwrap();

    assert!(waits(&mut next).await);
    own.check().await.unwrap();
    own.release().await.unwrap();
    granted(next).await.release().await.unwrap();
}

#[case(embedded)]
async fn a_downgrade_of_a_ticket_that_is_broken_under_way_is_a_loss(world: World) {
    let ((a, b), stranger) = (two(&world, "broken").await, world.raw().await);
    let (writer, faults) = (a.write().await.unwrap(), world.embedded().faults());
    let next = ask_to_write(&b, &stranger).await;
    let ticket = format!("{}/locks/broken/{}", world.chroot(), writer.node());
    let hold = faults.on(exchange("broken")).stop_before();

    let (downgraded, ()) = tokio::join!(timeout(SOON, writer.downgrade()), async {
        hold.reached().await;
        faults.remove(&ticket).unwrap();
        hold.release();
    });

    let error = downgraded.unwrap().unwrap_err();
    assert!(error.is_lost(), "{error}");
    let next = granted(next).await;
    assert_eq!(children(&stranger, "broken").await, [next.node()]);
    next.release().await.unwrap();
}

#[case(embedded)]
async fn a_downgrade_spares_a_strangers_ticket_of_the_same_name(world: World) {
    let ((a, b), stranger) = (two(&world, "name").await, world.raw().await);
    let (writer, faults) = (a.write().await.unwrap(), world.embedded().faults());
    let ticket = format!("{}/locks/name/{}", world.chroot(), writer.node());
    let hold = faults.on(exchange("name")).stop_before();

    let (downgraded, other) = tokio::join!(timeout(SOON, writer.downgrade()), async {
        hold.reached().await;
        faults.remove(&ticket).unwrap();
        faults.reap_containers();
        let other = b.write().await.unwrap();
        assert_eq!(ticket.rsplit('/').next(), Some(other.node()));
        // The new directory is at another version than the one that A looked at.
        let directory = format!("{}/locks/name", world.chroot());
        faults.set_data(&directory, b"").unwrap();
        hold.release();
        other
    });

    let error = downgraded.unwrap().unwrap_err();
    assert!(error.is_lost(), "{error}");
    assert_eq!(children(&stranger, "name").await, [other.node()]);
    other.check().await.unwrap();
}

#[case(embedded)]
async fn a_downgraded_ticket_that_is_broken_at_once_is_a_loss(world: World) {
    let ((a, _), stranger) = (two(&world, "once").await, world.raw().await);
    let (writer, faults) = (a.write().await.unwrap(), world.embedded().faults());
    let node = writer.node().replace("WRIT", "READ");
    let ticket = format!("{}/locks/once/{node}", world.chroot());
    let hold = faults.on(exchange("once")).hold_reply();

    let (downgraded, ()) = tokio::join!(timeout(SOON, writer.downgrade()), async {
        hold.reached().await;
        faults.remove(&ticket).unwrap();
        hold.release();
    });

    let error = downgraded.unwrap().unwrap_err();
    assert!(error.is_lost(), "{error}");
    assert!(children(&stranger, "once").await.is_empty());
}

#[case(embedded)]
async fn a_downgrade_with_a_beat_under_way_is_no_loss(world: World) {
    let builder = Keeper::builder(world.connect_string()).session_timeout(T);
    let lock = builder.connect().await.unwrap().rw_lock("beat").unwrap();
    let (writer, faults) = (lock.write().await.unwrap(), world.embedded().faults());
    let lost = writer.lost();
    let hold = faults.on(exchange("beat")).hold_reply();

    let mut downgrade = Box::pin(writer.downgrade());
    let beats = async |more| {
        let multis = || world.embedded().counters().get(Op::Multi);
        let before = multis();
        eventually("beats are sent", SOON, || async {
            multis() >= before + more
        })
        .await;
    };
    tokio::select! {
        _ = &mut downgrade => panic!("its answer is held back"),
        // A beat that comes to the server when the old ticket is gone.
        () = async { hold.reached().await; beats(1).await } => {}
    }

    // Its answer comes with the exchange's, and is read (or there would be no further beats) before
    // the exchange's is.
    hold.release();
    beats(2).await;

    let reader = timeout(SOON, downgrade).await.unwrap().unwrap();
    reader.check().await.unwrap();
    assert!(futures_util::FutureExt::now_or_never(lost).is_none());
    reader.release().await.unwrap();
}

#[case(embedded)]
async fn a_downgrade_with_a_guest_under_way_goes_on(world: World) {
    let ((a, b), stranger) = (two(&world, "guest").await, world.raw().await);
    let job = Owner::named("job");
    let (a, mine) = (a.with_owner(&job), b.clone().with_owner(&job));
    let (writer, faults) = (a.write().await.unwrap(), world.embedded().faults());
    let hold = faults.on(exchange("guest")).stop_before();

    let (downgraded, guest) = tokio::join!(timeout(SOON, writer.downgrade()), async {
        hold.reached().await;
        let guest = mine.write().await.unwrap();
        hold.release();
        guest
    });

    let reader = downgraded.unwrap().unwrap();
    reader.check().await.unwrap();
    let mut other = ask_to_read(&b, &stranger).await;
    assert!(waits(&mut other).await, "the guest writes");
    guest.release().await.unwrap();
    granted(other).await.release().await.unwrap();
    reader.release().await.unwrap();
    assert_eq!(tickets(&a, &stranger).await, 0);
}

#[case(embedded)]
async fn a_downgrade_in_a_session_that_ends_is_a_loss(world: World) {
    let ((a, b), stranger) = (two(&world, "over").await, world.raw().await);
    let (writer, faults) = (a.write().await.unwrap(), world.embedded().faults());
    let session = session_of(&stranger, "over").await;
    let next = ask_to_write(&b, &stranger).await;
    let hold = faults.on(exchange("over")).stop_before();

    let (downgraded, ()) = tokio::join!(timeout(SOON, writer.downgrade()), async {
        hold.reached().await;
        assert!(faults.expire_session(session));
        hold.release();
    });

    let error = downgraded.unwrap().unwrap_err();
    assert!(error.is_lost(), "{error}");
    granted(next).await.release().await.unwrap();
}

#[case(embedded)]
async fn a_refused_downgrade_gives_the_lock_up(world: World) {
    let ((a, b), _) = (two(&world, "denied").await, ());
    let writer = a.write().await.unwrap();
    let faults = world.embedded().faults();
    faults.on(exchange("denied")).fail(Code::NoAuth);

    let error = writer.downgrade().await.unwrap_err();

    assert!(error.is_denied(), "{error}");
    let next = timeout(SOON, b.write()).await.expect("it is free");
    next.unwrap().release().await.unwrap();
}

/// The session of the only ticket.
async fn session_of(stranger: &testbench::Stranger, name: &str) -> i64 {
    let tickets = children(stranger, name).await;
    let path = format!("/locks/{name}/{}", tickets[0]);
    stranger.get_data(&path).await.unwrap().1.ephemeral_owner
}

/// The create of the ticket by which a reader upgrades.
fn create(name: &str) -> Match {
    let op = Match::op(Op::Create);
    op.path_contains(format!("/locks/{name}/__WRIT__"))
}

#[case(embedded)]
async fn an_upgrade_that_somebody_comes_before_withdraws(world: World) {
    let ((a, b), stranger) = (two(&world, "before").await, world.raw().await);
    let (reader, faults) = (a.read().await.unwrap(), world.embedded().faults());
    let hold = faults.on(create("before")).stop_before();

    // The queue had no other ticket when it looked.
    let (upgraded, other) = tokio::join!(timeout(SOON, reader.try_upgrade()), async {
        hold.reached().await;
        let other = b.read().await.unwrap();
        hold.release();
        other
    });

    let (reader, error) = upgraded.unwrap().unwrap_err().into_parts();
    assert!(matches!(error, Error::NotUpgradable { others: 1, .. }));
    assert_eq!(tickets(&a, &stranger).await, 2, "the writer's is gone");
    reader.check().await.unwrap();
    other.release().await.unwrap();
    reader.release().await.unwrap();
}

#[case(embedded)]
async fn an_upgrade_whose_replies_are_lost_goes_on(world: World) {
    let ((a, b), stranger) = (two(&world, "replies").await, world.raw().await);
    let faults = world.embedded().faults();
    for lost in [
        create("replies"),
        Match::op(Op::Multi).path_contains("/locks/replies/__READ__"),
        Match::op(Op::MultiRead).path_contains("/locks/replies/__WRIT__"),
    ] {
        let reader = a.read().await.unwrap();
        faults.on(lost).drop_reply();

        let upgraded = timeout(SOON, reader.try_upgrade()).await;

        let writer = upgraded.unwrap().unwrap();
        assert_eq!(faults.armed_rules(), 0);
        assert_eq!(children(&stranger, "replies").await, [writer.node()]);
        assert!(b.try_read().await.unwrap().is_none());
        writer.release().await.unwrap();
    }
}

#[case(embedded)]
async fn an_upgrade_of_a_ticket_that_is_broken_under_way_is_a_loss(world: World) {
    let ((a, b), _) = (two(&world, "cut").await, ());
    let (reader, faults) = (a.read().await.unwrap(), world.embedded().faults());
    let ticket = format!("{}/locks/cut/{}", world.chroot(), reader.node());
    let removal = Match::op(Op::Multi).path(ticket.clone());
    let hold = faults.on(removal).stop_before();

    let (upgraded, ()) = tokio::join!(timeout(SOON, reader.try_upgrade()), async {
        hold.reached().await;
        faults.remove(&ticket).unwrap();
        hold.release();
    });

    let (reader, error) = upgraded.unwrap().unwrap_err().into_parts();
    assert!(error.is_lost() && !reader.is_held(), "{error}");
    let next = timeout(SOON, b.write()).await.expect("it is free");
    next.unwrap().release().await.unwrap();
}

#[case(embedded)]
async fn an_upgrade_in_a_session_that_ends_is_a_loss(world: World) {
    for stop in [
        create("ends"),
        Match::op(Op::Multi).path_contains("/ends/__READ__"),
    ] {
        let ((a, b), stranger) = (two(&world, "ends").await, world.raw().await);
        let (reader, faults) = (a.read().await.unwrap(), world.embedded().faults());
        let session = session_of(&stranger, "ends").await;
        let hold = faults.on(stop).stop_before();

        let (upgraded, ()) = tokio::join!(timeout(SOON, reader.try_upgrade()), async {
            hold.reached().await;
            assert!(faults.expire_session(session));
            hold.release();
        });

        let (reader, error) = upgraded.unwrap().unwrap_err().into_parts();
        assert!(error.is_lost() && !reader.is_held(), "{error}");
        let next = timeout(SOON, b.write()).await.expect("it is free");
        next.unwrap().release().await.unwrap();
    }
}

#[case(embedded)]
async fn a_refused_upgrade_keeps_the_guard(world: World) {
    let ((a, _), stranger) = (two(&world, "refused").await, world.raw().await);
    let (reader, faults) = (a.read().await.unwrap(), world.embedded().faults());
    faults.on(create("refused")).fail(Code::NoAuth);

    let refused = reader.try_upgrade().await.unwrap_err();
    let cause = std::error::Error::source(&refused).map(ToString::to_string);
    assert_ne!(cause, Some(refused.to_string()), "a chain says it once");
    let (reader, error) = refused.into_parts();

    assert!(error.is_denied(), "{error}");
    reader.check().await.unwrap();
    assert_eq!(children(&stranger, "refused").await, [reader.node()]);
    reader.release().await.unwrap();
}

#[case(embedded)]
async fn a_writer_whose_ticket_is_broken_in_an_upgrade_is_told_so(world: World) {
    let ((a, b), stranger) = (two(&world, "writer").await, world.raw().await);
    let (reader, faults) = (a.read().await.unwrap(), world.embedded().faults());
    let ticket = format!("{}/locks/writer/{}", world.chroot(), reader.node());
    let hold = faults.on(Match::op(Op::Multi).path(ticket)).hold_reply();

    let (upgraded, ()) = tokio::join!(timeout(SOON, reader.try_upgrade()), async {
        hold.reached().await;
        let left = children(&stranger, "writer").await;
        let writer = format!("{}/locks/writer/{}", world.chroot(), left[0]);
        assert!(left.len() == 1 && writer.contains("__WRIT__"), "{left:?}");
        faults.remove(&writer).unwrap();
        hold.release();
    });

    let (reader, error) = upgraded.unwrap().unwrap_err().into_parts();
    assert!(error.is_lost() && !reader.is_held(), "{error}");
    // A stranger's ticket does not block the queue forever either.
    let options = Make::Ephemeral;
    let foreign = "/locks/writer/__WRIT__0000009999";
    stranger.create(foreign, b"", &options).await.unwrap();
    let next = timeout(SOON, keeper(&world).await.rw_lock("writer").unwrap().read()).await;
    next.expect("it is before the stranger's")
        .unwrap()
        .release()
        .await
        .unwrap();
    drop(b);
}
