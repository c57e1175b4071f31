//! The options of the connection: how to reach the servers, who we are there, and how long to wait.

use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::FalseyValueParser;
use clap::{ArgMatches, Args, FromArgMatches, ValueEnum};
use humantime::parse_duration;
use lockkeeper::{Acl, Dialect, Keeper, KeeperBuilder};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::Place;
use super::settings::Origin;
use super::told::Told;
use crate::access::Access;
use crate::failure::Failure;
use crate::files;
use crate::grammar::Secret;
use crate::report;

/// So long a connect says nothing.
const QUIET: Duration = Duration::from_secs(1);
/// A store that serves gives a session before, also on a busy machine.
const QUIET_OF_A_STORE: Duration = Duration::from_secs(5);

/// Where the servers and their settings are named. They are read by their ids, before all others.
#[derive(Debug, Args)]
#[command(next_help_heading = "Server")]
pub(super) struct Source {
    /// ZooKeeper servers (zk1:2181,zk2:2181/app), or a URL: redis://host, postgres://user@host/db
    ///
    /// A chroot may stand behind ZooKeeper's servers. The default is localhost:2181. More URLs are
    /// rediss:// with TLS, redis-sentinel://s1:26379,s2:26379/mymaster, and those of plain locks,
    /// for `run` alone: redis+setnx://host:6379. Every user of this machine sees the option in the
    /// list of processes, so set the variable if it has a password.
    #[arg(long, value_name = "URL", env = "LOCKKEEPER_SERVERS")]
    servers: Option<String>,

    /// The older word for --servers
    #[arg(long, value_name = "URL", env = "LOCKKEEPER_ZK")]
    zk: Option<String>,

    /// The file with settings, in place of lockkeeper.toml where it usually is
    ///
    /// Without it the files are ~/.config/lockkeeper/lockkeeper.toml (or below $XDG_CONFIG_HOME)
    /// and /etc/lockkeeper/lockkeeper.toml; the first wins. /dev/null stands for no file.
    #[arg(long, value_name = "FILE", env = "LOCKKEEPER_CONFIG")]
    config: Option<PathBuf>,
}

/// The other options of the connection. Each has a variable, and a setting in a file.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Server")]
pub(crate) struct Server {
    /// What `servers`, `zk` or a file say. It is known after all words are read.
    #[arg(skip)]
    pub(crate) place: Place,

