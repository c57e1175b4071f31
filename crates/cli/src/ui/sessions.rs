//! The sessions that hold or wait, with what. (pure)

use std::collections::BTreeMap;

use lockkeeper::{QueueEntry, SessionId};
use serde_json::{Value, json};

use super::picture::Picture;

/// The most sessions in an answer: those with the most locks.
const MOST: usize = 1000;
/// The most names of each.
const NAMES: usize = 20;

#[derive(Default)]
struct Used<'a> {
    first: Option<&'a QueueEntry>,
    holds: Vec<&'a str>,
    waits: Vec<&'a str>,
}

pub(super) fn of(picture: &Picture) -> Value {
    let mut sessions: BTreeMap<SessionId, Used<'_>> = BTreeMap::new();
    for (name, row) in &picture.rows {
        for entry in row.queue.iter() {
            let used = sessions.entry(entry.session).or_default();
            used.first.get_or_insert(entry);
            let names = if entry.is_holder {
                &mut used.holds
            } else {
                &mut used.waits
            };
            names.push(name);
        }
    }
    let all = sessions.len();
    let mut sessions: Vec<_> = sessions.into_iter().collect();
    sessions.sort_by_key(|(_, used)| std::cmp::Reverse((used.holds.len(), used.waits.len())));
    let shown = sessions.iter().take(MOST).map(|(session, used)| {
        json!({
            "session": session.to_string(),
            "host": used.first.and_then(|entry| entry.host.as_deref()),
            "pid": used.first.and_then(|entry| entry.pid),
            "label": used.first.and_then(|entry| entry.label.as_deref()),
            "holding": used.holds.len(),
            "waiting": used.waits.len(),
            "holds": used.holds.iter().take(NAMES).collect::<Vec<_>>(),
            "waits": used.waits.iter().take(NAMES).collect::<Vec<_>>(),
        })
    });
    json!({ "all": all, "sessions": shown.collect::<Vec<_>>() })
}
