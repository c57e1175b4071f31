//! What each answer makes of a client. (pure)
//!
//! The real `AfterCreate`, `Adoption`, `SeenTogether`, `Exchanging` and `Departure` decide. Which
//! tickets are read together, and that all leave when one is gone, is the order of requests, as
//! `queue/several.rs` has it.
//!
//! Invariant, as there: whatever a request may have made is answered for, whether its reply comes,
//! is lost, or is not waited for.

use super::chore::Chore;
use super::client::{Client, Job, News, Part, Reply, Stage, Then};
use super::exchange::Exchange;
use super::held_ticket::{Found, Held, WalkingTicket, WalkingTickets, found};
use super::permit::Head;
use super::store::Tree;
use crate::protocol::answer::Answer;
use crate::protocol::exchange::Exchanging;
use crate::protocol::join::{Adoption, AfterCreate};
use crate::protocol::lease::Moment;
use crate::protocol::ticket::{Mode, Recipe};
use crate::protocol::walk::Step;

impl Client {
    /// Takes in the answer to a request of writes.
    pub(super) fn answered(&mut self, part: Part, reply: Reply<'_>) {
        if let Part::Chore(at) = part {
            self.chores[at].answered(reply.answer);
            return self.tidy();
        }
        let is_lost = reply.answer == Answer::Unknown;
        let stage = std::mem::replace(&mut self.stage, Stage::Over);
        self.stage = match stage {
            Stage::Joining => self.created(reply),
            // Asked again, it does nothing twice.
            Stage::Making if is_lost => Stage::Making,
            Stage::Making => Stage::Joining,
            Stage::MakingHeld(head) if is_lost => Stage::MakingHeld(head),
            Stage::MakingHeld(head) => Stage::Head(Head::new(head.ticket)),
            Stage::Inside { held, is_new: true } if self.plan.job == Job::Upgrade => {
                let read = held.into_iter().next().unwrap();
                self.upgrade_joined(read, reply)
            }
            Stage::Inside { held, .. } => {
                self.left(held, reply.answer);
                Stage::Leaving(Then::Again)
            }
            Stage::Exchanging(exchange) => exchange.answered(reply),
            Stage::Upgrading(upgrade) => self.upgrade_answered(upgrade, reply),
            stage => unreachable!("{reply:?} to {stage:?}"),
        };
        self.tidy();
    }

    fn created(&self, reply: Reply<'_>) -> Stage {
        match (AfterCreate::from(reply.answer), reply.attempt) {
            (AfterCreate::Created, Some(attempt)) if reply.names.len() > 1 => {
                let names = reply.names.to_vec();
                Stage::Identifying { attempt, names }
            }
            (AfterCreate::Created, Some(attempt)) => {
                let found = (self.plan.directories[0], reply.names[0].clone(), attempt);
                let mut tickets = self.walks(&[found]);
                tickets[0].speculates = self.recipe().kind() == Mode::Exclusive;
                Stage::Walking(WalkingTickets::new(tickets))
            }
            (AfterCreate::MakeDirectories, _) => Stage::Making,
            (AfterCreate::FindOut, attempt) => Stage::Settling { attempt },
            (after, _) => unreachable!("no server of the search leads to {after:?}"),
        }
    }

    /// Takes in the answer to one request by which all these tickets were to leave. Those that are
    /// not gone leave by themselves.
    pub(super) fn left(&mut self, mut all: Vec<Held>, answer: Answer) {
        let tickets = all.len();
        for held in &mut all {
            held.departure.sent();
            held.departure.answered(answer, tickets);
        }
        self.leave_all(&all);
    }

