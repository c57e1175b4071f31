//! The connection on which PostgreSQL sends notifications, which all sessions of a keeper share.
//!
//! A notification wakes every connection of the database that listens. So there is one, with a
//! channel of its own, and it listens only while a session watches something.
//!
//! Invariant: it listens before a watch is armed, and until none is. When it ends, each session
//! that it served learns it, because what was sent meanwhile is lost. Nobody subscribes to one that
//! has ended, or that is with another server than the session.

use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::{Mutex, mpsc};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tokio_postgres::{AsyncMessage, Client, Error};

use super::armed::ArmedWatches;
use super::endpoint::Endpoint;
use super::problem::{trouble, ungreeted};
use crate::latch::Latch;
use crate::link::stored::{Trouble, Ungreeted};

/// Sessions, the way to each, and what it watches. None once the connection has ended.
#[derive(Debug)]
struct Subscribers(Latch<Option<HashMap<i64, Subscriber>>>);

type Subscriber = (mpsc::UnboundedSender<String>, Arc<ArmedWatches>);

impl Subscribers {
    fn new() -> Self {
        Self(Latch::new(Some(HashMap::new())))
    }

    /// Whether it was in time.
    fn add(&self, session: i64, subscriber: Subscriber) -> bool {
        let mut subscribers = self.0.lock();
        let before = subscribers
            .as_mut()
            .map(|there| there.insert(session, subscriber));
        drop(subscribers);
        before.is_some()
    }

    /// A later connection of the session may have taken its place.
    fn remove(&self, session: i64, ours: &mpsc::UnboundedSender<String>) {
        let mut subscribers = self.0.lock();
        let gone = subscribers.as_mut().and_then(|there| {
            let (current, _) = there.get(&session)?;
            let is_current = current.same_channel(ours);
            is_current.then(|| there.remove(&session))
        });
        drop(subscribers);
        drop(gone);
    }

    fn is_watched(&self) -> bool {
        let subscribers = self.0.lock();
        let mut all = subscribers.iter().flat_map(HashMap::values);
        all.any(|(_, armed)| !armed.is_empty())
    }

    /// Two words: the session and its event.
    fn tell(&self, payload: &str) {
        let Some((session, event)) = payload.split_once(' ') else {
            return;
        };
        let Ok(session) = session.parse::<i64>() else {
            return;
        };
        let subscribers = self.0.lock();
        let subscriber = subscribers.as_ref().and_then(|all| all.get(&session));
        let subscriber = subscriber.map(|(subscriber, _)| subscriber.clone());
        drop(subscribers);
        if let Some(subscriber) = subscriber {
            subscriber.send(event.to_owned()).ok();
        }
    }

    /// Each session learns it by the end of its channel.
    fn end(&self) {
        let ended = self.0.lock().take();
        drop(ended);
    }
}

/// The listening connection of a keeper. It ends with the last session that it serves.
#[derive(Debug, Default)]
pub(super) struct Listeners {
    current: Mutex<Weak<Listener>>,
}

#[derive(Debug)]
struct Listener {
    line: Arc<Line>,
    work: JoinHandle<()>,
}

/// What its task shares with sessions.
#[derive(Debug)]
struct Line {
    client: Client,
    channel: String,
    subscribers: Subscribers,
    /// Locked while that changes.
    listens: Mutex<bool>,
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
    armed: Arc<ArmedWatches>,
    sender: mpsc::WeakUnboundedSender<String>,
    events: mpsc::UnboundedReceiver<String>,
}

impl Drop for Subscription {
    fn drop(&mut self) {
        if let Some(ours) = self.sender.upgrade() {
            self.listener.line.subscribers.remove(self.session, &ours);
        }
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
            Some(listener) if listener.is_alive(rhythm / 3).await => {
                Subscription::of(listener, session)
            }
            _ => None,
        };
        if let Some(subscription) = alive {
            return Ok(subscription);
        }
        let listener = Arc::new(Listener::open(endpoint, rhythm).await?);
        *current = Arc::downgrade(&listener);
        Subscription::of(listener, session)
            .ok_or_else(|| Ungreeted::refusing("the listening connection has ended at once"))
    }

    /// Nobody subscribes to that listener any more.
    pub(super) async fn leave(&self, subscription: &Subscription) {
        let mut current = self.current.lock().await;
        if current.as_ptr() == Arc::as_ptr(&subscription.listener) {
            *current = Weak::new();
        }
    }
}

