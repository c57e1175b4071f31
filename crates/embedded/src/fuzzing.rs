//! The properties that the fuzz targets check on the server, without sockets: any bytes, in any
//! order, leave it consistent.
//!
//! Built for fuzz targets and tests alone. The operation codes are written out a second time here,
//! so that a wrong one is noticed.

use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};

use super::acl::{Acl, Identity};
use super::core::{Core, Effect, Now, Reply};
use super::counters::Counters;
use super::node::Life;
use super::path;
use super::proto::{ConnectRequest, Create, CreateKind, Read, Request, Write};
use super::reply::{self, Answer, Part};
use super::sessions::ConnId;
use super::wire::{self, Malformed, Output};
use super::words::{Status, Word};

const MAX_FRAME: usize = 1 << 12;

/// Whether ZooKeeper lets a node have this path.
pub fn is_path(path: &str) -> bool {
    path::is_valid(path)
}

/// Frames do not depend on how their bytes are split. A decoded request, encoded and decoded again,
/// is the same. Every word gets an answer.
pub fn codec(data: &[u8]) {
    let whole = frames(data, data.len().max(1));
    let step = 1 + usize::from(data.last().copied().unwrap_or(0) % 7);
    assert_eq!(whole, frames(data, step), "in steps of {step}");
    for frame in whole.0 {
        assert!(frame.len() <= MAX_FRAME);
        a_request_survives(frame);
    }
    // Also without a length prefix, so that the input needs no valid length.
    let frame = Bytes::copy_from_slice(data);
    a_request_survives(frame.clone());
    if let Ok(hello) = ConnectRequest::decode(frame) {
        assert_eq!(ConnectRequest::decode(encode_hello(&hello)), Ok(hello));
    }
    if let Some(word) = data.first_chunk().and_then(Word::parse) {
        assert!(!word.answer(empty_status).is_empty());
    }
}

/// All frames when the bytes come in pieces of this size. Then the number of bytes left, or the
/// error that ended the frames.
fn frames(data: &[u8], piece: usize) -> (Vec<Bytes>, Result<usize, Malformed>) {
    let mut buffer = BytesMut::new();
    let mut frames = Vec::new();
    for piece in data.chunks(piece) {
        buffer.extend_from_slice(piece);
        loop {
            match wire::take_frame(&mut buffer, MAX_FRAME) {
                Ok(Some(frame)) => frames.push(frame),
                Ok(None) => break,
                Err(malformed) => return (frames, Err(malformed)),
            }
        }
    }
    (frames, Ok(buffer.len()))
}

fn a_request_survives(frame: Bytes) {
    let Ok((xid, request)) = Request::decode(frame.clone()) else {
        return;
    };
    let mut bytes = 0;
    request.any_path(|path| {
        bytes += path.len();
        false
    });
    // An invalid byte becomes a character of three bytes.
    assert!(
        bytes <= 3 * frame.len() + 1,
        "a request holds only what its frame held"
    );
    if let Some(again) = encode(xid, &request) {
        assert_eq!(Request::decode(again), Ok((xid, request)));
    }
}

fn encode_hello(hello: &ConnectRequest) -> Bytes {
    let mut output = Output::frame();
    output.i32(0).i64(hello.last_zxid).i32(hello.timeout_ms);
    output.i64(hello.session).buffer(Some(&hello.password));
    if hello.knows_read_only {
        output.bool(false);
    }
    output.finish().slice(4..)
}

