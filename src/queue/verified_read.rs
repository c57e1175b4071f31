//! The verified read: the directory, a ticket of ours and what else is asked for, at one moment.
//!
//! Invariant: an answer that does not show our own ticket, with its identity, is an error and
//! nothing else (docs/failures.md rows 72 and 73). It decides nothing.

use super::place::TicketPlace;
use crate::error::Result;
use crate::link::{Code, Found, Node, Read};
use crate::name::LockName;
use crate::protocol::dialect::check_neighbours;
use crate::protocol::lease::Moment;
use crate::protocol::rule;
use crate::protocol::ticket::{Recipe, Ticket};
use crate::protocol::walk::{REMOVED, Snapshot, verify};
use crate::session::{Failure, children_in, node_in};

/// What a verified read saw.
pub(crate) struct VerifiedRead {
    /// When the answer came.
    pub(crate) at: Moment,
    pub(crate) directory: Node,
    pub(crate) mine: Node,
    /// What else was asked for, in that order.
    pub(crate) others: Vec<Found>,
}

/// The ticket with this identity, if that is the node under its name.
pub(crate) fn ticket_in(node: Option<Node>, czxid: i64) -> Result<Node, Failure> {
    let found = node.as_ref().map(|node| node.czxid);
    verify(czxid, found).map_err(Failure::Lost)?;
    node.ok_or(Failure::Lost(REMOVED))
}

impl VerifiedRead {
    /// For the walk: the others are tickets.
    pub(super) fn snapshot<'a>(&'a self, children: &'a [String]) -> Snapshot<'a> {
        let others = self.others.iter().map(|found| match found {
            Found::Node(node) => Some((node.czxid, &*node.data)),
            _ => None,
        });
        Snapshot {
            data: &self.directory.data,
            version: self.directory.version,
            num_children: self.directory.num_children,
            mine: Some(self.mine.czxid),
            children,
            tickets: others.collect(),
        }
    }
}

impl TicketPlace {
    /// Reads the directory, our ticket and what else is asked for, all at one moment; behind all
    /// that was committed before, if it syncs.
    pub(crate) async fn verified_read(
        &self,
        more: &[Read<'_>],
        syncs: bool,
    ) -> Result<VerifiedRead, Failure> {
        let (ticket, czxid) = self.seated()?;
        let mine = ticket.path(self.directory());
        let (session, directory) = (self.session(), &**self.directory());
        let mut reads = vec![Read::Data(directory), Read::Data(&mine)];
        reads.extend(more);
        let (at, found) = if syncs {
            let read = Box::pin(session.read_behind_sync(directory, &reads));
            session.heartbeat.stamped(read).await
        } else {
            session.read_stamped(|link| link.multi_read(&reads)).await
        };
        let mut found = found?.into_iter();
        let (directory, mine) = (found.next(), node_in(found.next())?);
        let mine = ticket_in(mine, czxid)?;
        let directory = node_in(directory)?.ok_or(Failure::Answered(Code::NoNode))?;
        Ok(VerifiedRead {
            at,
            directory,
            mine,
            others: found.collect(),
        })
    }

    /// The same with the tickets that the walk asks for, and with the children.
    pub(super) async fn verified_list(
        &self,
        with_children: bool,
        tickets: &[Ticket],
        syncs: bool,
    ) -> Result<(VerifiedRead, Vec<String>), Failure> {
        let directory = &**self.directory();
        let paths = tickets.iter().map(|ticket| ticket.path(directory));
        let paths: Vec<String> = paths.collect();
        let mut more: Vec<Read<'_>> = paths.iter().map(|path| Read::Data(path)).collect();
        more.extend(with_children.then_some(Read::Children(directory)));
        let mut read = self.verified_read(&more, syncs).await?;
        if !with_children {
            return Ok((read, Vec::new()));
        }
        let children = children_in(read.others.pop())?;
        let children = children.ok_or(Failure::Answered(Code::NoNode))?;
        tracing::trace!(path = directory, children = children.len(), "listed");
        Ok((read, children))
    }

    /// How many other tickets are in the queue, if this recipe can share it with them. Lists it.
    pub(crate) async fn others(
        &self,
        doing: &'static str,
        name: &LockName,
        recipe: Recipe,
    ) -> Result<usize> {
        let listed = self.verified_list(true, &[], false).await;
        let (_, children) = listed.map_err(|failure| self.failed(doing, name, failure))?;
        check_neighbours(name, Some(recipe), &children)?;
        let tickets = children.iter().filter_map(|child| Ticket::parse(child));
        Ok(rule::others(tickets, self.ticket().map(|(mine, _)| mine)))
    }
}
