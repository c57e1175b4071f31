//! The client crate below the library, whose failures must not be visible in a lock.

use std::collections::HashMap;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use futures_util::stream::{FuturesUnordered, StreamExt};
use lockkeeper::embedded::Op;
use lockkeeper::{Guard, GuardState, Keeper, Mutex};
use tokio::time::timeout;
use uuid::Uuid;
use zookeeper_client::{Acls, AddWatchMode, Client, CreateMode, EventType};

use super::{SOON, T, calm_keeper_by, way};
use testbench::frames::{Matching, Operation};
use testbench::proxy::{End, Proxy, Way};
use testbench::stall::Stall;
use testbench::words::wchs;
use testbench::{Make, World, case, eventually};
use testbench::{children, keeper};

/// The session timeout of who is cut. A busy machine takes seconds to arm thousands of watches.
const FAR: Duration = Duration::from_secs(8);

#[case(zookeeper, why = "a defect of the client crate")]
async fn row_51_the_crate_loses_persistent_watches_and_no_waiter_feels_it(world: World) {
    let (proxy, near, stranger) = (world.proxy(), keeper(&world).await, world.raw().await);
    let theirs = Client::connect(&way(&proxy, &world)).await.unwrap();
    let ours = calm_keeper_by(&proxy, &world).await;
    let held = near.mutex("watched").unwrap().lock().await.unwrap();
    let mut waiter = ours.mutex("watched").unwrap().enqueue().await.unwrap();
    assert!(timeout(T / 10, waiter.granted()).await.is_err());
    let mut watcher = theirs
        .watch("/locks/watched", AddWatchMode::Persistent)
        .await
        .unwrap();
    let mut sees_a_change = async |what: &str| {
        let (data, theirs) = (what.as_bytes(), &theirs);
        stranger.set_data("/locks", b"", None).await.unwrap();
        stranger
            .set_data("/locks/watched", data, None)
            .await
            .unwrap();
        // What the server has sent before its answer has arrived with it.
        eventually("they are connected", SOON, || async {
            theirs.sync("/locks").await.is_ok()
        })
        .await;
        loop {
            match timeout(T / 5, watcher.changed()).await {
                Ok(event) if event.event_type == EventType::NodeDataChanged => return true,
                Ok(_) => {}
                Err(_) => return false,
            }
        }
    };
    assert!(sees_a_change("before").await, "it watches");

    proxy.cut(End::Fin).await;
    let seen = sees_a_change("after").await;

    assert!(
        !seen,
        "the client crate keeps persistent watches across a reconnect now: say so in row 51 and in the link"
    );
    held.release().await.unwrap();
    let granted = timeout(SOON, waiter.granted()).await;
    let granted = granted.expect("our waiter is woken").unwrap();
    granted.release().await.unwrap();
    if world.is_embedded() {
        let watches = world.embedded().counters().get(Op::AddWatch);
        assert_eq!(watches, 1, "the only persistent watch was theirs");
    }
}

#[case]
async fn row_52_thousands_of_waiters_with_long_names_survive_a_cut(world: World) {
    const SERVED: usize = 100;
    let (crowd, soon) = if World::soak() {
        (10_000, SOON * 40)
    } else {
        (2000, SOON * 4)
    };
    let (proxy, near) = (world.proxy(), keeper(&world).await);
    let far = Keeper::builder(way(&proxy, &world)).session_timeout(FAR);
    let far = far.connect().await.unwrap();
    let name = "n".repeat(100);
    let held = near.mutex(&name).unwrap().lock().await.unwrap();
    let lock = far.mutex(&name).unwrap();
    // They are in several sessions, so the queue is in an order of its own.
    let mut waiters: HashMap<_, _> = join_all((0..crowd).map(async |at| {
        let label = format!("waiter {at}");
        let lock = lock.clone().with_label(&label);
        let mut place = lock.enqueue().await.unwrap();
        (label, tokio::spawn(async move { place.granted().await }))
    }))
    .await
    .into_iter()
    .collect();
    let watches = async || {
        let watched = world.watched_by_session().await;
        watched.values().map(|(paths, _)| paths).sum::<usize>()
    };
    eventually("all watch", soon, || async { watches().await >= crowd }).await;
    let queue = async || {
        let queue = near.queue(&name).await.unwrap().into_iter();
        queue
            .map(|entry| (entry.session, entry.label))
            .collect::<Vec<_>>()
    };
    let before = queue().await;
    assert_eq!(before.len(), crowd + 1);

    // So far away that all watches cannot be armed one request after the other.
    proxy.delay(Way::ToClient, FAR / 30);
    proxy.cut(End::Fin).await;
    // Long enough for a session that cannot come back to have ended.
    tokio::time::sleep(FAR * 2).await;
    assert_eq!(queue().await, before, "no session was lost");
    proxy.delay(Way::ToClient, Duration::ZERO);
    held.release().await.unwrap();
    for (_, label) in &before[1..=SERVED] {
        let waiter = waiters.remove(label.as_ref().unwrap());
        let guard = timeout(soon, waiter.unwrap()).await;
        let guard = guard.expect("it is woken").unwrap().unwrap();
        guard.release().await.unwrap();
    }

    eventually("all are connected", soon, || async {
        watches().await >= crowd - SERVED - 1
    })
    .await;
    assert_eq!(queue().await, before[SERVED + 1..], "no session was lost");
    far.close().await;
}

