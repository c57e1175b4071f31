//! `doctor`: looks through all locks for what is wrong with them. It only reads.
//!
//! Invariant: what it says is wrong was seen, and what is wrong only if it is so at one moment was
//! seen twice; what it could not look at it says too.

mod circles;
mod findings;
mod sessions;

#[cfg(feature = "ui")]
pub(crate) use circles::Wait;
#[cfg(feature = "ui")]
pub(crate) use findings::lasting_circles;
pub(crate) use findings::{Finding, Queue, Rounds, strange_to_each_other, tickets, who};
#[cfg(feature = "ui")]
pub(crate) use sessions::Census;
pub(crate) use sessions::ask;

use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{self, StreamExt};
use lockkeeper::{Error, Keeper};
use tokio::time::sleep;

use crate::args::{Doctor, Server};
use crate::code;
use crate::failure::Failure;
use crate::look::{self, AT_ONCE};
use crate::process;
use crate::report;

/// A server that has just ended a session removes its tickets within that.
const AN_END: Duration = Duration::from_secs(1);

pub(crate) async fn run(server: &Server, order: &Doctor, as_json: bool) -> Result<u8, Failure> {
    let findings = look::once(server, async |keeper| examine(keeper, server, order).await);
    let (mut findings, hidden) = findings.await?;
    findings.sort();
    if as_json {
        let objects = findings.iter().map(Finding::object);
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
    let census = ask(server).await;
    if let Ok(census) = &census {
        if tickets(&before).any(|ticket| !census.knows(ticket.session)) {
            sleep(AN_END).await;
        }
    }
    let (queues, _) = read(keeper).await?;
    let mut findings = weaknesses(keeper).await?;
    if server.is_root_given && !keeper.has_root().await? {
        findings.push(Finding {
            what: "root",
            locks: Vec::new(),
            why: look::missing_root(server),
        });
    }
    let names: BTreeSet<&str> = before.iter().map(|(name, _)| &**name).collect();
    findings.extend(open_to_others(keeper, names).await?);
    if let Err(why) = &census {
        report::say(format_args!(
            "did not search for tickets without a session: {why}"
        ));
    }
    let rounds = Rounds {
        before: &before,
        now: &queues,
        doing: &doing,
        census: census.as_ref().ok(),
        many: order.many,
    };
    findings.extend(rounds.findings());
    Ok((findings, denied.len()))
}

/// Settings of the store that weaken the promises, for all locks.
pub(crate) async fn weaknesses(keeper: &Keeper) -> Result<Vec<Finding>, Failure> {
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
    let reads = stream::iter(names).map(|name| open_nodes(keeper, name));
    let mut reads = pin!(reads.buffered(AT_ONCE));
    let mut findings = Vec::new();
    while let Some(open) = reads.next().await {
        match open {
            Err(error) if error.is_denied() => report::say(format_args!("not checked: {error}")),
            open => findings.extend(open?),
        }
    }
    Ok(findings)
}

/// Those of one lock.
pub(crate) async fn open_nodes(keeper: &Keeper, name: &str) -> Result<Vec<Finding>, Error> {
    let wider = keeper.wider_acls(name).await?.into_iter();
    let findings = wider.map(|node| Finding {
        what: "open",
        locks: vec![name.to_owned()],
        why: format!(
            "the access list of {} allows {}, which ours does not: remove that node while the lock is unused, or set our list (setAcl)",
            node.path, node.allows
        ),
    });
    Ok(findings.collect())
}

/// All queues that we may read, and why not the others, which have lists of their own.
async fn read(keeper: &Keeper) -> Result<(Vec<Queue>, Vec<Error>), Failure> {
    let names = keeper.locks().await?.into_iter().map(|lock| lock.name);
    let (mut queues, mut denied) = (Vec::new(), Vec::new());
    for (name, queue) in look::queues(keeper, names.collect()).await? {
        match queue {
            Ok(queue) => queues.push((name, Arc::new(queue))),
            Err(error) => denied.push(error),
        }
    }
    Ok((queues, denied))
}
