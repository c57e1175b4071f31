//! Guards: the public face of a hold.
//!
//! A guard protects a name, not a value, so it has no `Deref`. It is a thin layer over the hold,
//! which guards of one owner share. `methods.rs` gives all guards the same methods.

pub(crate) mod cohort;
pub(crate) mod fenced;
pub(crate) mod held_ticket;
pub(crate) mod hold;
pub(crate) mod local_holds;
pub(crate) mod local_turn;
pub(crate) mod lost;
mod methods;
pub(crate) mod proclaim;
pub(crate) mod self_wait;

use std::sync::Arc;

use crate::error::Result;
use crate::guard::hold::Hold;
use crate::guard::local_turn::LocalTurn;
use crate::guard::lost::Lost;

/// A held lock.
///
/// Drop it to release in the background, or [`release`](Self::release) it to wait for the answer.
///
/// # What it promises
///
/// While its session is healthy, a guard holds until it is released. If the network, the servers or
/// this process fail for too long, the servers give the lock to another client. The guard knows
/// before that: it has a *lease*, which ends nine tenths of the session timeout after the last
/// moment at which the servers surely knew that we live. In a quiet time, that is about 0.57 of the
/// timeout after their last answer. The lease needs only this machine's clock, and no packet.
///
/// If an operator removes the ticket, the guard learns it with the next heartbeat: within a tenth
/// of the session timeout for each hundred locks of the session. If an operator ends the session,
/// it learns it when the client is told.
///
/// All this is advice. A process can check its guard, pause, and write after losing the lock. Only
/// a resource that compares [`token`](Self::token)s refuses such a write; for data in ZooKeeper,
/// [`fenced`](Self::fenced) does.
///
/// # Conditions
///
/// - Clocks run at the same rate. On Linux the clock counts suspended time; elsewhere it does not.
/// - The servers' `tickTime` is at most half of the session timeout, as servers ensure by default.
/// - All servers grant the same session timeout, because a client is not told of a lower one when
///   it reconnects.
///
/// # Examples
///
/// ```
/// # use lockkeeper::{Keeper, embedded::EmbeddedServer};
/// # #[tokio::main]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = EmbeddedServer::start().await?;
/// let keeper = Keeper::connect(server.connect_string()).await?;
/// let guard = keeper.mutex("orders/42")?.lock().await?;
/// let work = async { 42 }; // is dropped if the lock is lost
/// assert_eq!(guard.run(work).await?, 42);
/// guard.release().await?;
/// # keeper.close().await;
/// # Ok(())
/// # }
/// ```
#[must_use = "the lock is released when the guard is dropped"]
#[clippy::has_significant_drop]
pub struct Guard {
    /// Dropped before the turn, which passes the hold on.
    pub(crate) hold: Arc<Hold>,
    /// With a mutex that lingers.
    turn: Option<Box<LocalTurn>>,
}

impl Guard {
    pub(crate) fn new(hold: Arc<Hold>) -> Self {
        let turn = None;
        Self { hold, turn }
    }

    /// The guard of a hold that may be passed on.
    pub(crate) fn in_turn(hold: Arc<Hold>, turn: LocalTurn) -> Self {
        let turn = Some(Box::new(turn));
        Self { hold, turn }
    }

    /// Releases the lock and waits until the servers have confirmed that. It sends one request.
    /// After a hold of more than a second it sends three, because the ticket is then read first. A
    /// mutex [with linger](crate::Mutex::with_linger) sends none if it keeps the place for the next
    /// task.
    ///
    /// # Errors
    ///
    /// [`is_lost`](crate::Error::is_lost) if the hold had ended, or ends before the servers confirm
    /// the release. A ticket that is left is removed in the background. For a ticket that is
    /// removed by hand, see "The gap that remains" in `docs/guarantees.md`.
    /// [`Error::Denied`](crate::Error::Denied) if we may not remove the ticket any more; it then
    /// stays until the session ends.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: dropped at any await, the release goes on in the background.
    pub async fn release(self) -> Result<()> {
        let Self { hold, turn } = self;
        match turn {
            Some(turn) => {
                drop(hold);
                turn.release().await
            }
            None => hold.release().await,
        }
    }

    /// Another client asked for the lock, so the place is not kept for the next task.
    fn heard(&self) {
        if let Some(turn) = &self.turn {
            turn.stop();
        }
    }

    fn loss(&self) -> Lost {
        match &self.turn {
            Some(turn) => turn.lost(&self.hold),
            None => self.hold.lost(),
        }
    }
}

pub(crate) use methods::{exclusive_methods, guard_methods, place_methods, revocable_methods};

guard_methods!(@looks Guard);
revocable_methods!(@heard Guard);
place_methods!(Guard);
exclusive_methods!(Guard);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guard_and_its_loss_can_cross_threads() {
        fn check<T: Send + Sync + 'static>() {}
        fn gives<T: Clone + Send + 'static>() {}

        check::<Guard>();
        gives::<Lost>();
    }
}
