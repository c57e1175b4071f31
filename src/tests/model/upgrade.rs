//! A reader that tries to become a writer. (pure)
//!
//! The real `rule` says who is in the way. The rest is the order of requests, as
//! `recipes/conversion.rs` has it, but without the first look, which only saves the create.
//!
//! Invariant: it joins at the end as everybody does, waits for nobody while it reads, and gives the
//! read up only when nothing else is before it.

use super::client::{Client, Reply, Request, Stage, Then};
use super::held_ticket::{Held, WalkingTicket, WalkingTickets, found};
use super::store::Tree;
use crate::protocol::departure::Departure;
use crate::protocol::join::AfterCreate;
use crate::protocol::rule;
use crate::protocol::ticket::{Recipe, Ticket};

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Upgrade {
    pub(super) read: Held,
    step: Step,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Step {
    /// Does not know whether the writer's ticket was created.
    Settle { attempt: Option<i64> },
    /// Looks whether anybody else is before the writer's ticket.
    VerifiedRead(Held),
    /// Gives the reader's ticket up.
    GiveUp(Held),
}

fn walk(writer: &Held) -> Stage {
    let Held {
        directory,
        name,
        czxid,
        ..
    } = writer;
    let mut ticket = WalkingTicket::new(*directory, name, *czxid, Recipe::Write, None);
    ticket.walk.start_over();
    Stage::Walking(WalkingTickets::new(vec![ticket]))
}

impl Upgrade {
    pub(super) fn request(&self) -> Request {
        match &self.step {
            Step::Settle { .. } => Request::SyncedRead,
            Step::VerifiedRead(_) => Request::Read,
            Step::GiveUp(_) => Request::Writes(self.read.writes()),
        }
    }
}

impl Client {
    pub(super) fn upgrade_joined(&mut self, read: Held, reply: Reply<'_>) -> Stage {
        let step = match (AfterCreate::from(reply.answer), reply.attempt) {
            (AfterCreate::Created, Some(czxid)) => Step::VerifiedRead(Held::new(
                (read.directory, reply.names[0].clone(), czxid),
                Departure::doubtful(),
            )),
            (AfterCreate::FindOut, attempt) => Step::Settle { attempt },
            // The directory is gone, and so is the reader's ticket.
            _ => {
                self.leave_all(&[read]);
                return Stage::Leaving(Then::Again);
            }
        };
        Stage::Upgrading(Upgrade { read, step })
    }

    pub(super) fn upgrade_read(&mut self, upgrade: Upgrade, view: &Tree, me: usize) -> Stage {
        let Upgrade { read, step } = upgrade;
        match step {
            Step::Settle { attempt } => match found(&[read.directory], attempt, view, me).pop() {
                Some(found) => {
                    let step = Step::VerifiedRead(Held::new(found, Departure::doubtful()));
                    Stage::Upgrading(Upgrade { read, step })
                }
                None => Stage::Inside {
                    held: vec![read],
                    is_new: true,
                },
            },
            Step::VerifiedRead(writer) => {
                if !writer.is_there(view) {
                    self.leave_all(&[read]);
                    return Stage::Leaving(Then::Again);
                }
                let mine = Ticket::parse(&writer.name).unwrap();
                let children = &view.directory(writer.directory).unwrap().nodes;
                let children = children.iter().map(|node| &*node.name);
                let ahead = rule::ahead(mine.seq, children);
                if rule::others(ahead, Ticket::parse(&read.name).as_ref()) > 0 {
                    self.leave_all(&[writer]);
                    return Stage::Leaving(Then::Stage(Box::new(Stage::Inside {
                        held: vec![read],
                        is_new: false,
                    })));
                }
                let step = Step::GiveUp(writer);
                Stage::Upgrading(Upgrade { read, step })
            }
            Step::GiveUp(_) => unreachable!("it writes"),
        }
    }

    pub(super) fn upgrade_answered(&mut self, upgrade: Upgrade, reply: Reply<'_>) -> Stage {
        let Step::GiveUp(writer) = upgrade.step else {
            unreachable!("it reads")
        };
        self.left(vec![upgrade.read], reply.answer);
        Stage::Leaving(Then::Stage(Box::new(walk(&writer))))
    }

    pub(super) fn cancel_upgrade(&mut self, upgrade: Upgrade) {
        match upgrade.step {
            Step::Settle { attempt } => self.sweep(vec![upgrade.read.directory], attempt),
            Step::VerifiedRead(writer) | Step::GiveUp(writer) => self.leave_all(&[writer]),
        }
        self.leave_all(&[upgrade.read]);
    }
}
