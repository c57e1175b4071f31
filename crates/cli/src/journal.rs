//! `journal`: who had a lock, and how that ended. It only reads.

use std::collections::HashSet;
use std::time::{Duration, SystemTime};

use lockkeeper::{Error, HoldOutcome, JournalEntry, Keeper, LockName, QueueEntry, Token};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::args::{Journal, Server};
use crate::failure::Failure;
use crate::look;
use crate::queue;
use crate::report;

const LOOKS: u32 = 3;
const BETWEEN_LOOKS: Duration = Duration::from_millis(150);
const HEAD: [&str; 10] = [
    "TOKEN", "KIND", "OWNER", "LABEL", "HOST", "PID", "SINCE", "WAITED", "HELD", "ENDED",
];

pub(crate) async fn run(server: &Server, order: &Journal, as_json: bool) -> Result<u8, Failure> {
    let name = LockName::new(&order.name)?;
    let story = look::once(server, async |keeper: &Keeper| {
        let story = Story::read(keeper, &name).await;
        let nothing = format!(
            "the journal has no hold of {name}: `run` and `elect` write holds with --journal"
        );
        Ok((story, look::nothing(server, keeper, nothing).await?))
    });
    let (mut story, nothing) = story.await?;
    let journal = std::mem::replace(&mut story.journal, Ok(Vec::new()))?;
    if let Err(error) = story.queue {
        return Err(error.into());
    }
    if as_json {
        let objects = journal.iter().map(|entry| object(entry, &story));
        report::print_json(&objects.collect::<Vec<_>>())?;
    } else if journal.is_empty() {
        report::say(nothing);
    } else {
        let now = SystemTime::now();
        let rows = journal.iter().map(|entry| row(entry, &story, now));
        report::print(&report::table(HEAD, &rows.collect::<Vec<_>>()))?;
    }
    Ok(0)
}

/// What is written about a lock, beside its queue.
pub(crate) struct Story {
    pub(crate) journal: Result<Vec<JournalEntry>, Error>,
    pub(crate) queue: Result<Vec<QueueEntry>, Error>,
    /// The tickets of holds that have gone for a while, and of whose ends nothing is said.
    silent: HashSet<Token>,
}

impl Story {
    /// Ends are written behind the backs of those who release: what seems to have ended without a
    /// word is looked at again.
    pub(crate) async fn read(keeper: &Keeper, name: &LockName) -> Self {
        let mut story = Self::look(keeper, name).await;
        for _ in 1..LOOKS {
            if story.silent.is_empty() {
                break;
            }
            sleep(BETWEEN_LOOKS).await;
            let next = Self::look(keeper, name).await;
            let silent = &story.silent & &next.silent;
            story = Self { silent, ..next };
        }
        story
    }

    async fn look(keeper: &Keeper, name: &LockName) -> Self {
        // A holder that comes meanwhile is in the queue and not yet in the journal; the other way
        // round it would seem to have died.
        let (journal, queue) = (keeper.journal(name).await, keeper.queue(name).await);
        let mut silent = HashSet::new();
        if let (Ok(journal), Ok(queue)) = (&journal, &queue) {
            let without_an_end = journal.iter().filter(|entry| entry.outcome.is_none());
            silent.extend(without_an_end.map(|entry| entry.ticket));
            // A guest has its host's token, and a writer that became a reader another node.
            for ticket in queue {
                silent.remove(&ticket.token);
            }
        }
        Self {
            journal,
            queue,
            silent,
        }
    }

    pub(crate) fn is_silent(&self, entry: &JournalEntry) -> bool {
        self.silent.contains(&entry.ticket)
    }

    fn holds(&self, entry: &JournalEntry) -> bool {
        let mut queue = self.queue.iter().flatten();
        entry.outcome.is_none() && queue.any(|it| it.is_holder && it.token == entry.ticket)
    }

    /// How it ended, as far as that can be known.
    fn ended(&self, entry: &JournalEntry) -> String {
        match &entry.outcome {
            Some(ending) => ending.to_string(),
            None if self.holds(entry) => "holds".into(),
            None if self.is_silent(entry) => "without a word".into(),
            None => "ending".into(),
        }
    }
}

pub(crate) fn object(entry: &JournalEntry, story: &Story) -> Value {
    let (ending, why) = match &entry.outcome {
        Some(HoldOutcome::Lost(why)) => (Some("lost".to_owned()), Some(why)),
        Some(ending) => (Some(ending.to_string()), None),
        None => (None, None),
    };
    json!({
        "token": entry.token,
        "ticket": entry.ticket,
        "node": entry.node,
        "kind": entry.kind.as_str(),
        "owner": entry.owner,
        "label": entry.label,
        "host": entry.host,
        "pid": entry.pid,
        "since_ms": queue::since_ms(entry.since),
        "waited_ms": ms(entry.waited),
        "held_ms": entry.held.map(ms),
        "ending": ending,
        "why": why,
        "holds": story.holds(entry),
    })
}

fn row(entry: &JournalEntry, story: &Story, now: SystemTime) -> [String; 10] {
    [
        entry.token.to_string(),
        entry.kind.to_string(),
        report::or_dash(entry.owner.clone()),
        report::or_dash(entry.label.clone()),
        entry.host.clone(),
        entry.pid.to_string(),
        format!("{} ago", queue::ago(entry.since, now)),
        report::fine_span(entry.waited),
        report::or_dash(entry.held.map(report::fine_span)),
        story.ended(entry),
    ]
}

fn ms(long: Duration) -> u64 {
    u64::try_from(long.as_millis()).unwrap_or(u64::MAX)
}
