//! The liveness checks: a client that can proceed does so within a bound. (pure)
//!
//! Time runs only while no fault is active. Between a fault and its heal, calls must only end in
//! time.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::{History, Violation, locks, of_lock};
use crate::events::{Event, Nanos, Outcome, What};

/// The time bounds.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// L1: from a free lock with a waiter, without a fault, to the next grant. The ticket of a
    /// killed client or of a lost hold stays until its session expires. A case adds that time to
    /// its own bound.
    pub grant: Duration,
    /// L2: from the begin of a release without a fault to its end.
    pub release: Duration,
    /// L3: how far a call may exceed its time limit.
    pub call: Duration,
    /// L4: from the end of the lease to the notice.
    pub notice: Duration,
}

impl Bounds {
    /// The same bound for grants, releases and notices; calls end within 100 ms of their limit.
    pub fn within(bound: Duration) -> Self {
        Self {
            grant: bound,
            release: bound,
            call: Duration::from_millis(100),
            notice: bound,
        }
    }
}

/// Everything that took too long (L1 to L4).
pub fn stays_alive(history: &History, bounds: &Bounds) -> Vec<Violation> {
    let mut found = Vec::new();
    for lock in locks(&history.events) {
        let events = of_lock(&history.events, lock);
        let mut say = |id, why: String| {
            found.push(Violation {
                id,
                why: format!("{lock}: {why}"),
            });
        };
        grants(&events, bounds.grant, &mut say);
        releases(&events, bounds.release, &mut say);
        calls(&events, bounds.call, &mut say);
        notices(&events, bounds.notice, &mut say);
    }
    found
}

/// The checks of a run without faults, or after its heal: L5 and L6.
pub fn recovery(history: &History, within: Option<Duration>) -> Vec<Violation> {
    let mut found = Vec::new();
    let mut healed = None;
    for event in &history.events {
        match &event.what {
            What::Lost { token } if within.is_none() => found.push(Violation {
                id: "L5",
                why: format!("{} lost token {token} in a healthy world", event.client),
            }),
            What::HeldSeen {
                token, held: false, ..
            } if within.is_none() => found.push(Violation {
                id: "L5",
                why: format!(
                    "{} does not hold token {token} in a healthy world",
                    event.client
                ),
            }),
            What::Healed => healed = Some(event.t_ns),
            What::Fault { .. } => healed = None,
            What::Granted { .. }
            | What::Released {
                outcome: Outcome::Done,
                ..
            } => {
                let took = healed.take().map(|healed| nanos(event.t_ns - healed));
                if let (Some(took), Some(within)) = (took, within) {
                    if took > within {
                        found.push(Violation {
                            id: "L6",
                            why: format!("the first answer came {took:?} after the heal"),
                        });
                    }
                }
            }
            _ => {}
        }
    }
    found
}

fn nanos(count: Nanos) -> Duration {
    Duration::from_nanos(count)
}

/// The times when the machine kept each client from running. They excuse no wrong answer, only a
/// late one, and by no more than was measured.
struct Stalls<'a>(Vec<(&'a str, Nanos, Nanos)>);

