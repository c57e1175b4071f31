//! The integration suite: one binary with its own `main`, so that it can start the servers, run the cases, count them
//! and stop the servers.
//!
//! `LOCKKEEPER_TEST_ON` says which server the cases meet: `embedded` (default), `zookeeper` or `ensemble`. It never
//! skips in silence: a case that is not for this server is counted in the last line, a case that is not in `cases.txt`
//! fails the run, and so does a real server that cannot be started.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::print_stderr,
    missing_docs,
    unreachable_pub,
    reason = "tests"
)]

#[macro_use]
mod support;

mod bench;
mod cancel;
#[cfg(feature = "cli")]
mod cli;
mod connect;
mod cost;
mod differential;
mod election;
mod evict;
mod examples;
mod faults;
#[cfg(feature = "cli")]
mod flood;
mod guard;
mod journal;
mod linger;
mod load;
#[cfg(feature = "metrics")]
mod metrics;
mod multi;
mod museum;
mod mutex;
mod reconnect;
mod reentrancy;
mod revoke;
mod runtimes;
mod rwlock;
mod scale;
mod security;
mod semaphore;
mod server;
mod sharing;
mod spans;
mod standalone;
mod traces;
mod trouble;
mod visits;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};

use support::case::{Case, Where};
use support::target::Target;
use support::zookeeper::Servers;
use support::{list, runner};

/// Every module with cases; one that is forgotten here is a dead-code warning, which fails CI.
const MODULES: &[fn() -> Vec<Case>] = &[
    bench::cases,
    bench::clock::cases,
    bench::judge::cases,
    bench::members::cases,
    bench::processes::cases,
    cancel::cases,
    #[cfg(feature = "cli")]
    cli::cases,
    #[cfg(feature = "cli")]
    cli::bench::cases,
    #[cfg(feature = "cli")]
    cli::breaking::cases,
    #[cfg(feature = "cli")]
    cli::access::cases,
    #[cfg(feature = "cli")]
    cli::codes::cases,
    #[cfg(feature = "cli")]
    cli::kinds::cases,
    #[cfg(feature = "cli")]
    cli::elect::cases,
    #[cfg(feature = "cli")]
    cli::look::cases,
    #[cfg(feature = "cli")]
    cli::loss::cases,
    #[cfg(feature = "cli")]
    cli::mess::cases,
    #[cfg(feature = "cli")]
    cli::papers::cases,
    #[cfg(feature = "cli")]
    cli::signals::cases,
    #[cfg(feature = "cli")]
    cli::terminal::cases,
    connect::cases,
    cost::cases,
    cost::beats::cases,
    cost::bytes::cases,
    differential::cases,
    election::cases,
    election::company::cases,
    election::follow::cases,
    election::lead::cases,
    election::races::cases,
    evict::cases,
    examples::cases,
    faults::blackhole::cases,
    faults::dead::cases,
    faults::healthy::cases,
    faults::partition::cases,
    faults::pause::cases,
    #[cfg(feature = "cli")]
    faults::silence::cases,
    faults::storm::cases,
    faults::swap::cases,
    #[cfg(feature = "cli")]
    faults::timeline::cases,
    #[cfg(feature = "cli")]
    flood::cases,
    guard::cases,
    journal::cases,
    load::cases,
    load::capacity::cases,
    load::memory::cases,
    #[cfg(feature = "metrics")]
    metrics::cases,
    #[cfg(feature = "metrics")]
    metrics::lookers::cases,
    #[cfg(feature = "metrics")]
    metrics::service::cases,
    museum::client::cases,
    museum::designs::cases,
    museum::hangs::cases,
    museum::holders::cases,
    museum::leases::cases,
    museum::leftovers::cases,
    museum::order::cases,
    museum::orphans::cases,
    museum::owners::cases,
    museum::paused::cases,
    museum::permits::cases,
    museum::quorum::cases,
    museum::readers::cases,
    museum::server::cases,
    museum::sets::cases,
    museum::wakeups::cases,
    multi::cancelled::cases,
    linger::cases,
    linger::competitor::cases,
    linger::ends::cases,
    linger::guards::cases,
    linger::storm::cases,
    multi::cases,
    multi::crowd::cases,
    multi::size::cases,
    mutex::cases,
    reconnect::cases,
    reentrancy::cases,
    reentrancy::cancelled::cases,
    reentrancy::chance::cases,
    reentrancy::guests::cases,
    reentrancy::hosts::cases,
    runtimes::cases,
    revoke::cases,
    rwlock::cases,
    rwlock::cancel::cases,
    rwlock::changes::cases,
    rwlock::cost::cases,
    rwlock::random::cases,
    scale::cases,
    security::cases,
    security::acl::cases,
    #[cfg(feature = "cli")]
    security::tls::cases,
    semaphore::cases,
    semaphore::cancel::cases,
    semaphore::cost::cases,
    semaphore::random::cases,
    semaphore::trouble::cases,
    server::cases,
    sharing::cases,
    #[cfg(feature = "cli")]
    sharing::book::cases,
    #[cfg(feature = "cli")]
    sharing::clients::cases,
    #[cfg(feature = "cli")]
    sharing::crowd::cases,
    spans::cases,
    standalone::cases,
    traces::cases,
    trouble::cases,
    visits::cases,
];

/// So many of the slowest cases are named at the end of a run.
const SLOWEST: usize = 20;

fn main() -> ExitCode {
    #[cfg(feature = "cli")]
    if let Some(ended) = sharing::members::child() {
        return ended;
    }
    #[cfg(feature = "metrics")]
    if let Some(ended) = metrics::service::child() {
        return ended;
    }
    if let Some(ended) = scale::child()
        .or_else(support::client::child::child)
        .or_else(museum::paused::child)
    {
        return ended;
    }
    support::heard::let_cases_listen();
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(4);
    if std::env::var_os("RUST_LOG").is_some() {
        let filter = tracing_subscriber::EnvFilter::from_default_env();
        tracing_subscriber::fmt()
            .with_env_filter(filter)
            .with_writer(std::io::stderr)
            .init();
    }

    match suite(&arguments) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(101),
        Err(why) => {
            eprintln!("\nerror: {why}");
            ExitCode::from(101)
        }
    }
}

/// Runs what was asked for and says whether all is well. The servers stop when it returns or unwinds.
fn suite(arguments: &Arguments) -> Result<bool, String> {
    let target = Target::from_env()?;
    let cases: Vec<Case> = MODULES.iter().flat_map(|cases| cases()).collect();
    let lines: Vec<String> = cases.iter().map(Case::line).collect();
    let count = |place: Where| cases.iter().filter(|case| case.place == place).count();
    let (embedded_only, real_only) = (count(Where::Embedded), count(Where::Real));

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
    println!("ran {ran} / embedded-only {embedded_only} / real-only {real_only}");
    list::check(lines)?;
    Ok(!conclusion.has_failed())
}
