//! A holder whose packets are lost.
//!
//! No message can tell it of its loss: only its own clock can.

use std::time::Duration;

use futures_util::future::join_all;
use lockkeeper::embedded::{Code, Match, Op};
use lockkeeper::{Keeper, SessionEvent};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::{SOON, T, granted, keeper, released, released_well, watched};
use testbench::checker::{Bounds, assert_clean, stays_alive, violations};
use testbench::children;
use testbench::client::Fleet;
use testbench::events::{Event, Outcome, What, now};
use testbench::proxy::{Proxies, Way};
use testbench::stall::Stall;
use testbench::store::Fence;
use testbench::{World, case, eventually};

#[case(within = 60)]
async fn a_holder_in_a_black_hole_knows_before_the_next_one_is_let_in(world: World) {
    for round in 0..World::times(1, 50) {
        let ways = [Way::Both, Way::ToServer, Way::ToClient];
        let runs = ways.map(|way| one_black_hole(&world, way, round));
        join_all(runs).await;
    }
}

/// The time of the first event like this.
fn time(events: &[Event], is: impl Fn(&Event) -> bool) -> Option<u64> {
    Some(events.iter().find(|event| is(event))?.t_ns)
}

async fn one_black_hole(world: &World, way: Way, round: usize) {
    let lock = format!("hole-{way:?}-{round}");
    let stall = Stall::watch();
    let fleet = Fleet::new(world.connect_string(), &lock, T, Fence::Refuses).await;
    let (log_a, log_b) = (fleet.log().of("a"), fleet.log().of("b"));
    let proxies = Proxies::before(world);
    let (a, b) = (
        keeper(&proxies.connect_string()).await,
        keeper(&world.connect_string()).await,
    );
    let guard = granted(&a, &lock, &log_a).await;
    let waiting = {
        let (b, lock, log) = (b.clone(), lock.clone(), log_b.clone());
        tokio::spawn(async move { granted(&b, &lock, &log).await })
    };
    eventually("both are in the queue", SOON, || async {
        b.queue(lock.as_str())
            .await
            .is_ok_and(|queue| queue.len() == 2)
    })
    .await;

    let kind = format!("black hole {way:?}");
    fleet.log().note(What::Fault { kind });
    proxies.black_hole(way);
    let (began, begun) = (Instant::now(), now());
    let watched = watched(guard, &log_a);
    // B's session is healthy, and it is let in when A's ends at the servers.
    let next = waiting.await.unwrap();
    let guard = watched.await.unwrap();
    sleep_until(began + 3 * T).await;
    proxies.heal();

    let is_held = guard.is_held();
    assert_eq!(released(guard, &log_a).await, Outcome::Lost);
    released_well(next, &log_b, &stall).await;
    assert!(!is_held, "what was lost stays lost after the heal");
    let history = fleet.history();
    let events = &history.events;
    let lost = time(events, |event| matches!(event.what, What::Lost { .. })).unwrap();
    let let_in = time(events, |event| {
        event.client == "b" && matches!(event.what, What::Granted { .. })
    });
    let ahead = Duration::from_nanos(let_in.unwrap().saturating_sub(lost));
    println!(
        "{way:?}: lost {:?} after the cut, {ahead:?} ahead, the longest stall {:?}",
        Duration::from_nanos(lost.saturating_sub(begun)),
        stall.longest()
    );
    assert_clean(&violations(&history));
    assert_clean(&stays_alive(
        &history,
        &Bounds {
            notice: Duration::from_millis(50) + stall.longest(),
            ..Bounds::within(Duration::from_secs(5))
        },
    ));
    let stranger = world.raw().await;
    eventually("nothing is left behind", SOON, || async {
        children(&stranger, &lock).await.is_empty()
    })
    .await;
    a.close().await;
    b.close().await;
}

// A beat was sent again and again until it was answered. After the end of the session each try
// failed at once, so a keeper with one thread never came to report the loss, and used a whole core.
#[case(embedded, within = 60)]
async fn a_keeper_on_one_thread_stays_calm_until_its_session_ends(world: World) {
    // A quarter of it is between the two answers that begin a lease: time to arm what fails.
    let session_timeout = T * 4;
    let proxies = Proxies::before(&world);
    let builder = Keeper::builder(proxies.connect_string()).session_timeout(session_timeout);
    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    let thread = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let keeper = builder.connect().await.unwrap();
            let guard = keeper.mutex("thread").unwrap().lock().await.unwrap();
            let mut events = keeper.session_events();
            tell.send("held").unwrap();
            guard.lost().await;
            tell.send("lost").unwrap();
            while !matches!(events.borrow(), SessionEvent::Over { .. }) {
                events.changed().await.unwrap();
            }
            tell.send("over").unwrap();
            keeper.close().await;
        });
    });
    let mut hears = async |word| {
        let heard = timeout(5 * session_timeout, told.recv()).await;
        assert_eq!(heard.expect("the thread goes on"), Some(word));
    };

    hears("held").await;
    // The servers hear the beats, so the session lives; the client does not, so its lease ends.
    proxies.black_hole(Way::ToClient);
    hears("lost").await;
    // A first answer arrives; the second one, which would begin another lease, does not.
    proxies.heal();
    sleep(session_timeout / 8).await;
    let (server, faults) = (world.embedded(), world.embedded().faults());
    let beats = || Match::op(Op::Multi).session(faults.sessions()[0].id);
    faults.on(beats()).times(100_000).fail(Code::Throttled);
    let before = server.counters().get(Op::Multi);
    sleep(session_timeout).await;
    let sent = server.counters().get(Op::Multi) - before;
    faults.clear_rules();
    faults.on(beats()).times(100).fail(Code::SessionExpired);
    hears("over").await;

    let ended = tokio::task::spawn_blocking(move || thread.join());
    timeout(SOON, ended).await.unwrap().unwrap().unwrap();
    assert!(
        (2..=8).contains(&sent),
        "{sent} beats in one session timeout"
    );
}
