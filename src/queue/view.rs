//! Looking at queues from outside: who holds, who waits, which locks there are.
//!
//! It only reads, behind all that was committed before it was asked. What it says is old by the
//! time it is read: nothing here may grant.

use std::collections::BTreeMap;
use std::fmt;

use super::permits::PermitPool;
use super::{Queue, Session};
use crate::brief::Brief;
use crate::error::{Error, Result};
use crate::link::{Code, Found, Node, Read};
use crate::name::LockName;
use crate::protocol::dialect;
use crate::protocol::permits;
use crate::protocol::permits::{HELD, LIMIT, QUEUE};
use crate::protocol::rule;
use crate::protocol::rule::Verdict;
use crate::protocol::ticket::{Mode, Ticket, TicketData, in_order};
use crate::session::{Failure, failed};
use crate::token::Token;

/// Tickets or directories that are read in one request.
const AT_ONCE: usize = 100;
const LOOKING: &str = "look at";

/// One ticket in the queue of a lock, or the permits of one holder, as
/// [`Keeper::queue`](crate::Keeper::queue) saw them.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueueEntry {
    /// The node's name in its directory.
    pub node: String,
    /// The ticket's token: its identity, and the fencing token of an exclusive hold.
    pub token: Token,
    /// Whether it holds, or is about to because nobody stands before it. With a semaphore: whether
    /// it has its permits.
    pub is_holder: bool,
    /// What it is for.
    pub kind: EntryKind,
    /// The session that owns the node.
    pub session: i64,
    /// The owner's name, if one was given.
    pub owner: Option<String>,
    /// The label, if one was given.
    pub label: Option<String>,
    /// The trace that its work belongs to, if one was given.
    pub trace_id: Option<String>,
    /// The value of a candidate; of another program's ticket, what it wrote into its node (the id
    /// of Curator's `LeaderLatch` and `LeaderSelector`, the identifier of kazoo's locks).
    pub value: Option<String>,
    /// The host that took the ticket; `None` for tickets of foreign clients.
    pub host: Option<String>,
    /// The process that took the ticket; `None` for tickets of foreign clients.
    pub pid: Option<u32>,
    /// When the ticket was taken, by its host's clock, in milliseconds since the Unix epoch.
    pub since_ms: Option<u64>,
    /// The node's path, below the chroot.
    pub(crate) path: String,
}

/// Without the owner's name, which lets in whoever says it.
impl fmt::Debug for QueueEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueueEntry")
            .field("node", &Brief(&self.node))
            .field("token", &self.token)
            .field("is_holder", &self.is_holder)
            .field("kind", &self.kind)
            .field("host", &self.host.as_deref().map(Brief))
            .field("pid", &self.pid)
            .finish_non_exhaustive()
    }
}

impl QueueEntry {
    /// Whether this ticket and another one of the same lock are each seen by whoever has the other
    /// one. If not, both may hold at once: they are of recipes or libraries that cannot share a
    /// lock (see `docs/sharing.md`), and whoever came last was not refused with
    /// [`Error::UnsafeMix`](crate::Error::UnsafeMix), because it is another program, or could not
    /// see it.
    pub fn shares_with(&self, other: &Self) -> bool {
        let is_of_semaphore = |entry: &Self| matches!(entry.kind, EntryKind::Permit { .. });
        if is_of_semaphore(self) || is_of_semaphore(other) {
            // Its permits and its queue are apart from the queue of a lock.
            return is_of_semaphore(self) == is_of_semaphore(other);
        }
        let tickets = (Ticket::parse(&self.node), Ticket::parse(&other.node));
        match tickets {
            (Some(one), Some(other)) => dialect::share(&one, &other),
            _ => true,
        }
    }
}

/// What somebody in a queue holds or waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum EntryKind {
    /// A lock that excludes everybody.
    Lock,
    /// A read-write lock, for reading: shared with other readers.
    Read,
    /// A read-write lock, for writing.
    Write,
    /// Leadership.
    Candidate,
    /// Permits of a semaphore.
    Permit {
        /// How many.
        permits: u32,
    },
}

