//! For tests: a session without a task, which sends what it is told, when it is told.
//!
//! Invariant: nothing is sent beside that, so no heartbeat moves a deadline unseen.

use std::time::Duration;

use futures_util::future::BoxFuture;

use super::{SessionKey, Store, StoreConnection, StoreReply, StoreRequest, Trouble, WatchKind};
use crate::link::{Create, Write};
use crate::protocol::epoch::Reaping;

const SOON: Duration = Duration::from_secs(20);

type Answered = BoxFuture<'static, Result<StoreReply, Trouble>>;

/// One connection of a session.
pub(crate) struct ByHand {
    ask: Box<dyn Fn(&StoreRequest) -> Answered + Send + Sync>,
    timeout: Duration,
}

impl ByHand {
    /// A connection with this number of the session with this id and secret.
    pub(crate) async fn connect(store: &impl Store, id: i64, secret: &str, number: u64) -> Self {
        let connection = store.greet(id, number, SOON).await.unwrap();
        let session = SessionKey {
            id,
            secret: secret.into(),
        };
        Self {
            ask: Box::new(move |request| connection.ask(&session, request)),
            timeout: store.session_timeout(),
        }
    }

    async fn ask(&self, request: StoreRequest) -> String {
        match (self.ask)(&request).await {
            Ok(answered) => format!("{answered:?}"),
            Err(trouble) => format!("{trouble:?}"),
        }
    }

    pub(crate) async fn open(&self) -> String {
        let open = StoreRequest::Open {
            asked: self.timeout,
            longest: Duration::from_secs(30),
            margin: Duration::from_secs(5),
            is_new: true,
            reaping: Reaping::Usual,
        };
        self.ask(open).await
    }

    pub(crate) async fn touch(&self) -> String {
        self.ask(StoreRequest::Touch).await
    }

    pub(crate) async fn create(&self, path: &str, kind: Create) -> String {
        self.ask(StoreRequest::create(path, b"", kind)).await
    }

    pub(crate) async fn delete_ticket(&self, path: &str, czxid: i64) -> String {
        self.ask(StoreRequest::delete(path, czxid)).await
    }

    pub(crate) async fn multi(&self, writes: &[Write<'_>]) -> String {
        self.ask(StoreRequest::multi(writes)).await
    }

    pub(crate) async fn watch(&self, path: &str, number: u64) -> String {
        let (kind, path) = (WatchKind::Data, path.to_owned());
        let watch = StoreRequest::Watch { kind, path, number };
        self.ask(watch).await
    }

    /// Removes nodes of a dead session.
    pub(crate) async fn reap(&self, victim: i64, path: &str) -> String {
        let reap = StoreRequest::Reap(victim, vec![path.to_owned()]);
        self.ask(reap).await
    }

    /// Looks at a session that may be over.
    pub(crate) async fn bury(&self, victim: i64) -> String {
        self.ask(StoreRequest::Bury(victim)).await
    }
}
