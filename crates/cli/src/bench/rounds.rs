//! The order of the measurements: Lockkeeper, the baseline, Lockkeeper, the baseline, so that
//! whatever drifts meets both.

use std::fmt::Display;
use std::future::Future;

use super::baseline::Baseline;
use super::bench_dir::RawStore;
use super::order::Order;
use super::ours::Ours;
use super::progress::Progress;
use super::results::Measured;
use super::sample::{self, HandOver, Sample};
use crate::failure::Failure;

/// How many locks are taken one after the other in one round.
const UNCONTENDED: usize = 200;
const WARM_UP: usize = 50;
/// Fewer waiters take less memory than everything around them.
const CROWD: usize = 100;

const OURS: &str = "Lockkeeper";
const BASELINE: &str = "the baseline";

/// Two sides, and where to say how far they are.
pub(crate) struct Rounds<'a, S> {
    pub(crate) ours: &'a Ours<S>,
    pub(crate) baseline: &'a Baseline<S>,
    pub(crate) order: &'a Order,
    pub(crate) progress: &'a Progress,
}

/// How many steps all of it has.
pub(crate) fn steps(order: &Order) -> usize {
    let kinds = 2 + order.crowds().len();
    // What lingers has no baseline: it asks the servers for nothing. Nor has the lock beside a
    // crowd, which is compared with itself.
    2 * (3 + order.rounds * kinds) + 2 * order.rounds
}

impl<S: RawStore> Rounds<'_, S> {
    pub(crate) async fn run(&self) -> Result<Measured, Failure> {
        let mut measured = Measured::new(self.order.locks, &self.order.crowds());
        self.warm_up(&mut measured).await?;
        for _ in 0..self.order.rounds {
            let (ours, baseline) = self.uncontended(UNCONTENDED).await?;
            measured.uncontended.add(&ours, &baseline);
            for crowd in &mut measured.crowds {
                let (ours, baseline) = self.hand_over(crowd.waiters).await?;
                crowd.add(&ours, &baseline);
            }
            let (beside, alone) = self.beside(measured.largest).await?;
            measured.beside.add(&beside, &alone);
            let (ours, baseline) = self.independent().await?;
            measured.independent.add(ours, baseline);
            measured.linger.push(self.linger().await?);
        }
        Ok(measured)
    }

    /// Connections, allocators and servers get going. The largest crowd is the first one, because
    /// memory that one crowd has taken is there for the next.
    async fn warm_up(&self, measured: &mut Measured) -> Result<(), Failure> {
        self.uncontended(WARM_UP).await?;
        let (ours, _) = self.hand_over(measured.largest).await?;
        let bytes = ours.bytes_per_waiter;
        measured.memory = bytes.filter(|_| measured.largest >= CROWD);
        self.independent().await?;
        Ok(())
    }

    async fn uncontended(&self, times: usize) -> Result<(Sample, Sample), Failure> {
        let what = "lock + release";
        let ours = self.step(OURS, what, self.ours.uncontended(times)).await?;
        let baseline = self
            .step(BASELINE, what, self.baseline.uncontended(times))
            .await?;
        Ok((ours, baseline))
    }

    async fn hand_over(&self, waiters: usize) -> Result<(HandOver, HandOver), Failure> {
        let what = format!("hand-over at {waiters}");
        let ours = self.step(OURS, &what, self.ours.hand_over(waiters)).await?;
        let baseline = self
            .step(BASELINE, &what, self.baseline.hand_over(waiters))
            .await?;
        Ok((ours, baseline))
    }

    async fn beside(&self, waiters: usize) -> Result<(Sample, Sample), Failure> {
        let what = format!("lock + release beside {waiters}");
        self.step(OURS, what, self.ours.beside(waiters, UNCONTENDED))
            .await
    }

    async fn independent(&self) -> Result<(f64, f64), Failure> {
        let (locks, time) = (self.order.locks, self.order.time);
        let what = format!("{locks} locks at once");
        let ours = self
            .step(OURS, &what, self.ours.independent(locks, time))
            .await?;
        let baseline = self
            .step(BASELINE, &what, self.baseline.independent(locks, time))
            .await?;
        Ok((ours, baseline))
    }

    async fn linger(&self) -> Result<f64, Failure> {
        let what = "one lock that lingers";
        self.step(OURS, what, self.ours.linger(self.order.time))
            .await
    }

    async fn step<T>(
        &self,
        side: &str,
        what: impl Display,
        work: impl Future<Output = sample::Result<T>>,
    ) -> Result<T, Failure> {
        self.progress.show(format_args!("{what}: {side}"));
        let done = work
            .await
            .map_err(|source| Failure::bench(format_args!("measure {what} of {side}"), source))?;
        self.progress.step();
        Ok(done)
    }
}