    /// The future is dropped: while it waits for the answer to its create or exchange, whose
    /// identity is given if it was done, or anywhere else.
    pub(super) fn cancel(&mut self, sent: Option<Option<i64>>) {
        let stage = std::mem::replace(&mut self.stage, Stage::Over);
        let directories = &self.plan.directories;
        match stage {
            Stage::Joining | Stage::Making => {
                if let Some(attempt) = sent {
                    self.sweep(directories.clone(), attempt);
                }
            }
            Stage::Settling { attempt } => self.sweep(directories.clone(), attempt),
            Stage::Identifying { attempt, .. } => self.sweep(directories.clone(), Some(attempt)),
            Stage::Walking(tickets) | Stage::Confirming(tickets) => {
                self.leave_all(&tickets.held());
            }
            Stage::Inside { held, .. } => {
                if let Some(attempt) = sent {
                    self.sweep(directories.clone(), attempt);
                }
                self.leave_all(&held);
            }
            Stage::Exchanging(exchange) => {
                let (tickets, attempt) = match sent {
                    Some(attempt) => (Exchanging::Both, attempt),
                    None => (exchange.tickets, exchange.attempt),
                };
                if tickets.may_have_new() {
                    self.sweep(vec![exchange.create.directory], attempt);
                }
                if tickets.has_old() {
                    self.leave_all(&[exchange.old]);
                }
            }
            Stage::Upgrading(upgrade) => self.cancel_upgrade(upgrade),
            Stage::Head(head) | Stage::MakingHeld(head) => self.leave_all(&[head.ticket.held()]),
            Stage::Leaving(_) | Stage::Over => {}
        }
        self.stage = Stage::Leaving(Then::Again);
        // A dropped future waits for no janitor.
        self.go_on();
    }

    /// Whether dropping the future here is another thing than dropping it one step later.
    pub(super) fn can_be_cancelled(&self) -> bool {
        !matches!(self.stage, Stage::Leaving(_) | Stage::Over | Stage::Joining)
    }

    /// Takes in what a read saw; what the search has to judge.
    pub(super) fn read(&mut self, me: usize, part: Part, view: &Tree) -> News {
        let mut news = News::default();
        if let Part::Chore(at) = part {
            let found = self.chores[at].read(me, view);
            self.chores.extend(found);
            self.tidy();
            return news;
        }
        let stage = std::mem::replace(&mut self.stage, Stage::Over);
        self.stage = match stage {
            Stage::Settling { attempt } => self.settled(attempt, view, me),
            Stage::Identifying { attempt, names } => {
                self.identified(attempt, &names, view, &mut news)
            }
            Stage::Confirming(tickets) => self.confirmed(tickets, view),
            Stage::Walking(tickets) => {
                let Part::Ticket(at) = part else {
                    unreachable!("a walk has tickets")
                };
                self.walked(tickets, at, view, &mut news)
            }
            Stage::Inside { held, .. } if self.plan.job == Job::Downgrade => {
                self.downgrade(held, view)
            }
            Stage::Inside { held, .. } => {
                // A plain exit is looked at first, which is the janitor's way.
                self.leave_all(&held);
                for chore in &mut self.chores {
                    chore.read(me, view);
                }
                Stage::Leaving(Then::Again)
            }
            Stage::Exchanging(exchange) => exchange.read(view, me),
            Stage::Upgrading(upgrade) => self.upgrade_read(upgrade, view, me),
            Stage::Head(head) => self.head_read(head, view),
            stage => unreachable!("{stage:?} reads nothing"),
        };
        self.tidy();
        news
    }

    fn settled(&mut self, attempt: Option<i64>, view: &Tree, me: usize) -> Stage {
        let directories = &self.plan.directories;
        let found = found(directories, attempt, view, me);
        let in_each = directories.iter().map(|directory| {
            let mut found = found.iter();
            found.find(|(at, ..)| at == directory).cloned()
        });
        match Adoption::of(in_each.collect()) {
            Adoption::Nothing => Stage::Joining,
            Adoption::All(found) => Stage::Walking(WalkingTickets::new(self.walks(&found))),
            Adoption::Part(found) => {
                let left = found.into_iter().flatten().map(Chore::found);
                self.chores.extend(left);
                Stage::Leaving(Then::Join)
            }
        }
    }

    /// The identities are read, and with them whether anybody else is there.
    fn identified(
        &mut self,
        attempt: i64,
        names: &[String],
        view: &Tree,
        news: &mut News,
    ) -> Stage {
        let each = self.plan.directories.iter().zip(names);
        let there = each.filter(|&(&directory, name)| {
            view.node(directory, name)
                .is_some_and(|node| node.czxid == attempt)
        });
        let tickets: Vec<_> = there
            .map(|(&directory, name)| (directory, name.clone(), attempt))
            .collect();
        let mut tickets = self.walks(&tickets);
        if tickets.len() < names.len() {
            return self.give_up(&tickets, None);
        }
        for ticket in &mut tickets {
            ticket.speculative_read(view);
            if ticket.granted().is_some() {
                news.turns.push((ticket.directory, ticket.walk.czxid()));
            }
        }
        Self::go_in(WalkingTickets::new(tickets))
    }

