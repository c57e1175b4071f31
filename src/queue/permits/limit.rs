//! Storing a limit, and taking one back.
//!
//! Invariant: a stored limit changes only at the version that was read. A limit is taken back only
//! by the call that stored it, and only while the semaphore has no queue.

use std::sync::atomic::Ordering;

use super::super::join::MOST_SETBACKS;
use super::PermitPool;
use super::snapshot::Limit;
use crate::error::{Error, Result};
use crate::link::{ANY_VERSION, Code, Create, Fault, Write};
use crate::protocol::permits::{self, QUEUE};
use crate::session::setbacks::Setbacks;
use crate::session::{End, Session, refused};

const MAKING: &str = "store the limit of";
const RESIZING: &str = "resize";

impl PermitPool {
    /// Stores a limit where none is stored, and says whether this call surely has. A directory that
    /// is not there is made, but not for ever.
    pub(in super::super) async fn store(
        &self,
        session: &Session,
        value: u32,
        setbacks: &mut Setbacks,
    ) -> Result<bool> {
        let ended = |end: End| end.while_trying(MAKING, &self.name);
        let link = session.link().map_err(ended)?;
        let data = permits::limit_to_bytes(value);
        let created = tokio::select! {
            created = link.create(&self.limit, &data, Create::Persistent) => created,
            end = session.ended() => return Err(ended(end)),
        };
        let again = match created {
            Ok(made) => {
                session.acls.made(&self.limit, made.czxid);
                return Ok(true);
            }
            Err(Fault::Answered(Code::NodeExists)) => Ok(()),
            Err(Fault::Answered(Code::NoNode)) if setbacks.count() < MOST_SETBACKS => {
                // At once: that is how a new semaphore begins, and a chroot that has gone is to be
                // said soon.
                setbacks.pause();
                self.base.make(session, &self.name).await
            }
            Err(Fault::Answered(Code::NotNow(why)) | Fault::Unknown(why)) => {
                tracing::debug!(why, "a limit's create has no result");
                session.reconnected(setbacks.pause()).await.map_err(ended)
            }
            Err(Fault::Answered(code) | Fault::Refused(_, code)) => {
                Err(refused(session, MAKING, &self.limit, &code))
            }
        };
        again.map(|()| false)
    }

    /// Stores another limit. A lost reply is settled by reading: the version lets one of two tries
    /// in.
    pub(crate) async fn resize(&self, new: u32) -> Result<()> {
        let session = &*self.home().await?;
        // A server that lags behind may show another limit, and one that is stored already is not
        // written.
        self.catch_up(session).await?;
        let mut setbacks = Setbacks::default();
        let mut is_ours = false;
        loop {
            match self.stored_or_taken_back(session, is_ours).await? {
                None => is_ours = self.store(session, new, &mut setbacks).await?,
                Some(stored)
                    if stored.value == new
                        || self.replace(session, stored, new, &mut setbacks).await? =>
                {
                    self.known.store(new, Ordering::Relaxed);
                    return Ok(());
                }
                Some(_) => {}
            }
        }
    }

    /// Writes over a stored limit. `false` after a pause, if that came to nothing.
    async fn replace(
        &self,
        session: &Session,
        old: Limit,
        new: u32,
        setbacks: &mut Setbacks,
    ) -> Result<bool> {
        let data = permits::limit_to_bytes(new);
        let write = Write::set(&self.limit, &data, old.version);
        let unclear = "a resize has an unknown outcome";
        let written = session.write(&[write], setbacks, unclear).await;
        let is_written = written.map_err(|failure| self.failed(session, RESIZING, failure))?;
        if is_written {
            tracing::debug!(old = old.value, new, "resized");
        } else {
            // Another resize was faster, or our own try whose reply was lost; or this server lags
            // behind.
            self.catch_up(session).await?;
        }
        Ok(is_written)
    }

    /// As [`stored`](Self::stored). If this call has stored the limit itself, beside a lock that
    /// came before it and is there to stay, the name is that lock's, and the limit is removed
    /// again.
    pub(super) async fn stored_or_taken_back(
        &self,
        session: &Session,
        is_ours: bool,
    ) -> Result<Option<Limit>> {
        let stored = self.stored(session).await;
        if is_ours && matches!(stored, Err(Error::UnsafeMix { .. })) {
            self.take_back(session).await;
        }
        stored
    }

    /// Removes a limit that is as it was stored, while the semaphore is unused. A client with a
    /// ticket may have a grant under way that relies on the limit and its version, and a new limit
    /// has the same. So the limit stays where there is a queue, even an empty one. It stays as well
    /// if the server is busy, or its answer is lost: then people remove it.
    async fn take_back(&self, session: &Session) {
        let Ok(link) = session.link() else { return };
        let queue = format!("{}/{QUEUE}", self.base.path);
        let no_queue = Write::Create {
            path: &queue,
            data: b"",
        };
        let [queue, limit] = [(&*queue, ANY_VERSION), (&*self.limit, 0)]
            .map(|(path, version)| Write::Delete { path, version });
        let writes = [no_queue, queue, limit];
        let answer = tokio::select! {
            answer = link.multi(&writes) => answer,
            _ = session.ended() => return,
        };
        let is_gone = answer.is_ok();
        tracing::debug!(name = %self.name, is_gone, "a limit beside a lock is taken back");
    }
}
