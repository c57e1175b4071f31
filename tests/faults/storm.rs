//! Eight processes that share one lock, under random faults.
//!
//! The plan comes from a seed, which is printed: `LOCKKEEPER_SEED` repeats the same plan. The
//! checker reads the whole history after the last fault has ended.

mod hurt;

use std::time::Duration;

use tokio::time::Instant;

use self::hurt::{Crew, Hurt};
use super::{SOON, T};
use testbench::checker::{Bounds, assert_clean, stays_alive, violations};
use testbench::children;
use testbench::client::Fleet;
use testbench::dice::Dice;
use testbench::ensemble::Ensemble;
use testbench::events::{Event, Outcome, What};
use testbench::stall::Stall;
use testbench::store::Fence;
use testbench::words;
use testbench::{Stranger, World, case, eventually, plan};

const CLIENTS: usize = 8;
const LOCK: &str = "storm";
/// For what must come within some time in which the world is whole.
const AT_ALL: Duration = Duration::from_secs(150);

/// How long the storm lasts.
fn length() -> Duration {
    Duration::from_secs(World::times(20, 300) as u64)
}

/// The seed of a storm, and the choices that follow from it.
fn dice(of: &str) -> Dice {
    let seed = plan::seed();
    println!("{of}: LOCKKEEPER_SEED={seed}");
    Dice(seed)
}

#[case(embedded, within = 120)]
async fn a_storm_on_the_embedded_server_breaks_nothing(world: World) {
    let mut dice = dice("storm on the embedded server");
    let on_clients = plan::of_clients(&mut dice, CLIENTS, length());
    let on_server = plan::of_embedded(&mut dice, length());
    let chroot = world.chroot().to_owned();
    let fleet = Fleet::new(world.connect_string(), LOCK, T, Fence::Refuses).await;
    let hurt = Hurt::new(fleet.log().clone());
    let mut crew = Crew::start(&fleet, world.servers(), &chroot, CLIENTS).await;

    let (began, stall) = (Instant::now(), Stall::watch());
    tokio::join!(
        crew.storm(&fleet, &on_clients, &hurt),
        hurt::embedded(world.embedded(), &on_server, &hurt)
    );

    let servers = world.servers().to_vec();
    ends_well(
        fleet,
        crew,
        &hurt,
        (began.elapsed(), stall.longest()),
        &world.connect_string(),
        &servers,
    )
    .await;
}

#[case(real, within = 300)]
async fn a_storm_on_an_ensemble_breaks_nothing(_world: World) {
    let mut dice = dice("storm on an ensemble");
    let on_clients = plan::of_clients(&mut dice, CLIENTS, length());
    let on_servers = plan::of_servers(&mut dice, length());
    let mut ensemble = Ensemble::start(5).await;
    let servers = ensemble.addresses();
    let hosts = ensemble.connect_string();
    let fleet = Fleet::new(hosts.clone(), LOCK, T, Fence::Refuses).await;
    let hurt = Hurt::new(fleet.log().clone());
    let mut crew = Crew::start(&fleet, &servers, "", CLIENTS).await;

    let (began, stall) = (Instant::now(), Stall::watch());
    let storm = async {
        let on_ensemble = hurt::ensemble(&mut ensemble, &on_servers, &hurt, length());
        tokio::join!(crew.storm(&fleet, &on_clients, &hurt), on_ensemble);
        ends_well(
            fleet,
            crew,
            &hurt,
            (began.elapsed(), stall.longest()),
            &hosts,
            &servers,
        )
        .await;
    };
    tokio::select! {
        () = storm => {}
        never = hurt.watch(&hosts) => never,
    }
}

/// The calm after the storm: each task gets the lock once more and ends, nothing is left, and the
/// judge finds nothing.
async fn ends_well(
    fleet: Fleet,
    crew: Crew,
    hurt: &Hurt,
    (stormed, stall): (Duration, Duration),
    connect_string: &str,
    servers: &[std::net::SocketAddr],
) {
    let calm = fleet.events().len();
    for name in crew.names() {
        let again = || async {
            let events = fleet.events();
            let since = &events[calm..];
            let theirs = |event: &&Event| event.client == name;
            since
                .iter()
                .filter(theirs)
                .any(|event| matches!(event.what, What::Granted { .. }))
        };
        let what = format!("{name} gets the lock in the calm");
        hurt.comes(&what, 2 * SOON, eventually(&what, AT_ALL, again))
            .await;
    }
    hurt.comes("the clients end", 2 * SOON, crew.ends(AT_ALL))
        .await;

    let stranger = zookeeper_client::Client::connect(connect_string)
        .await
        .unwrap();
    let stranger = Stranger::ZooKeeper(stranger);
    let empty = || async { children(&stranger, LOCK).await.is_empty() };
    let what = "no ticket is left";
    hurt.comes(what, SOON, eventually(what, AT_ALL, empty))
        .await;
    fleet.log().note(What::Rest {
        tickets: 0,
        live: 0,
    });
    let unwatched = || async {
        let mut watches = 0;
        for server in servers {
            watches += words::wchs(&words::word(*server, "wchs").await).watches;
        }
        watches == 0
    };
    eventually("no watch is left", SOON, unwatched).await;
    fleet.log().note(What::Watches {
        before: 0,
        after: 0,
    });

    let history = fleet.history();
    let count = |is: fn(&What) -> bool| {
        let events = history.events.iter();
        events.filter(|event| is(&event.what)).count()
    };
    let (faults, grants) = (
        hurt.count(),
        count(|what| matches!(what, What::Granted { .. })),
    );
    println!(
        "{faults} faults in {stormed:?}, the longest stall {stall:?}: {:?}; {grants} grants, {} losses, {} releases that found a loss, {} calls that failed, \
         {} writes, {} stale ones refused",
        hurt.kinds(),
        count(|what| matches!(what, What::Lost { .. })),
        count(|what| matches!(
            what,
            What::Released {
                outcome: Outcome::Lost,
                ..
            }
        )),
        count(|what| matches!(what, What::Failed { .. })),
        history.accepted.len(),
        fleet.store().stale(),
    );
    let bounds = Bounds {
        call: Duration::from_millis(200) + 2 * stall,
        notice: Duration::from_millis(150) + 2 * stall,
        ..Bounds::within(Duration::from_secs(15))
    };
    let mut found = violations(&history);
    found.extend(stays_alive(&history, &bounds));
    assert_clean(&found);
    assert!(
        faults as f64 >= length().as_secs_f64() / 2.0,
        "{faults} faults in {stormed:?}"
    );
    if World::soak() {
        assert!(
            faults > 100 && grants > 1000,
            "{faults} faults, {grants} grants"
        );
    } else {
        assert!(grants > CLIENTS, "{grants} grants");
    }
}
