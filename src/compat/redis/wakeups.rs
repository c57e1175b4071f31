//! Wake-ups by publications: one connection of a keeper listens for all of its waiters.
//!
//! Invariants: after each publication, and after each beginning of a subscription, at least one
//! waiter of the channel tries. So a release between a try and the subscription, or while the
//! connection was lost, is not missed. Nothing is subscribed for long without a waiter.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::stream::{Stream, StreamExt};
use redis::aio::{PubSub, PubSubSink};
use redis::{Client, Msg, RedisResult};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::latch::Latch;
use crate::session::setbacks::Setbacks;

/// The server has so long to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// The connection is asked so often whether it lives, and unused channels are left.
const CHECK: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(super) struct Wakeups {
    client: Client,
    channels: Arc<Channels>,
    task: Latch<Option<JoinHandle<()>>>,
}

#[derive(Debug, Default)]
struct Channels {
    /// A waiter keeps its channel.
    waited: Latch<HashMap<String, Weak<Notify>>>,
    more: Notify,
}

impl Wakeups {
    pub(super) fn new(client: Client) -> Self {
        Self {
            client,
            channels: Arc::default(),
            task: Latch::default(),
        }
    }

    /// What wakes a waiter of this channel. It waits for nothing: when the subscription has begun,
    /// a waiter is woken.
    pub(super) fn of(&self, channel: String) -> Arc<Notify> {
        let notify = self.channels.of(channel);
        let mut task = self.task.lock();
        if task.as_ref().is_none_or(JoinHandle::is_finished) {
            let (client, channels) = (self.client.clone(), Arc::clone(&self.channels));
            *task = Some(tokio::spawn(listen(client, channels)));
        }
        notify
    }
}

impl Drop for Wakeups {
    fn drop(&mut self) {
        if let Some(task) = self.task.lock().take() {
            task.abort();
        }
    }
}

impl Channels {
    fn of(&self, channel: String) -> Arc<Notify> {
        let mut waited = self.waited.lock();
        let known = waited.get(&channel).and_then(Weak::upgrade);
        let notify = known.unwrap_or_else(|| {
            let notify = Arc::default();
            waited.insert(channel, Arc::downgrade(&notify));
            self.more.notify_one();
            notify
        });
        drop(waited);
        notify
    }

    /// The channels that have waiters.
    fn wanted(&self) -> HashMap<String, Arc<Notify>> {
        let mut waited = self.waited.lock();
        waited.retain(|_, notify| notify.strong_count() > 0);
        let all = waited.iter();
        all.filter_map(|(channel, notify)| Some((channel.clone(), notify.upgrade()?)))
            .collect()
    }

    /// One waiter is enough: it holds, and its release is the next publication.
    fn published(&self, channel: &str) {
        let notify = self.waited.lock().get(channel).and_then(Weak::upgrade);
        if let Some(notify) = notify {
            notify.notify_one();
        }
    }
}

/// Listens for ever, through lost connections; without waiters it has no connection.
async fn listen(client: Client, channels: Arc<Channels>) {
    let mut setbacks = Setbacks::default();
    loop {
        if channels.wanted().is_empty() {
            channels.more.notified().await;
            continue;
        }
        if let Ok(Ok(connection)) = timeout(ANSWER_TIMEOUT, client.get_async_pubsub()).await {
            setbacks = Setbacks::default();
            follow(connection, &channels).await;
        }
        sleep(setbacks.pause()).await;
    }
}

/// Follows the channels that have waiters, until there are none or the connection is lost.
async fn follow(connection: PubSub, channels: &Channels) {
    let (mut sink, mut messages) = connection.split();
    let mut subscribed = HashSet::new();
    loop {
        let updated = update(&mut sink, &mut subscribed, channels);
        let updated = timeout(ANSWER_TIMEOUT, updated).await;
        if !matches!(updated, Ok(Ok(()))) || subscribed.is_empty() {
            return;
        }
        if !forward(&mut messages, channels).await {
            return;
        }
    }
}

/// Subscribes what is new, leaves what has no waiters, and asks whether the server is there.
async fn update(
    sink: &mut PubSubSink,
    subscribed: &mut HashSet<String>,
    channels: &Channels,
) -> RedisResult<()> {
    let wanted = channels.wanted();
    let left = subscribed
        .iter()
        .filter(|channel| !wanted.contains_key(*channel));
    for channel in left.cloned().collect::<Vec<_>>() {
        sink.unsubscribe(&channel).await?;
        subscribed.remove(&channel);
    }
    for (channel, notify) in wanted {
        if !subscribed.contains(&channel) {
            sink.subscribe(&channel).await?;
            subscribed.insert(channel);
            notify.notify_waiters();
            // And who is just trying.
            notify.notify_one();
        }
    }
    sink.ping::<redis::Value>().await.map(drop)
}

/// Passes publications on until it is time to look at the channels. `false` without a connection.
async fn forward(messages: &mut (impl Stream<Item = Msg> + Unpin), channels: &Channels) -> bool {
    let check = sleep(CHECK);
    tokio::pin!(check);
    loop {
        let message = tokio::select! {
            message = messages.next() => message,
            () = channels.more.notified() => return true,
            () = &mut check => return true,
        };
        match message {
            Some(message) => channels.published(message.get_channel_name()),
            None => return false,
        }
    }
}
