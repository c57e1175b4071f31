//! Observers: each sees every leader once, in order, whatever happens to sessions, watches and
//! directories.

use std::time::Duration;

use lockkeeper::embedded::{Match, Op};
use lockkeeper::{Election, Leader, Observer};
use tokio::time::timeout;

use super::{SOON, candidate, elected, quiet_keeper};
use testbench::keeper;
use testbench::{World, case, eventually};

/// The observer's next item.
pub(super) async fn next(observer: &mut Observer) -> Option<Leader> {
    let changed = timeout(SOON, observer.changed()).await;
    changed.expect("something changes").unwrap();
    observer.borrow().cloned()
}

/// The observer's next leader. An item without a leader is skipped.
pub(super) async fn next_leader(observer: &mut Observer) -> Leader {
    loop {
        if let Some(leader) = next(observer).await {
            return leader;
        }
    }
}

/// Nothing more is to be seen.
pub(super) async fn at_rest(observer: &mut Observer) {
    let more = timeout(Duration::from_millis(100), observer.changed()).await;
    assert!(more.is_err(), "{more:?}: {:?}", observer.borrow());
}

#[case]
async fn an_observer_sees_each_leader_once_in_order(world: World) {
    let (a, b) = (keeper(&world).await, keeper(&world).await);
    let stranger = world.raw().await;
    let elections = [&a, &b].map(|keeper| keeper.election("seen").unwrap());
    let mut observer = b.election("seen").unwrap().observe();
    assert_eq!(observer.borrow(), None);

    let mut leadership = elections[0].campaign("0").await.unwrap();
    let mut tokens = Vec::new();
    for round in 1..10 {
        let leader = next(&mut observer).await.expect("somebody leads");
        assert_eq!(leader.value, (round - 1).to_string());
        assert_eq!(leader.token, leadership.token());
        tokens.push(leader.token);
        let following = candidate(&stranger, &elections[round % 2], &round.to_string()).await;
        leadership.resign().await.unwrap();
        leadership = elected(following).await;
    }
    assert_eq!(next(&mut observer).await.unwrap().value, "9");
    at_rest(&mut observer).await;
    leadership.resign().await.unwrap();

    assert_eq!(next(&mut observer).await, None);
    at_rest(&mut observer).await;
    assert!(tokens.is_sorted_by(|a, b| a < b), "{tokens:?}");
}

#[case]
async fn an_observer_sees_each_value_that_is_proclaimed(world: World) {
    let (a, b) = (keeper(&world).await, keeper(&world).await);
    let mut observer = b.election("value").unwrap().observe();
    let leadership = a.election("value").unwrap().campaign("a").await.unwrap();
    assert_eq!(next(&mut observer).await.unwrap().value, "a");

    for said in ["b", "c", "a", "d"] {
        leadership.proclaim(said).await.unwrap();
        let leader = next(&mut observer).await.unwrap();
        assert_eq!(
            (leader.value.as_str(), leader.token),
            (said, leadership.token())
        );
    }
    leadership.proclaim("d").await.unwrap();
    at_rest(&mut observer).await;

    leadership.resign().await.unwrap();
    assert_eq!(next(&mut observer).await, None);
}

#[case]
async fn an_observer_that_comes_late_sees_who_leads(world: World) {
    let (a, b) = (keeper(&world).await, keeper(&world).await);
    let leadership = a.election("late").unwrap().campaign("a").await.unwrap();
    leadership.proclaim("b").await.unwrap();
    // Another session's server may be behind; the observer has it catch up.
    let mut observer = b.election("late").unwrap().observe();

    let leader = next(&mut observer).await.unwrap();

    assert_eq!(
        (leader.value.as_str(), leader.token),
        ("b", leadership.token())
    );
    leadership.resign().await.unwrap();
}

#[case]
async fn an_observer_may_come_before_everybody_else(world: World) {
    let (a, b) = (keeper(&world).await, keeper(&world).await);
    let mut observer = b.election("early/bird").unwrap().observe();
    at_rest(&mut observer).await;

    let leadership = a
        .election("early/bird")
        .unwrap()
        .campaign("a")
        .await
        .unwrap();

    assert_eq!(next(&mut observer).await.unwrap().token, leadership.token());
    leadership.resign().await.unwrap();
}

#[case]
async fn an_observer_ends_with_its_keeper(world: World) {
    let keeper = keeper(&world).await;
    let mut observer = keeper.election("closed").unwrap().observe();
    let (changed, ()) = tokio::join!(timeout(SOON, observer.changed()), async {
        let seen = || async { keeper.locks().await.is_ok() };
        eventually("the keeper serves", SOON, seen).await;
        keeper.close().await;
    });

    for changed in [changed, timeout(SOON, observer.changed()).await] {
        let error = changed.expect("it is told").unwrap_err();
        assert!(error.is_closed(), "{error}");
    }
}

