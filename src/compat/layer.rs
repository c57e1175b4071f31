//! A store in front of another one.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::sync::Notify;

use super::store::{Acquired, Attempt, Capabilities, PlainStore, StoreResult};

/// A store in front of another one, which does something of its own with some of the requests:
/// counts them, logs them, or remembers what is held. All else goes on to the other one.
///
/// ```
/// use std::sync::atomic::{AtomicU64, Ordering};
///
/// use lockkeeper::compat::{PlainKeeper, PlainLayer, PlainStore};
///
/// #[derive(Debug)]
/// struct Counted {
///     inner: PlainKeeper<dyn PlainStore>,
///     requests: AtomicU64,
/// }
///
/// impl PlainLayer for Counted {
///     fn inner(&self) -> &dyn PlainStore {
///         self.inner.store()
///     }
///
///     fn request(&self) -> &dyn PlainStore {
///         self.requests.fetch_add(1, Ordering::Relaxed);
///         self.inner()
///     }
/// }
/// ```
pub trait PlainLayer: fmt::Debug + Send + Sync + 'static {
    /// The other one.
    fn inner(&self) -> &dyn PlainStore;

    /// The other one again. It is asked for once in each request that this store has no own way
    /// for.
    fn request(&self) -> &dyn PlainStore {
        self.inner()
    }

    /// As [`PlainStore::acquire`].
    fn acquire<'a>(&'a self, attempt: &'a Attempt) -> BoxFuture<'a, StoreResult<Acquired>> {
        self.request().acquire(attempt)
    }

    /// As [`PlainStore::renew`].
    fn renew<'a>(&'a self, attempt: &'a Attempt) -> BoxFuture<'a, StoreResult<bool>> {
        self.request().renew(attempt)
    }

    /// As [`PlainStore::release`].
    fn release<'a>(&'a self, attempt: &'a Attempt) -> BoxFuture<'a, StoreResult<bool>> {
        self.request().release(attempt)
    }

    /// As [`PlainStore::wake`].
    fn wake<'a>(&'a self, name: &'a str) -> BoxFuture<'a, StoreResult<Option<Arc<Notify>>>> {
        self.request().wake(name)
    }
}

impl<L: PlainLayer> PlainStore for L {
    fn server(&self) -> &str {
        self.inner().server()
    }

    fn capabilities(&self) -> Capabilities {
        self.inner().capabilities()
    }

    fn shortest_ttl(&self) -> Duration {
        self.inner().shortest_ttl()
    }

    fn check_name(&self, name: &str) -> Result<(), &'static str> {
        self.inner().check_name(name)
    }

    fn acquire<'a>(&'a self, attempt: &'a Attempt) -> BoxFuture<'a, StoreResult<Acquired>> {
        PlainLayer::acquire(self, attempt)
    }

    fn renew<'a>(&'a self, attempt: &'a Attempt) -> BoxFuture<'a, StoreResult<bool>> {
        PlainLayer::renew(self, attempt)
    }

    fn release<'a>(&'a self, attempt: &'a Attempt) -> BoxFuture<'a, StoreResult<bool>> {
        PlainLayer::release(self, attempt)
    }

    fn wake<'a>(&'a self, name: &'a str) -> BoxFuture<'a, StoreResult<Option<Arc<Notify>>>> {
        PlainLayer::wake(self, name)
    }
}
