//! A place in a queue: it owns one ticket, from before the create is sent until the ticket is gone.
//!
//! Invariant: whatever happens to its owner, the ticket is removed exactly once and nobody else's
//! is. This is the only `Drop` that reaches the wire, through the janitor. It decides nothing about
//! turns.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::future::{join, join_all};
use tokio::sync::{Mutex, MutexGuard};
use uuid::Uuid;

use super::WAITING;
use crate::error::{Error, Result};
use crate::link::{Code, Fault, Found, Link, Read, Write};
use crate::protocol::lease::Moment;
use crate::protocol::mark::ReleasePlan;
use crate::protocol::removal::DeleteProgress;
use crate::protocol::ticket::{Ticket, TicketData};
use crate::session::heartbeat::{LeaseEntry, LossWatch};
use crate::session::janitor;
use crate::session::janitor::{ReleaseOutcome, TicketId};
use crate::session::pool::{Need, Reservation};
use crate::session::roll::{Coming, There};
use crate::session::watching::WatchSlot;
use crate::session::{End, Failure, Session, failed};

/// For how long a ticket that was read and was ours may be removed by its name alone. No request
/// can ask for an identity and delete, so there is always a moment between the two; an operator
/// would have to break the ticket, and the server to remove the directory and somebody to take the
/// same number at the same version of the new one, all within it.
const FRESH: Duration = Duration::from_secs(1);

impl DeleteProgress {
    /// What is left of the freshness of a ticket that was last seen then.
    fn by(self, now: Moment, seen: Option<Moment>) -> Self {
        match (self, seen) {
            (Self::Fresh, Some(seen)) if now <= seen + FRESH => Self::Fresh,
            (Self::Fresh, _) => Self::Doubtful,
            (begun, _) => begun,
        }
    }
}

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

/// Another ticket in exchange for the one that is there: both and whatever belongs to it in one
/// transaction.
#[derive(Debug)]
pub(crate) struct Exchange<'a> {
    /// Where the new ticket is to be.
    pub(crate) directory: &'a Arc<str>,
    /// Its name, or the start of it.
    pub(crate) ticket: Ticket,
    pub(crate) is_sequential: bool,
    pub(crate) data: &'a [u8],
    /// The attempt in its data.
    pub(crate) attempt: Uuid,
    /// What must commit with it; comes first.
    pub(crate) with: &'a [Write<'a>],
    /// How it will leave.
    pub(crate) plan: ReleasePlan,
}

/// What came of an exchange.
#[derive(Debug)]
pub(crate) enum Exchanged {
    Done,
    /// The server refused this write: nothing was changed.
    Refused(usize, Code),
    /// Nothing was changed, for no lasting reason.
    Nothing,
    /// It was done, and the new ticket was removed by somebody else.
    Gone,
}

#[derive(Debug)]
enum PlaceState {
    /// A create may be on its way; this finds what it made.
    Armed(Coming),
    /// The ticket is in the queue and leaves by this exit. `seen`: when it was last read and was
    /// ours.
    Seated {
        ticket: Ticket,
        there: There,
        plan: ReleasePlan,
        begun: DeleteProgress,
        seen: Option<Moment>,
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
            plan: ReleasePlan::Plain,
            begun: DeleteProgress::Doubtful,
            seen: None,
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
    pub(super) fn look_away(&self) {
        if let Some(loss_watch) = &self.loss_watch {
            loss_watch.begin_release();
        }
    }

    /// The exchange did not happen: the ticket is looked at again.
    pub(super) fn look_back(&self) {
        if let Some(loss_watch) = &self.loss_watch {
            loss_watch.stay();
        }
    }

    /// The directory's version, if its data is ours to write over and nobody else wrote there since
    /// the grant. Whoever writes there while the ticket is held keeps it meanwhile, and notes the
    /// version that is left: the exit rests on it.
    pub(crate) async fn version(&self) -> MutexGuard<'_, Option<i32>> {
        let mut version = self.written.get_or_init(Box::default).lock().await;
        if let (None, PlaceState::Seated { plan, .. }) = (*version, &self.state) {
            *version = plan.marks_at();
        }
        version
    }

    /// The exit follows what we have written into the directory.
    fn follow_writes(&mut self) {
        let written = self.written.take().and_then(|written| written.into_inner());
        if let (Some(version), PlaceState::Seated { plan, .. }) = (written, &mut self.state) {
            *plan = std::mem::replace(plan, ReleasePlan::Plain).at(version);
        }
    }

