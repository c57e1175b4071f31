//! Several locks held together: one ticket in each queue, all made in one transaction.

mod guard;

pub use guard::MultiGuard;

use std::collections::HashSet;
use std::time::Duration;

use tokio::time::timeout;
use tracing::{Instrument, Span};

use crate::brief::{Brief, shows};
use crate::error::{Error, Result};
use crate::guard::held_ticket::HeldTicket;
use crate::guard::hold::Hold;
use crate::metrics::LockMetrics;
use crate::name::LockName;
use crate::protocol::kind::SEVERAL;
use crate::protocol::ticket::Mode;
use crate::queue::several::{Awaited, Granted, MOST_BYTES, Several};
use crate::queue::{Queue, acquire_span};
use crate::recipes::acquire::{Acquirer, again};
use crate::recipes::options::option_methods;
use crate::token::Token;

/// The most locks of a set.
const MOST: usize = 128;

/// Several locks that are taken together, all or none; from
/// [`Keeper::multi_lock`](crate::Keeper::multi_lock).
///
/// It takes a ticket in the queue of each lock, all in one transaction. So any two sets have the
/// same order in all queues where they meet, and **never wait for each other in a circle**,
/// whatever the order of their names. In each queue the ticket is one like any other: fair among
/// [mutexes](crate::Mutex), readers and writers of the name, and clients in other languages. While
/// the set waits for one lock, it keeps the others that have been granted.
///
/// A set is not reentrant and knows no owner. A task that holds one of its locks waits for itself,
/// and a `warn` event says so.
///
/// It has no state and does no I/O by itself: clone it, share it.
///
/// # Cost
///
/// Without contention it sends 2 requests for any number of locks. A release sends 1, or 3 after
/// more than a second, because the tickets are then read first. A wait for one of the locks costs
/// as much as with a mutex.
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
/// let guard = accounts.lock().await?; // never deadlocks with another set
/// println!("move the money with token {}", guard.token());
/// guard.release().await?;
/// # keeper.close().await;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct MultiLock {
    /// At least one.
    acquirers: Vec<Acquirer>,
}

shows!(|lock| MultiLock {
    names: Brief(LockName::list(lock.names())),
    count: lock.acquirers.len(),
});

option_methods!(MultiLock, |lock| &mut lock.acquirers);

impl MultiLock {
    /// Checks the set. `acquirer` makes the way into the queue of a name.
    pub(crate) fn new(
        names: Vec<LockName>,
        acquirer: impl Fn(LockName) -> Acquirer,
    ) -> Result<Self> {
        let mut seen = HashSet::new();
        // All tickets of a set have one `czxid`, so two of them in one queue would look the same.
        let names = names.into_iter().filter(|name| seen.insert(name.clone()));
        let acquirers: Vec<Acquirer> = names.map(acquirer).collect();
        let needs = acquirers.iter().map(|acquirer| acquirer.queue.needs());
        let bytes: usize = needs.map(|need| need.watched).sum();
        let (given, why) = match acquirers.len() {
            0 => (String::new(), "it must not be empty".into()),
            count if count > MOST => {
                let why = format!("it must not have more than {MOST}");
                (format!("{count} names"), why)
            }
            _ if bytes > MOST_BYTES => {
                let why = format!(
                    "the paths of its tickets must not be longer than {MOST_BYTES} bytes in all"
                );
                (format!("{bytes} bytes"), why)
            }
            _ => return Ok(Self { acquirers }),
        };
        Err(Error::invalid("set of locks", given, why))
    }

    /// The locks' names, each once, in the order in which they were given.
    pub fn names(&self) -> impl Iterator<Item = &LockName> {
        self.acquirers.iter().map(Acquirer::name)
    }