/// The sessions that watch something in the directory of an election: those of its observers.
pub(super) async fn session_of(election: &Election) -> i64 {
    let leadership = election.campaign("whoami").await.unwrap();
    let session = election.leader().await.unwrap().unwrap().session.into();
    leadership.resign().await.unwrap();
    session
}

#[case(embedded)]
async fn an_observer_goes_on_with_the_next_session(world: World) {
    let (a, b) = (keeper(&world).await, keeper(&world).await);
    let (stranger, faults) = (world.raw().await, world.embedded().faults());
    let election = a.election("over").unwrap();
    let session = session_of(&b.election("whoami").unwrap()).await;
    let mut observer = b.election("over").unwrap().observe();
    let first = election.campaign("0").await.unwrap();
    assert_eq!(next(&mut observer).await.unwrap().value, "0");
    let second = candidate(&stranger, &election, "1").await;

    faults.expire_session(session);
    let (changed, second) = tokio::join!(timeout(SOON, observer.changed()), async {
        let gone = || async { faults.sessions().iter().all(|other| other.id != session) };
        eventually("the session is gone", SOON, gone).await;
        first.resign().await.unwrap();
        elected(second).await
    });

    changed.expect("it is told").unwrap();
    assert_eq!(observer.borrow().unwrap().token, second.token());
    at_rest(&mut observer).await;
    second.resign().await.unwrap();
    assert_eq!(next(&mut observer).await, None);
}

#[case(embedded)]
async fn an_observer_survives_removed_directories(world: World) {
    let (a, b) = (keeper(&world).await, keeper(&world).await);
    let faults = world.embedded().faults();
    let election = a.election("reaped").unwrap();
    let mut observer = b.election("reaped").unwrap().observe();
    let mut tokens = Vec::new();
    for round in 0..6 {
        let leadership = election.campaign(round.to_string()).await.unwrap();
        let leader = next_leader(&mut observer).await;
        assert_eq!(leader.value, round.to_string());
        tokens.push(leader.token);
        if round % 2 == 0 {
            // All nodes are deleted while a leader holds, as after an operator's mistake.
            let directory = format!("{}/locks/reaped", world.chroot());
            let path = format!("{directory}/{}", leadership.node());
            faults.remove(&path).unwrap();
            faults.remove(&directory).unwrap();
            drop(leadership);
        } else {
            leadership.resign().await.unwrap();
            faults.reap_containers();
            faults.reap_containers();
        }
        if round % 3 == 0 {
            assert_eq!(next(&mut observer).await, None);
            at_rest(&mut observer).await;
        }
    }
    assert!(tokens.is_sorted_by(|a, b| a < b), "{tokens:?}");
}

#[case(embedded)]
async fn an_observer_is_not_deceived_by_another_programs_data(world: World) {
    let (a, b) = (keeper(&world).await, keeper(&world).await);
    let faults = world.embedded().faults();
    let mut observer = b.election("data").unwrap().observe();
    let leadership = a.election("data").unwrap().campaign("a").await.unwrap();
    assert_eq!(next(&mut observer).await.unwrap().value, "a");
    let directory = format!("{}/locks/data", world.chroot());

    let another = format!(
        "{{\"lockkeeper_proclaimed\":{{\"czxid\":{},\"value\":\"b\"}}}}",
        u64::from(leadership.token()) + 1
    );
    for data in [&b"10.0.0.7"[..], b"{}", another.as_bytes(), b""] {
        faults.set_data(&directory, data).unwrap();
        at_rest(&mut observer).await;
    }

    // Nor by writes to the ticket itself.
    let ticket = format!("{directory}/{}", leadership.node());
    faults.set_data(&ticket, b"__REVOKE__").unwrap();
    assert_eq!(next(&mut observer).await.unwrap().value, "__REVOKE__");
    leadership.proclaim("b").await.unwrap();
    assert_eq!(next(&mut observer).await.unwrap().value, "b");
    leadership.resign().await.unwrap();
    assert_eq!(next(&mut observer).await, None);
}

