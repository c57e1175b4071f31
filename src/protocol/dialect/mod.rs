//! Dialects: whose tickets may stand in one queue. (pure)
//!
//! A lock is one queue for all its clients only if each sees the tickets of all others, and each
//! library knows its own kinds of names. Invariant: names that no lock library has given are
//! nobody's business here. It decides nothing about turns.
//!
//! Neighbours are checked where the queue is listed, and nowhere else, so the check costs no
//! request. A ticket that is granted without a list stood alone, or right behind a ticket of
//! ours that left a mark. A client that comes later and does not see our tickets cannot be
//! refused by anybody.
//!
//! .NET's tickets look like ours and do not see Curator's. A lock below this one may be called
//! like another recipe's node, but belongs to no session.

#[cfg(test)]
mod tests;

use uuid::Uuid;

use super::kind::LockKind;
use super::permits::{self, HELD, LIMIT};
use super::ticket::{Recipe, Ticket, TicketData, in_order, is_hex, is_revoked, parse_digits};
use crate::error::{Error, Result};

/// Which other libraries a keeper shares its locks with: how its tickets are named, and with whose
/// they may stand in a queue.
///
/// One lock has one dialect. A ticket of another one in its directory is refused with
/// [`Error::UnsafeMix`](crate::Error::UnsafeMix) when it is found, because one side would pass the
/// other by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Dialect {
    /// Curator's: [`Mutex`](crate::Mutex) with `InterProcessMutex` and `LeaderSelector`,
    /// [`RwLock`](crate::RwLock) with `InterProcessReadWriteLock`, [`Election`](crate::Election)
    /// with `LeaderLatch`; a mutex also with go-zookeeper's lock and the client crate's, and with
    /// kazoo's in a subclass (see [the guide](crate::guide::sharing)).
    #[default]
    Curator,
    /// kazoo's as it comes: a mutex and an election with `Lock` and `Election`, a read-write lock
    /// with `ReadLock` and `WriteLock`. Lock directories stay when they are empty, because kazoo
    /// makes them once.
    Kazoo,
}

impl Dialect {
    /// What a ticket for that is taken for. Semaphores are for ourselves alone.
    pub(crate) fn recipe(self, kind: &LockKind) -> Recipe {
        match (self, kind) {
            (Self::Curator, LockKind::Read) => Recipe::Read,
            (Self::Curator, LockKind::Write) => Recipe::Write,
            (Self::Curator, LockKind::Lead) => Recipe::Lead,
            (Self::Kazoo, LockKind::Read) => Recipe::KazooRead,
            (Self::Kazoo, LockKind::Write) => Recipe::KazooWrite,
            (Self::Kazoo, LockKind::Lock | LockKind::Lead) => Recipe::KazooLock,
            (Self::Curator, _) | (_, LockKind::Permit | LockKind::Other(_)) => Recipe::Lock,
        }
    }
}

/// So many nodes of each kind are in doubt at most.
const MOST: usize = 16;

/// Refuses the children of a lock's directory if one of them is a ticket that must not stand beside
/// ours; nothing of ours is a ticket in a directory without a claim.
pub(crate) fn check_neighbours<'a>(
    name: impl AsRef<str>,
    recipe: Option<Recipe>,
    children: impl IntoIterator<Item = &'a String>,
) -> Result<()> {
    let mut strangers = children
        .into_iter()
        .filter_map(|node| Some((node, stranger(recipe, node)?)));
    let Some((node, what)) = strangers.next() else {
        return Ok(());
    };
    Err(mixed(name.as_ref(), node.clone(), what))
}

fn mixed(name: &str, node: String, what: &'static str) -> Error {
    Error::UnsafeMix {
        name: name.to_owned(),
        node,
        what,
    }
}

/// A node whose name does not tell whether it can share the queue; what it is then.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Doubt {
    pub(crate) node: String,
    what: &'static str,
}

