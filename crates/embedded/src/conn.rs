//! One connection: bytes in, bytes out.
//!
//! Invariant: a misbehaving or slow client harms only its own connection. Nothing is decided here
//! about nodes or sessions.

use std::net::SocketAddr;
use std::sync::Arc;
use std::{future, io, mem};

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::sync::{mpsc, watch};
use tokio::time::{sleep_until, timeout};

use super::outbox::{Item, Line, until};
use super::proto::ConnectRequest;
use super::sessions::ConnId;
use super::shared::{Flow, Joined, Shared};
use super::wire::{self, Malformed};
use super::words::Word;

/// The size of one read. It is small, because there may be many thousand idle connections.
const READ_CHUNK: usize = 2 << 10;
/// The longest connect request. Real ones have about sixty bytes, and an unknown peer is not worth
/// a whole frame of memory.
const MOST_HELLO: usize = 4 << 10;
/// Frames are gathered up to this size before they are written.
const WRITE_BATCH: usize = 64 << 10;
/// The largest write buffer that an idle connection keeps.
const KEPT_BATCH: usize = 4 << 10;

/// Why a connection ended.
#[derive(Debug)]
enum End {
    Closed,
    Malformed(Malformed),
    Io(io::Error),
}

impl From<Malformed> for End {
    fn from(malformed: Malformed) -> Self {
        Self::Malformed(malformed)
    }
}

impl From<io::Error> for End {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Serves a connection until it ends.
pub(super) async fn run(mut stream: TcpStream, address: SocketAddr, shared: Arc<Shared>) {
    let end = match serve(&mut stream, address, &shared).await {
        Ok(()) => End::Closed,
        Err(end) => end,
    };
    match end {
        End::Closed => {}
        End::Malformed(Malformed(reason)) => {
            tracing::warn!(%address, reason, "malformed input; connection closed")
        }
        End::Io(error) => tracing::debug!(%address, %error, "connection lost"),
    }
}

async fn serve(
    stream: &mut TcpStream,
    address: SocketAddr,
    shared: &Arc<Shared>,
) -> Result<(), End> {
    stream.set_nodelay(true)?;
    let mut buffer = BytesMut::new();
    let hello = timeout(
        shared.settings.handshake_timeout,
        greet(stream, &mut buffer, address, shared),
    );
    let Ok(hello) = hello.await else {
        tracing::debug!(%address, "no connect request in time; connection closed");
        return Ok(());
    };
    let Some(joined) = hello? else {
        return Ok(());
    };
    let conn = joined.conn;
    let line = joined.line.clone();
    let mut frozen = line.frozen.subscribe();
    let end = converse(stream, buffer, joined, shared).await;
    shared.leave(conn);
    // The peer of a frozen connection must not see it end either.
    until(&mut frozen, false).await;
    end
}

/// Reads the first bytes of a connection. Answers a four-letter word, or joins by a connect
/// request.
async fn greet(
    stream: &mut TcpStream,
    buffer: &mut BytesMut,
    address: SocketAddr,
    shared: &Shared,
) -> Result<Option<Joined>, End> {
    while buffer.len() < 4 {
        if read_some(stream, buffer, shared).await? == 0 {
            return Ok(None);
        }
    }
    if let Some(word) = buffer.first_chunk().and_then(Word::parse) {
        // Held until the answer is written or the handshake times out.
        let _turn = match word.is_long() {
            true => shared.long_words.acquire().await.ok(),
            false => None,
        };
        let answer = word.answer(|| shared.status(address));
        stream.write_all(answer.as_bytes()).await?;
        stream.shutdown().await?;
        return Ok(None);
    }
    let longest = shared.settings.max_frame.min(MOST_HELLO);
    let frame = loop {
        if let Some(frame) = wire::take_frame(buffer, longest)? {
            break frame;
        }
        if read_some(stream, buffer, shared).await? == 0 {
            return Ok(None);
        }
    };
    Ok(shared.join(address, &ConnectRequest::decode(frame)?))
}

async fn read_some(
    reader: &mut (impl AsyncReadExt + Unpin),
    buffer: &mut BytesMut,
    shared: &Shared,
) -> io::Result<usize> {
    buffer.reserve(READ_CHUNK);
    let count = reader.read_buf(buffer).await?;
    shared.count_in(count);
    Ok(count)
}

async fn converse(
    stream: &mut TcpStream,
    buffer: BytesMut,
    joined: Joined,
    shared: &Shared,
) -> Result<(), End> {
    let Joined {
        conn,
        items,
        line,
        events_held,
    } = joined;
    let (reader, writer) = stream.split();
    let incoming = Incoming {
        reader,
        buffer,
        is_grown: false,
        conn,
        line: &line,
        shared,
    };
    let outgoing = Outgoing {
        writer,
        items,
        batch: BytesMut::new(),
        cost: 0,
        line: &line,
        events_held,
    };
    tokio::select! {
        end = incoming.run() => end,
        end = outgoing.run() => end.map_err(End::from),
        () = line.until_cut() => Ok(()),
    }
}

struct Incoming<'a> {
    reader: ReadHalf<'a>,
    buffer: BytesMut,
    /// Whether the buffer has held a frame longer than usual. An idle connection would keep that
    /// memory, so the buffer is made anew.
    is_grown: bool,
    conn: ConnId,
    line: &'a Line,
    shared: &'a Shared,
}

