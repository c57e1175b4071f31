//! TODO
mod action;
mod broken;
mod client;
mod normal;
mod rules;
mod steps;
mod store;
mod world;

use std::hash::{Hash, Hasher};

use action::{Action, shown, words};
use client::Stage;
use rules::{Faults, Ms, NewHistory, ReadsFrom, Rules, TICK};
use world::World;

use crate::protocol::epoch::Reaping;
use crate::tests::fingerprint::fingerprint;
use crate::tests::search::{Counterexample, Model, Seen, search};

impl Hash for World {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.primary, &self.old, &self.kept, &self.clients).hash(state);
        (&self.late, &self.faults, self.run_before, self.token).hash(state);
        (self.is_excused, &self.ended).hash(state);
    }
}

impl Model for World {
    type Action = Action;

    const IS_ENDLESS: bool = true;

    fn actions(&self) -> Vec<Action> {
        self.possible()
    }

    fn after(&self, action: Action) -> Result<Option<Self>, String> {
        if let (Action::Tick, Some(heartbeat)) = (action, self.rules.heartbeat) {
            // Nobody who is healthy is silent for longer.
            let is_due =
                |client: &client::Client| client.caller.is_some() && client.silent >= heartbeat;
            if self.clients.iter().any(is_due) {
                return Ok(None);
            }
        }
        let mut after = self.clone();
        after.act(action)?;
        after.normalise();
        Ok(Some(after))
    }

    fn is_progress(_: Action) -> bool {
        true
    }

    fn at_rest(&self) -> Result<(), String> {
        Ok(())
    }

    fn is_goal(&self) -> bool {
        self.clients
            .iter()
            .all(|client| client.stage == Stage::Done)
    }

    fn fingerprint(&self) -> u128 {
        fingerprint(self)
    }

    fn tell(&self, action: Action, after: Option<&Self>) -> String {
        let words = words(self, action);
        let Some(after) = after else { return words };
        let clients: Vec<String> = after.clients.iter().map(shown).collect();
        format!("{words:54} | {}", clients.join(" | "))
    }
}

/// A scenario: a name, the rules, the clients with their timeouts and turns, and the faults.
struct Scenario<'a> {
    name: &'a str,
    rules: Rules,
    clients: &'a [(Ms, u8)],
    faults: Faults,
    start: fn(World) -> World,
}

impl<'a> Scenario<'a> {
    fn new(name: &'a str, rules: Rules, faults: Faults) -> Self {
        Self {
            name,
            rules,
            clients: &[(5, 1), (5, 1)],
            faults,
            start: |world| world,
        }
    }

    fn of(self, clients: &'a [(Ms, u8)]) -> Self {
        Self { clients, ..self }
    }

    fn from(self, start: fn(World) -> World) -> Self {
        Self { start, ..self }
    }

    fn search(&self, most: usize) -> Result<Seen, Counterexample> {
        self.search_from(|world| world, most)
    }

    fn search_from(&self, before: fn(World) -> World, most: usize) -> Result<Seen, Counterexample> {
        let start = || {
            let world = World::new(self.rules.clone(), self.clients, self.faults.clone());
            (self.start)(before(world))
        };
        search(start, most)
    }
}

/// Nothing befalls the world, but for what is added; so many faults together.
fn faults(all: u8) -> Faults {
    Faults {
        all,
        ..Faults::default()
    }
}

fn is_long() -> bool {
    std::env::var("LOCKKEEPER_SOAK").is_ok_and(|word| word == "1")
}

/// Searches each scenario to its end, and prints what was seen: at least so many states, and no
/// violation.
#[expect(clippy::print_stdout, reason = "how far a search went is its result")]
fn exhaust(least: usize, scenarios: Vec<Scenario<'_>>) {
    let mut all = 0;
    for scenario in scenarios {
        let name = scenario.name;
        let begun = std::time::Instant::now();
        match scenario.search(20_000_000) {
            Ok(Seen {
                states,
                transitions,
                depth,
            }) => {
                println!(
                    "{name}: {states} states, {transitions} transitions, max depth {depth}, 0 violations {:?}",
                    begun.elapsed()
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
    exhaust(
        1,
        vec![
            Scenario::new("nothing fails", Rules::whole(0, 0), faults(0)).of(&[(5, 2), (5, 1)]),
            Scenario::new(
                "a request without an answer",
                Rules::whole(0, 0),
                unanswered.clone(),
            ),
            Scenario::new("the same on Redis", Rules::of_redis(0, 0), unanswered),
            Scenario::new("numbers begin again", Rules::whole(0, 0), collected.clone()),
            Scenario::new("the same on Redis", Rules::of_redis(0, 0), collected),
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
    let flushed = Faults {
        flushes: 1,
        ..faults(1)
    };
    let durable = Rules {
        is_durable: true,
        new_history: NewHistory::ExtendsThem,
        ..Rules::whole(0, 0)
    };
    exhaust(
        1,
        vec![
            Scenario::new(
                "a restart that loses a suffix",
                Rules::whole(0, 0),
                lossy.clone(),
            ),
            Scenario::new("a durable restart extends sessions", durable, lossy),
            Scenario::new("all data is removed", Rules::whole(0, 0), flushed),
            Scenario::new("a fresh store", Rules::whole(0, 0), faults(0)).from(World::fresh),
        ],
    );
}

#[test]
fn two_never_hold_through_a_promotion() {
    let promoted = Faults {
        promotions: 1,
        emptied: 1,
        returns: 1,
        cut_off: 1,
        ..faults(1)
    };
    exhaust(
        1,
        vec![Scenario::new(
            "a promotion",
            Rules::whole(1, 0),
            promoted.clone(),
        )],
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
    let strict = Rules {
        reaping: Reaping::Strict,
        ..Rules::whole(0, 0)
    };
    let healthy = Rules {
        heartbeat: Some(TICK),
        ..Rules::whole(0, 0)
    };
    exhaust(
        1,
        vec![
            Scenario::new(
                "a step by three tenths of a timeout",
                Rules::whole(0, 0),
                stepped(3, 2),
            )
            .of(&[(10, 1), (10, 1)]),
            Scenario::new(
                "strictly, a step by more than a timeout",
                strict,
                stepped(6, 0),
            ),
            Scenario::new(
                "healthy clients, a step by more than a timeout",
                healthy,
                stepped(12, 2),
            )
            .of(&[(10, 1), (10, 1)]),
        ],
    );
}

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
    exhaust(
        1,
        vec![Scenario::new("reads from a replica", replica, kept)],
    );
}
