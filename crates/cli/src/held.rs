//! What `run` and `elect` ask for, and what they hold then, whatever kind of lock that is.
//!
//! It only passes on: what a lock is and when it is lost, the library knows.

use std::time::Duration;

use futures_util::future::BoxFuture;
use lockkeeper::compat::{PlainGuard, PlainMutex, PlainStore};
use lockkeeper::{
    Election, Error, Guard, Keeper, Leadership, LockKind, LockName, MultiGuard, MultiLock, Mutex,
    Owner, Permit, QueueEntry, ReadGuard, Result, RwLock, Semaphore,
};

use crate::args::{Run, Work};
use crate::grammar::Permits;
use crate::label;
use crate::trace;

/// What our ticket says of us.
pub(crate) struct Badge {
    pub(crate) label: String,
    pub(crate) trace_id: Option<String>,
}

impl Badge {
    pub(crate) fn of(work: &Work) -> Self {
        Self {
            label: work
                .label
                .clone()
                .unwrap_or_else(|| label::of(&work.command)),
            trace_id: trace::own(),
        }
    }
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
    /// With its owner's name.
    Alone(Mutex, Option<String>),
    Shared(RwLock, Option<String>),
    Permits(Semaphore, Permits),
    Several(MultiLock),
    /// With a value.
    Lead(Election, String),
    Plain(PlainMutex<dyn PlainStore>),
}

impl Wanted {
    /// What the words of the command line ask for; mixes that cannot be were refused before.
    pub(crate) fn of(keeper: &Keeper, order: &Run) -> Result<Self> {
        let badge = Badge::of(&order.work);
        let owned = order.owner.clone();
        let owner = owned.as_deref().map(Owner::named);
        let [name] = &order.names[..] else {
            let names = order.names.iter().map(String::as_str);
            return Ok(Self::Several(badged!(keeper.multi_lock(names)?, badge)));
        };
        let name = LockName::new(name)?;
        if let Some(permits) = order.permits {
            let semaphore = keeper.semaphore(name, permits.limit)?;
            return Ok(Self::Permits(badged!(semaphore, badge), permits));
        }
        if order.shared {
            let lock = badged!(keeper.rw_lock(name)?, badge);
            let lock = match &owner {
                Some(owner) => lock.with_owner(owner),
                None => lock,
            };
            return Ok(Self::Shared(lock, owned));
        }
        let lock = badged!(keeper.mutex(name)?, badge);
        let lock = match &owner {
            Some(owner) => lock.with_owner(owner),
            None => lock,
        };
        Ok(Self::Alone(lock, owned))
    }

    /// Whether it is granted only when that holder has left.
    pub(crate) fn waits_for(&self, holder: &QueueEntry) -> bool {
        let is_other = |owner: &Option<String>| owner.is_none() || *owner != holder.owner;
        match self {
            // An owner that reads does not get the lock alone.
            Self::Alone(_, owner) => holder.kind == LockKind::Read || is_other(owner),
            Self::Shared(_, owner) => holder.kind != LockKind::Read && is_other(owner),
            Self::Permits(_, permits) => {
                let left = permits
                    .limit
                    .saturating_sub(holder.permits.unwrap_or_default());
                permits.count > left
            }
            Self::Several(_) | Self::Lead(..) => true,
            // It is in no queue.
            Self::Plain(_) => false,
        }
    }

    /// Whether that holder would let it in, but not one who waits for that holder and comes first.
    pub(crate) fn waits_behind(&self, waiter: &QueueEntry, holder: &QueueEntry) -> bool {
        let permits = |ticket: &QueueEntry| ticket.permits.unwrap_or_default();
        match self {
            _ if waiter.is_holder => false,
            Self::Shared(_, owner) => {
                waiter.kind != LockKind::Read && (owner.is_none() || *owner != holder.owner)
            }
            Self::Permits(_, wanted) => {
                permits(waiter) > wanted.limit.saturating_sub(permits(holder))
            }
            Self::Alone(..) | Self::Several(_) | Self::Lead(..) | Self::Plain(_) => false,
        }
    }

    pub(crate) async fn take(&self) -> Result<Held> {
        Ok(match self {
            Self::Alone(lock, _) => Held::Alone(lock.lock().await?),
            Self::Shared(lock, _) => Held::Shared(lock.read().await?),
            Self::Permits(semaphore, permits) => {
                Held::Permits(semaphore.acquire_many(permits.count).await?)
            }
            Self::Several(locks) => Held::Several(locks.lock().await?),
            Self::Lead(election, value) => Held::Lead(election.campaign(value.as_str()).await?),
            Self::Plain(lock) => Held::Plain(lock.lock().await?),
        })
    }

