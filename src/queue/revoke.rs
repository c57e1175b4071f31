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
use super::verified_read::ticket_in;
use crate::error::{Error, Result};
use crate::link::{Code, Write};
use crate::protocol::kind::LockKind;
use crate::protocol::ticket::{asking, is_revoked};
use crate::session::pool::Need;
use crate::session::setbacks::Setbacks;
use crate::session::watching::WatchSlot;
use crate::session::{Failure, Session, failed};

const REVOKING: &str = "ask for the release of";

/// Follows a ticket until it is asked for, or fails when it is gone.
///
/// # Cancel safety
///
/// Dropped at any await, its watch is taken back.
pub(crate) async fn revoked(session: &Arc<Session>, path: &str, czxid: i64) -> Result<(), Failure> {
    let mut slot = WatchSlot::with_room(session, path).await;
    follow(&mut slot, path, czxid, is_revoked).await
}

/// The same until the ticket's data is enough.
async fn follow(
    slot: &mut WatchSlot,
    path: &str,
    czxid: i64,
    is_enough: impl Fn(&[u8]) -> bool,
) -> Result<(), Failure> {
    loop {
        let node = match slot.watch(path).await {
            Err(Failure::Answered(Code::NoNode)) => None,
            watched => Some(watched?),
        };
        if is_enough(&ticket_in(node, czxid)?.data) {
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
            Ok(Ok(()) | Err(Failure::Lost(_))) => Ok(true),
            Ok(Err(failure)) => Err(failed(&session, REVOKING, &self.name, path, failure)),
            Err(_) => Ok(false),
        }
    }

    /// Writes into the ticket; `false` if it is gone.
    async fn ask_back(&self, session: &Session, path: &str, czxid: i64) -> Result<bool> {
        let mut setbacks = Setbacks::default();
        let failed = |failure| failed(session, REVOKING, &self.name, path, failure);
        loop {
            let node = session.node(path).await.map_err(failed)?;
            let Some(node) = node.filter(|node| node.czxid == czxid) else {
                return Ok(false);
            };
            if is_revoked(&node.data) {
                // By us, if the answer was lost, or by somebody else.
                return Ok(true);
            }
            let data = asking(&node.data);
            let write = [Write::set(path, &data, node.version)];
            let unclear = "whether a ticket was asked for is unknown";
            let written = session.write(&write, &mut setbacks, unclear);
            if written.await.map_err(failed)? {
                return Ok(true);
            }
        }
    }
}
