//! The tool under plain locks: each case runs on each kind of lock.
//!
//! `LOCKKEEPER_TEST_ON=plain` starts a real server for each kind, and fails if it cannot. Without
//! it there is nothing to run: the tool has no store in memory.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::print_stderr,
    missing_docs,
    unreachable_pub,
    reason = "tests"
)]

#[path = "../../../../tests/plain/bed.rs"]
#[allow(dead_code, reason = "the library's suite asks more of it")]
mod bed;
mod count;
mod ends;
#[path = "../../../../tests/plain/memory.rs"]
#[allow(dead_code, reason = "the library's suite asks more of it")]
mod memory;
mod passes;
#[path = "../../../../tests/plain/sql.rs"]
#[allow(dead_code, reason = "the library's suite asks more of it")]
mod sql;
#[path = "../../../../tests/plain/tair.rs"]
#[allow(dead_code, reason = "the library's suite asks more of it")]
mod tair;
mod tool;

use std::process::ExitCode;
use std::time::Duration;

use testbench::plain::{PlainTrial, run};

use bed::Case;

/// One case has so long, on a busy machine.
const LIMIT: Duration = Duration::from_secs(150);
/// So many cases each kind has.
const COUNT: usize = 11;

fn main() -> ExitCode {
    run("cases of the tool", LIMIT, trials)
}

fn trials(filter: Option<&str>) -> Result<Vec<PlainTrial>, String> {
    let mut beds = bed::beds(filter)?;
    beds.retain(|bed| bed.kind != "memory");
    let cases: Vec<Case> = [passes::CASES, ends::CASES, count::CASES].concat();
    let trials = bed::trials(&beds, &cases);
    match trials.len() == COUNT * beds.len() {
        true => Ok(trials),
        false => Err(format!(
            "{} cases on {} kinds: change COUNT",
            trials.len(),
            beds.len()
        )),
    }
}
