//! `why`: who keeps us waiting, in words. It only reads.

use std::collections::HashMap;
use std::time::SystemTime;

use lockkeeper::{JournalEntry, LockKind, LockName, QueueEntry};
use serde_json::{Value, json};

use crate::args::{Server, Why};
use crate::doctor;
use crate::failure::Failure;
use crate::journal::Story;
use crate::look;
use crate::process::{self, Doing};
use crate::queue;
use crate::report;

/// So many of a kind are named.
const MOST: usize = 10;

pub(crate) async fn run(server: &Server, order: &Why, as_json: bool) -> Result<u8, Failure> {
    let name = LockName::new(&order.name)?;
    let seen = look::once(server, async |keeper| {
        // Looked at between two reads: a process that is gone by the second has ended as it should.
        let doing = match keeper.queue(&name).await {
            Ok(queue) => process::of(queue.iter()).await,
            Err(_) => HashMap::new(),
        };
        let story = Story::read(keeper, &name).await;
        let nothing = look::nothing(server, keeper, String::new()).await?;
        Ok((doing, story, nothing))
    });
    let (doing, mut story, nothing) = seen.await?;
    let queue = std::mem::replace(&mut story.queue, Ok(Vec::new()))?;
    let journal = std::mem::replace(&mut story.journal, Ok(Vec::new()));
    // The rest can be told without it: it may have an access list of its own, or be another
    // program's.
    let journal = journal.unwrap_or_else(|error| {
        report::say(format_args!("without the journal: {error}"));
        Vec::new()
    });
    let doing = |ticket: &QueueEntry| doing.get(&ticket.token).copied();
    let places = queue.iter().map(|ticket| (ticket, doing(ticket)));
    let case = Case {
        name: name.as_str(),
        places: places.collect(),
        strangers: doctor::strange_to_each_other(&queue),
        journal: &journal,
        story: &story,
        now: SystemTime::now(),
    };
    if as_json {
        report::print_json(&case.object())?;
    } else if queue.is_empty() && !nothing.is_empty() {
        report::say(nothing);
    } else {
        report::print_lines(&case.lines())?;
    }
    Ok(0)
}

/// All that is known.
struct Case<'a> {
    name: &'a str,
    places: Vec<(&'a QueueEntry, Option<Doing>)>,
    /// Two who do not see each other.
    strangers: Option<(&'a QueueEntry, &'a QueueEntry)>,
    journal: &'a [JournalEntry],
    story: &'a Story,
    now: SystemTime,
}

type Place<'a> = (&'a QueueEntry, Option<Doing>);

