//! Lock directories: made on demand, and removed when their counter has run out.
//!
//! Invariant: a directory is never removed while a ticket is in it (the server refuses). Directories are containers, so
//! the server may remove an empty one at any time: whoever creates in one starts over on `NoNode`.

use std::sync::Arc;
use std::time::Duration;

use super::ticket::Ticket;
use crate::error::{Error, Result, ServerError};
use crate::link::{Code, Create, Fault, Found, Link, Read, Reply};
use crate::name::LockName;
use crate::session::{Failure, Session, refused};

/// Pause between two looks at a directory whose counter has run out; that happens once in two billion tickets.
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
    /// The directory of a lock below a root, which is `/` or starts with `/` and does not end with it.
    pub(crate) fn new(root: &str, name: &LockName, kind: Create) -> Self {
        let root = if root == "/" { "" } else { root };
        Self {
            path: format!("{root}/{name}").into(),
            root_len: root.len(),
            kind,
        }
    }

    /// Makes the directory and everything above it; all creates are sent at once and answered in order.
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
        let mut first_refusal = None;
        let mut last = Ok(());
        for ((path, _), reply) in steps.iter().zip(replies) {
            last = match reply.await {
                Ok(_) | Err(Fault::Answered(Code::NodeExists)) => Ok(()),
                // What is above was refused, lost, or reaped again: if it was not refused, the create of the ticket
                // comes back here.
                Err(Fault::Answered(Code::NoNode)) => Err(()),
                Err(Fault::Answered(code)) => {
                    first_refusal.get_or_insert_with(|| refused(&*link, doing, path, &code));
                    Err(())
                }
                // The create of the ticket will tell; it comes back here if need be.
                Err(Fault::Unknown(why)) => {
                    tracing::debug!(why, "a directory's create has an unknown outcome");
                    first_refusal = None;
                    Ok(())
                }
            };
        }
        // An upper step may be refused and yet be there; only the last one counts.
        match (last, first_refusal) {
            (Err(()), Some(refusal)) => Err(refusal),
            _ => Ok(()),
        }
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

    /// Waits until the directory is gone, and removes it as soon as it is empty, so that its numbers start again.
    pub(crate) async fn wait_out(&self, session: &Session, name: &LockName) -> Result<()> {
        let doing = "start the numbers again for";
        loop {
            let link = session
                .link()
                .map_err(|end| end.while_trying(doing, name))?;
            match link.delete(&self.path).await {
                Ok(()) | Err(Fault::Answered(Code::NoNode)) => return Ok(()),
                Err(Fault::Answered(Code::NotEmpty)) => {
                    self.refuse_if_stuck(session, &*link, name).await?
                }
                Err(Fault::Answered(code)) => {
                    return Err(refused(&*link, doing, &self.path, &code));
                }
                Err(Fault::Unknown(why)) => {
                    tracing::debug!(why, "the directory could not be removed")
                }
            }
            drop(link);
            session
                .reconnected(PAUSE)
                .await
                .map_err(|end| end.while_trying(doing, name))?;
        }
    }

    /// A directory that holds something else than tickets will never be empty: say so instead of waiting for ever.
    async fn refuse_if_stuck(
        &self,
        session: &Session,
        link: &dyn Link,
        name: &LockName,
    ) -> Result<()> {
        let doing = "start the numbers again in";
        let found = match session
            .read(|link| link.multi_read(&[Read::Children(&self.path)]))
            .await
        {
            Ok(found) => found,
            Err(Failure::Answered(code)) => return Err(refused(link, doing, &self.path, &code)),
            Err(Failure::Ended(end)) => return Err(end.while_trying(doing, name)),
        };
        let Some(Found::Children(children)) = found.into_iter().next() else {
            return Ok(());
        };
        match children.first() {
            Some(other) if children.iter().all(|child| Ticket::parse(child).is_none()) => {
                Err(Error::Refused {
                    doing,
                    path: self.path.to_string(),
                    servers: link.servers().into(),
                    source: ServerError(format!(
                        "its counter has run out, and it cannot be removed because it holds {other:?}"
                    )),
                })
            }
            _ => Ok(()),
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