    pub(crate) async fn try_take(&self) -> Result<Option<Held>> {
        Ok(match self {
            Self::Alone(lock, _) => lock.try_lock().await?.map(Held::Alone),
            Self::Shared(lock, _) => lock.try_read().await?.map(Held::Shared),
            Self::Permits(semaphore, permits) => {
                let permit = semaphore.try_acquire_many(permits.count).await?;
                permit.map(Held::Permits)
            }
            Self::Several(locks) => locks.try_lock().await?.map(Held::Several),
            Self::Lead(election, value) => {
                let elected = election.try_campaign(value.as_str()).await?;
                elected.map(Held::Lead)
            }
            Self::Plain(lock) => lock.try_lock().await?.map(Held::Plain),
        })
    }

    pub(crate) async fn take_within(&self, limit: Duration) -> Result<Held> {
        Ok(match self {
            Self::Alone(lock, _) => Held::Alone(lock.lock_timeout(limit).await?),
            Self::Shared(lock, _) => Held::Shared(lock.read_timeout(limit).await?),
            Self::Permits(semaphore, permits) => {
                Held::Permits(semaphore.acquire_many_timeout(permits.count, limit).await?)
            }
            Self::Several(locks) => Held::Several(locks.lock_timeout(limit).await?),
            Self::Lead(election, value) => {
                Held::Lead(election.campaign_timeout(value.as_str(), limit).await?)
            }
            Self::Plain(lock) => Held::Plain(lock.lock_timeout(limit).await?),
        })
    }

    /// What frees the lock when we cannot.
    pub(crate) fn freed_by(&self) -> &'static str {
        match self {
            Self::Plain(_) => "the end of its ttl",
            _ => "the end of the session",
        }
    }
}

/// A lock that is held.
pub(crate) enum Held {
    Alone(Guard),
    Shared(ReadGuard),
    Permits(Permit),
    Several(MultiGuard),
    Lead(Leadership),
    Plain(PlainGuard<dyn PlainStore>),
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
            Held::Plain($guard) => $call,
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
            Self::Plain(guard) => guard.token_if_any(),
            // Who shares has nothing that only it may write with.
            Self::Shared(_) | Self::Permits(_) => None,
        };
        let lines = |all: Vec<&str>| Some(all.join("\n")).filter(|lines| !lines.is_empty());
        let (names, nodes) = self.tickets().into_iter().unzip();
        let names = match self {
            Self::Plain(guard) => Some(guard.name().to_owned()),
            _ => lines(names),
        };
        [
            ("LOCKKEEPER_NAME", names),
            ("LOCKKEEPER_TOKEN", token.map(|token| token.to_string())),
            ("LOCKKEEPER_NODE", lines(nodes)),
        ]
    }

    /// The lock and the node of each ticket. A plain lock has none.
    pub(crate) fn tickets(&self) -> Vec<(&str, &str)> {
        match self {
            Self::Alone(guard) => vec![(guard.name().as_str(), guard.node())],
            Self::Shared(guard) => vec![(guard.name().as_str(), guard.node())],
            Self::Permits(guard) => vec![(guard.name().as_str(), guard.node())],
            Self::Lead(guard) => vec![(guard.name().as_str(), guard.node())],
            Self::Several(guard) => {
                let names = guard.names().map(LockName::as_str);
                names.zip(guard.nodes()).collect()
            }
            Self::Plain(_) => Vec::new(),
        }
    }

    pub(crate) fn is_held(&self) -> bool {
        each!(self, guard => guard.is_held())
    }

    pub(crate) fn valid_for(&self) -> Duration {
        each!(self, guard => guard.valid_for())
    }

    pub(crate) fn lost(&self) -> BoxFuture<'static, Error> {
        each!(self, guard => Box::pin(guard.lost()))
    }

    /// Until another client asks for it back. A leader is not asked, and a plain lock cannot be.
    pub(crate) async fn revoked(&self) -> Result<()> {
        match self {
            Self::Alone(guard) => guard.revoked().await,
            Self::Shared(guard) => guard.revoked().await,
            Self::Permits(guard) => guard.revoked().await,
            Self::Several(guard) => guard.revoked().await,
            Self::Lead(_) | Self::Plain(_) => std::future::pending().await,
        }
    }

    pub(crate) async fn release(self) -> Result<(), Error> {
        each!(self, guard => guard.release().await)
    }
}
