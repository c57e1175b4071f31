//! The options of the connection: how to reach the servers, who we are there, and how long to wait.

use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::FalseyValueParser;
use clap::{Args, ValueEnum};
use humantime::parse_duration;
use lockkeeper::{Acl, Dialect, Keeper, KeeperBuilder};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::Place;
use crate::access::Access;
use crate::failure::Failure;
use crate::files;
use crate::grammar::Secret;
use crate::report;

/// So long a connect says nothing.
const QUIET: Duration = Duration::from_secs(1);
/// A store that serves gives a session before, also on a busy machine.
const QUIET_OF_A_STORE: Duration = Duration::from_secs(5);

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Server")]
pub(crate) struct Server {
    /// ZooKeeper servers, and a chroot if there is one: zk1:2181,zk2:2181/app. The default is
    /// localhost:2181. Or the URL of a Redis or a PostgreSQL: redis://host:6379, rediss:// with
    /// TLS, redis-sentinel://s1:26379,s2:26379/mymaster, postgres://user@host/database. Or that of
    /// a plain lock, for `run` alone: redis+setnx://host:6379. Every user of this machine sees it
    /// in the list of processes, so set the variable if it has a password
    #[arg(
        long,
        global = true,
        value_name = "URL",
        env = "LOCKKEEPER_SERVERS",
        hide_env_values = true
    )]
    pub(super) servers: Option<String>,

    /// The older word for --servers
    #[arg(
        long,
        global = true,
        value_name = "URL",
        env = "LOCKKEEPER_ZK",
        hide_env_values = true
    )]
    pub(super) zk: Option<String>,

    /// What the two say. It is known after all words are read.
    #[arg(skip)]
    pub(crate) place: Place,

    /// The node below which the locks are; all clients of a lock must use the same
    #[arg(long, global = true, value_name = "PATH", default_value = "/locks")]
    pub(crate) root: String,

    /// The library that shares the locks, Curator or kazoo; all clients of a lock must use the same
    #[arg(long, global = true, value_name = "DIALECT", default_value = "curator")]
    pub(crate) dialect: DialectWord,

    /// The credential: digest:user:password. Every user of this machine sees it in the list of
    /// processes, so set the variable or --auth-file instead
    #[arg(
        long,
        global = true,
        value_name = "SCHEME:SECRET",
        env = "LOCKKEEPER_AUTH",
        hide_env_values = true
    )]
    pub(crate) auth: Option<Secret>,

    /// The credential from the first line of a file or pipe, in place of --auth
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) auth_file: Option<PathBuf>,

    /// The access list of the nodes that are made, as ZooKeeper's tools write it:
    /// auth::cdrwa,world:anyone:r. The default is auth::cdrwa with --auth, and open without it
    #[arg(
        long,
        global = true,
        value_name = "LIST",
        env = "LOCKKEEPER_ACL",
        hide_env_values = true
    )]
    pub(crate) acl: Option<Acl>,

    /// Only warns if the access list of a lock's directory allows more than --acl does, in place of
    /// refusing the lock
    #[arg(long, global = true)]
    pub(crate) no_strict_acl: bool,

    /// Speaks TLS with the servers, and trusts certificates that an authority in this file (PEM)
    /// has signed. On Redis the scheme is rediss:// then
    #[arg(long, global = true, value_name = "FILE", env = "LOCKKEEPER_TLS_CA")]
    pub(crate) tls_ca: Option<PathBuf>,

    /// The certificate (PEM) for servers that ask for one
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        env = "LOCKKEEPER_TLS_CERT",
        requires_all = ["tls_ca", "tls_key"]
    )]
    pub(crate) tls_cert: Option<PathBuf>,

    /// The key (PEM) of that certificate
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        env = "LOCKKEEPER_TLS_KEY",
        requires = "tls_cert"
    )]
    pub(crate) tls_key: Option<PathBuf>,

    /// Refuses to connect without TLS
    #[arg(long, global = true, env = "LOCKKEEPER_REQUIRE_TLS", value_parser = FalseyValueParser::new())]
    pub(crate) require_tls: bool,

    /// How long a client may be silent before its session expires and its locks go to others
    #[arg(long, global = true, value_name = "TIME", default_value = "10s", value_parser = parse_duration)]
    pub(crate) session_timeout: Duration,

    /// The tickTime of the servers' configuration; if it is given, a command survives longer
    /// silences of the servers
    #[arg(long, global = true, value_name = "TIME", env = "LOCKKEEPER_TICK", value_parser = parse_duration)]
    pub(crate) tick: Option<Duration>,

    /// How long to try for a session; 0s tries each address once
    #[arg(long, global = true, value_name = "TIME", default_value = "10s", value_parser = parse_duration)]
    pub(crate) connect_timeout: Duration,

    /// How long a command that only reads (queue, leader, ls, why, journal, doctor) may take after
    /// that
    #[arg(long, global = true, value_name = "TIME", default_value = "30s", value_parser = parse_duration)]
    pub(crate) read_timeout: Duration,
}

