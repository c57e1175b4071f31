//! A watch, and the event that ends it.

use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};

use futures_util::future::FutureExt;

use crate::brief::shows;

/// A watch on a node, or on a directory's children, that was armed. Dropping it takes it back from
/// the server.
pub(crate) struct Watch {
    /// The mutex is never locked. It makes a watch `Sync`, as a future alone is not.
    told: Mutex<Pin<Box<dyn Future<Output = Change> + Send>>>,
    /// Its event, for the next call.
    change: Option<Change>,
}

impl Watch {
    /// A watch that tells when the future ends. A panic in there is the end of the session: the
    /// client crate panics when its own task is gone, as in a runtime that shuts down
    /// (docs/failures.md row 60).
    pub(crate) fn new(told: impl Future<Output = Change> + Send + 'static) -> Self {
        let told = AssertUnwindSafe(told)
            .catch_unwind()
            .map(|told| told.unwrap_or(Change::SessionOver));
        Self {
            told: Mutex::new(Box::pin(told)),
            change: None,
        }
    }

    /// Waits until the watch fires. Later calls return the same.
    pub(crate) async fn changed(&mut self) -> Change {
        if let Some(change) = self.change {
            return change;
        }
        let told = self.told.get_mut().unwrap_or_else(PoisonError::into_inner);
        let change = told.as_mut().await;
        self.change = Some(change);
        change
    }
}

shows!(|_watch| Watch {});

/// The event of a watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    /// The node is gone, or the directory whose children were watched.
    Deleted,
    /// The node's data have changed, or the list of its children. The watch is spent.
    Changed,
    SessionOver,
}