/// Encodes a request, without the length prefix; `None` if the request keeps nothing of its frame.
fn encode(xid: i32, request: &Request) -> Option<Bytes> {
    let mut output = Output::frame();
    output.i32(xid);
    match request {
        Request::Write(write) => body(output.i32(code(write)), write),
        Request::Multi(writes) => {
            output.i32(14);
            for write in writes {
                body(output.i32(code(write)).bool(false).i32(-1), write);
            }
            output.i32(-1).bool(true).i32(-1);
        }
        Request::MultiRead(reads) => {
            output.i32(22);
            for read in reads {
                let code = match read {
                    Read::Data { .. } => 4,
                    Read::Children { .. } => 8,
                };
                text(output.i32(code).bool(false).i32(-1), read.path()).bool(false);
            }
            output.i32(-1).bool(true).i32(-1);
        }
        Request::Exists { path, watch } => {
            text(output.i32(3), path).bool(*watch);
        }
        Request::GetData { path, watch } => {
            text(output.i32(4), path).bool(*watch);
        }
        Request::GetChildren {
            path,
            watch,
            with_stat,
        } => {
            text(output.i32(if *with_stat { 12 } else { 8 }), path).bool(*watch);
        }
        Request::GetAcl { path } => {
            text(output.i32(6), path);
        }
        Request::SetAcl { path, acl, version } => {
            list(text(output.i32(7), path), acl).i32(*version);
        }
        Request::GetEphemerals { prefix } => {
            text(output.i32(103), prefix);
        }
        Request::GetAllChildrenNumber { path } => {
            text(output.i32(104), path);
        }
        Request::Sync { path } => {
            text(output.i32(9), path);
        }
        Request::AddWatch { path, mode } => {
            text(output.i32(106), path).i32(*mode);
        }
        Request::CheckWatches { path, kind } => {
            text(output.i32(17), path).i32(*kind);
        }
        Request::RemoveWatches { path, kind } => {
            text(output.i32(18), path).i32(*kind);
        }
        Request::SetWatches(watched) => {
            output.i32(105).i64(watched.seen_zxid);
            for paths in [
                &watched.data,
                &watched.exist,
                &watched.child,
                &watched.persistent,
                &watched.recursive,
            ] {
                output.count(paths.len());
                for path in paths {
                    text(&mut output, path);
                }
            }
        }
        Request::Auth { scheme, secret } => {
            text(output.i32(100).i32(0), scheme).buffer(Some(secret));
        }
        Request::WhoAmI => {
            output.i32(107);
        }
        Request::Ping => {
            output.i32(11);
        }
        Request::CloseSession => {
            output.i32(-11);
        }
        Request::DeleteContainer { .. }
        | Request::Sasl
        | Request::Reconfig
        | Request::Senseless { .. }
        | Request::Unknown => return None,
    }
    Some(output.finish().slice(4..))
}

fn code(write: &Write) -> i32 {
    match write {
        Write::Create(create) => match create.kind {
            CreateKind::Plain => 1,
            CreateKind::WithStat => 15,
            CreateKind::Container => 19,
            CreateKind::Ttl => 21,
        },
        Write::Delete { .. } => 2,
        Write::SetData { .. } => 5,
        Write::Check { .. } => 13,
    }
}

fn body(output: &mut Output, write: &Write) {
    text(output, write.path());
    match write {
        Write::Create(Create {
            kind,
            data,
            acl,
            flags,
            ttl,
            ..
        }) => {
            list(output.buffer(data.as_deref()), acl).i32(*flags);
            if *kind == CreateKind::Ttl {
                output.i64(*ttl);
            }
        }
        Write::Delete { version, .. } | Write::Check { version, .. } => {
            output.i32(*version);
        }
        Write::SetData { data, version, .. } => {
            output.buffer(data.as_deref()).i32(*version);
        }
    }
}

/// Written raw: the server's own encoder writes characters beyond the basic plane as Java does, and
/// could not read them back.
fn text<'o>(output: &'o mut Output, text: &str) -> &'o mut Output {
    output.buffer(Some(text.as_bytes()))
}

fn list<'o>(output: &'o mut Output, list: &[Acl]) -> &'o mut Output {
    output.count(list.len());
    for entry in list {
        text(
            text(output.i32(entry.permissions), &entry.scheme),
            &entry.id,
        );
    }
    output
}

fn empty_status() -> Status {
    Status {
        conns: Vec::new(),
        sessions: [].into(),
        watches: Vec::new(),
        watched_paths: 0,
        ephemerals: [].into(),
        zxid: 0,
        data_bytes: 0,
        uptime: Duration::ZERO,
        counters: Counters::default(),
    }
}