/// Cuts all connections to servers so far away that a client sends all its watches again before the
/// first answer. With nearer servers, it would be chance whether the client fails. Waits until a
/// session that cannot come back has ended. On a busy machine one with too many watches may come
/// back, so what is watched is counted too.
async fn cut_far_away(proxy: &Proxy, world: &World) {
    proxy.delay(Way::ToClient, T / 20);
    proxy.cut(End::Fin).await;
    tokio::time::sleep(FAR * 3 / 2).await;
    let mut bytes = 0;
    for line in world.words_of_all("wchc").await.lines() {
        bytes = line.strip_prefix('\t').map_or(0, |path| bytes + path.len());
        assert!(bytes < 128 << 10, "one session watches too much");
    }
}

#[case(zookeeper, why = "a chroot, and a defect of the client crate")]
async fn row_52_guards_that_listen_below_a_long_chroot_survive_a_cut(world: World) {
    const GUARDS: usize = 800;
    // One connection may watch some 350 of these paths.
    const LISTENING: u64 = 300;
    let below = format!("/{}", "c".repeat(200));
    let options = Make::Persistent;
    let stranger = world.raw().await;
    stranger.create(&below, b"", &options).await.unwrap();
    let proxy = world.proxy();
    let keeper = Keeper::builder(way(&proxy, &world) + &below).session_timeout(FAR);
    let keeper = keeper.connect().await.unwrap();
    let locks: Vec<_> = (0..GUARDS)
        .map(|lock| keeper.mutex(lock.to_string()).unwrap())
        .collect();
    let mut guards = Vec::new();
    // In one session: who waits needs room there.
    for some in locks.chunks(100) {
        let granted = join_all(some.iter().map(Mutex::lock)).await;
        guards.extend(granted.into_iter().map(|guard| Arc::new(guard.unwrap())));
    }
    let listen = |guard: &Arc<Guard>| {
        let guard = Arc::clone(guard);
        tokio::spawn(async move { guard.revoked().await })
    };
    let mut listening: Vec<_> = guards.iter().map(listen).collect();
    eventually("they listen", SOON * 4, || async {
        wchs(&world.words_of_all("wchs").await).watches >= LISTENING
    })
    .await;
    // By its answer all that was sent before has arrived.
    let last = keeper.queue(&*(GUARDS - 1).to_string()).await.unwrap();

    cut_far_away(&proxy, &world).await;

    let is_lost = |guard: &&Arc<Guard>| guard.state() == GuardState::Lost;
    let lost = guards.iter().filter(is_lost).count();
    assert_eq!(lost, 0, "of {GUARDS} guards");
    // The listener that had no room hears once there is some.
    let late = listening.pop().unwrap();
    listening.iter().for_each(tokio::task::JoinHandle::abort);
    let name = (GUARDS - 1).to_string();
    let asked = keeper.revoke(&*name, &last[0], Duration::ZERO).await;
    assert!(!asked.unwrap());
    timeout(SOON, late).await.unwrap().unwrap().unwrap();
    keeper.close().await;
}

