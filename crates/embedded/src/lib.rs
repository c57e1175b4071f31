//! A ZooKeeper-compatible server inside this process, for tests, demos and CI without Java.
//!
//! **Not for production.** It is one process that keeps everything in memory: no disk, no quorum,
//! no TLS. Its data is lost when it ends. Production runs on a real ZooKeeper ensemble. This server
//! promises to answer as ZooKeeper 3.8 does, byte for byte where clients look. A test can inject
//! faults on purpose ([`Faults`]).
//!
//! It keeps no quotas: a node below `/zookeeper/quota` is like any other, is never counted, and
//! limits nothing.
//!
//! Invariant: events and replies reach a connection in the order of their changes. It knows nothing
//! of locks, and uses no other crate of this workspace.
//!
//! # What clients can cost
//!
//! Memory stays below the sum of these bounds, even if clients misbehave or do not read (tested by
//! `crates/cli/tests/flood.rs`). Of each, at most:
//!
//! - **Connection, of [`max_connections`] in all and [`max_client_connections`] of one address**:
//!   16 KiB.
//! - **Connection without a session**: the same, for [`handshake_timeout`]. A connect request above
//!   4 KiB ends it.
//! - **Incomplete request**: twice the bytes received. A frame above [`max_frame`] ends the
//!   connection.
//! - **Unread byte of a reply or an event**: 2 bytes, and each frame counts as 192 bytes more.
//!   Above 1 MiB the connection's next requests wait. Above [`max_queued`] the connection ends.
//! - **Request in progress**: 64 times its bytes, and five times its reply. A multi-read is
//!   gathered up to `max_queued`. Every other reply is as long as the node that it reads.
//! - **Long four-letter word (`stat`, `wchc`, `cons`, `dump`)**: five times its answer; four are
//!   answered at once.
//! - **Watch**: 512 bytes, and its path.
//! - **Session**: 512 bytes, until it expires.
//! - **Connection's identities**: 16 KiB in all; a proof beyond that ends the connection.
//! - **Node**: 1 KiB, twice its path, its data, and its access list, which has 1024 entries at
//!   most.
//!
//! [`max_connections`]: EmbeddedServerBuilder::max_connections
//! [`max_client_connections`]: EmbeddedServerBuilder::max_client_connections
//! [`handshake_timeout`]: EmbeddedServerBuilder::handshake_timeout
//! [`max_frame`]: EmbeddedServerBuilder::max_frame
//! [`max_queued`]: EmbeddedServerBuilder::max_queued
//!
//! The number of nodes and watches has no limit, as in ZooKeeper without quotas.
//!
//! ```
//! # async fn example() -> std::io::Result<()> {
//! use zookeeper_embedded::EmbeddedServer;
//!
//! let server = EmbeddedServer::start().await?;
//! println!("point any ZooKeeper client at {}", server.connect_string());
//! server.stop().await;
//! # Ok(())
//! # }
//! ```

mod acl;
mod admission;
mod conn;
mod core;
mod counters;
mod faults;
#[cfg(any(fuzzing, feature = "fuzzing", test))]
#[doc(hidden)]
pub mod fuzzing;
mod node;
mod outbox;
mod path;
mod proto;
mod reply;
mod rules;
mod sessions;
mod shared;
mod tree;
mod watches;
mod wire;
mod words;

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Interval, MissedTickBehavior, interval, sleep};
use tracing::Instrument as _;

use self::admission::Admission;
pub use self::core::{Deleted, NextSibling};
pub use self::counters::Counters;
pub use self::faults::{Faults, Hold, Rule, SessionInfo};
pub use self::proto::{Code, Op};
pub use self::rules::Match;
use self::shared::Shared;

/// The pause after a failed accept. The usual cause is a lack of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);

#[derive(Debug, Clone)]
struct Settings {
    listen: SocketAddr,
    tick: Duration,
    session_timeouts: (Duration, Duration),
    max_frame: usize,
    container_interval: Duration,
    handshake_timeout: Duration,
    max_connections: usize,
    max_client_connections: usize,
    max_queued: usize,
}

/// Settings of a server that is about to start; see [`EmbeddedServer::builder`].
#[derive(Clone)]
#[must_use]
pub struct EmbeddedServerBuilder {
    settings: Settings,
}

impl fmt::Debug for EmbeddedServerBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EmbeddedServerBuilder")
            .field("listen", &self.settings.listen)
            .finish_non_exhaustive()
    }
}

impl EmbeddedServerBuilder {
    /// Listens here instead of on a free loopback port.
    pub fn listen(mut self, address: impl Into<SocketAddr>) -> Self {
        self.settings.listen = address.into();
        self
    }

