//! Moves a session to another connection.
//!
//! Invariant: once it has moved, the server refuses what is still under way on an earlier
//! connection, so that an unknown outcome stays what a look finds it to be.

use std::time::Duration;

use futures_util::stream::{self, StreamExt};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::inbox::Message;
use super::task::{SessionTask, Stop, Unsent};
use super::{Store, StoreRequest};

/// Watches that one request arms again.
const REARMED: usize = 200;
const SHORTEST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

impl<S: Store> SessionTask<S> {
    /// Opens another connection and arms all watches there, unless the session is over by then.
    pub(super) async fn reconnect(
        &mut self,
        last: u64,
        inbox: &mut mpsc::UnboundedReceiver<Message>,
    ) -> Result<S::Connection, &'static str> {
        // The server gives the session up a timeout after it has last heard of it, and a fifth more
        // later removes it. One that hears of it and refuses all else must not keep its tickets. A
        // process that was stopped gets one try.
        let least = Instant::now() + self.granted / 5;
        let end = least.max(self.answered + self.granted * 5 / 3);
        let (mut pause, mut number) = (SHORTEST_PAUSE, last);
        loop {
            self.hold_back(inbox)?;
            number += 1;
            let tried = timeout_at(end, self.connected(number, pause)).await;
            match tried {
                Err(_) => return Err("no server has answered for so long that it is over"),
                Ok(Err(why)) => return Err(why),
                Ok(Ok(Some(greeted))) => return Ok(greeted),
                Ok(Ok(None)) => pause = (pause * 2).min(LONGEST_PAUSE),
            }
        }
    }

    /// Tries once, with a pause if there is no connection.
    async fn connected(
        &mut self,
        number: u64,
        pause: Duration,
    ) -> Result<Option<S::Connection>, &'static str> {
        let limit = (self.granted / 3).max(Duration::from_millis(200));
        match self.store.greet(self.session.id, number, limit).await {
            Ok(greeted) => match self.reattach(&greeted, limit).await {
                Ok(()) => return Ok(Some(greeted)),
                Err(Stop::Over(why)) => return Err(why),
                Err(Stop::Lost(why)) => tracing::debug!(why, "no connection to {}", S::ENGINE),
            },
            Err(why) => tracing::debug!(?why, "no connection to {}", S::ENGINE),
        }
        sleep(pause).await;
        Ok(None)
    }

    /// What is asked meanwhile waits.
    fn hold_back(
        &mut self,
        inbox: &mut mpsc::UnboundedReceiver<Message>,
    ) -> Result<(), &'static str> {
        while let Ok(message) = inbox.try_recv() {
            let Message::Ask {
                since,
                operation,
                answer,
            } = message
            else {
                return Err("it was closed");
            };
            self.waiting.push_back(Unsent {
                since,
                operation,
                answer,
            });
        }
        Ok(())
    }

    /// The session moves first. What an earlier connection still does is told there alone, so a
    /// watch that is armed again before could fire unheard.
    /// `limit`: for each answer, so that a crowd of watches may take longer.
    async fn reattach(&mut self, on: &S::Connection, limit: Duration) -> Result<(), Stop> {
        let rearmed = self.watches.to_rearm();
        let rearm = rearmed
            .chunks(REARMED)
            .map(|watches| StoreRequest::Rearm(watches.to_vec()));
        self.done(on, [StoreRequest::Touch], limit).await?;
        self.answered = Instant::now();
        self.done(on, rearm, limit).await
    }

    /// Sends requests at once, and takes their answers in.
    async fn done(
        &self,
        on: &S::Connection,
        operations: impl IntoIterator<Item = StoreRequest>,
        limit: Duration,
    ) -> Result<(), Stop> {
        let sent = operations.into_iter();
        let sent: Vec<_> = sent
            .map(|operation| self.sent(on, &operation, None))
            .collect();
        let mut answers = stream::iter(sent).buffered(S::UNDER_WAY);
        let silent = |_| Stop::Lost(format!("no answer within {limit:?}"));
        while let Some(asked) = timeout(limit, answers.next()).await.map_err(silent)? {
            let is_refused = asked.result.is_err();
            if let Some(stop) = self.answer(asked) {
                return Err(stop);
            }
            // Nothing was done, so the session has not moved.
            if is_refused {
                return Err(Stop::Lost("it has refused to move the session".into()));
            }
        }
        Ok(())
    }
}
