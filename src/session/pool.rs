//! The pool: the sessions of one keeper, with waiting places spread over them by watched bytes.
//!
//! The client crate loses a session that watches more than 128 KiB of paths (FAILURES.md row 52), so no session is given
//! more than half of that. Invariants: there is one home session for the keeper's life, opened again after it is over;
//! further sessions live only as long as places on them do. The pool never moves a place to another session.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use tokio::sync::{Mutex as AsyncMutex, mpsc, watch};
use tokio::time::timeout;
use tracing::Instrument;

use super::{End, Session};
use crate::error::{Error, Result};
use crate::link::{Code, Fault, Found, Link, Opener, Read, probe};

/// The most bytes of paths that one session watches.
pub(crate) const WATCHED_LIMIT: usize = 64 * 1024;

/// How to reach the servers.
#[derive(Debug, Clone)]
pub(crate) struct Access {
    pub(crate) opener: Arc<dyn Opener>,
    pub(crate) connect_timeout: Duration,
}

/// The sessions of one keeper.
#[derive(Debug)]
pub(crate) struct Pool {
    access: Access,
    sessions: Mutex<Sessions>,
    /// Held while a session is opened, so that a crowd opens one and not one each.
    opening: AsyncMutex<()>,
    closing: watch::Sender<bool>,
    /// Every janitor holds a sender; `close` waits until all are gone.
    alive: Mutex<Option<mpsc::Sender<()>>>,
    all_gone: AsyncMutex<mpsc::Receiver<()>>,
}

#[derive(Debug, Default)]
struct Sessions {
    home: Option<Arc<Session>>,
    further: Vec<Weak<Session>>,
}

/// A claim on some of a session's watched bytes; given back on drop.
#[derive(Debug)]
pub(crate) struct Reservation {
    session: Arc<Session>,
    bytes: usize,
}

impl Reservation {
    pub(crate) fn session(&self) -> &Arc<Session> {
        &self.session
    }

    fn try_new(session: &Arc<Session>, bytes: usize) -> Option<Self> {
        let fits = |watched: usize| {
            (watched == 0 || watched + bytes <= WATCHED_LIMIT).then_some(watched + bytes)
        };
        session
            .watched_bytes
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits)
            .ok()?;
        Some(Self {
            session: Arc::clone(session),
            bytes,
        })
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.session
            .watched_bytes
            .fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl Pool {
    /// Opens the home session and looks for the chroot.
    pub(crate) async fn open(access: Access) -> Result<Self> {
        let (alive, all_gone) = mpsc::channel(1);
        let pool = Self {
            access,
            sessions: Mutex::default(),
            opening: AsyncMutex::new(()),
            closing: watch::Sender::new(false),
            alive: Mutex::new(Some(alive)),
            all_gone: AsyncMutex::new(all_gone),
        };
        pool.open_session("connect").await?;
        Ok(pool)
    }

    /// Finds room for a path to be watched; opens another session when there is none.
    pub(crate) async fn reserve(
        &self,
        path_len: usize,
        doing: &'static str,
    ) -> Result<Reservation> {
        loop {
            if *self.closing.borrow() {
                return Err(End::Closed.while_trying(doing, "the keeper"));
            }
            if let Some(reservation) = self.try_reserve(path_len) {
                return Ok(reservation);
            }
            let _one_at_a_time = self.opening.lock().await;
            // Another caller may have opened one in the meantime.
            if let Some(reservation) = self.try_reserve(path_len) {
                return Ok(reservation);
            }
            let session = self.open_session(doing).await?;
            // The session lives only by its places, so take the first one before letting go of it.
            if let Some(reservation) = Reservation::try_new(&session, path_len) {
                return Ok(reservation);
            }
        }
    }

    /// A session to read with.
    pub(crate) async fn home(&self, doing: &'static str) -> Result<Arc<Session>> {
        Ok(Arc::clone(self.reserve(0, doing).await?.session()))
    }

    /// Ends every session; what the janitors were given is finished first. Ends within about `limit`.
    pub(crate) async fn close(&self, limit: Duration) {
        self.closing.send_replace(true);
        let sessions: Vec<Arc<Session>> = {
            let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
            let further: Vec<_> = sessions
                .further
                .drain(..)
                .filter_map(|session| session.upgrade())
                .collect();
            sessions.home.take().into_iter().chain(further).collect()
        };
        drop(
            self.alive
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .take(),
        );
        join_all(sessions.iter().map(|session| session.close(limit))).await;
        // Sessions whose last place went a moment ago are no longer in the list, but their janitors may still work.
        let mut all_gone = self.all_gone.lock().await;
        if timeout(limit, all_gone.recv()).await.is_err() {
            tracing::warn!("a janitor did not finish in time");
        }
    }

    /// The bytes that the chroot adds to each path at the server.
    pub(crate) fn chroot_len(&self) -> usize {
        self.access.opener.chroot().len()
    }

    fn try_reserve(&self, path_len: usize) -> Option<Reservation> {
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(home) = sessions.home.as_ref().filter(|home| home.end().is_none())
            && let Some(reservation) = Reservation::try_new(home, path_len)
        {
            return Some(reservation);
        }
        sessions
            .further
            .retain(|session| session.strong_count() > 0);
        let mut alive = sessions
            .further
            .iter()
            .filter_map(Weak::upgrade)
            .filter(|session| session.end().is_none());
        alive.find_map(|session| Reservation::try_new(&session, path_len))
    }

    async fn open_session(&self, doing: &'static str) -> Result<Arc<Session>> {
        let link = connect(&self.access).await?;
        let alive = self
            .alive
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        let Some(alive) = alive else {
            return Err(End::Closed.while_trying(doing, "the keeper"));
        };
        let session = Session::start(link, self.closing.subscribe(), alive);
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        match &sessions.home {
            Some(home) if home.end().is_none() => sessions.further.push(Arc::downgrade(&session)),
            _ => sessions.home = Some(Arc::clone(&session)),
        }
        Ok(session)
    }
}

/// Opens one session within the connect timeout, or says why each address gave none.
async fn connect(access: &Access) -> Result<Arc<dyn Link>> {
    let started = Instant::now();
    let limit = access.connect_timeout;
    let opener = Arc::clone(&access.opener);
    // A task of its own: dropped in the middle of its handshake, a session would stay at the server until it expires.
    // The rest of the time is for finding out what is wrong.
    let connecting = timeout(limit.mul_f32(0.6), async move { opener.open().await });
    match tokio::spawn(connecting.in_current_span()).await {
        Ok(Ok(Ok(link))) => look_for_chroot(link, access.opener.chroot()).await,
        failed => {
            tracing::debug!(?failed, "no session");
            let left = limit
                .saturating_sub(started.elapsed())
                .min(limit.mul_f32(0.35));
            let addresses = probe::probe(access.opener.servers(), left).await;
            Err(Error::Unreachable {
                addresses,
                waited: started.elapsed(),
            })
        }
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
    match looked.await {
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
