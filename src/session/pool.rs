//! The pool: the sessions of one keeper, with places spread over them by the bytes of their paths.
//!
//! No session is given more to watch than its client survives, nor more tickets than its end can
//! name. Invariants: there is one home session for the keeper's life, opened again after it is
//! over; further sessions live only as long as places on them do; at most one session is being
//! opened, by a task of the pool, so that no impatient caller can throw it away. The pool never
//! moves a place to another session.

use std::iter::Sum;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use futures_util::future::{FutureExt, Shared, join_all};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{sleep, timeout};
use tracing::Instrument;

use super::acls::AclCheck;
use super::clock::Clock;
use super::heartbeat::LeaseStrength;
use super::monitor;
use super::monitor::{SessionEvent, SessionEvents};
use super::setbacks::Setbacks;
use super::watching::{WatchSlot, recipe, sent_len};
use super::{End, Session, SessionConfig};
use crate::error::{Error, Result};
use crate::latch::{Latch, Latched};
use crate::link::size;
use crate::link::size::TooLarge;
use crate::link::{Code, Fault, Found, Link, Opener, Read, Write, diagnose};
use crate::protocol::lease::Moment;

/// The pause between two tries to open a session when nobody asks for one.
const REOPEN_PAUSE: Duration = Duration::from_secs(1);
/// The most bytes of paths of tickets that one session has. Its end is one transaction that names
/// them all, and servers choke on one that is larger than `jute.maxbuffer`, 1 MiB: followers drop
/// out for good (ZOOKEEPER-4306, row 67).
pub(crate) const TICKETS_LIMIT: usize = 512 * 1024;
/// The pause before servers that refused are asked again.
const REFUSED_PAUSE: Duration = Duration::from_millis(100);
/// The same, after several tries of a first connect.
const LONGEST_REFUSED_PAUSE: Duration = Duration::from_secs(1);
/// How long a connect takes at most that tries once.
const ONE_TRY: Duration = Duration::from_secs(5);
/// Servers grant 2 to 20 of their ticks. What is shorter than a round trip, or longer than a day
/// and what was asked for, is no session that anybody can wait for, and no tick that anybody has.
const LEAST_GRANTED: Duration = Duration::from_millis(10);
const MOST_GRANTED: Duration = Duration::from_secs(24 * 3600);

/// How to reach the servers.
#[derive(Debug, Clone)]
pub(crate) struct Access {
    pub(crate) opener: Arc<dyn Opener>,
    pub(crate) connect_timeout: Duration,
    /// What the servers are asked for.
    pub(crate) session_timeout: Duration,
    pub(crate) strength: LeaseStrength,
    /// What the user says the servers' tick is.
    pub(crate) tick: Option<Duration>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) acls: Arc<AclCheck>,
}

/// The sessions of one keeper.
#[derive(Debug)]
pub(crate) struct Pool {
    access: Access,
    /// Where all tasks of the sessions run, whoever needs a session first: where the keeper was
    /// connected.
    runtime: Latch<Handle>,
    sessions: Latch<Sessions>,
    /// The session timeout that was granted last; until then, what is asked for.
    granted: Latch<Duration>,
    closing: watch::Sender<bool>,
    events: Arc<watch::Sender<SessionEvent>>,
    /// Every janitor holds a sender; `close` waits until all are gone.
    alive: Latch<Option<mpsc::Sender<()>>>,
    all_gone: tokio::sync::Mutex<mpsc::Receiver<()>>,
}

#[derive(Debug, Default)]
struct Sessions {
    home: Option<Arc<Session>>,
    further: Vec<Weak<Session>>,
    /// When the home session was opened, and how many before it did not last.
    opened: Moment,
    brief: Setbacks,
    /// The session that is being opened, for everybody who waits for room.
    opening: Option<Opening>,
}

/// Without an answer where the keeper's runtime has ended.
type Opening = Shared<oneshot::Receiver<Result<Arc<Session>>>>;

/// Bytes of paths that something needs of its session: see [`Pool::sent_len`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Need {
    /// Of what it watches at the same time.
    pub(crate) watched: usize,
    pub(crate) ticket: usize,
}

impl Need {
    pub(crate) const ALL: Self = Self {
        watched: usize::MAX,
        ticket: usize::MAX,
    };

    /// To watch one path, without a ticket.
    pub(crate) fn to_watch(sent: usize) -> Self {
        Self {
            watched: sent,
            ticket: 0,
        }
    }
}

