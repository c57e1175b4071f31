//! One ZooKeeper session: who we are to the server.
//!
//! It hands out the link, waits for the connection to come back, and says when the session is over.
//! Invariant: what it says of the end is final. It opens no other session in its place (the pool
//! does) and knows nothing of queues.

pub(crate) mod acls;
mod arrival;
pub(crate) mod clock;
mod ending;
pub(crate) mod heartbeat;
pub(crate) mod janitor;
pub(crate) mod monitor;
pub(crate) mod pool;
mod reads;
pub(crate) mod roll;
pub(crate) mod setbacks;
pub(crate) mod watching;

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout, timeout_at};
use tracing::Instrument;

use crate::error::Error;
use crate::latch::Latch;
use crate::link::size;
use crate::link::size::{Envelope, TooLarge};
use crate::link::{Code, Fault, Found, Link, Node, Read, Reply, SessionState, Write};
use crate::metrics::OpenSession;
use crate::protocol::lease::Moment;
use acls::AclCheck;
use clock::Clock;
pub(crate) use ending::End;
use ending::{EndListener, over};
use heartbeat::{ANOTHER_SESSION, Heartbeat, LastLook, LeaseStrength};
use janitor::Janitor;
use reads::ReadBatcher;
use setbacks::{LONGEST_PAUSE, Setbacks};
use watching::sent_len;

/// Why an operation on a session gave no result.
#[derive(Debug, Clone)]
pub(crate) enum Failure {
    Answered(Code),
    Ended(End),
}

/// One session with its janitor and its heartbeat.
#[derive(Debug)]
pub(crate) struct Session {
    /// Taken out by `close` or when we renounce it, because the server's session lives until the
    /// last reference to the link is gone.
    link: Arc<GivenLink>,
    states: watch::Receiver<SessionState>,
    ending: EndListener,
    pub(crate) janitor: Janitor,
    pub(crate) heartbeat: Arc<Heartbeat>,
    beating: AbortHandle,
    recognising: tokio::sync::Mutex<()>,
    speculates: ReadBatcher,
    runtime: Handle,
    /// The keeper's.
    pub(crate) acls: Arc<AclCheck>,
    /// Bytes of paths that this session watches or is about to watch.
    watched_bytes: AtomicUsize,
    /// Bytes of paths of tickets that this session has or is about to create; the pool keeps it
    /// below its limit.
    ticket_bytes: AtomicUsize,
    envelope: Envelope,
    id: i64,
}

/// The link, until it is given up.
type GivenLink = Latch<Option<Arc<dyn Link>>>;

fn give_up(link: &GivenLink) {
    let last = link.lock().take();
    drop(last);
}

/// What a session needs to know of its keeper.
#[derive(Debug)]
pub(crate) struct SessionConfig {
    pub(crate) closing: watch::Receiver<bool>,
    /// Dropped when the janitor has ended.
    pub(crate) alive: mpsc::Sender<()>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) acls: Arc<AclCheck>,
    pub(crate) strength: LeaseStrength,
    /// The servers' tick, if it is known.
    pub(crate) tick: Option<Duration>,
    /// When the opening of the session began.
    pub(crate) opening: Moment,
    /// What stands in every request.
    pub(crate) envelope: Envelope,
}

