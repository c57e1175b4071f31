//! Futures that come to their end also when their caller is dropped, or polls them no more.
//!
//! Invariants: what has begun is polled to its end, by its caller or by a task, and never by both.
//! A call is polled by its caller, if that is in the right runtime. What has a turn that other
//! calls wait for is polled by a task: a caller may keep a call without polling it.

use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::future::poll_immediate;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::store::StoreResult;
use crate::error::StoreProblem;

/// A future of the caller's task. If it is dropped half-way, a task polls the rest.
struct FinishOnDrop<F>
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
    fn new(future: F) -> Self {
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

/// Waits for a turn that other calls wait for too, and then does some work with it. Dropped in the
/// wait, it does nothing; dropped later, the work goes on.
#[cfg_attr(
    not(any(
        feature = "memcached",
        feature = "mysql",
        feature = "postgres",
        feature = "redis"
    )),
    allow(dead_code)
)]
pub(crate) async fn in_turn<T, R, W>(
    turn: impl Future<Output = StoreResult<T>> + Send + 'static,
    work: impl FnOnce(T) -> W + Send + 'static,
) -> StoreResult<R>
where
    T: Send,
    R: Send + 'static,
    W: Future<Output = StoreResult<R>> + Send,
{
    let (mut caller, answer) = oneshot::channel();
    let mut all = Box::pin(async move {
        let turn = tokio::select! {
            biased;
            () = caller.closed() => return,
            turn = turn => turn,
        };
        let done = match turn {
            Ok(turn) => work(turn).await,
            Err(problem) => Err(problem),
        };
        // The caller may be gone.
        drop(caller.send(done));
    });
    // With the first poll it stands behind what was asked before.
    if poll_immediate(&mut all).await.is_none() {
        tokio::spawn(all);
    }
    answer.await.unwrap_or(Err(StoreProblem::NoAnswer))
}
