//! The election: an exclusive ticket with a value. `guard/proclaim.rs` publishes the values of
//! leaders, and `queue/observe.rs` follows them.

mod leadership;

pub use leadership::Leadership;

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use crate::brief::shows;
#[cfg(doc)]
use crate::error::Error;
use crate::error::Result;
use crate::guard::hold::Hold;
use crate::name::LockName;
use crate::protocol::leader::Leader;
use crate::queue::entry::QueueEntry;
use crate::queue::observe::Observer;
use crate::recipes::acquire::Acquirer;
use crate::recipes::options::option_methods;

/// An election: one of the candidates leads at a time, in the order in which they came.
///
/// A candidate has a value, its address for example. All clients can read the value of the leader,
/// and the leader can change it ([`Leadership::proclaim`]). Other clients follow the leaders as
/// observers ([`observe`](Self::observe)).
///
/// It has no state and does no I/O by itself: make one from a [`Keeper`](crate::Keeper), clone it,
/// share it. Its queue has the guarantees and the costs of a [`Mutex`](crate::Mutex): when a leader
/// resigns, the next one sends one small read, and no other candidate is woken. Curator's
/// `LeaderLatch` on the same path takes part, with its id as its value.
///
/// An election is not reentrant: a leader that campaigns again waits for itself.
///
/// # Examples
///
/// ```
/// # use lockkeeper::{Keeper, embedded::EmbeddedServer};
/// # #[tokio::main]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = EmbeddedServer::start().await?;
/// let keeper = Keeper::connect(server.connect_string()).await?;
/// let election = keeper.election("scheduler")?;
/// let leadership = election.campaign("10.0.0.7:80").await?; // waits until we lead
/// let leader = election.leader().await?.ok_or("somebody leads")?;
/// assert_eq!((leader.value.as_str(), leader.token), ("10.0.0.7:80", leadership.token()));
/// leadership.resign().await?;
/// # keeper.close().await;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Election {
    acquirer: Acquirer,
}

shows!(|election| Election {
    name: election.name(),
});

option_methods!(Election, |election| [&mut election.acquirer]);

impl Election {
    pub(crate) fn new(acquirer: Acquirer) -> Self {
        Self { acquirer }
    }

    /// The election's name.
    pub fn name(&self) -> &LockName {
        self.acquirer.name()
    }

    /// Waits for the leadership with a value of at most 64 KiB, without a limit of time. It waits
    /// through disconnects. If the session ends, it joins the queue again at its end, unless
    /// [`with_rejoin`](Self::with_rejoin) forbids that. The value is written once, into our ticket.
    ///
    /// # Errors
    ///
    /// [`is_invalid`](Error::is_invalid) if the value or the label is too long; nothing was sent.
    /// Otherwise as [`Mutex::lock`](crate::Mutex::lock).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: dropped at any await, our ticket leaves the queue in the background, and blocks
    /// no other candidate. The place in the queue is lost.
    pub async fn campaign(&self, value: impl Into<String>) -> Result<Leadership> {
        // On the heap, so that a candidate's future is about as small as a waiter's.
        let acquirer = Box::new(self.candidate_with(value.into()));
        let hold = acquirer.lock().await?;
        Ok(Self::won(hold))
    }

    /// Takes the leadership if there is no leader and no candidate. It reads first, and otherwise
    /// writes nothing.
    ///
    /// # Errors
    ///
    /// As [`campaign`](Self::campaign). If the lock is not free, it is `Ok(None)`.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: dropped at any await, nothing is left in the queue.
    pub async fn try_campaign(&self, value: impl Into<String>) -> Result<Option<Leadership>> {
        let acquirer = self.candidate_with(value.into());
        let hold = acquirer.try_lock().await?;
        Ok(hold.map(Self::won))
    }

    /// Waits for the leadership for at most `limit`. Then our ticket leaves the queue, and the call
    /// returns within 100 ms, even if every server is dead.
    ///
    /// # Errors
    ///
    /// [`is_timeout`](Error::is_timeout) when the time is over, otherwise as
    /// [`campaign`](Self::campaign).
    ///
    /// # Cancel safety
    ///
    /// As [`campaign`](Self::campaign).
    pub async fn campaign_timeout(
        &self,
        value: impl Into<String>,
        limit: Duration,
    ) -> Result<Leadership> {
        self.acquirer.within(limit, self.campaign(value)).await
    }