    /// Our own delete, which follows, must not look like a loss.
    fn forgo_mark_if_lost(&mut self) {
        let loss_watch = self.loss_watch.take();
        let is_lost = loss_watch.is_some_and(|loss_watch| loss_watch.begin_release().is_some());
        if is_lost {
            self.leave_in_doubt();
        }
    }

    /// The ticket was granted, and so seen to be ours at that moment: it leaves by this exit.
    pub(crate) fn grant(&mut self, by: ReleasePlan, at: Moment) {
        if let PlaceState::Seated {
            plan, begun, seen, ..
        } = &mut self.state
        {
            // Without a mark nothing ties the delete to this directory, and the grant may have been
            // read from a server that lags behind.
            *begun = if matches!(by, ReleasePlan::Plain) {
                DeleteProgress::Doubtful
            } else {
                DeleteProgress::Fresh
            };
            *plan = by;
            *seen = Some(at);
            self.written.take();
        }
        if !self.watches_on {
            self.slot().give_back();
        }
    }

    /// Its end proves nothing: whoever is next looks for itself.
    pub(crate) fn forgo_mark(&mut self) {
        if let PlaceState::Seated { plan, .. } = &mut self.state {
            *plan = std::mem::replace(plan, ReleasePlan::Plain).unmarked();
        }
    }

    /// The ticket was read once more, and was ours at that moment.
    pub(crate) fn seen(&mut self, at: Moment) {
        if let PlaceState::Seated { seen, .. } = &mut self.state {
            *seen = Some(at);
        }
    }

