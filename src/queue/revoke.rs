//! Revocation: the holder of a lock is asked to give it back, in Curator's words, and hears of it.
//!
//! To ask is to write into the holder's ticket. It is a request and no more: nothing here removes a
//! ticket, and a holder that does not listen keeps its lock. Invariant: what is written to is the
//! ticket that was shown, by its `czxid`, as far as one read before the write can tell, and never
//! that of a candidate: Curator's `LeaderLatch` would miss its end (FEATURES.md 4.6).

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use super::Queue;
use super::entry::QueueEntry;
use super::verified_read::{Unverified, ticket_in};
use crate::error::{Error, Result};
use crate::link::{Code, Fault, Found, Read, Write};
use crate::protocol::kind::LockKind;
use crate::protocol::ticket::{asking, is_revoked};
use crate::session::pool::Need;
use crate::session::setbacks::Setbacks;
use crate::session::watching::WatchSlot;
use crate::session::{Failure, Session, failed, refused};

const REVOKING: &str = "ask for the release of";

/// Follows a ticket until it is asked for, or fails when it is gone.
///
/// # Cancel safety
///
/// Dropped at any await, its watch is taken back.
pub(crate) async fn revoked(
    session: &Arc<Session>,
    path: &str,
    czxid: i64,
) -> Result<(), Unverified> {
    let mut slot = WatchSlot::with_room(session, path).await;
    follow(&mut slot, path, czxid, is_revoked).await
}

/// The same until the ticket's data is enough.
async fn follow(
    slot: &mut WatchSlot,
    path: &str,
    czxid: i64,
    is_enough: impl Fn(&[u8]) -> bool,
) -> Result<(), Unverified> {
    loop {
        let found = match slot.watch(path).await {
            Ok(node) => Found::Node(node),
            Err(Failure::Answered(code)) => Found::Failed(code),
            Err(failure) => return Err(Unverified::Failed(failure)),
        };
        if is_enough(&ticket_in(Some(found), czxid)?.data) {
            return Ok(());
        }
        // The next read tells what has changed, and fails at the end of the session.
        let _ = slot.changed().await;
    }
}

impl Queue {
    /// Asks the holder of this ticket to give it back, and waits for that so long. Whether it is
    /// gone.
    ///
    /// # Cancel safety
    ///
    /// Dropped after its first poll, it may have asked.
    pub(crate) async fn revoke(&self, entry: &QueueEntry, grace: Duration) -> Result<bool> {
        self.directory_of(entry)?;
        if entry.kind == LockKind::Lead {
            let why =
                "a candidate is not asked, because those behind it would miss its end: evict it";
            return Err(Error::invalid("queue entry", &entry.path, why));
        }
        let (path, czxid) = (&*entry.path, entry.token.czxid());
        let need = Need::to_watch(self.pool.sent_len(path.len()));
        let room = self.pool.reserve(need, REVOKING).await;
        let mut slot = room.map_err(|error| error.about(&self.name))?.into_slot();
        let session = Arc::clone(slot.session());
        if !self.ask_back(&session, path, czxid).await? {
            return Ok(true);
        }
        tracing::info!(ticket = path, token = u64::from(entry.token), "asked for");
        let left = follow(&mut slot, path, czxid, |_| false);
        match timeout(grace, left).await {
            Ok(Ok(()) | Err(Unverified::Lost(_))) => Ok(true),
            Ok(Err(Unverified::Failed(failure))) => {
                Err(failed(&session, REVOKING, &self.name, path, failure))
            }
            Err(_) => Ok(false),
        }
    }

    /// Writes into the ticket; `false` if it is gone.
    async fn ask_back(&self, session: &Session, path: &str, czxid: i64) -> Result<bool> {
        let mut setbacks = Setbacks::default();
        loop {
            let found = session
                .read(|link| link.multi_read(&[Read::Data(path)]))
                .await;
            let failed = |failure| failed(session, REVOKING, &self.name, path, failure);
            let node = match ticket_in(found.map_err(failed)?.into_iter().next(), czxid) {
                // By us, if the answer was lost, or by somebody else.
                Ok(node) if is_revoked(&node.data) => return Ok(true),
                Ok(node) => node,
                Err(Unverified::Lost(_)) => return Ok(false),
                Err(Unverified::Failed(failure)) => return Err(failed(failure)),
            };
            let ended = |end| failed(Failure::Ended(end));
            let link = session.link().map_err(ended)?;
            let data = asking(&node.data);
            let asked = link.attempt(&[Write::set(path, &data, node.version)]);
            let answer = tokio::select! {
                answer = asked => answer,
                end = session.ended() => return Err(ended(end)),
            };
            let pause = match answer {
                Ok(Ok(_)) => return Ok(true),
                Ok(Err((_, Code::NoNode | Code::BadVersion))) => setbacks.pause_after_a_race(),
                Err(Fault::Unknown(_) | Fault::Answered(Code::NotNow(_))) => setbacks.pause(),
                Ok(Err((_, code))) | Err(Fault::Answered(code)) => {
                    return Err(refused(&*link, REVOKING, path, &code));
                }
            };
            drop(link);
            session.reconnected(pause).await.map_err(ended)?;
        }
    }
}
