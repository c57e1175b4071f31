//! A store that counts what is asked of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::BoxFuture;
use lockkeeper::compat::{Acquired, Attempt, Capabilities, PlainKeeper, PlainStore, StoreResult};
use tokio::sync::Notify;

#[derive(Debug, Clone)]
pub struct Counted {
    inner: PlainKeeper<dyn PlainStore>,
    asked: Arc<AtomicUsize>,
}

impl Counted {
    pub fn new(inner: PlainKeeper<dyn PlainStore>) -> Self {
        let asked = Arc::default();
        Self { inner, asked }
    }

    pub fn asked(&self) -> usize {
        self.asked.load(Ordering::Relaxed)
    }

    fn store(&self) -> &dyn PlainStore {
        self.asked.fetch_add(1, Ordering::Relaxed);
        self.inner.store()
    }
}

impl PlainStore for Counted {
    fn server(&self) -> &str {
        self.inner.store().server()
    }

    fn capabilities(&self) -> Capabilities {
        self.inner.store().capabilities()
    }

    fn shortest_ttl(&self) -> Duration {
        self.inner.store().shortest_ttl()
    }

    fn check_name(&self, name: &str) -> Result<(), &'static str> {
        self.inner.store().check_name(name)
    }

    fn acquire<'a>(&'a self, attempt: &'a Attempt) -> BoxFuture<'a, StoreResult<Acquired>> {
        self.store().acquire(attempt)
    }

    fn renew<'a>(&'a self, attempt: &'a Attempt) -> BoxFuture<'a, StoreResult<bool>> {
        self.store().renew(attempt)
    }

    fn release<'a>(&'a self, attempt: &'a Attempt) -> BoxFuture<'a, StoreResult<bool>> {
        self.store().release(attempt)
    }

    fn wake<'a>(&'a self, name: &'a str) -> BoxFuture<'a, StoreResult<Option<Arc<Notify>>>> {
        self.store().wake(name)
    }
}