    /// Each has had its turn, but not at one moment: somebody may have removed some meanwhile.
    fn confirmed(&mut self, mut tickets: WalkingTickets, view: &Tree) -> Stage {
        let is_gone = |held: &Held| !held.is_there(view);
        if let Some(gone) = tickets.held().iter().position(is_gone) {
            return self.give_up(&tickets.each, Some(gone));
        }
        for ticket in &mut tickets.each {
            let version = view.directory(ticket.directory).unwrap().version;
            // Otherwise its exit is no longer right.
            if !ticket.walk.has_turn_at(version) {
                ticket.walk.start_over();
            }
        }
        Self::go_in(tickets)
    }

    /// In if each ticket has its turn and all were seen together; nothing here takes time.
    fn go_in(mut tickets: WalkingTickets) -> Stage {
        match tickets.granted() {
            None => Stage::Walking(tickets),
            Some(_) if tickets.together.needs_read(true) => Stage::Confirming(tickets),
            Some(held) => Stage::Inside {
                held,
                is_new: false,
            },
        }
    }

    /// One ticket is no longer ours: the others leave.
    fn give_up(&mut self, tickets: &[WalkingTicket], gone: Option<usize>) -> Stage {
        let left = tickets
            .iter()
            .enumerate()
            .filter(|(at, _)| Some(*at) != gone);
        let held: Vec<Held> = left.map(|(_, ticket)| ticket.held()).collect();
        self.leave_all(&held);
        Stage::Leaving(Then::Again)
    }

    /// Begins the walks of tickets that were created.
    fn walks(&self, found: &[Found]) -> Vec<WalkingTicket> {
        let begin = |(directory, name, czxid): &Found| {
            let recipe = self.recipe();
            WalkingTicket::new(*directory, name, *czxid, recipe, self.plan.owner)
        };
        found.iter().map(begin).collect()
    }

    fn walked(
        &mut self,
        mut tickets: WalkingTickets,
        at: usize,
        view: &Tree,
        news: &mut News,
    ) -> Stage {
        let ticket = &mut tickets.each[at];
        if ticket.ask(view).is_err() {
            return self.give_up(&tickets.each, Some(at));
        }
        match ticket.walk.step() {
            Step::Turn(_) => news.turns.push((ticket.directory, ticket.walk.czxid())),
            Step::GuestEntry(guest_entry) => {
                let guest_entry = guest_entry.clone();
                return Exchange::guest_entry(guest_entry, tickets, &self.plan);
            }
            _ => {}
        }
        match (tickets.granted(), self.plan.job) {
            (Some(_), Job::Permits(_)) => Stage::Head(Head::new(tickets.each.remove(0))),
            (Some(held), Job::Downgrade) => Stage::Inside { held, is_new: true },
            (Some(held), Job::Upgrade) => {
                // The second turn is that of the writer that it wanted to become.
                let is_new = held[0].name.starts_with(Recipe::Read.prefix());
                Stage::Inside { held, is_new }
            }
            _ => Self::go_in(tickets),
        }
    }

    /// Has the janitor look at tickets and remove them.
    pub(super) fn leave_all(&mut self, all: &[Held]) {
        self.chores.extend(all.iter().map(|held| {
            let mut held = held.clone();
            // The janitor may take its time.
            held.departure.age(Moment::MAX);
            let was_seen = false;
            Chore::Leave { held, was_seen }
        }));
    }

    /// Has the janitor remove whatever a create made.
    pub(super) fn sweep(&mut self, directories: Vec<usize>, attempt: Option<i64>) {
        self.chores.push(Chore::Sweep {
            directories,
            attempt,
        });
    }

    /// Forgets what is done, and goes on when that was waited for.
    fn tidy(&mut self) {
        self.chores.retain(|chore| !chore.is_done());
        if self.chores.is_empty() {
            self.go_on();
        }
    }

    fn go_on(&mut self) {
        if let Stage::Leaving(then) = &self.stage {
            self.stage = match then {
                Then::Join => Stage::Joining,
                Then::Stage(stage) => (**stage).clone(),
                Then::Again if self.again > 0 => {
                    self.again -= 1;
                    Stage::Joining
                }
                Then::Again => Stage::Over,
            };
        }
    }
}
