//! A wire to a server that counts requests and loses the one it is told to, on any server.
//!
//! The proxies of the testbench match a request by its content; this one goes by its place in the
//! order. It knows only which frames are requests: the first frame of each side is the handshake,
//! and a negative number is a ping, an event or the client's own. On other stores, requests are
//! numbered here, and what keeps up a connection or a session is a ping. It never makes up a byte,
//! nor reorders any.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use testbench::pg::Prepared;
use testbench::protocol::{Protocol, Way};
use testbench::{World, frames};

/// A wire to the first server of a world. It ends with the case.
pub(crate) struct Wire {
    address: SocketAddr,
    world: World,
    line: Arc<Line>,
}

/// What is lost with a connection that ends in the middle of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Loss {
    /// The server never sees it.
    Request,
    /// The server applies the request, but the reply is lost.
    Reply,
}

#[derive(Default)]
struct Line {
    weather: watch::Sender<Weather>,
    plan: Mutex<Option<Plan>>,
    connections: AtomicUsize,
    /// Sessions of stores, and which of their connections they have got.
    attached: Mutex<HashSet<(i64, i64)>>,
    requests: AtomicUsize,
    /// Connections that are relayed just now.
    open: watch::Sender<usize>,
}

/// What all connections go through.
#[derive(Clone, Copy, Default)]
struct Weather {
    /// How often everything was cut.
    cuts: usize,
    /// No connection is let through.
    is_down: bool,
    /// Connections are taken, and no request goes through them.
    is_deaf: bool,
    /// Connections are taken, and no reply goes through them.
    is_mute: bool,
}

struct Plan {
    loss: Loss,
    /// How many requests pass before the first that is lost.
    pass: usize,
    times: usize,
}

impl Wire {
    pub(crate) async fn start(world: &World) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let (line, server) = (Arc::<Line>::default(), world.servers()[0]);
        let relayed = Arc::clone(&line);
        let protocol = world.protocol();
        tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                tokio::spawn(relay(near, server, protocol, Arc::clone(&relayed)));
            }
        });
        Self {
            address,
            world: world.clone(),
            line,
        }
    }

    /// The world's connect string by way of this wire.
    pub(crate) fn connect_string(&self) -> String {
        self.world.connect_string_at(&[self.address])
    }

    /// Ends every connection; new ones are let through.
    pub(crate) fn cut(&self) {
        self.change(|weather| weather.cuts += 1);
    }

    /// Ends every connection, and each new one at once, until [`Wire::up`].
    pub(crate) fn down(&self) {
        // Also those whose tasks run only after it is up again.
        self.change(|weather| (weather.is_down, weather.cuts) = (true, weather.cuts + 1));
    }

    /// Swallows everything without ending a connection, until [`Wire::up`].
    pub(crate) fn silence(&self) {
        self.change(|weather| (weather.is_deaf, weather.is_mute) = (true, true));
    }

    /// Swallows the servers' side only, until [`Wire::up`]: requests are applied, replies are lost.
    pub(crate) fn mute(&self) {
        self.change(|weather| weather.is_mute = true);
    }

    /// The network is well again. What was swallowed comes late.
    pub(crate) fn up(&self) {
        self.change(|weather| {
            (weather.is_down, weather.is_deaf, weather.is_mute) = (false, false, false);
        });
    }

    /// Ends the connection at the request after the next `pass` ones, and at the first one of each
    /// of the `times - 1` connections that follow.
    pub(crate) fn lose(&self, loss: Loss, pass: usize, times: usize) {
        *self.plan() = Some(Plan { loss, pass, times });
    }

    /// Forgets what was to be lost; whether something still was.
    pub(crate) fn forget(&self) -> bool {
        self.plan().take().is_some()
    }

    /// Ends every connection and with it what was swallowed, and waits until they are gone; then
    /// the network is well again.
    pub(crate) async fn fail(&self) {
        self.down();
        let mut open = self.line.open.subscribe();
        open.wait_for(|open| *open == 0)
            .await
            .expect("the line is there");
        self.up();
    }

    /// How many connections got through to a server's handshake.
    pub(crate) fn connections(&self) -> usize {
        self.line.connections.load(Ordering::SeqCst)
    }

    /// How many requests came, pings apart.
    pub(crate) fn requests(&self) -> usize {
        self.line.requests.load(Ordering::SeqCst)
    }

    fn change(&self, change: impl FnOnce(&mut Weather)) {
        self.line.weather.send_modify(change);
    }

    fn plan(&self) -> std::sync::MutexGuard<'_, Option<Plan>> {
        self.line.plan()
    }
}

