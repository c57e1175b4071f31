//! Fenced writes: changes to nodes of the user's own that commit only while a guard's ticket is there.
//!
//! Invariant: the ticket's check and the writes are one `multi`. It never repeats a write whose outcome is unknown.

use crate::error::{Error, Result};
use crate::guard::Guard;
use crate::link::{ANY_VERSION, Code, Fault, Found, Read, Write};
use crate::session::pulse::Loss;
use crate::session::{Failure, failed, refused};
use crate::token::Token;

const WRITING: &str = "write to";

/// Writes that commit, all or none, only while the lock is held; from [`Guard::fenced`].
///
/// The servers themselves decide: however late the request arrives, it changes nothing once the ticket is gone, so no token and no
/// clock is needed. For data that lives in ZooKeeper. Paths are absolute, below the chroot of the connect string; versions are those
/// of the nodes' data, `None` for any.
///
/// One thing can deceive the servers, because they check names and versions and not identities: while a request is under way and our
/// session lives, somebody deletes the ticket by hand, the empty directory is removed, and the next holder has the same number at the
/// same version of the new one. With [`persistent_directories`](crate::KeeperBuilder::persistent_directories) it cannot happen.
///
/// Sends two requests: a look at the ticket's identity, and the writes behind a check that neither the ticket nor the lock's
/// directory has changed since.
///
/// # Examples
///
/// ```
/// # use lockkeeper::{Keeper, embedded::EmbeddedServer};
/// # #[tokio::main]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = EmbeddedServer::start().await?;
/// let keeper = Keeper::connect(server.connect_string()).await?;
/// let guard = keeper.mutex("schema")?.lock().await?;
/// guard.fenced().create("/schema", "1").commit().await?;
/// guard.fenced().set("/schema", "2", Some(0)).commit().await?;
/// guard.release().await?;
/// # keeper.close().await;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "nothing is written until commit is called"]
pub struct Fenced<'a> {
    guard: &'a Guard,
    changes: Vec<Change>,
}

#[derive(Debug)]
enum Change {
    Create(String, Vec<u8>),
    Set(String, Vec<u8>, i32),
    Delete(String, i32),
}

impl Change {
    fn path(&self) -> &str {
        match self {
            Self::Create(path, _) | Self::Set(path, ..) | Self::Delete(path, _) => path,
        }
    }

    fn write(&self) -> Write<'_> {
        match self {
            Self::Create(path, data) => Write::Create { path, data },
            Self::Set(path, data, version) => Write::Set {
                path,
                data,
                version: *version,
            },
            Self::Delete(path, version) => Write::Delete {
                path,
                version: *version,
            },
        }
    }
}

impl<'a> Fenced<'a> {
    pub(crate) fn new(guard: &'a Guard) -> Self {
        Self {
            guard,
            changes: Vec::new(),
        }
    }

    /// Creates a node that stays. Its parent must be there.
    pub fn create(mut self, path: impl Into<String>, data: impl Into<Vec<u8>>) -> Self {
        self.changes.push(Change::Create(path.into(), data.into()));
        self
    }

    /// Sets a node's data.
    pub fn set(
        mut self,
        path: impl Into<String>,
        data: impl Into<Vec<u8>>,
        version: Option<i32>,
    ) -> Self {
        let version = version.unwrap_or(ANY_VERSION);
        self.changes
            .push(Change::Set(path.into(), data.into(), version));
        self
    }

    /// Deletes a node.
    pub fn delete(mut self, path: impl Into<String>, version: Option<i32>) -> Self {
        let version = version.unwrap_or(ANY_VERSION);
        self.changes.push(Change::Delete(path.into(), version));
        self
    }

    /// Writes everything, or nothing.
    ///
    /// # Errors
    ///
    /// [`is_lost`](Error::is_lost) if the lock is no longer ours: nothing was written. [`Error::Refused`] or [`Error::Denied`] with the
    /// path that the server refused: nothing was written. [`is_unknown`](Error::is_unknown) if the reply was lost: look before
    /// you repeat.
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: once it was polled, the writes may happen although the future was dropped. They never happen after
    /// the ticket is gone.
    pub async fn commit(self) -> Result<()> {
        let guard = self.guard;
        let session = guard.place.session();
        let (ticket, directory) = (guard.path(), &**guard.place.directory());
        let unless_lost = |loss: Loss| guard.error(loss);
        loop {
            if let Some(loss) = guard.hold().loss() {
                return Err(unless_lost(loss));
            }
            let version = tokio::select! {
                biased;
                error = guard.lost() => return Err(error),
                looked = self.look(&ticket) => looked?,
            };
            let mut writes = vec![
                Write::check(&ticket),
                Write::Check {
                    path: directory,
                    version,
                },
            ];
            let own = writes.len();
            writes.extend(self.changes.iter().map(Change::write));
            let link = session
                .link()
                .map_err(|end| end.while_trying(WRITING, guard.name()))?;
            let reply = link.attempt(&writes);
            let answer = tokio::select! {
                answer = reply => answer,
                end = session.ended() => return Err(self.unknown(&format!("{end:?}"))),
            };
            let (at, code) = match answer {
                Ok(Ok(())) => return Ok(()),
                Ok(Err(refusal)) => refusal,
                Err(Fault::Answered(Code::NotNow(why)) | Fault::Unknown(why)) => {
                    return Err(self.unknown(&why));
                }
                Err(Fault::Answered(code)) => {
                    return Err(refused(&*link, WRITING, directory, &code));
                }
            };
            match at.checked_sub(own) {
                Some(at) => {
                    let path = self.changes.get(at).map_or(directory, Change::path);
                    return Err(refused(&*link, WRITING, path, &code));
                }
                // The directory has changed since the look, or the ticket is gone: the next look tells.
                None if matches!(code, Code::NoNode | Code::BadVersion) => {}
                None => return Err(refused(&*link, WRITING, &ticket, &code)),
            }
        }
    }

    /// Reads whether the ticket is ours, and the version of its directory.
    async fn look(&self, ticket: &str) -> Result<i32> {
        let guard = self.guard;
        let session = guard.place.session();
        let directory = &**guard.place.directory();
        let reads = [Read::Data(directory), Read::Data(ticket)];
        let found = session.read(|link| link.multi_read(&reads)).await;
        let refused = |failure| failed(session, "look at", guard.name(), ticket, failure);
        let found = found.map_err(refused)?;
        let gone = match &found[..] {
            [Found::Node(directory), Found::Node(mine)]
                if Token::new(mine.czxid) == guard.token() =>
            {
                return Ok(directory.version);
            }
            [_, Found::Node(_)] => "another ticket stands under its name",
            [_, Found::Failed(Code::NoNode)] => "the ticket was removed",
            [Found::Failed(code), _] | [_, Found::Failed(code)] => {
                return Err(refused(Failure::Answered(code.clone())));
            }
            other => {
                let code = Code::Other(format!("unexpected answer {other:?}"));
                return Err(refused(Failure::Answered(code)));
            }
        };
        guard.hold().lose(gone);
        Err(guard.error(Loss::Gone(gone)))
    }

    fn unknown(&self, why: &str) -> Error {
        Error::OutcomeUnknown {
            name: self.guard.name().to_string(),
            doing: "write",
            why: why.to_owned(),
        }
    }
}
