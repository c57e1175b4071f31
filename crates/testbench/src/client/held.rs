//! A lock of any recipe, and what holds it, as the loop of a client sees them.

use std::time::Duration;

use lockkeeper::{
    Election, Guard, Keeper, Leadership, Lost, MultiGuard, MultiLock, Mutex, Permit, ReadGuard,
    Result, RwLock, Semaphore, WriteGuard,
};

use super::Recipe;

/// The parts of a lock that readers share, and a writer takes all of.
const READERS: u64 = 1000;

pub(super) enum Lock {
    Mutex(Mutex),
    Read(RwLock),
    Write(RwLock),
    Permit(Semaphore, u32),
    Leader(Election),
    Set(MultiLock),
}

pub(super) enum Held {
    Mutex(Guard),
    Read(ReadGuard),
    Write(WriteGuard),
    Permit(Permit, u32),
    Leader(Leadership),
    Set(MultiGuard),
}

macro_rules! each {
    ($held:expr, $guard:ident => $say:expr) => {
        match $held {
            Held::Mutex($guard) => $say,
            Held::Read($guard) => $say,
            Held::Write($guard) => $say,
            Held::Permit($guard, _) => $say,
            Held::Leader($guard) => $say,
            Held::Set($guard) => $say,
        }
    };
}

impl Lock {
    pub(super) fn of(keeper: &Keeper, recipe: Recipe, name: &str) -> Self {
        let lock = match recipe {
            Recipe::Mutex => keeper.mutex(name).map(Self::Mutex),
            Recipe::Read => keeper.rw_lock(name).map(Self::Read),
            Recipe::Write => keeper.rw_lock(name).map(Self::Write),
            Recipe::Permit(of) => {
                let semaphore = keeper.semaphore(name, of);
                semaphore.map(|semaphore| Self::Permit(semaphore, of))
            }
            Recipe::Leader => keeper.election(name).map(Self::Leader),
            Recipe::Set => {
                let names = ["left", "right"].map(|side| format!("{name}-{side}"));
                keeper.multi_lock(names).map(Self::Set)
            }
        };
        lock.expect("a name")
    }

    /// Waits for it, for so long at most.
    pub(super) async fn take(&self, patience: Option<Duration>) -> Result<Held> {
        let most = patience.unwrap_or(Duration::MAX);
        let is_patient = patience.is_none();
        match self {
            Self::Mutex(lock) if is_patient => lock.lock().await.map(Held::Mutex),
            Self::Mutex(lock) => lock.lock_timeout(most).await.map(Held::Mutex),
            Self::Read(lock) if is_patient => lock.read().await.map(Held::Read),
            Self::Read(lock) => lock.read_timeout(most).await.map(Held::Read),
            Self::Write(lock) if is_patient => lock.write().await.map(Held::Write),
            Self::Write(lock) => lock.write_timeout(most).await.map(Held::Write),
            Self::Permit(lock, of) => {
                let permit = match patience {
                    None => lock.acquire().await,
                    Some(most) => lock.acquire_timeout(most).await,
                };
                permit.map(|permit| Held::Permit(permit, *of))
            }
            Self::Leader(lock) if is_patient => lock.campaign("me").await.map(Held::Leader),
            Self::Leader(lock) => lock.campaign_timeout("me", most).await.map(Held::Leader),
            Self::Set(lock) if is_patient => lock.lock().await.map(Held::Set),
            Self::Set(lock) => lock.lock_timeout(most).await.map(Held::Set),
        }
    }
}

impl Held {
    pub(super) fn is_held(&self) -> bool {
        each!(self, guard => guard.is_held())
    }

    pub(super) fn valid_for(&self) -> Duration {
        each!(self, guard => guard.valid_for())
    }

    pub(super) fn lost(&self) -> Lost {
        each!(self, guard => guard.lost())
    }

    /// None for those that may share.
    pub(super) fn token(&self) -> Option<u64> {
        match self {
            Self::Mutex(guard) => Some(guard.token().into()),
            Self::Write(guard) => Some(guard.token().into()),
            Self::Leader(guard) => Some(guard.token().into()),
            Self::Set(guard) => Some(guard.token().into()),
            Self::Read(_) | Self::Permit(..) => None,
        }
    }

    /// How many parts of how many it takes, where others may hold beside.
    pub(super) fn share(&self) -> Option<(u64, u64)> {
        match self {
            Self::Read(_) => Some((1, READERS)),
            Self::Write(_) => Some((READERS, READERS)),
            Self::Permit(_, of) => Some((1, (*of).into())),
            Self::Mutex(_) | Self::Leader(_) | Self::Set(_) => None,
        }
    }

    pub(super) async fn release(self) -> Result<()> {
        match self {
            Self::Leader(guard) => guard.resign().await,
            Self::Mutex(guard) => guard.release().await,
            Self::Read(guard) => guard.release().await,
            Self::Write(guard) => guard.release().await,
            Self::Permit(guard, _) => guard.release().await,
            Self::Set(guard) => guard.release().await,
        }
    }
}
