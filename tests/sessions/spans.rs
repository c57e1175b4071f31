//! What an acquire says in the log: its one span, and whose work it waits for.

use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lockkeeper::embedded::Op;
use lockkeeper::{Error, Keeper};
use tracing::instrument::WithSubscriber;

use testbench::keeper;
use testbench::{World, case, eventually};

const SOON: Duration = Duration::from_secs(5);
const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

/// What was logged.
#[derive(Clone, Debug, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    fn lines(&self, with: &str) -> Vec<String> {
        let bytes = self.0.lock().unwrap();
        let text = String::from_utf8_lossy(&bytes);
        let lines = text.lines().filter(|line| line.contains(with));
        lines.map(str::to_owned).collect()
    }

    fn listener(&self) -> impl tracing::Subscriber + Send + Sync + use<> {
        let log = self.clone();
        tracing_subscriber::fmt()
            .with_max_level(tracing::Level::DEBUG)
            .with_ansi(false)
            .with_writer(move || log.clone())
            .finish()
    }
}

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Takes a lock of each kind.
async fn each_kind(keeper: &Keeper) {
    drop(keeper.mutex("lock").unwrap().lock().await.unwrap());
    drop(keeper.mutex("tried").unwrap().try_lock().await.unwrap());
    let mut place = keeper.mutex("place").unwrap().enqueue().await.unwrap();
    drop(place.granted().await.unwrap());
    drop(keeper.rw_lock("read").unwrap().read().await.unwrap());
    drop(keeper.rw_lock("write").unwrap().write().await.unwrap());
    drop(
        keeper
            .semaphore("permits", 2)
            .unwrap()
            .acquire()
            .await
            .unwrap(),
    );
    drop(
        keeper
            .election("election")
            .unwrap()
            .campaign("me")
            .await
            .unwrap(),
    );
    drop(keeper.lock_all(["a", "b"]).await.unwrap());
}

/// Emits every event once, in queues of its own. If an event first occurs where the only listener
/// does not listen, that listener misses it until there is another one. Other cases emit the same
/// events.
async fn warm(world: &World) {
    let builder = Keeper::builder(world.connect_string()).root("/warm");
    let keeper = builder.connect().await.unwrap();
    each_kind(&keeper).await;
    let lock = keeper.mutex("held").unwrap();
    let _held = lock.lock().await.unwrap();
    let waited = lock.lock_timeout(Duration::from_millis(200)).await;
    assert!(waited.unwrap_err().is_timeout());
    keeper.close().await;
}

#[case]
async fn each_acquire_has_one_span_with_its_path_kind_ticket_and_session(world: World) {
    let (keeper, log) = (keeper(&world).await, Log::default());
    warm(&world).await;

    each_kind(&keeper).with_subscriber(log.listener()).await;

    for (path, kind) in [
        ("/locks/lock", "lock"),
        ("/locks/tried", "lock"),
        ("/locks/place", "lock"),
        ("/locks/read", "read"),
        ("/locks/write", "write"),
        ("/locks/permits/queue", "lock"),
        ("/locks/election", "lead"),
        ("/locks/a, /locks/b", "several"),
    ] {
        let granted: Vec<String> = log.lines(" granted ");
        let here = format!("acquire{{path=\"{path}\" kind=\"{kind}\" ticket=0 ");
        let told = granted.iter().find(|line| line.contains(&here));
        let told = told.unwrap_or_else(|| panic!("{here}: {granted:#?}"));
        assert_eq!(told.matches("acquire{").count(), 1, "{told}");
        for field in ["session=0x", "waited_ms=", "token="] {
            assert!(told.contains(field), "{field}: {told}");
        }
    }
}

/// Holds a lock with a trace, lets a waiter wait for it, and hands over; what the waiter has
/// logged.
async fn wait_behind(world: &World, keeper: &Keeper, name: &str) -> Log {
    let (lock, log) = (keeper.mutex(name).unwrap(), Log::default());
    let holder = lock.clone().with_trace_id(TRACE).lock().await.unwrap();
    let waiting = async move { lock.lock().await.unwrap().release().await.unwrap() };
    let waiting = tokio::spawn(waiting.with_subscriber(log.listener()));
    let watches = || async { !log.lines("waits for").is_empty() };
    eventually("it waits", SOON, watches).await;
    if world.is_embedded() {
        let watches = || async { world.embedded().counters().watches == 1 };
        eventually("it watches", SOON, watches).await;
    }
    holder.release().await.unwrap();
    waiting.await.unwrap();
    log
}

