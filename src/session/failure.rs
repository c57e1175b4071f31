//! Why an operation on a session gave no result, and the errors that users are told.
//!
//! Invariant: a failure is final for its operation. A fault that another try may settle is none.

use super::{End, Session};
use crate::error::Error;
use crate::link::size::{self, TooLarge};
use crate::link::{Code, Found, Node};

/// Why an operation on a session gave no result.
#[derive(Debug, Clone)]
pub(crate) enum Failure {
    Answered(Code),
    Ended(End),
    /// The ticket that it was for is no longer ours, for this reason.
    Lost(&'static str),
}

/// The node that was read, if it is there.
pub(crate) fn node_in(found: Option<Found>) -> Result<Option<Node>, Failure> {
    match found {
        Some(Found::Node(node)) => Ok(Some(node)),
        other => nothing_in(other),
    }
}

/// The children that were listed, if their directory is there.
pub(crate) fn children_in(found: Option<Found>) -> Result<Option<Vec<String>>, Failure> {
    match found {
        Some(Found::Children(children)) => Ok(Some(children)),
        other => nothing_in(other),
    }
}

fn nothing_in<T>(found: Option<Found>) -> Result<Option<T>, Failure> {
    Err(Failure::Answered(match found {
        Some(Found::Failed(Code::NoNode)) => return Ok(None),
        Some(Found::Failed(code)) => code,
        other => Code::Other(format!("unexpected answer {other:?}")),
    }))
}

/// The error for a request that is not sent, because servers would not read it.
pub(crate) fn too_large(doing: &'static str, what: impl ToString, too_large: TooLarge) -> Error {
    Error::TooLarge {
        doing,
        what: what.to_string(),
        bytes: too_large.0,
        limit: size::MOST,
    }
}

/// The error for a failure while something was done with a lock.
pub(crate) fn failed(
    session: &Session,
    doing: &'static str,
    name: impl ToString,
    path: &str,
    failure: Failure,
) -> Error {
    match (failure, session.end()) {
        (Failure::Lost(why), _) => Error::place_lost(name, why),
        (Failure::Ended(end), _) | (Failure::Answered(_), Some(end)) => {
            end.while_trying(doing, name)
        }
        (Failure::Answered(code), None) => refused(session, doing, path, &code),
    }
}

/// The error for a server's answer that the algorithm cannot go on from.
pub(crate) fn refused(session: &Session, doing: &'static str, path: &str, code: &Code) -> Error {
    answered(session.servers(), doing, path, code)
}

/// The same, where there is no session yet.
pub(crate) fn answered(servers: &str, doing: &'static str, path: &str, code: &Code) -> Error {
    let (path, servers) = (path.to_owned(), servers.to_owned());
    match code {
        Code::NoAuth(right) => Error::Denied {
            doing,
            path,
            needs: *right,
            servers,
        },
        Code::TooLarge(over) => too_large(doing, path, *over),
        code => Error::Refused {
            doing,
            path,
            servers,
            why: code.to_string(),
        },
    }
}
