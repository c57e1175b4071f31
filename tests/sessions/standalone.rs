//! A server that stands alone is known, and nothing else is taken for one: the lease says which, by
//! how long it is.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use lockkeeper::{Guard, Keeper, SessionEvent};
use tokio::time::{Instant, sleep};

use testbench::herald::{Herald, STANDALONE, Says};
use testbench::stall::Stall;
use testbench::{World, case, eventually};

/// A busy machine may stop a server for seconds, and the lease is to outlast that.
const T: Duration = Duration::from_secs(6);
const FOLLOWER: &str = "Zookeeper version: 3.8.0-1, built on 2022\nMode: follower\nNode count: 5\n";
const FORBIDDEN: &str = "srvr is not executed because it is not in the whitelist.\n";

async fn held(servers: String, lock: &str) -> (Keeper, Guard) {
    let (began, stall) = (Instant::now(), Stall::watch());
    let keeper = Keeper::builder(servers)
        .session_timeout(T)
        .connect()
        .await
        .unwrap();
    let guard = keeper.mutex(lock).unwrap().lock().await.unwrap();
    let took = began.elapsed();
    assert!(
        took < T / 2 + stall.longest(),
        "no question is waited for: {took:?}"
    );
    (keeper, guard)
}

/// How often the keeper has connected again, from now on.
fn reconnects(keeper: &Keeper) -> Arc<AtomicUsize> {
    let (count, mut events) = (Arc::new(AtomicUsize::new(0)), keeper.session_events());
    let counted = Arc::clone(&count);
    tokio::spawn(async move {
        while let Ok(event) = events.changed().await {
            if matches!(event, SessionEvent::Connected { .. }) {
                counted.fetch_add(1, Ordering::Relaxed);
            }
        }
    });
    count
}

/// The longest that the lease is within a session timeout, in timeouts. 0.65 with a lag of a
/// quarter, 0.9 without any.
async fn longest(guard: &Guard) -> f64 {
    // What was proved before is behind us by then.
    sleep(T / 2).await;
    let (began, mut longest) = (Instant::now(), Duration::ZERO);
    while began.elapsed() < T {
        longest = longest.max(guard.valid_for());
        sleep(Duration::from_millis(2)).await;
    }
    assert!(guard.is_held());
    longest.div_duration_f64(T)
}

async fn stands_alone(guard: &Guard) {
    let is_long = || async { longest(guard).await > 0.7 };
    eventually("the server is known to stand alone", 10 * T, is_long).await;
}

async fn is_any(guard: &Guard, what: &str) {
    let longest = longest(guard).await;
    assert!((0.3..=0.65).contains(&longest), "{what}: {longest}");
}

fn below(world: &World, herald: &Herald) -> String {
    format!("{}{}", herald.address(), world.chroot())
}

#[case(
    zookeeper,
    why = "a four-letter word tells whether a server stands alone",
    within = 120
)]
async fn a_server_is_asked_whether_it_stands_alone(world: World) {
    let servers = world.servers();
    let (_keeper, guard) = held(format!("{}{}", servers[0], world.chroot()), "a").await;

    match servers.len() {
        1 => stands_alone(&guard).await,
        _ => is_any(&guard, "one of an ensemble").await,
    }
}

#[case(zookeeper, why = "a connect string of two addresses")]
async fn who_names_two_addresses_does_not_know_whose_answers_they_are(world: World) {
    let server = world.servers()[0];
    let (_keeper, guard) = held(format!("{server},{server}{}", world.chroot()), "a").await;

    is_any(&guard, "two addresses").await;
}

#[case(
    zookeeper,
    why = "a four-letter word tells whether a server stands alone"
)]
async fn only_a_server_that_says_so_stands_alone(world: World) {
    let all = [
        Says::Text(FOLLOWER),
        Says::Text(FORBIDDEN),
        Says::Text(""),
        Says::Text("Mode: standalone\n"),
        Says::Text("Zookeeper version: 3.8.0\nMode: stand"),
        Says::Nothing,
        Says::Endless,
    ];
    let each = all.iter().enumerate().map(|(number, says)| {
        let world = &world;
        async move {
            let herald = Herald::before(world.servers()[0], *says).await;
            let (_keeper, guard) = held(below(world, &herald), &number.to_string()).await;

            is_any(&guard, &format!("{says:?}")).await;

            assert!(herald.asked() > 0, "{says:?}");
        }
    });
    join_all(each).await;
}

#[case(
    zookeeper,
    why = "a four-letter word tells whether a server stands alone",
    within = 240
)]
async fn a_server_is_asked_again_after_each_reconnect(world: World) {
    let herald = Herald::before(world.servers()[0], Says::Text(STANDALONE)).await;
    let (keeper, guard) = held(below(&world, &herald), "a").await;
    stands_alone(&guard).await;

    // It was started again as one of an ensemble.
    herald.say(Says::Text(FOLLOWER));
    let (asked, reconnects) = (herald.asked(), reconnects(&keeper));
    herald.cut();
    let is_asked = || async { herald.asked() > asked };
    eventually("it is asked again", 10 * T, is_asked).await;
    is_any(&guard, "what it said before").await;
    // On a busy machine a connection may end by itself.
    let (questions, connections) = (herald.asked() - asked, reconnects.load(Ordering::Relaxed));
    assert!(
        (1..=connections.max(1)).contains(&questions),
        "once for a connection: {questions} for {connections}"
    );

    // And as what it was.
    herald.say(Says::Text(STANDALONE));
    herald.cut();
    stands_alone(&guard).await;
}

#[case(
    zookeeper,
    why = "a four-letter word tells whether a server stands alone",
    within = 120
)]
async fn a_server_that_was_silent_is_asked_again(world: World) {
    let herald = Herald::before(world.servers()[0], Says::Nothing).await;
    let (_keeper, guard) = held(below(&world, &herald), "a").await;
    is_any(&guard, "silence").await;

    herald.say(Says::Text(STANDALONE));
    stands_alone(&guard).await;
}
