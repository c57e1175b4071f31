//! The queue: join, judge, wait. The only algorithm; every recipe rides on it.
//!
//! Invariants: nothing on the clean path depends on the length of the queue; every read that can grant also reads our
//! own ticket in the same `multi_read` and compares its `czxid` (FAILURES.md rows 72 and 73); a waiter watches one
//! ticket, the nearest one before it. A list of the children is the fallback, never the way. Recipes see no node name,
//! no watch and no child list.
//!
//! The walk: create (1 request); look: alone? (1); otherwise watch the number before mine (1). When the watched ticket
//! goes, look (1): a mark with its `czxid` proves that it held and released, so everything before it was gone.

pub(crate) mod directory;
pub(crate) mod mark;
pub(crate) mod place;
pub(crate) mod rule;
pub(crate) mod ticket;
pub(crate) mod view;

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tracing::Span;
use tracing::field::Empty;
use uuid::Uuid;

use crate::error::{Error, Result, ServerError};
use crate::link::{Change, Code, Create, Fault, Found, Node, Read, Watch};
use crate::name::LockName;
use crate::session::janitor::{Exit, Left};
use crate::session::pool::{Pool, Reservation};
use crate::session::{End, Failure, Session, refused};
use directory::Directory;
use mark::{DirectoryData, Mark};
use place::Place;
use rule::Verdict;
use ticket::{DataLine, PREFIX, Ticket};

/// How often a directory may be gone again before its ticket is created.
const MOST_REMAKES: usize = 64;
/// Bytes of `/lock-` and the longest number, for the reservation of watched bytes.
const TICKET_LEN: usize = "/lock--2147483648".len();

const JOINING: &str = "join the queue of";
const WAITING: &str = "wait for";

/// One lock's queue. Holds no state of its own: that is in the tickets.
#[derive(Debug, Clone)]
pub(crate) struct Queue {
    pool: Arc<Pool>,
    name: LockName,
    directory: Directory,
    line: DataLine,
}

