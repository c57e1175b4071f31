//! The lease of the lock that a command runs under: says in time that the command must end.
//!
//! It only looks; what is done about it is not its business.

use std::fmt;
use std::time::Duration;

use futures_util::future::BoxFuture;
use lockkeeper::Error;
use tokio::time::sleep;

use crate::held::Held;

/// A lease that a sixteenth is left of is in danger, which is half a second of ten: so late that
/// most silences of the servers have ended before it.
const FLOOR: u32 = 16;

pub(crate) struct Lease<'a> {
    held: &'a Held,
    lost: BoxFuture<'static, Error>,
    longest: Duration,
    /// No more than the command is given to end.
    grace: Duration,
}

/// Why the command must end.
#[derive(Debug)]
pub(crate) enum Danger {
    /// No server answers, and soon others may have the lock. For so long it is still ours.
    Near(Duration),
    Lost(Error),
}

impl fmt::Display for Danger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Near(left) => write!(
                f,
                "no server answers, and the lease lasts for only {} ms more",
                left.as_millis()
            ),
            Self::Lost(error) => write!(f, "the lock was lost: {error}"),
        }
    }
}

impl<'a> Lease<'a> {
    pub(crate) fn of(held: &'a Held, grace: Duration) -> Self {
        Self {
            held,
            lost: held.lost(),
            longest: held.valid_for(),
            grace,
        }
    }

    /// Waits until the command must end. The clock is looked at again and again, so that neither a
    /// stop of this process nor a sleep of the machine hides a loss.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: call it again.
    pub(crate) async fn danger(&mut self) -> Danger {
        loop {
            let left = self.held.valid_for();
            self.longest = self.longest.max(left);
            let floor = (self.longest / FLOOR).min(self.grace);
            if left <= floor && self.held.is_held() {
                return Danger::Near(left);
            }
            tokio::select! {
                biased;
                error = &mut self.lost => return Danger::Lost(error),
                () = sleep(left.saturating_sub(floor).min(self.longest / FLOOR)) => {}
            }
        }
    }
}
