//! Lockkeeper's goals beside the others, as ratios within one run. (pure)

use crate::peer::{Peer, Store};
use crate::results::{Results, Row, Spread};
use crate::text::{bytes, spread, three, whole};

/// One goal, what was found, and whether that is enough; none where the run does not say.
#[derive(Debug)]
pub(crate) struct Goal {
    pub(crate) what: String,
    pub(crate) wanted: String,
    pub(crate) found: Option<(String, bool)>,
}

const OURS: Peer = Peer::Lockkeeper;
/// What a lock that lingers is good for, a second.
const LINGERS: f64 = 2e6;
/// Bytes of a waiter among a thousand.
const WAITER: f64 = 2560.0;

pub(crate) fn all(results: &Results) -> Vec<Goal> {
    let mut goals = alone(results);
    goals.extend(hand_over(results));
    goals.extend(independent(results));
    if results.on == Store::ZooKeeper {
        goals.extend(of_the_process(results));
    }
    goals
}

fn alone(results: &Results) -> Vec<Goal> {
    let beside: &[Peer] = match results.on {
        Store::ZooKeeper => &[Peer::ClientLock, Peer::Curator, Peer::Kazoo],
        Store::Redis => &[Peer::Redisson],
        Store::Postgres | Store::Etcd => &[],
    };
    let goal = |peer: Peer, bound| {
        let what = format!("uncontended, to {}", peer.title());
        at_most(what, results.ratio(Row::Uncontended, OURS, peer), bound)
    };
    let baseline = std::iter::once(goal(Peer::Baseline, 1.15));
    baseline
        .chain(beside.iter().map(|peer| goal(*peer, 1.0)))
        .collect()
}

fn hand_over(results: &Results) -> Vec<Goal> {
    let mut goals = Vec::new();
    for waiters in results.crowds.iter().copied() {
        let row = Row::HandOver { waiters };
        let crowd = whole(waiters as f64);
        for peer in results.peers.iter().copied() {
            let bound = match peer {
                Peer::Pipelined if waiters >= 10 => 1.1,
                _ if peer.is_ours() => continue,
                _ if peer.refuses(waiters).is_some() => continue,
                _ => 1.0,
            };
            let what = format!("hand-over at {crowd}, to {}", peer.title());
            goals.push(at_most(what, results.ratio(row, OURS, peer), bound));
        }
    }
    let what = "hand-over at 10 000, to hand-over at 100".to_owned();
    goals.push(at_most(what, results.growth(10_000), 1.1));
    goals
}

fn independent(results: &Results) -> Vec<Goal> {
    let bound = match results.on {
        Store::ZooKeeper => 1.2,
        Store::Postgres => 0.8,
        // There it is the processor's time for a script beside that for a command.
        Store::Redis | Store::Etcd => return Vec::new(),
    };
    let ratio = results.ratio(Row::Independent, OURS, Peer::Baseline);
    vec![Goal {
        what: "64 locks, rate to the baseline's".into(),
        wanted: format!("at least {}", three(bound)),
        found: ratio.map(|ratio| (spread(ratio, three), ratio.median >= bound)),
    }]
}

fn of_the_process(results: &Results) -> Vec<Goal> {
    let rate = results.spread(Row::Linger, OURS);
    let memory = results.memory_of(OURS, 1_000);
    vec![
        Goal {
            what: "one lock that lingers, by two tasks, a second".into(),
            wanted: format!("at least {}", whole(LINGERS)),
            found: rate.map(|rate| (spread(rate, whole), rate.median >= LINGERS)),
        },
        Goal {
            what: "memory of a waiter at 1 000".into(),
            wanted: format!("at most {}", bytes(WAITER)),
            found: memory.map(|memory| (spread(memory, bytes), memory.median <= WAITER)),
        },
    ]
}

fn at_most(what: String, ratio: Option<Spread>, bound: f64) -> Goal {
    Goal {
        what,
        wanted: format!("at most {}", three(bound)),
        found: ratio.map(|ratio| (spread(ratio, three), ratio.median <= bound)),
    }
}
