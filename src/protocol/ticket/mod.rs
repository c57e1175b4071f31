//! Tickets: the names of the nodes in a lock directory, and their order. (pure)
//!
//! Invariant: `parse` after `format` is the identity, and nothing that ZooKeeper, Curator,
//! go-zookeeper, .NET or kazoo did not number is ever taken for a ticket. A name is not an
//! identity: a directory that was removed and made again starts its numbers again, so a ticket's
//! identity is its `czxid`, always (DESIGN: "Names are not identities").

mod data;
#[cfg(test)]
mod tests;

use std::cmp::Ordering;
use std::fmt;

use uuid::fmt::{Hyphenated, Urn};
use uuid::{Uuid, Version};

use super::kind::LockKind;
pub(crate) use data::{TicketData, asking, is_revoked};

/// What a ticket stands in the queue for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Mode {
    /// Excludes everybody: a mutex, a writer, a candidate.
    Exclusive,
    /// Excludes exclusive tickets only: a reader.
    Shared,
}

/// What a ticket of ours is taken for; it decides the name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Recipe {
    /// A mutex, or the head of a semaphore.
    Lock,
    Read,
    Write,
    Lead,
    /// The same in kazoo's names: a mutex or a candidate, a reader, a writer.
    KazooLock,
    KazooRead,
    KazooWrite,
}

impl Recipe {
    /// The start of the ticket's name; the server appends the number.
    pub(crate) fn prefix(self) -> &'static str {
        match self {
            Self::Lock => "lock-",
            Self::Read => "__READ__",
            Self::Write => "__WRIT__",
            Self::Lead => "latch-",
            // Kazoo looks for these anywhere in a name, so its own random digits before them can be
            // left out.
            Self::KazooLock | Self::KazooWrite => "__lock__",
            Self::KazooRead => "__rlock__",
        }
    }

    pub(crate) fn kind(self) -> Mode {
        match self {
            Self::Read | Self::KazooRead => Mode::Shared,
            Self::Lock | Self::Write | Self::Lead | Self::KazooLock | Self::KazooWrite => {
                Mode::Exclusive
            }
        }
    }

    /// What the ticket before one of ours is probably for.
    pub(crate) fn neighbours(self) -> &'static [Self] {
        match self {
            Self::Lock => &[Self::Lock],
            Self::Read | Self::Write => &[Self::Write, Self::Read],
            Self::Lead => &[Self::Lead],
            Self::KazooLock => &[Self::KazooLock],
            Self::KazooRead | Self::KazooWrite => &[Self::KazooWrite, Self::KazooRead],
        }
    }

    /// What a holder of its ticket holds.
    pub(crate) fn lock_kind(self) -> LockKind {
        match self {
            Self::Lock | Self::KazooLock => LockKind::Lock,
            Self::Read | Self::KazooRead => LockKind::Read,
            Self::Write | Self::KazooWrite => LockKind::Write,
            Self::Lead => LockKind::Lead,
        }
    }
}

/// A name in a lock directory that is a ticket, ours or a foreign client's.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Ticket {
    pub(crate) seq: i32,
    pub(crate) kind: Mode,
    pub(crate) name: String,
}

/// Tags that stand right before the number, and what they mean. The order matters only where one
/// ends in another.
const TAGS: [(&str, Mode); 8] = [
    ("__READ__", Mode::Shared),
    ("__WRIT__", Mode::Exclusive),
    ("__rlock__", Mode::Shared),
    ("__lock__", Mode::Exclusive),
    ("latch-", Mode::Exclusive),
    ("write-", Mode::Exclusive),
    ("read-", Mode::Shared),
    ("lock-", Mode::Exclusive),
];

/// Bytes of the longest name that is a ticket of any client: any text that reads as a UUID may
/// stand before the longest tag.
pub(crate) const LONGEST: usize = "_c_-".len() + Urn::LENGTH + "__rlock__-2147483648".len();

/// From this number on, the last one out removes the directory, so that numbers start again before
/// they run out.
const NEAR_END: i32 = i32::MAX - (1 << 16);

/// The path of a node in a directory. (Formatted, it would be allocated twice for each lock.)
pub(crate) fn path_in(directory: &str, node: &str) -> String {
    [directory, "/", node].concat()
}

impl Ticket {
    /// A ticket of ours with this number.
    pub(crate) fn ours(recipe: Recipe, seq: i32) -> Self {
        Self {
            seq,
            kind: recipe.kind(),
            name: format!("{}{}", recipe.prefix(), Digits(seq)),
        }
    }

    /// The name of a guest's ticket beside this one: the same number under the same tag, which
    /// every client reads as a ticket. It is Curator's form with a version of UUID that Curator
    /// never makes, so that ours are told from others.
    pub(crate) fn guest(&self, attempt: Uuid) -> Self {
        let (_, bare) = self.name.split_at(self.tag().0);
        let id = uuid::Builder::from_custom_bytes(attempt.into_bytes()).into_uuid();
        Self {
            seq: self.seq,
            kind: self.kind,
            name: format!("_c_{id}-{bare}"),
        }
    }

    /// The ticket that this one becomes when it comes to share: the same number under the tag of
    /// readers.
    pub(crate) fn shared(&self) -> Self {
        let (before, bare) = self.name.split_at(self.tag().0);
        let digits = &bare[self.tag().1..];
        let readers = match self.tag_text() {
            "__lock__" => Recipe::KazooRead,
            _ => Recipe::Read,
        };
        Self {
            seq: self.seq,
            kind: Mode::Shared,
            name: format!("{before}{}{digits}", readers.prefix()),
        }
    }

