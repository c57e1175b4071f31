//! Decodes a frame into a [`Request`].
//!
//! Invariant: any bytes either decode or are refused, and nothing panics. It does not check paths,
//! flags or permissions.

use bytes::Bytes;

use super::{ConnectRequest, Create, CreateKind, Op, Read, Request, WatchedPaths, Write};
use crate::acl::Acl;
use crate::wire::{Input, Malformed};

mod code {
    pub(super) const CREATE: i32 = 1;
    pub(super) const DELETE: i32 = 2;
    pub(super) const EXISTS: i32 = 3;
    pub(super) const GET_DATA: i32 = 4;
    pub(super) const SET_DATA: i32 = 5;
    pub(super) const GET_ACL: i32 = 6;
    pub(super) const SET_ACL: i32 = 7;
    pub(super) const GET_CHILDREN: i32 = 8;
    pub(super) const SYNC: i32 = 9;
    pub(super) const PING: i32 = 11;
    pub(super) const GET_CHILDREN2: i32 = 12;
    pub(super) const CHECK: i32 = 13;
    pub(super) const MULTI: i32 = 14;
    pub(super) const CREATE2: i32 = 15;
    pub(super) const RECONFIG: i32 = 16;
    pub(super) const CHECK_WATCHES: i32 = 17;
    pub(super) const REMOVE_WATCHES: i32 = 18;
    pub(super) const CREATE_CONTAINER: i32 = 19;
    pub(super) const DELETE_CONTAINER: i32 = 20;
    pub(super) const CREATE_TTL: i32 = 21;
    pub(super) const MULTI_READ: i32 = 22;
    pub(super) const AUTH: i32 = 100;
    pub(super) const SET_WATCHES: i32 = 101;
    pub(super) const SASL: i32 = 102;
    pub(super) const GET_EPHEMERALS: i32 = 103;
    pub(super) const GET_ALL_CHILDREN_NUMBER: i32 = 104;
    pub(super) const SET_WATCHES2: i32 = 105;
    pub(super) const ADD_WATCH: i32 = 106;
    pub(super) const WHO_AM_I: i32 = 107;
    pub(super) const CREATE_SESSION: i32 = -10;
    pub(super) const CLOSE_SESSION: i32 = -11;
}

/// Every ping is answered with this xid, whatever its own.
const PING_XID: i32 = -2;

impl ConnectRequest {
    pub(crate) fn decode(frame: Bytes) -> Result<Self, Malformed> {
        let mut input = Input::new(frame);
        if input.i32()? != 0 {
            return Err(Malformed("unknown protocol version"));
        }
        Ok(Self {
            last_zxid: input.i64()?,
            timeout_ms: input.i32()?,
            session: input.i64()?,
            password: input.buffer()?.unwrap_or_default(),
            knows_read_only: !input.is_empty(),
        })
    }
}

impl Request {
    /// Decodes a frame into the xid of its reply and the request.
    ///
    /// A frame that cannot be read is malformed, and ends the connection. ZooKeeper answers some of
    /// these as invalid requests. Ending the connection shows the fault to the client at once.
    pub(crate) fn decode(frame: Bytes) -> Result<(i32, Self), Malformed> {
        let mut input = Input::new(frame);
        let xid = input.i32()?;
        let code = input.i32()?;
        let request = Self::body(code, &mut input)?;
        let is_ping = request == Self::Ping;
        Ok((if is_ping { PING_XID } else { xid }, request))
    }

    fn senseless(code: i32) -> Self {
        let op = match code {
            code::MULTI => Op::Multi,
            code::MULTI_READ => Op::MultiRead,
            code::SET_WATCHES | code::SET_WATCHES2 => Op::SetWatches,
            _ => op_with_path(code).unwrap_or(Op::Other),
        };
        let is_read = matches!(
            code,
            code::MULTI_READ | code::SET_WATCHES | code::SET_WATCHES2 | code::RECONFIG
        ) || op_with_path(code).is_some_and(|op| op != Op::SetAcl);
        Self::Senseless {
            op,
            is_write: !is_read,
        }
    }