impl Sum for Need {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |sum, one| Self {
            watched: sum.watched + one.watched,
            ticket: sum.ticket + one.ticket,
        })
    }
}

/// Room in a session for what a ticket watches, and for the ticket; given back on drop.
#[derive(Debug)]
pub(crate) struct Reservation {
    pub(crate) slot: WatchSlot,
    ticket: usize,
}

impl Reservation {
    pub(crate) fn session(&self) -> &Arc<Session> {
        self.slot.session()
    }

    /// Takes a part of it away, for one of several tickets.
    pub(crate) fn part(&mut self, need: Need) -> Self {
        let ticket = need.ticket.min(self.ticket);
        self.ticket -= ticket;
        Self {
            slot: self.slot.part(need.watched),
            ticket,
        }
    }

    /// For what has no ticket.
    pub(crate) fn into_slot(mut self) -> WatchSlot {
        self.slot.take()
    }

    fn try_new(session: &Arc<Session>, need: Need) -> Option<Self> {
        let slot = WatchSlot::try_new(session, need.watched)?;
        let Need { ticket, .. } = need;
        recipe(&session.ticket_bytes, ticket, TICKETS_LIMIT).then(|| Self { slot, ticket })
    }
}

/// A pool that is about to be closed, whether or not anybody waits for it.
pub(crate) struct Closes<'a>(&'a Pool);

impl Drop for Closes<'_> {
    fn drop(&mut self) {
        self.0.begin_to_close();
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let tickets = &self.session().ticket_bytes;
        tickets.fetch_sub(self.ticket, Ordering::Relaxed);
    }
}

impl Pool {
    /// Opens the home session and looks for the chroot.
    pub(crate) async fn open(access: Access) -> Result<Arc<Self>> {
        let (alive, all_gone) = mpsc::channel(1);
        let pool = Arc::new(Self {
            granted: Latch::new(access.session_timeout),
            access,
            runtime: Latch::new(Handle::current()),
            sessions: Latch::default(),
            closing: watch::Sender::new(false),
            // Until the first session is there nobody can look.
            events: Arc::new(watch::Sender::new(SessionEvent::Closed)),
            alive: Latch::new(Some(alive)),
            all_gone: tokio::sync::Mutex::new(all_gone),
        });
        pool.home("open", "a session").await?;
        Ok(pool)
    }

    /// Finds room for paths; opens another session when there is none.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a session that is being opened becomes the home session, or ends.
    pub(crate) async fn reserve(
        self: &Arc<Self>,
        need: Need,
        doing: &'static str,
    ) -> Result<Reservation> {
        let mut closing = self.closing.subscribe();
        let mut has_moved = false;
        loop {
            let opening = match self.room_or_opening(need) {
                _ if *closing.borrow() => return Err(End::Closed.while_trying(doing, "the keeper")),
                Ok(reservation) => return Ok(reservation),
                Err(opening) => opening,
            };
            let opened = tokio::select! {
                opened = opening => opened,
                _ = closing.wait_for(|closing| *closing) => continue,
            };
            let opened = match opened {
                Ok(opened) => opened,
                Err(_) if has_moved => return Err(End::Closed.while_trying("open", "a session")),
                Err(_) => {
                    has_moved = true;
                    self.move_if_gone().await;
                    continue;
                }
            };
            // A further session lives by its places alone: take one before letting go of it.
            if let Some(reservation) = Reservation::try_new(&opened?, need) {
                return Ok(reservation);
            }
        }
    }

    /// Goes on in the caller's runtime if the keeper's own has ended, and with it all of its
    /// sessions.
    async fn move_if_gone(&self) {
        let is_gone = self.runtime().spawn(async {}).await.is_err();
        if let (true, Ok(ours)) = (is_gone, Handle::try_current()) {
            *self.runtime.lock() = ours;
        }
    }

    /// A session to read with.
    pub(crate) async fn home(
        self: &Arc<Self>,
        doing: &'static str,
        name: impl ToString,
    ) -> Result<Arc<Session>> {
        let room = self.reserve(Need::default(), doing).await;
        let room = room.map_err(|error| error.about(name))?;
        Ok(Arc::clone(room.session()))
    }

