//! Joining: a ticket at the end of one queue, or of several in one transaction.
//!
//! Invariants: something of ours answers for whatever a create made, from before it is sent;
//! tickets of several queues stand in all of them or in none, also after a lost reply, so that any
//! two sets are in the same order wherever they meet. It grants nothing.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{join_all, try_join_all};
use tracing::Span;
use uuid::Uuid;

use super::place::TicketPlace;
use super::{Queue, Waiter, now_ms};
use crate::error::{Error, Result};
use crate::link::{Code, Create, Created, Fault, Found, Link, Node, Read, Write};
use crate::protocol::lease::Moment;
use crate::protocol::ticket::{Mode, Ticket, TicketData};
use crate::protocol::walk::REMOVED;
use crate::session::janitor::ReleaseOutcome;
use crate::session::pool::Reservation;
use crate::session::setbacks::Setbacks;
use crate::session::{End, Failure, Session, failed, too_large};

/// How often a create may come to nothing before that is an error.
pub(super) const MOST_SETBACKS: u32 = 64;

const JOINING: &str = "join the queue of";
const CREATING: &str = "create a ticket in";

/// The queues that are joined together, in one session and with one attempt. At least one.
#[derive(Debug, Clone, Copy)]
pub(super) struct Joining<'a> {
    first: &'a Queue,
    queues: &'a [Queue],
    /// Reads the directory together with the create of a single ticket.
    speculates: bool,
}

/// Room in one session for a ticket in each queue.
struct Room {
    session: Arc<Session>,
    parts: Vec<Reservation>,
}

impl Room {
    /// The create made nothing; its room is for the next one.
    fn again(session: Arc<Session>, places: Vec<TicketPlace>) -> Self {
        let parts = places.into_iter().map(TicketPlace::disarm).collect();
        Self { session, parts }
    }
}

/// What one create led to; room that is not used up comes back.
enum Joined {
    Seated(Vec<Waiter>),
    NoDirectory(Room),
    /// That of the queue at this place of the list.
    CounterRanOut(usize, Room),
    Nothing(Room),
}

/// An answer to a create, with whatever answers for what it made.
struct CreateAnswer {
    session: Arc<Session>,
    attempt: Uuid,
    places: Vec<TicketPlace>,
    answer: Result<Made, (usize, Fault)>,
}

/// What a request made.
enum Made {
    /// One ticket, with its identity, and the directory if it was speculated.
    One(Created, Option<(Moment, Node)>),
    /// Tickets at these paths.
    Several(Vec<String>),
}

/// A ticket with its identity, and the directory if it was read since.
type Identified = (Ticket, i64, Option<(Moment, Node)>);

impl<'a> Joining<'a> {
    /// None if there is no queue.
    pub(super) fn of(queues: &'a [Queue]) -> Option<Self> {
        queues.first().map(|first| Self {
            first,
            queues,
            // Who shares would have to list it.
            speculates: first.kind() == Mode::Exclusive,
        })
    }

    /// Without a speculative read, which would tell nothing new.
    pub(super) fn blind(self) -> Self {
        let speculates = false;
        Self { speculates, ..self }
    }

    /// Refuses what servers would not read, before anything is sent.
    pub(super) fn check(&self) -> Result<()> {
        for queue in self.queues {
            queue.check_line()?;
        }
        // What goes alone is counted by the link. Every attempt is as long as this one.
        if self.queues.len() > 1 {
            let asked = self.asks(Uuid::nil());
            let checked = self.first.pool.check_size(&writes(&asked));
            checked.map_err(|over| {
                let what = format!("the tickets of {} locks", self.queues.len());
                too_large("send", what, over)
            })?;
        }
        Ok(())
    }

    fn asks(&self, attempt: Uuid) -> Vec<(String, Vec<u8>)> {
        self.queues
            .iter()
            .map(|queue| queue.asks(attempt))
            .collect()
    }

