//! The suite of plain locks: each case runs on each kind of lock.
//!
//! `LOCKKEEPER_TEST_ON=plain` starts a real server for each kind, and fails if it cannot. Otherwise
//! the cases run on a store in memory, which any checkout has.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::print_stderr,
    missing_docs,
    unreachable_pub,
    reason = "tests"
)]

mod bed;
mod counted;
mod holds;
mod memcached;
mod memory;
mod peers;
mod redis_servers;
mod redisson;
mod redlock;
mod sql;
mod sql_errors;
mod sql_peers;
mod sql_sessions;
mod tair;
mod tries;
mod waits;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use libtest_mimic::{Arguments, Failed, Trial};

use bed::{Bed, Case};

/// One case has so long.
const LIMIT: Duration = Duration::from_secs(60);

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(4);
    let beds = match bed::beds() {
        Ok(beds) => beds,
        Err(why) => {
            eprintln!("error: {why}");
            return ExitCode::from(101);
        }
    };
    let mut cases: Vec<Case> = [
        holds::CASES,
        tries::CASES,
        waits::CASES,
        memcached::CASES,
        redis_servers::CASES,
        redisson::CASES,
        redlock::CASES,
        tair::CASES,
        peers::CASES,
    ]
    .concat();
    for special in [sql_errors::CASES, sql_peers::CASES, sql_sessions::CASES] {
        cases.extend(special.iter().copied().flatten());
    }
    let mut trials = Vec::new();
    for bed in &beds {
        for case in cases.iter().filter(|case| (case.is_for)(bed.kind)) {
            let (bed, case) = (Arc::clone(bed), *case);
            let name = format!("{}::{}", bed.kind, case.name);
            trials.push(Trial::test(name, move || run(&bed, case)));
        }
    }
    let all = trials.len();
    let conclusion = libtest_mimic::run(&arguments, trials);
    println!(
        "ran {} of {all} cases on {} kinds",
        conclusion.num_passed,
        beds.len()
    );
    conclusion.exit_code()
}

fn run(bed: &Arc<Bed>, case: Case) -> Result<(), Failed> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    // As short as the shortest column for a name.
    let name = format!("{:.30}/{}", case.name, uuid::Uuid::new_v4().simple());
    let case = (case.run)(Arc::clone(bed), name);
    let limited = async { tokio::time::timeout(LIMIT, case).await };
    let ended = runtime.block_on(async { tokio::spawn(limited).await });
    runtime.shutdown_timeout(Duration::from_secs(2));
    match ended {
        Ok(Ok(())) => Ok(()),
        Ok(Err(_)) => Err(format!("still running after {LIMIT:?}").into()),
        Err(panic) => Err(format!("{panic}").into()),
    }
}