    /// To be kept while something is waited for before [`close`](Self::close): dropped, it begins
    /// to close.
    pub(crate) fn closes(&self) -> Closes<'_> {
        Closes(self)
    }

    fn begin_to_close(&self) {
        if !self.closing.send_replace(true) {
            // Also when there is no session whose monitor would say it.
            self.events.send_replace(SessionEvent::Closed);
        }
    }

    /// Ends every session; what the janitors were given is finished first. Ends within about twice
    /// the session timeout.
    pub(crate) async fn close(&self) {
        self.begin_to_close();
        let limit = self.session_timeout();
        let sessions: Vec<Arc<Session>> = {
            let sessions = self.sessions();
            // They stay in the list, for another close if this one is dropped.
            sessions
                .home
                .iter()
                .cloned()
                .chain(sessions.further.iter().filter_map(Weak::upgrade))
                .collect()
        };
        let alive = self.alive.lock().take();
        drop(alive);
        join_all(sessions.iter().map(|session| session.close(limit))).await;
        let home = self.sessions().home.take();
        drop((sessions, home));
        // Sessions whose last place went a moment ago are no longer in the list, but their janitors
        // may still work.
        let mut all_gone = self.all_gone.lock().await;
        if timeout(limit, all_gone.recv()).await.is_err() {
            tracing::warn!("a janitor did not finish in time");
        }
    }

    /// What the servers grant.
    pub(crate) fn session_timeout(&self) -> Duration {
        *self.granted.lock()
    }

    /// The keeper's runtime.
    pub(crate) fn runtime(&self) -> Handle {
        self.runtime.lock().clone()
    }

    /// Follows the home session.
    pub(crate) fn events(&self) -> SessionEvents {
        SessionEvents::new(self.events.subscribe())
    }

    pub(crate) fn servers(&self) -> &str {
        self.access.opener.servers()
    }

    pub(crate) fn is_closing(&self) -> bool {
        *self.closing.borrow()
    }

    /// Bytes that all sessions watch, or are about to.
    #[cfg(test)]
    pub(crate) fn watched_bytes(&self) -> usize {
        let sessions = self.sessions();
        let further = sessions.further.iter().filter_map(Weak::upgrade);
        let all = further.chain(sessions.home.clone());
        all.map(|session| session.watched_bytes.load(Ordering::Relaxed))
            .sum()
    }

    /// Whether servers read all of these in one request.
    pub(crate) fn check_size(&self, writes: &[Write<'_>]) -> Result<(), TooLarge> {
        size::check(self.access.opener.envelope().writes(writes))
    }

    /// Bytes of a path of so many below the chroot, where the client sends it among others.
    pub(crate) fn sent_len(&self, path: usize) -> usize {
        sent_len(self.access.opener.chroot().len(), path)
    }

    fn sessions(&self) -> Latched<'_, Sessions> {
        self.sessions.lock()
    }

    /// Room in a session that is there, or else the session that is being opened.
    fn room_or_opening(self: &Arc<Self>, need: Need) -> Result<Reservation, Opening> {
        // Whatever is let go of here goes after the latch is open again: it may be the last of a
        // session.
        let mut looked_at = Vec::new();
        let mut sessions = self.sessions();
        let mut home = sessions.home.iter().filter(|home| home.end().is_none());
        if let Some(reservation) = home.find_map(|home| Reservation::try_new(home, need)) {
            return Ok(reservation);
        }
        sessions
            .further
            .retain(|session| session.strong_count() > 0);
        for session in sessions.further.iter().filter_map(Weak::upgrade) {
            let alive = session.end().is_none();
            let room = alive.then(|| Reservation::try_new(&session, need));
            looked_at.push(session);
            if let Some(reservation) = room.flatten() {
                return Ok(reservation);
            }
        }
        // One that ended without a word, with its runtime, opens nothing any more.
        let over = sessions.opening.take_if(|opening| opening.peek().is_some());
        let mut begun = None;
        let opening = sessions.opening.get_or_insert_with(|| {
            let (opened, opening) = oneshot::channel();
            begun = Some(opened);
            opening.shared()
        });
        let opening = opening.clone();
        drop(sessions);
        drop(over);
        if let Some(opened) = begun {
            self.begin_opening(opened);
        }
        Err(opening)
    }

    /// Opens a session in a task of its own: it is not lost with the caller who was the first to
    /// need it, nor with the runtime of that, and no handshake is dropped in the middle, which
    /// would leave a session at the server until it expires.
    fn begin_opening(self: &Arc<Self>, opened: oneshot::Sender<Result<Arc<Session>>>) {
        let pool = Arc::clone(self);
        let open = async move {
            // Nobody may wait for it any more.
            opened.send(pool.open_session().await).ok();
        };
        self.runtime().spawn(open.in_current_span());
    }

    /// Connects within the connect timeout. Servers that gave no session, and names that do not
    /// resolve, are asked again, because they come: they start beside us, elect a leader, or have
    /// too much to do. A connect timeout of zero is one try.
    async fn connect(&self, is_first: bool) -> Result<Arc<dyn Link>> {
        let (started, mut pause) = (Instant::now(), REFUSED_PAUSE);
        let is_once = self.access.connect_timeout.is_zero();
        let limit = match self.access.connect_timeout {
            Duration::ZERO => ONE_TRY,
            limit => limit,
        };
        let mut known: Option<Error> = None;
        loop {
            let left = limit.saturating_sub(started.elapsed());
            let error = match connect(&self.access, left).await {
                Err(error @ Error::Unreachable { .. }) => error,
                result => return result,
            };
            // That a server is there is the best that is known of one.
            let error = match known.take() {
                Some(known) if known.names_a_server() && !error.names_a_server() => known,
                _ => error,
            };
            // A try with little time left says nothing that an earlier one has not found.
            let is_late = limit.saturating_sub(started.elapsed() + pause) < limit / 10;
            if is_once || is_late || self.is_closing() {
                return Err(error.after(started.elapsed()));
            }
            known = Some(error);
            sleep(pause).await;
            if is_first {
                pause = (pause * 2).min(LONGEST_REFUSED_PAUSE);
            }
        }
    }

    /// How long to wait before another session is opened: longer each time that one did not last
    /// for its timeout. What ends a session as soon as it is used would otherwise be given the next
    /// one at once.
    fn pause_after_the_last(&self) -> Duration {
        let now = self.access.clock.now();
        let timeout = self.session_timeout();
        let mut sessions = self.sessions();
        let is_over = |home: &Arc<Session>| home.end().is_some();
        if !sessions.home.as_ref().is_some_and(is_over) {
            return Duration::ZERO;
        }
        if now >= sessions.opened + timeout {
            sessions.brief = Setbacks::default();
        }
        sessions.brief.pause_after_a_race()
    }

    async fn open_session(self: &Arc<Self>) -> Result<Arc<Session>> {
        let pause = self.pause_after_the_last();
        sleep(pause).await;
        let opening = self.access.clock.now();
        let is_first = self.sessions().home.is_none();
        let connected = self.connect(is_first).await;
        let closed = || End::Closed.while_trying("open", "a session");
        let alive = self.alive.lock().clone();
        let started = connected.and_then(|link| {
            *self.granted.lock() = link.session_timeout();
            let around = SessionConfig {
                closing: self.closing.subscribe(),
                alive: alive.ok_or_else(closed)?,
                clock: Arc::clone(&self.access.clock),
                acls: Arc::clone(&self.access.acls),
                strength: self.access.strength,
                tick: self.access.tick,
                opening,
                envelope: self.access.opener.envelope(),
            };
            Ok(Session::start(link, around))
        });
        let mut sessions = self.sessions();
        let over = sessions.opening.take();
        // Looked at under the latch under which `close` looks for sessions: one of the two sees the
        // other.
        let is_closing = *self.closing.borrow();
        let mut before = None;
        let mut is_home = false;
        if let (Ok(session), false) = (&started, is_closing) {
            is_home = sessions
                .home
                .as_ref()
                .is_none_or(|home| home.end().is_some());
            if is_home {
                before = sessions.home.replace(Arc::clone(session));
                sessions.opened = opening;
            } else {
                sessions.further.push(Arc::downgrade(session));
            }
        }
        drop(sessions);
        drop((over, before));
        let session = started?;
        if is_closing {
            return Err(closed());
        }
        if is_home {
            self.watch_over(&session);
        }
        Ok(session)
    }

    /// Says what becomes of the home session.
    fn watch_over(self: &Arc<Self>, session: &Arc<Session>) {
        let connected = SessionEvent::Connected {
            session: session.id().into(),
        };
        self.events.send_if_modified(|event| {
            // After that nothing follows.
            let is_news = !*self.closing.borrow();
            if is_news {
                *event = connected;
            }
            is_news
        });
        let events = Arc::clone(&self.events);
        let follow = follow(Arc::downgrade(session), Arc::downgrade(self), events);
        self.runtime().spawn(follow.in_current_span());
    }
}