impl Case<'_> {
    fn holders(&self) -> Vec<Place<'_>> {
        let places = self.places.iter().copied();
        places.filter(|(ticket, _)| ticket.is_holder).collect()
    }

    fn waiting(&self) -> Vec<Place<'_>> {
        let places = self.places.iter().copied();
        places.filter(|(ticket, _)| !ticket.is_holder).collect()
    }

    fn lines(&self) -> Vec<String> {
        let (name, holders, waiting) = (self.name, self.holders(), self.waiting());
        let mut lines = Vec::new();
        match &holders[..] {
            [] => {
                lines.push(format!("Nobody holds {name}."));
                lines.extend(self.last());
            }
            [holder] => {
                lines.push(format!(
                    "{name} is {} by {}.",
                    held(holder.0),
                    self.whom(holder.0)
                ));
                lines.extend(doubt(*holder));
            }
            several => {
                lines.push(format!("{name} is shared by {}:", several.len()));
                lines.extend(self.named(several));
            }
        }
        match &waiting[..] {
            [] => lines.push("Nobody waits for it.".into()),
            [next] => {
                lines.push(format!("One waits: {}.", self.whom(next.0)));
                lines.extend(doubt(*next));
            }
            [next, others @ ..] => {
                lines.push(format!(
                    "{} wait. The next is {}.",
                    waiting.len(),
                    self.whom(next.0)
                ));
                lines.extend(doubt(*next));
                // A waiter in trouble keeps those behind it waiting, one day.
                for other in others.iter().take(MOST) {
                    if let Some(doubt) = doubt(*other) {
                        lines.push(format!("Then {}.", self.whom(other.0)));
                        lines.push(doubt);
                    }
                }
            }
        }
        if let Some((one, other)) = self.strangers {
            lines.push(format!(
                "{} and {} do not see each other: both may hold at once.",
                doctor::who(one),
                doctor::who(other)
            ));
        }
        if let ([holder], false) = (&holders[..], waiting.is_empty()) {
            if holder.0.kind != LockKind::Lead {
                lines.push(format!(
                    "`lockkeeper break {name}` asks the holder to release it, and then removes the ticket."
                ));
            }
        }
        lines
    }

    fn named(&self, places: &[Place<'_>]) -> Vec<String> {
        let mut lines = Vec::new();
        for place in places.iter().take(MOST) {
            lines.push(format!("- {}", self.whom(place.0)));
            lines.extend(doubt(*place));
        }
        if places.len() > MOST {
            lines.push(format!("- and {} more", places.len() - MOST));
        }
        lines
    }

    /// Who it is, and since when.
    fn whom(&self, ticket: &QueueEntry) -> String {
        let mut known = Vec::new();
        if let (Some(host), Some(pid)) = (&ticket.host, ticket.pid) {
            known.push(format!("process {pid} on {host}"));
        }
        if let Some(owner) = &ticket.owner {
            known.push(format!("owner {owner}"));
        }
        if let Some(trace) = &ticket.trace_id {
            known.push(format!("trace {trace}"));
        }
        known.push(format!("session {}", ticket.session));
        if ticket.is_holder {
            known.push(format!("token {}", ticket.token));
        }
        let who = match (&ticket.label, &ticket.value) {
            (Some(text), _) | (None, Some(text)) if !text.is_empty() => format!("{text:?}"),
            _ if ticket.host.is_none() => format!("another program's ticket {}", ticket.node),
            _ => ticket.node.clone(),
        };
        format!("{who} ({}){}", known.join(", "), self.since(ticket))
    }

    fn since(&self, ticket: &QueueEntry) -> String {
        let mut journal = self.journal.iter().rev();
        let hold = journal.find(|entry| entry.ticket == ticket.token);
        match (hold, ticket.since) {
            (Some(hold), _) if ticket.is_holder => {
                let held = queue::ago(hold.since, self.now);
                format!(
                    ", for {held}, after a wait of {}",
                    report::fine_span(hold.waited)
                )
            }
            (_, Some(since)) if ticket.is_holder => {
                format!(", which asked for it {} ago", queue::ago(since, self.now))
            }
            (_, Some(since)) => format!(", for {}", queue::ago(since, self.now)),
            _ => String::new(),
        }
    }

    /// Who had it last, if that was written down.
    fn last(&self) -> Option<String> {
        let last = self.journal.last()?;
        let who = last.label.as_deref().unwrap_or(&last.node);
        let how = match &last.outcome {
            Some(ending) => format!("it ended: {ending}"),
            None if self.story.is_silent(last) => {
                "its end was not written: its process died, was cut off, or could not write".into()
            }
            None => "it went a moment ago".into(),
        };
        let began = queue::ago(last.since, self.now);
        Some(format!(
            "The last one was {who:?} (process {} on {}), from {began} ago on; {how}.",
            last.pid, last.host
        ))
    }

    fn object(&self) -> Value {
        let object = |(place, (ticket, doing)): (usize, &Place<'_>)| {
            let mut object = queue::object(place, ticket);
            object["process"] = doing.map(Doing::word).into();
            object
        };
        let places = || self.places.iter().enumerate();
        let holders = places().filter(|(_, (ticket, _))| ticket.is_holder);
        let next = places().find(|(_, (ticket, _))| !ticket.is_holder);
        json!({
            "name": self.name,
            "holders": holders.map(object).collect::<Vec<_>>(),
            "waiting": self.waiting().len(),
            "next": next.map(object),
        })
    }
}

fn held(ticket: &QueueEntry) -> String {
    match (&ticket.kind, ticket.permits) {
        (LockKind::Read, _) => "held for reading".into(),
        (LockKind::Write, _) => "held for writing".into(),
        (LockKind::Lead, _) => "led".into(),
        (_, Some(1)) => "used, with one permit,".into(),
        (_, Some(permits)) => format!("used, with {permits} permits,"),
        _ => "held".into(),
    }
}

/// What keeps it from going on.
fn doubt((ticket, doing): Place<'_>) -> Option<String> {
    let then = if ticket.is_holder {
        "others get the lock"
    } else {
        "its place is given up"
    };
    match doing? {
        Doing::Runs => None,
        Doing::Stopped => Some(format!(
            "  Its process is stopped, by a signal or a debugger: {then} when its session expires."
        )),
        Doing::Ended => Some(format!(
            "  Its process has ended without a word: {then} when its session expires."
        )),
    }
}
