//! Looking at queues from outside: who holds, who waits, which locks there are.
//!
//! It only reads, and what it says is old by the time it is read: nothing here may grant.

use super::Queue;
use super::rule::{self, Verdict};
use super::ticket::{DataLine, Kind, Ticket, in_order};
use crate::error::Result;
use crate::link::{Code, Found, Node, Read};
use crate::name::LockName;
use crate::session::{Failure, Session, failed};
use crate::token::Token;

/// Tickets or directories that are read in one request.
const AT_ONCE: usize = 100;
const LOOKING: &str = "look at";

/// One ticket in the queue of a lock, as [`Keeper::queue`](crate::Keeper::queue) saw it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueueEntry {
    /// The node's name in the lock directory.
    pub node: String,
    /// The ticket's token: its identity, and the fencing token of an exclusive hold.
    pub token: Token,
    /// Whether nobody stands before it: it holds, or is about to.
    pub is_holder: bool,
    /// Whether it shares with others of its kind (a reader).
    pub is_shared: bool,
    /// The session that owns the node.
    pub session: i64,
    /// The owner's name, if one was given.
    pub owner: Option<String>,
    /// The label, if one was given.
    pub label: Option<String>,
    /// The host that took the ticket; `None` for tickets of foreign clients.
    pub host: Option<String>,
    /// The process that took the ticket; `None` for tickets of foreign clients.
    pub pid: Option<u32>,
    /// When the ticket was taken, by its host's clock, in milliseconds since the Unix epoch.
    pub since_ms: Option<u64>,
}

/// A lock that is in use, as [`Keeper::locks`](crate::Keeper::locks) saw it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LockSummary {
    /// The lock's name, as other Lockkeepers with this root would use it.
    pub name: String,
    /// How many tickets are in its queue, holders included.
    pub tickets: usize,
}

impl Queue {
    /// Everybody in the queue, in its order.
    pub(crate) async fn entries(&self) -> Result<Vec<QueueEntry>> {
        let session = self.pool.home(LOOKING).await?;
        let path = &*self.directory.path;
        let failed = |failure| failed(&session, LOOKING, &self.name, path, failure);
        let Some(children) = children(&session, path).await.map_err(failed)? else {
            return Ok(Vec::new());
        };
        let tickets = in_order(
            children
                .iter()
                .filter_map(|child| Ticket::parse(child))
                .collect(),
        );
        let mut entries = Vec::with_capacity(tickets.len());
        for chunk in tickets.chunks(AT_ONCE) {
            let paths: Vec<String> = chunk
                .iter()
                .map(|ticket| format!("{path}/{}", ticket.name))
                .collect();
            let reads: Vec<Read<'_>> = paths.iter().map(|path| Read::Data(path)).collect();
            let nodes = session
                .read(|link| link.multi_read(&reads))
                .await
                .map_err(failed)?;
            for (ticket, node) in chunk.iter().zip(nodes) {
                // A ticket that left since the list is no longer in the queue.
                let Found::Node(node) = node else { continue };
                entries.push((ticket.clone(), node));
            }
        }
        Ok(with_holders(entries))
    }
}

/// An exclusive ticket holds when it is the first; shared ones hold up to the first exclusive one.
fn with_holders(nodes: Vec<(Ticket, Node)>) -> Vec<QueueEntry> {
    let first = nodes.first().map(|(ticket, _)| ticket.clone());
    let first_exclusive = nodes
        .iter()
        .position(|(ticket, _)| ticket.kind == Kind::Exclusive)
        .unwrap_or(nodes.len());
    let holds = |at: usize, ticket: &Ticket| match ticket.kind {
        Kind::Exclusive => {
            rule::judge(ticket, first.iter().map(|first| first.name.as_str())) == Verdict::Granted
                && at == 0
        }
        Kind::Shared => at < first_exclusive,
    };
    nodes
        .iter()
        .enumerate()
        .map(|(at, (ticket, node))| entry(ticket, node, holds(at, ticket)))
        .collect()
}

fn entry(ticket: &Ticket, node: &Node, is_holder: bool) -> QueueEntry {
    let line = DataLine::parse(&node.data);
    QueueEntry {
        node: ticket.name.clone(),
        token: Token::new(node.czxid),
        is_holder,
        is_shared: ticket.kind == Kind::Shared,
        session: node.owner,
        owner: line.as_ref().and_then(|line| line.owner.clone()),
        label: line.as_ref().and_then(|line| line.label.clone()),
        host: line.as_ref().map(|line| line.host.clone()),
        pid: line.as_ref().map(|line| line.pid),
        since_ms: line.as_ref().map(|line| line.at),
    }
}

/// The locks below a root that have tickets, by name. Reads every directory once, many in one request.
pub(crate) async fn locks(session: &Session, root: &str) -> Result<Vec<LockSummary>> {
    let base = if root == "/" { "" } else { root };
    let mut found = Vec::new();
    let mut level = vec![String::new()];
    while !level.is_empty() {
        let mut next = Vec::new();
        for chunk in level.chunks(AT_ONCE) {
            let paths: Vec<String> = chunk.iter().map(|name| path_of(base, name)).collect();
            let reads: Vec<Read<'_>> = paths.iter().map(|path| Read::Children(path)).collect();
            let answers = session.read(|link| link.multi_read(&reads)).await;
            let answers = answers
                .map_err(|failure| failed(session, "list the locks below", root, root, failure))?;
            for (name, answer) in chunk.iter().zip(answers) {
                // A directory that is gone or not to be read holds no lock for us.
                let Found::Children(children) = answer else {
                    continue;
                };
                let tickets = children
                    .iter()
                    .filter(|child| Ticket::parse(child).is_some())
                    .count();
                if tickets > 0 && !name.is_empty() {
                    found.push(LockSummary {
                        name: name.clone(),
                        tickets,
                    });
                }
                let below = children.iter().map(|child| join(name, child));
                next.extend(below.filter(|name| LockName::new(name).is_ok()));
            }
        }
        level = next;
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(found)
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
        .read(|link| link.multi_read(&[Read::Children(path)]))
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