/// Follows one home session to its end. The task is short-lived after that: the next session has a
/// monitor of its own.
async fn follow(
    session: Weak<Session>,
    pool: Weak<Pool>,
    events: Arc<watch::Sender<SessionEvent>>,
) {
    let Some(end) = monitor::report(session, &events).await else {
        return;
    };
    tracing::info!(?end, "the keeper's session has ended");
    // Nobody may be asking for a session now, but the next call should not have to wait for it.
    while let Some(pool) = pool.upgrade().filter(|pool| !pool.is_closing()) {
        match pool.home("open", "a session").await {
            Ok(_) => return,
            Err(error) => tracing::debug!(%error, "no session yet"),
        }
        drop(pool);
        sleep(REOPEN_PAUSE).await;
    }
}

/// Opens one session within the limit, or says why each address gave none.
async fn connect(access: &Access, limit: Duration) -> Result<Arc<dyn Link>> {
    let started = Instant::now();
    let opener = &access.opener;
    // The rest of the time is for finding out what is wrong.
    let most = limit.mul_f32(0.6);
    match timeout(most, opener.open(most)).await {
        Ok(Ok(link)) => {
            check_granted(access, &*link)?;
            check_strength(access, link.session_timeout())?;
            check_tick(access.tick, link.session_timeout())?;
            look_for_chroot(link, opener.chroot()).await
        }
        Ok(Err(Fault::Answered(Code::Unauthenticated))) => Err(Error::Unauthenticated {
            servers: opener.servers().to_owned(),
        }),
        failed => {
            tracing::debug!(?failed, "no session");
            let left = limit
                .saturating_sub(started.elapsed())
                .min(limit.mul_f32(0.35));
            let addresses = diagnose::probe(opener.servers(), opener.is_secure(), left).await;
            Err(Error::unreachable(addresses, started.elapsed()))
        }
    }
}

