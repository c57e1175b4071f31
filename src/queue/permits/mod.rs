//! The permits of a semaphore: the directory of the permits that are held, and the stored limit.
//!
//! Invariants: the stored limit is the only one that counts, and changes only at the version that
//! was read; a handle that has never looked refuses a stored limit which differs from its own. It
//! takes no permits: the head does.
//!
//! A semaphore and a lock of one name find each other, whichever comes first. The first ticket
//! in a lock's queue has listed it, and `limit` is there before any permit. The head reads the
//! name's own directory when it reads the permits. A lock whose ticket was there before the
//! limit is seen, or gone, also where a mark granted it without a list.

mod limit;
mod snapshot;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use uuid::fmt::Hyphenated;

use super::directory::Directory;
use crate::error::{Error, Result};
use crate::name::LockName;
use crate::protocol::permits::{self, HELD, LIMIT};
use crate::session::pool::Pool;
use crate::session::setbacks::Setbacks;
use crate::session::{Failure, Session, failed};
pub(super) use snapshot::Limit;

const LOOKING: &str = "look at";
/// Where a semaphore's permits are, and how many there may be.
#[derive(Debug)]
pub(crate) struct PermitPool {
    sessions: Arc<Pool>,
    name: LockName,
    base: Directory,
    pub(super) held: Directory,
    pub(super) limit: Arc<str>,
    /// The limit of this handle and its clones.
    given: u32,
    /// The stored limit that was seen last; 0 before the first look.
    known: AtomicU32,
}

impl PermitPool {
    pub(super) fn new(sessions: &Arc<Pool>, name: LockName, base: Directory, given: u32) -> Self {
        Self {
            sessions: Arc::clone(sessions),
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

    /// A session for reads.
    async fn home(&self) -> Result<Arc<Session>> {
        self.sessions.home(LOOKING, &self.name).await
    }

    /// How many permits nobody holds.
    pub(crate) async fn left(&self) -> Result<u32> {
        let session = self.home().await?;
        self.catch_up(&session).await?;
        let snapshot = self.read(&session).await?;
        let limit = self.limit_or(&session, snapshot.limit).await?;
        Ok(permits::left(snapshot.names(), limit))
    }

    /// The stored limit.
    pub(crate) async fn stored_limit(&self) -> Result<u32> {
        let session = self.home().await?;
        self.catch_up(&session).await?;
        self.current(&session).await
    }

    /// The stored limit, if there is one, whatever this handle's is.
    pub(crate) async fn any_stored_limit(&self) -> Result<Option<u32>> {
        let session = self.home().await?;
        self.catch_up(&session).await?;
        let stored = self.stored(&session).await?;
        Ok(stored.map(|limit| limit.value))
    }

    /// The limit that was read, which this handle takes in, or what it knows of it.
    pub(super) async fn limit_or(&self, session: &Session, stored: Option<Limit>) -> Result<u32> {
        let Some(stored) = stored else {
            return Ok(self.limit());
        };
        self.learn(session, stored).await?;
        Ok(stored.value)
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
    async fn check(&self, session: &Session, asked: u32) -> Result<()> {
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
    fn check_own(&self, asked: u32) -> Result<()> {
        if asked == 0 {
            return Err(Error::invalid("permits", "0", "it must be at least 1"));
        }
        if self.is_unknown() && asked > self.given {
            return Err(self.too_many(asked, self.given));
        }
        Ok(())
    }

    /// The stored limit; this handle's own if none is stored.
    async fn current(&self, session: &Session) -> Result<u32> {
        if let Some(stored) = self.stored(session).await? {
            self.learn(session, stored).await?;
        }
        Ok(self.limit())
    }

    /// Sees to it that a limit is stored and that it is ours, and refuses what would never be
    /// there. It looks at the stored limit, unless somebody did through this handle, and stores
    /// ours if there is none.
    pub(super) async fn introduce(&self, asked: u32) -> Result<Arc<Session>> {
        self.check_own(asked)?;
        let session = self.home().await?;
        let mut setbacks = Setbacks::default();
        let mut is_ours = false;
        while self.is_unknown() {
            match self.stored_or_taken_back(&session, is_ours).await? {
                Some(stored) => self.learn(&session, stored).await?,
                None => is_ours = self.store(&session, self.given, &mut setbacks).await?,
            }
        }
        self.check(&session, asked).await?;
        Ok(session)
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
        let caught_up = session.catch_up(&self.limit).await;
        caught_up.map_err(|ended| self.failed(session, LOOKING, ended))
    }

    fn failed(&self, session: &Session, doing: &'static str, failure: Failure) -> Error {
        failed(session, doing, &self.name, &self.limit, failure)
    }
}
