//! `queue`: who holds a lock and who waits for it. It only reads.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use lockkeeper::{EntryKind, Keeper, LockName, QueueEntry};
use serde_json::{Value, json};

use crate::args::{Queue, Server};
use crate::failure::Failure;
use crate::live::{self, Sight};
use crate::look;
use crate::report;
use crate::signals::{self, Signals};

const HEAD: [&str; 11] = [
    "POS", "NODE", "TOKEN", "STATE", "KIND", "SESSION", "OWNER", "LABEL", "HOST", "PID", "SINCE",
];

pub(crate) async fn run(server: &Server, order: &Queue, as_json: bool) -> Result<u8, Failure> {
    let name = LockName::new(&order.name)?;
    if !order.watch {
        let sight = look::once(server, async |keeper| see(keeper, &name).await).await;
        live::show(&sight?, as_json)?;
        return Ok(0);
    }
    let mut signals = Signals::listen(signals::ENDING)?;
    // Dropped, it leaves an idle session behind, which ends with its connection.
    let watch = async {
        let keeper = server.connect().await?;
        let limit = server.read_timeout;
        live::watch(as_json, async || {
            look::within(limit, see(&keeper, &name)).await
        })
        .await
    };
    tokio::select! {
        failed = watch => failed,
        _ = signals.next() => Ok(0),
    }
}

async fn see(keeper: &Keeper, name: &LockName) -> Result<Sight, Failure> {
    let queue = keeper.queue(name).await?;
    let now = now();
    let places = || queue.iter().enumerate();
    let rows: Vec<_> = places()
        .map(|(position, ticket)| row(position, ticket, now))
        .collect();
    let objects: Vec<Value> = places()
        .map(|(position, ticket)| object(position, ticket))
        .collect();
    let holders = queue.iter().take_while(|ticket| ticket.is_holder).count();
    let waiting = queue.iter().filter(|ticket| !ticket.is_holder).count();
    Ok(Sight {
        title: format!("{name}: held by {holders}, {waiting} waiting"),
        table: report::rows(HEAD, &rows),
        holders,
        nothing: format!("nobody holds or waits for {name}"),
        json: objects.into(),
    })
}

/// Since the Unix epoch, by this host's clock.
pub(crate) fn now() -> Duration {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.unwrap_or_default()
}

pub(crate) fn object(position: usize, ticket: &QueueEntry) -> Value {
    json!({
        "position": position,
        "node": ticket.node,
        "token": ticket.token,
        "holder": ticket.is_holder,
        "shared": ticket.kind == EntryKind::Read,
        "kind": word(ticket.kind),
        "permits": permits(ticket.kind),
        "value": ticket.value,
        "session": session(ticket),
        "owner": ticket.owner,
        "label": ticket.label,
        "trace": ticket.trace_id,
        "host": ticket.host,
        "pid": ticket.pid,
        "since_ms": ticket.since_ms,
    })
}

fn row(position: usize, ticket: &QueueEntry, now: Duration) -> [String; 11] {
    let since = ticket
        .since_ms
        .map(|since| format!("{} ago", ago(since, now)));
    let state = if ticket.is_holder {
        "holder"
    } else {
        "waiting"
    };
    let kind = match ticket.kind {
        EntryKind::Permit { permits } => format!("permit ({permits})"),
        kind => word(kind).to_owned(),
    };
    [
        position.to_string(),
        ticket.node.clone(),
        ticket.token.to_string(),
        state.to_owned(),
        kind,
        session(ticket),
        report::or_dash(ticket.owner.clone()),
        report::or_dash(ticket.label.clone()),
        report::or_dash(ticket.host.clone()),
        report::or_dash(ticket.pid.map(|pid| pid.to_string())),
        report::or_dash(since),
    ]
}

pub(crate) fn word(kind: EntryKind) -> &'static str {
    match kind {
        EntryKind::Read => "read",
        EntryKind::Write => "write",
        EntryKind::Candidate => "candidate",
        EntryKind::Permit { .. } => "permit",
        _ => "lock",
    }
}

/// How long ago that was, for people.
pub(crate) fn ago(since_ms: u64, now: Duration) -> String {
    report::span(now.saturating_sub(Duration::from_millis(since_ms)))
}

fn permits(kind: EntryKind) -> Option<u32> {
    match kind {
        EntryKind::Permit { permits } => Some(permits),
        _ => None,
    }
}

/// As ZooKeeper's own tools write it.
pub(crate) fn session(ticket: &QueueEntry) -> String {
    format!("{:#x}", ticket.session)
}
