//! Elections: one leads at a time, hands over soon, publishes a value, and is followed by
//! observers.

pub mod company;
pub mod follow;
pub mod lead;
pub mod races;

use std::time::{Duration, Instant};

use lockkeeper::embedded::{Code, Match, Op};
use lockkeeper::{Election, Error, Keeper, Leadership, LockKind, Result};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use testbench::stall::Stall;
use testbench::{Make, World, case, eventually};
use testbench::{children, keeper};

pub(crate) const SOON: Duration = Duration::from_secs(3);

/// Lets a candidate stand, and returns when its ticket is in the queue.
async fn candidate(
    stranger: &testbench::Stranger,
    election: &Election,
    value: &str,
) -> JoinHandle<Result<Leadership>> {
    let name = election.name().to_string();
    let before = children(stranger, &name).await.len();
    let (election, value) = (election.clone(), value.to_owned());
    let campaign = tokio::spawn(async move { election.campaign(value).await });
    let stands = || async { children(stranger, &name).await.len() > before };
    eventually("the candidate stands", SOON, stands).await;
    campaign
}

async fn elected(campaign: JoinHandle<Result<Leadership>>) -> Leadership {
    let elected = timeout(SOON, campaign).await.expect("it is elected");
    elected.unwrap().unwrap()
}

/// The leader's published value.
async fn value(election: &Election) -> Option<String> {
    election.leader().await.unwrap().map(|leader| leader.value)
}

#[case]
async fn a_leader_leads_and_the_next_waits_for_it(world: World) {
    let (a, b) = (keeper(&world).await, keeper(&world).await);
    let stranger = world.raw().await;
    let [first, second] = [&a, &b].map(|keeper| keeper.election("one").unwrap());
    let leadership = first.campaign("a").await.unwrap();
    let next = candidate(&stranger, &second, "b").await;
    assert!(leadership.is_held() && !next.is_finished());
    assert_eq!(leadership.node(), "latch-0000000000");

    let token = leadership.token();
    leadership.resign().await.unwrap();

    let next = elected(next).await;
    assert!(next.token() > token);
    assert_eq!(value(&first).await.as_deref(), Some("b"));
    drop(next);
    let none = || async { value(&first).await.is_none() };
    eventually("a dropped leadership resigns", SOON, none).await;
}

#[case]
async fn candidates_lead_in_the_order_of_their_coming(world: World) {
    let (a, b) = (keeper(&world).await, keeper(&world).await);
    let stranger = world.raw().await;
    let elections = [&a, &b].map(|keeper| keeper.election("order").unwrap());
    let mut campaigns = Vec::new();
    for number in 0..6 {
        let value = number.to_string();
        campaigns.push(candidate(&stranger, &elections[number % 2], &value).await);
    }

    let mut tokens = Vec::new();
    for (number, campaign) in campaigns.into_iter().enumerate() {
        let leadership = elected(campaign).await;
        assert_eq!(value(&elections[0]).await, Some(number.to_string()));
        tokens.push(leadership.token());
        leadership.resign().await.unwrap();
    }

    assert!(tokens.is_sorted_by(|a, b| a < b), "{tokens:?}");
}

#[case]
async fn try_campaign_says_not_now_while_somebody_leads(world: World) {
    let (a, b) = (keeper(&world).await, keeper(&world).await);
    let stranger = world.raw().await;
    let leadership = a.election("try").unwrap().campaign("a").await.unwrap();

    let tried = b.election("try").unwrap().try_campaign("b").await.unwrap();

    assert!(tried.is_none());
    assert_eq!(children(&stranger, "try").await, [leadership.node()]);
    leadership.resign().await.unwrap();
    stranger.catch_up().await.unwrap();
    let freed = || async { b.election("try").unwrap().try_campaign("b").await.unwrap() };
    let leadership = eventually("it is free", SOON, freed).await;
    // The server of the other keeper may not know yet.
    let election = a.election("try").unwrap();
    let leads = || async { value(&election).await.as_deref() == Some("b") };
    eventually("the other keeper sees it lead", SOON, leads).await;
    leadership.resign().await.unwrap();
}

