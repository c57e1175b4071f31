//! How connections to a server are opened: what its URL says, and TLS.

use tokio_postgres::config::SslMode;
use tokio_postgres::{Client, Config, Connection, Error, Socket};

#[cfg(feature = "tls")]
use super::transport::{SecureSocket, Transport};
use crate::link::tls::TlsClient;

/// A server's address with the user, and TLS if it is to be spoken.
#[derive(Clone)]
pub(super) struct Endpoint {
    pub(super) config: Config,
    tls: Option<TlsClient>,
}

#[cfg(feature = "tls")]
type Stream = SecureSocket;
#[cfg(not(feature = "tls"))]
type Stream = tokio_postgres::tls::NoTlsStream;

impl Endpoint {
    /// In clear, until TLS is given.
    pub(super) fn new(mut config: Config) -> Self {
        config.ssl_mode(SslMode::Disable);
        Self { config, tls: None }
    }

    /// With TLS or not at all: nothing is ever sent in clear instead.
    pub(super) fn secured(mut self, tls: TlsClient) -> Self {
        self.config.ssl_mode(SslMode::Require);
        self.tls = Some(tls);
        self
    }

    pub(super) fn is_secure(&self) -> bool {
        self.tls.is_some()
    }

    pub(super) async fn connect(&self) -> Result<(Client, Connection<Socket, Stream>), Error> {
        self.open(&self.config).await
    }

    /// With these options beside those of the URL.
    pub(super) async fn connect_with(
        &self,
        options: String,
    ) -> Result<(Client, Connection<Socket, Stream>), Error> {
        self.open(self.config.clone().options(options)).await
    }

    #[cfg(feature = "tls")]
    async fn open(&self, config: &Config) -> Result<(Client, Connection<Socket, Stream>), Error> {
        config.connect(Transport::new(self.tls.clone())).await
    }

    #[cfg(not(feature = "tls"))]
    async fn open(&self, config: &Config) -> Result<(Client, Connection<Socket, Stream>), Error> {
        config.connect(tokio_postgres::NoTls).await
    }
}
