//! The integration suite of the embedded server: one binary, on the embedded server or on real ones
//! (`LOCKKEEPER_TEST_ON`).
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

mod differential;

use std::process::ExitCode;

use testbench::suite::{self, Counts};

fn main() -> ExitCode {
    let counts = Counts {
        every: 0,
        zookeeper: 0,
        embedded: 1,
        embedded_and_redis: 0,
        redis: 0,
        postgres: 0,
        real: 1,
    };
    suite::run(Some(counts), &[])
}
