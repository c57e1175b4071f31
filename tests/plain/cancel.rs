//! Every call, dropped after each number of polls: nothing of it is left, and no stranger's lock is
//! touched.
//!
//! The ttl is longer than a case may last, so nothing here is freed by its end.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use lockkeeper::compat::sql::ForUpdate;
use lockkeeper::compat::{Acquired, Attempt, PlainGuard, PlainMutex, PlainStore};
use tokio::task::yield_now;
use tokio::time::{sleep, timeout};

use crate::bed::{Bed, Case};

pub const CASES: &[&[Case]] = &[
    crate::cases![if |_| true;
        a_wait_that_is_dropped_at_any_poll_leaves_nothing,
        a_try_that_is_dropped_at_any_poll_leaves_nothing,
        a_check_that_is_dropped_at_any_poll_keeps_the_lock,
        work_that_is_dropped_at_any_poll_keeps_the_lock,
        a_release_that_is_dropped_at_any_poll_goes_on,
        a_request_that_is_dropped_at_any_poll_can_be_asked_again,
    ],
    crate::cases![if |kind| kind.ends_with("+forupdate");
        a_commit_that_is_dropped_at_any_poll_leaves_nothing,
        a_statement_that_is_dropped_at_any_poll_goes_on,
    ],
];

const TTL: Duration = Duration::from_secs(30);
/// A busy machine needs so long for what takes milliseconds.
const SOON: Duration = Duration::from_secs(5);
/// More polls than any call needs.
const MANY: usize = 200;

