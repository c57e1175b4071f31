//! Trouble between two requests of a semaphore: lost replies, directories that go, sessions that
//! end, busy servers.

use std::time::Duration;

use lockkeeper::embedded::{Code, Match, Op};
use lockkeeper::{Error, Keeper};
use tokio::time::timeout;
use zookeeper_client::{Acl, Acls, AuthId, CreateMode, Permission};

use super::{granted, line_up, queued, semaphore, waits};
use crate::regressions::own_session;
use testbench::{Make, World, case, eventually};
use testbench::{children, keeper};

const SOON: Duration = Duration::from_secs(3);

/// The exchange of a ticket for permits: the only transaction that looks at the limit.
fn grant(world: &World, name: &str) -> Match {
    let limit = format!("{}/locks/{name}/limit", world.chroot());
    let multi = Match::op(Op::Multi);
    multi.path(limit)
}

#[case]
async fn a_queue_that_holds_another_programs_data_works_and_keeps_it(world: World) {
    let (semaphore, stranger) = (semaphore(&world, "foreign", 2).await, world.raw().await);
    semaphore.acquire().await.unwrap().release().await.unwrap();
    stranger
        .set_data("/locks/foreign/queue", b"mine", None)
        .await
        .unwrap();
    stranger.catch_up().await.unwrap();

    let held = semaphore.acquire_many(2).await.unwrap();
    let waiting = line_up(&semaphore, &stranger, "foreign", &[1, 2, 1]).await;
    held.release().await.unwrap();

    for waiting in waiting {
        granted(waiting).await.release().await.unwrap();
    }
    let (data, _) = stranger.get_data("/locks/foreign/queue").await.unwrap();
    assert_eq!(data, b"mine");
}

#[case(zookeeper, why = "access lists and credentials")]
async fn a_queue_whose_data_we_may_not_write_works(world: World) {
    let (semaphore, stranger) = (semaphore(&world, "acl", 1).await, world.raw().await);
    let options = Make::Persistent;
    let rights = Permission::READ | Permission::CREATE | Permission::DELETE;
    let acl = [Acl::new(rights, AuthId::anyone())];
    let only = CreateMode::Persistent.with_acls(Acls::new(&acl));
    for path in ["/locks", "/locks/acl"] {
        stranger.create(path, b"", &options).await.unwrap();
    }
    let client = stranger.zookeeper();
    client.create("/locks/acl/queue", b"", &only).await.unwrap();

    let held = timeout(SOON, semaphore.acquire()).await.unwrap().unwrap();
    let waiting = line_up(&semaphore, &stranger, "acl", &[1, 1]).await;
    held.release().await.unwrap();

    for waiting in waiting {
        granted(waiting).await.release().await.unwrap();
    }
}

#[case(embedded)]
async fn a_lost_reply_of_a_grant_settles_to_one_permit(world: World) {
    let (semaphore, stranger) = (semaphore(&world, "reply", 3).await, world.raw().await);
    for _ in 0..5 {
        world
            .embedded()
            .faults()
            .on(grant(&world, "reply"))
            .drop_reply();

        let permit = timeout(SOON, semaphore.acquire_many(2))
            .await
            .unwrap()
            .unwrap();

        assert_eq!(world.embedded().faults().armed_rules(), 0);
        assert_eq!(children(&stranger, "reply/held").await, [permit.node()]);
        assert!(children(&stranger, "reply/queue").await.is_empty());
        assert_eq!(permit.permits(), 2);
        permit.check().await.unwrap();
        permit.release().await.unwrap();
        assert!(children(&stranger, "reply/held").await.is_empty());
    }
}

