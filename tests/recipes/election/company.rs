//! Observers under faults: other calls in the same session that give up, servers that lag or give
//! another session.

use lockkeeper::Observer;
use lockkeeper::embedded::{Match, Op};

use super::follow::{at_rest, next, next_leader, session_of};
use super::{candidate, elected};
use crate::recipes::cancel::cancelled_after;
use testbench::keeper;
use testbench::{World, case};

// They watch the same nodes in the same session, and each gives up at another moment.
#[case]
async fn observers_of_one_keeper_that_give_up_cost_the_others_nothing(world: World) {
    let (a, b) = (keeper(&world).await, keeper(&world).await);
    let election = a.election("many").unwrap();
    let followed = b.election("many").unwrap();
    let mut stays = followed.observe();
    for round in 0..World::times(24, 1000) {
        let leadership = election.campaign(round.to_string()).await.unwrap();
        let mut others: Vec<Observer> = (0..4).map(|_| followed.observe()).collect();
        let giving_up = async {
            for (number, other) in others.iter_mut().enumerate() {
                let polls = (round + 3 * number) % 14;
                // It may have seen the leader by then.
                let _given_up = cancelled_after(polls, other.changed()).await;
            }
            others.truncate(2);
        };
        let (leader, ()) = tokio::join!(next_leader(&mut stays), giving_up);
        assert_eq!(leader.token, leadership.token());
        leadership.proclaim("said").await.unwrap();
        assert_eq!(next(&mut stays).await.unwrap().value, "said");
        for other in &mut others {
            while other.borrow().is_none_or(|leader| leader.value != "said") {
                next(other).await;
            }
        }
        drop(others);

        leadership.resign().await.unwrap();
        assert_eq!(next(&mut stays).await, None, "{round}");
    }
}

#[case(embedded)]
async fn an_observer_goes_on_with_a_session_that_was_swapped(world: World) {
    let (a, b) = (keeper(&world).await, keeper(&world).await);
    let faults = world.embedded().faults();
    let election = a.election("swap").unwrap();
    let session = session_of(&b.election("whoami").unwrap()).await;
    let mut observer = b.election("swap").unwrap().observe();
    let leadership = election.campaign("0").await.unwrap();
    assert_eq!(next(&mut observer).await.unwrap().value, "0");
    at_rest(&mut observer).await;

    assert!(faults.replace_session_at_next_connection(session));
    assert!(faults.cut(session));
    leadership.proclaim("1").await.unwrap();

    assert_eq!(next(&mut observer).await.unwrap().value, "1");
    leadership.resign().await.unwrap();
    assert_eq!(next(&mut observer).await, None);
    // The next call that takes a ticket detects the session, and the observer follows to the next
    // one.
    let leadership = b.election("swap").unwrap().campaign("2").await.unwrap();
    assert_eq!(next(&mut observer).await.unwrap().value, "2");
    at_rest(&mut observer).await;
    leadership.resign().await.unwrap();
    assert_eq!(next(&mut observer).await, None);
}

#[case(embedded)]
async fn an_observer_behind_a_server_that_lags_shows_nobody_twice(world: World) {
    let (a, b) = (keeper(&world).await, keeper(&world).await);
    let (stranger, faults) = (world.raw().await, world.embedded().faults());
    let election = a.election("lag").unwrap();
    let session = session_of(&b.election("whoami").unwrap()).await;
    let mut observer = b.election("lag").unwrap().observe();
    let mut leadership = election.campaign("0").await.unwrap();
    assert_eq!(next(&mut observer).await.unwrap().value, "0");
    for round in 1..10 {
        let following = candidate(&stranger, &election, &round.to_string()).await;
        assert!(faults.lag_at_next_connection(session));
        leadership.resign().await.unwrap();
        leadership = elected(following).await;
        let asked = faults.on(Match::op(Op::MultiRead).session(session));
        let asked = (round % 2 == 0).then(|| asked.hold_reply());
        if let Some(asked) = &asked {
            // By then it has been told of the end, asks who comes next, and never gets the answer.
            // The lagging server refuses a client that has seen more than it has.
            tokio::select! {
                told = observer.changed() => panic!("{told:?}: {:?}", observer.borrow()),
                () = asked.reached() => {}
            }
        }
        assert!(faults.cut(session));

        let leader = next(&mut observer).await.expect("somebody leads");

        assert_eq!(leader.token, leadership.token(), "{round}");
        at_rest(&mut observer).await;
        drop(asked);
    }
    leadership.resign().await.unwrap();
    assert_eq!(next(&mut observer).await, None);
}
