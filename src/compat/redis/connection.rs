//! One connection to a Redis server, opened again when it is lost.
//!
//! Invariants: each connection is to a primary. A request is sent once: only the caller knows
//! whether it may be sent again. A connection that is being opened is opened to the end, also if
//! nobody waits for it any more: it may take longer than a caller waits.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::FutureExt;
use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Client, ErrorKind, FromRedisValue, IntoConnectionInfo, RedisError,
    RedisResult, ScriptInvocation, ServerErrorKind, Value,
};
use tokio::runtime::Handle;
use tokio::sync::Mutex;
use tokio::time::timeout;

use crate::compat::finish::in_turn;
use crate::compat::store::StoreResult;
use crate::error::{Error, Result, StoreProblem};
use crate::latch::Latch;

/// A server has so long to accept a connection and to answer the first request.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Requests that wait to be sent. With the crate's 50, a release behind many tries is not sent in
/// time.
const PIPELINED: usize = 1024;

#[derive(Debug, Clone)]
pub(super) struct Connection(Arc<RedisServer>);

#[derive(Debug)]
struct RedisServer {
    client: Client,
    /// Host, port and database.
    server: String,
    current: Latch<Current>,
    /// One at a time opens the first connection, or the next one after a loss.
    opening: Arc<Mutex<()>>,
    is_replacing: AtomicBool,
}

#[derive(Default)]
struct Current {
    connection: Option<MultiplexedConnection>,
    /// How many were opened: a request that ends late says nothing about the one after its own.
    opened: u64,
}

/// A request that has no answer yet, and the number of its connection. If it is given up so, that
/// one may be dead without a sign of it, and another one is opened. Until that one answers,
/// requests stay in their order on the old one: the server may only be slow.
struct Unanswered<'a>(Option<(&'a Connection, u64)>);

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        if let (Some((connection, number)), Ok(runtime)) = (self.0, Handle::try_current()) {
            runtime.spawn(connection.clone().replace(number));
        }
    }
}

impl Connection {
    /// For the server of a URL with this scheme. The first request connects.
    pub(super) fn new(url: &str, scheme: &str) -> Result<Self> {
        let client = client(url, scheme)?;
        let info = client.get_connection_info();
        Ok(Self(Arc::new(RedisServer {
            server: format!("{}/{}", info.addr(), info.redis_settings().db()),
            client,
            current: Latch::default(),
            opening: Arc::default(),
            is_replacing: AtomicBool::new(false),
        })))
    }

    /// The same, connected.
    pub(super) async fn open(url: &str, scheme: &str) -> Result<Self> {
        let connection = Self::new(url, scheme)?;
        let opened = connection.connected().await;
        opened.map_err(|problem| Error::Store {
            name: "the store".into(),
            doing: "connect to",
            server: connection.server().into(),
            problem,
        })?;
        Ok(connection)
    }

    /// Connects, if there is no connection.
    pub(super) async fn connected(&self) -> StoreResult<()> {
        self.get().await.map(drop)
    }

    pub(super) fn client(&self) -> &Client {
        &self.0.client
    }

    pub(super) fn server(&self) -> &str {
        &self.0.server
    }

    pub(super) async fn call<T: FromRedisValue>(&self, command: &redis::Cmd) -> StoreResult<T> {
        let (mut connection, number) = self.get().await?;
        let answer = command.query_async(&mut connection);
        self.judge(number, answer).await
    }

    pub(super) async fn script<T: FromRedisValue>(
        &self,
        script: &ScriptInvocation<'_>,
    ) -> StoreResult<T> {
        let (mut connection, number) = self.get().await?;
        let answer = script.invoke_async(&mut connection);
        self.judge(number, answer).await
    }

    async fn judge<T>(
        &self,
        number: u64,
        answer: impl Future<Output = RedisResult<T>>,
    ) -> StoreResult<T> {
        let mut unanswered = Unanswered(Some((self, number)));
        let answer = answer.await;
        unanswered.0 = None;
        match answer {
            Ok(value) => Ok(value),
            Err(error) => {
                let problem = problem(&error);
                let is_lost = error.is_unrecoverable_error() || error.is_io_error();
                // The next request opens another one, which may lead to the next primary.
                if is_lost || problem == StoreProblem::Replica {
                    self.forget(number);
                }
                Err(problem)
            }
        }
    }

    /// The connection and its number, opened if there is none.
    async fn get(&self) -> StoreResult<(MultiplexedConnection, u64)> {
        if let Some(there) = self.current() {
            return Ok(there);
        }
        let turn = Arc::clone(&self.0.opening).lock_owned();
        let connection = self.clone();
        let opened = async move |_turn| match connection.current() {
            Some(there) => Ok(there),
            None => Ok(connection.set(connection.connect().await?)),
        };
        in_turn(turn.map(Ok), opened).await
    }

    fn current(&self) -> Option<(MultiplexedConnection, u64)> {
        let current = self.0.current.lock();
        Some((current.connection.clone()?, current.opened))
    }