#[case(embedded)]
async fn a_grant_that_never_arrived_is_tried_again(world: World) {
    let (keeper, stranger) = (keeper(&world).await, world.raw().await);
    let session = own_session(&keeper).await;
    let semaphore = keeper.semaphore("arrived", 1).unwrap();
    let faults = world.embedded().faults();
    let hold = faults.on(grant(&world, "arrived")).stop_before();
    let waiting = waits(&semaphore, 1);
    hold.reached().await;

    // The connection ends with the request before it was applied.
    assert!(faults.cut(session));
    hold.release();

    let permit = granted(waiting).await;
    assert_eq!(children(&stranger, "arrived/held").await, [permit.node()]);
    permit.release().await.unwrap();
}

#[case(embedded)]
async fn a_grant_that_a_busy_server_refuses_is_tried_again(world: World) {
    let semaphore = semaphore(&world, "busy", 1).await;
    for code in [Code::Throttled, Code::SessionMoved] {
        world
            .embedded()
            .faults()
            .on(grant(&world, "busy"))
            .times(3)
            .fail(code);

        let permit = timeout(SOON, semaphore.acquire()).await.unwrap();

        permit.unwrap().release().await.unwrap();
        assert_eq!(world.embedded().faults().armed_rules(), 0);
    }
}

#[case(embedded)]
async fn a_cancelled_grant_whose_reply_was_lost_leaves_no_permit(world: World) {
    let (keeper, stranger) = (keeper(&world).await, world.raw().await);
    let (session, semaphore) = (
        own_session(&keeper).await,
        keeper.semaphore("both", 1).unwrap(),
    );
    let hold = world
        .embedded()
        .faults()
        .on(grant(&world, "both"))
        .hold_reply();
    let waiting = waits(&semaphore, 1);
    hold.reached().await;
    assert_eq!(
        children(&stranger, "both/held").await.len(),
        1,
        "it is done"
    );

    waiting.abort();
    world.embedded().faults().cut(session);
    hold.release();

    let gone = || async { children(&stranger, "both/held").await.is_empty() };
    eventually("the permit is given back", SOON, gone).await;
    timeout(SOON, semaphore.acquire())
        .await
        .unwrap()
        .unwrap()
        .release()
        .await
        .unwrap();
}

#[case(embedded)]
async fn a_lost_reply_of_a_resize_is_settled(world: World) {
    let (semaphore, stranger) = (semaphore(&world, "resize", 1).await, world.raw().await);
    semaphore.acquire().await.unwrap().release().await.unwrap();
    world
        .embedded()
        .faults()
        .on(grant(&world, "resize"))
        .drop_reply();

    timeout(SOON, semaphore.resize(4)).await.unwrap().unwrap();

    assert_eq!(world.embedded().faults().armed_rules(), 0);
    let (data, stat) = stranger.get_data("/locks/resize/limit").await.unwrap();
    assert_eq!(data, b"4");
    let version = stat.version;
    semaphore.resize(4).await.unwrap();
    let (_, stat) = stranger.get_data("/locks/resize/limit").await.unwrap();
    assert_eq!(
        stat.version, version,
        "what is stored already is not written"
    );
}

#[case(embedded)]
async fn a_lost_reply_of_a_first_limit_is_settled(world: World) {
    let semaphore = semaphore(&world, "first", 2).await;
    let path = format!("{}/locks/first/limit", world.chroot());
    let create = || Match::op(Op::Create).path(path.as_str());
    // The first one finds no directory.
    world.embedded().faults().on(create()).times(2).drop_reply();

    let permit = timeout(SOON, semaphore.acquire_many(2))
        .await
        .unwrap()
        .unwrap();

    assert_eq!(world.embedded().faults().armed_rules(), 0);
    assert_eq!(semaphore.limit().await.unwrap(), 2);
    permit.release().await.unwrap();
}

#[case(embedded)]
async fn removed_directories_are_made_again(world: World) {
    let (semaphore, faults) = (
        semaphore(&world, "reaped", 2).await,
        world.embedded().faults(),
    );
    for round in 0..5 {
        let permit = timeout(SOON, semaphore.acquire_many(2))
            .await
            .unwrap()
            .unwrap();
        permit.release().await.unwrap();
        let gone = faults.reap_containers();
        assert!(
            gone >= 2,
            "round {round}: the queue and the permits' directory go"
        );
        assert_eq!(semaphore.available_permits().await.unwrap(), 2);
        assert!(semaphore.holders().await.unwrap().is_empty());
    }
    assert!(semaphore.try_acquire().await.unwrap().is_some());
}

