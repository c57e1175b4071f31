//! One connection through the proxy: a reader and a writer for each direction, and what the
//! dialogue is about.
//!
//! The connection ends when both its sides have ended or when it is cut. One failed side does not
//! end it while the other side must not notice.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::{Instant, sleep, sleep_until};

use super::held::Latch;
use super::{Deed, End, Kind, Order, Passage, Shared, State, Way};
use crate::events::now;
use crate::frames;
use crate::pg::Prepared;
use crate::protocol::Protocol;

/// For bytes that arrive, at least.
const ROOM: usize = 16 * 1024;

/// Something on its way to the other side, not before its time.
struct Parcel {
    due: Instant,
    bytes: Vec<u8>,
    latch: Option<Arc<Latch>>,
    /// It answers more than a sign of life.
    is_answer: bool,
}

/// The state that both directions share.
struct Dialogue {
    /// The number of the connection.
    id: u64,
    /// What happens to the reply with this xid.
    deeds: std::sync::Mutex<HashMap<i32, Deed>>,
    /// The numbers of requests to a store that are mere signs of life.
    upkeep: std::sync::Mutex<HashSet<i32>>,
    cut: Notify,
}

pub(crate) async fn serve(
    id: u64,
    mut client: TcpStream,
    shared: Arc<Shared>,
    mut orders: UnboundedReceiver<Order>,
) {
    // In a black hole not even the begin of a connection gets to the other side.
    let mut passage = shared.passage.subscribe();
    let is_open = async {
        let closed = |passage: &Passage| passage.is_closed[Way::ToServer as usize];
        passage.wait_for(|passage| !closed(passage)).await.map(drop)
    };
    tokio::select! {
        open = is_open => open.expect("the proxy lives as long as this"),
        _ = orders.recv() => return close(client, End::Rst).await,
    }
    // To the client, a refusing server shows as a connection that ends at once.
    let Some(mut server) = connect(&shared).await else {
        return;
    };
    // If the connection has ended meanwhile, the next read shows it.
    client.set_nodelay(true).unwrap_or_default();
    server.set_nodelay(true).unwrap_or_default();
    let dialogue = Dialogue {
        id,
        deeds: std::sync::Mutex::default(),
        upkeep: std::sync::Mutex::default(),
        cut: Notify::new(),
    };

    let end = {
        let (client_reads, client_writes) = client.split();
        let (server_reads, server_writes) = server.split();
        let there = pass(
            Way::ToServer,
            client_reads,
            server_writes,
            &shared,
            &dialogue,
        );
        let back = pass(
            Way::ToClient,
            server_reads,
            client_writes,
            &shared,
            &dialogue,
        );
        // After an order nothing more passes.
        tokio::select! {
            biased;
            () = dialogue.cut.notified() => Some(Order::End(End::Rst)),
            order = orders.recv() => order,
            _ = futures_util::future::join(there, back) => None,
        }
    };
    match end {
        None => {}
        Some(Order::End(how)) => {
            close(client, how).await;
            close(server, how).await;
        }
        Some(Order::EndTowards(way)) => {
            let (gone, left) = match way {
                Way::ToServer => (server, client),
                _ => (client, server),
            };
            close(gone, End::Rst).await;
            // The connection is no longer read, and not closed yet.
            orders.recv().await;
            close(left, End::Rst).await;
        }
    }
}

/// Connects to the other side. A refusing member of an ensemble is tried again for a second. Its
/// peers would retry a refused connection, but start a new election after one that was accepted and
/// ends.
async fn connect(shared: &Shared) -> Option<TcpStream> {
    let deadline = Instant::now() + Duration::from_secs(1);
    loop {
        let upstream = shared.state().upstream?;
        match TcpStream::connect(upstream).await {
            Ok(stream) => return Some(stream),
            Err(_) if shared.kind == Kind::Bytes && Instant::now() < deadline => {
                sleep(Duration::from_millis(20)).await;
            }
            Err(_) => return None,
        }
    }
}

async fn close(mut stream: TcpStream, how: End) {
    match how {
        End::Rst => stream.set_zero_linger().unwrap_or_default(),
        End::Fin => {
            stream.shutdown().await.unwrap_or_default();
            // Unread bytes would turn the end into a reset.
            while matches!(stream.try_read(&mut [0; 4096]), Ok(1..)) {}
        }
    }
}

