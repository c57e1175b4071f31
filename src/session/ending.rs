//! How a session ends: the client says that it is over, we renounce it, or the keeper is closed.
//!
//! Here are also the waits for the client's states. Invariant: an end is final. No session is ended
//! here.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::time::timeout;

use crate::error::Error;
use crate::link::SessionState;

/// Why nothing more can be done on a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// The session is over; its tickets are gone or will be removed by the server.
    Over(&'static str),
    /// The keeper was closed.
    Closed,
}

impl End {
    /// The error for the call that it interrupts.
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

pub(super) const ANOTHER_SESSION: &str = "the server has given us another session";
/// An end that was not told.
const GONE: End = End::Over("the client is gone");

/// Whether and how one session has ended.
#[derive(Debug, Clone)]
pub(crate) struct EndListener {
    states: watch::Receiver<SessionState>,
    closing: watch::Receiver<bool>,
    renounced: Arc<watch::Sender<Option<&'static str>>>,
    signal: Arc<EndSignal>,
}

/// No channel, whose receivers would be twice as large: a crowd waits for it.
#[derive(Debug, Default)]
struct EndSignal {
    is_sent: AtomicBool,
    told: Notify,
}

/// Tells all listeners of the end. If it is dropped before, they are told that the client is gone.
#[derive(Debug)]
pub(crate) struct EndNotifier(Arc<EndSignal>);

impl EndNotifier {
    /// Waits for the end and tells all listeners.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: call it again.
    pub(super) async fn notify(&self, ending: &EndListener) {
        let mut closing = ending.closing.clone();
        let mut states = ending.states.clone();
        let mut renounced = ending.renounced.subscribe();
        tokio::select! {
            // A closed channel means that the keeper itself is gone. Then only the session's own
            // end counts.
            Ok(_) = closing.wait_for(|closing| *closing) => {}
            Ok(_) = renounced.wait_for(Option::is_some) => {}
            _ = over(&mut states) => {}
        }
        self.0.send();
    }
}

impl Drop for EndNotifier {
    fn drop(&mut self) {
        self.0.send();
    }
}

impl EndSignal {
    fn send(&self) {
        self.is_sent.store(true, Ordering::Release);
        self.told.notify_waiters();
    }
}

impl EndListener {
    pub(super) fn new(
        states: watch::Receiver<SessionState>,
        closing: watch::Receiver<bool>,
    ) -> (Self, EndNotifier) {
        let signal = Arc::<EndSignal>::default();
        let end_notifier = EndNotifier(Arc::clone(&signal));
        let ending = Self {
            states,
            closing,
            renounced: Arc::new(watch::Sender::new(None)),
            signal,
        };
        (ending, end_notifier)
    }

    /// Ends the session on our side, even if the client still believes in it.
    pub(super) fn renounce(&self, reason: &'static str) {
        self.renounced
            .send_if_modified(|renounced| renounced.replace(reason).is_none());
    }

    /// Whether we have ended it. The client then still believes in it.
    pub(super) fn is_renounced(&self) -> bool {
        self.renounced.borrow().is_some()
    }

    /// How the session ended, if it has.
    pub(super) fn end(&self) -> Option<End> {
        // Read first: each end is set before its signal. A signal without an end means that the
        // heartbeat's task has ended with its runtime.
        let is_sent = self.signal.is_sent.load(Ordering::Acquire);
        if *self.closing.borrow() {
            return Some(End::Closed);
        }
        if let Some(reason) = *self.renounced.borrow() {
            return Some(End::Over(reason));
        }
        if let SessionState::Over(reason) = *self.states.borrow() {
            return Some(End::Over(reason));
        }
        is_sent.then_some(GONE)
    }

    /// Waits until the session is over or the keeper closed.
    pub(super) async fn ended(&self) -> End {
        // Made before the check, so that no signal is missed between the two.
        let told = self.signal.told.notified();
        if !self.signal.is_sent.load(Ordering::Acquire) {
            told.await;
        }
        self.end().unwrap_or(GONE)
    }
}

/// Waits until the client says that the session is over.
pub(super) async fn over(states: &mut watch::Receiver<SessionState>) {
    // An error means that the client is gone with its runtime.
    states
        .wait_for(|state| matches!(state, SessionState::Over(_)))
        .await
        .map(drop)
        .ok();
}

/// Waits until the connection has gone and come back. The client may learn late that it has gone,
/// or it may not have gone at all: then for this pause. `Err` with the reason when the session is
/// over.
pub(super) async fn reconnected(
    states: &mut watch::Receiver<SessionState>,
    pause: Duration,
) -> Result<(), &'static str> {
    let went = states.wait_for(|state| *state != SessionState::Connected);
    // In each case the state is read again.
    timeout(pause, went).await.map(drop).unwrap_or_default();
    let is_known = |state: &SessionState| *state != SessionState::Disconnected;
    match states.wait_for(is_known).await.map(|state| *state) {
        Ok(SessionState::Over(reason)) => Err(reason),
        Ok(_) => Ok(()),
        Err(_) => Err("the client is gone"),
    }
}