#[case(embedded)]
async fn a_chroot_that_has_gone_is_said(world: World) {
    let keeper = keeper(&world).await;
    let semaphore = keeper.semaphore("nowhere", 1).unwrap();
    world.embedded().faults().remove(world.chroot()).unwrap();

    let acquired = timeout(SOON, semaphore.acquire()).await;
    let resized = timeout(SOON, semaphore.resize(2)).await;

    for error in [
        acquired.expect("it ends").map(drop).unwrap_err(),
        resized.expect("it ends").unwrap_err(),
    ] {
        assert!(error.to_string().contains("/locks/nowhere"), "{error}");
    }
}

#[case(embedded)]
async fn a_directory_of_permits_that_goes_before_the_grant_is_made_again(world: World) {
    let (semaphore, faults) = (
        semaphore(&world, "goes", 1).await,
        world.embedded().faults(),
    );
    semaphore.acquire().await.unwrap().release().await.unwrap();
    for _ in 0..20 {
        let hold = faults.on(grant(&world, "goes")).stop_before();
        let waiting = waits(&semaphore, 1);
        hold.reached().await;

        faults
            .remove(&format!("{}/locks/goes/held", world.chroot()))
            .unwrap();
        hold.release();

        granted(waiting).await.release().await.unwrap();
    }
}

#[case(embedded)]
async fn a_waiter_whose_session_ends_joins_again(world: World) {
    let (a, b) = (keeper(&world).await, keeper(&world).await);
    let (faults, stranger) = (world.embedded().faults(), world.raw().await);
    let held = a.semaphore("joins", 1).unwrap().acquire().await.unwrap();
    let semaphore = b.semaphore("joins", 1).unwrap();
    // One as the head, one behind it.
    let waiting = [waits(&semaphore, 1), waits(&semaphore, 1)];
    queued(&stranger, "joins", 2).await;

    let entries = a.queue("joins").await.unwrap();
    assert!(faults.expire_session(entries[1].session));
    queued(&stranger, "joins", 2).await;
    let again = || async {
        let now = a.queue("joins").await.unwrap();
        now.len() == 3 && now[1].session != entries[1].session
    };
    eventually("they are in the queue again", SOON, again).await;

    held.release().await.unwrap();
    for waiting in futures_util::future::join_all(
        waiting.map(async |waiting| granted(waiting).await.release().await),
    )
    .await
    {
        waiting.unwrap();
    }
}

#[case(embedded)]
async fn a_waiter_that_must_not_join_again_is_told(world: World) {
    let (a, b) = (keeper(&world).await, keeper(&world).await);
    let held = a.semaphore("told", 1).unwrap().acquire().await.unwrap();
    let semaphore = b.semaphore("told", 1).unwrap().with_rejoin(false);
    let waiting = [waits(&semaphore, 1), waits(&semaphore, 1)];
    queued(&world.raw().await, "told", 2).await;

    let entries = a.queue("told").await.unwrap();
    assert!(world.embedded().faults().expire_session(entries[1].session));

    for waiting in waiting {
        let error = timeout(SOON, waiting).await.unwrap().unwrap().unwrap_err();
        assert!(error.is_session_over(), "{error}");
    }
    held.release().await.unwrap();
}

