//! A hold that changes its kind: a writer's that becomes a reader's, and a reader's that becomes a
//! writer's.
//!
//! Invariants: a writer that becomes a reader never lets go in between, and is watched all the
//! time; a reader that becomes a writer waits for nobody. An owner's other calls wait at the slot
//! until the outcome is known, because it is theirs as well.

use std::sync::Arc;

use tokio::sync::OwnedMutexGuard;

use crate::error::{Error, Result};
use crate::guard::held_ticket::{HeldTicket, told};
use crate::guard::hold::Hold;
use crate::protocol::rule;
use crate::protocol::ticket::Mode;
use crate::protocol::walk::REMOVED;
use crate::queue::Waiter;
use crate::recipes::acquire::Acquirer;

const UPGRADING: &str = "upgrade";

impl Acquirer {
    /// What a writer holds by, for a reader. Guards of an owner that still write share it as it is.
    pub(crate) async fn downgraded(&self, hold: Arc<Hold>) -> Result<Arc<Hold>> {
        let lost = hold.lost();
        let share = async {
            let slot = self.slot().await;
            let (token, owner) = (hold.token, hold.owner.clone());
            let mut all_held = match hold.into_held() {
                Ok(all_held) => all_held.into_iter(),
                Err(shared) => return Ok(shared),
            };
            let Some(HeldTicket {
                name,
                mut place,
                entry,
                record,
                ..
            }) = all_held.next()
            else {
                return Err(self.queue.lost("it holds nothing"));
            };
            if let Err(error) = place.share(&name).await {
                if matches!(error, Error::PlaceLost { .. }) {
                    entry.lose(REMOVED);
                }
                return Err(error);
            }
            loop {
                // The old hold goes on until the new one has begun: without a word of it there was
                // no gap.
                let next = place.begin_hold(&name).await?;
                if let Some(loss) = entry.loss() {
                    return Err(loss.while_trying("downgrade", &name));
                }
                if let Some(next) = next {
                    // One hold, also in the journal.
                    let mut held = HeldTicket::of(name, place, next, &self.queue.metrics);
                    held.record = record.map(|mut record| {
                        record.go_on(held.ticket(), held.entry.loss_watch());
                        record
                    });
                    tracing::debug!(node = held.path(), "downgraded");
                    let (kind, self_wait) = (Mode::Shared, self.self_wait(Mode::Shared));
                    let hold = Hold::new(vec![held], token, kind, owner, vec![self_wait]);
                    known_at(slot, &hold);
                    return Ok(hold);
                }
            }
        };
        tokio::select! {
            biased;
            error = lost => Err(error),
            shared = Box::pin(share) => shared,
        }
    }

    /// What a reader holds by, for a writer, if nobody else holds or waits in front. Otherwise the
    /// reader's, and why.
    pub(crate) async fn upgraded(&self, hold: Arc<Hold>) -> Result<Arc<Hold>, (Arc<Hold>, Error)> {
        if let Some(loss) = hold.loss() {
            return Err((hold, loss));
        }
        // The hold excludes others already: it is enough to say so.
        if hold.kind == Mode::Exclusive {
            return Ok(hold);
        }
        let lost = hold.lost();
        let behind = async {
            let slot = self.slot().await;
            // On the heap, as it is over before anything else begins.
            let waiter = self.stand_behind(&hold).await?;
            Ok((slot, waiter))
        };
        let behind = tokio::select! {
            biased;
            error = lost => Err(error),
            behind = behind => behind,
        };
        let (slot, waiter) = match behind {
            Ok(behind) => behind,
            Err(error) => return Err((hold, error)),
        };
        let (token, owner) = (hold.token, hold.owner.clone());
        // Nobody can have come to share it: that needs the slot.
        let mut held = match hold.into_held().map(|all_held| all_held.into_iter().next()) {
            Ok(Some(held)) => held,
            Ok(None) => unreachable!("a hold has a held ticket"),
            Err(hold) => return Err((hold, self.not_upgradable(1))),
        };
        match self.step_forward(&mut held, waiter).await {
            Ok(hold) => {
                known_at(slot, &hold);
                Ok(hold)
            }
            Err(error) => {
                // Its ticket was given up, or was gone.
                let loss = held.lose("it was given up to be upgraded");
                // Not to be taken for one that leaves all as it was.
                let error = if error.is_refusal() { loss } else { error };
                let hold = Hold::new(vec![held], token, Mode::Shared, owner, Vec::new());
                Err((hold, error))
            }
        }
    }

    /// A writer's ticket at the end of the queue, with nothing before it but the reader's own.
    async fn stand_behind(&self, hold: &Arc<Hold>) -> Result<Waiter> {
        let (mine, name) = (&hold.held().place, self.name());
        // With the slot in hand, nobody can come to share it meanwhile.
        let sharing = Arc::strong_count(hold) - 1;
        // A look first: where others are it writes nothing.
        let others = sharing + mine.others(UPGRADING, name, self.queue.recipe).await?;
        if others > 0 {
            return Err(self.not_upgradable(others));
        }
        let waiter = self.queue.join_behind().await?;
        let ahead = waiter.ahead().await?;
        let others = rule::others(ahead, mine.ticket().map(|(ticket, _)| ticket));
        if others == 0 {
            return Ok(waiter);
        }
        let place = waiter.into_place();
        let session = Arc::clone(place.session());
        let path = place.path().unwrap_or_default();
        match told(&session, place.leave().await, UPGRADING, name, path) {
            // It stays until the session ends, and blocks others.
            Err(denied @ Error::Denied { .. }) => Err(denied),
            _ => Err(self.not_upgradable(others)),
        }
    }

    /// Removes the reader's own ticket, the only one before the writer's, and is granted.
    async fn step_forward(&self, held: &mut HeldTicket, mut waiter: Waiter) -> Result<Arc<Hold>> {
        let path = held.path();
        let loss_watch = held.entry.loss_watch();
        let left = tokio::select! {
            biased;
            left = held.place.leave_first() => left,
            loss = loss_watch.lost() => return Err(loss.while_trying(UPGRADING, &held.name)),
        };
        told(held.session(), left, UPGRADING, &held.name, path)?;
        if let Some(record) = &mut held.record {
            record.is_released();
        }
        // The one before was ourselves, and ended well.
        waiter.forgo_delay();
        waiter.start_over();
        let entry = waiter.granted().await?;
        Ok(self.hold(waiter, entry))
    }

    fn not_upgradable(&self, others: usize) -> Error {
        Error::NotUpgradable {
            name: self.name().to_string(),
            others,
        }
    }
}

type LockedSlot = OwnedMutexGuard<std::sync::Weak<Hold>>;

/// The owner's next call finds it.
fn known_at(slot: Option<LockedSlot>, hold: &Arc<Hold>) {
    if let Some(mut held) = slot {
        *held = Arc::downgrade(hold);
    }
}