    /// The node below which the locks are
    ///
    /// All clients of a lock must use the same.
    #[arg(
        long,
        value_name = "PATH",
        default_value = "/locks",
        env = "LOCKKEEPER_ROOT"
    )]
    pub(crate) root: String,

    /// Whether that was given, and is not the default.
    #[arg(skip)]
    pub(crate) is_root_given: bool,

    /// Makes the chroot of --servers if it does not exist
    ///
    /// Its nodes have the access list of all that is made, and stay.
    #[arg(long, env = "LOCKKEEPER_CREATE_CHROOT", value_parser = FalseyValueParser::new())]
    create_chroot: bool,

    /// The library that shares the locks: curator or kazoo
    ///
    /// All clients of a lock must use the same.
    #[arg(
        long,
        value_name = "DIALECT",
        default_value = "curator",
        hide_possible_values = true,
        env = "LOCKKEEPER_DIALECT"
    )]
    dialect: DialectWord,

    /// Speaks TLS, and trusts the authority in this file (PEM)
    ///
    /// Certificates that it has signed are trusted, and no others. On Redis the scheme is rediss://
    /// then.
    #[arg(
        long,
        value_name = "FILE",
        env = "LOCKKEEPER_TLS_CA",
        help_heading = "TLS"
    )]
    pub(crate) tls_ca: Option<PathBuf>,

    /// The certificate (PEM) for servers that ask for one
    #[arg(
        long,
        value_name = "FILE",
        env = "LOCKKEEPER_TLS_CERT",
        help_heading = "TLS"
    )]
    tls_cert: Option<PathBuf>,

    /// The key (PEM) of that certificate
    #[arg(
        long,
        value_name = "FILE",
        env = "LOCKKEEPER_TLS_KEY",
        help_heading = "TLS"
    )]
    tls_key: Option<PathBuf>,

    /// Refuses to connect without TLS
    #[arg(long, env = "LOCKKEEPER_REQUIRE_TLS", value_parser = FalseyValueParser::new(),
        help_heading = "TLS")]
    require_tls: bool,

    /// The credential: digest:user:password
    ///
    /// Every user of this machine sees it in the list of processes, so set the variable or
    /// --auth-file instead.
    #[arg(
        long,
        value_name = "SCHEME:SECRET",
        env = "LOCKKEEPER_AUTH",
        help_heading = "Access"
    )]
    auth: Option<Secret>,

    /// The credential from the first line of a file or pipe, in place of --auth
    #[arg(
        long,
        value_name = "FILE",
        env = "LOCKKEEPER_AUTH_FILE",
        help_heading = "Access"
    )]
    auth_file: Option<PathBuf>,

    /// The access list of the nodes that are made: auth::cdrwa,world:anyone:r
    ///
    /// It is written as ZooKeeper's tools write it. The default is auth::cdrwa with a credential,
    /// and open without one.
    #[arg(
        long,
        value_name = "LIST",
        env = "LOCKKEEPER_ACL",
        help_heading = "Access"
    )]
    pub(super) acl: Option<Acl>,

    /// Only warns of access lists that allow more than --acl does
    ///
    /// Without it, a lock whose directory has a wider access list is refused.
    #[arg(long, env = "LOCKKEEPER_NO_STRICT_ACL", value_parser = FalseyValueParser::new(),
        help_heading = "Access")]
    no_strict_acl: bool,

    /// How long a client may be silent before its locks go to others
    ///
    /// Its session expires then, at the servers.
    #[arg(
        long,
        value_name = "TIME",
        default_value = "10s",
        value_parser = parse_duration,
        env = "LOCKKEEPER_SESSION_TIMEOUT",
        help_heading = "Time"
    )]
    pub(crate) session_timeout: Duration,

    /// The tickTime of the servers' configuration
    ///
    /// If it is given, a command survives longer silences of the servers.
    #[arg(
        long,
        value_name = "TIME",
        value_parser = parse_duration,
        env = "LOCKKEEPER_TICK",
        help_heading = "Time"
    )]
    tick: Option<Duration>,

    /// How long to try for a session; 0s tries each address once
    #[arg(
        long,
        value_name = "TIME",
        default_value = "10s",
        value_parser = parse_duration,
        env = "LOCKKEEPER_CONNECT_TIMEOUT",
        help_heading = "Time"
    )]
    pub(crate) connect_timeout: Duration,

    /// Of orders that only read.
    #[arg(skip)]
    pub(crate) read_timeout: Duration,
}

/// The option that only orders have that only read.
#[derive(Debug, Args)]
pub(super) struct Reading {
    /// How long a command that only reads may take after that
    #[arg(
        long,
        value_name = "TIME",
        default_value = "30s",
        value_parser = parse_duration,
        env = "LOCKKEEPER_READ_TIMEOUT",
        help_heading = "Time"
    )]
    read_timeout: Duration,
}

/// A [`Dialect`], for the command line.
#[derive(Debug, Clone, Copy, Default, ValueEnum)]
enum DialectWord {
    #[default]
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
    /// All of them, for an order and its words. `words` have what a file says.
    pub(super) fn chosen(
        words: &ArgMatches,
        told: &Told<'_>,
        place: Place,
    ) -> Result<Self, Failure> {
        let mut server = Self::from_arg_matches(words)?;
        server.place = place;
        server.is_root_given = told.origin("root") != Origin::Default;
        if let Ok(Some(limit)) = words.try_get_one("read_timeout") {
            server.read_timeout = *limit;
        }
        // One stands for the other: what is nearer to the user wins, and the file if both are.
        if told.origin("auth").rank() > told.origin("auth_file").rank() {
            server.auth_file = None;
        }
        Ok(server)
    }

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
            .connect_timeout(self.connect_timeout)
            .create_chroot(self.create_chroot);
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

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    use tempfile::TempDir;

    use super::*;
    use crate::args::{Arguments, Order};

    /// What is read where two files say this.
    fn read(words: &str, files: [&str; 2]) -> Result<Arguments, String> {
        let folder = TempDir::new().unwrap();
        let places = ["user", "all"].map(|name| folder.path().join(name));
        for (place, text) in places.iter().zip(files) {
            fs::write(place, text).unwrap();
            fs::set_permissions(place, Permissions::from_mode(0o600)).unwrap();
        }
        let words = format!("lockkeeper {words}");
        Arguments::read(words.split(' '), &places).map_err(|error| error.to_string())
    }

