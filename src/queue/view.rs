//! Lists a queue for people: its holders and its waiters.
//!
//! It only reads, behind all that was committed before the call. An answer is old when it arrives,
//! so nothing here may grant.

use super::entry::{QueueEntry, kind_of};
use super::permits::PermitPool;
use super::{Queue, Session};
use crate::error::{Error, Result};
use crate::link::{Found, Node, Read};
use crate::protocol::kind::LockKind;
use crate::protocol::permits::{self, HELD, LIMIT, QUEUE};
use crate::protocol::rule::{self, Verdict};
use crate::protocol::ticket::{Mode, Ticket, in_order};
use crate::session::{Failure, children_in, failed, node_in};

/// Tickets or directories that are read in one request.
const AT_ONCE: usize = 100;
const LOOKING: &str = "look at";

impl Queue {
    /// All entries of the queue, in its order; with a semaphore, the holders and then the waiters.
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

    /// The holders of permits, in the order in which they took them.
    pub(crate) async fn permit_holders(&self, permits: &PermitPool) -> Result<Vec<QueueEntry>> {
        let session = self.pool.home(LOOKING, &self.name).await?;
        let path = &*permits.held.path;
        let children = children(&session, path).await;
        let failed = |failure| failed(&session, LOOKING, &self.name, path, failure);
        let children = children.map_err(failed)?.unwrap_or_default();
        self.permits_in(&session, path, &children).await
    }

    /// The holders of permits and the waiters for them, if this is the path of a semaphore.
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
        // The limit may have been removed by hand while permits are held.
        let is_permit = |child: &String| permits::weight(child).is_some();
        let has_permits = matches!(&in_held, Found::Children(held) if held.iter().any(is_permit));
        if !is_limit(&limit) && !has_permits {
            return Ok(Vec::new());
        }
        let listed = |path, found| {
            let children = children_in(Some(found));
            let failed = |failure| self::failed(session, LOOKING, &self.name, path, failure);
            Ok::<_, Error>(children.map_err(failed)?.unwrap_or_default())
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
            QueueEntry::new(path, name, node, true, |_| {
                (LockKind::Permit, Some(*permits))
            })
        });
        Ok(permits.collect())
    }

    /// Reads the nodes of some children, without tickets that left since the list. A ticket that we
    /// may not read is an error: without it another one would seem to hold.
    async fn nodes_of<T>(
        &self,
        session: &Session,
        path: &str,
        children: Vec<T>,
        name: impl Fn(&T) -> &str,
    ) -> Result<Vec<(T, Node)>> {
        let paths: Vec<String> = children
            .iter()
            .map(|child| join(path, name(child)))
            .collect();
        let reads: Vec<Read<'_>> = paths.iter().map(|path| Read::Data(path)).collect();
        let nodes = read_all(session, &reads).await;
        let nodes = nodes.map_err(|failure| failed(session, LOOKING, &self.name, path, failure))?;
        let mut there = Vec::with_capacity(nodes.len());
        for ((child, path), found) in children.into_iter().zip(&paths).zip(nodes) {
            let failed = |failure| failed(session, LOOKING, &self.name, path, failure);
            let node = node_in(Some(found)).map_err(failed)?;
            there.extend(node.map(|node| (child, node)));
        }
        Ok(there)
    }
}

/// Whether this is the stored limit of a semaphore.
pub(super) fn is_limit(found: &Found) -> bool {
    matches!(found, Found::Node(node) if permits::parse_limit(&node.data).is_some())
}

/// An exclusive ticket holds when it is the first; shared ones hold up to the first exclusive one.
fn with_holders(path: &str, nodes: &[(Ticket, Node)]) -> Vec<QueueEntry> {
    let tickets = || nodes.iter().map(|(ticket, _)| ticket);
    let exclusive = tickets().find(|ticket| ticket.kind == Mode::Exclusive);
    // Whoever waits for any ticket waits for one of these.
    let first = tickets().take(1).chain(exclusive);
    let first: Vec<&str> = first.map(|first| &*first.name).collect();
    let holds = |ticket: &Ticket| rule::judge(ticket, first.iter().copied()) == Verdict::Granted;
    let entry = |(ticket, node): &(Ticket, Node)| entry(path, ticket, node, holds(ticket));
    nodes.iter().map(entry).collect()
}

fn entry(path: &str, ticket: &Ticket, node: &Node, is_holder: bool) -> QueueEntry {
    QueueEntry::new(path, &ticket.name, node, is_holder, |line| {
        kind_of(ticket, line)
    })
}

pub(super) fn join(name: &str, child: &str) -> String {
    if name.is_empty() {
        child.into()
    } else {
        format!("{name}/{child}")
    }
}

pub(super) async fn children(
    session: &Session,
    path: &str,
) -> Result<Option<Vec<String>>, Failure> {
    let reads = [Read::Children(path)];
    children_in(session.read_behind_sync(path, &reads).await?.pop())
}

/// Reads any number of them, many in one request.
pub(super) async fn read_all(session: &Session, reads: &[Read<'_>]) -> Result<Vec<Found>, Failure> {
    let mut found = Vec::with_capacity(reads.len());
    for chunk in reads.chunks(AT_ONCE) {
        found.extend(session.read(|link| link.multi_read(chunk)).await?);
    }
    Ok(found)
}
