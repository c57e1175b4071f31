//! The guard of an election: the leadership.

use std::sync::Arc;

#[cfg(doc)]
use crate::error::Error;
use crate::error::Result;
use crate::guard::hold::Hold;
use crate::guard::proclaim;
use crate::guard::{exclusive_methods, guard_methods, place_methods};

/// A held leadership, from [`Election::campaign`](crate::Election::campaign).
///
/// Drop it to resign in the background, or [`resign`](Self::resign) to wait for the answer. It
/// makes the promises of a [`Guard`](crate::Guard), and is lost in the same ways.
#[must_use = "we resign when the leadership is dropped"]
#[clippy::has_significant_drop]
pub struct Leadership {
    pub(crate) hold: Arc<Hold>,
}

guard_methods!(Leadership);
place_methods!(Leadership);
exclusive_methods!(Leadership);

impl Leadership {
    /// Publishes another value of the leader, of at most 64 KiB, for as long as this leadership
    /// lasts. It sends one request, which wakes the observers and no candidate. Overlapping calls
    /// publish one after the other. A pending call that is no longer polled blocks the later ones.
    ///
    /// The value is written into the election's directory together with a check of our ticket. So
    /// it is never published after the next leader was elected.
    ///
    /// # Errors
    ///
    /// [`is_lost`](Error::is_lost) if the leadership was lost before the answer; observers may have
    /// seen the value. [`is_invalid`](Error::is_invalid) if the value is too long.
    /// [`Error::Refused`] if the directory has data of another program, which is kept.
    /// [`Error::Denied`] if we may not write there.
    ///
    /// # Cancel safety
    ///
    /// Dropped at any await, the value may be published or not, and we still lead. The next leader
    /// may then need one or two more requests, and waits out the
    /// [`lock_delay`](crate::KeeperBuilder::lock_delay).
    pub async fn proclaim(&self, value: impl Into<String>) -> Result<()> {
        proclaim::proclaim(&self.hold, &value.into()).await
    }

    /// Gives the leadership back, and waits until the servers have confirmed that, as
    /// [`release`](Self::release) does.
    ///
    /// # Errors
    ///
    /// As [`release`](Self::release).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: dropped at any await, we resign in the background.
    pub async fn resign(self) -> Result<()> {
        self.release().await
    }
}
