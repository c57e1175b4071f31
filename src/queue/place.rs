//! A place in a queue: it owns one ticket, from before the create is sent until the ticket is gone.
//!
//! Invariant: whatever happens to its owner, the ticket is removed exactly once and nobody else's is. This is the only
//! `Drop` that reaches the wire, through the janitor. It decides nothing about turns.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use uuid::Uuid;

use super::ticket::{PREFIX, Ticket};
use crate::link::Fault;
use crate::session::janitor::{self, Begun, Exit, Left, Seat};
use crate::session::pool::Reservation;
use crate::session::pulse::Witness;
use crate::session::{End, Session};

/// For how long a ticket that was read and was ours may be removed by its name alone. No request can ask for an identity
/// and delete, so there is always a moment between the two; an operator would have to break the ticket, and the server to
/// remove the directory and somebody to take the same number at the same version of the new one, all within it.
const FRESH: Duration = Duration::from_secs(1);

impl Begun {
    /// What is left of the freshness of a ticket that was last seen then.
    fn by_now(self, seen: Option<Instant>) -> Self {
        match (self, seen) {
            (Self::Fresh, Some(seen)) if seen.elapsed() <= FRESH => Self::Fresh,
            (Self::Fresh, _) => Self::Doubtful,
            (begun, _) => begun,
        }
    }
}

/// One ticket of ours, or a create that may have made one.
#[derive(Debug)]
#[must_use = "a place that is dropped leaves the queue"]
pub(crate) struct Place {
    session: Arc<Session>,
    /// What is watched of it is given back with the grant: a holder watches nothing.
    reservation: Option<Reservation>,
    directory: Arc<str>,
    hold: Option<Witness>,
    state: State,
}

#[derive(Debug)]
enum State {
    /// A create may be on its way; this finds what it made.
    Armed { attempt: Uuid },
    /// The ticket is in the queue and leaves by this exit. `seen`: when it was last read and was ours.
    Seated {
        ticket: Ticket,
        czxid: i64,
        exit: Exit,
        begun: Begun,
        seen: Option<Instant>,
    },
    /// Nothing of ours is left at the server.
    Gone,
}

impl Place {
    /// Takes responsibility for whatever a create with this attempt makes. To be called before the create is sent.
    pub(crate) fn arm(reservation: Reservation, directory: Arc<str>, attempt: Uuid) -> Self {
        let session = Arc::clone(reservation.session());
        session.pulse.ticket_comes();
        Self {
            session,
            hold: None,
            reservation: Some(reservation),
            directory,
            state: State::Armed { attempt },
        }
    }

    /// The create made nothing; gives the reservation back for the next one.
    pub(crate) fn disarm(mut self) -> Option<Reservation> {
        self.state = State::Gone;
        self.reservation.take()
    }

    /// The create made this ticket. Until it is granted it leaves in doubt.
    pub(crate) fn seat(&mut self, seq: i32, czxid: i64) {
        let ticket = Ticket::exclusive(seq);
        self.state = State::Seated {
            ticket,
            czxid,
            exit: Exit::Plain,
            begun: Begun::Doubtful,
            seen: None,
        };
    }

    /// The ticket is held. If that is lost, no mark will say that it ended well.
    pub(crate) fn hold_under(&mut self, witness: Witness) {
        self.hold = Some(witness);
    }

    /// Our own delete, which follows, must not look like a loss.
    fn forgo_mark_if_lost(&mut self) {
        let hold = self.hold.take();
        let is_lost = hold.is_some_and(|hold| hold.begin_release().is_some());
        if let (true, State::Seated { exit, begun, .. }) = (is_lost, &mut self.state) {
            (*exit, *begun) = (Exit::Plain, Begun::Doubtful);
        }
    }

    /// The ticket was granted, and so seen to be ours: it leaves by this exit.
    pub(crate) fn grant(&mut self, by: Exit) {
        if let State::Seated {
            exit, begun, seen, ..
        } = &mut self.state
        {
            // Without a mark nothing ties the delete to this directory, and the grant may have been read from a server that
            // lags behind.
            *begun = if matches!(by, Exit::Plain) {
                Begun::Doubtful
            } else {
                Begun::Fresh
            };
            *exit = by;
            *seen = Some(Instant::now());
        }
        if let Some(reservation) = &mut self.reservation {
            reservation.stop_watching();
        }
    }

    pub(crate) fn session(&self) -> &Arc<Session> {
        &self.session
    }

    pub(crate) fn directory(&self) -> &Arc<str> {
        &self.directory
    }

    /// The ticket and its identity, once the create was answered.
    pub(crate) fn ticket(&self) -> Option<(&Ticket, i64)> {
        match &self.state {
            State::Seated { ticket, czxid, .. } => Some((ticket, *czxid)),
            State::Armed { .. } | State::Gone => None,
        }
    }

    /// Removes the ticket and tells what became of it.
    ///
    /// # Cancel safety
    ///
    /// Dropped at any await, the janitor goes on with what was begun.
    pub(crate) async fn leave(mut self) -> Left {
        self.forgo_mark_if_lost();
        let State::Seated {
            ticket,
            czxid,
            exit,
            begun,
            seen,
        } = &mut self.state
        else {
            return Left::WasGone;
        };
        *begun = begun.by_now(*seen);
        let seat = Seat {
            directory: Arc::clone(&self.directory),
            ticket: ticket.name.clone(),
            czxid: *czxid,
        };
        let mut exit = exit.clone();
        let link = match self.session.link() {
            Ok(link) => link,
            Err(End::Over(reason)) => return self.gone(Left::Over(reason)),
            // The session's close removes the ticket.
            Err(End::Closed) => return self.gone(Left::Closed),
        };
        if *begun == Begun::Fresh && matches!(exit, Exit::Marked { .. }) {
            let path = seat.path();
            let reply = janitor::send(&*link, &seat, &path, &exit);
            *begun = Begun::Sent;
            match reply.await {
                Ok(()) => return self.gone(Left::Now),
                // Nothing was changed: the mark is refused, or the ticket is gone. Leave without a mark.
                Err(Fault::Answered(_)) => (exit, *begun) = (Exit::Plain, Begun::Doubtful),
                Err(Fault::Unknown(why)) => {
                    tracing::debug!(why, "a release has an unknown outcome")
                }
            }
        }
        drop(link);
        let begun = *begun;
        // From its first poll on the janitor has the ticket, and nobody else may remove it.
        self.state = State::Gone;
        self.session.janitor.leave_and_tell(seat, exit, begun).await
    }

    fn gone(&mut self, left: Left) -> Left {
        self.state = State::Gone;
        left
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.session.pulse.ticket_goes();
        self.forgo_mark_if_lost();
        let directory = Arc::clone(&self.directory);
        match std::mem::replace(&mut self.state, State::Gone) {
            State::Armed { attempt } => self.session.janitor.sweep(directory, PREFIX, attempt),
            State::Seated {
                ticket,
                czxid,
                exit,
                begun,
                seen,
            } => {
                let seat = Seat {
                    directory,
                    ticket: ticket.name,
                    czxid,
                };
                self.session.janitor.leave(seat, exit, begun.by_now(seen));
            }
            State::Gone => {}
        }
    }
}
