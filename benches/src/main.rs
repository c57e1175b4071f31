//! Lockkeeper side by side with its peers, on servers that this program starts and stops.
//!
//! It parses the command line and chooses. The runner has one thread, which lives as long as the
//! processes that it starts.

mod args;
mod charts;
mod compare;
mod driver;
mod drivers;
mod goals;
mod machine;
mod order;
mod passes;
mod peer;
mod plan;
mod relay;
mod results;
mod run;
mod servers;
mod spent;
mod table;
mod text;
mod tied;
mod tools;
mod versions;
mod words;

use std::future::Future;
use std::process::ExitCode;

use clap::Parser;
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};

use args::{Command, TopArgs};
pub(crate) use lockkeeper_cli::bench::sample::Result;

/// Any error of a run.
pub(crate) type Error = Box<dyn std::error::Error + Send + Sync>;

fn main() -> ExitCode {
    match choose(TopArgs::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            text::say(format_args!("error: {}", text::chain(&*error)));
            ExitCode::FAILURE
        }
    }
}

fn choose(args: TopArgs) -> Result<()> {
    match args.command {
        Some(Command::Tied(args)) => tied::become_program(args),
        // As the tool: on more threads every answer wakes one more of them, and the servers need
        // the processors.
        Some(Command::Driver(args)) => Builder::new_current_thread()
            .enable_all()
            .build()?
            .block_on(drivers::serve(args)),
        Some(Command::Compare {
            before,
            after,
            within,
        }) => compare::compare(&before, &after, within),
        Some(Command::Draw { results, out }) => run::draw(&results, &out),
        None => Builder::new_current_thread()
            .enable_all()
            .build()?
            .block_on(unless_stopped(run::run(args.run))),
    }
}

/// Drops the work, and with it all processes and folders, when a signal asks for the end.
async fn unless_stopped(work: impl Future<Output = Result<()>>) -> Result<()> {
    let mut hangup = signal(SignalKind::hangup())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        done = work => done,
        _ = hangup.recv() => Err("stopped by HUP".into()),
        _ = interrupt.recv() => Err("stopped by INT".into()),
        _ = terminate.recv() => Err("stopped by TERM".into()),
    }
}
