//! Circles among those who wait for each other. (pure)
//!
//! Invariant: each circle is shown once, and is as short as it can be from where it begins.

use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};

use lockkeeper::Token;

/// One waits for another at a lock.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Wait {
    pub(crate) who: String,
    pub(crate) lock: String,
    pub(crate) on: String,
    /// Of the two.
    pub(crate) tickets: [Token; 2],
}

/// Those that are there in both rounds of reading. Queues are read one after the other, so what one
/// of them shows may be over when another is read; but what is there in both rounds was there
/// between them, all of it at the same time.
pub(super) fn lasting(before: Vec<Wait>, mut now: Vec<Wait>) -> Vec<Wait> {
    let before: HashSet<Wait> = before.into_iter().collect();
    now.retain(|wait| before.contains(wait));
    now
}

/// Circles, each beginning with the owner that comes first by name. An owner that is in one is
/// looked for in no other.
pub(super) fn find(waits: &[Wait]) -> Vec<Vec<Wait>> {
    let mut ways: BTreeMap<&str, Vec<&Wait>> = BTreeMap::new();
    for wait in waits {
        ways.entry(&wait.who).or_default().push(wait);
    }
    let mut told = BTreeSet::new();
    let mut circles = Vec::new();
    for start in ways.keys().copied() {
        if told.contains(start) {
            continue;
        }
        if let Some(circle) = back_to(start, &ways) {
            told.extend(circle.iter().map(|wait| wait.who.clone()));
            circles.push(circle.into_iter().cloned().collect());
        }
    }
    circles
}

/// The shortest way from an owner back to itself.
fn back_to<'a>(start: &str, ways: &BTreeMap<&str, Vec<&'a Wait>>) -> Option<Vec<&'a Wait>> {
    let mut came_by: BTreeMap<&str, &Wait> = BTreeMap::new();
    let mut next = VecDeque::from([start]);
    while let Some(who) = next.pop_front() {
        for wait in ways.get(who).into_iter().flatten() {
            if came_by.contains_key(&*wait.on) {
                continue;
            }
            came_by.insert(&wait.on, wait);
            if wait.on == start {
                return Some(trace(start, &came_by));
            }
            next.push_back(&wait.on);
        }
    }
    None
}

fn trace<'a>(start: &str, came_by: &BTreeMap<&str, &'a Wait>) -> Vec<&'a Wait> {
    let mut circle = Vec::new();
    let mut at = start;
    while let Some(wait) = came_by.get(at) {
        circle.push(*wait);
        at = &wait.who;
        if at == start {
            break;
        }
    }
    circle.reverse();
    circle
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waits(text: &str) -> Vec<Wait> {
        let wait = |word: &str| {
            let (who, on) = word.split_once('>').unwrap();
            Wait {
                who: who.into(),
                lock: format!("{who}{on}"),
                on: on.into(),
                tickets: [Token::from(1), Token::from(2)],
            }
        };
        text.split_whitespace().map(wait).collect()
    }

    fn shown(text: &str) -> Vec<String> {
        let circles = find(&waits(text));
        let show = |circle: &Vec<Wait>| {
            let steps = circle
                .iter()
                .map(|wait| format!("{}>{}", wait.who, wait.on));
            steps.collect::<Vec<_>>().join(" ")
        };
        circles.iter().map(show).collect()
    }

    #[test]
    fn a_circle_is_found_once_and_begins_with_the_first_name() {
        assert_eq!(shown("b>a a>b"), ["a>b b>a"]);
        assert_eq!(shown("c>a a>b b>c"), ["a>b b>c c>a"]);
        assert_eq!(shown("a>b b>a c>d d>c"), ["a>b b>a", "c>d d>c"]);
    }

    #[test]
    fn a_wait_lasts_as_long_as_both_tickets_are_there() {
        let before = waits("a>b b>a c>d");
        let mut now = waits("a>b b>a d>c");
        now[1].tickets[0] = Token::from(3);

        assert_eq!(lasting(before, now), waits("a>b"));
    }

    #[test]
    fn a_line_is_no_circle() {
        assert!(shown("").is_empty());
        assert!(shown("a>b b>c a>c").is_empty());
        assert!(shown("a>b c>b d>c").is_empty());
    }

    #[test]
    fn the_short_way_back_is_shown_and_who_only_waits_for_a_circle_is_not_in_it() {
        assert_eq!(shown("a>b b>c c>a b>a"), ["a>b b>a", "c>a a>b b>c"]);
        assert_eq!(
            shown("a>b b>c c>d d>a b>a c>b"),
            ["a>b b>a", "c>b b>c", "d>a a>b b>c c>d"]
        );
        assert_eq!(shown("0>a a>b b>a"), ["a>b b>a"]);
    }
}