impl Line {
    fn plan(&self) -> std::sync::MutexGuard<'_, Option<Plan>> {
        self.plan.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is to be lost with this request.
    fn loss(&self) -> Option<Loss> {
        let mut plan = self.plan();
        let now = plan.as_mut()?;
        if now.pass > 0 {
            now.pass -= 1;
            return None;
        }
        now.times -= 1;
        let loss = now.loss;
        if now.times == 0 {
            *plan = None;
        }
        Some(loss)
    }

    /// Whether it is the first request of a session on that connection.
    fn is_new(&self, session: (i64, i64)) -> bool {
        let mut attached = self.attached.lock().unwrap_or_else(PoisonError::into_inner);
        attached.insert(session)
    }

    /// Waits until the weather lets through what it keeps back by this.
    async fn clear_of(&self, keeps_back: impl Fn(&Weather) -> bool) {
        let mut weather = self.weather.subscribe();
        let clear = weather.wait_for(|weather| !keeps_back(weather)).await;
        clear.map(drop).expect("the line is there");
    }
}

/// Relays one connection until either side, the weather or a loss ends it.
async fn relay(near: TcpStream, server: SocketAddr, protocol: Option<Protocol>, line: Arc<Line>) {
    let mut weather = line.weather.subscribe();
    let cuts = weather.borrow().cuts;
    if weather.borrow().is_down {
        return;
    }
    let Ok(far) = TcpStream::connect(server).await else {
        return;
    };
    let (nearly, fairly) = (near.set_nodelay(true), far.set_nodelay(true));
    if nearly.is_err() || fairly.is_err() {
        return;
    }
    let ((from_client, to_client), (from_server, to_server)) =
        (near.into_split(), far.into_split());
    // The number of the request whose reply is to be lost.
    let doomed = Mutex::new(None);
    line.open.send_modify(|open| *open += 1);
    let numbers = protocol.map(Numbers::new);
    let numbers = numbers.as_ref();
    tokio::select! {
        _ = requests(from_client, to_server, &line, &doomed, numbers) => {}
        _ = replies(from_server, to_client, &line, &doomed, numbers) => {}
        _ = weather.wait_for(|weather| weather.cuts != cuts) => {}
    }
    line.open.send_modify(|open| *open -= 1);
}

async fn requests(
    from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    line: &Line,
    doomed: &Mutex<Option<i32>>,
    store: Option<&Numbers>,
) -> Option<()> {
    let is_deaf = |weather: &Weather| weather.is_deaf;
    let mut from = Frames::new(from);
    line.clear_of(is_deaf).await;
    if store.is_none() {
        to.write_all(&from.next(store, Way::ToServer).await?)
            .await
            .ok()?;
    }
    let mut is_doomed = false;
    loop {
        let frame = from.next(store, Way::ToServer).await?;
        let number = match store {
            Some(numbers) => numbers.of_request(&frame, line),
            None => number(&frame)?,
        };
        if number >= 0 {
            line.requests.fetch_add(1, Ordering::SeqCst);
            // The connection ends at one lost reply. Another plan is for the next connection.
            let loss = if is_doomed { None } else { line.loss() };
            match loss {
                None => {}
                Some(Loss::Request) => return None,
                Some(Loss::Reply) => {
                    is_doomed = true;
                    *doomed.lock().unwrap_or_else(PoisonError::into_inner) = Some(number)
                }
            }
        }
        line.clear_of(is_deaf).await;
        to.write_all(&frame).await.ok()?;
    }
}

