//! What a session watches, as far as its connection must know.

use std::collections::HashSet;

use tokio::sync::Notify;

use crate::latch::Latch;

/// The numbers of a session's watches that are armed, or are about to be.
#[derive(Debug, Default)]
pub(super) struct ArmedWatches {
    numbers: Latch<HashSet<u64>>,
    armed: Notify,
}

impl ArmedWatches {
    pub(super) fn arm(&self, numbers: impl IntoIterator<Item = u64>) {
        self.numbers.lock().extend(numbers);
        self.armed.notify_one();
    }

    /// It was told, taken back or refused.
    pub(super) fn disarm(&self, number: u64) {
        self.numbers.lock().remove(&number);
    }

    /// An event of one of them.
    pub(super) fn told(&self, event: &str) {
        let number = event.get(1..).and_then(|number| number.parse().ok());
        if let Some(number) = number {
            self.disarm(number);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.numbers.lock().is_empty()
    }

    /// Waits until there is one. For one waiter.
    pub(super) async fn any(&self) {
        while self.is_empty() {
            self.armed.notified().await;
        }
    }
}
