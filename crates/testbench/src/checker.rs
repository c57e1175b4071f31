//! The checker of all histories: the invariants that a log must satisfy under any fault. (pure)
//!
//! Safety is here, liveness in `liveness`. Checked from the log: S1, S2, S2b, S3, S4, S5, S7, S9,
//! S10, S12 and L1 to L6 of the invariants. S1 is checked here by the order of confirmed releases
//! and by tokens, and by the servers' own transactions in `src/tests/storms/referee.rs`. S10 is
//! checked here as "an attempt that was given up is not granted later", and at each await in
//! `tests/recipes/cancel.rs`. Elsewhere: S6 and S11 with their recipes; S8 in `tests/cost`, by the
//! embedded server's counters; L6 in numbers in `tests/sessions/reconnect.rs`; S13 in
//! `crates/embedded/tests/differential.rs`.
//!
//! It never excuses a finding. If a history allows an exception, it says so with an event.

mod hold;
mod liveness;
mod sharing;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use self::hold::{Hold, holds};
pub use self::liveness::{Bounds, recovery, stays_alive};
use super::events::{Event, Nanos, Outcome, What};

/// A write that the store accepted, in the store's order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Accepted {
    pub lock: String,
    pub client: String,
    pub token: u64,
}

/// One recorded run.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// In the order of their time.
    pub events: Vec<Event>,
    pub accepted: Vec<Accepted>,
}

/// A violated invariant, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    pub id: &'static str,
    pub why: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.id, self.why)
    }
}

/// All violations but those of time limits.
pub fn violations(history: &History) -> Vec<Violation> {
    let mut found = Vec::new();
    for lock in locks(&history.events) {
        let events: Vec<&Event> = of_lock(&history.events, lock);
        let holds = holds(&events);
        let mut say = |id, why: String| {
            found.push(Violation {
                id,
                why: format!("{lock}: {why}"),
            });
        };
        exclusion(&holds, &events, &mut say);
        sharing::crowding(&holds, &mut say);
        honesty(&holds, &events, &mut say);
        order(&holds, &events, &mut say);
        tokens(&holds, &events, &mut say);
        releases(&holds, &events, &mut say);
        finality(&events, &mut say);
        rest(&events, &mut say);
    }
    found.extend(fencing(&history.accepted));
    found
}

/// Panics with all findings, if there are any.
#[track_caller]
pub fn assert_clean(found: &[Violation]) {
    let list: String = found.iter().map(|one| format!("\n  {one}")).collect();
    assert!(found.is_empty(), "{} violations:{list}", found.len());
}

fn locks(events: &[Event]) -> BTreeSet<&str> {
    events.iter().map(|event| event.lock.as_str()).collect()
}

fn of_lock<'a>(events: &'a [Event], lock: &str) -> Vec<&'a Event> {
    events.iter().filter(|event| event.lock == lock).collect()
}

/// S1: the lock is never granted while an earlier granted ticket is known to exist.
fn exclusion(holds: &[Hold<'_>], events: &[&Event], say: &mut impl FnMut(&'static str, String)) {
    for (place, one) in exclusive(holds).enumerate() {
        for other in exclusive(holds).skip(place + 1) {
            let is_second = other.granted < one.surely_until && other.token != one.token;
            if other.held && is_second && !is_revoked(other.token, other.granted, events) {
                say(
                    "S1",
                    format!(
                        "{} got it with token {} while {} held it with token {}, whose release came later and was done",
                        other.client, other.token, one.client, one.token
                    ),
                );
            }
        }
    }
}

fn exclusive<'a, 'e>(holds: &'a [Hold<'e>]) -> impl Iterator<Item = &'a Hold<'e>> {
    holds.iter().filter(|hold| hold.is_of_an_exclusive_lock())
}

/// S2: the store never accepts a token after a higher one.
fn fencing(accepted: &[Accepted]) -> Vec<Violation> {
    let mut highest: BTreeMap<&str, &Accepted> = BTreeMap::new();
    let mut found = Vec::new();
    for write in accepted {
        match highest.get(write.lock.as_str()) {
            Some(high) if high.token > write.token => found.push(Violation {
                id: "S2",
                why: format!(
                    "{}: the store accepted token {} of {} after token {} of {}",
                    write.lock, write.token, write.client, high.token, high.client
                ),
            }),
            _ => drop(highest.insert(&write.lock, write)),
        }
    }
    found
}

/// S2b: no guard says that it is held after a later ticket was granted, unless the servers ended a
/// session early.
fn honesty(holds: &[Hold<'_>], events: &[&Event], say: &mut impl FnMut(&'static str, String)) {
    for event in events {
        let (token, how) = match &event.what {
            What::HeldSeen {
                token, held: true, ..
            } => (*token, "said that it is held"),
            What::Granted {
                token, held: true, ..
            } => (*token, "was given a guard that said that it is held"),
            _ => continue,
        };
        if is_revoked(token, event.t_ns, events) {
            continue;
        }
        let successor = exclusive(holds)
            .find(|hold| hold.token > token && hold.held && hold.granted < event.t_ns);
        if let Some(next) = successor {
            say(
                "S2b",
                format!(
                    "{} {how}, with token {token}, {:?} after {} was granted token {}",
                    event.client,
                    std::time::Duration::from_nanos(event.t_ns - next.granted),
                    next.client,
                    next.token
                ),
            );
        }
    }
}

