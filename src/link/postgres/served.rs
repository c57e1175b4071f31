//! A connection to PostgreSQL, and the task that serves it.
//!
//! Invariant: it ends with its client. By itself the crate says goodbye once nothing is awaited, so
//! a server that answers nothing would keep it for ever.

use std::ops::Deref;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::oneshot;
use tokio::time::timeout;
use tokio_postgres::{Client, Connection, Socket};

use super::problem::words;

/// What is under way, and the goodbye behind it, have so long.
const GOODBYE: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct ServedClient {
    // Dropped in this order.
    client: Client,
    _ends: oneshot::Sender<()>,
}

impl Deref for ServedClient {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}

impl ServedClient {
    pub(crate) fn new<S>((client, mut connection): (Client, Connection<Socket, S>)) -> Self
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let (_ends, mut ended) = oneshot::channel::<()>();
        tokio::spawn(async move {
            let served = tokio::select! {
                served = &mut connection => Ok(served),
                _ = &mut ended => timeout(GOODBYE, &mut connection).await,
            };
            if let Ok(Err(error)) = served {
                tracing::debug!(error = words(&error), "a connection to PostgreSQL ended");
            }
        });
        Self { client, _ends }
    }
}