impl Session {
    /// Wraps a fresh link, in the keeper's runtime. The tasks end when the session is dropped or
    /// closed.
    pub(crate) fn start(link: Arc<dyn Link>, around: SessionConfig) -> Arc<Self> {
        let id = link.session_id();
        tracing::info!(session = format_args!("{id:#x}"), "session begun");
        let states = link.states();
        let (ending, end_notifier) = EndListener::new(states.clone(), around.closing);
        let clock = Arc::clone(&around.clock);
        let heartbeat = Arc::new(Heartbeat::new(
            &*link,
            ending.clone(),
            around.clock,
            around.strength,
            around.tick,
            around.opening,
        ));
        let span = tracing::debug_span!("heartbeat", session = format_args!("{id:#x}"));
        let janitor = Janitor::start(Arc::clone(&link), ending.clone(), around.alive);
        let beating = Arc::clone(&heartbeat).run(Arc::clone(&link), end_notifier);
        let link = Arc::new(Latch::new(Some(link)));
        let (given_up, tidying, ended) = (Arc::clone(&link), janitor.task(), ending.clone());
        let (open, last_look) = (OpenSession::begin(), LastLook(Arc::clone(&heartbeat)));
        let beating = async move {
            // Dropped after the beats, also where the task ends with its runtime.
            let (_open, _last_look) = (open, last_look);
            beating.await;
            // Nobody else ends it: guards that are lost, and observers, may be kept for long, and
            // whatever it has made would stay.
            if matches!(ended.end(), Some(End::Over(_))) {
                tidying.abort();
                give_up(&given_up);
            }
        };
        Arc::new(Self {
            states,
            speculates: ReadBatcher::new(ending.clone(), clock),
            acls: around.acls,
            ending,
            janitor,
            beating: tokio::spawn(beating.instrument(span)).abort_handle(),
            runtime: Handle::current(),
            heartbeat,
            recognising: tokio::sync::Mutex::default(),
            link,
            watched_bytes: AtomicUsize::new(0),
            ticket_bytes: AtomicUsize::new(0),
            envelope: around.envelope,
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
        sent_len(self.envelope.chroot(), path.len())
    }

    /// Whether servers read all of these in one request.
    pub(crate) fn check_size(&self, writes: &[Write<'_>]) -> Result<(), TooLarge> {
        size::check(self.envelope.writes(writes))
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

    /// How it ends, for whoever follows it without holding it alive.
    fn ending(&self) -> EndListener {
        self.ending.clone()
    }

    /// What the client believes.
    fn states(&self) -> watch::Receiver<SessionState> {
        self.states.clone()
    }

    /// Checks that a node which we have just made belongs to this session. A server may have opened
    /// another session in silence, and the client follows it (docs/failures.md row 58); everything
    /// of ours then ends with the session that we had.
    pub(crate) fn recognise(&self, owner: i64) -> Result<(), End> {
        if owner == self.id {
            return Ok(());
        }
        let reason = ANOTHER_SESSION;
        tracing::warn!(
            session = format_args!("{:#x}", self.id),
            other = format_args!("{owner:#x}"),
            reason
        );
        self.ending.renounce(reason);
        self.heartbeat.observe();
        Err(self.end().unwrap_or(End::Over(reason)))
    }

    /// As [`recognise`](Self::recognise), after the client has connected again: looks whether a
    /// ticket that was ours before is ours still. One look answers for the whole session, until the
    /// next time.
    pub(crate) async fn recognise_again(&self, path: &str) -> Result<(), Failure> {
        if self.heartbeat.is_strange().is_none() {
            return Ok(());
        }
        // One asks, and the others have the answer. But whoever asks may be kept without being
        // polled, and then each asks for itself in the end.
        let _asking = timeout(LONGEST_PAUSE, self.recognising.lock()).await;
        let Some(reconnects) = self.heartbeat.is_strange() else {
            return Ok(());
        };
        match self.read(|link| link.sync(path)).await {
            // What is missing cannot be synced everywhere; that is an answer too.
            Ok(()) | Err(Failure::Answered(_)) => {}
            Err(ended) => return Err(ended),
        }
        let owned = self.read(|link| link.ephemerals(path)).await?;
        if owned.iter().any(|ours| ours == path) {
            self.heartbeat.recognised(reconnects);
            return Ok(());
        }
        let found = self
            .read(|link| link.multi_read(&[Read::Data(path)]))
            .await?;
        match found.first() {
            // Whose it is stands in it, but the client's idea of its own number is as old as it is.
            Some(Found::Node(node)) if node.owner == self.id => {
                self.recognise(0).map_err(Failure::Ended)
            }
            // Gone, or somebody else's: a beat says so, or the next look.
            _ => Ok(()),
        }
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
                Err(Fault::Answered(code)) => return Err(Failure::Answered(code)),
            }
            // On the heap, as whatever is rare: every request that is under way would otherwise be
            // as large.
            let back = Box::pin(self.reconnected(setbacks.pause())).await;
            back.map_err(Failure::Ended)?;
        }
    }

    /// Reads nodes as they are after this call has begun: behind all that was committed before, on
    /// whichever server.
    pub(crate) async fn read_behind_sync(
        &self,
        path: &str,
        reads: &[Read<'_>],
    ) -> Result<Vec<Found>, Failure> {
        let found = self.read(|link| {
            // Sent back to back; the session answers in order.
            let (synced, found) = (link.sync(path), link.multi_read(reads));
            Box::pin(async move {
                match synced.await {
                    Err(fault @ (Fault::Unknown(_) | Fault::Answered(Code::NotNow(_)))) => {
                        Err(fault)
                    }
                    // What is missing cannot be synced everywhere, and that is an answer too.
                    _ => found.await,
                }
            })
        });
        found.await
    }

    /// As [`read`](Self::read), with the moment at which the answer came.
    pub(crate) async fn read_stamped<T>(
        &self,
        send: impl for<'a> Fn(&'a dyn Link) -> Reply<'a, T> + Send + Sync,
    ) -> (Moment, Result<T, Failure>) {
        self.heartbeat.stamped(self.read(send)).await
    }

    /// Asks for what is in a directory after all that was sent on this link before, in one request
    /// with others who ask now. Unlike a read it is not repeated, and nothing comes of it if it
    /// fails.
    pub(crate) fn speculative_read(
        &self,
        link: &Arc<dyn Link>,
        directory: &Arc<str>,
    ) -> oneshot::Receiver<(Moment, Node)> {
        self.speculates.ask(link, directory)
    }

    /// Waits for the connection, with a pause if it is not seen to go.
    pub(crate) async fn reconnected(&self, pause: Duration) -> Result<(), End> {
        let mut states = self.states.clone();
        tokio::select! {
            result = reconnected(&mut states, pause) => result.map_err(End::Over),
            end = self.ended() => Err(end),
        }
    }

    /// Ends the session: the janitor finishes what it was given, then the server is told, all
    /// within `limit`.
    pub(crate) async fn close(&self, limit: Duration) {
        let mut states = self.states.clone();
        let deadline = Instant::now() + limit;
        self.heartbeat.observe();
        self.beating.abort();
        let finished = timeout_at(deadline, self.janitor.finish()).await;
        // Whatever the janitor could not do, the end of the session does.
        self.janitor.abort();
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
        self.beating.abort();
        if self.ending.is_renounced() {
            // With its last reference the client tells the server of the end, which removes what is
            // left.
            self.janitor.abort();
        }
        tracing::info!(session = format_args!("{:#x}", self.id), "session given up");
    }
}

/// Waits until the connection has gone and come back. That it has gone may be known a moment late,
/// or it may not have gone at all: then for this pause.
pub(crate) async fn reconnected(
    states: &mut watch::Receiver<SessionState>,
    pause: Duration,
) -> Result<(), &'static str> {
    let went = states.wait_for(|state| *state != SessionState::Connected);
    // Whichever it was, the state is looked at again.
    timeout(pause, went).await.map(drop).unwrap_or_default();
    connected(states).await
}

/// Waits until the client says that it is connected; `Err` with the reason when the session is
/// over.
async fn connected(states: &mut watch::Receiver<SessionState>) -> Result<(), &'static str> {
    match states
        .wait_for(|state| *state != SessionState::Disconnected)
        .await
        .map(|state| *state)
    {
        Ok(SessionState::Over(reason)) => Err(reason),
        Ok(_) => Ok(()),
        Err(_) => Err("the client is gone"),
    }
}

