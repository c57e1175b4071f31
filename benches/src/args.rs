//! The command line.
//!
//! It starts nothing.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::drivers::DriverArgs;
use crate::peer::{Peer, Store};
use crate::tied::TiedArgs;

/// Measures Lockkeeper, its baseline and its peers side by side, on servers that it starts itself.
#[derive(Debug, Parser)]
#[command(version, args_conflicts_with_subcommands = true)]
pub(crate) struct TopArgs {
    #[command(flatten)]
    pub(crate) run: RunArgs,
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// The stores, each with its own peers: one run after the other
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "zookeeper,redis,postgres"
    )]
    pub(crate) on: Vec<Store>,
    /// Who takes part [default: all]
    #[arg(long, value_enum, value_delimiter = ',')]
    pub(crate) peers: Vec<Peer>,
    /// Hand-over with so many waiters [default: 1,10,100,1000,5000,10000,20000; quick:
    /// 1,10,100,1000]
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) waiters: Vec<u32>,
    /// Rounds of each row; crowds of 5000 and more of slow peers have three at most [default: 5;
    /// quick: 2]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) rounds: Option<u32>,
    /// Two minutes a store in place of some thirty: smaller crowds, fewer rounds, less of each
    #[arg(long)]
    pub(crate) quick: bool,
    /// Seconds after which one measurement is given up
    #[arg(long, default_value_t = 120)]
    pub(crate) limit: u64,
    /// Where a folder for each store goes, with results.json, results.md and the charts [default:
    /// `out` in the package's folder]
    #[arg(long)]
    pub(crate) out: Option<PathBuf>,
    /// Where the servers keep their data meanwhile: the disk that is measured [default: the
    /// temporary folder]
    #[arg(long)]
    pub(crate) data: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Lists each ratio of two runs on one store; fails if one differs by more than is allowed
    Compare {
        before: PathBuf,
        after: PathBuf,
        /// How far a ratio may differ, in per cent
        #[arg(long, default_value_t = 10, value_name = "PERCENT")]
        within: u32,
    },
    /// Writes the tables and charts of a results.json again
    Draw { results: PathBuf, out: PathBuf },
    #[command(hide = true)]
    Driver(DriverArgs),
    #[command(hide = true)]
    Tied(TiedArgs),
}
