//! A lock and its release run in their caller's own task: none is spawned, no timer is woken.

use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use futures_util::future::BoxFuture;
use lockkeeper::compat::{
    Acquired, Attempt, PlainKeeper, PlainLayer, PlainMutex, PlainStore, StoreResult,
};
use testbench::eventually;
use tokio::runtime::Handle;
use tokio::task::{self, Id};
use tokio::time::{sleep, timeout};

use crate::at_server::AtServer;
use crate::bed::{Bed, Case, TTL};
use crate::memory::Memory;

pub const CASES: &[&[Case]] = &[
    crate::cases![if |_| true;
        a_lock_and_its_release_run_in_their_callers_task,
        a_lock_of_another_runtime_runs_in_that_of_its_keeper,
    ],
    crate::cases![if |kind| kind == "memory";
        a_shorter_ttl_is_renewed_beside_a_longer_one,
        many_holds_are_renewed_at_their_times,
        a_hold_that_was_released_is_forgotten,
        nothing_runs_after_the_last_guard_and_keeper,
    ],
    crate::cases![if |kind| ["postgres+row", "mysql+row"].contains(&kind);
        statements_that_are_dropped_keep_their_connections,
    ],
];

/// A task and a runtime.
type Place = (Option<Id>, u64);

/// A store that knows in which task, and in which runtime, it is asked.
#[derive(Debug, Clone)]
struct Asked {
    inner: PlainKeeper<dyn PlainStore>,
    by: Arc<Mutex<Vec<Place>>>,
    secrets: Arc<Mutex<Vec<Weak<str>>>>,
}

impl Asked {
    fn new(inner: PlainKeeper<dyn PlainStore>) -> Self {
        Self {
            inner,
            by: Arc::default(),
            secrets: Arc::default(),
        }
    }

    fn note(&self) {
        let runtime = Handle::current().id().to_string().parse().unwrap();
        self.by.lock().unwrap().push((task::try_id(), runtime));
    }
}

impl PlainLayer for Asked {
    fn inner(&self) -> &dyn PlainStore {
        self.inner.store()
    }

    fn acquire<'a>(&'a self, attempt: &'a Attempt) -> BoxFuture<'a, StoreResult<Acquired>> {
        self.note();
        let secret = Arc::downgrade(&attempt.secret);
        self.secrets.lock().unwrap().push(secret);
        self.inner().acquire(attempt)
    }

    fn release<'a>(&'a self, attempt: &'a Attempt) -> BoxFuture<'a, StoreResult<bool>> {
        self.note();
        self.inner().release(attempt)
    }
}

fn tasks() -> usize {
    Handle::current().metrics().num_alive_tasks()
}

async fn a_lock_and_its_release_run_in_their_callers_task(bed: Arc<Bed>, name: String) {
    let store = Asked::new(bed.keeper().await);
    let lock = PlainKeeper::new(store.clone()).mutex(&name).unwrap();
    // The first one starts the timer of its keeper, and may open connections.
    for _ in 0..3 {
        lock.lock().await.unwrap().release().await.unwrap();
    }
    store.by.lock().unwrap().clear();
    // Servers of Redlock that were slow are still heard, and connections of a database closed.
    let guard = eventually("nothing else runs", Duration::from_secs(10), || async {
        let before = tasks();
        let guard = lock.lock().await.unwrap();
        if tasks() == before {
            return Some(guard);
        }
        guard.release().await.unwrap();
        sleep(Duration::from_millis(20)).await;
        None
    })
    .await;
    guard.release().await.unwrap();

    let (ours, by) = (task::try_id(), store.by.lock().unwrap().clone());
    assert!(ours.is_some() && by.len() >= 2, "{by:?}");
    assert!(
        by.iter().all(|(task, _)| *task == ours),
        "{by:?} for {ours:?}"
    );
}

/// A connection that it opens must live as long as the keeper's runtime.
async fn a_lock_of_another_runtime_runs_in_that_of_its_keeper(bed: Arc<Bed>, name: String) {
    let store = Asked::new(bed.keeper().await);
    let lock = PlainKeeper::new(store.clone()).mutex(&name).unwrap();
    let ours: u64 = Handle::current().id().to_string().parse().unwrap();
    let elsewhere = move || {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_all().build().unwrap();
        runtime.block_on(async { lock.lock().await.unwrap().release().await.unwrap() });
    };
    task::spawn_blocking(elsewhere).await.unwrap();
    let by = store.by.lock().unwrap().clone();
    assert!(
        by.len() >= 2 && by.iter().all(|(_, runtime)| *runtime == ours),
        "{by:?}"
    );
}