    fn set(&self, opened: MultiplexedConnection) -> (MultiplexedConnection, u64) {
        let mut current = self.0.current.lock();
        current.opened += 1;
        let number = current.opened;
        let before = current.connection.replace(opened.clone());
        drop(current);
        drop(before);
        (opened, number)
    }

    /// A connection is lost, if it is still there.
    fn forget(&self, number: u64) {
        let mut current = self.0.current.lock();
        let lost = (current.opened == number).then(|| current.connection.take());
        drop(current);
        drop(lost);
    }

    /// Opens another connection in place of this one, if it is still there and the server answers.
    async fn replace(self, number: u64) {
        if self.0.is_replacing.swap(true, Ordering::Relaxed) {
            return;
        }
        if self.0.current.lock().opened == number {
            match self.connect().await {
                Ok(opened) => drop(self.set(opened)),
                Err(problem) => tracing::debug!(%problem, "no other connection"),
            }
        }
        self.0.is_replacing.store(false, Ordering::Relaxed);
    }

    async fn connect(&self) -> StoreResult<MultiplexedConnection> {
        let opened = timeout(CONNECT_TIMEOUT, self.handshake()).await;
        opened.unwrap_or_else(|_| {
            Err(StoreProblem::Unreachable(format!(
                "no answer of a Redis server within {CONNECT_TIMEOUT:?}"
            )))
        })
    }

    async fn handshake(&self) -> StoreResult<MultiplexedConnection> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(None)
            .set_pipeline_buffer_size(PIPELINED)
            .set_response_timeout(None);
        let opened = self
            .0
            .client
            .get_multiplexed_async_connection_with_config(&config);
        // Nothing was asked of it that could have happened.
        let at_connect = |error: RedisError| match problem(&error) {
            StoreProblem::NoAnswer => StoreProblem::Unreachable(error.to_string()),
            other => other,
        };
        let mut connection = opened.await.map_err(at_connect)?;
        let role: RedisResult<Vec<Value>> = redis::cmd("ROLE").query_async(&mut connection).await;
        let role = role.map_err(at_connect)?;
        let role: String = role
            .into_iter()
            .next()
            .and_then(|role| FromRedisValue::from_redis_value(role).ok())
            .unwrap_or_default();
        match &*role {
            "master" => Ok(connection),
            "slave" => Err(StoreProblem::Replica),
            other => Err(StoreProblem::WrongServer(format!("its role is {other:?}"))),
        }
    }
}

/// The client for a URL, whose scheme may be Redis' own or that of the kind of lock.
fn client(url: &str, scheme: &str) -> Result<Client> {
    let rest = url
        .strip_prefix(scheme)
        .or_else(|| url.strip_prefix("redis"))
        .and_then(|rest| rest.strip_prefix("://"));
    let refuse = |why: String| Error::invalid_url(url, why);
    let rest = rest.ok_or_else(|| refuse(format!("it begins with {scheme}:// or redis://")))?;
    let info = format!("redis://{rest}")
        .into_connection_info()
        .map_err(|error| refuse(error.to_string()))?;
    // Nagle's algorithm would hold a small request back until the last answer is there.
    let tcp = info.tcp_settings().clone().set_nodelay(true);
    Client::open(info.set_tcp_settings(tcp)).map_err(|error| refuse(error.to_string()))
}

fn problem(error: &RedisError) -> StoreProblem {
    let text = || {
        let detail = error.detail().unwrap_or_default();
        format!("{} {detail}", error.code().unwrap_or_default())
            .trim()
            .to_owned()
    };
    match error.kind() {
        _ if error.is_connection_refusal() => StoreProblem::Unreachable(error.to_string()),
        ErrorKind::Io => StoreProblem::NoAnswer,
        ErrorKind::Parse => {
            StoreProblem::WrongServer(format!("it does not speak Redis' protocol ({error})"))
        }
        ErrorKind::Server(ServerErrorKind::ReadOnly) => StoreProblem::Replica,
        ErrorKind::Server(ServerErrorKind::NoPerm) | ErrorKind::AuthenticationFailed => {
            StoreProblem::Denied(text())
        }
        ErrorKind::Server(
            // Another client has removed all scripts just before.
            ServerErrorKind::NoScript
            | ServerErrorKind::BusyLoading
            | ServerErrorKind::TryAgain
            | ServerErrorKind::MasterDown
            | ServerErrorKind::ClusterDown,
        ) => StoreProblem::Unreachable(text()),
        ErrorKind::Server(ServerErrorKind::Moved | ServerErrorKind::Ask) => {
            StoreProblem::WrongServer(format!(
                "it is a node of a Redis Cluster, which plain locks do not use ({})",
                text()
            ))
        }
        _ => match error.code() {
            Some("NOAUTH" | "WRONGPASS" | "NOPERM") => StoreProblem::Denied(text()),
            Some("WRONGTYPE") => StoreProblem::OtherContent(format!(
                "something else than this kind of lock has the name ({})",
                text()
            )),
            // A script of another client runs for long.
            Some("BUSY") => StoreProblem::Unreachable(text()),
            Some(_) => StoreProblem::Refused(text()),
            None => StoreProblem::Refused(error.to_string()),
        },
    }
}
