//! Races of elections: leaders that resign while their beats are under way, and a crowd that comes,
//! goes and dies at random.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use lockkeeper::embedded::{Code, Match, Op};
use lockkeeper::{Keeper, Leadership, Token};
use tokio::time::timeout;

use super::{SOON, candidate, elected};
use crate::recipes::cancel::cancelled_after;
use testbench::dice::Dice;
use testbench::{World, case, eventually, plan};
use testbench::{children, keeper};

/// A keeper whose beats come every 150 ms while it leads.
async fn lively_keeper(world: &World) -> Keeper {
    let builder = Keeper::builder(world.connect_string());
    let builder = builder.session_timeout(Duration::from_millis(1500));
    builder.connect().await.unwrap()
}

/// Exactly one ticket is there, and it is that leader's, within a second.
async fn alone(stranger: &testbench::Stranger, leader: &Leadership) {
    let name = leader.name().as_str();
    let alone = || async { children(stranger, name).await == [leader.node()] };
    eventually("exactly one node", Duration::from_secs(1), alone).await;
}

#[case(embedded)]
async fn row_50_a_resignation_races_with_the_beats(world: World) {
    let (a, b) = (lively_keeper(&world).await, keeper(&world).await);
    let (stranger, faults) = (world.raw().await, world.embedded().faults());
    let [first, second] = [&a, &b].map(|keeper| keeper.election("beats").unwrap());
    for round in 0..World::times(20, 2000) {
        let leadership = first.campaign("a").await.unwrap();
        let next = candidate(&stranger, &second, "b").await;
        let ticket = format!("{}/locks/beats/{}", world.chroot(), leadership.node());
        // The first request that names the ticket from now on is a beat: it is under way when we
        // resign.
        let beat = faults.on(Match::op(Op::Multi).path(ticket));
        let hold = if round % 2 == 0 {
            beat.hold_reply()
        } else {
            beat.stop_before()
        };
        timeout(SOON, hold.reached()).await.expect("a beat comes");
        let resigning = tokio::spawn(leadership.resign());
        tokio::task::yield_now().await;
        let began = Instant::now();
        hold.release();

        let next = elected(next).await;
        assert!(began.elapsed() < Duration::from_secs(1));
        resigning.await.unwrap().expect("it was no loss");
        alone(&stranger, &next).await;
        next.resign().await.unwrap();
        assert!(children(&stranger, "beats").await.is_empty());
    }
}

#[case(embedded)]
async fn row_50_a_resignation_whose_reply_is_lost_is_no_loss(world: World) {
    let (a, b) = (lively_keeper(&world).await, keeper(&world).await);
    let (stranger, faults) = (world.raw().await, world.embedded().faults());
    let [first, second] = [&a, &b].map(|keeper| keeper.election("reply").unwrap());
    for _ in 0..World::times(3, 100) {
        let leadership = first.campaign("a").await.unwrap();
        let next = candidate(&stranger, &second, "b").await;
        let directory = format!("{}/locks/reply", world.chroot());
        // Its beats name the ticket only, and several of them find it gone before the resignation
        // is settled.
        faults.on(Match::op(Op::Multi).path(directory)).drop_reply();
        let ticket = format!("{}/locks/reply/{}", world.chroot(), leadership.node());
        let look = Match::op(Op::MultiRead).path(ticket);
        // The pauses between the looks add up to 630 ms, which is four beats.
        faults.on(look).times(7).fail(Code::Throttled);

        let resigned = timeout(SOON, leadership.resign()).await.unwrap();

        resigned.expect("it was no loss");
        let next = elected(next).await;
        alone(&stranger, &next).await;
        next.resign().await.unwrap();
    }
}

/// From when until when a candidate surely led: from the answer of its campaign to the last
/// question that was answered with yes.
#[derive(Debug, Clone, Copy)]
struct Reign {
    token: Token,
    from: Instant,
    until: Instant,
}

#[derive(Debug, Default)]
struct Chronicle {
    reigns: Vec<Reign>,
    campaigns: usize,
    expiries: usize,
}

const CANDIDATES: u64 = 8;

