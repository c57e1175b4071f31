//! One session of the simulated world: a link for the client, and the server that it happens to be
//! connected to.
//!
//! Two tasks: one handles requests in their order, behind delays and faults; the other hands
//! answers and watch events back in their order. Requests that were sent are handled whether or not
//! somebody still waits for the answer.

use std::fmt;
use std::future::pending;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::yield_now;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::tree::{Action, Change as Committed, Tree, parent};
use super::{Author, CALL, Dice, Entry, SimWorld};
use crate::link::{
    AccessList, Change, Code, Create, Created, Fault, Found, Link, Node, Read, Reply, SessionState,
    Watch, Write,
};

/// Longest wait for an answer, as the real link has it.
const DEADLINE: Duration = Duration::from_secs(1);
/// Only beats know of it: sessions expire when the dice say so.
const SESSION_TIMEOUT: Duration = Duration::from_secs(4);

/// The client's end.
pub(crate) struct SimLink {
    world: Arc<SimWorld>,
    id: i64,
    inbox: mpsc::UnboundedSender<Request>,
    states: watch::Receiver<SessionState>,
}

struct Request {
    operation: Operation,
    call: Option<u32>,
    answer: oneshot::Sender<Result<Answer, Fault>>,
    /// Deletes that this request has under way.
    _deletes: Vec<UnderWay>,
}

#[derive(Debug)]
enum Operation {
    Write(Vec<Action>),
    /// A write that tells which of its actions was refused.
    Multi(Vec<Action>),
    Read(Vec<(bool, String)>),
    Watch(String),
    WatchChildren(String),
    Ephemerals(String),
    Sync(String),
}

enum Answer {
    Done,
    /// The nodes that were created.
    Written(Vec<(String, Created)>),
    Found(Vec<Found>),
    Watching(Node, Watch),
    WatchingChildren(Vec<String>, Watch),
    Paths(Vec<String>),
}

/// A delete that has not reached its end at the server.
struct UnderWay {
    world: Arc<SimWorld>,
    session: i64,
    path: String,
}

impl UnderWay {
    fn begin(world: &Arc<SimWorld>, session: i64, path: &str) -> Self {
        let world = Arc::clone(world);
        let path = path.to_owned();
        world.log(Entry::Deleting {
            session,
            path: path.clone(),
            is_over: false,
        });
        Self {
            world,
            session,
            path,
        }
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let path = std::mem::take(&mut self.path);
        self.world.log(Entry::Deleting {
            session: self.session,
            path,
            is_over: true,
        });
    }
}

impl fmt::Debug for SimLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimLink")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

impl SimLink {
    pub(super) fn start(world: Arc<SimWorld>, id: i64) -> (Self, Arc<Watches>) {
        let (inbox, requests) = mpsc::unbounded_channel();
        let (outbox, outgoing) = mpsc::unbounded_channel();
        let (state, states) = watch::channel(SessionState::Connected);
        let watches = Arc::new(Watches::default());
        let whose = u64::try_from(id).unwrap_or(0);
        let mut replica = Replica {
            tree: Tree::default(),
            prefix: 0,
            watches: Arc::clone(&watches),
        };
        // A new session's first server may lag behind, but not before its own begin.
        replica.tree = world.tree();
        replica.prefix = world.end();
        let connection = watch::Sender::new(0);
        tokio::spawn(deliver(outgoing, connection.subscribe()));
        let server = Server {
            dice: Dice::new(world.seed, whose),
            world: Arc::clone(&world),
            id,
            replica,
            outbox,
            state,
            connection,
            last_out: Instant::now(),
        };
        tokio::spawn(server.serve(requests));
        let link = Self {
            world,
            id,
            inbox,
            states,
        };
        (link, watches)
    }