    #[test]
    fn each_setting_is_of_the_first_file_that_has_it() {
        let user = "root = \"/user\"\n";
        let all = "root = \"/all\"\nconnect_timeout = \"3s\"\nread_timeout = \"4s\"\n";

        let server = read("ls", [user, all]).unwrap().server;

        assert_eq!((&*server.root, server.is_root_given), ("/user", true));
        assert_eq!(server.connect_timeout, Duration::from_secs(3));
        assert_eq!(server.read_timeout, Duration::from_secs(4));
        // An order that has no such option does without its setting.
        let other = read("run a -- true", [user, all]).unwrap().server;
        assert_eq!(other.connect_timeout, Duration::from_secs(3));
        let nothing = read("ls", ["", ""]).unwrap().server;
        assert_eq!((&*nothing.root, nothing.is_root_given), ("/locks", false));
        assert!(read("serve", ["nonsense", ""]).is_ok());
    }

    #[test]
    fn the_credential_that_is_nearer_to_the_user_wins() {
        let (auth, file) = ("auth = \"a:b\"\n", "auth_file = \"f\"\n");
        for (words, files, is_of_file) in [
            ("ls", [auth, file], false),
            ("ls", [file, auth], true),
            ("--auth a:b ls", [file, ""], false),
            ("--auth-file f ls", [auth, ""], true),
            ("--auth-file f --auth a:b ls", ["", ""], true),
            ("ls", [&format!("{auth}{file}"), ""], true),
        ] {
            let server = read(words, files).unwrap().server;

            assert_eq!(server.auth_file.is_some(), is_of_file, "{words} {files:?}");
            let used = server.auth_file.is_some() || server.auth.is_some();
            assert!(used, "{words} {files:?}");
        }
    }

    #[test]
    fn settings_belong_to_the_servers_of_their_file() {
        let zookeeper = "servers = \"zk1\"\ntick = \"2s\"\nroot = \"/a\"\n";
        let plain = "--servers redis+setnx://a run a -- true";

        assert!(read("ls", [zookeeper, ""]).unwrap().server.tick.is_some());
        assert!(read(plain, [zookeeper, ""]).is_ok());
        let of_user = "servers = \"redis+setnx://a\"\n";
        assert!(read("run a -- true", [of_user, zookeeper]).is_ok());
        let error = read("run a -- true", [&format!("{of_user}tick = \"2s\""), ""]).unwrap_err();
        assert!(
            error.contains("user, line 2) is not for redis+setnx"),
            "{error}"
        );
        let error = read(plain, ["require_tls = true", ""]).unwrap_err();
        assert!(error.contains("LOCKKEEPER_REQUIRE_TLS=0"), "{error}");
        assert!(read(plain, ["require_tls = false", ""]).is_ok());
    }

    #[test]
    fn a_certificate_may_have_its_key_from_somewhere_else() {
        let both = "tls_ca = \"ca\"\ntls_key = \"key\"\n";
        assert!(read("--tls-cert c ls", [both, ""]).is_ok());
        let error = read("--tls-cert c ls", ["tls_ca = \"ca\"", ""]).unwrap_err();
        assert!(error.contains("--tls-cert needs --tls-key"), "{error}");
        let error = read("ls", ["tls_key = \"key\"", ""]).unwrap_err();
        assert!(error.contains("line 1) needs --tls-cert"), "{error}");
    }

    #[test]
    fn config_tells_what_is_in_force_also_when_it_is_wrong() {
        let file = "servers = \"redis+setnx://a\"\ntick = \"2s\"\n";
        let read = read("--root /a config", [file, "auth = \"digest:me:97531\"\n"]).unwrap();
        let Order::Config(config) = read.order else {
            panic!("{read:?}");
        };

        let said = |option: &str| {
            let said = config
                .in_force
                .iter()
                .find(|it| it.option == option)
                .unwrap();
            (said.value.clone().unwrap_or_default(), said.origin.clone())
        };
        assert_eq!(said("root"), ("/a".into(), Origin::Option));
        assert_eq!(said("tick").0, "2s");
        assert_eq!(said("servers").0, "redis+setnx://***");
        let (option, _, why) = &config.settings.left_out[0];
        assert_eq!(option, "auth");
        assert!(why.contains("URL"), "{why}");
    }
}
