//! A guard's view of its hold: in normal operation, when the ticket, the session or the servers go,
//! and after that.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use lockkeeper::embedded::{EmbeddedServer, Op};
use lockkeeper::{Error, GuardState, Keeper, KeeperBuilder, LeaseStrength, SessionEvent};
use tokio::time::{sleep, timeout};

use testbench::stall::Stall;
use testbench::{Change, Make, World, case, eventually};
use testbench::{children, keeper};

const SOON: Duration = Duration::from_secs(3);
/// The session timeout on the embedded server.
const T: Duration = Duration::from_millis(900);
/// The same where a machine that stops for a second is not to end the lease.
const LONG_T: Duration = Duration::from_secs(2);

/// On a busy machine real servers may be too slow for a lease of so short a session.
fn session_timeout(world: &World) -> Duration {
    if world.is_embedded() {
        T
    } else {
        Duration::from_secs(3)
    }
}

fn builder(world: &World) -> KeeperBuilder {
    Keeper::builder(world.connect_string()).session_timeout(session_timeout(world))
}

async fn brisk(world: &World) -> Keeper {
    builder(world).connect().await.unwrap()
}

async fn session_of(keeper: &Keeper, lock: &str) -> i64 {
    keeper.queue(lock).await.unwrap()[0].session.into()
}

#[case]
async fn a_healthy_guard_is_held_and_says_for_how_long(world: World) {
    let keeper = brisk(&world).await;
    let guard = keeper.mutex("healthy").unwrap().lock().await.unwrap();
    let (began, timeout) = (Instant::now(), session_timeout(&world));
    while began.elapsed() < timeout * 2 {
        let (state, left) = (guard.state(), guard.valid_for());

        assert_ne!(state, GuardState::Lost);
        assert!(guard.is_held());
        assert!(!left.is_zero());
        sleep(timeout / 30).await;
    }
    guard.check().await.unwrap();
    guard.release().await.unwrap();
}

#[case]
async fn a_guard_of_a_closed_keeper_is_lost(world: World) {
    let keeper = keeper(&world).await;
    let guard = keeper.mutex("closed").unwrap().lock().await.unwrap();
    let lost = guard.lost();

    keeper.close().await;

    assert!(!guard.is_held());
    assert_eq!(guard.state(), GuardState::Lost);
    assert_eq!(guard.valid_for(), Duration::ZERO);
    let error = timeout(SOON, lost).await.unwrap();
    assert!(error.is_closed() && error.is_lost(), "{error}");
    assert!(guard.release().await.unwrap_err().is_lost());
}

#[case]
async fn a_clean_release_is_no_loss(world: World) {
    let keeper = brisk(&world).await;
    let guard = keeper.mutex("clean").unwrap().lock().await.unwrap();
    let (lost, again) = (guard.lost(), guard.lost());

    guard.release().await.unwrap();
    keeper.close().await;

    assert!(timeout(Duration::from_millis(100), lost).await.is_err());
    assert!(
        timeout(Duration::from_millis(100), again.clone())
            .await
            .is_err()
    );
}

#[case]
async fn a_check_finds_a_broken_ticket(world: World) {
    let (keeper, stranger) = (keeper(&world).await, world.raw().await);
    let guard = keeper.mutex("broken").unwrap().lock().await.unwrap();
    guard.check().await.unwrap();
    let path = format!("/locks/broken/{}", guard.node());
    stranger.delete(&path, None).await.unwrap();

    let error = guard.check().await.unwrap_err();

    assert!(matches!(error, Error::PlaceLost { .. }), "{error}");
    assert!(!guard.is_held());
    assert!(guard.release().await.unwrap_err().is_lost());
}

#[case]
async fn a_beat_finds_a_broken_ticket(world: World) {
    let (keeper, stranger) = (brisk(&world).await, world.raw().await);
    let guard = keeper.mutex("beat").unwrap().lock().await.unwrap();
    let other = keeper.mutex("other").unwrap().lock().await.unwrap();
    let path = format!("/locks/beat/{}", guard.node());
    stranger.delete(&path, None).await.unwrap();

    let error = timeout(SOON, guard.lost()).await.unwrap();

    assert!(matches!(error, Error::PlaceLost { .. }), "{error}");
    assert_eq!(guard.state(), GuardState::Lost);
    assert!(other.is_held(), "each ticket for itself");
}

