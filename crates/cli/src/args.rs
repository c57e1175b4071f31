//! The words of the command line. It only reads them: names, roots and servers are checked by the
//! library.

mod in_force;
pub(crate) mod notes;
mod place;
mod refusals;
mod server;
mod settings;
mod told;
mod tree;
mod words;

pub(crate) use in_force::InForce;
pub(crate) use place::Place;
pub(crate) use server::Server;
pub(crate) use settings::{Origin, Settings, places};
pub(crate) use tree::{connection, tool};

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::NonEmptyStringValueParser;
use clap::{ArgMatches, Args, FromArgMatches, Parser, Subcommand, ValueEnum, ValueHint};
use clap_complete::Shell;

use crate::bench::Order as Bench;
use crate::failure::Failure;
use crate::grammar::{Permits, parse_duration, parse_some_duration};
use crate::pattern::Pattern;
use crate::resize;
use told::Told;

/// The words of a command line.
#[derive(Debug)]
pub(crate) struct Arguments {
    pub(crate) json: bool,
    pub(crate) verbose: u8,
    /// Of an order that asks no server, as it is before anything is said.
    pub(crate) server: Server,
    pub(crate) order: Order,
}

/// Fair distributed locks on Apache ZooKeeper.
#[derive(Debug, Parser)]
#[command(
    name = "lockkeeper",
    version,
    after_help = notes::SHORT,
    after_long_help = notes::EXAMPLES,
    disable_help_subcommand = true
)]
struct Words {
    #[command(subcommand)]
    order: Order,
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
    #[command(after_long_help = notes::INIT)]
    Init,
    /// Measures the cost of locks on an ensemble
    Bench(Bench),
    /// Serves a page that shows all locks live
    #[cfg(feature = "ui")]
    Ui(Ui),
    /// Runs a ZooKeeper-compatible server for tests and demos
    Serve(Serve),
    /// Prints the script with which a shell completes these words
    Completions(Completions),
    /// Prints the manual page, or writes all of them
    Man(Man),
    /// Shows the options that are in force, and where each comes from
    Config(Config),
    /// Explains a command, or: locks, exit-codes, environment
    Help(Help),
}

#[derive(Debug, Args)]
#[command(after_long_help = notes::RUN, override_usage = words::RUN)]
pub(crate) struct Run {
    /// The lock: one or more words separated by '/'
    ///
    /// Several locks need `--` before the command.
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

    /// How long a plain lock outlives a tool that was killed; default 30s
    ///
    /// It is renewed three times in each.
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub(crate) ttl: Option<Duration>,

    #[command(flatten)]
    pub(crate) work: Work,
}

/// The work under a lock, and how long to wait for the lock.
#[derive(Debug, Args)]
pub(crate) struct Work {
    /// Gives up with 75 when the lock was not granted in this time; 0 is --no-wait
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub(crate) wait: Option<Duration>,

    /// Gives up with 75 at once when the lock is held or waited for
    #[arg(long, conflicts_with = "wait")]
    pub(crate) no_wait: bool,

    /// How long after SIGTERM the command may take to end, before it gets SIGKILL
    ///
    /// That is when the lock is lost, or --hold-at-most is over. The rest of its process group may
    /// take as long when it was told to end.
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = parse_duration)]
    pub(crate) grace: Duration,

    /// Holds the lock until the command's whole process group has ended
    #[arg(long)]
    pub(crate) wait_group: bool,

    /// Holds the lock for so long at least, also if the command ends sooner
    ///
    /// It counts from the grant. Another host whose cron is late finds the lock held.
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub(crate) hold_at_least: Option<Duration>,

    /// Ends the command when the lock was held for so long, and then ends with 124
    ///
    /// The command gets SIGTERM, and SIGKILL after --grace.
    #[arg(long, value_name = "TIME", value_parser = parse_some_duration)]
    pub(crate) hold_at_most: Option<Duration>,

    /// Writes this hold and its end into the lock's journal, and keeps so many holds there
    #[arg(
        long,
        value_name = "HOLDS",
        env = "LOCKKEEPER_JOURNAL",
        default_value = "0",
        hide_default_value = true
    )]
    pub(crate) journal: usize,

    /// Takes LOCKKEEPER_AUTH out of the command's environment
    ///
    /// LOCKKEEPER_SERVERS and LOCKKEEPER_ZK also, if they are the URL of another store.
    #[arg(long)]
    pub(crate) unset_auth: bool,

    /// The label of the ticket, in place of the name of the command or script
    ///
    /// Every reader of the queue sees it, so no secrets.
    #[arg(long, value_name = "TEXT")]
    pub(crate) label: Option<String>,

    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}

