//! A store in memory: the seam, as a user would implement it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures_util::future::{BoxFuture, FutureExt};
use lockkeeper::compat::{Acquired, Attempt, Capabilities, PlainStore, StoreResult};

type Locks = Arc<Mutex<HashMap<Arc<str>, (Arc<str>, Instant)>>>;

#[derive(Debug, Clone, Default)]
pub struct Memory {
    locks: Locks,
}

impl Memory {
    /// As an operator would.
    pub fn remove(&self, name: &str) {
        self.locks.lock().unwrap().remove(name);
    }

    fn change<T>(&self, attempt: &Attempt, change: impl FnOnce(Option<&mut Instant>) -> T) -> T {
        let mut locks = self.locks.lock().unwrap();
        locks.retain(|_, (_, until)| *until > Instant::now());
        let ours = locks.get_mut(&attempt.name);
        change(ours.and_then(|(holder, until)| (*holder == attempt.secret).then_some(until)))
    }
}

impl PlainStore for Memory {
    fn server(&self) -> &str {
        "memory"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::of("memory")
    }

    fn shortest_ttl(&self) -> Duration {
        Duration::from_millis(100)
    }

    fn check_name(&self, name: &str) -> Result<(), &'static str> {
        if name.is_empty() {
            Err("it is empty")
        } else {
            Ok(())
        }
    }

    fn acquire<'a>(&'a self, attempt: &'a Attempt) -> BoxFuture<'a, StoreResult<Acquired>> {
        async move {
            tokio::task::yield_now().await;
            self.change(attempt, |_| ());
            let mut locks = self.locks.lock().unwrap();
            if let Some((_, until)) = locks.get(&attempt.name) {
                let left = Some(*until - Instant::now());
                return Ok(Acquired::No { left });
            }
            let until = Instant::now() + attempt.ttl;
            locks.insert(
                Arc::clone(&attempt.name),
                (Arc::clone(&attempt.secret), until),
            );
            Ok(Acquired::Yes { token: None })
        }
        .boxed()
    }

    fn renew<'a>(&'a self, attempt: &'a Attempt) -> BoxFuture<'a, StoreResult<bool>> {
        async move {
            tokio::task::yield_now().await;
            Ok(self.change(attempt, |ours| {
                ours.map(|until| *until = Instant::now() + attempt.ttl)
                    .is_some()
            }))
        }
        .boxed()
    }

    fn release<'a>(&'a self, attempt: &'a Attempt) -> BoxFuture<'a, StoreResult<bool>> {
        async move {
            tokio::task::yield_now().await;
            let is_ours = self.change(attempt, |ours| ours.is_some());
            if is_ours {
                self.remove(&attempt.name);
            }
            Ok(is_ours)
        }
        .boxed()
    }
}