#[case]
async fn work_is_cancelled_when_the_lock_is_lost(world: World) {
    let (keeper, stranger) = (brisk(&world).await, world.raw().await);
    let guard = keeper.mutex("work").unwrap().lock().await.unwrap();
    assert_eq!(guard.run(async { 42 }).await.unwrap(), 42);
    let path = format!("/locks/work/{}", guard.node());
    stranger.delete(&path, None).await.unwrap();

    let worked = timeout(SOON, guard.run(std::future::pending::<()>()))
        .await
        .unwrap();

    assert!(worked.unwrap_err().is_lost());
    assert!(guard.run(async { 42 }).await.unwrap_err().is_lost());
}

/// What a node holds by now, whichever server is asked.
async fn data(stranger: &testbench::Stranger, path: &str) -> Vec<u8> {
    stranger.catch_up().await.unwrap();
    stranger.get_data(path).await.unwrap().0
}

#[case]
async fn fenced_writes_commit_together_while_the_ticket_is_there(world: World) {
    let (keeper, stranger) = (keeper(&world).await, world.raw().await);
    let guard = keeper.mutex("fence").unwrap().lock().await.unwrap();
    guard
        .fenced()
        .create("/a", "1")
        .create("/b", "1")
        .commit()
        .await
        .unwrap();
    guard
        .fenced()
        .set("/a", "2", Some(0))
        .delete("/b", None)
        .commit()
        .await
        .unwrap();
    assert_eq!(data(&stranger, "/a").await, b"2");
    assert!(stranger.check_stat("/b").await.unwrap().is_none());
    // Another client writes into the directory: that is no reason to fail.
    stranger.set_data("/locks/fence", b"", None).await.unwrap();
    guard.fenced().set("/a", "3", None).commit().await.unwrap();

    let path = format!("/locks/fence/{}", guard.node());
    stranger.delete(&path, None).await.unwrap();
    let error = guard
        .fenced()
        .set("/a", "4", None)
        .commit()
        .await
        .unwrap_err();

    assert!(error.is_lost(), "{error}");
    assert_eq!(data(&stranger, "/a").await, b"3");
}

#[case]
async fn fenced_writes_say_which_path_is_refused(world: World) {
    let (keeper, stranger) = (keeper(&world).await, world.raw().await);
    let guard = keeper.mutex("refuse").unwrap().lock().await.unwrap();

    let twice = guard.fenced().create("/first", "").create("/no/parent", "");
    let error = twice.commit().await.unwrap_err();

    let text = error.to_string();
    assert!(
        text.contains("/no/parent") && text.contains("no such node"),
        "{text}"
    );
    assert!(!error.is_lost());
    stranger.catch_up().await.unwrap();
    assert!(
        stranger.check_stat("/first").await.unwrap().is_none(),
        "all or nothing"
    );
    guard.fenced().create("/first", "").commit().await.unwrap();
    let error = guard
        .fenced()
        .set("/first", "", Some(7))
        .commit()
        .await
        .unwrap_err();
    assert!(error.to_string().contains("the version differs"), "{error}");
    guard.release().await.unwrap();
}

#[case]
async fn a_holder_that_did_not_end_well_delays_the_next_one(world: World) {
    let delay = Duration::from_secs(3);
    let patient = builder(&world).lock_delay(delay).connect().await.unwrap();
    let crashing = keeper(&world).await;
    // A directory with a mark, so that the first one of all does not count.
    keeper(&world)
        .await
        .mutex("delay")
        .unwrap()
        .lock()
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    let lock = patient.mutex("delay").unwrap();
    let began = Instant::now();
    let guard = lock.lock().await.unwrap();
    assert!(began.elapsed() < delay, "after a clean release at once");
    let mut next = lock.enqueue().await.unwrap();
    assert!(
        timeout(Duration::from_millis(50), next.granted())
            .await
            .is_err()
    );
    guard.release().await.unwrap();
    let began = Instant::now();
    let guard = next.granted().await.unwrap();
    assert!(began.elapsed() < delay, "after a clean hand-over at once");
    guard.release().await.unwrap();

    // The end of a session leaves no mark.
    let _lost = crashing.mutex("delay").unwrap().lock().await.unwrap();
    let mut next = lock.enqueue().await.unwrap();
    assert!(
        timeout(Duration::from_millis(50), next.granted())
            .await
            .is_err()
    );
    let began = Instant::now();
    crashing.close().await;
    let granted = timeout(delay + SOON, next.granted()).await;
    let guard = granted.unwrap().unwrap();

    assert!(began.elapsed() >= delay, "{:?}", began.elapsed());
    guard.release().await.unwrap();
}