    /// Checks for expired sessions this often: a session ends up to one tick late. 20 ms unless
    /// set; a real server's tick is 2 s.
    pub fn tick(mut self, tick: Duration) -> Self {
        self.settings.tick = tick.max(Duration::from_millis(1));
        self
    }

    /// Grants session timeouts in this range. 100 ms to 60 s unless set; a real server's are 4 s to
    /// 40 s.
    pub fn session_timeouts(mut self, min: Duration, max: Duration) -> Self {
        self.settings.session_timeouts = (min, max.max(min));
        self
    }

    /// Closes connections that send a longer frame (`jute.maxbuffer`). One byte less than 1 MiB
    /// unless set. The first one, which asks for a session, has 4 KiB at most.
    pub fn max_frame(mut self, bytes: usize) -> Self {
        self.settings.max_frame = bytes;
        self
    }

    /// Deletes empty containers and expired TTL nodes this often. 60 s unless set.
    pub fn container_interval(mut self, interval: Duration) -> Self {
        self.settings.container_interval = interval.max(Duration::from_millis(1));
        self
    }

    /// Closes connections that have not sent a whole connect request after this time. 10 s unless
    /// set.
    pub fn handshake_timeout(mut self, timeout: Duration) -> Self {
        self.settings.handshake_timeout = timeout;
        self
    }

    /// Refuses connections beyond this number (`maxCnxns`). 65 536 unless set.
    pub fn max_connections(mut self, count: usize) -> Self {
        self.settings.max_connections = count;
        self
    }

    /// Refuses connections beyond this number from one address (`maxClientCnxns`, which is 60 in
    /// ZooKeeper). No limit unless set: all clients of a test have the same address.
    pub fn max_client_connections(mut self, count: usize) -> Self {
        self.settings.max_client_connections = count;
        self
    }

    /// Cuts the connection of a client that leaves more than this unread, with 192 bytes added for
    /// each frame. 32 MiB unless set.
    pub fn max_queued(mut self, bytes: usize) -> Self {
        self.settings.max_queued = bytes;
        self
    }

    /// Starts the server on the current tokio runtime. When this returns, clients can connect.
    ///
    /// # Errors
    /// The error of binding the address.
    ///
    /// # Cancel safety
    /// Cancel safe: nothing runs until it returns.
    pub async fn start(self) -> io::Result<EmbeddedServer> {
        let listener = TcpListener::bind(self.settings.listen).await?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared::new(self.settings));
        let running = Mutex::new(Some(Running::new(listener, shared.clone())));
        Ok(EmbeddedServer {
            shared,
            address,
            running,
        })
    }
}

/// A running server. **Not for production**: see [the module](self).
///
/// Dropping it stops everything at once, without the orderly end of [`EmbeddedServer::stop`].
pub struct EmbeddedServer {
    shared: Arc<Shared>,
    address: SocketAddr,
    running: Mutex<Option<Running>>,
}

impl fmt::Debug for EmbeddedServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EmbeddedServer")
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

impl EmbeddedServer {
    /// Starts a server with the default settings on a free loopback port.
    ///
    /// # Errors
    /// The error of binding the address.
    ///
    /// # Cancel safety
    /// Cancel safe: nothing runs until it returns.
    pub async fn start() -> io::Result<Self> {
        Self::builder().start().await
    }

    /// Returns a builder with the default settings.
    pub fn builder() -> EmbeddedServerBuilder {
        EmbeddedServerBuilder {
            settings: Settings {
                listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
                tick: Duration::from_millis(20),
                session_timeouts: (Duration::from_millis(100), Duration::from_secs(60)),
                max_frame: (1 << 20) - 1,
                container_interval: Duration::from_secs(60),
                handshake_timeout: Duration::from_secs(10),
                max_connections: 1 << 16,
                max_client_connections: usize::MAX,
                max_queued: 32 << 20,
            },
        }
    }

    /// The address that it listens on.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.address
    }

    /// The address as a connect string for clients, such as `127.0.0.1:40123`.
    #[must_use]
    pub fn connect_string(&self) -> String {
        self.address.to_string()
    }

    /// The hooks by which a test injects faults.
    #[must_use]
    pub fn faults(&self) -> Faults {
        Faults {
            shared: self.shared.clone(),
        }
    }

    /// A snapshot of the server's totals and contents.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.shared.counters()
    }

    /// Records deletions from now on. It keeps the newest `capacity` of them. 0 stops it.
    pub fn journal(&self, capacity: usize) {
        self.shared.lock().core.start_journal(capacity);
    }

    /// Takes the deletions recorded since [`EmbeddedServer::journal`] or the last call, oldest
    /// first.
    #[must_use]
    pub fn take_journal(&self) -> Vec<Deleted> {
        self.shared.lock().core.take_journal()
    }

    /// Closes the listener and all connections. Nodes and sessions stay, and no session expires
    /// until [`EmbeddedServer::restart`]. The two calls make an outage. Does nothing if the server
    /// is stopped.
    ///
    /// # Cancel safety
    /// Dropped half-way, everything still stops, but without being waited for.
    pub async fn stop(&self) {
        let running = self
            .running
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(running) = running {
            running.stop().await;
        }
        self.shared.leave_all();
    }

    /// Closes all connections and listens again on the same port. Nodes and sessions are kept, and
    /// every session's timeout restarts, as on a real server. Starts a stopped server.
    ///
    /// # Errors
    /// The error of binding the address, for instance if another process took the port. The server
    /// is stopped then.
    ///
    /// # Cancel safety
    /// Dropped half-way, the server may be stopped; call it again.
    pub async fn restart(&self) -> io::Result<()> {
        self.stop().await;
        let listener = TcpListener::bind(self.address).await?;
        self.shared.lock().core.touch_all(self.shared.now());
        let running = Running::new(listener, self.shared.clone());
        let replaced = self
            .running
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .replace(running);
        drop(replaced);
        Ok(())
    }
}

