//! Patterns of locks' names, as a shell has them for files. (pure)
//!
//! `*` stays within a segment, `**` goes over any number of them. A name without such signs stands
//! for itself and all below it, as a directory does.

use std::str::FromStr;

use glob::MatchOptions;
use lockkeeper::LockName;

const SIGNS: [char; 3] = ['*', '?', '['];
const OF_SEGMENTS: MatchOptions = MatchOptions {
    case_sensitive: true,
    require_literal_separator: true,
    require_literal_leading_dot: false,
};

#[derive(Debug, Clone)]
pub(crate) struct Pattern {
    glob: glob::Pattern,
    /// The segments before the first with a sign: all that matches is there or below.
    top: Option<LockName>,
    is_name: bool,
}

impl FromStr for Pattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.split('/').any(str::is_empty) {
            return Err("a pattern is like a name: no '/' at an end, and no '//'".into());
        }
        let plain = text
            .split('/')
            .take_while(|segment| !segment.contains(SIGNS));
        let top = plain.collect::<Vec<_>>().join("/");
        let named = |top: &String| LockName::new(top).map_err(|error| error.to_string());
        Ok(Self {
            glob: glob::Pattern::new(text).map_err(|error| error.to_string())?,
            top: Some(&top)
                .filter(|top| !top.is_empty())
                .map(named)
                .transpose()?,
            is_name: top == text,
        })
    }
}

impl Pattern {
    pub(crate) fn matches(&self, name: &str) -> bool {
        let below = || name.strip_prefix(self.glob.as_str());
        self.glob.matches_with(name, OF_SEGMENTS)
            || self.is_name && below().is_some_and(|rest| rest.starts_with('/'))
    }

    /// The names below which all matches of these patterns are, none of them below another; `None`
    /// if that is everywhere.
    pub(crate) fn tops(patterns: &[Self]) -> Option<Vec<&LockName>> {
        let tops = patterns.iter().map(|pattern| pattern.top.as_ref());
        let mut tops: Vec<&LockName> = tops.collect::<Option<_>>()?;
        // By segments, so that those below a name come right behind it.
        tops.sort_by_key(|top| top.as_str().split('/').collect::<Vec<_>>());
        tops.dedup_by(|below, top| is_below(below.as_str(), top.as_str()));
        Some(tops).filter(|tops| !tops.is_empty())
    }
}

/// Whether a name is another one, or below it.
fn is_below(name: &str, top: &str) -> bool {
    let rest = name.strip_prefix(top);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(text: &str) -> Pattern {
        text.parse().unwrap()
    }

    #[test]
    fn a_star_stays_in_its_segment_and_two_do_not() {
        let names = [
            "orders",
            "orders/42",
            "orders/43",
            "orders/eu/42",
            "ordersx",
            "jobs/42",
        ];
        for (text, expected) in [
            ("*", &["orders", "ordersx"][..]),
            ("orders/*", &["orders/42", "orders/43"]),
            ("orders/?2", &["orders/42"]),
            ("orders/4[3-9]", &["orders/43"]),
            ("orders/**", &["orders/42", "orders/43", "orders/eu/42"]),
            ("**/42", &["orders/42", "orders/eu/42", "jobs/42"]),
            ("*/42", &["orders/42", "jobs/42"]),
            ("**", &names),
            (
                "orders",
                &["orders", "orders/42", "orders/43", "orders/eu/42"],
            ),
            ("orders/eu", &["orders/eu/42"]),
            ("order", &[]),
            ("ORDERS", &[]),
        ] {
            let pattern = pattern(text);
            let matching = names.into_iter().filter(|name| pattern.matches(name));
            assert_eq!(matching.collect::<Vec<_>>(), expected, "{text}");
        }
    }

    #[test]
    fn what_can_match_nothing_is_refused() {
        for (text, why) in [
            ("", "no '/' at an end"),
            ("/orders", "no '/' at an end"),
            ("orders/", "no '/' at an end"),
            ("a//*", "no '//'"),
            ("a/../*", "'..'"),
            ("a/b**", "recursive wildcards"),
            ("a/[b", "invalid range"),
        ] {
            let refused = text.parse::<Pattern>().unwrap_err();
            assert!(refused.contains(why), "{text}: {refused}");
        }
    }

    #[test]
    fn only_what_can_match_is_read() {
        for (texts, expected) in [
            (&["orders/*"][..], Some(&["orders"][..])),
            (&["orders/eu/*/a"], Some(&["orders/eu"])),
            (
                &["b", "a/c", "a/c/*", "a/b/*", "a-c"],
                Some(&["a/b", "a/c", "a-c", "b"]),
            ),
            (&["a", "a/b", "a"], Some(&["a"])),
            (&["a", "*"], None),
            (&[], None),
        ] {
            let patterns: Vec<Pattern> = texts.iter().map(|text| pattern(text)).collect();
            let tops = Pattern::tops(&patterns);
            let tops = tops.map(|tops| tops.iter().map(|top| top.as_str()).collect::<Vec<_>>());
            assert_eq!(tops.as_deref(), expected, "{texts:?}");
        }
    }
}
