//! Lock names: checked before any I/O, so that no name can break another lock's queue. (pure)
//!
//! Invariant: a [`LockName`] is a relative path that ZooKeeper accepts, and none of its segments
//! reads as a ticket. It knows nothing of roots or chroots.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use uuid::Uuid;

use crate::brief::Brief;
use crate::error::Error;
use crate::protocol::ticket::Ticket;

/// The longest segment, in bytes, as in most file systems; it keeps watched paths short.
const MAX_SEGMENT: usize = 255;
/// The longest name, in bytes: a session watches at most 96 KiB of paths.
const MAX_NAME: usize = 4096;

/// The checked name of a lock: one or more segments separated by `/`.
///
/// These names are refused, and the error has the rule:
///
/// - an empty name or segment (`//`, a leading or trailing `/`), and `.` and `..`,
/// - control characters, and other characters that ZooKeeper refuses,
/// - a segment over 255 bytes, and a name over 4096 bytes,
/// - `zookeeper` as the first segment, which ZooKeeper reserves,
/// - a segment that reads as a ticket: `lock-0000000007` inside `orders` would stand at the head of
///   the queue of `orders` for ever.
///
/// A lock may be below another lock's name, as `orders/42` is below `orders`. Then the upper lock
/// is never alone in its directory, so even a free lock costs it a list of the directory.
///
/// # Examples
///
/// ```
/// use lockkeeper::LockName;
///
/// assert!(LockName::new("orders/42").is_ok());
/// assert!(LockName::new("orders//42").is_err());
/// let escaped = LockName::escape("https://example.com/a b");
/// assert_eq!(escaped.as_str(), "https:%2F%2Fexample.com%2Fa b");
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LockName(Arc<str>);

impl LockName {
    /// Checks a name.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidName`] with the broken rule.
    pub fn new(name: impl AsRef<str>) -> Result<Self, Error> {
        let name = name.as_ref();
        match fault(name) {
            None => Ok(Self(name.into())),
            Some(why) => Err(Error::InvalidName {
                name: name.into(),
                why,
            }),
        }
    }

    /// Makes a legal name of one segment out of any string.
    ///
    /// Different strings give different names. Illegal characters become `%` and their hexadecimal
    /// bytes. A string that is too long for one segment keeps its beginning, and ends in a 128-bit
    /// hash of the whole.
    pub fn escape(any: impl AsRef<str>) -> Self {
        let any = any.as_ref();
        let mut legal: String = any.chars().map(escape_char).collect();
        if legal.is_empty() {
            // A lone % cannot come out of escape_char.
            legal.push('%');
        }
        if fault(&legal).is_some() && legal.len() <= MAX_SEGMENT {
            // `.`, `..`, `zookeeper` and tickets are made of legal characters: hide the first one.
            let first = legal.remove(0);
            legal.insert_str(0, &format!("%{:02X}", u32::from(first)));
        }
        if legal.len() > MAX_SEGMENT {
            let hash = Uuid::new_v5(&Uuid::NAMESPACE_OID, any.as_bytes());
            let mut end = 200;
            while !legal.is_char_boundary(end) {
                end -= 1;
            }
            legal = format!("{}%-{hash}", &legal[..end]);
        }
        Self(legal.into())
    }

    /// The name as text, without root or chroot.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub(crate) fn of<N: TryInto<Self, Error: Into<Error>>>(name: N) -> Result<Self, Error> {
        name.try_into().map_err(Into::into)
    }

    /// Several names, as one text.
    pub(crate) fn list<'a>(names: impl Iterator<Item = &'a Self>) -> String {
        names.map(Self::as_str).collect::<Vec<_>>().join(", ")
    }
}

fn escape_char(c: char) -> String {
    if c == '/' || c == '%' || !is_legal(c) {
        let mut bytes = [0; 4];
        c.encode_utf8(&mut bytes)
            .bytes()
            .map(|byte| format!("%{byte:02X}"))
            .collect()
    } else {
        c.into()
    }
}

/// The broken rule, if any.
fn fault(name: &str) -> Option<&'static str> {
    Some(match name {
        "" => "a name must not be empty",
        _ if name.starts_with('/') => {
            "a name must not start with '/' (it is relative to the root of the keeper)"
        }
        _ if name.ends_with('/') => "a name must not end with '/'",
        _ if name.len() > MAX_NAME => "a name must not be longer than 4096 bytes",
        _ if name == "zookeeper" || name.starts_with("zookeeper/") => {
            "the first segment 'zookeeper' is kept by ZooKeeper for itself"
        }
        _ => return name.split('/').find_map(segment_fault),
    })
}

