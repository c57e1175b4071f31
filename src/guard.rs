//! Guards: a granted place with its token.
//!
//! A guard protects a name, not a value, so it dereferences to nothing. Invariant: releasing or dropping it touches the
//! ticket of this hold and nothing else.

use std::fmt;

use crate::error::{Error, Result};
use crate::name::LockName;
use crate::queue::Waiter;
use crate::queue::place::Place;
use crate::session::janitor::Left;
use crate::token::Token;

/// A held lock.
///
/// Drop it to release in the background, or [`release`](Self::release) it to know the answer. It holds for as long as its
/// session lives; a distributed lock cannot promise more, which is why it carries a [`token`](Self::token).
#[must_use = "the lock is released when the guard is dropped"]
#[clippy::has_significant_drop]
pub struct Guard {
    place: Place,
    name: LockName,
    token: Token,
}

impl Guard {
    pub(crate) fn new(granted: Waiter) -> Result<Self> {
        let (_, czxid) = granted.ticket()?;
        let name = granted.name().clone();
        let token = Token::new(czxid);
        let waited_ms = u64::try_from(granted.waited().as_millis()).unwrap_or(u64::MAX);
        tracing::debug!(waited_ms, token = u64::from(token), "granted");
        Ok(Self {
            place: granted.into_place(),
            name,
            token,
        })
    }

    /// The fencing token of this hold, for the resource that the lock protects.
    pub fn token(&self) -> Token {
        self.token
    }

    /// The lock's name.
    pub fn name(&self) -> &LockName {
        &self.name
    }

    /// The name of our node in the lock's directory, as `lockkeeper queue` shows it.
    pub fn node(&self) -> &str {
        self.place.ticket().map_or("", |(ticket, _)| &ticket.name)
    }

    /// Releases the lock and waits until the server has confirmed it. Sends one request, or three after a hold of more than a
    /// second, whose ticket is read again first.
    ///
    /// # Errors
    ///
    /// [`is_lost`](Error::is_lost) if the hold had ended before: the session is over, the keeper was closed, or somebody
    /// removed the ticket. ARCHITECTURE.md says what remains where a ticket is removed by hand. [`Error::Denied`] if our
    /// permission to remove the ticket was taken away; the ticket then stays until the session ends.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: dropped at any await, the release goes on in the background.
    pub async fn release(self) -> Result<()> {
        let Self { place, name, .. } = self;
        let doing = "release";
        let path = format!(
            "{}/{}",
            place.directory(),
            place.ticket().map_or("", |(ticket, _)| &ticket.name)
        );
        match place.leave().await {
            Left::Now => {
                tracing::debug!(path, "released");
                Ok(())
            }
            Left::WasGone => Err(Error::PlaceLost {
                name: name.to_string(),
                why: "the ticket was removed",
            }),
            Left::Closed => Err(Error::Closed {
                name: name.to_string(),
                doing,
            }),
            Left::Over(reason) => Err(Error::SessionOver {
                name: name.to_string(),
                doing,
                reason,
            }),
            Left::Refused { servers } => Err(Error::Denied {
                doing,
                path,
                servers,
            }),
        }
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard")
            .field("name", &self.name)
            .field("token", &self.token)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guard_can_cross_threads() {
        fn check<T: Send + Sync + 'static>() {}

        check::<Guard>();
    }
}
