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

mod answers;
mod at_server;
mod bed;
mod cancel;
mod conformance;
mod cost;
mod crowds;
mod cut;
mod failover;
mod faults;
mod flash_sale;
mod holds;
mod idle;
mod known;
mod memcached;
mod memory;
mod multiplexer;
mod neighbours;
mod own_task;
mod owners;
mod peers;
mod raw;
mod redis_servers;
mod redisson;
mod redlock;
mod refusals;
mod runtimes;
mod slow;
mod sql;
mod sql_errors;
mod sql_peers;
mod sql_rights;
mod sql_sessions;
mod tair;
mod tries;
mod turns;
mod unpolled;
mod waits;
mod wire;

use std::process::ExitCode;
use std::time::Duration;

use testbench::plain::{PlainTrial, run};

use bed::Case;

/// One case has so long: crowds of other programs take their time on a busy machine.
const LIMIT: Duration = Duration::from_secs(120);

fn main() -> ExitCode {
    if faults::holder() {
        return ExitCode::SUCCESS;
    }
    run("cases", LIMIT, trials)
}

fn trials(filter: Option<&str>) -> Result<Vec<PlainTrial>, String> {
    let beds = bed::beds(filter)?;
    let mut cases: Vec<Case> = [
        holds::CASES,
        tries::CASES,
        waits::CASES,
        crowds::CASES,
        flash_sale::CASES,
        memcached::CASES,
        redis_servers::CASES,
        redisson::CASES,
        redlock::CASES,
        tair::CASES,
        owners::CASES,
        peers::CASES,
        multiplexer::CASES,
        slow::CASES,
    ]
    .concat();
    for special in [
        answers::CASES,
        cancel::CASES,
        cost::CASES,
        failover::CASES,
        faults::CASES,
        idle::CASES,
        known::CASES,
        neighbours::CASES,
        own_task::CASES,
        refusals::CASES,
        runtimes::CASES,
        sql_errors::CASES,
        sql_peers::CASES,
        sql_rights::CASES,
        sql_sessions::CASES,
        turns::CASES,
        unpolled::CASES,
        wire::CASES,
    ] {
        cases.extend(special.iter().copied().flatten());
    }
    let mut trials = bed::trials(&beds, &cases);
    trials.extend(conformance::trials(&beds)?);
    Ok(trials)
}
