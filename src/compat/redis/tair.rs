//! TairString of Tair: `EXSET key secret NX PX ttl`, and the version that each value has.
//!
//! Invariants: a lock never exists without its ttl. It is renewed and freed only at the version at
//! which its value was ours, so no other client's lock is touched. A version is remembered across
//! connections: it begins at a number that is as random as the secret, and no other value has.

use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt};
use redis::cmd;
use uuid::Uuid;

use super::connection::Connection;
use super::setnx::{SHORTEST_TTL, check_name, millis};
use crate::compat::keeper::PlainKeeper;
use crate::compat::store::{Acquired, Attempt, Capabilities, PlainStore, StoreResult};
use crate::error::{Result, StoreProblem};

/// For what is seen on any connection.
const ANY: u64 = 0;

/// Locks of Tair's TairString (also an open module for Redis): `EXSET key secret NX PX ttl`.
///
/// A value there has a version, which each write counts up. A renewal is an `EXSET` at the version
/// at which the value was ours, as `EXCAS` has no ttl; a release is an `EXCAD` at that version. A
/// key that is made anew begins at version 1, so that a stranger's lock could have the version of
/// an old one: a hold of this library begins at a random version.
///
/// The tests run on a stand-in that has these commands, and not on Tair itself.
///
/// # What it cannot do
///
/// A key that was set with `SET` is another type, so a [`SetNx`](super::SetNx) lock and one of
/// these with the same name are refused by each other. It is not fair, has no token, and is lost
/// where the server loses data, as with [`SetNx`](super::SetNx).
#[derive(Debug)]
pub struct Tair {
    connection: Connection,
}

impl Tair {
    /// Connects to `redis+tair://[user:password@]host[:port][/database]`.
    ///
    /// # Errors
    ///
    /// As [`SetNx::connect`](super::SetNx::connect). A server without TairString is told at the
    /// first use of a lock.
    pub async fn connect(url: &str) -> Result<PlainKeeper<Self>> {
        let connection = Connection::open(url, "redis+tair").await?;
        Ok(PlainKeeper::new(Self { connection }))
    }

    async fn why_taken(&self, name: &str) -> StoreResult<Acquired> {
        let mut pttl = cmd("PTTL");
        let left: i64 = self.connection.call(pttl.arg(name)).await?;
        // -2 for a key that is gone by now, -1 for one without a ttl.
        let left = left.try_into().ok().map(Duration::from_millis);
        Ok(Acquired::No { left })
    }

    /// The version at which the lock is the attempt's: as it was seen, or as it is read.
    async fn version(&self, attempt: &Attempt, seen: Option<u64>) -> StoreResult<Option<u64>> {
        if seen.is_some() {
            return Ok(seen);
        }
        let mut get = cmd("EXGET");
        let value = self.connection.call(get.arg(&*attempt.name)).await;
        let value: Option<(Vec<u8>, u64)> = match value {
            // Another client has set something else.
            Err(StoreProblem::OtherContent(_)) => None,
            value => value.map_err(no_module)?,
        };
        Ok(value
            .filter(|(secret, _)| secret == attempt.secret.as_bytes())
            .map(|(_, version)| version))
    }
}

impl PlainStore for Tair {
    fn server(&self) -> &str {
        self.connection.server()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            survives_restart: true,
            ..Capabilities::of("redis+tair")
        }
    }

    fn shortest_ttl(&self) -> Duration {
        SHORTEST_TTL
    }

    fn check_name(&self, name: &str) -> Result<(), &'static str> {
        check_name(name)
    }

    fn acquire<'a>(&'a self, attempt: &'a Attempt) -> BoxFuture<'a, StoreResult<Acquired>> {
        async move {
            let mut set = cmd("EXSET");
            set.arg(&*attempt.name).arg(&*attempt.secret);
            set.arg("PX").arg(millis(attempt.ttl)).arg("NX");
            let version = first_version(&attempt.secret);
            set.arg("ABS").arg(version);
            match self.connection.call(&set).await.map_err(no_module)? {
                Some(()) => {
                    attempt.seen.saw(ANY, version);
                    Ok(Acquired::Yes { token: None })
                }
                None => self.why_taken(&attempt.name).await,
            }
        }
        .boxed()
    }

    fn renew<'a>(&'a self, attempt: &'a Attempt) -> BoxFuture<'a, StoreResult<bool>> {
        async move {
            let mut seen = attempt.seen.on(ANY);
            while let Some(version) = self.version(attempt, seen.take()).await? {
                let mut set = cmd("EXSET");
                set.arg(&*attempt.name).arg(&*attempt.secret);
                set.arg("PX").arg(millis(attempt.ttl)).arg("XX");
                set.arg("VER").arg(version);
                match self.connection.call::<Option<()>>(&set).await {
                    Ok(Some(())) => {
                        attempt.seen.saw(ANY, version + 1);
                        return Ok(true);
                    }
                    // It is gone, or something else has its name.
                    Ok(None) | Err(StoreProblem::OtherContent(_)) => return Ok(false),
                    // By another client, or by an earlier request of ours that came late.
                    Err(StoreProblem::Refused(why)) if is_stale(&why) => {}
                    Err(problem) => return Err(problem),
                }
            }
            Ok(false)
        }
        .boxed()
    }

    fn release<'a>(&'a self, attempt: &'a Attempt) -> BoxFuture<'a, StoreResult<bool>> {
        async move {
            let mut seen = attempt.seen.on(ANY);
            while let Some(version) = self.version(attempt, seen.take()).await? {
                let mut delete = cmd("EXCAD");
                delete.arg(&*attempt.name).arg(version);
                match self.connection.call(&delete).await {
                    Ok(1) => return Ok(true),
                    // Another version: it is read again.
                    Ok(0) => {}
                    // -1: it is gone. Or something else has its name.
                    Ok(_) | Err(StoreProblem::OtherContent(_)) => return Ok(false),
                    Err(problem) => return Err(problem),
                }
            }
            Ok(false)
        }
        .boxed()
    }
}

/// Far from the end of the numbers, as each renewal counts it up.
fn first_version(secret: &str) -> u64 {
    let id = Uuid::try_parse(secret).unwrap_or_else(|_| Uuid::new_v4());
    let (random, _) = id.as_u64_pair();
    random >> 2
}

fn is_stale(why: &str) -> bool {
    why.to_ascii_lowercase().contains("version is stale")
}

/// What an unknown command means.
fn no_module(problem: StoreProblem) -> StoreProblem {
    match problem {
        StoreProblem::Refused(why) if why.to_ascii_lowercase().contains("unknown command") => {
            StoreProblem::WrongServer("it has no TairString, which is Tair's".into())
        }
        other => other,
    }
}
