//! The baseline: the same workloads with the client crate's raw operations, the fewest that a fair
//! lock can do with.
//!
//! It is no lock: it handles no error but by giving up, cannot be cancelled, and needs its
//! directories for itself. It names the client crate because it is what the link is measured
//! against.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use tokio::task::JoinSet;
use zookeeper_client as zk;

use super::bench_dir::{BenchDir, RawError, Reach, raw};
use super::sample::{HandOver, NOT_COUNTED, Result, Sample, repeats};

const MARK: &[u8] = b"released";

/// A raw session with a root of its own.
pub struct Baseline(BenchDir);

impl Baseline {
    /// `root` must not be there yet.
    pub async fn connect(reach: &Reach, root: &str) -> Result<Self> {
        Ok(Self(BenchDir::open(reach, root).await?))
    }

    /// Creates, looks and leaves, so many times.
    pub async fn uncontended(&self, rounds: usize) -> Result<Sample> {
        let lane = self.lane("uncontended").await?;
        for _ in 0..NOT_COUNTED {
            lane.pass().await?;
        }
        let mut sample = Sample::new();
        for _ in 0..rounds {
            let began = Instant::now();
            lane.pass().await?;
            sample.record(began.elapsed());
        }
        Ok(sample)
    }

    /// Lets so many waiters queue up behind a holder and drains the queue, as often as [`repeats`]
    /// says.
    pub async fn hand_over(&self, waiters: usize) -> Result<HandOver> {
        let lane = self.lane("crowd").await?;
        let mut measured = HandOver::new();
        for _ in 0..repeats(waiters) {
            drain(&lane, waiters, &mut measured).await?;
        }
        measured.enqueue /= repeats(waiters);
        Ok(measured)
    }

    /// How often so many tasks in a second create, look and leave, each in a directory of its own.
    pub async fn independent(&self, locks: usize, time: Duration) -> Result<f64> {
        let mut lanes = Vec::new();
        for number in 0..locks {
            lanes.push(self.lane(&format!("independent-{number}")).await?);
        }
        let mut tasks = JoinSet::new();
        let began = Instant::now();
        for lane in lanes {
            tasks.spawn(async move {
                let mut taken = 0;
                while began.elapsed() < time {
                    lane.pass().await?;
                    taken += 1;
                }
                Ok::<_, RawError>(taken)
            });
        }
        let mut taken: u32 = 0;
        while let Some(ended) = tasks.join_next().await {
            taken += ended??;
        }
        Ok(f64::from(taken) / began.elapsed().as_secs_f64())
    }

    /// Ends the session and removes the root with all that is in it.
    pub async fn close(self) -> Result<()> {
        self.0.clear().await
    }

    async fn lane(&self, name: &str) -> Result<Arc<Lane>> {
        Ok(Arc::new(Lane {
            client: self.0.client().clone(),
            acl: self.0.acl(),
            directory: self.0.directory(name).await?,
        }))
    }
}

async fn drain(lane: &Arc<Lane>, waiters: usize, measured: &mut HandOver) -> Result<()> {
    let (_, holder) = lane.create().await?;
    let began = Instant::now();
    let (armed, mut all_armed) = mpsc::unbounded_channel();
    let mut crowd = JoinSet::new();
    for _ in 0..waiters {
        let (lane, armed) = (Arc::clone(lane), armed.clone());
        crowd.spawn(async move { lane.wait(armed).await });
    }
    for _ in 0..waiters {
        // No waiter gets its turn before the holder leaves: one that has ended has failed.
        tokio::select! {
            Some(()) = all_armed.recv() => {}
            Some(ended) = crowd.join_next() => drop(ended??),
        }
    }
    measured.enqueue += began.elapsed();

    let mut grants = Vec::with_capacity(waiters);
    let released = Instant::now();
    lane.leave(&holder).await?;
    while let Some(ended) = crowd.join_next().await {
        grants.push(ended??);
    }
    measured.record(released, grants);
    Ok(())
}

/// The operations in one directory.
struct Lane {
    client: zk::Client,
    acl: Arc<[zk::Acl]>,
    directory: String,
}

impl Lane {
    /// What an uncontended lock and its release cannot do without.
    async fn pass(&self) -> Result<(), RawError> {
        let (_, mine) = self.create().await?;
        self.look(&mine).await?;
        self.leave(&mine).await
    }

    /// What a waiter cannot do without: its node, a watch on the one before, and when that is gone
    /// a look and its own release.
    async fn wait(&self, armed: mpsc::UnboundedSender<()>) -> Result<Instant, RawError> {
        let (number, mine) = self.create().await?;
        let before = self.path(number - 1);
        let watched = self.client.get_and_watch_data(&before).await;
        let (_, _, gone) = watched.map_err(raw("watch", &before))?;
        // The receiver is there until all are armed.
        armed.send(()).unwrap_or_default();
        gone.changed().await;
        self.look(&mine).await?;
        let granted = Instant::now();
        self.leave(&mine).await?;
        Ok(granted)
    }

    async fn create(&self) -> Result<(i64, String), RawError> {
        let prefix = format!("{}/lock-", self.directory);
        let ticket = zk::CreateMode::EphemeralSequential.with_acls(zk::Acls::new(&self.acl));
        let created = self.client.create(&prefix, b"", &ticket).await;
        let (_, number) = created.map_err(raw("create", &prefix))?;
        Ok((number.into_i64(), self.path(number.into_i64())))
    }

    async fn look(&self, mine: &str) -> Result<(), RawError> {
        let mut reader = self.client.new_multi_reader();
        let mut add = || {
            reader.add_get_data(&self.directory)?;
            reader.add_get_data(mine)
        };
        add().map_err(raw("read", mine))?;
        for found in reader.commit().await.map_err(raw("read", mine))? {
            if let zk::MultiReadResult::Error { err } = found {
                return Err(raw("read", mine)(err));
            }
        }
        Ok(())
    }

    async fn leave(&self, mine: &str) -> Result<(), RawError> {
        let mut writer = self.client.new_multi_writer();
        let mut add = || {
            writer.add_set_data(&self.directory, MARK, None)?;
            writer.add_delete(mine, None)
        };
        add().map_err(raw("delete", mine))?;
        let left = writer.commit().await.map_err(zk::Error::from);
        left.map(drop).map_err(raw("delete", mine))
    }

    fn path(&self, number: i64) -> String {
        format!("{}/lock-{number:010}", self.directory)
    }
}
