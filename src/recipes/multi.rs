//! Several locks held together: one ticket in each queue, all made in one transaction. A thin layer
//! over the queues.

use std::collections::HashSet;
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;
use tracing::field::Empty;
use tracing::{Instrument, Span};

use crate::brief::Brief;
use crate::error::{Error, Result};
use crate::guard::fenced::Fenced;
use crate::guard::held_ticket::HeldTicket;
use crate::guard::hold::{GuardState, Hold};
use crate::guard::local_holds::LocalHolds;
use crate::guard::lost::Lost;
use crate::guard::{exclusive_methods, guard_methods, revocable_methods};
use crate::metrics::LockMetrics;
use crate::name::LockName;
use crate::owner::Owner;
use crate::protocol::ticket::Mode;
use crate::queue::Queue;
use crate::queue::several::{Awaited, Granted, MOST_BYTES, Several};
use crate::recipes::acquire::again;
use crate::token::Token;

/// The most locks of a set.
const MOST: usize = 128;

/// Several locks that are taken together, all or none; from
/// [`Keeper::multi_lock`](crate::Keeper::multi_lock).
///
/// It takes a ticket in the queue of each lock, all in one transaction. So any two sets are in the
/// same order in every queue in which they meet, and can **never wait for each other in a circle**,
/// in whatever order their names are given, by whatever process. In each queue the ticket is one
/// like any other: fair among [mutexes](crate::Mutex), readers and writers of the same name and
/// clients in other languages. While one of the locks is waited for, those whose turn it is are
/// kept from others.
///
/// A set is not reentrant, and knows no owner: a task that holds one of its locks already waits for
/// itself, with a `warn` event that says so.
///
/// It holds no state and does no I/O until asked: clone it, share it.
///
/// # Cost
///
/// Without contention 2 requests, however many locks there are, and 1 to release them, or 3 after a
/// second, when the tickets are read again first. Each lock that is waited for costs what it costs
/// a mutex.
///
/// # Examples
///
/// ```
/// # use lockkeeper::{Keeper, embedded::EmbeddedServer};
/// # #[tokio::main]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = EmbeddedServer::start().await?;
/// let keeper = Keeper::connect(server.connect_string()).await?;
/// let accounts = keeper.multi_lock(["accounts/17", "accounts/4"])?;
/// let guard = accounts.lock().await?; // nobody can wait in a circle with us
/// println!("move the money with token {}", guard.token());
/// guard.release().await?;
/// # keeper.close().await;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct MultiLock {
    queues: Vec<Queue>,
    local_holds: Arc<LocalHolds>,
    rejoins: bool,
}

impl fmt::Debug for MultiLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.names().map(LockName::as_str).collect();
        f.debug_struct("MultiLock")
            .field("names", &Brief(names.join(", ")))
            .field("count", &names.len())
            .finish_non_exhaustive()
    }
}

/// Several locks that are held together.
///
/// It promises of each lock what a [`Guard`](crate::Guard) promises, and ends with the first that
/// is lost: [`lost`](Self::lost) and every error name that one. All its tickets are in one session,
/// and were made in one transaction, whose number is the one [`token`](Self::token) for all of
/// them.
///
/// [`release`](Self::release) gives all of them back in one transaction where that is possible,
/// which it is unless a ticket was removed by somebody else; otherwise ticket by ticket, until each
/// is gone. Dropping it does that in the background, ticket by ticket.
#[must_use = "the locks are released when the guard is dropped"]
#[clippy::has_significant_drop]
pub struct MultiGuard {
    pub(crate) hold: Arc<Hold>,
}

guard_methods!(MultiGuard);
revocable_methods!(MultiGuard);
exclusive_methods!(MultiGuard);

impl MultiGuard {
    /// The locks' names, each once, in the order in which they were given.
    pub fn names(&self) -> impl Iterator<Item = &LockName> {
        self.hold.all_held().iter().map(|held| &held.name)
    }

