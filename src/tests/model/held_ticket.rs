//! A client's tickets: on their way to their turn, and held. (pure)
//!
//! Turns are judged by the real `Walk`, and tickets leave by the real `Departure`.

use std::rc::Rc;

use super::store::{Node, Tree, Write};
use crate::protocol::departure::{Departure, DepartureStep};
use crate::protocol::lease::Moment;
use crate::protocol::mark::ReleasePlan;
use crate::protocol::several::SeenTogether;
use crate::protocol::sweep;
use crate::protocol::ticket::{Recipe, Ticket};
use crate::protocol::walk::{REMOVED, Snapshot, SpeculativeRead, Step, Walk, verify};

/// A ticket, or a permit, that is held.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Held {
    pub(super) directory: usize,
    pub(super) name: String,
    pub(super) czxid: i64,
    pub(super) departure: Departure,
}

/// One ticket on its way.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct WalkingTicket {
    pub(super) directory: usize,
    pub(super) name: String,
    pub(super) walk: Walk,
    /// The directory was read with the create, and the answer is to come.
    pub(super) speculates: bool,
    /// The identity of the ticket that is watched. It fires when that is gone, which is for ever,
    /// so nothing else has to be kept.
    pub(super) watch: Option<i64>,
}

/// The tickets of one client, on their way together.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct WalkingTickets {
    pub(super) each: Vec<WalkingTicket>,
    pub(super) together: SeenTogether,
}

impl WalkingTickets {
    pub(super) fn new(each: Vec<WalkingTicket>) -> Self {
        let are_first = each.iter().map(|ticket| ticket.granted().is_some());
        let together = SeenTogether::new(are_first);
        Self { each, together }
    }

    /// All of them, if each has its turn.
    pub(super) fn granted(&self) -> Option<Vec<Held>> {
        self.each.iter().map(WalkingTicket::granted).collect()
    }

    pub(super) fn held(&self) -> Vec<Held> {
        self.each.iter().map(WalkingTicket::held).collect()
    }
}

impl WalkingTicket {
    pub(super) fn new(
        directory: usize,
        name: &str,
        czxid: i64,
        recipe: Recipe,
        owner: Option<&str>,
    ) -> Self {
        let ticket = Ticket::parse(name).unwrap();
        Self {
            directory,
            name: name.to_owned(),
            walk: Walk::new(recipe, ticket, czxid, owner, true),
            speculates: false,
            watch: None,
        }
    }

    /// Whether it has something to ask.
    pub(super) fn is_ready(&self, view: &Tree) -> bool {
        match (self.walk.step(), self.watch) {
            (Step::Turn(_), _) => false,
            (Step::Wait, Some(czxid)) => {
                let is_gone = view.identity(self.directory, czxid).is_none();
                is_gone || self.read_early(view).is_ok_and(|after| after != *self)
            }
            (Step::Wait, None) => false,
            _ => true,
        }
    }