#[case(embedded)]
async fn row_52_waiters_behind_curators_names_cost_nobody_a_lock(world: World) {
    const WAITERS: usize = 2300;
    // Without a chroot, so that a ticket's name is most of its path.
    let server = world.servers()[0];
    let proxy = Proxy::before(server);
    let keeper = Keeper::builder(proxy.address().to_string()).root("/l");
    let keeper = keeper.session_timeout(FAR).connect().await.unwrap();
    let stranger = Client::connect(&server.to_string()).await.unwrap();
    let guard = keeper.mutex("mine").unwrap().lock().await.unwrap();
    let options = Make::Persistent.into();
    for locks in (0..WAITERS).collect::<Vec<_>>().chunks(100) {
        let mut writer = stranger.new_multi_writer();
        for lock in locks {
            let directory = format!("/l/{lock}");
            let ticket = format!("{directory}/_c_{}-lock-", Uuid::new_v4());
            let numbered = CreateMode::PersistentSequential.with_acls(Acls::anyone_all());
            writer.add_create(&directory, b"", &options).unwrap();
            writer.add_create(&ticket, b"", &numbered).unwrap();
        }
        writer.commit().await.unwrap();
    }
    let locks: Vec<_> = (0..WAITERS)
        .map(|lock| keeper.mutex(lock.to_string()).unwrap())
        .collect();
    // Polled one after the other, each reserves its room before any has an answer: what is watched
    // is counted later, and would show how long the names are.
    let waiting = tokio::spawn(async move {
        let mut waiters: FuturesUnordered<_> = locks.iter().map(Mutex::lock).collect();
        waiters.next().await.map(drop)
    });
    eventually("all watch", SOON * 4, || async {
        wchs(&world.words_of_all("wchs").await).watches >= WAITERS as u64
    })
    .await;

    cut_far_away(&proxy, &world).await;

    assert_ne!(guard.state(), GuardState::Lost);
    guard.release().await.unwrap();
    assert!(
        !waiting.is_finished(),
        "nobody is granted, and nobody fails"
    );
    keeper.close().await;
}

/// What may come instead of an answer.
#[derive(Clone, Debug)]
enum Instead {
    Fin,
    Reset,
    /// Nothing, and nothing more on this connection.
    Silence,
    /// Nothing, and the answer to the next request.
    Hole,
    /// The answer, twice.
    Echo,
    Bytes(Vec<u8>),
}

fn instead() -> Vec<(&'static str, Instead)> {
    let mut mismatch = vec![0, 0, 0, 16];
    // An answer without a request: xid, zxid, no error.
    mismatch.extend(0x7000_0000_i32.to_be_bytes());
    mismatch.extend([0; 12]);
    vec![
        ("fin", Instead::Fin),
        ("reset", Instead::Reset),
        ("silence", Instead::Silence),
        ("hole", Instead::Hole),
        ("echo", Instead::Echo),
        ("garbage", Instead::Bytes(vec![0, 0, 0, 3, 255, 0, 255])),
        ("nothing", Instead::Bytes(vec![0, 0, 0, 0])),
        ("negative", Instead::Bytes(vec![255; 8])),
        ("mismatch", Instead::Bytes(mismatch)),
    ]
}

/// Does some work of which one request is done and its answer is not seen.
async fn without_answer<T: Send + 'static>(
    proxy: &Proxy,
    to: Matching,
    instead: Instead,
    work: impl Future<Output = T> + Send + 'static,
) -> T {
    let held =
        matches!(instead, Instead::Fin | Instead::Silence).then(|| proxy.hold_reply(to.clone()));
    match &instead {
        Instead::Fin | Instead::Silence => {}
        Instead::Reset => proxy.cut_at_reply(to),
        Instead::Hole => proxy.drop_reply(to),
        Instead::Echo => proxy.duplicate_reply(to),
        Instead::Bytes(bytes) => proxy.replace_reply(to, bytes.clone()),
    }
    let working = tokio::spawn(work);
    if let Some(held) = held {
        held.reached().await;
        if matches!(instead, Instead::Fin) {
            proxy.cut(End::Fin).await;
        } else {
            eventually("the client gives the connection up", SOON, || async {
                proxy.connections() > 1
            })
            .await;
        }
    }
    let worked = timeout(SOON * 3, working).await;
    worked
        .unwrap_or_else(|_| panic!("{instead:?}: it hangs"))
        .unwrap()
}

#[case(
    zookeeper,
    why = "frames that lie: replies of Redis have no number that could be wrong"
)]
async fn row_53_whatever_comes_instead_of_an_answer_the_ticket_is_found(world: World) {
    let (proxy, stranger) = (world.proxy(), world.raw().await);
    let keeper = Keeper::builder(way(&proxy, &world)).session_timeout(T * 2);
    let keeper = keeper.connect().await.unwrap();
    for (name, instead) in instead() {
        let lock = keeper.mutex(name).unwrap();
        lock.lock().await.unwrap().release().await.unwrap();
        let to = Matching::op(Operation::CREATE).path(name);

        let locked = without_answer(&proxy, to, instead, async move { lock.lock().await }).await;

        let guard = locked.unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(proxy.armed(), 0, "{name}: the request was met");
        assert_eq!(children(&stranger, name).await, [guard.node()], "{name}");
        guard.release().await.unwrap();
    }
}

