//! The questions that callers ask of an error, in place of matching its variants.

use super::{Error, UnreachableReason};

impl Error {
    /// Whether a lock name or an option was refused, or a request is too large. Nothing was sent.
    pub fn is_invalid(&self) -> bool {
        matches!(
            self,
            Self::InvalidName { .. } | Self::InvalidOption { .. } | Self::TooLarge { .. }
        )
    }

    /// Whether no server gave a usable session: [`Error::Unreachable`] or [`Error::ChrootMissing`].
    pub fn is_unreachable(&self) -> bool {
        matches!(self, Self::Unreachable { .. } | Self::ChrootMissing { .. })
    }

    /// Whether a `*_timeout` call ran out of time.
    pub fn is_timeout(&self) -> bool {
        matches!(self, Self::TimedOut { .. })
    }

    /// Whether the hold or the place has ended. The session ended, or was not confirmed in time;
    /// another client removed the ticket; or the keeper was closed.
    pub fn is_lost(&self) -> bool {
        if let Self::Store { problem, .. } = self {
            return *problem == super::StoreProblem::NotOurs;
        }
        matches!(
            self,
            Self::SessionOver { .. }
                | Self::LeaseOver { .. }
                | Self::PlaceLost { .. }
                | Self::Closed { .. }
        )
    }

    /// Whether a write of [`Guard::fenced`](crate::Guard::fenced) may have happened or not:
    /// [`Error::OutcomeUnknown`].
    pub fn is_unknown(&self) -> bool {
        matches!(self, Self::OutcomeUnknown { .. })
    }

    /// Whether this call cannot be granted as it was made. The owner would wait for itself, the
    /// read lock cannot be upgraded now, the limit of the semaphore differs or is too low, another
    /// ticket cannot share the queue, or an access list is too wide. Nothing was changed.
    pub fn is_refusal(&self) -> bool {
        matches!(
            self,
            Self::HeldForReading { .. }
                | Self::NotUpgradable { .. }
                | Self::LimitMismatch { .. }
                | Self::TooManyPermits { .. }
                | Self::UnsafeMix { .. }
                | Self::WiderAcl { .. }
        )
    }

    /// Whether the ZooKeeper session ended.
    pub fn is_session_over(&self) -> bool {
        matches!(self, Self::SessionOver { .. })
    }

    /// Whether the [`Keeper`](crate::Keeper) was closed.
    pub fn is_closed(&self) -> bool {
        matches!(self, Self::Closed { .. })
    }

    /// Whether the servers refused for lack of permission, or do not accept the credential.
    pub fn is_denied(&self) -> bool {
        if let Self::Store { problem, .. } = self {
            return matches!(problem, super::StoreProblem::Denied(_));
        }
        matches!(self, Self::Denied { .. } | Self::Unauthenticated { .. })
    }

    /// Whether the same call may succeed later without a change of a setting.
    pub fn is_retryable(&self) -> bool {
        matches!(
            self,
            Self::TimedOut { .. }
                | Self::SessionOver { .. }
                | Self::LeaseOver { .. }
                | Self::PlaceLost { .. }
                | Self::Unreachable { .. }
        )
    }

    /// Whether no session was opened although one of the addresses is a server's.
    pub(crate) fn names_a_server(&self) -> bool {
        let Self::Unreachable { addresses, .. } = self else {
            return false;
        };
        let mut reasons = addresses.iter().map(|failure| &failure.reason);
        reasons.any(|reason| {
            matches!(
                reason,
                UnreachableReason::NotServing | UnreachableReason::Refusing(_)
            )
        })
    }

    /// How long the store gives no session after a start.
    pub(crate) fn recovering(&self) -> Option<std::time::Duration> {
        let Self::Unreachable { addresses, .. } = self else {
            return None;
        };
        addresses.iter().find_map(|failure| match failure.reason {
            UnreachableReason::Recovering(left) => Some(left),
            _ => None,
        })
    }
}