impl EntryKind {
    fn of(ticket: &Ticket, line: Option<&TicketData>) -> Self {
        if let Some(permits) = line.and_then(|line| line.permits) {
            return Self::Permit { permits };
        }
        // What stands before the number says it, in our names and in those of others.
        let digits = |c: char| c.is_ascii_digit() || c == '-';
        let tag = ticket.name.trim_end_matches(digits);
        match ticket.kind {
            Mode::Shared => Self::Read,
            Mode::Exclusive if tag.ends_with("__WRIT__") || tag.ends_with("write") => Self::Write,
            Mode::Exclusive if tag.ends_with("latch") => Self::Candidate,
            // In kazoo's dialect a candidate is a lock with a value.
            Mode::Exclusive if line.is_some_and(|line| line.value.is_some()) => Self::Candidate,
            Mode::Exclusive => Self::Lock,
        }
    }
}

/// A lock that is in use, as [`Keeper::locks`](crate::Keeper::locks) saw it.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LockSummary {
    /// The lock's name, as other Lockkeepers with this root would use it.
    pub name: String,
    /// How many hold it or wait for it.
    pub tickets: usize,
    /// We may not look into its directory: `tickets` is zero, and what is there, or below it, is
    /// not known. It may be no lock at all.
    pub is_denied: bool,
}

impl fmt::Debug for LockSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockSummary")
            .field("name", &Brief(&self.name))
            .field("tickets", &self.tickets)
            .field("is_denied", &self.is_denied)
            .finish_non_exhaustive()
    }
}

impl Queue {
    /// Everybody in the queue, in its order; with a semaphore, those who hold permits and then
    /// those who wait.
    pub(crate) async fn entries(&self) -> Result<Vec<QueueEntry>> {
        let session = self.pool.home(LOOKING, &self.name).await?;
        let path = &*self.directory.path;
        let children = children(&session, path).await;
        let failed = |failure| failed(&session, LOOKING, &self.name, path, failure);
        let Some(children) = children.map_err(failed)? else {
            return Ok(Vec::new());
        };
        let tickets = self.tickets_in(&session, path, &children).await?;
        let mut entries = with_holders(path, &tickets);
        if children.iter().any(|child| child == LIMIT || child == HELD) {
            entries.extend(self.permits_below(&session, path).await?);
        }
        Ok(entries)
    }

    /// Those who hold permits, in the order in which they took them.
    pub(crate) async fn permit_holders(&self, permits: &PermitPool) -> Result<Vec<QueueEntry>> {
        let session = self.pool.home(LOOKING, &self.name).await?;
        let path = &*permits.held.path;
        let children = children(&session, path).await;
        let failed = |failure| failed(&session, LOOKING, &self.name, path, failure);
        let children = children.map_err(failed)?.unwrap_or_default();
        self.permits_in(&session, path, &children).await
    }

    /// The same and those who wait for permits, if this is the path of a semaphore.
    async fn permits_below(&self, session: &Session, path: &str) -> Result<Vec<QueueEntry>> {
        let [queue, held, limit] = [QUEUE, HELD, LIMIT].map(|below| join(path, below));
        let reads = [
            Read::Children(&queue),
            Read::Children(&held),
            Read::Data(&limit),
        ];
        let found = session.read(|link| link.multi_read(&reads)).await;
        let failed = |failure| failed(session, LOOKING, &self.name, path, failure);
        let found = found.map_err(failed)?;
        let Ok([in_queue, in_held, limit]) = <[Found; 3]>::try_from(found) else {
            return Ok(Vec::new());
        };
        // Somebody may have removed the limit while permits are held.
        let is_permit = |child: &String| permits::weight(child).is_some();
        let has_permits = matches!(&in_held, Found::Children(held) if held.iter().any(is_permit));
        if !is_limit(&limit) && !has_permits {
            return Ok(Vec::new());
        }
        let listed = |path, found| match found {
            Found::Children(children) => Ok(children),
            Found::Failed(code) if code != Code::NoNode => Err(self.unread(session, path, code)),
            _ => Ok(Vec::new()),
        };
        let (in_queue, in_held) = (listed(&queue, in_queue)?, listed(&held, in_held)?);
        let mut entries = self.permits_in(session, &held, &in_held).await?;
        let waiting = self.tickets_in(session, &queue, &in_queue).await?;
        let waiting = waiting.iter();
        entries.extend(waiting.map(|(ticket, node)| entry(&queue, ticket, node, false)));
        Ok(entries)
    }

