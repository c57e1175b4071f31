//! Reads what the script answers. (pure)

use std::time::Duration;

use redis::{RedisError, Value, from_redis_value};

use crate::link::stored::{Outcome, StoreReply, StoreRequest, Trouble, WatchKind};
use crate::link::{Code, Created, Found, Node, Right};

/// What the answer to an operation is like.
pub(super) enum Shape {
    Granted,
    Made(i64),
    /// Which of them are lists of children.
    Found(Vec<bool>),
    Armed,
    Paths,
    Due,
    Buried,
    Nothing,
}

impl Shape {
    pub(super) fn of(operation: &StoreRequest, session: i64) -> Self {
        match operation {
            StoreRequest::Open { .. } => Self::Granted,
            StoreRequest::Multi(_) => Self::Made(session),
            StoreRequest::Read(reads) => {
                let kinds = reads.iter().map(|(kind, _)| *kind == WatchKind::Children);
                Self::Found(kinds.collect())
            }
            StoreRequest::Watch { .. } => Self::Armed,
            StoreRequest::Ephemerals(_) | StoreRequest::Reap(..) | StoreRequest::Close => {
                Self::Paths
            }
            StoreRequest::Touch => Self::Due,
            StoreRequest::Bury(_) => Self::Buried,
            StoreRequest::Unwatch { .. } | StoreRequest::Rearm(_) | StoreRequest::Collect(_) => {
                Self::Nothing
            }
        }
    }

    fn read(self, value: Value) -> Result<Outcome, Trouble> {
        Ok(match self {
            Self::Granted => Outcome::Granted(micros(&read::<String>(value)?)?),
            Self::Made(session) => Outcome::Made(made(value, session)?),
            Self::Found(lists) => {
                let found: Vec<Value> = read(value)?;
                let found = found.into_iter().zip(lists);
                let found = found.map(|(value, is_list)| found_in(value, is_list));
                Outcome::Found(found.collect::<Result<_, _>>()?)
            }
            Self::Armed => {
                let (shown, names): (Value, Vec<String>) = read(value)?;
                Outcome::Armed(node(shown)?, names)
            }
            Self::Paths => Outcome::Paths(read(value)?),
            Self::Due => {
                let (sessions, containers, next): (Vec<String>, Vec<String>, String) = read(value)?;
                let sessions = sessions.iter().map(|session| number(session));
                let sessions = sessions.collect::<Result<_, _>>()?;
                Outcome::Due(sessions, containers, Some(micros(&next)?))
            }
            Self::Buried => {
                let (pause, paths): (String, Value) = read(value)?;
                Outcome::Buried(micros(&pause)?, read(paths)?)
            }
            Self::Nothing => Outcome::Nothing,
        })
    }
}

fn broken(what: impl std::fmt::Display) -> Trouble {
    Trouble::Broken(format!("not an answer of our script: {what}"))
}

fn read<T: redis::FromRedisValue>(value: Value) -> Result<T, Trouble> {
    from_redis_value(value).map_err(broken)
}

fn micros(text: &str) -> Result<Duration, Trouble> {
    number(text).map(Duration::from_micros)
}

pub(super) fn reply(value: Value, shape: Shape) -> Result<StoreReply, Trouble> {
    let mut parts: Vec<Value> = read(value)?;
    let mut next = || parts.drain(..1).next().unwrap_or(Value::Nil);
    let status: String = read(next())?;
    match &*status {
        "ok" => Ok(StoreReply::Done {
            events: read(next())?,
            outcome: shape.read(next())?,
        }),
        "refused" => {
            next();
            let (at, words): (f64, String) = read(next())?;
            Ok(StoreReply::Refused {
                #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
                at: at as usize,
                code: code(words),
            })
        }
        "grace" => {
            next();
            Ok(StoreReply::Grace(micros(&read::<String>(next())?)?))
        }
        "over" => Ok(StoreReply::Over),
        "moved" => Ok(StoreReply::Moved),
        "incarnation" => Ok(StoreReply::OtherIncarnation),
        other => Err(broken(other)),
    }
}

fn code(words: String) -> Code {
    match &*words {
        "no node" => Code::NoNode,
        "exists" => Code::NodeExists,
        "not empty" => Code::NotEmpty,
        "version" => Code::BadVersion,
        _ => Code::Other(words),
    }
}

fn number<T: std::str::FromStr<Err: std::fmt::Display>>(text: &str) -> Result<T, Trouble> {
    text.parse().map_err(broken)
}

/// A node, as the script shows it.
fn node(value: Value) -> Result<Node, Trouble> {
    let (data, czxid, version, owner, pzxid, num_children): (_, _, _, String, _, _) = read(value)?;
    Ok(Node {
        data,
        czxid,
        version,
        owner: if owner.is_empty() { 0 } else { number(&owner)? },
        num_children,
        pzxid,
        aversion: 0,
    })
}

fn found_in(value: Value, is_list: bool) -> Result<Found, Trouble> {
    Ok(match value {
        Value::Nil | Value::Boolean(false) => Found::Failed(Code::NoNode),
        value if is_list => Found::Children(read(value)?),
        value => Found::Node(node(value)?),
    })
}

/// What was made, with its paths.
fn made(value: Value, session: i64) -> Result<Vec<(String, Created)>, Trouble> {
    let made: Vec<(String, i64, i32, Value)> = read(value)?;
    let made = made.into_iter().map(|(path, czxid, seq, directory)| {
        let directory = match directory {
            Value::Nil => None,
            shown => Some(Box::new(node(shown)?)),
        };
        let created = Created {
            seq,
            czxid,
            owner: session,
            directory,
        };
        Ok((path, created))
    });
    made.collect()
}

/// `opens`: whether it is the answer to the first request of a session.
pub(super) fn trouble(error: &RedisError, opens: bool) -> Trouble {
    let words = error.to_string();
    match error.code() {
        // Of a cluster: the keys are at another server. A session that is there leaves at once.
        Some("MOVED" | "ASK") if opens => Trouble::Refused(Code::NotNow(words)),
        Some("OOM" | "MISCONF" | "NOREPLICAS" | "BUSY" | "TRYAGAIN" | "LOADING")
        | Some("CLUSTERDOWN" | "CROSSSLOT") => Trouble::Refused(Code::NotNow(words)),
        // A key holds something else: it was found before the first write.
        Some("WRONGTYPE" | "ERR") => Trouble::Refused(Code::Other(words)),
        Some("NOPERM") => Trouble::Refused(Code::NoAuth(Right::Write)),
        // A script that is gone, a server that became a replica: another connection settles it.
        _ => Trouble::Lost(words),
    }
}