    fn body(code: i32, input: &mut Input) -> Result<Self, Malformed> {
        Ok(match code {
            code::CREATE
            | code::CREATE2
            | code::CREATE_CONTAINER
            | code::CREATE_TTL
            | code::DELETE
            | code::SET_DATA
            | code::CHECK => write(code, input)?.map_or_else(|| Self::senseless(code), Self::Write),
            code::MULTI => multi(input)?,
            code::MULTI_READ => multi_read(input)?,
            // ZooKeeper reads the whole frame, with its header, as the path. The zeros in it make
            // every path invalid, so only the server itself deletes containers.
            code::DELETE_CONTAINER => Self::DeleteContainer {
                path: format!("\0{}", String::from_utf8_lossy(&input.rest())),
            },
            code::SET_WATCHES | code::SET_WATCHES2 => {
                watched_paths(input, code == code::SET_WATCHES2)?
            }
            code::AUTH => {
                input.i32()?;
                let scheme = input.string()?.unwrap_or_default();
                Self::Auth {
                    scheme,
                    secret: input.buffer()?.unwrap_or_default(),
                }
            }
            code::PING => Self::Ping,
            code::WHO_AM_I => Self::WhoAmI,
            code::CLOSE_SESSION => Self::CloseSession,
            code::RECONFIG => {
                // The joining members, the leaving members, the new members, and the
                // configuration's version.
                for _ in 0..3 {
                    input.string()?;
                }
                input.i64()?;
                Self::Reconfig
            }
            code::SASL => {
                input.buffer()?.ok_or(Malformed("no token"))?;
                Self::Sasl
            }
            code::CREATE_SESSION => Self::senseless(code),
            _ => Self::with_path(code, input)?,
        })
    }

    /// The requests that start with a path.
    fn with_path(code: i32, input: &mut Input) -> Result<Self, Malformed> {
        if op_with_path(code).is_none() {
            return Ok(Self::Unknown);
        }
        let Some(path) = input.string()? else {
            return Ok(Self::senseless(code));
        };
        Ok(match code {
            code::EXISTS => Self::Exists {
                path,
                watch: input.bool()?,
            },
            code::GET_DATA => Self::GetData {
                path,
                watch: input.bool()?,
            },
            code::GET_CHILDREN => Self::GetChildren {
                path,
                watch: input.bool()?,
                with_stat: false,
            },
            code::GET_CHILDREN2 => Self::GetChildren {
                path,
                watch: input.bool()?,
                with_stat: true,
            },
            code::GET_ACL => Self::GetAcl { path },
            code::SET_ACL => Self::SetAcl {
                path,
                acl: acl_list(input)?,
                version: input.i32()?,
            },
            code::SYNC => Self::Sync { path },
            code::GET_EPHEMERALS => Self::GetEphemerals { prefix: path },
            code::GET_ALL_CHILDREN_NUMBER => Self::GetAllChildrenNumber { path },
            code::ADD_WATCH => Self::AddWatch {
                path,
                mode: input.i32()?,
            },
            code::CHECK_WATCHES => Self::CheckWatches {
                path,
                kind: input.i32()?,
            },
            code::REMOVE_WATCHES => Self::RemoveWatches {
                path,
                kind: input.i32()?,
            },
            _ => Self::Unknown,
        })
    }
}

fn op_with_path(code: i32) -> Option<Op> {
    Some(match code {
        code::EXISTS => Op::Exists,
        code::GET_DATA => Op::GetData,
        code::GET_CHILDREN | code::GET_CHILDREN2 => Op::GetChildren,
        code::GET_ACL => Op::GetAcl,
        code::SET_ACL => Op::SetAcl,
        code::SYNC => Op::Sync,
        code::GET_EPHEMERALS => Op::GetEphemerals,
        code::GET_ALL_CHILDREN_NUMBER => Op::GetAllChildrenNumber,
        code::ADD_WATCH => Op::AddWatch,
        code::CHECK_WATCHES => Op::CheckWatches,
        code::REMOVE_WATCHES => Op::RemoveWatches,
        _ => return None,
    })
}

/// `None` for a write whose path is null.
fn write(code: i32, input: &mut Input) -> Result<Option<Write>, Malformed> {
    let Some(path) = input.string()? else {
        return Ok(None);
    };
    let kind = match code {
        code::CREATE => CreateKind::Plain,
        code::CREATE2 => CreateKind::WithStat,
        code::CREATE_CONTAINER => CreateKind::Container,
        code::CREATE_TTL => CreateKind::Ttl,
        code::DELETE => {
            return Ok(Some(Write::Delete {
                path,
                version: input.i32()?,
            }));
        }
        code::SET_DATA => {
            return Ok(Some(Write::SetData {
                path,
                data: input.buffer()?,
                version: input.i32()?,
            }));
        }
        code::CHECK => {
            return Ok(Some(Write::Check {
                path,
                version: input.i32()?,
            }));
        }
        _ => return Ok(None),
    };
    let data = input.buffer()?;
    let acl = acl_list(input)?;
    let flags = input.i32()?;
    let ttl = if kind == CreateKind::Ttl {
        input.i64()?
    } else {
        -1
    };
    Ok(Some(Write::Create(Create {
        kind,
        path,
        data,
        acl,
        flags,
        ttl,
    })))
}

/// Walks the parts of a multi; `part` gets the operation code of each.
fn parts(
    input: &mut Input,
    mut part: impl FnMut(i32, &mut Input) -> Result<bool, Malformed>,
) -> Result<bool, Malformed> {
    loop {
        let code = input.i32()?;
        let done = input.bool()?;
        input.i32()?;
        if done {
            return Ok(true);
        }
        if !part(code, input)? {
            return Ok(false);
        }
    }
}

