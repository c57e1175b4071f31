//! The words of the command line. It only reads them: names, roots and servers are checked by the
//! library.

mod notes;
mod place;
mod refusals;

pub(crate) use place::Place;

use std::ffi::OsString;
use std::io::{self, IsTerminal};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{FalseyValueParser, NonEmptyStringValueParser};
use clap::{
    ArgAction, Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum, ValueHint,
};
use clap_complete::Shell;
use humantime::parse_duration;
use lockkeeper::{Acl, Dialect, Keeper, KeeperBuilder};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use crate::access::Access;
use crate::bench::Order as Bench;
use crate::failure::Failure;
use crate::files;
use crate::grammar::{Permits, Secret};
use crate::pattern::Pattern;
use crate::report;
use crate::resize;

/// So long a connect says nothing.
const QUIET: Duration = Duration::from_secs(1);
/// A store that serves gives a session before, also on a busy machine.
const QUIET_OF_A_STORE: Duration = Duration::from_secs(5);

/// Fair distributed locks on Apache ZooKeeper.
#[derive(Debug, Parser)]
#[command(name = "lockkeeper", version, after_help = notes::EXAMPLES, disable_help_subcommand = true)]
pub(crate) struct Arguments {
    /// Prints data as JSON
    #[arg(long, global = true)]
    pub(crate) json: bool,

    /// Logs to stderr; given twice or three times it logs more (RUST_LOG wins)
    #[arg(short, long, global = true, action = ArgAction::Count)]
    pub(crate) verbose: u8,

    #[command(flatten)]
    pub(crate) server: Server,

    #[command(subcommand)]
    pub(crate) order: Order,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Order {
    /// Runs a command while holding a lock
    Run(Run),
    /// Shows the holder and the waiters of a lock
    Queue(Queue),
    /// Changes the number of permits of a semaphore
    Resize(Resize),
    /// Removes a ticket from the queue of a lock
    Break(Break),
    /// Runs a command while leading
    Elect(Elect),
    /// Shows the leader of an election
    Leader(Leader),
    /// Lists the locks that are held or waited for
    Ls(Ls),
    /// Says in words what keeps the waiters waiting
    Why(Why),
    /// Shows the earlier holders of a lock, and how their holds ended
    Journal(Journal),
    /// Checks all locks for problems
    Doctor(Doctor),
    /// Declares that a store is new, so that it serves locks at once
    #[command(after_help = notes::INIT)]
    Init,
    /// Measures the cost of locks on an ensemble
    Bench(Bench),
    /// Runs a ZooKeeper-compatible server for tests and demos
    Serve(Serve),
    /// Prints the script with which a shell completes these words
    Completions(Completions),
    /// Prints the manual page, or writes all of them
    Man(Man),
}

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
    servers: Option<String>,

    /// The older word for --servers
    #[arg(
        long,
        global = true,
        value_name = "URL",
        env = "LOCKKEEPER_ZK",
        hide_env_values = true
    )]
    zk: Option<String>,

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

#[derive(Debug, Args)]
#[command(after_help = notes::RUN)]
pub(crate) struct Run {
    /// The lock: one or more words separated by '/'; or several locks
    #[arg(required = true, value_name = "NAME")]
    pub(crate) names: Vec<String>,

    /// Runs beside other --shared commands, and excludes all others
    #[arg(long)]
    pub(crate) shared: bool,

    /// Takes N permits of a semaphore that has LIMIT of them
    #[arg(long, value_name = "N/LIMIT", conflicts_with_all = ["shared", "owner"])]
    pub(crate) permits: Option<Permits>,

    /// Runs in the name of the owner ID, which may hold the lock already
    #[arg(long, value_name = "ID", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) owner: Option<String>,

    /// How long a plain lock outlives a tool that was killed; default 30s. It is renewed three
    /// times in each
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub(crate) ttl: Option<Duration>,

    #[command(flatten)]
    pub(crate) work: Work,
}

/// The work under a lock, and how long to wait for the lock.
#[derive(Debug, Args)]
pub(crate) struct Work {
    /// Gives up with 75 when the lock was not granted in this time
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub(crate) wait: Option<Duration>,

    /// Gives up with 75 at once when the lock is held or waited for
    #[arg(long, conflicts_with = "wait")]
    pub(crate) no_wait: bool,

