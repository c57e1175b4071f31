//! Opens the sessions of a pool, and the next home session after the end of one.
//!
//! Invariant: a session that was opened is kept in the pool, or ended with its last reference. It
//! decides nothing about room.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{oneshot, watch};
use tokio::time::sleep;
use tracing::Instrument;

use super::Pool;
use crate::error::{Error, Result};
use crate::link::Link;
use crate::protocol::lease::Moment;
use crate::session::monitor::{self, SessionEvent};
use crate::session::setbacks::Setbacks;
use crate::session::{End, Session};

/// The pause between two tries to open a session when no call needs one.
const REOPEN_PAUSE: Duration = Duration::from_secs(1);

fn closed() -> Error {
    End::Closed.while_trying("open", "a session")
}

impl Pool {
    /// Opens a session in a task of the keeper's runtime. It is not lost with its first caller, and
    /// no handshake is dropped in the middle, which would leave a session at the server until it
    /// expires.
    ///
    /// In the runtime of a helper thread a session would end with that thread, and its guards with
    /// it. Only a keeper whose own runtime has ended goes on in that of its caller, with new
    /// sessions.
    pub(super) fn begin_opening(self: &Arc<Self>, opened: oneshot::Sender<Result<Arc<Session>>>) {
        let pool = Arc::clone(self);
        let open = async move {
            // All callers may have gone.
            opened.send(pool.open_session().await).ok();
        };
        self.runtime().spawn(open.in_current_span());
    }

    /// Moves to the caller's runtime if the keeper's own has ended, and with it all sessions.
    pub(super) async fn move_if_gone(&self) {
        let is_gone = self.runtime().spawn(async {}).await.is_err();
        if let (true, Ok(ours)) = (is_gone, Handle::try_current()) {
            *self.runtime.lock() = ours;
        }
    }

    /// How long to wait before another session is opened: longer each time that one did not last
    /// for its timeout. Otherwise, a server that ends each session at once would get the next one
    /// at once.
    fn pause_after_the_last(&self) -> Duration {
        let now = self.access.clock.now();
        let timeout = self.session_timeout();
        let mut sessions = self.sessions.lock();
        let is_over = |home: &Arc<Session>| home.end().is_some();
        let has_ended = self.has_ended.swap(false, Ordering::Relaxed);
        if !has_ended && !sessions.home.as_ref().is_some_and(is_over) {
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
        let is_first = self.sessions.lock().home.is_none();
        let connected = self.connect(is_first).await;
        let started = connected.and_then(|link| self.start(link, opening));
        let is_home = self.keep(started.as_ref().ok(), opening);
        let session = started?;
        if is_home? {
            self.report(&session);
        }
        Ok(session)
    }

    fn start(&self, link: Arc<dyn Link>, opening: Moment) -> Result<Arc<Session>> {
        *self.granted.lock() = link.session_timeout();
        let alive = self.alive.lock().clone();
        let (alive, closing) = (alive.ok_or_else(closed)?, self.closing.subscribe());
        let has_ended = Arc::clone(&self.has_ended);
        let access = &self.access;
        Ok(Session::start(
            link, access, opening, closing, alive, has_ended,
        ))
    }

    /// Keeps the session that was opened, if one was, and if the pool is not closing. Whether it is
    /// the home session.
    fn keep(&self, session: Option<&Arc<Session>>, opening: Moment) -> Result<bool> {
        let mut sessions = self.sessions.lock();
        let over = sessions.opening.take();
        // Read under the latch under which `close` lists the sessions: one of the two sees the
        // other.
        let is_closing = self.is_closing();
        let home = sessions.home.as_ref();
        let is_home = home.is_none_or(|home| home.end().is_some());
        let mut before = None;
        if session.is_some() {
            sessions.opened = opening;
        }
        match session.filter(|_| !is_closing) {
            Some(session) if is_home => {
                before = sessions.home.replace(Arc::clone(session));
            }
            Some(session) => sessions.further.push(Arc::downgrade(session)),
            None => {}
        }
        drop(sessions);
        drop((over, before));
        if is_closing {
            Err(closed())
        } else {
            Ok(is_home)
        }
    }

    /// Reports the events of the home session.
    fn report(self: &Arc<Self>, session: &Arc<Session>) {
        let connected = SessionEvent::Connected {
            session: session.id().into(),
        };
        self.events.send_if_modified(|event| {
            // Nothing follows the end of the keeper.
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

/// Follows one home session to its end, and opens the next one, which has a monitor of its own.
async fn follow(
    session: Weak<Session>,
    pool: Weak<Pool>,
    events: Arc<watch::Sender<SessionEvent>>,
) {
    let Some(end) = monitor::report(session, &events).await else {
        return;
    };
    tracing::info!(?end, "the keeper's session has ended");
    // The next call should not have to wait for a session, even if none needs one now.
    while let Some(pool) = pool.upgrade().filter(|pool| !pool.is_closing()) {
        match pool.home("open", "a session").await {
            Ok(_) => return,
            Err(error) => tracing::debug!(%error, "no session yet"),
        }
        drop(pool);
        sleep(REOPEN_PAUSE).await;
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::{Instant, timeout};

    use super::*;
    use crate::link::zookeeper::Target;
    use crate::session::clock::SystemClock;
    use crate::session::heartbeat::LeaseStrength;
    use crate::session::pool::{Access, Need};
    use zookeeper_embedded::EmbeddedServer;

    async fn open(server: &EmbeddedServer, timeouts: Duration) -> Arc<Pool> {
        let access = Access {
            opener: Arc::new(Target {
                servers: server.addr().to_string(),
                session_timeout: timeouts,
                ..Target::default()
            }),
            connect_timeout: timeouts,
            close_timeout: timeouts,
            session_timeout: timeouts,
            strength: LeaseStrength::Quorum,
            tick: None,
            clock: Arc::new(SystemClock),
            acls: Arc::default(),
        };
        Pool::open(access).await.unwrap()
    }

    /// Silent servers have ended the session by then.
    #[tokio::test]
    async fn a_close_takes_no_longer_than_the_session_timeout_that_was_granted() {
        let (least, most) = (Duration::from_secs(1), Duration::from_secs(3));
        let server = EmbeddedServer::builder().session_timeouts(least, most);
        let server = server.start().await.unwrap();

        let pool = open(&server, Duration::from_secs(10)).await;

        assert_eq!(pool.close_timeout(), most);
    }

    #[tokio::test]
    async fn further_sessions_that_end_at_once_are_opened_with_pauses() {
        let server = EmbeddedServer::start().await.unwrap();
        let timeouts = Duration::from_secs(10);
        let pool = open(&server, timeouts).await;
        let half = Need::to_watch(64 * 1024);
        let at_home = pool.reserve(half, "fill").await.unwrap();
        let (started, mut count) = (Instant::now(), 0);

        while started.elapsed() < Duration::from_secs(2) {
            let further = pool.reserve(half, "open").await.unwrap();
            let session = further.session();
            assert_ne!(session.id(), at_home.session().id());
            server.faults().expire_session(session.id());
            timeout(timeouts, session.ended()).await.unwrap();
            count += 1;
        }

        // After 0, 0, 5, 10, 20, 40, 80, 160, 320 and 500 ms, and then each half second.
        assert!((4..=14).contains(&count), "{count} sessions");
    }
}