    /// What it stands for, as its name says.
    pub(crate) fn path(&self, directory: &str) -> String {
        path_in(directory, &self.name)
    }

    pub(crate) fn tag_text(&self) -> &str {
        let (at, len) = self.tag();
        &self.name[at..at + len]
    }

    /// Whether nothing stands before the tag: ours but for guests', and .NET's.
    pub(crate) fn is_bare(&self) -> bool {
        self.tag().0 == 0
    }

    /// Whether it has the form of ours.
    pub(crate) fn looks_like_ours(&self) -> bool {
        let id = self.name[..self.tag().0].strip_prefix("_c_");
        let id = id.and_then(|id| id.strip_suffix('-'));
        // Go writes one without hyphens, of any version.
        let id = id.filter(|id| id.len() == Hyphenated::LENGTH);
        let id = id.and_then(|id| Uuid::try_parse(id).ok());
        self.is_bare() || id.is_some_and(|id| id.get_version() == Some(Version::Custom))
    }

    /// Where the tag begins and how long it is.
    fn tag(&self) -> (usize, usize) {
        let tag = TAGS.iter().find_map(|(tag, _)| {
            let at = self.name.rfind(tag)?;
            parse_digits(&self.name[at + tag.len()..]).map(|_| (at, tag.len()))
        });
        tag.unwrap_or_default()
    }

    /// Reads a child's name; `None` for anything that is not a ticket.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        TAGS.iter().find_map(|&(tag, kind)| {
            let at = name.rfind(tag)?;
            let seq = parse_digits(&name[at + tag.len()..])?;
            is_protection(&name[..at]).then(|| Self {
                seq,
                kind,
                name: name.into(),
            })
        })
    }

    /// The ticket right before this one if it is one of ours and was taken for that, by arithmetic.
    ///
    /// The first number of a directory has none. Numbers are unique in a directory and given in
    /// order, so if the name is there, and older, it *is* the immediate predecessor.
    pub(crate) fn predecessor(&self, recipe: Recipe) -> Option<Self> {
        (self.seq != 0).then(|| Self::ours(recipe, self.seq.wrapping_sub(1)))
    }

    /// Whether this ticket stands before the other; right across the end of the counter.
    pub(crate) fn is_before(&self, other: &Self) -> bool {
        self.order_from(other) == Ordering::Less
    }

    /// The order of this ticket relative to another: by number with the wrap of a 32-bit counter,
    /// then by name, since equal numbers are legal (guests, and writers that have become readers).
    fn order_from(&self, other: &Self) -> Ordering {
        self.seq
            .wrapping_sub(other.seq)
            .cmp(&0)
            .then_with(|| self.name.cmp(&other.name))
    }

    /// Whether the client that leaves the directory empty should remove it, so that numbers start
    /// again.
    pub(crate) fn is_near_end(&self) -> bool {
        self.seq >= NEAR_END || self.seq < 0
    }

    /// Whether the counter has no more order to give. At its end the server's counter sticks: the
    /// last number is given again as soon as it is free, and numbers past it are given only while
    /// requests overlap. Such a ticket may be younger than one that it seems to precede, so it is
    /// never used as a place.
    pub(crate) fn is_past_counting(&self) -> bool {
        self.seq == i32::MAX || self.seq < 0
    }
}

/// Puts tickets in the order of the queue. Numbers may have wrapped, so they are counted from one
/// of their own.
pub(crate) fn in_order(mut tickets: Vec<Ticket>) -> Vec<Ticket> {
    if let Some(pivot) = tickets.first().map(|ticket| ticket.seq) {
        tickets.sort_by(|a, b| {
            let (from_a, from_b) = (a.seq.wrapping_sub(pivot), b.seq.wrapping_sub(pivot));
            from_a.cmp(&from_b).then_with(|| a.name.cmp(&b.name))
        });
    }
    tickets
}

/// A sequence number as the server prints it: `%010d`.
struct Digits(i32);

impl fmt::Display for Digits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:010}", self.0)
    }
}

/// Reads `%010d` strictly: ten ASCII digits, or a sign and nine or ten of them.
pub(crate) fn parse_digits(text: &str) -> Option<i32> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let width_is_right = if digits.len() == text.len() {
        digits.len() == 10
    } else {
        matches!(digits.len(), 9 | 10)
    };
    if !width_is_right || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let seq: i32 = text.parse().ok()?;
    // Refuses what the server never prints, like -0000000001 with one digit too many.
    (Digits(seq).to_string() == text).then_some(seq)
}

/// What may stand before the tag: nothing, Curator's and Go's `_c_<uuid>-`, or kazoo's 32
/// hexadecimal digits (with a dash in the subclass that shares a queue with Curator).
fn is_protection(text: &str) -> bool {
    if text.is_empty() {
        return true;
    }
    if let Some(rest) = text.strip_prefix("_c_") {
        // Go prints its id without dashes.
        return rest
            .strip_suffix('-')
            .is_some_and(|id| Uuid::try_parse(id).is_ok());
    }
    is_hex(text.strip_suffix('-').unwrap_or(text))
}

/// Kazoo's way to write a random number.
pub(crate) fn is_hex(id: &str) -> bool {
    id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit())
}
