//! What each action does, and the rules that every step must keep. (pure)
//!
//! Invariant: the referee judges by what clients believe and what stores hold, never by what the
//! rules of the store say.

use std::rc::Rc;

use super::action::{Action, At};
use super::client::Stage;
use super::rules::{AfterDelete, Ms, NewHistory, ReadsFrom, TICK};
use super::store::{Caller, Data, Refusal, Ticket};
use super::world::{Asked, Late, Old, World};
use crate::protocol::answer::Answer;
use crate::protocol::departure::{Departure, DepartureStep, TicketRead};
use crate::protocol::join::Adoption;

impl World {
    /// What an action leads to; `Err` with the rule that is broken by it.
    pub(super) fn act(&mut self, action: Action) -> Result<(), String> {
        match action {
            Action::Tick => self.pass(),
            Action::Open(client, at) => self.open(client, at)?,
            Action::OpenLate(client) => {
                let caller = self.greet(client, At::Primary);
                let timeout = self.clients[client].timeout;
                self.is_late(caller, Asked::Open { timeout });
            }
            Action::Create(client, at, is_answered) => self.create(client, at, is_answered)?,
            Action::FindOut(client, at) => self.find_out(client, at)?,
            Action::Heartbeat(client, at) => {
                self.call(client, at)?;
            }
            Action::Enter(client, at) => self.enter(client, at)?,
            Action::Leave(client, at, is_answered) => self.leave(client, at, is_answered)?,
            Action::LeaveLate(client, is_done) => self.leave_late(client, is_done)?,
            Action::Arrive(late, at) => self.arrive(late, at)?,
            Action::FindLate(id, at) => self.find_late(id, at)?,
            Action::Remove(id, at) => self.store(at).remove_rest(id),
            _ => self.befall(action),
        }
        self.judge()
    }

    fn greet(&self, client: usize, at: At) -> Caller {
        let store = match (at, &self.old) {
            (At::Old, Some(old)) => &old.store,
            _ => &self.primary,
        };
        Caller {
            id: self.new_id(client),
            history: store.history,
            connection: 0,
        }
    }

    fn is_late(&mut self, caller: Caller, asked: Asked) {
        self.late.push(Late { caller, asked });
        self.faults.unanswered -= 1;
        self.faults.all -= 1;
    }

    fn open(&mut self, client: usize, at: At) -> Result<(), String> {
        let caller = self.greet(client, at);
        let timeout = self.clients[client].timeout;
        if self.has_opened(caller, timeout, at)? {
            let client = &mut self.clients[client];
            client.caller = Some(caller);
            client.answered();
            client.stage = Stage::Ready;
        }
        Ok(())
    }

    fn has_opened(&mut self, caller: Caller, timeout: Ms, at: At) -> Result<bool, String> {
        let (rules, longest) = (Rc::clone(&self.rules), self.longest());
        let before = self.store(at).data.meta.clone();
        let opened = self.store(at).open(&rules, caller, timeout, longest);
        let store = self.store(at);
        if store.data.meta != before && rules.new_history == NewHistory::EndsSessions {
            let history = store.history;
            // The one that was just given is not of before.
            let of_before = |id: &u8| opened.is_err() || *id != caller.id;
            let ids = store.data.rows.iter().map(|row| row.id);
            let ended: Vec<_> = ids.filter(of_before).map(|id| (id, history)).collect();
            self.ended.extend(ended);
        }
        if opened.is_ok() {
            self.must_live(caller.id, at)?;
        }
        Ok(opened.is_ok())
    }

    /// What has ended stays so, as long as the store has the same history.
    fn must_live(&mut self, id: u8, at: At) -> Result<(), String> {
        let history = self.store(at).history;
        match self.ended.contains(&(id, history)) {
            true => Err(format!("session {id} has ended, and lives again")),
            false => Ok(()),
        }
    }

    /// A request of a client's session: the caller, if the store lets it do anything.
    fn call(&mut self, client: usize, at: At) -> Result<Option<Caller>, String> {
        let rules = Rc::clone(&self.rules);
        let caller = &mut self.clients[client].caller;
        let Some(caller) = caller.as_mut() else {
            return Ok(None);
        };
        let mut caller = *caller;
        if rules.new_history != NewHistory::EndsSessions {
            // It has connected again, and its session goes on.
            caller.history = self.store(at).history;
            self.clients[client].caller = Some(caller);
        }
        match self.store(at).call(&rules, caller) {
            Ok(()) => {
                self.must_live(caller.id, at)?;
                self.clients[client].answered();
                Ok(Some(caller))
            }
            Err(Refusal::OtherHistory | Refusal::Over | Refusal::Grace) => {
                self.clients[client].lose_session();
                Ok(None)
            }
            Err(Refusal::Moved) => Ok(None),
        }
    }

