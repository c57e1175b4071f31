//! The roll: the tickets of a session that have an owner in this process.
//!
//! Invariant: from before a create is sent until its ticket is known to be gone, its attempt or its
//! identity stands here. So a ticket of the session that stands here under neither was made by a
//! create whose reply was lost, even if its data no longer says by which.
//!
//! This is why: a reply is lost, Curator's `Revoker` writes over the line that would identify the
//! ticket, and its own caller would wait behind it. While a create in that directory is not
//! settled, the ticket may be of either. So the directory is read once more when it is. It sends
//! nothing, and removes nothing: the janitor does.

use std::collections::HashSet;
use std::sync::Arc;

use tokio::sync::Notify;
use uuid::Uuid;

use crate::latch::Latch;

#[derive(Debug, Default)]
pub(crate) struct Roll {
    entries: Latch<Entries>,
    settled: Notify,
}

#[derive(Debug, Default)]
struct Entries {
    /// Creates that may be under way, or answered and not taken in yet.
    coming: HashSet<(Arc<str>, Uuid)>,
    /// Tickets by identity; those of one transaction have the same in several directories.
    there: HashSet<(Arc<str>, i64)>,
    /// Directories with a ticket that a create under way may have made.
    doubtful: HashSet<Arc<str>>,
}

/// A create that may make a ticket.
#[derive(Debug)]
pub(crate) struct Coming {
    roll: Arc<Roll>,
    pub(crate) directory: Arc<str>,
    pub(crate) attempt: Uuid,
}

/// A ticket whose identity is known.
#[derive(Debug)]
pub(crate) struct There {
    roll: Arc<Roll>,
    ticket: (Arc<str>, i64),
}

impl Roll {
    pub(crate) fn coming(self: &Arc<Self>, directory: Arc<str>, attempt: Uuid) -> Coming {
        let entry = (Arc::clone(&directory), attempt);
        self.entries.lock().coming.insert(entry);
        Coming {
            roll: Arc::clone(self),
            directory,
            attempt,
        }
    }

    /// To be called before the [`Coming`] of its create is dropped.
    pub(crate) fn there(self: &Arc<Self>, directory: &Arc<str>, czxid: i64) -> There {
        let (roll, ticket) = (Arc::clone(self), (Arc::clone(directory), czxid));
        self.entries.lock().there.insert(ticket.clone());
        There { roll, ticket }
    }

    /// Whether the ticket with this identity has no owner; without one it may be any ticket there.
    /// None of the settled creates has made it.
    /// If another create under way may have made it, the directory is kept in mind until that is
    /// settled.
    pub(super) fn is_nobodys(
        &self,
        directory: &Arc<str>,
        czxid: Option<i64>,
        are_settled: impl Fn(&Uuid) -> bool,
    ) -> bool {
        let mut entries = self.entries.lock();
        let may_be_it = match czxid {
            Some(czxid) => entries.there.contains(&(Arc::clone(directory), czxid)),
            None => entries.there.iter().any(|(there, _)| there == directory),
        };
        if may_be_it {
            return false;
        }
        let coming = entries.coming.iter();
        let mut here = coming.filter(|(there, _)| there == directory);
        let is_open = here.any(|(_, attempt)| !are_settled(attempt));
        if is_open {
            entries.doubtful.insert(Arc::clone(directory));
        }
        !is_open
    }

    /// Waits until a create is settled in a directory that is kept in mind.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: nothing is forgotten before it is told.
    pub(super) async fn settled(&self) -> HashSet<Arc<str>> {
        self.settled.notified().await;
        std::mem::take(&mut self.entries.lock().doubtful)
    }
}

impl Drop for Coming {
    fn drop(&mut self) {
        let mut entries = self.roll.entries.lock();
        let entry = (Arc::clone(&self.directory), self.attempt);
        entries.coming.remove(&entry);
        if entries.coming.is_empty() {
            // A crowd would leave its memory behind.
            entries.coming = HashSet::new();
        }
        let is_doubtful = entries.doubtful.contains(&self.directory);
        drop(entries);
        if is_doubtful {
            self.roll.settled.notify_one();
        }
    }
}

impl There {
    pub(crate) fn czxid(&self) -> i64 {
        self.ticket.1
    }
}

impl Drop for There {
    fn drop(&mut self) {
        self.roll.entries.lock().there.remove(&self.ticket);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn a_ticket_without_an_identity_or_an_open_create_has_no_owner() {
        let roll = Arc::<Roll>::default();
        let [here, elsewhere]: [Arc<str>; 2] = ["/a".into(), "/b".into()];
        let asked = Uuid::from_u128(1);
        let are_settled = |attempt: &Uuid| *attempt == asked;

        let there = roll.there(&here, 7);
        assert!(!roll.is_nobodys(&here, Some(7), are_settled));
        assert!(!roll.is_nobodys(&here, None, are_settled), "it may be that");
        assert!(roll.is_nobodys(&elsewhere, None, are_settled));
        assert!(
            roll.is_nobodys(&elsewhere, Some(7), are_settled),
            "of one transaction"
        );
        drop(there);
        assert!(roll.is_nobodys(&here, Some(7), are_settled));

        let _asks = roll.coming(Arc::clone(&here), asked);
        let _other = roll.coming(elsewhere, Uuid::from_u128(2));
        assert!(roll.is_nobodys(&here, Some(7), are_settled));
        assert_eq!(roll.settled().now_or_never(), None);

        let open = roll.coming(Arc::clone(&here), Uuid::from_u128(3));
        assert!(!roll.is_nobodys(&here, Some(7), are_settled));
        assert_eq!(roll.settled().now_or_never(), None);
        drop(open);
        assert_eq!(roll.settled().now_or_never(), Some([here].into()));
    }
}
