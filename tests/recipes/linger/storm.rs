//! Lingering while connections are cut, calls give up, holders panic and runtimes end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use lockkeeper::{Guard, Keeper, Mutex};
use tokio::runtime::Builder;
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};

use super::{LONG, SOON, lingering, once};
use testbench::dice::Dice;
use testbench::{World, case, eventually, expect_panics};
use testbench::{children, keeper};

#[case(alone)]
async fn a_holder_that_panics_passes_its_hold_on(world: World) {
    expect_panics();
    let keeper = keeper(&world).await;
    let lock = lingering(&keeper, "panic");
    let guard = lock.lock().await.unwrap();
    let token = guard.token();
    let next = tokio::spawn({
        let lock = lock.clone();
        async move { once(&lock).await }
    });

    let fails = tokio::spawn(async move {
        let _guard = guard;
        panic!("as the case wants it");
    });
    assert!(fails.await.unwrap_err().is_panic());

    assert_eq!(timeout(SOON, next).await.unwrap().unwrap(), token);
}

/// Does something in a runtime of its own, which is over when this returns.
async fn elsewhere<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> T {
    let run = move || {
        let runtime = Builder::new_multi_thread().enable_all().build().unwrap();
        runtime.block_on(work)
    };
    spawn_blocking(run).await.unwrap()
}

#[case(alone)]
async fn a_runtime_that_ends_takes_no_turn_with_it(world: World) {
    let (keeper, stranger) = (keeper(&world).await, world.raw().await);
    let lock = lingering(&keeper, "runtime");

    // One guard goes on, and so does the task that follows its hold: it is in the keeper's runtime.
    let theirs = lock.clone();
    let guard = elsewhere(async move { theirs.lock().await.unwrap() }).await;
    let (token, waits) = (guard.token(), lock.clone());
    let waits = tokio::spawn(async move { once(&waits).await });
    guard.check().await.unwrap();
    guard.release().await.unwrap();
    assert_eq!(timeout(SOON, waits).await.unwrap().unwrap(), token);

    // What is held there is passed on.
    let theirs = lock.clone();
    let token = elsewhere(async move {
        let kept = once(&theirs).await;
        let guard = theirs.lock().await.unwrap();
        assert_eq!(guard.token(), kept);
        // The runtime's tasks are dropped with this one in the middle of its turn.
        tokio::spawn(async move {
            let _guard: Guard = guard;
            std::future::pending::<()>().await;
        });
        kept
    })
    .await;
    assert!(once(&lock).await >= token);
    keeper.close().await;
    assert!(children(&stranger, "runtime").await.is_empty());
}

/// One worker, until the end.
struct Worker {
    lock: Mutex,
    dice: Dice,
    inside: Arc<AtomicUsize>,
    turns: Arc<AtomicUsize>,
}

impl Worker {
    async fn work(mut self, is_over: Arc<AtomicBool>) {
        while !is_over.load(Ordering::Relaxed) {
            let patience = Duration::from_micros(self.dice.below(20_000));
            let granted = match self.dice.below(4) {
                0 => self.lock.try_lock().await.unwrap(),
                1 => self.lock.lock_timeout(patience).await.ok(),
                2 => timeout(patience, self.lock.lock())
                    .await
                    .ok()
                    .map(Result::unwrap),
                _ => Some(self.lock.lock().await.unwrap()),
            };
            let Some(guard) = granted else {
                sleep(Duration::from_millis(1)).await;
                continue;
            };
            assert_eq!(
                self.inside.fetch_add(1, Ordering::SeqCst),
                0,
                "two are inside"
            );
            if self.dice.one_in(3) {
                sleep(patience / 8).await;
            } else {
                tokio::task::yield_now().await;
            }
            assert!(guard.is_held(), "nothing ends a session here");
            self.inside.fetch_sub(1, Ordering::SeqCst);
            self.turns.fetch_add(1, Ordering::Relaxed);
            match self.dice.below(3) {
                0 => drop(guard),
                1 => guard.release().await.unwrap(),
                _ => drop(timeout(patience / 16, guard.release()).await),
            }
        }
    }
}

#[case(embedded, alone, within = 120)]
async fn crowds_that_are_cut_and_give_up_exclude_each_other(world: World) {
    let keepers = [keeper(&world).await, keeper(&world).await];
    let [inside, turns] = [(); 2].map(|()| Arc::new(AtomicUsize::new(0)));
    let is_over = Arc::new(AtomicBool::new(false));
    let mut dice = Dice(7);
    let crowd: Vec<_> = (0..10)
        .map(|worker: u64| {
            let keeper: &Keeper = &keepers[usize::from(worker > 5)];
            let lock = keeper.mutex("storm").unwrap();
            let lock = match worker % 4 {
                0 => lock,
                1 => lock.with_linger(Duration::from_millis(2)),
                _ => lock.with_linger(LONG),
            };
            let worker = Worker {
                lock,
                dice: Dice(dice.next()),
                inside: Arc::clone(&inside),
                turns: Arc::clone(&turns),
            };
            tokio::spawn(worker.work(Arc::clone(&is_over)))
        })
        .collect();

    for _ in 0..World::times(30, 600) {
        sleep(Duration::from_millis(dice.below(200))).await;
        world.embedded().faults().cut_all();
    }
    is_over.store(true, Ordering::Relaxed);
    for worker in timeout(10 * SOON, join_all(crowd)).await.unwrap() {
        worker.unwrap();
    }

    let turns = turns.load(Ordering::Relaxed);
    assert!(turns > 100, "{turns}");
    println!("linger: {turns} turns between cuts");
    for keeper in keepers {
        keeper.close().await;
    }
    let stranger = world.raw().await;
    let gone = || async { children(&stranger, "storm").await.is_empty() };
    eventually("nothing is left", SOON, gone).await;
}
