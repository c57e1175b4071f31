//! Replies and events as bytes.
//!
//! Invariant: each answer has the form that ZooKeeper 3.8 uses for its request. It decides nothing.

use std::sync::Arc;

use bytes::Bytes;

use super::acl::Acl;
use super::node::Stat;
use super::proto::Code;
use super::watches::EventKind;
use super::wire::Output;

const NOTIFICATION_XID: i32 = -1;
const SYNC_CONNECTED: i32 = 3;

/// The body of a successful reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Answer {
    Empty,
    Path(String),
    Created(String, Stat),
    Stat(Stat),
    Data(Option<Bytes>, Stat),
    Children(Vec<Arc<str>>, Option<Stat>),
    Acl(Vec<Acl>, Stat),
    Parts(Vec<Part>),
    Count(usize),
    Users(Vec<(String, String)>),
    /// A null buffer: the answer of a server without SASL to a token.
    Null,
}

/// One result of a multi or a multi-read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Part {
    Created(String, Option<Stat>),
    Deleted,
    Stat(Stat),
    Checked,
    Data(Option<Bytes>, Stat),
    Children(Vec<Arc<str>>),
    Error(i32),
}

/// The answer to a connect request. Session 0 means refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Welcome {
    pub(super) timeout_ms: i32,
    pub(super) session: i64,
    pub(super) password: [u8; 16],
    pub(super) with_read_only: bool,
}

impl Welcome {
    pub(super) fn encode(&self) -> Bytes {
        let mut output = Output::frame();
        output
            .i32(0)
            .i32(self.timeout_ms)
            .i64(self.session)
            .buffer(Some(&self.password));
        if self.with_read_only {
            output.bool(false);
        }
        output.finish()
    }
}

/// One reply frame.
pub(super) fn encode(xid: i32, zxid: i64, result: &Result<Answer, Code>) -> Bytes {
    let mut output = Output::frame();
    output
        .i32(xid)
        .i64(zxid)
        .i32(result.as_ref().err().map_or(0, |code| *code as i32));
    if let Ok(answer) = result {
        body(&mut output, answer);
    }
    output.finish()
}

/// One watch event frame.
pub(super) fn encode_event(kind: EventKind, path: &str) -> Bytes {
    let mut output = Output::frame();
    output.i32(NOTIFICATION_XID).i64(-1).i32(0);
    output.i32(kind as i32).i32(SYNC_CONNECTED).string(path);
    output.finish()
}

fn body(output: &mut Output, answer: &Answer) {
    match answer {
        Answer::Empty => {}
        Answer::Path(path) => {
            output.string(path);
        }
        Answer::Created(path, seen) => stat(output.string(path), seen),
        Answer::Stat(seen) => stat(output, seen),
        Answer::Data(data, seen) => stat(output.buffer(data.as_deref()), seen),
        Answer::Children(names, seen) => {
            strings(output, names);
            if let Some(seen) = seen {
                stat(output, seen);
            }
        }
        Answer::Acl(list, seen) => {
            output.count(list.len());
            for acl in list {
                output
                    .i32(acl.permissions)
                    .string(&acl.scheme)
                    .string(&acl.id);
            }
            stat(output, seen);
        }
        Answer::Parts(parts) => {
            for part in parts {
                self::part(output, part);
            }
            output.i32(-1).bool(true).i32(-1);
        }
        Answer::Count(count) => {
            output.count(*count);
        }
        Answer::Users(users) => {
            output.count(users.len());
            for (scheme, user) in users {
                output.string(scheme).string(user);
            }
        }
        Answer::Null => {
            output.buffer(None);
        }
    }
}

fn part(output: &mut Output, part: &Part) {
    let op = match part {
        Part::Created(_, None) => 1,
        Part::Created(_, Some(_)) => 15,
        Part::Deleted => 2,
        Part::Stat(_) => 5,
        Part::Checked => 13,
        Part::Data(..) => 4,
        Part::Children(_) => 8,
        Part::Error(_) => -1,
    };
    let error = if let Part::Error(error) = part {
        *error
    } else {
        0
    };
    output.i32(op).bool(false).i32(error);
    match part {
        Part::Created(path, None) => {
            output.string(path);
        }
        Part::Created(path, Some(seen)) => stat(output.string(path), seen),
        Part::Deleted | Part::Checked => {}
        Part::Stat(seen) => stat(output, seen),
        Part::Data(data, seen) => stat(output.buffer(data.as_deref()), seen),
        Part::Children(names) => strings(output, names),
        Part::Error(error) => {
            output.i32(*error);
        }
    }
}

fn strings(output: &mut Output, strings: &[Arc<str>]) {
    output.count(strings.len());
    for string in strings {
        output.string(string);
    }
}

fn stat(output: &mut Output, stat: &Stat) {
    output
        .i64(stat.czxid)
        .i64(stat.mzxid)
        .i64(stat.ctime)
        .i64(stat.mtime);
    output
        .i32(stat.version)
        .i32(stat.cversion)
        .i32(stat.aversion)
        .i64(stat.owner);
    output
        .count(stat.data_length)
        .count(stat.children)
        .i64(stat.pzxid);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_reply_is_a_header_alone() {
        let frame = encode(3, 9, &Err(Code::NoNode));

        assert_eq!(frame.len(), 4 + 16);
        assert_eq!(frame[16..], (-101i32).to_be_bytes());
    }

    #[test]
    fn a_multi_ends_with_its_mark() {
        let frame = encode(1, 1, &Ok(Answer::Parts(vec![Part::Error(-2)])));

        assert_eq!(frame[20 + 9..20 + 13], (-2i32).to_be_bytes());
        assert_eq!(
            frame[20 + 13..],
            [0xff, 0xff, 0xff, 0xff, 1, 0xff, 0xff, 0xff, 0xff]
        );
    }

    #[test]
    fn an_event_has_the_notification_xid_and_no_zxid() {
        let frame = encode_event(EventKind::Deleted, "/a");

        assert_eq!(frame[4..8], (-1i32).to_be_bytes());
        assert_eq!(frame[8..16], (-1i64).to_be_bytes());
        assert_eq!(frame[20..24], 2i32.to_be_bytes());
    }
}
