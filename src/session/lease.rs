//! The lease: until when the servers surely still believe in our session. (pure)
//!
//! Time is an argument. Invariant: `valid_until` lies before the earliest moment at which the ensemble can have given our
//! locks to somebody else, as long as clocks run at the same rate and the servers' tick is at most half of the session
//! timeout. A lease that has ended never comes back: what is answered afterwards begins another one.
//!
//! A follower tells the leader of our requests only when the leader pings it, up to half a tick later, whatever the
//! request (ZooKeeper's `LearnerSessionTracker` and `LearnerHandler`). So an answer proves nothing of the request that it
//! answers, only of older ones: the *anchor* is the newest request that had been answered a quarter of the timeout before
//! this one was sent, and the lease ends nine tenths of the timeout after the anchor was sent. Simpler rules failed on a
//! real ensemble: "the last answered request and six tenths" in 11 to 107 of 400 trials, and a lease on the first answer
//! after a silence, which a follower gave 0.003 timeouts before the session was gone.

use std::collections::VecDeque;
use std::time::Duration;

/// A moment of the session's clock, which counts suspended time too: how long after the clock's zero.
pub(crate) type Moment = Duration;

/// Until when the session is surely alive, folded over the requests that were answered.
#[derive(Debug, Clone)]
pub(crate) struct Lease {
    timeout: Duration,
    /// Answered requests that are an anchor or may become one, in the order in which they were sent.
    answered: VecDeque<Answered>,
    valid_until: Option<Moment>,
}

#[derive(Debug, Clone, Copy)]
struct Answered {
    sent: Moment,
    at: Moment,
}

impl Lease {
    /// A session that was opened by a handshake sent and answered then. Its creation is a commit of the quorum, and the
    /// leader counts from it.
    pub(crate) fn new(timeout: Duration, sent: Moment, at: Moment) -> Self {
        let mut lease = Self {
            timeout,
            answered: VecDeque::from([Answered { sent, at }]),
            valid_until: None,
        };
        lease.valid_until = Some(lease.end_after(sent)).filter(|end| at < *end);
        lease
    }

    /// The server has answered a request of ours.
    pub(crate) fn answered(&mut self, sent: Moment, now: Moment) {
        self.end_if_over(now);
        let settled = |old: &Answered| old.at + self.timeout / 4 <= sent;
        let anchor = self.answered.iter().rev().find(|old| settled(old)).copied();
        // Older requests will never be anchors again.
        while self.answered.get(1).is_some_and(settled) {
            self.answered.pop_front();
        }
        self.answered.push_back(Answered { sent, at: now });
        if let Some(anchor) = anchor {
            let end = self.end_after(anchor.sent);
            self.valid_until = self.valid_until.max(Some(end).filter(|end| now < *end));
        }
    }

    /// Until when the lease lasts, if one does now.
    pub(crate) fn valid_until(&self, now: Moment) -> Option<Moment> {
        self.valid_until.filter(|end| now < *end)
    }

    /// Whether a lease has ended that nobody was told of yet. True once for each lease.
    pub(crate) fn end_if_over(&mut self, now: Moment) -> bool {
        let is_over = self.valid_until.take_if(|end| *end <= now).is_some();
        if is_over {
            // What was answered before a lease ended proves nothing for the next one.
            self.answered.clear();
        }
        is_over
    }

    /// When the next beat is to be sent: every sixth of the timeout, or a quarter after an answer that may begin a lease.
    pub(crate) fn next_beat(&self, last_sent: Moment) -> Moment {
        match (self.valid_until, self.answered.back()) {
            (None, Some(first)) => first.at + self.timeout / 4,
            _ => last_sent + self.timeout / 6,
        }
    }

    /// Whether a beat is missing: the newest answered request is older than two beats.
    pub(crate) fn is_late(&self, now: Moment) -> bool {
        let newest = self.answered.back().map_or(Moment::ZERO, |last| last.sent);
        now > newest + self.timeout / 3
    }

    fn end_after(&self, anchor: Moment) -> Moment {
        anchor + self.timeout * 9 / 10
    }
}
