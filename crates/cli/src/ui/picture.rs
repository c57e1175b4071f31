//! What the reader knows at one moment, and how it differs from an earlier one. (pure)
//!
//! Invariant: a row has the version of the picture that changed it last. Who knows version `v`
//! knows all after the rows with higher ones and the names that went since.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use lockkeeper::QueueEntry;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::doctor::{Finding, Wait};
use crate::queue;

/// The most characters of a text in the list.
const MOST_TEXT: usize = 200;
/// So many names that went are remembered.
const GONE: usize = 2000;

#[derive(Clone)]
pub(super) struct Picture {
    /// Of this process: versions of another one say nothing.
    pub(super) boot: Uuid,
    pub(super) version: u64,
    /// When the locks were listed last.
    pub(super) read: Option<SystemTime>,
    /// How long it took to read all queues once.
    pub(super) round: Option<Duration>,
    /// Why the last look failed.
    pub(super) error: Option<String>,
    pub(super) rows: BTreeMap<String, Arc<Row>>,
    gone: VecDeque<(u64, String)>,
    /// Names that went up to this version are forgotten.
    forgotten: u64,
    pub(super) circles: Arc<Vec<Vec<Wait>>>,
    pub(super) examined: Option<Arc<Examined>>,
    /// The journals of locks that are looked at.
    pub(super) journals: HashMap<String, Arc<Journal>>,
}

impl Default for Picture {
    fn default() -> Self {
        Self {
            boot: Uuid::new_v4(),
            version: 0,
            read: None,
            round: None,
            error: None,
            rows: BTreeMap::new(),
            gone: VecDeque::new(),
            forgotten: 0,
            circles: Arc::default(),
            examined: None,
            journals: HashMap::new(),
        }
    }
}

/// A lock that is in use.
#[derive(Clone)]
pub(super) struct Row {
    pub(super) version: u64,
    pub(super) queue: Arc<Vec<QueueEntry>>,
    /// Its directory may not be read.
    pub(super) is_denied: bool,
    pub(super) is_in_circle: bool,
}

/// What the doctor found.
pub(super) struct Examined {
    pub(super) at: SystemTime,
    pub(super) findings: Vec<Finding>,
    /// What could not be looked at, and why.
    pub(super) unchecked: Vec<String>,
}

pub(super) struct Journal {
    pub(super) version: u64,
    /// As `lockkeeper journal --json` shows them, or why they cannot be read.
    pub(super) entries: Result<Vec<Value>, String>,
}

impl Row {
    pub(super) fn holders(&self) -> usize {
        self.queue.iter().filter(|entry| entry.is_holder).count()
    }

    pub(super) fn waiting(&self) -> usize {
        self.queue.len() - self.holders()
    }

    /// As the list shows it.
    pub(super) fn object(&self, name: &str) -> Value {
        let holder = self.queue.iter().find(|entry| entry.is_holder);
        let kind = self.queue.first().map(|entry| queue::word(&entry.kind));
        json!({
            "name": name,
            "kind": kind,
            "holders": self.holders(),
            "waiting": self.waiting(),
            "denied": self.is_denied,
            "deadlock": self.is_in_circle,
            "holder": holder.map(|holder| cut(queue::object(0, holder))),
        })
    }
}

/// Others may have written very much, and each viewer gets the whole list.
fn cut(mut entry: Value) -> Value {
    for field in entry
        .as_object_mut()
        .into_iter()
        .flat_map(|it| it.values_mut())
    {
        if let Value::String(text) = field {
            if let Some((end, _)) = text.char_indices().nth(MOST_TEXT) {
                text.truncate(end);
                text.push('…');
            }
        }
    }
    entry
}

impl Picture {
    /// Puts what was read of a lock in its place. The version grows if that is new.
    pub(super) fn put(&mut self, name: &str, queue: Arc<Vec<QueueEntry>>, is_denied: bool) {
        let before = self.rows.get(name);
        if before.is_some_and(|row| row.queue == queue && row.is_denied == is_denied) {
            return;
        }
        let is_in_circle = before.is_some_and(|row| row.is_in_circle);
        let row = Row {
            version: self.next(),
            queue,
            is_denied,
            is_in_circle,
        };
        self.rows.insert(name.to_owned(), Arc::new(row));
    }