    /// How long after SIGTERM the command may take to end when the lock is lost, before it gets
    /// SIGKILL; so long may the rest of its process group take when it was told to end
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = parse_duration)]
    pub(crate) grace: Duration,

    /// Holds the lock until the command's whole process group has ended
    #[arg(long)]
    pub(crate) wait_group: bool,

    /// Writes this hold and its end into the lock's journal, and keeps so many holds there
    #[arg(
        long,
        value_name = "HOLDS",
        env = "LOCKKEEPER_JOURNAL",
        default_value = "0",
        hide_default_value = true
    )]
    pub(crate) journal: usize,

    /// Takes LOCKKEEPER_AUTH out of the command's environment; of a plain lock also
    /// LOCKKEEPER_SERVERS and LOCKKEEPER_ZK
    #[arg(long)]
    pub(crate) unset_auth: bool,

    /// The label of the ticket, in place of the command's name; every reader of the queue sees it,
    /// so no secrets
    #[arg(long, value_name = "TEXT")]
    pub(crate) label: Option<String>,

    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}

#[derive(Debug, Args)]
#[command(after_help = notes::ELECT)]
pub(crate) struct Elect {
    /// The election: one or more words separated by '/'
    pub(crate) name: String,

    /// The value that others see while it leads; the default is the host's name and the process id:
    /// host:pid
    #[arg(long)]
    pub(crate) id: Option<String>,

    #[command(flatten)]
    pub(crate) work: Work,
}

impl Arguments {
    /// Reads the words of a command line. It refuses those that exclude each other, and those that
    /// the chosen kind of lock has nothing for.
    pub(crate) fn read(
        words: impl IntoIterator<Item = impl Into<OsString> + Clone>,
    ) -> Result<Self, clap::Error> {
        let matches = Self::command().try_get_matches_from(words)?;
        let mut arguments = Self::from_arg_matches(&matches)?;
        refusals::check_names(&arguments.order)?;
        if arguments.order.asks_servers() {
            let server = &mut arguments.server;
            server.place =
                Place::chosen(server.servers.as_deref(), server.zk.as_deref(), &matches)?;
            refusals::check_place(&arguments, &matches)?;
        }
        Ok(arguments)
    }
}

impl Order {
    /// The word of the command line.
    fn word(&self) -> &'static str {
        match self {
            Self::Run(_) => "run",
            Self::Queue(_) => "queue",
            Self::Resize(_) => "resize",
            Self::Break(_) => "break",
            Self::Elect(_) => "elect",
            Self::Leader(_) => "leader",
            Self::Ls(_) => "ls",
            Self::Why(_) => "why",
            Self::Journal(_) => "journal",
            Self::Doctor(_) => "doctor",
            Self::Bench(_) => "bench",
            Self::Init => "init",
            Self::Serve(_) => "serve",
            Self::Completions(_) => "completions",
            Self::Man(_) => "man",
        }
    }

    fn asks_servers(&self) -> bool {
        !matches!(self, Self::Serve(_) | Self::Completions(_) | Self::Man(_))
    }
}

#[derive(Debug, Args)]
#[command(after_help = notes::QUEUE)]
pub(crate) struct Queue {
    /// The lock
    pub(crate) name: String,

    /// Shows it again every second until SIGINT or SIGTERM
    #[arg(long)]
    pub(crate) watch: bool,
}

#[derive(Debug, Args)]
#[command(after_help = notes::LS)]
pub(crate) struct Ls {
    /// Only locks whose names match: 'orders/*', in quotes because of the shell. `*` stays between
    /// two '/', `**` does not. A plain name also stands for all below it
    #[arg(value_name = "PATTERN")]
    pub(crate) patterns: Vec<Pattern>,

    /// Only locks that are held
    #[arg(long)]
    pub(crate) held: bool,

    /// Only locks whose first ticket, the holder's if there is one, is older than this
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub(crate) longer_than: Option<Duration>,

    /// The order: by name, most waiters first, or the oldest first
    #[arg(long, value_name = "BY", default_value = "name")]
    pub(crate) sort: Sort,

    /// Shows it again every second until SIGINT or SIGTERM
    #[arg(long)]
    pub(crate) watch: bool,
}

/// The order of a list of locks.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum Sort {
    Name,
    Waiting,
    Age,
}

#[derive(Debug, Args)]
#[command(after_help = notes::RESIZE)]
pub(crate) struct Resize {
    /// The semaphore
    pub(crate) name: String,

    /// How many permits it has from now on
    #[arg(value_name = "LIMIT", value_parser = resize::limit)]
    pub(crate) limit: u32,
}

#[derive(Debug, Args)]
#[command(after_help = notes::WHY)]
pub(crate) struct Why {
    /// The lock
    pub(crate) name: String,
}

#[derive(Debug, Args)]
#[command(after_help = notes::JOURNAL)]
pub(crate) struct Journal {
    /// The lock
    pub(crate) name: String,
}

