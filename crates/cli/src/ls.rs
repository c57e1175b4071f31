//! `ls`: the locks that are in use, the holder of each, and how many wait. It only reads.
//!
//! It reads the directories that a pattern can match, and of those the queues that it does match.

use std::cmp::Reverse;
use std::time::{Duration, SystemTime};

use lockkeeper::{Keeper, LockKind, LockSummary, QueueEntry};
use serde_json::{Value, json};

use crate::args::{Ls, Server, Sort};
use crate::failure::Failure;
use crate::live::{self, Sight};
use crate::look;
use crate::pattern::Pattern;
use crate::queue;
use crate::report;
use crate::signals::{self, Signals};
use crate::table::{Column, NOTHING, Shrink, Table};

const COLUMNS: [Column; 8] = [
    // The end of a name tells it from its neighbours.
    Column::new("NAME", 0, Shrink::Start(12)),
    Column::new("HOLDER", 1, Shrink::End(6)),
    Column::new("HOST", 5, Shrink::End(6)),
    Column::new("PID", 6, Shrink::Never),
    Column::new("SINCE", 2, Shrink::Words),
    Column::new("WAITING", 3, Shrink::Never),
    Column::new("KIND", 7, Shrink::Never),
    Column::new("HOLDERS", 8, Shrink::Never),
];

pub(crate) async fn run(server: &Server, order: &Ls, as_json: bool) -> Result<u8, Failure> {
    if !order.watch {
        let sight = look::once(server, async |keeper| see(keeper, server, order).await).await;
        live::show(&sight?, as_json)?;
        return Ok(0);
    }
    let mut signals = Signals::listen(signals::ENDING)?;
    let watch = async {
        let keeper = server.connect().await?;
        let limit = server.read_timeout;
        live::watch(as_json, async || {
            look::within(limit, see(&keeper, server, order)).await
        })
        .await
    };
    tokio::select! {
        failed = watch => failed,
        _ = signals.next() => Ok(0),
    }
}

async fn see(keeper: &Keeper, server: &Server, order: &Ls) -> Result<Sight, Failure> {
    let names = names(keeper, &order.patterns).await?;
    let queues = look::queues(keeper, names).await?.into_iter();
    let now = SystemTime::now();
    let mut locks: Vec<Lock> = queues
        .map(|(name, queue)| Lock {
            name,
            // Its only error is that it is denied.
            queue: queue.ok(),
        })
        .filter(|lock| lock.is_wanted(order, now))
        .collect();
    locks.sort_by(|one, other| one.name.cmp(&other.name));
    // What is not known comes last, and equals stay in the order of their names.
    match order.sort {
        Sort::Name => {}
        Sort::Waiting => locks.sort_by_key(|lock| Reverse(lock.waiting())),
        Sort::Age => locks.sort_by_key(|lock| Reverse(lock.age(now))),
    }
    let mut sight = sight(&locks, server, order, now);
    if locks.is_empty() {
        sight.nothing = look::nothing(server, keeper, sight.nothing).await?;
    }
    Ok(sight)
}

fn sight(locks: &[Lock], server: &Server, order: &Ls, now: SystemTime) -> Sight {
    let is_all = order.patterns.is_empty() && !order.held && order.longer_than.is_none();
    let (root, place) = (&server.root, server.place.shown());
    let count = |is: fn(&Lock) -> bool| locks.iter().filter(|lock| is(lock)).count();
    let denied = match count(Lock::is_denied) {
        0 => String::new(),
        denied => format!("; directories that may not be read: {denied}"),
    };
    let held = count(|lock| lock.holder().is_some());
    let waiting: usize = locks.iter().filter_map(Lock::waiting).sum();
    Sight {
        title: format!(
            "locks in use below {root} on {place}: {}, held: {held}, waiters: {waiting}{denied}",
            locks.len() - count(Lock::is_denied),
        ),
        table: Table::new(&COLUMNS, locks.iter().map(|lock| lock.row(now))),
        holders: 0,
        nothing: if is_all {
            format!("no lock below {root} is in use")
        } else {
            format!("no lock in use below {root} matches")
        },
        json: locks.iter().map(Lock::object).collect::<Vec<_>>().into(),
    }
}

