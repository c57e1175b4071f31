//! Lockkeeper and the baselines, by the very code of `lockkeeper bench`.

use std::time::Duration;

use super::pipelined::Pipelined;
use super::{SESSION_TIMEOUT, Workloads};
use crate::Result;
use crate::order::Answer;
use lockkeeper_cli::access::Access;
use lockkeeper_cli::bench::baseline::Baseline;
use lockkeeper_cli::bench::bench_dir::Reach;
use lockkeeper_cli::bench::ours::Ours;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

pub(super) async fn lockkeeper(server: &str) -> Result<Ours> {
    Ours::connect(&reach(server), &super::run()).await
}

pub(super) async fn baseline(server: &str) -> Result<Baseline> {
    Baseline::connect(&reach(server), &super::run()).await
}

pub(super) async fn pipelined(server: &str) -> Result<Baseline<Pipelined>> {
    Baseline::connect(&reach(server), &super::run()).await
}

fn reach(server: &str) -> Reach {
    Reach {
        servers: server.to_owned(),
        session_timeout: SESSION_TIMEOUT,
        connect_timeout: CONNECT_TIMEOUT,
        access: Access::default(),
    }
}

macro_rules! workloads {
    ($what:ty $(, $more:item)?) => {
        impl Workloads for $what {
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
workloads!(Baseline<Pipelined>);
