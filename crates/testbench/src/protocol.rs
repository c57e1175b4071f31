//! How a store's requests and replies look on the wire, where they have no number. (pure)

use std::borrow::Cow;

use super::frames::Operation;
use super::{pg, resp};

/// A direction, or both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    ToServer,
    ToClient,
    Both,
}

/// The protocol of a store beside ZooKeeper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    Redis,
    Postgres,
}

impl Protocol {
    /// Takes one whole request or reply off the front; None until all of it has arrived.
    pub fn take(self, buffer: &mut Vec<u8>, way: Way) -> Option<Vec<u8>> {
        match self {
            _ if buffer.is_empty() => None,
            Self::Redis => resp::take(buffer),
            Self::Postgres => pg::take(buffer, way),
        }
    }

    /// A request as it would be if the connection had prepared nothing.
    pub fn plain<'a>(self, prepared: &mut pg::Prepared, request: &'a [u8]) -> Cow<'a, [u8]> {
        match self {
            Self::Redis => request.into(),
            Self::Postgres => prepared.plain(request),
        }
    }

    /// Whether a piece of the server is no reply.
    pub fn is_message(self, piece: &[u8]) -> bool {
        match self {
            Self::Redis => resp::is_message(piece),
            Self::Postgres => pg::is_message(piece),
        }
    }

    /// Whether a request has a reply.
    pub fn is_answered(self, request: &[u8]) -> bool {
        match self {
            Self::Redis => resp::is_answered(request),
            Self::Postgres => pg::is_answered(request),
        }
    }

    /// Whether it keeps the session alive, or belongs to the connection.
    pub fn is_upkeep(self, request: &[u8]) -> bool {
        match self {
            Self::Redis => resp::is_upkeep(request),
            Self::Postgres => pg::asks(request).is_none_or(|asked| asked.is_upkeep()),
        }
    }

    /// The session that a request is of, and which of its connections it is.
    pub fn session(self, request: &[u8]) -> Option<(i64, i64)> {
        match self {
            Self::Redis => resp::session(request),
            Self::Postgres => pg::asks(request)?.session(),
        }
    }

    /// What ZooKeeper's protocol calls a request of the link.
    pub fn operation(self, request: &[u8]) -> Option<Operation> {
        match self {
            Self::Redis => resp::operation(request),
            Self::Postgres => pg::asks(request)?.operation(),
        }
    }

    /// What a request mentions: all its bytes, and its paths as a whole.
    pub fn mentioned(self, request: &[u8]) -> Vec<u8> {
        let mut mentioned = request.to_vec();
        if let (Self::Postgres, Some(asked)) = (self, pg::asks(request)) {
            mentioned.extend(asked.paths());
        }
        mentioned
    }
}
