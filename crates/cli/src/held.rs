//! What `run` and `elect` ask for, and what they hold then, whatever kind of lock that is.
//!
//! It only passes on: what a lock is and when it is lost, the library knows.

use std::path::Path;
use std::time::Duration;

use futures_util::future::BoxFuture;
use lockkeeper::compat::{PlainGuard, PlainMutex, PlainStore};
use lockkeeper::{
    Election, Error, Guard, Keeper, Leadership, LockName, MultiGuard, MultiLock, Mutex, Owner,
    Permit, ReadGuard, Result, RwLock, Semaphore,
};

use crate::args::{Run, Work};
use crate::trace;

/// The longest label that we choose, in characters.
const LABEL: usize = 40;

/// What our ticket says of us.
pub(crate) struct Badge {
    pub(crate) label: String,
    pub(crate) trace_id: Option<String>,
}

impl Badge {
    pub(crate) fn of(work: &Work) -> Self {
        Self {
            label: label(work),
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
    Alone(Mutex),
    Shared(RwLock),
    Permits(Semaphore, u32),
    Several(MultiLock),
    /// With a value.
    Lead(Election, String),
    Plain(PlainMutex<dyn PlainStore>),
}

impl Wanted {
    /// What the words of the command line ask for; mixes that cannot be were refused before.
    pub(crate) fn of(keeper: &Keeper, order: &Run) -> Result<Self> {
        let badge = Badge::of(&order.work);
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
            Self::Plain(lock) => Held::Plain(lock.lock().await?),
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
            Self::Plain(lock) => lock.try_lock().await?.map(Held::Plain),
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
        let (names, nodes) = match self {
            Self::Alone(guard) => (guard.name().to_string(), Some(guard.node().to_owned())),
            Self::Shared(guard) => (guard.name().to_string(), Some(guard.node().to_owned())),
            Self::Permits(guard) => (guard.name().to_string(), Some(guard.node().to_owned())),
            Self::Lead(guard) => (guard.name().to_string(), Some(guard.node().to_owned())),
            Self::Plain(guard) => (guard.name().to_owned(), None),
            Self::Several(guard) => {
                let names: Vec<&str> = guard.names().map(LockName::as_str).collect();
                (
                    names.join("\n"),
                    Some(guard.nodes().collect::<Vec<_>>().join("\n")),
                )
            }
        };
        [
            ("LOCKKEEPER_NAME", Some(names)),
            ("LOCKKEEPER_TOKEN", token.map(|token| token.to_string())),
            ("LOCKKEEPER_NODE", nodes),
        ]
    }

    /// The variables that may have our secrets.
    pub(crate) fn secrets(&self) -> &'static [&'static str] {
        match self {
            // The URL has a password.
            Self::Plain(_) => &["LOCKKEEPER_AUTH", "LOCKKEEPER_SERVERS", "LOCKKEEPER_ZK"],
            _ => &["LOCKKEEPER_AUTH"],
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

/// What those who look at the queue see: the text that was given, or the program's name. Its
/// arguments may be secrets, and every client there can read it.
fn label(work: &Work) -> String {
    let program = || {
        let program = Path::new(work.command.first()?).file_name()?;
        Some(program.to_string_lossy().chars().take(LABEL).collect())
    };
    work.label.clone().or_else(program).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Arguments, Order};

    #[test]
    fn a_label_tells_the_program_and_no_argument() {
        let label = |words: &str| {
            let words = format!("lockkeeper run x {words}");
            let arguments = Arguments::read(words.split(' '), &[]).unwrap();
            let Order::Run(run) = arguments.order else {
                panic!("{words}");
            };
            label(&run.work)
        };

        assert_eq!(label("-- ./login.sh hunter2"), "login.sh");
        assert_eq!(label("-- mysql -psecret db"), "mysql");
        assert_eq!(label("-- env PASSWORD=x cmd"), "env");
        assert_eq!(label(&format!("-- {}", "x".repeat(99))).len(), LABEL);
        assert_eq!(label("--label nightly -- ./backup.sh full"), "nightly");
    }
}
