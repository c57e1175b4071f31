//! The exchange: the head's ticket for its permits.
//!
//! Invariant: it commits only while the limit and the queue are as they were read, as
//! `protocol/permits.rs` says.

use std::sync::Arc;

use uuid::Uuid;

use super::super::now_ms;
use super::super::place::{Exchange, Exchanged, unchanged};
use super::{Head, HeadSnapshot, Tried};
use crate::error::Result;
use crate::link::Code;
use crate::protocol::mark::{Mark, ReleasePlan};
use crate::protocol::permits;
use crate::protocol::ticket::{Mode, Ticket, TicketData};
use crate::session::Failure;

impl Head<'_> {
    /// Takes the permits, if nothing has changed since the snapshot.
    pub(super) async fn exchange(&mut self, snapshot: &HeadSnapshot, held: i32) -> Result<Tried> {
        let held_at = &*self.permits.held.path;
        let seated = self.place.seated();
        let (ticket, czxid) = seated.map_err(|lost| self.failed(held_at, lost))?;
        let attempt = Uuid::new_v4();
        let line = TicketData {
            attempt,
            at: now_ms(),
            ..self.line.clone()
        };
        let seq = ticket.seq;
        let directory = Arc::clone(self.place.directory());
        let (mark, queue) = (Mark { czxid, seq }, &snapshot.queue);
        let mark = self.marks.then_some(mark);
        let read = (&*queue.data, queue.version);
        let [mark, limit] = permits::writes(mark, read, snapshot.limit.value);
        let as_seen = unchanged(&directory, queue.version, mark.as_deref());
        let (path, version) = (&*self.permits.limit, snapshot.limit.version);
        let within_limit = unchanged(path, version, limit.as_deref());
        let mut name = permits::start_of(self.asked);
        if !self.is_numbered {
            name += &attempt.to_string();
        }
        let kind = Mode::Shared;
        let exchange = Exchange {
            directory: &self.permits.held.path,
            ticket: Ticket { seq, kind, name },
            is_sequential: self.is_numbered,
            data: &line.to_bytes(),
            attempt,
            with: &[within_limit, as_seen],
            plan: ReleasePlan::Unmarked { version: held },
        };
        match self.place.exchange(exchange).await {
            Ok(Exchanged::Done) => Ok(Tried::Taken),
            Ok(Exchanged::Nothing) => Ok(Tried::Again),
            Ok(Exchanged::Refused(at, code)) => self.refused(at, code, mark.is_some()).await,
            Err(failure) => Err(self.failed(held_at, failure)),
        }
    }

    /// What to do about a write that was refused, with which all others were.
    async fn refused(&mut self, at: usize, code: Code, marks: bool) -> Result<Tried> {
        const LIMIT: usize = 0;
        const QUEUE: usize = 1;
        const PERMIT: usize = 2;
        match (at, code) {
            (PERMIT, Code::NoNode) => {
                // An empty container goes at any time.
                let (held, session) = (&self.permits.held, self.place.session());
                held.make(session, self.name).await?;
            }
            // The counter has stuck at its end; permits need no order.
            (PERMIT, Code::NodeExists) if self.is_numbered => self.is_numbered = false,
            (QUEUE, Code::NoAuth(_)) if marks => self.marks = false,
            (LIMIT | QUEUE, Code::NoNode | Code::BadVersion) | (_, Code::NoNode) => {}
            (at, code) => {
                let path = match at {
                    LIMIT => &self.permits.limit,
                    PERMIT => &self.permits.held.path,
                    _ => self.place.directory(),
                };
                return Err(self.failed(path, Failure::Answered(code)));
            }
        }
        Ok(Tried::Again)
    }
}
