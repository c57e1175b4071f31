//! A place in a queue: it owns one ticket, from before the create is sent until the ticket is gone.
//!
//! Invariant: whatever happens to its owner, the ticket is removed exactly once and nobody else's
//! is. This is the only `Drop` that removes a ticket, through the janitor. It decides nothing about
//! turns.

mod exchange;
mod leave;

use std::sync::{Arc, OnceLock};

pub(crate) use exchange::{Exchange, Exchanged, unchanged};
use tokio::sync::{Mutex, MutexGuard, oneshot};
use uuid::Uuid;

use super::WAITING;
use crate::error::{Error, Result};
use crate::protocol::departure::Departure;
use crate::protocol::lease::Moment;
use crate::protocol::mark::ReleasePlan;
use crate::protocol::ticket::Ticket;
use crate::session::heartbeat::{LeaseEntry, LossWatch};
use crate::session::janitor::TicketId;
use crate::session::pool::{Need, Reservation};
use crate::session::roll::{Coming, There};
use crate::session::watching::WatchSlot;
use crate::session::{Failure, Session, failed};

/// One ticket of ours, or a create that may have made one.
#[derive(Debug)]
#[must_use = "a place that is dropped leaves the queue"]
pub(crate) struct TicketPlace {
    session: Arc<Session>,
    /// What is watched of it is given back with the grant: a holder watches nothing.
    reservation: Reservation,
    /// Something is watched even after the turn of this ticket, until it is exchanged.
    watches_on: bool,
    directory: Arc<str>,
    loss_watch: Option<LossWatch>,
    state: PlaceState,
    /// An exchange may have made another ticket, in this directory by this attempt.
    coming: Option<Box<Coming>>,
    /// The directory's version as our own writes since the grant have left it.
    /// Few tickets' holders write there, and there are many tickets.
    written: OnceLock<Box<Mutex<Option<i32>>>>,
}

#[derive(Debug)]
enum PlaceState {
    /// A create may be on its way; this finds what it made.
    Armed(Coming),
    /// The ticket is in the queue.
    Seated {
        ticket: Ticket,
        there: There,
        departure: Departure,
    },
    /// Nothing of ours is left at the server.
    Gone,
}

impl TicketPlace {
    /// Takes responsibility for whatever a create with this attempt makes. To be called before the
    /// create is sent.
    pub(crate) fn arm(reservation: Reservation, directory: Arc<str>, attempt: Uuid) -> Self {
        let session = Arc::clone(reservation.session());
        session.heartbeat.ticket_comes();
        let coming = session.janitor.roll.coming(Arc::clone(&directory), attempt);
        Self {
            session,
            loss_watch: None,
            reservation,
            watches_on: false,
            directory,
            state: PlaceState::Armed(coming),
            coming: None,
            written: OnceLock::new(),
        }
    }

    /// The create made nothing; gives the reservation back for the next one.
    pub(crate) fn disarm(mut self) -> Reservation {
        self.state = PlaceState::Gone;
        self.reservation.part(Need::ALL)
    }

    /// The create made this ticket. Until it is granted it leaves in doubt.
    pub(crate) fn set_ticket(&mut self, ticket: Ticket, czxid: i64) {
        let there = self.session.janitor.roll.there(&self.directory, czxid);
        self.state = PlaceState::Seated {
            ticket,
            there,
            departure: Departure::doubtful(),
        };
    }

    /// The turn of this ticket is not the end of its watches.
    pub(crate) fn watch_on(&mut self) {
        self.watches_on = true;
    }

    /// The ticket is held. If that is lost, no mark will say that it ended well.
    pub(crate) fn hold_under(&mut self, loss_watch: LossWatch) {
        self.loss_watch = Some(loss_watch);
    }

    /// Our own exchange, which follows, must not look like a loss of the ticket that goes.
    pub(super) fn ignore_loss(&self) {
        if let Some(loss_watch) = &self.loss_watch {
            loss_watch.begin_release();
        }
    }

    /// The exchange did not happen: the ticket is looked at again.
    pub(super) fn heed_loss(&self) {
        if let Some(loss_watch) = &self.loss_watch {
            loss_watch.stay();
        }
    }

