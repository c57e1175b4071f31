//! `journal`: who had a lock, and how that ended. It only reads.

use std::collections::HashSet;
use std::time::Duration;

use lockkeeper::{Ending, Error, JournalEntry, Keeper, LockName, QueueEntry, Token};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::args::{Journal, Server};
use crate::failure::Failure;
use crate::queue;
use crate::report;

const LOOKS: u32 = 2;
const BETWEEN_LOOKS: Duration = Duration::from_millis(150);
const HEAD: [&str; 10] = [
    "TOKEN", "KIND", "OWNER", "LABEL", "HOST", "PID", "SINCE", "WAITED", "HELD", "ENDED",
];

pub(crate) async fn run(server: &Server, order: &Journal, as_json: bool) -> Result<u8, Failure> {
    let name = LockName::new(&order.name)?;
    let keeper = server.connect().await?;
    let (journal, queue) = read(&keeper, &name).await;
    keeper.close().await;
    let (journal, holders) = (journal?, holders(&queue?));
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

/// The journal, and then the queue. Ends are written behind the backs of those who release: where a hold seems to have ended without
/// a word, it is looked at again.
pub(crate) async fn read(
    keeper: &Keeper,
    name: &LockName,
) -> (
    Result<Vec<JournalEntry>, Error>,
    Result<Vec<QueueEntry>, Error>,
) {
    for _ in 0..LOOKS {
        // Whoever comes meanwhile is in the queue and not yet in the journal; the other way round it would seem to have died.
        let read = (keeper.journal(name).await, keeper.queue(name).await);
        let (Ok(journal), Ok(queue)) = &read else {
            return read;
        };
        let holders = holders(queue);
        if !journal.iter().any(|entry| is_silent(entry, &holders)) {
            return read;
        }
        sleep(BETWEEN_LOOKS).await;
    }
    (keeper.journal(name).await, keeper.queue(name).await)
}

/// The identities of their tickets: a guest has its host's token, and a writer that became a reader has another node.
fn holders(queue: &[QueueEntry]) -> HashSet<Token> {
    let holders = queue.iter().filter(|ticket| ticket.is_holder);
    holders.map(|ticket| ticket.token).collect()
}

/// Whether it has no end, and does not hold.
fn is_silent(entry: &JournalEntry, holders: &HashSet<Token>) -> bool {
    entry.ending.is_none() && !holders.contains(&entry.ticket)
}

/// How it ended, as far as anybody can know.
fn ended(entry: &JournalEntry, holders: &HashSet<Token>) -> String {
    match &entry.ending {
        Some(ending) => ending.to_string(),
        None if is_silent(entry, holders) => "without a word".into(),
        None => "holds".into(),
    }
}

fn object(entry: &JournalEntry, holders: &HashSet<Token>) -> Value {
    let (ending, why) = match &entry.ending {
        Some(Ending::Lost(why)) => (Some("lost".to_owned()), Some(why)),
        Some(ending) => (Some(ending.to_string()), None),
        None => (None, None),
    };
    json!({
        "token": entry.token,
        "ticket": entry.ticket,
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
        "holds": entry.ending.is_none() && !is_silent(entry, holders),
    })
}

fn row(entry: &JournalEntry, holders: &HashSet<Token>, now: Duration) -> [String; 10] {
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
