//! `queue`: who holds a lock and who waits for it. It only reads.
//!
//! The first columns answer that: the place, the process, and since when. They stay longest when
//! the terminal is narrow.

use std::time::{SystemTime, UNIX_EPOCH};

use lockkeeper::{Error, Keeper, LockKind, LockName, QueueEntry};
use serde_json::{Value, json};

use crate::args::{Queue, Server};
use crate::failure::Failure;
use crate::live::{self, Sight};
use crate::look;
use crate::report;
use crate::signals::{self, Signals};
use crate::table::{Column, Shrink, Table};

/// The value of a candidate says who it is, so it goes after the others.
const COLUMNS: [Column; 12] = [
    Column::new("POS", 0, Shrink::Never),
    Column::new("STATE", 0, Shrink::Never),
    Column::new("LABEL", 3, Shrink::End(6)),
    Column::new("HOST", 4, Shrink::End(6)),
    Column::new("PID", 1, Shrink::Never),
    Column::new("SINCE", 2, Shrink::Words),
    Column::new("VALUE", 1, Shrink::End(8)),
    Column::new("KIND", 5, Shrink::Never),
    Column::new("OWNER", 7, Shrink::End(6)),
    Column::new("TOKEN", 6, Shrink::Never),
    Column::new("NODE", 8, Shrink::Never),
    Column::new("SESSION", 9, Shrink::Never),
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
    let permits = Permits::read(keeper, name, &queue).await?;
    let now = SystemTime::now();
    let places = || queue.iter().enumerate();
    let limit = permits.as_ref().map(|permits| permits.limit);
    let rows = places().map(|(position, ticket)| row(position, ticket, limit, now));
    let objects = places().map(|(position, ticket)| {
        let mut object = object(position, ticket);
        object["limit"] = limit.into();
        object["permits_left"] = permits.as_ref().map(|permits| permits.left).into();
        object
    });
    let left = permits
        .as_ref()
        .map(|Permits { limit, left }| format!("; {left} of {limit} permits left"));
    let left = left.unwrap_or_default();
    let mut nothing = format!("nobody holds or waits for {name}{left}");
    if queue.is_empty() {
        nothing = look::nothing(server, keeper, nothing).await?;
    }
    let holders = queue.iter().take_while(|ticket| ticket.is_holder).count();
    let waiting = queue.iter().filter(|ticket| !ticket.is_holder).count();
    Ok(Sight {
        title: format!("{name}: held by {holders}, {waiting} waiting{left}"),
        table: Table::new(&COLUMNS, rows),
        holders,
        nothing,
        json: objects.collect::<Vec<Value>>().into(),
    })
}

/// What a semaphore has.
struct Permits {
    limit: u32,
    /// So many nobody holds.
    left: u32,
}

impl Permits {
    /// None without a stored limit. A name that no client uses may be a semaphore's.
    async fn read(
        keeper: &Keeper,
        name: &LockName,
        queue: &[QueueEntry],
    ) -> Result<Option<Self>, Failure> {
        let is_permit = |ticket: &QueueEntry| ticket.kind == LockKind::Permit;
        if !queue.is_empty() && !queue.iter().any(is_permit) {
            return Ok(None);
        }
        // The handle's own limit plays no part.
        let limit = match keeper.semaphore(name, 1)?.stored_limit().await {
            // The queue was read, so it is shown without a limit: another lock has the name or a
            // node of that name, or we may not read it.
            Err(error) if error.is_refusal() || error.is_denied() => None,
            Err(Error::Refused { .. }) => None,
            limit => limit?,
        };
        let holders = queue.iter().filter(|ticket| ticket.is_holder);
        let held: u64 = holders
            .filter_map(|ticket| ticket.permits)
            .map(u64::from)
            .sum();
        Ok(limit.map(|limit| Self {
            limit,
            left: u32::try_from(u64::from(limit).saturating_sub(held)).unwrap_or(limit),
        }))
    }
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

fn row(position: usize, ticket: &QueueEntry, limit: Option<u32>, now: SystemTime) -> [String; 12] {
    let state = if ticket.is_holder {
        "holder"
    } else {
        "waiting"
    };
    let word = word(&ticket.kind);
    let kind = match (ticket.permits, limit) {
        (Some(permits), Some(limit)) => format!("{word} {permits}/{limit}"),
        (Some(permits), None) => format!("{word} {permits}"),
        (None, _) => word.to_owned(),
    };
    [
        position.to_string(),
        state.to_owned(),
        report::or_dash(ticket.label.clone()),
        report::or_dash(ticket.host.clone()),
        report::or_dash(ticket.pid.map(|pid| pid.to_string())),
        since(ticket, now),
        report::or_dash(ticket.value.clone()),
        kind,
        report::or_dash(ticket.owner.clone()),
        ticket.token.to_string(),
        ticket.node.clone(),
        ticket.session.to_string(),
    ]
}

/// The cell of a column that loses its last words.
pub(crate) fn since(ticket: &QueueEntry, now: SystemTime) -> String {
    report::or_dash(ticket.since.map(|since| format!("{} ago", ago(since, now))))
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
