//! A reader that tries to become a writer. (pure)
//!
//! Invariant: it joins at the end as everybody does, waits for nobody while it reads, and gives the
//! read up only when nothing else is before it.

use super::client::{Client, Request, Stage, Then};
use super::seat::{Held, Seat, found};
use super::store::{Refusal, Tree};
use crate::protocol::mark::ReleasePlan;
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
    Look(Held),
    /// Gives the reader's ticket up.
    GiveUp(Held),
}

pub(super) fn lost_create(read: Held, attempt: Option<i64>) -> Stage {
    let step = Step::Settle { attempt };
    Stage::Upgrading(Upgrade { read, step })
}

fn writer(directory: usize, name: String, czxid: i64) -> Held {
    Held {
        directory,
        name,
        czxid,
        plan: ReleasePlan::Plain,
    }
}

fn walk(writer: &Held) -> Stage {
    let Held {
        directory,
        name,
        czxid,
        ..
    } = writer;
    let mut seat = Seat::new(*directory, name, *czxid, Recipe::Write, None);
    seat.walk.start_over();
    Stage::Walking(vec![seat])
}

impl Upgrade {
    pub(super) fn request(&self) -> Request {
        match &self.step {
            Step::Settle { .. } => Request::SyncedRead,
            Step::Look(_) => Request::Read,
            Step::GiveUp(_) => Request::Writes(self.read.writes()),
        }
    }
}

impl Client {
    pub(super) fn upgrade_joined(
        &mut self,
        read: Held,
        answer: Result<(i64, &[String]), Refusal>,
    ) -> Stage {
        match answer {
            Ok((czxid, names)) => {
                let step = Step::Look(writer(read.directory, names[0].clone(), czxid));
                Stage::Upgrading(Upgrade { read, step })
            }
            // The directory is gone, and so is the reader's ticket.
            Err(_) => {
                self.leave_all(vec![read]);
                Stage::Leaving(Then::Again)
            }
        }
    }

    pub(super) fn upgrade_read(&mut self, upgrade: Upgrade, view: &Tree, me: usize) -> Stage {
        let Upgrade { read, step } = upgrade;
        match step {
            Step::Settle { attempt } => match found(&[read.directory], attempt, view, me).pop() {
                Some((directory, name, czxid)) => {
                    let step = Step::Look(writer(directory, name, czxid));
                    Stage::Upgrading(Upgrade { read, step })
                }
                None => Stage::Inside {
                    held: vec![read],
                    is_new: true,
                },
            },
            Step::Look(writer) => {
                let there = view.node(writer.directory, &writer.name);
                if there.is_none_or(|node| node.czxid != writer.czxid) {
                    self.leave_all(vec![read]);
                    return Stage::Leaving(Then::Again);
                }
                let mine = Ticket::parse(&writer.name).unwrap();
                let children = &view.directory(writer.directory).unwrap().nodes;
                let mut others = children
                    .iter()
                    .filter(|node| node.name != read.name)
                    .filter_map(|node| Ticket::parse(&node.name));
                if others.any(|other| other.is_before(&mine)) {
                    self.leave_all(vec![writer]);
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

    pub(super) fn upgrade_answered(
        &mut self,
        upgrade: Upgrade,
        answer: Result<(i64, &[String]), Refusal>,
    ) -> Stage {
        let Upgrade { read, step } = upgrade;
        let Step::GiveUp(writer) = step else {
            unreachable!("it reads")
        };
        if answer.is_ok() {
            return walk(&writer);
        }
        self.leave_all(vec![read.plain()]);
        Stage::Leaving(Then::Stage(Box::new(walk(&writer))))
    }

    pub(super) fn upgrade_lost(&mut self, upgrade: Upgrade) -> Stage {
        let Step::GiveUp(writer) = upgrade.step else {
            unreachable!("it reads")
        };
        self.leave_all(vec![upgrade.read]);
        Stage::Leaving(Then::Stage(Box::new(walk(&writer))))
    }

    pub(super) fn cancel_upgrade(&mut self, upgrade: Upgrade) {
        match upgrade.step {
            Step::Settle { attempt } => self.sweep(vec![upgrade.read.directory], attempt),
            Step::Look(writer) | Step::GiveUp(writer) => self.leave_all(vec![writer]),
        }
        self.leave_all(vec![upgrade.read]);
    }
}