#[case]
async fn a_timed_campaign_ends_in_time_and_leaves_nothing(world: World) {
    let keeper = keeper(&world).await;
    let stranger = world.raw().await;
    let election = keeper.election("timed").unwrap();
    let leadership = election.campaign("a").await.unwrap();
    let (began, limit) = (Instant::now(), Duration::from_millis(200));

    let error = election.campaign_timeout("b", limit).await.unwrap_err();

    assert!(error.is_timeout(), "{error}");
    // A busy machine may be late; nobody waits for a session timeout.
    assert!(began.elapsed() < limit + Duration::from_secs(5));
    let alone = || async { children(&stranger, "timed").await == [leadership.node()] };
    eventually("the ticket is gone", SOON, alone).await;
}

#[case]
async fn leader_and_participants_tell_who_stands_and_with_what(world: World) {
    let keeper = keeper(&world).await;
    let stranger = world.raw().await;
    let election = keeper.election("told").unwrap();
    let labelled = election.clone().with_label("the first");
    let leadership = labelled.campaign("a").await.unwrap();
    let next = candidate(&stranger, &election, "b").await;

    let leader = election.leader().await.unwrap().expect("somebody leads");
    let participants = election.participants().await.unwrap();

    assert_eq!(leader.value, "a");
    assert_eq!(leader.token, leadership.token());
    assert_eq!(leader.node, leadership.node());
    assert_eq!(leader.label.as_deref(), Some("the first"));
    assert_eq!(leader.pid, Some(std::process::id()));
    assert!(leader.host.is_some());
    let stand = participants.iter().map(|entry| {
        let value = entry.value.as_deref();
        (value, entry.is_holder, entry.kind.clone())
    });
    let stand: Vec<_> = stand.collect();
    assert_eq!(
        stand,
        [
            (Some("a"), true, LockKind::Lead),
            (Some("b"), false, LockKind::Lead)
        ]
    );
    assert_eq!(participants[0].token, leader.token);
    assert_eq!(participants[0].session, leader.session);
    leadership.resign().await.unwrap();
    elected(next).await.resign().await.unwrap();
}

#[case]
async fn nobody_leads_where_nobody_stands(world: World) {
    let keeper = keeper(&world).await;
    let election = keeper.election("empty").unwrap();

    assert_eq!(election.leader().await.unwrap(), None);
    assert!(election.participants().await.unwrap().is_empty());

    let leadership = election.campaign("a").await.unwrap();
    leadership.proclaim("b").await.unwrap();
    leadership.resign().await.unwrap();
    assert_eq!(election.leader().await.unwrap(), None);
}

#[case]
async fn a_value_that_is_too_long_is_refused_before_any_io(world: World) {
    let keeper = keeper(&world).await;
    let stranger = world.raw().await;
    let election = keeper.election("long").unwrap();
    let long = "x".repeat(64 * 1024 + 1);

    let error = election.campaign(long.as_str()).await.unwrap_err();
    assert!(error.is_invalid(), "{error}");
    assert!(stranger.check_stat("/locks").await.unwrap().is_none());

    // The longest is good, also when each of its characters takes six in JSON.
    let leadership = election.campaign("\u{1}".repeat(64 * 1024)).await.unwrap();
    let error = leadership.proclaim(long).await.unwrap_err();
    assert!(error.is_invalid() && leadership.is_held(), "{error}");
    leadership
        .proclaim("\u{2}".repeat(64 * 1024))
        .await
        .unwrap();
    leadership.resign().await.unwrap();
}

#[case(alone)]
async fn a_resigning_leader_is_followed_within_50_ms(world: World) {
    let (a, b) = (keeper(&world).await, keeper(&world).await);
    let stranger = world.raw().await;
    let elections = [&a, &b].map(|keeper| keeper.election("swift").unwrap());
    let mut leadership = elections[0].campaign("0").await.unwrap();
    let (mut took, stall) = (Vec::new(), Stall::watch());
    for round in 1..10 {
        let next = candidate(&stranger, &elections[round % 2], "next").await;
        // Long enough for it to watch; a slow one would only be measured as slower.
        tokio::task::yield_now().await;
        let began = Instant::now();
        let resigning = tokio::spawn(leadership.resign());
        leadership = elected(next).await;
        took.push(began.elapsed());
        resigning.await.unwrap().unwrap();
    }

    took.sort();
    let (median, stall) = (took[took.len() / 2], stall.longest());
    assert!(
        median < Duration::from_millis(50) + 2 * stall,
        "{took:?}, the longest stall {stall:?}"
    );
}