    /// Leads again and again. It campaigns, calls `f` with the leadership, and resigns when the
    /// future of `f` has ended. With [`Continue`](ControlFlow::Continue) it campaigns again, at the
    /// end of the queue. With [`Break`](ControlFlow::Break) it returns.
    ///
    /// `f` is an `async fn` or an async closure, which may change what it owns. In a future that is
    /// sent to another thread, as by `tokio::spawn`, a closure may not borrow: write `async move`.
    /// Otherwise the compiler finds `Send` "not general enough".
    ///
    /// It resigns only after the future has ended, so there are never two of them. If the
    /// leadership is lost, the future must end: it watches [`Leadership::lost`], or works in
    /// [`Leadership::run`]. It borrows the leadership and cannot keep it.
    ///
    /// # Errors
    ///
    /// As [`campaign`](Self::campaign). A lost leadership is no error. [`Error::Denied`] if we may
    /// not resign any more, and `f` says `Continue`.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: dropped at any await, it drops the future of `f` first, and then resigns in the
    /// background.
    ///
    /// # Examples
    ///
    /// ```
    /// # use lockkeeper::{Keeper, embedded::EmbeddedServer};
    /// use std::ops::ControlFlow::{Break, Continue};
    ///
    /// # async fn work() {}
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = EmbeddedServer::start().await?;
    /// let keeper = Keeper::connect(server.connect_string()).await?;
    /// let election = keeper.election("scheduler")?;
    /// let token = election
    ///     .lead("10.0.0.7:80", async move |leadership| match leadership.run(work()).await {
    ///         Ok(()) => Break(leadership.token()),
    ///         Err(_lost) => Continue(()),
    ///     })
    ///     .await?;
    /// # println!("{token}");
    /// # keeper.close().await;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn lead<T, F>(&self, value: impl Into<String>, mut f: F) -> Result<T>
    where
        F: AsyncFnMut(&Leadership) -> ControlFlow<T>,
    {
        let value = value.into();
        loop {
            let leadership = self.campaign(value.as_str()).await?;
            let verdict = f(&leadership).await;
            let resigned = leadership.resign().await;
            match (verdict, resigned) {
                // The work is done, even if the leadership was lost meanwhile.
                (ControlFlow::Break(value), _) => return Ok(value),
                // We would wait for ever behind our own ticket.
                (ControlFlow::Continue(()), Err(error)) if !error.is_lost() => return Err(error),
                // The caller is not told.
                (ControlFlow::Continue(()), Err(lost)) => tracing::info!(%lost, "leadership lost"),
                (ControlFlow::Continue(()), Ok(())) => {}
            }
        }
    }

    /// The leader now: the first candidate, which leads or is about to. The answer may be a moment
    /// old.
    ///
    /// # Errors
    ///
    /// [`is_lost`](Error::is_lost) if the session ended; [`Error::Unreachable`] if another one
    /// cannot be opened. [`Error::Denied`] or [`Error::Refused`] if the servers refuse the read.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only reads.
    pub async fn leader(&self) -> Result<Option<Leader>> {
        self.acquirer.queue.leader().await
    }

    /// All candidates, in order. The first one leads, or is about to. Each has its first value; for
    /// the proclaimed value of the leader, ask [`leader`](Self::leader).
    ///
    /// # Errors
    ///
    /// As [`leader`](Self::leader).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only reads.
    pub async fn participants(&self) -> Result<Vec<QueueEntry>> {
        self.acquirer.queue.entries().await
    }

    /// Follows the leaders. No I/O until the observer is asked.
    pub fn observe(&self) -> Observer {
        Observer::new(self.acquirer.queue.clone())
    }

    fn candidate_with(&self, value: String) -> Acquirer {
        let mut acquirer = self.acquirer.clone();
        acquirer.queue.line().value = Some(value);
        acquirer
    }

    fn won(hold: Arc<Hold>) -> Leadership {
        let leadership = Leadership { hold };
        tracing::info!(
            name = leadership.name().as_str(),
            token = u64::from(leadership.token()),
            "leadership won"
        );
        leadership
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_futures_of_an_election_are_small() {
        let server = zookeeper_embedded::EmbeddedServer::start().await.unwrap();
        let keeper = crate::Keeper::connect(server.connect_string())
            .await
            .unwrap();
        let election = keeper.election("small").unwrap();
        let mut observer = election.observe();

        let campaign = size_of_val(&election.campaign("value"));
        let changed = size_of_val(&observer.changed());

        assert!(campaign <= 1152 && changed <= 1024, "{campaign} {changed}");
    }

    #[test]
    fn what_an_election_gives_can_cross_threads() {
        fn check<T: Send + Sync + 'static>() {}
        fn clones<T: Clone>() {}

        check::<Election>();
        check::<Leadership>();
        check::<Observer>();
        check::<Leader>();
        clones::<Election>();
    }
}