fn segment_fault(segment: &str) -> Option<&'static str> {
    Some(match segment {
        "" => "a segment must not be empty ('//')",
        "." | ".." => "a segment must not be '.' or '..'",
        _ if segment.len() > MAX_SEGMENT => "a segment must not be longer than 255 bytes",
        _ if !segment.chars().all(is_legal) => {
            "a segment must not hold control characters or others that ZooKeeper refuses"
        }
        _ if Ticket::parse(segment).is_some() => {
            "a segment must not read as a ticket (like 'lock-0000000007'): it would join the queue above it"
        }
        _ => return None,
    })
}

/// The characters that ZooKeeper's `PathUtils.validatePath` accepts. It looks at UTF-16 units, so
/// it refuses the private use area, and (as surrogates) all characters beyond the basic plane.
fn is_legal(c: char) -> bool {
    !matches!(u32::from(c), 0..=0x1f | 0x7f..=0x9f | 0xd800..=0xf8ff | 0xfff0..)
}

impl FromStr for LockName {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        Self::new(name)
    }
}

impl AsRef<str> for LockName {
    fn as_ref(&self) -> &str {
        self.as_str()
    }
}

impl fmt::Display for LockName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for LockName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", Brief(&*self.0))
    }
}

macro_rules! checked_as_names {
    ($($(#[$note:meta])* $text:ty),+ $(,)?) => {$(
        $(#[$note])*
        impl TryFrom<$text> for LockName {
            type Error = Error;

            fn try_from(name: $text) -> Result<Self, Error> {
                Self::new(name)
            }
        }
    )+};
}

checked_as_names! {
    &str,
    String,
    &String,
    /// Of a list of names, as `["a", "b"].iter()` gives it.
    &&str,
    Cow<'_, str>,
}

impl From<LockName> for String {
    fn from(name: LockName) -> Self {
        name.as_str().into()
    }
}

impl From<&Self> for LockName {
    fn from(name: &Self) -> Self {
        name.clone()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn each_illegal_name_is_refused_with_its_rule() {
        let cases = [
            ("", "empty"),
            (".", "'.'"),
            ("a/../b", "'..'"),
            ("a//b", "'//'"),
            ("/a", "start"),
            ("a/", "end"),
            ("a\u{1}", "control"),
            ("a\u{7f}", "control"),
            ("party \u{1f389}", "control"),
            ("zookeeper", "ZooKeeper"),
            ("zookeeper/quota", "ZooKeeper"),
        ];
        for (name, word) in cases {
            let error = LockName::new(name).unwrap_err().to_string();

            assert!(error.contains(word), "{name:?}: {error}");
        }
        assert!(LockName::new("x".repeat(256)).is_err());
        assert!(LockName::new("x/".repeat(3000) + "x").is_err());
    }

    // docs/failures.md row 84.
    #[test]
    fn a_segment_that_reads_as_a_ticket_is_refused() {
        for name in [
            "lock-0000000007",
            "orders/lock-0000000007",
            "orders/lock-0000000007/x",
            "orders/__READ__0000000001",
            "orders/_c_01234567-0123-0123-0123-0123456789ab-lock-0000000001",
            "orders/0123456789abcdef0123456789abcdef__lock__0000000001",
            "lock--2147483648",
        ] {
            let error = LockName::new(name).unwrap_err().to_string();

            assert!(error.contains("ticket"), "{name}: {error}");
        }
        assert!(LockName::new("orders/lock-7").is_ok());
    }

    #[test]
    fn usual_names_are_legal() {
        for name in [
            "orders",
            "orders/42",
            "a b",
            "größe",
            "a.b",
            "...",
            "zookeeper2",
            "x/zookeeper",
            "%",
        ] {
            assert!(LockName::new(name).is_ok(), "{name}");
        }
    }

    proptest! {
        #[test]
        fn escape_makes_any_string_legal(any in any::<String>()) {
            let name = LockName::escape(&any);

            prop_assert!(fault(name.as_str()).is_none(), "{name}");
            prop_assert!(!name.as_str().contains('/'));
        }

        #[test]
        fn escape_keeps_different_strings_apart(a in "[./%a\u{0}]{0,4}", b in "[./%a\u{0}]{0,4}") {
            prop_assert_eq!(a == b, LockName::escape(&a) == LockName::escape(&b));
        }

        #[test]
        fn no_input_panics(any in any::<String>()) {
            let _ignored = LockName::new(any);
        }
    }

    #[test]
    fn escape_hides_what_is_legal_letter_by_letter_but_not_as_a_whole() {
        for any in [
            "",
            ".",
            "..",
            "zookeeper",
            "lock-0000000007",
            &"x".repeat(300),
            &"/".repeat(100),
        ] {
            let name = LockName::escape(any);

            assert!(fault(name.as_str()).is_none(), "{any} -> {name}");
        }
        assert_ne!(
            LockName::escape("x".repeat(300)),
            LockName::escape("x".repeat(301))
        );
    }
}
