//! Lockkeeper's goals beside the others, as ratios within one run. (pure)

use crate::peer::Peer;
use crate::results::{Results, Row};
use crate::text::{bytes, three, whole};

/// One goal, what was found, and whether that is enough; none where the run does not say.
#[derive(Debug)]
pub(crate) struct Goal {
    pub(crate) what: String,
    pub(crate) wanted: String,
    pub(crate) found: Option<(String, bool)>,
}

const BESIDE: [Peer; 3] = [Peer::ClientLock, Peer::Curator, Peer::Kazoo];

pub(crate) fn all(results: &Results) -> Vec<Goal> {
    let crowd = |waiters| Row::HandOver { waiters };
    let ours = Peer::Lockkeeper;
    let mut goals = Vec::new();
    goals.push(at_most(
        "hand-over at 10 000, to hand-over at 100",
        results.growth(ours, 10_000, 100),
        1.25,
    ));
    for waiters in results
        .crowds
        .iter()
        .copied()
        .filter(|waiters| *waiters >= 100)
    {
        let what = format!("hand-over at {}, to the baseline", whole(waiters as f64));
        goals.push(at_most(
            &what,
            results.ratio(crowd(waiters), ours, Peer::Baseline),
            1.3,
        ));
    }
    for waiters in results
        .crowds
        .iter()
        .copied()
        .filter(|waiters| *waiters >= 10)
    {
        let what = format!(
            "hand-over at {}, to the pipelined baseline",
            whole(waiters as f64)
        );
        let ratio = results.ratio(crowd(waiters), ours, Peer::Pipelined);
        goals.push(at_most(&what, ratio, 1.1));
    }
    for waiters in [1_000, 5_000] {
        for peer in BESIDE {
            let what = format!(
                "hand-over at {}, to {}",
                whole(waiters as f64),
                peer.title()
            );
            goals.push(at_most(
                &what,
                results.ratio(crowd(waiters), ours, peer),
                1.0,
            ));
        }
    }
    goals.push(twenty_thousand(results));
    let alone = |peer| results.ratio(Row::Uncontended, ours, peer);
    goals.push(at_most(
        "uncontended, to the baseline",
        alone(Peer::Baseline),
        1.15,
    ));
    for peer in [Peer::Curator, Peer::ClientLock] {
        let what = format!("uncontended, to {}", peer.title());
        goals.push(at_most(&what, alone(peer), 1.0));
    }
    let rate = |peer| results.ratio(Row::Independent, ours, peer);
    goals.push(at_least(
        "64 locks, rate to the baseline's",
        rate(Peer::Baseline),
        0.8,
    ));
    for peer in BESIDE {
        let what = format!("64 locks, rate to that of {}", peer.title());
        goals.push(at_least(&what, rate(peer), 1.0));
    }
    let rate = results.spread(Row::Linger, ours).map(|rate| rate.median);
    goals.push(Goal {
        what: "one lock that lingers, by two tasks".into(),
        wanted: "over 500 000 a second".into(),
        found: rate.map(|rate| (whole(rate), rate > 500_000.0)),
    });
    for waiters in [1_000, 10_000, 20_000] {
        let found = results.memory_of(ours, waiters);
        goals.push(Goal {
            what: format!("memory per waiter at {}", whole(waiters as f64)),
            wanted: "under 4 KiB".into(),
            found: found.map(|spread| (bytes(spread.median), spread.median < 4096.0)),
        });
    }
    goals
}

fn at_most(what: &str, ratio: Option<f64>, bound: f64) -> Goal {
    Goal {
        what: what.into(),
        wanted: format!("at most {}", three(bound)),
        found: ratio.map(|ratio| (three(ratio), ratio <= bound)),
    }
}

fn at_least(what: &str, ratio: Option<f64>, bound: f64) -> Goal {
    Goal {
        what: what.into(),
        wanted: format!("at least {}", three(bound)),
        found: ratio.map(|ratio| (three(ratio), ratio >= bound)),
    }
}

fn twenty_thousand(results: &Results) -> Goal {
    let row = Row::HandOver { waiters: 20_000 };
    let done = results.spread(row, Peer::Lockkeeper);
    let tried = results.outcomes(row, Peer::Lockkeeper).count();
    let done = done.map_or(0, |spread| spread.rounds);
    Goal {
        what: "20 000 waiters queued and handed over".into(),
        wanted: "all, each round".into(),
        found: (tried > 0).then(|| (format!("{done} of {tried} rounds"), done == tried)),
    }
}
