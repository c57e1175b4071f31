//! A request of a session as one statement of PostgreSQL, with its parameters. (pure)

use std::collections::BTreeSet;
use std::time::Duration;

use super::parameter::Parameter;
use crate::link::stored::{
    EMPTY_FOR, Rearmed, SessionKey, StoreRequest, StoredWrite, WatchKind, WriteKind,
};

/// Who asks, and where.
pub(super) struct Caller<'a> {
    pub(super) schema: &'a str,
    pub(super) incarnation: &'a str,
    pub(super) session: &'a SessionKey,
    /// The how manieth connection of the session it is.
    pub(super) connection: u64,
    /// Where the server sends events to.
    pub(super) channel: &'a str,
    /// Whether plans are made once for this connection.
    pub(super) has_plans: bool,
}

/// A call of one function, or what does the same.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) sql: String,
    pub(super) parameters: Vec<Parameter>,
    /// It comes back with the answer.
    pub(super) echo: i64,
}

/// The directory of a path, and its name there. The root is two empty words.
fn split(path: &str) -> (&str, &str) {
    path.rsplit_once('/').unwrap_or_default()
}

/// Paths as the tables have them, each in two words.
#[derive(Default)]
struct Places {
    dirs: Vec<String>,
    names: Vec<String>,
}

impl Places {
    fn of<'a>(paths: impl IntoIterator<Item = &'a str>) -> Self {
        let mut places = Self::default();
        for path in paths {
            let (dir, name) = split(path);
            places.dirs.push(dir.to_owned());
            places.names.push(name.to_owned());
        }
        places
    }

    fn into_parameters(self) -> [Parameter; 2] {
        [Parameter::Texts(self.dirs), Parameter::Texts(self.names)]
    }
}

/// The nodes that a write at these paths changes, and their directories, each once.
fn locked<'a>(paths: impl Iterator<Item = &'a str>) -> [Parameter; 2] {
    let rows: BTreeSet<&str> = paths.flat_map(|path| [path, split(path).0]).collect();
    Places::of(rows).into_parameters()
}

fn own_and_up<'a>(paths: impl Iterator<Item = &'a str> + Clone) -> [Parameter; 4] {
    let [dirs, names] = Places::of(paths.clone()).into_parameters();
    let [up_dirs, up_names] = Places::of(paths.map(|path| split(path).0)).into_parameters();
    [dirs, names, up_dirs, up_names]
}

/// The root's path is empty, as that of the directory of `/a`.
fn key(path: &str) -> String {
    path.strip_suffix('/').unwrap_or(path).to_owned()
}

fn micros(time: Duration) -> Parameter {
    Parameter::Int8(i64::try_from(time.as_micros()).unwrap_or(i64::MAX))
}

#[expect(
    clippy::cast_possible_wrap,
    reason = "watches and connections are counted up from 1"
)]
pub(super) fn int8(number: u64) -> i64 {
    number as i64
}

impl Call {
    pub(super) fn new(by: &Caller<'_>, request: &StoreRequest) -> Self {
        if let (true, StoreRequest::Multi(writes)) = (by.has_plans, request) {
            if let Some(call) = Self::of_ticket(by, writes) {
                return call;
            }
        }
        let mut parameters = by.parameters();
        let (function, more) = operation(request, by.channel);
        parameters.extend(more);
        let places: Vec<String> = (1..=parameters.len()).map(|at| format!("${at}")).collect();
        // A pooler that mixes answers up is found out.
        let echo = next_echo();
        let sql = format!(
            "SELECT ${}::int8 AS echo, reply.* FROM {}.{function}({}) AS reply",
            parameters.len() + 1,
            by.schema,
            places.join(", ")
        );
        parameters.push(Parameter::Int8(echo));
        Self {
            sql,
            parameters,
            echo,
        }
    }

    /// A ticket that comes or goes, and nothing else.
    fn of_ticket(by: &Caller<'_>, writes: &[StoredWrite]) -> Option<Self> {
        let [write] = writes else { return None };
        let text = match write.kind {
            WriteKind::Sequential => join_text(),
            WriteKind::Leave => leave_text(),
            _ => return None,
        };
        let (dir, name) = split(&write.path);
        let (up_dir, up_name) = split(dir);
        let echo = next_echo();
        let mut parameters = by.parameters();
        let words = [up_dir, up_name, dir, name];
        parameters.extend(words.map(|word| Parameter::Text(word.to_owned())));
        parameters.extend([Parameter::Data(write.data.clone()), Parameter::Int8(echo)]);
        if write.kind == WriteKind::Leave {
            parameters.extend([Parameter::Int4(write.version), Parameter::Int8(write.czxid)]);
        }
        Some(Self {
            sql: text.replace("%S", by.schema),
            parameters,
            echo,
        })
    }
}

/// Functions, as that of the schema.
fn join_text() -> &'static str {
    include_str!("join.sql")
}

fn leave_text() -> &'static str {
    include_str!("leave.sql")
}

impl Caller<'_> {
    fn parameters(&self) -> Vec<Parameter> {
        vec![
            Parameter::Text(self.incarnation.to_owned()),
            Parameter::Int8(self.session.id),
            Parameter::Text(self.session.secret.to_string()),
            Parameter::Int8(int8(self.connection)),
        ]
    }
}

/// Another one for each request of all processes, as far as chance can say.
fn next_echo() -> i64 {
    let (high, _) = uuid::Uuid::new_v4().as_u64_pair();
    i64::from_be_bytes(high.to_be_bytes())
}

