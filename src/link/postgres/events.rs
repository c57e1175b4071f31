//! How a session on PostgreSQL is told of its watches: by notifications, or because it asks.
//!
//! A session that asks has one timer, whatever the number of its watches. The pauses grow while
//! nothing happens, and nothing is asked while nothing is watched.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::lane::Lane;
use super::listener::Subscription;
use super::parameter::Parameter;
use crate::latch::Latch;
use crate::link::stored::{Rearmed, StoreRequest};

const SHORTEST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(10);

#[derive(Debug)]
pub(super) enum Events {
    Notified(Subscription),
    Polled {
        events: mpsc::UnboundedReceiver<String>,
        polled: Arc<PolledWatches>,
        work: JoinHandle<()>,
    },
}

/// The numbers of the watches that are armed, or are about to be.
#[derive(Debug, Default)]
pub(super) struct PolledWatches {
    numbers: Latch<HashSet<u64>>,
    armed: Notify,
}

impl PolledWatches {
    fn arm(&self, numbers: impl IntoIterator<Item = u64>) {
        self.numbers.lock().extend(numbers);
        self.armed.notify_one();
    }

    /// It was told, taken back or refused.
    pub(super) fn disarm(&self, number: u64) {
        self.numbers.lock().remove(&number);
    }

    /// An event of this session's own watches.
    pub(super) fn told(&self, event: &str) {
        let number = event.get(1..).and_then(|number| number.parse().ok());
        if let Some(number) = number {
            self.disarm(number);
        }
    }

    async fn any(&self) {
        while self.numbers.lock().is_empty() {
            self.armed.notified().await;
        }
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        if let Self::Polled { work, .. } = self {
            work.abort();
        }
    }
}

impl Events {
    pub(super) fn notified(subscription: Subscription) -> Self {
        Self::Notified(subscription)
    }

    pub(super) fn polled(lane: Arc<Lane>, schema: &str, session: i64) -> Self {
        let (told, events) = mpsc::unbounded_channel();
        let polled = Arc::<PolledWatches>::default();
        let (watches, sql) = (Arc::clone(&polled), format!("SELECT {schema}.poll($1)"));
        let work = tokio::spawn(async move {
            let mut pause = SHORTEST_PAUSE;
            loop {
                watches.any().await;
                sleep(pause).await;
                pause = (pause * 5 / 4).min(LONGEST_PAUSE);
                let Ok(rows) = lane.query(&sql, &[Parameter::Int8(session)]).await else {
                    // The session learns it by the end of the channel.
                    return;
                };
                for row in rows {
                    let Ok(event) = row.try_get::<_, String>(0) else {
                        return;
                    };
                    pause = SHORTEST_PAUSE;
                    watches.told(&event);
                    told.send(event).ok();
                }
            }
        });
        Self::Polled {
            events,
            polled,
            work,
        }
    }

    /// Where the server sends events to; nowhere if it is asked.
    pub(super) fn channel(&self) -> &str {
        match self {
            Self::Notified(subscription) => subscription.channel(),
            Self::Polled { .. } => "",
        }
    }

    /// A request is about to leave.
    pub(super) fn asking(&self, request: &StoreRequest) -> Option<Arc<PolledWatches>> {
        let Self::Polled { polled, .. } = self else {
            return None;
        };
        match request {
            StoreRequest::Watch { number, .. } => polled.arm([*number]),
            StoreRequest::Rearm(watches) => {
                polled.arm(watches.iter().map(|&Rearmed { number, .. }| number));
            }
            StoreRequest::Unwatch { number, .. } => polled.disarm(*number),
            _ => {}
        }
        Some(Arc::clone(polled))
    }

    /// None at the end of the connection. Cancel safe.
    pub(super) async fn next(&mut self) -> Option<String> {
        match self {
            Self::Notified(subscription) => subscription.event().await,
            Self::Polled { events, .. } => events.recv().await,
        }
    }
}
