//! A Redis server, and how connections and sessions are opened there.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Client, IntoConnectionInfo, ProtocolVersion, PushInfo, PushKind,
    RedisError, Script, Value,
};
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::answer::{self, Shape};
use super::request::Keys;
use super::weaknesses;
use crate::error::UnreachableReason;
use crate::link::engine::{Engine, Weakness};
use crate::link::stored::{
    SessionKey, Store, StoreConnection, StoreReply, StoreRequest, Trouble, Ungreeted,
};
use crate::protocol::epoch::Reaping;

/// Requests that wait to be sent. With the crate's 50, a burst would wait in another order.
const PIPELINED: usize = 1 << 16;

/// A function, because bugs that tests put into it are switched in bodies.
fn script() -> &'static str {
    include_str!("script.lua")
}

/// The server, and what is asked of it.
#[derive(Debug, Clone)]
pub(crate) struct RedisTarget {
    client: Client,
    /// Host, port and database.
    server: String,
    keys: Keys,
    session_timeout: Duration,
    /// The root is declared to be new: nobody waits for clients of before.
    is_new: bool,
    /// The strictest of all clients decides.
    pub(crate) reaping: Reaping,
    script: Arc<str>,
}

impl From<RedisError> for Ungreeted {
    fn from(error: RedisError) -> Self {
        let words = error.to_string();
        match error.code() {
            Some("NOAUTH" | "WRONGPASS" | "NOPERM") => return Self::Unauthenticated(words),
            Some(_) => return Self::Unreachable(UnreachableReason::Refusing(words)),
            None => {}
        }
        let refused = Arc::new(io::Error::other(words));
        Self::Unreachable(UnreachableReason::Refused(refused))
    }
}

/// A connection that was greeted.
pub(crate) struct Greeted {
    number: u64,
    connection: MultiplexedConnection,
    pushes: mpsc::UnboundedReceiver<PushInfo>,
    keys: Keys,
    script: Arc<str>,
    /// Which history the server has: another one after each start and each promotion.
    incarnation: String,
}

impl RedisTarget {
    /// For `redis://[user:password@]host[:port][/database]`.
    pub(crate) fn new(url: &str, session_timeout: Duration, is_new: bool) -> Result<Self, String> {
        let info = url
            .into_connection_info()
            .map_err(|error| error.to_string())?;
        let tcp = info.tcp_settings().clone().set_nodelay(true);
        let redis = info.redis_settings().clone();
        let server = format!("{}/{}", info.addr(), redis.db());
        let redis = redis.set_protocol(ProtocolVersion::RESP3);
        let info = info.set_tcp_settings(tcp).set_redis_settings(redis);
        Ok(Self {
            client: Client::open(info).map_err(|error| error.to_string())?,
            server,
            keys: Keys::new("lockkeeper"),
            session_timeout,
            is_new,
            reaping: Reaping::Usual,
            script: Script::new(script()).get_hash().into(),
        })
    }

    async fn handshake(&self, session: i64, number: u64) -> Result<Greeted, Ungreeted> {
        let (pushed, pushes) = mpsc::unbounded_channel();
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(None)
            .set_response_timeout(None)
            .set_pipeline_buffer_size(PIPELINED)
            .set_push_sender(pushed);
        let refusing = |why: String| Ungreeted::Unreachable(UnreachableReason::Refusing(why));
        let opened = self
            .client
            .get_multiplexed_async_connection_with_config(&config);
        let mut connection = opened.await?;
        let mut ask = async |name: &str, words: &[&str]| {
            let mut command = redis::cmd(name);
            command.arg(words);
            match connection.send_packed_command(&command).await? {
                Value::ServerError(error) => Err(Ungreeted::from(RedisError::from(error))),
                value => Ok(value),
            }
        };
        let replication: String = redis::from_redis_value(ask("INFO", &["replication"]).await?)
            .map_err(|_| refusing("it is no Redis server".into()))?;
        let line = |name: &str| {
            let mut lines = replication.lines();
            lines
                .find_map(|line| line.strip_prefix(name))
                .map(str::to_owned)
        };
        if line("role:").as_deref() != Some("master") {
            return Err(refusing("it is a replica, name its primary".into()));
        }
        let incarnation = line("master_replid:")
            .ok_or_else(|| refusing("it does not name its history".into()))?;
        ask("SCRIPT", &["LOAD", script()]).await?;
        let channel = format!("{}{session}", self.keys.channels());
        ask("SUBSCRIBE", &[&channel]).await?;
        Ok(Greeted {
            number,
            connection,
            pushes,
            keys: self.keys.clone(),
            script: Arc::clone(&self.script),
            incarnation,
        })
    }
}

impl Store for RedisTarget {
    type Connection = Greeted;
    const ENGINE: Engine = Engine::Redis;

    fn server(&self) -> &str {
        &self.server
    }

    fn session_timeout(&self) -> Duration {
        self.session_timeout
    }

    fn is_new(&self) -> bool {
        self.is_new
    }

    fn reaping(&self) -> Reaping {
        self.reaping
    }

    async fn greet(
        &self,
        session: i64,
        number: u64,
        limit: Duration,
    ) -> Result<Greeted, Ungreeted> {
        let greeted = timeout(limit, self.handshake(session, number)).await;
        greeted.unwrap_or(Err(Ungreeted::Unreachable(UnreachableReason::Silent)))
    }

    async fn weaknesses(&self, limit: Duration) -> Result<Vec<Weakness>, UnreachableReason> {
        weaknesses::ask(&self.client, limit).await
    }
}

impl Greeted {
    /// The command that carries a request.
    fn command(&self, session: &SessionKey, operation: &StoreRequest) -> redis::Cmd {
        let of_session = self.keys.of_session(session.id);
        let request = self.keys.request(operation);
        let mut command = redis::cmd("EVALSHA");
        command
            .arg(&*self.script)
            .arg(of_session.len() + request.keys.len())
            .arg(&of_session)
            .arg(&request.keys)
            .arg(&self.incarnation)
            .arg(session.id)
            .arg(&*session.secret)
            .arg(self.number)
            .arg(request.operation);
        for argument in &request.arguments {
            command.arg(argument.as_slice());
        }
        command
    }
}

impl StoreConnection for Greeted {
    fn number(&self) -> u64 {
        self.number
    }

    fn ask(
        &self,
        session: &SessionKey,
        operation: &StoreRequest,
    ) -> BoxFuture<'static, Result<StoreReply, Trouble>> {
        let command = self.command(session, operation);
        let shape = Shape::of(operation, session.id);
        let mut connection = self.connection.clone();
        Box::pin(async move {
            let answered = match connection.send_packed_command(&command).await {
                Ok(Value::ServerError(error)) => Err(error.into()),
                answered => answered,
            };
            answer::reply(answered.map_err(|error| answer::trouble(&error))?, shape)
        })
    }

    async fn event(&mut self) -> Option<String> {
        loop {
            let push = self.pushes.recv().await?;
            match (&push.kind, push.data.get(1)) {
                (PushKind::Disconnection, _) => return None,
                (PushKind::Message, Some(Value::BulkString(event))) => {
                    return Some(String::from_utf8_lossy(event).into_owned());
                }
                _ => {}
            }
        }
    }
}