fn operation(request: &StoreRequest, channel: &str) -> (&'static str, Vec<Parameter>) {
    match request {
        StoreRequest::Open {
            asked,
            longest,
            margin,
            is_new,
            ..
        } => {
            let mut open: Vec<Parameter> =
                [asked, longest, margin].map(|&time| micros(time)).into();
            open.push(Parameter::Bool(*is_new));
            ("open", open)
        }
        StoreRequest::Multi(writes) => ("multi", multi(writes)),
        StoreRequest::Read(reads) => ("read", several(reads)),
        StoreRequest::Watch { kind, path, number } => {
            let (dir, name) = split(path);
            let words =
                [kind.word(), dir, name, &key(path)].map(|word| Parameter::Text(word.into()));
            let mut watch: Vec<Parameter> = words.into();
            watch.extend([
                Parameter::Int8(int8(*number)),
                Parameter::Text(channel.to_owned()),
            ]);
            ("watch", watch)
        }
        StoreRequest::Unwatch { path, number, .. } => {
            let unwatch = vec![Parameter::Text(key(path)), Parameter::Int8(int8(*number))];
            ("unwatch", unwatch)
        }
        StoreRequest::Rearm(watches) => ("rearm", rearm(watches, channel)),
        StoreRequest::Ephemerals(prefix) => ("ephemerals", vec![Parameter::Text(prefix.clone())]),
        StoreRequest::Touch => ("touch", vec![micros(EMPTY_FOR)]),
        StoreRequest::Bury(victim) => ("bury", vec![Parameter::Int8(*victim)]),
        StoreRequest::Reap(victim, paths) => {
            let paths = paths.iter().map(String::as_str);
            let mut reap = vec![Parameter::Int8(*victim)];
            reap.extend(locked(paths.clone()));
            reap.extend(own_and_up(paths));
            ("reap", reap)
        }
        StoreRequest::Collect(path) => {
            let mut collect: Vec<Parameter> = locked([path.as_str()].into_iter()).into();
            let (dir, name) = split(path);
            let (up_dir, up_name) = split(dir);
            collect.extend([dir, name, up_dir, up_name].map(|word| Parameter::Text(word.into())));
            collect.push(micros(EMPTY_FOR));
            ("collect", collect)
        }
        StoreRequest::Close => ("close", Vec::new()),
    }
}

fn multi(writes: &[StoredWrite]) -> Vec<Parameter> {
    let paths = writes.iter().map(|write| write.path.as_str());
    let kinds = writes.iter().map(|write| write.kind.word().to_owned());
    let datas = writes.iter().map(|write| write.data.clone());
    let versions = writes.iter().map(|write| write.version);
    let czxids = writes.iter().map(|write| write.czxid);
    let mut multi: Vec<Parameter> = locked(paths.clone()).into();
    multi.push(Parameter::Texts(kinds.collect()));
    multi.extend(own_and_up(paths));
    multi.push(Parameter::Bytes(datas.collect()));
    multi.push(Parameter::Int4s(versions.collect()));
    multi.push(Parameter::Int8s(czxids.collect()));
    multi
}

fn several(reads: &[(WatchKind, String)]) -> Vec<Parameter> {
    let kinds = reads.iter().map(|(kind, _)| kind.word().to_owned());
    let paths = reads.iter().map(|(_, path)| path.as_str());
    let mut several = vec![Parameter::Texts(kinds.collect())];
    several.extend(Places::of(paths.clone()).into_parameters());
    several.push(Parameter::Texts(paths.map(key).collect()));
    several
}

fn rearm(watches: &[Rearmed], channel: &str) -> Vec<Parameter> {
    let kinds = watches.iter().map(|watch| watch.kind.word().to_owned());
    let paths = watches.iter().map(|watch| watch.path.as_str());
    let numbers = watches.iter().map(|watch| int8(watch.number));
    let mut rearm = vec![Parameter::Texts(kinds.collect())];
    rearm.extend(Places::of(paths.clone()).into_parameters());
    rearm.extend([
        Parameter::Texts(paths.map(key).collect()),
        Parameter::Int8s(numbers.collect()),
        Parameter::Int8s(watches.iter().map(|watch| watch.czxid).collect()),
        Parameter::Int8s(watches.iter().map(|watch| watch.last).collect()),
        Parameter::Text(channel.to_owned()),
    ]);
    rearm
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_a_directory_and_a_name() {
        for (path, expected) in [
            ("/", ("", "")),
            ("", ("", "")),
            ("/a", ("", "a")),
            ("/a/b/c", ("/a/b", "c")),
        ] {
            assert_eq!(split(path), expected, "{path}");
        }
        assert_eq!((&*key("/"), &*key("/a")), ("", "/a"));
    }

    #[test]
    fn directories_are_locked_before_what_is_in_them_and_once() {
        let [dirs, names] = locked(["/b/y", "/a/x", "/b/x"].into_iter());
        let (Parameter::Texts(dirs), Parameter::Texts(names)) = (dirs, names) else {
            panic!("texts");
        };
        let rows: Vec<_> = dirs.iter().zip(&names).collect();
        let expected = [("", "a"), ("/a", "x"), ("", "b"), ("/b", "x"), ("/b", "y")];
        let expected: Vec<_> = expected
            .map(|(dir, name)| (dir.to_owned(), name.to_owned()))
            .into();
        assert!(
            rows.iter()
                .all(|(dir, name)| expected.contains(&((*dir).clone(), (*name).clone())))
        );
        assert_eq!(rows.len(), expected.len());
    }
}
