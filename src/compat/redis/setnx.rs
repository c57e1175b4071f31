//! `SET key secret NX PX ttl`, as Redis' documentation describes a lock with one server.
//!
//! Invariants: a lock never exists without its ttl. It is renewed and freed by scripts that compare
//! the secret, so no other client's lock is touched.

use std::sync::LazyLock;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt};
use redis::{Script, cmd};

use super::connection::Connection;
use crate::compat::keeper::PlainKeeper;
use crate::compat::store::{Acquired, Attempt, Capabilities, FencedStore, PlainStore, StoreResult};
use crate::error::{Result, StoreProblem};
use crate::token::Token;

/// A string has 512 MB at most; a name of a lock is a name.
const LONGEST_NAME: usize = 64 * 1024;
pub(super) const SHORTEST_TTL: Duration = Duration::from_millis(200);

/// Why the lock was not free: the type of what has its name, and the rest of its ttl.
static WHY_TAKEN: LazyLock<Script> = LazyLock::new(|| {
    Script::new("return {redis.call('type', KEYS[1]).ok, redis.call('pttl', KEYS[1])}")
});
static RENEW: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "if redis.call('get', KEYS[1]) == ARGV[1] then \
         return redis.call('pexpire', KEYS[1], ARGV[2]) end return 0",
    )
});
static RELEASE: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0",
    )
});
/// A counter that is none leaves no lock behind, and is left as it was.
static FENCED: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "if not redis.call('set', KEYS[1], ARGV[1], 'px', ARGV[2], 'nx') then return 0 end \
         local token = redis.pcall('incr', KEYS[2]) \
         if type(token) == 'number' and token > 0 then return token end \
         redis.call('del', KEYS[1]) \
         if type(token) == 'number' then redis.call('decr', KEYS[2]) return -1 end return token",
    )
});
/// Behind the name of a lock, the name of its counter.
const COUNTER: &str = ":token";

/// Locks that redis-py's `Lock`, node-redlock with one server, and many others use: a string with
/// the holder's secret and a ttl.
///
/// # What it cannot do
///
/// It is not fair, has no token, and is lost where Redis loses data: on a restart without
/// persistence, when a replica that lags becomes the primary, and under any eviction policy other
/// than `noeviction`. Then two clients hold.
#[derive(Debug)]
pub struct SetNx {
    connection: Connection,
}

impl SetNx {
    /// Connects to `redis+setnx://[user:password@]host[:port][/database]`.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidOption`](crate::Error::InvalidOption) for a URL that is none;
    /// [`Error::Store`](crate::Error::Store) if there is no primary of Redis, or it does not accept
    /// the user.
    pub async fn connect(url: &str) -> Result<PlainKeeper<Self>> {
        let connection = Connection::open(url, "redis+setnx").await?;
        Ok(PlainKeeper::new(Self { connection }))
    }
}

impl PlainStore for SetNx {
    fn server(&self) -> &str {
        self.connection.server()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            survives_restart: true,
            ..Capabilities::of("redis+setnx")
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
            let mut set = cmd("SET");
            set.arg(&*attempt.name).arg(&*attempt.secret);
            set.arg("NX").arg("PX").arg(millis(attempt.ttl));
            match self.connection.call(&set).await? {
                Some(()) => Ok(Acquired::Yes { token: None }),
                None => self.connection.why_taken(&attempt.name).await,
            }
        }
        .boxed()
    }

    fn renew<'a>(&'a self, attempt: &'a Attempt) -> BoxFuture<'a, StoreResult<bool>> {
        self.connection.renew(attempt).boxed()
    }

    fn release<'a>(&'a self, attempt: &'a Attempt) -> BoxFuture<'a, StoreResult<bool>> {
        self.connection.release(attempt).boxed()
    }
}

/// [`SetNx`] with a token: each grant counts `name:token` up, in the same script.
///
/// Clients without a token exclude each other with it, but their holds have no number. A name that
/// ends with `:token` is refused: another lock may count there.
#[derive(Debug)]
pub struct FencedSetNx {
    connection: Connection,
}

impl FencedSetNx {
    /// Connects to `redis+fenced://[user:password@]host[:port][/database]`.
    ///
    /// # Errors
    ///
    /// As [`SetNx::connect`].
    pub async fn connect(url: &str) -> Result<PlainKeeper<Self>> {
        let connection = Connection::open(url, "redis+fenced").await?;
        Ok(PlainKeeper::new(Self { connection }))
    }
}