    /// The names of our nodes in the locks' directories, in the same order, as `lockkeeper queue`
    /// shows them.
    pub fn nodes(&self) -> impl Iterator<Item = &str> {
        let tickets = self
            .hold
            .all_held()
            .iter()
            .filter_map(|held| held.place.ticket());
        tickets.map(|(ticket, _)| &*ticket.name)
    }
}

impl MultiLock {
    /// Checks the set; `queue` makes the queue of a name.
    pub(crate) fn new(
        names: Vec<LockName>,
        local_holds: Arc<LocalHolds>,
        queue: impl Fn(LockName) -> Queue,
    ) -> Result<Self> {
        let mut seen = HashSet::new();
        // One transaction, one identity: two tickets of a set in the same queue could not be told
        // apart.
        let names = names.into_iter().filter(|name| seen.insert(name.clone()));
        let queues: Vec<Queue> = names.map(queue).collect();
        let refuse = |given: String, why: String| Error::InvalidOption {
            what: "set of locks",
            given,
            why,
        };
        let bytes: usize = queues.iter().map(|queue| queue.needs().watched).sum();
        match queues.len() {
            0 => Err(refuse(String::new(), "it must not be empty".into())),
            count if count > MOST => Err(refuse(
                format!("{count} names"),
                format!("it must not have more than {MOST}"),
            )),
            _ if bytes > MOST_BYTES => Err(refuse(
                format!("{bytes} bytes"),
                format!(
                    "the paths of its tickets must not be longer than {MOST_BYTES} bytes in all"
                ),
            )),
            _ => Ok(Self {
                queues,
                local_holds,
                rejoins: true,
            }),
        }
    }

    /// The locks' names, each once, in the order in which they were given.
    pub fn names(&self) -> impl Iterator<Item = &LockName> {
        self.queues.iter().map(Queue::name)
    }

    /// Sets a short text that the queues show beside our tickets: see
    /// [`Mutex::with_label`](crate::Mutex::with_label).
    #[must_use]
    pub fn with_label(mut self, label: impl Into<String>) -> Self {
        let label = label.into();
        for queue in &mut self.queues {
            queue.set_label(label.clone());
        }
        self
    }

    /// As [`Mutex::with_trace_id`](crate::Mutex::with_trace_id).
    #[must_use]
    pub fn with_trace_id(mut self, trace_id: impl Into<String>) -> Self {
        let trace_id = trace_id.into();
        for queue in &mut self.queues {
            queue.set_trace(trace_id.clone());
        }
        self
    }

    /// As [`Mutex::with_class`](crate::Mutex::with_class), for all of them.
    #[must_use]
    pub fn with_class(mut self, class: &'static str) -> Self {
        for queue in &mut self.queues {
            queue.set_class(class, &self.local_holds.metrics);
        }
        self
    }

    /// Makes calls fail with [`is_session_over`](Error::is_session_over) when the session ends
    /// while they wait. Otherwise they join all queues again, at their ends, with the keeper's next
    /// session.
    #[must_use]
    pub fn without_rejoin(mut self) -> Self {
        self.rejoins = false;
        self
    }

    /// Waits until it is our turn at every lock, however long that takes, through disconnects and
    /// also, unless [`without_rejoin`](Self::without_rejoin) says otherwise, through the end of the
    /// session, which costs all places.
    ///
    /// # Errors
    ///
    /// [`is_lost`](Error::is_lost) if one of our tickets was removed by somebody else, with the
    /// name of that lock, or the keeper was closed while we waited; all other tickets leave their
    /// queues. [`Error::TooLarge`], before anything is sent, if servers do not read so many tickets
    /// in one request, 1 MiB: each has its path, the label, the trace id and the access list.
    /// [`Error::Unreachable`] if a new session was needed and no server gave one within the connect
    /// timeout. [`Error::Denied`] or [`Error::Refused`] if the server refuses what is needed.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: dropped at any await, all our tickets leave in the background, and nobody is
    /// blocked. The places are lost.
    pub async fn lock(&self) -> Result<MultiGuard> {
        self.take(&Awaited::default()).await
    }

