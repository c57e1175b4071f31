//! A relay between a client and one server: what a network does to connections.
//!
//! It shuts valves and ends connections as a case asks. It knows nothing of frames, and adds no byte unless it is told to.

use std::future::pending;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{broadcast, watch};
use tokio::task::AbortHandle;

use super::World;

/// The bytes of the answer to a connect request, with the length in front: protocol, timeout, session, password, read-only.
const HANDSHAKE: usize = 4 + 4 + 4 + 8 + 4 + 16 + 1;

/// A line keeps no more bytes than this in each direction.
const MOST_KEPT: usize = 1 << 20;

/// How a connection ends, for its client.
#[derive(Clone, Debug)]
pub(crate) enum Cut {
    /// An orderly end.
    Fin,
    /// A reset.
    Reset,
    /// These bytes come from the server, and nothing else happens.
    Bytes(Vec<u8>),
    /// An orderly end; what the client had sent still goes to the server when the valve opens, over the old connection.
    ClientOnly,
}

/// What flows.
#[derive(Clone, Copy, Debug)]
struct Valves {
    requests: bool,
    answers: bool,
    /// How many bytes of answers a connection lets through, whatever the valve says.
    most_answers: usize,
    /// New connections are ended at once.
    refuses: bool,
}

/// One address that leads to one server, for as long as this lives.
#[derive(Debug)]
pub(crate) struct Relay {
    address: SocketAddr,
    valves: watch::Sender<Valves>,
    cuts: broadcast::Sender<Cut>,
    counts: Arc<Counts>,
    task: AbortHandle,
}

#[derive(Debug, Default)]
struct Counts {
    connections: AtomicUsize,
    /// Bytes of requests that were read and not passed on, by any line.
    held: AtomicUsize,
}

impl Relay {
    pub(crate) async fn to(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("an address");
        let valves = watch::Sender::new(Valves {
            requests: true,
            answers: true,
            most_answers: usize::MAX,
            refuses: false,
        });
        let cuts = broadcast::Sender::new(16);
        let counts = Arc::<Counts>::default();
        let work = serve(
            listener,
            server,
            valves.clone(),
            cuts.clone(),
            Arc::clone(&counts),
        );
        Self {
            address,
            valves,
            cuts,
            counts,
            task: tokio::spawn(work).abort_handle(),
        }
    }

    /// To the first server of a world.
    pub(crate) async fn of(world: &World) -> Self {
        Self::to(world.servers()[0]).await
    }

    /// The way to the case's part of the tree that leads through this relay alone.
    pub(crate) fn connect_string(&self, world: &World) -> String {
        format!("{}{}", self.address, world.chroot())
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// How many connections were taken.
    pub(crate) fn connections(&self) -> usize {
        self.counts.connections.load(Ordering::SeqCst)
    }

    /// How many bytes the clients have sent that no server has.
    pub(crate) fn held_requests(&self) -> usize {
        self.counts.held.load(Ordering::SeqCst)
    }

    /// Swallows what the server says, on old connections and new ones, until [`Relay::open`].
    pub(crate) fn hold_answers(&self) {
        self.valves.send_modify(|valves| valves.answers = false);
    }

    /// Keeps what the clients say.
    pub(crate) fn hold_requests(&self) {
        self.valves.send_modify(|valves| valves.requests = false);
    }

    /// Takes connections and bytes, and passes nothing on: the packets are lost, and nobody is told.
    pub(crate) fn go_silent(&self) {
        self.hold_answers();
        self.hold_requests();
    }

    /// Lets a connection have its session, and not a byte more.
    pub(crate) fn answer_handshakes_only(&self) {
        self.valves
            .send_modify(|valves| valves.most_answers = HANDSHAKE);
    }

    /// Ends each new connection at once, and leaves the old ones alone.
    pub(crate) fn refuse(&self) {
        self.valves.send_modify(|valves| valves.refuses = true);
    }

    /// Ends all connections, and each new one at once.
    pub(crate) fn shut(&self) {
        self.refuse();
        self.cut(Cut::Reset);
    }

    /// Lets everything flow again. What was held back flows first.
    pub(crate) fn open(&self) {
        self.valves.send_replace(Valves {
            requests: true,
            answers: true,
            most_answers: usize::MAX,
            refuses: false,
        });
    }

    /// Ends every connection that there is now. How many relays of connections were told.
    pub(crate) fn cut(&self, how: Cut) -> usize {
        self.cuts.send(how).unwrap_or(0)
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(
    listener: TcpListener,
    server: SocketAddr,
    valves: watch::Sender<Valves>,
    cuts: broadcast::Sender<Cut>,
    counts: Arc<Counts>,
) {
    let mut lines = tokio::task::JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((near, _)) = accepted else { continue };
                counts.connections.fetch_add(1, Ordering::SeqCst);
                if valves.borrow().refuses {
                    near.set_zero_linger().expect("a socket takes options");
                    continue;
                }
                // Subscribed before the line is carried: a cut meant for it is not missed.
                lines.spawn(carry(near, server, valves.subscribe(), cuts.subscribe(), Arc::clone(&counts)));
            }
            Some(_) = lines.join_next() => {}
        }
    }
}

