//! Those who wait for a lock by asking again.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::sleep;

use crate::Result;
use crate::peer::PAUSE_MS;

const PAUSE: Duration = Duration::from_millis(PAUSE_MS);

/// How many calls have been refused, and still ask.
#[derive(Clone, Default)]
pub(super) struct Refused(Arc<AtomicUsize>);

/// A call that was refused. It asks no more when this goes.
struct Asking<'a>(&'a AtomicUsize);

impl Refused {
    pub(super) fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    /// Asks until the lock is granted, with a pause after each refusal.
    pub(super) async fn until_granted<F>(&self, ask: impl Fn() -> F) -> Result<()>
    where
        F: Future<Output = Result<bool>>,
    {
        let mut asking = None;
        while !ask().await? {
            asking.get_or_insert_with(|| Asking::new(&self.0));
            sleep(PAUSE).await;
        }
        Ok(())
    }
}

impl<'a> Asking<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn who_fails_or_is_dropped_is_not_counted_as_waiting() {
        let refused = Refused::default();
        let asked = AtomicUsize::new(0);

        let failed = refused.until_granted(|| async {
            match asked.fetch_add(1, Ordering::Relaxed) {
                0 => Ok(false),
                _ => Err("no server".into()),
            }
        });
        assert!(failed.await.is_err());
        assert_eq!(refused.count(), 0);

        let never = refused.until_granted(|| async { Ok(false) });
        assert!(timeout(Duration::from_millis(30), never).await.is_err());
        assert_eq!(refused.count(), 0);
    }
}
