//! The `main` of a suite: starts the servers, runs the cases, counts them and stops the servers.
//!
//! `LOCKKEEPER_TEST_ON` selects the server: `embedded` (default), `zookeeper`, `ensemble`,
//! `redis` or `postgres`. It never skips in silence. The last line counts the cases for others, and
//! a run on another store names each case that is ZooKeeper's own, with its reason. The run fails
//! if a count differs from the one in the suite's `main`, or if a real server cannot be started.

use std::any::Any;
use std::cmp::Reverse;
use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};

use crate::case::{CASES, Case, Where};
use crate::daemon;
use crate::stranger::Schema;
use crate::target::Target;
use crate::zookeeper::Servers;
use crate::{heard, runner};

/// How many of the slowest cases are named at the end of a run.
const SLOWEST: usize = 20;

/// The number of a suite's cases. Adding or removing a case, or changing its servers, needs a line
/// in a diff.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts {
    pub every: usize,
    pub zookeeper: usize,
    pub embedded: usize,
    pub embedded_and_redis: usize,
    pub redis: usize,
    pub postgres: usize,
    pub real: usize,
}

impl Counts {
    fn of(cases: &[Case]) -> Self {
        let count = |is: fn(Where) -> bool| cases.iter().filter(|case| is(case.place)).count();
        Self {
            every: count(|place| place == Where::Every),
            zookeeper: count(|place| matches!(place, Where::ZooKeeper(_))),
            embedded: count(|place| place == Where::Embedded),
            embedded_and_redis: count(|place| place == Where::EmbeddedAndRedis),
            redis: count(|place| place == Where::Redis),
            postgres: count(|place| place == Where::Postgres),
            real: count(|place| place == Where::Real),
        }
    }
}

/// What a run has started, which stops when it is dropped.
type Started = Box<dyn Any>;

/// What this binary does instead when it was started by a case.
pub type Child = fn() -> Option<ExitCode>;

/// Runs the cases of this binary. `counts` is none in a build without all features.
pub fn run(counts: Option<Counts>, children: &[Child]) -> ExitCode {
    let own: Child = crate::client::child::child;
    if let Some(ended) = children.iter().chain([&own]).find_map(|child| child()) {
        return ended;
    }
    heard::let_cases_listen();
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(4);
    if std::env::var_os("RUST_LOG").is_some() {
        let filter = tracing_subscriber::EnvFilter::from_default_env();
        tracing_subscriber::fmt()
            .with_env_filter(filter)
            .with_writer(std::io::stderr)
            .init();
    }

    match suite(&arguments, counts) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(101),
        Err(why) => {
            eprintln!("\nerror: {why}");
            ExitCode::from(101)
        }
    }
}

/// Runs the selected cases and returns whether all passed. The servers stop when it returns or
/// unwinds.
fn suite(arguments: &Arguments, counts: Option<Counts>) -> Result<bool, String> {
    let target = Target::from_env()?;
    let mut cases: Vec<Case> = CASES.to_vec();
    // The longest begin first. A case that runs alone waits for those under way, and nobody begins
    // meanwhile: so there is one such wait, not one for each.
    cases.sort_by_key(|case| (case.is_alone, Reverse(case.limit), case.path()));
    let found = Counts::of(&cases);

    let field = runner::Field::new(target);
    let (chosen, others): (Vec<_>, Vec<_>) =
        cases.into_iter().partition(|case| target.takes(case.place));
    let chosen = chosen.into_iter();
    let trials: Vec<Trial> = chosen.map(|case| runner::trial(case, &field)).collect();
    let anything_runs =
        !arguments.list && !arguments.bench && trials.iter().any(|t| !arguments.is_filtered_out(t));
    let _servers = if anything_runs {
        start(target, &field)?
    } else {
        None
    };

    let conclusion = libtest_mimic::run(arguments, trials);
    if arguments.list {
        return Ok(true);
    }
    let ran = conclusion.num_passed + conclusion.num_failed;
    for (taken, name) in runner::slowest(SLOWEST) {
        println!("slow {:6.1}s  {name}", taken.as_secs_f64());
    }
    for case in others {
        if let Where::ZooKeeper(why) = case.place {
            println!("ZooKeeper's own: {}: {why}", case.path());
        }
    }
    let (embedded, real) = (found.embedded, found.real);
    println!("ran {ran} / embedded-only {embedded} / real-only {real}");
    if counts.is_some_and(|counts| counts != found) {
        return Err(format!(
            "the suite has {found:?}, and its `main` says {counts:?}"
        ));
    }
    Ok(!conclusion.has_failed())
}

/// Starts what the cases of a run share, and tells them where it is.
fn start(target: Target, field: &runner::Field) -> Result<Option<Started>, String> {
    Ok(match target {
        Target::Embedded => None,
        Target::Zookeeper | Target::Ensemble => {
            let servers = Servers::start(target.members().unwrap_or(1))?;
            field.play_on(servers.addresses());
            Some(Box::new(servers))
        }
        Target::Redis => {
            // A database for each case.
            let server = daemon::redis(&["--databases", "10000", "--appendonly", "yes"])?;
            field.play_on(vec![server.address()]);
            Some(Box::new(server))
        }
        Target::Postgres => {
            // A schema for each case; and each session has two connections. No case is about what
            // survives a crash of the machine, so the data is in memory. Each connection is a
            // process, which need not load the language of the functions anew.
            let settings = ["max_connections=2000", "shared_preload_libraries=plpgsql"];
            let server = daemon::postgres_in_memory(&settings)?;
            daemon::postgres_databases(&server, Schema::databases())?;
            field.play_on(vec![server.address()]);
            Some(Box::new(server))
        }
    })
}
