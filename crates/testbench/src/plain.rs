//! The `main` of a suite of plain locks: each case runs on each kind of lock.

use std::collections::HashSet;
use std::process::ExitCode;
use std::time::Duration;

use futures_util::future::BoxFuture;
use libtest_mimic::{Arguments, Failed, Trial};

/// A case on one kind of lock.
pub struct PlainTrial {
    pub kind: &'static str,
    pub case: String,
    /// Given the name of its lock.
    pub run: Box<dyn FnOnce(String) -> BoxFuture<'static, ()> + Send>,
}

/// Runs the trials that `trials` makes for a filter, each for at most `limit`. What it cannot
/// start fails the run. `what` is what the last line calls the cases.
pub fn run(
    what: &str,
    limit: Duration,
    trials: impl FnOnce(Option<&str>) -> Result<Vec<PlainTrial>, String>,
) -> ExitCode {
    let mut arguments = Arguments::from_args();
    // They mostly wait.
    arguments.test_threads.get_or_insert(8);
    let trials = match trials(arguments.filter.as_deref()) {
        Ok(trials) => trials,
        Err(why) => {
            eprintln!("error: {why}");
            return ExitCode::from(101);
        }
    };
    let (all, kinds) = (
        trials.len(),
        trials
            .iter()
            .map(|trial| trial.kind)
            .collect::<HashSet<_>>()
            .len(),
    );
    let trials = trials.into_iter().map(|trial| {
        let name = format!("{}::{}", trial.kind, trial.case);
        Trial::test(name, move || play(trial, limit))
    });
    let conclusion = libtest_mimic::run(&arguments, trials.collect());
    let passed = conclusion.num_passed;
    println!("ran {passed} of {all} {what} on {kinds} kinds");
    conclusion.exit_code()
}

fn play(trial: PlainTrial, limit: Duration) -> Result<(), Failed> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    // As short as the shortest column for a name.
    let name = format!("{:.30}/{}", trial.case, uuid::Uuid::new_v4().simple());
    let case = (trial.run)(name);
    let limited = async move { tokio::time::timeout(limit, case).await };
    let ended = runtime.block_on(async { tokio::spawn(limited).await });
    runtime.shutdown_timeout(Duration::from_secs(2));
    match ended {
        Ok(Ok(())) => Ok(()),
        Ok(Err(_)) => Err(format!("still running after {limit:?}").into()),
        Err(panic) => Err(format!("{panic}").into()),
    }
}
