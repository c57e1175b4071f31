//! How a session on PostgreSQL is told of its watches: by notifications, or because it asks. While
//! nothing is watched it does neither.
//!
//! A session that asks has one timer, whatever the number of its watches. The pauses grow while
//! nothing happens.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, ready};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::armed::ArmedWatches;
use super::lane::Lane;
use super::listener::Subscription;
use super::parameter::Parameter;
use super::statement::int8;
use crate::link::stored::{Rearmed, StoreRequest, Trouble};

const SHORTEST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(10);

#[derive(Debug)]
pub(super) enum Events {
    Notified(Subscription),
    Polled {
        events: mpsc::UnboundedReceiver<String>,
        armed: Arc<ArmedWatches>,
        work: JoinHandle<()>,
    },
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

    /// `number`: the how manieth connection of the session it is.
    pub(super) fn polled(lane: Arc<Lane>, schema: &str, session: i64, number: u64) -> Self {
        let (told, events) = mpsc::unbounded_channel();
        let armed = Arc::<ArmedWatches>::default();
        let (watches, sql) = (Arc::clone(&armed), format!("SELECT {schema}.poll($1, $2)"));
        let parameters = [Parameter::Int8(session), Parameter::Int8(int8(number))];
        let work = tokio::spawn(async move {
            let mut pause = SHORTEST_PAUSE;
            loop {
                watches.any().await;
                sleep(pause).await;
                pause = (pause * 5 / 4).min(LONGEST_PAUSE);
                let Ok(rows) = lane.query(&sql, &parameters).await else {
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
            armed,
            work,
        }
    }

    fn armed(&self) -> &Arc<ArmedWatches> {
        match self {
            Self::Notified(subscription) => subscription.armed(),
            Self::Polled { armed, .. } => armed,
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
    pub(super) fn asking(&self, request: &StoreRequest) -> Arc<ArmedWatches> {
        let armed = self.armed();
        match request {
            StoreRequest::Watch { number, .. } => armed.arm([*number]),
            StoreRequest::Rearm(watches) => {
                armed.arm(watches.iter().map(|&Rearmed { number, .. }| number));
            }
            StoreRequest::Unwatch { number, .. } => armed.disarm(*number),
            _ => {}
        }
        Arc::clone(armed)
    }

    /// What a request must wait for that arms watches: otherwise an event might go by.
    pub(super) fn ready(&self, request: &StoreRequest) -> BoxFuture<'static, Result<(), Trouble>> {
        let arms = match request {
            StoreRequest::Watch { .. } => true,
            StoreRequest::Rearm(watches) => !watches.is_empty(),
            _ => false,
        };
        match self {
            Self::Notified(subscription) if arms => Box::pin(subscription.listening()),
            _ => Box::pin(ready(Ok(()))),
        }
    }

    /// None at the end of the connection. Cancel safe.
    pub(super) async fn next(&mut self) -> Option<String> {
        match self {
            Self::Notified(subscription) => {
                let event = subscription.event().await?;
                subscription.armed().told(&event);
                Some(event)
            }
            Self::Polled { events, .. } => events.recv().await,
        }
    }
}
