//! What a ticket, a watch, a waiter and a session take of a real server's memory: what lives in its heap after a full collection.
//!
//! The kernel's buffers of a connection are not in it, and neither is what the JVM keeps free.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::try_join_all;
use futures_util::stream::{StreamExt, iter};
use lockkeeper::Keeper;
use tokio::task::{JoinSet, spawn_blocking};
use zookeeper_client::{Acls, Client, CreateMode};

use crate::support::zookeeper::{HISTOGRAM, Servers};
use crate::support::{World, eventually, words};

cases! {
    real:
        a_waiter_takes_less_than_two_kibibytes_of_a_server within 120;
}

/// What stands in a ticket of these cases is as long as in one of a keeper.
const LINE: usize = 93;
/// Requests that are under way at the same time.
const AT_ONCE: usize = 500;

/// One real server with room, and whoever came before it was measured.
struct Heap {
    servers: Arc<Servers>,
}

impl Heap {
    async fn new() -> Self {
        let started = spawn_blocking(|| Servers::start_with(1, &["-Xmx1g", HISTOGRAM])).await;
        let heap = Self {
            servers: Arc::new(started.unwrap().unwrap()),
        };
        // Servers keep the last 500 transactions for members that come back: those must be there before anything is measured.
        let keeper = heap.keeper().await;
        let lock = keeper.mutex("warm").unwrap();
        for _ in 0..1000 {
            lock.lock().await.unwrap().release().await.unwrap();
        }
        keeper.close().await;
        heap
    }

    fn address(&self) -> String {
        self.servers.addresses()[0].to_string()
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
        let servers = Arc::clone(&self.servers);
        let bytes = spawn_blocking(move || servers.live_bytes(0)).await.unwrap();
        i64::try_from(bytes).unwrap()
    }

    async fn watches(&self) -> u64 {
        let wchs = words::word(self.servers.addresses()[0], "wchs").await;
        words::wchs(&wchs).watches
    }

    async fn stop(self) {
        let servers = Arc::into_inner(self.servers).unwrap();
        spawn_blocking(move || drop(servers)).await.unwrap();
    }
}

async fn a_waiter_takes_less_than_two_kibibytes_of_a_server(_world: World) {
    let sizes: &[usize] = if World::soak() {
        &[1000, 10_000, 20_000]
    } else {
        &[1000]
    };
    for count in sizes.iter().copied() {
        let waiter = waiters(count).await;
        println!("memory: {count} waiters take {waiter} bytes each");
        assert!((200..2048).contains(&waiter), "{waiter}");
        let (ticket, watch) = tickets_and_watches(count).await;
        println!("memory: {count} tickets take {ticket} bytes each, and watches of them {watch}");
        let held = held(count).await;
        println!("memory: {count} held locks take {held} bytes each, with their directories");
    }
    let counts: &[usize] = if World::soak() {
        &[500, 1000, 2000]
    } else {
        &[100]
    };
    for count in counts.iter().copied() {
        let session = sessions(count).await;
        println!("memory: {count} sessions take {session} bytes each");
    }
}

/// Bytes for each of so many who wait for one lock.
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

/// Bytes for each of so many tickets in one directory, and for each watch of one.
async fn tickets_and_watches(count: usize) -> (i64, i64) {
    let heap = Heap::new().await;
    let (client, watching) = (heap.raw().await, heap.raw().await);
    let options = CreateMode::Persistent.with_acls(Acls::anyone_all());
    client.create("/locks/orders", b"", &options).await.unwrap();
    client
        .create("/locks/orders/42", b"", &options)
        .await
        .unwrap();
    let options = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
    let before = heap.bytes().await;

    let create = async |_| {
        client
            .create("/locks/orders/42/lock-", &[b'x'; LINE], &options)
            .await
    };
    let created = iter(0..count).map(create).buffered(AT_ONCE);
    let created: Vec<_> = created.collect().await;
    let numbers = created
        .into_iter()
        .map(|created| created.unwrap().1.into_i64());
    let paths: Vec<String> = numbers
        .map(|number| format!("/locks/orders/42/lock-{number:010}"))
        .collect();
    let there = heap.bytes().await;
    let watch = paths.iter().map(|path| watching.get_and_watch_data(path));
    let watched = try_join_all(watch).await.unwrap();
    let with_watches = heap.bytes().await;

    drop((watched, client, watching));
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
    let before = heap.bytes().await;

    let open = iter(0..count).map(|_| heap.keeper()).buffered(16);
    let keepers: Vec<Keeper> = open.collect().await;
    let each = per(heap.bytes().await - before, count);

    for keeper in keepers {
        keeper.close().await;
    }
    heap.stop().await;
    each
}

fn per(bytes: i64, count: usize) -> i64 {
    bytes / i64::try_from(count).unwrap()
}
