//! A relay between one driver and its server that counts the traffic, in a pass of its own that is
//! not timed.
//!
//! Bytes are those of the streams, without TCP's and IP's own. In ZooKeeper's protocol it counts
//! frames too. A request is a frame of the client that is neither the first of its connection nor a
//! ping. A notification is a frame that answers nothing. It changes nothing and delays nothing on
//! purpose.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::Result;

/// The transaction numbers of frames that are no requests, or answer none.
const NOTIFICATION: i32 = -1;
const PING: i32 = -2;

/// The counted traffic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Traffic {
    pub(crate) bytes_up: u64,
    pub(crate) bytes_down: u64,
    /// In ZooKeeper's protocol only, like the next one.
    pub(crate) requests: u64,
    pub(crate) notifications: u64,
}

#[derive(Debug, Default)]
struct Counters {
    bytes_up: AtomicU64,
    bytes_down: AtomicU64,
    requests: AtomicU64,
    notifications: AtomicU64,
}

/// It relays for as long as it lives.
#[derive(Debug)]
pub(crate) struct Relay {
    address: String,
    counters: Arc<Counters>,
    // Aborts its tasks when it goes.
    _relaying: JoinSet<()>,
}

impl Relay {
    pub(crate) async fn to(server: &str) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?.to_string();
        let counters = Arc::<Counters>::default();
        let mut relaying = JoinSet::new();
        relaying.spawn(accept(listener, server.to_owned(), counters.clone()));
        Ok(Self {
            address,
            counters,
            _relaying: relaying,
        })
    }

    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// All so far.
    pub(crate) fn traffic(&self) -> Traffic {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Traffic {
            bytes_up: read(&self.counters.bytes_up),
            bytes_down: read(&self.counters.bytes_down),
            requests: read(&self.counters.requests),
            notifications: read(&self.counters.notifications),
        }
    }
}

impl Traffic {
    pub(crate) fn since(self, before: Self) -> Self {
        Self {
            bytes_up: self.bytes_up - before.bytes_up,
            bytes_down: self.bytes_down - before.bytes_down,
            requests: self.requests - before.requests,
            notifications: self.notifications - before.notifications,
        }
    }
}

async fn accept(listener: TcpListener, server: String, counters: Arc<Counters>) {
    let mut connections = JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        let (server, counters) = (server.clone(), counters.clone());
        connections.spawn(async move {
            // A server that refuses looks to the client like one that hangs up.
            if let Ok(server) = TcpStream::connect(server).await {
                join(client, server, &counters).await;
            }
        });
    }
}

/// Carries both ways until both have ended.
async fn join(client: TcpStream, server: TcpStream, counters: &Counters) {
    client.set_nodelay(true).unwrap_or_default();
    server.set_nodelay(true).unwrap_or_default();
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let up = async {
        let mut frames = Frames::default();
        let count = |bytes: &[u8]| {
            counters
                .bytes_up
                .fetch_add(bytes.len() as u64, Ordering::Relaxed);
            let requests = frames.of(bytes, |xid| xid != PING);
            counters.requests.fetch_add(requests, Ordering::Relaxed);
        };
        carry(&mut from_client, &mut to_server, count).await;
    };
    let down = async {
        let mut frames = Frames::default();
        let count = |bytes: &[u8]| {
            counters
                .bytes_down
                .fetch_add(bytes.len() as u64, Ordering::Relaxed);
            let notifications = frames.of(bytes, |xid| xid == NOTIFICATION);
            counters
                .notifications
                .fetch_add(notifications, Ordering::Relaxed);
        };
        carry(&mut from_server, &mut to_client, count).await;
    };
    tokio::join!(up, down);
}

async fn carry(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    mut count: impl FnMut(&[u8]),
) {
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(length @ 1..) = from.read(&mut buffer).await {
        count(&buffer[..length]);
        if to.write_all(&buffer[..length]).await.is_err() {
            break;
        }
    }
    // It hears of the end; whether it wants to no longer matters.
    to.shutdown().await.unwrap_or_default();
}

/// The frames in a stream that comes in pieces: four bytes of length, then that many bytes. Every
/// frame but the first of a connection begins with a transaction number.
#[derive(Debug, Default)]
struct Frames {
    seen: u64,
    /// The bytes of the length and the number that have come.
    head: Vec<u8>,
    /// How many bytes of the frame are still to come after its head.
    rest: usize,
}

impl Frames {
    /// How many frames with such a number begin in these bytes; the first frame of the stream is
    /// never one.
    fn of(&mut self, mut bytes: &[u8], is_wanted: impl Fn(i32) -> bool) -> u64 {
        let mut wanted = 0;
        while !bytes.is_empty() {
            if self.rest > 0 {
                let skipped = self.rest.min(bytes.len());
                self.rest -= skipped;
                bytes = &bytes[skipped..];
                continue;
            }
            self.head.push(bytes[0]);
            bytes = &bytes[1..];
            if let [a, b, c, d, e, f, g, h] = self.head[..] {
                let length = u32::from_be_bytes([a, b, c, d]) as usize;
                self.rest = length.saturating_sub(4);
                self.seen += 1;
                wanted += u64::from(self.seen > 1 && is_wanted(i32::from_be_bytes([e, f, g, h])));
                self.head.clear();
            }
        }
        wanted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(xid: i32, rest: usize) -> Vec<u8> {
        let mut bytes = u32::to_be_bytes(4 + rest as u32).to_vec();
        bytes.extend(xid.to_be_bytes());
        bytes.extend(vec![0; rest]);
        bytes
    }

    #[test]
    fn frames_are_counted_however_the_stream_is_cut() {
        let stream = [
            frame(0, 40),
            frame(1, 100),
            frame(PING, 4),
            frame(2, 0),
            frame(3, 70_000),
        ]
        .concat();

        for size in [1, 3, 7, 64, stream.len()] {
            let mut frames = Frames::default();
            let pieces = stream.chunks(size);
            let requests: u64 = pieces
                .map(|bytes| frames.of(bytes, |xid| xid != PING))
                .sum();
            assert_eq!(requests, 3, "in pieces of {size}");
        }
    }

    #[tokio::test]
    async fn what_goes_through_arrives_and_is_counted() {
        let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let relay = Relay::to(&server.local_addr().unwrap().to_string())
            .await
            .unwrap();
        let mut client = TcpStream::connect(relay.address()).await.unwrap();
        let (mut accepted, _) = server.accept().await.unwrap();

        client
            .write_all(&[frame(0, 6), frame(1, 2)].concat())
            .await
            .unwrap();
        accepted
            .write_all(&[frame(0, 6), frame(-1, 2)].concat())
            .await
            .unwrap();
        let (mut up, mut down) = ([0; 24], [0; 24]);
        accepted.read_exact(&mut up).await.unwrap();
        client.read_exact(&mut down).await.unwrap();

        let traffic = Traffic {
            bytes_up: 24,
            bytes_down: 24,
            requests: 1,
            notifications: 1,
        };
        assert_eq!((up[21], down[21]), (1, 255));
        assert_eq!(relay.traffic(), traffic);
    }
}