fn multi(input: &mut Input) -> Result<Request, Malformed> {
    let mut writes = Vec::new();
    let sensible = parts(input, |code, input| {
        let is_write = matches!(
            code,
            code::CREATE
                | code::CREATE2
                | code::CREATE_CONTAINER
                | code::CREATE_TTL
                | code::DELETE
                | code::SET_DATA
                | code::CHECK
        );
        let write = if is_write { write(code, input)? } else { None };
        let sensible = write.is_some();
        writes.extend(write.map(as_part));
        Ok(sensible)
    })?;
    Ok(if sensible {
        Request::Multi(writes)
    } else {
        Request::senseless(code::MULTI)
    })
}

/// In a transaction, the flags of a create decide its kind, not its operation code. This is as in
/// 3.8, where all forms but the one with a TTL become one.
fn as_part(write: Write) -> Write {
    let Write::Create(create) = write else {
        return write;
    };
    let has_ttl = matches!(create.flags, 5 | 6);
    Write::Create(match create.kind {
        CreateKind::Ttl if has_ttl => create,
        _ if create.flags == 4 => Create {
            kind: CreateKind::Container,
            ttl: -1,
            ..create
        },
        _ => Create {
            kind: CreateKind::Plain,
            ttl: -1,
            ..create
        },
    })
}

fn multi_read(input: &mut Input) -> Result<Request, Malformed> {
    let mut reads = Vec::new();
    let sensible = parts(input, |code, input| {
        if code != code::GET_DATA && code != code::GET_CHILDREN {
            return Ok(false);
        }
        let path = input.string()?.unwrap_or_default();
        // The watch flag of a part is read and dropped, as in ZooKeeper.
        input.bool()?;
        reads.push(if code == code::GET_DATA {
            Read::Data { path }
        } else {
            Read::Children { path }
        });
        Ok(true)
    })?;
    Ok(if sensible {
        Request::MultiRead(reads)
    } else {
        Request::senseless(code::MULTI_READ)
    })
}

fn watched_paths(input: &mut Input, with_persistent: bool) -> Result<Request, Malformed> {
    fn paths(input: &mut Input) -> Result<Vec<String>, Malformed> {
        let paths = input.vector(Input::string)?.unwrap_or_default();
        Ok(paths.into_iter().flatten().collect())
    }
    let mut watched = WatchedPaths {
        seen_zxid: input.i64()?,
        data: paths(input)?,
        exist: paths(input)?,
        child: paths(input)?,
        ..WatchedPaths::default()
    };
    if with_persistent {
        watched.persistent = paths(input)?;
        watched.recursive = paths(input)?;
    }
    Ok(Request::SetWatches(watched))
}

/// A null list is an empty one: both are refused as invalid later.
fn acl_list(input: &mut Input) -> Result<Vec<Acl>, Malformed> {
    let list = input.vector(|input| {
        Ok(Acl {
            permissions: input.i32()?,
            scheme: input.string()?.unwrap_or_default(),
            id: input.string()?.unwrap_or_default(),
        })
    })?;
    Ok(list.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::wire::Output;

    #[test]
    fn a_multi_without_an_end_is_refused() {
        let mut output = Output::frame();
        output
            .i32(1)
            .i32(code::MULTI)
            .i32(code::DELETE)
            .bool(false)
            .i32(-1)
            .string("/a")
            .i32(-1);

        assert!(Request::decode(output.finish().slice(4..)).is_err());
    }

    #[test]
    fn a_read_in_a_transaction_is_senseless() {
        let mut output = Output::frame();
        output
            .i32(1)
            .i32(code::MULTI)
            .i32(code::GET_DATA)
            .bool(false)
            .i32(-1)
            .string("/a")
            .bool(false);

        let (xid, request) = Request::decode(output.finish().slice(4..)).unwrap();

        assert_eq!(xid, 1);
        assert_eq!(
            request,
            Request::Senseless {
                op: Op::Multi,
                is_write: true
            }
        );
    }

    #[test]
    fn a_ping_is_answered_with_the_xid_of_pings() {
        let mut output = Output::frame();
        output.i32(7).i32(code::PING);

        assert_eq!(
            Request::decode(output.finish().slice(4..)),
            Ok((-2, Request::Ping))
        );
    }

    proptest! {
        #[test]
        fn no_bytes_panic(code in -12i32..110, body in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut bytes = vec![0, 0, 0, 1];
            bytes.extend(code.to_be_bytes());
            bytes.extend(&body);

            let outcome = Request::decode(Bytes::from(bytes));
            if let Ok((_, request)) = outcome {
                request.any_path(|_| false);
                request.op();
            }
            ConnectRequest::decode(Bytes::from(body)).ok();
        }
    }
}
