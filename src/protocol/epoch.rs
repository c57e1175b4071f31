//! How a store that may lose what it has answered keeps two holders apart. (pure)
//!
//! A store has a *history*, which is another one after each start and each promotion. In a new
//! history all sessions are over, and nobody gets one until no holder of before can think so any
//! more. In a history that goes on, a session that looks late is marked at first sight and ended at
//! a second one, with a pause between: one step of the server's clock ends no session that sends
//! its heartbeats.
//!
//! Invariant: these numbers bear out the promises of `docs/engines.md` only together; the
//! exhaustive search of `src/tests/epochs/` finds two holders when one of them is a tick shorter.
//! It knows nothing of a store's language: the script, or the statement, gets them as arguments.

use std::time::Duration;

use super::lease;

/// The largest session timeout that a root allows, unless the root says otherwise already.
pub(crate) const LONGEST: Duration = Duration::from_secs(30);
/// How long a primary that was cut off may still answer. Its operator bounds that.
pub(crate) const CUT_OFF: Duration = Duration::from_secs(3);
/// How far the server's clock may step forward while nobody is let in.
const CLOCK_STEP: Duration = Duration::from_secs(2);
/// In a new history nobody gets a session for the largest timeout and this.
pub(crate) const MARGIN: Duration = margin(CUT_OFF, CLOCK_STEP);

/// What is added to the largest timeout: a holder's last heartbeat may have been answered by the
/// old primary, and the pause is counted by the new one's clock.
pub(crate) const fn margin(cut_off: Duration, clock_step: Duration) -> Duration {
    cut_off.saturating_add(clock_step)
}

/// How long a session that looks late is given to send a heartbeat.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Reaping {
    /// A silent holder is told in time if the clock steps forward by three tenths of the timeout.
    Usual,
    /// If it steps forward once, by whatever. The lock of a crashed holder is free later.
    #[cfg_attr(not(feature = "redis"), allow(dead_code))]
    Strict,
}

impl Reaping {
    /// Of the session timeout. It is more than the interval of heartbeats, a sixth.
    #[cfg_attr(not(feature = "redis"), allow(dead_code))]
    pub(crate) const fn tenths(self) -> u32 {
        match self {
            Self::Usual => 2,
            Self::Strict => lease::TENTHS,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::lease::Lease;

    #[test]
    fn a_session_is_given_longer_than_from_heartbeat_to_heartbeat() {
        let timeout = Duration::from_secs(10);
        let lease = Lease::new(timeout, None, Duration::ZERO, Duration::ZERO);

        for reaping in [Reaping::Usual, Reaping::Strict] {
            assert!(timeout * reaping.tenths() / 10 > lease.rhythm());
        }
    }

    #[test]
    fn strict_reaping_waits_for_a_whole_lease() {
        let timeout = Duration::from_secs(10);

        let pause = timeout * Reaping::Strict.tenths() / 10;

        assert_eq!(pause, lease::length(timeout));
    }
}
