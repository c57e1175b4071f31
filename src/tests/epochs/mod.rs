//! Every interleaving of a few clients at a store that may lose what it has answered: restarts,
//! promotions, lost data, late requests, steps of the server's clock, silent clients.
//!
//! The clients join and leave by the real machines of `protocol/`, with the real lengths of
//! leases, pauses and margins. What the store does is Lua, or SQL, so it is written by hand in
//! `store.rs`. `holds.rs` searches to the end; `broken.rs` takes each rule out and asserts that the
//! search then finds what the rule forbids.
//!
//! Bounds: two clients that go in once or twice; each leaves one session behind at most; one fault,
//! or two; a lost suffix begins at one kept moment, or is all. A session timeout has 5 ticks, or
//! 10. What is judged: two never hold, tokens rise but after the loss of all data, a session that
//! has ended stays so, one step of a clock ends no healthy session, and from each state everybody
//! can still get what they want. `LOCKKEEPER_SOAK=1` searches with more faults together.

mod action;
mod broken;
mod client;
mod holds;
mod normal;
mod rules;
mod steps;
mod store;
mod world;

use std::hash::{Hash, Hasher};

use action::{Action, shown, words};
use client::Stage;
use rules::{Faults, Ms, Rules};
use world::World;

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