#[case(
    zookeeper,
    why = "frames that lie: replies of Redis have no number that could be wrong"
)]
async fn row_53_whatever_comes_instead_of_an_answer_the_release_is_known(world: World) {
    let (proxy, stranger) = (world.proxy(), world.raw().await);
    let keeper = calm_keeper_by(&proxy, &world).await;
    for (name, instead) in instead() {
        let guard = keeper.mutex(name).unwrap().lock().await.unwrap();
        // A beat is a transaction too, but leaves no mark.
        let to = Matching::op(Operation::MULTI).path("lockkeeper_released");

        let released = without_answer(&proxy, to, instead, guard.release()).await;

        released.unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(proxy.armed(), 0, "{name}: the request was met");
        assert!(children(&stranger, name).await.is_empty(), "{name}");
    }
}

#[case]
async fn row_54_a_guard_that_is_dropped_while_its_link_is_reset_is_released(world: World) {
    let (proxy, near, stranger) = (world.proxy(), keeper(&world).await, world.raw().await);
    let far = calm_keeper_by(&proxy, &world).await;
    let stays = far.mutex("stays").unwrap().lock().await.unwrap();
    for _ in 0..3 {
        let guard = far.mutex("dropped").unwrap().lock().await.unwrap();
        let mut waiter = near.mutex("dropped").unwrap().enqueue().await.unwrap();

        // The delete is on its way, and never arrives.
        proxy.black_hole(Way::ToServer);
        proxy.drop_reply(Matching::op(Operation::ANY).path("lockkeeper_released"));
        drop(guard);
        eventually("it is on its way", SOON, || async { proxy.armed() == 0 }).await;
        proxy.cut(End::Rst).await;
        proxy.heal();

        let next = timeout(SOON, waiter.granted()).await;
        let next = next.expect("the queue moves on").unwrap();
        assert_eq!(children(&stranger, "dropped").await, [next.node()]);
        next.release().await.unwrap();
    }
    assert_eq!(
        children(&stranger, "stays").await,
        [stays.node()],
        "the session lives"
    );
    stays.release().await.unwrap();
}

#[case]
async fn row_55_a_lock_that_is_cancelled_below_a_long_path_leaves_nothing(world: World) {
    let (proxy, near, stranger) = (world.proxy(), keeper(&world).await, world.raw().await);
    let far = calm_keeper_by(&proxy, &world).await;
    let name = "services/orders/eu-west/42";
    let held = near.mutex(name).unwrap().lock().await.unwrap();
    let lock = far.mutex(name).unwrap();
    let stays = far.mutex("stays").unwrap().lock().await.unwrap();
    let tickets = async |count| {
        let counted = || async { children(&stranger, name).await.len() == count };
        eventually("as many tickets as there should be", SOON, counted).await;
    };

    // While it waits.
    let mut waiting = tokio::spawn({
        let lock = lock.clone();
        async move { lock.lock().await.map(drop) }
    });
    tickets(2).await;
    assert!(timeout(T / 20, &mut waiting).await.is_err());
    waiting.abort();
    tickets(1).await;
    // Before it knows its ticket.
    proxy.black_hole(Way::ToClient);
    let waiting = tokio::spawn(async move { lock.lock().await.map(drop) });
    tickets(2).await;
    waiting.abort();
    proxy.heal();
    tickets(1).await;

    assert_eq!(children(&stranger, name).await, [held.node()]);
    assert_eq!(children(&stranger, "stays").await, [stays.node()]);
    stays.release().await.unwrap();
    held.release().await.unwrap();
}