/// Passes one direction on until its end has been passed on.
async fn pass(
    way: Way,
    from: ReadHalf<'_>,
    to: WriteHalf<'_>,
    shared: &Shared,
    dialogue: &Dialogue,
) {
    let (sender, parcels) = unbounded_channel();
    futures_util::future::join(
        read(way, from, sender, shared, dialogue),
        write(way, to, parcels, shared),
    )
    .await;
}

async fn read(
    way: Way,
    mut from: ReadHalf<'_>,
    parcels: UnboundedSender<Parcel>,
    shared: &Shared,
    dialogue: &Dialogue,
) {
    let mut buffer = Vec::new();
    let mut form = Form::of(shared.kind, way);
    loop {
        // Without room, no more than 64 bytes are read at once, and a copy of a database is many.
        buffer.reserve(ROOM);
        // A reset is an end like any other here.
        if !matches!(from.read_buf(&mut buffer).await, Ok(1..)) {
            return;
        }
        while let Some(mut bytes) = form.take(&mut buffer, way) {
            let is_answer = way == Way::ToClient && form.is_answer(&bytes, dialogue);
            let parcel = |bytes, latch| {
                let due = Instant::now() + shared.passage.borrow().delay[way as usize];
                let parcel = Parcel {
                    due,
                    bytes,
                    latch,
                    is_answer,
                };
                // The writer lives as long as this.
                parcels.send(parcel).unwrap_or_default();
            };
            match deed(way, &mut form, &mut bytes, shared, dialogue) {
                None => parcel(bytes, None),
                // What comes behind it would be taken for it.
                Some(Deed::Drop) if matches!(shared.kind, Kind::Store(_)) => {
                    std::future::pending().await
                }
                Some(Deed::Drop) => {}
                Some(Deed::Hold(latch)) => parcel(bytes, Some(latch)),
                Some(Deed::Duplicate) => {
                    parcel(bytes.clone(), None);
                    parcel(bytes, None);
                }
                Some(Deed::Replace(other)) => parcel(other, None),
                Some(Deed::Cut) => return dialogue.cut.notify_one(),
            }
        }
    }
}

/// How the bytes of one direction are cut into pieces.
#[derive(PartialEq, Eq)]
enum Form {
    /// The first frame, which opens the session, is still to come.
    First,
    Frames,
    /// The number of the last request, or of the last reply.
    Store(Protocol, i32, Prepared),
    Bytes,
    /// The first message of an election is still to come.
    Introduction(u16),
}

impl Form {
    fn of(kind: Kind, way: Way) -> Self {
        match (kind, way) {
            (Kind::Frames, _) => Self::First,
            (Kind::Store(protocol), _) => Self::Store(protocol, 0, Prepared::default()),
            (Kind::Election { announced }, Way::ToServer) => Self::Introduction(announced),
            _ => Self::Bytes,
        }
    }

    /// The next piece, when all of it is there.
    fn take(&mut self, buffer: &mut Vec<u8>, way: Way) -> Option<Vec<u8>> {
        if *self == Self::First && frames::is_word(buffer) {
            *self = Self::Bytes;
        }
        match *self {
            Self::First | Self::Frames => frames::take(buffer),
            Self::Store(protocol, ..) => protocol.take(buffer, way),
            Self::Bytes if buffer.is_empty() => None,
            Self::Bytes => Some(std::mem::take(buffer)),
            Self::Introduction(announced) => {
                let message = introduction(buffer, announced)?;
                *self = Self::Bytes;
                Some(message)
            }
        }
    }

    /// Whether a piece from the server, which has not been counted yet, answers more than a sign of
    /// life.
    fn is_answer(&self, piece: &[u8], dialogue: &Dialogue) -> bool {
        match self {
            Self::First | Self::Frames => {
                piece.get(4..).and_then(frames::xid) != Some(frames::PING)
            }
            Self::Store(protocol, last, _) => {
                let mut upkeep = dialogue.upkeep.lock().expect("nothing panics with it");
                !protocol.is_message(piece) && !upkeep.remove(&(last + 1))
            }
            Self::Bytes | Self::Introduction(_) => false,
        }
    }
}

