//! The data of a ticket, one line of JSON. (pure)
//!
//! Invariant: it is written once, at the create. It changes later only when the ticket is asked
//! for, because each write wakes the next ticket. No decision rests on what only people read.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// What a ticket says.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TicketData {
    /// The owner for reentrancy, when one was named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) owner: Option<String>,
    #[serde(default)]
    pub(crate) host: String,
    #[serde(default)]
    pub(crate) pid: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) label: Option<String>,
    /// The trace that the work under the lock belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) trace: Option<String>,
    /// One per create that was sent: it finds our ticket again after a lost reply.
    #[serde(default)]
    pub(crate) attempt: Uuid,
    /// Milliseconds since the Unix epoch by the client's clock: for people, never for decisions.
    #[serde(default)]
    pub(crate) at: u64,
    /// The token of the hold that this ticket is a guest of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) guest_of: Option<i64>,
    /// The value that a candidate stands with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) value: Option<String>,
    /// How many permits of a semaphore this holds or wants.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) permits: Option<u32>,
    /// Somebody asks for the release: the only thing that is ever written later.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) revoked: bool,
}

/// What Curator's `Revoker` writes in place of everything, and its revocable locks wait for.
const REVOKE: &[u8] = b"__REVOKE__";

/// Whether the holder of a ticket with this in it is asked to give it back.
pub(crate) fn is_revoked(data: &[u8]) -> bool {
    data == REVOKE || TicketData::parse(data).is_some_and(|line| line.revoked)
}

/// What asks the holder of a ticket with this in it: ours keep their line, by which we know them
/// again.
pub(crate) fn asking(data: &[u8]) -> Vec<u8> {
    match TicketData::parse(data) {
        Some(line) => TicketData {
            revoked: true,
            ..line
        }
        .to_bytes(),
        None => REVOKE.to_vec(),
    }
}

impl TicketData {
    /// The bytes for the node.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        // Strings and numbers only: serde_json cannot fail on them, and an empty line would only
        // cost the display.
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// Whether it is a ticket in the name of this owner.
    pub(crate) fn is_of(&self, owner: &str) -> bool {
        self.owner.as_deref() == Some(owner)
    }

    /// Whether that is in a ticket which this attempt has made, at a path and in a session that
    /// were its own: Curator's `Revoker` may have written over it.
    pub(crate) fn was_made_by(attempt: Uuid, data: &[u8], is_our_session: bool) -> bool {
        Self::parse(data).is_some_and(|line| line.attempt == attempt)
            || is_our_session && data == REVOKE
    }

    /// The line of a ticket of ours, or as much of it as is left.
    pub(crate) fn of_ours(data: &[u8]) -> Self {
        Self::parse(data).unwrap_or_else(|| Self {
            revoked: is_revoked(data),
            ..Self::default()
        })
    }

    /// Reads any bytes; `None` when they are not one of our lines. Other programs write JSON too,
    /// but no attempt of ours.
    pub(crate) fn parse(data: &[u8]) -> Option<Self> {
        let line: Self = serde_json::from_slice(data).ok()?;
        (!line.attempt.is_nil()).then_some(line)
    }
}
