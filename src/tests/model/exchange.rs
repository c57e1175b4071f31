//! An exchange of one ticket for another in one request. (pure)
//!
//! The real `Exchanging` says which of the two is answered for.

use std::rc::Rc;

use uuid::Uuid;

use super::client::{Client, Plan, Reply, Request, Stage, Then};
use super::held_ticket::{Held, WalkingTickets, found, granted};
use super::permit::Head;
use super::store::{Create, Tree, Write};
use crate::protocol::exchange::Exchanging;
use crate::protocol::mark::ReleasePlan;
use crate::protocol::ticket::{Ticket, TicketData};
use crate::protocol::walk::GuestEntry;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Exchange {
    /// Where it goes on when nothing was changed.
    pub(super) back: Back,
    pub(super) old: Held,
    pub(super) create: Create,
    /// What must commit with it.
    pub(super) with: Vec<Write>,
    /// How the new one leaves.
    pub(super) plan: ReleasePlan,
    pub(super) tickets: Exchanging,
    /// The identity that it gave, if it was done.
    pub(super) attempt: Option<i64>,
    /// The new one's name, if a reply has told it.
    name: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Back {
    Walk(WalkingTickets),
    Inside(Held),
    Head(Head),
}

impl Exchange {
    /// In as a guest.
    pub(super) fn guest_entry(
        guest_entry: GuestEntry,
        mut tickets: WalkingTickets,
        plan: &Plan,
    ) -> Stage {
        let leaves_by = guest_entry.plan();
        let old = tickets.each[0].held();
        let directory = old.directory;
        // Unique among tickets that are there, as an attempt is.
        let attempt = Uuid::from_u128(u128::try_from(old.czxid).unwrap());
        let ticket = guest_entry.host.guest(attempt);
        let line = TicketData {
            owner: plan.owner.map(String::from),
            attempt,
            guest_of: Some(guest_entry.token),
            ..TicketData::default()
        };
        let version = guest_entry.version;
        let told = unchanged(directory, version, guest_entry.note.as_deref());
        let host = Write::CheckNode {
            directory,
            name: guest_entry.host.name,
        };
        tickets.each[0].walk.start_over();
        let create = Create {
            directory,
            name: ticket.name,
            is_sequential: false,
            is_shared: false,
            order: Some(guest_entry.token),
            data: line.to_bytes().into(),
        };
        let with = vec![host, told];
        Self::begin(Back::Walk(tickets), old, create, with, leaves_by)
    }

    /// Before anything is sent.
    pub(super) fn begin(
        back: Back,
        old: Held,
        create: Create,
        with: Vec<Write>,
        plan: ReleasePlan,
    ) -> Stage {
        Stage::Exchanging(Box::new(Self {
            back,
            old,
            create,
            with,
            plan,
            tickets: Exchanging::Old,
            attempt: None,
            name: None,
        }))
    }

    pub(super) fn request(&self) -> Request {
        match self.tickets {
            Exchanging::Old => {
                let mut writes = self.with.clone();
                writes.push(Write::Create(self.create.clone()));
                writes.push(Write::Delete {
                    directory: self.old.directory,
                    name: self.old.name.clone(),
                });
                Request::Writes(writes)
            }
            Exchanging::Both => Request::SyncedRead,
            _ => Request::Read,
        }
    }

    pub(super) fn answered(mut self: Box<Self>, reply: Reply<'_>) -> Stage {
        self.tickets = Exchanging::answered(reply.answer);
        self.attempt = reply.attempt;
        self.name = reply.names.first().cloned();
        match self.tickets {
            Exchanging::Old => self.back(),
            _ => Stage::Exchanging(self),
        }
    }

    pub(super) fn read(self: Box<Self>, view: &Tree, me: usize) -> Stage {
        let directory = self.create.directory;
        let found = match &self.name {
            Some(name) => {
                let there = view.node(directory, name);
                let mine = there.filter(|node| Some(node.czxid) == self.attempt);
                mine.map(|node| (directory, name.clone(), node.czxid))
            }
            None => found(&[directory], self.attempt, view, me).pop(),
        };
        match (self.tickets.found(found.is_some()), found) {
            (Exchanging::New, Some((_, name, czxid))) => self.inside(name, czxid),
            (Exchanging::Neither, _) => Stage::Leaving(Then::Again),
            _ => self.back(),
        }
    }

    fn back(self: Box<Self>) -> Stage {
        match self.back {
            Back::Walk(tickets) => Stage::Walking(tickets),
            Back::Inside(held) => Stage::Inside {
                held: vec![held],
                is_new: true,
            },
            Back::Head(head) => Stage::Head(Head::new(head.ticket)),
        }
    }

    fn inside(self: Box<Self>, name: String, czxid: i64) -> Stage {
        let found = (self.create.directory, name, czxid);
        let held = Held::new(found, granted(self.plan));
        Stage::Inside {
            held: vec![held],
            is_new: false,
        }
    }
}

/// Refused unless the directory is still at this version. Writes its data, if there are any.
pub(super) fn unchanged(directory: usize, version: i32, data: Option<&[u8]>) -> Write {
    match data {
        Some(data) => Write::Set {
            directory,
            data: Rc::from(data),
            version,
        },
        None => Write::Check { directory, version },
    }
}

impl Client {
    /// A writer becomes a reader with the same number, in the same place. What is read and sent is
    /// the order of requests, as `queue/sharing.rs` has it; what it becomes is the real `Ticket`'s.
    pub(super) fn downgrade(&mut self, held: Vec<Held>, view: &Tree) -> Stage {
        let old = held.into_iter().next().unwrap();
        if !old.is_there(view) {
            self.leave_all(&[old]);
            return Stage::Leaving(Then::Again);
        }
        let directory = old.directory;
        let version = view.directory(directory).unwrap().version;
        let ticket = Ticket::parse(&old.name).unwrap().shared();
        let create = Create {
            directory,
            name: ticket.name,
            is_sequential: false,
            is_shared: true,
            order: Some(old.czxid),
            data: Rc::clone(&self.plan.line),
        };
        let with = vec![unchanged(directory, version, None)];
        let plan = ReleasePlan::Unmarked { version };
        Exchange::begin(Back::Inside(old.clone()), old, create, with, plan)
    }
}