    /// The tickets among these children, in their order.
    async fn tickets_in(
        &self,
        session: &Session,
        path: &str,
        children: &[String],
    ) -> Result<Vec<(Ticket, Node)>> {
        let parsed = children.iter().filter_map(|child| Ticket::parse(child));
        let tickets = in_order(parsed.collect());
        self.nodes_of(session, path, tickets, |ticket| &ticket.name)
            .await
    }

    /// The permits among these children, in the order in which they were taken.
    async fn permits_in(
        &self,
        session: &Session,
        path: &str,
        children: &[String],
    ) -> Result<Vec<QueueEntry>> {
        let weights = children
            .iter()
            .filter_map(|child| Some((child, permits::weight(child)?)));
        let permits = self.nodes_of(session, path, weights.collect(), |(child, _)| child);
        let mut permits = permits.await?;
        permits.sort_by_key(|(_, node)| node.czxid);
        let permits = permits.iter().map(|((name, permits), node)| {
            let kind = EntryKind::Permit { permits: *permits };
            seen(path, name, node, true, |_| kind)
        });
        Ok(permits.collect())
    }

    /// Reads the nodes of some children; without those that left since the list. Who may not be
    /// read is an error: without it others would seem to hold.
    async fn nodes_of<T>(
        &self,
        session: &Session,
        path: &str,
        children: Vec<T>,
        name: impl Fn(&T) -> &str,
    ) -> Result<Vec<(T, Node)>> {
        let mut nodes = Vec::with_capacity(children.len());
        let paths: Vec<String> = children
            .iter()
            .map(|child| join(path, name(child)))
            .collect();
        for chunk in paths.chunks(AT_ONCE) {
            let reads: Vec<Read<'_>> = chunk.iter().map(|path| Read::Data(path)).collect();
            let found = session.read(|link| link.multi_read(&reads)).await;
            let failed = |failure| failed(session, LOOKING, &self.name, path, failure);
            nodes.extend(found.map_err(failed)?);
        }
        let mut there = Vec::with_capacity(nodes.len());
        for ((child, path), found) in children.into_iter().zip(&paths).zip(nodes) {
            match found {
                Found::Node(node) => there.push((child, node)),
                Found::Failed(code) if code != Code::NoNode => {
                    return Err(self.unread(session, path, code));
                }
                _ => {}
            }
        }
        Ok(there)
    }

    fn unread(&self, session: &Session, path: &str, code: Code) -> Error {
        failed(session, LOOKING, &self.name, path, Failure::Answered(code))
    }
}

/// Whether this is the stored limit of a semaphore.
fn is_limit(found: &Found) -> bool {
    matches!(found, Found::Node(node) if permits::parse_limit(&node.data).is_some())
}

/// An exclusive ticket holds when it is the first; shared ones hold up to the first exclusive one.
fn with_holders(path: &str, nodes: &[(Ticket, Node)]) -> Vec<QueueEntry> {
    let first = nodes.first().map(|(ticket, _)| ticket);
    let first_exclusive = nodes
        .iter()
        .position(|(ticket, _)| ticket.kind == Mode::Exclusive)
        .unwrap_or(nodes.len());
    let holds = |at: usize, ticket: &Ticket| match ticket.kind {
        Mode::Exclusive => {
            // A guest has the number of its host.
            rule::judge(ticket, first.iter().map(|first| first.name.as_str())) == Verdict::Granted
        }
        Mode::Shared => at < first_exclusive,
    };
    nodes
        .iter()
        .enumerate()
        .map(|(at, (ticket, node))| entry(path, ticket, node, holds(at, ticket)))
        .collect()
}

fn entry(path: &str, ticket: &Ticket, node: &Node, is_holder: bool) -> QueueEntry {
    seen(path, &ticket.name, node, is_holder, |line| {
        EntryKind::of(ticket, line)
    })
}

fn seen(
    path: &str,
    name: &str,
    node: &Node,
    is_holder: bool,
    kind: impl FnOnce(Option<&TicketData>) -> EntryKind,
) -> QueueEntry {
    let line = TicketData::parse(&node.data);
    let kind = kind(line.as_ref());
    let is_ours = line.is_some();
    let mut line = line.unwrap_or_default();
    if !is_ours && (kind == EntryKind::Candidate || !node.data.is_empty()) {
        line.value = Some(String::from_utf8_lossy(&node.data).into_owned());
    }
    QueueEntry {
        node: name.to_owned(),
        token: Token::new(node.czxid),
        is_holder,
        kind,
        session: node.owner,
        owner: line.owner,
        label: line.label,
        trace_id: line.trace,
        value: line.value,
        host: is_ours.then_some(line.host),
        pid: is_ours.then_some(line.pid),
        since_ms: is_ours.then_some(line.at),
        path: join(path, name),
    }
}