impl<'a> Stalls<'a> {
    fn of(events: &[&'a Event]) -> Self {
        let stalls = events.iter().filter_map(|event| match event.what {
            What::Stalled { for_ns } => Some((
                event.client.as_str(),
                event.t_ns.saturating_sub(for_ns),
                event.t_ns,
            )),
            _ => None,
        });
        Self(stalls.collect())
    }

    /// How long this client could run between these moments.
    fn ran(&self, client: &str, from: Nanos, to: Nanos) -> Duration {
        let theirs = self.0.iter().filter(|(whose, ..)| *whose == client);
        let stalled: Nanos = theirs
            .map(|(_, began, ended)| ended.min(&to).saturating_sub(*began.max(&from)))
            .sum();
        nanos(to.saturating_sub(from).saturating_sub(stalled))
    }
}

/// The waiters and holders, over time.
#[derive(Default)]
struct Scene<'a> {
    waiting: BTreeSet<(&'a str, u64)>,
    holding: BTreeSet<(&'a str, u64)>,
    stopped: BTreeSet<&'a str>,
    is_hurt: bool,
}

impl<'a> Scene<'a> {
    fn see(&mut self, event: &'a Event) {
        let client = event.client.as_str();
        match &event.what {
            What::Asked { attempt, .. } => drop(self.waiting.insert((client, *attempt))),
            What::Granted { attempt, token, .. } => {
                self.waiting.remove(&(client, *attempt));
                self.holding.insert((client, *token));
            }
            What::Failed { attempt, .. } | What::Cancelled { attempt } => {
                self.waiting.remove(&(client, *attempt));
            }
            What::Lost { token } | What::Released { token, .. } => {
                self.holding.remove(&(client, *token));
            }
            What::Stopped => drop(self.stopped.insert(client)),
            What::Continued => drop(self.stopped.remove(client)),
            What::Killed => {
                self.waiting.retain(|(name, _)| *name != client);
                self.holding.retain(|(name, _)| *name != client);
                self.stopped.remove(client);
            }
            What::Fault { .. } => self.is_hurt = true,
            What::Healed => self.is_hurt = false,
            _ => {}
        }
    }

    /// Whether a waiter should be granted the lock soon.
    fn is_due(&self) -> bool {
        let can_act = |(client, _): &(&str, u64)| !self.stopped.contains(client);
        !self.is_hurt && self.holding.is_empty() && self.waiting.iter().any(can_act)
    }
}

/// L1: without a fault, a free lock with a waiter is granted.
fn grants(events: &[&Event], bound: Duration, say: &mut impl FnMut(&'static str, String)) {
    let mut scene = Scene::default();
    let mut due: Option<Nanos> = None;
    for event in events {
        let late = due
            .map(|since| nanos(event.t_ns - since))
            .filter(|late| *late > bound);
        if let Some(late) = late {
            say("L1", format!("free, and nobody was let in for {late:?}"));
            due = None;
        }
        scene.see(event);
        due = match (scene.is_due(), &event.what) {
            (false, _) => None,
            (true, What::Granted { .. } | What::Healed) => Some(event.t_ns),
            (true, _) => due.or(Some(event.t_ns)),
        };
    }
}

/// L2: without a fault, a release ends.
fn releases(events: &[&Event], bound: Duration, say: &mut impl FnMut(&'static str, String)) {
    let mut open: BTreeMap<(&str, u64), Nanos> = BTreeMap::new();
    let mut is_hurt = false;
    for event in events {
        let client = event.client.as_str();
        match &event.what {
            What::Fault { .. } => is_hurt = true,
            What::Healed | What::Continued => {
                is_hurt &= event.what != What::Healed;
                open.values_mut().for_each(|since| *since = event.t_ns);
            }
            What::Killed => open.retain(|(name, _), _| *name != client),
            What::Releasing { token } => drop(open.insert((client, *token), event.t_ns)),
            What::Released { token, .. } => {
                let began = open.remove(&(client, *token));
                let took = began.map(|since| nanos(event.t_ns - since));
                if let Some(took) = took.filter(|took| *took > bound && !is_hurt) {
                    say(
                        "L2",
                        format!("{client} took {took:?} to release token {token}"),
                    );
                }
            }
            _ => {}
        }
    }
    let end = events.last().map_or(0, |event| event.t_ns);
    for ((client, token), since) in open {
        if !is_hurt && nanos(end - since) > bound {
            say(
                "L2",
                format!("the release of token {token} by {client} never ended"),
            );
        }
    }
}

/// L3: a call with a time limit ends within it, under any fault. Time for which its process was
/// stopped does not count.
fn calls(events: &[&Event], slack: Duration, say: &mut impl FnMut(&'static str, String)) {
    let stalls = Stalls::of(events);
    let mut open: BTreeMap<(&str, u64), Nanos> = BTreeMap::new();
    for event in events {
        let client = event.client.as_str();
        match &event.what {
            What::Asked {
                attempt,
                within_ns: Some(within),
            } => drop(open.insert((client, *attempt), event.t_ns + within)),
            What::Stopped | What::Killed => open.retain(|(name, _), _| *name != client),
            What::Granted { attempt, .. }
            | What::Failed { attempt, .. }
            | What::Cancelled { attempt } => {
                let limit = open.remove(&(client, *attempt));
                let late = limit.map(|limit| stalls.ran(client, limit, event.t_ns));
                if let Some(late) = late.filter(|late| *late > slack) {
                    say(
                        "L3",
                        format!("attempt {attempt} of {client} ended {late:?} late"),
                    );
                }
            }
            _ => {}
        }
    }
    let end = events.last().map_or(0, |event| event.t_ns);
    for ((client, attempt), limit) in open {
        if stalls.ran(client, limit, end) > slack {
            say("L3", format!("attempt {attempt} of {client} never ended"));
        }
    }
}

/// L4: the notice of a loss comes soon after the end of the lease that the guard last reported, or
/// soon after its process continues.
fn notices(events: &[&Event], slack: Duration, say: &mut impl FnMut(&'static str, String)) {
    let stalls = Stalls::of(events);
    let mut leases: BTreeMap<(&str, u64), Nanos> = BTreeMap::new();
    let mut went_on: BTreeMap<&str, Nanos> = BTreeMap::new();
    let mut stopped: BTreeSet<&str> = BTreeSet::new();
    let late = |end: Nanos, client: &str, now: Nanos, went_on: &BTreeMap<&str, Nanos>| {
        let from = end.max(went_on.get(client).copied().unwrap_or(0));
        Some(stalls.ran(client, from, now)).filter(|late| *late > slack)
    };
    for event in events {
        let client = event.client.as_str();
        match &event.what {
            What::Stopped => drop(stopped.insert(client)),
            What::Continued => {
                stopped.remove(client);
                went_on.insert(client, event.t_ns);
            }
            What::Killed => leases.retain(|(name, _), _| *name != client),
            What::HeldSeen {
                token,
                held: true,
                until_ns: Some(until),
            } => {
                let lease = leases.entry((client, *token)).or_default();
                *lease = (*lease).max(*until);
            }
            // From here on a beat renews it without a look. The end of a release has its own bound.
            What::Releasing { token } => {
                leases.retain(|key, end| *key != (client, *token) || *end <= event.t_ns)
            }
            What::Released { token, .. } => drop(leases.remove(&(client, *token))),
            What::Lost { token } => {
                let end = leases.remove(&(client, *token));
                if let Some(late) = end.and_then(|end| late(end, client, event.t_ns, &went_on)) {
                    say(
                        "L4",
                        format!("{client} was told {late:?} late that it lost token {token}"),
                    );
                }
            }
            _ => {}
        }
    }
    let now = events.last().map_or(0, |event| event.t_ns);
    for ((client, token), end) in leases {
        if !stopped.contains(client) && late(end, client, now, &went_on).is_some() {
            say(
                "L4",
                format!("{client} was never told that it lost token {token}"),
            );
        }
    }
}