impl Listener {
    async fn open(endpoint: &Endpoint, rhythm: Duration) -> Result<Self, Ungreeted> {
        // No pooler is between, which would refuse options.
        let opened = endpoint.connect_with("").await;
        let (client, mut connection) = opened.map_err(|error| ungreeted(&error))?;
        let line = Arc::new(Line {
            client,
            channel: format!("lockkeeper_{}", uuid::Uuid::new_v4().simple()),
            subscribers: Subscribers::new(),
            listens: Mutex::new(false),
        });
        let shared = Arc::clone(&line);
        let work = tokio::spawn(async move {
            let heard = async {
                while let Some(Ok(message)) = poll_fn(|cx| connection.poll_message(cx)).await {
                    if let AsyncMessage::Notification(sent) = message {
                        shared.subscribers.tell(sent.payload());
                    }
                }
            };
            let pings = async {
                loop {
                    sleep(rhythm).await;
                    if !matches!(timeout(rhythm, shared.ping()).await, Ok(Ok(()))) {
                        break;
                    }
                }
            };
            tokio::select! {
                () = heard => {}
                () = pings => {}
            }
            tracing::debug!("the listening connection to PostgreSQL ended");
            shared.subscribers.end();
        });
        Ok(Self { line, work })
    }

    /// Whether the connection answers.
    async fn is_alive(&self, limit: Duration) -> bool {
        if self.work.is_finished() {
            return false;
        }
        let answer = self.line.client.batch_execute("");
        matches!(timeout(limit, answer).await, Ok(Ok(())))
    }
}

impl Line {
    /// Dropped, it may have changed what the server does, and is asked again.
    async fn listen(&self) -> Result<(), Error> {
        let mut listens = self.listens.lock().await;
        if !*listens {
            let listen = format!("LISTEN {}", self.channel);
            self.client.batch_execute(&listen).await?;
            *listens = true;
        }
        Ok(())
    }

    /// Asks whether the connection is there, and listens no more where nothing is watched. Dropped,
    /// it must be the end of the connection.
    async fn ping(&self) -> Result<(), Error> {
        let mut listens = self.listens.lock().await;
        // Who watches from now on asks it to listen behind this.
        if *listens && !self.subscribers.is_watched() {
            self.client.batch_execute("UNLISTEN *").await?;
            *listens = false;
            return Ok(());
        }
        drop(listens);
        self.client.batch_execute("").await
    }
}

impl Subscription {
    /// None if the listener has ended.
    fn of(listener: Arc<Listener>, session: i64) -> Option<Self> {
        let (sender, events) = mpsc::unbounded_channel();
        let (weak, armed) = (sender.downgrade(), Arc::<ArmedWatches>::default());
        let ours = (sender, Arc::clone(&armed));
        let is_there = listener.line.subscribers.add(session, ours);
        is_there.then_some(Self {
            listener,
            session,
            armed,
            sender: weak,
            events,
        })
    }

    /// The connection on which the server sends.
    pub(super) fn client(&self) -> &Client {
        &self.listener.line.client
    }

    pub(super) fn channel(&self) -> &str {
        &self.listener.line.channel
    }

    pub(super) fn armed(&self) -> &Arc<ArmedWatches> {
        &self.armed
    }

    /// Ends when the server sends what it tells this session.
    pub(super) fn listening(&self) -> impl Future<Output = Result<(), Trouble>> + use<> {
        let line = Arc::clone(&self.listener.line);
        async move { line.listen().await.map_err(|error| trouble(&error)) }
    }

    /// None at the end of the connection. Cancel safe.
    pub(super) async fn event(&mut self) -> Option<String> {
        self.events.recv().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// It would wait for events that nobody sends.
    #[test]
    fn nobody_subscribes_to_a_listener_that_has_ended() {
        let subscribers = Subscribers::new();
        let subscriber = || (mpsc::unbounded_channel().0, Arc::default());
        assert!(subscribers.add(1, subscriber()));

        subscribers.end();

        assert!(!subscribers.add(2, subscriber()));
    }
}
