//! A hold: what a guard holds by, shared by all guards of one hold.
//!
//! Invariants: releasing or dropping the last guard removes the tickets of this hold and nothing
//! else; once a hold has said that it is lost it never says anything else. It waits for no turn.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{FutureExt, select_all};

use crate::error::{Error, Result};
use crate::guard::held_ticket::{HeldTicket, told};
use crate::guard::lost::Lost;
use crate::guard::self_wait::SelfWait;
use crate::name::LockName;
use crate::owner::Owner;
use crate::protocol::ticket::Mode;
use crate::queue::place::TicketPlace;
use crate::token::Token;

/// Granted places with their holds.
#[derive(Debug)]
pub(crate) struct Hold {
    /// At least one; several for several locks that are held together, all in one session.
    pub(crate) all_held: Vec<HeldTicket>,
    pub(crate) token: Token,
    pub(crate) owner: Option<Owner>,
    pub(crate) kind: Mode,
    _self_wait: Vec<SelfWait>,
}

/// What a guard knows of its hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum GuardState {
    /// The lock is ours, as far as anybody can know.
    Held,
    /// The connection is down or an answer is late. The lock is still ours, until the lease ends.
    Suspect,
    /// Others may hold the lock. Final.
    Lost,
}

impl Hold {
    pub(crate) fn new(
        all_held: Vec<HeldTicket>,
        token: Token,
        kind: Mode,
        owner: Option<Owner>,
        self_wait: Vec<SelfWait>,
    ) -> Arc<Self> {
        Arc::new(Self {
            all_held,
            token,
            owner,
            kind,
            _self_wait: self_wait,
        })
    }

    /// The first held ticket, which is the only one but for several locks.
    pub(crate) fn held(&self) -> &HeldTicket {
        // There is at least one.
        &self.all_held[0]
    }

    /// The all_held of a hold that nobody else shares; otherwise the hold.
    pub(crate) fn into_held(self: Arc<Self>) -> Result<Vec<HeldTicket>, Arc<Self>> {
        Arc::try_unwrap(self).map(|hold| hold.all_held)
    }

    /// Why it is lost, if it is. Looks at the clock.
    pub(crate) fn loss(&self) -> Option<Error> {
        let mut each = self.all_held.iter();
        each.find_map(|held| held.entry.loss().map(|loss| held.error(loss)))
    }

    pub(crate) fn valid_for(&self) -> Duration {
        let each = self.all_held.iter().map(|held| held.entry.valid_for());
        each.min().unwrap_or_default()
    }

    pub(crate) fn state(&self) -> GuardState {
        let mut state = GuardState::Held;
        for held in &self.all_held {
            match held.entry.surely_held() {
                Err(_) => return GuardState::Lost,
                Ok(false) => state = GuardState::Suspect,
                Ok(true) => {}
            }
        }
        state
    }

    pub(crate) fn lost(&self) -> Lost {
        let each = self.all_held.iter();
        Lost::new(each.map(HeldTicket::loss_watch).collect())
    }

    pub(crate) async fn run<T>(&self, work: impl Future<Output = T>) -> Result<T> {
        let done = tokio::select! {
            // The loss first: after a pause of the process both are ready.
            biased;
            error = self.lost() => return Err(error),
            done = work => done,
        };
        // The pause may have been in the middle of the work's last step.
        self.loss().map_or(Ok(done), Err)
    }

    pub(crate) async fn check(&self) -> Result<()> {
        let ask = async {
            for held in &self.all_held {
                held.ask().await?;
            }
            Ok(())
        };
        tokio::select! {
            biased;
            error = self.lost() => Err(error),
            result = ask => result,
        }
    }

    /// Until somebody asks for one of the tickets back.
    pub(crate) async fn revoked(&self) -> Result<()> {
        let each = self.all_held.iter().map(|held| held.revoked().boxed());
        tokio::select! {
            biased;
            error = self.lost() => Err(error),
            (asked, _, _) = select_all(each) => asked,
        }
    }

    /// Gives one guard's share back; with the last one the tickets go.
    pub(crate) async fn release(self: Arc<Self>) -> Result<()> {
        // On the heap: a task that waits for the lock has room for its release from the beginning.
        Box::pin(self.give_back()).await
    }

    async fn give_back(self: Arc<Self>) -> Result<()> {
        let doing = "release";
        for held in &self.all_held {
            if let Some(loss) = held.entry.loss() {
                return Err(loss.while_trying(doing, &held.name));
            }
        }
        let (lost, session) = (self.lost(), Arc::clone(self.held().session()));
        let Some(hold) = Arc::into_inner(self) else {
            // Other guards hold it still.
            return Ok(());
        };
        let each = hold.all_held.into_iter().map(HeldTicket::leaving);
        let (places, leaving): (Vec<_>, Vec<_>) = each.unzip();
        let left = tokio::select! {
            biased;
            left = TicketPlace::leave_together(places) => left,
            (loss, name) = lost.loss() => return Err(loss.while_trying(doing, name)),
        };
        for (left, held) in left.iter().zip(&leaving) {
            held.has_left(left);
        }
        for (left, held) in left.into_iter().zip(leaving) {
            told(&session, left, doing, &held.name, held.path)?;
        }
        Ok(())
    }

    pub(crate) fn names(&self) -> String {
        LockName::list(self.all_held.iter().map(|held| &held.name))
    }
}