#[case]
async fn a_new_container_is_delayed_and_a_persistent_directory_is_not(world: World) {
    let delay = Duration::from_secs(3);
    let containers = builder(&world).lock_delay(delay).connect().await.unwrap();
    let persistent = builder(&world)
        .lock_delay(delay)
        .persistent_directories(true);
    let persistent = persistent.connect().await.unwrap();

    let began = Instant::now();
    persistent
        .mutex("kept")
        .unwrap()
        .lock()
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    assert!(began.elapsed() < delay, "nobody can have held it before");
    let began = Instant::now();
    containers
        .mutex("forgotten")
        .unwrap()
        .lock()
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    assert!(began.elapsed() >= delay, "what was before is forgotten");
}

#[case(embedded)]
async fn a_try_lock_sits_the_lock_delay_out(world: World) {
    let delay = Duration::from_millis(300);
    let keeper = builder(&world).lock_delay(delay).connect().await.unwrap();
    let began = Instant::now();

    let guard = keeper.mutex("try").unwrap().try_lock().await.unwrap();

    assert!(guard.is_some() && began.elapsed() >= delay);
}

#[case(embedded)]
async fn a_sync_lease_needs_a_session_timeout_that_was_not_raised(_world: World) {
    let second = Duration::from_secs(1);
    let server = EmbeddedServer::builder().session_timeouts(second * 2, second * 40);
    let server = server.start().await.unwrap();
    let sync = |timeout| {
        let builder = Keeper::builder(server.connect_string()).session_timeout(timeout);
        builder.lease_strength(LeaseStrength::Sync)
    };

    let error = sync(second).connect().await.unwrap_err();
    assert!(error.is_invalid(), "{error}");
    let text = error.to_string();
    assert!(
        text.contains("minimum") && text.contains("Quorum"),
        "{text}"
    );
    let keeper = sync(second * 4).connect().await.unwrap();
    let guard = keeper.mutex("sync").unwrap().lock().await.unwrap();
    assert!(guard.is_held());
    guard.release().await.unwrap();
    keeper.close().await;
    server.stop().await;
}

#[case(embedded)]
async fn an_expired_session_loses_its_guards_and_another_one_follows(world: World) {
    let keeper = brisk(&world).await;
    let guard = keeper.mutex("expire").unwrap().lock().await.unwrap();
    let mut events = keeper.session_events();
    let session = session_of(&keeper, "expire").await;
    assert_eq!(events.borrow(), events.borrow());

    world.embedded().faults().expire_session(session);
    let error = timeout(SOON, guard.lost()).await.unwrap();

    assert!(error.is_lost(), "{error}");
    assert!(guard.release().await.unwrap_err().is_lost());
    let another = async {
        loop {
            match events.changed().await.unwrap() {
                SessionEvent::Connected { session: other, .. } if i64::from(other) != session => {
                    return;
                }
                SessionEvent::Closed => panic!("the keeper is open"),
                _ => {}
            }
        }
    };
    timeout(SOON, another)
        .await
        .expect("another session, although nobody asked for one");
    keeper
        .mutex("expire")
        .unwrap()
        .lock()
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
}

#[case(embedded)]
async fn a_dead_server_ends_the_lease_and_the_loss_is_final(world: World) {
    let (server, keeper) = (world.embedded(), brisk(&world).await);
    let guard = keeper.mutex("dead").unwrap().lock().await.unwrap();
    sleep(T).await;

    server.stop().await;
    let (stall, stopped, left) = (Stall::watch(), Instant::now(), guard.valid_for());
    eventually("the guard is in doubt", SOON, || async {
        guard.state() == GuardState::Suspect && guard.is_held()
    })
    .await;
    let error = timeout(SOON, guard.lost()).await.unwrap();
    let took = stopped.elapsed();

    assert!(matches!(error, Error::LeaseOver { .. }), "{error}");
    assert!(
        took + Duration::from_millis(5) >= left,
        "{took:?} of {left:?}"
    );
    assert!(
        took <= left + Duration::from_millis(50) + stall.longest(),
        "{took:?} of {left:?}"
    );
    assert_eq!(
        (guard.state(), guard.valid_for()),
        (GuardState::Lost, Duration::ZERO)
    );
    server.restart().await.unwrap();
    let other = keeper.mutex("other").unwrap();
    let other = timeout(SOON, other.lock()).await.unwrap().unwrap();
    assert_eq!(guard.state(), GuardState::Lost, "for ever");
    assert!(guard.release().await.unwrap_err().is_lost());
    let again = keeper.mutex("dead").unwrap();
    timeout(SOON, again.lock())
        .await
        .expect("the ticket is gone all the same")
        .unwrap()
        .release()
        .await
        .unwrap();
    other.release().await.unwrap();
    keeper.close().await;
    server.stop().await;
}

