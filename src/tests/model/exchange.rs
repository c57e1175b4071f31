//! An exchange of one ticket for another in one request: as `Place::exchange` does it. (pure)
//!
//! Invariant, as there: until an answer says which of the two is there, the place answers for both.

use std::rc::Rc;

use uuid::Uuid;

use super::client::{Client, Plan, Request, Stage, Then};
use super::permit::Head;
use super::seat::{Held, Seat, found};
use super::store::{Create, Refusal, Tree, Write};
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
    pub(super) sent: Sent,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Back {
    Walk(Vec<Seat>),
    Inside(Held),
    Head(Head),
}

/// How far it has come.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Sent {
    Not,
    /// The reply was lost; the identity that it gave, if it was done.
    Lost {
        attempt: Option<i64>,
    },
    /// The identity must be read.
    Done {
        attempt: i64,
        name: String,
    },
}

impl Exchange {
    /// In as a guest.
    pub(super) fn guest_entry(guest_entry: GuestEntry, seats: &[Seat], plan: &Plan) -> Stage {
        let mut seats = seats.to_vec();
        let old = seats[0].held();
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
        let (told, version) = match &guest_entry.note {
            Some(data) => {
                let data = Rc::from(&data[..]);
                let set = Write::Set {
                    directory,
                    data,
                    version,
                };
                (set, version + 1)
            }
            None => (Write::Check { directory, version }, version),
        };
        let host = Write::CheckNode {
            directory,
            name: guest_entry.host.name,
        };
        seats[0].walk.start_over();
        Stage::Exchanging(Box::new(Self {
            back: Back::Walk(seats),
            old,
            create: Create {
                directory,
                name: ticket.name,
                is_sequential: false,
                is_shared: false,
                order: Some(guest_entry.token),
                data: line.to_bytes().into(),
            },
            with: vec![host, told],
            plan: ReleasePlan::Unmarked { version },
            sent: Sent::Not,
        }))
    }

    pub(super) fn request(&self) -> Request {
        match self.sent {
            Sent::Not => {
                let mut writes = self.with.clone();
                writes.push(Write::Create(self.create.clone()));
                writes.push(Write::Delete {
                    directory: self.old.directory,
                    name: self.old.name.clone(),
                });
                Request::Writes(writes)
            }
            Sent::Lost { .. } => Request::SyncedRead,
            Sent::Done { .. } => Request::Read,
        }
    }

    fn back(self) -> Stage {
        match self.back {
            Back::Walk(seats) => Stage::Walking(seats),
            Back::Inside(held) => Stage::Inside {
                held: vec![held],
                is_new: true,
            },
            Back::Head(head) => Stage::Head(Head::new(head.seat)),
        }
    }

    fn inside(self, name: String, czxid: i64) -> Stage {
        let held = Held {
            directory: self.create.directory,
            name,
            czxid,
            plan: self.plan,
        };
        Stage::Inside {
            held: vec![held],
            is_new: false,
        }
    }
}

impl Client {
    pub(super) fn exchange_answered(
        &mut self,
        mut exchange: Exchange,
        answer: Result<(i64, &[String]), Refusal>,
    ) -> Stage {
        match answer {
            Ok((attempt, names)) => {
                let name = names[0].clone();
                exchange.sent = Sent::Done { attempt, name };
                Stage::Exchanging(Box::new(exchange))
            }
            Err(_) => exchange.back(),
        }
    }

    pub(super) fn exchange_read(&mut self, exchange: Exchange, view: &Tree, me: usize) -> Stage {
        match exchange.sent.clone() {
            Sent::Lost { attempt } => {
                let directory = exchange.create.directory;
                match found(&[directory], attempt, view, me).pop() {
                    Some((_, name, czxid)) => exchange.inside(name, czxid),
                    None => exchange.back(),
                }
            }
            Sent::Done { attempt, name } => {
                let there = view.node(exchange.create.directory, &name);
                if there.is_some_and(|node| node.czxid == attempt) {
                    return exchange.inside(name, attempt);
                }
                Stage::Leaving(Then::Again)
            }
            Sent::Not => unreachable!("an exchange writes first"),
        }
    }

    /// A writer becomes a reader with the same number, in the same place.
    pub(super) fn downgrade(&mut self, held: Vec<Held>, view: &Tree) -> Stage {
        let old = held.into_iter().next().unwrap();
        let there = view.node(old.directory, &old.name);
        let is_ours = there.is_some_and(|node| node.czxid == old.czxid);
        let Some(there) = view.directory(old.directory).filter(|_| is_ours) else {
            self.leave_all(vec![old]);
            return Stage::Leaving(Then::Again);
        };
        let (directory, version) = (old.directory, there.version);
        let ticket = Ticket::parse(&old.name).unwrap().shared();
        let create = Create {
            directory,
            name: ticket.name,
            is_sequential: false,
            is_shared: true,
            order: Some(old.czxid),
            data: Rc::clone(&self.plan.line),
        };
        Stage::Exchanging(Box::new(Exchange {
            back: Back::Inside(old.clone()),
            old,
            create,
            with: vec![Write::Check { directory, version }],
            plan: ReleasePlan::Unmarked { version },
            sent: Sent::Not,
        }))
    }
}