#[case(embedded)]
async fn a_leader_that_goes_before_it_is_watched_is_noticed(world: World) {
    let (a, b) = (keeper(&world).await, keeper(&world).await);
    let (stranger, faults) = (world.raw().await, world.embedded().faults());
    let election = a.election("gone").unwrap();
    let session = session_of(&b.election("whoami").unwrap()).await;
    let directory = format!("{}/locks/gone", world.chroot());
    // Each request that an observer sends before it waits: another one leads by the time that it is
    // served.
    for (op, path) in [
        (Op::Sync, directory.clone()),
        (Op::GetData, directory.clone()),
        (Op::MultiRead, directory.clone()),
        (Op::GetData, format!("{directory}/latch-")),
    ] {
        let first = election.campaign("first").await.unwrap();
        let second = candidate(&stranger, &election, "second").await;
        let mut observer = b.election("gone").unwrap().observe();
        let watched = Match::op(op).session(session).path_prefix(path);
        let hold = faults.on(watched).stop_before();
        let (changed, second) = tokio::join!(timeout(SOON, observer.changed()), async {
            timeout(SOON, hold.reached()).await.expect("it is asked");
            first.resign().await.unwrap();
            let second = elected(second).await;
            hold.release();
            second
        });

        changed.expect("it sees").unwrap();
        assert_eq!(observer.borrow().unwrap().token, second.token(), "{op:?}");
        at_rest(&mut observer).await;
        second.resign().await.unwrap();
        assert_eq!(next(&mut observer).await, None, "{op:?}");
    }
}

#[case(embedded)]
async fn a_value_that_comes_before_it_is_watched_is_noticed(world: World) {
    let (a, b) = (keeper(&world).await, keeper(&world).await);
    let faults = world.embedded().faults();
    let election = a.election("said").unwrap();
    let session = session_of(&b.election("whoami").unwrap()).await;
    let directory = format!("{}/locks/said", world.chroot());
    let leadership = election.campaign("at first").await.unwrap();
    let mut observer = b.election("said").unwrap().observe();
    assert_eq!(next(&mut observer).await.unwrap().value, "at first");
    for (round, op) in [Op::GetData, Op::MultiRead].into_iter().enumerate() {
        leadership.proclaim("between").await.unwrap();
        let hold = faults
            .on(Match::op(op).session(session).path_prefix(&directory))
            .stop_before();
        let said = format!("{round}");
        let (changed, ()) = tokio::join!(timeout(SOON, observer.changed()), async {
            timeout(SOON, hold.reached()).await.expect("it is asked");
            leadership.proclaim(said.as_str()).await.unwrap();
            hold.release();
        });

        changed.expect("it sees").unwrap();
        if observer.borrow().unwrap().value != said {
            next(&mut observer).await;
        }
        assert_eq!(observer.borrow().unwrap().value, said, "{op:?}");
        at_rest(&mut observer).await;
    }
    leadership.resign().await.unwrap();
}

#[case(embedded)]
async fn a_hand_over_costs_an_observer_few_requests_and_two_watches(world: World) {
    let (a, b) = (quiet_keeper(&world).await, quiet_keeper(&world).await);
    let stranger = world.raw().await;
    let election = a.election("cost").unwrap();
    let mut observer = b.election("cost").unwrap().observe();
    let mut leadership = election.campaign("0").await.unwrap();
    assert!(next(&mut observer).await.is_some());
    for crowd in [1, 20] {
        let mut waiting = Vec::new();
        for number in 0..crowd {
            waiting.push(candidate(&stranger, &election, &number.to_string()).await);
        }
        at_rest(&mut observer).await;
        let watches = || async { super::watches(&world) == crowd + 2 };
        eventually("one watch each, and two of the observer", SOON, watches).await;
        let before = world.embedded().counters();
        leadership.resign().await.unwrap();
        let handed_over = world.embedded().counters();
        let mut waiting = waiting.into_iter();
        leadership = elected(waiting.next().unwrap()).await;
        assert!(next(&mut observer).await.is_some());
        at_rest(&mut observer).await;
        let cost = world.embedded().counters().since(&before);
        // The release and the read of the next leader are not the observer's.
        let its_own = cost.requests() - cost.get(Op::Ping) - 2;
        assert!(its_own <= 6, "{its_own}: {cost:?}, {handed_over:?}");
        for rest in waiting {
            leadership.resign().await.unwrap();
            leadership = elected(rest).await;
        }
        while timeout(Duration::from_millis(100), observer.changed())
            .await
            .is_ok()
        {}
    }
    leadership.resign().await.unwrap();
}

#[case(embedded)]
async fn an_observer_watches_children_only_while_nobody_stands(world: World) {
    let (a, b) = (quiet_keeper(&world).await, quiet_keeper(&world).await);
    let stranger = world.raw().await;
    let election = a.election("child").unwrap();
    let mut observer = b.election("child").unwrap().observe();
    let leadership = election.campaign("0").await.unwrap();
    assert!(next(&mut observer).await.is_some());
    at_rest(&mut observer).await;
    let before = world.embedded().counters();

    // Tickets that come and go behind the leader wake no observer.
    let (_, came) = tokio::join!(at_rest(&mut observer), async {
        let mut crowd = Vec::new();
        for number in 0..5 {
            crowd.push(candidate(&stranger, &election, &number.to_string()).await);
        }
        crowd
    });

    let cost = world.embedded().counters().since(&before);
    assert_eq!(cost.events, 0, "{cost:?}");
    for campaign in came {
        campaign.abort();
    }
    leadership.resign().await.unwrap();
}