#[case(embedded)]
async fn a_head_whose_ticket_was_removed_is_told_when_it_is_woken(world: World) {
    let (a, b) = (keeper(&world).await, keeper(&world).await);
    let stranger = world.raw().await;
    let held = a.semaphore("removed", 1).unwrap().acquire().await.unwrap();
    let first = waits(&b.semaphore("removed", 1).unwrap(), 1);
    queued(&stranger, "removed", 1).await;
    let second = waits(&a.semaphore("removed", 1).unwrap(), 1);
    queued(&stranger, "removed", 2).await;

    let queue = a.queue("removed").await.unwrap();
    let path = format!("{}/locks/removed/queue/{}", world.chroot(), queue[1].node);
    world.embedded().faults().remove(&path).unwrap();
    held.release().await.unwrap();

    let error = timeout(SOON, first).await.unwrap().unwrap().unwrap_err();
    assert!(matches!(error, Error::PlaceLost { .. }), "{error}");
    let permit = granted(second).await;
    assert_eq!(children(&stranger, "removed/held").await, [permit.node()]);
    permit.release().await.unwrap();
}

#[case(embedded)]
async fn permits_that_were_taken_from_their_taker_are_not_given_to_it(world: World) {
    let (semaphore, stranger) = (semaphore(&world, "taken", 1).await, world.raw().await);
    let faults = world.embedded().faults();
    semaphore.acquire().await.unwrap().release().await.unwrap();
    let hold = faults.on(grant(&world, "taken")).hold_reply();
    let waiting = waits(&semaphore, 1);
    hold.reached().await;

    // The permit is there, and before its taker knows it the permit is removed.
    let permits = children(&stranger, "taken/held").await;
    faults
        .remove(&format!(
            "{}/locks/taken/held/{}",
            world.chroot(),
            permits[0]
        ))
        .unwrap();
    hold.release();

    let error = timeout(SOON, waiting).await.unwrap().unwrap().unwrap_err();
    assert!(matches!(error, Error::PlaceLost { .. }), "{error}");
    timeout(SOON, semaphore.acquire())
        .await
        .unwrap()
        .unwrap()
        .release()
        .await
        .unwrap();
}

#[case(embedded)]
async fn numbers_of_permits_that_ran_out_do_not_stop_the_semaphore(world: World) {
    let (semaphore, faults) = (semaphore(&world, "end", 4).await, world.embedded().faults());
    let first = semaphore.acquire().await.unwrap();
    let held = format!("{}/locks/end/held", world.chroot());
    faults.set_sequence(&held, i32::MAX).unwrap();

    let mut permits = vec![first];
    for _ in 0..3 {
        permits.push(timeout(SOON, semaphore.acquire()).await.unwrap().unwrap());
    }

    assert_eq!(semaphore.available_permits().await.unwrap(), 0);
    assert_eq!(semaphore.holders().await.unwrap().len(), 4);
    for permit in permits {
        assert_eq!(permit.permits(), 1);
        permit.check().await.unwrap();
        permit.release().await.unwrap();
    }
    assert_eq!(semaphore.available_permits().await.unwrap(), 4);
}

#[case(embedded)]
async fn a_held_semaphore_with_every_server_dead_ends_in_time(world: World) {
    let semaphore = semaphore(&world, "dead", 1).await;
    let held = semaphore.acquire().await.unwrap();
    world.embedded().stop().await;
    let limit = Duration::from_millis(300);
    let began = std::time::Instant::now();

    let error = semaphore.acquire_timeout(limit).await.unwrap_err();

    assert!(error.is_timeout(), "{error}");
    assert!(
        began.elapsed() < limit + Duration::from_secs(1),
        "{:?}",
        began.elapsed()
    );
    world.embedded().restart().await.unwrap();
    held.release().await.unwrap();
}

/// Connects a keeper to a server that has seen nothing since now, until it asks for more than its
/// beats do.
pub(crate) async fn lag(world: &World, keeper: &Keeper) {
    let (session, faults) = (own_session(keeper).await, world.embedded().faults());
    // A beat makes the server catch up.
    let beats = Match::op(Op::Sync).session(session).path(world.chroot());
    faults.on(beats).times(1000).fail(Code::Throttled);
    assert!(faults.lag_at_next_connection(session));
    assert!(faults.cut(session));
    let back = || async {
        faults
            .sessions()
            .iter()
            .any(|info| info.id == session && info.connected)
    };
    eventually("it is connected again", SOON, back).await;
}

