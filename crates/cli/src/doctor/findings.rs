//! What is wrong with locks, by two rounds of reading all queues. (pure)
//!
//! Invariant: what is wrong only if it is so at one moment was seen in both rounds.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use lockkeeper::{LockKind, QueueEntry, SessionId, Token};
use serde_json::{Value, json};

use super::circles::{self, Wait};
use super::sessions::Census;
use crate::process::Doing;

/// So many are compared with each one; and each with its neighbours.
const COMPARED: usize = 32;
/// So many owners of one queue are followed.
const OWNERS: usize = 300;
/// From this number on, of 2 147 483 647.
const HIGH_NUMBER: i64 = 1_900_000_000;

/// Something that is wrong.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    /// A word for what it is.
    pub(crate) what: &'static str,
    /// The locks that it is about.
    pub(crate) locks: Vec<String>,
    /// Whose fault it is, and what it means.
    pub(crate) why: String,
}

impl Finding {
    pub(crate) fn object(&self) -> Value {
        json!({ "finding": self.what, "locks": self.locks, "why": self.why })
    }
}

/// A lock and its queue.
pub(crate) type Queue = (String, Arc<Vec<QueueEntry>>);

/// All queues, read twice, and what was looked at in between.
pub(crate) struct Rounds<'a> {
    pub(crate) before: &'a [Queue],
    pub(crate) now: &'a [Queue],
    pub(crate) doing: &'a HashMap<Token, Doing>,
    /// None if it cannot be known.
    pub(crate) census: Option<&'a Census>,
    /// The most locks that a session may hold.
    pub(crate) many: usize,
}

impl Rounds<'_> {
    pub(crate) fn findings(&self) -> Vec<Finding> {
        let mut findings = Vec::new();
        for (name, queue) in self.now {
            findings.extend(processes(name, queue, self.doing));
            findings.extend(strangers(name, queue));
            findings.extend(numbers(name, queue));
        }
        findings.extend(deadlocks(self.before, self.now));
        findings.extend(crowded(self.before, self.now, self.many));
        // A ticket that is there before and after the sessions were counted has one, or should.
        let orphans = |census| orphans(self.before, self.now, census);
        findings.extend(self.census.map(orphans).unwrap_or_default());
        findings
    }
}

pub(crate) fn tickets(queues: &[Queue]) -> impl Iterator<Item = &QueueEntry> {
    queues.iter().flat_map(|(_, queue)| queue.iter())
}

/// Its node, and whose it is.
pub(crate) fn who(ticket: &QueueEntry) -> String {
    let mut who = ticket.node.clone();
    if let Some(label) = &ticket.label {
        who += &format!(" {label:?}");
    }
    if let (Some(host), Some(pid)) = (&ticket.host, ticket.pid) {
        who += &format!(" (process {pid} on {host})");
    }
    who
}

/// Processes of this host that cannot go on. They were looked at before the queue: a process that
/// is not in it any more has ended well.
fn processes(name: &str, queue: &[QueueEntry], doing: &HashMap<Token, Doing>) -> Vec<Finding> {
    let places = queue.iter().filter_map(|ticket| {
        let (what, state) = match doing.get(&ticket.token)? {
            Doing::Runs => return None,
            Doing::Stopped => ("paused", "is stopped"),
            Doing::Ended => ("dead", "has ended"),
        };
        let role = if ticket.is_holder { "holder" } else { "waiter" };
        Some(Finding {
            what,
            locks: vec![name.to_owned()],
            why: format!(
                "the process of the {role} {} {state}; its ticket goes when its session expires",
                who(ticket)
            ),
        })
    });
    places.collect()
}

/// Tickets in one queue that do not see each other, or a ticket beside a semaphore's permits.
fn strangers(name: &str, queue: &[QueueEntry]) -> Option<Finding> {
    let (one, other) = strange_to_each_other(queue)?;
    Some(Finding {
        what: "mixed",
        locks: vec![name.to_owned()],
        why: format!(
            "{} and {} do not see each other: both may hold at once",
            who(one),
            who(other)
        ),
    })
}

/// Two who stand under one name and do not see each other.
pub(crate) fn strange_to_each_other(queue: &[QueueEntry]) -> Option<(&QueueEntry, &QueueEntry)> {
    let neighbours = queue.windows(2).map(|pair| (&pair[0], &pair[1]));
    let first = queue.iter().take(COMPARED);
    let with_first = first.flat_map(|one| queue.iter().map(move |other| (one, other)));
    let mut pairs = neighbours.chain(with_first);
    pairs.find(|(one, other)| !one.shares_with(other))
}

