//! Processes and tasks that share locks, under random faults.
//!
//! The plan comes from a seed, which is printed: `LOCKKEEPER_SEED` repeats the same plan. The
//! checker reads the whole history after the last fault has ended.

mod crew;
mod hurt;

use std::collections::HashSet;
use std::future::ready;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use self::crew::Crew;
use self::hurt::Hurt;
use super::{SOON, T, keeper};
use testbench::checker::{Bounds, assert_clean, stays_alive, violations};
use testbench::children;
use testbench::client::{Fleet, Recipe};
use testbench::dice::Dice;
use testbench::ensemble::Ensemble;
use testbench::events::{Event, Outcome, What};
use testbench::pair::Pair;
use testbench::plan::{ClientFault, Step};
use testbench::protocol::Protocol;
use testbench::proxy::{End, Proxies, Proxy};
use testbench::stall::Stall;
use testbench::store::Fence;
use testbench::stored::Stored;
use testbench::words;
use testbench::{Stranger, World, case, eventually, plan};

const CLIENTS: usize = 8;
const LOCK: &str = "storm";
/// For what must come within some time in which the world is whole.
const AT_ALL: Duration = Duration::from_secs(150);

/// Who wants which lock on a store beside ZooKeeper; those who are tasks.
const CROWDS: [(&str, &[(Recipe, bool)]); 5] = [
    (
        LOCK,
        &[
            (Recipe::Mutex, false),
            (Recipe::Mutex, false),
            (Recipe::Mutex, false),
            (Recipe::Mutex, true),
            (Recipe::Mutex, true),
        ],
    ),
    (
        "files",
        &[
            (Recipe::Read, false),
            (Recipe::Write, false),
            (Recipe::Read, true),
        ],
    ),
    (
        "jobs",
        &[
            (Recipe::Permit(2), false),
            (Recipe::Permit(2), true),
            (Recipe::Permit(2), true),
        ],
    ),
    ("leader", &[(Recipe::Leader, false), (Recipe::Leader, true)]),
    ("both", &[(Recipe::Set, false), (Recipe::Set, true)]),
];
/// Where tickets of these locks are.
const DIRECTORIES: [&str; 7] = [
    LOCK,
    "files",
    "jobs/queue",
    "jobs/held",
    "leader",
    "both-left",
    "both-right",
];

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

/// Clients of one lock, on servers of ZooKeeper's protocol.
async fn crew_on(servers: &[SocketAddr], chroot: &str, hosts: String) -> (Vec<Arc<Fleet>>, Crew) {
    let fleet = Arc::new(Fleet::new(hosts, LOCK, T, Fence::Refuses).await);
    let mut crew = Crew::default();
    for _ in 0..CLIENTS {
        let proxies = Proxies::before_servers(servers, chroot);
        crew.join(&fleet, Recipe::Mutex, false, proxies);
    }
    (vec![fleet], crew)
}

/// What is asked at the end whether anything is left.
enum Site<'a> {
    Servers(String, &'a [SocketAddr]),
    Store(&'a Stored),
}

impl Site<'_> {
    async fn stranger(&self) -> Stranger {
        match self {
            Self::Servers(connect_string, _) => {
                let client = zookeeper_client::Client::connect(connect_string).await;
                Stranger::ZooKeeper(client.unwrap())
            }
            Self::Store(stored) => stored.stranger().await.unwrap(),
        }
    }

    /// Whether the servers keep no watch, and no session that should not be there.
    async fn is_clean(&self) -> bool {
        match self {
            Self::Servers(_, servers) => {
                let mut watches = 0;
                for server in *servers {
                    watches += words::wchs(&words::word(*server, "wchs").await).watches;
                }
                watches == 0
            }
            Self::Store(stored) => {
                let watched = stored.watched().await.unwrap();
                let paths: usize = watched.values().map(|(paths, _)| paths).sum();
                // That of a keeper, which removes what others have left, and a stranger's.
                paths == 0 && stored.sessions().await.unwrap() == 2
            }
        }
    }
}

#[case(embedded, within = 120)]
async fn a_storm_on_the_embedded_server_breaks_nothing(world: World) {
    let mut dice = dice("storm on the embedded server");
    let on_clients = plan::of_clients(&mut dice, CLIENTS, length());
    let on_server = plan::of_embedded(&mut dice, length());
    let (fleets, mut crew) = crew_on(world.servers(), world.chroot(), world.connect_string()).await;
    let hurt = Hurt::new(&fleets);

    let (began, stall) = (Instant::now(), Stall::watch());
    tokio::join!(
        crew.storm(&on_clients, &hurt),
        hurt::embedded(world.embedded(), &on_server, &hurt)
    );

    let servers = world.servers().to_vec();
    let site = Site::Servers(world.connect_string(), &servers);
    let took = (began.elapsed(), stall.longest());
    ends_well(&fleets, crew, &hurt, took, &site).await;
}

#[case(real, within = 300)]
async fn a_storm_on_an_ensemble_breaks_nothing(_world: World) {
    let mut dice = dice("storm on an ensemble");
    let on_clients = plan::of_clients(&mut dice, CLIENTS, length());
    let on_servers = plan::of_servers(&mut dice, length());
    let mut ensemble = Ensemble::start(5).await;
    let servers = ensemble.addresses();
    let hosts = ensemble.connect_string();
    let (fleets, mut crew) = crew_on(&servers, "", hosts.clone()).await;
    let hurt = Hurt::new(&fleets);

    let (began, stall) = (Instant::now(), Stall::watch());
    let storm = async {
        let on_ensemble = hurt::ensemble(&mut ensemble, &on_servers, &hurt, length());
        tokio::join!(crew.storm(&on_clients, &hurt), on_ensemble);
        let site = Site::Servers(hosts.clone(), &servers);
        let took = (began.elapsed(), stall.longest());
        ends_well(&fleets, crew, &hurt, took, &site).await;
    };
    tokio::select! {
        () = storm => {}
        never = hurt.watch(&hosts) => never,
    }
}