#[case(within = 120)]
async fn a_crowd_of_candidates_never_has_two_leaders(world: World) {
    let seed = plan::seed();
    println!("a crowd of candidates: LOCKKEEPER_SEED={seed}");
    let campaigns = World::times(2000, 20_000);
    let chronicle = Arc::new(Mutex::new(Chronicle::default()));
    let mut crowd = Vec::new();
    for number in 0..CANDIDATES {
        let (world, chronicle) = (world.clone(), Arc::clone(&chronicle));
        let dice = Dice(seed.wrapping_mul(CANDIDATES).wrapping_add(number));
        crowd.push(tokio::spawn(stand(world, chronicle, dice, campaigns)));
    }
    let watcher = keeper(&world).await;
    let mut observer = watcher.election("crowd").unwrap().observe();
    let following = tokio::spawn(async move {
        let mut seen: Vec<Token> = Vec::new();
        while timeout(Duration::from_secs(5), observer.changed())
            .await
            .is_ok_and(|changed| changed.is_ok())
        {
            let leader = observer.borrow();
            if leader.is_some_and(|leader| leader.value == "the end") {
                break;
            }
            seen.extend(leader.map(|leader| leader.token));
        }
        seen
    });

    for candidate in crowd {
        candidate.await.unwrap();
    }
    let keeper = keeper(&world).await;
    let last = keeper.election("crowd").unwrap();
    let last = timeout(SOON, last.campaign("the end"))
        .await
        .unwrap()
        .unwrap();
    let seen = timeout(SOON, following).await.unwrap().unwrap();

    let Chronicle {
        mut reigns,
        campaigns: made,
        expiries,
    } = std::mem::take(&mut *chronicle.lock().unwrap());
    assert!(
        made >= campaigns && reigns.len() > campaigns / 4,
        "{made} {}",
        reigns.len()
    );
    assert!(expiries > 5, "{expiries}");
    reigns.sort_by_key(|reign| reign.from);
    for pair in reigns.windows(2) {
        assert!(pair[0].token < pair[1].token, "tokens grow: {pair:?}");
        assert!(pair[0].until <= pair[1].from, "two lead: {pair:?}");
    }
    assert!(seen.is_sorted(), "an observer sees them in order: {seen:?}");
    assert!(seen.len() > 100, "{}", seen.len());
    alone(&world.raw().await, &last).await;
}

/// One of the crowd: stands, gives up, leads, says something, resigns, forgets to, or loses its
/// session.
async fn stand(world: World, chronicle: Arc<Mutex<Chronicle>>, mut dice: Dice, campaigns: usize) {
    let mut own = keeper(&world).await;
    let mut election = own.election("crowd").unwrap();
    loop {
        {
            let mut chronicle = chronicle.lock().unwrap();
            if chronicle.campaigns >= campaigns {
                break;
            }
            chronicle.campaigns += 1;
        }
        let patience = Duration::from_millis(dice.below(40));
        let elected = match dice.below(8) {
            0 => {
                let polls = dice.below(12) as usize;
                let standing = cancelled_after(polls, election.campaign("impatient"));
                timeout(patience, standing).await.unwrap_or_default()
            }
            1 => match election.try_campaign("trying").await {
                Ok(elected) => elected.map(Ok),
                Err(error) => Some(Err(error)),
            },
            2 => Some(election.campaign_timeout("timed", patience).await),
            _ => Some(election.campaign("patient").await),
        };
        let leadership = match elected {
            None => continue,
            Some(Ok(leadership)) => leadership,
            Some(Err(error)) if error.is_timeout() || error.is_session_over() => continue,
            Some(Err(error)) => panic!("{error}"),
        };
        let (token, from) = (leadership.token(), Instant::now());
        let mut until = None;
        for _ in 0..dice.below(3) {
            let asked = Instant::now();
            match leadership.check().await {
                Ok(()) => until = Some(asked),
                Err(error) => assert!(error.is_lost(), "{error}"),
            }
            if dice.one_in(3) {
                let said = timeout(patience, leadership.proclaim("said")).await;
                let lost = said.is_ok_and(|said| said.is_err_and(|error| !error.is_lost()));
                assert!(!lost, "a proclamation fails by a loss only");
            }
        }
        if let Some(until) = until {
            let reign = Reign { token, from, until };
            chronicle.lock().unwrap().reigns.push(reign);
        }
        match dice.below(40) {
            0 => {
                let leader = election.leader().await;
                if let Ok(Some(leader)) = leader.map(|it| it.filter(|it| it.token == token)) {
                    chronicle.lock().unwrap().expiries += 1;
                    if world.is_embedded() {
                        world.embedded().faults().expire_session(leader.session);
                    } else {
                        // No real server ends a session when it is told to; the keeper does.
                        own.close().await;
                        own = keeper(&world).await;
                        election = own.election("crowd").unwrap();
                    }
                }
            }
            1..=10 => drop(leadership),
            11..=15 => drop(cancelled_after(dice.below(4) as usize, leadership.resign()).await),
            _ => match leadership.resign().await {
                Ok(()) => {}
                Err(error) => assert!(error.is_lost(), "{error}"),
            },
        }
    }
    own.close().await;
}
