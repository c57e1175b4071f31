//! The words of the command line. It only reads them: names, roots and servers are checked by the library.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::time::Duration;

use clap::{ArgAction, Args, Parser, Subcommand};
use humantime::parse_duration;
use lockkeeper::{Keeper, Result};

const EXAMPLES: &str = "\
Examples:
  lockkeeper run nightly-report -- ./report.sh         wait for the lock, then run
  lockkeeper run --no-wait cron/backup -- ./backup.sh  run it, or end with 75 if somebody else does
  lockkeeper queue nightly-report                      who holds it, who waits
  lockkeeper ls                                        which locks are in use
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
The lock is granted in the order of asking, and given back when the command has ended.

The command sees
  LOCKKEEPER_NAME   the name of the lock
  LOCKKEEPER_TOKEN  the fencing token, a number that grows with every grant: let the resource refuse lower ones
  LOCKKEEPER_NODE   the name of our ticket, as `lockkeeper queue` shows it

Loss: the lock is ours for about half of the session timeout after the servers last answered. When only a quarter of that
is left and still no answer comes, or when the lock is lost in any other way, the command's process group gets TERM, and
KILL after --grace. `run` then ends with 70, whatever the command ended with. A command that cannot end in time, or a tool
that cannot run, may still be working when others have the lock: let the resource refuse lower tokens.

Signals: HUP, INT, QUIT, TERM, USR1 and USR2 are passed on to the command's process group, and the lock is given back
only after the command ended. While still waiting for the lock they end the tool, and nothing stays in the queue. If
the tool itself is killed, the command (not its children) gets TERM, and the lock is free when the session times out.

Terminal: the command has a process group of its own, which gets the terminal. Ctrl-Z stops the command and the tool;
a stopped tool cannot renew its lease, so when both go on after more than about half of the session timeout the lock is
lost, and the command gets TERM before it goes on. While the tool waits for the lock, Ctrl-Z does nothing.

Examples:
  lockkeeper run orders/42 -- ./work.sh
  lockkeeper run --wait 30s deploy -- sh -c 'deploy --fence \"$LOCKKEEPER_TOKEN\"'

Exit codes: the command's own, 128+n when signal n ended it (or ended the wait for the lock), and
  64   wrong usage
  69   no server, or the session ended before the command ran
  70   the lock was lost while the command ran, or nearly so and the command was ended
  75   not granted in time (--wait, --no-wait)
  77   the server denies permission
  126  the command cannot be executed
  127  the command is not found";

const QUEUE_NOTES: &str = "\
POS is the number of tickets before it: 0 is the next or present holder. SINCE is by the clock of the ticket's host.
An empty queue is said on stderr (with --json it is `[]`) and ends with 0.

Fields of --json: position, node, token, holder, shared, session, owner, label, host, pid, since_ms (milliseconds since
1970). With --watch there is one array in each line.";

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
    /// Lists the locks that somebody holds or waits for
    Ls,
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
    zk: String,

    /// The node below which the locks are; all who share locks must use the same
    #[arg(long, global = true, value_name = "PATH", default_value = "/locks")]
    pub(crate) root: String,

    /// How long the servers wait for a silent client before its locks go to others
    #[arg(long, global = true, value_name = "TIME", default_value = "10s", value_parser = parse_duration)]
    session_timeout: Duration,

    /// How long to try for a session
    #[arg(long, global = true, value_name = "TIME", default_value = "10s", value_parser = parse_duration)]
    connect_timeout: Duration,
}

#[derive(Debug, Args)]
#[command(after_help = RUN_NOTES)]
pub(crate) struct Run {
    /// The lock: one or more words separated by '/'
    pub(crate) name: String,

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
#[command(after_help = QUEUE_NOTES)]
pub(crate) struct Queue {
    /// The lock
    pub(crate) name: String,

    /// Looks again every second until INT or TERM
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

impl Server {
    pub(crate) async fn connect(&self) -> Result<Keeper> {
        Keeper::builder(&self.zk)
            .root(&self.root)
            .session_timeout(self.session_timeout)
            .connect_timeout(self.connect_timeout)
            .connect()
            .await
    }
}
