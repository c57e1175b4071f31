//! What `run` and `elect` ask for, and what they hold then, whatever kind of lock that is.
//!
//! It only passes on: what a lock is and when it is lost, the library knows.

use std::time::Duration;

use lockkeeper::{
    Election, Error, Guard, Keeper, Leadership, LockName, Lost, MultiGuard, MultiLock, Mutex,
    Owner, Permit, ReadGuard, Result, RwLock, Semaphore,
};

use crate::args::Run;

/// What our ticket says of us.
pub(crate) struct Badge {
    pub(crate) label: String,
    pub(crate) trace_id: Option<String>,
}

/// Gives it to whatever kind of lock it is.
macro_rules! badged {
    ($lock:expr, $badge:expr) => {{
        let $crate::held::Badge { label, trace_id } = $badge;
        let lock = $lock.with_label(label);
        match trace_id {
            Some(trace_id) => lock.with_trace_id(trace_id),
            None => lock,
        }
    }};
}
pub(crate) use badged;

/// A lock that is asked for.
pub(crate) enum Wanted {
    Alone(Mutex),
    Shared(RwLock),
    Permits(Semaphore, u32),
    Several(MultiLock),
    /// With a value.
    Lead(Election, String),
}

impl Wanted {
    /// What the words of the command line ask for; mixes that cannot be were refused before.
    pub(crate) fn of(keeper: &Keeper, order: &Run, badge: Badge) -> Result<Self> {
        let owner = order.owner.as_deref().map(Owner::named);
        let [name] = &order.names[..] else {
            let names = order.names.iter().map(String::as_str);
            return Ok(Self::Several(badged!(keeper.multi_lock(names)?, badge)));
        };
        let name = LockName::new(name)?;
        if let Some(permits) = order.permits {
            let semaphore = keeper.semaphore(name, permits.limit)?;
            return Ok(Self::Permits(badged!(semaphore, badge), permits.count));
        }
        if order.shared {
            let lock = badged!(keeper.rw_lock(name)?, badge);
            return Ok(Self::Shared(match &owner {
                Some(owner) => lock.with_owner(owner),
                None => lock,
            }));
        }
        let lock = badged!(keeper.mutex(name)?, badge);
        Ok(Self::Alone(match &owner {
            Some(owner) => lock.with_owner(owner),
            None => lock,
        }))
    }

    pub(crate) async fn take(&self) -> Result<Held> {
        Ok(match self {
            Self::Alone(lock) => Held::Alone(lock.lock().await?),
            Self::Shared(lock) => Held::Shared(lock.read().await?),
            Self::Permits(semaphore, count) => Held::Permits(semaphore.acquire_many(*count).await?),
            Self::Several(locks) => Held::Several(locks.lock().await?),
            Self::Lead(election, value) => Held::Lead(election.campaign(value.as_str()).await?),
        })
    }

    pub(crate) async fn try_take(&self) -> Result<Option<Held>> {
        Ok(match self {
            Self::Alone(lock) => lock.try_lock().await?.map(Held::Alone),
            Self::Shared(lock) => lock.try_read().await?.map(Held::Shared),
            Self::Permits(semaphore, count) => {
                semaphore.try_acquire_many(*count).await?.map(Held::Permits)
            }
            Self::Several(locks) => locks.try_lock().await?.map(Held::Several),
            Self::Lead(election, value) => {
                let elected = election.try_campaign(value.as_str()).await?;
                elected.map(Held::Lead)
            }
        })
    }

    pub(crate) async fn take_within(&self, limit: Duration) -> Result<Held> {
        Ok(match self {
            Self::Alone(lock) => Held::Alone(lock.lock_timeout(limit).await?),
            Self::Shared(lock) => Held::Shared(lock.read_timeout(limit).await?),
            Self::Permits(semaphore, count) => {
                Held::Permits(semaphore.acquire_many_timeout(*count, limit).await?)
            }
            Self::Several(locks) => Held::Several(locks.lock_timeout(limit).await?),
            Self::Lead(election, value) => {
                Held::Lead(election.campaign_timeout(value.as_str(), limit).await?)
            }
        })
    }
}

/// A lock that is held.
pub(crate) enum Held {
    Alone(Guard),
    Shared(ReadGuard),
    Permits(Permit),
    Several(MultiGuard),
    Lead(Leadership),
}

/// Calls the same method of whatever guard it is.
macro_rules! each {
    ($held:expr, $guard:ident => $call:expr) => {
        match $held {
            Held::Alone($guard) => $call,
            Held::Shared($guard) => $call,
            Held::Permits($guard) => $call,
            Held::Several($guard) => $call,
            Held::Lead($guard) => $call,
        }
    };
}

impl Held {
    /// What the command sees of it; what there is not, it must not inherit from a lock around this
    /// one.
    pub(crate) fn environment(&self) -> [(&'static str, Option<String>); 3] {
        let token = match self {
            Self::Alone(guard) => Some(guard.token()),
            Self::Several(guard) => Some(guard.token()),
            Self::Lead(leadership) => Some(leadership.token()),
            // Who shares has nothing that only it may write with.
            Self::Shared(_) | Self::Permits(_) => None,
        };
        let (names, nodes) = match self {
            Self::Alone(guard) => (guard.name().to_string(), guard.node().to_owned()),
            Self::Shared(guard) => (guard.name().to_string(), guard.node().to_owned()),
            Self::Permits(guard) => (guard.name().to_string(), guard.node().to_owned()),
            Self::Lead(guard) => (guard.name().to_string(), guard.node().to_owned()),
            Self::Several(guard) => {
                let names: Vec<&str> = guard.names().map(LockName::as_str).collect();
                (
                    names.join("\n"),
                    guard.nodes().collect::<Vec<_>>().join("\n"),
                )
            }
        };
        [
            ("LOCKKEEPER_NAME", Some(names)),
            ("LOCKKEEPER_TOKEN", token.map(|token| token.to_string())),
            ("LOCKKEEPER_NODE", Some(nodes)),
        ]
    }

    pub(crate) fn is_held(&self) -> bool {
        each!(self, guard => guard.is_held())
    }

    pub(crate) fn valid_for(&self) -> Duration {
        each!(self, guard => guard.valid_for())
    }

    pub(crate) fn lost(&self) -> Lost {
        each!(self, guard => guard.lost())
    }

    /// Until somebody asks for it back; nobody asks a leader.
    pub(crate) async fn revoked(&self) -> Result<()> {
        match self {
            Self::Alone(guard) => guard.revoked().await,
            Self::Shared(guard) => guard.revoked().await,
            Self::Permits(guard) => guard.revoked().await,
            Self::Several(guard) => guard.revoked().await,
            Self::Lead(_) => std::future::pending().await,
        }
    }

    pub(crate) async fn release(self) -> Result<(), Error> {
        each!(self, guard => guard.release().await)
    }
}
