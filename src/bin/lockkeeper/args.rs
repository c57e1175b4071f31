//! The words of the command line. It only reads them: names, roots and servers are checked by the library.

use std::ffi::OsString;
use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use clap::builder::NonEmptyStringValueParser;
use clap::error::ErrorKind;
use clap::{ArgAction, Args, CommandFactory, Parser, Subcommand, ValueEnum};
use humantime::parse_duration;
use lockkeeper::{Acl, Dialect, Keeper};

use crate::access::Access;
use crate::bench::Order as Bench;
use crate::failure::Failure;

const EXAMPLES: &str = "\
Examples:
  lockkeeper run nightly-report -- ./report.sh         wait for the lock, then run
  lockkeeper run --no-wait cron/backup -- ./backup.sh  run it, or end with 75 if somebody else does
  lockkeeper run a b -- ./move.sh                      run it under several locks, without deadlocks
  lockkeeper queue nightly-report                      who holds it, who waits
  lockkeeper break nightly-report                      remove its holder's ticket, after a question
  lockkeeper elect scheduler -- ./scheduler.sh         run it here if nobody else leads
  lockkeeper leader scheduler --watch                  who leads, from now on
  lockkeeper ls                                        which locks are in use
  lockkeeper bench                                     what locks cost on this ensemble
  lockkeeper serve                                     a server to try all this on

stdout is data, stderr is talk.

Exit codes:
   0  done (`run`: the command ended with 0)
  64  wrong usage: options, lock name, connect string
  69  no server: unreachable, not ZooKeeper, no such chroot, or the session ended before the command ran
  74  stdout cannot be written
  77  the server denies permission
  `run` has more: see `lockkeeper run --help`";

const RUN_NOTES: &str = "\
The lock is granted in the order of asking, and given back when the command has ended. Names may be followed by more:
then the command runs under all of these locks, taken at once or not at all, so that nobody can wait in a circle.

Without an option the command runs alone. --shared lets all others with --shared run beside it, and excludes those
without; both kinds stand in one queue. --permits N/LIMIT takes N of the permits of a semaphore, all users of which must
say the same LIMIT. It has a queue of its own, so do not use the name for locks. --owner ID lets the command in where ID
runs alone already: a tool that runs another one under the same lock, say. The lock is free when the last of them ended.

The command sees
  LOCKKEEPER_NAME   the name of the lock; of several, one a line
  LOCKKEEPER_TOKEN  the fencing token, a number that grows with every grant: let the resource refuse lower ones. Not
                    there with --shared and --permits, which let others in; one for all of several locks
  LOCKKEEPER_NODE   the name of our ticket, as `lockkeeper queue` shows it; of several locks, one a line

Loss: the lock is ours for about half of the session timeout after the servers last answered. When only a quarter of that
is left and still no answer comes, or when the lock is lost in any other way, the command's process group gets TERM, and
KILL after --grace. `run` then ends with 70, whatever the command ended with. A command that cannot end in time, or a tool
that cannot run, may still be working when others have the lock: let the resource refuse lower tokens.

