//! Several tickets of one transaction on their way to their turns.
//!
//! They were created together, so a ticket before one of them in some queue is before each of them
//! wherever both stand: sets cannot wait for each other in a circle, whatever the order of their
//! names. Invariant: no hold begins before all tickets have their turn and were seen at one moment
//! to be ours, as `protocol/several.rs` says. It decides nothing about turns.

use futures_util::future::try_join_all;

use super::WAITING;
use super::join::Joining;
use super::place::TicketPlace;
use super::{Queue, Waiter};
use crate::error::{Error, Result};
use crate::latch::Latch;
use crate::link::{Found, MOST_WATCHED, Read};
use crate::name::LockName;
use crate::protocol::several::SeenTogether;
use crate::session::failed;
use crate::session::heartbeat::LeaseEntry;

/// The most bytes of paths of a set's tickets: one session watches them all, on any store.
pub(crate) const MOST_BYTES: usize = MOST_WATCHED;

/// Tickets that have their turn, with their holds.
pub(crate) type Granted = Vec<(Waiter, LeaseEntry)>;

/// Tickets in several queues, all in one session.
#[derive(Debug)]
pub(crate) struct Several {
    waiters: Vec<Waiter>,
}

/// The locks of a set that are still waited for, for a call that gives up.
#[derive(Debug, Default)]
pub(crate) struct Awaited(Latch<Vec<LockName>>);

impl Awaited {
    /// The names, with commas.
    pub(crate) fn names(&self) -> String {
        LockName::list(self.0.lock().iter())
    }

    fn begin<'a>(&self, all: impl Iterator<Item = &'a LockName>) {
        *self.0.lock() = all.cloned().collect();
    }

    fn is_there(&self, name: &LockName) {
        self.0.lock().retain(|awaited| awaited != name);
    }
}

impl Several {
    /// Puts a ticket at the end of each queue, in one transaction, and waits until all have their
    /// turn.
    ///
    /// # Cancel safety
    ///
    /// Dropped at any await, all tickets leave.
    pub(crate) async fn take(queues: &[Queue], awaited: &Awaited) -> Result<Granted> {
        awaited.begin(queues.iter().map(Queue::name));
        let mut several = Self::join(queues).await?;
        for waiter in several.waiters.iter().filter(|waiter| !waiter.is_first()) {
            tracing::debug!(name = waiter.name().as_str(), "waits for");
        }
        let entries = several.granted(awaited).await?;
        Ok(several.waiters.into_iter().zip(entries).collect())
    }

    /// Joins only if looks say that nobody is in any of the queues, and stays only if that was
    /// true. Writes nothing otherwise.
    pub(crate) async fn try_take(queues: &[Queue]) -> Result<Option<Granted>> {
        Joining::of(queues).map_or(Ok(()), |joining| joining.check())?;
        let looks = try_join_all(queues.iter().map(Queue::is_busy)).await?;
        if looks.contains(&true) {
            return Ok(None);
        }
        let mut several = Self::join(queues).await?;
        // All at once: a lock delay is sat out, and is not to be sat out for one after the other.
        let each = several.waiters.iter_mut().map(|waiter| async {
            match waiter.try_granted().await {
                Ok(true) => Ok(()),
                Ok(false) => Err(None),
                Err(error) => Err(Some(error)),
            }
        });
        match try_join_all(each).await {
            Ok(_) => {}
            Err(Some(error)) => return Err(error),
            Err(None) => {
                several.leave().await;
                return Ok(None);
            }
        }
        let entries = several.granted(&Awaited::default()).await?;
        Ok(Some(several.waiters.into_iter().zip(entries).collect()))
    }

    async fn join(queues: &[Queue]) -> Result<Self> {
        let waiters = match Joining::of(queues) {
            Some(joining) => joining.walk_in().await?,
            None => Vec::new(),
        };
        Ok(Self { waiters })
    }

    async fn granted(&mut self, awaited: &Awaited) -> Result<Vec<LeaseEntry>> {
        let mut together = SeenTogether::new(self.waiters.iter().map(Waiter::is_first));
        loop {
            let each = self.waiters.iter_mut().map(|waiter| async {
                waiter.reach().await?;
                awaited.is_there(waiter.name());
                Ok::<(), Error>(())
            });
            try_join_all(each).await?;
            if together.needs_read(self.waiters.iter().all(Waiter::has_turn)) {
                self.see_again().await?;
            } else if let Some(entries) = self.begin_hold().await? {
                return Ok(entries);
            }
        }
    }

    /// Reads all tickets at one moment. Each has had its turn.
    async fn see_again(&mut self) -> Result<()> {
        let Some(session) = self.waiters.first().map(Waiter::session).cloned() else {
            return Ok(());
        };
        let places = self.waiters.iter().map(|waiter| &waiter.place);
        let tickets: Vec<String> = places.filter_map(TicketPlace::path).collect();
        let both = self.waiters.iter().zip(&tickets);
        let reads: Vec<Read<'_>> = both
            .flat_map(|(waiter, ticket)| [Read::Data(waiter.place.directory()), Read::Data(ticket)])
            .collect();
        let (at, found) = session.read_stamped(|link| link.multi_read(&reads)).await;
        let found = found.map_err(|failure| {
            let names = LockName::list(self.waiters.iter().map(Waiter::name));
            failed(&session, WAITING, names, &tickets.join(", "), failure)
        })?;
        let mut found = found.into_iter();
        for waiter in &mut self.waiters {
            match (found.next(), found.next()) {
                (Some(Found::Node(directory)), mine) => {
                    waiter.seen_again(at, &directory, mine).await?;
                }
                // A directory that cannot be read: its own read says why.
                _ => waiter.start_over(),
            }
        }
        Ok(())
    }

    /// Begins all holds. `None` if that took a wait.
    async fn begin_hold(&self) -> Result<Option<Vec<LeaseEntry>>> {
        let begun = try_join_all(self.waiters.iter().map(Waiter::begin_hold)).await?;
        Ok(begun.into_iter().collect())
    }

    async fn leave(self) {
        let places = self.waiters.into_iter().map(Waiter::into_place);
        TicketPlace::leave_together(places.collect()).await;
    }
}
