//! Fencing tokens. (pure)

use std::fmt;

use serde::{Deserialize, Serialize};

/// The fencing token of a hold: a number that grows with every grant of a lock.
///
/// Hand it to the resource that the lock protects. The resource must refuse a token lower than the
/// highest that it has seen. The lock alone cannot stop a paused or cut-off process that writes
/// after the lock went to another holder; the token can (Kleppmann, *How to do distributed
/// locking*, 2016; Burrows, *Chubby*, OSDI 2006, section 2.4).
///
/// It is the `czxid` of the ticket, the number of the transaction that created it. It grows
/// strictly over the whole ensemble, across sessions and removed directories, while the ensemble
/// keeps its data. A wiped or restored ensemble starts lower: then reset the number that the
/// resource keeps.
///
/// # Examples
///
/// A store that checks tokens:
///
/// ```
/// use lockkeeper::Token;
///
/// #[derive(Default)]
/// struct Store {
///     highest: Option<Token>,
///     value: String,
/// }
///
/// impl Store {
///     fn write(&mut self, token: Token, value: &str) -> Result<(), Token> {
///         match self.highest {
///             Some(highest) if token < highest => Err(highest),
///             _ => {
///                 self.highest = Some(token);
///                 self.value = value.to_owned();
///                 Ok(())
///             }
///         }
///     }
/// }
///
/// let mut store = Store::default();
/// assert!(store.write(Token::from(7), "new holder").is_ok());
/// assert!(store.write(Token::from(5), "paused holder").is_err());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Token(u64);

impl Token {
    pub(crate) fn new(czxid: i64) -> Self {
        // A transaction number is an epoch and a counter; an ensemble would need 2^31 leader
        // changes to make it negative.
        Self(u64::from_ne_bytes(czxid.to_ne_bytes()))
    }

    /// The identity of its ticket.
    pub(crate) fn czxid(self) -> i64 {
        i64::from_ne_bytes(self.0.to_ne_bytes())
    }
}

impl From<u64> for Token {
    fn from(number: u64) -> Self {
        Self(number)
    }
}

impl From<Token> for u64 {
    fn from(token: Token) -> Self {
        token.0
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
