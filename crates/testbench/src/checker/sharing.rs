//! Locks that several may hold at once: no more of one is held than there is. (pure)
//!
//! Their guards have no tokens that would order them, so it goes by what they say of themselves.

use std::time::Duration;

use super::hold::Hold;

/// S1: what those take who say that they hold, or whose release was done later, is no more than
/// there is.
pub(super) fn crowding(holds: &[Hold<'_>], say: &mut impl FnMut(&'static str, String)) {
    let shared = || {
        let shared = holds.iter().filter(|hold| !hold.is_of_an_exclusive_lock());
        shared.filter(|hold| hold.held)
    };
    for one in shared() {
        let is_held = |other: &&Hold<'_>| {
            let until = other.said_until.max(other.surely_until);
            other.token != one.token && other.granted <= one.granted && one.granted < until
        };
        let beside: Vec<&Hold<'_>> = shared().filter(is_held).collect();
        let taken = one.takes + beside.iter().map(|other| other.takes).sum::<u64>();
        if taken > one.of {
            let who: Vec<(&str, Duration)> = beside
                .iter()
                .map(|other| {
                    (
                        other.client,
                        Duration::from_nanos(one.granted - other.granted),
                    )
                })
                .collect();
            say(
                "S1",
                format!(
                    "{} got {} of {} while others held {}: {who:?} before",
                    one.client,
                    one.takes,
                    one.of,
                    taken - one.takes
                ),
            );
        }
    }
}