/// Those whose names do not tell, a bounded number: names of other recipes and of a semaphore's
/// nodes, which locks below this one may have as well; and tickets that may be .NET's, whose names
/// are like ours, where others stand that .NET does not see, the nearest before `mine`.
pub(crate) fn in_doubt(
    recipe: Option<Recipe>,
    children: &[String],
    mine: Option<&Ticket>,
) -> Vec<Doubt> {
    let others = children
        .iter()
        .filter(|child| Ticket::parse(child).is_none());
    let others = others.filter_map(|child| {
        Some(Doubt {
            node: child.clone(),
            what: other_recipe(child)?,
        })
    });
    let mut doubts: Vec<Doubt> = others.take(MOST).collect();
    if recipe.is_some() {
        let are_there = SEMAPHORES.iter().filter(|(node, _)| {
            let is_it = |child: &String| child == node;
            children.iter().any(is_it)
        });
        doubts.extend(are_there.map(|(node, what)| Doubt {
            node: (*node).to_owned(),
            what,
        }));
    }

    let tickets = || children.iter().filter_map(|child| Ticket::parse(child));
    let may_be_nets = |ticket: &Ticket| ticket.is_bare() && ticket.tag_text() == "lock-";
    let is_unseen = match recipe {
        Some(Recipe::Lock) => tickets().any(|ticket| !may_be_nets(&ticket)),
        Some(Recipe::Read | Recipe::Write) => true,
        _ => false,
    };
    if is_unseen {
        let before = in_order(tickets().collect()).into_iter();
        let before = before.take_while(|ticket| mine.is_none_or(|mine| ticket.name != mine.name));
        let nets: Vec<Ticket> = before.filter(may_be_nets).collect();
        let nearest = nets.into_iter().rev().take(MOST);
        doubts.extend(nearest.map(|ticket| Doubt {
            node: ticket.name,
            what: "a ticket of .NET's lock, which does not see others that stand there",
        }));
    }
    doubts
}

/// The nodes of a semaphore of the same name, by which others hold beside our queue.
const SEMAPHORES: [(&str, &str); 2] = [
    (
        LIMIT,
        "the limit of a semaphore with this name (once nobody uses that, remove the node to free the name)",
    ),
    (HELD, "a held permit of a semaphore with this name"),
];

impl Doubt {
    /// Whether others may hold by what is in it.
    pub(crate) fn is_of_semaphore(&self) -> bool {
        matches!(&*self.node, LIMIT | HELD)
    }

    /// Whether its children tell what it is.
    pub(crate) fn asks_for_children(&self) -> bool {
        self.node == HELD
    }

    /// Refuses the node by its data and by the session that owns it (`ephemeralOwner`).
    pub(crate) fn check_node(&self, name: &str, data: &[u8], owner: i64) -> Result<()> {
        let is_fine = match Ticket::parse(&self.node) {
            Some(_) => TicketData::parse(data).is_some() || is_revoked(data),
            None if self.node == LIMIT => permits::parse_limit(data).is_none(),
            // A directory of locks below this one has no session.
            None => !is_of_a_session(owner),
        };
        if is_fine {
            return Ok(());
        }
        Err(mixed(name, self.node.clone(), self.what))
    }

    /// Refuses the node if a permit is among its children.
    pub(crate) fn check_children(&self, name: &str, children: &[String]) -> Result<()> {
        let permit = children
            .iter()
            .find(|child| permits::weight(child).is_some());
        permit.map_or(Ok(()), |permit| {
            let node = format!("{}/{permit}", self.node);
            Err(mixed(name, node, self.what))
        })
    }
}

/// Whether a node ends with a session: neither a persistent one, nor a container, nor one with a
/// time to live, which say so in the same field.
fn is_of_a_session(owner: i64) -> bool {
    owner != 0 && owner != i64::MIN && owner.to_be_bytes()[0] != 0xff
}