    fn create(&mut self, client: usize, at: At, is_answered: bool) -> Result<(), String> {
        let Some(caller) = self.call(client, at)? else {
            return Ok(());
        };
        let ticket = self.store(at).create(caller.id);
        if is_answered {
            self.clients[client].stage = Stage::Waiting(ticket);
        } else {
            self.clients[client].create_unanswered();
            self.faults.unanswered -= 1;
            self.faults.all -= 1;
        }
        Ok(())
    }

    fn find_out(&mut self, client: usize, at: At) -> Result<(), String> {
        let Some(caller) = self.call(client, at)? else {
            return Ok(());
        };
        let mut tickets = self.store(at).data.tickets.iter();
        let found = tickets.find(|ticket| ticket.owner == caller.id).copied();
        self.clients[client].stage = match Adoption::of(vec![found]) {
            Adoption::All(found) => Stage::Waiting(found[0]),
            Adoption::Nothing | Adoption::Part(_) => Stage::Ready,
        };
        Ok(())
    }

    /// Reads the queue, which shows its own ticket by its number and `czxid`.
    fn enter(&mut self, client: usize, at: At) -> Result<(), String> {
        if self.call(client, at)?.is_none() {
            return Ok(());
        }
        let Stage::Waiting(mine) = self.clients[client].stage else {
            return Ok(());
        };
        let mut seen = self.store(at).clone();
        if let (ReadsFrom::Replica, Some(kept)) = (self.rules.reads_from, &self.kept) {
            seen.data = kept.clone();
        }
        let is_mine = |ticket: &Ticket| (ticket.number, ticket.czxid) == (mine.number, mine.czxid);
        if seen.first().is_some_and(is_mine) {
            self.clients[client].stage = Stage::Inside(mine);
            let before = self.token.replace(mine.czxid);
            if before.is_some_and(|before| before >= mine.czxid) && !self.is_excused {
                return Err(format!(
                    "client {client} gets no greater token than the last"
                ));
            }
        } else if !seen.data.tickets.iter().any(is_mine)
            && self.rules.reads_from == ReadsFrom::Primary
        {
            // It has lost its place, but not its session.
            self.clients[client].stage = Stage::Ready;
        }
        Ok(())
    }

    /// The ticket that a client removes, and how far it has come.
    fn departure(&self, client: usize) -> Option<(Ticket, Departure)> {
        match &self.clients[client].stage {
            Stage::Inside(ticket) => Some((*ticket, Departure::just_read())),
            Stage::Leaving(ticket, departure) => Some((*ticket, departure.clone())),
            _ => None,
        }
    }

    fn leave(&mut self, client: usize, at: At, is_answered: bool) -> Result<(), String> {
        let Some(caller) = self.call(client, at)? else {
            return Ok(());
        };
        let Some((ticket, mut departure)) = self.departure(client) else {
            return Ok(());
        };
        if matches!(departure.step(), DepartureStep::Delete(_)) {
            let rules = Rc::clone(&self.rules);
            let is_done = self.store(at).delete(&rules, ticket);
            if !is_answered {
                self.faults.unanswered -= 1;
                self.faults.all -= 1;
                self.delete_unanswered(client, ticket, departure);
                return Ok(());
            }
            let answer = if is_done {
                Answer::Done
            } else {
                Answer::NoNode
            };
            departure.answered(answer, 1);
        } else {
            let found = self.store(at).ticket(ticket.number);
            departure.read(TicketRead::of(
                found.map(|ticket| ticket.czxid.into()),
                ticket.czxid.into(),
            ));
        }
        if matches!(departure.step(), DepartureStep::End(_)) {
            if self.clients[client].finish() {
                self.clients[client].caller = None;
                self.store(at).close(caller.id);
            }
        } else {
            self.clients[client].stage = Stage::Leaving(ticket, departure);
        }
        Ok(())
    }

    fn leave_late(&mut self, client: usize, is_done: bool) -> Result<(), String> {
        let Some((ticket, departure)) = self.departure(client) else {
            return Ok(());
        };
        let Some(caller) = self.clients[client].caller else {
            return Ok(());
        };
        self.is_late(caller, Asked::Delete { ticket });
        if is_done {
            if self.call(client, At::Primary)?.is_none() {
                return Ok(());
            }
            let rules = Rc::clone(&self.rules);
            self.store(At::Primary).delete(&rules, ticket);
        }
        self.delete_unanswered(client, ticket, departure);
        Ok(())
    }

    fn delete_unanswered(&mut self, client: usize, ticket: Ticket, mut departure: Departure) {
        departure.answered(Answer::Unknown, 1);
        let after = self.rules.after_delete;
        let client = &mut self.clients[client];
        match after {
            AfterDelete::NewSession => {
                client.lose_session();
                client.finish();
                return;
            }
            AfterDelete::NewConnection => {
                if let Some(caller) = &mut client.caller {
                    caller.connection += 1;
                }
            }
            AfterDelete::GoOn => {}
        }
        client.stage = Stage::Leaving(ticket, departure);
    }

