//! One session on a store, as the recipes see it: each operation is one request of its task.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::inbox::{Inbox, Message, SessionKey};
use super::task::SessionTask;
use super::watches::Watches;
use super::{Outcome, Store, StoreRequest, WatchKind, unexpected};
use crate::latch::Latch;
use crate::link::size::{self, Envelope};
use crate::link::{
    AccessList, Change, Code, Create, Created, Fault, Found, Link, Node, Read, Reply, SessionState,
    Watch, Write,
};

pub(super) struct StoredLink {
    id: i64,
    granted: Duration,
    inbox: Inbox,
    watches: Arc<Watches>,
    states: watch::Receiver<SessionState>,
    /// The number of the connection; 0 while there is none.
    connections: watch::Receiver<u64>,
}

impl fmt::Debug for StoredLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoredLink")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

impl Drop for StoredLink {
    fn drop(&mut self) {
        self.inbox.messages.send(Message::Close).ok();
    }
}

impl StoredLink {
    /// Starts the task of a session that was opened.
    pub(super) fn start<S: Store>(
        store: S,
        session: SessionKey,
        granted: Duration,
        greeted: S::Connection,
    ) -> Arc<dyn Link> {
        let (messages, inbox) = mpsc::unbounded_channel();
        let (state, states) = watch::channel(SessionState::Connected);
        let (connection, connections) = watch::channel(1);
        let watches = Arc::<Watches>::default();
        let deadline = granted.max(Duration::from_millis(100));
        let link = Self {
            id: session.id,
            granted,
            inbox: Inbox { messages, deadline },
            watches: Arc::clone(&watches),
            states,
            connections,
        };
        let task = SessionTask {
            store,
            session,
            granted,
            watches,
            state,
            connection,
            reaper: Arc::default(),
            due: Latch::default(),
            answered: Instant::now(),
            own: link.inbox.clone(),
            waiting: VecDeque::new(),
        };
        tokio::spawn(task.run(greeted, inbox));
        Arc::new(link)
    }

    fn ask<'a, T: Send + 'a>(
        &self,
        operation: StoreRequest,
        read: impl FnOnce(Outcome) -> Result<T, Fault> + Send + 'a,
    ) -> Reply<'a, T> {
        let answered = self.inbox.ask(operation);
        Box::pin(async move { read(answered.await?) })
    }

    fn refused<'a, T: Send + 'a>(fault: impl Into<Fault>) -> Reply<'a, T> {
        Box::pin(std::future::ready(Err(fault.into())))
    }

    fn arm(
        &self,
        kind: WatchKind,
        path: &str,
    ) -> impl Future<Output = Result<(Node, Vec<String>, Watch), Fault>> + Send + use<> {
        let (number, told) = self.watches.begin(kind, path);
        let armed = Unwatched {
            number,
            kind,
            path: path.to_owned(),
            watches: Arc::clone(&self.watches),
            inbox: self.inbox.clone(),
        };
        let answered = self.inbox.ask(StoreRequest::Watch {
            kind,
            path: path.to_owned(),
            number,
        });
        async move {
            let (node, names) = match answered.await.map_err(alone)? {
                Outcome::Armed(node, names) => (node, names),
                other => return Err(unexpected(&other)),
            };
            let watch = Watch::new(async move {
                // No second name for it, which would take its room twice in each waiter.
                let change = told.await.unwrap_or(Change::SessionOver);
                drop(armed);
                change
            });
            Ok((node, names, watch))
        }
    }
}

/// A watch that is taken back when it is dropped before it fired.
struct Unwatched {
    number: u64,
    kind: WatchKind,
    path: String,
    watches: Arc<Watches>,
    inbox: Inbox,
}

impl Drop for Unwatched {
    fn drop(&mut self) {
        if self.watches.forget(self.number) {
            self.inbox.tell(StoreRequest::Unwatch {
                kind: self.kind,
                path: std::mem::take(&mut self.path),
                number: self.number,
            });
        }
    }
}

/// Of a request with one write.
fn alone(fault: Fault) -> Fault {
    match fault {
        Fault::Refused(_, code) => Fault::Answered(code),
        other => other,
    }
}

