//! A hold that changes its kind: a writer's that becomes a reader's, and a reader's that becomes a writer's.
//!
//! Invariants: a writer that becomes a reader never lets go in between, and is watched all the time; a reader that becomes a
//! writer waits for nobody. An owner's other calls wait at the gate until the outcome is known, because it is theirs as well.

use std::sync::Arc;

use tokio::sync::OwnedMutexGuard;

use crate::error::{Error, Result};
use crate::guard::hold::{Seat, Tenure, told};
use crate::protocol::ticket::Kind;
use crate::protocol::walk::REMOVED;
use crate::queue::Waiter;
use crate::recipes::acquire::Door;
use crate::token::Token;

const UPGRADING: &str = "upgrade";

impl Door {
    /// What a writer holds by, for a reader. Guards of an owner that still write share it as it is.
    pub(crate) async fn downgraded(&self, tenure: Arc<Tenure>) -> Result<Arc<Tenure>> {
        let lost = tenure.lost();
        let share = async {
            let gate = self.gate().await;
            let (token, owner) = (tenure.token(), tenure.owner().cloned());
            let mut seats = match tenure.into_seats() {
                Ok(seats) => seats.into_iter(),
                Err(shared) => return Ok(shared),
            };
            let Some(Seat {
                name,
                mut place,
                hold,
                record,
            }) = seats.next()
            else {
                return Err(self.queue.lost("it holds nothing"));
            };
            if let Err(error) = place.share(&name).await {
                if matches!(error, Error::PlaceLost { .. }) {
                    hold.lose(REMOVED);
                }
                return Err(error);
            }
            loop {
                // The old hold goes on until the new one has begun: without a word of it there was no gap.
                let next = place.hold(&name).await?;
                if let Some(loss) = hold.loss() {
                    return Err(loss.while_trying("downgrade", &name));
                }
                if let Some(next) = next {
                    // One hold, also in the journal.
                    let mut seat = Seat::of(name, place, next, self.queue.meter());
                    seat.record = record.map(|mut record| {
                        record.go_on(seat.ticket(), seat.hold.witness());
                        record
                    });
                    tracing::debug!(node = seat.path(), "downgraded");
                    let tenure = self.held_by(seat, token, Kind::Shared, owner);
                    known_at(gate, &tenure);
                    return Ok(tenure);
                }
            }
        };
        tokio::select! {
            biased;
            error = lost => Err(error),
            shared = Box::pin(share) => shared,
        }
    }

    /// What a reader holds by, for a writer, if nobody else holds or waits in front. Otherwise the reader's, and why.
    pub(crate) async fn upgraded(
        &self,
        tenure: Arc<Tenure>,
    ) -> Result<Arc<Tenure>, (Arc<Tenure>, Error)> {
        if let Some(loss) = tenure.loss() {
            return Err((tenure, loss));
        }
        // The hold excludes others already: it is enough to say so.
        if tenure.kind() == Kind::Exclusive {
            return Ok(tenure);
        }
        let lost = tenure.lost();
        let behind = async {
            let gate = self.gate().await;
            // On the heap, as it is over before anything else begins.
            let waiter = self.stand_behind(&tenure).await?;
            Ok((gate, waiter))
        };
        let behind = tokio::select! {
            biased;
            error = lost => Err(error),
            behind = behind => behind,
        };
        let (gate, waiter) = match behind {
            Ok(behind) => behind,
            Err(error) => return Err((tenure, error)),
        };
        let (token, owner) = (tenure.token(), tenure.owner().cloned());
        // Nobody can have come to share it: that needs the gate.
        let mut seat = match tenure.into_seats().map(|seats| seats.into_iter().next()) {
            Ok(Some(seat)) => seat,
            Ok(None) => unreachable!("a tenure has a seat"),
            Err(tenure) => return Err((tenure, self.not_upgradable(1))),
        };
        match self.step_forward(&mut seat, waiter).await {
            Ok(tenure) => {
                known_at(gate, &tenure);
                Ok(tenure)
            }
            Err(error) => {
                // Its ticket was given up, or was gone.
                let loss = seat.lose("it was given up to be upgraded");
                // Not to be taken for one that leaves all as it was.
                let error = if error.is_refusal() { loss } else { error };
                let tenure = Tenure::new(vec![seat], token, Kind::Shared, owner, Vec::new());
                Err((tenure, error))
            }
        }
    }

    /// A writer's ticket at the end of the queue, with nothing before it but the reader's own.
    async fn stand_behind(&self, tenure: &Arc<Tenure>) -> Result<Waiter> {
        let (mine, name) = (&tenure.seat().place, self.name());
        // With the gate in hand, nobody can come to share it meanwhile.
        let sharing = Arc::strong_count(tenure) - 1;
        // A look first: where others are it writes nothing.
        let others = sharing + mine.others(UPGRADING, name, self.queue.claim()).await?;
        if others > 0 {
            return Err(self.not_upgradable(others));
        }
        let waiter = self.queue.join_behind().await?;
        let ahead = waiter.ahead().await?;
        let mine = mine.ticket().map(|(ticket, _)| ticket);
        let others = ahead.iter().filter(|other| Some(*other) != mine).count();
        if others == 0 {
            return Ok(waiter);
        }
        let place = waiter.into_place();
        let path = place.path().unwrap_or_default();
        match told(place.leave().await, UPGRADING, name, path) {
            // It stays until the session ends, and blocks others.
            Err(denied @ Error::Denied { .. }) => Err(denied),
            _ => Err(self.not_upgradable(others)),
        }
    }

    /// Removes the reader's own ticket, the only one before the writer's, and is granted.
    async fn step_forward(&self, seat: &mut Seat, mut waiter: Waiter) -> Result<Arc<Tenure>> {
        let path = seat.path();
        let witness = seat.hold.witness();
        let left = tokio::select! {
            biased;
            left = seat.place.leave_first() => left,
            loss = witness.lost() => return Err(loss.while_trying(UPGRADING, &seat.name)),
        };
        told(left, UPGRADING, &seat.name, path)?;
        if let Some(record) = &mut seat.record {
            record.is_released();
        }
        // The one before was ourselves, and ended well.
        waiter.forgo_delay();
        waiter.look_again();
        let hold = waiter.granted().await?;
        Ok(self.tenure(waiter, hold))
    }

    fn not_upgradable(&self, others: usize) -> Error {
        Error::NotUpgradable {
            name: self.name().to_string(),
            others,
        }
    }

    fn held_by(
        &self,
        seat: Seat,
        token: Token,
        kind: Kind,
        owner: Option<crate::owner::Owner>,
    ) -> Arc<Tenure> {
        Tenure::new(vec![seat], token, kind, owner, vec![self.presence(kind)])
    }
}

type Held = OwnedMutexGuard<std::sync::Weak<Tenure>>;

/// The owner's next call finds it.
fn known_at(gate: Option<Held>, tenure: &Arc<Tenure>) {
    if let Some(mut held) = gate {
        *held = Arc::downgrade(tenure);
    }
}