impl FencedStore for FencedSetNx {}

impl PlainStore for FencedSetNx {
    fn server(&self) -> &str {
        self.connection.server()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            has_token: true,
            survives_restart: true,
            ..Capabilities::of("redis+fenced")
        }
    }

    fn shortest_ttl(&self) -> Duration {
        SHORTEST_TTL
    }

    fn check_name(&self, name: &str) -> Result<(), &'static str> {
        match name.ends_with(COUNTER) {
            true => Err("it ends with :token, as the counters of these locks do"),
            false => check_name(name),
        }
    }

    fn acquire<'a>(&'a self, attempt: &'a Attempt) -> BoxFuture<'a, StoreResult<Acquired>> {
        async move {
            let mut script = FENCED.key(&*attempt.name);
            let counter = format!("{}{COUNTER}", attempt.name);
            script.key(&*counter);
            script.arg(&*attempt.secret).arg(millis(attempt.ttl));
            let granted: i64 = self
                .connection
                .script(&script)
                .await
                .map_err(|problem| no_counter(&counter, problem))?;
            match u64::try_from(granted) {
                Ok(0) => self.connection.why_taken(&attempt.name).await,
                Ok(token) => Ok(Acquired::Yes {
                    token: Some(Token::from(token)),
                }),
                Err(_) => Err(no_count(&counter, "a number below zero")),
            }
        }
        .boxed()
    }

    fn renew<'a>(&'a self, attempt: &'a Attempt) -> BoxFuture<'a, StoreResult<bool>> {
        self.connection.renew(attempt).boxed()
    }

    fn release<'a>(&'a self, attempt: &'a Attempt) -> BoxFuture<'a, StoreResult<bool>> {
        self.connection.release(attempt).boxed()
    }
}

/// What both kinds do with a lock that is a string.
impl Connection {
    async fn why_taken(&self, name: &str) -> StoreResult<Acquired> {
        let (kind, left): (String, i64) = self.script(&WHY_TAKEN.key(name)).await?;
        match &*kind {
            // -2 for a key that is gone by now, -1 for one without a ttl.
            "string" | "none" => Ok(Acquired::No {
                left: left.try_into().ok().map(Duration::from_millis),
            }),
            other => Err(StoreProblem::OtherContent(format!(
                "the key holds a {other}, and not a lock of this kind"
            ))),
        }
    }

    pub(super) async fn renew(&self, attempt: &Attempt) -> StoreResult<bool> {
        let mut script = RENEW.key(&*attempt.name);
        script.arg(&*attempt.secret).arg(millis(attempt.ttl));
        or_not_ours(self.script(&script).await)
    }

    pub(super) async fn release(&self, attempt: &Attempt) -> StoreResult<bool> {
        let mut script = RELEASE.key(&*attempt.name);
        or_not_ours(self.script(script.arg(&*attempt.secret)).await)
    }
}

/// Says what is wrong with a counter, if that is what is wrong.
fn no_counter(counter: &str, problem: StoreProblem) -> StoreProblem {
    match problem {
        StoreProblem::OtherContent(why) => no_count(counter, &why),
        StoreProblem::Refused(why) if why.contains("integer") || why.contains("overflow") => {
            no_count(counter, &why)
        }
        other => other,
    }
}

fn no_count(counter: &str, what: &str) -> StoreProblem {
    StoreProblem::OtherContent(format!("{counter} counts no grants ({what})"))
}

/// Where another type of key has the name, our lock is gone.
pub(super) fn or_not_ours(answer: StoreResult<bool>) -> StoreResult<bool> {
    match answer {
        Err(StoreProblem::OtherContent(_)) => Ok(false),
        answer => answer,
    }
}

pub(super) fn check_name(name: &str) -> Result<(), &'static str> {
    match name.len() {
        0 => Err("it is empty"),
        1..=LONGEST_NAME => Ok(()),
        _ => Err("it is longer than 64 KiB"),
    }
}

pub(super) fn millis(ttl: Duration) -> u64 {
    // At most a day.
    ttl.as_millis().try_into().unwrap_or(u64::MAX)
}
