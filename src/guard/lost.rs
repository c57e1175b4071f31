//! The loss of a lock, as a future.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use futures_util::future::{BoxFuture, FutureExt, select_all};

use crate::brief::{Brief, shows};
use crate::error::Error;
use crate::name::LockName;
use crate::session::heartbeat::{Loss, LossWatch};

const HOLDING: &str = "hold";

/// The loss of a lock, as a future: see [`Guard::lost`](crate::Guard::lost).
#[must_use = "futures do nothing unless polled"]
pub struct Lost {
    entries: Vec<(LossWatch, LockName)>,
    waiting: Option<BoxFuture<'static, (Loss, LockName)>>,
    /// Once that is true, the hold is another guard's, and so is its loss.
    is_passed_on: Option<Arc<AtomicBool>>,
}

impl Lost {
    /// Of whatever is lost first.
    pub(crate) fn new(entries: Vec<(LossWatch, LockName)>) -> Self {
        Self {
            entries,
            waiting: None,
            is_passed_on: None,
        }
    }

    /// Never ends once that is true.
    pub(crate) fn unless(mut self, is_passed_on: Arc<AtomicBool>) -> Self {
        self.is_passed_on = Some(is_passed_on);
        self
    }

    /// The loss itself, with the name of the lock.
    pub(crate) fn loss(&self) -> BoxFuture<'static, (Loss, LockName)> {
        let each = self.entries.iter().cloned();
        let each =
            each.map(|(loss_watch, name)| async move { (loss_watch.lost().await, name) }.boxed());
        select_all(each).map(|(first, ..)| first).boxed()
    }
}

impl Future for Lost {
    type Output = Error;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Error> {
        let is_passed_on = self.is_passed_on.as_ref();
        if is_passed_on.is_some_and(|is| is.load(Ordering::Relaxed)) {
            return Poll::Pending;
        }
        // The clock is looked at each time, whatever woke us.
        for (loss_watch, name) in &self.entries {
            if let Some(loss) = loss_watch.loss() {
                return Poll::Ready(loss.while_trying(HOLDING, name));
            }
        }
        let mut waiting = self.waiting.take().unwrap_or_else(|| self.loss());
        let told = waiting.as_mut().poll(context);
        self.waiting = Some(waiting);
        told.map(|(loss, name)| loss.while_trying(HOLDING, name))
    }
}

impl Clone for Lost {
    fn clone(&self) -> Self {
        Self {
            entries: self.entries.clone(),
            waiting: None,
            is_passed_on: self.is_passed_on.clone(),
        }
    }
}

shows!(|lost| Lost {
    name: Brief(LockName::list(lost.entries.iter().map(|(_, name)| name))),
});