    /// Takes the locks if nobody holds or waits for any of them. Reads first: if one is held it
    /// writes nothing.
    ///
    /// What it reads may be a moment old: right after a release elsewhere it can still say "not
    /// now".
    ///
    /// # Errors
    ///
    /// As [`lock`](Self::lock). "Not now" is `Ok(None)`.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: dropped at any await, nothing is left in any queue.
    pub async fn try_lock(&self) -> Result<Option<MultiGuard>> {
        let waiting = self.metrics().wait();
        let take = again(self.rejoins, || Several::try_take(&self.queues));
        let span = self.span();
        let taken = Box::pin(take).instrument(span.clone()).await?;
        if taken.is_some() {
            waiting.granted();
        }
        Ok(taken.map(|granted| span.in_scope(|| self.guard(granted))))
    }

    /// Waits for at most `limit`, for all of them together. Then all our tickets leave, and the
    /// call returns within 100 ms, even with every server dead.
    ///
    /// # Errors
    ///
    /// [`is_timeout`](Error::is_timeout) when the time is over, with the names of the locks that
    /// were still waited for, otherwise as [`lock`](Self::lock).
    ///
    /// # Cancel safety
    ///
    /// As [`lock`](Self::lock).
    pub async fn lock_timeout(&self, limit: Duration) -> Result<MultiGuard> {
        let awaited = Awaited::default();
        let timed_out = |_| {
            self.metrics().timed_out();
            let all: Vec<&str> = self.names().map(LockName::as_str).collect();
            let (all, awaited) = (all.join(", "), awaited.names());
            let name = if awaited.is_empty() || awaited == all {
                // All; or each has had its turn, and no server has confirmed all of them together.
                all
            } else {
                format!("{awaited} (of {all})")
            };
            Error::TimedOut {
                name,
                waited: limit,
            }
        };
        let locked = timeout(limit, self.take(&awaited)).await;
        locked.map_err(timed_out)?
    }

    async fn take(&self, awaited: &Awaited) -> Result<MultiGuard> {
        for queue in &self.queues {
            self.local_holds
                .tasks
                .warn_of_self(queue.path(), queue.name(), queue.kind());
        }
        let waiting = self.metrics().wait();
        let take = again(self.rejoins, || Several::take(&self.queues, awaited));
        // On the heap: it is as large as the way into a queue.
        let span = self.span();
        let granted = Box::pin(take).instrument(span.clone()).await?;
        waiting.granted();
        Ok(span.in_scope(|| self.guard(granted)))
    }

    fn guard(&self, granted: Granted) -> MultiGuard {
        // They were made in one transaction, whose number is the identity of each.
        let token = Token::new(granted.first().map_or(0, |(waiter, _)| waiter.token()));
        let all_held = granted
            .into_iter()
            .map(|(waiter, hold)| HeldTicket::new(waiter, hold))
            .collect();
        let here = |queue: &Queue| self.local_holds.tasks.enter(queue.path(), queue.kind());
        let self_waits = self.queues.iter().map(here).collect();
        MultiGuard::new(Hold::new(
            all_held,
            token,
            Mode::Exclusive,
            None,
            self_waits,
        ))
    }

    /// What is counted of all of them.
    fn metrics(&self) -> LockMetrics {
        let metrics = self.queues.first().map(Queue::metrics);
        metrics.cloned().unwrap_or_default()
    }

    /// As the span of one lock, with the paths of all; the ticket is the last one's.
    fn span(&self) -> Span {
        let paths: Vec<&str> = self.queues.iter().map(|queue| &**queue.path()).collect();
        tracing::debug_span!(
            "acquire",
            path = paths.join(", "),
            kind = "several",
            ticket = Empty,
            session = Empty,
            holder_trace = Empty
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_of_locks_and_its_guard_can_cross_threads() {
        fn check<T: Send + Sync + 'static>() {}

        check::<MultiLock>();
        check::<MultiGuard>();
    }
}
