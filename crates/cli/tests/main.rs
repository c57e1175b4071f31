//! The integration suite of the tool: one binary, on the embedded server or on real ones
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

mod commands;
mod faults;
mod flood;
mod interop;
mod tool;

use std::process::ExitCode;

use testbench::suite::{self, Counts};

fn main() -> ExitCode {
    let counts = Counts {
        every: 156,
        zookeeper: 30,
        embedded: 25,
        embedded_and_redis: 0,
        redis: 6,
        postgres: 5,
        real: 16,
    };
    suite::run(Some(counts), &[interop::members::child])
}
