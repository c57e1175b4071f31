//! Futures that their caller polls, and that come to their end also when the caller is dropped.
//!
//! Invariants: what has begun is polled to its end, by its caller or by a task, and never by both.
//! While the caller is there, and in the right runtime, it needs no task of its own.

use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::runtime::Handle;
use tokio::task::JoinHandle;

/// A future of the caller's task. If it is dropped half-way, a task polls the rest.
pub(crate) struct FinishOnDrop<F>
where
    F: Future<Output: Send> + Send + 'static,
{
    /// None when it has ended.
    rest: Option<Pin<Box<F>>>,
    runtime: Handle,
}

impl<F> FinishOnDrop<F>
where
    F: Future<Output: Send> + Send + 'static,
{
    /// Its rest would run in the current runtime. It must be polled at once.
    pub(crate) fn new(future: F) -> Self {
        Self {
            rest: Some(Box::pin(future)),
            runtime: Handle::current(),
        }
    }
}

impl<F> Future for FinishOnDrop<F>
where
    F: Future<Output: Send> + Send + 'static,
{
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        // It is not there after a panic, when nothing could be polled again.
        let Some(mut rest) = self.rest.take() else {
            return Poll::Pending;
        };
        let polled = rest.as_mut().poll(context);
        if polled.is_pending() {
            self.rest = Some(rest);
        }
        polled
    }
}

impl<F> Drop for FinishOnDrop<F>
where
    F: Future<Output: Send> + Send + 'static,
{
    fn drop(&mut self) {
        if let Some(rest) = self.rest.take() {
            self.runtime.spawn(async move { drop(rest.await) });
        }
    }
}

/// Runs a future in a runtime: in the caller's own task if that is there, and in one of its own
/// otherwise. Dropped, it goes on. `None` if the runtime ends before.
pub(crate) async fn finish_in<T: Send + 'static>(
    runtime: &Handle,
    future: impl Future<Output = T> + Send + 'static,
) -> Option<T> {
    let is_here = Handle::try_current().is_ok_and(|here| here.id() == runtime.id());
    if is_here {
        return Some(FinishOnDrop::new(future).await);
    }
    let there: JoinHandle<T> = runtime.spawn(future);
    there.await.ok()
}