#[case(embedded)]
async fn a_server_that_lags_behind_does_not_deny_a_new_limit(world: World) {
    let (a, b) = (keeper(&world).await, keeper(&world).await);
    let other = a.semaphore("lags", 1).unwrap();
    other.acquire().await.unwrap().release().await.unwrap();
    lag(&world, &b).await;

    other.resize(3).await.unwrap();
    let permit = timeout(SOON, b.semaphore("lags", 3).unwrap().acquire_many(3))
        .await
        .unwrap();

    permit.unwrap().release().await.unwrap();
}

#[case(embedded)]
async fn a_server_that_lags_behind_does_not_deny_what_a_grown_limit_allows(world: World) {
    let (a, b) = (keeper(&world).await, keeper(&world).await);
    let (one, two) = (
        a.semaphore("grows", 1).unwrap(),
        b.semaphore("grows", 1).unwrap(),
    );
    two.acquire().await.unwrap().release().await.unwrap();
    lag(&world, &b).await;

    one.resize(3).await.unwrap();
    let permit = timeout(SOON, two.acquire_many(3)).await.unwrap();

    permit
        .expect("there are three by now")
        .release()
        .await
        .unwrap();
}

#[case(embedded)]
async fn a_resize_on_a_server_that_lags_behind_is_done(world: World) {
    let (a, b) = (keeper(&world).await, keeper(&world).await);
    let (one, two) = (
        a.semaphore("stale", 1).unwrap(),
        b.semaphore("stale", 1).unwrap(),
    );
    two.acquire().await.unwrap().release().await.unwrap();
    lag(&world, &b).await;

    one.resize(3).await.unwrap();
    two.resize(1).await.unwrap();

    assert_eq!(one.limit().await.unwrap(), 1, "the last one counts");
}

#[case(embedded)]
async fn a_look_through_a_server_that_lags_behind_is_not_old(world: World) {
    let (a, b) = (keeper(&world).await, keeper(&world).await);
    let other = a.semaphore("lags", 3).unwrap();
    other.acquire().await.unwrap().release().await.unwrap();
    let looks = b.semaphore("lags", 3).unwrap();
    assert_eq!(looks.available_permits().await.unwrap(), 3);

    lag(&world, &b).await;
    let permits = other.acquire_many(2).await.unwrap();
    assert_eq!(looks.available_permits().await.unwrap(), 1);

    lag(&world, &b).await;
    other.resize(5).await.unwrap();
    assert_eq!(looks.limit().await.unwrap(), 5);
    permits.release().await.unwrap();
}

#[case(embedded)]
async fn a_limit_of_ours_that_came_beside_a_lock_is_taken_back(world: World) {
    let (keeper, faults) = (keeper(&world).await, world.embedded().faults());
    let other = testbench::keeper(&world).await;
    for way in 0..2 {
        let name = format!("beside/{way}");
        let lock = other.mutex(&*name).unwrap();
        lock.lock().await.unwrap().release().await.unwrap();
        let semaphore = keeper.semaphore(&*name, 1).unwrap();
        let limit = format!("{}/locks/{name}/limit", world.chroot());
        // It has looked, and the queue was empty.
        let store = faults.on(Match::op(Op::Create).path(limit)).stop_before();
        let refused = async {
            match way {
                0 => semaphore.acquire().await.map(drop),
                _ => semaphore.resize(2).await,
            }
        };
        let taken = async {
            store.reached().await;
            let guard = lock.lock().await.unwrap();
            store.release();
            guard
        };
        let (refused, guard) = tokio::join!(refused, taken);
        let error = refused.expect_err("the lock is held");
        assert!(matches!(error, Error::UnsafeMix { .. }), "{error}");

        // The name is still the lock's.
        guard.release().await.unwrap();
        let again = timeout(SOON, lock.lock()).await.unwrap();
        again.unwrap().release().await.unwrap();
    }
}