#[case]
async fn a_proclaimed_value_lasts_as_long_as_its_leader(world: World) {
    let (a, b) = (keeper(&world).await, keeper(&world).await);
    let stranger = world.raw().await;
    let [first, second] = [&a, &b].map(|keeper| keeper.election("said").unwrap());
    let leadership = first.campaign("a").await.unwrap();
    let next = candidate(&stranger, &second, "b").await;
    for said in ["a1", "a2", "a2", ""] {
        leadership.proclaim(said).await.unwrap();

        let seen = || async { value(&first).await.as_deref() == Some(said) };
        eventually("the value is published", SOON, seen).await;
    }
    assert_eq!(
        first.participants().await.unwrap()[0].value.as_deref(),
        Some("a"),
        "the ticket is never rewritten"
    );
    // The value of a leader whose ticket is gone no longer counts, even if it left no mark.
    let path = format!("/locks/said/{}", leadership.node());
    leadership.proclaim("a3").await.unwrap();
    stranger.delete(&path, None).await.unwrap();

    let next = elected(next).await;
    assert_eq!(value(&second).await.as_deref(), Some("b"));
    let error = leadership.resign().await.unwrap_err();
    assert!(error.is_lost(), "{error}");
    next.resign().await.unwrap();
}

#[case]
async fn another_programs_data_is_not_written_over(world: World) {
    let keeper = keeper(&world).await;
    let stranger = world.raw().await;
    let election = keeper.election("foreign").unwrap();
    let leadership = election.campaign("a").await.unwrap();
    leadership.proclaim("b").await.unwrap();
    stranger
        .set_data("/locks/foreign", b"10.0.0.7", None)
        .await
        .unwrap();

    let error = leadership.proclaim("c").await.unwrap_err();

    assert!(matches!(error, Error::Refused { .. }), "{error}");
    assert!(error.to_string().contains("another program"), "{error}");
    assert!(leadership.is_held());
    assert_eq!(value(&election).await.as_deref(), Some("a"));
    leadership.resign().await.unwrap();
    let again = election.campaign("d").await.unwrap();
    let error = again.proclaim("e").await.unwrap_err();
    assert!(matches!(error, Error::Refused { .. }), "{error}");
    again.resign().await.unwrap();
    stranger.catch_up().await.unwrap();
    let (data, _) = stranger.get_data("/locks/foreign").await.unwrap();
    assert_eq!(data, b"10.0.0.7");
}

#[case]
async fn curators_latch_takes_part_with_its_id(world: World) {
    let keeper = keeper(&world).await;
    let stranger = world.raw().await;
    let election = keeper.election("mixed").unwrap();
    let leadership = election.campaign("ours").await.unwrap();
    let ephemeral = Make::EphemeralSequential;
    let latch = "/locks/mixed/_c_9b4c3d6e-0a59-4b0c-8ec5-3d5ad2a2c9a1-latch-";
    stranger
        .create(latch, b"curator-7", &ephemeral)
        .await
        .unwrap();
    let behind = candidate(&stranger, &election, "behind").await;

    leadership.resign().await.unwrap();

    let theirs = || async { value(&election).await.as_deref() == Some("curator-7") };
    eventually("the latch leads", SOON, theirs).await;
    assert!(!behind.is_finished());
    let node = election.leader().await.unwrap().unwrap().node;
    stranger
        .delete(&format!("/locks/mixed/{node}"), None)
        .await
        .unwrap();
    elected(behind).await.resign().await.unwrap();
}