#[case(embedded)]
async fn beats_are_commits_while_there_are_tickets_and_syncs_otherwise(world: World) {
    let (keeper, server) = (brisk(&world).await, world.embedded());
    let counted = |rhythm: Duration| async move {
        let (before, began, stall) = (server.counters(), Instant::now(), Stall::watch());
        sleep(T * 2).await;
        let (made, took) = (server.counters().since(&before), began.elapsed());
        // A machine that stalls makes a beat late, and each next one with it.
        let least = took.div_duration_f64(rhythm + stall.longest()) - 1.0;
        let most = took.div_duration_f64(rhythm) + 1.0;
        let others = made.requests() - made.get(Op::Ping);
        (
            made.get(Op::Sync),
            made.get(Op::Multi),
            others,
            least..=most,
        )
    };

    let (syncs, multis, all, beats) = counted(T / 6).await;
    assert!(
        beats.contains(&(syncs as f64)),
        "one each sixth of the timeout: {syncs} of {beats:?}"
    );
    assert_eq!((multis, all), (0, syncs));
    let mut guards = Vec::new();
    for number in 0..100 {
        let lock = keeper.mutex(format!("held/{number}")).unwrap();
        guards.push(lock.lock().await.unwrap());
    }
    let (syncs, multis, all, beats) = counted(T / 10).await;
    assert!(
        beats.contains(&(multis as f64)),
        "one each tenth, for a hundred locks too: {multis} of {beats:?}"
    );
    assert_eq!(syncs, 0);
    assert!(
        all - multis <= 3,
        "and one read each timeout: {all} {multis}"
    );
    drop(guards);
}

#[case(embedded)]
async fn many_held_locks_are_checked_in_turn(world: World) {
    let (builder, faults) = (builder(&world), world.embedded().faults());
    let keeper = builder.session_timeout(LONG_T).connect().await.unwrap();
    let locks = (0..250).map(|number| {
        let lock = keeper.mutex(format!("many/{number}")).unwrap();
        async move { lock.lock().await.unwrap() }
    });
    let guards = join_all(locks).await;

    for broken in [0, 120, 249] {
        let path = format!(
            "{}/locks/{}/{}",
            world.chroot(),
            guards[broken].name(),
            guards[broken].node()
        );
        faults.remove(&path).unwrap();
        timeout(LONG_T, guards[broken].lost())
            .await
            .expect("it is noticed");
    }

    let held = guards.iter().filter(|guard| guard.is_held()).count();
    assert_eq!(held, 247);
}

#[case(embedded)]
async fn a_strangers_ticket_under_our_name_is_noticed(world: World) {
    let (builder, stranger) = (builder(&world), world.raw().await);
    let keeper = builder.session_timeout(LONG_T).connect().await.unwrap();
    let guard = keeper.mutex("name").unwrap().lock().await.unwrap();
    let options = Make::Ephemeral;
    let path = format!("/locks/name/{}", guard.node());

    // Between two beats: a check of the name alone would never find out.
    let again = [Change::Delete(&path), Change::Create(&path, options)];
    stranger.commit(&again).await.unwrap();

    let lost = timeout(LONG_T * 2, guard.lost()).await;
    let error = lost.expect("it is noticed");
    assert!(matches!(error, Error::PlaceLost { .. }), "{error}");
    drop(guard);
    keeper.close().await;
    assert_eq!(children(&stranger, "name").await.len(), 1, "and spared");
}

