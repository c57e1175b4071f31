//! Joining: a ticket at the end of one queue, or of several in one transaction.
//!
//! Invariants: something of ours answers for whatever a create made, from before it is sent;
//! tickets of several queues stand in all of them or in none, also after a lost reply, so that any
//! two sets are in the same order wherever they meet. `protocol/join.rs` says what an answer means.
//! It grants nothing.

mod settle;

use std::sync::Arc;

use futures_util::future::try_join_all;
use uuid::Uuid;

use super::place::TicketPlace;
use super::{Queue, Waiter, now_ms};
use crate::error::{Error, Result};
use crate::link::{Code, Create, Created, Fault, Link, Node, Write};
use crate::name::LockName;
use crate::protocol::join::AfterCreate;
use crate::protocol::lease::Moment;
use crate::protocol::ticket::{self, Mode, Ticket, TicketData};
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
    /// Nothing. The answer was about the queue at this place of the list.
    Nothing(AfterCreate, usize, Room),
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
            // A shared ticket would have to list it.
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
        let queues = self.queues.iter();
        queues.map(|queue| queue.asks(attempt)).collect()
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
            let (after, at) = match self.try_once(room).await? {
                Joined::Seated(waiters) => return Ok(waiters),
                Joined::Nothing(after, at, again) => {
                    room = again;
                    (after, at)
                }
            };
            let (session, pause) = (&room.session, setbacks.pause());
            match after {
                // At once: that is how a new lock begins, and a chroot that has gone is to be said
                // soon.
                AfterCreate::MakeDirectories => {
                    let make = |queue: &'a Queue| queue.directory.make(session, &queue.name);
                    try_join_all(self.queues.iter().map(make)).await?;
                }
                // It waits itself.
                AfterCreate::WaitForCounter => Box::pin(self.wait_out(at, session)).await?,
                _ => {
                    let back = Box::pin(session.reconnected(pause)).await;
                    back.map_err(|end| self.ended(end))?;
                }
            }
        }
        let why = Code::Other(format!(
            "no ticket came of {MOST_SETBACKS} tries: the directory or the connection is lost"
        ));
        let path = &*self.first.directory.path;
        let failure = Failure::Answered(why);
        Err(failed(&room.session, CREATING, self.names(), path, failure))
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

    /// Sends one create, waits for its answer and settles that.
    async fn try_once(&self, room: Room) -> Result<Joined> {
        let attempt = Uuid::new_v4();
        let session = room.session;
        let link = session.link().map_err(|end| self.ended(end))?;
        // Armed before anything is sent: building the request sends it.
        let places = self.queues.iter().zip(room.parts);
        let places = places
            .map(|(queue, part)| TicketPlace::arm(part, Arc::clone(queue.path()), attempt))
            .collect();
        let answer = tokio::select! {
            answer = self.send(&session, &link, attempt) => answer,
            end = session.ended() => return Err(self.ended(end)),
        };
        drop(link);
        self.settle(session, attempt, places, answer).await
    }

    /// Sends one request for all tickets. Where its answer does not tell of the directory, a read
    /// follows the create of a single ticket before that is answered: so a lock that is free costs
    /// one round trip.
    async fn send(
        &self,
        session: &Session,
        link: &Arc<dyn Link>,
        attempt: Uuid,
    ) -> Result<Made, Fault> {
        if let [queue] = self.queues {
            let (start, line) = queue.asks(attempt);
            let created = link.create(&start, &line, Create::EphemeralSequential);
            // It is on its way; what is kept until the answer, a crowd keeps as often as it is
            // large.
            drop(line);
            let directory = &self.first.directory.path;
            if !self.speculates || link.tells_directory() {
                return Box::pin(self.told(session, created)).await;
            }
            let speculative_read = session.speculative_read(link, directory);
            let created = created.await?;
            // If nothing comes of it, a verified read comes next.
            let directory = speculative_read.await.ok();
            return Ok(Made::One(created, directory));
        }
        let asked = self.asks(attempt);
        link.multi(&writes(&asked)).await.map(Made::Several)
    }

    /// What a create made, and the directory if its answer tells of that.
    async fn told(
        &self,
        session: &Session,
        created: impl Future<Output = Result<Created, Fault>>,
    ) -> Result<Made, Fault> {
        let (at, created) = session.stamped(created).await;
        let mut created = created?;
        let directory = created.directory.take().filter(|_| self.speculates);
        Ok(Made::One(created, directory.map(|node| (at, *node))))
    }

    async fn leave(&self, places: Vec<TicketPlace>) -> Result<()> {
        for left in TicketPlace::leave_together(places).await {
            if let Err(Failure::Ended(end @ End::Over(_))) = left {
                return Err(self.ended(end));
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
        LockName::list(self.queues.iter().map(Queue::name))
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
        let start = ticket::path_in(&self.directory.path, self.recipe.prefix());
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
