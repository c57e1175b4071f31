//! What a walk takes in, and what it comes to. (pure)
//!
//! Invariant: a name is no identity, so what stands under a ticket's name is the ticket only with
//! its `czxid` (docs/failures.md rows 72 and 73).

use crate::protocol::mark::ReleasePlan;
use crate::protocol::ticket::Ticket;

pub(crate) const REMOVED: &str = "the ticket was removed";
const REPLACED: &str = "another ticket stands under its name";

/// Whether the identity found under a ticket's name is the ticket's own; otherwise why it is lost.
pub(crate) fn verify(czxid: i64, found: Option<i64>) -> Result<(), &'static str> {
    match found {
        Some(found) if found == czxid => Ok(()),
        Some(_) => Err(REPLACED),
        None => Err(REMOVED),
    }
}

/// What a verified read saw.
#[derive(Debug, Clone)]
pub(crate) struct Snapshot<'a> {
    pub(crate) data: &'a [u8],
    pub(crate) version: i32,
    pub(crate) num_children: i32,
    /// The identity that stands under my name.
    pub(crate) mine: Option<i64>,
    pub(crate) children: &'a [String],
    /// Identity and data of the tickets that were asked for, as far as they are there.
    pub(crate) tickets: Vec<Option<(i64, &'a [u8])>>,
}

/// The directory alone, at some moment after the create.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SpeculativeRead<'a> {
    pub(crate) data: &'a [u8],
    pub(crate) version: i32,
    pub(crate) num_children: i32,
    /// The last create or delete of a child.
    pub(crate) pzxid: i64,
}

/// No ticket that conflicts is before mine.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Turn {
    /// How the ticket leaves.
    pub(crate) plan: ReleasePlan,
    /// Whether the ticket before was released, or there never was one.
    pub(crate) ended_well: bool,
    /// The directory's version when that was seen.
    pub(crate) version: i32,
    /// Whether the queue had no other ticket either.
    pub(crate) is_alone: bool,
}

/// How to go in as a guest: all of it commits together, or nothing does.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct GuestEntry {
    /// The ticket of my owner that must still be there.
    pub(crate) host: Ticket,
    /// The hold's token.
    pub(crate) token: i64,
    /// The directory's version before.
    pub(crate) version: i32,
    /// What is written into the directory, so that the host leaves without a mark; nothing over
    /// another program's data, beside which nobody leaves a mark.
    pub(crate) note: Option<Vec<u8>>,
    /// Whether the ticket before the host's was released, or there never was one.
    pub(crate) ended_well: bool,
}

impl GuestEntry {
    /// How the guest leaves: at the version to which its note brings the directory.
    pub(crate) fn plan(&self) -> ReleasePlan {
        let version = self.version.wrapping_add(i32::from(self.note.is_some()));
        ReleasePlan::Unmarked { version }
    }
}
