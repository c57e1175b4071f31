//! Why an operation on a session gave no result, and the errors that users are told.
//!
//! Invariant: a failure is final for its operation. A fault that another try may settle is none.

use super::{End, Session};
use crate::error::Error;
use crate::link::size::{self, TooLarge};
use crate::link::{Code, Found, Link};

/// Why an operation on a session gave no result.
#[derive(Debug, Clone)]
pub(crate) enum Failure {
    Answered(Code),
    Ended(End),
}

/// The failure of an answer that is not the one that was asked for.
pub(crate) fn unexpected(found: Option<Found>) -> Failure {
    Failure::Answered(match found {
        Some(Found::Failed(code)) => code,
        other => Code::Other(format!("unexpected answer {other:?}")),
    })
}

/// The error for a server's answer that the algorithm cannot go on from.
pub(crate) fn refused(link: &dyn Link, doing: &'static str, path: &str, code: &Code) -> Error {
    let (path, servers) = (path.to_owned(), link.servers().to_owned());
    match code {
        Code::NoAuth(right) => Error::Denied {
            doing,
            path,
            needs: *right,
            servers,
        },
        Code::TooLarge(too_large) => self::too_large(doing, path, *too_large),
        code => Error::Refused {
            doing,
            path,
            servers,
            why: code.to_string(),
        },
    }
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
    match failure {
        Failure::Ended(end) => end.while_trying(doing, name),
        Failure::Answered(code) => match session.link() {
            Ok(link) => refused(&*link, doing, path, &code),
            Err(end) => end.while_trying(doing, name),
        },
    }
}
