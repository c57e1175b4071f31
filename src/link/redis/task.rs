//! The task that speaks for a session.
//!
//! Invariants: requests leave in the order in which they were called, because the crate sends only
//! what is polled, and one task polls all. A message of a watch is told before any answer that came
//! behind it. A request is sent once: what a lost connection had not answered has an unknown
//! outcome.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::stream::{FuturesOrdered, StreamExt};
use redis::{PushInfo, PushKind, RedisError, Value};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep_until, timeout};

use super::answer::{self, ScriptReply, Trouble, trouble};
use super::inbox::{Inbox, Message, OVER, SessionKey};
use super::reaper;
use super::request::{Request, WatchKind};
use super::target::{Greeted, RedisTarget};
use super::watches::Watches;
use crate::link::{Code, Fault, SessionState};

/// Containers that have been empty for so long are removed, as ZooKeeper does it.
pub(super) const EMPTY_FOR: Duration = Duration::from_secs(60);

/// Why a connection is served no longer.
pub(super) enum Stop {
    Lost(String),
    Over(&'static str),
}

/// What a request is, once it is on its way, and its answer.
pub(super) struct Asked {
    answer: Option<oneshot::Sender<Result<Value, Fault>>>,
    operation: &'static str,
    watch: Option<(WatchKind, u64)>,
    is_heartbeat: bool,
    pub(super) result: Result<Value, RedisError>,
}

pub(super) type Sent = Pin<Box<dyn Future<Output = Asked> + Send>>;

pub(super) struct SessionTask {
    pub(super) target: RedisTarget,
    pub(super) session: SessionKey,
    pub(super) granted: Duration,
    pub(super) watches: Arc<Watches>,
    pub(super) state: watch::Sender<SessionState>,
    /// The number of the connection; 0 while there is none.
    pub(super) connection: watch::Sender<u64>,
    /// One at a time removes what dead sessions have left.
    pub(super) reaping: Arc<AtomicBool>,
    pub(super) own: Inbox,
    /// Asked while there was no connection.
    pub(super) waiting: VecDeque<Unsent>,
}

/// A request that waits for a connection.
pub(super) struct Unsent {
    pub(super) since: Instant,
    pub(super) request: Request,
    pub(super) answer: Option<oneshot::Sender<Result<Value, Fault>>>,
}

impl SessionTask {
    pub(super) async fn run(
        mut self,
        mut greeted: Greeted,
        mut inbox: mpsc::UnboundedReceiver<Message>,
    ) {
        let why = loop {
            match self.serve(&mut greeted, &mut inbox).await {
                Stop::Over(why) => break why,
                Stop::Lost(why) => tracing::debug!(why, "the connection to Redis is lost"),
            }
            self.connection.send_replace(0);
            self.state.send_replace(SessionState::Disconnected);
            match self.reconnect(greeted.number, &mut inbox).await {
                Ok(again) => greeted = again,
                Err(why) => break why,
            }
            self.connection.send_replace(greeted.number);
            self.state.send_replace(SessionState::Connected);
        };
        self.connection.send_replace(0);
        // First the state: who is told of a watch asks it.
        self.state.send_replace(SessionState::Over(why));
        self.watches.end();
    }

    pub(super) fn sent(
        &self,
        on: &Greeted,
        request: &Request,
        answer: Option<oneshot::Sender<Result<Value, Fault>>>,
    ) -> Sent {
        let asked = on.ask(self.target.command(&self.session, on, request));
        let (operation, watch) = (request.operation, request.watch);
        let is_heartbeat = request.is_heartbeat;
        Box::pin(async move {
            Asked {
                answer,
                operation,
                watch,
                is_heartbeat,
                result: asked.await,
            }
        })
    }

    async fn serve(
        &mut self,
        on: &mut Greeted,
        inbox: &mut mpsc::UnboundedReceiver<Message>,
    ) -> Stop {
        let mut under_way: FuturesOrdered<Sent> = FuturesOrdered::new();
        let deadline = self.own.deadline;
        for waiting in std::mem::take(&mut self.waiting) {
            // Its caller has been told that nothing is known.
            if waiting.since.elapsed() < deadline {
                under_way.push_back(self.sent(on, &waiting.request, waiting.answer));
            }
        }
        let (heartbeat, patience) = (self.granted / 3, self.granted * 2 / 3);
        let mut heard = Instant::now();
        // Other requests do not count: only a touch finds what dead sessions have left.
        let mut touched = heard;
        loop {
            let silent = sleep_until(heard + patience);
            tokio::select! {
                biased;
                push = on.pushes.recv() => match push {
                    Some(push) => if self.is_end(&push) { return Stop::Lost("closed".into()) },
                    None => return Stop::Lost("closed".into()),
                },
                Some(asked) = under_way.next(), if !under_way.is_empty() => {
                    heard = Instant::now();
                    // What was pushed before this answer is told before it.
                    while let Ok(push) = on.pushes.try_recv() {
                        if self.is_end(&push) { return Stop::Lost("closed".into()) }
                    }
                    if let Some(stop) = self.answer(asked) { return stop }
                }
                message = inbox.recv() => match message {
                    Some(Message::Ask { request, answer }) => {
                        if under_way.is_empty() { heard = Instant::now() }
                        if request.operation == "touch" { touched = Instant::now() }
                        under_way.push_back(self.sent(on, &request, answer));
                    }
                    Some(Message::Close) | None => {
                        self.close(on, under_way).await;
                        return Stop::Over("it was closed");
                    }
                },
                () = sleep_until(touched + heartbeat) => {
                    if under_way.is_empty() { heard = Instant::now() }
                    touched = Instant::now();
                    let touch = self.target.keys.touch(EMPTY_FOR);
                    under_way.push_back(self.sent(on, &touch, None));
                }
                () = silent, if !under_way.is_empty() => {
                    return Stop::Lost(format!("no answer within {patience:?}"));
                }
            }
        }
    }

