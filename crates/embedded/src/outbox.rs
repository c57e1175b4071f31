//! The queue of a connection's outgoing frames, and the switches by which the server controls the
//! connection.
//!
//! Invariant: frames pushed under the server's lock leave in that order. An item that waits delays
//! everything behind it. The queue is bounded in bytes: a client that does not read loses its
//! connection.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::Instant;

/// With more queued bytes than this, a connection's requests wait. Its events are still queued.
const CROWDED: usize = 1 << 20;
/// The memory of a queued frame besides its bytes: its place in the queue, and the allocation of
/// the shortest frame. Without it, a client that leaves many short events unread would cost five
/// times its count.
const PLACE: usize = 192;

/// A point that is reached once and stays closed until it is opened.
#[derive(Debug)]
pub(super) struct Latch {
    reached: watch::Sender<bool>,
    open: watch::Sender<bool>,
}

impl Latch {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            reached: watch::Sender::new(false),
            open: watch::Sender::new(false),
        })
    }

    pub(super) fn mark_reached(&self) {
        self.reached.send_replace(true);
    }

    pub(super) fn open(&self) {
        self.open.send_replace(true);
    }

    pub(super) async fn until_reached(&self) {
        until(&mut self.reached.subscribe(), true).await;
    }

    pub(super) async fn until_open(&self) {
        until(&mut self.open.subscribe(), true).await;
    }
}

/// Waits until a switch has this value. Returns at once if the switch was dropped.
pub(super) async fn until(switch: &mut watch::Receiver<bool>, value: bool) {
    switch.wait_for(|now| *now == value).await.ok();
}

#[derive(Debug)]
pub(super) enum Item {
    Reply(Bytes),
    /// Not sent before that time.
    Event(Bytes, Option<Instant>),
    /// Nothing behind this goes on until the latch is open.
    Wait(Arc<Latch>),
    /// The connection ends here.
    Close,
}

impl Item {
    /// Its bytes in the queue's count.
    pub(super) fn cost(&self) -> usize {
        match self {
            Self::Reply(frame) | Self::Event(frame, _) => frame.len() + PLACE,
            Self::Wait(_) | Self::Close => 0,
        }
    }
}

/// Counts of one connection, for the four-letter words.
#[derive(Debug, Default)]
pub(super) struct Traffic {
    pub(super) received: u64,
    pub(super) sent: u64,
}

/// The pushing end.
#[derive(Debug)]
pub(super) struct Outbox {
    items: mpsc::UnboundedSender<Item>,
    pub(super) line: Arc<Line>,
    max_bytes: usize,
    pub(super) traffic: Traffic,
}

/// What both ends of a connection share.
#[derive(Debug)]
pub(super) struct Line {
    queued: AtomicUsize,
    drained: Notify,
    cut: Notify,
    pub(super) frozen: watch::Sender<bool>,
}

impl Line {
    /// Ends the connection without writing what is still queued.
    pub(super) fn cut(&self) {
        self.cut.notify_one();
    }

    pub(super) async fn until_cut(&self) {
        self.cut.notified().await;
    }

    /// Waits until so little is queued that another request may be answered.
    pub(super) async fn until_uncrowded(&self) {
        while self.queued.load(Ordering::Relaxed) > CROWDED {
            self.drained.notified().await;
        }
    }

    /// Takes the cost of written frames off the count.
    pub(super) fn wrote(&self, cost: usize) {
        self.queued.fetch_sub(cost, Ordering::Relaxed);
        self.drained.notify_one();
    }
}

pub(super) fn channel(max_bytes: usize) -> (Outbox, mpsc::UnboundedReceiver<Item>) {
    let (items, receiver) = mpsc::unbounded_channel();
    let line = Line {
        queued: AtomicUsize::new(0),
        drained: Notify::new(),
        cut: Notify::new(),
        frozen: watch::Sender::new(false),
    };
    (
        Outbox {
            items,
            line: Arc::new(line),
            max_bytes,
            traffic: Traffic::default(),
        },
        receiver,
    )
}

impl Outbox {
    /// Queues an item. If the queue would exceed its bound, the connection is cut.
    pub(super) fn push(&mut self, item: Item) {
        let cost = item.cost();
        if cost > 0 {
            self.traffic.sent += 1;
            let queued = self.line.queued.fetch_add(cost, Ordering::Relaxed) + cost;
            if queued > self.max_bytes {
                tracing::debug!(queued, "client does not read; its connection is cut");
                self.line.cut();
                return;
            }
        }
        // The receiver is gone only when the connection is ending, and then the item is not needed.
        self.items.send(item).ok();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    /// The number of frames of this length accepted before the connection is cut.
    async fn taken(length: usize, max_bytes: usize) -> usize {
        let (mut outbox, _items) = channel(max_bytes);
        for count in 0..10_000 {
            outbox.push(Item::Event(Bytes::from(vec![7; length]), None));
            if timeout(Duration::ZERO, outbox.line.until_cut())
                .await
                .is_ok()
            {
                return count;
            }
        }
        panic!("a client that never reads is never cut");
    }

    #[tokio::test]
    async fn short_frames_count_for_the_memory_that_they_take() {
        assert_eq!(taken(40, 232 * 100).await, 100);
        assert_eq!(taken(100_000, 1 << 20).await, 10);
    }

    #[test]
    fn what_was_written_counts_no_more() {
        let (mut outbox, _items) = channel(1_000);
        let reply = || Item::Reply(Bytes::from(vec![7; 500]));

        for _ in 0..3 {
            outbox.push(reply());
            outbox.line.wrote(reply().cost());
        }

        assert_eq!(outbox.line.queued.load(Ordering::Relaxed), 0);
    }
}