Request: when somebody asks for the lock back (`lockkeeper break`, Curator's Revoker), the command's process group gets TERM and
no KILL. The lock is given back when the command has ended, and `run` ends with the command's own code.

Signals: HUP, INT, QUIT, TERM, USR1 and USR2 are passed on to the command's process group, and the lock is given back
only after the command ended. While still waiting for the lock they end the tool, and nothing stays in the queue. If
the tool itself is killed, the command (not its children) gets TERM, and the lock is free when the session times out.

Trace: a TRACEPARENT (W3C) in the environment names the trace that the work belongs to. The ticket says its trace id, which
`lockkeeper queue --json` shows, and whoever waits right behind it has it in the log (-vv). The command inherits the variable.

Terminal: the command has a process group of its own, which gets the terminal. Ctrl-Z stops the command and the tool;
a stopped tool cannot renew its lease, so when both go on after more than about half of the session timeout the lock is
lost, and the command gets TERM before it goes on. While the tool waits for the lock, Ctrl-Z does nothing.

Examples:
  lockkeeper run orders/42 -- ./work.sh
  lockkeeper run --wait 30s deploy -- sh -c 'deploy --fence \"$LOCKKEEPER_TOKEN\"'
  lockkeeper run --shared prices -- ./report.sh          beside other readers
  lockkeeper run --permits 1/4 render -- ./render.sh     at most four at once, everywhere
  lockkeeper run --owner nightly db -- ./all.sh          ./all.sh may run `lockkeeper run --owner nightly db -- ..`
  lockkeeper run accounts/4 accounts/17 -- ./move.sh     both, whoever asks for them in whatever order

Exit codes: the command's own, 128+n when signal n ended it (or ended the wait for the lock), and
  64   wrong usage; also a LIMIT that is not the semaphore's, and more permits than it has
  69   no server, or the session ended before the command ran
  70   the lock was lost while the command ran, or nearly so and the command was ended
  75   not granted in time (--wait, --no-wait)
  77   the server denies permission
  126  the command cannot be executed
  127  the command is not found";

const QUEUE_NOTES: &str = "\
POS is the number of tickets before it: 0 is the next or present holder. SINCE is by the clock of the ticket's host.
An empty queue is said on stderr (with --json it is `[]`) and ends with 0.

Fields of --json: position, node, token, holder, shared, kind (lock, read, write, candidate, permit), permits, value,
session, owner, label, trace, host, pid, since_ms (milliseconds since 1970). With --watch there is one array in each line.";

const BREAK_NOTES: &str = "\
Shows the ticket and asks on the terminal before it is removed; --yes does not ask, and must be given where stdin is no
terminal. Without --node it is the first of the queue: the holder, if anybody holds the lock.

The holder is asked first, and has --grace to release: a command under `lockkeeper run` gets TERM, and other programs hear
of it if they listen (Guard::revoked, Curator's revocable locks). If its ticket is still there then, it is removed. From then on the holder
learns of its loss within a sixth of its session timeout, and may be working until then while the next one is let in: stop its
process first if it is to do no harm, or let the resource refuse lower tokens. Candidates and those who wait are not asked. A
waiter's call fails, as soon as whoever it waits for has left. Only the ticket that was shown is removed, never another one
that stands under its name by then.

With --json stdout is {\"removed\": true} or {\"removed\": false}.

Examples:
  lockkeeper break nightly-report                                  the holder, after a question
  lockkeeper break nightly-report --node lock-0000000007 --yes     this one, without
  lockkeeper break nightly-report --grace 10min                    the holder may finish what it does

Exit codes:
   0  removed
   1  nothing was removed: nobody is there, it has gone meanwhile, or the answer was no
  64  wrong usage; also stdin is no terminal and --yes is not given
  69  no server
  77  the server denies permission";

const ELECT_NOTES: &str = "\
Stands in the election, in the order of asking, and runs the command when we lead. When it has ended we resign. Everything
else is as with `lockkeeper run`: what the command sees, loss, signals and exit codes; see `lockkeeper run --help`.

Examples:
  lockkeeper elect scheduler -- ./scheduler.sh
  lockkeeper elect --id 10.0.0.7:80 api -- ./serve.sh    `lockkeeper leader api` shows 10.0.0.7:80 while it serves";

const LEADER_NOTES: &str = "\
One line: the VALUE that the leader stood with or has proclaimed since, its fencing TOKEN, its NODE, LABEL, HOST and PID.
That nobody leads is said on stderr (with --json it is `null`) and ends with 0.

With --watch each leader, and each new value of the same one, is a line of its own, without a head, in order and as soon as
it is known; it goes on with the next session when one ends, and INT or TERM end it, with 0. The election is made if it does
not exist. Of leaders that follow each other faster than the servers can be asked, some are not shown.

Fields of --json: value, token, node, session, label, host, pid.";

const SERVE_NOTES: &str = "\
Not for production: everything is in memory, there is one server, and nothing is checked as a real ensemble would.
The first line on stdout says where it listens: `listening on 127.0.0.1:2181`, with --json {\"listen\":\"127.0.0.1:2181\"}.
INT or TERM ends it, with 0.

Examples:
  lockkeeper serve &
  lockkeeper run hello -- echo held
  lockkeeper serve --listen 127.0.0.1:0                any free port";

/// Fair distributed locks on Apache ZooKeeper.
#[derive(Debug, Parser)]
#[command(name = "lockkeeper", version, after_help = EXAMPLES, disable_help_subcommand = true)]
pub(crate) struct Arguments {
    /// Prints data as JSON
    #[arg(long, global = true)]
    pub(crate) json: bool,

    /// Says on stderr what goes on; twice and three times says more (RUST_LOG wins)
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
    /// Shows who holds a lock and who waits for it
    Queue(Queue),
    /// Removes somebody's ticket from the queue of a lock
    Break(Break),
    /// Runs a command while leading
    Elect(Elect),
    /// Shows who leads an election
    Leader(Leader),
    /// Lists the locks that somebody holds or waits for
    Ls,
    /// Measures what locks cost on an ensemble
    Bench(Bench),
    /// Runs a ZooKeeper-compatible server for tests and demos
    Serve(Serve),
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Server")]
pub(crate) struct Server {
    /// ZooKeeper servers, and a chroot if there is one: zk1:2181,zk2:2181/app
    #[arg(
        long,
        global = true,
        value_name = "HOSTS",
        env = "LOCKKEEPER_ZK",
        default_value = "localhost:2181"
    )]
    pub(crate) zk: String,

    /// The node below which the locks are; all who share locks must use the same
    #[arg(long, global = true, value_name = "PATH", default_value = "/locks")]
    pub(crate) root: String,

    /// Whose other clients share the locks: those of Curator or of kazoo; all who share a lock must use the same
    #[arg(long, global = true, value_name = "DIALECT", default_value = "curator")]
    pub(crate) dialect: DialectWord,

    /// Proves who we are: digest:user:password. Everybody on this machine sees it in the list of processes: better in the
    /// variable, or in --auth-file
    #[arg(
        long,
        global = true,
        value_name = "SCHEME:SECRET",
        env = "LOCKKEEPER_AUTH",
        hide_env_values = true
    )]
    pub(crate) auth: Option<Secret>,

    /// The same, from the first line of a file, in place of --auth
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) auth_file: Option<PathBuf>,

    /// Who may do what with the nodes that are made, as ZooKeeper's tools write it: auth::cdrwa,world:anyone:r
    #[arg(long, global = true, value_name = "LIST", env = "LOCKKEEPER_ACL")]
    pub(crate) acl: Option<Acl>,

    /// Speaks TLS with the servers, and believes those whose certificate an authority in this file (PEM) has signed
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) tls_ca: Option<PathBuf>,

    /// The certificate (PEM) that is shown to servers which ask for one
    #[arg(long, global = true, value_name = "FILE", requires_all = ["tls_ca", "tls_key"])]
    pub(crate) tls_cert: Option<PathBuf>,

    /// The key (PEM) of that certificate
    #[arg(long, global = true, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,

    /// How long the servers wait for a silent client before its locks go to others
    #[arg(long, global = true, value_name = "TIME", default_value = "10s", value_parser = parse_duration)]
    pub(crate) session_timeout: Duration,

    /// How long to try for a session
    #[arg(long, global = true, value_name = "TIME", default_value = "10s", value_parser = parse_duration)]
    pub(crate) connect_timeout: Duration,
}