#[case]
async fn row_56_calls_made_while_disconnected_end_in_time(world: World) {
    let mut proxy = world.proxy();
    let keeper = Keeper::builder(way(&proxy, &world))
        .session_timeout(T)
        .connect_timeout(T / 2)
        .connect()
        .await
        .unwrap();
    let guard = keeper.mutex("held").unwrap().lock().await.unwrap();
    let lock = keeper.mutex("other").unwrap();
    // The crate says that a session is over at 1.8 times its timeout at the latest; then another
    // may be tried for.
    let at_most = T * 9 / 5 + T / 2 + T;

    proxy.refuse().await;
    proxy.cut(End::Rst).await;
    let (stall, began) = (Stall::watch(), Instant::now());
    let short = async {
        let error = lock.lock_timeout(T / 5).await.unwrap_err();
        assert!(error.is_timeout(), "{error}");
        let took = began.elapsed();
        assert!(took < T / 5 + T / 10 + stall.longest(), "{took:?}");
    };
    let rest = async {
        let calls = tokio::join!(
            async { lock.lock().await.map(drop) },
            async { lock.try_lock().await.map(drop) },
            async { lock.enqueue().await.map(drop) },
            async { keeper.queue("held").await.map(drop) },
            async { keeper.locks().await.map(drop) },
            guard.release(),
        );
        let (locked, tried, queued, looked, listed, released) = calls;
        for ended in [locked, tried, queued, looked, listed, released] {
            let error = ended.unwrap_err();
            assert!(error.is_lost() || error.is_unreachable(), "{error}");
        }
    };
    let ended = timeout(at_most, async { tokio::join!(short, rest) }).await;

    assert!(
        ended.is_ok(),
        "a call was still under way after {at_most:?}"
    );
    timeout(T * 2, keeper.close()).await.expect("it closes");
}

#[case]
async fn row_60_a_runtime_that_ends_under_guards_and_waiters_panics_nowhere(world: World) {
    let connect_string = world.connect_string();
    // Panics on threads of this name are this case's.
    let name = std::thread::current().name().unwrap().to_owned();
    // A thread that knows of no runtime.
    let outcome = std::thread::spawn(move || {
        for round in 0..5 {
            let theirs = tokio::runtime::Builder::new_multi_thread()
                .worker_threads(1)
                .thread_name(&name)
                .enable_all()
                .build()
                .unwrap();
            let kept = theirs.block_on(async {
                let keeper = Keeper::connect(&connect_string).await.unwrap();
                let lock = keeper.mutex(format!("ends/{round}")).unwrap();
                let inside = keeper.mutex(format!("inside/{round}")).unwrap();
                let (guard, place) = (lock.lock().await.unwrap(), lock.enqueue().await.unwrap());
                let in_a_task = inside.lock().await.unwrap();
                // These end with the runtime, in whatever order it drops them.
                tokio::spawn(async move {
                    let _held = in_a_task;
                    std::future::pending::<()>().await;
                });
                for _ in 0..3 {
                    let lock = inside.clone();
                    tokio::spawn(async move { lock.lock().await.map(drop) });
                }
                tokio::task::yield_now().await;
                (guard, place, keeper)
            });
            theirs.shutdown_timeout(SOON);
            // One by one: a panic while another is under way ends the process.
            let (guard, place, keeper) = kept;
            let drops: [Box<dyn FnOnce()>; 3] = [
                Box::new(move || drop(guard)),
                Box::new(move || drop(place)),
                Box::new(move || drop(keeper)),
            ];
            let panics = drops.map(|dropped| catch_unwind(AssertUnwindSafe(dropped)).is_err());
            assert_eq!(panics, [false; 3], "guard, place, keeper");
        }
    });
    let joined = tokio::task::spawn_blocking(move || outcome.join()).await;
    joined.unwrap().expect("nothing panics");
}

#[case(
    zookeeper,
    why = "frames that lie: replies of Redis have no number that could be wrong"
)]
async fn row_53_a_connection_that_swallows_every_answer_is_given_up(world: World) {
    let proxy = world.proxy();
    let builder = Keeper::builder(way(&proxy, &world)).session_timeout(T);
    let (near, other) = (builder.connect().await.unwrap(), keeper(&world).await);
    let guard = near.mutex("swallowed").unwrap().lock().await.unwrap();
    let mut place = other.mutex("swallowed").unwrap().enqueue().await.unwrap();

    // Not the server speaks, and the client waits for a frame of more than a gigabyte, while its
    // pings are heard.
    let page = b"HTTP/1.1 400 Bad Request".to_vec();
    proxy.replace_reply(Matching::op(Operation::MULTI), page);
    eventually("the page comes", SOON, || async { proxy.armed() == 0 }).await;
    // Its connection is given up or its session: that depends on when the pings come.
    let beside = timeout(SOON * 2, near.mutex("beside").unwrap().lock()).await;
    let beside = beside.expect("another connection or session").unwrap();
    beside.release().await.unwrap();
    drop(guard);

    let next = timeout(SOON * 3, place.granted()).await;
    next.expect("the ticket does not stay for ever")
        .unwrap()
        .release()
        .await
        .unwrap();
    let again = timeout(SOON, near.mutex("swallowed").unwrap().lock()).await;
    let again = again.expect("it serves on").unwrap();
    again.release().await.unwrap();
}
