//! Connections that hold a lock as long as they live.
//!
//! Invariants: a connection runs one statement at a time, to its end, also if the caller is
//! dropped. Once its end is known, its lock is lost. A connection that is forgotten is closed, and
//! the server then frees its lock.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::future::{BoxFuture, ready};
use tokio::sync::Mutex;

use super::server::SqlServer;
use super::session::SqlSession;
use crate::compat::finish::in_turn;
use crate::compat::store::{Attempt, StoreResult};
use crate::error::StoreProblem;
use crate::latch::Latch;

/// All holds of a store, by their secret.
#[derive(Debug, Clone, Default)]
pub(super) struct HeldSessions {
    held: Arc<Latch<HashMap<Arc<str>, Arc<HeldSession>>>>,
}

#[derive(Debug)]
pub(super) struct HeldSession {
    session: Mutex<Option<SqlSession>>,
    /// What the connection is known by.
    pub(super) mark: String,
    /// Its transaction has changed something.
    pub(super) has_written: AtomicBool,
}

impl HeldSessions {
    pub(super) fn insert(&self, attempt: &Attempt, session: SqlSession, mark: String) {
        let held = HeldSession {
            session: Mutex::new(Some(session)),
            mark,
            has_written: AtomicBool::new(false),
        };
        let mut all = self.held.lock();
        let before = all.insert(Arc::clone(&attempt.secret), Arc::new(held));
        drop(all);
        drop(before);
    }

    pub(super) fn get(&self, secret: &str) -> Option<Arc<HeldSession>> {
        self.held.lock().get(secret).cloned()
    }

    fn remove(&self, secret: &str) -> Option<Arc<HeldSession>> {
        self.held.lock().remove(secret)
    }

    /// Does some work on the connection of a hold. `None` if there is none, or no longer.
    pub(super) async fn on<T: Send + 'static>(
        &self,
        secret: &str,
        work: impl for<'a> FnOnce(&'a mut SqlSession) -> BoxFuture<'a, StoreResult<T>> + Send + 'static,
    ) -> StoreResult<Option<T>> {
        let Some(held) = self.get(secret) else {
            return Ok(None);
        };
        let done = in_turn(ready(Ok(())), async move |()| held.run(work).await).await;
        if matches!(done, Ok(None)) {
            let ended = self.remove(secret);
            drop(ended);
        }
        done
    }

    /// Ends a hold with its last work. Its connection is used again if that went well. Asked again
    /// meanwhile, it waits for the end of that work: until then nobody knows what comes of it.
    pub(super) async fn end<T: Send + 'static>(
        &self,
        secret: &str,
        server: &Arc<SqlServer>,
        work: impl for<'a> FnOnce(&'a mut SqlSession) -> BoxFuture<'a, StoreResult<T>> + Send + 'static,
    ) -> StoreResult<Option<T>> {
        let Some(held) = self.get(secret) else {
            return Ok(None);
        };
        let (all, secret, server) = (self.clone(), secret.to_owned(), Arc::clone(server));
        let ended = async move |()| {
            let mut session = held.session.lock().await;
            let done = run_on(&mut session, work).await;
            let ended = all.remove(&secret);
            match (&done, session.take()) {
                (Ok(Some(_)), Some(mut session)) => {
                    if held.has_written() {
                        session.forget_lease();
                    }
                    server.put_back(session);
                }
                (_, session) => drop(session),
            }
            drop((session, ended));
            done
        };
        in_turn(ready(Ok(())), ended).await
    }

    /// Closes the connection of a hold.
    pub(super) async fn close(&self, secret: &str) {
        if let Some(held) = self.remove(secret) {
            let closed = async move |()| {
                let session = held.session.lock().await.take();
                drop(session);
                Ok(())
            };
            in_turn(ready(Ok(())), closed).await.unwrap_or_default();
        }
    }
}

impl HeldSession {
    async fn run<T>(
        &self,
        work: impl for<'a> FnOnce(&'a mut SqlSession) -> BoxFuture<'a, StoreResult<T>>,
    ) -> StoreResult<Option<T>> {
        run_on(&mut *self.session.lock().await, work).await
    }

    pub(super) fn has_written(&self) -> bool {
        self.has_written.load(Ordering::Relaxed)
    }
}

/// Does some work on a connection, and forgets it when its end is known.
async fn run_on<T>(
    session: &mut Option<SqlSession>,
    work: impl for<'a> FnOnce(&'a mut SqlSession) -> BoxFuture<'a, StoreResult<T>>,
) -> StoreResult<Option<T>> {
    let Some(open) = session.as_mut().filter(|open| !open.is_closed()) else {
        *session = None;
        return Ok(None);
    };
    match work(open).await {
        Ok(value) => Ok(Some(value)),
        Err(problem) if problem == StoreProblem::NoAnswer || open.is_closed() => {
            *session = None;
            Ok(None)
        }
        Err(problem) => Err(problem),
    }
}
