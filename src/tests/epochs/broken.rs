//! Each rule taken out: the search then finds a shortest way to what it forbids.
//!
//! So no rule can be dropped, or rot, without a test that says so.

use super::rules::{AfterDelete, Compared, Faults, Named, NewHistory, Pause, Rules, TICK};
use super::world::World;
use super::{Scenario, faults};
use crate::protocol::epoch::Reaping;

const TOGETHER: &str = "hold the lock together";
const REVIVED: &str = "has ended, and lives again";
const HEALTHY: &str = "sends its heartbeats and loses its session";
const TOKEN: &str = "gets no greater token";
const WEDGED: &str = "no goal is in reach";

/// States that such a search sees at most.
const MOST: usize = 1_000_000;

/// The scenario breaks what it must, and a shortest way to it is printed.
#[expect(clippy::print_stdout, reason = "the counterexample is its result")]
fn breaks(scenario: &Scenario<'_>, what: &str) {
    let name = scenario.name;
    // A token that repeats would be found before the second holder.
    let searched = match what {
        TOGETHER => scenario.search_from(World::excused, MOST),
        _ => scenario.search(MOST),
    };
    match searched {
        Ok(seen) => panic!("{name}: nothing in {} states", seen.states),
        Err(found) => {
            let steps = found.steps;
            assert!(found.why.contains(what), "{name}: {found}");
            println!("without a rule, {name}: {steps} steps\n{found}\n");
        }
    }
}

fn restart() -> Faults {
    Faults {
        restarts: 1,
        kept: 1,
        ..faults(1)
    }
}

fn promotion(cut_off: u8) -> Faults {
    Faults {
        promotions: 1,
        cut_off,
        ..faults(1)
    }
}

#[test]
fn rule_1_histories_are_compared_on_each_call() {
    let greeted = Rules {
        compared: Compared::AtGreeting,
        ..Rules::whole(0, 0)
    };
    let run = Rules {
        compared: Compared::Run,
        ..Rules::whole(0, 0)
    };
    let there_and_back = Faults {
        returns: 1,
        kept: 1,
        all: 2,
        ..promotion(0)
    };

    let name = "1, compared at the greeting only";
    breaks(
        &Scenario::new(
            name,
            greeted,
            Faults {
                kept: 1,
                ..promotion(0)
            },
        ),
        TOGETHER,
    );
    let name = "1, the run alone is compared";
    breaks(&Scenario::new(name, run, there_and_back), TOGETHER);
}

#[test]
fn rule_2_a_new_history_ends_sessions_and_lets_nobody_in_for_a_while() {
    let goes_on = Rules {
        new_history: NewHistory::GoesOn,
        ..Rules::whole(0, 0)
    };
    let of_first = Rules {
        pause: Pause::OfFirst,
        ..Rules::whole(0, 0)
    };

    breaks(
        &Scenario::new("2, sessions go on", goes_on, restart()),
        TOGETHER,
    );
    let name = "2, the pause is the first client's timeout";
    let scenario = Scenario::new(name, of_first, restart());
    breaks(&scenario.of(&[(5, 1), (3, 1)]), TOGETHER);
    let name = "2, one tick less than the longest timeout";
    breaks(
        &Scenario::new(name, Rules::whole(0, -1), restart()),
        TOGETHER,
    );
}

#[test]
fn rule_2_a_pause_that_is_one_tick_shorter_lets_a_second_holder_in() {
    for cut_off in 1..=3_u8 {
        let name = format!(
            "2, a pause of {} ticks where the old primary answers {cut_off}",
            4 + cut_off
        );
        let less = Rules {
            margin: (i32::from(cut_off) - 1) * TICK,
            ..Rules::whole(0, 0)
        };
        breaks(&Scenario::new(&name, less, promotion(cut_off)), TOGETHER);
    }
    let stepped = Faults {
        steps: 1,
        forward: 1,
        all: 2,
        ..restart()
    };
    let name = "2, no margin where the clock steps by 1 tick";
    breaks(&Scenario::new(name, Rules::whole(0, 0), stepped), TOGETHER);
}

#[test]
fn rule_3_a_store_without_meta_lets_nobody_in_for_a_while() {
    let trusting = Rules {
        trusts_uptime: true,
        ..Rules::whole(0, 0)
    };
    let flushed = Faults {
        flushes: 1,
        ..faults(1)
    };
    let emptied = Faults {
        emptied: 1,
        ..faults(1)
    };

    let name = "3, all data is removed, and the uptime is trusted";
    breaks(&Scenario::new(name, trusting.clone(), flushed), TOGETHER);
    let name = "3, an empty replica is promoted, and its uptime is trusted";
    breaks(&Scenario::new(name, trusting, emptied), TOGETHER);
}

