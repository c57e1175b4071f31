//! A client: where it is, and what it asks the servers for next. (pure)
//!
//! A request, its commit and its answer are one step: nobody else can see when a request was
//! sent, nor when its answer was read. So it is with what a client does between two requests.

use std::rc::Rc;

use super::chore::Chore;
use super::exchange::{Back, Exchange};
use super::held_ticket::{Held, WalkingTickets};
use super::permit::{HELD, Head};
use super::store::{Create, Tree, Write};
use super::upgrade::Upgrade;
use crate::protocol::answer::Answer;
use crate::protocol::ticket::Recipe;

/// What a client is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Job {
    Lock,
    Read,
    Write,
    /// Writes, goes on as a reader, and leaves.
    Downgrade,
    /// Reads, tries to become a writer, and leaves.
    Upgrade,
    /// Takes so many permits.
    Permits(u32),
}

#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Plan {
    pub(super) job: Job,
    pub(super) directories: Vec<usize>,
    pub(super) owner: Option<&'static str>,
    /// The data of its tickets.
    pub(super) line: Rc<[u8]>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Client {
    pub(super) plan: Rc<Plan>,
    /// How often it goes in after this time.
    pub(super) again: u8,
    pub(super) stage: Stage,
    /// What its janitor has to do.
    pub(super) chores: Vec<Chore>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Stage {
    /// Creates its tickets, as many as it has directories, in one request.
    Joining,
    /// Creates the directories first.
    Making,
    /// Does not know what its create made; the attempt of one that was done is its identity.
    Settling {
        attempt: Option<i64>,
    },
    /// Several tickets were created, and their identities must be read.
    Identifying {
        attempt: i64,
        names: Vec<String>,
    },
    Walking(WalkingTickets),
    /// All had their turn, and are looked at together.
    Confirming(WalkingTickets),
    /// `is_new`: what it wants to become is still to be done.
    Inside {
        held: Vec<Held>,
        is_new: bool,
    },
    /// Removes some ticket before anything else, with the janitor's help.
    Leaving(Then),
    Exchanging(Box<Exchange>),
    Upgrading(Upgrade),
    Head(Head),
    /// Creates the directory of permits first.
    MakingHeld(Head),
    /// It left, failed or was cancelled.
    Over,
}

/// What comes when the janitor is done.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Then {
    /// The next time.
    Again,
    /// Creates the tickets that it did not get together.
    Join,
    /// What an upgrade left.
    Stage(Box<Stage>),
}

/// A part of a client that can do something next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Part {
    Main,
    Ticket(usize),
    Chore(usize),
}

/// What a part asks for next.
#[derive(Debug)]
pub(super) enum Request {
    Writes(Vec<Write>),
    Read,
    /// After a sync: from a server that knows everything.
    SyncedRead,
}

/// What became of a request of writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Reply<'a> {
    pub(super) answer: Answer,
    /// The identity that it gave, if it was done, even if the reply was lost.
    pub(super) attempt: Option<i64>,
    /// The names of what was created.
    pub(super) names: &'a [String],
}

/// What was learnt that the search has to judge.
#[derive(Debug, Default)]
pub(super) struct News {
    /// A turn was seen: the directory and the ticket.
    pub(super) turns: Vec<(usize, i64)>,
}

