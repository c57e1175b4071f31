//! The words of the command line. It only reads them: names, roots and servers are checked by the library.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::builder::NonEmptyStringValueParser;
use clap::error::ErrorKind;
use clap::{ArgAction, Args, CommandFactory, Parser, Subcommand, ValueEnum, ValueHint};
use clap_complete::Shell;
use humantime::parse_duration;
use lockkeeper::{Acl, Dialect, Keeper};

use crate::access::Access;
use crate::bench::Order as Bench;
use crate::failure::Failure;
use crate::grammar::{Permits, Secret};

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
  lockkeeper why nightly-report                        who keeps the others waiting, in words
  lockkeeper journal nightly-report                    who held it before, and how that ended
  lockkeeper doctor                                    what is wrong with the locks
  lockkeeper bench                                     what locks cost on this ensemble
  lockkeeper serve                                     a server to try all this on

stdout is data, stderr is talk.

Exit codes:
   0  done (`run`: the command ended with 0)
  64  wrong usage: options, lock name, connect string
  69  no server: unreachable, not ZooKeeper, no such chroot, or the session ended before the command ran
  74  stdout, or a file of `man --out`, cannot be written
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
session, owner, label, trace, host, pid, since_ms (milliseconds since 1970). With --watch there is one array in each line.

With --watch, on a terminal, it is a view that is drawn again each second, with the holders in green, and the terminal is as it
was when it ends; elsewhere one table follows the other.";

const LS_NOTES: &str = "\
Fields of --json: name, tickets. With --watch there is one array in each line; on a terminal it is a view that is drawn again.";

const WHY_NOTES: &str = "\
Says who holds the lock and since when, who is next, how many wait, and what keeps the holder from going on: of processes on this
host also whether they are stopped or have ended. How long a holder holds is known from the journal (see `lockkeeper journal
--help`); without one it is said when it asked for the lock.

With --json: name, holders, waiting (a number), next. A holder has the fields of `lockkeeper queue --json`, and `process`: runs,
stopped, ended, or null where it cannot be known.";

const JOURNAL_NOTES: &str = "\
Only holds of clients that write one are in it: `lockkeeper run --journal 100`, KeeperBuilder::journal. The oldest is the
first. It is a node below the root's name with -journal behind it (/locks-journal/NAME), which stays until it is removed.

ENDED is `released`, `dropped` (the program ended its hold without asking how that went), `lost: ..` with the reason, `holds`
while its ticket is in the queue, or `without a word`: the process died, or was cut off for good.

Fields of --json: token (of a guest: its host's), ticket (its own, as `queue` shows it in TOKEN), node, kind, owner, label, host, pid,
since_ms (of the grant, milliseconds since 1970), waited_ms, held_ms, ending (released, dropped, lost, or null), why (it was lost), holds.";

const DOCTOR_NOTES: &str = "\
  deadlock  owners (--owner, Owner::named) that wait for each other, in whatever locks and processes
  orphan    a ticket whose session no server knows; needs the four-letter word `dump` (4lw.commands.whitelist)
  paused    the process of a holder or waiter is stopped; only processes of this host are looked at
  dead      the same, and it has ended: the ticket goes when its session times out; wrong where a container or another machine has the
            same host name as this one
  mixed     tickets in one queue that do not see each other: of other recipes or libraries
  numbers   a directory that has given nearly all of its 2147483647 numbers
  many      a session that holds more than --many locks

Reads every queue below the root twice, some at a time. Fields of --json: finding, locks, why.

Exit codes:
   0  nothing is wrong
   1  something is: each finding is a line
  64  wrong usage
  69  no server
  77  the server denies permission";

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

const COMPLETIONS_NOTES: &str = "\
The script goes to stdout, and no server is asked. It knows all subcommands and options, not the names of your locks.

Examples:
  lockkeeper completions bash > ~/.local/share/bash-completion/completions/lockkeeper
  lockkeeper completions zsh > ~/.zfunc/_lockkeeper       with `fpath+=~/.zfunc` before `compinit` in ~/.zshrc
  lockkeeper completions fish > ~/.config/fish/completions/lockkeeper.fish
  lockkeeper completions elvish >> ~/.config/elvish/rc.elv
  lockkeeper completions powershell >> $PROFILE           in PowerShell";

const MAN_NOTES: &str = "\
The page of the tool goes to stdout. With --out it becomes a file in a folder, and so does a page for each subcommand. No
server is asked.

Examples:
  lockkeeper man | man -l -                              reads it at once
  lockkeeper man --out ~/.local/share/man/man1           from then on: `man lockkeeper`, `man lockkeeper-run`";

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
    Ls(Ls),
    /// Says in words who keeps everybody else waiting
    Why(Why),
    /// Shows who held a lock before, and how that ended
    Journal(Journal),
    /// Looks through all locks for what is wrong with them
    Doctor(Doctor),
    /// Measures what locks cost on an ensemble
    Bench(Bench),
    /// Runs a ZooKeeper-compatible server for tests and demos
    Serve(Serve),
    /// Prints what a shell needs to complete these words
    Completions(Completions),
    /// Prints the manual page, or writes all of them
    Man(Man),
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

    /// Writes into the lock's journal who holds it and how that ends, and keeps so many holds there
    #[arg(
        long,
        value_name = "HOLDS",
        env = "LOCKKEEPER_JOURNAL",
        default_value = "0",
        hide_default_value = true
    )]
    pub(crate) journal: usize,

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
#[command(after_help = LS_NOTES)]
pub(crate) struct Ls {
    /// Looks again every second until INT or TERM
    #[arg(long)]
    pub(crate) watch: bool,
}