    /// Puts a ticket at the end of each queue.
    ///
    /// # Cancel safety
    ///
    /// Dropped at any await, whatever was created is removed by the janitor.
    pub(super) async fn walk_in(&self) -> Result<Vec<Waiter>> {
        self.check()?;
        let mut room = self.reserve().await?;
        let mut setbacks = Setbacks::default();
        while setbacks.count() < MOST_SETBACKS {
            let asked = self.ask(room).await?;
            room = match self.settle(asked).await? {
                Joined::Seated(waiters) => return Ok(waiters),
                Joined::NoDirectory(again) => {
                    // At once: that is how a new lock begins, and a chroot that has gone is to be
                    // said soon.
                    setbacks.pause();
                    let make = |queue: &'a Queue| queue.directory.make(&again.session, &queue.name);
                    try_join_all(self.queues.iter().map(make)).await?;
                    again
                }
                Joined::CounterRanOut(at, again) => {
                    // It waits itself.
                    setbacks.pause();
                    Box::pin(self.wait_out(at, &again.session)).await?;
                    again
                }
                Joined::Nothing(again) => {
                    self.wait(&again, setbacks.pause()).await?;
                    again
                }
            };
        }
        let why = Code::Other(format!(
            "no ticket came of {MOST_SETBACKS} tries: the directory or the connection is lost"
        ));
        let path = &*self.first.directory.path;
        let failure = Failure::Answered(why);
        Err(failed(&room.session, CREATING, self.names(), path, failure))
    }

    /// Waits before the next try.
    async fn wait(&self, room: &Room, pause: Duration) -> Result<()> {
        let back = Box::pin(room.session.reconnected(pause)).await;
        back.map_err(|end| self.ended(end))
    }

    async fn reserve(&self) -> Result<Room> {
        let pool = &self.first.pool;
        let needs = self.queues.iter().map(Queue::needs);
        let whole = pool.reserve(needs.clone().sum(), JOINING).await;
        let mut whole = whole.map_err(|error| error.about(self.names()))?;
        Ok(Room {
            session: Arc::clone(whole.session()),
            parts: needs.map(|need| whole.part(need)).collect(),
        })
    }

    /// Sends one create and waits for its answer.
    async fn ask(&self, room: Room) -> Result<CreateAnswer> {
        let attempt = Uuid::new_v4();
        let session = room.session;
        let link = session.link().map_err(|end| self.ended(end))?;
        // Armed before anything is sent: building the request sends it.
        let places: Vec<TicketPlace> = self
            .queues
            .iter()
            .zip(room.parts)
            .map(|(queue, part)| TicketPlace::arm(part, Arc::clone(&queue.directory.path), attempt))
            .collect();
        let answer = tokio::select! {
            answer = self.send(&session, &link, attempt) => answer,
            end = session.ended() => return Err(self.ended(end)),
        };
        drop(link);
        Ok(CreateAnswer {
            session,
            attempt,
            places,
            answer,
        })
    }

