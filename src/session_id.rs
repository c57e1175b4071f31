//! The number of a session, in the form in which the servers print it. (pure)

use std::fmt;
use std::str::FromStr;

use crate::error::Error;

/// The number of a ZooKeeper session.
///
/// It prints as hexadecimal, as the servers' logs and their commands `cons` and `dump` do. Text is
/// read in the same form. `i64` is the form of ZooKeeper's protocol.
///
/// # Examples
///
/// ```
/// use lockkeeper::SessionId;
///
/// let session: SessionId = "0x100000a1b2c0001".parse()?;
/// assert_eq!(session.to_string(), "0x100000a1b2c0001");
/// assert_eq!(SessionId::from(i64::from(session)), session);
/// # Ok::<(), lockkeeper::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(i64);

impl From<i64> for SessionId {
    fn from(id: i64) -> Self {
        Self(id)
    }
}

impl From<SessionId> for i64 {
    fn from(id: SessionId) -> Self {
        id.0
    }
}

/// Reads hexadecimal digits, with or without `0x` before them. Other text is an
/// [`Error::InvalidOption`].
impl FromStr for SessionId {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let digits = text.strip_prefix("0x").unwrap_or(text);
        match u64::from_str_radix(digits, 16) {
            Ok(id) if !digits.starts_with('+') => Ok(Self(i64::from_ne_bytes(id.to_ne_bytes()))),
            _ => {
                let why = "it is not a hexadecimal number of 64 bits, like 0x100000a1b2c0001";
                Err(Error::invalid("session id", text, why))
            }
        }
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

impl fmt::Debug for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SessionId({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_id_reads_what_it_prints() {
        for id in [0, 1, i64::MAX, i64::MIN, -1] {
            let id = SessionId::from(id);

            assert_eq!(id.to_string().parse::<SessionId>().unwrap(), id);
        }
        assert_eq!(SessionId::from(255).to_string(), "0xff");
        assert_eq!("ff".parse::<SessionId>().unwrap(), SessionId::from(255));
        for text in ["", "0x", "+1", "0x+1", "-1", "g", "0x10000000000000000"] {
            let error = text.parse::<SessionId>().unwrap_err();

            assert!(error.is_invalid(), "{text:?}: {error}");
        }
    }
}