    pub(crate) fn session(&self) -> &Arc<Session> {
        &self.session
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

    /// Begins the hold of a ticket whose turn it is. That is not enough: the session must surely be
    /// alive, and the ticket its own. `None` if that took a wait.
    pub(crate) async fn begin_hold(
        &self,
        name: impl ToString + Copy,
    ) -> Result<Option<LeaseEntry>> {
        let Some((ticket, czxid)) = self.ticket() else {
            return Err(Error::PlaceLost {
                name: name.to_string(),
                why: "the place was given up",
            });
        };
        let session = &self.session;
        let path = format!("{}/{}", self.directory, ticket.name);
        if session.heartbeat.is_strange().is_some() {
            let recognised = Box::pin(session.recognise_again(&path)).await;
            recognised.map_err(|failure| failed(session, WAITING, name, &path, failure))?;
        }
        let ended = match session
            .heartbeat
            .try_begin_hold(path.as_str().into(), czxid)
        {
            Ok(Some(loss_watch)) => return Ok(Some(loss_watch)),
            Ok(None) => {
                tracing::debug!("first, but without a lease");
                tokio::select! {
                    () = session.heartbeat.leased() => return Ok(None),
                    end = session.ended() => end,
                }
            }
            Err(end) => end,
        };
        Err(ended.while_trying(WAITING, name))
    }

    /// Whether an exchange that was dropped on its way was done. `false` also if nobody can tell
    /// any more.
    pub(crate) async fn was_exchanged(&self) -> bool {
        let Some((directory, attempt)) = self.unsettled() else {
            return false;
        };
        let found = self.session.janitor.find_out(directory, attempt).await;
        found.is_ok_and(|found| found.is_some())
    }

    /// Whether an exchange that was dropped on its way may have been done.
    pub(super) fn is_unsettled(&self) -> bool {
        self.unsettled().is_some()
    }

    /// What the outcome is not known of, of an exchange that was dropped on its way.
    fn unsettled(&self) -> Option<(Arc<str>, Uuid)> {
        let armed = match &self.state {
            PlaceState::Armed(coming) => Some(coming),
            PlaceState::Seated { .. } | PlaceState::Gone => None,
        };
        let coming = self.coming.as_deref().or(armed)?;
        Some((Arc::clone(&coming.directory), coming.attempt))
    }

    /// Exchanges the ticket for another. It was seen to be ours a moment ago, and `with` sees to it
    /// that this has not changed.
    ///
    /// # Cancel safety
    ///
    /// Dropped at any await, this place answers for both tickets, and its drop removes whichever is
    /// there. Asked for again, the same exchange goes on where it was.
    pub(crate) async fn exchange(&mut self, exchange: Exchange<'_>) -> Result<Exchanged, Failure> {
        if let Some((directory, attempt)) = self.unsettled() {
            let is_done = self.catch_up(directory, attempt, &exchange).await?;
            return Ok(match (is_done, &self.state) {
                (true, _) => Exchanged::Done,
                (false, PlaceState::Gone) => Exchanged::Gone,
                // What the exchange rests on was seen long ago: a name may be somebody else's by
                // now.
                (false, _) => Exchanged::Nothing,
            });
        }
        let Some(old) = self.path() else {
            return Ok(Exchanged::Gone);
        };
        let Exchange {
            directory, attempt, ..
        } = exchange;
        let session = Arc::clone(&self.session);
        let link = session.link().map_err(Failure::Ended)?;
        let path = format!("{directory}/{}", exchange.ticket.name);
        let mut writes = exchange.with.to_vec();
        writes.push(Write::Ephemeral {
            path: &path,
            data: exchange.data,
            is_sequential: exchange.is_sequential,
        });
        writes.push(Write::delete(&old));
        // Armed before anything is sent: building the request sends it.
        let roll = &session.janitor.roll;
        self.coming = Some(Box::new(roll.coming(Arc::clone(directory), attempt)));
        let answer = tokio::select! {
            answer = link.attempt(&writes) => answer,
            end = session.ended() => return Err(Failure::Ended(end)),
        };
        drop(link);
        let made = match answer {
            Ok(Ok(made)) => {
                // The old one is gone; the attempt finds the new one until its identity is known.
                self.come();
                made.into_iter().next_back()
            }
            Ok(Err((at, code))) => {
                self.coming = None;
                return Ok(Exchanged::Refused(at, code));
            }
            Err(Fault::Answered(Code::NotNow(why))) => {
                tracing::debug!(why, "exchange again");
                self.coming = None;
                return Ok(Exchanged::Nothing);
            }
            Err(Fault::Answered(code)) => {
                self.coming = None;
                return Err(Failure::Answered(code));
            }
            Err(Fault::Unknown(why)) => {
                tracing::debug!(why, "an exchange has an unknown outcome");
                let is_done = self.catch_up(Arc::clone(directory), attempt, &exchange);
                return Ok(if is_done.await? {
                    Exchanged::Done
                } else {
                    Exchanged::Nothing
                });
            }
        };
        // The answer of a multi has no identity; it must be read.
        let path = made.unwrap_or(path);
        let read = session.read_stamped(|link| link.multi_read(&[Read::Data(&path)]));
        let (at, found) = read.await;
        match found?.into_iter().next() {
            Some(Found::Node(node))
                if TicketData::was_made_by(attempt, &node.data, node.owner == session.id()) =>
            {
                session.recognise(node.owner).map_err(Failure::Ended)?;
                let name = path.rsplit_once('/').map_or(&*path, |(_, name)| name);
                self.seat_exchanged(&exchange, name.to_owned(), node.czxid, at);
                Ok(Exchanged::Done)
            }
            Some(Found::Node(_) | Found::Failed(Code::NoNode)) => {
                self.state = PlaceState::Gone;
                Ok(Exchanged::Gone)
            }
            Some(Found::Failed(code)) => Err(Failure::Answered(code)),
            other => Err(Failure::Answered(Code::Other(format!(
                "unexpected answer {other:?}"
            )))),
        }
    }

    /// Finds out whether an exchange was done, and takes its ticket for ours if so.
    async fn catch_up(
        &mut self,
        directory: Arc<str>,
        attempt: Uuid,
        exchange: &Exchange<'_>,
    ) -> Result<bool, Failure> {
        let found = self.session.janitor.find_out(directory, attempt);
        let (at, found) = self.session.heartbeat.stamped(found).await;
        if let Some((name, czxid)) = found.map_err(Failure::Ended)? {
            self.come();
            self.seat_exchanged(exchange, name, czxid, at);
            return Ok(true);
        }
        self.coming = None;
        if matches!(self.state, PlaceState::Armed(_)) {
            // The old ticket went for the new one, and that one is gone.
            self.state = PlaceState::Gone;
        }
        Ok(false)
    }

    /// The exchange was done.
    fn come(&mut self) {
        if let Some(coming) = self.coming.take() {
            self.directory = Arc::clone(&coming.directory);
            self.state = PlaceState::Armed(*coming);
        }
    }

    fn seat_exchanged(&mut self, exchange: &Exchange<'_>, name: String, czxid: i64, at: Moment) {
        let ticket = Ticket {
            name,
            ..exchange.ticket
        };
        self.set_ticket(ticket, czxid);
        self.watches_on = false;
        self.grant(exchange.plan.clone(), at);
    }

    /// The ticket's path.
    pub(crate) fn path(&self) -> Option<String> {
        let (ticket, _) = self.ticket()?;
        Some(format!("{}/{}", self.directory, ticket.name))
    }

    /// Removes the ticket and tells what became of it.
    ///
    /// # Cancel safety
    ///
    /// Dropped at any await, the janitor goes on with what was begun.
    pub(crate) async fn leave(self) -> ReleaseOutcome {
        let left = Self::leave_together(vec![self]).await;
        left.into_iter().next().unwrap_or(ReleaseOutcome::WasGone)
    }

    /// Removes tickets of one session, in one transaction if they can all go at once, and tells
    /// what became of each.
    ///
    /// # Cancel safety
    ///
    /// Dropped at any await, the janitor goes on with what was begun.
    pub(crate) async fn leave_together(mut places: Vec<Self>) -> Vec<ReleaseOutcome> {
        Self::leave_each(&mut places).await
    }

    /// As [`leave`](Self::leave), for whoever still needs the rest of what the ticket was held by.
    ///
    /// # Cancel safety
    ///
    /// Dropped at any await, the janitor goes on with what was begun once the place is dropped.
    pub(crate) async fn leave_first(&mut self) -> ReleaseOutcome {
        let left = Self::leave_each(std::slice::from_mut(self)).await;
        left.into_iter().next().unwrap_or(ReleaseOutcome::WasGone)
    }

    async fn leave_each(places: &mut [Self]) -> Vec<ReleaseOutcome> {
        let Some(first) = places.first() else {
            return Vec::new();
        };
        let session = Arc::clone(&first.session);
        for place in &mut *places {
            place.follow_writes();
            place.forgo_mark_if_lost();
            place.age();
        }
        let link = match session.link() {
            Ok(link) => link,
            Err(end) => {
                let left = match end {
                    End::Over(reason) => ReleaseOutcome::Over(reason),
                    // The session's close removes the tickets.
                    End::Closed => ReleaseOutcome::Closed,
                };
                return places
                    .iter_mut()
                    .map(|place| place.gone(left.clone()))
                    .collect();
            }
        };
        if places.len() > 1 {
            Self::see_again(places, &session, &*link).await;
            // The others were seen no later for it, and the answer may have taken its time.
            places.iter_mut().for_each(Self::age);
        }
        let departures: Option<Vec<Departure>> =
            places.iter().map(Self::direct_departure).collect();
        if let Some(departures) = departures {
            let paths: Vec<String> = departures.iter().map(|(id, _)| id.path()).collect();
            let each = departures.iter().zip(&paths);
            let writes: Vec<Write<'_>> = each
                .flat_map(|((id, plan), path)| janitor::writes(id, path, plan))
                .collect();
            let reply = link.multi(&writes);
            for place in &mut *places {
                place.begin(DeleteProgress::Sent);
            }
            match reply.await {
                Ok(_) => {
                    return places
                        .iter_mut()
                        .map(|place| place.gone(ReleaseOutcome::Now))
                        .collect();
                }
                // Nothing was changed: the server is busy, a mark is refused, or a ticket is gone.
                // Each leaves by itself, and with its mark unless that may be what was refused.
                Err(Fault::Answered(code)) => {
                    let is_own = places.len() == 1 && !matches!(code, Code::NotNow(_));
                    for place in &mut *places {
                        if is_own {
                            place.leave_in_doubt();
                        } else {
                            place.begin(DeleteProgress::Doubtful);
                        }
                    }
                }
                Err(Fault::Unknown(why)) => {
                    tracing::debug!(why, "a release has an unknown outcome");
                }
            }
        }
        drop(link);
        let rest = places.iter_mut().map(|place| async move {
            let (ticket, there, plan, begun) =
                match std::mem::replace(&mut place.state, PlaceState::Gone) {
                    PlaceState::Seated {
                        ticket,
                        there,
                        plan,
                        begun,
                        ..
                    } => (ticket, there, plan, begun),
                    // Whatever a create on its way makes is swept with the drop.
                    state => {
                        place.state = state;
                        return ReleaseOutcome::WasGone;
                    }
                };
            let id = TicketId {
                directory: Arc::clone(&place.directory),
                ticket: ticket.name,
                czxid: there.czxid(),
            };
            // From its first poll on the janitor has the ticket, and nobody else may remove it.
            place
                .session
                .janitor
                .leave_and_tell(id, plan, begun, Some(there))
                .await
        });
        join_all(rest).await
    }

    /// Reads tickets that were not seen for long, all at once, so that those that are still ours
    /// can leave together.
    async fn see_again(places: &mut [Self], session: &Session, link: &dyn Link) {
        let is_old = |place: &&mut Self| {
            let PlaceState::Seated { plan, begun, .. } = &place.state else {
                return false;
            };
            *begun == DeleteProgress::Doubtful && !matches!(plan, ReleasePlan::Plain)
        };
        let old: Vec<&mut Self> = places.iter_mut().filter(is_old).collect();
        let paths: Vec<String> = old.iter().filter_map(|place| place.path()).collect();
        let Some(first) = old.first() else { return };
        let reads: Vec<Read<'_>> = paths.iter().map(|path| Read::Data(path)).collect();
        // Sent back to back; the session answers in order.
        let (synced, found) = (link.sync(&first.directory), link.multi_read(&reads));
        // A directory that is gone cannot be synced, and holds no ticket: that is an answer too.
        let (at, (synced, found)) = session.heartbeat.stamped(join(synced, found)).await;
        let (false, Ok(found)) = (is_behind(&synced), found) else {
            return;
        };
        for (place, found) in old.into_iter().zip(found) {
            match (&mut place.state, found) {
                (
                    PlaceState::Seated {
                        there, begun, seen, ..
                    },
                    Found::Node(node),
                ) if node.czxid == there.czxid() => {
                    (*begun, *seen) = (DeleteProgress::Fresh, Some(at));
                }
                // Each leaves by itself, and finds out what became of it.
                _ => {}
            }
        }
    }

    /// The id and exit of a ticket that may leave at once, by its name.
    fn direct_departure(&self) -> Option<Departure> {
        let PlaceState::Seated {
            ticket,
            there,
            plan,
            begun,
            ..
        } = &self.state
        else {
            return None;
        };
        let is_direct = *begun == DeleteProgress::Fresh
            && matches!(
                plan,
                ReleasePlan::Marked { .. } | ReleasePlan::Unmarked { .. }
            );
        is_direct.then(|| {
            let id = TicketId {
                directory: Arc::clone(&self.directory),
                ticket: ticket.name.clone(),
                czxid: there.czxid(),
            };
            (id, plan.clone())
        })
    }

    /// What was seen long ago may be otherwise by now.
    fn age(&mut self) {
        let now = self.session.heartbeat.now();
        if let PlaceState::Seated { begun, seen, .. } = &mut self.state {
            *begun = begun.by(now, *seen);
        }
    }

    fn begin(&mut self, how: DeleteProgress) {
        if let PlaceState::Seated { begun, .. } = &mut self.state {
            *begun = how;
        }
    }

    /// Something else was seen in the ticket's place: it leaves by its identity alone.
    pub(crate) fn leave_in_doubt(&mut self) {
        if let PlaceState::Seated { plan, begun, .. } = &mut self.state {
            (*plan, *begun) = (ReleasePlan::Plain, DeleteProgress::Doubtful);
        }
    }

    fn gone(&mut self, left: ReleaseOutcome) -> ReleaseOutcome {
        self.state = PlaceState::Gone;
        left
    }
}

/// Whether the server may still be behind after this answer to a sync.
fn is_behind(synced: &Result<(), Fault>) -> bool {
    matches!(
        synced,
        Err(Fault::Unknown(_) | Fault::Answered(Code::NotNow(_)))
    )
}

type Departure = (TicketId, ReleasePlan);

impl Drop for TicketPlace {
    fn drop(&mut self) {
        self.session.heartbeat.ticket_goes();
        self.follow_writes();
        self.forgo_mark_if_lost();
        if let Some(coming) = self.coming.take() {
            let directory = Arc::clone(&coming.directory);
            self.session.janitor.sweep(directory, coming.attempt);
        }
        let directory = Arc::clone(&self.directory);
        match std::mem::replace(&mut self.state, PlaceState::Gone) {
            PlaceState::Armed(coming) => self.session.janitor.sweep(directory, coming.attempt),
            PlaceState::Seated {
                ticket,
                there,
                plan,
                begun,
                seen,
            } => {
                let id = TicketId {
                    directory,
                    ticket: ticket.name,
                    czxid: there.czxid(),
                };
                let begun = begun.by(self.session.heartbeat.now(), seen);
                self.session.janitor.leave(id, plan, begun, there);
            }
            PlaceState::Gone => {}
        }
    }
}