/// The task that accepts, ticks, and owns the tasks of all connections.
#[derive(Debug)]
struct Running {
    task: JoinHandle<()>,
    stop: Option<oneshot::Sender<()>>,
}

impl Running {
    fn new(listener: TcpListener, shared: Arc<Shared>) -> Self {
        let span = tracing::info_span!("embedded_server", address = ?listener.local_addr().ok());
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(serve(listener, shared, stopped).instrument(span));
        Self {
            task,
            stop: Some(stop),
        }
    }

    async fn stop(mut self) {
        drop(self.stop.take());
        // A task that was aborted or has ended is stopped too.
        (&mut self.task).await.ok();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

enum Step {
    Stop,
    Accepted(io::Result<(tokio::net::TcpStream, SocketAddr)>),
    ConnEnded,
    Tick,
    Reap,
}

async fn serve(listener: TcpListener, shared: Arc<Shared>, mut stopped: oneshot::Receiver<()>) {
    let mut conns = JoinSet::new();
    let admission = Admission::new(shared.settings.max_client_connections);
    let mut tick = every(shared.settings.tick);
    let mut reap = every(shared.settings.container_interval);
    // The first tick of an interval is immediate, but containers must not be deleted at the start.
    reap.tick().await;
    loop {
        let step = tokio::select! {
            biased;
            _ = &mut stopped => Step::Stop,
            _ = tick.tick() => Step::Tick,
            _ = reap.tick() => Step::Reap,
            Some(_) = conns.join_next() => Step::ConnEnded,
            accepted = listener.accept() => Step::Accepted(accepted),
        };
        match step {
            Step::Stop => break,
            Step::ConnEnded => {}
            Step::Tick => shared.tick(),
            Step::Reap => shared.reap(),
            Step::Accepted(Ok((stream, address))) => {
                if conns.len() >= shared.settings.max_connections {
                    continue;
                }
                let Some(admitted) = admission.admit(address.ip()) else {
                    tracing::debug!(%address, "too many connections of one address");
                    continue;
                };
                let serving = conn::run(stream, address, shared.clone());
                let serving = serving.map(move |()| drop(admitted));
                conns.spawn(serving.in_current_span());
            }
            Step::Accepted(Err(error)) => {
                tracing::warn!(%error, "cannot accept a connection");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    drop(listener);
    conns.shutdown().await;
}

fn every(period: Duration) -> Interval {
    let mut interval = interval(period);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    interval
}

#[cfg(test)]
mod tests {
    use testbench::shown::Table;

    use super::*;

    #[tokio::test]
    async fn every_public_type_shows_itself_briefly() {
        let mut table = Table::default();
        let server = EmbeddedServer::start().await.unwrap();

        table.show(&server);
        table.show(&EmbeddedServer::builder());
        table.show(&server.counters());
        let faults = server.faults();
        table.show(&faults);
        let what = Match::op(Op::Create).path("/a").session(7);
        table.show(&what);
        table.show(&faults.on(what.clone()));
        table.show(&faults.on(what).hold_reply());
        table.show(&Op::Create);
        table.show(&Code::NoNode);
        table.show(&SessionInfo {
            id: i64::MAX,
            timeout: Duration::from_millis(30_001),
            connected: true,
        });
        let next_sibling = NextSibling {
            path: "/locks/orders/42/lock-0000000008".into(),
            owner_session: i64::MAX,
            connected: true,
        };
        table.show(&next_sibling);
        table.show(&Deleted {
            path: "/locks/orders/42/lock-0000000007".into(),
            czxid: i64::MAX,
            zxid: i64::MAX,
            in_multi: true,
            events: 7,
            children_left: 7,
            next_sibling: Some(next_sibling),
        });

        table.check("no secret", include_str!("lib.rs"), &[]);
    }
}
