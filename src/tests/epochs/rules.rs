//! The rules of a store that may lose data, each of which can be taken out. (pure)
//!
//! Invariant: what `Rules::whole` has are the real numbers and decisions of `protocol/`, for a
//! timeout of as many seconds as a session has ticks.

use std::time::Duration;

use crate::protocol::epoch::{Reaping, margin};

/// Milliseconds. All happens at whole ticks; what happens later in a tick is later for the servers.
pub(super) type Ms = i32;

pub(super) const TICK: Ms = 1000;

pub(super) fn ms(time: Duration) -> Ms {
    Ms::try_from(time.as_millis()).unwrap()
}

pub(super) fn time(ms: Ms) -> Duration {
    Duration::from_millis(u64::try_from(ms).unwrap())
}

/// What a call tells its server to compare.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Compared {
    /// Run and replication, on each call.
    Both,
    /// The run only, on each call.
    Run,
    /// Only when the connection was made, which then leads elsewhere.
    AtGreeting,
}

/// What becomes of sessions in a new history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NewHistory {
    EndsSessions,
    /// All deadlines are moved, and grants go on at once.
    ExtendsDeadlines,
    /// Nobody gets a new one for the pause, and the old ones go on.
    GoesOn,
}

/// For how long nobody is let in, beside the margin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pause {
    Longest,
    /// The timeout of the first client that comes.
    OfFirst,
    /// The new history is never noted, so it begins again with each client that asks.
    Endless,
}

/// What a client does after a delete without an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AfterDelete {
    NewSession,
    /// The server refuses what an earlier connection brings.
    NewConnection,
    GoOn,
}

/// Which ticket a delete removes, beside its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Named {
    Number,
    /// Of this session.
    Owner,
    /// With this `czxid`.
    Czxid,
}

/// From where a client reads whether its turn has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReadsFrom {
    Primary,
    Replica,
}

#[derive(Debug, Clone)]
pub(super) struct Rules {
    pub(super) compared: Compared,
    pub(super) new_history: NewHistory,
    pub(super) pause: Pause,
    pub(super) margin: Ms,
    /// A store without meta is judged by how long its server runs.
    pub(super) trusts_uptime: bool,
    /// All but heartbeats is on disk before it is answered.
    pub(super) is_durable: bool,
    pub(super) reaping: Reaping,
    /// Between the first sight and the second, if it is not what the rule says.
    pub(super) reap_pause: Option<Ms>,
    pub(super) has_new_ids: bool,
    pub(super) deletes_name: Named,
    pub(super) after_delete: AfterDelete,
    /// A request may arrive twice.
    pub(super) has_copies: bool,
    pub(super) reads_from: ReadsFrom,
    /// Each client sends a heartbeat at least so often, and none is lost.
    pub(super) heartbeat: Option<Ms>,
    /// No rising token is promised once all data was lost.
    pub(super) excuses_loss: bool,
}

impl Rules {
    /// All rules, for an old primary that answers for so many ticks and clocks that step by so
    /// many.
    pub(super) fn whole(cut_off: Ms, clock_step: Ms) -> Self {
        Self {
            compared: Compared::Both,
            new_history: NewHistory::EndsSessions,
            pause: Pause::Longest,
            margin: ms(margin(time(cut_off * TICK), time(clock_step.max(0) * TICK)))
                + clock_step.min(0) * TICK,
            trusts_uptime: false,
            is_durable: false,
            reaping: Reaping::Usual,
            reap_pause: None,
            has_new_ids: true,
            deletes_name: Named::Owner,
            after_delete: AfterDelete::NewSession,
            has_copies: true,
            reads_from: ReadsFrom::Primary,
            heartbeat: None,
            excuses_loss: true,
        }
    }

    /// As the script for Redis does it. It lets no earlier connection do anything once the session
    /// has moved. So a session goes on after a delete without an answer.
    pub(super) fn of_redis(cut_off: Ms, clock_step: Ms) -> Self {
        Self {
            deletes_name: Named::Czxid,
            after_delete: AfterDelete::NewConnection,
            ..Self::whole(cut_off, clock_step)
        }
    }

    /// For a session with this timeout.
    pub(super) fn reap_pause(&self, timeout: Ms) -> Ms {
        let tenths = Ms::try_from(self.reaping.tenths()).unwrap();
        self.reap_pause.unwrap_or(timeout * tenths / 10)
    }
}

/// What may befall the world, and how often.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(super) struct Faults {
    /// Requests without an answer.
    pub(super) unanswered: u8,
    /// Moments that a restart or a promotion may fall back to, beside the beginning.
    pub(super) kept: u8,
    /// Restarts with what was kept.
    pub(super) restarts: u8,
    /// Promotions of a replica that has what was kept.
    pub(super) promotions: u8,
    /// Promotions of a replica that has nothing.
    pub(super) emptied: u8,
    /// Returns of the old primary, as a replica that is promoted.
    pub(super) returns: u8,
    /// The old primary answers for so many ticks more.
    pub(super) cut_off: u8,
    pub(super) flushes: u8,
    /// Steps of the primary's clock, and how far they go at most, in ticks.
    pub(super) steps: u8,
    pub(super) forward: u8,
    pub(super) backward: u8,
    /// Removals of the empty directory, which begins its numbers again.
    pub(super) collected: u8,
    /// So many of all faults together, but for kept moments.
    pub(super) all: u8,
}
