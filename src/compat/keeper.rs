//! A connection to a store of plain locks.

use std::fmt;
use std::sync::Arc;

use tokio::runtime::Handle;

use super::renewals::RenewalTimer;
use super::store::PlainStore;
use crate::brief::Brief;

/// A connection to a store, which makes its locks. Clones share the connection.
///
/// Its connections, and the renewals of its guards, run in the runtime in which it was made. So a
/// guard outlives the end of another runtime that took it.
pub struct PlainKeeper<S: PlainStore + ?Sized> {
    pub(super) store: Arc<S>,
    pub(super) timer: Option<Arc<RenewalTimer>>,
}

impl<S: PlainStore> PlainKeeper<S> {
    /// The locks of a store that is connected already. Outside a runtime, each lock uses that of
    /// its caller.
    pub fn new(store: S) -> Self {
        let runtime = Handle::try_current().ok();
        Self {
            store: Arc::new(store),
            timer: runtime.map(|runtime| Arc::new(RenewalTimer::new(runtime))),
        }
    }

    /// The same, without the kind in its type.
    pub fn erased(self) -> PlainKeeper<dyn PlainStore> {
        PlainKeeper {
            store: self.store,
            timer: self.timer,
        }
    }
}

impl<S: PlainStore + ?Sized> PlainKeeper<S> {
    /// The store.
    pub fn store(&self) -> &S {
        &self.store
    }

    /// Where its tasks run. A call outside any runtime would not get here.
    pub(super) fn runtime(&self) -> Handle {
        let timer = self.timer.as_ref();
        timer.map_or_else(Handle::current, |timer| timer.runtime.clone())
    }
}

impl<S: PlainStore + ?Sized> Clone for PlainKeeper<S> {
    fn clone(&self) -> Self {
        Self {
            store: Arc::clone(&self.store),
            timer: self.timer.clone(),
        }
    }
}

impl<S: PlainStore + ?Sized> fmt::Debug for PlainKeeper<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = self.store.capabilities().kind;
        f.debug_struct("PlainKeeper")
            .field("kind", &kind)
            .field("server", &Brief(self.store.server()))
            .finish_non_exhaustive()
    }
}
