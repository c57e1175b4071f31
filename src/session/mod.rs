//! One ZooKeeper session: who we are to the server.
//!
//! It hands out the link, waits for the connection to come back, and says when the session is over. Invariant: what it
//! says of the end is final. It opens no other session in its place (the pool does) and knows nothing of queues.

pub(crate) mod janitor;
pub(crate) mod pool;

use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, timeout, timeout_at};

use crate::error::Error;
use crate::link::{Code, Fault, Link, Reply, SessionState};
use janitor::Janitor;

/// The longest pause between two tries of an operation whose outcome stays unknown.
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// Why nothing more can be done on a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// The session is over; its tickets are gone or will be removed by the server.
    Over(&'static str),
    /// The keeper was closed.
    Closed,
}

impl End {
    /// The error for a user who was doing something with a lock.
    pub(crate) fn while_trying(self, doing: &'static str, name: impl ToString) -> Error {
        let name = name.to_string();
        match self {
            Self::Over(reason) => Error::SessionOver {
                name,
                doing,
                reason,
            },
            Self::Closed => Error::Closed { name, doing },
        }
    }
}

/// Why an operation on a session gave no result.
#[derive(Debug, Clone)]
pub(crate) enum Failure {
    Answered(Code),
    Ended(End),
}

/// One session with its janitor.
#[derive(Debug)]
pub(crate) struct Session {
    /// Taken out by `close`, because the server's session lives until the last reference to the link is gone.
    link: Mutex<Option<Arc<dyn Link>>>,
    states: watch::Receiver<SessionState>,
    closing: watch::Receiver<bool>,
    pub(crate) janitor: Janitor,
    /// Bytes of paths that this session watches or is about to watch; the pool keeps it below its limit.
    watched_bytes: AtomicUsize,
    id: i64,
}

impl Session {
    /// Wraps a fresh link. The janitor's task ends when the session is dropped or closed, and drops `alive` then.
    pub(crate) fn start(
        link: Arc<dyn Link>,
        closing: watch::Receiver<bool>,
        alive: mpsc::Sender<()>,
    ) -> Arc<Self> {
        let id = link.session_id();
        tracing::info!(session = format_args!("{id:#x}"), "session begun");
        Arc::new(Self {
            states: link.states(),
            janitor: Janitor::start(Arc::clone(&link), alive),
            link: Mutex::new(Some(link)),
            closing,
            watched_bytes: AtomicUsize::new(0),
            id,
        })
    }

    pub(crate) fn id(&self) -> i64 {
        self.id
    }

    /// The link, unless the session is over or the keeper closed.
    pub(crate) fn link(&self) -> Result<Arc<dyn Link>, End> {
        if let Some(end) = self.end() {
            return Err(end);
        }
        let link = self.link.lock().unwrap_or_else(PoisonError::into_inner);
        link.clone().ok_or(End::Closed)
    }

    /// How the session ended, if it has.
    pub(crate) fn end(&self) -> Option<End> {
        if *self.closing.borrow() {
            return Some(End::Closed);
        }
        match *self.states.borrow() {
            SessionState::Over(reason) => Some(End::Over(reason)),
            _ => None,
        }
    }

    /// Waits until the session is over or the keeper closed.
    pub(crate) async fn ended(&self) -> End {
        let mut closing = self.closing.clone();
        let mut states = self.states.clone();
        tokio::select! {
            // A closed channel means that the keeper itself is gone; then only the session's own end counts.
            Ok(_) = closing.wait_for(|closing| *closing) => End::Closed,
            end = over(&mut states) => End::Over(end),
        }
    }

    /// Repeats a *read* until the server answers, through disconnects; ends when the session does.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost: a read has no effect, and a watch whose answer is dropped is taken back by the link.
    pub(crate) async fn read<T>(
        &self,
        send: impl for<'a> Fn(&'a dyn Link) -> Reply<'a, T> + Send + Sync,
    ) -> Result<T, Failure> {
        let mut pause = Duration::from_millis(5);
        loop {
            let link = self.link().map_err(Failure::Ended)?;
            let answer = tokio::select! {
                answer = send(&*link) => answer,
                end = self.ended() => return Err(Failure::Ended(end)),
            };
            drop(link);
            match answer {
                Ok(value) => return Ok(value),
                Err(Fault::Answered(Code::NotNow(why)) | Fault::Unknown(why)) => {
                    tracing::debug!(why, "read again")
                }
                Err(Fault::Answered(code)) => return Err(Failure::Answered(code)),
            }
            self.reconnected(pause).await.map_err(Failure::Ended)?;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Waits for the connection, with a pause if it is not seen to go.
    pub(crate) async fn reconnected(&self, pause: Duration) -> Result<(), End> {
        let mut states = self.states.clone();
        tokio::select! {
            result = reconnected(&mut states, pause) => result.map_err(End::Over),
            end = self.ended() => Err(end),
        }
    }

    /// Ends the session: the janitor finishes what it was given, then the server is told, all within `limit`.
    pub(crate) async fn close(&self, limit: Duration) {
        let mut states = self.states.clone();
        let deadline = Instant::now() + limit;
        let finished = timeout_at(deadline, self.janitor.finish()).await;
        // Whatever the janitor could not do, the end of the session does.
        self.janitor.abort();
        drop(
            self.link
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .take(),
        );
        let closed = timeout_at(deadline, over(&mut states)).await;
        if finished.is_err() || closed.is_err() {
            tracing::warn!(
                session = format_args!("{:#x}", self.id),
                "the session did not close in time"
            );
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        tracing::info!(session = format_args!("{:#x}", self.id), "session given up");
    }
}

/// Waits until the connection has gone and come back. That it has gone may be known a moment late, or it may not have gone
/// at all: then for this pause.
pub(crate) async fn reconnected(
    states: &mut watch::Receiver<SessionState>,
    pause: Duration,
) -> Result<(), &'static str> {
    let went = states.wait_for(|state| *state != SessionState::Connected);
    // Whichever it was, the state is looked at again.
    timeout(pause, went).await.map(drop).unwrap_or_default();
    connected(states).await
}

/// Waits until the client says that it is connected; `Err` with the reason when the session is over.
async fn connected(states: &mut watch::Receiver<SessionState>) -> Result<(), &'static str> {
    match states
        .wait_for(|state| *state != SessionState::Disconnected)
        .await
        .map(|state| *state)
    {
        Ok(SessionState::Over(reason)) => Err(reason),
        Ok(_) => Ok(()),
        Err(_) => Err("the client is gone"),
    }
}

async fn over(states: &mut watch::Receiver<SessionState>) -> &'static str {
    match states
        .wait_for(|state| matches!(state, SessionState::Over(_)))
        .await
        .map(|state| *state)
    {
        Ok(SessionState::Over(reason)) => reason,
        // The sender ends only after a final state, or with the runtime.
        _ => "the client is gone",
    }
}

/// The error for a server's answer that the algorithm cannot go on from.
pub(crate) fn refused(link: &dyn Link, doing: &'static str, path: &str, code: &Code) -> Error {
    let (path, servers) = (path.to_owned(), link.servers().to_owned());
    match code {
        Code::NoAuth => Error::Denied {
            doing,
            path,
            servers,
        },
        code => Error::Refused {
            doing,
            path,
            servers,
            why: code.to_string(),
        },
    }
}

/// The error for a failure while something was done with a lock.
pub(crate) fn failed(
    session: &Session,
    doing: &'static str,
    name: impl ToString,
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
