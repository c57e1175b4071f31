//! The monitor of a keeper's home session: it reports the session's events.
//!
//! Invariant: it keeps neither the keeper nor the session alive. It decides nothing about locks,
//! and the pool opens the next session.

use std::fmt;
use std::sync::Weak;

use tokio::sync::watch;

use super::Session;
use super::ending::End;
use crate::link::SessionState;

/// What became of a keeper's session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SessionEvent {
    /// It is connected.
    #[non_exhaustive]
    Connected {
        /// Its number, as the servers' `cons` shows it.
        session: i64,
    },
    /// The connection is lost. The session lives on at the servers for a while.
    #[non_exhaustive]
    Suspect {
        /// Its number.
        session: i64,
    },
    /// It is over, and with it every ticket that it held. The keeper opens another one by itself.
    #[non_exhaustive]
    Over {
        /// Its number.
        session: i64,
        /// How it ended.
        reason: &'static str,
    },
    /// The keeper was closed: nothing follows.
    Closed,
}

impl SessionEvent {
    fn of(session: i64, state: SessionState) -> Self {
        match state {
            SessionState::Connected => Self::Connected { session },
            SessionState::Disconnected => Self::Suspect { session },
            SessionState::Over(reason) => Self::Over { session, reason },
        }
    }

    /// The session of the event.
    fn session(self) -> Option<i64> {
        match self {
            Self::Connected { session } | Self::Suspect { session } => Some(session),
            Self::Over { session, .. } => Some(session),
            Self::Closed => None,
        }
    }
}

/// Follows a keeper's session, from [`Keeper::session_events`](crate::Keeper::session_events).
/// Works as a [`tokio::sync::watch`] receiver does: it knows the latest event, and whoever looks
/// seldom misses some in between.
///
/// # Examples
///
/// ```
/// # use lockkeeper::{Keeper, SessionEvent, embedded::EmbeddedServer};
/// # #[tokio::main]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = EmbeddedServer::start().await?;
/// let keeper = Keeper::connect(server.connect_string()).await?;
/// let mut events = keeper.session_events();
/// assert!(matches!(events.borrow(), SessionEvent::Connected { .. }));
/// keeper.close().await;
/// assert_eq!(events.changed().await, SessionEvent::Closed);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct SessionEvents(watch::Receiver<SessionEvent>);

impl fmt::Debug for SessionEvents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let latest = self.borrow();
        f.debug_struct("SessionEvents")
            .field("latest", &latest)
            .finish_non_exhaustive()
    }
}

impl SessionEvents {
    pub(super) fn new(events: watch::Receiver<SessionEvent>) -> Self {
        Self(events)
    }

    /// The latest event.
    pub fn borrow(&self) -> SessionEvent {
        *self.0.borrow()
    }

    /// Waits for an event that was not seen yet. After the keeper was closed it is
    /// [`SessionEvent::Closed`], at once and again and again; also after it and its guards were
    /// dropped.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: nothing is lost.
    pub async fn changed(&mut self) -> SessionEvent {
        let is_seen = !self.0.has_changed().unwrap_or_default();
        if is_seen && self.borrow() == SessionEvent::Closed {
            return SessionEvent::Closed;
        }
        match self.0.changed().await {
            Ok(()) => *self.0.borrow_and_update(),
            Err(_) => SessionEvent::Closed,
        }
    }
}

/// Reports a session's events until it is over, and then the reason. `None` if the session was
/// given up without an end.
pub(super) async fn report(
    session: Weak<Session>,
    events: &watch::Sender<SessionEvent>,
) -> Option<&'static str> {
    let (id, ending, mut states) = {
        let session = session.upgrade()?;
        (session.id(), session.ending(), session.states())
    };
    // The keeper may have been closed, or may have another session, before this task had its turn.
    let tell = |event: SessionEvent| {
        events.send_if_modified(|last| {
            let is_news = last.session() == Some(id) && *last != event;
            if is_news {
                *last = event;
            }
            is_news
        })
    };
    let end = loop {
        let event = SessionEvent::of(id, *states.borrow_and_update());
        if let Some(end) = ending.end() {
            break end;
        }
        tell(event);
        tokio::select! {
            end = ending.ended() => break end,
            changed = states.changed() => if changed.is_err() {
                return None;
            },
        }
    };
    match end {
        // It was given up, or there is another one.
        End::Over(_) if session.strong_count() == 0 => None,
        End::Over(reason) => {
            tell(SessionEvent::of(id, SessionState::Over(reason)));
            Some(reason)
        }
        End::Closed => {
            tell(SessionEvent::Closed);
            None
        }
    }
}
