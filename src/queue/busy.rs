//! Whether a queue is busy: `try_join` asks before it writes anything.
//!
//! Invariant: it only reads. The holder of a lock that releases with marks is one number above the
//! mark, so the answer costs two small reads whatever the length of the queue. A list is the
//! fallback.

use super::{Queue, doubts};
use crate::error::Result;
use crate::link::{Found, Read};
use crate::protocol::dialect::{check_neighbours, in_doubt};
use crate::protocol::mark::DirectoryData;
use crate::protocol::rule;
use crate::protocol::ticket::{Mode, Ticket, TicketData};
use crate::session::{Session, children_in};

const READING: &str = "look at";

impl Queue {
    /// Whether a ticket that conflicts is in the queue.
    pub(super) async fn is_busy(&self) -> Result<bool> {
        let session = self.pool.home(READING, &self.name).await?;
        let path = &*self.directory.path;
        let failed = |failure| self.failed_to(READING, &session, failure);
        let marked = match session.node(path).await.map_err(failed)? {
            Some(node) if node.num_children > 0 => DirectoryData::parse(&node.data),
            _ => return Ok(false),
        };
        // A reader or an owner must know more than that a ticket is there.
        let is_enough = self.recipe.kind() == Mode::Exclusive && self.line.owner.is_none();
        if is_enough && self.is_held_above(&session, &marked).await? {
            return Ok(true);
        }
        let found = session.read(|link| link.multi_read(&[Read::Children(path)]));
        let children = children_in(found.await.map_err(failed)?.pop());
        let Some(children) = children.map_err(failed)? else {
            return Ok(false);
        };
        tracing::trace!(path, children = children.len(), "listed");
        check_neighbours(&self.name, Some(self.recipe), &children)?;
        let doubts = in_doubt(Some(self.recipe), &children, None);
        doubts::read(&session, &self.name, path, &doubts).await?;
        let conflicts = |ticket: Ticket| {
            self.recipe.kind() == Mode::Exclusive || ticket.kind == Mode::Exclusive
        };
        let mut tickets = children.iter().filter_map(|child| Ticket::parse(child));
        Ok(tickets.any(conflicts) && !self.is_own(&session, &children).await?)
    }

    /// Whether a ticket stands one number above the mark.
    async fn is_held_above(&self, session: &Session, marked: &DirectoryData) -> Result<bool> {
        let next = match marked {
            DirectoryData::Marked(mark) => mark.seq.wrapping_add(1),
            _ => 0,
        };
        let names = self.recipe.neighbours().iter();
        let probable = names.map(|recipe| Ticket::ours(*recipe, next));
        let found = self.read_tickets(session, probable.collect()).await?;
        Ok(found.iter().any(|found| matches!(found, Found::Node(_))))
    }

    /// Whether the first ticket is of our owner, which may come in unless that ticket only shares.
    async fn is_own(&self, session: &Session, children: &[String]) -> Result<bool> {
        let Some(owner) = &self.line.owner else {
            return Ok(false);
        };
        let mut first = rule::first(children.iter().map(String::as_str));
        first.retain(|ticket| ticket.kind == Mode::Exclusive);
        let is_host = |found: &Found| match found {
            Found::Node(node) => {
                TicketData::parse(&node.data).is_some_and(|line| line.is_of(owner))
            }
            _ => false,
        };
        let found = self.read_tickets(session, first).await?;
        Ok(found.iter().any(is_host))
    }

    async fn read_tickets(&self, session: &Session, tickets: Vec<Ticket>) -> Result<Vec<Found>> {
        let path = &*self.directory.path;
        let paths: Vec<String> = tickets.iter().map(|ticket| ticket.path(path)).collect();
        let reads: Vec<Read<'_>> = paths.iter().map(|path| Read::Data(path)).collect();
        let found = session.read(|link| link.multi_read(&reads)).await;
        found.map_err(|failure| self.failed_to(READING, session, failure))
    }
}
