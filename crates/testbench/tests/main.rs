//! The integration suite of the testbench itself: one binary, on the embedded server or on real
//! ones (`LOCKKEEPER_TEST_ON`).
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::print_stderr,
    missing_docs,
    unreachable_pub,
    unsafe_code,
    reason = "tests, and `linkme` puts the cases into a section of their own"
)]

mod clock;
mod faults;
mod judge;
mod members;
mod processes;
mod server;
mod sharing;

use std::process::ExitCode;

use testbench::suite::{self, Counts};

fn main() -> ExitCode {
    let counts = Counts {
        every: 22,
        zookeeper: 0,
        embedded: 28,
        embedded_and_redis: 0,
        redis: 0,
        postgres: 0,
        real: 3,
    };
    suite::run(Some(counts), &[])
}
