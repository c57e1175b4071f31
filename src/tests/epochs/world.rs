//! The world of a search: stores, clients, requests that are late, and what can befall them. (pure)
//!
//! A request is done in the moment in which it is sent, or has no answer: then it was done, or it
//! is late and may arrive at any later moment, at any server. Invariant: each fault happens at most
//! as often as it was given.

use std::rc::Rc;

use super::action::{Action, At};
use super::client::{Client, Stage};
use super::rules::{Faults, Ms, ReadsFrom, Rules, TICK};
use super::store::{Caller, Data, History, Meta, Store, Ticket};

/// A request that its client has given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Asked {
    Open { timeout: Ms },
    Delete { ticket: Ticket },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Late {
    pub(super) caller: Caller,
    pub(super) asked: Asked,
}

/// A primary that was cut off, and for how much longer it answers.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Old {
    pub(super) store: Store,
    pub(super) left: Ms,
}

#[derive(Debug, Clone)]
pub(super) struct World {
    pub(super) rules: Rc<Rules>,
    pub(super) primary: Store,
    pub(super) old: Option<Old>,
    /// What a restart or a promotion may fall back to.
    pub(super) kept: Option<Data>,
    pub(super) clients: Vec<Client>,
    pub(super) late: Vec<Late>,
    pub(super) faults: Faults,
    /// The run that was primary before the last promotion.
    pub(super) run_before: Option<u8>,
    /// The token of the last grant, counted from now.
    pub(super) token: Option<Ms>,
    /// All data was lost: rule 7 promises no rising token then.
    pub(super) is_excused: bool,
    /// Sessions that have ended, as long as somebody may name them.
    pub(super) ended: Vec<(u8, History)>,
}

impl World {
    /// Clients with their timeouts and how often they want the lock, at a store that was used
    /// before, or is new.
    pub(super) fn new(rules: Rules, clients: &[(Ms, u8)], faults: Faults) -> Self {
        let history = History {
            run: 0,
            replication: 0,
        };
        let meta = Meta {
            history,
            free: 0,
            last: Ms::MIN,
        };
        let data = Data {
            meta: Some(meta),
            ..Data::default()
        };
        let clients = clients.iter();
        let clients = clients.map(|(timeout, goes)| Client::new(timeout * TICK, *goes));
        Self {
            rules: Rc::new(rules),
            primary: Store {
                history,
                uptime: Ms::from(i16::MAX),
                clock: 0,
                data: data.clone(),
            },
            old: None,
            kept: Some(data),
            clients: clients.collect(),
            late: Vec::new(),
            faults,
            run_before: None,
            token: None,
            is_excused: false,
            ended: Vec::new(),
        }
    }

    /// The store has never been used.
    pub(super) fn fresh(mut self) -> Self {
        (self.primary.data, self.kept) = (Data::default(), None);
        self
    }

    /// So many transactions have run ahead of the clock.
    pub(super) fn ahead(mut self, ahead: Ms) -> Self {
        for data in [Some(&mut self.primary.data), self.kept.as_mut()] {
            if let Some(meta) = data.and_then(|data| data.meta.as_mut()) {
                meta.last = ahead;
            }
        }
        self
    }

    /// No token is judged.
    pub(super) fn excused(mut self) -> Self {
        self.is_excused = true;
        self
    }

    pub(super) fn longest(&self) -> Ms {
        let timeouts = self.clients.iter().map(|client| client.timeout);
        timeouts.max().unwrap_or_default()
    }

    pub(super) fn store(&mut self, at: At) -> &mut Store {
        match (at, &mut self.old) {
            (At::Old, Some(old)) => &mut old.store,
            _ => &mut self.primary,
        }
    }

    /// An id that nobody names any more.
    pub(super) fn new_id(&self, client: usize) -> u8 {
        // Ranges of their own, so that it does not matter whose session came first.
        let first = u8::try_from(10 * (client + 1)).unwrap();
        if !self.rules.has_new_ids {
            return first;
        }
        let is_named = |id: u8| self.named().any(|named| named == id);
        (first..first + 10).find(|id| !is_named(*id)).unwrap()
    }

    /// The data of each store that there is or may be again.
    pub(super) fn all_data(&self) -> impl Iterator<Item = &Data> {
        let old = self.old.iter().map(|old| &old.store.data);
        [&self.primary.data]
            .into_iter()
            .chain(&self.kept)
            .chain(old)
    }

