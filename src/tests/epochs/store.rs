//! The store: what the script for Redis does with one lock, written by hand because it is Lua.
//! (pure)
//!
//! Times are counted from now, by the server's own clock; so two stores that differ by nothing but
//! the time of day are one state. `script.rs` plays random calls here and on a real server and
//! compares the answers. Invariant: a call decides first and writes then.

use super::rules::{Compared, Ms, Named, NewHistory, Pause, Rules};

/// What a server has been through: another run after each start, another replication after each
/// start and each promotion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct History {
    pub(super) run: u8,
    pub(super) replication: u8,
}

impl Compared {
    pub(super) fn is_same(self, one: History, other: History) -> bool {
        match self {
            Self::Both => one == other,
            Self::Run => one.run == other.run,
            Self::AtGreeting => true,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Meta {
    pub(super) history: History,
    /// Nobody gets a session until then.
    pub(super) free: Ms,
    /// The number of the last transaction, counted from the true time now.
    pub(super) last: Ms,
}

/// A session.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Row {
    pub(super) id: u8,
    pub(super) history: History,
    pub(super) timeout: Ms,
    pub(super) due: Ms,
    pub(super) is_dead: bool,
    /// When it was first seen to be late.
    pub(super) mark: Option<Ms>,
    pub(super) connection: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Ticket {
    pub(super) number: u8,
    pub(super) czxid: Ms,
    pub(super) owner: u8,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(super) struct Data {
    pub(super) meta: Option<Meta>,
    pub(super) rows: Vec<Row>,
    /// The number of the next ticket.
    pub(super) next: u8,
    pub(super) tickets: Vec<Ticket>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Store {
    pub(super) history: History,
    pub(super) uptime: Ms,
    /// The server's clock, counted from the true time.
    pub(super) clock: Ms,
    pub(super) data: Data,
}

/// A session's side of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Caller {
    pub(super) id: u8,
    pub(super) history: History,
    pub(super) connection: u8,
}

/// Why a call does nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    OtherHistory,
    Grace,
    Over,
    Moved,
}

/// The largest timeout of a session that the root allows.
pub(super) type Longest = Ms;

impl Store {
    pub(super) fn row(&self, id: u8) -> Option<&Row> {
        self.data.rows.iter().find(|row| row.id == id)
    }

    fn row_mut(&mut self, id: u8) -> Option<&mut Row> {
        self.data.rows.iter_mut().find(|row| row.id == id)
    }

    fn is_same(&self, rules: &Rules, history: History) -> bool {
        rules.compared.is_same(history, self.history)
    }

    pub(super) fn is_of_before(&self, rules: &Rules) -> bool {
        let meta = self.data.meta.as_ref();
        // What the store remembers is compared whatever a call brings.
        let compared = match rules.compared {
            Compared::AtGreeting => Compared::Both,
            compared => compared,
        };
        meta.is_none_or(|meta| !compared.is_same(meta.history, self.history))
    }

    /// Takes note of a new history.
    fn begin(&mut self, rules: &Rules, asked: Ms, longest: Longest) {
        let pause = rules.margin
            + match rules.pause {
                Pause::OfFirst => asked,
                Pause::Longest | Pause::Endless => longest,
            };
        let is_empty = self.data.meta.is_none();
        let free = match rules.new_history {
            NewHistory::ExtendsDeadlines if !is_empty => 0,
            _ if is_empty && rules.trusts_uptime => pause - self.uptime,
            _ => pause,
        };
        let history = self.history;
        for row in &mut self.data.rows {
            match rules.new_history {
                NewHistory::EndsSessions => row.is_dead = true,
                NewHistory::ExtendsDeadlines if !row.is_dead => {
                    (row.history, row.due, row.mark) = (history, row.timeout, None);
                }
                NewHistory::ExtendsDeadlines => {}
                NewHistory::GoesOn => row.history = history,
            }
        }
        let last = self.data.meta.as_ref().map_or(Ms::MIN, |meta| meta.last);
        self.data.meta = Some(Meta {
            history,
            free,
            last,
        });
    }

    /// Gives a session.
    pub(super) fn open(
        &mut self,
        rules: &Rules,
        caller: Caller,
        timeout: Ms,
        longest: Longest,
    ) -> Result<(), Refusal> {
        if !self.is_same(rules, caller.history) {
            return Err(Refusal::OtherHistory);
        }
        let is_waiting = |meta: &Meta| meta.free > 0;
        if self.is_of_before(rules) || rules.pause == Pause::Endless {
            self.begin(rules, timeout, longest);
        }
        if self.data.meta.as_ref().is_some_and(is_waiting) {
            return Err(Refusal::Grace);
        }
        let timeout = timeout.min(longest);
        let history = self.history;
        let row = Row {
            id: caller.id,
            history,
            timeout,
            due: timeout,
            is_dead: false,
            mark: self.row(caller.id).and_then(|row| row.mark),
            connection: caller.connection,
        };
        self.data.rows.retain(|row| row.id != caller.id);
        self.data.rows.push(row);
        self.data.rows.sort_by_key(|row| row.id);
        Ok(())
    }

    /// What each call of a session does first: it proves that the session lives, which moves its
    /// deadline.
    pub(super) fn call(&mut self, rules: &Rules, caller: Caller) -> Result<(), Refusal> {
        if rules.new_history != NewHistory::EndsSessions
            && self.data.meta.is_some()
            && self.is_of_before(rules)
        {
            self.begin(rules, 0, 0);
        }
        if !self.is_same(rules, caller.history) {
            return Err(Refusal::OtherHistory);
        }
        let Some(row) = self.row_mut(caller.id) else {
            return Err(Refusal::Over);
        };
        if !rules.compared.is_same(row.history, caller.history) {
            return Err(Refusal::Over);
        }
        if caller.connection < row.connection {
            return Err(Refusal::Moved);
        }
        if row.is_dead {
            return Err(Refusal::Over);
        }
        row.connection = caller.connection;
        // A mark is of one deadline, which has moved now.
        (row.due, row.mark) = (row.timeout, None);
        Ok(())
    }

    /// Numbers rise, and follow the clock.
    fn transaction(&mut self) -> Ms {
        let clock = self.clock;
        let meta = self.data.meta.as_mut().expect("a session was given");
        meta.last = clock.max(meta.last.saturating_add(1));
        meta.last
    }

    pub(super) fn create(&mut self, owner: u8) -> Ticket {
        let ticket = Ticket {
            number: self.data.next,
            czxid: self.transaction(),
            owner,
        };
        self.data.next += 1;
        self.data.tickets.push(ticket);
        ticket
    }

    pub(super) fn ticket(&self, number: u8) -> Option<&Ticket> {
        let mut tickets = self.data.tickets.iter();
        tickets.find(|ticket| ticket.number == number)
    }

    /// Removes a ticket, as far as its name tells which. Whether there was one.
    pub(super) fn delete(&mut self, rules: &Rules, mine: Ticket) -> bool {
        let is_named = |found: &Ticket| match rules.deletes_name {
            Named::Number => true,
            Named::Owner => found.owner == mine.owner,
            Named::Czxid => found.czxid == mine.czxid,
        };
        if !self.ticket(mine.number).is_some_and(is_named) {
            return false;
        }
        self.transaction();
        let tickets = &mut self.data.tickets;
        tickets.retain(|ticket| ticket.number != mine.number);
        true
    }

    /// Looks at a session that may be late: marks it, or ends it at a second look. How long to wait
    /// for that.
    pub(super) fn find_late(&mut self, rules: &Rules, victim: u8) -> Ms {
        let Some(row) = self.row_mut(victim).filter(|row| row.due <= 0) else {
            return 0;
        };
        let pause = rules.reap_pause(row.timeout);
        match row.mark {
            _ if row.is_dead => 0,
            None if pause > 0 => {
                row.mark = Some(0);
                pause
            }
            Some(mark) if mark + pause > 0 => mark + pause,
            _ => {
                row.is_dead = true;
                0
            }
        }
    }

    /// Removes what a dead session has left.
    pub(super) fn remove_rest(&mut self, victim: u8) {
        if self.row(victim).is_some_and(|row| row.is_dead) {
            if self.data.tickets.iter().any(|left| left.owner == victim) {
                self.transaction();
            }
            self.data.tickets.retain(|left| left.owner != victim);
            self.data.rows.retain(|row| row.id != victim);
        }
    }

    pub(super) fn close(&mut self, id: u8) {
        if let Some(row) = self.row_mut(id) {
            row.is_dead = true;
        }
        self.remove_rest(id);
    }

    /// The empty directory goes, and its numbers begin again.
    pub(super) fn collect(&mut self) {
        if self.data.tickets.is_empty() {
            self.data.next = 0;
        }
    }

    /// The ticket whose turn it is.
    pub(super) fn first(&self) -> Option<&Ticket> {
        self.data.tickets.iter().min_by_key(|ticket| ticket.number)
    }

    /// Time passes, and the clock steps by so much besides.
    pub(super) fn pass(&mut self, time: Ms, step: Ms) {
        self.clock += step;
        self.uptime += time;
        self.data.pass(time, step);
    }
}

impl Data {
    /// As the first client in a new history finds it.
    pub(super) fn end_all(&mut self) {
        if let Some(meta) = &mut self.meta {
            meta.free = 0;
        }
        for row in &mut self.rows {
            (row.is_dead, row.connection) = (true, 0);
        }
    }

    pub(super) fn pass(&mut self, time: Ms, step: Ms) {
        if let Some(meta) = &mut self.meta {
            meta.free -= time + step;
            meta.last = meta.last.saturating_sub(time);
        }
        for row in &mut self.rows {
            row.due -= time + step;
            row.mark = row.mark.map(|mark| mark - time - step);
        }
        for ticket in &mut self.tickets {
            ticket.czxid -= time;
        }
    }
}
