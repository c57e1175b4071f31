//! Answers that are lost or never come, and what the guard makes of that.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::Poll;
use std::time::{Duration, Instant};

use futures_util::future::{BoxFuture, pending};
use lockkeeper::Error;
use lockkeeper::compat::{
    Acquired, Attempt, Capabilities, PlainGuard, PlainKeeper, PlainLayer, PlainStore, StoreProblem,
    StoreResult,
};
use testbench::stall::Stall;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::bed::{Bed, Case, TTL};
use crate::memory::Memory;

pub const CASES: &[&[Case]] = &[crate::cases![if |kind| kind == "memory";
    a_release_that_is_never_answered_ends_with_the_lease,
    a_release_whose_answer_was_lost_is_no_loss,
    a_release_that_was_never_sent_hides_no_loss,
    a_release_that_was_refused_is_asked_again_in_the_background,
    a_store_that_falls_silent_is_told_at_the_end_of_the_lease,
    a_late_grant_is_given_back,
    a_woken_waiter_that_fails_wakes_the_next,
]];

/// What becomes of the first release. All renewals are silent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum First {
    /// It is done, and its answer is lost.
    Done,
    /// There is no connection.
    NotSent,
    /// As by a server whose disk is full.
    Refused,
    /// Neither it nor any later one is answered.
    Silent,
}

#[derive(Debug)]
struct Faulty {
    inner: PlainKeeper<dyn PlainStore>,
    first: First,
    asked: AtomicUsize,
}

impl PlainLayer for Faulty {
    fn inner(&self) -> &dyn PlainStore {
        self.inner.store()
    }

    fn renew<'a>(&'a self, _attempt: &'a Attempt) -> BoxFuture<'a, StoreResult<bool>> {
        Box::pin(pending())
    }

    fn release<'a>(&'a self, attempt: &'a Attempt) -> BoxFuture<'a, StoreResult<bool>> {
        let is_first = self.asked.fetch_add(1, Ordering::SeqCst) == 0;
        let release = self.inner.store().release(attempt);
        match self.first {
            First::Silent => Box::pin(pending()),
            First::Done if is_first => Box::pin(async {
                release.await.unwrap();
                Err(StoreProblem::NoAnswer)
            }),
            First::NotSent if is_first => {
                Box::pin(async { Err(StoreProblem::Unreachable("no connection".into())) })
            }
            First::Refused if is_first => {
                Box::pin(async { Err(StoreProblem::Refused("MISCONF".into())) })
            }
            _ => release,
        }
    }
}

async fn guard(bed: &Bed, name: &str, first: First) -> PlainGuard<Faulty> {
    let inner = bed.keeper().await;
    let keeper = PlainKeeper::new(Faulty {
        inner,
        first,
        asked: AtomicUsize::new(0),
    });
    let lock = keeper.mutex(name).unwrap().with_ttl(TTL).unwrap();
    lock.lock().await.unwrap()
}

async fn a_release_that_is_never_answered_ends_with_the_lease(bed: Arc<Bed>, name: String) {
    let guard = guard(&bed, &name, First::Silent).await;
    let (begun, stall) = (Instant::now(), Stall::watch());

    let error = guard.release().await.unwrap_err();

    assert!(error.is_lost(), "{error}");
    let after = begun.elapsed();
    let most = TTL.mul_f64(0.98) + stall.longest();
    assert!((TTL.mul_f64(0.85)..most).contains(&after), "{after:?}");
}

async fn a_release_whose_answer_was_lost_is_no_loss(bed: Arc<Bed>, name: String) {
    let guard = guard(&bed, &name, First::Done).await;
    guard.release().await.expect("the first one has freed it");
}

async fn a_release_that_was_never_sent_hides_no_loss(bed: Arc<Bed>, name: String) {
    let guard = guard(&bed, &name, First::NotSent).await;
    bed.remove(&name).await;
    let error = guard.release().await.unwrap_err();
    assert!(error.is_lost(), "{error}");
}

