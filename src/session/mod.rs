//! One ZooKeeper session: our identity at the servers.
//!
//! It hands out the link, waits for the connection to come back, and says when the session is over.
//! Invariant: an end is final. It opens no other session in its place (the pool does) and knows
//! nothing of queues.

pub(crate) mod acls;
mod arrival;
pub(crate) mod clock;
mod ending;
mod failure;
pub(crate) mod heartbeat;
mod identity;
pub(crate) mod janitor;
pub(crate) mod monitor;
pub(crate) mod pool;
mod reads;
pub(crate) mod roll;
pub(crate) mod setbacks;
pub(crate) mod watching;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout_at};
use tracing::Instrument;

use crate::latch::Latch;
use crate::link::size::{self, TooLarge};
use crate::link::{Code, Fault, Found, Link, Node, Opener, Read, Reply, SessionState, Write};
use crate::metrics::OpenSession;
use crate::protocol::lease::Moment;
use acls::AclCheck;
pub(crate) use ending::End;
use ending::{EndListener, over, reconnected};
pub(crate) use failure::{Failure, answered, children_in, failed, node_in, refused, too_large};
use heartbeat::{Heartbeat, ObserveOnDrop};
use janitor::Janitor;
use pool::Access;
use reads::ReadBatcher;
use setbacks::Setbacks;
use watching::sent_len;

/// One session with its janitor and its heartbeat.
#[derive(Debug)]
pub(crate) struct Session {
    /// Taken out by `close`, or when we renounce it: the server's session lives until the last
    /// reference to the link is gone.
    link: Arc<GivenLink>,
    states: watch::Receiver<SessionState>,
    ending: EndListener,
    pub(crate) janitor: Janitor,
    pub(crate) heartbeat: Arc<Heartbeat>,
    heartbeat_task: AbortHandle,
    recognising: tokio::sync::Mutex<()>,
    reads: ReadBatcher,
    runtime: Handle,
    /// The keeper's.
    pub(crate) acls: Arc<AclCheck>,
    /// Bytes of paths that this session watches or is about to watch.
    watched_bytes: AtomicUsize,
    /// Bytes of paths of tickets that this session has or is about to create. The pool keeps it
    /// below its limit.
    ticket_bytes: AtomicUsize,
    opener: Arc<dyn Opener>,
    /// Set when this goes and has ended by itself.
    has_ended: Arc<AtomicBool>,
    id: i64,
}

/// The link, until it is given up.
type GivenLink = Latch<Option<Arc<dyn Link>>>;

fn give_up(link: &GivenLink) {
    let last = link.lock().take();
    drop(last);
}

impl Session {
    /// Wraps a fresh link, whose opening began then, in the keeper's runtime. The tasks end when
    /// the session is dropped or closed. `alive` is dropped when the janitor has ended.
    pub(crate) fn start(
        link: Arc<dyn Link>,
        access: &Access,
        opening: Moment,
        closing: watch::Receiver<bool>,
        alive: mpsc::Sender<()>,
        has_ended: Arc<AtomicBool>,
    ) -> Arc<Self> {
        let id = link.session_id();
        tracing::info!(session = format_args!("{id:#x}"), "session begun");
        let states = link.states();
        let (ending, end_notifier) = EndListener::new(states.clone(), closing);
        let (clock, strength) = (Arc::clone(&access.clock), access.strength);
        let own = ending.clone();
        let heartbeat = Heartbeat::new(&*link, own, clock, strength, access.tick, opening);
        let heartbeat = Arc::new(heartbeat);
        let janitor = Janitor::start(Arc::clone(&link), ending.clone(), alive);
        let run = Arc::clone(&heartbeat).run(Arc::clone(&link), end_notifier);
        let link = Arc::new(Latch::new(Some(link)));
        let (given_up, tidying, ended) = (Arc::clone(&link), janitor.task.clone(), ending.clone());
        let (open, observe) = (OpenSession::begin(), ObserveOnDrop(Arc::clone(&heartbeat)));
        let heartbeats = async move {
            // Dropped after the last heartbeat, also where the task ends with its runtime.
            let (_open, _observe) = (open, observe);
            run.await;
            // Nothing else ends it: lost guards and observers may be kept for long, and the nodes
            // of a renounced session would stay.
            if matches!(ended.end(), Some(End::Over(_))) {
                tidying.abort();
                give_up(&given_up);
            }
        };
        let span = tracing::debug_span!("heartbeat", session = format_args!("{id:#x}"));
        Arc::new(Self {
            states,
            reads: ReadBatcher::new(ending.clone(), Arc::clone(&access.clock)),
            acls: Arc::clone(&access.acls),
            ending,
            janitor,
            heartbeat_task: tokio::spawn(heartbeats.instrument(span)).abort_handle(),
            runtime: Handle::current(),
            heartbeat,
            recognising: tokio::sync::Mutex::default(),
            link,
            watched_bytes: AtomicUsize::new(0),
            ticket_bytes: AtomicUsize::new(0),
            opener: Arc::clone(&access.opener),
            has_ended,
            id,
        })
    }