async fn replies(
    from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    line: &Line,
    doomed: &Mutex<Option<i32>>,
    store: Option<&Numbers>,
) -> Option<()> {
    let is_mute = |weather: &Weather| weather.is_mute;
    let mut from = Frames::new(from);
    line.clear_of(is_mute).await;
    let mut is_greeted = false;
    loop {
        let frame = from.next(store, Way::ToClient).await?;
        let number = match store {
            Some(numbers) => numbers.of_reply(&frame),
            None if is_greeted => number(&frame),
            None => None,
        };
        if number.is_some() && number == *doomed.lock().unwrap_or_else(PoisonError::into_inner) {
            return None;
        }
        line.clear_of(is_mute).await;
        to.write_all(&frame).await.ok()?;
        // On other stores, the first answer to the session's new connection.
        if !is_greeted && store.is_none_or(|numbers| numbers.is_attached(number)) {
            is_greeted = true;
            line.connections.fetch_add(1, Ordering::SeqCst);
        }
    }
}

/// The numbers of requests and replies on a connection to a store, where they have none.
struct Numbers {
    protocol: Protocol,
    prepared: Mutex<Prepared>,
    requests: AtomicI32,
    replies: AtomicI32,
    /// The first request of the session, if no other connection had it.
    first: AtomicI32,
}

impl Numbers {
    fn new(protocol: Protocol) -> Self {
        Self {
            protocol,
            prepared: Mutex::default(),
            requests: AtomicI32::default(),
            replies: AtomicI32::default(),
            first: AtomicI32::default(),
        }
    }

    /// Negative for what keeps up a connection or a session.
    fn of_request(&self, request: &[u8], line: &Line) -> i32 {
        if !self.protocol.is_answered(request) {
            return -1;
        }
        let number = self.requests.fetch_add(1, Ordering::SeqCst) + 1;
        let mut prepared = self.prepared.lock().unwrap_or_else(PoisonError::into_inner);
        let request = &*self.protocol.plain(&mut prepared, request);
        let session = self.protocol.session(request);
        if session.is_some_and(|session| line.is_new(session)) {
            let first = &self.first;
            first
                .compare_exchange(0, number, Ordering::SeqCst, Ordering::SeqCst)
                .ok();
        }
        if self.protocol.is_upkeep(request) {
            -1
        } else {
            number
        }
    }

    fn of_reply(&self, frame: &[u8]) -> Option<i32> {
        let is_reply = !self.protocol.is_message(frame);
        is_reply.then(|| self.replies.fetch_add(1, Ordering::SeqCst) + 1)
    }

    fn is_attached(&self, reply: Option<i32>) -> bool {
        reply == Some(self.first.load(Ordering::SeqCst))
    }
}

/// The frames of one direction.
struct Frames {
    from: OwnedReadHalf,
    buffer: Vec<u8>,
}

impl Frames {
    fn new(from: OwnedReadHalf) -> Self {
        let buffer = Vec::new();
        Self { from, buffer }
    }

    async fn next(&mut self, store: Option<&Numbers>, way: Way) -> Option<Vec<u8>> {
        loop {
            let taken = match store {
                _ if self.buffer.is_empty() => None,
                Some(numbers) => numbers.protocol.take(&mut self.buffer, way),
                None => frames::take(&mut self.buffer),
            };
            if taken.is_some() {
                return taken;
            }
            let read = self.from.read_buf(&mut self.buffer).await.ok()?;
            (read > 0).then_some(())?;
        }
    }
}

/// The number that a request and its reply begin with, behind the length of the frame.
fn number(frame: &[u8]) -> Option<i32> {
    frames::xid(frame.get(4..)?)
}
