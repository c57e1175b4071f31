//! The line of one hold: drafted before the grant, written at the grant, ended with the hold.
//!
//! Invariant: the end of a hold is written once, by its record or by the keeper that is closed.

use std::sync::Arc;
use std::time::{Duration, Instant};

use uuid::Uuid;

use super::writer::{JournalWriter, OpenHold};
use crate::name::LockName;
use crate::protocol::journal_page::{HoldOutcome, PageLine, ms};
use crate::protocol::kind::LockKind;
use crate::protocol::ticket::TicketData;
use crate::queue::now_ms;
use crate::session::heartbeat::LossWatch;

/// The line of a hold that has not begun.
#[derive(Debug)]
pub(crate) struct Draft {
    pub(in crate::queue) journal: Arc<JournalWriter>,
    pub(in crate::queue) line: Arc<TicketData>,
    pub(in crate::queue) kind: LockKind,
}

impl Draft {
    /// The hold has begun.
    pub(crate) fn begin(
        self,
        name: &LockName,
        (node, ticket): (&str, i64),
        token: i64,
        waited: Duration,
        loss_watch: LossWatch,
    ) -> Record {
        let ours = &*self.line;
        let line = PageLine {
            id: Uuid::new_v4(),
            token,
            ticket,
            node: node.to_owned(),
            kind: self.kind.to_string(),
            owner: ours.owner.clone(),
            label: ours.label.clone(),
            host: ours.host.clone(),
            pid: ours.pid,
            since_ms: now_ms(),
            waited_ms: ms(waited),
            held_ms: None,
            ending: None,
            why: None,
        };
        let hold = OpenHold {
            name: name.clone(),
            line,
            began: Instant::now(),
            loss_watch,
        };
        let record = Record {
            journal: self.journal,
            hold,
            released: None,
            is_ours: false,
        };
        record.tell();
        record
    }
}

/// A hold with a line in the journal. Its drop writes the end.
#[derive(Debug)]
pub(crate) struct Record {
    journal: Arc<JournalWriter>,
    hold: OpenHold,
    /// How long it was held when its release began.
    released: Option<Duration>,
    /// It was taken out of the open holds, so its end is ours to write.
    is_ours: bool,
}

impl Record {
    pub(crate) fn is_released(&mut self) {
        if self.released.is_none() {
            self.released = Some(self.hold.began.elapsed());
            let mut pending = self.journal.pending.lock();
            self.is_ours = pending.open.remove(&self.hold.line.id).is_some();
            pending.releasing += usize::from(self.is_ours);
            self.journal.put_down(pending);
        }
    }

    /// The hold goes on under another ticket.
    pub(crate) fn go_on(&mut self, (node, ticket): (&str, i64), loss_watch: LossWatch) {
        node.clone_into(&mut self.hold.line.node);
        self.hold.line.ticket = ticket;
        self.hold.loss_watch = loss_watch;
        self.tell();
    }

    fn tell(&self) {
        let OpenHold { name, line, .. } = &self.hold;
        let mut pending = self.journal.pending.lock();
        if !pending.is_closed {
            pending.open.insert(line.id, self.hold.clone());
            self.journal.note(pending, name, line.clone());
        }
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        let (held, outcome) = match self.released {
            Some(held) => (held, HoldOutcome::Released),
            None => (self.hold.began.elapsed(), HoldOutcome::Dropped),
        };
        let OpenHold { name, line, .. } = &self.hold;
        let ended = self.hold.ended(held, outcome);
        let mut pending = self.journal.pending.lock();
        pending.releasing -= usize::from(self.is_ours);
        // Otherwise the closed keeper has written its end.
        if pending.open.remove(&line.id).is_some() || self.is_ours {
            self.journal.note(pending, name, ended);
        }
    }
}