/// Polls a call so often, and then drops it. `None` if it was not ready.
async fn polled<T>(times: usize, call: impl Future<Output = T>) -> Option<T> {
    let (mut call, mut polls) = (pin!(call), 0);
    poll_fn(|context| {
        if polls == times {
            return Poll::Ready(None);
        }
        polls += 1;
        match call.as_mut().poll(context) {
            Poll::Ready(answer) => Poll::Ready(Some(answer)),
            Poll::Pending if polls == times => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

/// Each number of polls, until a call is ready. It must not be so with the first poll: then
/// nothing was dropped half-way. On a busy machine a store may answer within that poll, so it is
/// tried again.
macro_rules! for_each_poll {
    ($bed:expr, $polls:ident => $is_ready:expr) => {
        let (mut $polls, mut answered_at_once) = (0, 0);
        loop {
            let is_ready = $is_ready;
            if is_ready && $polls == 1 && answered_at_once < MANY {
                answered_at_once += 1;
                continue;
            }
            if is_ready {
                break;
            }
            $polls += 1;
            assert!($polls < MANY, "it is never ready");
        }
        println!("{}: ready after {} polls", $bed.kind, $polls);
        assert!($polls > 1, "it was never dropped half-way");
    };
}

/// A lock of a client of its own, which asks often.
async fn lock(bed: &Bed, name: &str) -> PlainMutex<dyn PlainStore> {
    let lock = bed.keeper().await.mutex(name).unwrap().with_ttl(TTL);
    let poll = (Duration::from_millis(1), Duration::from_millis(20));
    lock.unwrap().with_poll(poll.0, poll.1).unwrap()
}

/// The next client gets the lock soon.
async fn next(other: &PlainMutex<dyn PlainStore>, polls: usize) -> PlainGuard<dyn PlainStore> {
    let next = timeout(SOON, other.lock()).await;
    let next = next.unwrap_or_else(|_| panic!("something is left after {polls} polls"));
    next.unwrap()
}

async fn leaves_nothing(other: &PlainMutex<dyn PlainStore>, polls: usize) {
    let next = next(other, polls).await;
    // What comes late would touch it now.
    sleep(Duration::from_millis(5)).await;
    next.check().await.unwrap();
    next.release().await.unwrap();
}

async fn a_wait_that_is_dropped_at_any_poll_leaves_nothing(bed: Arc<Bed>, name: String) {
    let (ours, other) = (lock(&bed, &name).await, lock(&bed, &name).await);
    for_each_poll!(bed, polls => {
        let stranger = next(&other, polls).await;
        let released = tokio::spawn(async move {
            sleep(Duration::from_millis(10)).await;
            stranger.check().await.expect("it is a stranger's");
            stranger.release().await
        });
        let got = polled(polls, ours.lock()).await;
        released.await.unwrap().expect("it was a stranger's");
        let is_ready = got.is_some();
        drop(got.map(Result::unwrap));
        leaves_nothing(&other, polls).await;
        is_ready
    });
}

async fn a_try_that_is_dropped_at_any_poll_leaves_nothing(bed: Arc<Bed>, name: String) {
    let (ours, other) = (lock(&bed, &name).await, lock(&bed, &name).await);
    for_each_poll!(bed, polls => {
        let got = polled(polls, ours.try_lock()).await;
        let is_ready = got.is_some();
        drop(got.map(|got| got.unwrap().expect("it is free")));
        leaves_nothing(&other, polls).await;
        is_ready
    });
}

async fn a_check_that_is_dropped_at_any_poll_keeps_the_lock(bed: Arc<Bed>, name: String) {
    let (ours, other) = (lock(&bed, &name).await, lock(&bed, &name).await);
    let guard = ours.lock().await.unwrap();
    for_each_poll!(bed, polls => {
        let checked = polled(polls, guard.check()).await;
        let is_ready = checked.is_some();
        checked.unwrap_or(Ok(())).unwrap();
        assert!(guard.is_held() && other.try_lock().await.unwrap().is_none());
        is_ready
    });
    guard.release().await.unwrap();
    leaves_nothing(&other, 0).await;
}

async fn work_that_is_dropped_at_any_poll_keeps_the_lock(bed: Arc<Bed>, name: String) {
    let (ours, other) = (lock(&bed, &name).await, lock(&bed, &name).await);
    let guard = ours.lock().await.unwrap();
    for_each_poll!(bed, polls => {
        let work = async {
            for _ in 0..3 {
                yield_now().await;
            }
        };
        let (lost, worked) = (guard.lost(), polled(polls, guard.run(work)).await);
        assert!(polled(1, lost).await.is_none(), "it is not lost");
        let is_ready = worked.is_some();
        worked.unwrap_or(Ok(())).unwrap();
        guard.check().await.unwrap();
        assert!(other.try_lock().await.unwrap().is_none());
        is_ready
    });
    guard.release().await.unwrap();
    leaves_nothing(&other, 0).await;
}

async fn a_release_that_is_dropped_at_any_poll_goes_on(bed: Arc<Bed>, name: String) {
    let (ours, other) = (lock(&bed, &name).await, lock(&bed, &name).await);
    for_each_poll!(bed, polls => {
        let guard = next(&ours, polls).await;
        let released = polled(polls, guard.release()).await;
        let is_ready = released.is_some();
        released.unwrap_or(Ok(())).unwrap();
        leaves_nothing(&other, polls).await;
        is_ready
    });
}

/// A store's own calls are dropped when their time is over. What they had sent may still happen:
/// the same attempt is then asked for again.
async fn a_request_that_is_dropped_at_any_poll_can_be_asked_again(bed: Arc<Bed>, name: String) {
    let (keeper, other) = (bed.keeper().await, lock(&bed, &name).await);
    let (store, fresh) = (keeper.store(), || Attempt {
        name: name.as_str().into(),
        secret: uuid::Uuid::new_v4().simple().to_string().into(),
        ttl: TTL,
        owner: None,
        seen: Default::default(),
        turn: Default::default(),
    });
    for_each_poll!(bed, polls => {
        let attempt = fresh();
        let got = polled(polls, store.acquire(&attempt)).await;
        if let Some(got) = &got {
            assert!(matches!(got, Ok(Acquired::Yes { .. })), "{got:?}");
        }
        freed_then_a_strangers(store, &attempt, &other, polls).await;
        got.is_some()
    });
    for_each_poll!(bed, polls => {
        let attempt = taken(store, fresh()).await;
        let renewed = polled(polls, store.renew(&attempt)).await;
        assert!(matches!(renewed, None | Some(Ok(true))), "{renewed:?}");
        assert!(other.try_lock().await.unwrap().is_none(), "after {polls} polls of a renewal");
        freed_then_a_strangers(store, &attempt, &other, polls).await;
        renewed.is_some()
    });
    for_each_poll!(bed, polls => {
        let attempt = taken(store, fresh()).await;
        let freed = polled(polls, store.release(&attempt)).await;
        assert!(matches!(freed, None | Some(Ok(true))), "{freed:?}");
        freed_then_a_strangers(store, &attempt, &other, polls).await;
        freed.is_some()
    });
}

async fn taken(store: &dyn PlainStore, attempt: Attempt) -> Attempt {
    let begun = Instant::now();
    // The last holder's release may still be on its way to a minority of servers.
    while !matches!(store.acquire(&attempt).await, Ok(Acquired::Yes { .. })) {
        assert!(begun.elapsed() < SOON, "something is left");
        sleep(Duration::from_millis(5)).await;
    }
    attempt
}

/// Asked to free it until another client holds, it then touches nothing.
async fn freed_then_a_strangers(
    store: &dyn PlainStore,
    attempt: &Attempt,
    other: &PlainMutex<dyn PlainStore>,
    polls: usize,
) {
    let begun = Instant::now();
    let stranger = loop {
        store.release(attempt).await.unwrap();
        match other.try_lock().await.unwrap() {
            Some(stranger) => break stranger,
            None => assert!(begun.elapsed() < SOON, "something is left: {polls} polls"),
        }
        sleep(Duration::from_millis(5)).await;
    };
    assert!(!store.renew(attempt).await.unwrap(), "it is a stranger's");
    assert!(!store.release(attempt).await.unwrap(), "it is a stranger's");
    stranger.check().await.unwrap();
    stranger.release().await.unwrap();
}

async fn a_commit_that_is_dropped_at_any_poll_leaves_nothing(bed: Arc<Bed>, name: String) {
    let keeper = ForUpdate::connect(&bed.database().url()).await.unwrap();
    let other = lock(&bed, &name).await;
    for_each_poll!(bed, polls => {
        let guard = keeper.mutex(&name).unwrap().lock().await.unwrap();
        let committed = polled(polls, guard.commit()).await;
        let is_ready = committed.is_some();
        committed.unwrap_or(Ok(())).unwrap();
        leaves_nothing(&other, polls).await;
        is_ready
    });
}

/// So what is committed then has all of it.
async fn a_statement_that_is_dropped_at_any_poll_goes_on(bed: Arc<Bed>, name: String) {
    let keeper = ForUpdate::connect(&bed.database().url()).await.unwrap();
    let insert = match bed.kind.starts_with("postgres") {
        true => "INSERT INTO lockkeeper_rows VALUES ($1)",
        false => "INSERT INTO lockkeeper_rows VALUES (?)",
    };
    for_each_poll!(bed, polls => {
        let row = uuid::Uuid::new_v4().to_string();
        let guard = keeper.mutex(&name).unwrap().lock().await.unwrap();
        let written = polled(polls, guard.execute(insert, &[&row])).await;
        guard.commit().await.unwrap();
        let select = format!("SELECT 1 FROM lockkeeper_rows WHERE name = '{row}'");
        let there = bed.database().execute(&select).await;
        assert_eq!(there, u64::from(polls > 0), "after {polls} polls");
        written.is_some()
    });
}
