//! Opens sessions on a Redis server.
//!
//! Invariant: each try has a session id of its own, so that a late copy of an old request opens
//! nothing again.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::time::timeout;
use uuid::Uuid;

use super::answer::{self, ScriptReply, Trouble, trouble};
use super::inbox::SessionKey;
use super::request::{Request, micros};
use super::session::RedisLink;
use super::target::{RedisTarget, Ungreeted};
use crate::error::{AddressFailure, UnreachableReason};
use crate::link::engine::Engine;
use crate::link::size::Envelope;
use crate::link::{Code, Fault, Link, Opener, Reply};
use crate::protocol::epoch::{LONGEST, MARGIN};

impl RedisTarget {
    async fn start(self, limit: Duration) -> Result<Arc<dyn Link>, Fault> {
        // Another one for each try: a late copy of an old request must not revive a session.
        let id = i64::try_from(Uuid::new_v4().as_u64_pair().0 >> 1)
            .unwrap_or(1)
            .max(1);
        let secret = Uuid::new_v4().simple().to_string();
        let greeted = self.greet(id, 1, limit).await?;
        let mut open = Request::new("open");
        open.arguments = vec![
            micros(self.session_timeout).into(),
            micros(LONGEST).into(),
            micros(MARGIN).into(),
            (if self.is_new { "1" } else { "0" }).into(),
            self.reaping.tenths().to_string().into(),
        ];
        let session = SessionKey {
            id,
            secret: secret.into(),
        };
        let asked = greeted.ask(self.command(&session, &greeted, &open));
        let answered = timeout(limit, asked).await;
        let answered =
            answered.map_err(|_| Fault::Unknown(format!("no session within {limit:?}")))?;
        let value = answered.map_err(|error| match trouble(&error) {
            Trouble::Refused(code) => Fault::Answered(code),
            Trouble::Lost(why) => Fault::Unknown(why),
        })?;
        match answer::reply(value)? {
            ScriptReply::Done { result, .. } => {
                let granted: String = answer::read(result)?;
                let granted = Duration::from_micros(granted.parse().map_err(answer::broken)?);
                Ok(RedisLink::start(self, session, granted, greeted))
            }
            ScriptReply::Grace(left) => {
                let left = Duration::from_micros(left);
                Err(Fault::Answered(Code::Recovering(left)))
            }
            other => Err(answer::broken(format!("{other:?}"))),
        }
    }
}

impl From<Ungreeted> for Fault {
    fn from(ungreeted: Ungreeted) -> Self {
        match ungreeted {
            Ungreeted::Unauthenticated(why) => {
                tracing::debug!(why, "refused");
                Self::Answered(Code::Unauthenticated)
            }
            Ungreeted::Unreachable(reason) => Self::Unknown(format!("{reason:?}")),
        }
    }
}

impl Opener for RedisTarget {
    fn open(&self, limit: Duration) -> Reply<'static, Arc<dyn Link>> {
        Box::pin(self.clone().start(limit))
    }

    fn servers(&self) -> &str {
        &self.server
    }

    fn chroot(&self) -> &'static str {
        ""
    }

    fn envelope(&self) -> Envelope {
        Envelope::default()
    }

    fn engine(&self) -> Engine {
        Engine::Redis
    }

    fn failures(&self, limit: Duration) -> BoxFuture<'_, Vec<AddressFailure>> {
        Box::pin(async move {
            let reason = match self.greet(0, 1, limit).await {
                Ok(_) => UnreachableReason::NotServing,
                Err(Ungreeted::Unauthenticated(why)) => UnreachableReason::Refusing(why),
                Err(Ungreeted::Unreachable(reason)) => reason,
            };
            vec![AddressFailure::new(self.server.clone(), reason)]
        })
    }
}
