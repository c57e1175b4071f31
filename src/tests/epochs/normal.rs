//! One form for all states that can do the same. (pure)
//!
//! Invariant: nothing that a rule compares is changed: numbers and tokens keep their order, and a
//! moment is forgotten only when no step of a clock brings it back.

use std::rc::Rc;

use super::client::Stage;
use super::rules::{Compared, Ms, NewHistory, TICK};
use super::store::{Data, Ticket};
use super::world::{Asked, World};

impl World {
    pub(super) fn normalise(&mut self) {
        if !self.ended.is_empty() {
            let named: Vec<u8> = self.named_by_clients().collect();
            let old = self.old.as_ref().map(|old| old.store.history);
            let lasting = [Some(self.primary.history), old];
            let may_come =
                |id: u8, history| named.contains(&id) && lasting.contains(&Some(history));
            self.ended.retain(|(id, history)| may_come(*id, *history));
            self.ended.sort_unstable();
            self.ended.dedup();
        }
        self.late
            .sort_unstable_by_key(|late| (late.caller.id, late.asked));
        if !self.needs_kept() {
            self.kept = None;
        }
        if self.faults.returns == 0 {
            self.run_before = None;
        }
        self.forget_sessions_of_before();
        self.forget_silence();
        self.forget_times();
        self.order_numbers();
        self.order_tokens();
    }

    /// Where a new history ends all sessions, no time of theirs matters any more.
    fn forget_sessions_of_before(&mut self) {
        let rules = Rc::clone(&self.rules);
        if rules.new_history != NewHistory::EndsSessions || rules.compared == Compared::AtGreeting {
            return;
        }
        if self.primary.is_of_before(&rules) && rules.compared == Compared::Both {
            self.primary.data.end_all();
        }
        // With the run alone, what was kept may come back as if nothing had been.
        if let (Some(kept), Compared::Both) = (&mut self.kept, rules.compared) {
            kept.end_all();
        }
    }

    fn forget_silence(&mut self) {
        let most = self.rules.heartbeat.map_or(0, |heartbeat| heartbeat + TICK);
        for client in &mut self.clients {
            client.silent = client.silent.min(most);
        }
    }

    fn forget_times(&mut self) {
        let faults = &self.faults;
        let back = Ms::from(faults.backward) * TICK * Ms::from(faults.steps > 0);
        let rules = Rc::clone(&self.rules);
        let pause = self.longest() + rules.margin;
        self.primary.uptime = match rules.trusts_uptime {
            true => self.primary.uptime.min(pause),
            false => 0,
        };
        if let Some(old) = &mut self.old {
            old.store.uptime = 0;
        }
        for data in self.all_data_mut() {
            let tickets = &data.tickets;
            // The dead that have left nothing are as good as removed.
            let has_left = |id| tickets.iter().any(|ticket| ticket.owner == id);
            data.rows.retain(|row| !row.is_dead || has_left(row.id));
            if let Some(meta) = &mut data.meta {
                meta.free = meta.free.max(-back);
            }
            for row in &mut data.rows {
                row.due = row.due.max(-back);
                row.mark = row
                    .mark
                    .map(|mark| mark.max(-rules.reap_pause(row.timeout) - back));
                if row.is_dead {
                    (row.due, row.mark) = (0, None);
                }
            }
        }
    }

    fn all_data_mut(&mut self) -> impl Iterator<Item = &mut Data> {
        let old = self.old.iter_mut().map(|old| &mut old.store.data);
        let kept = self.kept.iter_mut();
        [&mut self.primary.data].into_iter().chain(kept).chain(old)
    }

    /// Calls with each ticket that a store or a client knows.
    fn each_ticket(&mut self, mut change: impl FnMut(&mut Ticket)) {
        for data in self.all_data_mut() {
            data.tickets.iter_mut().for_each(&mut change);
        }
        for client in &mut self.clients {
            if let Stage::Waiting(ticket) | Stage::Inside(ticket) | Stage::Leaving(ticket, _) =
                &mut client.stage
            {
                change(ticket);
            }
        }
        for late in &mut self.late {
            if let Asked::Delete { ticket } = &mut late.asked {
                change(ticket);
            }
        }
    }

    /// Numbers without those that nobody names.
    fn order_numbers(&mut self) {
        let mut seen = vec![0];
        self.each_ticket(|ticket| seen.push(ticket.number));
        seen.extend(self.all_data().map(|data| data.next));
        seen.sort_unstable();
        seen.dedup();
        let rank = |number: u8| u8::try_from(seen.binary_search(&number).unwrap()).unwrap();
        self.each_ticket(|ticket| ticket.number = rank(ticket.number));
        for data in self.all_data_mut() {
            data.next = rank(data.next);
        }
    }

    /// Tokens that lie behind every clock keep their order only.
    fn order_tokens(&mut self) {
        let faults = &self.faults;
        let back = Ms::from(faults.backward) * TICK * Ms::from(faults.steps > 0);
        let old = self.old.as_ref().map_or(0, |old| old.store.clock);
        let floor = self.primary.clock.min(old) - back;
        let mut seen: Vec<Ms> = Vec::new();
        self.each_ticket(|ticket| seen.push(ticket.czxid));
        // Any number that is still to come is greater.
        let oldest = seen.iter().copied().min().unwrap_or(floor).min(floor);
        self.token = self.token.filter(|token| *token >= oldest);
        seen.extend(self.token);
        seen.retain(|token| *token < floor);
        seen.sort_unstable();
        seen.dedup();
        seen.reverse();
        let rank = |token: &mut Ms| {
            if let Some(at) = seen.iter().position(|seen| seen == token) {
                *token = floor - 1 - Ms::try_from(at).unwrap();
            }
        };
        self.each_ticket(|ticket| rank(&mut ticket.czxid));
        self.token.iter_mut().for_each(rank);
        for data in self.all_data_mut() {
            if let Some(meta) = &mut data.meta {
                // The next number will be the clock's.
                meta.last = meta.last.max(floor - 1);
            }
        }
    }
}