#[derive(Debug, Args)]
#[command(after_help = RUN_NOTES)]
pub(crate) struct Run {
    /// The lock: one or more words separated by '/'; or several locks
    #[arg(required = true, value_name = "NAME")]
    pub(crate) names: Vec<String>,

    /// Runs beside others with --shared; excludes those without
    #[arg(long)]
    pub(crate) shared: bool,

    /// Takes N permits of a semaphore that has LIMIT of them
    #[arg(long, value_name = "N/LIMIT", conflicts_with_all = ["shared", "owner"])]
    pub(crate) permits: Option<Permits>,

    /// Runs in the name of ID, which may be inside already
    #[arg(long, value_name = "ID", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) owner: Option<String>,

    #[command(flatten)]
    pub(crate) work: Work,
}

/// What is to be done under a lock, and how long to wait for that.
#[derive(Debug, Args)]
pub(crate) struct Work {
    /// Gives up with 75 when the lock was not granted for so long
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub(crate) wait: Option<Duration>,

    /// Gives up with 75 at once when somebody holds the lock or waits for it
    #[arg(long, conflicts_with = "wait")]
    pub(crate) no_wait: bool,

    /// How long the command may take to end after TERM when the lock is lost, before it gets KILL
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = parse_duration)]
    pub(crate) grace: Duration,

    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}

#[derive(Debug, Args)]
#[command(after_help = ELECT_NOTES)]
pub(crate) struct Elect {
    /// The election: one or more words separated by '/'
    pub(crate) name: String,

    /// The value that others see while we lead; without it the host's name and our process id: host:pid
    #[arg(long)]
    pub(crate) id: Option<String>,

    #[command(flatten)]
    pub(crate) work: Work,
}

/// So many permits of so many.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Permits {
    pub(crate) count: u32,
    pub(crate) limit: u32,
}

