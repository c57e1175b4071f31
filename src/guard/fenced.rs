//! Fenced writes: changes to nodes of the user's own that commit only while a guard's ticket is
//! there.
//!
//! Invariant: the ticket's check and the writes are one `multi`. It never repeats a write whose
//! outcome is unknown.

use crate::brief::shows;
use crate::error::{Error, Result};
use crate::guard::held_ticket::HeldTicket;
use crate::guard::hold::Hold;
use crate::link::{ANY_VERSION, Code, Fault, Write};
use crate::session::setbacks::Setbacks;
use crate::session::{refused, too_large};

const WRITING: &str = "write to";

/// Writes that commit, all or none, only while the lock is held; from
/// [`Guard::fenced`](crate::Guard::fenced).
///
/// The servers themselves decide: however late the request arrives, it changes nothing once the
/// ticket is gone, so no token and no clock is needed. For data that lives in ZooKeeper. Paths are
/// absolute, below the chroot of the connect string; versions are those of the nodes' data, `None`
/// for any.
///
/// One thing can deceive the servers, because they check names and versions and not identities:
/// while a request is under way and our session lives, somebody deletes the ticket by hand, the
/// empty directory is removed, and the next holder has the same number at the same version of the
/// new one. With [`persistent_directories`](crate::KeeperBuilder::persistent_directories) it cannot
/// happen.
///
/// Sends two requests: a look at the ticket's identity, and the writes behind a check that neither
/// the ticket nor the lock's directory has changed since.
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
#[must_use = "nothing is written until commit is called"]
pub struct Fenced<'a> {
    hold: &'a Hold,
    changes: Vec<FencedWrite>,
}

shows!(|fenced| Fenced<'_> {
    name: fenced.hold.held().name,
    token: fenced.hold.token,
    changes: fenced.changes.len(),
});

enum FencedWrite {
    Create(String, Vec<u8>),
    Set(String, Vec<u8>, i32),
    Delete(String, i32),
}

impl FencedWrite {
    fn path(&self) -> &str {
        match self {
            Self::Create(path, _) | Self::Set(path, ..) | Self::Delete(path, _) => path,
        }
    }

    fn write(&self) -> Write<'_> {
        match self {
            Self::Create(path, data) => Write::Create { path, data },
            Self::Set(path, data, version) => Write::set(path, data, *version),
            &Self::Delete(ref path, version) => Write::Delete { path, version },
        }
    }
}

impl<'a> Fenced<'a> {
    pub(crate) fn new(hold: &'a Hold) -> Self {
        Self {
            hold,
            changes: Vec::new(),
        }
    }

    /// Creates a node that stays. Its parent must be there.
    pub fn create(mut self, path: impl Into<String>, data: impl Into<Vec<u8>>) -> Self {
        self.changes
            .push(FencedWrite::Create(path.into(), data.into()));
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
            .push(FencedWrite::Set(path.into(), data.into(), version));
        self
    }

    /// Deletes a node.
    pub fn delete(mut self, path: impl Into<String>, version: Option<i32>) -> Self {
        let version = version.unwrap_or(ANY_VERSION);
        self.changes.push(FencedWrite::Delete(path.into(), version));
        self
    }

    /// Writes everything, or nothing.
    ///
    /// # Errors
    ///
    /// [`Error::TooLarge`] for more than servers read in one request, 1 MiB: nothing was sent.
    /// [`is_lost`](Error::is_lost) if the lock is no longer ours: nothing was written.
    /// [`Error::Refused`] or [`Error::Denied`] with the path that the server refused: nothing was
    /// written. [`is_unknown`](Error::is_unknown) if the reply was lost: look before you repeat.
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: once it was polled, the writes may happen although the future was dropped.
    /// They never happen after the ticket is gone.
    pub async fn commit(self) -> Result<()> {
        let hold = self.hold;
        let session = hold.held().session();
        let tickets: Vec<String> = hold.all_held.iter().map(HeldTicket::path).collect();
        let unread = vec![ANY_VERSION; tickets.len()];
        session
            .check_size(&self.writes(&tickets, unread))
            .map_err(|over| {
                let what = format!("the fenced writes of {}", hold.held().name);
                too_large("send", what, over)
            })?;
        let mut setbacks = Setbacks::default();
        loop {
            if let Some(loss) = hold.loss() {
                return Err(loss);
            }
            let reading = async {
                let mut versions = Vec::new();
                for held in &hold.all_held {
                    versions.push(Self::version(held).await?);
                }
                Ok::<_, Error>(versions)
            };
            let versions = tokio::select! {
                biased;
                error = hold.lost() => return Err(error),
                versions = reading => versions?,
            };
            let writes = self.writes(&tickets, versions);
            let own = writes.len() - self.changes.len();
            let link = session
                .link()
                .map_err(|end| end.while_trying(WRITING, &hold.held().name))?;
            let reply = link.multi(&writes);
            let answer = tokio::select! {
                answer = reply => answer,
                end = session.ended() => return Err(self.unknown(&format!("{end:?}"))),
            };
            let directory = &**hold.held().place.directory();
            let (at, code) = match answer {
                Ok(_) => return Ok(()),
                Err(Fault::Refused(at, code)) => (at, code),
                Err(Fault::Answered(Code::NotNow(why)) | Fault::Unknown(why)) => {
                    return Err(self.unknown(&why));
                }
                Err(Fault::Answered(code)) => {
                    return Err(refused(session, WRITING, directory, &code));
                }
            };
            match at.checked_sub(own) {
                Some(at) => {
                    let path = self.changes.get(at).map_or(directory, FencedWrite::path);
                    return Err(refused(session, WRITING, path, &code));
                }
                // The directory has changed since the look, or the ticket is gone: the next look
                // tells.
                None if matches!(code, Code::NoNode | Code::BadVersion) => {
                    let back = session.reconnected(setbacks.pause_after_a_race()).await;
                    back.map_err(|end| end.while_trying(WRITING, &hold.held().name))?;
                }
                None => {
                    let ticket = tickets.get(at / 2).map_or(directory, String::as_str);
                    return Err(refused(session, WRITING, ticket, &code));
                }
            }
        }
    }

    /// The changes, behind checks of our tickets and of the versions of their directories.
    fn writes<'b>(&'b self, tickets: &'b [String], versions: Vec<i32>) -> Vec<Write<'b>> {
        let mut writes = Vec::new();
        for ((held, ticket), version) in self.hold.all_held.iter().zip(tickets).zip(versions) {
            let path = &**held.place.directory();
            writes.push(Write::check(ticket));
            writes.push(Write::Check { path, version });
        }
        writes.extend(self.changes.iter().map(FencedWrite::write));
        writes
    }

    /// The version of the directory, read together with the ticket.
    async fn version(held: &HeldTicket) -> Result<i32> {
        let read = held.place.verified_read(&[], false).await;
        let read = read.map_err(|error| held.failed("look at", &held.path(), error));
        read.map(|read| read.directory.version)
    }

    fn unknown(&self, why: &str) -> Error {
        Error::OutcomeUnknown {
            name: self.hold.held().name.to_string(),
            doing: "the write",
            why: why.to_owned(),
        }
    }
}