    fn send<'a, T: Send + 'a>(
        &self,
        operation: Operation,
        pick: fn(Answer) -> Option<T>,
    ) -> Reply<'a, T> {
        let (answer, answered) = oneshot::channel();
        let call = CALL.try_with(|call| *call).ok();
        let deletes = match &operation {
            Operation::Write(actions) | Operation::Multi(actions) => actions
                .iter()
                .filter_map(|action| match action {
                    Action::Delete { path, .. } => {
                        Some(UnderWay::begin(&self.world, self.id, path))
                    }
                    _ => None,
                })
                .collect(),
            _ => Vec::new(),
        };
        let request = Request {
            operation,
            call,
            answer,
            _deletes: deletes,
        };
        // The server's task outlives the link.
        self.inbox.send(request).ok();
        Box::pin(async move {
            match timeout(DEADLINE, answered).await {
                Ok(Ok(Ok(answer))) => Ok(pick(answer).expect("each operation has its answer")),
                Ok(Ok(Err(fault))) => Err(fault),
                Ok(Err(_)) => Err(Fault::Unknown("the session is over".into())),
                Err(_) => Err(Fault::Unknown("no answer in time".into())),
            }
        })
    }
}

impl Link for SimLink {
    fn session_id(&self) -> i64 {
        self.id
    }

    fn session_timeout(&self) -> Duration {
        SESSION_TIMEOUT
    }

    fn create<'a>(&'a self, path: &'a str, data: &[u8], kind: Create) -> Reply<'a, Created> {
        let (path, data) = (path.to_owned(), data.to_vec());
        let create = Operation::Write(vec![Action::Create { path, data, kind }]);
        self.send(create, |answer| match answer {
            Answer::Written(created) => created.first().map(|(_, created)| created.clone()),
            _ => None,
        })
    }

    fn delete(&self, path: &str) -> Reply<'_, ()> {
        let delete = Operation::Write(vec![Action::delete(path)]);
        self.send(delete, |answer| {
            matches!(answer, Answer::Written(_)).then_some(())
        })
    }

    fn watch(&self, path: &str) -> Reply<'_, (Node, Watch)> {
        self.send(Operation::Watch(path.to_owned()), |answer| match answer {
            Answer::Watching(node, watch) => Some((node, watch)),
            _ => None,
        })
    }

    fn watch_children(&self, path: &str) -> Reply<'_, (Vec<String>, Watch)> {
        let watch = Operation::WatchChildren(path.to_owned());
        self.send(watch, |answer| match answer {
            Answer::WatchingChildren(children, watch) => Some((children, watch)),
            _ => None,
        })
    }

    fn multi_read(&self, reads: &[Read<'_>]) -> Reply<'_, Vec<Found>> {
        let reads = reads.iter().map(|read| match read {
            Read::Data(path) => (false, (*path).to_owned()),
            Read::Children(path) => (true, (*path).to_owned()),
        });
        self.send(Operation::Read(reads.collect()), |answer| match answer {
            Answer::Found(found) => Some(found),
            _ => None,
        })
    }

    fn access_list(&self, _: &str) -> Reply<'_, AccessList> {
        // Everything is open here, and nobody asks.
        let none = Code::Other("there are no access lists here".into());
        Box::pin(async { Err(Fault::Answered(none)) })
    }

    fn multi(&self, writes: &[Write<'_>]) -> Reply<'_, Vec<String>> {
        self.send(Operation::Multi(actions(writes)), |answer| match answer {
            Answer::Written(created) => Some(paths(created)),
            _ => None,
        })
    }

    fn ephemerals(&self, prefix: &str) -> Reply<'_, Vec<String>> {
        self.send(
            Operation::Ephemerals(prefix.to_owned()),
            |answer| match answer {
                Answer::Paths(paths) => Some(paths),
                _ => None,
            },
        )
    }

    fn sync(&self, path: &str) -> Reply<'_, ()> {
        self.send(Operation::Sync(path.to_owned()), |answer| {
            matches!(answer, Answer::Done).then_some(())
        })
    }

    fn states(&self) -> watch::Receiver<SessionState> {
        self.states.clone()
    }
}

