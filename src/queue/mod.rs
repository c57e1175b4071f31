//! The queue: joining it. With the waiter it is the only algorithm; every recipe rides on it.
//!
//! Invariants: whatever a create made, something of ours answers for it; nothing on the usual path depends on the length of
//! the queue; `try_join` writes nothing while somebody is there. It grants nothing: that is the waiter's. Recipes see no node
//! name, no watch and no child list.

pub(crate) mod directory;
pub(crate) mod mark;
pub(crate) mod place;
pub(crate) mod rule;
pub(crate) mod ticket;
pub(crate) mod view;
mod waiter;

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tracing::Span;
use tracing::field::Empty;
use uuid::Uuid;

use crate::error::{Error, Result};
use crate::link::{Code, Create, Fault, Found, Read};
use crate::name::LockName;
use crate::session::janitor::Left;
use crate::session::pool::{Pool, Reservation};
use crate::session::pulse::Hold;
use crate::session::{End, Failure, Session, failed, refused};
use directory::Directory;
use mark::DirectoryData;
use place::Place;
use ticket::{DataLine, PREFIX, Ticket};
use waiter::LockDelay;
pub(crate) use waiter::Waiter;

/// How often a create may come to nothing before that is an error.
const MOST_SETBACKS: u32 = 64;
/// The longest label, in bytes.
const MOST_LABEL: usize = 1024;
/// Pauses between creates whose outcome was unknown and which made nothing.
const SHORTEST_PAUSE: Duration = Duration::from_millis(2);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);
/// Bytes of `/lock-` and the longest number, for the reservation of watched bytes.
const TICKET_LEN: usize = "/lock--2147483648".len();

const JOINING: &str = "join the queue of";
const CREATING: &str = "create a ticket in";

/// One lock's queue. Holds no state of its own: that is in the tickets.
#[derive(Debug, Clone)]
pub(crate) struct Queue {
    pool: Arc<Pool>,
    name: LockName,
    directory: Directory,
    line: DataLine,
    delay: LockDelay,
}

impl Queue {
    pub(crate) fn new(
        pool: Arc<Pool>,
        root: &str,
        name: LockName,
        kind: Create,
        line: DataLine,
        lock_delay: Duration,
    ) -> Self {
        let delay = LockDelay {
            length: lock_delay,
            directories_forget: kind == Create::Container,
        };
        let directory = Directory::new(root, &name, kind);
        Self {
            pool,
            name,
            directory,
            line,
            delay,
        }
    }

    pub(crate) fn name(&self) -> &LockName {
        &self.name
    }

    /// The span of one acquire; the ticket and the session are filled in when they are known.
    pub(crate) fn span(&self) -> Span {
        let path = &*self.directory.path;
        tracing::debug_span!(
            "acquire",
            path,
            kind = "exclusive",
            ticket = Empty,
            session = Empty
        )
    }

    pub(crate) fn set_label(&mut self, label: String) {
        self.line.label = Some(label);
    }

    /// Puts a ticket at the end of the queue.
    ///
    /// # Cancel safety
    ///
    /// Dropped at any await, whatever was created is removed by the janitor.
    pub(crate) async fn join(&self) -> Result<Waiter> {
        // On the heap: it is over long before the wait, and would otherwise make every waiter's future as large.
        Box::pin(self.walk_in()).await
    }

    async fn walk_in(&self) -> Result<Waiter> {
        self.check_label()?;
        let mut reservation = self.reserve().await?;
        let start = format!("{}/{PREFIX}", self.directory.path);
        for setback in 0..MOST_SETBACKS {
            match self.create(reservation, &start).await? {
                Joined::Seated(place) => {
                    return Ok(Waiter::new(place, self.name.clone(), self.delay));
                }
                Joined::NoDirectory(again) => {
                    self.directory.make(again.session(), &self.name).await?;
                    reservation = again;
                }
                Joined::CounterRanOut(again) => {
                    self.directory.wait_out(again.session(), &self.name).await?;
                    reservation = again;
                }
                Joined::Nothing(again) => {
                    let pause = LONGEST_PAUSE.min(SHORTEST_PAUSE * (1 << setback.min(8)));
                    let back = again.session().reconnected(pause).await;
                    back.map_err(|end| end.while_trying(JOINING, &self.name))?;
                    reservation = again;
                }
            }
        }
        let why = Code::Other(format!(
            "no ticket came of {MOST_SETBACKS} tries: the directory or the connection is lost"
        ));
        Err(failed(
            reservation.session(),
            CREATING,
            &self.name,
            &self.directory.path,
            Failure::Answered(why),
        ))
    }

    async fn reserve(&self) -> Result<Reservation> {
        let path_len = self.pool.chroot_len() + self.directory.path.len() + TICKET_LEN;
        self.pool.reserve(path_len, JOINING).await
    }

    /// A label is in every ticket, and servers refuse large nodes by dropping the connection.
    fn check_label(&self) -> Result<()> {
        match &self.line.label {
            Some(label) if label.len() > MOST_LABEL => Err(Error::InvalidOption {
                what: "label",
                given: format!("{}...", label.chars().take(40).collect::<String>()),
                why: format!("it must not be longer than {MOST_LABEL} bytes"),
            }),
            _ => Ok(()),
        }
    }

