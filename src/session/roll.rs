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
//!
//! It also knows which ticket waits here for which other. The one that leaves with a mark has the
//! other told as soon as that is sent, which saves the next holder a round trip.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use tokio::sync::{Notify, oneshot};
use uuid::Uuid;

use crate::latch::Latch;
use crate::protocol::mark::ReleasePlan;

#[derive(Debug, Default)]
pub(crate) struct Roll {
    entries: Latch<Entries>,
    settled: Notify,
}

#[derive(Debug, Default)]
struct Entries {
    /// Creates that may be under way, or answered and not taken in yet.
    coming: HashSet<(Arc<str>, Uuid)>,
    /// Tickets by identity, which those of one transaction have in several directories; and who
    /// waits here for it to leave.
    there: HashMap<(Arc<str>, i64), Option<oneshot::Sender<()>>>,
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
        let earlier = self.entries.lock().there.insert(ticket.clone(), None);
        // It wakes its receiver.
        drop(earlier);
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
            Some(czxid) => entries.there.contains_key(&(Arc::clone(directory), czxid)),
            None => entries.there.keys().any(|(there, _)| there == directory),
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

    /// Is told as soon as a release of the ticket with this identity is on its way. None if that is
    /// no ticket of this session. Only the last one who asks is told.
    pub(crate) fn release_of(
        &self,
        directory: &Arc<str>,
        czxid: i64,
    ) -> Option<oneshot::Receiver<()>> {
        let (leaves, told) = oneshot::channel();
        let mut entries = self.entries.lock();
        let follower = entries.there.get_mut(&(Arc::clone(directory), czxid))?;
        let earlier = follower.replace(leaves);
        drop(entries);
        // It wakes its receiver.
        drop(earlier);
        Some(told)
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

    /// A request by which it leaves was sent on the session's link. What the next one asks now is
    /// answered behind it, and a mark will tell it all.
    pub(crate) fn leaves_by(&self, plan: &ReleasePlan) {
        if !matches!(plan, ReleasePlan::Marked { .. }) {
            return;
        }
        let mut entries = self.roll.entries.lock();
        let follower = entries.there.get_mut(&self.ticket).and_then(Option::take);
        drop(entries);
        if let Some(follower) = follower {
            // It may have given up.
            follower.send(()).ok();
        }
    }
}

impl Drop for There {
    fn drop(&mut self) {
        let follower = self.roll.entries.lock().there.remove(&self.ticket);
        // It wakes its receiver.
        drop(follower);
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Waker};

    use futures_util::FutureExt;
    use tokio::sync::oneshot::error::TryRecvError;

    use super::*;
    use crate::latch::Listener;

    #[test]
    fn a_release_that_leaves_a_mark_is_told_once_to_the_last_who_asked() {
        let roll = Arc::<Roll>::default();
        let here: Arc<str> = "/a".into();
        let there = roll.there(&here, 7);
        let marked = ReleasePlan::Marked {
            mark: vec![7],
            version: 1,
        };
        assert!(roll.release_of(&here, 8).is_none(), "a stranger's");
        assert!(roll.release_of(&"/b".into(), 7).is_none(), "elsewhere");
        let (first, last) = (roll.release_of(&here, 7), roll.release_of(&here, 7));
        let (mut first, mut last) = (first.unwrap(), last.unwrap());

        for silent in [ReleasePlan::Plain, ReleasePlan::Unmarked { version: 1 }] {
            there.leaves_by(&silent);
        }
        there.leaves_by(&ReleasePlan::LastOut(Box::new(marked.clone())));
        assert_eq!(first.try_recv(), Err(TryRecvError::Closed));
        assert_eq!(last.try_recv(), Err(TryRecvError::Empty));
        there.leaves_by(&marked);
        there.leaves_by(&marked);
        assert_eq!(last.try_recv(), Ok(()));

        let mut forgotten = roll.release_of(&here, 7).unwrap();
        drop(there);
        assert_eq!(forgotten.try_recv(), Err(TryRecvError::Closed));
        assert!(roll.release_of(&here, 7).is_none());
    }

    #[test]
    fn who_waits_for_a_release_may_ask_the_roll() {
        let (roll, listener) = (Arc::<Roll>::default(), Listener::default());
        let here: Arc<str> = "/a".into();
        let waker = Waker::from(Arc::new(listener.clone()));
        let wait = || {
            let mut told = roll.release_of(&here, 7).unwrap();
            let polled = told.poll_unpin(&mut Context::from_waker(&waker));
            assert!(polled.is_pending());
            told
        };
        let there = roll.there(&here, 7);
        let _first = wait();
        let _second = wait();
        there.leaves_by(&ReleasePlan::Marked {
            mark: vec![7],
            version: 1,
        });
        let _third = wait();

        drop(there);

        assert_eq!(listener.told(), 3);
        assert_eq!(listener.too_early(), None);
    }

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
