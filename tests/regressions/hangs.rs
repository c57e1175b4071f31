//! Hangs: a call that cannot end well ends with an error, and in time.
//!
//! Rows 36, 37 and 41.

use std::time::{Duration, Instant};

use lockkeeper::{Error, Keeper};
use tokio::time::timeout;

use super::wakeups::{waiter, watches};
use super::wire::Wire;
use super::{SOON, own_session};
use testbench::stall::Stall;
use testbench::{Change, World, case, eventually};
use testbench::{children, keeper};

const SECOND: Duration = Duration::from_secs(1);

#[case(embedded)]
async fn row_36_a_waiter_whose_session_ends_fails_while_the_lock_is_held(world: World) {
    let (a, b) = (keeper(&world).await, keeper(&world).await);
    let session = own_session(&a).await;
    let guard = b.mutex("held").unwrap().lock().await.unwrap();
    let lock = a.mutex("held").unwrap().with_rejoin(false);
    let mut place = lock.enqueue().await.unwrap();
    let stall = Stall::watch();
    let (locked, granted, expired) = tokio::join!(
        timeout(SOON, lock.lock()),
        timeout(SOON, place.granted()),
        async {
            let watching = || async { watches(&world).await == 2 };
            eventually("both watch", SOON, watching).await;
            world.embedded().faults().expire_session(session);
            Instant::now()
        }
    );

    let took = expired.elapsed();
    assert!(took < SECOND + stall.longest(), "{took:?}");
    for ended in [locked, granted] {
        let error = ended.expect("it is told").unwrap_err();
        assert!(error.is_session_over(), "{error}");
    }
    assert!(guard.is_held());
    guard.release().await.unwrap();
}

#[case]
async fn row_37_a_call_of_a_closed_keeper_is_refused_at_once(world: World) {
    let keeper = keeper(&world).await;
    let lock = keeper.mutex("closed").unwrap();
    keeper.close().await;

    let limit = Duration::from_millis(100);
    let errors = [
        timeout(limit, lock.lock()).await.unwrap().map(drop),
        timeout(limit, lock.try_lock()).await.unwrap().map(drop),
        timeout(limit, lock.enqueue()).await.unwrap().map(drop),
        timeout(limit, keeper.queue("closed"))
            .await
            .unwrap()
            .map(drop),
    ];

    for error in errors {
        let error = error.unwrap_err();
        assert!(error.is_closed(), "{error}");
    }
}

#[case]
async fn row_37_with_silent_servers_every_call_ends_with_an_error(world: World) {
    let wire = Wire::start(&world).await;
    let limit = Duration::from_millis(300);
    let builder = || {
        Keeper::builder(wire.connect_string())
            .session_timeout(SECOND)
            .connect_timeout(limit)
    };
    // Some tries are too short for a greeting on a busy machine.
    let connect = || async { builder().connect().await.ok() };
    let keeper = eventually("it connects", SOON, connect).await;
    let lock = keeper.mutex("silent").unwrap();
    wire.silence();

    let began = Instant::now();
    let timed = async {
        let error = lock.lock_timeout(limit).await.unwrap_err();
        (error, began.elapsed())
    };
    let connecting = async {
        let error = builder().connect().await.unwrap_err();
        (error, began.elapsed())
    };
    let stall = Stall::watch();
    let ((error, took), (refusal, refused_after), locked, tried, queued, listed) = tokio::join!(
        timed,
        connecting,
        timeout(SOON, lock.lock()),
        timeout(SOON, lock.try_lock()),
        timeout(SOON, lock.enqueue()),
        timeout(SOON, keeper.locks()),
    );

    let slack = Duration::from_millis(100) + stall.longest();
    assert!(
        error.is_timeout() && took < limit + slack,
        "{took:?} {error}"
    );
    assert!(
        refusal.is_unreachable() && refused_after < limit + slack,
        "{refused_after:?} {refusal}"
    );
    for ended in [
        locked.unwrap().map(drop),
        tried.unwrap().map(drop),
        queued.unwrap().map(drop),
        listed.unwrap().map(drop),
    ] {
        let error = ended.unwrap_err();
        assert!(error.is_lost() || error.is_unreachable(), "{error}");
    }
}

#[case]
async fn row_37_with_silent_servers_holders_and_waiters_hear_the_end(world: World) {
    let wire = Wire::start(&world).await;
    let builder = Keeper::builder(wire.connect_string()).session_timeout(SECOND);
    let keeper = builder.connect().await.unwrap();
    let lock = keeper.mutex("silent").unwrap();
    let (held, released) = (lock.lock().await.unwrap(), keeper.mutex("other").unwrap());
    let released = released.lock().await.unwrap();
    let mut place = lock.enqueue().await.unwrap();
    let still = lock.enqueue().await.unwrap();
    wire.silence();

    let (lost, release, granted, position) = tokio::join!(
        timeout(SOON, held.lost()),
        timeout(SOON, released.release()),
        timeout(SOON, place.granted()),
        timeout(SOON, still.position()),
    );

    assert!(lost.unwrap().is_lost() && !held.is_held());
    for ended in [
        release.unwrap(),
        granted.unwrap().map(drop),
        position.unwrap().map(drop),
    ] {
        let error = ended.unwrap_err();
        assert!(error.is_lost(), "{error}");
    }
    timeout(SOON, keeper.close())
        .await
        .expect("the keeper closes");
}

#[case]
async fn row_41_waiters_are_told_when_everything_is_deleted(world: World) {
    let (a, b) = (keeper(&world).await, keeper(&world).await);
    let stranger = world.raw().await;
    let guard = b.mutex("wiped").unwrap().lock().await.unwrap();
    let waiters = [
        waiter(&world, &a, "wiped").await,
        waiter(&world, &a, "wiped").await,
    ];

    let tickets = children(&stranger, "wiped").await;
    let mut all: Vec<String> = tickets
        .iter()
        .map(|ticket| format!("/locks/wiped/{ticket}"))
        .collect();
    all.extend(["/locks/wiped".to_owned(), "/locks".to_owned()]);
    let wipe: Vec<Change<'_>> = all.iter().map(|path| Change::Delete(path)).collect();
    stranger.commit(&wipe).await.unwrap();

    for waiter in waiters {
        let error = timeout(SOON, waiter)
            .await
            .expect("it is told")
            .unwrap()
            .unwrap_err();
        assert!(matches!(error, Error::PlaceLost { .. }), "{error}");
    }
    assert!(guard.release().await.unwrap_err().is_lost());
    let next = timeout(SOON, a.mutex("wiped").unwrap().lock())
        .await
        .unwrap()
        .unwrap();
    assert_eq!(children(&stranger, "wiped").await, [next.node()]);
    next.release().await.unwrap();
}
