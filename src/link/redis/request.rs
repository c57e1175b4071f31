//! What a session asks: an operation of the script, with its keys. (pure)
//!
//! Each key that an operation names is declared, as proxies of a cluster demand it, and all keys
//! have one hash tag.

use std::time::Duration;

use crate::link::{Create, Read, Write};

/// The keys of one root.
#[derive(Debug, Clone)]
pub(super) struct Keys {
    tag: String,
}

/// An operation, before it is known on which connection it leaves.
#[derive(Debug, Clone)]
pub(super) struct Request {
    pub(super) operation: &'static str,
    pub(super) keys: Vec<String>,
    pub(super) arguments: Vec<Vec<u8>>,
    /// Which watch its answer arms.
    pub(super) watch: Option<(WatchKind, u64)>,
    /// It changes nothing but the session's deadline.
    pub(super) is_heartbeat: bool,
}

/// What a watch is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WatchKind {
    Data,
    Children,
}

impl WatchKind {
    fn word(self) -> &'static str {
        match self {
            Self::Data => "d",
            Self::Children => "c",
        }
    }
}

/// A watch that a new connection arms again, and what was seen when it was armed.
#[derive(Debug, Clone)]
pub(super) struct Rearmed {
    pub(super) number: u64,
    pub(super) kind: WatchKind,
    pub(super) path: String,
    pub(super) czxid: i64,
    /// The version, or the last change of children.
    pub(super) last: i64,
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

    pub(super) fn multi(&self, writes: &[Write<'_>]) -> Request {
        let mut multi = Request::new("multi");
        multi.is_heartbeat = writes
            .iter()
            .all(|write| matches!(write, Write::Check { .. }));
        for write in writes {
            let (kind, path, data, version) = match *write {
                Write::Check { path, version } => ("check", path, &b""[..], version),
                Write::Create { path, data } => ("create", path, data, 0),
                Write::Ephemeral {
                    path,
                    data,
                    is_sequential: true,
                } => ("sequential", path, data, 0),
                Write::Ephemeral { path, data, .. } => ("ephemeral", path, data, 0),
                Write::Set {
                    path,
                    data,
                    version,
                } => ("set", path, data, version),
                Write::Delete { path, version } => ("delete", path, &b""[..], version),
            };
            multi.write(self, kind, path, data, version);
        }
        multi
    }

    pub(super) fn create(&self, path: &str, data: &[u8], kind: Create) -> Request {
        let kind = match kind {
            Create::Container => "container",
            Create::Persistent => "create",
            Create::EphemeralSequential => "sequential",
        };
        let mut create = Request::new("multi");
        create.write(self, kind, path, data, 0);
        create
    }

    pub(super) fn read(&self, reads: &[Read<'_>]) -> Request {
        let mut request = Request::new("read");
        for read in reads {
            let (kind, path) = match *read {
                Read::Data(path) => ("d", path),
                Read::Children(path) => ("c", path),
            };
            request
                .keys
                .extend([self.holder(path), self.children(path)]);
            request.arguments.extend([kind.into(), path.into()]);
        }
        request
    }

    pub(super) fn watch(&self, kind: WatchKind, path: &str, number: u64) -> Request {
        let mut request = Request::new("watch");
        request.keys = vec![self.holder(path), self.watches(path), self.children(path)];
        request.arguments = vec![kind.word().into(), path.into(), number.to_string().into()];
        request.watch = Some((kind, number));
        request
    }

    pub(super) fn unwatch(&self, kind: WatchKind, path: &str, number: u64) -> Request {
        let mut request = Request::new("unwatch");
        request.keys = vec![self.watches(path)];
        request.arguments = vec![kind.word().into(), number.to_string().into()];
        request
    }

    pub(super) fn rearm(&self, watches: &[Rearmed]) -> Request {
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

    pub(super) fn ephemerals(&self, prefix: &str) -> Request {
        let mut request = Request::new("ephemerals");
        request.arguments.push(prefix.into());
        request
    }

    /// `empty_for`: containers that were empty for so long are named.
    pub(super) fn touch(&self, empty_for: Duration) -> Request {
        let mut request = Request::new("touch");
        request.is_heartbeat = true;
        request.arguments.push(micros(empty_for).into());
        request
    }

    pub(super) fn bury(&self, victim: &str) -> Request {
        let mut request = Request::new("bury");
        request.keys = vec![self.session(victim), self.nodes(victim)];
        request.arguments.push(victim.into());
        request
    }

    pub(super) fn reap(&self, victim: &str, paths: &[String]) -> Request {
        let mut request = self.bury(victim);
        request.operation = "reap";
        for path in paths {
            request.keys.extend(self.of_write(path));
            request.arguments.push(path.as_str().into());
        }
        request
    }

    pub(super) fn collect(&self, path: &str) -> Request {
        let mut request = Request::new("collect");
        request.keys = self.of_write(path).into();
        request.arguments.push(path.into());
        request
    }
}

impl Request {
    pub(super) fn new(operation: &'static str) -> Self {
        Self {
            operation,
            keys: Vec::new(),
            arguments: Vec::new(),
            watch: None,
            is_heartbeat: false,
        }
    }

    fn write(&mut self, keys: &Keys, kind: &str, path: &str, data: &[u8], version: i32) {
        self.keys.extend(keys.of_write(path));
        self.arguments.extend([
            kind.into(),
            path.into(),
            data.to_vec(),
            version.to_string().into(),
        ]);
    }
}

/// As the script counts time.
pub(super) fn micros(time: Duration) -> String {
    time.as_micros().to_string()
}
