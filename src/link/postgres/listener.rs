//! The connection on which PostgreSQL sends notifications, which all sessions of a keeper share.
//!
//! A notification wakes every connection of the database that listens, so there is one, with a
//! channel of its own. Invariant: when it ends, each session that it served learns it, because what
//! was sent meanwhile is lost.

use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::{Mutex, mpsc};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tokio_postgres::{AsyncMessage, Client};

use super::endpoint::Endpoint;
use super::problem::ungreeted;
use crate::latch::Latch;
use crate::link::stored::Ungreeted;

/// Sessions, and the way to each.
type Subscribers = Arc<Latch<HashMap<i64, mpsc::UnboundedSender<String>>>>;

/// The listening connection of a keeper. It ends with the last session that it serves.
#[derive(Debug, Default)]
pub(super) struct Listeners {
    current: Mutex<Weak<Listener>>,
}

#[derive(Debug)]
struct Listener {
    client: Arc<Client>,
    channel: String,
    subscribers: Subscribers,
    work: JoinHandle<()>,
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.work.abort();
    }
}

/// What is sent to one session. It keeps the connection.
#[derive(Debug)]
pub(super) struct Subscription {
    listener: Arc<Listener>,
    session: i64,
    sender: mpsc::WeakUnboundedSender<String>,
    events: mpsc::UnboundedReceiver<String>,
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let Some(ours) = self.sender.upgrade() else {
            return;
        };
        let mut subscribers = self.listener.subscribers.lock();
        // A later connection of the session may have taken its place.
        let current = subscribers.get(&self.session);
        let is_current = current.is_some_and(|current| current.same_channel(&ours));
        let gone = is_current.then(|| subscribers.remove(&self.session));
        drop(subscribers);
        drop(gone);
    }
}

impl Listeners {
    /// `rhythm`: how often the connection is asked whether it is there.
    pub(super) async fn subscribe(
        &self,
        endpoint: &Endpoint,
        session: i64,
        rhythm: Duration,
    ) -> Result<Subscription, Ungreeted> {
        let mut current = self.current.lock().await;
        let alive = match current.upgrade() {
            Some(listener) if listener.is_alive(rhythm / 3).await => Some(listener),
            _ => None,
        };
        let listener = match alive {
            Some(listener) => listener,
            None => Arc::new(Listener::open(endpoint, rhythm).await?),
        };
        *current = Arc::downgrade(&listener);
        let (sender, events) = mpsc::unbounded_channel();
        let weak = sender.downgrade();
        let before = listener.subscribers.lock().insert(session, sender);
        drop(before);
        Ok(Subscription {
            listener,
            session,
            sender: weak,
            events,
        })
    }
}

impl Listener {
    async fn open(endpoint: &Endpoint, rhythm: Duration) -> Result<Self, Ungreeted> {
        let opened = endpoint.connect().await;
        let (client, mut connection) = opened.map_err(|error| ungreeted(&error))?;
        let (client, subscribers) = (Arc::new(client), Subscribers::default());
        let (asked, told) = (Arc::clone(&client), Arc::clone(&subscribers));
        let work = tokio::spawn(async move {
            let heard = async {
                while let Some(Ok(message)) = poll_fn(|cx| connection.poll_message(cx)).await {
                    if let AsyncMessage::Notification(sent) = message {
                        tell(&told, sent.payload());
                    }
                }
            };
            let pings = async {
                loop {
                    sleep(rhythm).await;
                    if !matches!(timeout(rhythm, asked.batch_execute("")).await, Ok(Ok(()))) {
                        break;
                    }
                }
            };
            tokio::select! {
                () = heard => {}
                () = pings => {}
            }
            tracing::debug!("the listening connection to PostgreSQL ended");
            // Each session learns it by the end of its channel.
            let ended = std::mem::take(&mut *told.lock());
            drop(ended);
        });
        let channel = format!("lockkeeper_{}", uuid::Uuid::new_v4().simple());
        let listener = Self {
            client,
            channel,
            subscribers,
            work,
        };
        let listen = format!("LISTEN {}", listener.channel);
        let listening = listener.client.batch_execute(&listen).await;
        listening.map_err(|error| ungreeted(&error))?;
        Ok(listener)
    }

    /// Whether the connection answers.
    async fn is_alive(&self, limit: Duration) -> bool {
        if self.work.is_finished() {
            return false;
        }
        let answer = self.client.batch_execute("");
        matches!(timeout(limit, answer).await, Ok(Ok(())))
    }
}

/// Two words: the session and its event.
fn tell(subscribers: &Subscribers, payload: &str) {
    let Some((session, event)) = payload.split_once(' ') else {
        return;
    };
    let Ok(session) = session.parse::<i64>() else {
        return;
    };
    let subscriber = subscribers.lock().get(&session).cloned();
    if let Some(subscriber) = subscriber {
        subscriber.send(event.to_owned()).ok();
    }
}

impl Subscription {
    pub(super) fn channel(&self) -> &str {
        &self.listener.channel
    }

    /// None at the end of the connection. Cancel safe.
    pub(super) async fn event(&mut self) -> Option<String> {
        self.events.recv().await
    }
}
