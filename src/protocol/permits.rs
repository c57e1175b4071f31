//! Permits: the nodes that hold them, the stored limit, and whether some more fit. (pure)
//!
//! Invariants: a node without a permit's name is never counted; a sum cannot overflow; and nothing
//! fits beside more than the limit allows, as after a resize down. It does not decide which waiter
//! may take them: only the head of the queue may.

use super::mark::{DirectoryData, Mark};

/// What is below a semaphore's name: the tickets of waiters, the permits that are held, and the
/// limit.
pub(crate) const QUEUE: &str = "queue";
pub(crate) const HELD: &str = "held";
pub(crate) const LIMIT: &str = "limit";

/// The start of a permit's name; then how many it holds, a dash, and what tells it from others.
const START: &str = "permit-";

/// Whether some permits can be taken now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PermitVerdict {
    Fits,
    /// Not before others give some back, or the limit grows.
    Full,
    /// Not with this limit, whatever is released.
    Never,
}

/// The start of the name of a node that holds so many; a number or the attempt comes behind it.
pub(crate) fn start_of(permits: u32) -> String {
    format!("{START}{permits}-")
}

/// How many permits the node with this name holds; `None` for anything that is not a permit.
pub(crate) fn weight(name: &str) -> Option<u32> {
    let (digits, rest) = name.strip_prefix(START)?.split_once('-')?;
    parse_limit(digits.as_bytes()).filter(|_| !rest.is_empty())
}

/// How many permits are held in a directory with these children.
pub(crate) fn held<'a>(children: impl IntoIterator<Item = &'a str>) -> u64 {
    let each = children.into_iter().filter_map(weight);
    each.map(u64::from).sum()
}

/// Judges by the children of the directory of permits, as it was when the limit was read.
pub(crate) fn judge<'a>(
    children: impl IntoIterator<Item = &'a str>,
    asked: u32,
    limit: u32,
) -> PermitVerdict {
    if asked > limit {
        PermitVerdict::Never
    } else if held(children) + u64::from(asked) <= u64::from(limit) {
        PermitVerdict::Fits
    } else {
        PermitVerdict::Full
    }
}

/// What a head writes with its permits, as far as it is not only checked: its mark into the queue,
/// if that is ours to write over, and the limit as it is.
///
/// It goes by the data and the version of the queue. A queue that was removed and made again starts
/// again, and a request of ours that is still under way would take it for the old one. So a head
/// that leaves no mark, or is the first in a new queue, moves the limit's version on.
pub(crate) fn writes(mark: Option<Mark>, queue: (&[u8], i32), limit: u32) -> [Option<Vec<u8>>; 2] {
    let (data, version) = queue;
    let mark = mark.filter(|_| DirectoryData::parse(data).is_ours());
    let moves_on = !(mark.is_some() && version > 0);
    let limit = moves_on.then(|| limit_to_bytes(limit));
    [mark.map(Mark::to_bytes), limit]
}

/// How many are left of the limit.
pub(crate) fn left<'a>(children: impl IntoIterator<Item = &'a str>, limit: u32) -> u32 {
    let left = u64::from(limit).saturating_sub(held(children));
    u32::try_from(left).unwrap_or(limit)
}

/// The bytes of a stored limit.
pub(crate) fn limit_to_bytes(limit: u32) -> Vec<u8> {
    limit.to_string().into_bytes()
}

/// Reads a stored limit: a number from 1 on, in decimal digits and nothing else.
pub(crate) fn parse_limit(digits: &[u8]) -> Option<u32> {
    let is_plain = digits.iter().all(u8::is_ascii_digit) && digits.first() != Some(&b'0');
    let text = std::str::from_utf8(digits).ok().filter(|_| is_plain)?;
    text.parse().ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn only_permits_are_counted() {
        for (name, expected) in [
            ("permit-1-0000000000", Some(1)),
            ("permit-4294967295-0000000007", Some(u32::MAX)),
            ("permit-3-01234567-89ab-cdef-0123-456789abcdef", Some(3)),
            ("permit-0-0000000000", None),
            ("permit-01-0000000000", None),
            ("permit-4294967296-0000000000", None),
            ("permit--1-0000000000", None),
            ("permit-+1-0000000000", None),
            ("permit-1-", None),
            ("permit-1", None),
            ("permit-", None),
            ("lease-1-0000000000", None),
            ("lock-0000000001", None),
            ("", None),
        ] {
            assert_eq!(weight(name), expected, "{name}");
        }
    }

    #[test]
    fn only_a_plain_number_is_a_limit() {
        assert_eq!(parse_limit(b"3"), Some(3));
        for data in [
            &b""[..],
            b"0",
            b"+3",
            b" 3",
            b"3\n",
            b"03",
            b"4294967296",
            &[0xff],
        ] {
            assert_eq!(parse_limit(data), None, "{data:?}");
        }
    }

    #[test]
    fn nothing_fits_beside_more_than_the_limit() {
        let names = [start_of(3) + "0", start_of(2) + "1"];
        let names = || names.iter().map(String::as_str);

        assert_eq!(judge(names(), 1, 6), PermitVerdict::Fits);
        assert_eq!(judge(names(), 1, 5), PermitVerdict::Full);
        assert_eq!(judge(names(), 1, 2), PermitVerdict::Full);
        assert_eq!(judge(names(), 3, 2), PermitVerdict::Never);
        assert_eq!((left(names(), 6), left(names(), 2)), (1, 0));
    }

    proptest! {
        #[test]
        fn any_name_is_read(name in any::<String>(), data in prop::collection::vec(any::<u8>(), 0..20)) {
            let _ignored = (weight(&name), parse_limit(&data));
        }

        #[test]
        fn weights_and_limits_survive_the_wire(count in 1..=u32::MAX, seq in 0..=i32::MAX) {
            prop_assert_eq!(weight(&format!("{}{seq:010}", start_of(count))), Some(count));
            prop_assert_eq!(parse_limit(&limit_to_bytes(count)), Some(count));
        }

        // docs/failures.md row 79: whatever is taken when it fits, the sum stays within the limit.
        #[test]
        fn what_is_taken_when_it_fits_stays_within_the_limit(
            asks in prop::collection::vec((1..50_u32, any::<bool>()), 0..60),
            limits in prop::collection::vec(1..60_u32, 1..4),
        ) {
            let mut names: Vec<String> = vec!["lock-0000000001".into()];
            for (at, (asked, gives_back)) in asks.into_iter().enumerate() {
                let limit = limits[at * limits.len() / 60];
                let before = held(names.iter().map(String::as_str));
                if judge(names.iter().map(String::as_str), asked, limit) == PermitVerdict::Fits {
                    names.push(format!("{}{at:010}", start_of(asked)));
                    prop_assert!(held(names.iter().map(String::as_str)) <= u64::from(limit));
                } else {
                    prop_assert!(before + u64::from(asked) > u64::from(limit));
                }
                if gives_back && names.len() > 1 {
                    names.remove(1);
                }
            }
        }
    }
}
