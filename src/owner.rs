//! Owners: the identity of a holder, for reentrancy. (pure)
//!
//! An owner is a name and nothing else. Tasks and threads have no identity here.

use std::fmt;
use std::sync::Arc;

use uuid::Uuid;

use crate::brief::shows;

/// The identity of a holder, for reentrancy: while an owner holds a lock, the same owner is granted
/// it again at once.
///
/// The name stands in the ticket, so it also works from another [`Keeper`](crate::Keeper), process
/// or host: all parts of one job that share a name are one owner. There is no other identity. A
/// task without an owner that asks again waits for itself for ever, with a warning.
///
/// The name is a bearer token. A program that knows the name and may use the lock enters beside the
/// holder, with the holder's token. The name stands in the ticket, for all programs that may read
/// it. `{:?}` does not show it.
///
/// # What it promises
///
/// - Two owners are never inside at the same time, and neither are an owner and a holder without
///   one.
/// - All holders of one owner have the same token. The lock is free when the last of them has gone,
///   in whatever order they go.
/// - Each [`Keeper`](crate::Keeper) inside has its own ticket. So the end of one, by a crash for
///   example, takes nothing from another.
/// - A lost hold is never entered again. The owner's next call waits for a new hold, or enters
///   beside a live one.
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

// Without the name, which is a secret: it lets its bearer in.
shows!(|_owner| Owner {});

impl Owner {
    /// A new owner, with a random UUID as its name.
    #[must_use]
    #[expect(
        clippy::new_without_default,
        reason = "a default that differs each time would surprise"
    )]
    pub fn new() -> Self {
        Self(Uuid::new_v4().to_string().into())
    }

    /// The owner with this name, of at most 1024 bytes. All programs that use the name are the same
    /// owner. A lock call with a longer name is refused.
    #[must_use]
    pub fn named(name: impl AsRef<str>) -> Self {
        Self(name.as_ref().into())
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
