//! The task that speaks for a session.
//!
//! Invariants: requests leave in the order in which they were called, because client crates send
//! only what is polled, and one task polls all, first come first. A message of a watch is told
//! before any answer that came behind it on its connection. A request is sent once: what a lost
//! connection had not answered has an unknown outcome.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt};
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::unconstrained;
use tokio::time::{Instant, sleep_until, timeout};

use super::inbox::{Inbox, Message, OVER, SessionKey};
use super::reaper::Reaper;
use super::watches::Watches;
use super::{Outcome, Store, StoreConnection, StoreReply, StoreRequest, Trouble, WatchKind};
use crate::latch::Latch;
use crate::link::{Code, Fault, SessionState};

/// A session that is late is looked for at most so often.
const SHORTEST_SEARCH: Duration = Duration::from_millis(200);
/// And at least so often, because one of a short timeout may have begun since.
const LONGEST_SEARCH: Duration = Duration::from_secs(1);
/// What has come meanwhile is read within this time.
const READ_FIRST: Duration = Duration::from_millis(50);

type AnswerSender = oneshot::Sender<Result<Outcome, Fault>>;

/// Why a connection is served no longer.
pub(super) enum Stop {
    Lost(String),
    Over(&'static str),
}

/// What a request is, once it is on its way, and its answer.
pub(super) struct Asked {
    answer: Option<AnswerSender>,
    watch: Option<(WatchKind, u64)>,
    is_heartbeat: bool,
    /// Nothing of the session follows it.
    is_end: bool,
    pub(super) result: Result<StoreReply, Trouble>,
}

type Sent = BoxFuture<'static, Asked>;

pub(super) struct SessionTask<S> {
    pub(super) store: S,
    pub(super) session: SessionKey,
    pub(super) granted: Duration,
    pub(super) watches: Arc<Watches>,
    pub(super) state: watch::Sender<SessionState>,
    /// The number of the connection; 0 while there is none.
    pub(super) connection: watch::Sender<u64>,
    pub(super) reaper: Arc<Reaper>,
    pub(super) own: Inbox,
    /// When another session may be over, as the last heartbeat has said.
    pub(super) due: Latch<Option<Instant>>,
    /// When the last answer came that was no refusal.
    pub(super) answered: Instant,
    /// Asked while there was no connection, or no room on it.
    pub(super) waiting: VecDeque<Unsent>,
}

/// A request that waits for a connection.
pub(super) struct Unsent {
    pub(super) since: Instant,
    pub(super) operation: StoreRequest,
    pub(super) answer: Option<AnswerSender>,
}

impl<S: Store> SessionTask<S> {
    pub(super) async fn run(
        mut self,
        mut greeted: S::Connection,
        mut inbox: mpsc::UnboundedReceiver<Message>,
    ) {
        let why = loop {
            match self.serve(&mut greeted, &mut inbox).await {
                Stop::Over(why) => break why,
                Stop::Lost(why) => tracing::debug!(why, "the connection to {} is lost", S::ENGINE),
            }
            self.connection.send_replace(0);
            self.state.send_replace(SessionState::Disconnected);
            match self.reconnect(greeted.number(), &mut inbox).await {
                Ok(again) => greeted = again,
                Err(why) => break why,
            }
            self.connection.send_replace(greeted.number());
            self.state.send_replace(SessionState::Connected);
        };
        self.connection.send_replace(0);
        // First the state: who is told of a watch asks it.
        self.state.send_replace(SessionState::Over(why));
        self.watches.end();
    }

    pub(super) fn sent(
        &self,
        on: &S::Connection,
        operation: &StoreRequest,
        answer: Option<AnswerSender>,
    ) -> Sent {
        let asked = on.ask(&self.session, operation);
        let watch = match operation {
            StoreRequest::Watch { kind, number, .. } => Some((*kind, *number)),
            _ => None,
        };
        let is_heartbeat = operation.is_heartbeat();
        let is_end =
            matches!(operation, StoreRequest::Close | StoreRequest::Reap(..)) && answer.is_none();
        Box::pin(async move {
            Asked {
                answer,
                watch,
                is_heartbeat,
                is_end,
                result: asked.await,
            }
        })
    }