    pub(crate) fn id(&self) -> i64 {
        self.id
    }

    /// Runs a task where those of the session run, and not where its caller does.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.runtime.spawn(task);
    }

    /// Bytes of this path where the client sends it among others.
    fn sent_len(&self, path: &str) -> usize {
        sent_len(self.opener.chroot().len(), path.len())
    }

    /// Whether servers read all of these in one request.
    pub(crate) fn check_size(&self, writes: &[Write<'_>]) -> Result<(), TooLarge> {
        size::check(self.opener.envelope().writes(writes))
    }

    /// The connect string's servers, for messages.
    pub(crate) fn servers(&self) -> &str {
        self.opener.servers()
    }

    /// The link, unless the session is over or the keeper closed.
    pub(crate) fn link(&self) -> Result<Arc<dyn Link>, End> {
        if let Some(end) = self.end() {
            return Err(end);
        }
        self.link.lock().clone().ok_or(End::Closed)
    }

    /// How the session ended, if it has.
    pub(crate) fn end(&self) -> Option<End> {
        self.ending.end()
    }

    /// Waits until the session is over or the keeper closed.
    pub(crate) fn ended(&self) -> impl Future<Output = End> + '_ {
        self.ending.ended()
    }

    /// Repeats a *read* until the server answers, through disconnects; ends when the session does.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost: a read has no effect, and a watch whose answer is dropped is taken back by
    /// the link.
    pub(crate) async fn read<T>(
        &self,
        send: impl for<'a> Fn(&'a dyn Link) -> Reply<'a, T> + Send + Sync,
    ) -> Result<T, Failure> {
        let mut setbacks = Setbacks::default();
        loop {
            let link = self.link().map_err(Failure::Ended)?;
            let answer = tokio::select! {
                answer = send(&*link) => answer,
                end = self.ended() => return Err(Failure::Ended(end)),
            };
            drop(link);
            match answer {
                Ok(value) => return Ok(value),
                Err(Fault::Answered(Code::NotNow(why)) | Fault::Unknown(why)) => {
                    tracing::debug!(why, "read again")
                }
                Err(Fault::Answered(code) | Fault::Refused(_, code)) => {
                    return Err(Failure::Answered(code));
                }
            }
            // On the heap, because it is rare: otherwise every request under way would be as large.
            let back = Box::pin(self.reconnected(setbacks.pause())).await;
            back.map_err(Failure::Ended)?;
        }
    }

    /// Reads nodes as they are after this call has begun, behind all earlier commits.
    ///
    /// For lists that people read: an operator who was told of a holder may look for it on another
    /// server. A read that grants needs no sync, because a server that lags behind can only show a
    /// ticket that has left.
    pub(crate) async fn read_behind_sync(
        &self,
        path: &str,
        reads: &[Read<'_>],
    ) -> Result<Vec<Found>, Failure> {
        self.read(|link| link.read_behind_sync(path, reads)).await
    }

    /// Reads a node, if it is there.
    pub(crate) async fn node(&self, path: &str) -> Result<Option<Node>, Failure> {
        let found = self.read(|link| link.multi_read(&[Read::Data(path)]));
        node_in(found.await?.pop())
    }

    /// Waits until the server has seen all that was committed before.
    pub(crate) async fn catch_up(&self, path: &str) -> Result<(), Failure> {
        match self.read(|link| link.sync(path)).await {
            // What is missing cannot be synced everywhere; that is an answer too.
            Err(Failure::Answered(_)) => Ok(()),
            synced => synced,
        }
    }

    /// Sends writes that rest on what was read. `false` after a pause, if they came to nothing:
    /// somebody else was faster, or there is no result, which is logged in these words.
    pub(crate) async fn write(
        &self,
        writes: &[Write<'_>],
        setbacks: &mut Setbacks,
        unclear: &'static str,
    ) -> Result<bool, Failure> {
        let link = self.link().map_err(Failure::Ended)?;
        let answer = tokio::select! {
            answer = link.multi(writes) => answer,
            end = self.ended() => return Err(Failure::Ended(end)),
        };
        drop(link);
        let pause = match answer {
            Ok(_) => return Ok(true),
            Err(Fault::Refused(_, Code::NoNode | Code::BadVersion)) => {
                setbacks.pause_after_a_race()
            }
            Err(Fault::Answered(Code::NotNow(why)) | Fault::Unknown(why)) => {
                tracing::debug!(why, "{unclear}");
                setbacks.pause()
            }
            Err(Fault::Answered(code) | Fault::Refused(_, code)) => {
                return Err(Failure::Answered(code));
            }
        };
        let back = self.reconnected(pause).await;
        back.map(|()| false).map_err(Failure::Ended)
    }

    /// As [`read`](Self::read), with the moment at which the answer came.
    pub(crate) async fn read_stamped<T>(
        &self,
        send: impl for<'a> Fn(&'a dyn Link) -> Reply<'a, T> + Send + Sync,
    ) -> (Moment, Result<T, Failure>) {
        self.heartbeat.stamped(self.read(send)).await
    }

    /// Waits for an answer; with it, the moment at which it came, or an earlier one.
    pub(crate) async fn stamped<T>(&self, answer: impl Future<Output = T>) -> (Moment, T) {
        self.heartbeat.stamped(answer).await
    }

    /// Reads a directory behind all that was sent on this link before, in one request with the
    /// other calls of this moment. It is not repeated, and a failed one has no answer.
    pub(crate) fn speculative_read(
        &self,
        link: &Arc<dyn Link>,
        directory: &Arc<str>,
    ) -> oneshot::Receiver<(Moment, Node)> {
        self.reads.ask(link, directory)
    }

    /// Waits for the connection, with a pause if it is not seen to go.
    pub(crate) async fn reconnected(&self, pause: Duration) -> Result<(), End> {
        let mut states = self.states.clone();
        tokio::select! {
            result = reconnected(&mut states, pause) => result.map_err(End::Over),
            end = self.ended() => Err(end),
        }
    }

    /// Ends the session until then: the janitor finishes its work, then the server is told. A
    /// quarter of the time is left for that, because the end of the session removes what the
    /// janitor did not.
    ///
    /// The client ends a session when the last reference to it goes. A future of ours in the middle
    /// of a request holds one. If such a future is kept without being polled, the session of a
    /// closed keeper ends when it is dropped.
    pub(crate) async fn close(&self, deadline: Instant) {
        let mut states = self.states.clone();
        self.heartbeat.observe();
        self.heartbeat_task.abort();
        let to_end = deadline.saturating_duration_since(Instant::now()) / 4;
        let finished = timeout_at(deadline - to_end, self.janitor.finish()).await;
        // The end of the session removes what is left.
        self.janitor.task.abort();
        give_up(&self.link);
        let closed = timeout_at(deadline, over(&mut states)).await;
        if finished.is_err() || closed.is_err() {
            tracing::warn!(
                session = format_args!("{:#x}", self.id),
                "the session did not close in time"
            );
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.heartbeat_task.abort();
        if matches!(self.end(), Some(End::Over(_))) {
            self.has_ended.store(true, Ordering::Relaxed);
        }
        if self.ending.is_renounced() {
            // The client tells the server of the end with its last reference. That removes all
            // tickets that are left.
            self.janitor.task.abort();
        }
        tracing::info!(session = format_args!("{:#x}", self.id), "session given up");
    }
}