fn actions(writes: &[Write<'_>]) -> Vec<Action> {
    let actions = writes.iter().map(|write| match *write {
        Write::Set {
            path,
            data,
            version,
        } => Action::Set {
            path: path.to_owned(),
            data: data.to_vec(),
            version,
        },
        Write::Delete { path, version } => Action::Delete {
            path: path.to_owned(),
            version,
        },
        Write::DeleteTicket { path, .. } => Action::delete(path),
        Write::Check { path, version } => Action::Check {
            path: path.to_owned(),
            version,
        },
        Write::Ephemeral {
            path,
            data,
            is_sequential,
        } => Action::Ephemeral {
            path: path.to_owned(),
            data: data.to_vec(),
            is_sequential,
        },
        Write::Create { path, data } => Action::Create {
            path: path.to_owned(),
            data: data.to_vec(),
            kind: Create::Persistent,
        },
    });
    actions.collect()
}

fn paths(created: Vec<(String, Created)>) -> Vec<String> {
    created.into_iter().map(|(path, _)| path).collect()
}

/// The watches of one session.
#[derive(Debug, Default)]
pub(crate) struct Watches(Mutex<Vec<Armed>>);

#[derive(Debug)]
struct Armed {
    path: String,
    on: On,
    id: Arc<()>,
    tell: oneshot::Sender<Change>,
}

/// What a watch is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum On {
    Data,
    Children,
}

/// Takes a watch back when it is dropped.
struct TakeBack {
    watches: Arc<Watches>,
    id: Arc<()>,
}

impl Drop for TakeBack {
    fn drop(&mut self) {
        self.watches
            .retain(|armed| !Arc::ptr_eq(&armed.id, &self.id));
    }
}

impl Watches {
    pub(super) fn count(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    fn retain(&self, keep: impl FnMut(&Armed) -> bool) {
        let mut armed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        armed.retain(keep);
    }

    fn arm(self: &Arc<Self>, path: &str, on: On) -> Watch {
        let (tell, told) = oneshot::channel();
        let id = Arc::new(());
        let armed = Armed {
            path: path.to_owned(),
            on,
            id: Arc::clone(&id),
            tell,
        };
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.push(armed);
        let take_back = TakeBack {
            watches: Arc::clone(self),
            id,
        };
        Watch::new(async move {
            let change = told.await.unwrap_or(Change::SessionOver);
            drop(take_back);
            change
        })
    }

    /// Ends the watches that a change fires, and says what each is told.
    fn take(&self, change: &Committed) -> Vec<(oneshot::Sender<Change>, Change)> {
        let mut taken = match change {
            Committed::Created { .. } => Vec::new(),
            Committed::Deleted { path, .. } => {
                self.take_if(Change::Deleted, |armed| armed.path == *path)
            }
            Committed::Set { path, .. } => self.take_if(Change::Changed, |armed| {
                armed.on == On::Data && armed.path == *path
            }),
        };
        if !matches!(change, Committed::Set { .. }) {
            let directory = parent(change.path());
            taken.extend(self.take_if(Change::Changed, |armed| {
                armed.on == On::Children && armed.path == directory
            }));
        }
        taken
    }

    fn take_if(
        &self,
        told: Change,
        is_hit: impl Fn(&Armed) -> bool,
    ) -> Vec<(oneshot::Sender<Change>, Change)> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let hit = all.extract_if(.., |armed| is_hit(armed));
        hit.map(|armed| (armed.tell, told)).collect()
    }
}

/// A server's view: the tree at a prefix of the history.
struct Replica {
    tree: Tree,
    prefix: i64,
    watches: Arc<Watches>,
}

/// What goes back to the client, in this order.
struct Outgoing {
    at: Instant,
    connection: u64,
    message: Message,
}

enum Message {
    Reply(
        oneshot::Sender<Result<Answer, Fault>>,
        Result<Answer, Fault>,
    ),
    Event(oneshot::Sender<Change>, Change),
}