#[test]
fn rule_4_deadlines_are_extended_only_where_all_is_durable() {
    let extends = Rules {
        new_history: NewHistory::ExtendsDeadlines,
        ..Rules::whole(0, 0)
    };

    let name = "4, extended, and a suffix is lost";
    breaks(&Scenario::new(name, extends, restart()), TOGETHER);
}

#[test]
fn rule_5_a_session_is_ended_at_a_second_sight_some_time_later() {
    let stepped = |steps, forward| Faults {
        steps,
        forward,
        ..faults(steps)
    };
    let (both, short) = ([(10, 1), (10, 1)], [(5, 1), (5, 1)]);
    let healthy = |pause| Rules {
        heartbeat: Some(TICK),
        reap_pause: Some(pause),
        ..Rules::whole(0, 0)
    };
    let strict = Rules {
        reaping: Reaping::Strict,
        ..Rules::whole(0, 0)
    };
    let less = Rules {
        reap_pause: Some(4 * TICK),
        ..Rules::whole(0, 0)
    };

    let usual = Rules::whole(0, 0);
    for (name, rules, faults, clients, what) in [
        (
            "5, a step ends at first sight",
            healthy(0),
            stepped(1, 10),
            &both,
            HEALTHY,
        ),
        (
            "5, d is a heartbeat's interval",
            healthy(TICK),
            stepped(1, 10),
            &both,
            HEALTHY,
        ),
        (
            "5, usual, a step by four tenths",
            usual,
            stepped(1, 4),
            &both,
            TOGETHER,
        ),
        (
            "5, d is a tick too short",
            less,
            stepped(1, 6),
            &short,
            TOGETHER,
        ),
        (
            "5, strict, two steps",
            strict,
            stepped(2, 6),
            &short,
            TOGETHER,
        ),
    ] {
        breaks(&Scenario::new(name, rules, faults).of(clients), what);
    }
}

#[test]
fn rule_6_what_is_late_does_nothing() {
    let late = Faults {
        unanswered: 1,
        collected: 1,
        ..faults(2)
    };
    let same_id = Rules {
        has_new_ids: false,
        ..Rules::whole(0, 0)
    };
    let by_number = Rules {
        deletes_name: Named::Number,
        ..Rules::whole(0, 0)
    };
    let goes_on = Rules {
        after_delete: AfterDelete::GoOn,
        ..Rules::whole(0, 0)
    };

    let name = "6, an attach is tried again under its id";
    breaks(&Scenario::new(name, same_id, late.clone()), REVIVED);
    let name = "6, deletes name a number and no owner";
    let scenario = Scenario::new(name, by_number, late.clone());
    breaks(&scenario.of(&[(5, 2), (5, 1)]), TOGETHER);
    let name = "6, the session goes on after an unanswered delete";
    let scenario = Scenario::new(name, goes_on, late.clone());
    breaks(&scenario.of(&[(5, 2), (5, 1)]), TOGETHER);
    let copied = Rules {
        deletes_name: Named::Number,
        ..Rules::of_redis(0, 0)
    };
    let name = "6, on Redis, deletes name a number, and one arrives twice";
    breaks(
        &Scenario::new(name, copied, late).of(&[(3, 1), (3, 1)]),
        TOGETHER,
    );
}

#[test]
fn rule_7_no_token_rises_surely_after_the_loss_of_all_data() {
    let unexcused = Rules {
        excuses_loss: false,
        ..Rules::whole(0, 0)
    };
    let flushed = Faults {
        flushes: 1,
        ..faults(1)
    };
    let back = Faults {
        steps: 1,
        backward: 4,
        all: 2,
        ..flushed.clone()
    };

    let name = "7, tokens ran ahead of the clock";
    let ahead = Scenario::new(name, unexcused.clone(), flushed);
    breaks(&ahead.from(|world| world.ahead(20 * TICK)), TOKEN);
    let name = "7, the clock went back";
    breaks(
        &Scenario::new(name, unexcused, back).of(&[(3, 1), (3, 1)]),
        TOKEN,
    );
}

#[test]
fn a_pause_that_begins_again_with_each_client_wedges_the_store() {
    let endless = Rules {
        pause: Pause::Endless,
        ..Rules::whole(0, 0)
    };

    let scenario = Scenario::new("an endless pause", endless, faults(0));
    breaks(&scenario.from(World::fresh), WEDGED);
}
