//! How connections to a server are opened: what its URL says, TLS, and how soon the kernels on
//! both sides give one up whose other end has vanished.

use std::time::Duration;

use tokio_postgres::config::SslMode;
use tokio_postgres::{Client, Config, Connection, Error, Socket};

#[cfg(feature = "tls")]
use super::transport::{SecureSocket, Transport};
use crate::link::tls::TlsClient;

/// Not for the URL to say. What others have made in a schema that is searched would run as our
/// user, and in another isolation rows that were waited for look as they did before.
const FIXED: &str =
    r"-c search_path=pg_catalog,pg_temp -c default_transaction_isolation=read\ committed";
/// So many questions without an answer end a connection.
const PROBES: u64 = 3;

/// When a kernel asks whether the other side of a silent connection is there, in seconds.
struct Probes {
    idle: u64,
    interval: u64,
}

impl Probes {
    /// All of them are sent within this time.
    fn within(time: Duration) -> Self {
        let part = |of: u64| time.as_secs().div_ceil(of).max(1);
        Self {
            idle: part(2),
            interval: part(2 * PROBES),
        }
    }
}

/// The client's side of it, as parameters of a URL.
pub(super) fn client_patience(patience: Duration) -> [(&'static str, u64); 4] {
    let probes = Probes::within(patience);
    [
        ("keepalives_idle", probes.idle),
        ("keepalives_interval", probes.interval),
        ("keepalives_retries", PROBES),
        ("tcp_user_timeout", patience.as_secs().max(1)),
    ]
}

/// A server's address with the user, and TLS if it is to be spoken.
#[derive(Clone)]
pub(super) struct Endpoint {
    pub(super) config: Config,
    tls: Option<TlsClient>,
    /// When the server gives a client up.
    patience: String,
}

#[cfg(feature = "tls")]
type Stream = SecureSocket;
#[cfg(not(feature = "tls"))]
type Stream = tokio_postgres::tls::NoTlsStream;

impl Endpoint {
    /// In clear, until TLS is given. `patience`: how long both sides wait for one that is silent.
    pub(super) fn new(mut config: Config, patience: Duration) -> Self {
        config.ssl_mode(SslMode::Disable);
        let probes = Probes::within(patience);
        Self {
            config,
            tls: None,
            patience: format!(
                "-c tcp_keepalives_idle={} -c tcp_keepalives_interval={} -c tcp_keepalives_count={PROBES} -c tcp_user_timeout={}",
                probes.idle,
                probes.interval,
                patience.as_millis().max(1000)
            ),
        }
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

    /// With these options beside those of the URL. What counts is the last of a name.
    pub(super) async fn connect_with(
        &self,
        options: &str,
    ) -> Result<(Client, Connection<Socket, Stream>), Error> {
        let given = self.config.get_options().unwrap_or_default();
        let all = format!("{} {given} {FIXED} {options}", self.patience);
        self.open(self.config.clone().options(all)).await
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
