//! Late requests, late answers, and runtimes that end.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
use lockkeeper::compat::sql::ForUpdate;
use lockkeeper::compat::{
    Acquired, Attempt, PlainKeeper, PlainLayer, PlainStore, StoreProblem, StoreResult,
};
use tokio::time::{sleep, timeout};

use crate::bed::{Bed, Case, TTL};

pub const CASES: &[&[Case]] = &[
    crate::cases![if |_| true; a_guard_outlives_the_runtime_that_took_it],
    crate::cases![if |kind| kind.ends_with("+forupdate");
        a_statement_of_another_runtime_ends_no_hold,
    ],
    crate::cases![if |kind| kind == "memory";
        an_acquire_that_comes_behind_its_release_is_freed,
        a_store_that_was_away_is_asked_again,
        a_slow_answer_shortens_the_lease,
        a_loss_within_one_step_of_the_work_is_told,
    ],
];

/// Each call of a guard runs where its keeper was made, also the one that must connect anew.
async fn a_guard_outlives_the_runtime_that_took_it(bed: Arc<Bed>, name: String) {
    let (lock, other) = (bed.lock(&name).await, bed.lock(&name).await);
    let helper = move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let first = lock.lock().await.unwrap();
            first.check().await.unwrap();
            // A waiter may open a connection to be woken.
            let late = lock.lock_timeout(Duration::from_millis(200)).await;
            assert!(late.unwrap_err().is_timeout());
            first.release().await.unwrap();
            let guard = lock.lock().await.unwrap();
            guard.check().await.unwrap();
            guard
        })
    };
    let guard = tokio::task::spawn_blocking(helper).await.unwrap();

    sleep(TTL * 2).await;

    assert!(guard.is_held(), "it was renewed");
    assert!(other.try_lock().await.unwrap().is_none());
    guard.check().await.unwrap();
    guard.release().await.unwrap();
    let next = other.lock_timeout(TTL).await.unwrap();
    next.release().await.unwrap();
}

/// It is given up there, and that runtime does nothing more.
async fn a_statement_of_another_runtime_ends_no_hold(bed: Arc<Bed>, name: String) {
    let keeper = ForUpdate::connect(&bed.database().url()).await.unwrap();
    let lock = keeper.mutex(&name).unwrap().with_ttl(TTL).unwrap();
    let guard = lock.lock().await.unwrap();
    let sleeps = match bed.kind.starts_with("postgres") {
        true => "SELECT pg_sleep(0.2)::text",
        false => "SELECT SLEEP(0.2)",
    };
    let elsewhere = move || {
        let runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = { runtime }.enable_all().build().unwrap();
        let given_up = runtime.block_on(async {
            let asked = guard.query(sleeps, &[]);
            timeout(Duration::from_millis(20), asked).await.is_err()
        });
        assert!(given_up);
        (guard, runtime)
    };
    let (guard, runtime) = tokio::task::spawn_blocking(elsewhere).await.unwrap();

    sleep(TTL * 2).await;

    assert!(guard.is_held(), "it was renewed");
    guard.commit().await.unwrap();
    runtime.shutdown_background();
}

/// A store whose acquires are not answered, and come late on a connection of their own. Or all is
/// done at once, and answered late.
#[derive(Debug)]
struct Late {
    inner: PlainKeeper<dyn PlainStore>,
    by: Duration,
    is_away: bool,
    is_slow: bool,
}

impl PlainLayer for Late {
    fn inner(&self) -> &dyn PlainStore {
        self.inner.store()
    }

    fn acquire<'a>(&'a self, attempt: &'a Attempt) -> BoxFuture<'a, StoreResult<Acquired>> {
        if self.is_slow {
            return Box::pin(async {
                let acquired = self.inner.store().acquire(attempt).await;
                sleep(self.by).await;
                acquired
            });
        }
        let (inner, attempt, by) = (self.inner.clone(), attempt.clone(), self.by);
        tokio::spawn(async move {
            sleep(by).await;
            inner.store().acquire(&attempt).await.map(drop)
        });
        Box::pin(async { Err(StoreProblem::NoAnswer) })
    }

    fn renew<'a>(&'a self, attempt: &'a Attempt) -> BoxFuture<'a, StoreResult<bool>> {
        Box::pin(async {
            let renewed = self.inner.store().renew(attempt).await;
            sleep(if self.is_slow {
                self.by
            } else {
                Duration::ZERO
            })
            .await;
            renewed
        })
    }

    fn release<'a>(&'a self, attempt: &'a Attempt) -> BoxFuture<'a, StoreResult<bool>> {
        Box::pin(async move {
            let freed = self.inner.store().release(attempt).await?;
            if self.is_away && !freed {
                // Refused, as by a server that starts, or not answered.
                return Err(StoreProblem::Refused("LOADING".into()));
            }
            Ok(freed)
        })
    }
}

async fn unanswered(bed: &Bed, name: &str, by: Duration, is_away: bool) {
    let inner = bed.keeper().await;
    let late = PlainKeeper::new(Late {
        inner,
        by,
        is_away,
        is_slow: false,
    });
    let lock = late.mutex(name).unwrap().with_ttl(TTL * 5).unwrap();
    let tried = timeout(Duration::from_secs(1), lock.try_lock()).await;
    tried.expect("it waits for nothing").unwrap_err();
    sleep(by * 2).await;
}

async fn an_acquire_that_comes_behind_its_release_is_freed(bed: Arc<Bed>, name: String) {
    for by in [0, 30, 300, 1500].map(Duration::from_millis) {
        unanswered(&bed, &name, by, false).await;
        let other = bed.lock(&name).await;
        let next = other.lock_timeout(Duration::from_secs(1)).await;
        next.expect("nothing is left").release().await.unwrap();
    }
}

async fn a_store_that_was_away_is_asked_again(bed: Arc<Bed>, name: String) {
    unanswered(&bed, &name, Duration::from_millis(500), true).await;
    let other = bed.lock(&name).await;
    let next = other.lock_timeout(Duration::from_secs(1)).await;
    next.expect("nothing is left").release().await.unwrap();
}

async fn a_slow_answer_shortens_the_lease(bed: Arc<Bed>, name: String) {
    let by = TTL / 5;
    let slow = PlainKeeper::new(Late {
        inner: bed.keeper().await,
        by,
        is_away: false,
        is_slow: true,
    });
    let lock = slow.mutex(&name).unwrap().with_ttl(TTL).unwrap();
    let longest = TTL.mul_f64(0.9) - by;
    let guard = lock.lock().await.unwrap();
    assert!(guard.valid_for() <= longest, "{:?}", guard.valid_for());
    sleep(TTL / 2).await;
    guard.check().await.unwrap();
    assert!(guard.valid_for() <= longest, "{:?}", guard.valid_for());
    guard.release().await.unwrap();
}

/// The work sees neither a poll nor an await between its beginning and its end.
async fn a_loss_within_one_step_of_the_work_is_told(bed: Arc<Bed>, name: String) {
    let guard = bed.lock(&name).await.lock().await.unwrap();
    let begun = Instant::now();
    let work = async {
        bed.remove(&name).await;
        while guard.is_held() && begun.elapsed() < TTL * 2 {
            std::thread::sleep(Duration::from_millis(5));
        }
    };

    let error = guard.run(work).await.expect_err("it was lost meanwhile");

    assert!(error.is_lost(), "{error}");
}
