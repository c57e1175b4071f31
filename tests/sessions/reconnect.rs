//! How soon a keeper is back after its servers are: the time from their return to the first answer.
//!
//! The long form prints the table that the head of `src/link/pacer.rs` quotes.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use futures_util::stream::{self, StreamExt};
use lockkeeper::Keeper;
use tokio::time::{sleep, timeout};

use testbench::relay::{Relay, Way};
use testbench::stall::Stall;
use testbench::{World, case};

/// One outage.
#[derive(Clone, Copy, Debug)]
struct Outage {
    way: Way,
    servers: usize,
    session_timeout: Duration,
    length: Duration,
}

impl Outage {
    /// How long after the return of the servers the first answer comes.
    async fn recovery(self, world: &World) -> Duration {
        let way_to = world.servers().iter().cycle().take(self.servers);
        let relays = join_all(way_to.map(|server| Relay::to(*server))).await;
        let keeper = Keeper::builder(connect_string(world, &relays))
            .session_timeout(self.session_timeout)
            .connect()
            .await
            .unwrap();

        relays.iter().for_each(|relay| relay.set(self.way));
        let asking = tokio::spawn(async move {
            let returned = Instant::now() + self.length;
            loop {
                let answer = keeper.locks().await;
                if answer.is_ok() && Instant::now() > returned {
                    keeper.close().await;
                    return returned.elapsed();
                }
                sleep(Duration::from_millis(20)).await;
            }
        });
        sleep(self.length).await;
        relays.iter().for_each(|relay| relay.set(Way::Open));
        let limit = 3 * self.session_timeout + Duration::from_secs(5);
        timeout(limit, asking)
            .await
            .unwrap_or_else(|_| panic!("no answer within {limit:?} after {self:?}"))
            .unwrap()
    }

    /// The goal for most outages of this kind.
    fn goal(self) -> Duration {
        match self.way {
            Way::Refusing => Duration::from_millis(600),
            _ => self.session_timeout / 2,
        }
    }
}

fn connect_string(world: &World, relays: &[Relay]) -> String {
    let addresses: Vec<String> = relays
        .iter()
        .map(|relay| relay.address().to_string())
        .collect();
    format!("{}{}", addresses.join(","), world.chroot())
}

#[case(zookeeper, why = "a connect string of three addresses")]
async fn row_57_a_long_refusal_delays_nobody_after_its_end(world: World) {
    // The client crate alone would have waited for 1.6 s by then, with one server, and would go on
    // for another second.
    let outages = [1, 1, 3, 3].map(|servers| Outage {
        way: Way::Refusing,
        servers,
        session_timeout: Duration::from_secs(4),
        length: Duration::from_millis(2200),
    });

    let stall = Stall::watch();
    let recoveries = join_all(outages.map(|outage| outage.recovery(&world))).await;

    let (latest, stall) = (recoveries.iter().max().unwrap(), stall.longest());
    assert!(
        *latest < Duration::from_millis(800) + 2 * stall,
        "{recoveries:?}, the longest stall {stall:?}"
    );
}

/// Outages of every kind and length, side by side; in the long form the table.
#[case(embedded, alone, within = 90)]
async fn whatever_cut_the_servers_off_they_are_found_soon_after(world: World) {
    let seconds: &[u64] = if World::soak() { &[1, 4, 10] } else { &[1] };
    let mut rows = Vec::new();
    for session_timeout in seconds.iter().copied().map(Duration::from_secs) {
        for way in [Way::Refusing, Way::Silent, Way::Dropping] {
            rows.extend([1, 3].map(|servers| Outage {
                way,
                servers,
                session_timeout,
                length: session_timeout.mul_f64(1.2),
            }));
        }
    }
    let rows = rows.into_iter().map(|longest| row(&world, longest));

    // Side by side, but a table must not be a measurement of a busy machine.
    let late: Vec<String> = stream::iter(rows)
        .buffered(World::times(6, 1))
        .filter_map(std::future::ready)
        .collect()
        .await;

    assert!(late.is_empty(), "{late:#?}");
}

/// Outages of up to this one's length; the line of the table if they do not meet the goal.
async fn row(world: &World, longest: Outage) -> Option<String> {
    let count = World::times(4, 60);
    let outages = (1..=count).map(|number| Outage {
        length: longest.length.mul_f64(number as f64 / count as f64),
        ..longest
    });
    let stall = Stall::watch();
    let recoveries = outages.map(|outage| outage.recovery(world));
    let mut recoveries = join_all(recoveries).await;
    recoveries.sort();
    let at = |share: f64| recoveries[((count - 1) as f64 * share).round() as usize];
    let stall = stall.longest();
    let line = format!(
        "{longest:?}: p50 {:?}, p90 {:?}, max {:?}, the longest stall {stall:?}",
        at(0.5),
        at(0.9),
        at(1.0)
    );
    println!("{line}");
    // A try to connect that a stall outlasts is made again, and may meet the next one.
    let goal = longest.goal() + 2 * stall;
    (at(0.9) > goal || at(1.0) > goal + longest.goal()).then_some(line)
}

#[case(embedded)]
async fn a_silent_server_does_not_hide_a_healthy_one(world: World) {
    let silent = Relay::to(world.servers()[0]).await;
    silent.set(Way::Silent);
    let address = format!(
        "{},{}{}",
        silent.address(),
        world.servers()[0],
        world.chroot()
    );
    let connects = async |address: &str| {
        let began = Instant::now();
        let keepers = join_all((0..World::times(20, 500)).map(|_| {
            Keeper::builder(address)
                .session_timeout(Duration::from_secs(4))
                .connect()
        }))
        .await;
        for keeper in keepers {
            keeper.unwrap().close().await;
        }
        began.elapsed()
    };
    // What a busy machine takes for so many.
    let direct = format!("{}{}", world.servers()[0], world.chroot());
    let healthy = connects(&direct).await;

    let elapsed = connects(&address).await;

    let limit = Duration::from_secs(4) + 2 * healthy;
    assert!(
        elapsed < limit,
        "{elapsed:?}, and {healthy:?} without the other"
    );
}