/// A [`Dialect`], for the command line.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum DialectWord {
    Curator,
    Kazoo,
}

impl From<DialectWord> for Dialect {
    fn from(word: DialectWord) -> Self {
        match word {
            DialectWord::Curator => Self::Curator,
            DialectWord::Kazoo => Self::Kazoo,
        }
    }
}

impl Server {
    /// The scheme and the secret of what proves who we are.
    fn credential(&self) -> Result<Option<(String, String)>, Failure> {
        let secret = match (&self.auth_file, &self.auth) {
            (Some(file), _) => {
                let text = files::secret(file)?;
                Secret::from(text.lines().next().unwrap_or_default())
            }
            (None, Some(secret)) => secret.clone(),
            (None, None) => return Ok(None),
        };
        secret.credential().ok_or(Failure::NoCredential).map(Some)
    }

    fn read_access(&self) -> Result<Access, Failure> {
        let identity = match (&self.tls_cert, &self.tls_key) {
            (Some(certificate), Some(key)) => {
                Some((files::text(certificate)?, files::secret(key)?))
            }
            _ => None,
        };
        Ok(Access {
            credential: self.credential()?,
            acl: self.acl.clone(),
            only_warns: self.no_strict_acl,
            ca: self.tls_ca.as_deref().map(files::text).transpose()?,
            identity,
            requires_tls: self.require_tls,
        })
    }

    /// All of it, with what is in the files. A pipe can be read once, and may let us wait.
    pub(crate) async fn access(&self) -> Result<Access, Failure> {
        let server = self.clone();
        let reading = spawn_blocking(move || server.read_access());
        reading
            .await
            .map_err(io::Error::other)
            .map_err(Failure::System)?
    }

    pub(crate) async fn connect(&self) -> Result<Keeper, Failure> {
        self.connect_and_write(0).await
    }

    /// With a keeper that writes so many holds of each lock into the journal.
    pub(crate) async fn connect_and_write(&self, journal: usize) -> Result<Keeper, Failure> {
        self.connect_as(&self.access().await?, journal).await
    }

    pub(crate) async fn connect_as(
        &self,
        access: &Access,
        journal: usize,
    ) -> Result<Keeper, Failure> {
        self.connect_to(self.builder(access).journal(journal)).await
    }

    pub(crate) fn builder(&self, access: &Access) -> KeeperBuilder {
        let builder = Keeper::builder(self.place.connect_string())
            .root(&self.root)
            .dialect(self.dialect.into())
            .session_timeout(self.session_timeout)
            .connect_timeout(self.connect_timeout);
        let builder = match self.tick {
            Some(tick) => builder.tick_time(tick),
            None => builder,
        };
        access.give(builder)
    }

    /// Says why, if it takes long.
    pub(crate) async fn connect_to(&self, builder: KeeperBuilder) -> Result<Keeper, Failure> {
        // The log says so too, where there is one.
        if builder.sends_secrets_in_clear() && !tracing::enabled!(tracing::Level::WARN) {
            report::say(
                "the credential crosses the network in clear, because there is no TLS: see --tls-ca and --require-tls",
            );
        }
        // On the heap: every order waits for it.
        let mut connecting = Box::pin(builder.connect());
        let quiet = match self.place {
            Place::Store { .. } => QUIET_OF_A_STORE,
            _ => QUIET,
        };
        if let Ok(connected) = timeout(quiet, &mut connecting).await {
            return Ok(connected?);
        }
        let (servers, limit) = (self.place.shown(), self.connect_timeout);
        if let Place::Store { engine, .. } = &self.place {
            report::say(format_args!(
                "no session with {servers} yet: {engine} that has started again, or is empty, gives none for 35s, because clients of before may still hold locks (`lockkeeper init` if it is new)"
            ));
        } else if io::stderr().is_terminal() {
            report::say(format_args!(
                "no session with {servers} yet: trying for {limit:?} (--connect-timeout)"
            ));
        }
        Ok(connecting.await?)
    }
}