    fn named(&self) -> impl Iterator<Item = u8> + '_ {
        let stored = self.all_data().flat_map(|data| {
            let owners = data.tickets.iter().map(|ticket| ticket.owner);
            data.rows.iter().map(|row| row.id).chain(owners)
        });
        stored.chain(self.named_by_clients())
    }

    /// Ids that a client, or a late request, may still bring.
    pub(super) fn named_by_clients(&self) -> impl Iterator<Item = u8> + '_ {
        let callers = self.clients.iter().filter_map(|client| client.caller);
        let late = self.late.iter().map(|late| late.caller);
        callers.chain(late).map(|caller| caller.id)
    }

    /// Whether what was kept may still be seen.
    pub(super) fn needs_kept(&self) -> bool {
        let faults = &self.faults;
        let can_lose = faults.restarts + faults.promotions > 0 && faults.all > 0;
        can_lose && !self.rules.is_durable || self.rules.reads_from == ReadsFrom::Replica
    }

    fn faults_left(&self, of: u8) -> bool {
        of > 0 && self.faults.all > 0
    }

    /// Time passes for everybody.
    pub(super) fn pass(&mut self) {
        self.primary.pass(TICK, 0);
        if let Some(kept) = &mut self.kept {
            kept.pass(TICK, 0);
        }
        if let Some(old) = &mut self.old {
            old.store.pass(TICK, 0);
            old.left -= TICK;
        }
        if self.old.as_ref().is_some_and(|old| old.left < 0) {
            self.old = None;
        }
        for client in &mut self.clients {
            client.pass();
        }
        for late in &mut self.late {
            if let Asked::Delete { ticket } = &mut late.asked {
                ticket.czxid -= TICK;
            }
        }
        self.token = self.token.map(|token| token.saturating_sub(TICK));
    }

    pub(super) fn possible(&self) -> Vec<Action> {
        let mut actions = vec![Action::Tick];
        let mut sides = vec![At::Primary];
        sides.extend(self.old.as_ref().map(|_| At::Old));
        for &at in &sides {
            for client in 0..self.clients.len() {
                self.of_client(client, at, &mut actions);
            }
            for late in 0..self.late.len() {
                actions.push(Action::Arrive(late, at));
            }
            let store = match (at, &self.old) {
                (At::Old, Some(old)) => &old.store,
                _ => &self.primary,
            };
            for row in &store.data.rows {
                if row.is_dead {
                    actions.push(Action::Remove(row.id, at));
                } else if row.due <= 0 {
                    actions.push(Action::FindLate(row.id, at));
                }
            }
        }
        self.befalling(&mut actions);
        actions
    }

    fn of_client(&self, at: usize, side: At, actions: &mut Vec<Action>) {
        let client = &self.clients[at];
        let may_be_unanswered = self.faults_left(self.faults.unanswered);
        match &client.stage {
            Stage::Away => {
                if self.may_open(at, side) {
                    actions.push(Action::Open(at, side));
                }
                if may_be_unanswered && side == At::Primary {
                    actions.push(Action::OpenLate(at));
                }
            }
            Stage::Ready => {
                actions.push(Action::Create(at, side, true));
                if may_be_unanswered {
                    actions.push(Action::Create(at, side, false));
                }
            }
            Stage::FindsOut => actions.push(Action::FindOut(at, side)),
            Stage::Waiting(_) if client.lease > 0 => actions.push(Action::Enter(at, side)),
            Stage::Inside(_) | Stage::Leaving(..) => {
                actions.push(Action::Leave(at, side, true));
                if may_be_unanswered && client.is_deleting() {
                    actions.push(Action::Leave(at, side, false));
                    if side == At::Primary {
                        actions.push(Action::LeaveLate(at, false));
                        if self.rules.has_copies {
                            actions.push(Action::LeaveLate(at, true));
                        }
                    }
                }
            }
            Stage::Waiting(_) | Stage::Done => {}
        }
        if client.caller.is_some() && client.stage != Stage::Done {
            actions.push(Action::Heartbeat(at, side));
        }
    }

    /// A client leaves one session behind at most, and none at a primary that was cut off.
    fn may_open(&self, client: usize, side: At) -> bool {
        let (store, most) = match (side, &self.old) {
            (At::Old, Some(old)) => (&old.store, 0),
            _ => (&self.primary, 1),
        };
        let is_own = |id: u8| usize::from(id / 10) == client + 1;
        let rows = store.data.rows.iter();
        rows.filter(|row| !row.is_dead && is_own(row.id)).count() <= most
    }

    fn befalling(&self, actions: &mut Vec<Action>) {
        let faults = &self.faults;
        if faults.kept > 0 && self.needs_kept() && self.kept.as_ref() != Some(&self.primary.data) {
            actions.push(Action::Keep);
        }
        if self.faults_left(faults.restarts) {
            actions.push(Action::Restart);
        }
        if self.faults_left(faults.promotions) {
            actions.push(Action::Promote(true));
        }
        if self.faults_left(faults.emptied) {
            actions.push(Action::Promote(false));
        }
        if self.faults_left(faults.returns) && self.run_before.is_some() {
            actions.push(Action::Return);
        }
        if self.faults_left(faults.flushes) {
            actions.push(Action::Flush);
        }
        if self.faults_left(faults.collected) && self.primary.data.next > 0 {
            actions.push(Action::Collect);
        }
        if self.faults_left(faults.steps) {
            let forward = 1..=Ms::from(faults.forward);
            let backward = 1..=Ms::from(faults.backward);
            actions.extend(forward.map(Action::Step));
            actions.extend(backward.map(|step| Action::Step(-step)));
        }
    }
}
