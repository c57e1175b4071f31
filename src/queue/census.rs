//! The census: counts the locks in use below a root, and their tickets.
//!
//! It only reads. A semaphore counts under its own name, and a directory that we may not read is
//! listed as denied.

use std::collections::BTreeMap;

use super::view::{children, is_limit, join, read_all};
use crate::brief::{Brief, shows};
use crate::error::Result;
use crate::link::{Code, Found, Read};
use crate::name::LockName;
use crate::protocol::permits::{self, HELD, LIMIT, QUEUE};
use crate::protocol::ticket::Ticket;
use crate::session::{Failure, Session, failed};

/// A lock that is in use, as [`Keeper::locks`](crate::Keeper::locks) saw it.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LockSummary {
    /// The lock's name, for a keeper with the same root.
    pub name: String,
    /// The number of its holders and waiters.
    pub tickets: usize,
    /// We may not read its directory, so `tickets` is zero and the directories below it are not
    /// listed. It may be no lock at all.
    pub is_denied: bool,
}

shows!(|summary| LockSummary {
    name: Brief(&summary.name),
    tickets: summary.tickets,
    is_denied: summary.is_denied,
});

/// The counts of all directories below a root.
#[derive(Debug, Default)]
struct Census {
    /// Tickets by name.
    tickets: BTreeMap<String, usize>,
    /// Holders of permits, by the name of their directory.
    permits: BTreeMap<String, usize>,
    /// Names that may be of semaphores.
    with_limit: Vec<String>,
    /// Directories that we may not read.
    denied: Vec<String>,
}

impl Census {
    /// Counts the children of a directory, and returns the names of possible directories.
    fn count(&mut self, name: &str, children: Vec<String>) -> Vec<String> {
        let is_ticket = |child: &&String| Ticket::parse(child).is_some();
        let is_permit = |child: &&String| permits::weight(child).is_some();
        let tickets = children.iter().filter(is_ticket).count();
        if tickets > 0 && !name.is_empty() {
            self.tickets.insert(name.to_owned(), tickets);
        }
        let permits = children.iter().filter(is_permit).count();
        if permits > 0 {
            self.permits.insert(name.to_owned(), permits);
        }
        if !name.is_empty() && children.iter().any(|child| child == LIMIT) {
            self.with_limit.push(name.to_owned());
        }
        let others = children.iter().filter(|child| !is_permit(child));
        let below = others.map(|child| join(name, child));
        below.filter(|name| LockName::new(name).is_ok()).collect()
    }

    /// Counts the queue and the permits of a semaphore under its own name.
    fn fold(&mut self, name: &str) {
        let waiting = self.tickets.remove(&join(name, QUEUE));
        let holders = self.permits.get(&join(name, HELD)).copied();
        let all = waiting.unwrap_or_default() + holders.unwrap_or_default();
        if all > 0 {
            *self.tickets.entry(name.to_owned()).or_default() += all;
        }
    }

    /// A denied directory is listed by its name, unless its tickets were counted.
    fn summaries(self) -> Vec<LockSummary> {
        let denied = self.denied.into_iter().map(|name| (name, None));
        let counted = self.tickets.into_iter();
        let counted = counted.map(|(name, tickets)| (name, Some(tickets)));
        let all: BTreeMap<String, Option<usize>> = denied.chain(counted).collect();
        let summary = |(name, tickets): (String, Option<usize>)| LockSummary {
            name,
            tickets: tickets.unwrap_or_default(),
            is_denied: tickets.is_none(),
        };
        all.into_iter().map(summary).collect()
    }
}

/// The locks below a root that have tickets or permits, by name; all of them, or one and those
/// below it. It reads each directory once, many in one request.
pub(crate) async fn locks(
    session: &Session,
    root: &str,
    top: Option<&LockName>,
) -> Result<Vec<LockSummary>> {
    let base = if root == "/" { "" } else { root };
    let name = top.map_or("", LockName::as_str);
    let path = top.map_or_else(|| root.to_owned(), |top| format!("{base}/{top}"));
    let failed = |failure| failed(session, "list the locks below", &path, &path, failure);
    let census = count_below(session, base, name, &path)
        .await
        .map_err(failed)?;
    Ok(census.summaries())
}

/// Whether the root is there: the first lock makes it.
pub(crate) async fn has_root(session: &Session, root: &str) -> Result<bool> {
    let found = children(session, root).await;
    let failed = |failure| failed(session, "look for the root", root, root, failure);
    Ok(found.map_err(failed)?.is_some())
}

/// Counts a directory, which has this name and path, and those below it.
async fn count_below(
    session: &Session,
    base: &str,
    name: &str,
    path: &str,
) -> Result<Census, Failure> {
    let mut census = Census::default();
    let top = children(session, path).await?;
    let mut level = census.count(name, top.unwrap_or_default());
    while !level.is_empty() {
        let mut next = Vec::new();
        let paths: Vec<String> = level.iter().map(|name| format!("{base}/{name}")).collect();
        let reads: Vec<Read<'_>> = paths.iter().map(|path| Read::Children(path)).collect();
        for (name, answer) in level.into_iter().zip(read_all(session, &reads).await?) {
            match answer {
                Found::Children(children) => next.extend(census.count(&name, children)),
                Found::Failed(Code::NoAuth(_)) => census.denied.push(name),
                // A directory that is gone holds no lock.
                _ => {}
            }
        }
        level = next;
    }
    let names = std::mem::take(&mut census.with_limit);
    let limits = names.iter().map(|name| format!("{base}/{name}/{LIMIT}"));
    let limits: Vec<String> = limits.collect();
    let reads: Vec<Read<'_>> = limits.iter().map(|path| Read::Data(path)).collect();
    for (name, answer) in names.iter().zip(read_all(session, &reads).await?) {
        if is_limit(&answer) {
            census.fold(name);
        }
    }
    Ok(census)
}
