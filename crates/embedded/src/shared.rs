//! The state that all connections share, behind one lock.
//!
//! Invariant: a caller that changes the core queues the effects before it releases the lock. So
//! every connection gets events and replies in the order of the changes. The lock is never held
//! across an await.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use tokio::sync::{Semaphore, mpsc, watch};

use super::Settings;
use super::acl::Identity;
use super::core::{Core, Effect, Now, Reply};
use super::counters::Counters;
use super::outbox::{self, Item, Line, Outbox};
use super::proto::{ConnectRequest, Request};
use super::reply;
use super::rules::{Action, Rules};
use super::sessions::ConnId;
use super::wire::Malformed;
use super::words::{ConnStatus, Status};

/// The most long four-letter words that are answered at once.
const LONG_WORDS: usize = 4;

#[derive(Debug)]
pub(super) struct Shared {
    state: Mutex<State>,
    started: Instant,
    pub(super) settings: Settings,
    bytes_in: AtomicU64,
    /// Permits for the four-letter words whose answers grow with the server's contents.
    pub(super) long_words: Semaphore,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) core: Core,
    pub(super) rules: Rules,
    pub(super) event_delay: Option<Duration>,
    pub(super) events_held: watch::Sender<bool>,
    outboxes: HashMap<ConnId, Desk>,
    /// The frozen lines of each session. A line stays here after its session has ended or moved on.
    frozen: HashMap<i64, Vec<Arc<Line>>>,
    counters: Counters,
    last_conn: u64,
}

/// A connection as the server sees it.
#[derive(Debug)]
struct Desk {
    outbox: Outbox,
    address: SocketAddr,
}

/// A connection's own half, once it has a session.
#[derive(Debug)]
pub(super) struct Joined {
    pub(super) conn: ConnId,
    pub(super) items: mpsc::UnboundedReceiver<Item>,
    pub(super) line: Arc<Line>,
    pub(super) events_held: watch::Receiver<bool>,
}

/// Whether the connection goes on after a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Flow {
    GoOn,
    /// Nothing more is read; everything queued is still written.
    Finish,
}

impl Shared {
    pub(super) fn new(settings: Settings) -> Self {
        let core = Core::new(settings.session_timeouts, settings.max_queued, wall_ms());
        let state = State {
            core,
            rules: Rules::default(),
            event_delay: None,
            events_held: watch::Sender::new(false),
            outboxes: HashMap::new(),
            frozen: HashMap::new(),
            counters: Counters::default(),
            last_conn: 0,
        };
        Self {
            state: Mutex::new(state),
            started: Instant::now(),
            settings,
            bytes_in: AtomicU64::new(0),
            long_words: Semaphore::new(LONG_WORDS),
        }
    }

    /// Ignores a poisoned lock: no operation is meant to panic between two changes of the state.
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn now(&self) -> Now {
        Now {
            uptime: self.started.elapsed(),
            wall_ms: wall_ms(),
        }
    }

    pub(super) fn count_in(&self, bytes: usize) {
        self.bytes_in.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Answers a connect request. `None` if the client has seen more than this server; its
    /// connection is closed without a reply.
    pub(super) fn join(&self, address: SocketAddr, request: &ConnectRequest) -> Option<Joined> {
        let now = self.now();
        let mut state = self.lock();
        state.last_conn += 1;
        let conn = ConnId(state.last_conn);
        let welcome = state
            .core
            .connect(conn, request, Identity::address(address.ip()), now)?;
        let (mut outbox, items) = outbox::channel(self.settings.max_queued);
        outbox.traffic.received += 1;
        let frame = welcome.encode();
        state.counters.count_reply(&frame);
        outbox.push(Item::Reply(frame));
        if welcome.session == 0 {
            outbox.push(Item::Close);
        }
        state.counters.connects += 1;
        let line = outbox.line.clone();
        state.outboxes.insert(conn, Desk { outbox, address });
        state.deliver_effects();
        let events_held = state.events_held.subscribe();
        Some(Joined {
            conn,
            items,
            line,
            events_held,
        })
    }

    pub(super) fn leave(&self, conn: ConnId) {
        let mut state = self.lock();
        state.outboxes.remove(&conn);
        state.core.disconnect(conn);
    }

    /// Forgets all connections, after their tasks were stopped.
    pub(super) fn leave_all(&self) {
        let mut state = self.lock();
        let conns: Vec<ConnId> = state.outboxes.keys().copied().collect();
        for conn in conns {
            state.core.disconnect(conn);
        }
        state.outboxes.clear();
        state.frozen.clear();
    }

    /// Applies one request frame and queues its reply.
    ///
    /// Cancelled while a rule holds the request back, it applies nothing.
    pub(super) async fn serve(&self, conn: ConnId, frame: Bytes) -> Result<Flow, Malformed> {
        let (xid, request) = Request::decode(frame)?;
        let action = self.lock().receive(conn, &request);
        if let Some(Action::StopBefore(latch)) = &action {
            latch.mark_reached();
            latch.until_open().await;
        }
        let now = self.now();
        Ok(self.lock().apply(conn, xid, &request, action.as_ref(), now))
    }

    /// Ends overdue sessions.
    pub(super) fn tick(&self) {
        let now = self.now();
        let mut state = self.lock();
        let expired = state.core.expire_overdue(now);
        if expired > 0 {
            tracing::debug!(expired, "sessions expired");
        }
        state.deliver_effects();
    }

    pub(super) fn reap(&self) {
        let now = self.now();
        let mut state = self.lock();
        state.core.reap(now);
        state.deliver_effects();
    }

    pub(super) fn counters(&self) -> Counters {
        let state = self.lock();
        Counters {
            bytes_in: self.bytes_in.load(Ordering::Relaxed),
            watches: state.core.watches().len() as u64,
            nodes: state.core.tree().len() as u64,
            sessions: state.core.session_count() as u64,
            connections: state.outboxes.len() as u64,
            ..state.counters.clone()
        }
    }

    /// The data for the four-letter words; `address` is the asking client's.
    pub(super) fn status(&self, address: SocketAddr) -> Status {
        let counters = self.counters();
        let uptime = self.started.elapsed();
        let state = self.lock();
        let core = &state.core;
        let conns = state.outboxes.iter().map(|(conn, desk)| ConnStatus {
            address: desk.address,
            session: core.session_of(*conn).unwrap_or(0),
            received: desk.outbox.traffic.received,
            sent: desk.outbox.traffic.sent,
        });
        let asker = ConnStatus {
            address,
            session: 0,
            received: 1,
            sent: 0,
        };
        let watches = core.watches().by_conn().map(|(conn, paths)| {
            (
                core.session_of(conn).unwrap_or(0),
                paths.iter().map(ToString::to_string).collect(),
            )
        });
        let owners = core
            .tree()
            .ephemerals()
            .map(|(session, paths)| (session, paths.iter().map(ToString::to_string).collect()));
        Status {
            conns: conns.chain([asker]).collect(),
            sessions: core
                .sessions()
                .map(|(id, session)| (id, session.timeout))
                .collect(),
            watches: watches.collect(),
            watched_paths: core.watches().paths(),
            ephemerals: owners.collect(),
            zxid: core.zxid(),
            data_bytes: core.tree().bytes(),
            uptime,
            counters,
        }
    }
}

impl State {
    /// Counts a request and finds the rule for it.
    fn receive(&mut self, conn: ConnId, request: &Request) -> Option<Action> {
        *self.counters.by_op.entry(request.op()).or_default() += 1;
        if let Some(desk) = self.outboxes.get_mut(&conn) {
            desk.outbox.traffic.received += 1;
        }
        let session = self.core.session_of(conn)?;
        self.rules.take(session, request)
    }