#[derive(Debug, Args)]
#[command(after_long_help = notes::ELECT, override_usage = words::ELECT)]
pub(crate) struct Elect {
    /// The election: one or more words separated by '/'
    pub(crate) name: String,

    /// The value that others see while it leads; the default is host:pid
    #[arg(long)]
    pub(crate) id: Option<String>,

    #[command(flatten)]
    pub(crate) work: Work,
}

impl Arguments {
    /// Reads the words of a command line, and the settings of files in these places. It refuses
    /// words that exclude each other, and those that the chosen kind of lock has nothing for.
    pub(crate) fn read(
        words: impl IntoIterator<Item = impl Into<OsString>>,
        places: &[PathBuf],
    ) -> Result<Self, Failure> {
        let words: Vec<OsString> = words.into_iter().map(Into::into).collect();
        let read = tree::read(&words)?;
        let mut order = Words::from_arg_matches(&read)?.order;
        refusals::check_names(&order)?;
        refusals::check_times(&order)?;
        let own = read.subcommand().map_or(&read, |(_, own)| own);
        let json = own.try_get_one::<bool>("json").ok().flatten();
        let verbose = own.try_get_one::<u8>("verbose").ok().flatten();
        Ok(Self {
            json: json.copied().unwrap_or_default(),
            verbose: verbose.copied().unwrap_or_default(),
            server: match order.has_servers() {
                true => read_connection(&words, own, &mut order, places)?,
                false => Server::default(),
            },
            order,
        })
    }
}

/// What the words of an order, the variables and the files say of the connection.
fn read_connection(
    words: &[OsString],
    own: &ArgMatches,
    order: &mut Order,
    places: &[PathBuf],
) -> Result<Server, Failure> {
    let named = own.get_one::<PathBuf>("config");
    let mut settings = Settings::read(named.map(PathBuf::as_path), places, &connection())?;
    let told = Told::new(own, &settings);
    let place = Place::chosen(&told)?;
    refusals::leave_out(&place, &told.origin_of_place(), &mut settings);
    let told = Told::new(own, &settings);
    // Whoever asks what is in force wants to see it also when it is wrong.
    if !matches!(order, Order::Config(_)) {
        refusals::check_place(order, &place, &told)?;
        refusals::check_tls(&told)?;
    }
    let more = settings.words(|id| matches!(told.origin(id), Origin::File { .. }));
    let read;
    let all = if more.is_empty() {
        own
    } else {
        read = tree::read(&tree::with(words, more))?;
        read.subcommand().map_or(&read, |(_, all)| all)
    };
    if let Order::Config(config) = order {
        config.in_force = in_force::in_force(&told, all, &place);
    }
    let server = Server::chosen(all, &told, place)?;
    if let Order::Config(config) = order {
        config.settings = settings;
    }
    Ok(server)
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
            #[cfg(feature = "ui")]
            Self::Ui(_) => "ui",
            Self::Serve(_) => "serve",
            Self::Completions(_) => "completions",
            Self::Man(_) => "man",
            Self::Config(_) => "config",
            Self::Help(_) => "help",
        }
    }

    /// Whether it has the options of the connection.
    fn has_servers(&self) -> bool {
        !matches!(
            self,
            Self::Serve(_) | Self::Completions(_) | Self::Man(_) | Self::Help(_)
        )
    }
}

#[derive(Debug, Args)]
#[command(after_long_help = notes::QUEUE)]
pub(crate) struct Queue {
    /// The lock
    pub(crate) name: String,

    /// Shows it again every second until SIGINT or SIGTERM
    #[arg(long)]
    pub(crate) watch: bool,
}

#[derive(Debug, Args)]
#[command(after_long_help = notes::LS)]
pub(crate) struct Ls {
    /// Only locks whose names match: 'orders/*', in quotes because of the shell
    ///
    /// `*` stays between two '/', `**` does not. A plain name also stands for all below it.
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
#[command(after_long_help = notes::RESIZE)]
pub(crate) struct Resize {
    /// The semaphore
    pub(crate) name: String,

    /// How many permits it has from now on
    #[arg(value_name = "LIMIT", value_parser = resize::limit)]
    pub(crate) limit: u32,
}

#[derive(Debug, Args)]
#[command(after_long_help = notes::WHY)]
pub(crate) struct Why {
    /// The lock
    pub(crate) name: String,
}

#[derive(Debug, Args)]
#[command(after_long_help = notes::JOURNAL)]
pub(crate) struct Journal {
    /// The lock
    pub(crate) name: String,
}

#[derive(Debug, Args)]
#[command(after_long_help = notes::DOCTOR)]
pub(crate) struct Doctor {
    /// The most locks that a session may hold without a finding
    #[arg(long, value_name = "LOCKS", default_value = "200")]
    pub(crate) many: usize,
}

#[derive(Debug, Args)]
#[command(after_long_help = notes::BREAK)]
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
#[command(after_long_help = notes::LEADER)]
pub(crate) struct Leader {
    /// The election
    pub(crate) name: String,

