//! Eviction: an operator removes a ticket of any client.
//!
//! Invariant: the ticket that was shown is removed, by its `czxid`, and never another one under its
//! name. It decides nothing about turns: the next waiter sees a ticket gone, as after the end of a
//! session.

use std::sync::Arc;

use super::Queue;
use super::entry::QueueEntry;
use crate::error::{Error, Result};
use crate::link::{Code, Right};
use crate::name::LockName;
use crate::protocol::departure::Departure;
use crate::protocol::permits::{HELD, QUEUE};
use crate::session::janitor::{ReleaseOutcome, TicketId};

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
        let leaving = session
            .janitor
            .leave_and_tell(id, Departure::doubtful(), None);
        let is_ours = removed(leaving.await, EVICTING, &self.name, path)?;
        if is_ours {
            tracing::info!(ticket = path, token = u64::from(entry.token), "evicted");
        }
        Ok(is_ours)
    }

    /// Where the ticket is: in the lock's directory, or in one of those that a semaphore has there.
    pub(super) fn directory_of<'a>(&self, entry: &'a QueueEntry) -> Result<&'a str> {
        let own: &Arc<str> = &self.directory.path;
        let places = [
            own.to_string(),
            format!("{own}/{HELD}"),
            format!("{own}/{QUEUE}"),
        ];
        match entry.path.rsplit_once('/') {
            Some((directory, node))
                if node == entry.node && places.iter().any(|place| place == directory) =>
            {
                Ok(directory)
            }
            _ => {
                let why = format!("it is not from the queue of {}", self.name);
                Err(Error::invalid("queue entry", &entry.path, why))
            }
        }
    }
}

/// Whether a ticket that was to leave was removed by us. `false` if it was gone already.
pub(crate) fn removed(
    left: ReleaseOutcome,
    doing: &'static str,
    name: &LockName,
    path: &str,
) -> Result<bool> {
    let (name, path) = (|| name.to_string(), || path.to_owned());
    Err(match left {
        ReleaseOutcome::Now => return Ok(true),
        ReleaseOutcome::WasGone => return Ok(false),
        ReleaseOutcome::Over(reason) => Error::SessionOver {
            name: name(),
            doing,
            reason,
        },
        ReleaseOutcome::Closed => Error::Closed {
            name: name(),
            doing,
        },
        ReleaseOutcome::Refused { servers } => Error::Denied {
            doing,
            path: path(),
            needs: Right::Delete,
            servers,
        },
        ReleaseOutcome::NotEmpty { servers } => Error::Refused {
            doing,
            path: path(),
            servers,
            why: Code::NotEmpty.to_string(),
        },
    })
}
