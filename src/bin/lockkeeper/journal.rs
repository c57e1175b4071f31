//! `journal`: who had a lock, and how that ended. It only reads.

use std::collections::HashSet;
use std::time::Duration;

use lockkeeper::{Ending, JournalEntry, LockName, QueueEntry, Token};
use serde_json::{Value, json};

use crate::args::{Journal, Server};
use crate::failure::Failure;
use crate::queue;
use crate::report;

const HEAD: [&str; 10] = [
    "TOKEN", "KIND", "OWNER", "LABEL", "HOST", "PID", "SINCE", "WAITED", "HELD", "ENDED",
];

pub(crate) async fn run(server: &Server, order: &Journal, as_json: bool) -> Result<u8, Failure> {
    let name = LockName::new(&order.name)?;
    let keeper = server.connect().await?;
    let read = async {
        // Whoever comes meanwhile is in the queue and not yet in the journal; the other way round it would seem to have died.
        let journal = keeper.journal(&name).await?;
        Ok::<_, lockkeeper::Error>((journal, keeper.queue(&name).await?))
    };
    let read = read.await;
    keeper.close().await;
    let (journal, queue) = read?;
    let holders = holders(&queue);
    if as_json {
        let objects = journal.iter().map(|entry| object(entry, &holders));
        report::print_json(&objects.collect::<Vec<_>>())?;
    } else if journal.is_empty() {
        report::say(format_args!(
            "nothing is written about {name}: `run` and `elect` write with --journal"
        ));
    } else {
        let now = queue::now();
        let rows = journal.iter().map(|entry| row(entry, &holders, now));
        report::print(&report::table(HEAD, &rows.collect::<Vec<_>>()))?;
    }
    Ok(0)
}

/// By their tickets' tokens: a writer that became a reader has another node by now, and so has its token.
fn holders(queue: &[QueueEntry]) -> HashSet<(Token, &str)> {
    let holders = queue.iter().filter(|ticket| ticket.is_holder);
    holders
        .map(|ticket| (ticket.token, &*ticket.node))
        .collect()
}

/// How it ended, as far as anybody can know.
pub(crate) fn ended(entry: &JournalEntry, holders: &HashSet<(Token, &str)>) -> String {
    match &entry.ending {
        Some(ending) => ending.to_string(),
        None if holders.contains(&(entry.token, &*entry.node)) => "holds".into(),
        None => "without a word".into(),
    }
}

fn object(entry: &JournalEntry, holders: &HashSet<(Token, &str)>) -> Value {
    let (ending, why) = match &entry.ending {
        Some(Ending::Released) => (Some("released"), None),
        Some(Ending::Dropped) => (Some("dropped"), None),
        Some(Ending::Lost(why)) => (Some("lost"), Some(why)),
        _ => (None, None),
    };
    json!({
        "token": entry.token,
        "node": entry.node,
        "kind": entry.kind,
        "owner": entry.owner,
        "label": entry.label,
        "host": entry.host,
        "pid": entry.pid,
        "since_ms": entry.since_ms,
        "waited_ms": ms(entry.waited),
        "held_ms": entry.held.map(ms),
        "ending": ending,
        "why": why,
        "holds": entry.ending.is_none() && holders.contains(&(entry.token, &*entry.node)),
    })
}

fn row(entry: &JournalEntry, holders: &HashSet<(Token, &str)>, now: Duration) -> [String; 10] {
    [
        entry.token.to_string(),
        entry.kind.clone(),
        report::or_dash(entry.owner.clone()),
        report::or_dash(entry.label.clone()),
        entry.host.clone(),
        entry.pid.to_string(),
        format!("{} ago", queue::ago(entry.since_ms, now)),
        report::fine_span(entry.waited),
        report::or_dash(entry.held.map(report::fine_span)),
        ended(entry, holders),
    ]
}

fn ms(long: Duration) -> u64 {
    u64::try_from(long.as_millis()).unwrap_or(u64::MAX)
}
