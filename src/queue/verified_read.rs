//! The look: the directory, a ticket of ours and whatever else is asked for, all at one moment.
//!
//! Invariant: a look that does not show our own ticket, with its identity, is an error and nothing
//! else (docs/failures.md rows 72 and 73). It decides nothing.

use super::place::TicketPlace;
use crate::error::{Error, Result};
use crate::link::{Code, Found, Node, Read};
use crate::name::LockName;
use crate::protocol::dialect::check_neighbours;
use crate::protocol::lease::Moment;
use crate::protocol::ticket::{Recipe, Ticket};
use crate::protocol::walk::{REMOVED, REPLACED, Snapshot};
use crate::session::{Failure, failed};

/// What a look saw.
pub(super) struct VerifiedRead {
    /// When the answer came.
    pub(super) at: Moment,
    pub(super) directory: Node,
    pub(super) mine: Node,
    pub(super) children: Vec<String>,
    pub(super) others: Vec<Found>,
}

impl VerifiedRead {
    pub(super) fn snapshot(&self) -> Snapshot<'_> {
        let others = self.others.iter().map(|found| match found {
            Found::Node(node) => Some((node.czxid, &*node.data)),
            _ => None,
        });
        Snapshot {
            data: &self.directory.data,
            version: self.directory.version,
            num_children: self.directory.num_children,
            mine: Some(self.mine.czxid),
            children: &self.children,
            tickets: others.collect(),
        }
    }
}

impl TicketPlace {
    /// Reads the directory, our ticket, the children if they are asked for, and other tickets, all
    /// at one moment.
    pub(super) async fn look(
        &self,
        doing: &'static str,
        name: &LockName,
        with_children: bool,
        tickets: &[Ticket],
    ) -> Result<VerifiedRead> {
        let lost = |why| Error::PlaceLost {
            name: name.to_string(),
            why,
        };
        let Some((ticket, czxid)) = self.ticket() else {
            return Err(lost("the place was given up"));
        };
        let directory = &**self.directory();
        let path = |ticket: &Ticket| format!("{directory}/{}", ticket.name);
        let (mine, others): (String, Vec<String>) =
            (path(ticket), tickets.iter().map(path).collect());
        let mut reads = vec![Read::Data(directory), Read::Data(&mine)];
        reads.extend(with_children.then_some(Read::Children(directory)));
        reads.extend(others.iter().map(|path| Read::Data(path)));
        let session = self.session();
        let (at, found) = session.read_stamped(|link| link.multi_read(&reads)).await;
        let refused = |failure| failed(session, doing, name, directory, failure);
        let mut found = found.map_err(refused)?.into_iter();
        let no_sense = || lost("the server's answer makes no sense");
        let (directory, mine) = match (found.next(), found.next()) {
            (_, Some(Found::Failed(Code::NoNode))) => return Err(lost(REMOVED)),
            (_, Some(Found::Node(mine))) if mine.czxid != czxid => {
                return Err(lost(REPLACED));
            }
            (Some(Found::Node(directory)), Some(Found::Node(mine))) => (directory, mine),
            (Some(Found::Failed(code)), _) | (_, Some(Found::Failed(code))) => {
                return Err(refused(Failure::Answered(code)));
            }
            _ => return Err(no_sense()),
        };
        let children = match with_children.then(|| found.next()).flatten() {
            Some(Found::Children(children)) => {
                let path = &**self.directory();
                tracing::trace!(path, children = children.len(), "listed");
                children
            }
            Some(Found::Failed(code)) => return Err(refused(Failure::Answered(code))),
            _ if with_children => return Err(no_sense()),
            _ => Vec::new(),
        };
        Ok(VerifiedRead {
            at,
            directory,
            mine,
            children,
            others: found.collect(),
        })
    }

    /// How many other tickets are in the queue, if this claim can share it with them. Lists it.
    pub(crate) async fn others(
        &self,
        doing: &'static str,
        name: &LockName,
        recipe: Recipe,
    ) -> Result<usize> {
        let looked = self.look(doing, name, true, &[]).await?;
        check_neighbours(name, Some(recipe), &looked.children)?;
        let mine = self.ticket().map(|(ticket, _)| &ticket.name);
        let others = looked.children.iter().filter(|child| Some(*child) != mine);
        Ok(others
            .filter(|child| Ticket::parse(child).is_some())
            .count())
    }
}