/// Hands everything back at its time. An answer from a connection that broke since is lost.
async fn deliver(
    mut outgoing: mpsc::UnboundedReceiver<Outgoing>,
    connection: watch::Receiver<u64>,
) {
    while let Some(next) = outgoing.recv().await {
        sleep_until(next.at).await;
        match next.message {
            Message::Reply(answer, result) => {
                let is_current = next.connection == *connection.borrow();
                let lost = || Err(Fault::Unknown("the connection broke".into()));
                // The caller may be gone; a watch in the answer is then taken back.
                drop(answer.send(if is_current { result } else { lost() }));
            }
            Message::Event(tell, change) => drop(tell.send(change)),
        }
    }
}

/// The server's end of a session.
struct Server {
    world: Arc<SimWorld>,
    id: i64,
    dice: Dice,
    replica: Replica,
    outbox: mpsc::UnboundedSender<Outgoing>,
    state: watch::Sender<SessionState>,
    connection: watch::Sender<u64>,
    last_out: Instant,
}

enum Woken {
    Request(Option<Request>),
    Behind,
    CatchUp,
    Doom,
}

/// Whether the session goes on.
type Alive = bool;

impl Server {
    async fn serve(mut self, mut inbox: mpsc::UnboundedReceiver<Request>) {
        let mut head = self.world.head.subscribe();
        let mut catch_up: Option<Instant> = None;
        let is_doomed = self.dice.percent(self.world.fault_percent * 2);
        let mut doom = is_doomed.then(|| Instant::now() + self.dice.ms(400));
        let until = async |at: Option<Instant>| match at {
            Some(at) => sleep_until(at).await,
            None => pending().await,
        };
        loop {
            let woken = tokio::select! {
                biased;
                request = inbox.recv() => Woken::Request(request),
                () = until(doom) => Woken::Doom,
                () = until(catch_up) => Woken::CatchUp,
                Ok(()) = head.changed(), if catch_up.is_none() => Woken::Behind,
            };
            let alive = match woken {
                Woken::Request(Some(request)) => self.handle(request, &mut inbox).await,
                Woken::Request(None) => {
                    self.world.end_session(self.id);
                    self.end("it was closed");
                    return;
                }
                Woken::Behind => {
                    catch_up = Some(Instant::now() + self.lag());
                    true
                }
                Woken::CatchUp => {
                    let behind = usize::try_from(self.world.end() - self.replica.prefix);
                    let steps = 1 + self.dice.below(behind.unwrap_or(0));
                    self.advance(self.replica.prefix + i64::try_from(steps).unwrap_or(1));
                    let is_behind = self.replica.prefix < self.world.end();
                    catch_up = is_behind.then(|| Instant::now() + self.lag());
                    true
                }
                Woken::Doom => {
                    doom = None;
                    !self.world.is_stormy()
                }
            };
            if !alive {
                return self.expire(inbox).await;
            }
        }
    }

    fn lag(&mut self) -> Duration {
        match self.dice.below(10) {
            _ if !self.world.is_stormy() => self.dice.ms(3),
            0 => self.dice.ms(200),
            1..=4 => self.dice.ms(20),
            _ => Duration::ZERO,
        }
    }

    /// The way to the server or back, which may take some turns of everybody else.
    fn way(&mut self) -> (usize, Duration) {
        let turns = self.dice.below(4);
        let time = match self.dice.below(12) {
            0..=5 => Duration::ZERO,
            11 if self.world.is_stormy() => self.dice.ms(60),
            _ => self.dice.ms(4),
        };
        (turns, time)
    }

    async fn handle(
        &mut self,
        request: Request,
        inbox: &mut mpsc::UnboundedReceiver<Request>,
    ) -> Alive {
        let (turns, time) = self.way();
        for _ in 0..turns {
            yield_now().await;
        }
        if !time.is_zero() {
            sleep(time).await;
        }
        if self.world.is_stormy() && self.dice.percent(self.world.fault_percent) {
            return match self.dice.below(8) {
                0 => {
                    // It may have been done just before the end.
                    if self.dice.percent(50) {
                        drop(self.perform(&request));
                    }
                    false
                }
                1 | 2 => {
                    self.fault("an answer is given up");
                    let result = self.perform_after(request, "no answer in time").await;
                    drop(result);
                    true
                }
                _ => self.cut(request, inbox).await,
            };
        }
        let result = self.perform(&request);
        self.reply(request, result);
        true
    }