    /// Removes the locks that are not in use any more.
    pub(super) fn keep(&mut self, names: &BTreeSet<&str>) {
        let is_gone = |name: &&String| !names.contains(&***name);
        let gone: Vec<String> = self.rows.keys().filter(is_gone).cloned().collect();
        for name in gone {
            self.rows.remove(&name);
            let version = self.next();
            self.gone.push_back((version, name));
        }
        while self.gone.len() > GONE {
            self.forgotten = self.gone.pop_front().map_or(0, |(version, _)| version);
        }
    }

    /// Marks the locks that are in a circle of waits.
    pub(super) fn mark(&mut self, circles: Vec<Vec<Wait>>) {
        let locks: BTreeSet<&str> = circles.iter().flatten().map(|wait| &*wait.lock).collect();
        let names: Vec<String> = self.rows.keys().cloned().collect();
        for name in names {
            let is_in_circle = locks.contains(&*name);
            if self.rows[&name].is_in_circle != is_in_circle {
                let version = self.next();
                if let Some(row) = self.rows.get_mut(&name) {
                    let row = Arc::make_mut(row);
                    (row.version, row.is_in_circle) = (version, is_in_circle);
                }
            }
        }
        self.circles = Arc::new(circles);
    }

    /// Puts the journal of a lock in its place.
    pub(super) fn put_journal(&mut self, name: &str, entries: Result<Vec<Value>, String>) {
        let before = self.journals.get(name);
        if before.is_none_or(|journal| journal.entries != entries) {
            let version = self.next();
            let journal = Journal { version, entries };
            self.journals.insert(name.to_owned(), Arc::new(journal));
        }
    }

    pub(super) fn next(&mut self) -> u64 {
        self.version += 1;
        self.version
    }

    /// What has changed for one who knows a version of this process; all of it for another one.
    pub(super) fn changes(&self, known: Option<u64>) -> (bool, Vec<Value>, Vec<&str>) {
        let known = known.filter(|known| (self.forgotten..=self.version).contains(known));
        let since = known.unwrap_or_default();
        let is_new = |(_, row): &(&String, &Arc<Row>)| row.version > since;
        let rows = self.rows.iter().filter(is_new);
        let changed = rows.map(|(name, row)| row.object(name)).collect();
        let gone = self.gone.iter().filter(|(version, _)| *version > since);
        let gone = gone.filter(|(_, name)| known.is_some() && !self.rows.contains_key(name));
        let gone = gone.map(|(_, name)| &**name).collect();
        (known.is_none(), changed, gone)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(picture: &mut Picture, name: &str) {
        picture.put(name, Arc::default(), false);
    }

    fn names(changes: &(bool, Vec<Value>, Vec<&str>)) -> (bool, Vec<String>, Vec<String>) {
        let changed = changes.1.iter().map(|row| row["name"].to_string());
        let gone = changes.2.iter().map(|name| (*name).to_owned());
        (changes.0, changed.collect(), gone.collect())
    }

    #[test]
    fn who_knows_a_version_gets_what_came_and_went_since() {
        let mut picture = Picture::default();
        put(&mut picture, "a");
        put(&mut picture, "b");
        let known = picture.version;

        put(&mut picture, "a");
        put(&mut picture, "c");
        picture.keep(&BTreeSet::from(["a", "c"]));

        let (whole, changed, gone) = names(&picture.changes(Some(known)));
        assert!(!whole);
        assert_eq!((changed, gone), (vec!["\"c\"".into()], vec!["b".into()]));
        let (whole, changed, gone) = names(&picture.changes(None));
        assert!(whole && gone.is_empty());
        assert_eq!(changed, ["\"a\"", "\"c\""]);
    }

    #[test]
    fn who_has_missed_too_much_gets_all() {
        let mut picture = Picture::default();
        put(&mut picture, "stays");
        let known = picture.version;
        for number in 0..=GONE {
            put(&mut picture, &number.to_string());
        }
        picture.keep(&BTreeSet::from(["stays"]));

        assert!(
            picture.changes(Some(known)).0,
            "its oldest names are forgotten"
        );
        assert!(
            picture.changes(Some(u64::MAX)).0,
            "a version that never was"
        );
    }

    #[test]
    fn a_name_that_came_back_has_not_gone() {
        let mut picture = Picture::default();
        put(&mut picture, "a");
        let known = picture.version;
        picture.keep(&BTreeSet::new());
        put(&mut picture, "a");

        let (_, changed, gone) = names(&picture.changes(Some(known)));
        assert_eq!((changed.len(), gone.len()), (1, 0));
    }
}
