//! The integration suite of the library: one binary, on the embedded server or on real ones
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

mod cost;
mod examples;
mod faults;
mod interop;
mod recipes;
mod regressions;
mod sessions;

use std::process::ExitCode;

use testbench::suite::{self, Counts};

fn main() -> ExitCode {
    let counts = Counts {
        every: 371,
        zookeeper: 54,
        embedded: 238,
        embedded_and_redis: 0,
        redis: 6,
        postgres: 5,
        real: 20,
    };
    suite::run(
        cfg!(all(feature = "metrics", feature = "tls")).then_some(counts),
        &[
            cost::scale::child,
            regressions::paused::child,
            #[cfg(feature = "metrics")]
            sessions::metrics::service::child,
        ],
    )
}
