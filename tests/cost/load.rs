//! The load on an ensemble: what the model of `docs/scale.md` says, beside what servers count.
//!
//! Each case has a server to itself, so that it counts no other traffic. The long forms are the
//! sizes that the page shows; they print the rows of its tables.

pub(crate) mod capacity;
pub(crate) mod memory;
pub(crate) mod model;
mod placed;
mod site;

use std::time::{Duration, Instant};

use lockkeeper::embedded::Op;
use lockkeeper::{Keeper, LeaseStrength, Mutex};
use tokio::task::JoinSet;
use tokio::time::sleep;

use model::{Load, Turnover, Work};
use placed::{Part, Placed};
use site::{Site, Told};
use testbench::{World, case, eventually};

/// The counts agree with the model to a tenth, and to one beat with a ping and a read of each
/// session. The extra beat is because counting begins and ends between two beats.
const TOLERANCE: f64 = 0.1;

/// A second from beat to beat. Such a session outlasts what a busy machine does to it.
const T: Duration = Duration::from_secs(6);
/// That of a keeper which is given none.
const LONG_T: Duration = Duration::from_secs(10);

const SOON: Duration = Duration::from_secs(10);

/// The room for the servers of the long form.
const ROOM: &[&str] = &["-Xmx1g"];

const QUORUM: LeaseStrength = LeaseStrength::Quorum;

const fn part(processes: usize, held: usize, waiting: usize) -> Part {
    Part {
        processes,
        held,
        waiting,
        strength: QUORUM,
    }
}

/// Idle sessions, holders, and waiters.
const SMALL: &[Part] = &[part(5, 0, 0), part(5, 1, 0), part(2, 0, 20)];
const MIXED: &[Part] = &[part(20, 0, 0), part(40, 5, 0), part(20, 1, 10)];

/// The worked examples of the page, and what they are made of.
const EXAMPLES: &[&[Part]] = &[
    SMALL,
    MIXED,
    &[part(500, 0, 0)],
    &[part(100, 10, 0)],
    &[part(10, 500, 0)],
    &[part(200, 50, 0)],
    &[part(1, 0, 10_000)],
    &[part(100, 0, 100)],
    &[part(2000, 1, 0)],
];

#[case(alone, within = 180)]
async fn servers_say_of_a_fleet_what_the_model_says(world: World) {
    let (sizes, timeout, flags) = if World::soak() {
        (EXAMPLES, LONG_T, ROOM)
    } else {
        (&[SMALL, MIXED][..], T, &[][..])
    };
    for parts in sizes {
        let site = Site::like(&world, flags).await;
        let before = site.told().await;
        let placed = Placed::on(&site, timeout, parts).await;
        let is_there = || async { is_there(&placed, &site.told().await.since(&before)) };
        let (there, sent, took) = loop {
            eventually("all is as the model says", SOON, is_there).await;
            let (there, began) = (site.told().await, Instant::now());
            sleep(timeout * 3).await;
            let sent = site.told().await.since(&there);
            // Members that elected another leader meanwhile served no client for a while.
            if sent.epoch == 0 {
                break (there.since(&before), sent, began.elapsed());
            }
        };

        println!("{}", row(parts, &placed.load(), &there, &sent, took));
        check_sent(&placed.load(), &sent, took);
        placed.close().await;
        site.stop().await;
    }
}

/// Whether this is what the model says that is there of a fleet. A follower may be behind for a
/// moment, and a client may just be connecting again.
fn is_there(placed: &Placed, there: &Told) -> bool {
    let load = placed.load();
    let of = |value: usize| i64::try_from(value).unwrap();
    there.tickets == of(load.tickets)
        && there.watches == of(load.watches)
        && there.connections == of(load.sessions)
        && there.nodes == of(load.tickets + placed.directories)
        && there.bytes == of(load.bytes + placed.directory_bytes)
}

/// What a fleet sends.
fn check_sent(load: &Load, sent: &Told, took: Duration) {
    let seconds = took.as_secs_f64();
    let sessions = load.sessions as f64;
    near(
        "commits",
        sent.commits as f64,
        load.commits * seconds,
        sessions,
    );
    near(
        "requests",
        sent.received as f64,
        load.requests() * seconds,
        3.0 * sessions,
    );
    near(
        "replies",
        sent.sent as f64,
        load.requests() * seconds,
        3.0 * sessions,
    );
}

/// Counted is as expected, but for the tolerance and so many more.
fn near(what: &str, counted: f64, expected: f64, edge: f64) {
    let most = expected * TOLERANCE + edge;
    assert!(
        (counted - expected).abs() <= most,
        "{what}: {counted} were counted, the model says {expected:.1} but for {most:.1}"
    );
}

/// A row of the page's table: the model's figure, and what was counted.
fn row(parts: &[Part], load: &Load, there: &Told, sent: &Told, took: Duration) -> String {
    let fleet: Vec<String> = parts
        .iter()
        .map(|part| format!("{} x {} x {}", part.processes, part.held, part.waiting))
        .collect();
    let each_second = |count: i64| count as f64 / took.as_secs_f64();
    format!(
        "| {} | {} / {} | {} / {} | {} / {} | {:.1} / {:.1} | {:.1} / {:.1} |",
        fleet.join(" + "),
        load.sessions,
        there.connections,
        load.tickets,
        there.tickets,
        load.watches,
        there.watches,
        load.commits,
        each_second(sent.commits),
        load.requests(),
        each_second(sent.received),
    )
}

