//! The permits of a semaphore: the directory of the permits that are held, and the stored limit.
//!
//! Invariants: the stored limit is the only one that counts, and changes only at the version that
//! was read; a handle that has never looked refuses a stored limit which differs from its own. It
//! takes no permits: the head does.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use uuid::fmt::Hyphenated;

use super::directory::Directory;
use super::doubts;
use super::join::MOST_SETBACKS;
use crate::error::{Error, Result};
use crate::link::{ANY_VERSION, Code, Create, Fault, Found, Node, Read, Write};
use crate::name::LockName;
use crate::protocol::dialect::{check_neighbours, in_doubt};
use crate::protocol::permits;
use crate::protocol::permits::{HELD, LIMIT, QUEUE};
use crate::session::setbacks::Setbacks;
use crate::session::{Failure, Session, failed, refused};

/// What Curator's semaphore has below the same name.
const CURATORS_LEASES: &str = "leases";

/// Between two looks whether whoever joins the queue of another lock has left, as it does at once.
const PAUSE: Duration = Duration::from_millis(5);

const LOOKING: &str = "look at";
const MAKING: &str = "store the limit of";
const RESIZING: &str = "resize";

/// Where a semaphore's permits are, and how many there may be.
#[derive(Debug)]
pub(crate) struct PermitPool {
    name: LockName,
    base: Directory,
    pub(super) held: Directory,
    pub(super) limit: Arc<str>,
    /// The limit of this handle and its clones.
    given: u32,
    /// The stored limit that was seen last; 0 before the first look.
    known: AtomicU32,
}

/// The limit as it is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Limit {
    pub(super) value: u32,
    pub(super) version: i32,
}

/// The permits at one moment.
#[derive(Debug)]
pub(super) struct PermitSnapshot {
    pub(super) children: Vec<String>,
    /// The version of the directory of permits; none if it is not there.
    pub(super) held: Option<i32>,
    pub(super) limit: Option<Limit>,
    /// The nodes whose access lists matter, unless ours is open.
    pub(super) nodes: Vec<(Arc<str>, Node)>,
}

impl PermitSnapshot {
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.children.iter().map(String::as_str)
    }
}

impl PermitPool {
    pub(super) fn new(name: LockName, base: Directory, given: u32) -> Self {
        Self {
            name,
            held: base.below(HELD),
            limit: format!("{}/{LIMIT}", base.path).into(),
            base,
            given,
            known: AtomicU32::new(0),
        }
    }

    /// What a head watches.
    pub(super) fn watched(&self) -> impl Iterator<Item = &str> {
        [&*self.held.path, &*self.limit].into_iter()
    }

    /// Bytes of the longest path of a permit.
    pub(super) fn permit_len(&self) -> usize {
        let name = permits::start_of(u32::MAX).len() + Hyphenated::LENGTH;
        self.held.path.len() + 1 + name
    }

    /// The limit that is stored, or what this handle knows of it.
    pub(super) fn limit_or(&self, stored: Option<Limit>) -> u32 {
        stored.map_or_else(|| self.limit(), |limit| limit.value)
    }

    /// The limit as far as this handle knows; its own before the first look.
    pub(crate) fn limit(&self) -> u32 {
        match self.known.load(Ordering::Relaxed) {
            0 => self.given,
            known => known,
        }
    }

    /// Whether nobody has looked yet through this handle.
    fn is_unknown(&self) -> bool {
        self.known.load(Ordering::Relaxed) == 0
    }

    pub(super) fn too_many(&self, asked: u32, limit: u32) -> Error {
        Error::TooManyPermits {
            name: self.name.to_string(),
            asked,
            limit,
        }
    }

    /// Refuses what is never there. What this handle has not looked for yet is judged by its own
    /// limit and costs nothing; a stored limit may have grown since it was seen.
    pub(super) async fn check(&self, session: &Session, asked: u32) -> Result<()> {
        if asked <= self.limit() {
            return Ok(());
        }
        // A server that lags behind may not know of a resize yet.
        self.catch_up(session).await?;
        let limit = self.current(session).await?;
        if asked <= limit {
            return Ok(());
        }
        Err(self.too_many(asked, limit))
    }

    /// As [`check`](Self::check), as far as that needs no look.
    pub(crate) fn check_own(&self, asked: u32) -> Result<()> {
        if asked == 0 {
            return Err(Error::InvalidOption {
                what: "permits",
                given: "0".into(),
                why: "it must be at least 1".into(),
            });
        }
        if self.is_unknown() && asked > self.given {
            return Err(self.too_many(asked, self.given));
        }
        Ok(())
    }