fn with_ttl(
    keeper: &PlainKeeper<dyn PlainStore>,
    name: &str,
    ttl: Duration,
) -> PlainMutex<dyn PlainStore> {
    keeper.mutex(name).unwrap().with_ttl(ttl).unwrap()
}

/// The timer sleeps for the longer one.
async fn a_shorter_ttl_is_renewed_beside_a_longer_one(bed: Arc<Bed>, name: String) {
    let keeper = bed.keeper().await;
    let long = with_ttl(&keeper, &format!("{name}1"), Duration::from_secs(600));
    let long = long.lock().await.unwrap();
    sleep(Duration::from_millis(50)).await;
    let short = with_ttl(&keeper, &format!("{name}2"), TTL)
        .lock()
        .await
        .unwrap();
    sleep(TTL + TTL / 2).await;
    assert!(short.is_held(), "it was renewed");
    short.release().await.unwrap();
    long.release().await.unwrap();
}

/// Each is renewed, whichever others are added and end meanwhile.
async fn many_holds_are_renewed_at_their_times(bed: Arc<Bed>, name: String) {
    let keeper = bed.keeper().await;
    let (mut kept, mut ended) = (Vec::new(), 0);
    for number in 0..60_u32 {
        let ttl = Duration::from_millis(2000 + u64::from(number * 37 % 11) * 500);
        let guard = with_ttl(&keeper, &format!("{name}{number}"), ttl);
        let guard = guard.lock().await.unwrap();
        if number % 3 == 0 {
            guard.release().await.unwrap();
            ended += 1;
        } else {
            kept.push(guard);
        }
        sleep(Duration::from_millis(10)).await;
    }
    // Longer than the longest ttl.
    sleep(Duration::from_secs(8)).await;
    assert_eq!((kept.len(), ended), (40, 20));
    for guard in kept {
        assert!(guard.is_held(), "{guard:?} was renewed");
        guard.release().await.unwrap();
    }
}

/// Long before the time of its first renewal, and while its keeper lives.
async fn a_hold_that_was_released_is_forgotten(bed: Arc<Bed>, name: String) {
    let inner = PlainKeeper::new(Memory::default()).erased();
    let store = Asked::new(inner);
    let lock = PlainKeeper::new(store.clone()).mutex(&name).unwrap();
    for _ in 0..100 {
        lock.lock().await.unwrap().release().await.unwrap();
    }
    let secrets = store.secrets.lock().unwrap().clone();
    let kept = secrets.iter().filter(|one| one.strong_count() > 0);
    assert_eq!((secrets.len(), kept.count()), (100, 0), "{bed:?}");
}

async fn nothing_runs_after_the_last_guard_and_keeper(bed: Arc<Bed>, name: String) {
    let before = tasks();
    let keeper = bed.keeper().await;
    let young = keeper
        .mutex(format!("{name}1"))
        .unwrap()
        .lock()
        .await
        .unwrap();
    let old = with_ttl(&keeper, &format!("{name}2"), TTL)
        .lock()
        .await
        .unwrap();
    drop(keeper);
    sleep(TTL).await;
    assert!(old.is_held() && young.is_held() && tasks() > before);
    old.release().await.unwrap();
    drop(young);
    let none = eventually("no task is left", TTL, || async {
        (tasks() <= before).then_some(())
    });
    timeout(TTL * 2, none).await.unwrap();
}

/// A caller's time is over, but not that of its statement.
async fn statements_that_are_dropped_keep_their_connections(bed: Arc<Bed>, name: String) {
    let server = AtServer::start(bed.kind).await;
    let keeper = server.keeper().await;
    let (store, fresh) = (keeper.store(), || Attempt {
        name: name.as_str().into(),
        secret: uuid::Uuid::new_v4().simple().to_string().into(),
        ttl: Duration::from_secs(30),
        owner: None,
        seen: Default::default(),
        turn: Default::default(),
    });
    let attempt = fresh();
    let taken = store.acquire(&attempt).await.unwrap();
    assert!(matches!(taken, Acquired::Yes { .. }));
    let before = server.connections().await;
    for _ in 0..30 {
        let other = fresh();
        let dropped = timeout(Duration::ZERO, store.acquire(&other)).await;
        assert!(!matches!(dropped, Ok(Ok(Acquired::Yes { .. }))));
        sleep(Duration::from_millis(10)).await;
    }
    let opened = server.connections().await - before;
    // At most as many statements as run at once, but for the first of them.
    assert!(opened <= 3, "{opened} connections were opened");
    assert!(store.release(&attempt).await.unwrap());
}
