//! Eviction: an operator removes a ticket of any client.
//!
//! Invariant: the ticket that was shown is removed, by its `czxid`, and never another one under its
//! name. It decides nothing about turns: the next waiter sees a ticket gone, as after the end of a
//! session.

use super::Queue;
use super::entry::QueueEntry;
use crate::error::{Error, Result};
use crate::protocol::departure::Departure;
use crate::protocol::permits::{HELD, QUEUE};
use crate::session::failed;
use crate::session::janitor::TicketId;

const EVICTING: &str = "remove a ticket from";

impl Queue {
    /// Removes a ticket from this queue; `false` if it was gone already.
    ///
    /// # Cancel safety
    ///
    /// Dropped at any await once it was polled, the janitor goes on with it.
    pub(crate) async fn evict(&self, entry: &QueueEntry) -> Result<bool> {
        let path = &*entry.path;
        let directory = self.directory_of(entry)?;
        let session = self.pool.home(EVICTING, &self.name).await?;
        let id = TicketId {
            directory: directory.into(),
            ticket: entry.node.clone(),
            czxid: entry.token.czxid(),
        };
        // In doubt, because the name may be another ticket's by now.
        let left = session.janitor.leave(id, Departure::doubtful(), None).await;
        let is_ours =
            left.map_err(|failure| failed(&session, EVICTING, &self.name, path, failure))?;
        if is_ours {
            tracing::info!(ticket = path, token = u64::from(entry.token), "evicted");
        }
        Ok(is_ours)
    }

    /// Where the ticket is: in the lock's directory, or in one of those that a semaphore has there.
    pub(super) fn directory_of<'a>(&self, entry: &'a QueueEntry) -> Result<&'a str> {
        let own = &*self.directory.path;
        let [held, queue] = [HELD, QUEUE].map(|part| format!("{own}/{part}"));
        let is_place = |directory| [own, &held, &queue].contains(&directory);
        match entry.path.rsplit_once('/') {
            Some((directory, node)) if node == entry.node && is_place(directory) => Ok(directory),
            _ => {
                let why = format!("it is not from the queue of {}", self.name);
                Err(Error::invalid("queue entry", &entry.path, why))
            }
        }
    }
}
