//! The workloads on Lockkeeper, through its public names only.
//!
//! It does nothing that a user of the library could not do. The directory that it
//! stands on counts the queue and removes what is left, with raw operations.

use std::time::{Duration, Instant};

use lockkeeper::{Error, Guard, Keeper, Mutex};
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::bench_dir::{BenchDir, RawStore, Reach};
use super::sample::{HandOver, NOT_COUNTED, Result, Sample, repeats};

/// The lock that the crowds want.
const CROWD: &str = "crowd";
/// Tasks that share a lock that lingers.
pub const LINGERING_TASKS: usize = 2;
/// Between two looks at the queue.
const PAUSE: Duration = Duration::from_millis(1);
/// A waiter's ticket, its look and its watch are answered one after the other. Twice as many,
/// because on another thread it may be late by one each time.
const STEPS_TO_A_WATCH: usize = 6;

/// Each ends with the time at which it was granted.
type Waiters = JoinSet<Result<Instant, Error>>;

/// A keeper with a root of its own.
pub struct Ours<S = BenchDir> {
    keeper: Keeper,
    bench_dir: S,
}

impl<S: RawStore> Ours<S> {
    /// `root` must not be there yet.
    pub async fn connect(reach: &Reach, root: &str) -> Result<Self> {
        let keeper = Keeper::builder(&reach.servers)
            .root(root)
            .session_timeout(reach.session_timeout)
            .connect_timeout(reach.connect_timeout);
        let keeper = reach.access.give(keeper).connect().await?;
        match S::open(reach, root).await {
            Ok(bench_dir) => Ok(Self { keeper, bench_dir }),
            Err(error) => {
                keeper.close().await;
                Err(error)
            }
        }
    }

    /// Locks and releases a lock that no other task wants, so many times.
    pub async fn uncontended(&self, rounds: usize) -> Result<Sample> {
        let lock = self.keeper.mutex("uncontended")?;
        for _ in 0..NOT_COUNTED {
            lock.lock().await?.release().await?;
        }
        let mut sample = Sample::new();
        for _ in 0..rounds {
            let began = Instant::now();
            lock.lock().await?.release().await?;
            sample.record(began.elapsed());
        }
        Ok(sample)
    }

    /// Lets so many waiters queue up behind a holder and drains the queue, as often as [`repeats`]
    /// says.
    pub async fn hand_over(&self, waiters: usize) -> Result<HandOver> {
        let lock = self.keeper.mutex(CROWD)?;
        let mut measured = HandOver::new();
        for _ in 0..repeats(waiters) {
            self.drain(&lock, waiters, &mut measured).await?;
        }
        measured.enqueue /= repeats(waiters);
        Ok(measured)
    }

    /// As [`uncontended`](Self::uncontended), while so many wait for another lock. And before that,
    /// alone.
    pub async fn beside(&self, waiters: usize, rounds: usize) -> Result<(Sample, Sample)> {
        let crowded = self.keeper.mutex(CROWD)?;
        let alone = self.uncontended(rounds).await?;
        let guard = crowded.lock().await?;
        let crowd = self.queue_up(&crowded, &guard, waiters).await?;
        let beside = self.uncontended(rounds).await?;
        guard.release().await?;
        grants(crowd).await?;
        Ok((beside, alone))
    }

    /// How many locks are taken and released in a second by so many tasks, each with a lock of its
    /// own.
    pub async fn independent(&self, locks: usize, time: Duration) -> Result<f64> {
        let mut tasks = JoinSet::new();
        let began = Instant::now();
        for number in 0..locks {
            let lock = self.keeper.mutex(format!("independent-{number}"))?;
            tasks.spawn(async move {
                let mut taken = 0;
                while began.elapsed() < time {
                    lock.lock().await?.release().await?;
                    taken += 1;
                }
                Ok::<_, Error>(taken)
            });
        }
        taken_a_second(tasks, began).await
    }

    /// How often two tasks take and release one lock that lingers in a second, while no other
    /// client asks for it.
    pub async fn linger(&self, time: Duration) -> Result<f64> {
        let lock = self.keeper.mutex("linger")?.with_linger(time);
        let mut tasks = JoinSet::new();
        let began = Instant::now();
        for _ in 0..LINGERING_TASKS {
            let lock = lock.clone();
            tasks.spawn(async move {
                let mut taken = 0;
                while began.elapsed() < time {
                    lock.lock().await?.release().await?;
                    taken += 1;
                }
                Ok::<_, Error>(taken)
            });
        }
        taken_a_second(tasks, began).await
    }

    /// Ends the sessions and removes the root with all that is in it.
    pub async fn close(self) -> Result<()> {
        self.keeper.close().await;
        self.bench_dir.clear().await
    }

    async fn drain(&self, lock: &Mutex, waiters: usize, measured: &mut HandOver) -> Result<()> {
        let guard = lock.lock().await?;
        let before = resident_bytes();
        let began = Instant::now();
        let crowd = self.queue_up(lock, &guard, waiters).await?;
        measured.enqueue += began.elapsed();
        if let (Some(before), Some(now)) = (before, resident_bytes()) {
            let grown = now.saturating_sub(before) as f64 / waiters as f64;
            let most = measured.bytes_per_waiter.unwrap_or_default();
            measured.bytes_per_waiter = Some(grown.max(most));
        }

        let released = Instant::now();
        guard.release().await?;
        measured.record(released, grants(crowd).await?);
        Ok(())
    }

    /// Puts so many waiters behind the holder of a lock. Each of them releases at once.
    async fn queue_up(&self, lock: &Mutex, holder: &Guard, waiters: usize) -> Result<Waiters> {
        let mut crowd = Waiters::new();
        for _ in 0..waiters {
            let lock = lock.clone();
            crowd.spawn(async move {
                let guard = lock.lock().await?;
                let granted = Instant::now();
                guard.release().await?;
                Ok(granted)
            });
        }
        while self.bench_dir.tickets(CROWD).await? <= waiters {
            // No waiter is granted while we hold: one that has ended has failed.
            tokio::select! {
                Some(ended) = crowd.join_next() => drop(ended??),
                () = sleep(PAUSE) => {}
            }
        }
        watches_are_there(holder).await?;
        Ok(crowd)
    }
}

/// When each waiter was granted, after all have released.
async fn grants(mut crowd: Waiters) -> Result<Vec<Instant>> {
    let mut grants = Vec::with_capacity(crowd.len());
    while let Some(ended) = crowd.join_next().await {
        grants.push(ended??);
    }
    Ok(grants)
}

/// Returns when the crowd has nothing to do but wait.
///
/// A session answers in the order in which it is asked. So when we are answered, what the waiters
/// had asked was answered before, and what they ask next is on its way. (A crowd of several
/// sessions may have a few at its end that are not quite ready; their turn is long to come.)
async fn watches_are_there(guard: &Guard) -> Result<()> {
    for _ in 0..STEPS_TO_A_WATCH {
        guard.check().await?;
    }
    Ok(())
}

/// How many locks tasks have taken in a second, when all have ended.
async fn taken_a_second(mut tasks: JoinSet<Result<u32, Error>>, began: Instant) -> Result<f64> {
    let mut taken = 0;
    while let Some(ended) = tasks.join_next().await {
        taken += ended??;
    }
    Ok(f64::from(taken) / began.elapsed().as_secs_f64())
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