/// What a ticket is that cannot share the queue.
fn stranger(recipe: Option<Recipe>, node: &str) -> Option<&'static str> {
    let ticket = Ticket::parse(node)?;
    let shares = recipe.is_some_and(|recipe| recipe.shares_with(&ticket));
    (!shares).then(|| whose(ticket.tag_text()))
}

impl Recipe {
    /// Whether this claim sees that ticket, and the ticket's client sees this claim's.
    fn shares_with(self, ticket: &Ticket) -> bool {
        let both = |tag: &str| matches!(tag, "__READ__" | "__WRIT__");
        let tag = ticket.tag_text();
        match self {
            // Our mutex and our read-write lock exclude each other; Curator's mutex sees no reader.
            Self::Lock => tag == "lock-" || both(tag) && ticket.looks_like_ours(),
            Self::Read | Self::Write => both(tag) || tag == "lock-" && ticket.looks_like_ours(),
            Self::Lead => tag == "latch-",
            Self::KazooLock => tag == "__lock__",
            Self::KazooRead | Self::KazooWrite => matches!(tag, "__lock__" | "__rlock__"),
        }
    }
}

/// Whether the client of each of two tickets sees the other one.
pub(crate) fn share(one: &Ticket, other: &Ticket) -> bool {
    let sees = |one: &Ticket, other: &Ticket| {
        let mut recipes = recipes_of(one).iter();
        recipes.any(|recipe| recipe.shares_with(other))
    };
    // Of a library's own kinds of tickets, which are never ours, it knows nothing.
    let are_foreign = recipes_of(one).is_empty() && recipes_of(other).is_empty();
    are_foreign || sees(one, other) && sees(other, one)
}

/// What a ticket may be for: kazoo's names do not tell a writer from a lock.
fn recipes_of(ticket: &Ticket) -> &'static [Recipe] {
    match ticket.tag_text() {
        "lock-" => &[Recipe::Lock],
        "__READ__" => &[Recipe::Read],
        "__WRIT__" => &[Recipe::Write],
        "latch-" => &[Recipe::Lead],
        "__lock__" => &[Recipe::KazooLock, Recipe::KazooWrite],
        "__rlock__" => &[Recipe::KazooRead],
        _ => &[],
    }
}

/// Whose ticket has this tag.
fn whose(tag: &str) -> &'static str {
    match tag {
        "lock-" => "a ticket of a mutex, or of Curator's LeaderSelector",
        "__READ__" | "__WRIT__" => "a ticket of a read-write lock",
        "latch-" => "a ticket of an election, or of Curator's LeaderLatch",
        "__lock__" => "a ticket of kazoo's Lock, WriteLock or Election",
        "__rlock__" => "a ticket of kazoo's ReadLock",
        _ => "a ticket of .NET's reader-writer lock",
    }
}

/// Whose name that is, if it is no ticket.
fn other_recipe(node: &str) -> Option<&'static str> {
    // What stands before the tag, if a number stands behind it.
    let before = |tag: &str| {
        let (before, digits) = node.rsplit_once(tag)?;
        parse_digits(digits).map(|_| before)
    };
    let is_session = |text: &str| text.parse::<i64>().is_ok();
    let of_write_lock = before("-").and_then(|before| before.strip_prefix("x-"));
    let is_id = |text: &str| Uuid::try_parse(text).is_ok();
    if node.starts_with("_c_") && before("-lease-").is_some() {
        Some("a lease of Curator's semaphore")
    } else if node.starts_with("semaphore-") && before("semaphore-").is_some() {
        Some("a ticket of .NET's semaphore")
    } else if of_write_lock.is_some_and(is_session) {
        Some("a ticket of the WriteLock that comes with ZooKeeper")
    } else if before("_").is_some_and(is_id) {
        Some("a ticket of zookeeper-async's lock")
    } else if before("-").is_some_and(|before| before.starts_with("latch-")) {
        Some("a ticket of zookeeper-async's latch")
    } else if is_hex(node) {
        Some("a lease of kazoo's Semaphore")
    } else {
        None
    }
}
