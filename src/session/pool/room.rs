//! Room in a session: the bytes of paths that it may watch, and of the tickets that it may have.
//!
//! Invariant: room is counted before it is used, and given back when its owner is dropped. It picks
//! no session.

use std::iter::Sum;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::session::Session;
use crate::session::watching::{WatchSlot, reserve_bytes};

/// The most bytes of paths of tickets that one session has. Its end is one transaction that names
/// them all. If that is larger than `jute.maxbuffer`, 1 MiB, followers drop out for good
/// (ZOOKEEPER-4306, docs/failures.md row 67).
const TICKETS_LIMIT: usize = 512 * 1024;

/// Bytes of paths that a caller needs in its session: see
/// [`Pool::sent_len`](super::Pool::sent_len).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Need {
    /// Of all that is watched at the same time.
    pub(crate) watched: usize,
    pub(crate) ticket: usize,
}

impl Need {
    pub(crate) const ALL: Self = Self {
        watched: usize::MAX,
        ticket: usize::MAX,
    };

    /// To watch one path, without a ticket.
    pub(crate) fn to_watch(sent: usize) -> Self {
        Self {
            watched: sent,
            ticket: 0,
        }
    }
}

impl Sum for Need {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |sum, one| Self {
            watched: sum.watched + one.watched,
            ticket: sum.ticket + one.ticket,
        })
    }
}

/// Room in a session for a ticket and for its watch; given back on drop.
#[derive(Debug)]
pub(crate) struct Reservation {
    pub(crate) slot: WatchSlot,
    ticket: usize,
}

impl Reservation {
    pub(crate) fn session(&self) -> &Arc<Session> {
        self.slot.session()
    }

    /// Takes a part of it away, for one of several tickets.
    pub(crate) fn part(&mut self, need: Need) -> Self {
        let ticket = need.ticket.min(self.ticket);
        self.ticket -= ticket;
        Self {
            slot: self.slot.part(need.watched),
            ticket,
        }
    }

    /// The room without a ticket.
    pub(crate) fn into_slot(mut self) -> WatchSlot {
        self.slot.take()
    }

    pub(super) fn try_new(session: &Arc<Session>, need: Need) -> Option<Self> {
        let slot = WatchSlot::try_new(session, need.watched)?;
        let Need { ticket, .. } = need;
        reserve_bytes(&session.ticket_bytes, ticket, TICKETS_LIMIT).then(|| Self { slot, ticket })
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let tickets = &self.session().ticket_bytes;
        tickets.fetch_sub(self.ticket, Ordering::Relaxed);
    }
}
