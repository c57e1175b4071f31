//! The baseline: the same workloads with raw operations of the store, the fewest that a lock can do
//! with.
//!
//! It is no lock: it handles no error but by giving up, cannot be cancelled, and needs its
//! directories for itself. [`RawLane`] is what each store brings.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::bench_dir::{BenchDir, RawStore, Reach};
use super::sample::{HandOver, NOT_COUNTED, Result, Sample, repeats};

/// The operations of one lock.
pub trait RawLane: Send + Sync + 'static {
    type Ticket: Send;

    /// What an uncontended lock and its release cannot do without.
    fn pass(&self) -> impl Future<Output = Result<()>> + Send;
    /// Stands in the queue.
    fn join(&self) -> impl Future<Output = Result<Self::Ticket>> + Send;
    /// What a waiter cannot do without: its place, a way to be woken, and when the one before has
    /// left a look and its own release. Tells when it can be woken. Returns the time of its grant.
    fn wait(
        &self,
        armed: mpsc::UnboundedSender<()>,
    ) -> impl Future<Output = Result<Instant>> + Send;
    fn leave(&self, ticket: &Self::Ticket) -> impl Future<Output = Result<()>> + Send;
}

/// A raw session with a root of its own.
pub struct Baseline<S = BenchDir>(S);

impl<S: RawStore> Baseline<S> {
    /// `root` must not be there yet.
    pub async fn connect(reach: &Reach, root: &str) -> Result<Self> {
        Ok(Self(S::open(reach, root).await?))
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
        let mut tasks: JoinSet<Result<u32>> = JoinSet::new();
        let began = Instant::now();
        for lane in lanes {
            tasks.spawn(async move {
                let mut taken = 0;
                while began.elapsed() < time {
                    lane.pass().await?;
                    taken += 1;
                }
                Ok(taken)
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

    async fn lane(&self, name: &str) -> Result<Arc<S::Lane>> {
        self.0.lane(name).await.map(Arc::new)
    }
}

async fn drain<L: RawLane>(lane: &Arc<L>, waiters: usize, measured: &mut HandOver) -> Result<()> {
    let holder = lane.join().await?;
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
