//! Redisson's `RLock`: a hash with a field `client:thread`, and a ttl.
//!
//! Invariants: the hash never exists without its ttl. It is renewed and freed by scripts that look
//! for the field of the attempt, so no other client's lock is touched. Each release is published.
//!
//! Redisson counts an owner's holds in the value of its one field. An increment that was not
//! answered cannot be settled: nobody knows whether the count is one too high. So each guard of an
//! owner has a field of its own here, `client:owner/name`, with the count 1. Setting and deleting
//! it can be repeated. To Redisson, a hash without its own field is a lock of somebody else.

use std::borrow::Cow;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt};
use redis::{Script, ScriptInvocation};
use tokio::sync::Notify;
use uuid::Uuid;

use super::connection::Connection;
use super::setnx::{SHORTEST_TTL, check_name, millis, or_not_ours};
use super::wakeups::Wakeups;
use crate::compat::keeper::PlainKeeper;
use crate::compat::store::{
    Acquired, Attempt, Capabilities, PlainStore, ReentrantStore, StoreResult,
};
use crate::error::{Result, StoreProblem};

/// Nothing, or the type of what is in the way and the rest of its ttl.
static ACQUIRE: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "if redis.call('exists', KEYS[1]) == 1 then \
         return {redis.call('type', KEYS[1]).ok, redis.call('pttl', KEYS[1])} end \
         redis.call('hset', KEYS[1], ARGV[1], 1) \
         redis.call('pexpire', KEYS[1], ARGV[2])",
    )
});
/// The same for an owner. Where all fields are the owner's, from the end of the client's id on,
/// nothing is in the way. No ttl shortens another guard's.
static ACQUIRE_OWNED: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "local kind = redis.call('type', KEYS[1]).ok \
         local free = kind == 'none' \
         if kind == 'hash' then free = true \
         for _, field in ipairs(redis.call('hkeys', KEYS[1])) do \
         free = free and string.sub(field, 37) == ARGV[3] end end \
         if not free then return {kind, redis.call('pttl', KEYS[1])} end \
         redis.call('hset', KEYS[1], ARGV[1], 1) \
         if kind == 'none' or redis.call('pttl', KEYS[1]) < tonumber(ARGV[2]) then \
         redis.call('pexpire', KEYS[1], ARGV[2]) end",
    )
});
static RENEW: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "if redis.call('hexists', KEYS[1], ARGV[1]) == 0 then return 0 end \
         if redis.call('pttl', KEYS[1]) < tonumber(ARGV[2]) then \
         redis.call('pexpire', KEYS[1], ARGV[2]) end return 1",
    )
});
/// Without an owner it is the only field, so the hash goes with it. 0 is what Redisson publishes.
static RELEASE: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "if redis.call('hdel', KEYS[1], ARGV[1]) == 0 then return 0 end \
         redis.call('publish', KEYS[2], 0) return 1",
    )
});
static RELEASE_OWNED: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "if redis.call('hdel', KEYS[1], ARGV[1]) == 0 then return 0 end \
         if redis.call('exists', KEYS[1]) == 0 then redis.call('publish', KEYS[2], 0) end return 1",
    )
});

/// Locks that `RLock` of Redisson 3 for Java uses (`getLock`), with one server: a hash whose one
/// field is `client:thread`, with the count of holds as its value.
///
/// A release is published, as Redisson does it: waiters in Java and here are woken by it, and
/// nobody asks again and again. Names and messages are text; Redisson writes both so for a lock
/// with any codec.
///
/// It is reentrant for an [`Owner`](crate::Owner), in all processes that name it. Without one, each
/// hold has a client and a thread of its own, so a second call in the same task waits. To Redisson,
/// an owner is somebody else: it never enters beside one of its threads, nor they beside it.
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

impl ReentrantStore for Redisson {}

impl PlainStore for Redisson {
    fn server(&self) -> &str {
        self.connection.server()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            is_reentrant: true,
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
            let mut script = match &attempt.owner {
                None => with_field(&ACQUIRE, attempt),
                Some(_) => with_field(&ACQUIRE_OWNED, attempt),
            };
            script.arg(millis(attempt.ttl));
            if attempt.owner.is_some() {
                script.arg(&*thread(attempt));
            }
            let in_the_way: Option<(String, i64)> = self.connection.script(&script).await?;
            match in_the_way {
                None => Ok(Acquired::Yes { token: None }),
                // -1 for a lock without a ttl.
                Some((kind, left)) if kind == "hash" => Ok(Acquired::No {
                    left: left.try_into().ok().map(Duration::from_millis),
                }),
                Some((other, _)) => Err(StoreProblem::OtherContent(format!(
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
            or_not_ours(self.connection.script(&script).await)
        }
        .boxed()
    }

    fn release<'a>(&'a self, attempt: &'a Attempt) -> BoxFuture<'a, StoreResult<bool>> {
        async move {
            let mut script = match &attempt.owner {
                None => with_field(&RELEASE, attempt),
                Some(_) => with_field(&RELEASE_OWNED, attempt),
            };
            script.key(channel(&attempt.name));
            or_not_ours(self.connection.script(&script).await)
        }
        .boxed()
    }

    fn wake<'a>(&'a self, name: &'a str) -> BoxFuture<'a, StoreResult<Option<Arc<Notify>>>> {
        async move { Ok(Some(self.wakeups.of(channel(name)))) }.boxed()
    }
}

fn with_field<'a>(script: &'a Script, attempt: &Attempt) -> ScriptInvocation<'a> {
    let mut script = script.key(&*attempt.name);
    script.arg(field(attempt));
    script
}

/// The client's id and the thread's, as tools of Redisson read it.
fn field(attempt: &Attempt) -> String {
    let client = Uuid::try_parse(&attempt.secret);
    let client = client.map_or_else(|_| attempt.secret.to_string(), |id| id.to_string());
    client + &*thread(attempt)
}

/// An owner's is no number, so it is never a thread's in Java.
fn thread(attempt: &Attempt) -> Cow<'static, str> {
    match &attempt.owner {
        None => Cow::Borrowed(":1"),
        Some(owner) => Cow::Owned(format!(":owner/{owner}")),
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
    use crate::owner::Owner;

    #[test]
    fn the_names_are_redissons() {
        assert_eq!(channel("a"), "redisson_lock__channel:{a}");
        assert_eq!(channel("a{b}"), "redisson_lock__channel:a{b}");
        let mut attempt = Attempt {
            name: "a".into(),
            secret: "67e5504410b1426f9247bb680e5fe0c8".into(),
            ttl: SHORTEST_TTL,
            owner: None,
            seen: Default::default(),
            turn: Default::default(),
        };
        assert_eq!(field(&attempt), "67e55044-10b1-426f-9247-bb680e5fe0c8:1");
        attempt.owner = Some(Owner::named("job"));
        let owned = field(&attempt);
        assert_eq!(owned, "67e55044-10b1-426f-9247-bb680e5fe0c8:owner/job");
        assert_eq!(owned[36..], thread(&attempt));
    }
}