#[case]
async fn a_waiter_is_told_whose_work_it_waits_for(world: World) {
    let keeper = keeper(&world).await;
    warm(&world).await;

    let log = wait_behind(&world, &keeper, "traced").await;

    let told = log.lines("waits for");
    assert_eq!(told.len(), 1, "{told:?}");
    let field = format!("holder_trace=\"{TRACE}\"");
    let (span, event) = told[0].split_once("waits for").unwrap();
    assert!(
        span.contains("acquire{path=\"/locks/traced\"") && span.contains(&field),
        "{told:?}"
    );
    let ticket = "ticket=\"/locks/traced/lock-0000000000\"";
    let pid = format!("pid={}", std::process::id());
    for part in [&*field, ticket, "host=", &pid] {
        assert!(event.contains(part), "{part}: {told:?}");
    }
    // It is in the span until the end.
    let granted = log.lines(" granted ");
    assert!(granted[0].contains(&field), "{granted:?}");
}

#[case(embedded)]
async fn whose_work_is_waited_for_is_known_without_a_request(world: World) {
    let server = world.embedded();
    warm(&world).await;
    // It sends no beat for ten minutes.
    let builder = Keeper::builder(world.connect_string());
    let builder = builder.session_timeout(Duration::from_secs(3600));
    let keeper = builder.connect().await.unwrap();
    let lock = keeper.mutex("cost").unwrap();
    lock.lock().await.unwrap().release().await.unwrap();
    let before = server.counters();

    wait_behind(&world, &keeper, "cost").await;

    // Two for the holder; three to queue up, and one when the turn comes; and a release of each.
    let cost = server.counters().since(&before);
    let all = [Op::Create, Op::MultiRead, Op::GetData, Op::Multi].map(|op| cost.get(op));
    assert_eq!(all, [2, 3, 1, 2], "{cost:?}");
    assert_eq!(cost.requests() - cost.get(Op::Ping), 8, "{cost:?}");
}

#[case]
async fn a_trace_id_is_seen_in_the_queue_whatever_kind_of_lock_it_is(world: World) {
    let keeper = keeper(&world).await;
    let _guards = (
        keeper
            .mutex("lock")
            .unwrap()
            .with_trace_id(TRACE)
            .lock()
            .await
            .unwrap(),
        keeper
            .rw_lock("read")
            .unwrap()
            .with_trace_id(TRACE)
            .read()
            .await
            .unwrap(),
        keeper
            .rw_lock("write")
            .unwrap()
            .with_trace_id(TRACE)
            .write()
            .await
            .unwrap()
            .downgrade()
            .await
            .unwrap(),
        keeper
            .semaphore("permits", 2)
            .unwrap()
            .with_trace_id(TRACE)
            .acquire()
            .await
            .unwrap(),
        keeper
            .election("election")
            .unwrap()
            .with_trace_id(TRACE)
            .campaign("me")
            .await
            .unwrap(),
        keeper
            .multi_lock(["a", "b"])
            .unwrap()
            .with_trace_id(TRACE)
            .lock()
            .await
            .unwrap(),
    );
    let _other = keeper.mutex("other").unwrap().lock().await.unwrap();

    for name in ["lock", "read", "write", "permits", "election", "a", "b"] {
        let queue = keeper.queue(name).await.unwrap();
        assert_eq!(queue[0].trace_id.as_deref(), Some(TRACE), "{name}");
    }
    assert_eq!(keeper.queue("other").await.unwrap()[0].trace_id, None);
}

#[case]
async fn a_trace_id_that_is_too_long_is_refused(world: World) {
    let lock = keeper(&world).await.mutex("long").unwrap();

    let refused = lock
        .clone()
        .with_trace_id("x".repeat(1025))
        .lock()
        .await
        .unwrap_err();

    assert!(
        matches!(
            &refused,
            Error::InvalidOption {
                what: "trace id",
                ..
            }
        ),
        "{refused}"
    );
    let longest = lock.with_trace_id("x".repeat(1024));
    longest.lock().await.unwrap().release().await.unwrap();
}