impl FromStr for Permits {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        let numbers = word
            .split_once('/')
            .map(|(count, limit)| (count.parse(), limit.parse()));
        match numbers {
            Some((Ok(0), _) | (_, Ok(0))) => Err("there must be at least one permit".into()),
            Some((Ok(count), Ok(limit))) if count > limit => Err(format!(
                "{count} permits are never there, of {limit} in all"
            )),
            Some((Ok(count), Ok(limit))) => Ok(Self { count, limit }),
            _ => Err("it looks like 1/4: one permit, of four in all".into()),
        }
    }
}

impl Arguments {
    /// Refuses what the words cannot mean together.
    pub(crate) fn checked(self) -> Result<Self, clap::Error> {
        let Order::Run(run) = &self.order else {
            return Ok(self);
        };
        let alone = [
            (run.shared, "--shared"),
            (run.permits.is_some(), "--permits"),
            (run.owner.is_some(), "--owner"),
        ];
        match alone
            .iter()
            .find(|(is_given, _)| *is_given && run.names.len() > 1)
        {
            Some((_, option)) => Err(Self::command().error(
                ErrorKind::ArgumentConflict,
                format!("{option} is for one lock, and several were given"),
            )),
            None => Ok(self),
        }
    }
}

#[derive(Debug, Args)]
#[command(after_help = QUEUE_NOTES)]
pub(crate) struct Queue {
    /// The lock
    pub(crate) name: String,

    /// Looks again every second until INT or TERM
    #[arg(long)]
    pub(crate) watch: bool,
}

#[derive(Debug, Args)]
#[command(after_help = BREAK_NOTES)]
pub(crate) struct Break {
    /// The lock
    pub(crate) name: String,

    /// The ticket, as `lockkeeper queue` shows it in NODE; the first of the queue if not given
    #[arg(long, value_name = "NODE")]
    pub(crate) node: Option<String>,

    /// Does not ask you
    #[arg(short, long)]
    pub(crate) yes: bool,

    /// How long a holder that was asked to release may take before its ticket is removed; 0s does not ask it
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = parse_duration)]
    pub(crate) grace: Duration,
}

#[derive(Debug, Args)]
#[command(after_help = LEADER_NOTES)]
pub(crate) struct Leader {
    /// The election
    pub(crate) name: String,

    /// Shows each new leader and each new value until INT or TERM
    #[arg(long)]
    pub(crate) watch: bool,
}

#[derive(Debug, Args)]
#[command(after_help = SERVE_NOTES)]
pub(crate) struct Serve {
    /// The address; port 0 takes a free one
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:2181")]
    pub(crate) listen: SocketAddr,
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

fn text_of(file: &Path) -> Result<String, Failure> {
    std::fs::read_to_string(file).map_err(|source| Failure::File {
        file: file.to_owned(),
        source,
    })
}

/// What must not be shown: any text is one, so that no refusal of it names it.
#[derive(Clone)]
pub(crate) struct Secret(String);

impl From<&str> for Secret {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

impl Server {
    /// The scheme and the secret of what proves who we are.
    fn credential(&self) -> Result<Option<(String, String)>, Failure> {
        let text = match (&self.auth_file, &self.auth) {
            (Some(file), _) => {
                let text = text_of(file)?;
                text.lines().next().unwrap_or_default().to_owned()
            }
            (None, Some(Secret(text))) => text.clone(),
            (None, None) => return Ok(None),
        };
        let parts = text.split_once(':');
        let parts = parts.filter(|(scheme, secret)| !scheme.is_empty() && !secret.is_empty());
        let (scheme, secret) = parts.ok_or(Failure::NoCredential)?;
        Ok(Some((scheme.to_owned(), secret.to_owned())))
    }

    /// All of it, with what is in the files.
    pub(crate) fn access(&self) -> Result<Access, Failure> {
        let identity = match (&self.tls_cert, &self.tls_key) {
            (Some(certificate), Some(key)) => Some((text_of(certificate)?, text_of(key)?)),
            _ => None,
        };
        Ok(Access {
            credential: self.credential()?,
            acl: self.acl.clone(),
            ca: self.tls_ca.as_deref().map(text_of).transpose()?,
            identity,
        })
    }

    pub(crate) async fn connect(&self) -> Result<Keeper, Failure> {
        let builder = Keeper::builder(&self.zk)
            .root(&self.root)
            .dialect(self.dialect.into())
            .session_timeout(self.session_timeout)
            .connect_timeout(self.connect_timeout);
        // On the heap: every order waits for it.
        Ok(Box::pin(self.access()?.give(builder).connect()).await?)
    }
}
