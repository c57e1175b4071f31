//! Whether the session behind the link is still ours.
//!
//! A server may open another session in silence, and the client follows it (docs/failures.md row
//! 58). Invariant: once another session is seen, ours is renounced for good. It opens no other
//! session.

use tokio::time::timeout;

use super::ending::ANOTHER_SESSION;
use super::setbacks::LONGEST_PAUSE;
use super::{End, Failure, Session};
use crate::link::{Found, Read};
use crate::protocol::walk::REMOVED;

impl Session {
    /// Checks that a node which we have just made belongs to this session. If it does not, all that
    /// is ours ends with the session that we had.
    pub(crate) fn recognise(&self, owner: i64) -> Result<(), End> {
        if owner == self.id {
            return Ok(());
        }
        let reason = ANOTHER_SESSION;
        tracing::warn!(
            session = format_args!("{:#x}", self.id),
            other = format_args!("{owner:#x}"),
            reason
        );
        self.ending.renounce(reason);
        self.heartbeat.observe();
        Err(self.end().unwrap_or(End::Over(reason)))
    }

    /// As [`recognise`](Self::recognise), after the client has connected again: asks whether a
    /// ticket that was ours before is ours still. One answer is enough for the whole session, until
    /// the next reconnect.
    pub(crate) async fn recognise_again(&self, path: &str) -> Result<(), Failure> {
        if self.heartbeat.is_strange().is_none() {
            return Ok(());
        }
        // One caller asks for all. If that one is kept without being polled, each asks for itself
        // in the end.
        let _asking = timeout(LONGEST_PAUSE, self.recognising.lock()).await;
        let Some(reconnects) = self.heartbeat.is_strange() else {
            return Ok(());
        };
        self.catch_up(path).await?;
        let owned = self.read(|link| link.ephemerals(path)).await?;
        if owned.iter().any(|ours| ours == path) {
            self.heartbeat.recognised(reconnects);
            return Ok(());
        }
        let found = self
            .read(|link| link.multi_read(&[Read::Data(path)]))
            .await?;
        match found.first() {
            // The node names our number as its owner, but the list of the session that the client
            // has now does not: the client has another session.
            Some(Found::Node(node)) if node.owner == self.id => {
                self.recognise(0).map_err(Failure::Ended)
            }
            // It is gone, or another session's. Which session is ours stays unknown, but this
            // ticket gives nobody the lock.
            _ => Err(Failure::Lost(REMOVED)),
        }
    }
}