    /// The client gives up waiting first; then the request is handled all the same.
    async fn perform_after(&mut self, mut request: Request, why: &str) -> Result<Answer, Fault> {
        let (nobody, _) = oneshot::channel();
        let answer = std::mem::replace(&mut request.answer, nobody);
        answer.send(Err(Fault::Unknown(why.into()))).ok();
        sleep(self.dice.ms(10)).await;
        self.perform(&request)
    }

    /// The connection breaks: this request and perhaps those behind it are handled or not, and
    /// nobody is told.
    async fn cut(
        &mut self,
        request: Request,
        inbox: &mut mpsc::UnboundedReceiver<Request>,
    ) -> Alive {
        self.fault("the connection breaks");
        let mut lost = vec![request];
        while self.dice.percent(60)
            && let Ok(next) = inbox.try_recv()
        {
            lost.push(next);
        }
        let handled = self.dice.below(lost.len() + 1);
        let late = self.dice.percent(50);
        let mut late_ones = Vec::new();
        self.connection.send_modify(|connection| *connection += 1);
        if self.dice.percent(80) {
            self.state.send_replace(SessionState::Disconnected);
        }
        for (at, mut request) in lost.into_iter().enumerate() {
            if at < handled && !late {
                self.perform_unseen(&request);
            }
            let (nobody, _) = oneshot::channel();
            let answer = std::mem::replace(&mut request.answer, nobody);
            let broke = Err(Fault::Unknown("the connection broke".into()));
            answer.send(broke).ok();
            if at < handled && late {
                late_ones.push(request);
            }
        }
        let away = if self.dice.percent(5) { 1500 } else { 60 };
        sleep(self.dice.ms(away)).await;
        for request in late_ones {
            self.perform_unseen(&request);
        }
        sleep(self.dice.ms(away)).await;
        if self.dice.percent(8) {
            return false;
        }
        // Another server may be nearer to the end of the history, never further from it.
        let end = self.world.end();
        if self.dice.percent(50) {
            self.advance(end);
        }
        self.state.send_replace(SessionState::Connected);
        true
    }

    /// What the old server still did. The client never saw it, so the next server may be at a
    /// prefix without it.
    fn perform_unseen(&self, request: &Request) {
        if let Operation::Write(actions) | Operation::Multi(actions) = &request.operation {
            let author = Author::Session(self.id);
            let written = self.world.commit(author, self.id, request.call, actions);
            // Nobody is told of a refusal either.
            written.ok();
        }
    }

    /// The session expires. Its server may not know yet, and the client is told last.
    async fn expire(mut self, mut inbox: mpsc::UnboundedReceiver<Request>) {
        self.fault("the session expires");
        let limit = self.world.end_session(self.id);
        let told = Instant::now() + self.dice.ms(300);
        loop {
            let request = tokio::select! {
                biased;
                () = sleep_until(told) => break,
                request = inbox.recv() => request,
            };
            let Some(request) = request else { break };
            let is_read = matches!(
                request.operation,
                Operation::Read(_) | Operation::Watch(_) | Operation::WatchChildren(_)
            );
            if is_read && self.replica.prefix <= limit {
                let result = self.perform(&request);
                self.reply(request, result);
            }
        }
        self.end("it expired");
        while let Some(request) = inbox.recv().await {
            drop(request);
        }
    }

    fn end(&self, reason: &'static str) {
        self.state.send_replace(SessionState::Over(reason));
        self.replica.watches.retain(|_| false);
    }

    fn reply(&mut self, request: Request, result: Result<Answer, Fault>) {
        let (_, time) = self.way();
        self.put_out(time, Message::Reply(request.answer, result));
    }

