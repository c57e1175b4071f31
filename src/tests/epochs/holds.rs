//! All rules together: nothing is broken in any state that can be reached.

use super::rules::{Faults, NewHistory, ReadsFrom, Rules, TICK};
use super::world::World;
use super::{Scenario, faults};
use crate::protocol::epoch::Reaping;
use crate::tests::search::Seen;

const LONG: [(i32, u8); 2] = [(10, 1), (10, 1)];
const SHORT: [(i32, u8); 2] = [(4, 1), (4, 1)];

fn is_long() -> bool {
    std::env::var("LOCKKEEPER_SOAK").is_ok_and(|word| word == "1")
}

/// Searches each scenario to its end, the later ones only in a soak, and prints what was seen,
/// which must be at least so many states.
#[expect(clippy::print_stdout, reason = "how far a search went is its result")]
fn exhaust(least: usize, scenarios: Vec<Scenario<'_>>, long: Vec<Scenario<'_>>) {
    let long = long.into_iter().filter(|_| is_long());
    let mut all = 0;
    for scenario in scenarios.into_iter().chain(long) {
        let name = scenario.name;
        match scenario.search(50_000_000) {
            Ok(Seen {
                states,
                transitions,
                depth,
            }) => {
                println!(
                    "epochs: {name}: {states} states, {transitions} transitions, max depth {depth}, 0 violations"
                );
                all += states;
            }
            Err(why) => panic!("{name}: {} steps\n{why}", why.steps),
        }
    }
    assert!(all >= least, "only {all} states");
}

#[test]
fn two_never_hold_whatever_has_no_answer() {
    let unanswered = Faults {
        unanswered: 1,
        ..faults(1)
    };
    let collected = Faults {
        collected: 1,
        all: 2,
        ..unanswered.clone()
    };
    let (whole, redis) = (Rules::whole(0, 0), Rules::of_redis(0, 0));

    exhaust(
        200_000,
        vec![
            Scenario::new("nothing fails", whole.clone(), faults(0)).of(&[(5, 2), (5, 1)]),
            Scenario::new("one has no answer", whole.clone(), unanswered.clone()),
            Scenario::new("one has no answer, on Redis", redis.clone(), unanswered),
        ],
        vec![
            Scenario::new("numbers begin again", whole, collected.clone()),
            Scenario::new("numbers begin again, on Redis", redis, collected),
        ],
    );
}

#[test]
fn two_never_hold_through_a_restart() {
    let lossy = Faults {
        restarts: 1,
        kept: 1,
        ..faults(1)
    };
    let stepped = Faults {
        steps: 1,
        forward: 1,
        backward: 1,
        all: 2,
        ..lossy.clone()
    };
    let durable = Rules {
        is_durable: true,
        new_history: NewHistory::ExtendsDeadlines,
        ..Rules::whole(0, 0)
    };
    let whole = Rules::whole(0, 0);

    exhaust(
        300_000,
        vec![
            Scenario::new("a restart loses a suffix", whole.clone(), lossy.clone()),
            Scenario::new("a durable restart extends sessions", durable, lossy),
            Scenario::new("a fresh store", whole, faults(0)).from(World::fresh),
        ],
        vec![Scenario::new(
            "a restart and a step of the clock",
            Rules::whole(0, 1),
            stepped,
        )],
    );
}

#[test]
fn two_never_hold_through_a_promotion_or_the_loss_of_all_data() {
    let promoted = |cut_off, kept| Faults {
        promotions: 1,
        emptied: 1,
        cut_off,
        kept,
        ..faults(1)
    };
    let flushed = Faults {
        flushes: 1,
        ..faults(1)
    };
    let there_and_back = Faults {
        returns: 1,
        all: 2,
        ..promoted(0, 0)
    };

    exhaust(
        100_000,
        vec![
            Scenario::new("a promotion", Rules::whole(1, 0), promoted(1, 0)),
            Scenario::new("all data is removed", Rules::whole(0, 0), flushed),
        ],
        vec![
            Scenario::new("promoted and back", Rules::whole(0, 0), there_and_back),
            Scenario::new("a lagging replica", Rules::whole(1, 0), promoted(1, 1)),
            Scenario::new(
                "an old primary for 2 ticks",
                Rules::whole(2, 0),
                promoted(2, 0),
            ),
            Scenario::new(
                "an old primary for 3 ticks",
                Rules::whole(3, 0),
                promoted(3, 0),
            ),
        ],
    );
}

#[test]
fn two_never_hold_when_a_clock_steps() {
    let stepped = |forward, backward| Faults {
        steps: 1,
        forward,
        backward,
        ..faults(1)
    };
    let strict = || Rules {
        reaping: Reaping::Strict,
        ..Rules::whole(0, 0)
    };
    let healthy = Rules {
        heartbeat: Some(TICK),
        ..Rules::whole(0, 0)
    };
    let usual = Rules::whole(0, 0);

    exhaust(
        300_000,
        vec![
            Scenario::new("a step by 0.3 of a timeout", usual, stepped(3, 0)).of(&LONG),
            Scenario::new("strictly, a step by 1.25 timeouts", strict(), stepped(5, 0)).of(&SHORT),
            Scenario::new("a step, and all healthy", healthy, stepped(12, 2)).of(&LONG),
        ],
        vec![Scenario::new("strictly, and longer", strict(), stepped(12, 2)).of(&LONG)],
    );
}

/// Rule 8: the search forbids no such grant, and proves none in a world with faults.
#[test]
fn no_grant_from_a_lagging_replica_is_wrong_without_a_fault() {
    let replica = Rules {
        reads_from: ReadsFrom::Replica,
        ..Rules::whole(0, 0)
    };
    let kept = Faults {
        kept: 1,
        ..faults(0)
    };

    let scenario = Scenario::new("reads from a replica", replica, kept).of(&SHORT);
    exhaust(10_000, vec![scenario], Vec::new());
}
