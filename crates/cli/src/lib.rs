//! The command-line tool: locks for shell scripts and cron jobs, and a look at who holds what.
//!
//! It reads the words, starts one subcommand and turns its failure into an exit code. Everything
//! runs on the main thread, because the system tells `run`'s command of our death by the death of
//! the thread that started it.

#![allow(
    clippy::new_without_default,
    missing_debug_implementations,
    reason = "what is public here, is public for our own benches and fuzz targets"
)]

#[doc(hidden)]
pub mod access;
mod args;
#[doc(hidden)]
pub mod bench;
mod breaking;
mod child;
mod completions;
mod config;
mod doctor;
mod elect;
mod failure;
mod files;
#[doc(hidden)]
pub mod grammar;
mod held;
mod help;
mod init;
mod journal;
mod label;
mod leader;
mod lease;
mod live;
mod look;
mod ls;
mod man;
mod nested;
mod pattern;
mod plain;
mod process;
mod queue;
mod report;
mod resize;
mod run;
mod running;
mod serve;
mod shim;
mod signals;
mod status;
mod table;
mod terminal;
mod trace;
#[cfg(feature = "ui")]
mod ui;
mod visible;
mod waiting;
mod why;

use std::process::ExitCode;

use args::{Arguments, Order};
use failure::Failure;

/// The exit codes that are ours; the rest is the command's. The numbers are those of `sysexits.h`
/// where it has one.
mod code {
    pub(crate) const NOTHING: u8 = 1;
    pub(crate) const USAGE: u8 = 64;
    pub(crate) const UNAVAILABLE: u8 = 69;
    pub(crate) const LOST: u8 = 70;
    pub(crate) const OUTPUT: u8 = 74;
    pub(crate) const NOT_GRANTED: u8 = 75;
    pub(crate) const DENIED: u8 = 77;
    /// As with `timeout`.
    pub(crate) const OVERDUE: u8 = 124;
    pub(crate) const CANNOT_RUN: u8 = 126;
    pub(crate) const NOT_FOUND: u8 = 127;
}

/// The whole tool: reads the words of the command line, does what they say, and tells the exit
/// code.
pub fn main() -> ExitCode {
    let mut words = std::env::args_os().skip(1);
    if words.next().is_some_and(|word| word == shim::WORD) {
        return shim::become_command(words).into();
    }
    let arguments = match Arguments::read(std::env::args_os(), &args::places()) {
        Ok(arguments) => arguments,
        Err(Failure::Words(usage)) => {
            // Help and version are asked for, and go to stdout.
            return match usage.print() {
                _ if usage.use_stderr() => code::USAGE.into(),
                Ok(()) => 0.into(),
                Err(error) => fail(&Failure::Output(error)),
            };
        }
        Err(failure) => return fail(&failure),
    };
    report::trace(arguments.verbose);
    match start(&arguments) {
        Ok(code) => code.into(),
        Err(failure) => fail(&failure),
    }
}

fn fail(failure: &Failure) -> ExitCode {
    report::complain(failure);
    code_of(failure).into()
}

fn start(arguments: &Arguments) -> Result<u8, Failure> {
    if matches!(arguments.order, Order::Run(_) | Order::Elect(_)) {
        // Before any other thread starts, so that all of them inherit it.
        terminal::hold_stops();
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(Failure::System)?;
    let server = &arguments.server;
    let result = runtime.block_on(async {
        match &arguments.order {
            Order::Run(order) => run::run(server, order).await,
            Order::Elect(order) => elect::run(server, order).await,
            Order::Queue(order) => queue::run(server, order, arguments.json).await,
            Order::Resize(order) => resize::run(server, order, arguments.json).await,
            Order::Break(order) => breaking::run(server, order, arguments.json).await,
            Order::Leader(order) => leader::run(server, order, arguments.json).await,
            Order::Bench(order) => bench::run(server, order, arguments.json).await,
            Order::Ls(order) => ls::run(server, order, arguments.json).await,
            Order::Why(order) => why::run(server, order, arguments.json).await,
            Order::Journal(order) => journal::run(server, order, arguments.json).await,
            Order::Doctor(order) => doctor::run(server, order, arguments.json).await,
            Order::Init => init::run(server).await,
            #[cfg(feature = "ui")]
            Order::Ui(order) => ui::run(server, order, arguments.json).await,
            Order::Serve(order) => serve::run(order, arguments.json).await,
            Order::Completions(order) => completions::run(order),
            Order::Man(order) => man::run(order),
            Order::Config(order) => config::run(order, arguments.json),
            Order::Help(order) => help::run(order),
        }
    });
    // A look-up of a host name may still hang in a thread of its own; nothing waits for it.
    runtime.shutdown_background();
    result
}

fn code_of(failure: &Failure) -> u8 {
    match failure {
        // A refusal is ours to mend: the same words will be refused again.
        Failure::Library(error) if error.is_invalid() || error.is_refusal() => code::USAGE,
        Failure::NobodyToAsk | Failure::File { .. } | Failure::NoCredential => code::USAGE,
        Failure::Words(_) | Failure::Settings { .. } | Failure::Setting { .. } => code::USAGE,
        Failure::NoTopic { .. } => code::USAGE,
        Failure::Nested { .. } => code::USAGE,
        #[cfg(feature = "ui")]
        Failure::Open { .. } | Failure::WeakToken { .. } => code::USAGE,
        Failure::NoSemaphore { .. } | Failure::OtherLock { .. } => code::USAGE,
        Failure::Library(error) if error.is_denied() => code::DENIED,
        Failure::Bench { source, .. } if bench::is_denied(&**source) => code::DENIED,
        Failure::Bench { .. } | Failure::Left { .. } => code::UNAVAILABLE,
        Failure::Silent { .. } | Failure::NoStore { .. } => code::UNAVAILABLE,
        Failure::Library(error) if error.is_unreachable() || error.is_session_over() => {
            code::UNAVAILABLE
        }
        Failure::Library(error) if error.is_retryable() => code::NOT_GRANTED,
        Failure::Library(_) | Failure::Listen { .. } | Failure::System(_) => code::UNAVAILABLE,
        Failure::Taken { .. } => code::NOT_GRANTED,
        Failure::Lost { .. } | Failure::LostAfter { .. } | Failure::Endangered { .. } => code::LOST,
        Failure::Start(_) => code::CANNOT_RUN,
        // The reader of our output has enough.
        Failure::Output(error) if error.kind() == std::io::ErrorKind::BrokenPipe => 0,
        Failure::Output(_) | Failure::Page { .. } => code::OUTPUT,
    }
}
