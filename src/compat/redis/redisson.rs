//! Redisson's `RLock`: a hash with one field `client:thread`, and a ttl.
//!
//! Invariants: the hash never exists without its ttl. It is renewed and freed by scripts that look
//! for the field of the attempt, so no other client's lock is touched. Each release is published.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt};
use redis::{Script, ScriptInvocation};
use tokio::sync::Notify;
use uuid::Uuid;

use super::connection::Connection;
use super::setnx::{SHORTEST_TTL, check_name, millis};
use super::wakeups::Wakeups;
use crate::compat::mutex::PlainKeeper;
use crate::compat::store::{Acquired, Attempt, Capabilities, PlainStore, StoreResult};
use crate::error::{Result, StoreProblem};

/// What Redisson publishes when a lock is free.
const UNLOCKED: u8 = 0;

/// The type of what was there, and the rest of its ttl.
static ACQUIRE: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "local kind = redis.call('type', KEYS[1]).ok \
         if kind ~= 'none' then return {kind, redis.call('pttl', KEYS[1])} end \
         redis.call('hset', KEYS[1], ARGV[1], 1) \
         redis.call('pexpire', KEYS[1], ARGV[2]) return {kind, 0}",
    )
});
static RENEW: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "if redis.call('type', KEYS[1]).ok ~= 'hash' then return 0 end \
         if redis.call('hexists', KEYS[1], ARGV[1]) == 0 then return 0 end \
         return redis.call('pexpire', KEYS[1], ARGV[2])",
    )
});
static RELEASE: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "if redis.call('type', KEYS[1]).ok ~= 'hash' then return 0 end \
         if redis.call('hexists', KEYS[1], ARGV[1]) == 0 then return 0 end \
         redis.call('del', KEYS[1]) \
         redis.call('publish', KEYS[2], ARGV[2]) return 1",
    )
});

/// Locks that `RLock` of Redisson 3 for Java uses (`getLock`), with one server: a hash whose one
/// field is `client:thread`, with the count of holds as its value.
///
/// A release is published, as Redisson does it: waiters in Java and here are woken by it, and
/// nobody asks again and again. Each hold has a client and a thread of its own, so a second call
/// in the same task waits: it is not reentrant. Names and messages are text; Redisson writes both
/// so for a lock with any codec.
///
/// # What it cannot do
///
/// It does not join Redisson's other locks (`getFairLock`, `getReadWriteLock`, `getSpinLock`,
/// `getFencedLock`): use other names than theirs. In a Redis Cluster Redisson publishes in another
/// way. It is not fair, has no token, and is lost where Redis loses data, as with
/// [`SetNx`](super::SetNx).
#[derive(Debug)]
pub struct Redisson {
    connection: Connection,
    wakeups: Wakeups,
}

impl Redisson {
    /// Connects to `redis+redisson://[user:password@]host[:port][/database]`. While a call waits,
    /// there is a second connection.
    ///
    /// # Errors
    ///
    /// As [`SetNx::connect`](super::SetNx::connect).
    pub async fn connect(url: &str) -> Result<PlainKeeper<Self>> {
        let connection = Connection::open(url, "redis+redisson").await?;
        let wakeups = Wakeups::new(connection.client().clone());
        Ok(PlainKeeper::new(Self {
            connection,
            wakeups,
        }))
    }
}

impl PlainStore for Redisson {
    fn server(&self) -> &str {
        self.connection.server()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            wakes_waiters: true,
            survives_restart: true,
            ..Capabilities::of("redis+redisson")
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
            let mut script = with_field(&ACQUIRE, attempt);
            script.arg(millis(attempt.ttl));
            let (kind, left): (String, i64) = self.connection.script(&script).await?;
            match &*kind {
                "none" => Ok(Acquired::Yes { token: None }),
                // -1 for a lock without a ttl.
                "hash" => Ok(Acquired::No {
                    left: left.try_into().ok().map(Duration::from_millis),
                }),
                other => Err(StoreProblem::OtherContent(format!(
                    "the key holds a {other}, and not a lock of Redisson"
                ))),
            }
        }
        .boxed()
    }

    fn renew<'a>(&'a self, attempt: &'a Attempt) -> BoxFuture<'a, StoreResult<bool>> {
        async move {
            let mut script = with_field(&RENEW, attempt);
            script.arg(millis(attempt.ttl));
            self.connection.script(&script).await
        }
        .boxed()
    }

    fn release<'a>(&'a self, attempt: &'a Attempt) -> BoxFuture<'a, StoreResult<bool>> {
        async move {
            let mut script = with_field(&RELEASE, attempt);
            script.key(channel(&attempt.name)).arg(UNLOCKED);
            self.connection.script(&script).await
        }
        .boxed()
    }

    fn wake<'a>(&'a self, name: &'a str) -> BoxFuture<'a, StoreResult<Option<Arc<Notify>>>> {
        async move { Ok(Some(self.wakeups.of(channel(name)))) }.boxed()
    }
}

fn with_field<'a>(script: &'a Script, attempt: &Attempt) -> ScriptInvocation<'a> {
    let mut script = script.key(&*attempt.name);
    script.arg(field(&attempt.secret));
    script
}

/// The client's id and the thread's, as tools of Redisson read it.
fn field(secret: &str) -> String {
    match Uuid::try_parse(secret) {
        Ok(client) => format!("{}:1", client.hyphenated()),
        Err(_) => format!("{secret}:1"),
    }
}

/// A name with braces of its own gets no others.
fn channel(name: &str) -> String {
    if name.contains('{') {
        format!("redisson_lock__channel:{name}")
    } else {
        format!("redisson_lock__channel:{{{name}}}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_are_redissons() {
        assert_eq!(channel("a"), "redisson_lock__channel:{a}");
        assert_eq!(channel("a{b}"), "redisson_lock__channel:a{b}");
        assert_eq!(
            field("67e5504410b1426f9247bb680e5fe0c8"),
            "67e55044-10b1-426f-9247-bb680e5fe0c8:1"
        );
        assert_eq!(field("me"), "me:1");
    }
}
