//! Pauses between tries: each one is longer, so that busy servers get less to do. (pure)
//!
//! A throttled request or a moved session means "not now", not "no". It is asked again, like an
//! unknown outcome. Only a lack of permission ends the janitor's tries.

use std::time::Duration;

const SHORTEST_PAUSE: Duration = Duration::from_millis(5);
/// The longest pause between two tries.
pub(crate) const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// How often a try failed.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Setbacks(u32);

impl Setbacks {
    pub(crate) fn count(self) -> u32 {
        self.0
    }

    /// Another try failed: the pause before the next one.
    pub(crate) fn pause(&mut self) -> Duration {
        let doubled = self.0.min(7);
        self.0 = self.0.saturating_add(1);
        LONGEST_PAUSE.min(SHORTEST_PAUSE * (1 << doubled))
    }

    /// As [`pause`](Self::pause), where another client was faster: the first new try is made at
    /// once.
    pub(crate) fn pause_after_a_race(&mut self) -> Duration {
        let is_first = self.0 == 0;
        let pause = self.pause();
        if is_first { Duration::ZERO } else { pause }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest() {
        let mut setbacks = Setbacks::default();

        let pauses: Vec<u128> = (0..9).map(|_| setbacks.pause().as_millis()).collect();

        assert_eq!(pauses, [5, 10, 20, 40, 80, 160, 320, 500, 500]);
        assert_eq!(setbacks.count(), 9);
        assert_eq!(Setbacks::default().pause_after_a_race(), Duration::ZERO);
        assert_eq!(setbacks.pause_after_a_race(), LONGEST_PAUSE);
    }
}