    fn put_out(&mut self, time: Duration, message: Message) {
        self.last_out = self.last_out.max(Instant::now() + time);
        let outgoing = Outgoing {
            at: self.last_out,
            connection: *self.connection.borrow(),
            message,
        };
        // The other task ends after this one.
        self.outbox.send(outgoing).ok();
    }

    fn advance(&mut self, to: i64) {
        let to = to.min(self.world.end());
        if to <= self.replica.prefix {
            return;
        }
        for changes in self.world.commits_between(self.replica.prefix, to) {
            for change in changes.iter() {
                self.replica.tree.apply(change);
                for (tell, told) in self.replica.watches.take(change) {
                    let (_, time) = self.way();
                    self.put_out(time, Message::Event(tell, told));
                }
            }
        }
        self.replica.prefix = to;
    }

    /// What the server does with a request and answers.
    fn perform(&mut self, request: &Request) -> Result<Answer, Fault> {
        let answered = match &request.operation {
            Operation::Write(actions) => {
                self.write(request.call, actions).map_err(|(_, code)| code)
            }
            Operation::Multi(actions) => {
                let written = self.write(request.call, actions);
                return written.map_err(|(at, code)| Fault::Refused(at, code));
            }
            Operation::Read(reads) => {
                self.world.log(Entry::VerifiedRead {
                    session: self.id,
                    call: request.call,
                    paths: reads.iter().map(|(_, path)| path.clone()).collect(),
                    prefix: self.replica.prefix,
                });
                let tree = &self.replica.tree;
                let found = reads.iter().map(|(is_list, path)| match tree.node(path) {
                    None => Found::Failed(Code::NoNode),
                    Some(_) if *is_list => Found::Children(tree.children(path)),
                    Some(node) => Found::Node(node),
                });
                Ok(Answer::Found(found.collect()))
            }
            Operation::Watch(path) => {
                let node = self.replica.tree.node(path).ok_or(Code::NoNode);
                node.map(|node| Answer::Watching(node, self.replica.watches.arm(path, On::Data)))
            }
            Operation::WatchChildren(path) => {
                let (tree, watches) = (&self.replica.tree, &self.replica.watches);
                let directory = tree.get(path).ok_or(Code::NoNode);
                directory.map(|_| {
                    let watch = watches.arm(path, On::Children);
                    Answer::WatchingChildren(tree.children(path), watch)
                })
            }
            Operation::Ephemerals(prefix) => {
                let mut own = self.replica.tree.of_session(self.id);
                own.retain(|path| path.starts_with(prefix));
                Ok(Answer::Paths(own))
            }
            Operation::Sync(path) => {
                self.advance(self.world.end());
                // Whether a missing node can be synced depends on the server.
                if self.replica.tree.get(path).is_none() && self.dice.percent(50) {
                    Err(Code::NoNode)
                } else {
                    Ok(Answer::Done)
                }
            }
        };
        answered.map_err(Fault::Answered)
    }

    fn write(&mut self, call: Option<u32>, actions: &[Action]) -> Result<Answer, (usize, Code)> {
        let author = Author::Session(self.id);
        let written = self.world.commit(author, self.id, call, actions);
        // A refusal, too, is answered in the order of the history.
        self.advance(self.world.end());
        let changes = written?;
        let asked = actions.iter().filter_map(|action| match action {
            Action::Create { path, .. } | Action::Ephemeral { path, .. } => Some(path),
            _ => None,
        });
        let made = changes.iter().filter_map(|change| match change {
            Committed::Created { path, node } => Some((path, node)),
            _ => None,
        });
        let created = asked.zip(made).map(|(asked, (path, node))| {
            let number = path.strip_prefix(&**asked).map(str::parse);
            let created = Created {
                seq: number.and_then(Result::ok).unwrap_or(0),
                czxid: node.czxid,
                owner: node.owner,
                directory: None,
            };
            (path.clone(), created)
        });
        Ok(Answer::Written(created.collect()))
    }

    fn fault(&self, what: &'static str) {
        let session = self.id;
        self.world.log(Entry::Fault { session, what });
    }
}