#[case(embedded, alone, within = 90)]
async fn the_requests_of_a_fleet_are_of_the_kinds_that_the_model_says(world: World) {
    let site = Site::like(&world, &[]).await;
    let Site::Embedded(server) = &site else {
        panic!("the case is registered under `embedded:`")
    };
    let sync = Part {
        strength: LeaseStrength::Sync,
        ..part(3, 2, 0)
    };
    let placed = Placed::on(&site, T, &[SMALL, &[part(1, 1000, 0), sync]].concat()).await;
    let load = placed.load();
    let (before, began) = (server.counters(), Instant::now());
    sleep(T * 3).await;
    let sent = server.counters().since(&before);
    let seconds = began.elapsed().as_secs_f64();

    for (op, each_second) in [
        (Op::Multi, load.commits),
        (Op::Sync, load.syncs),
        (Op::MultiRead, load.reads),
        (Op::Ping, load.pings),
    ] {
        let (counted, expected) = (sent.get(op) as f64, each_second * seconds);
        near(&format!("{op:?}"), counted, expected, load.sessions as f64);
    }
    let known = [Op::Multi, Op::Sync, Op::MultiRead, Op::Ping].map(|op| sent.get(op));
    let others = sent.requests() - known.iter().sum::<u64>();
    // A client that reconnects sends its watches and asks for its session.
    assert!(others <= 3 * sent.connects, "and nothing else: {sent:?}");
    placed.close().await;
    site.stop().await;
}

#[case(alone)]
async fn servers_say_of_the_work_of_locks_what_the_model_says(world: World) {
    let site = Site::like(&world, &[]).await;
    let crowd = World::times(200, 2000);
    // It sends hardly a beat or a ping meanwhile.
    let builder = Keeper::builder(site.connect_string()).session_timeout(Duration::from_secs(60));
    let keeper = builder.connect().await.unwrap();
    let lock = keeper.mutex("work/0").unwrap();

    let before = site.told().await;
    let guard = lock.lock().await.unwrap();
    let mut waiting = JoinSet::new();
    let watched = async |watches: usize| {
        let watches = before.watches + i64::try_from(watches).unwrap();
        let all_watch = || async { site.told().await.watches == watches };
        eventually("all watch", Duration::from_secs(60), all_watch).await;
    };
    // One after the other: a call that begins at the same time as others shares a speculative read
    // with them.
    for _ in 0..crowd {
        let mut place = lock.enqueue().await.unwrap();
        waiting.spawn(async move { place.granted().await.unwrap().release().await.unwrap() });
    }
    watched(crowd).await;
    let queued = site.told().await;
    guard.release().await.unwrap();
    while waiting.join_next().await.is_some() {}
    let drained = site.told().await;
    for _ in 0..crowd {
        lock.lock().await.unwrap().release().await.unwrap();
    }
    let cycled = site.told().await;
    let guard = lock.lock().await.unwrap();
    let alone = site.told().await;
    for _ in 0..crowd {
        waiting.spawn(pass(lock.clone()));
    }
    watched(crowd).await;
    let together = site.told().await;
    guard.release().await.unwrap();
    while waiting.join_next().await.is_some() {}

    let queueing = Turnover {
        new_directories: 1,
        segments: 3,
        taken: 1,
        queued: crowd,
        ..Turnover::default()
    };
    let draining = Turnover {
        released: crowd + 1,
        handed_over: crowd,
        ..Turnover::default()
    };
    let cycling = Turnover {
        taken: crowd,
        released: crowd,
        ..Turnover::default()
    };
    check_work("queueing", &queueing.work(), &queued.since(&before));
    check_work("draining", &draining.work(), &drained.since(&queued));
    check_work("cycling", &cycling.work(), &cycled.since(&drained));
    let (together, each) = (together.since(&alone), i64::try_from(crowd).unwrap());
    println!("queueing together: {together:?}");
    // A create and a watch each, and far fewer speculative reads.
    assert!(
        (2 * each..5 * each / 2).contains(&together.received),
        "{together:?}"
    );
    keeper.close().await;
    site.stop().await;
}

async fn pass(lock: Mutex) {
    lock.lock().await.unwrap().release().await.unwrap();
}

/// Beats, pings and looks at a ticket that was held for more than a second come with time, and a
/// few may.
fn check_work(what: &str, work: &Work, told: &Told) {
    println!("{what}: {work:?} / {told:?}");
    let (commits, requests) = (work.commits as f64, work.requests() as f64);
    let (edge, sent) = (10.0, requests + work.events as f64);
    for (what, counted, expected) in [
        ("commits", told.commits, commits),
        ("requests", told.received, requests),
        ("replies and events", told.sent, sent),
    ] {
        let apart = (counted as f64 - expected).abs();
        assert!(apart <= edge, "{what}: {work:?} but {told:?}");
    }
}