    /// The stored limit; this handle's own if none is stored.
    pub(super) async fn current(&self, session: &Session) -> Result<u32> {
        match self.stored(session).await? {
            Some(stored) => {
                self.learn(session, stored).await?;
                Ok(self.limit())
            }
            None => Ok(self.limit()),
        }
    }

    /// Looks at the stored limit, unless somebody did through this handle, and stores ours if there
    /// is none.
    pub(super) async fn introduce(&self, session: &Session) -> Result<()> {
        let mut setbacks = Setbacks::default();
        let mut is_ours = false;
        while self.is_unknown() {
            match self.stored_or_taken_back(session, is_ours).await? {
                Some(stored) => self.learn(session, stored).await?,
                None => is_ours = self.store(session, self.given, &mut setbacks).await?,
            }
        }
        Ok(())
    }

    /// Takes in a stored limit that was read. The first one must be this handle's own; then the
    /// handle follows it.
    pub(super) async fn learn(&self, session: &Session, stored: Limit) -> Result<()> {
        let mut stored = stored;
        if self.is_unknown() && stored.value != self.given {
            // A server that lags behind may not know of a resize yet.
            self.catch_up(session).await?;
            if let Some(newer) = self.stored(session).await? {
                stored = newer;
            }
            if stored.value != self.given {
                return Err(Error::LimitMismatch {
                    name: self.name.to_string(),
                    ours: self.given,
                    theirs: stored.value,
                });
            }
        }
        self.known.store(stored.value, Ordering::Relaxed);
        Ok(())
    }

    /// Waits until the server has seen everything that was committed before.
    pub(super) async fn catch_up(&self, session: &Session) -> Result<()> {
        match session.read(|link| link.sync(&self.limit)).await {
            // What is missing cannot be synced everywhere; that is an answer too.
            Ok(()) | Err(Failure::Answered(_)) => Ok(()),
            Err(ended) => Err(self.failed(session, LOOKING, ended)),
        }
    }

    /// Stores a limit where none is stored, and says whether this call surely has. A directory that
    /// is not there is made, but not for ever.
    pub(super) async fn store(
        &self,
        session: &Session,
        value: u32,
        setbacks: &mut Setbacks,
    ) -> Result<bool> {
        let ended = |end: crate::session::End| end.while_trying(MAKING, &self.name);
        let link = session.link().map_err(ended)?;
        let data = permits::limit_to_bytes(value);
        let created = tokio::select! {
            created = link.create(&self.limit, &data, Create::Persistent) => created,
            end = session.ended() => return Err(ended(end)),
        };
        let again = match created {
            Ok(made) => {
                session.acls.made(&self.limit, made.czxid);
                return Ok(true);
            }
            Err(Fault::Answered(Code::NodeExists)) => Ok(()),
            Err(Fault::Answered(Code::NoNode)) if setbacks.count() < MOST_SETBACKS => {
                // At once: that is how a new semaphore begins, and a chroot that has gone is to be
                // said soon.
                setbacks.pause();
                self.base.make(session, &self.name).await
            }
            Err(Fault::Answered(Code::NotNow(why)) | Fault::Unknown(why)) => {
                tracing::debug!(why, "a limit's create has no result");
                session.reconnected(setbacks.pause()).await.map_err(ended)
            }
            Err(Fault::Answered(code)) => Err(refused(&*link, MAKING, &self.limit, &code)),
        };
        again.map(|()| false)
    }