impl Client {
    pub(super) fn new(plan: &Rc<Plan>, times: u8) -> Self {
        Self {
            plan: Rc::clone(plan),
            again: times - 1,
            stage: Stage::Joining,
            chores: Vec::new(),
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.stage == Stage::Over && self.chores.is_empty()
    }

    /// The parts that can do something, as the servers are seen by this client.
    pub(super) fn parts(&self, view: &Tree) -> Vec<Part> {
        let mut parts = Vec::new();
        match &self.stage {
            Stage::Over | Stage::Leaving(_) => {}
            Stage::Walking(tickets) => {
                let each = tickets.each.iter().enumerate();
                let ready = each.filter(|(_, ticket)| ticket.is_ready(view));
                parts.extend(ready.map(|(at, _)| Part::Ticket(at)));
            }
            Stage::Head(head) if !head.is_ready(view) => {}
            _ => parts.push(Part::Main),
        }
        parts.extend((0..self.chores.len()).map(Part::Chore));
        parts
    }

    pub(super) fn request(&self, part: Part) -> Request {
        if let Part::Chore(at) = part {
            return self.chores[at].request();
        }
        match &self.stage {
            Stage::Joining => Request::Writes(self.creates()),
            Stage::Making => {
                let each = self.plan.directories.iter();
                let make = |&directory| Write::Make { directory };
                Request::Writes(each.map(make).collect())
            }
            Stage::MakingHeld(_) => Request::Writes(vec![Write::Make { directory: HELD }]),
            Stage::Settling { .. } => Request::SyncedRead,
            Stage::Inside { held, is_new } => match (self.plan.job, is_new) {
                (Job::Downgrade, true) => Request::Read,
                (Job::Upgrade, true) => Request::Writes(self.creates_of(Recipe::Write)),
                _ if held.iter().any(|held| held.departure.by_name().is_none()) => {
                    Request::SyncedRead
                }
                _ => Request::Writes(held.iter().flat_map(Held::writes).collect()),
            },
            Stage::Exchanging(exchange) => exchange.request(),
            Stage::Upgrading(upgrade) => upgrade.request(),
            Stage::Identifying { .. }
            | Stage::Walking(_)
            | Stage::Confirming(_)
            | Stage::Head(_) => Request::Read,
            Stage::Over | Stage::Leaving(_) => unreachable!("it has nothing to ask"),
        }
    }

    pub(super) fn recipe(&self) -> Recipe {
        match self.plan.job {
            Job::Lock | Job::Permits(_) => Recipe::Lock,
            Job::Read | Job::Upgrade => Recipe::Read,
            Job::Write | Job::Downgrade => Recipe::Write,
        }
    }

    fn creates(&self) -> Vec<Write> {
        self.creates_of(self.recipe())
    }

    fn creates_of(&self, recipe: Recipe) -> Vec<Write> {
        let create = |&directory: &usize| {
            Write::Create(Create {
                directory,
                name: recipe.prefix().into(),
                is_sequential: true,
                is_shared: recipe == Recipe::Read,
                order: None,
                data: Rc::clone(&self.plan.line),
            })
        };
        self.plan.directories.iter().map(create).collect()
    }

    /// The session is over, and with it everything that was in it.
    pub(super) fn expire(&mut self) {
        self.stage = Stage::Over;
        self.again = 0;
        self.chores.clear();
    }

    /// The tickets by which it believes to have the turn, for what they exclude.
    pub(super) fn holds(&self) -> Vec<(usize, i64)> {
        let one = |held: &Held| (held.directory, held.czxid);
        match &self.stage {
            Stage::Inside { held, .. } => held.iter().map(one).collect(),
            Stage::Walking(tickets) | Stage::Confirming(tickets) => {
                let each = tickets.each.iter();
                let granted = each.filter(|ticket| ticket.granted().is_some());
                granted
                    .map(|ticket| (ticket.directory, ticket.walk.czxid()))
                    .collect()
            }
            Stage::Head(head) | Stage::MakingHeld(head) => {
                vec![(head.ticket.directory, head.ticket.walk.czxid())]
            }
            Stage::Upgrading(upgrade) => vec![one(&upgrade.read)],
            // An upgrade that is withdrawn goes on reading.
            Stage::Leaving(Then::Stage(stage)) => match &**stage {
                Stage::Inside { held, .. } => held.iter().map(one).collect(),
                _ => Vec::new(),
            },
            Stage::Exchanging(exchange) => {
                let held = !matches!(exchange.back, Back::Walk(_));
                let old = held.then(|| one(&exchange.old));
                let new = exchange.attempt;
                let new = new.map(|czxid| (exchange.create.directory, czxid));
                old.into_iter().chain(new).collect()
            }
            _ => Vec::new(),
        }
    }
}