fn numbers(name: &str, queue: &[QueueEntry]) -> Option<Finding> {
    let number = |ticket: &QueueEntry| {
        let digits = ticket.node.get(ticket.node.len().checked_sub(10)?..)?;
        digits.parse::<i64>().ok()
    };
    let highest = queue.iter().filter_map(number).max()?;
    (highest >= HIGH_NUMBER).then(|| Finding {
        what: "numbers",
        locks: vec![name.to_owned()],
        why: format!(
            "its directory has given {highest} of 2147483647 numbers: at the end Lockkeeper starts again once the queue is empty, and other clients do not"
        ),
    })
}

/// Owners that wait for each other.
fn deadlocks(before: &[Queue], queues: &[Queue]) -> Vec<Finding> {
    let findings = lasting_circles(before, queues).into_iter().map(|circle| {
        let locks: BTreeSet<String> = circle.iter().map(|wait| wait.lock.clone()).collect();
        let steps = circle.iter().map(|Wait { who, lock, on, .. }| {
            format!("{who} waits for {lock}, which {on} has or gets first")
        });
        Finding {
            what: "deadlock",
            locks: locks.into_iter().collect(),
            why: steps.collect::<Vec<_>>().join("; "),
        }
    });
    findings.collect()
}

/// The circles among owners that are in both rounds.
pub(crate) fn lasting_circles(before: &[Queue], queues: &[Queue]) -> Vec<Vec<Wait>> {
    let all = |queues: &[Queue]| -> Vec<Wait> {
        let each = queues.iter().flat_map(|(name, queue)| waits(name, queue));
        each.collect()
    };
    circles::find(&circles::lasting(all(before), all(queues)))
}

/// Who waits for whom in one queue, by owners. A permit may come from any holder, so it makes no
/// wait for one of them.
fn waits(name: &str, queue: &[QueueEntry]) -> Vec<Wait> {
    let owned = queue
        .iter()
        .filter(|ticket| ticket.kind != LockKind::Permit);
    let owned = owned.filter_map(|ticket| Some((ticket, ticket.owner.as_ref()?)));
    let owned: Vec<_> = owned.take(OWNERS).collect();
    let mut waits = Vec::new();
    for (at, (ticket, owner)) in owned.iter().enumerate() {
        if ticket.is_holder {
            continue;
        }
        for (before, other) in &owned[..at] {
            let both_read = ticket.kind == LockKind::Read && before.kind == LockKind::Read;
            if !both_read && owner != other {
                waits.push(Wait {
                    who: (*owner).clone(),
                    lock: name.to_owned(),
                    on: (*other).clone(),
                    tickets: [ticket.token, before.token],
                });
            }
        }
    }
    waits
}

/// Sessions that hold very many locks at the same time: what they held in both rounds.
fn crowded(before: &[Queue], queues: &[Queue], many: usize) -> Vec<Finding> {
    let holders = tickets(before).filter(|ticket| ticket.is_holder);
    let held_before: HashSet<(Token, SessionId, &str)> = holders.map(identity).collect();
    let mut held: BTreeMap<SessionId, Vec<(&str, &QueueEntry)>> = BTreeMap::new();
    for (name, queue) in queues {
        let held_before = |ticket: &&QueueEntry| held_before.contains(&identity(ticket));
        let holders = queue.iter().filter(|ticket| ticket.is_holder);
        for ticket in holders.filter(held_before) {
            held.entry(ticket.session).or_default().push((name, ticket));
        }
    }
    let crowded = held.into_values().filter(|held| held.len() > many);
    crowded
        .map(|held| {
            let (name, ticket) = held[0];
            Finding {
                what: "many",
                locks: vec![name.to_owned()],
                why: format!(
                    "session {} holds {} locks, this one with {}: if it ends, all of them are free at once",
                    ticket.session,
                    held.len(),
                    who(ticket)
                ),
            }
        })
        .collect()
}

fn identity(ticket: &QueueEntry) -> (Token, SessionId, &str) {
    (ticket.token, ticket.session, &ticket.node)
}

/// Tickets whose session no server knows.
fn orphans(before: &[Queue], after: &[Queue], census: &Census) -> Vec<Finding> {
    let seen: BTreeSet<(&str, Token, &str)> = before
        .iter()
        .flat_map(|(name, queue)| {
            queue
                .iter()
                .map(|ticket| (&**name, ticket.token, &*ticket.node))
        })
        .collect();
    let mut findings = Vec::new();
    for (name, queue) in after {
        for ticket in queue.iter() {
            let was_there = seen.contains(&(&**name, ticket.token, &*ticket.node));
            if was_there && !census.knows(ticket.session) {
                findings.push(Finding {
                    what: "orphan",
                    locks: vec![name.clone()],
                    why: format!(
                        "{} is of session {}, which no server knows: `lockkeeper break {name} --node {}` removes it",
                        who(ticket),
                        ticket.session,
                        ticket.node
                    ),
                });
            }
        }
    }
    findings
}
