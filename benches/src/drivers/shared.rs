//! Lockkeeper and the baselines, by the very code of `lockkeeper bench`.

use std::time::Duration;

use super::{SESSION_TIMEOUT, Workloads, obey};
use crate::Result;
use crate::order::Answer;
use crate::peer::Store;
use lockkeeper::Keeper;
use lockkeeper_cli::access::Access;
use lockkeeper_cli::bench::baseline::Baseline;
use lockkeeper_cli::bench::bench_dir::{RawStore, Reach};
use lockkeeper_cli::bench::ours::Ours;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Obeys as Lockkeeper on a store.
pub(super) async fn lockkeeper<S: RawStore>(reach: &Reach) -> Result<()> {
    let ours = Ours::<S>::connect(reach, &super::run()).await?;
    obey(&ours, "lockkeeper").await?;
    ours.close().await
}

/// Obeys as a baseline, which is of this package.
pub(super) async fn baseline<S: RawStore>(reach: &Reach, package: &str) -> Result<()> {
    let baseline = Baseline::<S>::connect(reach, &super::run()).await?;
    obey(&baseline, package).await?;
    baseline.close().await
}

/// Where a server is, with whatever makes a new one ready.
pub(super) async fn reach(on: Store, server: &str) -> Result<Reach> {
    let servers = url(on, server);
    if on != Store::ZooKeeper {
        // A store without any data may have lost all of it, unless somebody says that it is new.
        let keeper = Keeper::builder(&servers).new_store(true);
        keeper.connect().await?.close().await;
    }
    Ok(Reach {
        servers,
        session_timeout: SESSION_TIMEOUT,
        connect_timeout: CONNECT_TIMEOUT,
        access: Access::default(),
    })
}

/// The server of a store, as clients name it.
pub(super) fn url(on: Store, server: &str) -> String {
    match on {
        Store::Redis => format!("redis://{server}"),
        Store::Postgres => format!("postgres://postgres@{server}/postgres"),
        Store::ZooKeeper | Store::Etcd => server.to_owned(),
    }
}

macro_rules! workloads {
    ($what:ident $(, $more:item)?) => {
        impl<S: RawStore> Workloads for $what<S> {
            async fn uncontended(&self, rounds: usize) -> Result<Answer> {
                Ok(Answer::of_times(&self.uncontended(rounds).await?))
            }

            // They know themselves how often: the order says the same.
            async fn hand_over(&self, waiters: usize, _: usize) -> Result<Answer> {
                Ok(Answer::of_hand_over(&self.hand_over(waiters).await?))
            }

            async fn independent(&self, locks: usize, milliseconds: u64) -> Result<Answer> {
                let time = Duration::from_millis(milliseconds);
                Ok(Answer::of_rate(self.independent(locks, time).await?))
            }

            $($more)?
        }
    };
}

workloads!(
    Ours,
    async fn linger(&self, milliseconds: u64) -> Result<Answer> {
        let time = Duration::from_millis(milliseconds);
        Ok(Answer::of_rate(self.linger(time).await?))
    }
);
workloads!(Baseline);
