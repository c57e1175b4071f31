//! The parts of ZooKeeper's frames that show which reply answers which request. (pure)
//!
//! It reads lengths, xids and operation codes, and decodes as little of a body as it can. A path is
//! searched in the bytes, so that it is found in a transaction too.

use super::protocol::Protocol;

/// A kind of request, by its codes on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation(&'static [i32]);

impl Operation {
    pub const ANY: Self = Self(&[]);
    pub const CREATE: Self = Self(&[1, 15, 19, 21]);
    pub const DELETE: Self = Self(&[2, 20]);
    pub const EXISTS: Self = Self(&[3]);
    pub const GET_DATA: Self = Self(&[4]);
    pub const SET_DATA: Self = Self(&[5]);
    pub const GET_CHILDREN: Self = Self(&[8, 12]);
    pub const SYNC: Self = Self(&[9]);
    pub const PING: Self = Self(&[11]);
    pub const MULTI: Self = Self(&[14]);
    pub const MULTI_READ: Self = Self(&[22]);
    pub const GET_EPHEMERALS: Self = Self(&[103]);
    pub const CLOSE_SESSION: Self = Self(&[-11]);
}

/// The requests that a fault is for.
#[derive(Clone, Debug)]
pub struct Matching {
    operation: Operation,
    mentions: Vec<u8>,
}

impl Matching {
    pub fn op(operation: Operation) -> Self {
        Self {
            operation,
            mentions: Vec::new(),
        }
    }

    /// Only requests whose bytes contain this path, or part of a path.
    pub fn path(mut self, part: &str) -> Self {
        self.mentions = part.as_bytes().to_vec();
        self
    }

    /// Whether the fault is for this request, which is a frame without its length.
    pub fn takes(&self, request: &[u8]) -> bool {
        let Some(code) = int(request, 4) else {
            return false;
        };
        let is_op = self.operation == Operation::ANY || self.operation.0.contains(&code);
        is_op && self.is_mentioned(request.get(8..).unwrap_or_default())
    }

    /// The same for a whole request to another store.
    pub fn takes_of(&self, protocol: Protocol, request: &[u8]) -> bool {
        let is_op = match protocol.operation(request) {
            None => false,
            Some(Operation::SYNC) => [Operation::SYNC, Operation::PING].contains(&self.operation),
            Some(other) => [Operation::ANY, other].contains(&self.operation),
        };
        is_op && self.is_mentioned(&protocol.mentioned(request))
    }

    fn is_mentioned(&self, body: &[u8]) -> bool {
        let length = self.mentions.len();
        length == 0 || body.windows(length).any(|part| part == self.mentions)
    }
}

/// The xid of a ping and of its reply.
pub const PING: i32 = -2;

/// The xid of a request or a reply, which is a frame without its length.
pub fn xid(frame: &[u8]) -> Option<i32> {
    int(frame, 0)
}

/// Takes one whole frame off the front, with its length; None until all of it has arrived.
pub fn take(buffer: &mut Vec<u8>) -> Option<Vec<u8>> {
    let length = usize::try_from(int(buffer, 0)?).ok()?;
    (buffer.len() >= 4 + length).then(|| buffer.drain(..4 + length).collect())
}

/// Whether these first bytes are a four-letter word, or the answer to one, and not a session. A
/// letter as the first byte would make the frame's length too large.
pub fn is_word(buffer: &[u8]) -> bool {
    buffer.first().is_some_and(u8::is_ascii_alphabetic)
}

/// The session that a connect request asks for; 0 for a new one.
pub fn session(connect: &[u8]) -> Option<i64> {
    let bytes = connect.get(SESSION..SESSION + 8)?;
    Some(i64::from_be_bytes(bytes.try_into().ok()?))
}

/// Makes a connect request (with its length) ask for a new session instead of an old one.
pub fn ask_for_a_new_session(connect: &mut [u8]) {
    // Protocol, last zxid, timeout; then the session and its password, a buffer of sixteen bytes.
    let body = 4 + SESSION;
    if let Some(id) = connect.get_mut(body..body + 8) {
        id.fill(0);
    }
    if let Some(password) = connect.get_mut(body + 12..body + 28) {
        password.fill(0);
    }
}

/// Makes a connect request (with its length) ask for a session timeout of so many milliseconds at
/// most.
pub fn ask_for_at_most(connect: &mut [u8], most: i32) {
    // It is the number before the session, and the length is before all.
    let timeout = SESSION;
    if int(connect, timeout).is_some_and(|asked| asked > most) {
        connect[timeout..timeout + 4].copy_from_slice(&most.to_be_bytes());
    }
}

/// Where the session stands in a connect request without its length.
const SESSION: usize = 4 + 8 + 4;

fn int(bytes: &[u8], at: usize) -> Option<i32> {
    let four = bytes.get(at..at + 4)?;
    Some(i32::from_be_bytes(four.try_into().ok()?))
}
