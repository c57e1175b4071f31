//! Translates the client crate's answers into the link's words.
//!
//! Invariant: only an error code in a reply is an answer. All else is an unknown outcome. (pure)

use zookeeper_client as zk;

use crate::link::{Change, Code, Fault, Found, Node, Right, Write};
use crate::protocol::acl;

/// Server codes that the crate has no name for (ZooKeeper's `KeeperException.Code`).
const SYSTEM_ERROR: i32 = -1;
const OPERATION_TIMEOUT: i32 = -7;

/// In the order of their bits in the protocol.
const RIGHTS: [zk::Permission; 5] = [
    zk::Permission::READ,
    zk::Permission::WRITE,
    zk::Permission::CREATE,
    zk::Permission::DELETE,
    zk::Permission::ADMIN,
];

pub(super) fn entry(acl: &zk::Acl) -> acl::Entry {
    let granted = RIGHTS.iter().enumerate();
    let granted = granted.filter(|(_, right)| acl.permission().has(**right));
    acl::Entry {
        scheme: acl.scheme().to_owned(),
        id: acl.id().to_owned(),
        rights: granted.fold(0, |all, (bit, _)| all | (1 << bit)),
    }
}

pub(super) fn acl(entry: &acl::Entry) -> zk::Acl {
    let granted = RIGHTS.into_iter().enumerate();
    let granted = granted.filter(|(bit, _)| entry.rights & (1 << bit) != 0);
    let granted = granted.fold(zk::Permission::NONE, |all, (_, right)| all | right);
    zk::Acl::new(granted, zk::AuthId::new(&entry.scheme, &entry.id))
}

pub(super) fn change(event: &zk::WatchedEvent) -> Change {
    match event.event_type {
        zk::EventType::NodeDeleted => Change::Deleted,
        zk::EventType::Session => Change::SessionOver,
        // In each other case the watch is spent, and the node or its children are read again.
        _ => Change::Changed,
    }
}

pub(super) fn node(data: Vec<u8>, stat: &zk::Stat) -> Node {
    Node {
        data,
        czxid: stat.czxid,
        version: stat.version,
        owner: stat.ephemeral_owner,
        num_children: stat.num_children,
        pzxid: stat.pzxid,
        aversion: stat.aversion,
    }
}

pub(super) fn found(result: zk::MultiReadResult) -> Found {
    match result {
        zk::MultiReadResult::Data { data, stat } => Found::Node(node(data, &stat)),
        zk::MultiReadResult::Children { children } => Found::Children(children),
        zk::MultiReadResult::Error { err } => Found::Failed(code(&err, Right::Read)),
        other => Found::Failed(Code::Other(format!("{other:?}"))),
    }
}

pub(super) fn creates(writes: &[Write<'_>]) -> usize {
    let is_create =
        |write: &&Write<'_>| matches!(write, Write::Create { .. } | Write::Ephemeral { .. });
    writes.iter().filter(is_create).count()
}

/// The paths that were created, without the chroot: the crate has taken it off.
pub(super) fn created(
    results: Vec<zk::MultiWriteResult>,
    asked: usize,
) -> Result<Vec<String>, zk::Error> {
    let paths = results.into_iter().filter_map(|result| match result {
        zk::MultiWriteResult::Create { path, .. } => Some(path),
        _ => None,
    });
    all(paths, asked)
}

/// As many results as were asked for.
pub(super) fn all<T>(results: impl Iterator<Item = T>, asked: usize) -> Result<Vec<T>, zk::Error> {
    let results: Vec<T> = results.collect();
    if results.len() == asked {
        return Ok(results);
    }
    let wrong = format!("{} results of {asked}", results.len());
    Err(zk::Error::UnexpectedError(wrong))
}

/// Sorts an error into an answer of the server, and all else. The transport's errors come in three
/// shapes, and the session's end says nothing about a request that was under way.
pub(super) fn fault(error: zk::Error, needs: Right) -> Fault {
    match error {
        zk::Error::NoNode
        | zk::Error::NoAuth
        | zk::Error::BadVersion
        | zk::Error::NoChildrenForEphemerals
        | zk::Error::NodeExists
        | zk::Error::NotEmpty
        | zk::Error::InvalidAcl
        | zk::Error::SessionMoved
        | zk::Error::NotReadOnly
        | zk::Error::NoWatcher
        | zk::Error::QuotaExceeded
        | zk::Error::Throttled
        | zk::Error::MarshallingError
        | zk::Error::Unimplemented
        | zk::Error::ReconfigDisabled
        | zk::Error::RuntimeInconsistent
        | zk::Error::UnexpectedErrorCode(_)
        | zk::Error::BadArguments(_) => Fault::Answered(code(&error, needs)),
        other => Fault::Unknown(other.to_string()),
    }
}

/// The answer about a refused write of several. Servers that are about to end our session, or have
/// moved it, say so in the place of a write's result: that is no answer about a node, and no sign
/// of life.
pub(super) fn refusal(index: usize, error: zk::Error, needs: Right) -> Result<Fault, zk::Error> {
    match fault(error.clone(), needs) {
        Fault::Answered(code) if !matches!(code, Code::NotNow(_)) => {
            Ok(Fault::Refused(index, code))
        }
        _ => Err(error),
    }
}

fn code(error: &zk::Error, needs: Right) -> Code {
    match error {
        zk::Error::NoNode => Code::NoNode,
        zk::Error::NodeExists => Code::NodeExists,
        zk::Error::NotEmpty => Code::NotEmpty,
        zk::Error::BadVersion => Code::BadVersion,
        zk::Error::NoAuth => Code::NoAuth(needs),
        zk::Error::SessionMoved
        | zk::Error::Throttled
        | zk::Error::UnexpectedErrorCode(SYSTEM_ERROR | OPERATION_TIMEOUT) => {
            Code::NotNow(error.to_string())
        }
        other => Code::Other(other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_the_session_is_no_answer_to_a_write() {
        assert_eq!(
            refusal(3, zk::Error::NoNode, Right::Write).unwrap(),
            Fault::Refused(3, Code::NoNode)
        );
        for unknown in [zk::Error::SessionExpired, zk::Error::SessionMoved] {
            assert!(
                refusal(0, unknown.clone(), Right::Write).is_err(),
                "{unknown:?}"
            );
        }
    }

    // docs/failures.md row 53: FIN, RST, silence, garbage and the session's end are all unknown;
    // only codes are answers.
    #[test]
    fn only_a_server_code_is_an_answer() {
        for answered in [
            zk::Error::NoNode,
            zk::Error::NodeExists,
            zk::Error::SessionMoved,
            zk::Error::Throttled,
            zk::Error::UnexpectedErrorCode(-117),
        ] {
            assert!(
                matches!(fault(answered.clone(), Right::Read), Fault::Answered(_)),
                "{answered:?}"
            );
        }
        for unknown in [
            zk::Error::ConnectionLoss,
            zk::Error::Timeout,
            zk::Error::NoHosts,
            zk::Error::SessionExpired,
            zk::Error::ClientClosed,
            zk::Error::AuthFailed,
            zk::Error::UnexpectedError("expect xid".into()),
            zk::Error::UnmarshalError {
                entity: "stat",
                reason: &"short",
            },
        ] {
            assert!(
                matches!(fault(unknown.clone(), Right::Read), Fault::Unknown(_)),
                "{unknown:?}"
            );
        }
    }
}