/// What the directories below a root say of the locks there.
#[derive(Debug, Default)]
struct Census {
    /// Tickets by name.
    tickets: BTreeMap<String, usize>,
    /// LocalHolds of permits, by the name of their directory.
    permits: BTreeMap<String, usize>,
    /// Names that may be those of semaphores.
    with_limit: Vec<String>,
    /// Directories that we may not read.
    denied: Vec<String>,
}

impl Census {
    /// Takes in the children of a directory; returns those that may be directories.
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

    /// The queue and the permits of this semaphore go by its own name.
    fn fold(&mut self, name: &str) {
        let waiting = self.tickets.remove(&join(name, QUEUE));
        let holders = self.permits.get(&join(name, HELD)).copied();
        let all = waiting.unwrap_or_default() + holders.unwrap_or_default();
        if all > 0 {
            *self.tickets.entry(name.to_owned()).or_default() += all;
        }
    }
}

/// The locks below a root that have tickets or permits, by name. Reads every directory once, many
/// in one request.
pub(crate) async fn locks(session: &Session, root: &str) -> Result<Vec<LockSummary>> {
    let base = if root == "/" { "" } else { root };
    let failed = |failure| failed(session, "list the locks below", root, root, failure);
    let mut census = Census::default();
    let top = children(session, root).await.map_err(failed)?;
    let mut level = census.count("", top.unwrap_or_default());
    while !level.is_empty() {
        let mut next = Vec::new();
        for chunk in level.chunks(AT_ONCE) {
            let paths: Vec<String> = chunk.iter().map(|name| path_of(base, name)).collect();
            let reads: Vec<Read<'_>> = paths.iter().map(|path| Read::Children(path)).collect();
            let answers = session.read(|link| link.multi_read(&reads)).await;
            for (name, answer) in chunk.iter().zip(answers.map_err(failed)?) {
                match answer {
                    Found::Children(children) => next.extend(census.count(name, children)),
                    Found::Failed(Code::NoAuth(_)) => census.denied.push(name.clone()),
                    // One that is gone holds no lock.
                    _ => {}
                }
            }
        }
        level = next;
    }
    let with_limit = std::mem::take(&mut census.with_limit);
    for chunk in with_limit.chunks(AT_ONCE) {
        let limits: Vec<String> = chunk
            .iter()
            .map(|name| path_of(base, &join(name, LIMIT)))
            .collect();
        let reads: Vec<Read<'_>> = limits.iter().map(|path| Read::Data(path)).collect();
        let answers = session.read(|link| link.multi_read(&reads)).await;
        for (name, answer) in chunk.iter().zip(answers.map_err(failed)?) {
            if is_limit(&answer) {
                census.fold(name);
            }
        }
    }
    let denied = census.denied.into_iter().map(|name| (name, None));
    let counted = census.tickets.into_iter();
    let counted = counted.map(|(name, tickets)| (name, Some(tickets)));
    let all: BTreeMap<String, Option<usize>> = denied.chain(counted).collect();
    let summary = |(name, tickets): (String, Option<usize>)| LockSummary {
        name,
        tickets: tickets.unwrap_or_default(),
        is_denied: tickets.is_none(),
    };
    Ok(all.into_iter().map(summary).collect())
}

fn path_of(base: &str, name: &str) -> String {
    match (base, name) {
        ("", "") => "/".into(),
        (base, "") => base.into(),
        (base, name) => format!("{base}/{name}"),
    }
}

fn join(name: &str, child: &str) -> String {
    if name.is_empty() {
        child.into()
    } else {
        format!("{name}/{child}")
    }
}

async fn children(session: &Session, path: &str) -> Result<Option<Vec<String>>, Failure> {
    match session
        .read_behind_sync(path, &[Read::Children(path)])
        .await?
        .into_iter()
        .next()
    {
        Some(Found::Children(children)) => Ok(Some(children)),
        Some(Found::Failed(Code::NoNode)) => Ok(None),
        Some(Found::Failed(code)) => Err(Failure::Answered(code)),
        other => Err(Failure::Answered(Code::Other(format!(
            "unexpected answer {other:?}"
        )))),
    }
}
