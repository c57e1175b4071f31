//! The ends of lingering: time, a competitor, a doubtful or lost hold, an operator, the end of
//! the keeper.

use std::time::Duration;

use futures_util::FutureExt;
use lockkeeper::{GuardState, Keeper};
use tokio::time::timeout;

use super::{LONG, SOON, lingering, once};
use crate::regressions::own_session;
use testbench::{Make, World, case, eventually};
use testbench::{children, keeper};

#[case]
async fn a_kept_place_goes_back_when_its_time_is_over(world: World) {
    let (keeper, stranger) = (keeper(&world).await, world.raw().await);
    let lock = keeper.mutex("time").unwrap();
    let lock = lock.with_linger(Duration::from_secs(2));
    once(&lock).await;
    assert_eq!(children(&stranger, "time").await.len(), 1, "it is kept");

    let gone = || async { children(&stranger, "time").await.is_empty() };
    eventually("it goes back", SOON * 2, gone).await;

    once(&lock).await;
}

/// Whether anything is watched, children too, at any server of this world.
async fn is_watched(world: &World) -> bool {
    if world.protocol().is_some() {
        return !world.watched_by_session().await.is_empty();
    }
    let said = world.words_of_all("mntr").await;
    let mut counts = said
        .lines()
        .filter_map(|line| line.strip_prefix("zk_watch_count\t"));
    counts.any(|count| count.trim() != "0")
}

#[case]
async fn a_competitor_gets_a_kept_place_at_once(world: World) {
    let [one, two] = [keeper(&world).await, keeper(&world).await];
    let lock = lingering(&one, "asked");
    let first = once(&lock).await;
    // Before the watch stands, a list of the queue would tell of the competitor.
    eventually("it is watched", SOON, || is_watched(&world)).await;

    assert!(once(&two.mutex("asked").unwrap()).await > first);

    assert!(once(&lock).await > first);
}

#[case]
async fn a_competitor_comes_before_the_tasks_that_wait_here(world: World) {
    let [one, two] = [keeper(&world).await, keeper(&world).await];
    let stranger = world.raw().await;
    let lock = lingering(&one, "before");
    let guard = lock.lock().await.unwrap();
    eventually("it is watched", SOON, || is_watched(&world)).await;
    let waits = || {
        let lock = lock.clone();
        tokio::spawn(async move { lock.lock().await.unwrap() })
    };
    let first = waits();
    let theirs = two.mutex("before").unwrap();
    let theirs = tokio::spawn(async move { once(&theirs).await });
    let queued = || async { children(&stranger, "before").await.len() == 2 };
    eventually("the competitor is in the queue", SOON, queued).await;
    let token = guard.token();

    // The word of it comes when it comes; until then the hold goes from task to task.
    let passed_on = async {
        let (mut guard, mut next) = (guard, first);
        while guard.token() == token {
            let after = waits();
            guard.check().await.unwrap();
            guard.release().await.unwrap();
            guard = std::mem::replace(&mut next, after).await.unwrap();
        }
        guard.token()
    };
    let ours = timeout(SOON, passed_on)
        .await
        .expect("the word of it comes");

    let theirs = timeout(SOON, theirs).await.unwrap().unwrap();
    assert!(token < theirs && theirs < ours, "{token} {theirs} {ours}");
}

#[case]
async fn a_hold_on_which_somebody_waited_at_its_grant_is_not_passed_on(world: World) {
    let [one, two] = [keeper(&world).await, keeper(&world).await];
    let stranger = world.raw().await;
    let first = two.mutex("waited").unwrap().lock().await.unwrap();
    let lock = lingering(&one, "waited");
    let spawned = |count| {
        let stranger = &stranger;
        move || async move { children(stranger, "waited").await.len() == count }
    };
    let ours = {
        let lock = lock.clone();
        tokio::spawn(async move { lock.lock().await.unwrap() })
    };
    eventually("ours is in the queue", SOON, spawned(2)).await;
    let theirs = tokio::spawn({
        let theirs = two.mutex("waited").unwrap();
        async move { theirs.lock().await.unwrap() }
    });
    eventually("theirs is behind it", SOON, spawned(3)).await;
    first.release().await.unwrap();
    let ours = timeout(SOON, ours).await.unwrap().unwrap();

    ours.release().await.unwrap();

    if world.is_embedded() {
        // Not kept until a word of the other one comes.
        let left = children(&stranger, "waited").await;
        assert_eq!(left.len(), 1, "its release was confirmed: {left:?}");
    }

    drop(timeout(SOON, theirs).await.unwrap().unwrap());
}

#[case]
async fn a_lock_below_this_one_ends_it(world: World) {
    let [one, two] = [keeper(&world).await, keeper(&world).await];
    let stranger = world.raw().await;
    once(&lingering(&one, "above")).await;

    once(&two.mutex("above/below").unwrap()).await;

    let gone = || async { children(&stranger, "above").await == ["below"] };
    eventually("the place goes back", SOON, gone).await;
}

