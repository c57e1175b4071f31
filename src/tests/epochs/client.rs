//! A client that wants the lock a few times, by the real machines of `protocol/`. (pure)
//!
//! Invariant: it holds from its grant until its lease ends by its own clock, or until it lets go.
//! It is silent for as long as it likes: a pause, a cut and a crash are all the same.

use super::rules::{Ms, TICK, ms, time};
use super::store::{Caller, Ticket};
use crate::protocol::answer::Answer;
use crate::protocol::departure::{Departure, DepartureStep};
use crate::protocol::join::AfterCreate;
use crate::protocol::lease;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Stage {
    /// Without a session.
    Away,
    /// With a session, and without a ticket.
    Ready,
    /// A create had no answer: the queue is to be read.
    FindsOut,
    Waiting(Ticket),
    Inside(Ticket),
    Leaving(Ticket, Departure),
    Done,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Client {
    pub(super) timeout: Ms,
    /// How often it still wants the lock.
    pub(super) goes: u8,
    pub(super) caller: Option<Caller>,
    /// For how long its lease lasts.
    pub(super) lease: Ms,
    /// Since when it has sent no heartbeat, where that matters.
    pub(super) silent: Ms,
    pub(super) stage: Stage,
}

impl Client {
    pub(super) fn new(timeout: Ms, goes: u8) -> Self {
        Self {
            timeout,
            goes,
            caller: None,
            lease: 0,
            silent: 0,
            stage: Stage::Away,
        }
    }

    pub(super) fn holds(&self) -> bool {
        matches!(self.stage, Stage::Inside(_)) && self.lease > 0
    }

    /// Whether the next thing that it sends removes its ticket.
    pub(super) fn is_deleting(&self) -> bool {
        match &self.stage {
            Stage::Inside(_) => true,
            Stage::Leaving(_, departure) => matches!(departure.step(), DepartureStep::Delete(_)),
            _ => false,
        }
    }

    /// A heartbeat, or the request for its session, was answered in the moment in which it was
    /// sent. Any later answer gives a shorter lease.
    pub(super) fn answered(&mut self) {
        self.lease = ms(lease::length(time(self.timeout)));
        self.silent = 0;
    }

    /// Its session is over, as far as it knows.
    pub(super) fn lose_session(&mut self) {
        self.caller = None;
        self.lease = 0;
        self.silent = 0;
        if self.stage != Stage::Done {
            self.stage = Stage::Away;
        }
    }

    /// Its ticket is gone by its own will. Whether it wants no more.
    pub(super) fn finish(&mut self) -> bool {
        self.goes -= 1;
        self.stage = match self.goes {
            0 => Stage::Done,
            _ if self.caller.is_none() => Stage::Away,
            _ => Stage::Ready,
        };
        if self.goes == 0 {
            (self.lease, self.silent) = (0, 0);
        }
        self.goes == 0
    }

    /// What a create without an answer is followed by.
    pub(super) fn create_unanswered(&mut self) {
        self.stage = match AfterCreate::from(Answer::Unknown) {
            AfterCreate::FindOut => Stage::FindsOut,
            _ => Stage::Ready,
        };
    }

    pub(super) fn pass(&mut self) {
        self.lease = (self.lease - TICK).max(0);
        self.silent += TICK;
        if let Stage::Waiting(ticket) | Stage::Inside(ticket) | Stage::Leaving(ticket, _) =
            &mut self.stage
        {
            ticket.czxid -= TICK;
        }
        if let (Stage::Inside(ticket), 0) = (&self.stage, self.lease) {
            // A lost hold never comes back: its ticket is removed.
            self.stage = Stage::Leaving(*ticket, Departure::doubtful());
        }
    }
}
