//! The memory that a ticket, a watch, a waiter and a session take on a real server: the live heap
//! after a full collection.
//!
//! The kernel's buffers of a connection are not in it, and neither is what the JVM keeps free.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use futures_util::stream::{StreamExt, iter};
use lockkeeper::Keeper;
use tokio::task::{JoinSet, spawn_blocking};
use zookeeper_client::{Acls, Client, CreateMode};

use testbench::zookeeper::{HISTOGRAM, Servers};
use testbench::{Make, World, case, eventually, words};

/// Room, and collections that leave no gaps: those would be counted as if they lived.
const FLAGS: &[&str] = &["-Xmx1g", "-XX:MarkSweepAlwaysCompactCount=1", HISTOGRAM];
/// Two directories with names of one length.
const HERE: &str = "/locks/orders/42";
const WARM: &str = "/locks/orders/00";
/// What stands in a ticket of a raw client, as long as in one of a keeper.
const LINE: &[u8] = &[b'x'; 93];
/// Requests that are under way at the same time, and sessions that are opened.
const AT_ONCE: usize = 500;
const OPENED_AT_ONCE: usize = 16;
/// Transactions and answers that a server keeps after they are done: 500 and 400.
const KEPT: usize = 600;

#[case(real, alone, within = 120)]
async fn a_waiter_takes_less_than_a_kibibyte_of_a_server(_world: World) {
    let (sizes, counts): (&[usize], &[usize]) = if World::soak() {
        (&[1000, 10_000, 20_000], &[500, 1000, 2000])
    } else {
        (&[2000], &[200])
    };
    for count in sizes.iter().copied() {
        let waiter = waiters(count).await;
        println!("memory: {count} waiters take {waiter} bytes each");
        assert!((200..1024).contains(&waiter), "{waiter}");
        let (ticket, watch) = tickets_and_watches(count).await;
        println!("memory: {count} tickets take {ticket} bytes each, and a watch of each {watch}");
        let lock = held(count).await;
        println!("memory: {count} held locks take {lock} bytes each, with their directories");
    }
    for count in counts.iter().copied() {
        let session = sessions(count).await;
        println!("memory: {count} sessions take {session} bytes each");
    }
}

/// One real server, and how much of its heap is alive.
struct Heap(Arc<Servers>);

impl Heap {
    async fn new() -> Self {
        let started = spawn_blocking(|| Servers::start_with(1, FLAGS)).await;
        let heap = Self(Arc::new(started.unwrap().unwrap()));
        // What servers keep of the past is there, and as large as what will take its place, before
        // anything is measured.
        let client = heap.raw().await;
        let options = Make::Persistent.into();
        for directory in ["/locks", "/locks/orders", WARM, HERE] {
            client.create(directory, b"", &options).await.unwrap();
        }
        let warm = create(&client, CreateMode::PersistentSequential, WARM, KEPT).await;
        join_all(warm.iter().map(|path| client.get_data(path))).await;
        heap
    }

    fn address(&self) -> String {
        self.0.addresses()[0].to_string()
    }

    async fn keeper(&self) -> Keeper {
        let builder = Keeper::builder(self.address());
        let builder = builder.session_timeout(Duration::from_secs(60));
        builder.connect().await.unwrap()
    }

    async fn raw(&self) -> Client {
        let connector = Client::connector().with_session_timeout(Duration::from_secs(60));
        connector.connect(&self.address()).await.unwrap()
    }

    async fn bytes(&self) -> i64 {
        let servers = Arc::clone(&self.0);
        let bytes = spawn_blocking(move || servers.live_bytes(0)).await.unwrap();
        i64::try_from(bytes).unwrap()
    }

    async fn watches(&self) -> u64 {
        let wchs = words::word(self.0.addresses()[0], "wchs").await;
        words::wchs(&wchs).watches
    }

    async fn stop(self) {
        let servers = Arc::into_inner(self.0).unwrap();
        spawn_blocking(move || drop(servers)).await.unwrap();
    }
}

/// Creates so many tickets.
async fn create(client: &Client, mode: CreateMode, directory: &str, count: usize) -> Vec<String> {
    let options = mode.with_acls(Acls::anyone_all());
    let start = format!("{directory}/lock-");
    let send = async |_| client.create(&start, LINE, &options).await.unwrap().1;
    let made: Vec<_> = iter(0..count).map(send).buffered(AT_ONCE).collect().await;
    let path = |number: i64| format!("{start}{number:010}");
    made.into_iter().map(|made| path(made.into_i64())).collect()
}

/// Bytes for each of so many waiters for one lock.
async fn waiters(count: usize) -> i64 {
    let heap = Heap::new().await;
    let (holder, keeper) = (heap.keeper().await, heap.keeper().await);
    let guard = holder.mutex("orders/42").unwrap().lock().await.unwrap();
    let before = heap.bytes().await;

    let mut crowd = JoinSet::new();
    for _ in 0..count {
        let lock = keeper.mutex("orders/42").unwrap();
        crowd.spawn(async move { lock.lock().await.map(drop) });
    }
    let all_watch = || async { heap.watches().await == count as u64 };
    eventually("all watch", Duration::from_secs(60), all_watch).await;
    let each = per(heap.bytes().await - before, count);

    crowd.shutdown().await;
    drop(guard);
    keeper.close().await;
    holder.close().await;
    heap.stop().await;
    each
}

/// Bytes for each of so many tickets of one session in one directory, and for each watch of one.
async fn tickets_and_watches(count: usize) -> (i64, i64) {
    let heap = Heap::new().await;
    let (client, watching) = (heap.raw().await, heap.raw().await);
    let before = heap.bytes().await;

    let paths = create(&client, CreateMode::EphemeralSequential, HERE, count).await;
    let there = heap.bytes().await;
    let watch = paths.iter().map(|path| watching.get_and_watch_data(path));
    let watched = join_all(watch).await;
    let with_watches = heap.bytes().await;

    assert!(watched.iter().all(Result::is_ok));
    heap.stop().await;
    (per(there - before, count), per(with_watches - there, count))
}

/// Bytes for each of so many locks that are held, with its directory.
async fn held(count: usize) -> i64 {
    let heap = Heap::new().await;
    let keeper = heap.keeper().await;
    let before = heap.bytes().await;

    let lock = |number: usize| {
        let lock = keeper.mutex(format!("orders/{number:05}")).unwrap();
        async move { lock.lock().await.unwrap() }
    };
    let guards: Vec<_> = iter(0..count).map(lock).buffered(AT_ONCE).collect().await;
    let each = per(heap.bytes().await - before, count);

    drop(guards);
    keeper.close().await;
    heap.stop().await;
    each
}

/// Bytes for each of so many sessions that do nothing but live.
async fn sessions(count: usize) -> i64 {
    let heap = Heap::new().await;
    // What servers keep of the past keeps its sessions too: so many are there before.
    let others = open(&heap, KEPT).await;
    let before = heap.bytes().await;

    let keepers = open(&heap, count).await;
    let each = per(heap.bytes().await - before, count);

    close(keepers).await;
    close(others).await;
    heap.stop().await;
    each
}

async fn open(heap: &Heap, count: usize) -> Vec<Keeper> {
    let opened = iter(0..count).map(|_| heap.keeper());
    opened.buffered(OPENED_AT_ONCE).collect().await
}

async fn close(keepers: Vec<Keeper>) {
    let closed = keepers.iter().map(Keeper::close);
    iter(closed).buffered(OPENED_AT_ONCE).collect::<()>().await;
}

fn per(bytes: i64, count: usize) -> i64 {
    bytes / i64::try_from(count).unwrap()
}