impl Queue {
    pub(crate) fn new(
        pool: Arc<Pool>,
        root: &str,
        name: LockName,
        kind: Create,
        line: DataLine,
    ) -> Self {
        let directory = Directory::new(root, &name, kind);
        Self {
            pool,
            name,
            directory,
            line,
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
        let path_len = self.pool.chroot_len() + self.directory.path.len() + TICKET_LEN;
        let mut reservation = self.pool.reserve(path_len, JOINING).await?;
        let start: Arc<str> = format!("{}/{PREFIX}", self.directory.path).into();
        let mut remakes = 0;
        loop {
            match self.create(reservation, &start).await? {
                Joined::Seated(waiter) => return Ok(waiter),
                Joined::NoDirectory(again) => {
                    reservation = again;
                    self.remake(&reservation, &mut remakes).await?;
                }
                Joined::CounterRanOut(again) => {
                    reservation = again;
                    self.directory
                        .wait_out(reservation.session(), &self.name)
                        .await?;
                }
                Joined::Nothing(again) => reservation = again,
            }
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
            Ok(created) => (created.seq, created.czxid),
            Err(Fault::Answered(Code::NoNode)) => return self.again(place, Joined::NoDirectory),
            Err(Fault::Answered(Code::NodeExists)) => {
                return self.again(place, Joined::CounterRanOut);
            }
            Err(Fault::Answered(code)) => {
                place.disarm();
                return Err(refused(
                    &*link,
                    "create a ticket in",
                    &self.directory.path,
                    &code,
                ));
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
        Ok(Joined::Seated(Waiter {
            place,
            name: self.name.clone(),
            phase: Phase::Joined,
            since: Instant::now(),
        }))
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
        let path_len = self.pool.chroot_len() + self.directory.path.len() + TICKET_LEN;
        Ok(Joined::Nothing(self.pool.reserve(path_len, JOINING).await?))
    }

    async fn remake(&self, reservation: &Reservation, remakes: &mut usize) -> Result<()> {
        *remakes += 1;
        if *remakes > MOST_REMAKES {
            let servers = reservation
                .session()
                .link()
                .map(|link| link.servers().to_owned())
                .unwrap_or_default();
            let source = ServerError("the directory is removed as fast as it is made".into());
            let path = self.directory.path.to_string();
            return Err(Error::Refused {
                doing: "create a ticket in",
                path,
                servers,
                source,
            });
        }
        self.directory.make(reservation.session(), &self.name).await
    }

    /// Joins only if a look says that nobody is there, and stays only if that was true. Writes nothing on a held lock.
    pub(crate) async fn try_join(&self) -> Result<Option<Waiter>> {
        if self.is_busy().await? {
            return Ok(None);
        }
        let mut waiter = self.join().await?;
        if waiter.try_granted().await? {
            return Ok(Some(waiter));
        }
        waiter.place.leave().await;
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
                .map_err(|failure| self.failed(&session, "look at", failure))
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

    fn failed(&self, session: &Session, doing: &'static str, failure: Failure) -> Error {
        failed(session, doing, &self.name, &self.directory.path, failure)
    }

    fn unreadable(&self, session: &Session, found: Option<Found>) -> Error {
        let code = match found {
            Some(Found::Failed(code)) => code,
            other => Code::Other(format!("unexpected answer {other:?}")),
        };
        self.failed(session, "look at", Failure::Answered(code))
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
    Seated(Waiter),
    NoDirectory(Reservation),
    CounterRanOut(Reservation),
    Nothing(Reservation),
}

/// A ticket on its way to the grant.
#[derive(Debug)]
pub(crate) struct Waiter {
    place: Place,
    name: LockName,
    phase: Phase,
    since: Instant,
}

/// Where a ticket is on its way. A phase is left only when its await has an answer, so a waiter whose future was dropped
/// goes on from the same phase.
#[derive(Debug)]
enum Phase {
    /// Just created.
    Joined,
    /// Not alone: probably the number before mine is there.
    Guessing,
    /// The arithmetic or the mark did not help.
    Listing,
    /// This ticket is the nearest before mine, by the list or, with its identity, by a watch that was spent on a change of
    /// its data.
    Following { ahead: Ticket, czxid: Option<i64> },
    /// The ticket with this identity is before mine, and watched.
    Watching {
        ahead: Ticket,
        czxid: i64,
        watch: Watch,
    },
    /// The ticket with this identity, the nearest before mine, is gone.
    Woken { czxid: i64 },
    /// Nobody is before mine.
    Granted,
}

impl Waiter {
    pub(crate) fn name(&self) -> &LockName {
        &self.name
    }

    /// The ticket's number and identity.
    pub(crate) fn ticket(&self) -> Result<(Ticket, i64)> {
        let ticket = self
            .place
            .ticket()
            .map(|(ticket, czxid)| (ticket.clone(), czxid));
        ticket.ok_or_else(|| self.lost("the place was given up"))
    }

    /// How long this ticket has been in the queue.
    pub(crate) fn waited(&self) -> Duration {
        self.since.elapsed()
    }

    /// Waits until nobody is before this ticket.
    ///
    /// # Cancel safety
    ///
    /// The ticket keeps its place; call again to go on.
    pub(crate) async fn granted(&mut self) -> Result<()> {
        while !matches!(self.phase, Phase::Granted) {
            self.advance().await?;
        }
        Ok(())
    }

    /// Waits until the ticket before this one is another, or none.
    pub(crate) async fn changed(&mut self) -> Result<()> {
        loop {
            let was_watching = matches!(self.phase, Phase::Watching { .. });
            if matches!(self.phase, Phase::Granted) {
                return Ok(());
            }
            self.advance().await?;
            if was_watching {
                return Ok(());
            }
        }
    }

    /// Whether nobody is before this ticket, without waiting.
    async fn try_granted(&mut self) -> Result<bool> {
        loop {
            match self.phase {
                Phase::Granted => return Ok(true),
                Phase::Joined | Phase::Listing | Phase::Woken { .. } => self.advance().await?,
                Phase::Guessing => self.phase = Phase::Listing,
                Phase::Following { .. } | Phase::Watching { .. } => return Ok(false),
            }
        }
    }

    /// How many tickets are before this one. Lists the queue.
    pub(crate) async fn position(&self) -> Result<usize> {
        let (mine, _) = self.ticket()?;
        let looked = self.look(true).await?;
        let tickets = looked
            .children
            .iter()
            .filter_map(|child| Ticket::parse(child));
        Ok(tickets.filter(|other| other.is_before(&mine)).count())
    }

    /// Hands the place over to a guard.
    pub(crate) fn into_place(self) -> Place {
        self.place
    }

    /// One step of the walk.
    async fn advance(&mut self) -> Result<()> {
        self.phase = match self.phase {
            Phase::Watching { .. } => self.wait().await?,
            // On the heap, so that a waiter's future is no larger than its wait, in which it spends its life.
            _ => Box::pin(self.ask()).await?,
        };
        Ok(())
    }

    /// Waits for the watch to tell.
    async fn wait(&mut self) -> Result<Phase> {
        let Phase::Watching {
            ahead,
            czxid,
            watch,
        } = &mut self.phase
        else {
            return Ok(Phase::Listing);
        };
        let session = self.place.session();
        let change = tokio::select! {
            change = watch.changed() => change,
            _ = session.ended() => Change::SessionOver,
        };
        match change {
            Change::Deleted => Ok(Phase::Woken { czxid: *czxid }),
            // The watch is spent, and the node may be there: arm again, by identity.
            Change::DataChanged => Ok(Phase::Following {
                ahead: ahead.clone(),
                czxid: Some(*czxid),
            }),
            Change::SessionOver => Err(session.ended().await.while_trying(WAITING, &self.name)),
        }
    }

    /// Asks the server what the phase needs to know.
    async fn ask(&mut self) -> Result<Phase> {
        match &self.phase {
            Phase::Joined => self.look_alone().await,
            Phase::Guessing => self.watch_predecessor().await,
            Phase::Listing | Phase::Watching { .. } => self.judge().await,
            Phase::Following { ahead, czxid } => {
                let (ahead, czxid) = (ahead.clone(), *czxid);
                self.watch(ahead, czxid).await
            }
            Phase::Woken { czxid } => {
                let czxid = *czxid;
                self.look_for_mark(czxid).await
            }
            Phase::Granted => Ok(Phase::Granted),
        }
    }

    async fn look_alone(&mut self) -> Result<Phase> {
        let looked = self.look(false).await?;
        if looked.directory.num_children == 1 {
            return self.grant(&looked.directory);
        }
        Ok(Phase::Guessing)
    }

    /// The number before mine, if it is there and older, is the immediate predecessor: numbers are unique in a directory
    /// and given in order. (A younger one is possible only where the counter has stuck at its end.)
    async fn watch_predecessor(&mut self) -> Result<Phase> {
        match self.ticket()?.0.predecessor() {
            Some(ahead) => self.watch(ahead, None).await,
            None => Ok(Phase::Listing),
        }
    }

    /// Arms a watch. With an identity, whatever else stands at that name counts as gone.
    async fn watch(&mut self, ahead: Ticket, identity: Option<i64>) -> Result<Phase> {
        let (_, mine) = self.ticket()?;
        let path = format!("{}/{}", self.place.directory(), ahead.name);
        let session = self.place.session();
        match session.read(|link| link.watch(&path)).await {
            Ok((node, watch))
                if identity.unwrap_or(node.czxid) == node.czxid && node.czxid < mine =>
            {
                tracing::trace!(ahead = ahead.name, "watching");
                Ok(Phase::Watching {
                    ahead,
                    czxid: node.czxid,
                    watch,
                })
            }
            Ok(_) | Err(Failure::Answered(Code::NoNode)) => {
                Ok(identity.map_or(Phase::Listing, |czxid| Phase::Woken { czxid }))
            }
            Err(failure) => Err(failed(session, WAITING, &self.name, &path, failure)),
        }
    }

    async fn look_for_mark(&mut self, czxid: i64) -> Result<Phase> {
        let looked = self.look(false).await?;
        let proved = DirectoryData::parse(&looked.directory.data).proves_release_of(czxid);
        if proved || looked.directory.num_children == 1 {
            return self.grant(&looked.directory);
        }
        Ok(Phase::Listing)
    }

    async fn judge(&mut self) -> Result<Phase> {
        let looked = self.look(true).await?;
        tracing::trace!(children = looked.children.len(), "listed");
        let (mine, _) = self.ticket()?;
        match rule::judge(&mine, looked.children.iter().map(String::as_str)) {
            Verdict::Granted => self.grant(&looked.directory),
            Verdict::Wait(ahead) => Ok(Phase::Following { ahead, czxid: None }),
        }
    }

    /// Decides how the ticket will leave, from the directory as it was when the grant was read.
    fn grant(&mut self, directory: &Node) -> Result<Phase> {
        let (ticket, czxid) = self.ticket()?;
        let mut exit = if DirectoryData::parse(&directory.data).is_ours() {
            Exit::Marked {
                mark: Mark {
                    czxid,
                    seq: ticket.seq,
                }
                .to_bytes(),
                version: directory.version,
            }
        } else {
            Exit::Plain
        };
        if ticket.is_near_end() {
            exit = Exit::LastOut(Box::new(exit));
        }
        self.place.grant(exit);
        Ok(Phase::Granted)
    }

    /// The only read that can grant: the directory, our own ticket and, when asked for, the children, all at one moment.
    /// Our ticket must be there with our identity.
    async fn look(&self, with_children: bool) -> Result<Looked> {
        let (ticket, czxid) = self.ticket()?;
        let directory = &**self.place.directory();
        let mine = format!("{directory}/{}", ticket.name);
        let reads = [
            Read::Data(directory),
            Read::Data(&mine),
            Read::Children(directory),
        ];
        let reads = if with_children {
            &reads[..]
        } else {
            &reads[..2]
        };
        let session = self.place.session();
        let found = session.read(|link| link.multi_read(reads)).await;
        let found =
            found.map_err(|failure| failed(session, WAITING, &self.name, directory, failure))?;
        let mut found = found.into_iter();
        match (found.next(), found.next(), found.next()) {
            (Some(Found::Node(directory)), Some(Found::Node(mine)), children)
                if mine.czxid == czxid =>
            {
                let children = match children {
                    Some(Found::Children(children)) => children,
                    Some(Found::Failed(code)) => {
                        let path = self.place.directory();
                        return Err(failed(
                            session,
                            WAITING,
                            &self.name,
                            path,
                            Failure::Answered(code),
                        ));
                    }
                    _ => Vec::new(),
                };
                Ok(Looked {
                    directory,
                    children,
                })
            }
            (_, Some(Found::Node(_)), _) => Err(self.lost("another ticket stands under its name")),
            (_, Some(Found::Failed(Code::NoNode)), _) => Err(self.lost("the ticket was removed")),
            (Some(Found::Failed(code)), _, _) | (_, Some(Found::Failed(code)), _) => Err(failed(
                session,
                WAITING,
                &self.name,
                directory,
                Failure::Answered(code),
            )),
            _ => Err(self.lost("the server's answer makes no sense")),
        }
    }

    fn lost(&self, why: &'static str) -> Error {
        Error::PlaceLost {
            name: self.name.to_string(),
            why,
        }
    }
}

/// What a look saw.
struct Looked {
    directory: Node,
    children: Vec<String>,
}

fn failed(
    session: &Session,
    doing: &'static str,
    name: &LockName,
    path: &str,
    failure: Failure,
) -> Error {
    match failure {
        Failure::Ended(end) => end.while_trying(doing, name),
        Failure::Answered(code) => match session.link() {
            Ok(link) => refused(&*link, doing, path, &code),
            Err(end) => end.while_trying(doing, name),
        },
    }
}

/// For people who read the queue; no decision rests on it.
fn now_ms() -> u64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
