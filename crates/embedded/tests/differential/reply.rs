//! Replies and events taken apart into fields, each of a kind that says how two servers' values
//! compare.
//!
//! Every byte of a frame ends in a field, but for the times of a stat; nothing is compared here.

use super::op::Op;
use testbench::wire::In;

/// One value of a reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Field {
    Number(&'static str, i64),
    Text(&'static str, String),
    /// Compared by order and equality within a script.
    Zxid(&'static str, i64),
    /// Compared as the number of the session within the script.
    Session(&'static str, i64),
    /// Names in no particular order; sorted here.
    Names(&'static str, Vec<String>),
    Acl(Vec<String>),
    /// What should not be there.
    Rest(String),
}

/// The header zxid of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stamp {
    /// The request's own.
    Own(i64),
    /// The last that the server had applied, which may be a neighbour's: it only never goes back.
    Last(i64),
    /// 0 or -1: not a zxid at all.
    None(i64),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Reply {
    pub(super) xid: i32,
    pub(super) stamp: Stamp,
    pub(super) error: i32,
    pub(super) fields: Vec<Field>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Event {
    pub(super) path: String,
    pub(super) kind: i32,
    pub(super) state: i32,
    /// Header zxid, error, and anything else that is not as usual.
    pub(super) odd: Option<String>,
}

/// The event in a frame; `None` if the frame is a reply.
pub(super) fn event(frame: &[u8]) -> Option<Event> {
    let mut input = In(frame);
    if input.int()? != -1 {
        return None;
    }
    let (zxid, error) = (input.long()?, input.int()?);
    let (kind, state, path) = (input.int()?, input.int()?, input.text()?);
    // Since 3.9 ZooKeeper names the write that is told of (ZOOKEEPER-4655), which no client reads.
    let is_usual = (zxid == -1 || zxid > 0) && error == 0 && input.0.is_empty();
    let odd = (!is_usual).then(|| format!("zxid {zxid} error {error} rest {:?}", input.0));
    Some(Event {
        path,
        kind,
        state,
        odd,
    })
}

/// The reply in a frame, which answers this request.
pub(super) fn reply(op: &Op, frame: &[u8]) -> Option<Reply> {
    let mut input = In(frame);
    let (xid, zxid, error) = (input.int()?, input.long()?, input.int()?);
    let mut fields = Vec::new();
    if error == 0 {
        // A short body leaves the fields that it had.
        body(op, &mut input, &mut fields).unwrap_or_default();
    }
    if !input.0.is_empty() {
        fields.push(Field::Rest(input.0.escape_ascii().to_string()));
    }
    let stamp = match zxid {
        0 | -1 => Stamp::None(zxid),
        _ if op.is_write() => Stamp::Own(zxid),
        _ => Stamp::Last(zxid),
    };
    Some(Reply {
        xid,
        stamp,
        error,
        fields,
    })
}

fn body(op: &Op, input: &mut In<'_>, fields: &mut Vec<Field>) -> Option<()> {
    match op {
        Op::Create { code, .. } => {
            fields.push(Field::Text("path", input.text()?));
            if *code != 1 {
                stat(input, fields)?;
            }
        }
        Op::Exists(..) | Op::SetData(..) | Op::SetAcl(..) => stat(input, fields)?,
        Op::GetData(..) => {
            fields.push(Field::Text("data", input.text()?));
            stat(input, fields)?;
        }
        Op::GetChildren(..) => names(input, fields)?,
        Op::GetChildren2(..) => {
            names(input, fields)?;
            stat(input, fields)?;
        }
        Op::GetEphemerals(_) => names(input, fields)?,
        Op::GetAcl(_) => {
            acl(input, fields)?;
            stat(input, fields)?;
        }
        Op::Sync(_) => fields.push(Field::Text("path", input.text()?)),
        Op::CountChildren(_) | Op::AddWatch(..) => {
            fields.push(Field::Number("number", input.int()?.into()));
        }
        Op::WhoAmI => {
            let count = input.int()?;
            let mut users = Vec::new();
            for _ in 0..count {
                users.push(format!("{}:{}", input.text()?, input.text()?));
            }
            users.sort();
            fields.push(Field::Names("users", users));
        }
        Op::Multi(_) | Op::MultiRead(_) => parts(input, fields)?,
        _ => {}
    }
    Some(())
}

fn parts(input: &mut In<'_>, fields: &mut Vec<Field>) -> Option<()> {
    loop {
        let (code, done, error) = (input.int()?, input.byte()?, input.int()?);
        fields.push(Field::Number("part", code.into()));
        fields.push(Field::Number("done", done.into()));
        fields.push(Field::Number("error", error.into()));
        if done != 0 {
            return Some(());
        }
        match code {
            -1 => fields.push(Field::Number("code", input.int()?.into())),
            1 => fields.push(Field::Text("path", input.text()?)),
            15 | 19 | 21 => {
                fields.push(Field::Text("path", input.text()?));
                stat(input, fields)?;
            }
            4 => {
                fields.push(Field::Text("data", input.text()?));
                stat(input, fields)?;
            }
            5 => stat(input, fields)?,
            8 => names(input, fields)?,
            _ => {}
        }
    }
}

fn names(input: &mut In<'_>, fields: &mut Vec<Field>) -> Option<()> {
    let count = input.int()?;
    let mut names = Vec::new();
    for _ in 0..count {
        names.push(input.text()?);
    }
    names.sort();
    fields.push(Field::Names("names", names));
    Some(())
}

/// In the order of the list, which is the sender's; but where `auth` was put for several
/// identities, the order of these is that of a Java hash set.
fn acl(input: &mut In<'_>, fields: &mut Vec<Field>) -> Option<()> {
    let count = input.int()?;
    let mut list = Vec::new();
    for _ in 0..count {
        let permissions = input.int()?;
        list.push(format!("{}:{}={permissions}", input.text()?, input.text()?));
    }
    if list.iter().filter(|acl| acl.starts_with("digest:")).count() > 1 {
        list.sort();
    }
    fields.push(Field::Acl(list));
    Some(())
}

fn stat(input: &mut In<'_>, fields: &mut Vec<Field>) -> Option<()> {
    fields.push(Field::Zxid("czxid", input.long()?));
    fields.push(Field::Zxid("mzxid", input.long()?));
    let _ctime = input.long()?;
    let _mtime = input.long()?;
    for name in ["version", "cversion", "aversion"] {
        fields.push(Field::Number(name, input.int()?.into()));
    }
    fields.push(Field::Session("owner", input.long()?));
    for name in ["length", "children"] {
        fields.push(Field::Number(name, input.int()?.into()));
    }
    fields.push(Field::Zxid("pzxid", input.long()?));
    Some(())
}
