//! Connects to a server or a sentinel: the name, the network, TLS, the user.
//!
//! Invariant: where TLS was asked for, nothing leaves before the other side has proved itself.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, RedisConnectionInfo, RedisError, Value};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, lookup_host};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::url::Address;
use crate::error::UnreachableReason;
use crate::link::stored::Ungreeted;
use crate::link::tls::{TlsClient, refusal};

impl From<RedisError> for Ungreeted {
    fn from(error: RedisError) -> Self {
        let words = error.to_string();
        match error.code() {
            Some("NOAUTH" | "WRONGPASS") => return Self::Unauthenticated(words),
            // Also a right that the user does not have: the words name it.
            Some(_) => return Self::refusing(words),
            None => {}
        }
        match refusal(&error) {
            Some(why) => Self::refusing(why),
            None => refused(io::Error::other(words)),
        }
    }
}

fn refused(error: io::Error) -> Ungreeted {
    Ungreeted::Unreachable(UnreachableReason::Refused(Arc::new(error)))
}

/// A connection, and the task that serves it. A clone of the first does not outlive this.
pub(super) struct OpenConnection {
    pub(super) connection: MultiplexedConnection,
    driver: JoinHandle<()>,
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl OpenConnection {
    /// Asks one thing. What the server refuses is an error, too.
    pub(super) async fn ask(&mut self, name: &str, words: &[&str]) -> Result<Value, Ungreeted> {
        let mut command = redis::cmd(name);
        command.arg(words);
        let answer = self.connection.send_packed_command(&command).await?;
        Ok(answer.extract_error()?)
    }
}

/// Connects, and logs in. A handshake of TLS ends within half of the limit: a server that does not
/// speak it may wait for more.
pub(super) async fn connect(
    address: &Address,
    tls: Option<&TlsClient>,
    login: &RedisConnectionInfo,
    config: AsyncConnectionConfig,
    limit: Duration,
) -> Result<OpenConnection, Ungreeted> {
    let host = (&*address.host, address.port);
    let resolved = lookup_host(host)
        .await
        .map_err(|error| Ungreeted::Unreachable(UnreachableReason::NotResolved(Arc::new(error))))?;
    let resolved: Vec<_> = resolved.collect();
    let stream = TcpStream::connect(&*resolved).await.map_err(refused)?;
    stream.set_nodelay(true).map_err(refused)?;
    let Some(tls) = tls else {
        return log_in(stream, login, config).await;
    };
    match timeout(limit / 2, tls.handshake(&address.host, stream)).await {
        Err(_) => Err(Ungreeted::Unreachable(UnreachableReason::NoTlsSession)),
        Ok(Ok(stream)) => log_in(stream, login, config).await,
        Ok(Err(error)) => Err(refusal(&error).map_or_else(|| refused(error), Ungreeted::refusing)),
    }
}

async fn log_in<S>(
    stream: S,
    login: &RedisConnectionInfo,
    config: AsyncConnectionConfig,
) -> Result<OpenConnection, Ungreeted>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let opened = MultiplexedConnection::new_with_config(login, stream, config);
    let (connection, driver) = opened.await?;
    let driver = tokio::spawn(driver);
    Ok(OpenConnection { connection, driver })
}