    fn arrive(&mut self, late: usize, at: At) -> Result<(), String> {
        let Late { caller, asked } = self.late.remove(late);
        let rules = Rc::clone(&self.rules);
        match asked {
            Asked::Open { timeout } => {
                self.has_opened(caller, timeout, at)?;
            }
            Asked::Delete { ticket } => {
                if self.store(at).call(&rules, caller).is_ok() {
                    self.store(at).delete(&rules, ticket);
                }
            }
        }
        Ok(())
    }

    fn find_late(&mut self, id: u8, at: At) -> Result<(), String> {
        let rules = Rc::clone(&self.rules);
        self.store(at).find_late(&rules, id);
        if !self.store(at).row(id).is_some_and(|row| row.is_dead) {
            return Ok(());
        }
        // What it has left goes at once, or the dead would pile up.
        self.store(at).remove_rest(id);
        let history = self.store(at).history;
        self.ended.push((id, history));
        let healthy = self.clients.iter().position(|client| {
            let is_owner = client.caller.is_some_and(|caller| caller.id == id);
            is_owner
                && rules
                    .heartbeat
                    .is_some_and(|heartbeat| client.silent <= heartbeat)
        });
        match healthy {
            Some(client) => Err(format!(
                "client {client} sends its heartbeats and loses its session"
            )),
            None => Ok(()),
        }
    }

    fn befall(&mut self, action: Action) {
        self.faults.all -= u8::from(action != Action::Keep);
        let faults = &mut self.faults;
        match action {
            // A replica that is read follows for ever.
            Action::Keep => faults.kept -= u8::from(self.rules.reads_from == ReadsFrom::Primary),
            Action::Restart => faults.restarts -= 1,
            Action::Promote(true) => faults.promotions -= 1,
            Action::Promote(false) => faults.emptied -= 1,
            Action::Return => faults.returns -= 1,
            Action::Flush => faults.flushes -= 1,
            Action::Collect => faults.collected -= 1,
            Action::Step(_) => faults.steps -= 1,
            _ => {}
        }
        match action {
            Action::Keep => self.kept = Some(self.primary.data.clone()),
            Action::Restart => self.restart(),
            Action::Promote(has_data) => self.promote(has_data),
            Action::Return => self.come_back(),
            Action::Flush => {
                self.primary.data = Data::default();
                self.is_excused |= self.rules.excuses_loss;
            }
            Action::Collect => self.primary.collect(),
            Action::Step(ticks) => {
                self.primary.pass(0, ticks * TICK);
                if let Some(kept) = &mut self.kept {
                    kept.pass(0, ticks * TICK);
                }
            }
            _ => {}
        }
    }

    fn judge(&self) -> Result<(), String> {
        let holders = self.clients.iter().enumerate();
        let holders: Vec<usize> = holders
            .filter(|(_, client)| client.holds())
            .map(|(at, _)| at)
            .collect();
        match holders[..] {
            [one, other, ..] => Err(format!("clients {one} and {other} hold the lock together")),
            _ => Ok(()),
        }
    }

    fn restart(&mut self) {
        if !self.rules.is_durable {
            self.primary.data = self.kept.clone().unwrap_or_default();
        }
        self.begin_history(true);
        self.primary.uptime = 0;
    }

    fn begin_history(&mut self, is_run: bool) {
        let seen = [
            Some(self.primary.history),
            self.old.as_ref().map(|old| old.store.history),
        ];
        let highest = |of: fn(&super::store::History) -> u8| {
            let seen = seen.iter().flatten().map(of);
            seen.chain(self.run_before).max().unwrap_or_default() + 1
        };
        let (run, replication) = (highest(|at| at.run), highest(|at| at.replication));
        let history = &mut self.primary.history;
        history.replication = replication;
        if is_run {
            history.run = run;
        }
    }

    fn promote(&mut self, has_data: bool) {
        let before = self.primary.clone();
        let kept = self.kept.clone().unwrap_or_default();
        self.run_before = Some(before.history.run);
        self.primary.data = if has_data { kept } else { Data::default() };
        self.is_excused |= !has_data && self.rules.excuses_loss;
        self.begin_history(true);
        let left = Ms::from(self.faults.cut_off) * TICK;
        self.old = Some(Old {
            store: before,
            left,
        });
    }

    /// The primary of before has taken over the data of its successor, and is promoted.
    fn come_back(&mut self) {
        self.old = None;
        self.begin_history(false);
        if let Some(run) = self.run_before.take() {
            self.primary.history.run = run;
        }
    }
}
