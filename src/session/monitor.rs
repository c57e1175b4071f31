//! The monitor of a keeper's home session: reports its changes.
//!
//! Invariant: it keeps neither the keeper nor the session alive. It decides nothing about locks,
//! and the pool opens the next session.

use std::sync::Weak;

use tokio::sync::watch;

use super::Session;
use super::ending::End;
use crate::brief::shows;
use crate::error::{Error, Result};
use crate::link::SessionState;
use crate::session_id::SessionId;

/// A change of a keeper's session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SessionEvent {
    /// The session is connected.
    #[non_exhaustive]
    Connected {
        /// The session.
        session: SessionId,
    },
    /// The connection is lost. The servers keep the session for a while.
    #[non_exhaustive]
    Suspect {
        /// The session.
        session: SessionId,
    },
    /// The session ended, and all its tickets with it. The keeper opens the next session by itself.
    #[non_exhaustive]
    Over {
        /// The session.
        session: SessionId,
        /// How it ended.
        reason: &'static str,
    },
    /// The keeper was closed. This is the last event.
    Closed,
}

impl SessionEvent {
    fn of(session: SessionId, state: SessionState) -> Self {
        match state {
            SessionState::Connected => Self::Connected { session },
            SessionState::Disconnected => Self::Suspect { session },
            SessionState::Over(reason) => Self::Over { session, reason },
        }
    }

    /// The session of the event.
    fn session(self) -> Option<SessionId> {
        match self {
            Self::Connected { session } | Self::Suspect { session } => Some(session),
            Self::Over { session, .. } => Some(session),
            Self::Closed => None,
        }
    }
}

/// Follows a keeper's session, from [`Keeper::session_events`](crate::Keeper::session_events).
///
/// It works as a [`tokio::sync::watch`] receiver does. It knows the latest event, so a slow caller
/// misses events in between.
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
/// assert_eq!(events.changed().await?, SessionEvent::Closed);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct SessionEvents {
    events: watch::Receiver<SessionEvent>,
    seen: SessionEvent,
}

shows!(|events| SessionEvents {
    latest: events.borrow(),
});

impl SessionEvents {
    pub(super) fn new(mut events: watch::Receiver<SessionEvent>) -> Self {
        let seen = *events.borrow_and_update();
        Self { events, seen }
    }

    /// The latest event, also if it was not seen by [`changed`](Self::changed).
    pub fn borrow(&self) -> SessionEvent {
        match self.seen {
            SessionEvent::Closed => SessionEvent::Closed,
            _ => *self.events.borrow(),
        }
    }

    /// Waits for an event that was not seen yet, and gives it. Events before the call of
    /// [`session_events`](crate::Keeper::session_events) count as seen.
    ///
    /// The last event is [`SessionEvent::Closed`]. It also comes when the keeper and all its guards
    /// were dropped.
    ///
    /// # Errors
    ///
    /// [`is_closed`](Error::is_closed) once [`SessionEvent::Closed`] was seen.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: no event is lost.
    pub async fn changed(&mut self) -> Result<SessionEvent> {
        if self.seen == SessionEvent::Closed {
            return Err(Error::Closed {
                name: "the keeper".into(),
                doing: "follow the session of",
            });
        }
        self.seen = match self.events.changed().await {
            Ok(()) => *self.events.borrow_and_update(),
            Err(_) => SessionEvent::Closed,
        };
        Ok(self.seen)
    }
}

/// Reports the session's changes until it ends, and returns how. `None` if it was given up.
pub(super) async fn report(
    session: Weak<Session>,
    events: &watch::Sender<SessionEvent>,
) -> Option<&'static str> {
    let (id, ending, mut states) = {
        let session = session.upgrade()?;
        let (ending, states) = (session.ending.clone(), session.states.clone());
        (SessionId::from(session.id), ending, states)
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
