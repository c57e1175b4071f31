//! Counts of the server's work, for tests.
//!
//! Invariant: totals only grow; the "now" numbers are taken when the snapshot is made.

use std::collections::BTreeMap;
use std::fmt;

use super::proto::Op;

/// A snapshot of the server's totals and contents; see
/// [`EmbeddedServer::counters`](super::EmbeddedServer::counters).
#[derive(Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    pub(super) by_op: BTreeMap<Op, u64>,
    /// Bytes received, frame lengths included.
    pub bytes_in: u64,
    /// Bytes queued for clients, frame lengths included: those of `replies` and `events`.
    pub bytes_out: u64,
    /// Replies queued for clients, those to connect requests included.
    pub replies: u64,
    /// Watch events queued for clients.
    pub events: u64,
    /// Connect requests that were answered, whatever the answer.
    pub connects: u64,
    /// Watches set now.
    pub watches: u64,
    /// Nodes now; the root and the server's own three are counted.
    pub nodes: u64,
    /// Sessions alive now.
    pub sessions: u64,
    /// Connections open now that have a session.
    pub connections: u64,
}

impl fmt::Debug for Counters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Counters")
            .field("requests", &self.requests())
            .field("bytes_in", &self.bytes_in)
            .field("bytes_out", &self.bytes_out)
            .field("events", &self.events)
            .field("watches", &self.watches)
            .field("nodes", &self.nodes)
            .field("sessions", &self.sessions)
            .field("connections", &self.connections)
            .finish_non_exhaustive()
    }
}

impl Counters {
    pub(super) fn count_reply(&mut self, frame: &[u8]) {
        self.replies += 1;
        self.bytes_out += frame.len() as u64;
    }

    pub(super) fn count_event(&mut self, frame: &[u8]) {
        self.events += 1;
        self.bytes_out += frame.len() as u64;
    }

    /// Requests of this kind. A transaction is one request.
    #[must_use]
    pub fn get(&self, op: Op) -> u64 {
        self.by_op.get(&op).copied().unwrap_or(0)
    }

    /// Requests of every kind but connects.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.by_op.values().sum()
    }

    /// The totals since an earlier snapshot. The "now" numbers stay those of this one.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let by_op = self
            .by_op
            .iter()
            .map(|(op, count)| (*op, count.saturating_sub(earlier.get(*op))))
            .collect();
        Self {
            by_op,
            bytes_in: self.bytes_in.saturating_sub(earlier.bytes_in),
            bytes_out: self.bytes_out.saturating_sub(earlier.bytes_out),
            replies: self.replies.saturating_sub(earlier.replies),
            events: self.events.saturating_sub(earlier.events),
            connects: self.connects.saturating_sub(earlier.connects),
            ..self.clone()
        }
    }
}