    fn apply(
        &mut self,
        conn: ConnId,
        xid: i32,
        request: &Request,
        action: Option<&Action>,
        now: Now,
    ) -> Flow {
        let reply = match action {
            Some(Action::Fail(code)) => {
                // ZooKeeper restarts the timeout before it checks the request.
                self.core.touch(conn, now);
                Reply {
                    zxid: self.core.zxid(),
                    result: Err(*code),
                    is_last: false,
                }
            }
            _ => self.core.apply(conn, request, now),
        };
        self.deliver_effects();
        let Some(desk) = self.outboxes.get_mut(&conn) else {
            return Flow::Finish;
        };
        match action {
            Some(Action::DropReply) => {
                desk.outbox.push(Item::Close);
                return Flow::Finish;
            }
            Some(Action::HoldReply(latch)) => {
                latch.mark_reached();
                desk.outbox.push(Item::Wait(latch.clone()));
            }
            _ => {}
        }
        let frame = reply::encode(xid, reply.zxid, &reply.result);
        self.counters.count_reply(&frame);
        desk.outbox.push(Item::Reply(frame));
        if reply.is_last {
            desk.outbox.push(Item::Close);
            return Flow::Finish;
        }
        Flow::GoOn
    }

    /// Queues the events and ends the connections that the core's last steps ask for.
    pub(super) fn deliver_effects(&mut self) {
        let due = self
            .event_delay
            .map(|delay| tokio::time::Instant::now() + delay);
        let mut last = None;
        for effect in self.core.take_effects() {
            match effect {
                Effect::Event { conn, kind, path } => {
                    // One change sends the same bytes to all its watchers.
                    let frame = match last.take() {
                        Some((last_kind, last_path, frame))
                            if last_kind == kind && Arc::ptr_eq(&last_path, &path) =>
                        {
                            frame
                        }
                        _ => reply::encode_event(kind, &path),
                    };
                    if let Some(desk) = self.outboxes.get_mut(&conn) {
                        self.counters.count_event(&frame);
                        desk.outbox.push(Item::Event(frame.clone(), due));
                    }
                    last = Some((kind, path, frame));
                }
                Effect::Close(conn) => {
                    if let Some(desk) = self.outboxes.remove(&conn) {
                        desk.outbox.line.cut();
                    }
                }
            }
        }
    }

    pub(super) fn cut(&mut self, session: i64) -> bool {
        let Some(conn) = self.core.conn_of(session) else {
            return false;
        };
        self.core.disconnect(conn);
        if let Some(desk) = self.outboxes.remove(&conn) {
            desk.outbox.line.cut();
        }
        true
    }

    pub(super) fn freeze(&mut self, session: i64) -> bool {
        let Some(desk) = self
            .core
            .conn_of(session)
            .and_then(|conn| self.outboxes.get(&conn))
        else {
            return false;
        };
        let line = desk.outbox.line.clone();
        line.frozen.send_replace(true);
        self.frozen.entry(session).or_default().push(line);
        true
    }

    pub(super) fn thaw(&mut self, session: i64) -> bool {
        let Some(lines) = self.frozen.remove(&session) else {
            return false;
        };
        for line in lines {
            line.frozen.send_replace(false);
        }
        true
    }
}

fn wall_ms() -> i64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}
