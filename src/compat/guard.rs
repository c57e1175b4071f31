//! The guard of a plain lock.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::finish::finish_in;
use super::hold::PlainHold;
#[cfg(any(feature = "mysql", feature = "postgres"))]
use super::store::failed;
use super::store::{FencedStore, PlainStore};
use crate::brief::Brief;
#[cfg(any(feature = "mysql", feature = "postgres"))]
use crate::error::StoreProblem;
use crate::error::{Error, Result};
use crate::guard::hold::GuardState;
use crate::token::Token;

/// A held plain lock.
///
/// Drop it to release in the background, or [`release`](Self::release) it to wait for the answer.
///
/// # What it promises
///
/// Its lease ends nine tenths of the ttl after the sending of the last renewal that the store
/// confirmed. It is renewed three times in each ttl. The lease needs only this machine's clock, and
/// no packet. While the store keeps its promise to keep a lock for its ttl, the guard is lost
/// before another client can hold. The pages of each lock say when a store breaks that promise.
///
/// All this is advice, as for a [`Guard`](crate::Guard). A process can check its guard, pause, and
/// write after losing the lock. Only a resource that compares tokens refuses such a write, and only
/// [`FencedStore`] stores have one.
#[must_use = "the lock is released when the guard is dropped"]
#[clippy::has_significant_drop]
pub struct PlainGuard<S: PlainStore + ?Sized> {
    hold: Option<Arc<PlainHold<S>>>,
}

impl<S: PlainStore + ?Sized> PlainGuard<S> {
    pub(super) fn new(hold: Arc<PlainHold<S>>) -> Self {
        Self { hold: Some(hold) }
    }

    fn hold(&self) -> &Arc<PlainHold<S>> {
        match &self.hold {
            Some(hold) => hold,
            // It is taken by `release` and `drop` only, which have the guard.
            None => unreachable!("a guard has its hold"),
        }
    }

    /// The lock's name.
    pub fn name(&self) -> &str {
        &self.hold().attempt.name
    }

    /// What the store compares before it renews or frees the lock. Another program that knows it
    /// can free the lock.
    pub fn secret(&self) -> &str {
        &self.hold().attempt.secret
    }

    /// Whether the lock is still ours. It looks at the clock, so a process that was paused learns
    /// of a loss before it acts. It sends nothing.
    pub fn is_held(&self) -> bool {
        self.hold().loss().is_none()
    }

    /// The rest of the lease: the lock is ours for so long without any answer of the store. It is
    /// zero once the lock is lost.
    pub fn valid_for(&self) -> Duration {
        self.hold().valid_for()
    }

    /// The state of the hold. It is [`Suspect`](GuardState::Suspect) after a renewal that was not
    /// answered.
    pub fn state(&self) -> GuardState {
        let hold = self.hold();
        if hold.loss().is_some() {
            GuardState::Lost
        } else if hold.is_suspect() {
            GuardState::Suspect
        } else {
            GuardState::Held
        }
    }

    /// Ends when the lock is lost, with the reason: an error for which
    /// [`is_lost`](Error::is_lost) is true. It does not keep the lock. If the guard is released or
    /// dropped without a loss, it never ends.
    pub fn lost(&self) -> impl Future<Output = Error> + Send + 'static + use<S> {
        let hold = Arc::clone(self.hold());
        async move {
            let loss = hold.lost().await;
            hold.error(loss)
        }
    }

    /// Does some work while the lock is ours. If the lock is lost, it drops the work at its next
    /// await.
    ///
    /// # Errors
    ///
    /// [`is_lost`](Error::is_lost) if the lock was lost before the work had ended.
    ///
    /// # Cancel safety
    ///
    /// As cancel safe as the work.
    pub async fn run<T>(&self, work: impl Future<Output = T>) -> Result<T> {
        let hold = self.hold();
        let done = tokio::select! {
            // The loss first: after a pause of the process both are ready.
            biased;
            loss = hold.lost() => return Err(hold.error(loss)),
            done = work => done,
        };
        // The pause may have been in the middle of the work's last step.
        hold.loss().map_or(Ok(done), |loss| Err(hold.error(loss)))
    }

    /// Asks the store whether the lock is ours, and renews it. It waits through lost connections
    /// until the lease ends.
    ///
    /// # Errors
    ///
    /// [`is_lost`](Error::is_lost). [`Error::Store`] if the store refuses the request.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub async fn check(&self) -> Result<()> {
        let hold = self.hold();
        let checked = finish_in(&hold.runtime, Arc::clone(hold).check());
        tokio::select! {
            biased;
            loss = hold.lost() => Err(hold.error(loss)),
            checked = checked => checked.unwrap_or_else(|| Err(hold.runtime_ends())),
        }
    }

    /// Releases the lock and waits until the store has confirmed that. It sends one request.
    ///
    /// # Errors
    ///
    /// [`is_lost`](Error::is_lost) if the hold had ended, or ends before the store confirms the
    /// release. A lock that is another client's is not touched.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: dropped at any await, the release goes on in the background.
    pub async fn release(mut self) -> Result<()> {
        let Some(hold) = self.hold.take() else {
            return Ok(());
        };
        let released = finish_in(&hold.runtime, Arc::clone(&hold).release()).await;
        released.unwrap_or_else(|| Err(hold.runtime_ends()))
    }

    /// What the locks of a store need to do more with a hold.
    #[cfg(any(feature = "mysql", feature = "postgres"))]
    pub(super) fn store(&self) -> &S {
        &self.hold().store
    }

    /// Does some work in the hold's runtime, to its end.
    #[cfg(any(feature = "mysql", feature = "postgres"))]
    pub(super) async fn finish<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<T> {
        let hold = self.hold();
        let finished = finish_in(&hold.runtime, work).await;
        finished.ok_or_else(|| hold.runtime_ends())
    }

    /// The error of a call for this hold.
    #[cfg(any(feature = "mysql", feature = "postgres"))]
    pub(super) fn failed(&self, doing: &'static str, problem: StoreProblem) -> Error {
        failed(self.store(), doing, self.name(), problem)
    }

    /// The number of this grant, where the kind of lock has one.
    pub fn token_if_any(&self) -> Option<Token> {
        self.hold().token
    }
}

impl<S: FencedStore> PlainGuard<S> {
    /// The number of this grant, for the resource that the lock protects. It is greater than those
    /// of earlier grants, while the store keeps its data.
    pub fn token(&self) -> Token {
        // A store that is `FencedStore` gives one with each grant.
        self.hold().token.unwrap_or_else(|| Token::from(0))
    }
}

impl<S: PlainStore + ?Sized> Drop for PlainGuard<S> {
    fn drop(&mut self) {
        if let Some(hold) = self.hold.take() {
            hold.free();
        }
    }
}

impl<S: PlainStore + ?Sized> fmt::Debug for PlainGuard<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PlainGuard")
            .field("name", &Brief(self.name()))
            .field("state", &self.state())
            .finish_non_exhaustive()
    }
}
