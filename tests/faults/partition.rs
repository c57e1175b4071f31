//! A holder behind a cut through the ensemble: its server is there and answers, and is no longer a
//! part of it.
//!
//! On real servers only; the ensemble is the case's own.

use std::time::Duration;

use futures_util::future::join_all;
use lockkeeper::{Guard, Keeper};
use tokio::time::{Instant, sleep, timeout};
use zookeeper_client::{Client, EventType};

use super::{SOON, T, granted, keeper, released, released_well, watched};
use testbench::checker::{Bounds, assert_clean, stays_alive, violations};
use testbench::client::Fleet;
use testbench::ensemble::{Cut, Ensemble};
use testbench::events::{Event, Nanos, Outcome, What, now};
use testbench::stall::Stall;
use testbench::store::Fence;
use testbench::stranger::catch_up;
use testbench::{World, case, eventually};

/// Which member the holder is connected to, and cut off with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Behind {
    Leader,
    Follower,
}

#[case(real, within = 180)]
async fn a_holder_on_a_leader_without_a_quorum_knows_in_time(_world: World) {
    // A deposed leader answers for as long as it may: two seconds, twice the session timeout.
    partitions(Behind::Leader, Cut::OthersSeeIt).await;
}

#[case(real, within = 180)]
async fn a_holder_on_a_follower_without_a_leader_knows_in_time(_world: World) {
    partitions(Behind::Follower, Cut::Silent).await;
}

async fn partitions(behind: Behind, cut: Cut) {
    let ensemble = Ensemble::start(10).await;
    for round in 0..World::times(1, 20) {
        one_partition(&ensemble, behind, cut, round).await;
    }
}

async fn one_partition(ensemble: &Ensemble, behind: Behind, cut: Cut, round: usize) {
    let lock = format!("partition-{round}");
    let stall = Stall::watch();
    let leader = ensemble.leader().await;
    let member = match behind {
        Behind::Leader => leader,
        Behind::Follower => (leader + 1) % ensemble.count(),
    };
    let mut others = ensemble.addresses();
    let its = others.remove(member).to_string();
    let others: Vec<String> = others.iter().map(ToString::to_string).collect();
    let fleet = Fleet::new(ensemble.connect_string(), &lock, T, Fence::Refuses).await;
    let (log_a, log_b) = (fleet.log().of("a"), fleet.log().of("b"));
    let (a, b) = (keeper(&its).await, keeper(&others.join(",")).await);
    let guard = granted(&a, &lock, &log_a).await;

    fleet.log().note(What::Fault {
        kind: format!("{behind:?} {cut:?}"),
    });
    ensemble.cut_off(member, cut);
    let began = Instant::now();
    let watched = watched(guard, &log_a);
    // Their side has to find a leader first, which may take longer than its session lasts.
    let next = timeout(Duration::from_secs(90), granted(&b, &lock, &log_b))
        .await
        .expect("the side with the quorum grants the lock");
    let let_in = began.elapsed();
    let guard = watched.await.unwrap();

    assert_eq!(released(guard, &log_a).await, Outcome::Lost);
    ensemble.join(member).await;
    ensemble.serves().await;
    released_well(next, &log_b, &stall).await;
    let history = fleet.history();
    let lost = history
        .events
        .iter()
        .find(|event| matches!(event.what, What::Lost { .. }));
    let ahead = history
        .events
        .iter()
        .find(|event: &&Event| event.client == "b" && matches!(event.what, What::Granted { .. }))
        .map(|event| event.t_ns)
        .zip(lost.map(|event| event.t_ns))
        .map(|(granted, lost)| Duration::from_nanos(granted.saturating_sub(lost)));
    println!(
        "{behind:?}: the other side granted {let_in:?} after the cut, {ahead:?} after the loss"
    );
    assert_clean(&violations(&history));
    let bounds = Bounds {
        notice: Duration::from_millis(50) + stall.longest(),
        ..Bounds::within(Duration::from_secs(60))
    };
    assert_clean(&stays_alive(&history, &bounds));
    a.close().await;
    b.close().await;
}

