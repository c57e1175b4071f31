//! `queue`: who holds a lock and who waits for it. It only reads.

use std::io::{self, IsTerminal};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use lockkeeper::{EntryKind, LockName, QueueEntry};
use serde_json::{Value, json};

use crate::args::{Queue, Server};
use crate::failure::Failure;
use crate::report;
use crate::signals::{self, Signals};

const HEAD: [&str; 11] = [
    "POS", "NODE", "TOKEN", "STATE", "KIND", "SESSION", "OWNER", "LABEL", "HOST", "PID", "SINCE",
];
const BETWEEN_LOOKS: Duration = Duration::from_secs(1);
const CLEAR: &str = "\u{1b}[H\u{1b}[2J";

pub(crate) async fn run(server: &Server, order: &Queue, as_json: bool) -> Result<u8, Failure> {
    let name = LockName::new(&order.name)?;
    if !order.watch {
        let keeper = server.connect().await?;
        let tickets = keeper.queue(&name).await;
        keeper.close().await;
        show(&name, &tickets?, as_json)?;
        return Ok(0);
    }
    let mut signals = Signals::listen(signals::ENDING)?;
    tokio::select! {
        failed = watch(server, &name, as_json) => failed,
        _ = signals.next() => Ok(0),
    }
}

/// Looks until something fails. Dropped, it leaves an idle session behind, which ends with its connection.
async fn watch(server: &Server, name: &LockName, as_json: bool) -> Result<u8, Failure> {
    let keeper = server.connect().await?;
    let is_screen = io::stdout().is_terminal() && !as_json;
    let mut looks = 0;
    loop {
        let tickets = keeper.queue(name).await?;
        match looks {
            _ if is_screen => report::print(CLEAR)?,
            0 => {}
            _ if as_json => {}
            _ => report::print("")?,
        }
        show(name, &tickets, as_json)?;
        looks += 1;
        tokio::time::sleep(BETWEEN_LOOKS).await;
    }
}

fn show(name: &LockName, tickets: &[QueueEntry], as_json: bool) -> Result<(), Failure> {
    let tickets = tickets.iter().enumerate();
    if as_json {
        let rows: Vec<Value> = tickets
            .map(|(position, ticket)| object(position, ticket))
            .collect();
        return report::print_json(&rows);
    }
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let rows: Vec<_> = tickets
        .map(|(position, ticket)| row(position, ticket, now))
        .collect();
    if rows.is_empty() {
        report::say(format_args!("nobody holds or waits for {name}"));
        return Ok(());
    }
    report::print(&report::table(HEAD, &rows))
}

fn object(position: usize, ticket: &QueueEntry) -> Value {
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
    let or_dash = |text: Option<String>| {
        text.filter(|text| !text.is_empty())
            .unwrap_or_else(|| "-".to_owned())
    };
    let since = ticket.since_ms.map(|since| {
        let since = now.saturating_sub(Duration::from_millis(since));
        format!("{} ago", report::span(since))
    });
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
        or_dash(ticket.owner.clone()),
        or_dash(ticket.label.clone()),
        or_dash(ticket.host.clone()),
        or_dash(ticket.pid.map(|pid| pid.to_string())),
        or_dash(since),
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
