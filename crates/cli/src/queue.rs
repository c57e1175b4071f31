//! `queue`: who holds a lock and who waits for it. It only reads.

use std::time::{SystemTime, UNIX_EPOCH};

use lockkeeper::{Keeper, LockKind, LockName, QueueEntry};
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
        let sight = look::once(server, async |keeper| see(server, keeper, &name).await).await;
        live::show(&sight?, as_json)?;
        return Ok(0);
    }
    let mut signals = Signals::listen(signals::ENDING)?;
    // Dropped, it leaves an idle session behind, which ends with its connection.
    let watch = async {
        let keeper = server.connect().await?;
        let limit = server.read_timeout;
        live::watch(as_json, async || {
            look::within(limit, see(server, &keeper, &name)).await
        })
        .await
    };
    tokio::select! {
        failed = watch => failed,
        _ = signals.next() => Ok(0),
    }
}

async fn see(server: &Server, keeper: &Keeper, name: &LockName) -> Result<Sight, Failure> {
    let queue = keeper.queue(name).await?;
    let mut nothing = format!("nobody holds or waits for {name}");
    if queue.is_empty() {
        nothing = look::nothing(server, keeper, nothing).await?;
    }
    let now = SystemTime::now();
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
        nothing,
        json: objects.into(),
    })
}

pub(crate) fn object(position: usize, ticket: &QueueEntry) -> Value {
    json!({
        "position": position,
        "node": ticket.node,
        "token": ticket.token,
        "holder": ticket.is_holder,
        "shared": ticket.kind == LockKind::Read,
        "kind": word(&ticket.kind),
        "permits": ticket.permits,
        "value": ticket.value,
        "session": ticket.session.to_string(),
        "owner": ticket.owner,
        "label": ticket.label,
        "trace": ticket.trace_id,
        "host": ticket.host,
        "pid": ticket.pid,
        "since_ms": ticket.since.map(since_ms),
    })
}

fn row(position: usize, ticket: &QueueEntry, now: SystemTime) -> [String; 11] {
    let since = ticket.since.map(|since| format!("{} ago", ago(since, now)));
    let state = if ticket.is_holder {
        "holder"
    } else {
        "waiting"
    };
    let word = word(&ticket.kind);
    let kind = match ticket.permits {
        Some(permits) => format!("{word} ({permits})"),
        None => word.to_owned(),
    };
    [
        position.to_string(),
        ticket.node.clone(),
        ticket.token.to_string(),
        state.to_owned(),
        kind,
        ticket.session.to_string(),
        report::or_dash(ticket.owner.clone()),
        report::or_dash(ticket.label.clone()),
        report::or_dash(ticket.host.clone()),
        report::or_dash(ticket.pid.map(|pid| pid.to_string())),
        report::or_dash(since),
    ]
}

/// The word of the queue: there a leader is a candidate, too.
pub(crate) fn word(kind: &LockKind) -> &str {
    match kind {
        LockKind::Lead => "candidate",
        kind => kind.as_str(),
    }
}

/// How long ago that was, for people.
pub(crate) fn ago(since: SystemTime, now: SystemTime) -> String {
    report::span(now.duration_since(since).unwrap_or_default())
}

/// As the tool's JSON has times.
pub(crate) fn since_ms(since: SystemTime) -> u64 {
    let since = since.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
