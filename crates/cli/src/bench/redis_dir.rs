//! The raw operations of a lock on Redis.
//!
//! A free lock is `SET NX PX` and a compare-and-delete, as programs without a queue do it. A crowd
//! has a script that joins, one that leaves and wakes the next, and one that reads who is first.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Client, IntoConnectionInfo, ProtocolVersion, PushInfo, PushKind, Value,
    cmd,
};
use tokio::sync::{mpsc, oneshot};
use uuid::Uuid;

use super::baseline::RawLane;
use super::bench_dir::{RawStore, Reach};
use super::sample::Result;

/// Longer than any measurement holds one.
const TTL_MS: u64 = 60_000;

const DELETE: &str =
    "return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('DEL', KEYS[1]) or 0";
const JOIN: &str = "local number = redis.call('INCR', KEYS[2]) redis.call('RPUSH', KEYS[1], number) \
                    redis.call('PEXPIRE', KEYS[1], ARGV[1]) redis.call('PEXPIRE', KEYS[2], ARGV[1]) \
                    return number";
const LEAVE: &str = "redis.call('LREM', KEYS[1], 1, ARGV[2]) \
                     local first = redis.call('LINDEX', KEYS[1], 0) \
                     if first then redis.call('PUBLISH', ARGV[1], first) end return 1";
const LOOK: &str = "return redis.call('LINDEX', KEYS[1], 0)";
/// The children of a directory of Lockkeeper's: the last part of its packed node.
const TICKETS: &str = "local node = redis.call('HGET', KEYS[1], ARGV[1]) \
                       return node and cmsgpack.unpack(node)[8] or 0";

/// Those who wait, by what wakes them.
type Waiting = Arc<Mutex<HashMap<String, oneshot::Sender<()>>>>;

/// A connection, and keys that begin with a path of our own.
pub struct RedisDir {
    connection: MultiplexedConnection,
    path: String,
    channel: Arc<str>,
    waiting: Waiting,
    pushes: tokio::task::JoinHandle<()>,
}

impl Drop for RedisDir {
    fn drop(&mut self) {
        self.pushes.abort();
    }
}

impl RawStore for RedisDir {
    type Lane = RedisLane;

    async fn open(reach: &Reach, path: &str) -> Result<Self> {
        let info = (&*reach.servers).into_connection_info()?;
        let tcp = info.tcp_settings().clone().set_nodelay(true);
        let redis = info.redis_settings().clone();
        let info = info
            .set_tcp_settings(tcp)
            .set_redis_settings(redis.set_protocol(ProtocolVersion::RESP3));
        let (pushed, pushes) = mpsc::unbounded_channel();
        let config = AsyncConnectionConfig::new()
            .set_response_timeout(None)
            .set_pipeline_buffer_size(1 << 16)
            .set_push_sender(pushed);
        let client = Client::open(info)?;
        let mut connection = client
            .get_multiplexed_async_connection_with_config(&config)
            .await?;
        let channel: Arc<str> = format!("{path}:wake").into();
        let () = cmd("SUBSCRIBE")
            .arg(&*channel)
            .query_async(&mut connection)
            .await?;
        let waiting = Waiting::default();
        Ok(Self {
            connection,
            path: path.to_owned(),
            channel,
            pushes: tokio::spawn(wake(Arc::clone(&waiting), pushes)),
            waiting,
        })
    }

    async fn lane(&self, name: &str) -> Result<RedisLane> {
        Ok(RedisLane {
            connection: self.connection.clone(),
            key: format!("{{{}}}:{name}", self.path),
            channel: Arc::clone(&self.channel),
            waiting: Arc::clone(&self.waiting),
        })
    }

    async fn tickets(&self, name: &str) -> Result<usize> {
        let directory = format!("{{lockkeeper}}:in:{}", self.path);
        let counted = cmd("EVAL")
            .arg(TICKETS)
            .arg(1)
            .arg(directory)
            .arg(name)
            .query_async(&mut self.connection.clone())
            .await?;
        Ok(counted)
    }

    /// Lockkeeper removes its empty directories by itself, and our keys end with their time.
    async fn clear(self) -> Result<()> {
        Ok(())
    }
}

/// Wakes those whose number is told.
async fn wake(waiting: Waiting, mut pushes: mpsc::UnboundedReceiver<PushInfo>) {
    while let Some(push) = pushes.recv().await {
        if let (PushKind::Message, Some(Value::BulkString(number))) = (push.kind, push.data.get(1))
        {
            let number = String::from_utf8_lossy(number).into_owned();
            let woken = locked(&waiting).remove(&number);
            if let Some(woken) = woken {
                woken.send(()).unwrap_or_default();
            }
        }
    }
}

fn locked(waiting: &Waiting) -> MutexGuard<'_, HashMap<String, oneshot::Sender<()>>> {
    waiting.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The keys of one lock.
pub struct RedisLane {
    connection: MultiplexedConnection,
    key: String,
    channel: Arc<str>,
    waiting: Waiting,
}

impl RedisLane {
    fn queue(&self) -> String {
        format!("{}:queue", self.key)
    }

    async fn script<T: redis::FromRedisValue>(
        &self,
        script: &str,
        keys: &[String],
        arguments: &[&str],
    ) -> Result<T> {
        let mut connection = self.connection.clone();
        // By its hash, as long as the server knows it: each of them is loaded by its first use.
        let mut by_hash = cmd("EVALSHA");
        let hash = redis::Script::new(script).get_hash().to_owned();
        by_hash.arg(hash).arg(keys.len()).arg(keys).arg(arguments);
        match by_hash.query_async(&mut connection).await {
            Err(error) if error.code() == Some("NOSCRIPT") => {
                let mut whole = cmd("EVAL");
                whole.arg(script).arg(keys.len()).arg(keys).arg(arguments);
                Ok(whole.query_async(&mut connection).await?)
            }
            answer => Ok(answer?),
        }
    }
}

impl RawLane for RedisLane {
    type Ticket = String;

    async fn pass(&self) -> Result<()> {
        let secret = Uuid::new_v4().simple().to_string();
        let mut set = cmd("SET");
        set.arg(&self.key)
            .arg(&secret)
            .arg("NX")
            .arg("PX")
            .arg(TTL_MS);
        let () = set.query_async(&mut self.connection.clone()).await?;
        let keys = [self.key.clone()];
        let deleted: i64 = self.script(DELETE, &keys, &[&secret]).await?;
        match deleted {
            1 => Ok(()),
            _ => Err(format!("{} was another's", self.key).into()),
        }
    }

    async fn join(&self) -> Result<String> {
        let keys = [self.queue(), format!("{}:number", self.key)];
        let ttl = TTL_MS.to_string();
        let number: i64 = self.script(JOIN, &keys, &[&ttl]).await?;
        Ok(number.to_string())
    }

    async fn wait(&self, armed: mpsc::UnboundedSender<()>) -> Result<Instant> {
        let mine = self.join().await?;
        let (wake, woken) = oneshot::channel();
        locked(&self.waiting).insert(mine.clone(), wake);
        // The receiver is there until all are armed.
        armed.send(()).unwrap_or_default();
        woken.await?;
        let first: String = self.script(LOOK, &[self.queue()], &[]).await?;
        if first != mine {
            return Err(format!("{mine} was woken in the turn of {first}").into());
        }
        let granted = Instant::now();
        self.leave(&mine).await?;
        Ok(granted)
    }

    async fn leave(&self, ticket: &String) -> Result<()> {
        let keys = [self.queue()];
        let _: i64 = self.script(LEAVE, &keys, &[&self.channel, ticket]).await?;
        Ok(())
    }
}