    /// Shows each new leader and each new value until SIGINT or SIGTERM
    #[arg(long)]
    pub(crate) watch: bool,
}

#[cfg(feature = "ui")]
#[derive(Debug, Args)]
#[command(after_long_help = notes::UI)]
pub(crate) struct Ui {
    /// The address; port 0 takes a free one. One beyond this machine needs --token-file or
    /// --proxy-header
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:7411")]
    pub(crate) listen: SocketAddr,

    /// Lets the page ask holders to release their locks, and remove tickets
    #[arg(long)]
    pub(crate) allow_break: bool,

    /// Lets in only those who know the token, which is the first line of this file
    #[arg(long, value_name = "FILE", conflicts_with = "proxy_header")]
    pub(crate) token_file: Option<PathBuf>,

    /// Lets in only requests with this header, which a proxy sets when it has let a user in
    #[arg(long, value_name = "NAME", value_parser = header)]
    pub(crate) proxy_header: Option<String>,

    /// A name of this server in the addresses of browsers, beside localhost and IP addresses; can
    /// be given again
    #[arg(long = "host", value_name = "NAME")]
    pub(crate) hosts: Vec<String>,

    /// Shows the locks whose names match at /metrics, for Prometheus; can be given again
    #[arg(long, value_name = "PATTERN")]
    pub(crate) metrics: Vec<Pattern>,

    /// The most requests a second to the servers, on average; a tenth of it while nobody looks
    #[arg(long, value_name = "COUNT", default_value = "300", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) requests: u32,

    /// The most locks that a session may hold without a finding
    #[arg(long, value_name = "LOCKS", default_value = "200")]
    pub(crate) many: usize,
}

/// The name of a header.
#[cfg(feature = "ui")]
fn header(word: &str) -> Result<String, axum::http::header::InvalidHeaderName> {
    axum::http::HeaderName::try_from(word).map(|name| name.to_string())
}

#[derive(Debug, Args)]
#[command(after_long_help = notes::SERVE)]
pub(crate) struct Serve {
    /// The address; port 0 takes a free one
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:2181")]
    pub(crate) listen: SocketAddr,

    /// The most connections of one address at a time; 0 is no limit
    #[arg(long, value_name = "COUNT", default_value = "60")]
    pub(crate) max_client_connections: usize,
}

#[derive(Debug, Args)]
#[command(after_long_help = notes::COMPLETIONS)]
pub(crate) struct Completions {
    /// The shell
    pub(crate) shell: Shell,
}

#[derive(Debug, Args)]
#[command(after_long_help = notes::MAN)]
pub(crate) struct Man {
    /// The folder for the pages; it is made if it is not there
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) out: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(after_long_help = notes::CONFIG)]
pub(crate) struct Config {
    #[arg(skip)]
    pub(crate) in_force: Vec<InForce>,

    #[arg(skip)]
    pub(crate) settings: Settings,
}

#[derive(Debug, Args)]
#[command(after_long_help = notes::HELP)]
pub(crate) struct Help {
    /// A command, or locks, exit-codes or environment
    #[arg(value_name = "COMMAND|TOPIC")]
    pub(crate) about: Option<String>,
}

#[cfg(test)]
mod tests {

    use super::*;

    const PAGES: [&str; 10] = [
        include_str!("../../../README.md"),
        include_str!("../../../docs/choosing.md"),
        include_str!("../../../docs/coming-from.md"),
        include_str!("../../../docs/operating.md"),
        include_str!("../../../docs/scale.md"),
        include_str!("../../../docs/security.md"),
        include_str!("../../../docs/sharing.md"),
        include_str!("../../../docs/shell.md"),
        include_str!("../../../docs/tool.md"),
        include_str!("../../../docs/ui.md"),
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
        let mut help = tool();
        let mut texts = vec![help.render_long_help()];
        texts.extend(
            help.get_subcommands_mut()
                .map(clap::Command::render_long_help),
        );
        for text in texts {
            lines.extend(text.to_string().lines().map(str::to_owned));
        }
        // A second line of usage.
        lines.retain(|line| !line.contains("[OPTIONS]"));
        let orders: Vec<Vec<String>> = lines.iter().filter_map(|line| words(line)).collect();

        assert!(orders.len() > 40, "{} are found", orders.len());
        for order in orders {
            let understood = Arguments::read(&order, &[]);
            assert!(understood.is_ok(), "{order:?}: {}", understood.unwrap_err());
        }
    }

    #[test]
    fn the_words_of_the_command_line_agree_with_each_other() {
        tool().debug_assert();
    }
}
