//! The pool: the sessions of one keeper, with places spread over them by the bytes of their paths.
//!
//! No session is given more to watch than its client survives, nor more tickets than its end can
//! name. Invariants: a keeper has one home session, which is opened again after it is over. Further
//! sessions live only as long as places on them do. At most one session is being opened, by a task
//! of the pool, so that no impatient caller can throw it away. The pool never moves a place to
//! another session.

mod connect;
mod opening;
mod room;

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::{FutureExt, Shared, join_all};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, timeout_at};

use super::acls::AclCheck;
use super::clock::Clock;
use super::heartbeat::LeaseStrength;
use super::monitor::{SessionEvent, SessionEvents};
use super::setbacks::Setbacks;
use super::watching::sent_len;
use super::{End, Session};
use crate::error::Result;
use crate::latch::Latch;
use crate::link::engine::Engine;
use crate::link::size::{self, TooLarge};
use crate::link::{Opener, Write};
use crate::protocol::lease::Moment;

pub(crate) use connect::check_tick;
pub(crate) use room::{Need, Reservation};

/// How to reach the servers.
#[derive(Debug, Clone)]
pub(crate) struct Access {
    pub(crate) opener: Arc<dyn Opener>,
    pub(crate) connect_timeout: Duration,
    /// The most that a close takes.
    pub(crate) close_timeout: Duration,
    /// The timeout that the servers are asked for.
    pub(crate) session_timeout: Duration,
    pub(crate) strength: LeaseStrength,
    /// The servers' tick, if the user has declared it.
    pub(crate) tick: Option<Duration>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) acls: Arc<AclCheck>,
}

/// The sessions of one keeper.
#[derive(Debug)]
pub(crate) struct Pool {
    access: Access,
    /// Where the keeper was connected. All tasks of its sessions run there.
    runtime: Latch<Handle>,
    sessions: Latch<Sessions>,
    /// The session timeout that was granted last; until then, the one that is asked for.
    granted: Latch<Duration>,
    closing: watch::Sender<bool>,
    /// A session went that had ended by itself.
    has_ended: Arc<AtomicBool>,
    events: Arc<watch::Sender<SessionEvent>>,
    /// Every janitor holds a sender; `close` waits until all are gone.
    alive: Latch<Option<mpsc::Sender<()>>>,
    all_gone: tokio::sync::Mutex<mpsc::Receiver<()>>,
}

#[derive(Debug, Default)]
struct Sessions {
    home: Option<Arc<Session>>,
    further: Vec<Weak<Session>>,
    /// When the last session was opened, and how many before it did not last.
    opened: Moment,
    brief: Setbacks,
    /// The session that is being opened, for all callers that wait for room.
    opening: Option<Opening>,
}

impl Sessions {
    fn all(&self) -> Vec<Arc<Session>> {
        let further = self.further.iter().filter_map(Weak::upgrade);
        self.home.iter().cloned().chain(further).collect()
    }
}

/// Without an answer where the keeper's runtime has ended.
type Opening = Shared<oneshot::Receiver<Result<Arc<Session>>>>;

/// A pool that begins to close when this is dropped.
pub(crate) struct Closes<'a>(&'a Pool);

impl Drop for Closes<'_> {
    fn drop(&mut self) {
        self.0.begin_to_close();
    }
}

impl Pool {
    /// Opens the home session, and checks that the chroot is there.
    pub(crate) async fn open(access: Access) -> Result<Arc<Self>> {
        let (alive, all_gone) = mpsc::channel(1);
        let pool = Arc::new(Self {
            granted: Latch::new(access.session_timeout),
            access,
            runtime: Latch::new(Handle::current()),
            sessions: Latch::default(),
            closing: watch::Sender::new(false),
            has_ended: Arc::default(),
            // No caller has the pool before its first session is there.
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

    /// A session for reads.
    pub(crate) async fn home(
        self: &Arc<Self>,
        doing: &'static str,
        name: impl ToString,
    ) -> Result<Arc<Session>> {
        let room = self.reserve(Need::default(), doing).await;
        let room = room.map_err(|error| error.about(name))?;
        Ok(Arc::clone(room.session()))
    }

    /// To be kept through other waits before [`close`](Self::close): even if the caller is dropped
    /// in one of them, the pool begins to close.
    pub(crate) fn closes(&self) -> Closes<'_> {
        Closes(self)
    }

    fn begin_to_close(&self) {
        if !self.closing.send_replace(true) {
            // Also when there is no session, and so no monitor.
            self.events.send_replace(SessionEvent::Closed);
        }
    }

    /// The most that a close takes. Servers that were silent for a session timeout have ended the
    /// sessions themselves.
    pub(crate) fn close_timeout(&self) -> Duration {
        self.access.close_timeout.min(self.session_timeout())
    }

    /// Ends every session until then, after its janitor has finished.
    pub(crate) async fn close(&self, deadline: Instant) {
        self.begin_to_close();
        // They stay in the list, for another close if this one is dropped.
        let sessions = self.sessions.lock().all();
        let alive = self.alive.lock().take();
        drop(alive);
        join_all(sessions.iter().map(|session| session.close(deadline))).await;
        let home = self.sessions.lock().home.take();
        drop((sessions, home));
        // Sessions whose last place went a moment ago are no longer in the list, but their janitors
        // may still work.
        let all_gone = async { self.all_gone.lock().await.recv().await };
        if timeout_at(deadline, all_gone).await.is_err() {
            tracing::warn!("a janitor did not finish in time");
        }
    }

    /// The timeout that the servers grant.
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

    pub(crate) fn engine(&self) -> Engine {
        self.access.opener.engine()
    }

    pub(crate) fn is_closing(&self) -> bool {
        *self.closing.borrow()
    }

    /// Bytes that all sessions watch, or are about to.
    #[cfg(test)]
    pub(crate) fn watched_bytes(&self) -> usize {
        let all = self.sessions.lock().all();
        let watched = all.iter().map(|session| {
            session
                .watched_bytes
                .load(std::sync::atomic::Ordering::Relaxed)
        });
        watched.sum()
    }

    /// Whether servers read all of these in one request.
    pub(crate) fn check_size(&self, writes: &[Write<'_>]) -> Result<(), TooLarge> {
        size::check(self.access.opener.envelope().writes(writes))
    }

    /// Bytes of a path of so many below the chroot, where the client sends it among others.
    pub(crate) fn sent_len(&self, path: usize) -> usize {
        sent_len(self.access.opener.chroot().len(), path)
    }

    /// Room in a session that is there, or else the session that is being opened.
    fn room_or_opening(self: &Arc<Self>, need: Need) -> Result<Reservation, Opening> {
        // Dropped after the latch is open again: one of them may be the last of its session.
        let mut further = Vec::new();
        let mut sessions = self.sessions.lock();
        sessions
            .further
            .retain(|session| session.strong_count() > 0);
        further.extend(sessions.further.iter().filter_map(Weak::upgrade));
        let alive = sessions.home.iter().chain(&further);
        let mut alive = alive.filter(|session| session.end().is_none());
        if let Some(reservation) = alive.find_map(|session| Reservation::try_new(session, need)) {
            return Ok(reservation);
        }
        // A task that ended with its runtime opens nothing any more.
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
}
