//! The other side of the runner's pipe: a process that is connected to one server and measures each
//! order.
//!
//! It lives for the whole run, so that what warms up stays warm. It starts nothing and decides
//! nothing.

mod client_lock;
mod contender;
mod etcd;
mod pipelined;
mod polling;
mod postgres;
mod set_nx;
mod shared;

use std::io::{Write, stdout};
use std::time::Duration;

use clap::Args;
use serde::Serialize;
use tokio::io::{AsyncBufReadExt, BufReader, stdin};
use uuid::Uuid;

use crate::Result;
use crate::order::{Answer, Hello, Order};
use crate::peer::{Peer, Store};
use crate::spent::Spent;
use contender::Measured;
use lockkeeper_cli::bench::bench_dir::BenchDir;
use lockkeeper_cli::bench::postgres_dir::PostgresDir;
use lockkeeper_cli::bench::redis_dir::RedisDir;
use pipelined::Pipelined;

/// Of every ZooKeeper client here; the drivers in other languages name the same.
const SESSION_TIMEOUT: Duration = Duration::from_secs(30);

/// How a driver is started. The drivers in other languages are given the same two addresses.
#[derive(Debug, Args)]
pub(crate) struct DriverArgs {
    #[arg(value_enum)]
    on: Store,
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
        on,
        peer,
        server,
        aside,
    } = args;
    if !peer.is_ours() {
        return other(peer, &server, &aside).await;
    }
    let reach = shared::reach(on, &server).await?;
    match (peer, on) {
        (Peer::Lockkeeper, Store::Redis) => shared::lockkeeper::<RedisDir>(&reach).await,
        (Peer::Lockkeeper, Store::Postgres) => shared::lockkeeper::<PostgresDir>(&reach).await,
        (Peer::Lockkeeper, _) => shared::lockkeeper::<BenchDir>(&reach).await,
        (Peer::Pipelined, _) => shared::baseline::<Pipelined>(&reach, "zookeeper-client").await,
        (_, Store::Redis) => shared::baseline::<RedisDir>(&reach, "redis").await,
        (_, Store::Postgres) => shared::baseline::<PostgresDir>(&reach, "tokio-postgres").await,
        (_, _) => shared::baseline::<BenchDir>(&reach, "zookeeper-client").await,
    }
}

/// Obeys as somebody else.
async fn other(peer: Peer, server: &str, aside: &str) -> Result<()> {
    let way = match peer {
        Peer::ClientLock => {
            let lock = client_lock::ClientLock::connect(server, aside).await?;
            return obey(&Measured::new(lock).await?, "zookeeper-client").await;
        }
        Peer::Etcd => {
            let lock = etcd::Etcd::connect(server, aside).await?;
            return obey(&Measured::new(lock).await?, "etcd-client").await;
        }
        Peer::SetNx => {
            let lock = set_nx::SetNx::connect(server).await?;
            return obey(&Measured::new(lock).await?, "redis").await;
        }
        Peer::Advisory => postgres::Way::Advisory,
        Peer::UniqueRow => postgres::Way::UniqueRow,
        Peer::ForUpdate => postgres::Way::ForUpdate,
        _ => return Err("its driver is not in Rust".into()),
    };
    let lock = postgres::Postgres::connect(server, aside, way).await?;
    obey(&Measured::new(lock).await?, "tokio-postgres").await
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
