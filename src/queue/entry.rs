//! An entry of a queue, as an operator sees it: one ticket, or the permits of one holder.
//!
//! It is read off a node, and does no I/O.

use std::time::SystemTime;

use crate::brief::{Brief, shows};
use crate::link::Node;
use crate::protocol::dialect;
use crate::protocol::journal_page::time;
use crate::protocol::kind::LockKind;
use crate::protocol::ticket::{Mode, Ticket, TicketData};
use crate::session_id::SessionId;
use crate::token::Token;

/// One ticket in the queue of a lock, or the permits of one holder, as
/// [`Keeper::queue`](crate::Keeper::queue) saw them.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueueEntry {
    /// The node's name in its directory.
    pub node: String,
    /// The ticket's token: its identity, and the fencing token of an exclusive hold.
    pub token: Token,
    /// Whether it holds the lock, or is about to because no ticket is before it. With a semaphore:
    /// whether it has its permits.
    pub is_holder: bool,
    /// What it holds or waits for.
    pub kind: LockKind,
    /// With a semaphore: the number of permits.
    pub permits: Option<u32>,
    /// The session that owns the node.
    pub session: SessionId,
    /// The owner's name, if one was given.
    pub owner: Option<String>,
    /// The label, if one was given.
    pub label: Option<String>,
    /// The id of its trace, if one was given.
    pub trace_id: Option<String>,
    /// The value of a candidate. With a ticket of another library: the data of its node, which is
    /// the id of Curator's `LeaderLatch` and `LeaderSelector`, or the identifier of kazoo's locks.
    pub value: Option<String>,
    /// The host that took the ticket; `None` with other libraries.
    pub host: Option<String>,
    /// The process that took the ticket; `None` with other libraries.
    pub pid: Option<u32>,
    /// When the ticket was taken, by the clock of its host; `None` with other libraries.
    pub since: Option<SystemTime>,
    /// The node's path, below the chroot.
    pub(crate) path: String,
}

// Without the owner's name, which is a secret: it lets its bearer in.
shows!(|entry| QueueEntry {
    node: Brief(&entry.node),
    token: entry.token,
    is_holder: entry.is_holder,
    kind: entry.kind,
    host: entry.host.as_deref().map(Brief),
    pid: entry.pid,
});

impl QueueEntry {
    /// Whether this ticket and another one of the same lock exclude each other as they should. If
    /// not, both may hold at once: they are of recipes or libraries that cannot share a lock (see
    /// [the guide](crate::guide::sharing)). The later one was not refused with
    /// [`Error::UnsafeMix`](crate::Error::UnsafeMix), because it is of another library or could not
    /// see the earlier one.
    pub fn shares_with(&self, other: &Self) -> bool {
        let is_of_semaphore = |entry: &Self| entry.kind == LockKind::Permit;
        if is_of_semaphore(self) || is_of_semaphore(other) {
            // A semaphore has a queue of its own.
            return is_of_semaphore(self) == is_of_semaphore(other);
        }
        let tickets = (Ticket::parse(&self.node), Ticket::parse(&other.node));
        match tickets {
            (Some(one), Some(other)) => dialect::share(&one, &other),
            _ => true,
        }
    }

    /// The entry of a node of this name, with its kind and permits read off what our clients write.
    pub(super) fn new(
        path: &str,
        name: &str,
        node: &Node,
        is_holder: bool,
        kind: impl FnOnce(Option<&TicketData>) -> (LockKind, Option<u32>),
    ) -> Self {
        let line = TicketData::parse(&node.data);
        let (kind, permits) = kind(line.as_ref());
        let is_ours = line.is_some();
        let mut line = line.unwrap_or_default();
        if !is_ours && (kind == LockKind::Lead || !node.data.is_empty()) {
            line.value = Some(String::from_utf8_lossy(&node.data).into_owned());
        }
        Self {
            node: name.to_owned(),
            token: Token::new(node.czxid),
            is_holder,
            kind,
            permits,
            session: node.owner.into(),
            owner: line.owner,
            label: line.label,
            trace_id: line.trace,
            value: line.value,
            host: is_ours.then_some(line.host),
            pid: is_ours.then_some(line.pid),
            since: is_ours.then_some(line.at).and_then(time),
            path: format!("{path}/{name}"),
        }
    }
}

/// What a ticket is for, and how many permits.
pub(super) fn kind_of(ticket: &Ticket, line: Option<&TicketData>) -> (LockKind, Option<u32>) {
    if let Some(permits) = line.and_then(|line| line.permits) {
        return (LockKind::Permit, Some(permits));
    }
    // What stands before the number says it, in our names and in those of others.
    let digits = |c: char| c.is_ascii_digit() || c == '-';
    let tag = ticket.name.trim_end_matches(digits);
    let kind = match ticket.kind {
        Mode::Shared => LockKind::Read,
        Mode::Exclusive if tag.ends_with("__WRIT__") || tag.ends_with("write") => LockKind::Write,
        Mode::Exclusive if tag.ends_with("latch") => LockKind::Lead,
        // In kazoo's dialect a candidate is a lock with a value.
        Mode::Exclusive if line.is_some_and(|line| line.value.is_some()) => LockKind::Lead,
        Mode::Exclusive => LockKind::Lock,
    };
    (kind, None)
}
