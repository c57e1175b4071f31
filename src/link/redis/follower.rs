//! Tells connections that sentinels have decided for another primary.
//!
//! The primary of before may still answer, and a session that stays there would go on holding its
//! locks. All sessions of a keeper share one follower, with a connection to each sentinel.
//! Invariant: what a sentinel publishes is a hint only; each connect asks again.

use std::convert::Infallible;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::join_all;
use redis::{AsyncConnectionConfig, PushKind};
use tokio::sync::{Mutex, mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::sentinels::{Named, Sentinels};
use super::url::Address;
use crate::error::UnreachableReason;
use crate::link::stored::Ungreeted;

/// The follower of a keeper. It ends with the last connection that it serves.
#[derive(Default)]
pub(super) struct Followers {
    current: Mutex<Weak<Follower>>,
}

struct Follower {
    newest: watch::Receiver<Option<Named>>,
    work: JoinHandle<()>,
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.work.abort();
    }
}

/// Of one connection: what sentinels have named for it, and what they name now.
pub(super) struct Followed {
    /// It keeps the follower.
    _follower: Arc<Follower>,
    newest: watch::Receiver<Option<Named>>,
    named: Named,
}

impl Followers {
    /// `rhythm`: how often each sentinel is asked, beside what it publishes.
    pub(super) async fn follow(
        &self,
        sentinels: &Sentinels,
        named: Named,
        rhythm: Duration,
    ) -> Followed {
        let mut current = self.current.lock().await;
        let alive = current.upgrade();
        let follower = match alive.filter(|follower| !follower.work.is_finished()) {
            Some(follower) => follower,
            None => Arc::new(Follower::start(sentinels.clone(), rhythm)),
        };
        *current = Arc::downgrade(&follower);
        Followed {
            newest: follower.newest.clone(),
            _follower: follower,
            named,
        }
    }
}

impl Followed {
    /// Sentinels have decided for another primary since. Cancel safe.
    pub(super) async fn moved(&mut self) {
        let ours = &self.named;
        let moved = self.newest.wait_for(|newest| {
            let newest = newest.as_ref();
            newest.is_some_and(|newest| newest.epoch > ours.epoch && newest.primary != ours.primary)
        });
        if moved.await.is_err() {
            // Nobody tells it any more: the connection itself shows its end.
            std::future::pending::<()>().await;
        }
    }
}

impl Follower {
    fn start(sentinels: Sentinels, rhythm: Duration) -> Self {
        let (tell, newest) = watch::channel(None);
        let work = tokio::spawn(async move {
            let addresses = sentinels.addresses.iter();
            join_all(addresses.map(|address| follow(&sentinels, address, &tell, rhythm))).await;
        });
        Self { newest, work }
    }
}

/// Listens to a sentinel for ever, through lost connections.
async fn follow(
    sentinels: &Sentinels,
    address: &Address,
    tell: &watch::Sender<Option<Named>>,
    rhythm: Duration,
) {
    loop {
        let Err(why) = listen(sentinels, address, tell, rhythm).await;
        tracing::debug!(%address, reason = ?why.reason(), "a sentinel tells nothing");
        sleep(rhythm).await;
    }
}

/// Asks a sentinel at once, at each message of it, and each `rhythm`.
async fn listen(
    sentinels: &Sentinels,
    address: &Address,
    tell: &watch::Sender<Option<Named>>,
    rhythm: Duration,
) -> Result<Infallible, Ungreeted> {
    let silent = || Ungreeted::Unreachable(UnreachableReason::Silent);
    let (pushed, mut pushes) = mpsc::unbounded_channel();
    let config = AsyncConnectionConfig::new().set_push_sender(pushed);
    let connecting = timeout(rhythm, sentinels.connect(address, config, rhythm)).await;
    let mut sentinel = connecting.map_err(|_| silent())??;
    let subscribed = timeout(rhythm, sentinel.ask("SUBSCRIBE", &["+switch-master"])).await;
    subscribed.map_err(|_| silent())??;
    loop {
        let named = timeout(rhythm, sentinels.named(address, &mut sentinel)).await;
        let named = named.map_err(|_| silent())??;
        tell.send_if_modified(|newest| {
            let is_newer = newest.as_ref().is_none_or(|last| last.epoch < named.epoch);
            if is_newer {
                *newest = Some(named);
            }
            is_newer
        });
        let told = timeout(rhythm, pushes.recv()).await;
        if let Ok(None | Some(PushKind::Disconnection)) = told.map(|push| push.map(|it| it.kind)) {
            return Err(Ungreeted::refusing("it has closed the connection"));
        }
    }
}