    async fn serve(
        &mut self,
        on: &mut S::Connection,
        inbox: &mut mpsc::UnboundedReceiver<Message>,
    ) -> Stop {
        let under_way = FuturesUnordered::new();
        let mut under_way: FuturesUnordered<Sent> = under_way;
        let has_room = |under_way: &FuturesUnordered<Sent>| under_way.len() < S::UNDER_WAY;
        let deadline = self.own.deadline;
        let heartbeat = (self.granted / 3).min(LONGEST_SEARCH);
        let most_refused = self.granted * 2 / 3;
        let patience = most_refused.min(S::MOST_SILENT);
        let mut heard = Instant::now();
        // Other requests do not count: only a touch finds what dead sessions have left.
        let mut touched = heard;
        // Since when all is refused. What is refused keeps no session alive, and another server may
        // have taken over the name of this one.
        let mut refused: Option<Instant> = None;
        let mut is_silent = false;
        loop {
            while has_room(&under_way) {
                let Some(waiting) = self.waiting.pop_front() else {
                    break;
                };
                // Its caller has been told that nothing is known.
                if waiting.answer.is_none() || waiting.since.elapsed() < deadline {
                    if under_way.is_empty() {
                        heard = Instant::now();
                    }
                    under_way.push(self.sent(on, &waiting.operation, waiting.answer));
                }
            }
            let silent = sleep_until(heard + patience);
            let refusing = sleep_until(refused.unwrap_or(heard) + most_refused);
            tokio::select! {
                biased;
                event = on.event() => match event {
                    Some(event) => self.watches.tell(&event),
                    None => return Stop::Lost("closed".into()),
                },
                Some(asked) = under_way.next(), if !under_way.is_empty() => {
                    (heard, is_silent) = (Instant::now(), false);
                    if matches!(asked.result, Err(Trouble::Refused(_))) {
                        refused.get_or_insert(heard);
                    } else {
                        (refused, self.answered) = (None, heard);
                    }
                    // What was pushed before this answer is told before it.
                    while let Some(event) = unconstrained(on.event()).now_or_never() {
                        match event {
                            Some(event) => self.watches.tell(&event),
                            None => return Stop::Lost("closed".into()),
                        }
                    }
                    if let Some(stop) = self.answer(asked) { return stop }
                }
                message = inbox.recv(),
                    if S::HEARTBEATS_APART || has_room(&under_way) => match message {
                    // Its caller has been told that nothing is known.
                    Some(Message::Ask { since, answer: Some(_), .. })
                        if since.elapsed() >= deadline => {}
                    Some(Message::Ask { since, operation, answer }) => {
                        match operation {
                            StoreRequest::Touch => touched = Instant::now(),
                            // Who is waited for may have a shorter timeout than all before.
                            StoreRequest::Watch { .. } => self.search_soon(),
                            _ => {}
                        }
                        if has_room(&under_way) || operation.is_heartbeat() {
                            if under_way.is_empty() { heard = Instant::now() }
                            under_way.push(self.sent(on, &operation, answer));
                        } else {
                            self.waiting.push_back(Unsent { since, operation, answer });
                        }
                    }
                    Some(Message::Close) | None => {
                        self.close(on, under_way).await;
                        return Stop::Over("it was closed");
                    }
                },
                () = sleep_until(self.next_touch(touched, heartbeat)) => {
                    if under_way.is_empty() { heard = Instant::now() }
                    touched = Instant::now();
                    self.due.lock().take();
                    under_way.push(self.sent(on, &StoreRequest::Touch, None));
                }
                () = refusing, if refused.is_some() => {
                    return Stop::Lost(format!("all was refused for {most_refused:?}"));
                }
                () = silent, if !under_way.is_empty() => {
                    if is_silent {
                        return Stop::Lost(format!("no answer within {patience:?}"));
                    }
                    // After a pause of this process, answers may be there that nobody has read yet.
                    (heard, is_silent) = (Instant::now() + READ_FIRST - patience, true);
                }
            }
        }
    }