    /// The directory's version, if its data is ours to write over and no other client wrote there
    /// since the grant. A call that writes there while the ticket is held keeps it locked, and
    /// notes the version that is left: the exit rests on it.
    pub(crate) async fn version(&self) -> MutexGuard<'_, Option<i32>> {
        let mut version = self.written.get_or_init(Box::default).lock().await;
        if let (None, PlaceState::Seated { departure, .. }) = (*version, &self.state) {
            *version = departure.marks_at();
        }
        version
    }

    /// The exit follows what we have written into the directory.
    fn follow_writes(&mut self) {
        let written = self.written.take().and_then(|written| written.into_inner());
        if let Some(version) = written {
            self.leaves(|departure| departure.follow_version(version));
        }
    }

    /// Our own delete, which follows, must not look like a loss.
    fn forgo_mark_if_lost(&mut self) {
        let loss_watch = self.loss_watch.take();
        let is_lost = loss_watch.is_some_and(|loss_watch| loss_watch.begin_release().is_some());
        if is_lost {
            self.leaves(Departure::leave_in_doubt);
        }
    }

    /// The ticket was granted, and so seen to be ours at that moment: it leaves by this exit.
    pub(crate) fn grant(&mut self, by: ReleasePlan, at: Moment) {
        self.leaves(|departure| *departure = Departure::granted(by, at));
        self.written.take();
        if !self.watches_on {
            self.slot().give_back();
        }
    }

    pub(crate) fn session(&self) -> &Arc<Session> {
        &self.session
    }

    /// Is told as soon as a release of the ticket with this identity, before this one, is on its
    /// way. None if that is no ticket of this session.
    pub(super) fn release_of(&self, czxid: i64) -> Option<oneshot::Receiver<()>> {
        self.session.janitor.roll.release_of(&self.directory, czxid)
    }

    /// For what is watched of its queue.
    pub(crate) fn slot(&mut self) -> &mut WatchSlot {
        &mut self.reservation.slot
    }

    pub(crate) fn directory(&self) -> &Arc<str> {
        &self.directory
    }

    /// The ticket and its identity, once the create was answered.
    pub(crate) fn ticket(&self) -> Option<(&Ticket, i64)> {
        match &self.state {
            PlaceState::Seated { ticket, there, .. } => Some((ticket, there.czxid())),
            PlaceState::Armed(_) | PlaceState::Gone => None,
        }
    }

    /// The same, for what can be done with a ticket only.
    pub(crate) fn seated(&self) -> Result<(&Ticket, i64), Failure> {
        let given_up = Failure::Lost("the place was given up");
        self.ticket().ok_or(given_up)
    }

    /// Begins the hold of a ticket whose turn it is. That is not enough: the session must surely be
    /// alive, and the ticket its own. `None` if that took a wait.
    pub(crate) async fn begin_hold(
        &self,
        name: impl ToString + Copy,
    ) -> Result<Option<LeaseEntry>> {
        let session = &self.session;
        let seated = self.seated();
        let (ticket, czxid) = seated.map_err(|lost| self.failed(WAITING, name, lost))?;
        let path = ticket.path(&self.directory);
        if session.heartbeat.is_strange().is_some() {
            let recognised = Box::pin(session.recognise_again(&path)).await;
            recognised.map_err(|failure| failed(session, WAITING, name, &path, failure))?;
        }
        let heartbeat = &session.heartbeat;
        let ended = match heartbeat.try_begin_hold(path.as_str().into(), czxid) {
            Ok(Some(loss_watch)) => return Ok(Some(loss_watch)),
            Ok(None) => {
                tracing::debug!("first, but without a lease");
                tokio::select! {
                    () = heartbeat.leased() => return Ok(None),
                    end = session.ended() => end,
                }
            }
            Err(end) => end,
        };
        Err(ended.while_trying(WAITING, name))
    }

    /// The ticket's path.
    pub(crate) fn path(&self) -> Option<String> {
        let (ticket, _) = self.ticket()?;
        Some(ticket.path(&self.directory))
    }

    /// The error of a failure at the directory.
    pub(crate) fn failed(
        &self,
        doing: &'static str,
        name: impl ToString,
        failure: Failure,
    ) -> Error {
        failed(&self.session, doing, name, &self.directory, failure)
    }

    /// Changes how the ticket leaves, if there is one.
    pub(crate) fn leaves(&mut self, change: impl FnOnce(&mut Departure)) {
        self.departure().map(change);
    }

    /// How the ticket leaves.
    fn departure(&mut self) -> Option<&mut Departure> {
        match &mut self.state {
            PlaceState::Seated { departure, .. } => Some(departure),
            PlaceState::Armed(_) | PlaceState::Gone => None,
        }
    }

    fn id(&self) -> Option<TicketId> {
        self.ticket().map(|(ticket, czxid)| TicketId {
            directory: Arc::clone(&self.directory),
            ticket: ticket.name.clone(),
            czxid,
        })
    }

    /// The ticket for the janitor, and how it leaves. What a create on its way may have made stays
    /// with the place.
    fn take_seated(&mut self) -> Option<(TicketId, Departure, There)> {
        let id = self.id()?;
        match std::mem::replace(&mut self.state, PlaceState::Gone) {
            PlaceState::Seated {
                there, departure, ..
            } => Some((id, departure, there)),
            PlaceState::Armed(_) | PlaceState::Gone => None,
        }
    }
}

impl Drop for TicketPlace {
    fn drop(&mut self) {
        self.session.heartbeat.ticket_goes();
        self.prepare_to_leave();
        let session = Arc::clone(&self.session);
        if let Some((directory, attempt)) = self.unsettled() {
            drop(session.janitor.settle(directory, attempt));
        }
        if !self.exchanging().has_old() {
            return;
        }
        if let Some((id, departure, there)) = self.take_seated() {
            drop(session.janitor.leave(id, departure, Some(there)));
        }
    }
}
