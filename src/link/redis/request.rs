//! What a session asks: an operation of the script, with its keys. (pure)
//!
//! Each key that an operation names is declared, as proxies of a cluster demand it, and all keys
//! have one hash tag.

use std::time::Duration;

use crate::link::stored::{EMPTY_FOR, Rearmed, StoreRequest, StoredWrite, WatchKind};

/// The keys of one root.
#[derive(Debug, Clone)]
pub(super) struct Keys {
    tag: String,
}

/// An operation, as the script takes it.
#[derive(Debug, Clone)]
pub(super) struct Request {
    pub(super) operation: &'static str,
    pub(super) keys: Vec<String>,
    pub(super) arguments: Vec<Vec<u8>>,
}

fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(parent, _)| parent)
}

impl Keys {
    pub(super) fn new(prefix: &str) -> Self {
        let tag = format!("{{{prefix}}}");
        Self { tag }
    }

    /// The keys that each request has.
    pub(super) fn of_session(&self, session: i64) -> [String; 5] {
        let tag = &self.tag;
        [
            format!("{tag}:meta"),
            format!("{tag}:sessions"),
            self.session(session),
            self.nodes(session),
            format!("{tag}:empty"),
        ]
    }

    fn session(&self, session: impl std::fmt::Display) -> String {
        format!("{}:session:{session}", self.tag)
    }

    fn nodes(&self, session: impl std::fmt::Display) -> String {
        format!("{}:nodes:{session}", self.tag)
    }

    /// Sessions are told of their watches on channels that begin so.
    pub(super) fn channels(&self) -> String {
        format!("{}:events:", self.tag)
    }

    /// The hash of a directory's children.
    fn children(&self, path: &str) -> String {
        let path = if path == "/" { "" } else { path };
        format!("{}:in:{path}", self.tag)
    }

    /// The hash that a node is in.
    fn holder(&self, path: &str) -> String {
        match path {
            "" | "/" => format!("{}:root", self.tag),
            path => self.children(parent(path)),
        }
    }

    fn watches(&self, path: &str) -> String {
        let path = if path.is_empty() { "/" } else { path };
        format!("{}:watches:{path}", self.tag)
    }

    fn of_write(&self, path: &str) -> [String; 4] {
        let directory = parent(path);
        [
            self.holder(path),
            self.holder(directory),
            self.watches(path),
            self.watches(directory),
        ]
    }

    pub(super) fn request(&self, operation: &StoreRequest) -> Request {
        match operation {
            StoreRequest::Open {
                asked,
                longest,
                margin,
                is_new,
                reaping,
            } => {
                let mut open = Request::new("open");
                open.arguments = [asked, longest, margin].map(|&time| micros(time)).into();
                let more = [u8::from(*is_new).to_string(), reaping.tenths().to_string()];
                open.arguments.extend(more.map(Into::into));
                open
            }
            StoreRequest::Multi(writes) => self.multi(writes),
            StoreRequest::Read(reads) => self.read(reads),
            StoreRequest::Watch { kind, path, number } => self.watch(*kind, path, *number),
            StoreRequest::Unwatch { kind, path, number } => self.unwatch(*kind, path, *number),
            StoreRequest::Rearm(watches) => self.rearm(watches),
            StoreRequest::Ephemerals(prefix) => {
                let mut request = Request::new("ephemerals");
                request.arguments.push(prefix.as_str().into());
                request
            }
            StoreRequest::Touch => {
                let mut request = Request::new("touch");
                request.arguments.push(micros(EMPTY_FOR));
                request
            }
            StoreRequest::Bury(victim) => self.bury(*victim),
            StoreRequest::Reap(victim, paths) => self.reap(*victim, paths),
            StoreRequest::Collect(path) => self.collect(path),
            StoreRequest::Close => Request::new("close"),
        }
    }

    fn multi(&self, writes: &[StoredWrite]) -> Request {
        let mut multi = Request::new("multi");
        for write in writes {
            multi.keys.extend(self.of_write(&write.path));
            // A late copy of a delete must not remove another ticket.
            let czxid = match write.czxid {
                0 => String::new(),
                czxid => czxid.to_string(),
            };
            multi.arguments.extend([
                write.kind.word().into(),
                write.path.as_str().into(),
                write.data.clone(),
                write.version.to_string().into(),
                czxid.into(),
            ]);
        }
        multi
    }

    fn read(&self, reads: &[(WatchKind, String)]) -> Request {
        let mut request = Request::new("read");
        for (kind, path) in reads {
            request
                .keys
                .extend([self.holder(path), self.children(path)]);
            let kind = kind.word();
            request
                .arguments
                .extend([kind.into(), path.as_str().into()]);
        }
        request
    }

    fn watch(&self, kind: WatchKind, path: &str, number: u64) -> Request {
        let mut request = Request::new("watch");
        request.keys = vec![self.holder(path), self.watches(path), self.children(path)];
        request.arguments = vec![kind.word().into(), path.into(), number.to_string().into()];
        request
    }

    fn unwatch(&self, kind: WatchKind, path: &str, number: u64) -> Request {
        let mut request = Request::new("unwatch");
        request.keys = vec![self.holder(path), self.watches(path)];
        request.arguments = vec![kind.word().into(), path.into(), number.to_string().into()];
        request
    }

    fn rearm(&self, watches: &[Rearmed]) -> Request {
        let mut request = Request::new("rearm");
        for watch in watches {
            let path = &*watch.path;
            request.keys.extend([self.holder(path), self.watches(path)]);
            request.arguments.extend([
                watch.kind.word().into(),
                path.into(),
                watch.number.to_string().into(),
                watch.czxid.to_string().into(),
                watch.last.to_string().into(),
            ]);
        }
        request
    }

    fn bury(&self, victim: i64) -> Request {
        let mut request = Request::new("bury");
        request.keys = vec![self.session(victim), self.nodes(victim)];
        request.arguments.push(victim.to_string().into());
        request
    }

    fn reap(&self, victim: i64, paths: &[String]) -> Request {
        let mut request = self.bury(victim);
        request.operation = "reap";
        for path in paths {
            request.keys.extend(self.of_write(path));
            request.arguments.push(path.as_str().into());
        }
        request
    }

    fn collect(&self, path: &str) -> Request {
        let mut request = Request::new("collect");
        request.keys = self.of_write(path).into();
        request.arguments.push(path.into());
        request
    }
}

impl Request {
    fn new(operation: &'static str) -> Self {
        Self {
            operation,
            keys: Vec::new(),
            arguments: Vec::new(),
        }
    }
}

/// As the script counts time.
fn micros(time: Duration) -> Vec<u8> {
    time.as_micros().to_string().into()
}
