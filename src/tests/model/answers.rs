//! What each answer makes of a client: as `queue/join.rs`, `queue/several.rs` and `queue/place.rs`
//! do it. (pure)
//!
//! Invariant, as there: whatever a request may have made is answered for, whether its reply comes,
//! is lost, or is not waited for.

use super::chore::Chore;
use super::client::{Client, Job, News, Part, Stage, Then};
use super::exchange::{Exchange, Sent};
use super::permit::Head;
use super::seat::{Held, Seat, found};
use super::store::{Refusal, Tree};
use super::upgrade;
use crate::protocol::mark::ReleasePlan;
use crate::protocol::ticket::{Mode, Recipe};
use crate::protocol::walk::Step;

impl Client {
    /// Takes in the answer to a request of writes: the identity that was given, and the names.
    pub(super) fn answered(&mut self, part: Part, answer: Result<(i64, &[String]), Refusal>) {
        if let Part::Chore(at) = part {
            self.chores[at].answered(answer.is_ok());
            return self.tidy();
        }
        let stage = std::mem::replace(&mut self.stage, Stage::Over);
        self.stage = match (stage, answer) {
            (Stage::Joining, Ok((attempt, names))) if names.len() > 1 => {
                let names = names.to_vec();
                Stage::Identifying { attempt, names }
            }
            (Stage::Joining, Ok((attempt, names))) => {
                let ticket = (self.plan.directories[0], names[0].clone(), attempt);
                let mut seats = self.seats(&[ticket]);
                seats[0].speculates = self.recipe().kind() == Mode::Exclusive;
                Stage::Walking(seats)
            }
            (Stage::Joining, Err(Refusal::NoNode)) => Stage::Making,
            (Stage::Making, _) => Stage::Joining,
            (Stage::MakingHeld(head), _) => Stage::Head(Head::new(head.seat)),
            (Stage::Inside { held, is_new: true }, answer) if self.plan.job == Job::Upgrade => {
                let read = held.into_iter().next().unwrap();
                self.upgrade_joined(read, answer)
            }
            (Stage::Inside { .. }, Ok(_)) => Stage::Leaving(Then::Again),
            (Stage::Inside { held, .. }, Err(_)) => {
                // Nothing was changed: each leaves by itself, and with its mark unless that is what
                // was refused.
                let is_own = held.len() == 1;
                let doubtful = |held: Held| match is_own {
                    true => held.plain(),
                    false => held,
                };
                self.leave_all(held.into_iter().map(doubtful).collect());
                Stage::Leaving(Then::Again)
            }
            (Stage::Exchanging(exchange), answer) => self.exchange_answered(*exchange, answer),
            (Stage::Upgrading(upgrade), answer) => self.upgrade_answered(upgrade, answer),
            (stage, answer) => unreachable!("{answer:?} to {stage:?}"),
        };
        self.tidy();
    }

