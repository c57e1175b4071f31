//! A TCP proxy before one server that injects faults on command. It cuts, refuses, swallows,
//! delays, and holds, loses or repeats one reply.
//!
//! A black hole loses no byte, as a network does not. Bytes sent into it, and the end of a
//! connection too, arrive late, after the heal. It invents no bytes of its own, but changes the
//! connect request or the reply that it is told to.

mod connection;
mod each;
mod held;

use std::collections::{HashMap, HashSet};
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

pub use self::each::Proxies;
pub use self::held::Held;
use self::held::Latch;
use super::events::Nanos;
use super::eventually;
use super::frames::Matching;
use super::ports::{self, Reserved};
use super::protocol::Protocol;
pub use super::protocol::Way;

impl Way {
    const EACH: [Self; 2] = [Self::ToServer, Self::ToClient];

    fn covers(self, one: Self) -> bool {
        self == Self::Both || self == one
    }
}

/// How a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Fin,
    Rst,
}

/// A command to a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    End(End),
    /// The side in this direction sees a reset; the other one sees silence.
    EndTowards(Way),
}

/// The kind of traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Sessions of ZooKeeper's clients, frame by frame.
    Frames,
    /// Sessions of the link to another store, piece by piece.
    Store(Protocol),
    /// Any bytes.
    Bytes,
    /// Members of an ensemble that elect a leader. Each member announces its port to the other.
    /// `announced` replaces that port.
    Election { announced: u16 },
}

/// The fault for the reply to one request.
#[derive(Debug)]
enum Deed {
    /// It waits for the latch, and all that comes behind it.
    Hold(Arc<Latch>),
    /// It is left out; the connection goes on.
    Drop,
    /// The connection ends in its place.
    Cut,
    /// It comes twice.
    Duplicate,
    /// These bytes come in its place.
    Replace(Vec<u8>),
}

/// How bytes pass now, by direction.
#[derive(Clone, Copy, Debug, Default)]
struct Passage {
    is_closed: [bool; 2],
    delay: [Duration; 2],
    byte_by_byte: bool,
}

#[derive(Debug)]
struct Shared {
    kind: Kind,
    passage: watch::Sender<Passage>,
    state: Mutex<State>,
    /// The number of writes, by direction.
    writes: [AtomicU64; 2],
    /// When a client was last answered anything but a ping.
    answered: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    upstream: Option<SocketAddr>,
    rules: Vec<(Matching, Deed)>,
    swaps: usize,
    swapped: usize,
    /// Milliseconds.
    most_asked: Option<i32>,
    next: u64,
    open: HashMap<u64, Open>,
}

#[derive(Debug)]
struct Open {
    cut: mpsc::UnboundedSender<Order>,
    task: JoinHandle<()>,
    /// The session that has asked on it last, and which of its connections it is.
    session: Option<(i64, i64)>,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One proxy. Everything of it ends when it is dropped.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    /// It is its own while it refuses, too.
    _port: Reserved,
    shared: Arc<Shared>,
    accepting: Option<JoinHandle<()>>,
}

impl Proxy {
    /// A proxy before a server of ZooKeeper's protocol.
    pub fn before(server: SocketAddr) -> Self {
        Self::start(server, Kind::Frames).expect("a port for a proxy")
    }

    /// A proxy before the server of another store.
    pub fn before_store(server: SocketAddr, protocol: Protocol) -> Self {
        Self::start(server, Kind::Store(protocol)).expect("a port for a proxy")
    }

    /// A proxy that passes bytes of any protocol.
    pub fn of_bytes(upstream: SocketAddr) -> io::Result<Self> {
        Self::start(upstream, Kind::Bytes)
    }

    fn start(upstream: SocketAddr, kind: Kind) -> io::Result<Self> {
        let listener = ports::listen(1)?.remove(0);
        Self::on(listener, upstream, kind)
    }

    /// A proxy before the election port of a member, on a listener of our own, which tells it that
    /// the caller is at `announced`.
    pub fn of_election(
        listener: (Reserved, std::net::TcpListener),
        upstream: SocketAddr,
        announced: u16,
    ) -> io::Result<Self> {
        Self::on(listener, upstream, Kind::Election { announced })
    }

