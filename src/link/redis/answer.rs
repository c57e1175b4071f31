//! Reads what the script answers. (pure)

use redis::{RedisError, Value, from_redis_value};

use crate::link::{Code, Created, Fault, Found, Node, Right};

/// A reply of the script.
#[derive(Debug)]
pub(super) enum ScriptReply {
    Done {
        events: Vec<String>,
        result: Value,
    },
    Refused {
        at: usize,
        code: Code,
    },
    /// Nobody gets a session for so many microseconds.
    Grace(u64),
    /// The session is over.
    Over,
    /// The session has another connection by now; nothing was done.
    Moved,
    /// The server has another history than the one that the connection was greeted with.
    OtherIncarnation,
}

pub(super) fn broken(what: impl std::fmt::Display) -> Fault {
    Fault::Unknown(format!("not an answer of our script: {what}"))
}

pub(super) fn read<T: redis::FromRedisValue>(value: Value) -> Result<T, Fault> {
    from_redis_value(value).map_err(broken)
}

pub(super) fn reply(value: Value) -> Result<ScriptReply, Fault> {
    let mut parts: Vec<Value> = read(value)?;
    let mut next = || parts.drain(..1).next().unwrap_or(Value::Nil);
    let status: String = read(next())?;
    match &*status {
        "ok" => Ok(ScriptReply::Done {
            events: read(next())?,
            result: next(),
        }),
        "refused" => {
            next();
            let (at, words): (f64, String) = read(next())?;
            Ok(ScriptReply::Refused {
                #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
                at: at as usize,
                code: code(words),
            })
        }
        "grace" => {
            next();
            let left: String = read(next())?;
            Ok(ScriptReply::Grace(left.parse().map_err(broken)?))
        }
        "over" => Ok(ScriptReply::Over),
        "moved" => Ok(ScriptReply::Moved),
        "incarnation" => Ok(ScriptReply::OtherIncarnation),
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

fn number<T: std::str::FromStr<Err: std::fmt::Display>>(text: &str) -> Result<T, Fault> {
    text.parse().map_err(broken)
}

/// A node, as the script shows it.
pub(super) fn node(value: Value) -> Result<Node, Fault> {
    let (data, czxid, version, owner, pzxid, children): (
        Vec<u8>,
        String,
        String,
        String,
        String,
        String,
    ) = read(value)?;
    Ok(Node {
        data,
        czxid: number(&czxid)?,
        version: number(&version)?,
        owner: if owner.is_empty() { 0 } else { number(&owner)? },
        num_children: number(&children)?,
        pzxid: number(&pzxid)?,
        aversion: 0,
    })
}

pub(super) fn found(value: Value, is_list: bool) -> Result<Found, Fault> {
    Ok(match value {
        Value::Nil | Value::Boolean(false) => Found::Failed(Code::NoNode),
        value if is_list => Found::Children(read(value)?),
        value => Found::Node(node(value)?),
    })
}

/// What was made, with its paths.
pub(super) fn made(value: Value, session: i64) -> Result<Vec<(String, Created)>, Fault> {
    let made: Vec<(String, String, String)> = read(value)?;
    let made = made.into_iter().map(|(path, czxid, seq)| {
        let created = Created {
            seq: number(&seq)?,
            czxid: number(&czxid)?,
            owner: session,
        };
        Ok((path, created))
    });
    made.collect()
}

/// Why a request has no reply of the script.
pub(super) enum Trouble {
    /// Nothing was done.
    Refused(Code),
    /// The connection is of no use any more. What was not answered may have been done.
    Lost(String),
}

pub(super) fn trouble(error: &RedisError) -> Trouble {
    let words = error.to_string();
    match error.code() {
        Some("OOM" | "MISCONF" | "NOREPLICAS" | "BUSY" | "TRYAGAIN" | "LOADING") => {
            Trouble::Refused(Code::NotNow(words))
        }
        // A key holds something else: it was found before the first write.
        Some("WRONGTYPE" | "ERR") => Trouble::Refused(Code::Other(words)),
        Some("NOPERM") => Trouble::Refused(Code::NoAuth(Right::Write)),
        // A script that is gone, a server that became a replica: another connection settles it.
        _ => Trouble::Lost(words),
    }
}
