//! A place in the queue of a mutex: a ticket that is created, and perhaps not yet granted.

use tracing::{Instrument, Span};

#[cfg(doc)]
use super::Mutex;
use crate::brief::{Brief, shows};
use crate::error::{Error, Result};
use crate::guard::Guard;
use crate::metrics::Waiting;
use crate::name::LockName;
use crate::queue::Waiter;
use crate::recipes::acquire::Acquirer;

/// A fixed place in the queue, from [`Mutex::enqueue`]. Its drop leaves the queue.
///
/// It ends with its session. Then each call fails with
/// [`is_session_over`](Error::is_session_over); only [`Mutex::lock`] joins the queue again.
///
/// # Examples
///
/// ```
/// # use lockkeeper::{Keeper, embedded::EmbeddedServer};
/// # #[tokio::main]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = EmbeddedServer::start().await?;
/// let keeper = Keeper::connect(server.connect_string()).await?;
/// let lock = keeper.mutex("orders/42")?;
/// let first = lock.lock().await?;
///
/// let mut place = lock.enqueue().await?;
/// assert_eq!(place.position().await?, 1);
/// first.release().await?;
/// let guard = place.granted().await?;
/// # drop(guard);
/// # keeper.close().await;
/// # Ok(())
/// # }
/// ```
#[must_use = "a place that is dropped leaves the queue"]
pub struct Place {
    /// `None` once it became a guard.
    pub(super) waiter: Option<(Waiter, Waiting)>,
    pub(super) acquirer: Acquirer,
    pub(super) span: Span,
}

shows!(|place| Place {
    name: place.name(),
    node: place
        .waiter
        .as_ref()
        .map(|(waiter, _)| Brief(waiter.node())),
});

impl Place {
    /// The lock's name.
    pub fn name(&self) -> &LockName {
        self.acquirer.name()
    }

    /// Waits for the lock. After it has returned a guard, the place is spent.
    ///
    /// # Errors
    ///
    /// As [`Mutex::lock`], but it never joins the queue again. [`Error::PlaceLost`] if the place is
    /// spent.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe, and the place stays ours. Call it again to go on waiting.
    pub async fn granted(&mut self) -> Result<Guard> {
        let span = self.span.clone();
        let entry = self.waiter()?.granted().instrument(span.clone()).await?;
        let (waiter, waiting) = self.waiter.take().ok_or_else(|| self.spent())?;
        waiting.granted();
        Ok(span.in_scope(|| Guard::new(self.acquirer.hold(waiter, entry))))
    }

    /// Waits until our place has moved up. If it is our turn, it returns at once, and
    /// [`granted`](Self::granted) does not have to wait.
    ///
    /// # Errors
    ///
    /// As [`granted`](Self::granted).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe, and the place stays ours.
    pub async fn advanced(&mut self) -> Result<()> {
        let span = self.span.clone();
        self.waiter()?.changed().instrument(span).await
    }

    /// The number of tickets before ours; 0 if it is our turn. It lists the whole queue, so it is
    /// for people, not for a loop.
    ///
    /// # Errors
    ///
    /// As [`granted`](Self::granted).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only reads.
    pub async fn position(&self) -> Result<usize> {
        let (waiter, _) = self.waiter.as_ref().ok_or_else(|| self.spent())?;
        Ok(waiter.ahead().await?.len())
    }

    fn waiter(&mut self) -> Result<&mut Waiter> {
        let spent = self.spent();
        let waiter = self.waiter.as_mut().ok_or(spent);
        waiter.map(|(waiter, _)| waiter)
    }

    fn spent(&self) -> Error {
        Error::place_lost(self.acquirer.name(), "it has become a guard already")
    }
}