    /// Stores another limit. A lost reply is settled by reading: the version lets one of two tries
    /// in.
    pub(super) async fn resize(&self, session: &Session, new: u32) -> Result<()> {
        let ended = |end: crate::session::End| end.while_trying(RESIZING, &self.name);
        let data = permits::limit_to_bytes(new);
        // What a server that lags behind takes for the limit may have been changed, and what is
        // stored already is not written.
        self.catch_up(session).await?;
        let mut setbacks = Setbacks::default();
        let mut is_ours = false;
        loop {
            let Some(stored) = self.stored_or_taken_back(session, is_ours).await? else {
                is_ours = self.store(session, new, &mut setbacks).await?;
                continue;
            };
            if stored.value == new {
                self.known.store(new, Ordering::Relaxed);
                return Ok(());
            }
            let link = session.link().map_err(ended)?;
            let write = Write::Set {
                path: &self.limit,
                data: &data,
                version: stored.version,
            };
            let answer = tokio::select! {
                answer = link.attempt(&[write]) => answer,
                end = session.ended() => return Err(ended(end)),
            };
            match answer {
                Ok(Ok(_)) => {
                    tracing::debug!(old = stored.value, new, "resized");
                    self.known.store(new, Ordering::Relaxed);
                    return Ok(());
                }
                // Somebody else was faster, or our own try whose reply was lost; or this server
                // lags behind.
                Ok(Err((_, Code::BadVersion | Code::NoNode))) => {
                    let back = session.reconnected(setbacks.pause_after_a_race()).await;
                    back.map_err(ended)?;
                    self.catch_up(session).await?;
                }
                Err(Fault::Answered(Code::NotNow(why)) | Fault::Unknown(why)) => {
                    tracing::debug!(why, "a resize has an unknown outcome");
                    session.reconnected(setbacks.pause()).await.map_err(ended)?;
                }
                Ok(Err((_, code))) | Err(Fault::Answered(code)) => {
                    return Err(refused(&*link, RESIZING, &self.limit, &code));
                }
            }
        }
    }

    /// As [`stored`](Self::stored). If this call has stored the limit itself, beside a lock that
    /// came before it and is there to stay, the name is that lock's, and the limit is removed
    /// again.
    async fn stored_or_taken_back(
        &self,
        session: &Session,
        is_ours: bool,
    ) -> Result<Option<Limit>> {
        let stored = self.stored(session).await;
        if is_ours && matches!(stored, Err(Error::UnsafeMix { .. })) {
            self.take_back(session).await;
        }
        stored
    }

    /// Removes a limit that is as it was stored, while nobody has used the semaphore. Whoever has a
    /// ticket may have a grant under way that relies on the limit and its version, and a new limit
    /// has the same; so it stays where there is a queue, even an empty one. It stays as well if the
    /// server is busy, or its answer is lost: then people remove it.
    async fn take_back(&self, session: &Session) {
        let Ok(link) = session.link() else { return };
        let queue = format!("{}/{QUEUE}", self.base.path);
        let no_queue = Write::Create {
            path: &queue,
            data: b"",
        };
        let [queue, limit] = [(&*queue, ANY_VERSION), (&*self.limit, 0)]
            .map(|(path, version)| Write::Delete { path, version });
        let writes = [no_queue, queue, limit];
        let answer = tokio::select! {
            answer = link.attempt(&writes) => answer,
            _ = session.ended() => return,
        };
        let is_gone = matches!(answer, Ok(Ok(_)));
        tracing::debug!(name = %self.name, is_gone, "a limit beside a lock is taken back");
    }

    /// The limit as it is stored, if it is. Refuses a directory that another library's semaphore,
    /// or another recipe, has in use.
    async fn stored(&self, session: &Session) -> Result<Option<Limit>> {
        let mut setbacks = 0;
        loop {
            let (limit, neighbours) = self.stored_now(session).await?;
            if self
                .is_alone(session, limit, neighbours, &mut setbacks)
                .await?
            {
                return Ok(limit);
            }
        }
    }

    async fn stored_now(&self, session: &Session) -> Result<(Option<Limit>, Result<()>)> {
        let leases = format!("{}/{CURATORS_LEASES}", self.base.path);
        let reads = [
            Read::Data(&self.limit),
            Read::Children(&self.base.path),
            Read::Children(&leases),
        ];
        let found = session.read(|link| link.multi_read(&reads)).await;
        let found = found.map_err(|failure| self.failed(session, LOOKING, failure))?;
        let mut found = found.into_iter();
        let limit = found.next();
        let listed = |found| match found {
            Some(Found::Children(children)) => children,
            _ => Vec::new(),
        };
        let (children, taken) = (listed(found.next()), listed(found.next()));
        let neighbours = async {
            check_neighbours(&self.name, None, &children)?;
            for (path, children) in [(&*self.base.path, &children), (&*leases, &taken)] {
                doubts::read(session, &self.name, path, &in_doubt(None, children, None)).await?;
            }
            Ok(())
        };
        let neighbours = neighbours.await;
        Ok((self.read_limit(session, limit)?, neighbours))
    }

    /// The permits and the limit at one moment.
    pub(super) async fn look(&self, session: &Session) -> Result<PermitSnapshot> {
        let mut setbacks = 0;
        loop {
            let reads = self.reads(session);
            let found = session.read(|link| link.multi_read(&reads)).await;
            let found = found.map_err(|failure| self.failed(session, LOOKING, failure))?;
            let (snapshot, neighbours) = self.snapshot(session, found.into_iter())?;
            let is_alone = self.is_alone(session, snapshot.limit, neighbours, &mut setbacks);
            if is_alone.await? {
                return Ok(snapshot);
            }
        }
    }