    pub(super) fn answer(
        &self,
        Asked {
            answer,
            watch,
            is_heartbeat,
            is_end: _,
            result,
        }: Asked,
    ) -> Option<Stop> {
        let (answered, stop) = match result {
            Ok(StoreReply::Done { events, outcome }) => {
                for event in &events {
                    self.watches.tell(event);
                }
                if let Some((kind, number)) = watch {
                    self.armed(kind, number, &outcome);
                }
                (Ok(self.reaped(outcome)), None)
            }
            Ok(StoreReply::Refused { at, code }) => (Err(Fault::Refused(at, code)), None),
            Ok(StoreReply::Over | StoreReply::Grace(_)) => (
                Err(Fault::Unknown(OVER.into())),
                Some(Stop::Over("it expired")),
            ),
            Ok(StoreReply::Moved) => {
                let why = "the session has another connection";
                (
                    Err(Fault::Unknown(why.into())),
                    Some(Stop::Lost(why.into())),
                )
            }
            Ok(StoreReply::OtherIncarnation) => {
                let why = "the store has started again, or another server has taken over";
                (Err(Fault::Unknown(why.into())), Some(Stop::Over(why)))
            }
            // Nothing was done, so it proves no life: no lease is extended.
            Err(Trouble::Refused(code)) if is_heartbeat => {
                let code = Code::NotNow(code.to_string());
                (Err(Fault::Answered(code)), None)
            }
            Err(Trouble::Refused(code)) => (Err(Fault::Answered(code)), None),
            Err(Trouble::Broken(why)) => (Err(Fault::Unknown(why)), None),
            Err(Trouble::Lost(why)) => (Err(Fault::Unknown(why.clone())), Some(Stop::Lost(why))),
        };
        if let Some(answer) = answer {
            answer.send(answered).ok();
        }
        stop
    }

    /// What is armed again on another connection is known before the caller looks.
    fn armed(&self, kind: WatchKind, number: u64, outcome: &Outcome) {
        if let Outcome::Armed(node, _) = outcome {
            let last = match kind {
                WatchKind::Data => node.version.into(),
                WatchKind::Children => node.pzxid,
            };
            self.watches.armed(number, node.czxid, last);
        }
    }

    /// A heartbeat of ours, or a search for a session that is due by then: a client with a long
    /// timeout must not be late for one with a short timeout that dies.
    fn next_touch(&self, touched: Instant, heartbeat: Duration) -> Instant {
        let (ours, due) = (touched + heartbeat, *self.due.lock());
        due.map_or(ours, |due| due.max(touched + SHORTEST_SEARCH).min(ours))
    }

    fn search_soon(&self) {
        let now = Instant::now();
        let mut due = self.due.lock();
        *due = Some(due.map_or(now, |due| due.min(now)));
    }

    /// Removes what a heartbeat has found.
    fn reaped(&self, outcome: Outcome) -> Outcome {
        let Outcome::Due(sessions, containers, next) = outcome else {
            return outcome;
        };
        *self.due.lock() = next.map(|next| Instant::now() + next);
        self.reaper.reap(&self.own, sessions, containers);
        Outcome::Nothing
    }

    /// Ends the session at the server, behind all that was asked.
    async fn close(&mut self, on: &S::Connection, mut under_way: FuturesUnordered<Sent>) {
        for waiting in std::mem::take(&mut self.waiting) {
            under_way.push(self.sent(on, &waiting.operation, waiting.answer));
        }
        let closing = async {
            under_way.push(self.sent(on, &StoreRequest::Close, None));
            while let Some(asked) = under_way.next().await {
                if !asked.is_end {
                    self.answer(asked);
                    continue;
                }
                let Ok(StoreReply::Done {
                    outcome: Outcome::Paths(paths),
                    ..
                }) = asked.result
                else {
                    return;
                };
                if paths.is_empty() {
                    return;
                }
                let reap = StoreRequest::Reap(self.session.id, paths);
                under_way.push(self.sent(on, &reap, None));
            }
        };
        // Others remove what is left.
        timeout(self.granted, closing).await.ok();
    }
}
