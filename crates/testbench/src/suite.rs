//! The `main` of a suite: starts the servers, runs the cases, counts them and stops the servers.
//!
//! `LOCKKEEPER_TEST_ON` selects the server: `embedded` (default), `zookeeper` or `ensemble`. It
//! never skips in silence. The last line counts the cases for other servers. The run fails if a
//! count differs from the one in the suite's `main`, or if a real server cannot be started.

use std::cmp::Reverse;
use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};

use crate::case::{CASES, Case, Where};
use crate::target::Target;
use crate::zookeeper::Servers;
use crate::{heard, runner};

/// How many of the slowest cases are named at the end of a run.
const SLOWEST: usize = 20;

/// The number of a suite's cases. Adding or removing a case, or changing its servers, needs a line
/// in a diff.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts {
    pub both: usize,
    pub embedded: usize,
    pub real: usize,
}

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
    let count = |place: Where| cases.iter().filter(|case| case.place == place).count();
    let found = Counts {
        both: count(Where::Both),
        embedded: count(Where::Embedded),
        real: count(Where::Real),
    };

    let field = runner::Field::new(target);
    let chosen = cases.into_iter().filter(|case| target.takes(case.place));
    let trials: Vec<Trial> = chosen.map(|case| runner::trial(case, &field)).collect();
    let anything_runs =
        !arguments.list && !arguments.bench && trials.iter().any(|t| !arguments.is_filtered_out(t));
    let _servers = match target.members() {
        Some(members) if anything_runs => Some(field.play_on(Servers::start(members)?)),
        _ => None,
    };

    let conclusion = libtest_mimic::run(arguments, trials);
    if arguments.list {
        return Ok(true);
    }
    let ran = conclusion.num_passed + conclusion.num_failed;
    for (taken, name) in runner::slowest(SLOWEST) {
        println!("slow {:6.1}s  {name}", taken.as_secs_f64());
    }
    let Counts { embedded, real, .. } = found;
    println!("ran {ran} / embedded-only {embedded} / real-only {real}");
    if counts.is_some_and(|counts| counts != found) {
        return Err(format!(
            "the suite has {found:?}, and its `main` says {counts:?}"
        ));
    }
    Ok(!conclusion.has_failed())
}