#[case]
async fn curators_latch_may_have_json_for_its_id(world: World) {
    let keeper = keeper(&world).await;
    let stranger = world.raw().await;
    let election = keeper.election("json").unwrap();
    let leadership = election.campaign("ours").await.unwrap();
    let ephemeral = Make::EphemeralSequential;
    let latch = "/locks/json/_c_9b4c3d6e-0a59-4b0c-8ec5-3d5ad2a2c9a1-latch-";
    let id = r#"{"host":"10.0.0.7","port":80}"#;
    let (_, seq) = stranger
        .create(latch, id.as_bytes(), &ephemeral)
        .await
        .unwrap();

    leadership.resign().await.unwrap();

    let leads = || async { election.leader().await.unwrap() };
    let leader = eventually("the latch leads", SOON, leads).await;
    assert_eq!(leader.value, id);
    assert_eq!((leader.host, leader.pid), (None, None));
    let participants = election.participants().await.unwrap();
    let [theirs] = &participants[..] else {
        panic!("{participants:?}");
    };
    assert_eq!(theirs.value.as_deref(), Some(id), "as the leader says");
    assert_eq!((&theirs.host, theirs.pid), (&None, None));
    stranger
        .delete(&format!("{latch}{seq}"), None)
        .await
        .unwrap();
}

/// A keeper that sends no beat for ten minutes.
async fn quiet_keeper(world: &World) -> Keeper {
    let builder = Keeper::builder(world.connect_string());
    let builder = builder.session_timeout(Duration::from_secs(3600));
    builder.connect().await.unwrap()
}

fn watches(world: &World) -> u64 {
    world.embedded().counters().watches
}

/// Lets a candidate stand, and returns when it watches.
async fn watching(world: &World, election: &Election) -> JoinHandle<Result<Leadership>> {
    let before = watches(world);
    let election = election.clone();
    let campaign = tokio::spawn(async move { election.campaign("next").await });
    let watching = || async { watches(world) > before };
    eventually("the candidate watches", SOON, watching).await;
    campaign
}

#[case(embedded)]
async fn proclaim_costs_one_request_and_wakes_no_candidate(world: World) {
    let (a, b) = (quiet_keeper(&world).await, quiet_keeper(&world).await);
    let leadership = a.election("cost").unwrap().campaign("a").await.unwrap();
    let next = watching(&world, &b.election("cost").unwrap()).await;
    let before = world.embedded().counters();

    for said in ["b", "c", "d"] {
        leadership.proclaim(said).await.unwrap();
    }

    let cost = world.embedded().counters().since(&before);
    assert_eq!((cost.get(Op::Multi), cost.events), (3, 0), "{cost:?}");
    assert_eq!(cost.requests() - cost.get(Op::Ping), 3, "{cost:?}");
    leadership.resign().await.unwrap();
    elected(next).await.resign().await.unwrap();
}

#[case(embedded)]
async fn a_hand_over_after_a_proclamation_costs_one_read(world: World) {
    let (a, b) = (quiet_keeper(&world).await, quiet_keeper(&world).await);
    let leadership = a.election("mark").unwrap().campaign("a").await.unwrap();
    // Two wait, so that only the mark, and not the number of tickets, lets the next one in.
    let next = watching(&world, &b.election("mark").unwrap()).await;
    let last = watching(&world, &b.election("mark").unwrap()).await;
    leadership.proclaim("b").await.unwrap();
    leadership.proclaim("c").await.unwrap();
    let before = world.embedded().counters();

    leadership.resign().await.unwrap();
    let next = elected(next).await;

    let cost = world.embedded().counters().since(&before);
    assert_eq!(
        (cost.get(Op::Multi), cost.get(Op::MultiRead), cost.events),
        (1, 1, 1),
        "{cost:?}"
    );
    assert_eq!(cost.requests() - cost.get(Op::Ping), 2, "{cost:?}");
    next.resign().await.unwrap();
    elected(last).await.resign().await.unwrap();
}

#[case(embedded)]
async fn a_proclamation_follows_foreign_writes_to_the_directory(world: World) {
    let (a, b) = (quiet_keeper(&world).await, quiet_keeper(&world).await);
    let (election, faults) = (a.election("moved").unwrap(), world.embedded().faults());
    let directory = format!("{}/locks/moved", world.chroot());
    let leadership = election.campaign("a").await.unwrap();
    let next = watching(&world, &b.election("moved").unwrap()).await;
    let last = watching(&world, &b.election("moved").unwrap()).await;
    // Another client has emptied it: another version, and no other program's data.
    faults.set_data(&directory, b"").unwrap();

    leadership.proclaim("b").await.unwrap();

    assert_eq!(value(&election).await.as_deref(), Some("b"));
    let before = world.embedded().counters();
    leadership.resign().await.unwrap();
    let next = elected(next).await;
    let cost = world.embedded().counters().since(&before);
    assert_eq!(cost.get(Op::MultiRead), 1, "the mark is left: {cost:?}");
    next.resign().await.unwrap();
    elected(last).await.resign().await.unwrap();
}