#[case(embedded)]
async fn a_waiter_joins_again_after_its_session_unless_told_otherwise(world: World) {
    let (holder, waiting) = (keeper(&world).await, keeper(&world).await);
    let faults = world.embedded().faults();
    let guard = holder.mutex("again").unwrap().lock().await.unwrap();
    let lock = waiting.mutex("again").unwrap();
    let impatient = lock.clone().with_rejoin(false);
    let patient = tokio::spawn(async move { lock.lock().await });
    let impatient = tokio::spawn(async move { impatient.lock().await });
    let second = || async {
        holder
            .queue("again")
            .await
            .unwrap()
            .get(1)
            .map(|entry| entry.session)
    };
    eventually("both wait", SOON, || async {
        holder.queue("again").await.unwrap().len() == 3
    })
    .await;

    let session = second().await.unwrap();
    faults.expire_session(session);

    let error = timeout(SOON, impatient)
        .await
        .unwrap()
        .unwrap()
        .unwrap_err();
    assert!(error.is_session_over(), "{error}");
    eventually("the other one is back", SOON, || async {
        second().await.is_some_and(|back| back != session)
    })
    .await;
    guard.release().await.unwrap();
    timeout(SOON, patient)
        .await
        .unwrap()
        .unwrap()
        .unwrap()
        .release()
        .await
        .unwrap();
}

#[case(embedded)]
async fn a_strangers_ticket_is_noticed_among_many(world: World) {
    let (keeper, stranger) = (brisk(&world).await, world.raw().await);
    let locks = (0..150).map(|number| {
        let lock = keeper.mutex(format!("crowd/{number}")).unwrap();
        async move { lock.lock().await.unwrap() }
    });
    let guards = join_all(locks).await;
    let options = Make::Ephemeral;

    for broken in [&guards[0], &guards[149]] {
        let path = format!("/locks/{}/{}", broken.name(), broken.node());
        let again = [Change::Delete(&path), Change::Create(&path, options)];
        stranger.commit(&again).await.unwrap();
    }

    for broken in [&guards[0], &guards[149]] {
        let lost = timeout(T * 3, broken.lost()).await;
        assert!(lost.is_ok(), "{} is noticed", broken.name());
    }
}

#[case(embedded)]
async fn a_place_that_was_granted_long_ago_is_looked_at_again(world: World) {
    let (keeper, stranger) = (brisk(&world).await, world.raw().await);
    let lock = keeper.mutex("late").unwrap();
    let first = lock.lock().await.unwrap();
    let mut place = lock.enqueue().await.unwrap();
    assert!(timeout(T / 9, place.granted()).await.is_err());
    first.release().await.unwrap();
    // It moves up, and is the first.
    for _ in 0..2 {
        timeout(SOON, place.advanced()).await.unwrap().unwrap();
    }
    sleep(T / 3).await;
    let ticket = children(&stranger, "late").await.remove(0);
    let path = format!("/locks/late/{ticket}");
    stranger.delete(&path, None).await.unwrap();

    let error = place.granted().await.unwrap_err();

    assert!(matches!(error, Error::PlaceLost { .. }), "{error}");
}

#[case(embedded)]
async fn a_close_is_told_although_no_session_is_there(_world: World) {
    let server = EmbeddedServer::start().await.unwrap();
    let keeper = Keeper::builder(server.connect_string()).session_timeout(T);
    let keeper = keeper.connect().await.unwrap();
    let mut events = keeper.session_events();
    server.stop().await;
    eventually("the session is over", SOON, || async {
        matches!(events.borrow(), SessionEvent::Over { .. })
    })
    .await;

    keeper.close().await;

    let closed = async { while events.changed().await.unwrap() != SessionEvent::Closed {} };
    timeout(SOON, closed).await.expect("it is told");
    let again = timeout(SOON, events.changed()).await;
    assert!(again.expect("nothing follows").unwrap_err().is_closed());
}

#[case(embedded)]
async fn a_dropped_keeper_is_told_as_closed(world: World) {
    let keeper = brisk(&world).await;
    let mut events = keeper.session_events();
    let guard = keeper.mutex("dropped").unwrap().lock().await.unwrap();
    guard.release().await.unwrap();
    while timeout(T / 9, events.changed()).await.is_ok() {}

    drop(keeper);

    assert_eq!(
        timeout(SOON, events.changed()).await.unwrap().unwrap(),
        SessionEvent::Closed
    );
    let again = timeout(SOON, events.changed()).await;
    assert!(again.expect("nothing follows").unwrap_err().is_closed());
}