    /// The next step of the walk; `Err` when the ticket is no longer there.
    pub(super) fn ask(&mut self, view: &Tree) -> Result<(), &'static str> {
        if std::mem::take(&mut self.speculates) {
            self.speculative_read(view);
            return Ok(());
        }
        if self.walk.step() == Step::Wait {
            // It may be told that the other one departs, before the watch tells that it has gone.
            *self = self.read_early(view)?;
            self.watch = None;
            if self.granted().is_some() {
                return Ok(());
            }
            self.walk.woken();
        }
        match self.walk.step() {
            Step::Read {
                with_children,
                tickets,
                ..
            } => {
                let tickets = tickets.to_vec();
                self.verified_read(with_children, &tickets, view)
            }
            Step::Watch(ahead) => {
                match view.node(self.directory, &ahead).map(|node| node.czxid) {
                    Some(czxid) => {
                        drop(ahead);
                        if self.walk.watched(czxid) {
                            self.watch = Some(czxid);
                        }
                    }
                    None => {
                        drop(ahead);
                        self.walk.not_there();
                    }
                }
                Ok(())
            }
            Step::Wait | Step::GuestEntry(_) | Step::Turn(_) => {
                unreachable!("there is nothing to ask")
            }
        }
    }

    /// After a read while it waits. One that shows nothing changes nothing.
    fn read_early(&self, view: &Tree) -> Result<Self, &'static str> {
        let mut after = self.clone();
        after.walk.departs();
        after.verified_read(false, &[], view)?;
        Ok(after)
    }

    /// Takes in the read that was sent with the create. It was answered before anything else was
    /// asked.
    pub(super) fn speculative_read(&mut self, view: &Tree) {
        if let Some(there) = view.directory(self.directory) {
            self.walk.speculated(&SpeculativeRead {
                data: &there.data,
                version: there.version,
                num_children: i32::try_from(there.nodes.len()).unwrap(),
                pzxid: there.newest,
            });
        }
    }

    fn verified_read(
        &mut self,
        with_children: bool,
        tickets: &[Ticket],
        view: &Tree,
    ) -> Result<(), &'static str> {
        let Some(there) = view.directory(self.directory) else {
            return Err(REMOVED);
        };
        let find = |name: &str| view.node(self.directory, name);
        let children: Vec<String> = if with_children {
            there.nodes.iter().map(|node| node.name.clone()).collect()
        } else {
            Vec::new()
        };
        let each = tickets.iter().map(|ticket| find(&ticket.name));
        let snapshot = Snapshot {
            data: &there.data,
            version: there.version,
            num_children: i32::try_from(there.nodes.len()).unwrap(),
            mine: find(&self.name).map(|node| node.czxid),
            children: &children,
            tickets: each
                .map(|node| node.map(|node| (node.czxid, &*node.data)))
                .collect(),
        };
        self.walk.take_in(&snapshot)
    }

    /// The ticket as it leaves before its turn.
    pub(super) fn held(&self) -> Held {
        self.granted().unwrap_or_else(|| Held {
            directory: self.directory,
            name: self.name.clone(),
            czxid: self.walk.czxid(),
            departure: Departure::doubtful(),
        })
    }

    /// The ticket if it is its turn.
    pub(super) fn granted(&self) -> Option<Held> {
        let Step::Turn(turn) = self.walk.step() else {
            return None;
        };
        Some(Held {
            directory: self.directory,
            name: self.name.clone(),
            czxid: self.walk.czxid(),
            departure: granted(turn.plan.clone()),
        })
    }
}

/// How a ticket leaves that was granted a moment ago: nothing here takes time.
pub(super) fn granted(plan: ReleasePlan) -> Departure {
    Departure::granted(plan, Moment::ZERO)
}

impl Held {
    /// A ticket that was created.
    pub(super) fn new((directory, name, czxid): Found, departure: Departure) -> Self {
        Self {
            directory,
            name,
            czxid,
            departure,
        }
    }

    /// Whether it is still there, in what a later read saw.
    pub(super) fn is_there(&self, view: &Tree) -> bool {
        let there = view.node(self.directory, &self.name);
        verify(self.czxid, there.map(|node| node.czxid)).is_ok()
    }

    /// The writes by which it leaves.
    pub(super) fn writes(&self) -> Vec<Write> {
        let DepartureStep::Delete(plan) = self.departure.step() else {
            unreachable!("it is read first")
        };
        let (directory, name) = (self.directory, self.name.clone());
        let last = Write::Delete { directory, name };
        match plan {
            ReleasePlan::Plain => vec![last],
            ReleasePlan::Unmarked { version } => {
                let version = *version;
                vec![Write::Check { directory, version }, last]
            }
            ReleasePlan::Marked { mark, version } => {
                let (data, version) = (Rc::from(&mark[..]), *version);
                let set = Write::Set {
                    directory,
                    data,
                    version,
                };
                vec![set, last]
            }
            ReleasePlan::LastOut(_) => unreachable!("no number is near the end"),
        }
    }
}

/// A ticket that an attempt made: its directory, its name and its identity.
pub(super) type Found = (usize, String, i64);

/// What of this session's own an attempt made, by a list and then a read. They are one step: a
/// ticket that is removed between the two is as one that was removed before. That a sync comes
/// first is the order of requests, which `Request::SyncedRead` stands for. Nobody writes over a
/// ticket here, so each names its attempt.
pub(super) fn found(
    directories: &[usize],
    attempt: Option<i64>,
    view: &Tree,
    me: usize,
) -> Vec<Found> {
    let is_wanted = |node: &Node| Some(node.czxid) == attempt;
    let finds = |node: &Node| sweep::finds(&node.name, Some(is_wanted(node)), || false);
    let own = view
        .nodes()
        .filter(|(at, node)| directories.contains(at) && node.owner == me && finds(node));
    own.map(|(at, node)| (at, node.name.clone(), node.czxid))
        .collect()
}