#[case]
async fn a_kept_ticket_that_an_operator_removes_is_not_passed_on(world: World) {
    // No beat tells of it before the watch does.
    let rare = Keeper::builder(world.connect_string()).session_timeout(Duration::from_secs(60));
    let (keeper, stranger) = (rare.connect().await.unwrap(), world.raw().await);
    let lock = lingering(&keeper, "broken");
    let first = once(&lock).await;
    let entry = &keeper.queue("broken").await.unwrap()[0];

    assert!(keeper.evict("broken", entry).await.unwrap());
    assert!(children(&stranger, "broken").await.is_empty());

    // The word of it comes when it comes.
    let is_another = || async {
        let guard = lock.lock().await.unwrap();
        let token = guard.token();
        // Between the two it may be heard of.
        guard.release().await.is_ok() && token > first
    };
    eventually("it is not passed on", SOON, is_another).await;
}

#[case]
async fn a_closed_keeper_gives_its_kept_places_back_as_released(world: World) {
    let one = keeper(&world).await;
    let two = Keeper::builder(world.connect_string()).lock_delay(LONG);
    let two = two.connect().await.unwrap();
    let stranger = world.raw().await;
    // With a child that stays, the directory does too.
    let options = Make::Persistent;
    once(&one.mutex("closed").unwrap()).await;
    let junk = "/locks/closed/junk";
    stranger.create(junk, b"", &options).await.unwrap();
    stranger.delete(junk, None).await.unwrap();
    let first = once(&lingering(&one, "closed")).await;

    one.close().await;

    assert!(children(&stranger, "closed").await.is_empty());
    // A holder that ended in another way would be waited for.
    assert!(once(&two.mutex("closed").unwrap()).await > first);
}

#[case]
async fn a_kept_place_of_a_dropped_keeper_goes_back_when_its_time_is_over(world: World) {
    let (keeper, stranger) = (keeper(&world).await, world.raw().await);
    let lock = keeper.mutex("orphan").unwrap();
    once(&lock.with_linger(Duration::from_millis(100))).await;

    drop(keeper);

    let gone = || async { children(&stranger, "orphan").await.is_empty() };
    eventually("it goes back", SOON, gone).await;
}

#[case(embedded)]
async fn a_lost_hold_is_not_passed_on(world: World) {
    let keeper = keeper(&world).await;
    let lock = lingering(&keeper, "lost");
    let guard = lock.lock().await.unwrap();
    let session = i64::from(keeper.queue("lost").await.unwrap()[0].session);
    let next = {
        let lock = lock.clone();
        tokio::spawn(async move { once(&lock).await })
    };

    world.embedded().faults().expire_session(session);
    timeout(SOON, guard.lost()).await.unwrap();

    let token = guard.token();
    assert!(guard.release().await.unwrap_err().is_lost());
    assert!(timeout(SOON, next).await.unwrap().unwrap() > token);
}

#[case(embedded)]
async fn a_kept_place_that_was_lost_is_not_taken_over(world: World) {
    let keeper = keeper(&world).await;
    let lock = lingering(&keeper, "lost");
    let probe = keeper.mutex("probe").unwrap().lock().await.unwrap();
    let first = once(&lock).await;
    let session = i64::from(keeper.queue("lost").await.unwrap()[0].session);

    world.embedded().faults().expire_session(session);
    timeout(SOON, probe.lost()).await.unwrap();

    assert!(once(&lock).await > first);
}

#[case(embedded)]
async fn a_doubtful_hold_is_released_and_not_passed_on(world: World) {
    let (server, keeper) = (world.embedded(), keeper(&world).await);
    let lock = lingering(&keeper, "doubt");
    let guard = lock.lock().await.unwrap();
    let token = guard.token();

    server.stop().await;
    let suspect = || async { guard.state() == GuardState::Suspect };
    eventually("it is doubtful", SOON, suspect).await;
    drop(guard);
    server.restart().await.unwrap();

    let gone = || async { keeper.queue("doubt").await.unwrap().is_empty() };
    eventually("it is released", SOON, gone).await;
    assert!(once(&lock).await > token);
}

#[case(embedded)]
async fn a_doubtful_kept_place_is_not_taken_over(world: World) {
    let (server, keeper) = (world.embedded(), keeper(&world).await);
    let lock = lingering(&keeper, "doubt");
    let probe = keeper.mutex("probe").unwrap().lock().await.unwrap();
    let first = once(&lock).await;

    server.stop().await;
    let suspect = || async { probe.state() == GuardState::Suspect };
    eventually("it is doubtful", SOON, suspect).await;
    assert!(
        lock.try_lock().now_or_never().is_none(),
        "nothing is there to take"
    );
    server.restart().await.unwrap();

    assert!(once(&lock).await > first);
}

#[case(embedded)]
async fn a_watch_that_the_server_refuses_ends_it(world: World) {
    use lockkeeper::embedded::{Code, Match, Op};

    let (keeper, stranger) = (keeper(&world).await, world.raw().await);
    let faults = world.embedded().faults();
    let list = Match::op(Op::GetChildren).session(own_session(&keeper).await);
    faults.on(list).fail(Code::NoAuth);

    let lock = lingering(&keeper, "deaf");
    once(&lock).await;

    let gone = || async { children(&stranger, "deaf").await.is_empty() };
    eventually("nothing is kept", SOON, gone).await;
    assert_eq!(faults.armed_rules(), 0);
}
