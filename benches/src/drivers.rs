//! The other side of the runner's pipe: a process that is connected to one server and measures each
//! order.
//!
//! It lives for the whole run, so that what warms up stays warm. It starts nothing and decides
//! nothing.

mod client_lock;
mod contender;
mod etcd;
mod pipelined;
mod redis;
mod shared;

use std::io::{Write, stdout};
use std::time::Duration;

use clap::Args;
use serde::Serialize;
use tokio::io::{AsyncBufReadExt, BufReader, stdin};
use uuid::Uuid;

use crate::Result;
use crate::order::{Answer, Hello, Order};
use crate::peer::Peer;
use crate::spent::Spent;
use contender::Measured;

/// Of every ZooKeeper client here; the drivers in other languages name the same.
const SESSION_TIMEOUT: Duration = Duration::from_secs(30);

/// How a driver is started. The drivers in other languages are given the same two addresses.
#[derive(Debug, Args)]
pub(crate) struct DriverArgs {
    #[arg(value_enum)]
    peer: Peer,
    /// Where to lock.
    server: String,
    /// Where to ask the server about itself: not through the relay that counts.
    aside: String,
}

/// Something that can do the workloads.
trait Workloads {
    async fn uncontended(&self, rounds: usize) -> Result<Answer>;
    async fn hand_over(&self, waiters: usize, repeats: usize) -> Result<Answer>;
    async fn independent(&self, locks: usize, milliseconds: u64) -> Result<Answer>;
    async fn linger(&self, _milliseconds: u64) -> Result<Answer> {
        Err("nobody else keeps a place".into())
    }
}

/// Serves orders until the runner closes the pipe.
pub(crate) async fn serve(args: DriverArgs) -> Result<()> {
    let DriverArgs {
        peer,
        server,
        aside,
    } = args;
    match peer {
        Peer::Lockkeeper => {
            let ours = shared::lockkeeper(&server).await?;
            obey(&ours, "lockkeeper").await?;
            ours.close().await
        }
        Peer::Baseline => {
            let baseline = shared::baseline(&server).await?;
            obey(&baseline, "zookeeper-client").await?;
            baseline.close().await
        }
        Peer::Pipelined => {
            let baseline = shared::pipelined(&server).await?;
            obey(&baseline, "zookeeper-client").await?;
            baseline.close().await
        }
        Peer::ClientLock => {
            let lock = client_lock::ClientLock::connect(&server, &aside).await?;
            obey(&Measured::new(lock).await?, "zookeeper-client").await
        }
        Peer::Etcd => {
            let lock = etcd::Etcd::connect(&server, &aside).await?;
            obey(&Measured::new(lock).await?, "etcd-client").await
        }
        Peer::Redis => {
            let lock = redis::Redis::connect(&server).await?;
            obey(&Measured::new(lock).await?, "redis").await
        }
        Peer::Curator | Peer::Kazoo => Err("its driver is not in Rust".into()),
    }
}

/// The prefix of a driver's names. It is as long as usual names are, because a waiter keeps the
/// name that it waits for.
fn run() -> String {
    let id = Uuid::new_v4().simple().to_string();
    format!("/bench-{}", &id[..8])
}

async fn obey(workloads: &impl Workloads, package: &str) -> Result<()> {
    let version = format!("{package} {}", crate::versions::of_package(package));
    say(&Hello { version })?;
    let mut lines = BufReader::new(stdin()).lines();
    while let Some(line) = lines.next_line().await? {
        let order = serde_json::from_str(&line)?;
        let before = Spent::so_far();
        let answer = match order {
            Order::Uncontended { rounds } => workloads.uncontended(rounds).await,
            Order::HandOver { waiters, repeats } => workloads.hand_over(waiters, repeats).await,
            Order::Independent {
                locks,
                milliseconds,
            } => workloads.independent(locks, milliseconds).await,
            Order::Linger { milliseconds } => workloads.linger(milliseconds).await,
        };
        let spent = Spent::so_far().since(before);
        let answer = answer.unwrap_or_else(|error| Answer {
            error: Some(error.to_string()),
            ..Answer::default()
        });
        say(&Answer {
            spent: Some(spent),
            ..answer
        })?;
    }
    Ok(())
}

fn say(line: &impl Serialize) -> Result<()> {
    let mut out = stdout().lock();
    writeln!(out, "{}", serde_json::to_string(line)?)?;
    Ok(out.flush()?)
}
