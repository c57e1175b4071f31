//! The workloads for any lock that a Rust library offers, by the same definitions as in
//! Lockkeeper's and the baseline's own.
//!
//! A hand-over is the time from one grant to the next, while every holder releases at once. The
//! clock starts when the first holder begins its release, and not before every waiter is known to
//! wait.

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::try_join_all;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::Workloads;
use crate::Result;
use crate::order::Answer;
use lockkeeper_cli::bench::sample::{HandOver, Sample};

/// Between two questions whether all wait.
const PAUSE: Duration = Duration::from_millis(2);

/// A library's lock, and what its waiters bring along.
pub(super) trait Contender: Clone + Send + Sync + 'static {
    /// The state of one waiter: etcd's lock belongs to a lease.
    type Seat: Send + Sync + 'static;
    type Hold: Send;

    /// Makes the state that a lock of `name` needs.
    fn prepare(&self, name: &str) -> impl Future<Output = Result<()>> + Send;
    /// Does the upkeep, before each order, that a server in service does from time to time. Later
    /// orders must not pay for earlier ones.
    fn tidy(&self) -> impl Future<Output = Result<()>> + Send {
        async { Ok(()) }
    }
    fn seat(&self) -> impl Future<Output = Result<Self::Seat>> + Send;
    fn leave(&self, seat: Self::Seat) -> impl Future<Output = Result<()>> + Send;
    fn lock(
        &self,
        name: &str,
        seat: &Self::Seat,
    ) -> impl Future<Output = Result<Self::Hold>> + Send;
    fn unlock(&self, hold: Self::Hold) -> impl Future<Output = Result<()>> + Send;
    /// Whether this many waiters are behind the holder of `name`, each ready to be notified of its
    /// turn.
    fn all_wait(&self, name: &str, waiters: usize) -> impl Future<Output = Result<bool>> + Send;
}

/// A contender with the names of its locks.
pub(super) struct Measured<C> {
    contender: C,
    run: String,
}

/// A granted waiter returns its seat; a failed one returns the reason.
type Ended<C> = std::result::Result<(Instant, <C as Contender>::Seat), String>;

impl<C: Contender> Measured<C> {
    pub(super) async fn new(contender: C) -> Result<Self> {
        let measured = Self {
            contender,
            run: super::run(),
        };
        for lock in ["alone", "queue"] {
            measured.contender.prepare(&measured.name(lock)).await?;
        }
        Ok(measured)
    }

    fn name(&self, lock: &str) -> String {
        format!("{}-{lock}", self.run)
    }

    /// Fills the queue and drains it. Returns the errors of waiters.
    async fn drain(&self, waiters: usize, measured: &mut HandOver) -> Result<Vec<String>> {
        let name: Arc<str> = self.name("queue").into();
        let holder = self.contender.seat().await?;
        let seats = try_join_all((0..waiters).map(|_| self.contender.seat())).await?;
        let hold = self.contender.lock(&name, &holder).await?;

        let (before, began) = (resident_bytes(), Instant::now());
        let mut crowd: JoinSet<Ended<C>> = JoinSet::new();
        for seat in seats {
            let (contender, name) = (self.contender.clone(), name.clone());
            crowd.spawn(async move {
                let pass = pass(&contender, &name, &seat).await;
                pass.map(|granted| (granted, seat))
                    .map_err(|error| error.to_string())
            });
        }
        let mut failed = self.all_wait(&name, waiters, &mut crowd).await?;
        measured.enqueue += began.elapsed();
        if let Some((now, before)) = resident_bytes().zip(before) {
            let grown = now.saturating_sub(before) as f64 / waiters as f64;
            let most = measured.bytes_per_waiter.unwrap_or_default();
            measured.bytes_per_waiter = Some(grown.max(most));
        }

        let (mut grants, mut seats) = (Vec::with_capacity(waiters), vec![holder]);
        let released = Instant::now();
        self.contender.unlock(hold).await?;
        while let Some(ended) = crowd.join_next().await {
            match ended? {
                Ok((granted, seat)) => {
                    grants.push(granted);
                    seats.push(seat);
                }
                Err(error) => failed.push(error),
            }
        }
        measured.record(released, grants);
        try_join_all(seats.into_iter().map(|seat| self.contender.leave(seat))).await?;
        Ok(failed)
    }