/// The error for a server's answer that the algorithm cannot go on from.
pub(crate) fn refused(link: &dyn Link, doing: &'static str, path: &str, code: &Code) -> Error {
    let (path, servers) = (path.to_owned(), link.servers().to_owned());
    match code {
        Code::NoAuth(right) => Error::Denied {
            doing,
            path,
            needs: *right,
            servers,
        },
        Code::TooLarge(too_large) => self::too_large(doing, path, *too_large),
        code => Error::Refused {
            doing,
            path,
            servers,
            why: code.to_string(),
        },
    }
}

/// The error for what is not sent, because servers would not read it.
pub(crate) fn too_large(doing: &'static str, what: impl ToString, too_large: TooLarge) -> Error {
    Error::TooLarge {
        doing,
        what: what.to_string(),
        bytes: too_large.0,
        limit: size::MOST,
    }
}

/// The error for a failure while something was done with a lock.
pub(crate) fn failed(
    session: &Session,
    doing: &'static str,
    name: impl ToString,
    path: &str,
    failure: Failure,
) -> Error {
    match failure {
        Failure::Ended(end) => end.while_trying(doing, name),
        Failure::Answered(code) => match session.link() {
            Ok(link) => refused(&*link, doing, path, &code),
            Err(end) => end.while_trying(doing, name),
        },
    }
}