    /// Waits for all locks, without a limit of time. It waits through disconnects. If the session
    /// ends, it joins all queues again at their ends, unless [`with_rejoin`](Self::with_rejoin)
    /// forbids that.
    ///
    /// # Errors
    ///
    /// [`is_lost`](Error::is_lost), with the name of the lock, if another client removed one of our
    /// tickets; then the other tickets leave. [`is_lost`](Error::is_lost) if the keeper was closed.
    /// [`Error::TooLarge`], before anything is sent, if the tickets do not fit into one request of
    /// 1 MiB: each has its path, the label, the trace id and the access list.
    /// [`Error::Unreachable`] if a new session was needed and no server gave one within the connect
    /// timeout. [`Error::Denied`] or [`Error::Refused`] if the servers refuse a request.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: dropped at any await, all our tickets leave in the background, and block no
    /// other client. The places are lost.
    pub async fn lock(&self) -> Result<MultiGuard> {
        self.take(&Awaited::default()).await
    }

    /// Takes the locks if none of them has a holder or a waiter. It reads first, and otherwise
    /// writes nothing.
    ///
    /// It reads a server that may lag behind, so right after a release elsewhere it may still give
    /// `None`.
    ///
    /// # Errors
    ///
    /// As [`lock`](Self::lock). If the lock is not free, it is `Ok(None)`.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: dropped at any await, nothing is left in any queue.
    pub async fn try_lock(&self) -> Result<Option<MultiGuard>> {
        let waiting = self.metrics().wait();
        let queues = self.queues();
        let take = again(self.rejoins(), || Several::try_take(&queues));
        let span = self.span();
        let taken = Box::pin(take).instrument(span.clone()).await?;
        if taken.is_some() {
            waiting.granted();
        }
        Ok(taken.map(|granted| span.in_scope(|| self.guard(granted))))
    }

    /// Waits for all locks together for at most `limit`. Then all our tickets leave, and the call
    /// returns within 100 ms, even if every server is dead.
    ///
    /// # Errors
    ///
    /// [`is_timeout`](Error::is_timeout) when the time is over, with the names of the locks that
    /// were not granted. Otherwise as [`lock`](Self::lock).
    ///
    /// # Cancel safety
    ///
    /// As [`lock`](Self::lock).
    pub async fn lock_timeout(&self, limit: Duration) -> Result<MultiGuard> {
        let awaited = Awaited::default();
        let timed_out = |_| {
            self.metrics().timed_out();
            let (all, awaited) = (LockName::list(self.names()), awaited.names());
            let name = if awaited.is_empty() || awaited == all {
                // None was granted; or each was, and no server has confirmed all of them together.
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
        self.acquirers.iter().for_each(Acquirer::warn_of_self);
        let waiting = self.metrics().wait();
        let queues = self.queues();
        let take = again(self.rejoins(), || Several::take(&queues, awaited));
        // On the heap: it is as large as the way into a queue.
        let span = self.span();
        let granted = Box::pin(take).instrument(span.clone()).await?;
        waiting.granted();
        Ok(span.in_scope(|| self.guard(granted)))
    }

    fn guard(&self, granted: Granted) -> MultiGuard {
        // They were made in one transaction, whose number is the identity of each.
        let token = Token::new(granted.first().map_or(0, |(waiter, _)| waiter.token()));
        let granted = granted.into_iter();
        let all_held = granted.map(|(waiter, entry)| HeldTicket::new(waiter, entry));
        let acquirers = self.acquirers.iter();
        let self_waits = acquirers.map(|acquirer| acquirer.self_wait(Mode::Exclusive));
        let (all_held, self_waits) = (all_held.collect(), self_waits.collect());
        let hold = Hold::new(all_held, token, Mode::Exclusive, None, self_waits);
        MultiGuard { hold }
    }

    /// The metrics of the whole set.
    fn metrics(&self) -> LockMetrics {
        let first = self.acquirers.first();
        first.map_or_else(LockMetrics::default, |first| first.queue.metrics.clone())
    }

    fn rejoins(&self) -> bool {
        self.acquirers.iter().all(|acquirer| acquirer.rejoins)
    }

    fn queues(&self) -> Vec<Queue> {
        let each = self.acquirers.iter();
        each.map(|acquirer| acquirer.queue.clone()).collect()
    }

    /// As the span of one lock, but with the paths of all, and the ticket of the last one.
    fn span(&self) -> Span {
        let paths = self.acquirers.iter();
        let paths: Vec<&str> = paths.map(|acquirer| &**acquirer.queue.path()).collect();
        acquire_span(&paths.join(", "), SEVERAL)
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
