//! Lock directories: made on demand, and removed when their counter has run out.
//!
//! Invariant: a directory is never removed while a ticket is in it (the server refuses).
//! Directories are containers, so the server may remove an empty one at any time: a create in one
//! that is gone starts over on `NoNode`.

use std::sync::Arc;
use std::time::Duration;

use crate::error::Result;
use crate::link::{Code, Create, Fault, Read, Reply};
use crate::name::LockName;
use crate::protocol::mark::DirectoryData;
use crate::protocol::ticket::Ticket;
use crate::session::{End, Failure, Session, children_in, failed, node_in, refused};

/// Pause between two looks at a directory whose counter has run out; that happens once in two
/// billion tickets.
const PAUSE: Duration = Duration::from_millis(50);

/// Where a lock's tickets are, and how the way there is made.
#[derive(Debug, Clone)]
pub(crate) struct Directory {
    pub(crate) path: Arc<str>,
    /// Bytes of `path` that belong to the root, which is made persistent.
    root_len: usize,
    kind: Create,
}

impl Directory {
    /// The directory of a lock below a root, which is `/` or starts with `/` and does not end with
    /// it.
    pub(crate) fn new(root: &str, name: &LockName, kind: Create) -> Self {
        let root = if root == "/" { "" } else { root };
        Self {
            path: format!("{root}/{name}").into(),
            root_len: root.len(),
            kind,
        }
    }

    /// A directory in this one.
    pub(crate) fn below(&self, segment: &str) -> Self {
        Self {
            path: format!("{}/{segment}", self.path).into(),
            ..self.clone()
        }
    }

    /// Whether the servers remove it when it is empty.
    pub(crate) fn is_container(&self) -> bool {
        self.kind == Create::Container
    }

    /// Makes the directory and everything above it; all creates are sent at once and answered in
    /// order.
    pub(crate) async fn make(&self, session: &Session, name: &LockName) -> Result<()> {
        let doing = "make the directory";
        let link = session
            .link()
            .map_err(|end| end.while_trying(doing, name))?;
        let steps: Vec<(&str, Create)> = self.steps().collect();
        let replies: Vec<Reply<'_, _>> = steps
            .iter()
            .map(|(path, kind)| link.create(path, b"", *kind))
            .collect();
        let mut refusal = None;
        let mut is_missing = false;
        for ((path, _), reply) in steps.iter().zip(replies) {
            // An upper step may be refused and yet be there; only what the last one says counts.
            is_missing = match reply.await {
                Ok(made) => {
                    session.acls.made(path, made.czxid);
                    false
                }
                Err(Fault::Answered(Code::NodeExists)) => false,
                // Something above was refused, or removed again by the server.
                Err(Fault::Answered(Code::NoNode)) => true,
                Err(Fault::Answered(Code::NotNow(why)) | Fault::Unknown(why)) => {
                    tracing::debug!(why, "a directory's create has no result");
                    false
                }
                Err(Fault::Answered(code) | Fault::Refused(_, code)) => {
                    refusal.get_or_insert_with(|| refused(session, doing, path, &code));
                    true
                }
            };
        }
        // Without a refusal the ticket's create tells, and comes back here if need be.
        refusal.filter(|_| is_missing).map_or(Ok(()), Err)
    }

    fn steps(&self) -> impl Iterator<Item = (&str, Create)> {
        let ends = self
            .path
            .match_indices('/')
            .map(|(at, _)| at)
            .filter(|at| *at > 0);
        ends.chain([self.path.len()]).map(|end| {
            let kind = if end <= self.root_len {
                Create::Persistent
            } else {
                self.kind
            };
            (&self.path[..end], kind)
        })
    }

    /// Waits until the directory is gone, and removes it as soon as it is empty, so that its
    /// numbers start again.
    pub(crate) async fn wait_out(&self, session: &Session, name: &LockName) -> Result<()> {
        let doing = "start the numbers again in";
        let ended = |end: End| end.while_trying(doing, name);
        loop {
            match self.is_empty(session).await {
                Ok(None) => return Ok(()),
                Ok(Some(true)) => {}
                Ok(Some(false)) => {
                    session.reconnected(PAUSE).await.map_err(ended)?;
                    continue;
                }
                Err(failure) => return Err(failed(session, doing, name, &self.path, failure)),
            }
            let link = session.link().map_err(ended)?;
            match link.delete(&self.path).await {
                Ok(()) | Err(Fault::Answered(Code::NoNode)) => return Ok(()),
                Err(Fault::Answered(Code::NotEmpty | Code::NotNow(_)) | Fault::Unknown(_)) => {}
                Err(Fault::Answered(code) | Fault::Refused(_, code)) => {
                    return Err(refused(session, doing, &self.path, &code));
                }
            }
            drop(link);
            session.reconnected(PAUSE).await.map_err(ended)?;
        }
    }

    /// Whether the directory is empty, if it is there. What another program keeps in it would never
    /// be empty, or be lost: then it is better to say so than to wait for ever.
    async fn is_empty(&self, session: &Session) -> Result<Option<bool>, Failure> {
        let found = session
            .read(|link| link.multi_read(&[Read::Data(&self.path), Read::Children(&self.path)]))
            .await?;
        let mut found = found.into_iter();
        let (node, children) = (node_in(found.next())?, children_in(found.next())?);
        let is_stuck = |why: &str| {
            let why = format!("its counter has run out, and it cannot be removed because {why}");
            Err(Failure::Answered(Code::Other(why)))
        };
        if node.is_some_and(|node| !DirectoryData::parse(&node.data).is_ours()) {
            return is_stuck("it holds another program's data");
        }
        match children.as_deref() {
            Some(all @ [other, ..]) if all.iter().all(|child| Ticket::parse(child).is_none()) => {
                is_stuck(&format!("it holds {other:?}"))
            }
            children => Ok(children.map(<[String]>::is_empty)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_is_persistent_and_the_rest_as_asked() {
        let name = LockName::new("a/b").unwrap();
        let directory = Directory::new("/x/locks", &name, Create::Container);

        let steps: Vec<_> = directory.steps().collect();

        assert_eq!(
            steps,
            [
                ("/x", Create::Persistent),
                ("/x/locks", Create::Persistent),
                ("/x/locks/a", Create::Container),
                ("/x/locks/a/b", Create::Container),
            ]
        );
        assert_eq!(&*Directory::new("/", &name, Create::Container).path, "/a/b");
    }
}
