//! The failures of the addresses of a connect string.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use super::Error;

impl Error {
    /// No address gave a session.
    pub(crate) fn unreachable(addresses: Vec<AddressFailure>, waited: Duration) -> Self {
        let source = addresses.iter().find_map(AddressFailure::io_error).cloned();
        Self::Unreachable {
            addresses,
            waited,
            source,
        }
    }

    /// The same error at the end of several tries, with their time in all.
    pub(crate) fn after(mut self, all: Duration) -> Self {
        if let Self::Unreachable { waited, .. } = &mut self {
            *waited = all;
        }
        self
    }
}

/// One address of the connect string, with the reason why it gave no session.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct AddressFailure {
    /// Host and port as in the connect string.
    pub address: String,
    /// The reason.
    pub reason: UnreachableReason,
}

impl AddressFailure {
    pub(crate) fn new(address: String, reason: UnreachableReason) -> Self {
        Self { address, reason }
    }

    /// The failure of the network, if there was one.
    pub(super) fn io_error(&self) -> Option<&Arc<io::Error>> {
        match &self.reason {
            UnreachableReason::NotResolved(error) | UnreachableReason::Refused(error) => {
                Some(error)
            }
            _ => None,
        }
    }
}

impl std::error::Error for AddressFailure {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.io_error().map(|error| error.as_ref() as _)
    }
}

/// The reason why an address gave no session.
#[derive(Clone)]
#[non_exhaustive]
pub enum UnreachableReason {
    /// The host name has no address.
    NotResolved(Arc<io::Error>),
    /// The connection was refused or failed.
    Refused(Arc<io::Error>),
    /// No answer came in time.
    Silent,
    /// The answer is not of ZooKeeper's protocol.
    NotZooKeeper,
    /// It is a ZooKeeper server, but it gave no session in time. Its ensemble has no quorum, it is
    /// starting, or the time was over before it was reached.
    NotServing,
    /// The store may have lost what it knew: it is new, it has started again, or another server has
    /// taken over. For so long it gives no session, because clients of before may still think that
    /// they hold locks.
    Recovering(Duration),
    /// It answers, and gives no session: the reason.
    Refusing(String),
    /// It accepts connections, but gave no session over TLS. A certificate or a name does not
    /// match, the port has no TLS, or the server is not serving.
    NoTlsSession,
}

impl fmt::Debug for UnreachableReason {
    /// On one line: an error lists several of them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotResolved(error) => write!(f, "NotResolved({error})"),
            Self::Refused(error) => write!(f, "Refused({error})"),
            Self::Silent => f.write_str("Silent"),
            Self::NotZooKeeper => f.write_str("NotZooKeeper"),
            Self::NotServing => f.write_str("NotServing"),
            Self::NoTlsSession => f.write_str("NoTlsSession"),
            Self::Recovering(left) => write!(f, "Recovering({left:?})"),
            Self::Refusing(why) => write!(f, "Refusing({why:?})"),
        }
    }
}

impl fmt::Display for AddressFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.address)?;
        match &self.reason {
            UnreachableReason::NotResolved(why) => write!(f, "the name does not resolve ({why})"),
            UnreachableReason::Refused(why) => write!(f, "no connection ({why})"),
            UnreachableReason::Silent => {
                f.write_str("accepts or ignores connections, but stays silent")
            }
            UnreachableReason::NotZooKeeper => {
                f.write_str("answers, but is not a ZooKeeper server")
            }
            UnreachableReason::Recovering(left) => write!(
                f,
                "gives no session for another {left:.1?}: it is new or has started again, and clients of before may still hold locks"
            ),
            UnreachableReason::Refusing(why) => write!(f, "answers, but gives no session ({why})"),
            UnreachableReason::NoTlsSession => f.write_str(
                "can be connected to, but gave no session over TLS (certificates, names, no TLS there, or not serving)",
            ),
            UnreachableReason::NotServing => f.write_str(
                "is a ZooKeeper server, but gave no session in time (no quorum, still starting, or not reached)",
            ),
        }
    }
}

pub(crate) fn list(addresses: &[AddressFailure]) -> String {
    let texts: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    texts.join("; ")
}
