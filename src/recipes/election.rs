//! The election: an exclusive ticket with a value. A thin layer over the queue, as the mutex; what
//! a leader publishes, and who follows it, are elsewhere.

use std::fmt;
use std::future::Future;
use std::ops::ControlFlow;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

#[cfg(doc)]
use crate::error::Error;
use crate::error::Result;
use crate::guard::fenced::Fenced;
use crate::guard::hold::{GuardState, Hold};
use crate::guard::lost::Lost;
use crate::guard::proclaim;
use crate::guard::{exclusive_methods, guard_methods, place_methods};
use crate::name::LockName;
use crate::owner::Owner;
use crate::protocol::leader::Leader;
use crate::queue::observe::Observer;
use crate::queue::view::QueueEntry;
use crate::recipes::acquire::Acquirer;
use crate::token::Token;

/// An election: of those who stand, one leads at a time, in the order in which they came.
///
/// Who stands has a value, its address say, which everybody can read while it leads, and which it
/// can change ([`Leadership::proclaim`]). Others follow the leaders without standing
/// ([`observe`](Self::observe)).
///
/// It holds no state and does no I/O until asked: make one from a [`Keeper`](crate::Keeper), clone
/// it, share it. It stands in the same kind of queue as a [`Mutex`](crate::Mutex), with the same
/// guarantees and the same costs: a leader that resigns costs the next one a single small read, and
/// wakes nobody else. Curator's `LeaderLatch` on the same path takes part in it, with its id for a
/// value.
///
/// A candidate is not reentrant: standing again while we lead waits behind ourselves.
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

impl fmt::Debug for Election {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Election")
            .field("name", &self.name())
            .finish_non_exhaustive()
    }
}

impl Election {
    pub(crate) fn new(acquirer: Acquirer) -> Self {
        Self { acquirer }
    }

    /// The election's name.
    pub fn name(&self) -> &LockName {
        self.acquirer.name()
    }

    /// As [`Mutex::with_label`](crate::Mutex::with_label).
    #[must_use]
    pub fn with_label(mut self, label: impl Into<String>) -> Self {
        self.acquirer.queue.set_label(label.into());
        self
    }

    /// As [`Mutex::with_trace_id`](crate::Mutex::with_trace_id).
    #[must_use]
    pub fn with_trace_id(mut self, trace_id: impl Into<String>) -> Self {
        self.acquirer.queue.set_trace(trace_id.into());
        self
    }

    /// As [`Mutex::with_class`](crate::Mutex::with_class).
    #[must_use]
    pub fn with_class(mut self, class: &'static str) -> Self {
        self.acquirer.set_class(class);
        self
    }

    /// Makes calls fail with [`is_session_over`](Error::is_session_over) when the session ends
    /// while they wait. Otherwise they stand again, at the end of the queue, with the keeper's next
    /// session.
    #[must_use]
    pub fn without_rejoin(mut self) -> Self {
        self.acquirer.never_rejoin();
        self
    }

    /// Stands with a value, of at most 64 KiB, and waits until we lead, however long that takes:
    /// through disconnects and also, unless [`without_rejoin`](Self::without_rejoin) says
    /// otherwise, through the end of the session, which costs the place in the queue. The value is
    /// written once, into our ticket.
    ///
    /// # Errors
    ///
    /// [`is_invalid`](Error::is_invalid) if the value or the label is too long; nothing was sent.
    /// Otherwise as [`Mutex::lock`](crate::Mutex::lock).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: dropped at any await, we stand no more, and nobody is blocked. The place in the
    /// queue is lost.
    pub async fn campaign(&self, value: impl Into<String>) -> Result<Leadership> {
        // On the heap, so that a candidate's future is about as small as a waiter's.
        let acquirer = Box::new(self.standing_with(value.into()));
        let hold = acquirer.lock().await?;
        Ok(Self::won(hold))
    }

    /// Leads if nobody leads or stands. Reads first: while somebody does, it writes nothing.
    ///
    /// # Errors
    ///
    /// As [`campaign`](Self::campaign). "Not now" is `Ok(None)`.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: dropped at any await, nothing is left in the queue.
    pub async fn try_campaign(&self, value: impl Into<String>) -> Result<Option<Leadership>> {
        let acquirer = self.standing_with(value.into());
        let hold = acquirer.try_lock().await?;
        Ok(hold.map(Self::won))
    }

    /// Stands for at most `limit`. Then we stand no more, and the call returns within 100 ms, even
    /// with every server dead.
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