    /// One create, settled whatever its outcome.
    async fn create(&self, reservation: Reservation, start: &str) -> Result<Joined> {
        let attempt = Uuid::new_v4();
        let line = DataLine {
            attempt,
            at: now_ms(),
            ..self.line.clone()
        }
        .to_bytes();
        let session = Arc::clone(reservation.session());
        let ended = |end: End| end.while_trying(JOINING, &self.name);
        let link = session.link().map_err(ended)?;
        // Armed before anything is sent: building the request sends it.
        let mut place = Place::arm(reservation, Arc::clone(&self.directory.path), attempt);
        let created = tokio::select! {
            created = link.create(start, &line, Create::EphemeralSequential) => created,
            end = session.ended() => return Err(ended(end)),
        };
        let (seq, czxid) = match created {
            Ok(created) => {
                session.recognise(created.owner).map_err(ended)?;
                (created.seq, created.czxid)
            }
            Err(Fault::Answered(Code::NoNode)) => return self.again(place, Joined::NoDirectory),
            Err(Fault::Answered(Code::NodeExists)) => {
                return self.again(place, Joined::CounterRanOut);
            }
            Err(Fault::Answered(Code::NotNow(why))) => {
                tracing::debug!(why, "create again");
                return self.again(place, Joined::Nothing);
            }
            Err(Fault::Answered(code)) => {
                place.disarm();
                return Err(refused(&*link, CREATING, &self.directory.path, &code));
            }
            Err(Fault::Unknown(why)) => {
                tracing::debug!(why, "a create has an unknown outcome");
                drop(link);
                let directory = Arc::clone(&self.directory.path);
                match session
                    .janitor
                    .settle(directory, PREFIX, attempt)
                    .await
                    .map_err(ended)?
                {
                    Some(adopted) => adopted,
                    None => return self.again(place, Joined::Nothing),
                }
            }
        };
        place.seat(seq, czxid);
        if Ticket::exclusive(seq).is_past_counting() {
            return self.give_up_number(place).await;
        }
        Span::current()
            .record("ticket", seq)
            .record("session", format_args!("{:#x}", place.session().id()));
        tracing::debug!("joined");
        Ok(Joined::Seated(place))
    }

    fn again(&self, place: Place, how: impl FnOnce(Reservation) -> Joined) -> Result<Joined> {
        // The reservation is there until the grant.
        place
            .disarm()
            .map(how)
            .ok_or_else(|| self.lost("its reservation is gone"))
    }

    /// A number at the end of the counter orders nothing: leaves, and waits until numbers start again.
    async fn give_up_number(&self, place: Place) -> Result<Joined> {
        let session = Arc::clone(place.session());
        if let Left::Over(reason) = place.leave().await {
            return Err(Error::SessionOver {
                name: self.name.to_string(),
                doing: JOINING,
                reason,
            });
        }
        self.directory.wait_out(&session, &self.name).await?;
        Ok(Joined::Nothing(self.reserve().await?))
    }

    /// Joins only if a look says that nobody is there, and stays only if that was true. Writes nothing on a held lock.
    pub(crate) async fn try_join(&self) -> Result<Option<(Waiter, Hold)>> {
        if self.is_busy().await? {
            return Ok(None);
        }
        let mut waiter = self.join().await?;
        if waiter.try_granted().await? {
            let hold = waiter.granted().await?;
            return Ok(Some((waiter, hold)));
        }
        waiter.into_place().leave().await;
        Ok(None)
    }

    /// Whether a ticket is in the queue. The holder of a lock that releases with marks is one number above the mark,
    /// so the answer costs two small reads whatever the length of the queue; a list is the fallback.
    async fn is_busy(&self) -> Result<bool> {
        let session = self.pool.home("look at").await?;
        let path = &*self.directory.path;
        let read = async |reads: &[Read<'_>]| {
            let found = session.read(|link| link.multi_read(reads)).await;
            found
                .map_err(|failure| self.failed(&session, failure))
                .map(|found| found.into_iter().next())
        };
        let marked = match read(&[Read::Data(path)]).await? {
            Some(Found::Node(node)) if node.num_children == 0 => return Ok(false),
            Some(Found::Node(node)) => DirectoryData::parse(&node.data),
            Some(Found::Failed(Code::NoNode)) => return Ok(false),
            other => return Err(self.unreadable(&session, other)),
        };
        let next = match marked {
            DirectoryData::Marked(mark) => mark.seq.wrapping_add(1),
            DirectoryData::Empty | DirectoryData::Foreign => 0,
        };
        let probable = format!("{path}/{}", Ticket::exclusive(next).name);
        if let Some(Found::Node(_)) = read(&[Read::Data(&probable)]).await? {
            return Ok(true);
        }
        match read(&[Read::Children(path)]).await? {
            Some(Found::Children(children)) => {
                Ok(children.iter().any(|child| Ticket::parse(child).is_some()))
            }
            Some(Found::Failed(Code::NoNode)) => Ok(false),
            other => Err(self.unreadable(&session, other)),
        }
    }

    fn failed(&self, session: &Session, failure: Failure) -> Error {
        failed(
            session,
            "look at",
            &self.name,
            &self.directory.path,
            failure,
        )
    }

    fn unreadable(&self, session: &Session, found: Option<Found>) -> Error {
        let code = match found {
            Some(Found::Failed(code)) => code,
            other => Code::Other(format!("unexpected answer {other:?}")),
        };
        self.failed(session, Failure::Answered(code))
    }

    fn lost(&self, why: &'static str) -> Error {
        Error::PlaceLost {
            name: self.name.to_string(),
            why,
        }
    }
}

/// What one create led to; a reservation that is not used up comes back.
enum Joined {
    Seated(Place),
    NoDirectory(Reservation),
    CounterRanOut(Reservation),
    Nothing(Reservation),
}

/// For people who read the queue; no decision rests on it.
fn now_ms() -> u64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