    /// Returns when all wait, except for failed calls; returns their errors.
    async fn all_wait(
        &self,
        name: &str,
        waiters: usize,
        crowd: &mut JoinSet<Ended<C>>,
    ) -> Result<Vec<String>> {
        let mut failed = Vec::new();
        while !self
            .contender
            .all_wait(name, waiters - failed.len())
            .await?
        {
            // No waiter is granted while the first one holds, so a call that has ended has failed.
            tokio::select! {
                Some(ended) = crowd.join_next() => match ended? {
                    Ok(_) => return Err("two held the lock at once".into()),
                    Err(error) => failed.push(error),
                },
                () = sleep(PAUSE) => {}
            }
        }
        Ok(failed)
    }
}

/// One waiter's way: it is granted, and releases at once.
async fn pass<C: Contender>(contender: &C, name: &str, seat: &C::Seat) -> Result<Instant> {
    let hold = contender.lock(name, seat).await?;
    let granted = Instant::now();
    contender.unlock(hold).await?;
    Ok(granted)
}

impl<C: Contender> Workloads for Measured<C> {
    async fn uncontended(&self, rounds: usize) -> Result<Answer> {
        self.contender.tidy().await?;
        let (name, seat) = (self.name("alone"), self.contender.seat().await?);
        let mut sample = Sample::new();
        for _ in 0..rounds {
            let began = Instant::now();
            let hold = self.contender.lock(&name, &seat).await?;
            self.contender.unlock(hold).await?;
            sample.record(began.elapsed());
        }
        self.contender.leave(seat).await?;
        Ok(Answer::of_times(&sample))
    }

    async fn hand_over(&self, waiters: usize, repeats: usize) -> Result<Answer> {
        self.contender.tidy().await?;
        let (mut measured, mut failed) = (HandOver::new(), Vec::new());
        for _ in 0..repeats {
            failed.extend(self.drain(waiters, &mut measured).await?);
        }
        measured.enqueue = measured.enqueue.div_f64(repeats as f64);
        Ok(Answer {
            failed: failed.len(),
            error: failed.into_iter().next(),
            ..Answer::of_hand_over(&measured)
        })
    }

    async fn independent(&self, locks: usize, milliseconds: u64) -> Result<Answer> {
        self.contender.tidy().await?;
        let mut own = Vec::with_capacity(locks);
        for lock in 0..locks {
            let name = self.name(&format!("own-{lock}"));
            self.contender.prepare(&name).await?;
            own.push((name, self.contender.seat().await?));
        }
        let mut tasks: JoinSet<Result<(u32, C::Seat)>> = JoinSet::new();
        let began = Instant::now();
        let time = Duration::from_millis(milliseconds);
        for (name, seat) in own {
            let contender = self.contender.clone();
            tasks.spawn(async move {
                let mut taken = 0_u32;
                while began.elapsed() < time {
                    pass(&contender, &name, &seat).await?;
                    taken += 1;
                }
                Ok((taken, seat))
            });
        }
        let (mut taken, mut seats) = (0, Vec::new());
        while let Some(ended) = tasks.join_next().await {
            let (count, seat) = ended??;
            taken += count;
            seats.push(seat);
        }
        let answer = Answer::of_rate(f64::from(taken) / began.elapsed().as_secs_f64());
        try_join_all(seats.into_iter().map(|seat| self.contender.leave(seat))).await?;
        Ok(answer)
    }
}

/// Resident anonymous memory of this process, which is heap and stacks and no code; none where
/// there is no such file.
fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("RssAnon:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}
