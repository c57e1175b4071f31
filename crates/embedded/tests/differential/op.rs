//! The requests of a script as bytes.
//!
//! Everything a client may put on the wire can be said here, sensible or not.

use std::fmt;

use testbench::wire::Out;

/// Bytes that are shown as text when a script is printed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Bytes(pub(super) &'static [u8]);

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            [first, .., last] if self.0.len() > 40 => {
                write!(f, "\"{}..{}\"", first.escape_ascii(), last.escape_ascii())
            }
            short => write!(f, "\"{}\"", short.escape_ascii()),
        }
    }
}

/// A string that names a node, or fails to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Path {
    /// Below the script's own root; empty is that root.
    Below(&'static str),
    Foreign(Bytes),
}

impl Path {
    fn write(&self, out: &mut Out, place: &Place<'_>) {
        match self {
            Self::Below(rest) => out.buffer(Some(format!("{}{rest}", place.root).as_bytes())),
            Self::Foreign(bytes) => out.buffer(Some(bytes.0)),
        };
    }
}

/// What a request means differs by where it is sent: the root of the script, and the zxids that it
/// saw there.
#[derive(Debug)]
pub(super) struct Place<'a> {
    pub(super) root: &'a str,
    pub(super) written: &'a [i64],
}

/// One entry of an access list: permissions, scheme, id.
pub(super) type Acl = (i32, &'static str, &'static str);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Op {
    Create {
        code: i32,
        path: Path,
        data: Option<Bytes>,
        acl: Option<&'static [Acl]>,
        flags: i32,
        ttl: i64,
    },
    Delete(Path, i32),
    SetData(Path, Option<Bytes>, i32),
    Check(Path, i32),
    Exists(Path, bool),
    GetData(Path, bool),
    GetChildren(Path, bool),
    GetChildren2(Path, bool),
    GetAcl(Path),
    SetAcl(Path, Option<&'static [Acl]>, i32),
    Sync(Path),
    GetEphemerals(Path),
    CountChildren(Path),
    AddWatch(Path, i32),
    CheckWatches(Path, i32),
    RemoveWatches(Path, i32),
    /// Data, exist, child, persistent and recursive watches, as of so many writes ago; the first
    /// form has three lists.
    SetWatches {
        both_forms: bool,
        writes_ago: usize,
        paths: [Vec<Path>; 5],
    },
    Multi(Vec<Self>),
    MultiRead(Vec<Self>),
    Auth(&'static str, Bytes),
    WhoAmI,
    Ping,
    CloseSession,
    /// Any code with any body.
    Odd(i32, Bytes),
}

impl Op {
    pub(super) fn code(&self) -> i32 {
        match self {
            Self::Create { code, .. } | Self::Odd(code, _) => *code,
            Self::Delete(..) => 2,
            Self::Exists(..) => 3,
            Self::GetData(..) => 4,
            Self::SetData(..) => 5,
            Self::GetAcl(_) => 6,
            Self::SetAcl(..) => 7,
            Self::GetChildren(..) => 8,
            Self::Sync(_) => 9,
            Self::Ping => 11,
            Self::GetChildren2(..) => 12,
            Self::Check(..) => 13,
            Self::Multi(_) => 14,
            Self::CheckWatches(..) => 17,
            Self::RemoveWatches(..) => 18,
            Self::MultiRead(_) => 22,
            Self::Auth(..) => 100,
            Self::SetWatches {
                both_forms: false, ..
            } => 101,
            Self::GetEphemerals(_) => 103,
            Self::CountChildren(_) => 104,
            Self::SetWatches {
                both_forms: true, ..
            } => 105,
            Self::AddWatch(..) => 106,
            Self::WhoAmI => 107,
            Self::CloseSession => -11,
        }
    }

    /// Whether it takes a zxid of its own, so that the zxid of its reply is not a neighbour's. A
    /// reconfiguration that cannot be read takes none.
    pub(super) fn is_write(&self) -> bool {
        matches!(
            self.code(),
            1 | 2 | 5 | 7 | 13 | 14 | 15 | 19 | 20 | 21 | -10 | -11
        )
    }

    pub(super) fn ends_session(&self) -> bool {
        self.code() == -11
    }

    /// The whole frame.
    pub(super) fn frame(&self, xid: i32, place: &Place<'_>) -> Vec<u8> {
        let mut out = Out::default();
        out.int(xid).int(self.code());
        self.body(&mut out, place);
        out.framed()
    }

    fn body(&self, out: &mut Out, place: &Place<'_>) {
        match self {
            Self::Create {
                code,
                path,
                data,
                acl,
                flags,
                ttl,
            } => {
                path.write(out, place);
                write_acl(out.buffer(data.map(|data| data.0)), *acl);
                out.int(*flags);
                if *code == 21 {
                    out.long(*ttl);
                }
            }
            Self::SetData(path, data, version) => {
                path.write(out, place);
                out.buffer(data.map(|data| data.0)).int(*version);
            }
            Self::SetAcl(path, acl, version) => {
                path.write(out, place);
                write_acl(out, *acl);
                out.int(*version);
            }
            Self::Delete(path, number)
            | Self::Check(path, number)
            | Self::AddWatch(path, number)
            | Self::CheckWatches(path, number)
            | Self::RemoveWatches(path, number) => {
                path.write(out, place);
                out.int(*number);
            }
            Self::Exists(path, watch)
            | Self::GetData(path, watch)
            | Self::GetChildren(path, watch)
            | Self::GetChildren2(path, watch) => {
                path.write(out, place);
                out.flag(*watch);
            }
            Self::GetAcl(path)
            | Self::Sync(path)
            | Self::GetEphemerals(path)
            | Self::CountChildren(path) => path.write(out, place),
            Self::SetWatches {
                both_forms,
                writes_ago,
                paths,
            } => {
                let seen = place.written.iter().rev().nth(*writes_ago);
                out.long(seen.copied().unwrap_or(0));
                for list in &paths[..if *both_forms { 5 } else { 3 }] {
                    out.count(list.len());
                    list.iter().for_each(|path| path.write(out, place));
                }
            }
            Self::Multi(parts) | Self::MultiRead(parts) => {
                for part in parts {
                    out.int(part.code()).flag(false).int(-1);
                    part.body(out, place);
                }
                out.int(-1).flag(true).int(-1);
            }
            Self::Auth(scheme, secret) => {
                out.int(0)
                    .buffer(Some(scheme.as_bytes()))
                    .buffer(Some(secret.0));
            }
            Self::Odd(_, body) => drop(out.raw(body.0)),
            Self::WhoAmI | Self::Ping | Self::CloseSession => {}
        }
    }
}

fn write_acl(out: &mut Out, acl: Option<&[Acl]>) {
    let Some(acl) = acl else {
        out.int(-1);
        return;
    };
    out.count(acl.len());
    for (permissions, scheme, id) in acl {
        out.int(*permissions)
            .buffer(Some(scheme.as_bytes()))
            .buffer(Some(id.as_bytes()));
    }
}