/// The tick of the ensemble.
const TICK: Duration = Duration::from_millis(200);

#[case(real, within = 180)]
async fn no_guard_of_a_declared_tick_outlives_its_session_at_a_member_that_is_cut_off(
    _world: World,
) {
    let ensemble = Ensemble::start(10).await;
    for round in 0..World::times(1, 20) {
        for (behind, cut) in [
            (Behind::Follower, Cut::Silent),
            (Behind::Leader, Cut::OthersSeeIt),
        ] {
            // A machine that stalls takes leases before the cut. The case's limit is the limit of
            // this.
            for attempt in 0.. {
                let name = format!("cut-{behind:?}-{round}-{attempt}");
                if guards_behind(&ensemble, behind, cut, &name).await {
                    break;
                }
            }
        }
    }
}

/// Many guards at a member that is cut off, at another moment between two beats for each: what they
/// say, beside what the servers on the other side do. False if most were lost before the cut.
async fn guards_behind(ensemble: &Ensemble, behind: Behind, cut: Cut, name: &str) -> bool {
    const GUARDS: u32 = 20;
    let leader = ensemble.leader().await;
    let other = (leader + 1) % ensemble.count();
    let (member, seen_from) = match behind {
        Behind::Leader => (leader, other),
        Behind::Follower => (other, leader),
    };
    let [its, theirs] = [member, seen_from].map(|at| ensemble.addresses()[at].to_string());
    let observer = Client::connect(&theirs).await.unwrap();
    let (mut keepers, mut says, mut ends) = (Vec::new(), Vec::new(), Vec::new());
    for number in 0..GUARDS {
        let connect = || async {
            let builder = Keeper::builder(&its).session_timeout(T).tick_time(TICK);
            builder.connect().await.ok()
        };
        let keeper = eventually("a keeper connects", SOON, connect).await;
        let lock = keeper.mutex(format!("{name}-{number}")).unwrap();
        let Ok(guard) = lock.lock().await else {
            continue;
        };
        let path = format!("/locks/{}/{}", guard.name(), guard.node());
        catch_up(&observer).await.unwrap();
        let Ok((_, _, watch)) = observer.get_and_watch_data(&path).await else {
            continue;
        };
        ends.push(async move {
            let event = watch.changed().await;
            assert_eq!(event.event_type, EventType::NodeDeleted);
            now()
        });
        says.push(tokio::spawn(last_held(guard)));
        keepers.push(keeper);
        // A beat comes each tenth of the session timeout.
        sleep(T / 10 / GUARDS).await;
    }
    sleep(T).await;

    let began = now();
    ensemble.cut_off(member, cut);
    // Their side has to find a leader first, which may take longer than a session lasts.
    let ends = timeout(Duration::from_secs(60), join_all(ends)).await;
    let (mut least, mut met) = (Nanos::MAX, 0);
    for (held, over) in join_all(says).await.into_iter().zip(ends.unwrap()) {
        let held = held.unwrap();
        assert!(held <= over, "held {} ns too long", held - over);
        if held > began {
            met += 1;
            least = least.min(over - held);
        }
    }
    println!(
        "{behind:?}: none of {met} guards was held within {:?} of its end",
        Duration::from_nanos(least)
    );
    ensemble.join(member).await;
    ensemble.serves().await;
    join_all(keepers.iter().map(Keeper::close)).await;
    met > GUARDS / 2
}

/// The last moment at which the guard said that it is held, looked up before it was asked.
async fn last_held(guard: Guard) -> Nanos {
    let mut last = 0;
    loop {
        let asked = now();
        if !guard.is_held() {
            return last;
        }
        last = asked;
        sleep(Duration::from_millis(2)).await;
    }
}