    /// Leads again and again: stands, calls `f` each time we are elected, and resigns when what `f`
    /// returned has ended. Then, if that was [`Continue`](ControlFlow::Continue), it stands again,
    /// at the end of the queue; [`Break`](ControlFlow::Break) ends the call.
    ///
    /// Leadership is given away only after `f` has ended, and there is never a second `f` before.
    /// So `f` must end when leadership is lost: it watches [`Leadership::lost`], or does its work
    /// in [`Leadership::run`]. Until it has ended, we do not stand again. `f` borrows the
    /// leadership and cannot keep it.
    ///
    /// # Errors
    ///
    /// As [`campaign`](Self::campaign), of the standing; a lost leadership is no error, but a
    /// reason to stand again if `f` says so. [`Error::Denied`] if our permission to resign was
    /// taken away and `f` wants to stand again.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: dropped at any await, what `f` returned is dropped first, and then leadership
    /// is given away in the background.
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
    ///     .lead("10.0.0.7:80", |leadership| {
    ///         Box::pin(async move {
    ///             match leadership.run(work()).await {
    ///                 Ok(()) => Break(leadership.token()),
    ///                 Err(_lost) => Continue(()),
    ///             }
    ///         })
    ///     })
    ///     .await?;
    /// # println!("{token}");
    /// # keeper.close().await;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn lead<T, F>(&self, value: impl Into<String>, mut f: F) -> Result<T>
    where
        F: for<'a> FnMut(&'a Leadership) -> Reign<'a, T>,
    {
        let value = value.into();
        loop {
            let leadership = self.campaign(value.as_str()).await?;
            let verdict = f(&leadership).await;
            let resigned = leadership.resign().await;
            match (verdict, resigned) {
                // It has done what it was for, whatever became of the leadership meanwhile.
                (ControlFlow::Break(value), _) => return Ok(value),
                // Behind a ticket of ours that stays we would stand for ever.
                (ControlFlow::Continue(()), Err(error)) if !error.is_lost() => return Err(error),
                // Nobody else is told.
                (ControlFlow::Continue(()), Err(lost)) => tracing::info!(%lost, "leadership lost"),
                (ControlFlow::Continue(()), Ok(())) => {}
            }
        }
    }

    /// Who leads now, or is about to: the first of those who stand. What it reads may be a moment
    /// old.
    ///
    /// # Errors
    ///
    /// [`is_lost`](Error::is_lost) if the session ended; [`Error::Unreachable`] if another one
    /// cannot be opened. [`Error::Denied`] or [`Error::Refused`] if the server refuses to tell.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only reads.
    pub async fn leader(&self) -> Result<Option<Leader>> {
        self.acquirer.queue.leader().await
    }

    /// Everybody who stands, in order: the first one leads, or is about to. Each with the value
    /// that it stood with; what the leader has proclaimed since is [`leader`](Self::leader)'s to
    /// say.
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

    /// Follows the leaders without standing. No I/O until the observer is asked.
    pub fn observe(&self) -> Observer {
        Observer::new(self.acquirer.queue.clone())
    }

    fn standing_with(&self, value: String) -> Acquirer {
        let mut acquirer = self.acquirer.clone();
        acquirer.queue.set_value(value);
        acquirer
    }

    fn won(hold: Arc<Hold>) -> Leadership {
        let leadership = Leadership::new(hold);
        tracing::info!(
            name = leadership.name().as_str(),
            token = u64::from(leadership.token()),
            "leadership won"
        );
        leadership
    }
}

/// What a function that leads returns: its work, boxed, which says whether to stand again. See
/// [`Election::lead`].
pub type Reign<'a, T> = Pin<Box<dyn Future<Output = ControlFlow<T>> + Send + 'a>>;

/// A leadership that we have.
///
/// Drop it to resign in the background, or [`resign`](Self::resign) to know the answer. It promises
/// what a [`Guard`](crate::Guard) promises, and is lost in the same ways.
#[must_use = "we resign when the leadership is dropped"]
#[clippy::has_significant_drop]
pub struct Leadership {
    pub(crate) hold: Arc<Hold>,
}

guard_methods!(Leadership);
place_methods!(Leadership);
exclusive_methods!(Leadership);

impl Leadership {
    /// Publishes another value, of at most 64 KiB, for everybody who asks for the leader or follows
    /// it. It lasts as long as this leadership. Sends one request; wakes the observers, and no
    /// candidate. Calls that overlap publish one after the other; one that was begun and is kept
    /// without being polled holds up those after it.
    ///
    /// The value is written into the election's directory, together with a check of our ticket; so
    /// it is never published after another one leads.
    ///
    /// # Errors
    ///
    /// [`is_lost`](Error::is_lost) if leadership was lost before it was surely published; observers
    /// may have seen it. [`is_invalid`](Error::is_invalid) if the value is too long.
    /// [`Error::Refused`] if the directory holds another program's data, which is not written over;
    /// [`Error::Denied`] if we may not write there.
    ///
    /// # Cancel safety
    ///
    /// Dropped at any await, the value may be published or not; leadership stays ours. The next
    /// leader then may need a request or two more to take over, and waits out a
    /// [`lock_delay`](crate::KeeperBuilder::lock_delay) if there is one.
    pub async fn proclaim(&self, value: impl Into<String>) -> Result<()> {
        proclaim::proclaim(&self.hold, &value.into()).await
    }

    /// As [`release`](Self::release): gives leadership away, and waits until the server has
    /// confirmed it.
    ///
    /// # Errors
    ///
    /// As [`release`](Self::release).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: dropped at any await, we resign in the background.
    pub async fn resign(self) -> Result<()> {
        self.release().await
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