    /// The reply to a request of writes was lost; the identity that it gave, if it was done.
    pub(super) fn lost(&mut self, part: Part, attempt: Option<i64>) {
        if let Part::Chore(at) = part {
            self.chores[at].lost();
            return self.tidy();
        }
        let stage = std::mem::replace(&mut self.stage, Stage::Over);
        self.stage = match stage {
            Stage::Joining => Stage::Settling { attempt },
            // Asked again, it does nothing twice.
            Stage::Making => Stage::Making,
            Stage::MakingHeld(head) => Stage::MakingHeld(head),
            Stage::Inside { held, is_new: true } if self.plan.job == Job::Upgrade => {
                let read = held.into_iter().next().unwrap();
                upgrade::lost_create(read, attempt)
            }
            Stage::Inside { held, .. } => {
                self.leave_all(held);
                Stage::Leaving(Then::Again)
            }
            Stage::Exchanging(mut exchange) => {
                exchange.sent = Sent::Lost { attempt };
                Stage::Exchanging(exchange)
            }
            Stage::Upgrading(upgrade) => self.upgrade_lost(upgrade),
            stage => unreachable!("{stage:?} loses nothing"),
        };
        self.tidy();
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
            Stage::Walking(seats) | Stage::Confirming(seats) => {
                self.leave_all(seats.iter().map(Seat::held).collect());
            }
            Stage::Inside { held, .. } => {
                if let Some(attempt) = sent {
                    self.sweep(directories.clone(), attempt);
                }
                self.leave_all(held);
            }
            Stage::Exchanging(exchange) => {
                let attempt = match exchange.sent {
                    Sent::Not => sent,
                    Sent::Lost { attempt } => Some(attempt),
                    Sent::Done { attempt, .. } => Some(Some(attempt)),
                };
                if let Some(attempt) = attempt {
                    self.sweep(vec![exchange.create.directory], attempt);
                }
                if !matches!(exchange.sent, Sent::Done { .. }) {
                    self.leave_all(vec![exchange.old]);
                }
            }
            Stage::Upgrading(upgrade) => self.cancel_upgrade(upgrade),
            Stage::Head(head) | Stage::MakingHeld(head) => self.leave_all(vec![head.seat.held()]),
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
            let found = self.chores[at].looked(me, view);
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
            Stage::Confirming(seats) => self.confirmed(seats, view),
            Stage::Walking(seats) => {
                let Part::Seat(at) = part else {
                    unreachable!("a walk has seats")
                };
                self.walked(seats, at, view, &mut news)
            }
            Stage::Inside { held, .. } if self.plan.job == Job::Downgrade => {
                self.downgrade(held, view)
            }
            Stage::Inside { held, .. } => {
                // A plain exit is looked at first, which is the janitor's way.
                self.leave_all(held);
                for chore in &mut self.chores {
                    chore.looked(me, view);
                }
                Stage::Leaving(Then::Again)
            }
            Stage::Exchanging(exchange) => self.exchange_read(*exchange, view, me),
            Stage::Upgrading(upgrade) => self.upgrade_read(upgrade, view, me),
            Stage::Head(head) => self.head_read(head, view),
            stage => unreachable!("{stage:?} reads nothing"),
        };
        self.tidy();
        news
    }

    fn settled(&mut self, attempt: Option<i64>, view: &Tree, me: usize) -> Stage {
        let found = found(&self.plan.directories, attempt, view, me);
        if found.is_empty() {
            return Stage::Joining;
        }
        if found.len() == self.plan.directories.len() {
            return Stage::Walking(self.seats(&found));
        }
        // All or nothing.
        self.chores
            .extend(found.into_iter().map(|(directory, name, czxid)| {
                Chore::seen(Held {
                    directory,
                    name,
                    czxid,
                    plan: ReleasePlan::Plain,
                })
            }));
        Stage::Leaving(Then::Join)
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
        let mut seats = self.seats(&tickets);
        if seats.len() < names.len() {
            return self.give_up(seats, None);
        }
        for seat in &mut seats {
            seat.speculative_read(view);
            if seat.granted().is_some() {
                news.turns.push((seat.directory, seat.walk.czxid()));
            }
        }
        match seats.iter().map(Seat::granted).collect() {
            Some(held) => Stage::Inside {
                held,
                is_new: false,
            },
            None => Stage::Walking(seats),
        }
    }

    /// Each has had its turn, but not at one moment: somebody may have removed some meanwhile.
    fn confirmed(&mut self, mut seats: Vec<Seat>, view: &Tree) -> Stage {
        let is_gone = |seat: &Seat| {
            let there = view.node(seat.directory, &seat.name);
            there.is_none_or(|node| node.czxid != seat.walk.czxid())
        };
        if let Some(gone) = seats.iter().position(is_gone) {
            return self.give_up(seats, Some(gone));
        }
        for seat in &mut seats {
            let Step::Turn(turn) = seat.walk.step() else {
                unreachable!("all have had their turn")
            };
            // Otherwise its exit is no longer right.
            if turn.version != view.directory(seat.directory).unwrap().version {
                seat.walk.start_over();
            }
        }
        match seats.iter().map(Seat::granted).collect() {
            Some(held) => Stage::Inside {
                held,
                is_new: false,
            },
            None => Stage::Walking(seats),
        }
    }

    /// One ticket is no longer ours: the others leave.
    fn give_up(&mut self, seats: Vec<Seat>, gone: Option<usize>) -> Stage {
        let left = seats.iter().enumerate().filter(|(at, _)| Some(*at) != gone);
        self.leave_all(left.map(|(_, seat)| seat.held()).collect());
        Stage::Leaving(Then::Again)
    }

    /// Begins the walks of tickets that were created.
    fn seats(&self, tickets: &[(usize, String, i64)]) -> Vec<Seat> {
        let begin = |(directory, name, czxid): &(usize, String, i64)| {
            let recipe = self.recipe();
            Seat::new(*directory, name, *czxid, recipe, self.plan.owner)
        };
        tickets.iter().map(begin).collect()
    }

    fn walked(&mut self, mut seats: Vec<Seat>, at: usize, view: &Tree, news: &mut News) -> Stage {
        let seat = &mut seats[at];
        if seat.ask(view).is_err() {
            return self.give_up(seats, Some(at));
        }
        match seat.walk.step() {
            Step::Turn(_) => news.turns.push((seat.directory, seat.walk.czxid())),
            Step::GuestEntry(guest_entry) => {
                return Exchange::guest_entry(guest_entry.clone(), &seats, &self.plan);
            }
            _ => {}
        }
        let held: Option<Vec<Held>> = seats.iter().map(Seat::granted).collect();
        match (held, self.plan.job) {
            (Some(_), Job::Permits(_)) => Stage::Head(Head::new(seats.remove(0))),
            (Some(held), Job::Downgrade) => Stage::Inside { held, is_new: true },
            (Some(held), Job::Upgrade) => {
                // The second turn is that of the writer that it wanted to become.
                let is_new = held[0].name.starts_with(Recipe::Read.prefix());
                Stage::Inside { held, is_new }
            }
            (Some(_), _) if seats.len() > 1 => Stage::Confirming(seats),
            (Some(held), _) => Stage::Inside {
                held,
                is_new: false,
            },
            (None, _) => Stage::Walking(seats),
        }
    }

    /// Has the janitor look at tickets and remove them.
    pub(super) fn leave_all(&mut self, held: Vec<Held>) {
        self.chores.extend(held.into_iter().map(Chore::doubtful));
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
        self.chores.retain(|chore| *chore != Chore::Done);
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
