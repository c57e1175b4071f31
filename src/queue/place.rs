//! A place in a queue: it owns one ticket, from before the create is sent until the ticket is gone.
//!
//! Invariant: whatever happens to its owner, the ticket is removed exactly once and nobody else's is. This is the only
//! `Drop` that reaches the wire, through the janitor. It decides nothing about turns.

use std::sync::Arc;

use uuid::Uuid;

use super::ticket::{PREFIX, Ticket};
use crate::link::Fault;
use crate::session::janitor::{self, Exit, Left, Seat};
use crate::session::pool::Reservation;
use crate::session::{End, Session};

/// One ticket of ours, or a create that may have made one.
#[derive(Debug)]
#[must_use = "a place that is dropped leaves the queue"]
pub(crate) struct Place {
    session: Arc<Session>,
    /// Given back with the grant: a holder watches nothing.
    reservation: Option<Reservation>,
    directory: Arc<str>,
    state: State,
}

#[derive(Debug)]
enum State {
    /// A create may be on its way; this finds what it made.
    Armed { attempt: Uuid },
    /// The ticket is in the queue and leaves by this exit. `was_sent`: a delete may be on its way.
    Seated {
        ticket: Ticket,
        czxid: i64,
        exit: Exit,
        held: bool,
        was_sent: bool,
    },
    /// Nothing of ours is left at the server.
    Gone,
}

impl Place {
    /// Takes responsibility for whatever a create with this attempt makes. To be called before the create is sent.
    pub(crate) fn arm(reservation: Reservation, directory: Arc<str>, attempt: Uuid) -> Self {
        let session = Arc::clone(reservation.session());
        Self {
            session,
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

    /// The create made this ticket.
    pub(crate) fn seat(&mut self, seq: i32, czxid: i64) {
        let ticket = Ticket::exclusive(seq);
        self.state = State::Seated {
            ticket,
            czxid,
            exit: Exit::Plain,
            held: false,
            was_sent: false,
        };
    }

    /// The ticket was granted: from now on it leaves by this exit.
    pub(crate) fn grant(&mut self, by: Exit) {
        if let State::Seated { exit, held, .. } = &mut self.state {
            *exit = by;
            *held = true;
        }
        self.reservation = None;
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
        let State::Seated {
            ticket,
            czxid,
            exit,
            held,
            was_sent,
        } = &mut self.state
        else {
            return Left::WasGone;
        };
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
        // A ticket that never held may have been removed by an operator long ago, and its name may be a stranger's by
        // now, so it is read first; a holder's mark is written at a known version of the directory.
        if *held && matches!(exit, Exit::Marked { .. }) {
            let path = seat.path();
            let sent = janitor::send(&*link, &seat, &path, &exit);
            *was_sent = true;
            match sent.await {
                Ok(()) => return self.gone(Left::Now),
                // The mark was refused (another's data, another version, no permission): leave without one.
                Err(Fault::Answered(_)) => exit = Exit::Plain,
                Err(Fault::Unknown(why)) => {
                    tracing::debug!(why, "a release has an unknown outcome")
                }
            }
        }
        drop(link);
        let look_first = !matches!(exit, Exit::LastOut(_));
        *was_sent = true;
        let left = self
            .session
            .janitor
            .leave_and_tell(seat, exit, look_first)
            .await;
        self.gone(left)
    }

    fn gone(&mut self, left: Left) -> Left {
        self.state = State::Gone;
        left
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let directory = Arc::clone(&self.directory);
        match std::mem::replace(&mut self.state, State::Gone) {
            State::Armed { attempt } => self.session.janitor.sweep(directory, PREFIX, attempt),
            State::Seated {
                ticket,
                czxid,
                exit,
                held,
                was_sent,
            } => {
                let look_first = was_sent || !held;
                self.session.janitor.leave(
                    Seat {
                        directory,
                        ticket: ticket.name,
                        czxid,
                    },
                    exit,
                    look_first,
                );
            }
            State::Gone => {}
        }
    }
}
