//! How places leave: their tickets in one transaction if that can be, otherwise one by one.
//!
//! Invariant: from its first poll on, the janitor has a ticket that leaves by itself, and nobody
//! else removes it. `protocol/departure.rs` says which tickets may leave at once.

use std::sync::Arc;

use futures_util::future::join_all;

use super::{PlaceState, TicketPlace};
use crate::link::{Fault, Found, Link, Read, Write};
use crate::protocol::answer::Answer;
use crate::protocol::departure::Departure;
use crate::protocol::mark::ReleasePlan;
use crate::session::janitor::{ReleaseOutcome, writes};
use crate::session::roll::There;
use crate::session::{Failure, Session};

impl TicketPlace {
    /// Removes the ticket and tells what became of it.
    ///
    /// # Cancel safety
    ///
    /// Dropped at any await, the janitor goes on with what was begun.
    pub(crate) async fn leave(mut self) -> ReleaseOutcome {
        self.leave_first().await
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

    /// As [`leave`](Self::leave), for a caller that still needs the rest of its hold.
    ///
    /// # Cancel safety
    ///
    /// Dropped at any await, the janitor goes on with what was begun once the place is dropped.
    pub(crate) async fn leave_first(&mut self) -> ReleaseOutcome {
        let left = Self::leave_each(std::slice::from_mut(self)).await;
        left.into_iter().next().unwrap_or(Ok(false))
    }

    async fn leave_each(places: &mut [Self]) -> Vec<ReleaseOutcome> {
        let Some(session) = places.first().map(|first| Arc::clone(&first.session)) else {
            return Vec::new();
        };
        places.iter_mut().for_each(Self::prepare_to_leave);
        let left = match session.link() {
            Ok(link) => Self::leave_at_once(places, &session, &*link).await,
            // The session's end removes the tickets.
            Err(end) => Some(Err(Failure::Ended(end))),
        };
        if let Some(left) = left {
            for place in &mut *places {
                place.state = PlaceState::Gone;
            }
            return vec![left; places.len()];
        }
        let rest = places.iter_mut().map(|place| async move {
            // Whatever a create on its way makes is swept with the drop.
            let Some((id, departure, there)) = place.take_seated() else {
                return Ok(false);
            };
            let janitor = &place.session.janitor;
            janitor.leave(id, departure, Some(there)).await
        });
        join_all(rest).await
    }

    /// Sends one transaction for all tickets, if all may leave by their names. `None` if they are
    /// not gone by it.
    async fn leave_at_once(
        places: &mut [Self],
        session: &Session,
        link: &dyn Link,
    ) -> Option<ReleaseOutcome> {
        if places.len() > 1 {
            Self::see_again(places, session, link).await;
            // The others were seen no later for it, and the answer may have taken its time.
            places.iter_mut().for_each(Self::age);
        }
        let leaving: Option<Vec<_>> = places.iter().map(Self::by_name).collect();
        let leaving = leaving?;
        let each = leaving.iter().zip(&*places);
        let writes: Vec<Write<'_>> = each
            .flat_map(|((path, there, plan), place)| {
                writes(&place.directory, (path, there.czxid()), plan)
            })
            .collect();
        let reply = link.multi(&writes);
        for place in &mut *places {
            place.leaves(Departure::sent);
        }
        for place in &*places {
            if let PlaceState::Seated {
                there, departure, ..
            } = &place.state
            {
                there.leaves_by(departure.plan());
            }
        }
        let answer = match reply.await {
            Ok(_) => Answer::Done,
            Err(fault) => {
                if let Fault::Unknown(why) = &fault {
                    tracing::debug!(why, "a release has an unknown outcome");
                }
                Answer::from(&fault)
            }
        };
        let tickets = places.len();
        for place in places {
            place.leaves(|departure| departure.answered(answer, tickets));
        }
        (answer == Answer::Done).then_some(Ok(true))
    }

    /// Reads tickets that were not seen for long, all at once, so that those that are still ours
    /// can leave together.
    async fn see_again(places: &mut [Self], session: &Session, link: &dyn Link) {
        let needs_read = |place: &&mut Self| matches!(&place.state, PlaceState::Seated { departure, .. } if departure.needs_read());
        let old: Vec<&mut Self> = places.iter_mut().filter(needs_read).collect();
        let paths: Vec<String> = old.iter().filter_map(|place| place.path()).collect();
        let Some(first) = old.first() else { return };
        let reads: Vec<Read<'_>> = paths.iter().map(|path| Read::Data(path)).collect();
        let read = link.read_behind_sync(&first.directory, &reads);
        let (at, found) = session.heartbeat.stamped(read).await;
        for (place, found) in old.into_iter().zip(found.unwrap_or_default()) {
            // Each of the others leaves by itself, and finds out what became of it.
            if let (
                PlaceState::Seated {
                    there, departure, ..
                },
                Found::Node(node),
            ) = (&mut place.state, found)
            {
                if node.czxid == there.czxid() {
                    departure.refresh(at);
                }
            }
        }
    }

    /// The path of a ticket that may leave at once, by its name; who waits for that, and the plan.
    fn by_name(&self) -> Option<(String, &There, &ReleasePlan)> {
        match &self.state {
            PlaceState::Seated {
                ticket,
                there,
                departure,
            } => Some((ticket.path(&self.directory), there, departure.by_name()?)),
            PlaceState::Armed(_) | PlaceState::Gone => None,
        }
    }

    /// Follows what we have written, and what was lost, before the ticket leaves.
    pub(super) fn prepare_to_leave(&mut self) {
        self.follow_writes();
        self.forgo_mark_if_lost();
        self.age();
    }

    /// What was seen long ago may be otherwise by now.
    fn age(&mut self) {
        let now = self.session.heartbeat.now();
        self.leaves(|departure| departure.age(now));
    }
}