/// Whether the servers ended the session of this ticket early, and its owner need not know yet.
fn is_revoked(token: u64, now: Nanos, events: &[&Event]) -> bool {
    events.iter().any(|event| match &event.what {
        What::Revoked { tokens, within_ns } => {
            tokens.contains(&token) && now <= event.t_ns + within_ns
        }
        _ => false,
    })
}

/// S3: grants follow the order of the tickets. A call that was queued before another one began
/// comes before it.
fn order(holds: &[Hold<'_>], events: &[&Event], say: &mut impl FnMut(&'static str, String)) {
    let is_in_time = |hold: &&Hold<'_>| hold.held && !is_revoked(hold.token, hold.granted, events);
    let in_time: Vec<&Hold<'_>> = exclusive(holds).filter(is_in_time).collect();
    for pair in in_time.windows(2) {
        if pair[1].token < pair[0].token {
            say(
                "S3",
                format!(
                    "token {} of {} was granted after token {} of {}",
                    pair[1].token, pair[1].client, pair[0].token, pair[0].client
                ),
            );
        }
    }
    let when = |hold: &Hold<'_>, is: fn(&What, u64) -> bool| {
        let mut theirs = events.iter().filter(|event| event.client == hold.client);
        theirs
            .find(|event| is(&event.what, hold.attempt))
            .map(|event| event.t_ns)
    };
    let queued = |what: &What, of| matches!(what, What::Queued { attempt } if *attempt == of);
    let asked = |what: &What, of| matches!(what, What::Asked { attempt, .. } if *attempt == of);
    for one in holds {
        let Some(queued) = when(one, queued) else {
            continue;
        };
        for other in holds {
            let later = when(other, asked).is_some_and(|asked| asked > queued);
            if later && other.token < one.token {
                say(
                    "S3",
                    format!(
                        "{} was queued before {} asked, and has the higher token {} > {}",
                        one.client, other.client, one.token, other.token
                    ),
                );
            }
        }
    }
}

/// S4: a token is granted once, and a call that begins after a grant gets a higher token.
fn tokens(holds: &[Hold<'_>], events: &[&Event], say: &mut impl FnMut(&'static str, String)) {
    let mut seen = BTreeMap::new();
    for hold in holds {
        if let Some(before) = seen.insert(hold.token, hold.client) {
            say(
                "S4",
                format!(
                    "token {} was granted to {before} and to {}",
                    hold.token, hold.client
                ),
            );
        }
    }
    let asked = events.iter().filter_map(|event| match event.what {
        What::Asked { attempt, .. } => Some(((event.client.as_str(), attempt), event.t_ns)),
        _ => None,
    });
    let asked: BTreeMap<(&str, u64), Nanos> = asked.collect();
    // The highest token so far, by the time of its grant: holds are in that order.
    for hold in exclusive(holds) {
        let Some(asked) = asked.get(&(hold.client, hold.attempt)) else {
            continue;
        };
        let before = exclusive(holds).take_while(|one| one.granted < *asked);
        if let Some(high) = before.max_by_key(|one| one.token) {
            if high.token >= hold.token {
                say(
                    "S4",
                    format!(
                        "{} asked after token {} was granted, and got token {}",
                        hold.client, high.token, hold.token
                    ),
                );
            }
        }
    }
}

/// S9: a hold is released once, by its owner. S10: an attempt that was given up is never granted.
fn releases(holds: &[Hold<'_>], events: &[&Event], say: &mut impl FnMut(&'static str, String)) {
    let mut done = BTreeSet::new();
    let mut given_up = BTreeSet::new();
    for event in events {
        let client = event.client.as_str();
        match &event.what {
            What::Released {
                token,
                outcome: Outcome::Done,
            } => {
                if !holds
                    .iter()
                    .any(|hold| hold.token == *token && hold.client == client)
                {
                    say(
                        "S9",
                        format!("{client} released token {token} of somebody else"),
                    );
                }
                if !done.insert(*token) {
                    say("S9", format!("token {token} was released twice"));
                }
            }
            What::Cancelled { attempt } | What::Failed { attempt, .. } => {
                given_up.insert((client, *attempt));
            }
            What::Granted { attempt, token, .. } if given_up.contains(&(client, *attempt)) => say(
                "S10",
                format!("{client} gave up attempt {attempt} and was granted token {token}"),
            ),
            _ => {}
        }
    }
}

/// S12: a hold that was lost stays lost, for its owner and for the store.
fn finality(events: &[&Event], say: &mut impl FnMut(&'static str, String)) {
    let mut lost = BTreeSet::new();
    for event in events {
        let client = event.client.as_str();
        match &event.what {
            What::Lost { token }
            | What::HeldSeen {
                token, held: false, ..
            }
            | What::Released {
                token,
                outcome: Outcome::Lost | Outcome::Done,
            } => {
                lost.insert((client, *token));
            }
            What::HeldSeen {
                token, held: true, ..
            } if lost.contains(&(client, *token)) => say(
                "S12",
                format!("{client} said that token {token} is held, which it had lost or released"),
            ),
            _ => {}
        }
    }
}

/// S5: at rest every ticket belongs to a guard or a waiter. S7: watches are as before.
fn rest(events: &[&Event], say: &mut impl FnMut(&'static str, String)) {
    for event in events {
        match event.what {
            What::Rest { tickets, live } if tickets != live => {
                say(
                    "S5",
                    format!("{tickets} tickets of {live} guards and waiters"),
                );
            }
            What::Watches { before, after } if before != after => {
                say("S7", format!("{before} watches before and {after} after"));
            }
            _ => {}
        }
    }
}