    /// Whether nobody is in the way. Beside a limit whoever joins the queue of another lock is
    /// refused and leaves at once, and must not take us along: so only whoever stays refuses us.
    /// `false` after a pause.
    pub(super) async fn is_alone(
        &self,
        session: &Session,
        limit: Option<Limit>,
        neighbours: Result<()>,
        setbacks: &mut u32,
    ) -> Result<bool> {
        match neighbours {
            Err(Error::UnsafeMix { .. }) if limit.is_some() && *setbacks < MOST_SETBACKS => {
                *setbacks += 1;
                let back = session.reconnected(PAUSE).await;
                back.map_err(|end| end.while_trying(LOOKING, &self.name))?;
                Ok(false)
            }
            neighbours => {
                *setbacks = 0;
                neighbours.map(|()| true)
            }
        }
    }

    /// What has to be read for a snapshot, in one request. Whoever may write in the lowest
    /// directory could put another limit there.
    pub(super) fn reads(&self, session: &Session) -> Vec<Read<'_>> {
        let held = &*self.held.path;
        let mut reads = vec![
            Read::Children(held),
            Read::Data(held),
            Read::Data(&self.limit),
            Read::Children(&self.base.path),
        ];
        let checks = !session.acls.is_open();
        reads.extend(checks.then_some(Read::Data(&self.base.path)));
        reads
    }

    /// Takes in what the reads found, with who stands in the name's own queue: with the limit
    /// stored nobody comes to be the first in there, so whoever does was there before it, and is
    /// seen here.
    pub(super) fn snapshot(
        &self,
        session: &Session,
        mut found: impl Iterator<Item = Found>,
    ) -> Result<(PermitSnapshot, Result<()>)> {
        let unreadable = |found: Option<Found>| self.unreadable(session, &self.held.path, found);
        let children = match found.next() {
            Some(Found::Children(children)) => children,
            Some(Found::Failed(Code::NoNode)) => Vec::new(),
            other => return Err(unreadable(other)),
        };
        let (held, limit, beside) = (found.next(), found.next(), found.next());
        let base = found.next();
        let checks = !session.acls.is_open();
        let paths = [&self.held.path, &self.limit, &self.base.path];
        let nodes = paths.into_iter().zip([&held, &limit, &base]);
        let nodes = nodes.filter_map(|(path, found)| match found {
            Some(Found::Node(node)) if checks => Some((Arc::clone(path), node.clone())),
            _ => None,
        });
        let nodes = nodes.collect();
        let held = match held {
            Some(Found::Node(node)) => Some(node.version),
            Some(Found::Failed(Code::NoNode)) => None,
            other => return Err(unreadable(other)),
        };
        let limit = self.read_limit(session, limit)?;
        let neighbours = match beside {
            Some(Found::Children(beside)) => check_neighbours(&self.name, None, &beside),
            Some(Found::Failed(Code::NoNode)) => Ok(()),
            other => return Err(self.unreadable(session, &self.base.path, other)),
        };
        let snapshot = PermitSnapshot {
            children,
            held,
            limit,
            nodes,
        };
        Ok((snapshot, neighbours))
    }

    fn read_limit(&self, session: &Session, found: Option<Found>) -> Result<Option<Limit>> {
        match found {
            Some(Found::Node(node)) => {
                let value = permits::parse_limit(&node.data).ok_or_else(|| {
                    let why = Code::Other("what is stored there is no limit".into());
                    let failure = Failure::Answered(why);
                    failed(session, LOOKING, &self.name, &self.limit, failure)
                })?;
                let version = node.version;
                Ok(Some(Limit { value, version }))
            }
            Some(Found::Failed(Code::NoNode)) => Ok(None),
            other => Err(self.unreadable(session, &self.limit, other)),
        }
    }

    fn unreadable(&self, session: &Session, path: &str, found: Option<Found>) -> Error {
        let code = match found {
            Some(Found::Failed(code)) => code,
            other => Code::Other(format!("unexpected answer {other:?}")),
        };
        let failure = Failure::Answered(code);
        failed(session, LOOKING, &self.name, path, failure)
    }

    fn failed(&self, session: &Session, doing: &'static str, failure: Failure) -> Error {
        failed(session, doing, &self.name, &self.limit, failure)
    }
}
