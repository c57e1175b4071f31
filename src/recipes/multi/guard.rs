//! The guard of several locks.

use std::sync::Arc;

use crate::guard::held_ticket::HeldTicket;
use crate::guard::hold::Hold;
use crate::guard::{exclusive_methods, guard_methods, revocable_methods};
use crate::name::LockName;

/// Several locks that are held together.
///
/// For each lock it makes the promises of a [`Guard`](crate::Guard). It ends with the first lost
/// lock, and [`lost`](Self::lost) and all errors name that one. Its tickets are in one session and
/// were made in one transaction, whose number is the [`token`](Self::token) of all locks.
///
/// [`release`](Self::release) gives all locks back in one transaction. If another client has
/// removed a ticket, it gives them back one by one. A drop gives them back one by one in the
/// background.
#[must_use = "the locks are released when the guard is dropped"]
#[clippy::has_significant_drop]
pub struct MultiGuard {
    pub(crate) hold: Arc<Hold>,
}

guard_methods!(MultiGuard);
revocable_methods!(MultiGuard);
exclusive_methods!(MultiGuard);

impl MultiGuard {
    /// The locks' names, each once, in the order in which they were given.
    pub fn names(&self) -> impl Iterator<Item = &LockName> {
        self.hold.all_held.iter().map(|held| &held.name)
    }

    /// The names of our nodes in the locks' directories, in the order of [`names`](Self::names).
    pub fn nodes(&self) -> impl Iterator<Item = &str> {
        self.hold.all_held.iter().map(HeldTicket::node)
    }
}
