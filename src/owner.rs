//! Owners: the identity by which a lock lets in again whoever holds it already. (pure)
//!
//! An owner is a name and nothing else: tasks and threads have no identity here, and who knows the
//! name is the owner.

use std::fmt;
use std::sync::Arc;

use uuid::Uuid;

/// Who takes a lock, for reentrancy: while an owner holds a lock, the same owner gets it again at
/// once.
///
/// The name stands in the ticket, so it also works from another [`Keeper`](crate::Keeper), another
/// process or another host: all parts of one job that share a name are one owner. There is no other
/// identity: a task that asks again without an owner waits for itself, for ever (and is warned).
///
/// The name is what a bearer token is: whoever says it, and may use the lock, goes in beside the
/// holder, with the holder's token. It stands in the ticket, for all who may read that. `{:?}` does
/// not show it.
///
/// What it promises: never are two owners inside at a time, and never an owner and somebody without
/// one. Whoever holds for the same owner has the same token, and the lock is free for others when
/// the last of them has gone, in whatever order they go. Each [`Keeper`](crate::Keeper) that is
/// inside has a ticket of its own, so the end of one, by a crash say, takes nothing from another. A
/// hold that is lost is never entered again: the owner's next call waits for a new one, or goes in
/// beside whoever still holds for it.
///
/// # Examples
///
/// ```
/// # use lockkeeper::{Keeper, Owner, embedded::EmbeddedServer};
/// # #[tokio::main]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = EmbeddedServer::start().await?;
/// # let keeper = Keeper::connect(server.connect_string()).await?;
/// let job = Owner::named("txn-42");
/// let lock = keeper.mutex("orders/42")?.with_owner(&job);
/// let outer = lock.lock().await?;
/// let inner = lock.lock().await?; // at once: the same hold
/// assert_eq!(inner.token(), outer.token());
/// outer.release().await?; // still held
/// inner.release().await?; // released
/// # keeper.close().await;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Owner(Arc<str>);

/// Without the name, which lets in whoever says it.
impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Owner").finish_non_exhaustive()
    }
}

impl Owner {
    /// An owner that nobody else is: a random UUID.
    #[must_use]
    #[expect(
        clippy::new_without_default,
        reason = "a default that differs each time would surprise"
    )]
    pub fn new() -> Self {
        Self(Uuid::new_v4().to_string().into())
    }

    /// The owner with this name, of at most 1024 bytes: everybody who uses it is the same. A longer
    /// one is refused when a lock is asked for.
    #[must_use]
    pub fn named(name: impl Into<Arc<str>>) -> Self {
        Self(name.into())
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl AsRef<str> for Owner {
    fn as_ref(&self) -> &str {
        self.as_str()
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_makes_the_owner_and_new_ones_differ() {
        assert_eq!(Owner::named("txn-42"), Owner::named(String::from("txn-42")));
        assert_ne!(Owner::new(), Owner::new());
        assert_eq!(Owner::named("a").to_string(), "a");
    }
}