#[case(redis, within = 300)]
async fn a_storm_on_redis_breaks_nothing(_world: World) {
    on_a_store(Protocol::Redis).await;
}

#[case(postgres, within = 300)]
async fn a_storm_on_postgresql_breaks_nothing(_world: World) {
    on_a_store(Protocol::Postgres).await;
}

/// All recipes, on a primary with a replica, which has a part in the storm.
async fn on_a_store(protocol: Protocol) {
    let mut dice = dice(&format!("storm on {protocol:?}"));
    let mut pair = Pair::start(protocol).await;
    // The pause of a new history follows from it.
    pair.make(T).await;
    let front = Proxy::of_bytes(pair.address()).unwrap();
    let stored = pair.stored().of(front.address());
    let (mut fleets, mut crew) = (Vec::new(), Crew::default());
    for (lock, members) in CROWDS {
        let connect_string = stored.at(front.address());
        let fleet = Arc::new(Fleet::new(connect_string, lock, T, Fence::Refuses).await);
        for (recipe, is_task) in members {
            crew.join(&fleet, *recipe, *is_task, Proxies::before_stored(&stored));
        }
        fleets.push(fleet);
    }
    let on_clients = on_stores(plan::of_clients(&mut dice, crew.len(), length()));
    let on_servers = plan::of_store(&mut dice, length());
    let hurt = Hurt::new(&fleets);

    let (began, stall) = (Instant::now(), Stall::watch());
    tokio::join!(
        crew.storm(&on_clients, &hurt),
        hurt::store(&mut pair, &front, &on_servers, &hurt, length())
    );

    // Somebody has to remove what others have left.
    let calm = keeper(&stored.at(front.address())).await;
    let took = (began.elapsed(), stall.longest());
    ends_well(&fleets, crew, &hurt, took, &Site::Store(pair.stored())).await;
    calm.close().await;
}

/// Replies of other stores have no number, so that one which comes twice answers the next request;
/// and no server there opens another session than it was asked for. No network does either.
fn on_stores(mut plan: Vec<Step<(usize, ClientFault)>>) -> Vec<Step<(usize, ClientFault)>> {
    for step in &mut plan {
        if let (_, fault @ (ClientFault::DuplicateReply(_) | ClientFault::SwapSession)) =
            &mut step.fault
        {
            *fault = ClientFault::Cut(End::Rst);
        }
    }
    plan
}

/// The calm after the storm: each client gets its lock once more and ends, nothing is left, and the
/// judge finds nothing.
async fn ends_well(
    fleets: &[Arc<Fleet>],
    crew: Crew,
    hurt: &Hurt,
    took: (Duration, Duration),
    site: &Site<'_>,
) {
    let mut calm: Vec<_> = fleets
        .iter()
        .map(|fleet| (fleet.tail(), HashSet::new()))
        .collect();
    for (fleet, name) in crew.names() {
        let at = fleets.iter().position(|one| Arc::ptr_eq(one, &fleet));
        let (tail, granted) = &mut calm[at.unwrap()];
        let again = || {
            let is_grant = |event: &Event| matches!(event.what, What::Granted { .. });
            let grants = tail.more().into_iter().filter(is_grant);
            granted.extend(grants.map(|event| event.client));
            ready(granted.contains(&name))
        };
        let what = format!("{name} gets the lock in the calm");
        hurt.comes(&what, 2 * SOON, eventually(&what, AT_ALL, again))
            .await;
    }
    hurt.comes("the clients end", 2 * SOON, crew.ends(AT_ALL))
        .await;

    let stranger = site.stranger().await;
    for directory in DIRECTORIES {
        let empty = || async { children(&stranger, directory).await.is_empty() };
        let what = format!("no ticket is left in {directory}");
        hurt.comes(&what, SOON, eventually(&what, AT_ALL, empty))
            .await;
    }
    let clean = || site.is_clean();
    eventually("no watch and no session is left", SOON, clean).await;
    drop(stranger);
    let mut grants = 0;
    for fleet in fleets {
        grants += judge(fleet, took);
    }
    let (faults, (stormed, stall)) = (hurt.count(), took);
    println!(
        "{faults} faults in {stormed:?}, the longest stall {stall:?}: {:?}; {grants} grants",
        hurt.kinds()
    );
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

/// What the checker says of one lock. How often it was granted.
fn judge(fleet: &Fleet, (_, stall): (Duration, Duration)) -> usize {
    fleet.log().note(What::Rest {
        tickets: 0,
        live: 0,
    });
    fleet.log().note(What::Watches {
        before: 0,
        after: 0,
    });
    let history = fleet.history();
    let count = |is: fn(&What) -> bool| {
        let events = history.events.iter();
        events.filter(|event| is(&event.what)).count()
    };
    let grants = count(|what| matches!(what, What::Granted { .. }));
    println!(
        "{}: {grants} grants, {} losses, {} releases that found a loss, {} calls that failed, \
         {} writes, {} stale ones refused",
        history.events.first().map_or("", |event| &event.lock),
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
    grants
}