/// One end of a line and what is to be written to the other.
struct End {
    stream: Option<TcpStream>,
    read: Vec<u8>,
    is_over: bool,
}

impl End {
    fn new(stream: Option<TcpStream>) -> Self {
        Self {
            stream,
            read: Vec::new(),
            is_over: false,
        }
    }

    /// Reads, also while nothing may be passed on: what a client sends into silence leaves it all the same.
    async fn read(&mut self) {
        match &mut self.stream {
            Some(stream) if self.read.len() < MOST_KEPT && !self.is_over => {
                let mut chunk = [0; 16 << 10];
                match stream.read(&mut chunk).await {
                    Ok(0) | Err(_) => self.is_over = true,
                    Ok(count) => self.read.extend_from_slice(&chunk[..count]),
                }
            }
            _ => pending().await,
        }
    }

    async fn write(&mut self, bytes: &[u8]) {
        if let Some(stream) = &mut self.stream {
            self.is_over |= stream.write_all(bytes).await.is_err();
        }
    }
}

/// What a line adds to the bytes that are held; nothing once it has ended.
struct Held {
    counts: Arc<Counts>,
    bytes: usize,
}

impl Held {
    fn set(&mut self, bytes: usize) {
        self.counts.held.fetch_add(bytes, Ordering::SeqCst);
        self.counts.held.fetch_sub(self.bytes, Ordering::SeqCst);
        self.bytes = bytes;
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.set(0);
    }
}

async fn carry(
    near: TcpStream,
    server: SocketAddr,
    mut valves: watch::Receiver<Valves>,
    mut cuts: broadcast::Receiver<Cut>,
    counts: Arc<Counts>,
) {
    // A server that is not there is an orderly end for the client.
    let Ok(far) = TcpStream::connect(server).await else {
        return;
    };
    near.set_nodelay(true).expect("a socket takes options");
    far.set_nodelay(true).expect("a socket takes options");
    let (mut near, mut far) = (End::new(Some(near)), End::new(Some(far)));
    let mut held = Held { counts, bytes: 0 };
    let mut answered = 0;
    loop {
        let now = *valves.borrow_and_update();
        if now.requests && !near.read.is_empty() {
            far.write(&std::mem::take(&mut near.read)).await;
            held.set(0);
        }
        if now.answers && !far.read.is_empty() {
            let bytes = std::mem::take(&mut far.read);
            let most = now.most_answers.saturating_sub(answered).min(bytes.len());
            answered += most;
            near.write(&bytes[..most]).await;
        }
        // An end is passed on behind all that was said before it.
        if far.is_over && (far.read.is_empty() || near.stream.is_none())
            || near.is_over && near.read.is_empty()
        {
            return;
        }
        tokio::select! {
            biased;
            cut = cuts.recv() => match cut {
                Ok(Cut::Reset) => {
                    let stream = near.stream.take().map(|stream| stream.set_zero_linger());
                    return stream.unwrap_or(Ok(())).expect("a socket takes options");
                }
                Ok(Cut::Bytes(bytes)) => near.write(&bytes).await,
                Ok(Cut::ClientOnly) => {
                    near.stream = None;
                    near.is_over = true;
                }
                Ok(Cut::Fin) | Err(_) => return,
            },
            changed = valves.changed() => {
                if changed.is_err() {
                    return;
                }
            }
            () = near.read() => held.set(near.read.len()),
            () = far.read() => {}
        }
    }
}
