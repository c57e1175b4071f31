//! A PostgreSQL server, and what its URL says.
//!
//! Invariant: what is told of a URL is without its user and password. Nothing is sent in clear
//! where TLS was asked for.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio_postgres::Config;
use tokio_postgres::config::Host;

use super::endpoint::{Endpoint, client_patience};
use super::listener::Listeners;
use crate::error::AT_IN_OPTIONS;
use crate::link::tls::TlsClient;
use crate::protocol::epoch::LONGEST;

/// The schema of ours, unless the URL names another one.
const SCHEMA: &str = "lockkeeper";

/// How a session is told of its watches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WakeUp {
    /// The server sends a notification.
    Notify,
    /// The session asks, at growing pauses.
    Poll,
}

/// The server, and what is asked of it.
#[derive(Clone)]
pub(crate) struct PostgresTarget {
    pub(super) endpoint: Arc<Endpoint>,
    /// What `sslmode` says, if it stands in the URL.
    asks_for_tls: Option<bool>,
    /// Host, port and database.
    pub(super) server: Arc<str>,
    pub(super) schema: Arc<str>,
    pub(super) wake: WakeUp,
    pub(super) session_timeout: Duration,
    pub(super) is_new: bool,
    pub(super) listeners: Arc<Listeners>,
}

/// Without user and password.
impl fmt::Debug for PostgresTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresTarget")
            .field("server", &self.server)
            .field("schema", &self.schema)
            .field("wake", &self.wake)
            .finish_non_exhaustive()
    }
}

impl PostgresTarget {
    /// For `postgres://[user[:password]@]host[:port]/database`. Options of ours behind a `?` are
    /// `wake` (`notify` or `poll`), `schema` and `sslmode`.
    pub(crate) fn new(url: &str, session_timeout: Duration, is_new: bool) -> Result<Self, String> {
        let (address, query) = url.split_once('?').unwrap_or((url, ""));
        if query.contains('@') {
            return Err(AT_IN_OPTIONS.into());
        }
        let (mut wake, mut schema, mut theirs) = (WakeUp::Notify, SCHEMA.to_owned(), Vec::new());
        let mut asks_for_tls = None;
        for part in query.split('&').filter(|part| !part.is_empty()) {
            let (key, value) = part.split_once('=').unwrap_or((part, ""));
            match (key, value) {
                ("wake", "notify") => wake = WakeUp::Notify,
                ("wake", "poll") => wake = WakeUp::Poll,
                ("wake", _) => return Err("`wake` is `notify` or `poll`".into()),
                ("schema", name) if is_plain(name) => name.clone_into(&mut schema),
                ("schema", _) => {
                    return Err("`schema` has a-z, 0-9 and _ only, and begins with a letter".into());
                }
                ("sslmode", mode) => asks_for_tls = Some(asks_for_tls_by(mode)?),
                (key, _) if key.starts_with("ssl") || key == "channel_binding" => {
                    return Err(format!(
                        "`{key}` is not for the URL: authorities, a certificate and its key are given as `Tls`, or with --tls-ca, --tls-cert and --tls-key"
                    ));
                }
                _ => theirs.push(part),
            }
        }
        // No root grants a longer one by itself, and a kernel takes no time of days.
        let patience = session_timeout.min(LONGEST);
        let config = config(address, &theirs, patience)?;
        let server = server_of(&config)?;
        Ok(Self {
            endpoint: Arc::new(Endpoint::new(config, patience)),
            asks_for_tls,
            server: server.into(),
            schema: schema.into(),
            wake,
            session_timeout,
            is_new,
            listeners: Arc::default(),
        })
    }

    /// TLS is spoken if the URL asks for it, or if certificates are given. Refuses certificates
    /// that the URL has no use for, and a URL that needs some.
    pub(crate) fn secured(mut self, tls: Option<TlsClient>) -> Result<Self, String> {
        if self.asks_for_tls == Some(true) && !cfg!(feature = "tls") {
            return Err(
                "`sslmode` asks for TLS, which needs the feature `tls` of lockkeeper".into(),
            );
        }
        let tls = match (self.asks_for_tls, tls) {
            (Some(true), None) => {
                return Err("`sslmode` asks for TLS, and no authority was given to trust (`Tls::with_ca`, or --tls-ca)".into());
            }
            (Some(false), Some(_)) => {
                return Err("certificates for TLS were given, and sslmode=disable".into());
            }
            (_, None) => return Ok(self),
            (_, Some(tls)) => tls,
        };
        let hosts = self.endpoint.config.get_hosts();
        if hosts.iter().any(|host| !matches!(host, Host::Tcp(_))) {
            return Err("a socket of this machine has no TLS: name a host".into());
        }
        let endpoint = Endpoint::clone(&self.endpoint).secured(tls);
        self.endpoint = Arc::new(endpoint);
        Ok(self)
    }

    pub(crate) fn is_secure(&self) -> bool {
        self.endpoint.is_secure()
    }
}

/// With what the URL says and, where it says nothing, ours.
fn config(address: &str, theirs: &[&str], patience: Duration) -> Result<Config, String> {
    let mut all: Vec<String> = theirs.iter().map(ToString::to_string).collect();
    for (key, value) in client_patience(patience) {
        if !theirs
            .iter()
            .any(|part| part.split('=').next() == Some(key))
        {
            all.push(format!("{key}={value}"));
        }
    }
    let url = format!("{address}?{}", all.join("&"));
    let mut config: Config = url.parse().map_err(refusal)?;
    if config.get_application_name().is_none() {
        config.application_name("lockkeeper");
    }
    Ok(config)
}

/// Whether a mode asks for TLS. With TLS, the certificate and its name are always verified, which
/// is more than `require` asks for.
fn asks_for_tls_by(mode: &str) -> Result<bool, String> {
    match mode {
        "disable" => Ok(false),
        "require" | "verify-full" => Ok(true),
        "allow" | "prefer" => Err(format!(
            "`sslmode={mode}` lets anybody between choose that there is no TLS: say verify-full or disable"
        )),
        "verify-ca" => Err(
            "`sslmode=verify-ca` takes the certificate of any host that the authority has signed: say verify-full".into(),
        ),
        _ => Err("`sslmode` is `disable`, `require` or `verify-full`".into()),
    }
}

/// What the crate says of a URL. It repeats no value.
fn refusal(error: tokio_postgres::Error) -> String {
    let source = std::error::Error::source(&error).map(ToString::to_string);
    source.map_or_else(|| error.to_string(), |source| format!("{error}: {source}"))
}

fn server_of(config: &Config) -> Result<String, String> {
    let ports = config.get_ports();
    let hosts = config.get_hosts().iter().enumerate().map(|(at, host)| {
        let host = match host {
            Host::Tcp(host) => host.clone(),
            Host::Unix(path) => path.display().to_string(),
        };
        let port = ports.get(at).or_else(|| ports.first()).copied();
        format!("{host}:{}", port.unwrap_or(5432))
    });
    let hosts: Vec<String> = hosts.collect();
    if hosts.is_empty() {
        return Err("it names no host".into());
    }
    let base = config.get_dbname().or_else(|| config.get_user());
    Ok(format!("{}/{}", hosts.join(","), base.unwrap_or_default()))
}

/// A name that means the same with and without quotes.
fn is_plain(name: &str) -> bool {
    name.starts_with(|first: char| first.is_ascii_lowercase())
        && name.len() < 48
        && name
            .chars()
            .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
}
