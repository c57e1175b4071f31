//! How a session ends: the client says that it is over, we renounce it, or the keeper is closed.
//!
//! Invariant: an end is final. It ends nothing itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::{Notify, watch};

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

/// An end that nobody told of.
const GONE: End = End::Over("the client is gone");

/// Whether and how one session has ended.
#[derive(Debug, Clone)]
pub(crate) struct EndListener {
    states: watch::Receiver<SessionState>,
    closing: watch::Receiver<bool>,
    renounced: Arc<watch::Sender<Option<&'static str>>>,
    cry: Arc<Cry>,
}

/// What the end_notifier cries. No channel, whose receivers would be twice as large: a crowd waits
/// for it.
#[derive(Debug, Default)]
struct Cry {
    /// Told, or nobody is left to tell.
    is_out: AtomicBool,
    /// Nobody is left to tell.
    is_gone: AtomicBool,
    told: Notify,
}

/// Whoever tells all others of the end; without it they are told that the client is gone.
#[derive(Debug)]
pub(crate) struct EndNotifier(Arc<Cry>);

impl EndNotifier {
    /// Waits for the end and tells everybody.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: call it again.
    pub(super) async fn cry(&self, ending: &EndListener) {
        let mut closing = ending.closing.clone();
        let mut states = ending.states.clone();
        let mut renounced = ending.renounced.subscribe();
        tokio::select! {
            // A closed channel means that the keeper itself is gone; then only the session's own
            // end counts.
            Ok(_) = closing.wait_for(|closing| *closing) => {}
            Ok(_) = renounced.wait_for(Option::is_some) => {}
            _ = over(&mut states) => {}
        }
        self.0.cry();
    }
}

impl Drop for EndNotifier {
    fn drop(&mut self) {
        self.0.is_gone.store(true, Ordering::Release);
        self.0.cry();
    }
}

impl Cry {
    fn cry(&self) {
        self.is_out.store(true, Ordering::Release);
        self.told.notify_waiters();
    }
}

impl EndListener {
    pub(super) fn new(
        states: watch::Receiver<SessionState>,
        closing: watch::Receiver<bool>,
    ) -> (Self, EndNotifier) {
        let cry = Arc::<Cry>::default();
        let end_notifier = EndNotifier(Arc::clone(&cry));
        let ending = Self {
            states,
            closing,
            renounced: Arc::new(watch::Sender::new(None)),
            cry,
        };
        (ending, end_notifier)
    }

    /// Ends the session on our side, whatever the client believes.
    pub(super) fn renounce(&self, reason: &'static str) {
        self.renounced
            .send_if_modified(|renounced| renounced.replace(reason).is_none());
    }

    /// Whether it was we who ended it. The client then still believes in it.
    pub(super) fn is_renounced(&self) -> bool {
        self.renounced.borrow().is_some()
    }

    /// How the session ended, if it has.
    pub(super) fn end(&self) -> Option<End> {
        if *self.closing.borrow() {
            return Some(End::Closed);
        }
        if let Some(reason) = *self.renounced.borrow() {
            return Some(End::Over(reason));
        }
        if let SessionState::Over(reason) = *self.states.borrow() {
            return Some(End::Over(reason));
        }
        // Without its task, which ended with its runtime, nobody keeps the session alive.
        self.cry.is_gone.load(Ordering::Acquire).then_some(GONE)
    }

    /// Waits until the session is over or the keeper closed.
    pub(super) async fn ended(&self) -> End {
        // Made before the look, so that no cry falls between the two.
        let told = self.cry.told.notified();
        if !self.cry.is_out.load(Ordering::Acquire) {
            told.await;
        }
        self.end_or_gone()
    }

    fn end_or_gone(&self) -> End {
        self.end().unwrap_or(GONE)
    }
}

/// Waits until the client says that the session is over.
pub(super) async fn over(states: &mut watch::Receiver<SessionState>) {
    // An error means that the client is gone without a word, with its runtime.
    states
        .wait_for(|state| matches!(state, SessionState::Over(_)))
        .await
        .map(drop)
        .ok();
}
