//! Moves a session to another connection.
//!
//! Invariant: once it has moved, the server refuses what is still under way on an earlier
//! connection, so that an unknown outcome stays what a look finds it to be.

use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout};

use super::inbox::Message;
use super::target::Greeted;
use super::task::{EMPTY_FOR, SessionTask, Stop, Unsent};

/// Watches that one request arms again.
const REARMED: usize = 200;
const SHORTEST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

impl SessionTask {
    /// Opens another connection and arms all watches there, unless the session is over by then.
    pub(super) async fn reconnect(
        &mut self,
        last: u64,
        inbox: &mut mpsc::UnboundedReceiver<Message>,
    ) -> Result<Greeted, &'static str> {
        let since = Instant::now();
        let mut pause = SHORTEST_PAUSE;
        let mut number = last;
        while since.elapsed() < self.granted * 2 {
            // What is asked meanwhile waits.
            loop {
                match inbox.try_recv() {
                    Ok(Message::Ask { request, answer }) => {
                        let since = Instant::now();
                        let waiting = Unsent {
                            since,
                            request,
                            answer,
                        };
                        self.waiting.push_back(waiting);
                    }
                    Ok(Message::Close) => return Err("it was closed"),
                    Err(_) => break,
                }
            }
            let limit = (self.granted / 3).max(Duration::from_millis(200));
            number += 1;
            match self.target.greet(self.session.id, number, limit).await {
                Ok(greeted) => match timeout(limit, self.reattach(&greeted)).await {
                    Ok(Ok(())) => return Ok(greeted),
                    Ok(Err(Stop::Over(why))) => return Err(why),
                    Ok(Err(Stop::Lost(why))) => tracing::debug!(why, "no connection to Redis"),
                    Err(_) => tracing::debug!("no answer of Redis"),
                },
                Err(why) => tracing::debug!(?why, "no connection to Redis"),
            }
            sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
        Err("there was no server for twice its timeout")
    }

    async fn reattach(&self, on: &Greeted) -> Result<(), Stop> {
        let rearmed = self.watches.to_rearm();
        let touch = self.target.keys.touch(EMPTY_FOR);
        let rearm = rearmed
            .chunks(REARMED)
            .map(|watches| self.target.keys.rearm(watches));
        for request in std::iter::once(touch).chain(rearm) {
            let asked = self.sent(on, &request, None).await;
            let is_refused = asked.result.is_err();
            if let Some(stop) = self.answer(asked) {
                return Err(stop);
            }
            // The script has not run, so the session has not moved.
            if is_refused {
                return Err(Stop::Lost("Redis has refused to move the session".into()));
            }
        }
        Ok(())
    }
}