/// Drives up to four connections from the input. Each step is one byte that selects an action and a
/// connection. Most actions are a request: a length byte, then the frame without its own length.
///
/// The checks: a refused write changes nothing, and zxids never go back. Events go only to
/// connections that exist. When all clients have left and their sessions have expired, no node or
/// watch of theirs is left.
pub fn conversation(data: &[u8]) {
    let mut room = Room {
        core: Core::new((SECOND, 60 * SECOND), 1 << 16, 0),
        guests: [None; 4],
        last: 0,
        uptime: SECOND,
    };
    let mut input = Bytes::copy_from_slice(data);
    for guest in 0..2 {
        room.enter(guest, hello(0, Bytes::new()));
    }
    while let Ok(step) = input.try_get_u8() {
        room.step(step, &mut input);
    }
    room.is_whole();
    room.is_left_empty();
}

const SECOND: Duration = Duration::from_secs(1);

fn hello(session: i64, password: Bytes) -> ConnectRequest {
    ConnectRequest {
        last_zxid: 0,
        timeout_ms: 5_000,
        session,
        password,
        knows_read_only: true,
    }
}

/// The core of a server, and its connections.
struct Room {
    core: Core,
    guests: [Option<ConnId>; 4],
    last: u64,
    uptime: Duration,
}

impl Room {
    fn now(&self) -> Now {
        Now {
            uptime: self.uptime,
            wall_ms: i64::try_from(self.uptime.as_millis()).unwrap_or(i64::MAX),
        }
    }

    fn step(&mut self, step: u8, input: &mut Bytes) {
        let guest = usize::from(step >> 6);
        match step & 0x0f {
            0 => self.leave(guest),
            1 => {
                self.leave(guest);
                self.enter(guest, hello(0, Bytes::new()));
            }
            2 => self.come_back(guest, input.try_get_u8().unwrap_or(0)),
            3 => {
                let frame = frame(input);
                if let Ok(hello) = ConnectRequest::decode(frame) {
                    self.leave(guest);
                    self.enter(guest, hello);
                }
            }
            4 => {
                self.uptime += SECOND * u32::from(input.try_get_u8().unwrap_or(0));
                let now = self.now();
                self.core.expire_overdue(now);
                self.told();
            }
            5 => {
                let now = self.now();
                self.core.reap(now);
                self.told();
            }
            6 => {
                let session = self.guests[guest].and_then(|conn| self.core.session_of(conn));
                self.core.expire(session.unwrap_or(1));
                self.told();
            }
            _ => {
                let frame = frame(input);
                self.say(guest, frame);
            }
        }
    }

    fn enter(&mut self, guest: usize, hello: ConnectRequest) {
        self.last += 1;
        let conn = ConnId(self.last);
        let here = Identity::address([127, 0, 0, 1].into());
        let welcome = self.core.connect(conn, &hello, here, self.now());
        // If this connection took over a session, the session's old connection is closed here.
        self.told();
        match welcome {
            Some(welcome) if welcome.session != 0 => {
                assert_eq!(self.core.session_of(conn), Some(welcome.session));
                assert_eq!(self.core.conn_of(welcome.session), Some(conn));
                self.guests[guest] = Some(conn);
            }
            _ => assert_eq!(self.core.session_of(conn), None),
        }
    }

    /// Moves an existing session to this connection.
    fn come_back(&mut self, guest: usize, which: u8) {
        let mut sessions: Vec<(i64, [u8; 16])> = self
            .core
            .sessions()
            .map(|(id, session)| (id, session.password))
            .collect();
        sessions.sort_unstable();
        let Some((session, password)) = sessions.get(usize::from(which) % sessions.len().max(1))
        else {
            return;
        };
        self.leave(guest);
        self.enter(guest, hello(*session, Bytes::copy_from_slice(password)));
        assert!(
            self.guests[guest].is_some(),
            "whoever has the password gets the session"
        );
    }

    fn leave(&mut self, guest: usize) {
        if let Some(conn) = self.guests[guest].take() {
            self.core.disconnect(conn);
        }
    }

