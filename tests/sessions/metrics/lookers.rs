//! Listeners of events and recorders of counts that look at every guard whenever they are told
//! anything.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ::metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder,
    SharedString, Unit,
};
use lockkeeper::embedded::EmbeddedServer;
use lockkeeper::{Guard, Keeper};
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Subscriber};

use super::page::runtime;
use testbench::{World, case};

/// The storm takes a few seconds; a look that waits for itself never ends.
const HANGS: Duration = Duration::from_secs(60);
const SOON: Duration = Duration::from_secs(10);
const LOCKS: usize = 6;

thread_local! {
    /// A look may be told something too.
    static IS_LOOKING: Cell<bool> = const { Cell::new(false) };
}

/// Looks at guards.
#[derive(Clone, Debug, Default)]
struct Looker(Arc<Seen>);

#[derive(Debug, Default)]
struct Seen {
    guards: Mutex<Vec<Arc<Guard>>>,
    looks: AtomicUsize,
}

impl Looker {
    fn look(&self) {
        if IS_LOOKING.replace(true) {
            return;
        }
        let guards = self.0.guards.lock().unwrap().clone();
        for guard in guards {
            let said = (guard.is_held(), guard.state(), guard.valid_for());
            assert!(!format!("{guard:?} {said:?}").is_empty());
            self.0.looks.fetch_add(1, Ordering::Relaxed);
        }
        IS_LOOKING.set(false);
    }

    /// Takes locks that are looked at from then on.
    async fn take(&self, keeper: &Keeper) -> Vec<Arc<Guard>> {
        let mut guards = Vec::new();
        for number in 0..LOCKS {
            let lock = keeper.mutex(format!("seen/{number}")).unwrap();
            let guard = timeout(SOON, lock.lock()).await;
            guards.push(Arc::new(guard.expect("it is free").unwrap()));
        }
        self.0.guards.lock().unwrap().clone_from(&guards);
        guards
    }

    /// Waits until none of them is held.
    async fn lost(&self, guards: &[Arc<Guard>]) {
        for guard in guards {
            timeout(SOON, guard.lost()).await.expect("it is told");
            assert!(!guard.is_held());
        }
        self.forget();
    }

    fn forget(&self) {
        let seen = std::mem::take(&mut *self.0.guards.lock().unwrap());
        drop(seen);
    }
}

impl Subscriber for Looker {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        self.look();
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {
        self.look();
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

impl CounterFn for Looker {
    fn increment(&self, _: u64) {
        self.look();
    }

    fn absolute(&self, _: u64) {
        self.look();
    }
}

impl GaugeFn for Looker {
    fn increment(&self, _: f64) {
        self.look();
    }

    fn decrement(&self, _: f64) {
        self.look();
    }

    fn set(&self, _: f64) {
        self.look();
    }
}

impl HistogramFn for Looker {
    fn record(&self, _: f64) {
        self.look();
    }
}

impl Recorder for Looker {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(Arc::new(self.clone()))
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(Arc::new(self.clone()))
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(Arc::new(self.clone()))
    }
}

/// Runs something on a thread whose listener and recorder look at guards, and which may hang.
async fn looked_at<F: Future<Output = ()>>(
    world: World,
    case: impl FnOnce(World, Looker) -> F + Send + 'static,
) {
    let (end, ended) = oneshot::channel();
    let thread = std::thread::spawn(move || {
        let looker = Looker::default();
        let run = || runtime().block_on(case(world, looker.clone()));
        let listen = || tracing::subscriber::with_default(looker.clone(), run);
        ::metrics::with_local_recorder(&looker, listen);
        let looks = looker.0.looks.load(Ordering::Relaxed);
        end.send(looks).ok();
    });
    let looks = timeout(HANGS, ended).await;
    let looks = looks.expect("a look waits for itself");
    thread.join().expect("the case holds");
    assert!(looks.unwrap() > 100, "hardly anything was told");
}

#[case(within = 120)]
async fn whoever_hears_of_a_lock_may_look_at_every_guard(world: World) {
    looked_at(world, |world, looker| async move {
        let builder = || Keeper::builder(world.connect_string());
        let keeper = builder().journal(10).connect().await.unwrap();
        let other = builder().connect().await.unwrap();
        for _ in 0..5 {
            // Given back, some while another client waits.
            let guards = looker.take(&keeper).await;
            let lock = other.mutex("seen/0").unwrap();
            let waiting = tokio::spawn(async move { lock.lock().await.unwrap() });
            drop(guards);
            looker.forget();
            let next = timeout(SOON, waiting).await.expect("its turn comes");
            next.unwrap().release().await.unwrap();

            // Passed on.
            let lock = keeper.mutex("passed").unwrap().with_linger(SOON);
            for _ in 0..5 {
                let guard = Arc::new(lock.lock().await.unwrap());
                looker.0.guards.lock().unwrap().push(guard);
                looker.forget();
            }

            // Broken.
            let guards = looker.take(&keeper).await;
            for guard in &guards {
                let name = guard.name().clone();
                let entry = other.queue(name.clone()).await.unwrap().remove(0);
                assert!(other.evict(name, &entry).await.unwrap());
            }
            looker.lost(&guards).await;
        }
        let guards = looker.take(&keeper).await;
        keeper.close().await;
        looker.lost(&guards).await;
        other.close().await;
    })
    .await;
}

#[case(embedded, within = 120)]
async fn whoever_hears_of_a_lost_session_may_look_at_every_guard(world: World) {
    looked_at(world, |_, looker| async move {
        for _ in 0..3 {
            let server = EmbeddedServer::start().await.unwrap();
            let builder = Keeper::builder(server.connect_string());
            let builder = builder.session_timeout(Duration::from_millis(900));
            let keeper = builder.connect().await.unwrap();
            let guards = looker.take(&keeper).await;
            for session in server.faults().sessions() {
                server.faults().expire_session(session.id);
            }
            looker.lost(&guards).await;

            let guards = looker.take(&keeper).await;
            server.stop().await;
            // Only the listeners ask.
            sleep(Duration::from_secs(2)).await;
            looker.lost(&guards).await;
            keeper.close().await;
        }
    })
    .await;
}