/// What happens to this piece of a session on a store.
fn deed_on_store(
    protocol: Protocol,
    way: Way,
    (last, prepared): (&mut i32, &mut Prepared),
    frame: &[u8],
    shared: &Shared,
    dialogue: &Dialogue,
) -> Option<Deed> {
    let is_counted = match way {
        Way::ToClient => !protocol.is_message(frame),
        _ => protocol.is_answered(frame),
    };
    if !is_counted {
        return None;
    }
    *last += 1;
    let mut deeds = dialogue.deeds.lock().expect("nothing panics with it");
    if way == Way::ToClient {
        return deeds.remove(last);
    }
    let frame = &*protocol.plain(prepared, frame);
    if protocol.is_upkeep(frame) {
        let mut upkeep = dialogue.upkeep.lock().expect("nothing panics with it");
        upkeep.insert(*last);
    }
    let State { rules, open, .. } = &mut *shared.state();
    if let (Some(session), Some(open)) = (protocol.session(frame), open.get_mut(&dialogue.id)) {
        open.session = Some(session);
    }
    let rule = rules
        .iter()
        .position(|(what, _)| what.takes_of(protocol, frame))?;
    deeds.insert(*last, rules.remove(rule).1);
    None
}

/// The first message of an election, which says where its sender can be reached, with another port
/// in it: a version, the sender's number, and `host:port`.
fn introduction(buffer: &mut Vec<u8>, announced: u16) -> Option<Vec<u8>> {
    const HEAD: usize = 8 + 8 + 4;
    let length = buffer.get(HEAD - 4..HEAD)?.try_into().ok()?;
    let length = usize::try_from(i32::from_be_bytes(length)).ok()?;
    if buffer.len() < HEAD + length {
        return None;
    }
    let mut message: Vec<u8> = buffer.drain(..HEAD + length).collect();
    let address = format!("127.0.0.1:{announced}");
    message.truncate(HEAD - 4);
    message.extend((address.len() as u32).to_be_bytes());
    message.extend(address.as_bytes());
    Some(message)
}

/// What happens to this piece, which is a frame or just bytes.
fn deed(
    way: Way,
    form: &mut Form,
    piece: &mut [u8],
    shared: &Shared,
    dialogue: &Dialogue,
) -> Option<Deed> {
    if let Form::Store(protocol, last, prepared) = form {
        return deed_on_store(*protocol, way, (last, prepared), piece, shared, dialogue);
    }
    if *form == Form::First {
        *form = Form::Frames;
        let is_return =
            way == Way::ToServer && frames::session(&piece[4..]).is_some_and(|id| id != 0);
        let mut state = shared.state();
        if let (Way::ToServer, Some(most)) = (way, state.most_asked) {
            frames::ask_for_at_most(piece, most);
        }
        if is_return && state.swaps > 0 {
            state.swaps -= 1;
            state.swapped += 1;
            frames::ask_for_a_new_session(piece);
        }
        return None;
    }
    if *form != Form::Frames {
        return None;
    }
    let frame = &piece[4..];
    let xid = frames::xid(frame)?;
    let mut deeds = dialogue.deeds.lock().expect("nothing panics with it");
    match way {
        Way::ToClient => deeds.remove(&xid),
        _ => {
            let State { rules, .. } = &mut *shared.state();
            let rule = rules.iter().position(|(what, _)| what.takes(frame))?;
            deeds.insert(xid, rules.remove(rule).1);
            None
        }
    }
}

async fn write(
    way: Way,
    mut to: WriteHalf<'_>,
    mut parcels: UnboundedReceiver<Parcel>,
    shared: &Shared,
) {
    let mut passage = shared.passage.subscribe();
    let mut is_open = true;
    while let Some(parcel) = parcels.recv().await {
        sleep_until(parcel.due).await;
        if let Some(latch) = parcel.latch {
            latch.reached.send_replace(true);
            let mut opened = latch.is_open.subscribe();
            opened
                .wait_for(|is_open| *is_open)
                .await
                .expect("the latch lives as long as this");
        }
        let byte_by_byte = passage
            .wait_for(|passage| !passage.is_closed[way as usize])
            .await
            .expect("the proxy lives as long as this")
            .byte_by_byte;
        let piece = if byte_by_byte { 1 } else { parcel.bytes.len() };
        for bytes in parcel.bytes.chunks(piece.max(1)) {
            // A side that has ended takes no more bytes; the other one may go on sending.
            is_open = is_open && to.write_all(bytes).await.is_ok();
            shared.writes[way as usize].fetch_add(1, Ordering::Relaxed);
        }
        if parcel.is_answer {
            shared.answered.store(now(), Ordering::Relaxed);
        }
    }
    // The end passes like everything else.
    passage
        .wait_for(|passage| !passage.is_closed[way as usize])
        .await
        .expect("the proxy lives as long as this");
    to.shutdown().await.unwrap_or_default();
}