    /// A request, as its connection hands it over.
    fn say(&mut self, guest: usize, frame: Bytes) {
        let Some(conn) = self.guests[guest] else {
            return;
        };
        let Ok((xid, request)) = Request::decode(frame) else {
            return self.leave(guest);
        };
        let is_write = matches!(request, Request::Write(_) | Request::Multi(_));
        let before = is_write.then(|| self.core.tree().clone());
        let zxid = self.core.zxid();

        let Reply {
            zxid: told,
            result,
            is_last,
        } = self.core.apply(conn, &request, self.now());

        assert!(self.core.zxid() >= zxid && told <= self.core.zxid());
        let frame = reply::encode(xid, told, &result);
        let length = frame
            .first_chunk()
            .map(|length| i32::from_be_bytes(*length));
        assert_eq!(length, i32::try_from(frame.len() - 4).ok());
        if let Some(before) = before {
            let is_refused = match &result {
                Ok(Answer::Parts(parts)) => parts.iter().any(|part| matches!(part, Part::Error(_))),
                result => result.is_err(),
            };
            assert!(
                !is_refused || *self.core.tree() == before,
                "{request:?} is refused and changes something"
            );
        }
        self.told();
        if is_last {
            self.leave(guest);
        }
    }

    /// Delivers the effects of the last steps.
    fn told(&mut self) {
        for effect in self.core.take_effects() {
            match effect {
                // The connection may have ended since, but it did exist.
                Effect::Event { conn, path, .. } => {
                    assert!(conn.0 <= self.last);
                    assert!(
                        reply::encode_event(super::watches::EventKind::Created, &path).len()
                            > path.len()
                    );
                }
                Effect::Close(conn) => {
                    for guest in &mut self.guests {
                        guest.take_if(|known| *known == conn);
                    }
                    assert_eq!(self.core.session_of(conn), None);
                }
            }
        }
    }

    fn is_whole(&self) {
        let tree = self.core.tree();
        let (mut pending, mut nodes, mut bytes, mut ephemerals) = (vec!["/".to_owned()], 0, 0, 0);
        while let Some(path) = pending.pop() {
            let Some(node) = tree.get(&path) else {
                panic!("{path:?} is a child and no node");
            };
            assert!(path::is_valid(&path));
            nodes += 1;
            bytes += path.len() + node.data_length();
            if let Life::Ephemeral(session) = node.life {
                ephemerals += 1;
                assert!(node.children.is_empty());
                assert!(tree.ephemerals_of(session).any(|listed| **listed == *path));
                assert!(
                    self.core.sessions().any(|(id, _)| id == session),
                    "{path:?} has no session"
                );
            }
            pending.extend(node.children.iter().map(|name| path::join(&path, name)));
        }
        assert_eq!((nodes, bytes), (tree.len(), tree.bytes()));
        assert_eq!(nodes, 1 + tree.descendants("/"));
        assert_eq!(
            ephemerals,
            tree.ephemerals()
                .map(|(_, paths)| paths.len())
                .sum::<usize>()
        );
        let watched: usize = self
            .core
            .watches()
            .by_conn()
            .map(|(_, paths)| paths.len())
            .sum();
        assert!(watched <= self.core.watches().len());
        for (conn, _) in self.core.watches().by_conn() {
            assert!(
                self.guests.contains(&Some(conn)),
                "a watch of a connection that has left"
            );
        }
    }

    fn is_left_empty(&mut self) {
        for guest in 0..self.guests.len() {
            self.leave(guest);
        }
        assert_eq!(self.core.watches().len(), 0);
        self.uptime += 61 * SECOND;
        let now = self.now();
        self.core.expire_overdue(now);
        assert_eq!(self.core.session_count(), 0);
        assert_eq!(self.core.tree().ephemerals().count(), 0);
        assert!(
            self.core.take_effects().is_empty(),
            "nobody is there to be told"
        );
        self.is_whole();
    }
}

/// A length byte, and that many bytes or as many as there are.
fn frame(input: &mut Bytes) -> Bytes {
    let length = usize::from(input.try_get_u8().unwrap_or(0));
    input.split_to(length.min(input.len()))
}
