//! The way to the task of a session. (no I/O)

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout};

use super::{Outcome, StoreRequest};
use crate::link::Fault;

pub(super) const OVER: &str = "the session is over";

/// Who asks.
#[derive(Debug, Clone)]
pub(crate) struct SessionKey {
    pub(crate) id: i64,
    pub(crate) secret: Arc<str>,
}

pub(super) enum Message {
    Ask {
        /// When it was called.
        since: Instant,
        operation: StoreRequest,
        answer: Option<oneshot::Sender<Result<Outcome, Fault>>>,
    },
    Close,
}

/// The way to the task of a session.
#[derive(Clone)]
pub(super) struct Inbox {
    pub(super) messages: mpsc::UnboundedSender<Message>,
    pub(super) deadline: Duration,
}

impl Inbox {
    /// Sends a request now; the answer comes within the deadline.
    pub(super) fn ask(
        &self,
        operation: StoreRequest,
    ) -> impl Future<Output = Result<Outcome, Fault>> + Send + use<> {
        let (answer, answered) = oneshot::channel();
        let is_sent = self.send(operation, Some(answer));
        let deadline = self.deadline;
        async move {
            if !is_sent {
                return Err(Fault::Unknown(OVER.into()));
            }
            match timeout(deadline, answered).await {
                Ok(Ok(answered)) => answered,
                Ok(Err(_)) => Err(Fault::Unknown(OVER.into())),
                Err(_) => Err(Fault::Unknown(format!("no answer within {deadline:?}"))),
            }
        }
    }

    /// Sends a request of which no answer is wanted.
    pub(super) fn tell(&self, operation: StoreRequest) {
        self.send(operation, None);
    }

    fn send(
        &self,
        operation: StoreRequest,
        answer: Option<oneshot::Sender<Result<Outcome, Fault>>>,
    ) -> bool {
        let asked = Message::Ask {
            since: Instant::now(),
            operation,
            answer,
        };
        self.messages.send(asked).is_ok()
    }
}