/// The names of locks in use that match.
async fn names(keeper: &Keeper, patterns: &[Pattern]) -> Result<Vec<String>, Failure> {
    let locks: Vec<LockSummary> = match Pattern::tops(patterns) {
        None => keeper.locks().await?,
        Some(tops) => {
            let mut below = Vec::new();
            for top in tops {
                below.extend(keeper.locks_below(top).await?);
            }
            below
        }
    };
    let names = locks.into_iter().map(|lock| lock.name);
    let is_wanted =
        |name: &String| patterns.is_empty() || patterns.iter().any(|it| it.matches(name));
    Ok(names.filter(is_wanted).collect())
}

struct Lock {
    name: String,
    /// None if we may not read it.
    queue: Option<Vec<QueueEntry>>,
}

impl Lock {
    fn is_denied(&self) -> bool {
        self.queue.is_none()
    }

    fn is_wanted(&self, order: &Ls, now: SystemTime) -> bool {
        // A queue that became empty meanwhile is in use no more.
        let is_in_use = self.queue.as_ref().is_none_or(|queue| !queue.is_empty());
        let is_long = |limit: Duration| self.age(now).is_some_and(|age| age > limit);
        is_in_use
            && (!order.held || self.holder().is_some())
            && order.longer_than.is_none_or(is_long)
    }

    fn tickets(&self) -> impl Iterator<Item = &QueueEntry> {
        self.queue.iter().flatten()
    }

    fn holder(&self) -> Option<&QueueEntry> {
        self.tickets().find(|ticket| ticket.is_holder)
    }

    /// The holder, or without one the first waiter.
    fn first(&self) -> Option<&QueueEntry> {
        self.holder().or_else(|| self.tickets().next())
    }

    fn age(&self, now: SystemTime) -> Option<Duration> {
        let since = self.first()?.since?;
        Some(now.duration_since(since).unwrap_or_default())
    }

    fn holders(&self) -> Option<usize> {
        let queue = self.queue.as_ref()?;
        Some(queue.iter().filter(|ticket| ticket.is_holder).count())
    }

    fn waiting(&self) -> Option<usize> {
        Some(self.queue.as_ref()?.len() - self.holders()?)
    }

    fn row(&self, now: SystemTime) -> [String; 8] {
        let (first, holder) = (self.first(), self.holder());
        let number = |number: Option<usize>| report::or_dash(number.map(|it| it.to_string()));
        [
            self.name.clone(),
            match holder {
                Some(holder) => holder_name(holder),
                None if self.is_denied() => "(denied)".into(),
                None => NOTHING.into(),
            },
            report::or_dash(holder.and_then(|holder| holder.host.clone())),
            report::or_dash(holder.and_then(|it| Some(it.pid?.to_string()))),
            report::or_dash(first.map(|first| queue::since(first, now))),
            number(self.waiting()),
            report::or_dash(first.map(|first| queue::word(&first.kind).to_owned())),
            number(self.holders()),
        ]
    }

    fn object(&self) -> Value {
        let first = self.first();
        json!({
            "name": self.name,
            "tickets": self.queue.as_ref().map(Vec::len),
            "denied": self.is_denied(),
            "kind": first.map(|first| queue::word(&first.kind)),
            "holders": self.holders(),
            "waiting": self.waiting(),
            "since_ms": first.and_then(|first| first.since).map(queue::since_ms),
            "holder": self.holder().map(|holder| queue::object(0, holder)),
        })
    }
}

/// A leader is known by its value, and so is a client of another library.
fn holder_name(holder: &QueueEntry) -> String {
    let (label, value) = (holder.label.as_ref(), holder.value.as_ref());
    let name = match holder.kind {
        LockKind::Lead => value.or(label),
        _ => label.or(value),
    };
    let name = name.filter(|name| !name.is_empty());
    name.cloned().unwrap_or_else(|| "(no label)".into())
}