impl Incoming<'_> {
    async fn run(mut self) -> Result<(), End> {
        let mut frozen = self.line.frozen.subscribe();
        loop {
            until(&mut frozen, false).await;
            self.line.until_uncrowded().await;
            if let Some(frame) = self.next_frame()? {
                self.is_grown |= frame.len() > READ_CHUNK;
                if self.shared.serve(self.conn, frame).await? == Flow::Finish {
                    // The writer ends the connection once everything queued is written.
                    return future::pending().await;
                }
                continue;
            }
            if mem::take(&mut self.is_grown) {
                self.buffer = BytesMut::from(&self.buffer[..]);
            }
            let count = tokio::select! {
                biased;
                () = until(&mut frozen, true) => continue,
                count = read_some(&mut self.reader, &mut self.buffer, self.shared) => count?,
            };
            if count == 0 {
                return Ok(());
            }
        }
    }

    fn next_frame(&mut self) -> Result<Option<Bytes>, Malformed> {
        wire::take_frame(&mut self.buffer, self.shared.settings.max_frame)
    }
}

struct Outgoing<'a> {
    writer: WriteHalf<'a>,
    items: mpsc::UnboundedReceiver<Item>,
    batch: BytesMut,
    /// The queue cost of the frames in the batch.
    cost: usize,
    line: &'a Line,
    events_held: watch::Receiver<bool>,
}

impl Outgoing<'_> {
    async fn run(mut self) -> io::Result<()> {
        loop {
            let Some(item) = self.items.recv().await else {
                // The sender is gone: the connection was cut, and the cut ends it.
                return future::pending().await;
            };
            let cost = item.cost();
            match item {
                Item::Reply(frame) => self.batch.extend_from_slice(&frame),
                Item::Event(frame, due) => {
                    if *self.events_held.borrow() {
                        self.flush().await?;
                        until(&mut self.events_held, false).await;
                    }
                    if let Some(due) = due {
                        self.flush().await?;
                        sleep_until(due).await;
                    }
                    self.batch.extend_from_slice(&frame);
                }
                Item::Wait(latch) => {
                    self.flush().await?;
                    latch.until_open().await;
                }
                Item::Close => break,
            }
            self.cost += cost;
            if self.batch.len() >= WRITE_BATCH || self.items.is_empty() {
                self.flush().await?;
            }
        }
        self.flush().await?;
        until(&mut self.line.frozen.subscribe(), false).await;
        self.writer.shutdown().await
    }

    async fn flush(&mut self) -> io::Result<()> {
        if self.batch.is_empty() {
            return Ok(());
        }
        until(&mut self.line.frozen.subscribe(), false).await;
        self.writer.write_all(&self.batch).await?;
        self.line.wrote(mem::take(&mut self.cost));
        if self.batch.capacity() > KEPT_BATCH {
            // One large reply must not cost an idle connection its size forever.
            self.batch = BytesMut::new();
        }
        self.batch.clear();
        Ok(())
    }
}
