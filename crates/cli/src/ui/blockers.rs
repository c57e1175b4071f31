//! Who waits for whom across locks and hosts, as trees below those that wait for nobody, and the
//! circles. (pure)
//!
//! Invariant: what one agent keeps waiting is told once. Nobody who waits is left out but by a
//! number that says how many.

use std::collections::{HashMap, HashSet};

use lockkeeper::{QueueEntry, SessionId};
use serde_json::{Value, json};

use super::picture::Picture;
use crate::doctor::Wait;
use crate::queue;

/// The most trees, the most waiters that are named below a lock, and the deepest chain.
const TREES: usize = 200;
const NAMED: usize = 20;
const DEEPEST: usize = 30;

/// One who holds and waits: an owner, or else a process, or else a session.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Agent<'a> {
    Owner(&'a str),
    Process(&'a str, u32),
    Session(SessionId),
}

impl<'a> Agent<'a> {
    fn of(entry: &'a QueueEntry) -> Self {
        match (&entry.owner, &entry.host, entry.pid) {
            (Some(owner), ..) => Self::Owner(owner),
            (None, Some(host), Some(pid)) => Self::Process(host, pid),
            _ => Self::Session(entry.session),
        }
    }
}

/// The queues that somebody waits in.
struct Waits<'a> {
    queues: Vec<(&'a str, &'a [QueueEntry])>,
    /// What an agent holds of them.
    held: HashMap<Agent<'a>, Vec<usize>>,
    waiting: HashSet<Agent<'a>>,
    told: HashSet<Agent<'a>>,
}

pub(super) fn of(picture: &Picture) -> Value {
    let mut waits = Waits::of(picture);
    let circles: Vec<Value> = picture.circles.iter().map(|it| circle(it)).collect();
    let mut roots: Vec<&QueueEntry> = Vec::new();
    let mut known = HashSet::new();
    let holders = waits.queues.iter().flat_map(|(_, queue)| queue.iter());
    for holder in holders.filter(|entry| entry.is_holder) {
        if known.insert(Agent::of(holder)) {
            roots.push(holder);
        }
    }
    // Those that wait for nobody come first; what is left then is in a circle, or behind one.
    roots.sort_by_key(|root| waits.waiting.contains(&Agent::of(root)));
    let mut trees = Vec::new();
    for root in roots {
        if !waits.told.contains(&Agent::of(root)) {
            let tree = waits.tree(root, 0);
            trees.push(tree);
        }
    }
    let all = trees.len();
    trees.sort_by_key(|(blocked, _)| std::cmp::Reverse(*blocked));
    trees.truncate(TREES);
    let trees: Vec<Value> = trees.into_iter().map(|(_, tree)| tree).collect();
    json!({ "deadlocks": circles, "all": all, "trees": trees })
}

fn circle(circle: &[Wait]) -> Value {
    let steps = circle.iter();
    let steps = steps.map(|wait| json!({ "who": wait.who, "lock": wait.lock, "on": wait.on }));
    steps.collect()
}

impl<'a> Waits<'a> {
    fn of(picture: &'a Picture) -> Self {
        let mut waits = Self {
            queues: Vec::new(),
            held: HashMap::new(),
            waiting: HashSet::new(),
            told: HashSet::new(),
        };
        let rows = picture.rows.iter().filter(|(_, row)| row.waiting() > 0);
        for (at, (name, row)) in rows.enumerate() {
            for entry in row.queue.iter() {
                let agent = Agent::of(entry);
                if entry.is_holder {
                    waits.held.entry(agent).or_default().push(at);
                } else {
                    waits.waiting.insert(agent);
                }
            }
            waits.queues.push((name, &row.queue));
        }
        waits
    }

    /// An agent with the locks that it holds, and those that wait for them; and how many wait.
    fn tree(&mut self, entry: &'a QueueEntry, depth: usize) -> (usize, Value) {
        let agent = Agent::of(entry);
        let is_told = !self.told.insert(agent);
        let held = self.held.get(&agent).cloned().unwrap_or_default();
        let mut object = who(entry);
        if is_told || depth == DEEPEST {
            object["above"] = (!held.is_empty()).into();
            return (0, object);
        }
        let mut blocked = 0;
        let mut holds = Vec::new();
        for at in held {
            let (name, queue) = self.queues[at];
            let mut waiters: Vec<(usize, &QueueEntry)> = queue.iter().enumerate().collect();
            waiters.retain(|(_, waiter)| !waiter.is_holder);
            let count = waiters.len();
            blocked += count;
            // Those that keep others waiting themselves are named first.
            waiters.sort_by_key(|(_, waiter)| !self.held.contains_key(&Agent::of(waiter)));
            let mut named = Vec::new();
            for (position, waiter) in waiters.into_iter().take(NAMED) {
                let (more, mut below) = self.tree(waiter, depth + 1);
                blocked += more;
                below["position"] = position.into();
                named.push(below);
            }
            holds.push(json!({ "lock": name, "waiting": count, "waiters": named }));
        }
        object["blocked"] = blocked.into();
        object["holds"] = holds.into();
        (blocked, object)
    }
}

fn who(entry: &QueueEntry) -> Value {
    json!({
        "owner": entry.owner,
        "label": entry.label,
        "host": entry.host,
        "pid": entry.pid,
        "session": entry.session.to_string(),
        "node": entry.node,
        "since_ms": entry.since.map(queue::since_ms),
    })
}