#[derive(Debug, Args)]
#[command(after_help = WHY_NOTES)]
pub(crate) struct Why {
    /// The lock
    pub(crate) name: String,
}

#[derive(Debug, Args)]
#[command(after_help = JOURNAL_NOTES)]
pub(crate) struct Journal {
    /// The lock
    pub(crate) name: String,
}

#[derive(Debug, Args)]
#[command(after_help = DOCTOR_NOTES)]
pub(crate) struct Doctor {
    /// A session that holds more locks than that is unusual
    #[arg(long, value_name = "LOCKS", default_value = "200")]
    pub(crate) many: usize,
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

#[derive(Debug, Args)]
#[command(after_help = COMPLETIONS_NOTES)]
pub(crate) struct Completions {
    /// The shell
    pub(crate) shell: Shell,
}

#[derive(Debug, Args)]
#[command(after_help = MAN_NOTES)]
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

fn text_of(file: &Path) -> Result<String, Failure> {
    std::fs::read_to_string(file).map_err(|source| Failure::File {
        file: file.to_owned(),
        source,
    })
}

impl Server {
    /// The scheme and the secret of what proves who we are.
    fn credential(&self) -> Result<Option<(String, String)>, Failure> {
        let secret = match (&self.auth_file, &self.auth) {
            (Some(file), _) => {
                let text = text_of(file)?;
                Secret::from(text.lines().next().unwrap_or_default())
            }
            (None, Some(secret)) => secret.clone(),
            (None, None) => return Ok(None),
        };
        secret.credential().ok_or(Failure::NoCredential).map(Some)
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
        self.connect_and_write(0).await
    }

    /// With a keeper that writes so many holds of each lock into the journal.
    pub(crate) async fn connect_and_write(&self, journal: usize) -> Result<Keeper, Failure> {
        let builder = Keeper::builder(&self.zk)
            .root(&self.root)
            .dialect(self.dialect.into())
            .session_timeout(self.session_timeout)
            .connect_timeout(self.connect_timeout)
            .journal(journal);
        // On the heap: every order waits for it.
        Ok(Box::pin(self.access()?.give(builder).connect()).await?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGES: [&str; 6] = [
        include_str!("../../../README.md"),
        include_str!("../../../docs/coming-from.md"),
        include_str!("../../../docs/operating.md"),
        include_str!("../../../docs/scale.md"),
        include_str!("../../../docs/security.md"),
        include_str!("../../../docs/sharing.md"),
    ];

    /// The lines in a page's blocks of shell commands.
    fn commands(page: &str) -> Vec<String> {
        let blocks = page.split("\n```").collect::<Vec<_>>();
        let blocks = blocks.iter().filter_map(|block| block.strip_prefix("sh\n"));
        blocks.flat_map(str::lines).map(str::to_owned).collect()
    }

    /// The words of an order to the tool, as a shell takes them; none if it is another command. What is said beside it does not count.
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
            let understood = Arguments::try_parse_from(&order).and_then(Arguments::checked);
            assert!(understood.is_ok(), "{order:?}: {}", understood.unwrap_err());
        }
    }

    #[test]
    fn the_words_of_the_command_line_agree_with_each_other() {
        Arguments::command().debug_assert();
    }
}
