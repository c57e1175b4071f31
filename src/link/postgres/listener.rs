//! The connection on which PostgreSQL sends notifications, which all sessions of a keeper share.
//!
//! A notification wakes every connection of the database that listens. So there is one, with a
//! channel of its own, and it listens only while a session watches something.
//!
//! Invariant: it listens before a watch is armed, and until none is. When it ends, each session
//! that it served learns it, because what was sent meanwhile is lost.

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

/// Sessions, the way to each, and what it watches.
type Subscribers = Latch<HashMap<i64, (mpsc::UnboundedSender<String>, Arc<ArmedWatches>)>>;

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
        let Some(ours) = self.sender.upgrade() else {
            return;
        };
        let mut subscribers = self.listener.line.subscribers.lock();
        // A later connection of the session may have taken its place.
        let current = subscribers.get(&self.session);
        let is_current = current.is_some_and(|(current, _)| current.same_channel(&ours));
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
        let (weak, armed) = (sender.downgrade(), Arc::<ArmedWatches>::default());
        let ours = (sender, Arc::clone(&armed));
        let before = listener.line.subscribers.lock().insert(session, ours);
        drop(before);
        Ok(Subscription {
            listener,
            session,
            armed,
            sender: weak,
            events,
        })
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
            subscribers: Subscribers::default(),
            listens: Mutex::new(false),
        });
        let shared = Arc::clone(&line);
        let work = tokio::spawn(async move {
            let heard = async {
                while let Some(Ok(message)) = poll_fn(|cx| connection.poll_message(cx)).await {
                    if let AsyncMessage::Notification(sent) = message {
                        tell(&shared.subscribers, sent.payload());
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
            // Each session learns it by the end of its channel.
            let ended = std::mem::take(&mut *shared.subscribers.lock());
            drop(ended);
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
    fn is_watched(&self) -> bool {
        let subscribers = self.subscribers.lock();
        subscribers.values().any(|(_, armed)| !armed.is_empty())
    }

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
        if *listens && !self.is_watched() {
            self.client.batch_execute("UNLISTEN *").await?;
            *listens = false;
            return Ok(());
        }
        drop(listens);
        self.client.batch_execute("").await
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
    if let Some((subscriber, _)) = subscriber {
        subscriber.send(event.to_owned()).ok();
    }
}

impl Subscription {
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
