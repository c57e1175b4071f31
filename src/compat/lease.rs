//! The lease of a plain lock. (pure)
//!
//! Invariants: it ends nine tenths of the ttl after the *sending* of the last renewal that the
//! store confirmed. The store counts the ttl from the arrival of that renewal, so a lease ends
//! before the store frees the lock, unless clocks run apart by more than a tenth. A loss is final.

use std::time::Duration;

use crate::protocol::lease::Moment;

/// The part of the ttl for which a confirmed request proves the lock.
const PART: f64 = 0.9;

#[derive(Debug)]
pub(super) struct PlainLease {
    ttl: Duration,
    until: Moment,
    /// A renewal failed, and none succeeded since.
    is_suspect: bool,
    loss: Option<PlainLoss>,
    /// Released without a loss, so there never is one.
    is_released: bool,
}

/// Why a plain lock is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PlainLoss {
    /// No renewal was confirmed in time.
    Expired,
    /// The store says that the lock is not ours.
    Gone,
}

impl PlainLease {
    /// The store confirmed a request that was sent at this moment.
    pub(super) fn new(ttl: Duration, sent: Moment) -> Self {
        Self {
            ttl,
            until: sent + ttl.mul_f64(PART),
            is_suspect: false,
            loss: None,
            is_released: false,
        }
    }

    /// Why it is over, if it is.
    pub(super) fn loss(&mut self, now: Moment) -> Option<PlainLoss> {
        if self.loss.is_none() && now >= self.until {
            self.loss = Some(PlainLoss::Expired);
        }
        self.loss
    }

    /// Its guard gave it up. Whether it is lost all the same.
    pub(super) fn release(&mut self, now: Moment) -> Option<PlainLoss> {
        let loss = self.loss(now);
        self.is_released = loss.is_none();
        loss
    }

    pub(super) fn is_released(&self) -> bool {
        self.is_released
    }

    pub(super) fn until(&self) -> Moment {
        self.until
    }

    pub(super) fn left(&mut self, now: Moment) -> Duration {
        match self.loss(now) {
            Some(_) => Duration::ZERO,
            None => self.until - now,
        }
    }

    pub(super) fn is_suspect(&self) -> bool {
        self.is_suspect
    }

    /// A renewal that was sent at `sent` is confirmed. It cannot revive a lease.
    pub(super) fn renewed(&mut self, sent: Moment, now: Moment) {
        if self.loss(now).is_none() {
            self.until = self.until.max(sent + self.ttl.mul_f64(PART));
            self.is_suspect = false;
        }
    }

    /// A renewal has no answer yet.
    pub(super) fn doubt(&mut self) {
        self.is_suspect = true;
    }

    /// The store gave the lock to another client, or to none.
    pub(super) fn gone(&mut self) {
        self.loss.get_or_insert(PlainLoss::Gone);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(tenths: u64) -> Moment {
        Duration::from_millis(tenths * 100)
    }

    #[test]
    fn it_counts_from_the_sending_and_ends_before_the_ttl() {
        let mut lease = PlainLease::new(at(10), at(5));
        assert_eq!(lease.left(at(6)), at(8));

        lease.renewed(at(7), at(12));
        assert_eq!(lease.left(at(12)), at(4));
        // An answer that is older than another one changes nothing.
        lease.renewed(at(6), at(13));
        assert_eq!(lease.until(), at(16));

        assert_eq!(lease.loss(at(16)), Some(PlainLoss::Expired));
    }

    #[test]
    fn a_loss_is_final() {
        let mut lease = PlainLease::new(at(10), at(0));
        assert_eq!(lease.left(at(9)), Duration::ZERO);
        lease.renewed(at(8), at(9));
        lease.gone();
        assert_eq!(lease.loss(at(1)), Some(PlainLoss::Expired));

        let mut lease = PlainLease::new(at(10), at(0));
        lease.gone();
        assert_eq!(lease.loss(at(1)), Some(PlainLoss::Gone));
        assert_eq!(lease.left(at(1)), Duration::ZERO);
        assert_eq!(lease.release(at(1)), Some(PlainLoss::Gone));
        assert!(!lease.is_released());
    }

    #[test]
    fn a_released_lease_was_not_lost() {
        let mut lease = PlainLease::new(at(10), at(0));
        assert_eq!(lease.release(at(1)), None);
        assert!(lease.is_released());
    }
}