    fn on(
        (port, listener): (Reserved, std::net::TcpListener),
        upstream: SocketAddr,
        kind: Kind,
    ) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let listener = TcpListener::from_std(listener)?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            kind,
            passage: watch::Sender::new(Passage::default()),
            state: Mutex::new(State {
                upstream: Some(upstream),
                ..State::default()
            }),
            writes: Default::default(),
            answered: AtomicU64::default(),
        });
        let accepting = Some(tokio::spawn(accept(listener, shared.clone())));
        Ok(Self {
            address,
            _port: port,
            shared,
            accepting,
        })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Leads new connections to another server, as a name does whose server was replaced. The open
    /// ones stay where they are.
    pub fn lead_to(&self, server: SocketAddr) {
        self.shared.state().upstream = Some(server);
    }

    /// How many connections of sessions are open. To PostgreSQL, each consists of several.
    pub fn connections(&self) -> usize {
        let state = self.shared.state();
        if self.shared.kind != Kind::Store(Protocol::Postgres) {
            return state.open.len();
        }
        let sessions = state.open.values().filter_map(|open| open.session);
        sessions.collect::<HashSet<_>>().len()
    }

    /// Whether a client has connected, even if it was not answered yet.
    pub fn is_connected(&self) -> bool {
        !self.shared.state().open.is_empty()
    }

    /// How often something was written in this direction.
    pub fn writes(&self, way: Way) -> u64 {
        self.shared.writes[way as usize].load(Ordering::Relaxed)
    }

    /// When a client was last answered anything but a ping; 0 if none was.
    pub fn answered(&self) -> Nanos {
        self.shared.answered.load(Ordering::Relaxed)
    }

    /// Ends every connection, at both its sides, and returns their number. They are closed when it
    /// returns.
    pub async fn cut(&self, end: End) -> usize {
        let open: Vec<Open> = self
            .shared
            .state()
            .open
            .drain()
            .map(|(_, open)| open)
            .collect();
        let count = open.len();
        for Open { cut, task, .. } in open {
            // It may have ended by itself.
            cut.send(Order::End(end)).unwrap_or_default();
            task.await.expect("a connection of the proxy ends well");
        }
        count
    }

    /// Resets the side of every connection that lies in this direction. The other side sees silence
    /// until the cut.
    pub fn end_towards(&self, way: Way) {
        for open in self.shared.state().open.values() {
            // It may have ended by itself.
            open.cut.send(Order::EndTowards(way)).unwrap_or_default();
        }
    }

    /// Refuses new connections. The open ones stay.
    pub async fn refuse(&mut self) {
        if let Some(accepting) = self.accepting.take() {
            accepting.abort();
            assert!(accepting.await.is_err_and(|error| error.is_cancelled()));
        }
    }

    /// Accepts connections again, on the same port.
    pub async fn accept(&mut self) {
        if self.accepting.is_some() {
            return;
        }
        // For a moment a process that is just being started may still have the last listener.
        let bind = || async { TcpListener::bind(self.address).await.ok() };
        let listener = eventually("the port is ours again", Duration::from_secs(5), bind).await;
        self.accepting = Some(tokio::spawn(accept(listener, self.shared.clone())));
    }

    /// Lets nothing through from now on in this direction, not even the end of a connection. New
    /// connections are accepted and silent.
    pub fn black_hole(&self, way: Way) {
        self.change(way, |passage, one| passage.is_closed[one] = true);
    }

    /// Lets everything through again, and first the bytes that were held back.
    pub fn heal(&self) {
        self.change(Way::Both, |passage, one| passage.is_closed[one] = false);
    }

    /// Passes everything on this much later.
    pub fn delay(&self, way: Way, delay: Duration) {
        self.change(way, |passage, one| passage.delay[one] = delay);
    }

    /// Writes each byte on its own, or no longer.
    pub fn byte_by_byte(&self, on: bool) {
        self.shared
            .passage
            .send_modify(|passage| passage.byte_by_byte = on);
    }

    fn change(&self, way: Way, mut change: impl FnMut(&mut Passage, usize)) {
        self.shared.passage.send_modify(|passage| {
            for one in Way::EACH {
                if way.covers(one) {
                    change(passage, one as usize);
                }
            }
        });
    }

    /// Makes the next client that resumes its session open a new one instead, without its
    /// knowledge.
    pub fn swap_next_session(&self) {
        self.shared.state().swaps += 1;
    }

    /// Has every session that is opened from now on ask for this timeout at most, as if the servers
    /// granted no more.
    pub fn ask_for_at_most(&self, most: Duration) {
        let millis = i32::try_from(most.as_millis()).expect("a timeout in milliseconds");
        self.shared.state().most_asked = Some(millis);
    }

    /// How many sessions were swapped.
    pub fn swapped(&self) -> usize {
        self.shared.state().swapped
    }

    /// Keeps the reply to the next such request, and all that comes behind it on its connection.
    #[must_use = "dropping a hold releases it"]
    pub fn hold_reply(&self, to: Matching) -> Held {
        let latch = Arc::new(Latch::default());
        self.rule(to, Deed::Hold(latch.clone()));
        Held(latch)
    }

    /// Leaves out the reply to the next such request; the connection goes on. On stores whose
    /// replies have no number, all that is behind it is left out too.
    pub fn drop_reply(&self, to: Matching) {
        self.rule(to, Deed::Drop);
    }

    /// Resets the connection in place of the reply to the next such request.
    pub fn cut_at_reply(&self, to: Matching) {
        self.rule(to, Deed::Cut);
    }

    /// Gives the reply to the next such request twice.
    pub fn duplicate_reply(&self, to: Matching) {
        self.rule(to, Deed::Duplicate);
    }

    /// Gives other bytes in place of the reply to the next such request; the connection goes on.
    pub fn replace_reply(&self, to: Matching, bytes: Vec<u8>) {
        self.rule(to, Deed::Replace(bytes));
    }

    fn rule(&self, to: Matching, deed: Deed) {
        self.shared.state().rules.push((to, deed));
    }

    /// Forgets the rules and swaps that have met nothing yet.
    pub fn disarm(&self) {
        let mut state = self.shared.state();
        state.rules.clear();
        state.swaps = 0;
    }

    /// How many replies are still waited for by a rule.
    pub fn armed(&self) -> usize {
        self.shared.state().rules.len()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        if let Some(accepting) = &self.accepting {
            accepting.abort();
        }
        for (_, open) in self.shared.state().open.drain() {
            open.task.abort();
        }
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    loop {
        let Ok((client, _)) = listener.accept().await else {
            // The usual cause is a lack of file descriptors; the next try shows it.
            tokio::task::yield_now().await;
            continue;
        };
        let (cut, commands) = mpsc::unbounded_channel();
        let mut state = shared.state();
        state.next += 1;
        let id = state.next;
        let serving = connection::serve(id, client, shared.clone(), commands);
        let theirs = shared.clone();
        let task = tokio::spawn(async move {
            serving.await;
            drop(theirs.state().open.remove(&id));
        });
        let session = None;
        state.open.insert(id, Open { cut, task, session });
    }
}