#[derive(Debug, Args)]
#[command(after_help = notes::DOCTOR)]
pub(crate) struct Doctor {
    /// The most locks that a session may hold without a finding
    #[arg(long, value_name = "LOCKS", default_value = "200")]
    pub(crate) many: usize,
}

#[derive(Debug, Args)]
#[command(after_help = notes::BREAK)]
pub(crate) struct Break {
    /// The lock
    pub(crate) name: String,

    /// The ticket, as `lockkeeper queue` shows it in NODE; the first of the queue if not given
    #[arg(long, value_name = "NODE")]
    pub(crate) node: Option<String>,

    /// Does not ask you
    #[arg(short, long)]
    pub(crate) yes: bool,

    /// How long a holder that is asked to release may take before its ticket is removed; 0s does
    /// not ask it
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = parse_duration)]
    pub(crate) grace: Duration,
}

#[derive(Debug, Args)]
#[command(after_help = notes::LEADER)]
pub(crate) struct Leader {
    /// The election
    pub(crate) name: String,

    /// Shows each new leader and each new value until SIGINT or SIGTERM
    #[arg(long)]
    pub(crate) watch: bool,
}

#[derive(Debug, Args)]
#[command(after_help = notes::SERVE)]
pub(crate) struct Serve {
    /// The address; port 0 takes a free one
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:2181")]
    pub(crate) listen: SocketAddr,

    /// The most connections of one address at a time; 0 is no limit
    #[arg(long, value_name = "COUNT", default_value = "60")]
    pub(crate) max_client_connections: usize,
}

#[derive(Debug, Args)]
#[command(after_help = notes::COMPLETIONS)]
pub(crate) struct Completions {
    /// The shell
    pub(crate) shell: Shell,
}

#[derive(Debug, Args)]
#[command(after_help = notes::MAN)]
pub(crate) struct Man {
    /// The folder for the pages; it is made if it is not there
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) out: Option<PathBuf>,
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

#[cfg(test)]
mod tests {
    use super::*;

    const PAGES: [&str; 8] = [
        include_str!("../../../README.md"),
        include_str!("../../../docs/choosing.md"),
        include_str!("../../../docs/coming-from.md"),
        include_str!("../../../docs/operating.md"),
        include_str!("../../../docs/scale.md"),
        include_str!("../../../docs/security.md"),
        include_str!("../../../docs/sharing.md"),
        include_str!("../../../docs/tool.md"),
    ];

    /// The lines in a page's blocks of shell commands.
    fn commands(page: &str) -> Vec<String> {
        let blocks = page.split("\n```").collect::<Vec<_>>();
        let blocks = blocks.iter().filter_map(|block| block.strip_prefix("sh\n"));
        blocks.flat_map(str::lines).map(str::to_owned).collect()
    }

    /// The words of an order to the tool, as a shell takes them; none if it is another command.
    /// What is said beside it does not count.
    fn words(line: &str) -> Option<Vec<String>> {
        let line = line.trim();
        let line = line.strip_prefix("$ ").unwrap_or(line);
        line.strip_prefix("lockkeeper ")?;
        let ends = ["   ", " #", " >", " &", " |"];
        let order = ends
            .iter()
            .filter_map(|end| line.find(end))
            .min()
            .map_or(line, |end| &line[..end]);
        let mut words = vec![String::new()];
        let mut quote = None;
        for c in order.chars() {
            match (quote, c) {
                (Some(open), c) if open == c => quote = None,
                (None, '\'' | '"') => quote = Some(c),
                (None, ' ') => words.push(String::new()),
                (_, c) => words.last_mut()?.push(c),
            }
        }
        words.retain(|word| !word.is_empty());
        Some(words)
    }

    #[test]
    fn every_order_in_the_docs_and_in_the_help_is_understood() {
        let mut lines: Vec<String> = PAGES.iter().flat_map(|page| commands(page)).collect();
        let mut help = Arguments::command();
        let mut texts = vec![help.render_long_help()];
        texts.extend(
            help.get_subcommands_mut()
                .map(clap::Command::render_long_help),
        );
        for text in texts {
            lines.extend(text.to_string().lines().map(str::to_owned));
        }
        let orders: Vec<Vec<String>> = lines.iter().filter_map(|line| words(line)).collect();

        assert!(orders.len() > 40, "{} are found", orders.len());
        for order in orders {
            let understood = Arguments::read(&order);
            assert!(understood.is_ok(), "{order:?}: {}", understood.unwrap_err());
        }
    }

    #[test]
    fn the_words_of_the_command_line_agree_with_each_other() {
        Arguments::command().debug_assert();
    }
}