/// Refuses what only a broken server grants: all waits for an answer rest on it.
fn check_granted(access: &Access, link: &dyn Link) -> Result<()> {
    let granted = link.session_timeout();
    let most = MOST_GRANTED.max(access.session_timeout);
    if (LEAST_GRANTED..=most).contains(&granted) {
        return Ok(());
    }
    Err(Error::Refused {
        doing: "keep a session at",
        path: "/".into(),
        servers: link.servers().into(),
        why: format!(
            "a server granted a session timeout of {granted:?}, which is not between {LEAST_GRANTED:?} and {most:?}: this is no ZooKeeper that works"
        ),
    })
}

/// A session timeout of less than four ticks is too short for beats that are no commits. Servers
/// tell no tick, but one that raises our timeout has raised it to two of its ticks.
fn check_strength(access: &Access, granted: Duration) -> Result<()> {
    let asked = access.session_timeout;
    if access.strength == LeaseStrength::Quorum || granted <= asked {
        return Ok(());
    }
    Err(Error::InvalidOption {
        what: "session timeout",
        given: format!("{asked:?}"),
        why: format!(
            "the servers raised it to their minimum, {granted:?}, which is two of their ticks, and LeaseStrength::Sync needs four: ask for {:?} or use LeaseStrength::Quorum",
            granted * 2
        ),
    })
}

/// A session timeout of less than two ticks is none that servers with such a tick grant.
pub(crate) fn check_tick(tick: Option<Duration>, timeout: Duration) -> Result<()> {
    match tick {
        Some(tick) if tick.is_zero() || tick > timeout / 2 => Err(Error::InvalidOption {
            what: "tick time",
            given: format!("{tick:?}"),
            why: format!(
                "it is the tickTime of the servers, which grant session timeouts of at least two of them, and this one is {timeout:?}"
            ),
        }),
        _ => Ok(()),
    }
}

/// A missing chroot connects, and only then fails with a bare "no such node".
async fn look_for_chroot(link: Arc<dyn Link>, chroot: &str) -> Result<Arc<dyn Link>> {
    if chroot.is_empty() {
        return Ok(link);
    }
    let servers = link.servers().to_owned();
    // Without a sync, a server that lags behind would deny a chroot that was made a moment ago.
    let (synced, looked) = (link.sync("/"), link.multi_read(&[Read::Data("/")]));
    synced.await.ok();
    let looked = looked.await;
    match looked {
        Ok(found) if found.first() == Some(&Found::Failed(Code::NoNode)) => {
            Err(Error::ChrootMissing {
                chroot: chroot.into(),
                servers,
            })
        }
        Ok(_) | Err(Fault::Answered(_)) => Ok(link),
        Err(Fault::Unknown(why)) => {
            tracing::debug!(why, "the chroot could not be looked for");
            Ok(link)
        }
    }
}