fn made(outcome: Outcome) -> Result<Vec<(String, Created)>, Fault> {
    match outcome {
        Outcome::Made(made) => Ok(made),
        other => Err(unexpected(&other)),
    }
}

impl Link for StoredLink {
    fn session_id(&self) -> i64 {
        self.id
    }

    fn names_session(&self) -> bool {
        true
    }

    fn session_timeout(&self) -> Duration {
        self.granted
    }

    fn create<'a>(&'a self, path: &'a str, data: &[u8], kind: Create) -> Reply<'a, Created> {
        if let Err(too_large) = size::check(Envelope::default().create(path, data)) {
            return Self::refused(too_large);
        }
        let answered = self.inbox.ask(StoreRequest::create(path, data, kind));
        let session = self.id;
        Box::pin(async move {
            let made = made(answered.await.map_err(alone)?)?;
            let created = made.into_iter().next().map(|(_, created)| created);
            let created = created.ok_or_else(|| Fault::Unknown("nothing was made".into()))?;
            let owner = match kind {
                Create::EphemeralSequential => session,
                Create::Container | Create::Persistent => 0,
            };
            Ok(Created { owner, ..created })
        })
    }

    fn tells_directory(&self) -> bool {
        true
    }

    fn delete(&self, path: &str) -> Reply<'_, ()> {
        self.delete_ticket(path, 0)
    }

    fn delete_ticket(&self, path: &str, czxid: i64) -> Reply<'_, ()> {
        let answered = self.inbox.ask(StoreRequest::delete(path, czxid));
        Box::pin(async move { answered.await.map(drop).map_err(alone) })
    }

    fn watch(&self, path: &str) -> Reply<'_, (Node, Watch)> {
        let armed = self.arm(WatchKind::Data, path);
        Box::pin(async move { armed.await.map(|(node, _, watch)| (node, watch)) })
    }

    fn watch_children(&self, path: &str) -> Reply<'_, (Vec<String>, Watch)> {
        let armed = self.arm(WatchKind::Children, path);
        Box::pin(async move { armed.await.map(|(_, names, watch)| (names, watch)) })
    }

    fn multi_read(&self, reads: &[Read<'_>]) -> Reply<'_, Vec<Found>> {
        if let Err(too_large) = size::check(Envelope::default().reads(reads)) {
            return Self::refused(too_large);
        }
        self.ask(StoreRequest::read(reads), |outcome| match outcome {
            Outcome::Found(found) => Ok(found),
            other => Err(unexpected(&other)),
        })
    }

    fn access_list(&self, path: &str) -> Reply<'_, AccessList> {
        let node = self.multi_read(&[Read::Data(path)]);
        Box::pin(async move {
            match node.await?.pop() {
                Some(Found::Node(node)) => Ok(AccessList {
                    entries: Vec::new(),
                    czxid: node.czxid,
                    aversion: 0,
                }),
                _ => Err(Fault::Answered(Code::NoNode)),
            }
        })
    }

    fn multi(&self, writes: &[Write<'_>]) -> Reply<'_, Vec<String>> {
        if let Err(too_large) = size::check(Envelope::default().writes(writes)) {
            return Self::refused(too_large);
        }
        self.ask(StoreRequest::multi(writes), |outcome| {
            Ok(made(outcome)?.into_iter().map(|(path, _)| path).collect())
        })
    }

    fn ephemerals(&self, prefix: &str) -> Reply<'_, Vec<String>> {
        let ephemerals = StoreRequest::Ephemerals(prefix.to_owned());
        self.ask(ephemerals, |outcome| match outcome {
            Outcome::Paths(paths) => Ok(paths),
            other => Err(unexpected(&other)),
        })
    }

    /// There is one server, which has seen all.
    fn sync(&self, _path: &str) -> Reply<'_, ()> {
        self.ask(StoreRequest::Touch, |_| Ok(()))
    }

    fn states(&self) -> watch::Receiver<SessionState> {
        self.states.clone()
    }

    /// The store compares its history with each request, so there is only one server.
    fn standalone(&self) -> Option<u64> {
        let connection = *self.connections.borrow();
        (connection > 0).then_some(connection)
    }

    fn proofs(&self) -> watch::Receiver<u64> {
        self.connections.clone()
    }
}
