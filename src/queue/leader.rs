//! The leader of an election at one moment.
//!
//! It only reads. Invariant: the list names a ticket, and a name is no identity, so the directory
//! and the ticket are read once more together.

use super::Queue;
use super::acl;
use crate::error::Result;
use crate::link::{Code, Node, Read};
use crate::protocol::leader::{Leader, candidate};
use crate::protocol::ticket::Ticket;
use crate::session::{Failure, Session, children_in, node_in};

const READING: &str = "look for the leader of";

impl Queue {
    /// The leader at this moment.
    pub(crate) async fn leader(&self) -> Result<Option<Leader>> {
        let session = self.pool.home(READING, &self.name).await?;
        loop {
            match self.leader_now(&session).await {
                Ok(Some((leader, directory))) => {
                    if acl::check(&session, &self.name, self.path(), &directory).await? {
                        return Ok(Some(leader));
                    }
                }
                Ok(None) | Err(Failure::Answered(Code::NoNode)) => return Ok(None),
                Err(failure) => return Err(self.failed_to(READING, &session, failure)),
            }
        }
    }

    /// With the directory of that moment.
    async fn leader_now(&self, session: &Session) -> Result<Option<(Leader, Node)>, Failure> {
        let path = &**self.path();
        loop {
            let (listed, children) = list(session, path).await?;
            let Some(ticket) = candidate(children.iter().map(String::as_str)) else {
                return Ok(None);
            };
            let (directory, first) = read(session, path, &ticket).await?;
            // Otherwise it has changed since the list, and the leader may be another.
            if let Some(node) = first.filter(|_| directory.czxid == listed) {
                let first = (node.czxid, node.owner, &node.data[..]);
                let leader = Leader::of(&ticket, first, &directory.data);
                return Ok(Some((leader, directory)));
            }
        }
    }
}

/// The identity of the directory and its children, at one moment.
pub(super) async fn list(session: &Session, path: &str) -> Result<(i64, Vec<String>), Failure> {
    let reads = [Read::Data(path), Read::Children(path)];
    let found = session.read(|link| link.multi_read(&reads)).await?;
    let mut found = found.into_iter();
    match (node_in(found.next())?, children_in(found.next())?) {
        (Some(node), Some(children)) => Ok((node.czxid, children)),
        _ => Err(Failure::Answered(Code::NoNode)),
    }
}

/// The directory, and a ticket if it is there, at one moment.
pub(super) async fn read(
    session: &Session,
    path: &str,
    ticket: &Ticket,
) -> Result<(Node, Option<Node>), Failure> {
    let ticket = ticket.path(path);
    let reads = [Read::Data(path), Read::Data(&ticket)];
    let found = session.read(|link| link.multi_read(&reads)).await?;
    let mut found = found.into_iter();
    let directory = node_in(found.next())?.ok_or(Failure::Answered(Code::NoNode))?;
    Ok((directory, node_in(found.next())?))
}