    /// Takes a message in. Whether it is the end of the connection.
    fn is_end(&self, push: &PushInfo) -> bool {
        match push.kind {
            PushKind::Disconnection => return true,
            PushKind::Message => {}
            _ => return false,
        }
        if let Some(Value::BulkString(event)) = push.data.get(1) {
            self.watches.tell(&String::from_utf8_lossy(event));
        }
        false
    }

    pub(super) fn answer(
        &self,
        Asked {
            answer,
            operation,
            watch,
            is_heartbeat,
            result,
        }: Asked,
    ) -> Option<Stop> {
        let (answered, stop) = match result.map(answer::reply) {
            Ok(Ok(ScriptReply::Done { events, result })) => {
                for event in &events {
                    self.watches.tell(event);
                }
                if operation == "touch" {
                    self.reap(result.clone());
                }
                if let Some((kind, number)) = watch {
                    self.armed(kind, number, result.clone());
                }
                (Ok(result), None)
            }
            Ok(Ok(ScriptReply::Refused { at, code })) => (Err(Fault::Refused(at, code)), None),
            Ok(Ok(ScriptReply::Over | ScriptReply::Grace(_))) => (
                Err(Fault::Unknown(OVER.into())),
                Some(Stop::Over("it expired")),
            ),
            Ok(Ok(ScriptReply::Moved)) => {
                let why = "the session has another connection";
                (
                    Err(Fault::Unknown(why.into())),
                    Some(Stop::Lost(why.into())),
                )
            }
            Ok(Ok(ScriptReply::OtherIncarnation)) => {
                let why = "the store has started again, or another server has taken over";
                (Err(Fault::Unknown(why.into())), Some(Stop::Over(why)))
            }
            Ok(Err(fault)) => (Err(fault), None),
            Err(error) => match trouble(&error) {
                // The script has not run, so it proves no life: no lease is extended.
                Trouble::Refused(code) if is_heartbeat => {
                    let code = Code::NotNow(code.to_string());
                    (Err(Fault::Answered(code)), None)
                }
                Trouble::Refused(code) => (Err(Fault::Answered(code)), None),
                Trouble::Lost(why) => (Err(Fault::Unknown(why.clone())), Some(Stop::Lost(why))),
            },
        };
        if let Some(answer) = answer {
            answer.send(answered).ok();
        }
        stop
    }

    /// What is armed again on another connection is known before the caller looks.
    fn armed(&self, kind: WatchKind, number: u64, answer: Value) {
        let node = answer::read(answer).and_then(|(node, _): (Value, Value)| answer::node(node));
        if let Ok(node) = node {
            let last = match kind {
                WatchKind::Data => node.version.into(),
                WatchKind::Children => node.pzxid,
            };
            self.watches.armed(number, node.czxid, last);
        }
    }

    fn reap(&self, touched: Value) {
        let due: Result<(Vec<String>, Vec<String>), Fault> = answer::read(touched);
        let Ok((sessions, containers)) = due else {
            return;
        };
        let is_idle = sessions.is_empty() && containers.is_empty();
        if is_idle || self.reaping.swap(true, Ordering::Relaxed) {
            return;
        }
        let (reaping, inbox) = (Arc::clone(&self.reaping), self.own.clone());
        let keys = self.target.keys.clone();
        tokio::spawn(async move {
            reaper::reap(&inbox, &keys, sessions, containers).await;
            reaping.store(false, Ordering::Relaxed);
        });
    }

    /// Ends the session at the server, behind all that was sent.
    async fn close(&self, on: &Greeted, mut under_way: FuturesOrdered<Sent>) {
        let (session, keys) = (&self.session, &self.target.keys);
        let closing = async {
            let mut next = Request::new("close");
            under_way.push_back(self.sent(on, &next, None));
            while let Some(asked) = under_way.next().await {
                if !under_way.is_empty() {
                    self.answer(asked);
                    continue;
                }
                let Ok(Ok(ScriptReply::Done { result, .. })) = asked.result.map(answer::reply)
                else {
                    return;
                };
                let Ok(paths) = answer::read::<Vec<String>>(result) else {
                    return;
                };
                if paths.is_empty() {
                    return;
                }
                next = keys.reap(&session.id.to_string(), &paths);
                under_way.push_back(self.sent(on, &next, None));
            }
        };
        // Others remove what is left.
        timeout(self.granted, closing).await.ok();
    }
}
