//! Reads what the functions answer. (pure)

use std::time::Duration;

use tokio_postgres::Row;
use tokio_postgres::types::FromSql;

use crate::link::stored::{Outcome, StoreReply, StoreRequest, Trouble, WatchKind};
use crate::link::{Code, Created, Found, Node};

/// What the answer to a request is like.
#[derive(Debug)]
pub(super) enum ReplyShape {
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

impl ReplyShape {
    pub(super) fn of(request: &StoreRequest, session: i64) -> Self {
        match request {
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

    fn read(self, first: &Row, rows: &[Row]) -> Result<Outcome, Trouble> {
        Ok(match self {
            Self::Granted => Outcome::Granted(micros(first)?),
            Self::Made(session) => {
                let made = rows.iter().filter_map(|row| made(row, session).transpose());
                Outcome::Made(made.collect::<Result<_, _>>()?)
            }
            Self::Found(lists) => {
                let found = rows.iter().zip(lists);
                let found = found.map(|(row, is_list)| found_in(row, is_list));
                Outcome::Found(found.collect::<Result<_, _>>()?)
            }
            Self::Armed => Outcome::Armed(node(first)?, list(first, "names")?),
            Self::Paths => Outcome::Paths(list(first, "names")?),
            Self::Due => Outcome::Due(
                get::<Option<_>>(first, "ids")?.unwrap_or_default(),
                list(first, "names")?,
                Some(micros(first)?),
            ),
            Self::Buried => Outcome::Buried(micros(first)?, list(first, "names")?),
            Self::Nothing => Outcome::Nothing,
        })
    }
}

fn broken(what: impl std::fmt::Display) -> Trouble {
    Trouble::Broken(format!("not an answer of our functions: {what}"))
}

fn get<'a, T: FromSql<'a>>(row: &'a Row, column: &str) -> Result<T, Trouble> {
    row.try_get(column).map_err(broken)
}

fn list(row: &Row, column: &str) -> Result<Vec<String>, Trouble> {
    Ok(get::<Option<_>>(row, column)?.unwrap_or_default())
}

fn micros(row: &Row) -> Result<Duration, Trouble> {
    let micros: i64 = get(row, "pzxid")?;
    Ok(Duration::from_micros(micros.try_into().map_err(broken)?))
}

pub(super) fn read(rows: &[Row], shape: ReplyShape) -> Result<StoreReply, Trouble> {
    let Some(first) = rows.first() else {
        // Nothing was asked for.
        let outcome = shape_of_nothing(shape);
        let events = Vec::new();
        return Ok(StoreReply::Done { events, outcome });
    };
    let status: &str = get(first, "status")?;
    match status {
        "ok" => Ok(StoreReply::Done {
            events: list(first, "events")?,
            outcome: shape.read(first, rows)?,
        }),
        "refused" => {
            let at: i32 = get(first, "at")?;
            Ok(StoreReply::Refused {
                at: at.try_into().map_err(broken)?,
                code: code(get(first, "path")?),
            })
        }
        "grace" => Ok(StoreReply::Grace(micros(first)?)),
        "over" => Ok(StoreReply::Over),
        "moved" => Ok(StoreReply::Moved),
        "incarnation" => Ok(StoreReply::OtherIncarnation),
        other => Err(broken(other)),
    }
}

/// Whether it is the answer to this request: a pooler may mix answers up.
pub(super) fn check_echo(rows: &[Row], echo: i64) -> Result<(), Trouble> {
    for row in rows {
        if row.try_get("echo").ok() != Some(echo) {
            let why = "the answer is another request's: is a pooler between that mixes them up?";
            return Err(Trouble::Lost(why.into()));
        }
    }
    Ok(())
}

fn shape_of_nothing(shape: ReplyShape) -> Outcome {
    match shape {
        ReplyShape::Found(_) => Outcome::Found(Vec::new()),
        _ => Outcome::Nothing,
    }
}

fn code(words: &str) -> Code {
    match words {
        "no node" => Code::NoNode,
        "exists" => Code::NodeExists,
        "not empty" => Code::NotEmpty,
        "version" => Code::BadVersion,
        other => Code::Other(other.to_owned()),
    }
}

fn node(row: &Row) -> Result<Node, Trouble> {
    Ok(Node {
        data: get::<Option<_>>(row, "data")?.unwrap_or_default(),
        czxid: get(row, "czxid")?,
        version: get(row, "version")?,
        owner: get(row, "owner")?,
        num_children: get(row, "children")?,
        pzxid: get(row, "pzxid")?,
        aversion: 0,
    })
}

fn found_in(row: &Row, is_list: bool) -> Result<Found, Trouble> {
    let czxid: Option<i64> = get(row, "czxid")?;
    Ok(match (czxid, is_list) {
        (None, _) => Found::Failed(Code::NoNode),
        (Some(_), true) => Found::Children(list(row, "names")?),
        (Some(_), false) => Found::Node(node(row)?),
    })
}

/// What a row of a ticket that was made says of its directory.
fn directory(row: &Row) -> Result<Option<Box<Node>>, Trouble> {
    let ids: Vec<i64> = get::<Option<_>>(row, "ids")?.unwrap_or_default();
    let &[czxid, version] = &*ids else {
        return Ok(None);
    };
    Ok(Some(Box::new(Node {
        data: get::<Option<_>>(row, "data")?.unwrap_or_default(),
        czxid,
        version: i32::try_from(version).map_err(broken)?,
        owner: 0,
        num_children: get(row, "children")?,
        pzxid: get(row, "pzxid")?,
        aversion: 0,
    })))
}

/// What a row says that was made, if it does.
fn made(row: &Row, session: i64) -> Result<Option<(String, Created)>, Trouble> {
    let (path, czxid): (Option<String>, Option<i64>) = (get(row, "path")?, get(row, "czxid")?);
    let Some((path, czxid)) = path.zip(czxid) else {
        return Ok(None);
    };
    let created = Created {
        seq: get(row, "version")?,
        czxid,
        owner: session,
        directory: directory(row)?,
    };
    Ok(Some((path, created)))
}
