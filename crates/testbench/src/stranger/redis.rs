//! A stranger on Redis: a session by the script of the link, and one that ends other sessions.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, FromRedisValue, Value};
use tokio::task::JoinHandle;
use tokio::time::sleep;
use uuid::Uuid;
use zookeeper_client::{Error, Stat};

use super::{Change, LONGEST, Make, Result};

const SCRIPT: &str = include_str!("../../../../src/link/redis/script.lua");
/// The prefix of the keys of each root.
const TAG: &str = "{lockkeeper}";
/// All watches at one moment, by their paths: of a node, or of its set. The server does nothing
/// else meanwhile. Of those who live: what the dead leave is removed by those who watch later.
const WATCHES: &str = "local tag, all = '{lockkeeper}', {}
local function add(path, watches)
    local live = {}
    for _, watch in ipairs(watches) do
        if redis.call('ZSCORE', tag .. ':sessions', string.match(watch, '^.(%d+):')) then live[#live + 1] = watch end
    end
    all[#all + 1] = {path, live}
end
local directories = redis.call('KEYS', tag .. ':in:*')
directories[#directories + 1] = tag .. ':root'
for _, key in ipairs(directories) do
    local nodes = redis.call('HGETALL', key)
    for at = 1, #nodes, 2 do
        local path, watch = string.sub(key, #tag + 5) .. '/' .. nodes[at], cmsgpack.unpack(nodes[at + 1])[9]
        if key == tag .. ':root' then path = '/' .. nodes[at] end
        if watch == '*' then
            add(path, redis.call('SMEMBERS', tag .. ':watches:' .. path))
        elseif watch then
            add(path, {watch})
        end
    end
end
return all";
const TIMEOUT: Duration = Duration::from_secs(10);

fn failed(error: impl std::fmt::Display) -> Error {
    Error::UnexpectedError(error.to_string())
}

fn read<T: FromRedisValue>(value: Value) -> Result<T> {
    redis::from_redis_value(value).map_err(failed)
}

/// A database of a Redis server.
#[derive(Clone, Debug)]
pub struct Database {
    pub server: SocketAddr,
    pub number: usize,
}

impl Database {
    /// The connect string of a keeper whose connections go to this address.
    pub fn at(&self, address: SocketAddr) -> String {
        format!("redis://{address}/{}", self.number)
    }

    pub async fn connect(&self) -> Result<MultiplexedConnection> {
        let client = redis::Client::open(self.at(self.server)).map_err(failed)?;
        // A script may wait for its turn beside those of all other cases.
        let options = redis::AsyncConnectionConfig::new()
            .set_response_timeout(Some(TIMEOUT))
            .set_connection_timeout(Some(TIMEOUT));
        let connected = client.get_multiplexed_async_connection_with_config(&options);
        connected.await.map_err(failed)
    }

    pub async fn ask<T: FromRedisValue>(&self, words: &[&str]) -> Result<T> {
        let mut command = Cmd::new();
        command.arg(words);
        let mut connection = self.connect().await?;
        command.query_async(&mut connection).await.map_err(failed)
    }

    /// How many paths each session watches, and their bytes.
    pub async fn watched_by_session(&self) -> Result<BTreeMap<String, (usize, usize)>> {
        let all: Vec<(String, Vec<String>)> = self.ask(&["EVAL", WATCHES, "0"]).await?;
        let mut watched = BTreeMap::<String, (usize, usize)>::new();
        for (path, members) in all {
            // The kind of the watch, the session, and the number of the watch.
            let session = |member: &String| member[1..].split(':').next().map(str::to_owned);
            for session in members.iter().filter_map(session).collect::<BTreeSet<_>>() {
                let (paths, bytes) = watched.entry(session).or_default();
                *paths += 1;
                *bytes += path.len();
            }
        }
        Ok(watched)
    }

    /// Ends a session as the script does: it is dead from now on, and whoever comes removes what it
    /// has left.
    pub async fn expire(&self, session: i64) -> Result<()> {
        let (sessions, session) = (format!("{TAG}:sessions"), session.to_string());
        self.ask(&["ZADD", &sessions, "XX", "-1", &session]).await
    }
}

/// A session, which lives until it is dropped.
#[derive(Debug)]
pub struct Session {
    wire: Wire,
    beats: JoinHandle<()>,
}

impl Drop for Session {
    fn drop(&mut self) {
        self.beats.abort();
        let wire = self.wire.clone();
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move { wire.close().await });
        }
    }
}

impl Session {
    /// Opens a session; in a root that is not there yet, nobody waits for clients of before.
    pub async fn open(database: &Database) -> Result<Self> {
        Self::open_root(database, LONGEST).await
    }

    /// The same. `longest`: the largest session timeout of a root that is not there yet.
    pub(crate) async fn open_root(database: &Database, longest: Duration) -> Result<Self> {
        let wire = Wire::open(database, longest).await?;
        let theirs = wire.clone();
        let beats = tokio::spawn(async move {
            loop {
                sleep(theirs.granted / 4).await;
                // Any request is a sign of life. A session that is over has failed its case.
                theirs.ask("read", &[], &[]).await.ok();
            }
        });
        Ok(Self { wire, beats })
    }

    pub(super) fn id(&self) -> i64 {
        self.wire.id
    }

    pub(super) async fn create(&self, path: &str, data: &[u8], make: Make) -> Result<(Stat, i64)> {
        let made = self.wire.write(make.word(), path, data, None).await?;
        // The last is the directory, where it was asked to tell.
        let made = read::<Vec<(String, i64, i64, Value)>>(made)?;
        let [(path, _, number, _)] =
            <[_; 1]>::try_from(made).map_err(|made| failed(format!("{made:?}")))?;
        let (_, stat) = self.node(&path).await?;
        Ok((stat, number))
    }

    pub(super) async fn write(
        &self,
        kind: &str,
        path: &str,
        data: &[u8],
        version: Option<i32>,
    ) -> Result<()> {
        self.wire.write(kind, path, data, version).await.map(drop)
    }

    pub(super) async fn commit(&self, changes: &[Change<'_>]) -> Result<()> {
        let (mut keys, mut words) = (Vec::new(), Vec::new());
        for change in changes {
            let (kind, path) = match *change {
                Change::Delete(path) => ("delete", path),
                Change::Create(path, make) => (make.word(), path),
            };
            keys.extend(of_write(path));
            words.extend([kind.as_bytes(), path.as_bytes(), b"", b"-1", b""]);
        }
        self.wire.ask("multi", &keys, &words).await.map(drop)
    }

    pub(super) async fn node(&self, path: &str) -> Result<(Vec<u8>, Stat)> {
        let found = self.wire.read("d", path).await?;
        let (data, czxid, version, owner, pzxid, children): (Vec<u8>, i64, i32, String, i64, i32) =
            read(found)?;
        let stat = Stat {
            czxid,
            mzxid: czxid,
            pzxid,
            ctime: 0,
            mtime: 0,
            version,
            cversion: 0,
            aversion: 0,
            ephemeral_owner: if owner.is_empty() {
                0
            } else {
                owner.parse().map_err(failed)?
            },
            data_length: data.len() as i32,
            num_children: children,
        };
        Ok((data, stat))
    }

    pub(super) async fn names(&self, path: &str) -> Result<Vec<String>> {
        read(self.wire.read("c", path).await?)
    }
}

/// The connection of a session.
#[derive(Clone)]
struct Wire {
    id: i64,
    secret: String,
    incarnation: String,
    script: String,
    granted: Duration,
    connection: MultiplexedConnection,
}

impl std::fmt::Debug for Wire {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Wire")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

impl Wire {
    async fn open(database: &Database, longest: Duration) -> Result<Self> {
        let mut connection = database.connect().await?;
        let load = redis::cmd("SCRIPT").arg("LOAD").arg(SCRIPT).to_owned();
        let script = load.query_async(&mut connection).await.map_err(failed)?;
        let info = redis::cmd("INFO").arg("replication").to_owned();
        let info: String = info.query_async(&mut connection).await.map_err(failed)?;
        let identity = |line: &str| line.strip_prefix("master_replid:").map(str::to_owned);
        let mut wire = Self {
            id: (Uuid::new_v4().as_u64_pair().0 >> 1) as i64,
            secret: Uuid::new_v4().simple().to_string(),
            incarnation: info.lines().find_map(identity).unwrap_or_default(),
            script,
            granted: TIMEOUT,
            connection,
        };
        let [asked, longest] = [TIMEOUT, longest].map(|time| time.as_micros().to_string());
        // 5 s for clocks and late answers, and nobody was there before.
        let words = [asked.as_bytes(), longest.as_bytes(), b"5000000", b"1"];
        let granted: String = read(wire.ask("open", &[], &words).await?)?;
        wire.granted = Duration::from_micros(granted.parse().map_err(failed)?);
        Ok(wire)
    }

    async fn close(&self) {
        let closed = async {
            let mut paths: Vec<String> = read(self.ask("close", &[], &[]).await?)?;
            while !paths.is_empty() {
                let id = self.id.to_string();
                let mut keys = vec![format!("{TAG}:session:{id}"), format!("{TAG}:nodes:{id}")];
                keys.extend(paths.iter().flat_map(|path| of_write(path)));
                let mut words = vec![id.as_bytes()];
                words.extend(paths.iter().map(String::as_bytes));
                paths = read(self.ask("reap", &keys, &words).await?)?;
            }
            Ok::<_, Error>(())
        };
        // Otherwise its session expires.
        closed.await.ok();
    }

    async fn write(
        &self,
        kind: &str,
        path: &str,
        data: &[u8],
        version: Option<i32>,
    ) -> Result<Value> {
        let version = version.unwrap_or(-1).to_string();
        let words = [
            kind.as_bytes(),
            path.as_bytes(),
            data,
            version.as_bytes(),
            b"",
        ];
        self.ask("multi", &of_write(path), &words).await
    }

    /// A node, or the names in a directory.
    async fn read(&self, kind: &str, path: &str) -> Result<Value> {
        let keys = [holder(path), children(path)];
        let words = [kind.as_bytes(), path.as_bytes()];
        let found = self.ask("read", &keys, &words).await?;
        match read::<Vec<Value>>(found)?.pop() {
            None | Some(Value::Nil | Value::Boolean(false)) => Err(Error::NoNode),
            Some(found) => Ok(found),
        }
    }

    async fn ask(&self, operation: &str, more: &[String], words: &[&[u8]]) -> Result<Value> {
        let id = self.id;
        let keys = [
            format!("{TAG}:meta"),
            format!("{TAG}:sessions"),
            format!("{TAG}:session:{id}"),
            format!("{TAG}:nodes:{id}"),
            format!("{TAG}:empty"),
        ];
        let mut command = redis::cmd("EVALSHA");
        command.arg(&self.script).arg(keys.len() + more.len());
        command.arg(&keys).arg(more).arg(&self.incarnation).arg(id);
        command.arg(&self.secret).arg(1).arg(operation).arg(words);
        let mut connection = self.connection.clone();
        let answered = command.query_async(&mut connection).await;
        let mut parts: Vec<Value> = answered.map_err(failed)?;
        parts.resize(3, Value::Nil);
        let [status, _, result] = <[Value; 3]>::try_from(parts).expect("it has three parts");
        match &*read::<String>(status)? {
            "ok" => Ok(result),
            "refused" => {
                let (_, why): (f64, String) = read(result)?;
                Err(match &*why {
                    "no node" => Error::NoNode,
                    "exists" => Error::NodeExists,
                    "not empty" => Error::NotEmpty,
                    "version" => Error::BadVersion,
                    _ => failed(why),
                })
            }
            "over" => Err(Error::SessionExpired),
            other => Err(failed(other)),
        }
    }
}

fn directory(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(directory, _)| directory)
}

/// The hash of a directory's children.
fn children(path: &str) -> String {
    format!("{TAG}:in:{}", path.trim_end_matches('/'))
}

/// The hash that a node is in.
fn holder(path: &str) -> String {
    match path {
        "" | "/" => format!("{TAG}:root"),
        path => children(directory(path)),
    }
}

fn of_write(path: &str) -> [String; 4] {
    let watches = |path: &str| {
        let path = if path.is_empty() { "/" } else { path };
        format!("{TAG}:watches:{path}")
    };
    let above = directory(path);
    [holder(path), holder(above), watches(path), watches(above)]
}