/// A server that goes on soon does not keep the lock for the rest of its ttl.
async fn a_release_that_was_refused_is_asked_again_in_the_background(bed: Arc<Bed>, name: String) {
    let guard = guard(&bed, &name, First::Refused).await;
    let error = guard.release().await.unwrap_err();
    assert!(error.to_string().contains("MISCONF"), "{error}");
    let next = bed.lock(&name).await.lock_timeout(TTL / 4).await;
    next.expect("it was freed").release().await.unwrap();
}

async fn a_store_that_falls_silent_is_told_at_the_end_of_the_lease(bed: Arc<Bed>, name: String) {
    let guard = guard(&bed, &name, First::Silent).await;
    let begun = Instant::now();
    let lost = timeout(TTL, guard.lost()).await.expect("it is told");
    assert!(lost.is_lost() && !guard.is_held(), "{lost}");
    assert!(
        begun.elapsed() >= TTL.mul_f64(0.85),
        "{:?}",
        begun.elapsed()
    );
}

/// Its caller was not polled for longer than the lease.
async fn a_late_grant_is_given_back(bed: Arc<Bed>, name: String) {
    let lock = bed.lock(&name).await;
    let mut call = Box::pin(lock.try_lock());
    let asked = poll_fn(|context| Poll::Ready(call.as_mut().poll(context).is_pending()));
    assert!(asked.await, "it has begun");
    sleep(TTL).await;

    let error = call.await.unwrap_err();

    let is_told = matches!(
        &error,
        Error::Store {
            problem: StoreProblem::NoAnswer,
            ..
        }
    );
    assert!(is_told, "{error}");
    let next = lock.lock_timeout(TTL / 2).await;
    next.expect("nothing is left").release().await.unwrap();
}

/// A store that wakes one waiter for each release, and can refuse the next acquire.
#[derive(Debug, Default)]
struct Waking {
    inner: Memory,
    wake: Arc<Notify>,
    refuses: AtomicBool,
}

impl PlainStore for Waking {
    fn server(&self) -> &str {
        self.inner.server()
    }

    fn capabilities(&self) -> Capabilities {
        let mut capabilities = self.inner.capabilities();
        capabilities.wakes_waiters = true;
        capabilities
    }

    fn shortest_ttl(&self) -> Duration {
        self.inner.shortest_ttl()
    }

    fn check_name(&self, name: &str) -> Result<(), &'static str> {
        self.inner.check_name(name)
    }

    fn acquire<'a>(&'a self, attempt: &'a Attempt) -> BoxFuture<'a, StoreResult<Acquired>> {
        if self.refuses.swap(false, Ordering::SeqCst) {
            return Box::pin(async { Err(StoreProblem::Refused("once".into())) });
        }
        self.inner.acquire(attempt)
    }

    fn renew<'a>(&'a self, attempt: &'a Attempt) -> BoxFuture<'a, StoreResult<bool>> {
        self.inner.renew(attempt)
    }

    fn release<'a>(&'a self, attempt: &'a Attempt) -> BoxFuture<'a, StoreResult<bool>> {
        Box::pin(async move {
            let freed = self.inner.release(attempt).await;
            self.wake.notify_one();
            freed
        })
    }

    fn wake<'a>(&'a self, _name: &'a str) -> BoxFuture<'a, StoreResult<Option<Arc<Notify>>>> {
        Box::pin(async { Ok(Some(Arc::clone(&self.wake))) })
    }
}

/// Otherwise it would ask again when the rest of the other's ttl of 30 s is over.
async fn a_woken_waiter_that_fails_wakes_the_next(_bed: Arc<Bed>, name: String) {
    let keeper = PlainKeeper::new(Waking::default());
    let lock = keeper.mutex(&name).unwrap();
    let guard = lock.lock().await.unwrap();
    let mut waiters = JoinSet::new();
    for _ in 0..2 {
        let lock = lock.clone();
        waiters.spawn(async move { lock.lock().await.map(drop) });
    }
    sleep(TTL / 4).await;
    keeper.store().refuses.store(true, Ordering::SeqCst);
    guard.release().await.unwrap();
    let ended = timeout(TTL, waiters.join_all()).await;
    let ended = ended.expect("the second one is woken");
    assert_eq!(
        ended.iter().filter(|got| got.is_ok()).count(),
        1,
        "{ended:?}"
    );
}
