//! `doctor`: looks through all locks for what is wrong with them. It only reads.
//!
//! Invariant: what it says is wrong was seen, and what is wrong only if it is so at one moment was
//! seen twice; what it could not look at it says too.

mod circles;
mod sessions;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::pin::pin;
use std::time::Duration;

use futures_util::stream::{self, StreamExt};
use lockkeeper::{Error, Keeper, LockKind, QueueEntry, SessionId, Token};
use serde_json::json;
use tokio::time::sleep;

use self::circles::Wait;
use self::sessions::Census;
use crate::args::{Doctor, Server};
use crate::code;
use crate::failure::Failure;
use crate::look::{self, AT_ONCE};
use crate::process::{self, Doing};
use crate::report;

/// So many are compared with each one; and each with its neighbours.
const COMPARED: usize = 32;
/// So many owners of one queue are followed.
const OWNERS: usize = 300;
/// From this number on, of 2 147 483 647.
const HIGH_NUMBER: i64 = 1_900_000_000;

/// A server that has just ended a session removes its tickets within that.
const AN_END: Duration = Duration::from_secs(1);

/// Something that is wrong.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Finding {
    /// A word for what it is.
    what: &'static str,
    /// The locks that it is about.
    locks: Vec<String>,
    /// Whose fault it is, and what it means.
    why: String,
}

/// A lock and its queue.
type Queue = (String, Vec<QueueEntry>);

pub(crate) async fn run(server: &Server, order: &Doctor, as_json: bool) -> Result<u8, Failure> {
    let findings = look::once(server, async |keeper| examine(keeper, server, order).await);
    let (mut findings, hidden) = findings.await?;
    findings.sort();
    if as_json {
        let objects = findings.iter().map(
            |Finding { what, locks, why }| json!({ "finding": what, "locks": locks, "why": why }),
        );
        report::print_json(&objects.collect::<Vec<_>>())?;
    } else if findings.is_empty() {
        let root = &server.root;
        match hidden {
            0 => report::say(format_args!("nothing is wrong with the locks below {root}")),
            _ => report::say(format_args!(
                "nothing is wrong with the other locks below {root}"
            )),
        }
    } else {
        let row = |finding: &Finding| {
            [
                finding.what.to_owned(),
                finding.locks.join(" "),
                finding.why.clone(),
            ]
        };
        let rows: Vec<_> = findings.iter().map(row).collect();
        report::print(&report::table(["FINDING", "LOCKS", "WHY"], &rows))?;
    }
    Ok(if findings.is_empty() {
        0
    } else {
        code::NOTHING
    })
}

/// What is wrong, and how many directories may not be looked at.
async fn examine(
    keeper: &Keeper,
    server: &Server,
    order: &Doctor,
) -> Result<(Vec<Finding>, usize), Failure> {
    let (before, denied) = read(keeper).await?;
    for error in &denied {
        report::say(format_args!("not checked: {error}"));
    }
    let doing = process::of(tickets(&before)).await;
    let census = sessions::ask(server).await;
    if let Ok(census) = &census {
        if tickets(&before).any(|ticket| !census.knows(ticket.session)) {
            sleep(AN_END).await;
        }
    }
    let (queues, _) = read(keeper).await?;
    let mut findings = weaknesses(keeper).await?;
    for (name, queue) in &queues {
        findings.extend(processes(name, queue, &doing));
        findings.extend(strangers(name, queue));
        findings.extend(numbers(name, queue));
    }
    let names: BTreeSet<&str> = before.iter().map(|(name, _)| &**name).collect();
    findings.extend(open_to_others(keeper, names).await?);
    findings.extend(deadlocks(&before, &queues));
    findings.extend(crowded(&before, &queues, order.many));
    match census {
        // A ticket that is there before and after the sessions were counted has one, or should.
        Ok(census) => findings.extend(orphans(&before, &queues, &census)),
        Err(why) => report::say(format_args!(
            "did not search for tickets without a session: {why}"
        )),
    }
    Ok((findings, denied.len()))
}

/// Settings of the store that weaken the promises, for all locks.
async fn weaknesses(keeper: &Keeper) -> Result<Vec<Finding>, Failure> {
    let weaknesses = keeper.weaknesses().await?.into_iter();
    let findings = weaknesses.map(|weakness| Finding {
        what: "setting",
        locks: Vec::new(),
        why: weakness.to_string(),
    });
    Ok(findings.collect())
}

/// Nodes of locks whose access lists are wider than ours.
async fn open_to_others(keeper: &Keeper, names: BTreeSet<&str>) -> Result<Vec<Finding>, Failure> {
    let reads =
        stream::iter(names).map(|name| async move { (name, keeper.wider_acls(name).await) });
    let mut reads = pin!(reads.buffered(AT_ONCE));
    let mut findings = Vec::new();
    while let Some((name, wider)) = reads.next().await {
        let wider = match wider {
            Err(error) if error.is_denied() => {
                report::say(format_args!("not checked: {error}"));
                continue;
            }
            wider => wider?,
        };
        findings.extend(wider.into_iter().map(|node| Finding {
            what: "open",
            locks: vec![name.to_owned()],
            why: format!(
                "the access list of {} allows {}, which ours does not: remove that node while the lock is unused, or set our list (setAcl)",
                node.path, node.allows
            ),
        }));
    }
    Ok(findings)
}

fn tickets(queues: &[Queue]) -> impl Iterator<Item = &QueueEntry> {
    queues.iter().flat_map(|(_, queue)| queue)
}

/// All queues that we may read, and why not the others, which have lists of their own.
async fn read(keeper: &Keeper) -> Result<(Vec<Queue>, Vec<Error>), Failure> {
    let names = keeper.locks().await?.into_iter().map(|lock| lock.name);
    let (mut queues, mut denied) = (Vec::new(), Vec::new());
    for (name, queue) in look::queues(keeper, names.collect()).await? {
        match queue {
            Ok(queue) => queues.push((name, queue)),
            Err(error) => denied.push(error),
        }
    }
    Ok((queues, denied))
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
    let all = |queues: &[Queue]| -> Vec<Wait> {
        let each = queues.iter().flat_map(|(name, queue)| waits(name, queue));
        each.collect()
    };
    let waits = circles::lasting(all(before), all(queues));
    let circles = circles::find(&waits);
    let findings = circles.into_iter().map(|circle| {
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
        for ticket in queue {
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
