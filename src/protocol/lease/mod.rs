//! The lease: until when the servers surely still believe in our session. (pure)
//!
//! Time is an argument. Invariant: `valid_until` lies before the earliest moment at which the
//! ensemble can have given our locks to somebody else, as long as clocks run at the same rate and
//! the servers' tick is what the user declares, or at most half of the session timeout. A lease
//! that has ended never comes back: what is answered afterwards begins another one.
//!
//! A follower tells the leader of our requests only when the leader pings it, up to half a tick
//! later, whatever the request (ZooKeeper's `LearnerSessionTracker` and `LearnerHandler`). So an
//! answer proves nothing of the request that it answers, only of older ones: the *anchor* is the
//! newest request that had been answered a *lag* before this one was sent: 0.55 of a tick that is
//! declared (half of it, and a tenth of that for the ping's way), otherwise a quarter of the
//! timeout. The lease ends nine tenths of the timeout after the anchor was sent. An observer behind
//! an ObserverMaster tells a follower first, which tells the leader: that takes a whole tick, and
//! holds only for timeouts of at least four ticks, or with twice the tick declared. Simpler rules
//! failed on a real ensemble: "the last answered request and six tenths" in 11 to 107 of 400
//! trials, and a lease on the first answer after a silence, which a follower gave 0.003 timeouts
//! before the session was gone.
//!
//! A server that stands alone ends the session itself. It counts from each request when the request
//! comes, before the answer (`ZooKeeperServer.submitRequestNow` and `touch`): while a lease lasts,
//! each of its answers is an anchor by itself. That is not so when no lease lasts:
//! `SessionTrackerImpl.run` first takes the sessions that are due out of its queue, then marks one
//! after the other as closing, and still answers a request that comes in between. Two answers with
//! the lag between them have that behind them. Each answer tells which server gave it, so nothing
//! is taken back when the next answer comes from another server: if that server was restarted as a
//! member of an ensemble, all sessions have their whole timeout from then on.
//!
//! The client's session state proves nothing: it reports an expiry when the servers may have
//! granted the lock already. So a grant needs a lease.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::time::Duration;

/// Of the session timeout.
pub(crate) const TENTHS: u32 = 9;

/// A moment of the session's clock, which counts suspended time too: how long after the clock's
/// zero.
pub(crate) type Moment = Duration;

/// Until when the session is surely alive, folded over the requests that were answered.
#[derive(Debug, Clone)]
pub(crate) struct Lease {
    timeout: Duration,
    /// How long after its answer a request is surely known to the server that ends the session, if
    /// that is another server than the one that answers.
    lag: Duration,
    /// Answered requests that are an anchor or may become one, in the order in which they were
    /// sent.
    answered: VecDeque<Answered>,
    valid_until: Option<Moment>,
}

#[derive(Debug, Clone, Copy)]
struct Answered {
    sent: Moment,
    at: Moment,
}

/// The server that has answered a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum By {
    /// A server that surely stands alone.
    Standalone,
    /// One of an ensemble, or it is not known.
    Any,
}

impl Lease {
    /// A session that was opened by a handshake sent and answered then, at servers that have this
    /// tick if it is known. Its creation is a commit of the quorum, and the leader counts from it.
    pub(crate) fn new(timeout: Duration, tick: Option<Duration>, sent: Moment, at: Moment) -> Self {
        let mut lease = Self {
            timeout,
            lag: tick.map_or(timeout / 4, |tick| tick * 11 / 20),
            answered: VecDeque::from([Answered { sent, at }]),
            valid_until: None,
        };
        lease.valid_until = Some(lease.end_after(sent)).filter(|end| at < *end);
        lease
    }

    /// A server has answered a request of ours. Its identity holds for this answer alone: the next
    /// one may be another's.
    pub(crate) fn answered(&mut self, sent: Moment, now: Moment, by: By) {
        self.end_if_over(now);
        let settled = |old: &Answered| old.at + self.lag <= sent;
        let anchor = self.answered.iter().rev().find(|old| settled(old)).copied();
        // Older requests will never be anchors again.
        while self.answered.get(1).is_some_and(settled) {
            self.answered.pop_front();
        }
        self.answered.push_back(Answered { sent, at: now });
        if let Some(anchor) = anchor {
            self.extend(anchor.sent, now);
        }
        if by == By::Standalone && self.valid_until.is_some() {
            self.extend(sent, now);
        }
    }

    fn extend(&mut self, anchor: Moment, now: Moment) {
        let end = self.end_after(anchor);
        self.valid_until = self.valid_until.max(Some(end).filter(|end| now < *end));
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

    /// When the next heartbeat is to be sent: every sixth of the timeout, every tenth while
    /// something is held, or a lag after an answer that may begin a lease.
    pub(crate) fn next_heartbeat(&self, last_sent: Moment, is_holding: bool) -> Moment {
        let rhythm = if is_holding {
            self.timeout / 10
        } else {
            self.rhythm()
        };
        let next = last_sent + rhythm;
        match (self.valid_until, self.answered.back()) {
            // Once it is sent, it is waited for.
            (None, Some(first)) => next.max(first.at + self.lag),
            _ => next,
        }
    }

    /// From heartbeat to heartbeat, while nothing is held.
    pub(crate) fn rhythm(&self) -> Duration {
        self.timeout / 6
    }

    /// Whether heartbeats are missing: the newest answered request is older than a third of the
    /// timeout.
    pub(crate) fn is_late(&self, now: Moment) -> bool {
        let newest = self.answered.back().map_or(Moment::ZERO, |last| last.sent);
        now > newest + self.timeout / 3
    }

    fn end_after(&self, anchor: Moment) -> Moment {
        anchor + length(self.timeout)
    }
}

/// How long a lease lasts after its anchor was sent.
pub(crate) fn length(timeout: Duration) -> Duration {
    timeout * TENTHS / 10
}