#[case(embedded)]
async fn a_proclamation_whose_reply_was_lost_is_settled(world: World) {
    let (a, b) = (keeper(&world).await, keeper(&world).await);
    let (election, faults) = (a.election("lost").unwrap(), world.embedded().faults());
    let directory = format!("{}/locks/lost", world.chroot());
    let leadership = election.campaign("a").await.unwrap();
    let next = watching(&world, &b.election("lost").unwrap()).await;
    let last = watching(&world, &b.election("lost").unwrap()).await;
    let said = Match::op(Op::Multi).path(directory);

    // It was done.
    faults.on(said.clone()).drop_reply();
    timeout(SOON, leadership.proclaim("b"))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(value(&election).await.as_deref(), Some("b"));
    // It was not done.
    faults.on(said.clone()).fail(Code::SessionMoved);
    timeout(SOON, leadership.proclaim("c"))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(value(&election).await.as_deref(), Some("c"));
    // The candidate that gave up knows no outcome, and the next one finds it out.
    let hold = faults.on(said).hold_reply();
    tokio::select! {
        biased;
        said = leadership.proclaim("d") => panic!("it has no reply: {said:?}"),
        () = hold.reached() => {}
    }
    hold.release();
    timeout(SOON, leadership.proclaim("e"))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(value(&election).await.as_deref(), Some("e"));

    let before = world.embedded().counters();
    leadership.resign().await.unwrap();
    let next = elected(next).await;
    let cost = world.embedded().counters().since(&before);
    assert_eq!(cost.get(Op::MultiRead), 1, "the mark is left: {cost:?}");
    next.resign().await.unwrap();
    elected(last).await.resign().await.unwrap();
}

#[case(embedded)]
async fn a_proclamation_that_a_busy_server_refuses_is_repeated(world: World) {
    let keeper = keeper(&world).await;
    let (election, faults) = (keeper.election("busy").unwrap(), world.embedded().faults());
    let leadership = election.campaign("a").await.unwrap();
    let directory = format!("{}/locks/busy", world.chroot());
    faults
        .on(Match::op(Op::Multi).path(directory))
        .times(3)
        .fail(Code::Throttled);

    timeout(SOON, leadership.proclaim("b"))
        .await
        .unwrap()
        .unwrap();

    assert_eq!(value(&election).await.as_deref(), Some("b"));
    assert_eq!(faults.armed_rules(), 0);
}

#[case(embedded)]
async fn a_leader_whose_ticket_was_broken_cannot_proclaim(world: World) {
    let (a, b) = (quiet_keeper(&world).await, quiet_keeper(&world).await);
    let (election, faults) = (a.election("broken").unwrap(), world.embedded().faults());
    let leadership = election.campaign("a").await.unwrap();
    let next = watching(&world, &b.election("broken").unwrap()).await;
    let path = format!("{}/locks/broken/{}", world.chroot(), leadership.node());
    faults.remove(&path).unwrap();

    let error = leadership.proclaim("late").await.unwrap_err();

    assert!(error.is_lost() && !leadership.is_held(), "{error}");
    let next = elected(next).await;
    assert_eq!(value(&election).await.as_deref(), Some("next"));
    next.proclaim("mine").await.unwrap();
    next.resign().await.unwrap();
}

#[case(embedded)]
async fn a_leader_whose_session_is_over_cannot_proclaim(world: World) {
    let (a, b) = (keeper(&world).await, keeper(&world).await);
    let (election, faults) = (a.election("expired").unwrap(), world.embedded().faults());
    let leadership = election.campaign("a").await.unwrap();
    let next = watching(&world, &b.election("expired").unwrap()).await;
    let session = i64::from(election.leader().await.unwrap().unwrap().session);
    faults.expire_session(session);

    let error = timeout(SOON, leadership.proclaim("late"))
        .await
        .unwrap()
        .unwrap_err();

    assert!(error.is_lost() && !leadership.is_held(), "{error}");
    assert_eq!(elected(next).await.name().as_str(), "expired");
}
