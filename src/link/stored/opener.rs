//! Opens sessions on a store.
//!
//! Invariant: each try has a session id of its own, so that a late copy of an old request opens
//! nothing again.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::time::timeout;
use uuid::Uuid;

use super::session::StoredLink;
use super::{
    Outcome, SessionKey, Store, StoreConnection, StoreReply, StoreRequest, Trouble, Ungreeted,
    unexpected,
};
use crate::error::{AddressFailure, UnreachableReason};
use crate::link::engine::{Engine, Weakness};
use crate::link::size::Envelope;
use crate::link::{Code, Fault, Link, Opener, Reply};
use crate::protocol::epoch::{LONGEST, MARGIN};

/// The most bytes of paths that one session watches. A reconnect sends them a few at a time, so
/// only the time that it takes bounds them.
const MOST_WATCHED: usize = 1024 * 1024;

async fn start<S: Store>(store: S, limit: Duration) -> Result<Arc<dyn Link>, Fault> {
    // Another one for each try: a late copy of an old request must not revive a session.
    let id = i64::try_from(Uuid::new_v4().as_u64_pair().0 >> 1)
        .unwrap_or(1)
        .max(1);
    let secret = Uuid::new_v4().simple().to_string();
    let greeted = store.greet(id, 1, limit).await?;
    let open = StoreRequest::Open {
        asked: store.session_timeout(),
        longest: LONGEST,
        margin: MARGIN,
        is_new: store.is_new(),
        reaping: store.reaping(),
    };
    let session = SessionKey {
        id,
        secret: secret.into(),
    };
    let answered = timeout(limit, greeted.ask(&session, &open)).await;
    let answered = answered.map_err(|_| Fault::Unknown(format!("no session within {limit:?}")))?;
    let reply = answered.map_err(|trouble| match trouble {
        Trouble::Refused(code) => Fault::Answered(code),
        Trouble::Lost(why) | Trouble::Broken(why) => Fault::Unknown(why),
    })?;
    match reply {
        StoreReply::Done {
            outcome: Outcome::Granted(granted),
            ..
        } => Ok(StoredLink::start(store, session, granted, greeted)),
        StoreReply::Grace(left) => Err(Fault::Answered(Code::Recovering(left))),
        StoreReply::Done { outcome, .. } => Err(unexpected(&outcome)),
        other => Err(Fault::Unknown(format!("no session: {other:?}"))),
    }
}

impl From<Ungreeted> for Fault {
    fn from(ungreeted: Ungreeted) -> Self {
        match ungreeted {
            Ungreeted::Unauthenticated(why) => {
                tracing::debug!(why, "refused");
                Self::Answered(Code::Unauthenticated)
            }
            other => Self::Unknown(format!("{:?}", other.reason())),
        }
    }
}

impl<S: Store> Opener for S {
    fn open(&self, limit: Duration) -> Reply<'static, Arc<dyn Link>> {
        Box::pin(start(self.clone(), limit))
    }

    fn servers(&self) -> &str {
        self.server()
    }

    fn chroot(&self) -> &'static str {
        ""
    }

    fn most_watched(&self) -> usize {
        MOST_WATCHED
    }

    fn envelope(&self) -> Envelope {
        Envelope::default()
    }

    fn engine(&self) -> Engine {
        S::ENGINE
    }

    fn weaknesses(
        &self,
        limit: Duration,
    ) -> BoxFuture<'_, Result<Vec<Weakness>, UnreachableReason>> {
        Box::pin(Store::weaknesses(self, limit))
    }

    fn failures(&self, limit: Duration) -> BoxFuture<'_, Vec<AddressFailure>> {
        Box::pin(async move {
            let reason = match self.greet(0, 1, limit).await {
                Ok(_) => UnreachableReason::Refusing("it has not answered in time".into()),
                Err(Ungreeted::Each(failures)) => return failures,
                Err(other) => other.reason(),
            };
            vec![AddressFailure::new(self.server().to_owned(), reason)]
        })
    }
}