    /// Settles a create, whatever its outcome. Apart from the wait for it, and on the heap wherever
    /// it is rare to wait again, so that a crowd that joins takes little memory.
    async fn settle(&self, asked: CreateAnswer) -> Result<Joined> {
        let CreateAnswer {
            session,
            attempt,
            mut places,
            answer,
        } = asked;
        let identified = match answer {
            Ok(Made::One(created, directory)) => {
                session
                    .recognise(created.owner)
                    .map_err(|end| self.ended(end))?;
                let ticket = Ticket::ours(self.first.recipe, created.seq);
                vec![(ticket, created.czxid, directory)]
            }
            Ok(Made::Several(paths)) => Box::pin(self.identify(&session, attempt, &paths)).await?,
            Err((_, Fault::Answered(Code::NoNode))) => {
                return Ok(Joined::NoDirectory(Room::again(session, places)));
            }
            Err((at, Fault::Answered(Code::NodeExists))) => {
                let room = Room::again(session, places);
                return Ok(Joined::CounterRanOut(at, room));
            }
            Err((_, Fault::Answered(Code::NotNow(why)))) => {
                tracing::debug!(why, "create again");
                return Ok(Joined::Nothing(Room::again(session, places)));
            }
            Err((at, Fault::Answered(code))) => {
                drop(Room::again(Arc::clone(&session), places));
                let queue = self.queues.get(at).unwrap_or(self.first);
                let (path, failure) = (&*queue.directory.path, Failure::Answered(code));
                return Err(failed(&session, CREATING, &queue.name, path, failure));
            }
            Err((_, Fault::Unknown(why))) => {
                tracing::debug!(why, "a create has an unknown outcome");
                let found = Box::pin(self.find_out(&session, attempt)).await?;
                if found.iter().all(Option::is_none) {
                    return Ok(Joined::Nothing(Room::again(session, places)));
                }
                let Some(all) = found.iter().cloned().collect() else {
                    // Somebody has removed the others; what is left of the set must not stand in
                    // our own way.
                    return Box::pin(self.give_up_rest(places, found)).await;
                };
                all
            }
        };
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
            // A look follows where nothing was seen.
            if let Some(seen) = directory.take() {
                let is_checked = place.checks_acl(&queue.name, &queue.directory.path, &seen.1);
                *directory = is_checked.await?.then_some(seen);
            }
            Ok::<(), Error>(())
        }))
        .await?;
        let seated = self.queues.iter().zip(places).zip(directories);
        // As many as there are: a waiter is large, and most are alone.
        let mut waiters = Vec::with_capacity(self.queues.len());
        for ((queue, place), directory) in seated {
            let mut waiter = queue.waiter(place)?;
            if let Some((at, directory)) = directory {
                waiter.speculated(at, &directory);
            }
            waiters.push(waiter);
        }
        Ok(Joined::Seated(waiters))
    }

    /// Sends one request for all tickets. What the server refuses comes with its place in the list.
    /// A read of its directory follows the create of a single ticket before that is answered: so a
    /// lock that is free costs one round trip.
    async fn send(
        &self,
        session: &Session,
        link: &Arc<dyn Link>,
        attempt: Uuid,
    ) -> Result<Made, (usize, Fault)> {
        if let [queue] = self.queues {
            let (start, line) = queue.asks(attempt);
            let created = link.create(&start, &line, Create::EphemeralSequential);
            // It is on its way; what is kept until the answer, a crowd keeps as often as it is
            // large.
            drop(line);
            let directory = &self.first.directory.path;
            let speculative_read = self
                .speculates
                .then(|| session.speculative_read(link, directory));
            let created = created.await.map_err(|fault| (0, fault))?;
            let directory = match speculative_read {
                // If nothing comes of it, a look comes next.
                Some(speculative_read) => speculative_read.await.ok(),
                None => None,
            };
            return Ok(Made::One(created, directory));
        }
        let asked = self.asks(attempt);
        match link.attempt(&writes(&asked)).await {
            Ok(Ok(paths)) => Ok(Made::Several(paths)),
            Ok(Err((at, code))) => Err((at, Fault::Answered(code))),
            Err(fault) => Err((0, fault)),
        }
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
            session
                .recognise(mine.owner)
                .map_err(|end| self.ended(end))?;
            let name = path.rsplit_once('/').map_or("", |(_, name)| name);
            let ticket = queue.ticket(name)?;
            identified.push((ticket, mine.czxid, Some((at, directory.clone()))));
        }
        Ok(identified)
    }

    /// What a create with an unknown outcome made in each queue.
    async fn find_out(&self, session: &Session, attempt: Uuid) -> Result<Vec<Option<Identified>>> {
        // CreateAnswer for together, one list answers for all.
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
        Ok(Joined::Nothing(self.reserve().await?))
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
        Ok(Joined::Nothing(self.reserve().await?))
    }

    async fn leave(&self, places: Vec<TicketPlace>) -> Result<()> {
        for left in TicketPlace::leave_together(places).await {
            if let ReleaseOutcome::Over(reason) = left {
                return Err(self.ended(End::Over(reason)));
            }
        }
        Ok(())
    }

    async fn wait_out(&self, at: usize, session: &Session) -> Result<()> {
        let queue = self.queues.get(at).unwrap_or(self.first);
        queue.directory.wait_out(session, &queue.name).await
    }

    fn ended(&self, end: End) -> Error {
        end.while_trying(JOINING, self.names())
    }

    /// The locks, for people.
    fn names(&self) -> String {
        let names: Vec<&str> = self
            .queues
            .iter()
            .map(|queue| queue.name.as_str())
            .collect();
        names.join(", ")
    }
}

/// The creates of all these tickets.
fn writes(asked: &[(String, Vec<u8>)]) -> Vec<Write<'_>> {
    let tickets = asked.iter().map(|(path, data)| Write::Ephemeral {
        path,
        data,
        is_sequential: true,
    });
    tickets.collect()
}

impl Queue {
    /// The start of the path of a ticket of ours, and what stands in it.
    fn asks(&self, attempt: Uuid) -> (String, Vec<u8>) {
        let start = format!("{}/{}", self.directory.path, self.recipe.prefix());
        let line = TicketData {
            attempt,
            at: now_ms(),
            ..(*self.line).clone()
        };
        (start, line.to_bytes())
    }

    /// A ticket of ours that was read.
    fn ticket(&self, name: &str) -> Result<Ticket> {
        Ticket::parse(name).ok_or_else(|| self.lost("its name makes no sense"))
    }
}
