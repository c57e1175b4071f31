//! What follows a create: its tickets begin their walk, or it is sent again.
//!
//! Invariant: the room of a create that made nothing is for the next one; what a create with a lost
//! reply made is adopted or removed before that. It decides nothing: `protocol/join.rs` does.

use std::sync::Arc;

use futures_util::future::{join_all, try_join_all};
use tracing::Span;
use uuid::Uuid;

use super::{CREATING, Identified, Joined, Joining, Made, Room};
use crate::error::{Error, Result};
use crate::link::{Code, Fault, Found, Node, Read};
use crate::protocol::answer::Answer;
use crate::protocol::join::{Adoption, AfterCreate};
use crate::protocol::lease::Moment;
use crate::protocol::ticket::{Ticket, TicketData};
use crate::protocol::walk::REMOVED;
use crate::queue::Waiter;
use crate::queue::place::TicketPlace;
use crate::session::{Failure, Session, failed};

impl Joining<'_> {
    /// Settles a create, whatever its outcome. Apart from the wait for it, and on the heap wherever
    /// it is rare to wait again, so that a crowd that joins takes little memory.
    pub(super) async fn settle(
        &self,
        session: Arc<Session>,
        attempt: Uuid,
        places: Vec<TicketPlace>,
        answer: Result<Made, Fault>,
    ) -> Result<Joined> {
        let fault = match answer {
            Ok(Made::One(created, directory)) => {
                let recognised = session.recognise(created.owner);
                recognised.map_err(|end| self.ended(end))?;
                let ticket = Ticket::ours(self.first.recipe, created.seq);
                let identified = vec![(ticket, created.czxid, directory)];
                return self.walk(session, places, identified).await;
            }
            Ok(Made::Several(paths)) => {
                let identified = Box::pin(self.identify(&session, attempt, &paths)).await?;
                return self.walk(session, places, identified).await;
            }
            Err(fault) => fault,
        };
        if let Some(why) = fault.unclear() {
            tracing::debug!(why, "a create has no result");
        }
        let after = AfterCreate::from(Answer::from(&fault));
        if after == AfterCreate::FindOut {
            return Box::pin(self.adopt(session, attempt, places)).await;
        }
        let room = Room::again(session, places);
        let (at, code) = match fault {
            Fault::Refused(at, code) => (at, Some(code)),
            Fault::Answered(code) => (0, Some(code)),
            Fault::Unknown(_) => (0, None),
        };
        match code {
            Some(code) if after == AfterCreate::Refused => {
                let queue = self.queues.get(at).unwrap_or(self.first);
                let (path, failure) = (&*queue.directory.path, Failure::Answered(code));
                Err(failed(&room.session, CREATING, &queue.name, path, failure))
            }
            _ => Ok(Joined::Nothing(after, at, room)),
        }
    }

    /// Takes in what a create with a lost reply made.
    async fn adopt(
        &self,
        session: Arc<Session>,
        attempt: Uuid,
        places: Vec<TicketPlace>,
    ) -> Result<Joined> {
        let found = self.find_out(&session, attempt).await?;
        match Adoption::of(found) {
            Adoption::Nothing => {
                let room = Room::again(session, places);
                Ok(Joined::Nothing(AfterCreate::Again, 0, room))
            }
            Adoption::All(identified) => self.walk(session, places, identified).await,
            Adoption::Part(found) => self.give_up_rest(places, found).await,
        }
    }

    /// The tickets begin their walk.
    async fn walk(
        &self,
        session: Arc<Session>,
        mut places: Vec<TicketPlace>,
        identified: Vec<Identified>,
    ) -> Result<Joined> {
        let has_run_out = |(ticket, ..): &Identified| ticket.is_past_counting();
        let run_out = identified.iter().position(has_run_out);
        let mut directories = Vec::with_capacity(places.len());
        let made = places.iter_mut().zip(self.queues).zip(identified);
        for ((place, queue), (ticket, czxid, directory)) in made {
            Span::current().record("ticket", ticket.seq);
            place.set_ticket(ticket, czxid);
            if queue.head_watches > 0 {
                place.watch_on();
            }
            directories.push(directory);
        }
        if let Some(at) = run_out {
            return Box::pin(self.give_up_number(at, &session, places)).await;
        }
        Span::current().record("session", format_args!("{:#x}", session.id()));
        tracing::debug!("joined");
        let checks = self.queues.iter().zip(&places).zip(&mut directories);
        try_join_all(checks.map(|((queue, place), directory)| async move {
            // A read follows where nothing was seen.
            if let Some(seen) = directory.take() {
                let is_checked = place.checks_acl(&queue.name, &queue.directory.path, &seen.1);
                *directory = is_checked.await?.then_some(seen);
            }
            Ok::<(), Error>(())
        }))
        .await?;
        self.waiters(places, directories).map(Joined::Seated)
    }

    /// The waiters of these tickets; each takes in its directory if that was read since.
    fn waiters(
        &self,
        places: Vec<TicketPlace>,
        directories: Vec<Option<(Moment, Node)>>,
    ) -> Result<Vec<Waiter>> {
        // As many as there are: a waiter is large, and most are alone.
        let mut waiters = Vec::with_capacity(places.len());
        for ((queue, place), directory) in self.queues.iter().zip(places).zip(directories) {
            let mut waiter = Waiter::new(queue, place)?;
            if let Some((at, directory)) = directory {
                waiter.speculated(at, &directory);
            }
            waiters.push(waiter);
        }
        Ok(waiters)
    }

    /// The answer of a transaction has no identities; they are read, and with them whether anybody
    /// else is there.
    async fn identify(
        &self,
        session: &Session,
        attempt: Uuid,
        paths: &[String],
    ) -> Result<Vec<Identified>> {
        let both = self.queues.iter().zip(paths);
        let reads: Vec<Read<'_>> = both
            .flat_map(|(queue, path)| [Read::Data(&queue.directory.path), Read::Data(path)])
            .collect();
        let (at, found) = session.read_stamped(|link| link.multi_read(&reads)).await;
        let found = found.map_err(|failure| {
            let path = &*self.first.directory.path;
            failed(session, CREATING, self.names(), path, failure)
        })?;
        let mut identified = Vec::new();
        for ((queue, path), pair) in self.queues.iter().zip(paths).zip(found.chunks(2)) {
            let (directory, mine) = match pair {
                [Found::Node(directory), Found::Node(mine)] => (directory, mine),
                [_, Found::Failed(Code::NoNode)] => return Err(queue.lost(REMOVED)),
                [Found::Failed(code), _] | [_, Found::Failed(code)] => {
                    let failure = Failure::Answered(code.clone());
                    return Err(failed(session, CREATING, &queue.name, path, failure));
                }
                _ => return Err(queue.lost("the server's answer makes no sense")),
            };
            if !TicketData::was_made_by(attempt, &mine.data, mine.owner == session.id()) {
                return Err(queue.lost(REMOVED));
            }
            let recognised = session.recognise(mine.owner);
            recognised.map_err(|end| self.ended(end))?;
            let name = path.rsplit_once('/').map_or("", |(_, name)| name);
            let ticket = queue.ticket(name)?;
            identified.push((ticket, mine.czxid, Some((at, directory.clone()))));
        }
        Ok(identified)
    }

    /// What a create with an unknown outcome made in each queue.
    async fn find_out(&self, session: &Session, attempt: Uuid) -> Result<Vec<Option<Identified>>> {
        // Asked for together, one list answers for all.
        let each = self.queues.iter().map(|queue| {
            let directory = Arc::clone(&queue.directory.path);
            session.janitor.settle(directory, attempt)
        });
        let settled = join_all(each).await.into_iter().zip(self.queues);
        let found = settled.map(|(settled, queue)| {
            let found = settled.map_err(|end| self.ended(end))?;
            // What makes no sense is left to the janitor: a server that names our node otherwise is
            // none that we know.
            found
                .map(|(name, czxid)| Ok((queue.ticket(&name)?, czxid, None)))
                .transpose()
        });
        found.collect()
    }

    /// A number at the end of the counter orders nothing: leaves, and waits until numbers start
    /// again.
    async fn give_up_number(
        &self,
        at: usize,
        session: &Session,
        places: Vec<TicketPlace>,
    ) -> Result<Joined> {
        self.leave(places).await?;
        self.wait_out(at, session).await?;
        let room = self.reserve().await?;
        Ok(Joined::Nothing(AfterCreate::Again, 0, room))
    }

    /// Removes the tickets that a create made where others of the same transaction are gone
    /// already.
    async fn give_up_rest(
        &self,
        places: Vec<TicketPlace>,
        found: Vec<Option<Identified>>,
    ) -> Result<Joined> {
        let mut there = Vec::new();
        for (mut place, found) in places.into_iter().zip(found) {
            match found {
                Some((ticket, czxid, _)) => {
                    place.set_ticket(ticket, czxid);
                    there.push(place);
                }
                None => drop(place.disarm()),
            }
        }
        self.leave(there).await?;
        let room = self.reserve().await?;
        Ok(Joined::Nothing(AfterCreate::Again, 0, room))
    }
}
