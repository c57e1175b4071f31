//! The lock delay: the time that a holder's resource has after the holder may have crashed.
//!
//! Invariant: a delay that has begun is sat out before the turn is taken, and the turn is read
//! again after it. It begins no delay after a release that a mark proves.

use super::super::WAITING;
use super::Waiter;
use crate::error::Result;
use crate::protocol::lease::Moment;
use crate::protocol::walk::Step;

impl Waiter {
    /// The tickets before this one are known to have ended well: no lock delay.
    pub(crate) fn forgo_delay(&mut self) {
        self.delay = None;
    }

    /// Whether the lock delay comes first.
    pub(super) fn begins_delay(&mut self) -> bool {
        let Some(delay) = self.delay else {
            return false;
        };
        tracing::debug!(?delay, "the lock delay begins");
        // A delay without an end is one that an operator ends.
        let now = self.place.session().heartbeat.now();
        self.delay_until = Some(now.saturating_add(delay));
        true
    }

    /// Waits for the end of the lock delay, and reads again: the ticket must still be there.
    pub(super) async fn sit_out(&mut self, until: Moment) -> Result<()> {
        let session = self.place.session();
        tokio::select! {
            () = session.heartbeat.until(until) => {}
            end = session.ended() => return Err(end.while_trying(WAITING, &self.name)),
        }
        match self.walk.step() {
            // Beside this hold only: it may be over before we are in, and then others are before
            // us.
            Step::GuestEntry(entry) => self.sat_out = Some(entry.token),
            _ => self.forgo_delay(),
        }
        self.start_over();
        Ok(())
    }
}
