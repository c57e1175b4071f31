//! The cost of locking, counted: requests, watches and wake-ups, none of which may grow with the
//! queue.

pub(crate) mod beats;
pub(crate) mod bytes;
pub(crate) mod load;
pub(crate) mod scale;

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use lockkeeper::embedded::{Counters, Op};
use lockkeeper::{Guard, Keeper};
use testbench::proxy::{End, Proxies, Way};
use testbench::tickets::children;
use testbench::zookeeper::Servers;
use testbench::{Make, World, case, eventually, words};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{sleep, timeout};

/// The bytes of one ticket's name in a list.
const NAME: u64 = 4 + "lock-0000000000".len() as u64;

/// A keeper that sends no beat for ten minutes.
async fn keeper(world: &World) -> Keeper {
    let builder = Keeper::builder(world.connect_string());
    let builder = builder.session_timeout(Duration::from_secs(3600));
    builder.connect().await.unwrap()
}

/// Requests but for those of the sessions themselves: pings come with time, and the close of a
/// further session with the end of a crowd too large for one.
fn requests(counters: &Counters) -> u64 {
    counters.requests() - counters.get(Op::Ping) - counters.get(Op::CloseSession)
}

#[case(embedded)]
async fn an_uncontended_lock_costs_two_requests_and_its_release_one(world: World) {
    let (keeper, server) = (keeper(&world).await, world.embedded());
    let lock = keeper.mutex("cost").unwrap();
    lock.lock().await.unwrap().release().await.unwrap();
    for _ in 0..100 {
        let before = server.counters();
        let guard = lock.lock().await.unwrap();
        let locked = server.counters();
        guard.release().await.unwrap();
        let released = server.counters();

        let (lock, release) = (locked.since(&before), released.since(&locked));
        assert_eq!(
            [Op::Create, Op::MultiRead].map(|op| lock.get(op)),
            [1, 1],
            "{lock:?}"
        );
        assert_eq!(requests(&lock), 2, "{lock:?}");
        assert_eq!(release.get(Op::Multi), 1, "{release:?}");
        assert_eq!(requests(&release), 1, "{release:?}");
        assert_eq!(released.watches, 0);
    }
}

#[case(embedded)]
async fn a_free_lock_costs_one_round_trip_and_its_release_one(world: World) {
    const ROUND_TRIP: Duration = Duration::from_millis(40);
    let proxies = Proxies::before(&world);
    let builder = Keeper::builder(proxies.connect_string());
    let keeper = builder.connect().await.unwrap();
    let lock = keeper.mutex("cost").unwrap();
    lock.lock().await.unwrap().release().await.unwrap();
    proxies.delay(Way::Both, ROUND_TRIP / 2);
    for connection in ["the first", "the next"] {
        let (mut locks, mut releases) = (Vec::new(), Vec::new());
        for _ in 0..11 {
            let began = Instant::now();
            let guard = lock.lock().await.unwrap();
            let locked = began.elapsed();
            guard.release().await.unwrap();
            locks.push(locked);
            releases.push(began.elapsed() - locked);
        }

        // A stall of the machine makes a time longer, and none shorter.
        for times in [&locks, &releases] {
            let shortest = times.iter().min().unwrap();
            assert!(
                (ROUND_TRIP..ROUND_TRIP * 3 / 2).contains(shortest),
                "on {connection} connection: {times:?}"
            );
        }
        proxies.cut(End::Rst).await;
        lock.lock().await.unwrap().release().await.unwrap();
    }
}

/// The next one asks right behind the release, and waits neither for its answer nor for the event.
#[case(within = 120)]
async fn a_hand_over_within_a_session_costs_one_round_trip(world: World) {
    const ROUND_TRIP: Duration = Duration::from_millis(200);
    const WAITERS: usize = 20;
    let proxies = Proxies::before(&world);
    let stranger = world.raw().await;
    let builder = Keeper::builder(proxies.connect_string());
    let keeper = builder.connect().await.unwrap();
    let lock = keeper.mutex("hand").unwrap();
    let first = lock.lock().await.unwrap();
    let crowd: Vec<_> = (0..WAITERS)
        .map(|number| {
            let lock = lock.clone();
            tokio::spawn(async move {
                let guard = lock.lock().await.unwrap();
                let granted = Instant::now();
                let is_dropped = number % 2 == 0;
                if !is_dropped {
                    guard.release().await.unwrap();
                }
                (granted, is_dropped)
            })
        })
        .collect();
    let queued = || async { children(&stranger, "hand").await.len() == WAITERS + 1 };
    eventually("all are in the queue", Duration::from_secs(20), queued).await;
    proxies.delay(Way::Both, ROUND_TRIP / 2);

    first.release().await.unwrap();

    let granted = timeout(Duration::from_secs(60), join_all(crowd)).await;
    let granted = granted.expect("the queue drains").into_iter();
    let mut granted: Vec<(Instant, bool)> = granted.map(Result::unwrap).collect();
    granted.sort_unstable();
    for dropped in [false, true] {
        let pairs = granted.windows(2).filter(|pair| pair[0].1 == dropped);
        let mut times: Vec<Duration> = pairs.map(|pair| pair[1].0 - pair[0].0).collect();
        times.sort_unstable();
        // A stall of the machine makes a time longer, and none shorter.
        let (shortest, median) = (times[0], times[times.len() / 2]);
        assert!(
            shortest >= ROUND_TRIP && median < ROUND_TRIP * 7 / 4,
            "dropped: {dropped}: {times:?}"
        );
    }
}

#[case(embedded)]
async fn a_contended_lock_costs_three_requests_to_queue_up(world: World) {
    let (keeper, server) = (keeper(&world).await, world.embedded());
    let lock = keeper.mutex("cost").unwrap();
    let guard = lock.lock().await.unwrap();
    let crowd = waiters(&world, &keeper, "cost", 50).await;
    let before = server.counters();

    let more = waiters(&world, &keeper, "cost", 1).await;

    let cost = server.counters().since(&before);
    assert_eq!(
        [Op::Create, Op::MultiRead, Op::GetData].map(|op| cost.get(op)),
        [1, 1, 1],
        "{cost:?}"
    );
    assert_eq!(requests(&cost), 3, "{cost:?}");
    drop(guard);
    drain(crowd.into_iter().chain(more)).await;
}

#[case(embedded)]
async fn a_hand_over_costs_two_requests_and_one_event_whatever_the_number_of_waiters(world: World) {
    let (keeper, server) = (keeper(&world).await, world.embedded());
    for count in [1, 10, 100, 1000] {
        let guard = keeper.mutex("hand").unwrap().lock().await.unwrap();
        let crowd = waiters(&world, &keeper, "hand", count).await;
        let before = server.counters();
        assert_eq!(before.watches, count as u64, "one watch each");

        drop(guard);
        drain(crowd).await;

        // The first release and all that follow; the last one is a release without a successor.
        eventually("the last release is in", Duration::from_secs(5), || async {
            server.counters().since(&before).get(Op::Multi) == count as u64 + 1
        })
        .await;
        let cost = server.counters().since(&before);
        assert_eq!(
            cost.events, count as u64,
            "one wake-up for each release with a successor"
        );
        // Where a busy machine makes a hold last a second, a sync and a read precede its release.
        let late = cost.get(Op::Sync);
        assert!(late <= count as u64 / 100 + 1, "{cost:?}");
        assert_eq!(
            cost.get(Op::MultiRead) - late,
            count as u64,
            "one read for each release with a successor: {cost:?}"
        );
        assert_eq!(requests(&cost), 2 * (count as u64 + late) + 1, "{cost:?}");
        assert_eq!(cost.watches, 0);
    }
}

#[case(embedded)]
async fn a_waiter_that_gives_up_costs_seven_requests_and_one_list_of_the_queue(world: World) {
    let (keeper, server) = (keeper(&world).await, world.embedded());
    for count in [100, 1000] {
        let name = format!("left-{count}");
        let guard = keeper.mutex(&*name).unwrap().lock().await.unwrap();
        let before_it = waiters(&world, &keeper, &name, count / 2).await;
        let leaving = waiters(&world, &keeper, &name, 1).await;
        let behind_it = waiters(&world, &keeper, &name, count / 2).await;
        let before = server.counters();

        leaving[0].abort();
        // It takes its watch back, asks whether the ticket is still its own, and removes it; the
        // one behind it looks, lists, and watches another.
        let all = || async { requests(&server.counters().since(&before)) >= 7 };
        eventually("the next one watches", Duration::from_secs(5), all).await;

        let cost = server.counters().since(&before);
        let kinds = [
            Op::RemoveWatches,
            Op::Sync,
            Op::Delete,
            Op::MultiRead,
            Op::GetData,
        ];
        assert_eq!(kinds.map(|op| cost.get(op)), [1, 1, 1, 3, 1], "{cost:?}");
        assert_eq!((cost.events, cost.watches), (1, count as u64), "{cost:?}");
        let names = (count as u64 + 1) * NAME;
        assert!((names..names + 2000).contains(&cost.bytes_out), "{cost:?}");
        drop(guard);
        drain(before_it.into_iter().chain(behind_it)).await;
    }
}

#[case(embedded)]
async fn a_holder_that_crashes_costs_the_next_one_two_reads_one_of_them_a_list(world: World) {
    const COUNT: usize = 500;
    let server = world.embedded();
    let keeper = keeper(&world).await;
    let lock = keeper.mutex("crash").unwrap();
    lock.lock().await.unwrap().release().await.unwrap();
    // Not a keeper's: that would open another session, and look around.
    let holder = world.raw().await;
    let start = "/locks/crash/lock-";
    let make = Make::EphemeralSequential;
    holder.create(start, b"", &make).await.unwrap();
    let session = holder.session_id().0;
    let crowd = waiters(&world, &keeper, "crash", COUNT).await;
    let before = server.counters();

    // The one that is granted does not release before the others are counted.
    server.faults().expire_session(session);
    let mut crowd: JoinSet<_> = crowd.into_iter().collect();
    let next = crowd.join_next().await.unwrap().unwrap().unwrap().unwrap();

    let cost = server.counters().since(&before);
    assert_eq!((cost.events, cost.get(Op::MultiRead)), (1, 2), "{cost:?}");
    let names = COUNT as u64 * NAME;
    assert!(cost.bytes_out >= names, "{cost:?}");
    drop(next);
}

#[case(embedded)]
async fn a_dropped_guard_costs_one_request(world: World) {
    let (keeper, server) = (keeper(&world).await, world.embedded());
    let lock = keeper.mutex("cost").unwrap();
    let guard = lock.lock().await.unwrap();
    let before = server.counters();

    drop(guard);

    eventually("it is released", Duration::from_secs(1), || async {
        server.counters().since(&before).get(Op::Multi) == 1
    })
    .await;
    assert_eq!(requests(&server.counters().since(&before)), 1);
}

#[case(embedded)]
async fn a_release_after_a_long_hold_costs_two_requests_more(world: World) {
    let (keeper, server) = (keeper(&world).await, world.embedded());
    let guard = keeper.mutex("cost").unwrap().lock().await.unwrap();
    // The name of a ticket that was not read for a second may be a stranger's by now.
    sleep(Duration::from_millis(1100)).await;
    let before = server.counters();

    guard.release().await.unwrap();

    let cost = server.counters().since(&before);
    assert_eq!(
        [Op::Sync, Op::MultiRead, Op::Multi].map(|op| cost.get(op)),
        [1, 1, 1],
        "{cost:?}"
    );
    assert_eq!(requests(&cost), 3, "{cost:?}");
}

#[case(embedded)]
async fn a_lock_at_a_new_name_costs_a_create_for_each_step_and_a_lock_in_vain(world: World) {
    let (keeper, server) = (keeper(&world).await, world.embedded());
    let before = server.counters();

    let _guard = keeper.mutex("new/name").unwrap().lock().await.unwrap();

    let cost = server.counters().since(&before);
    // `/locks`, `/locks/new` and `/locks/new/name`.
    assert_eq!(
        [Op::Create, Op::CreateContainer].map(|op| cost.get(op)),
        [2 + 1, 2],
        "{cost:?}"
    );
    // On a busy machine the first speculative read is sent so late that it serves both creates.
    let reads = cost.get(Op::MultiRead);
    assert!((1..=2).contains(&reads), "{cost:?}");
    assert_eq!(requests(&cost), 2 + 3 + reads, "{cost:?}");
}

#[case(embedded)]
async fn a_try_lock_on_a_held_lock_costs_two_reads_whatever_the_number_of_waiters(world: World) {
    let (keeper, server) = (keeper(&world).await, world.embedded());
    let lock = keeper.mutex("cost").unwrap();
    lock.lock().await.unwrap().release().await.unwrap();
    let guard = lock.lock().await.unwrap();
    let crowd = waiters(&world, &keeper, "cost", 200).await;
    let before = server.counters();

    assert!(lock.try_lock().await.unwrap().is_none());

    let cost = server.counters().since(&before);
    assert_eq!(
        (requests(&cost), cost.get(Op::MultiRead)),
        (2, 2),
        "{cost:?}"
    );
    assert!(cost.bytes_out < 1000, "{cost:?}");
    drop(guard);
    drain(crowd).await;
}

#[case(real, within = 120)]
async fn a_thousand_waiters_hold_one_watch_each_on_a_real_server(_world: World) {
    // A server of its own: the others count the watches of the neighbours too.
    let servers = tokio::task::spawn_blocking(|| Servers::start(1))
        .await
        .unwrap()
        .unwrap();
    let address = servers.addresses()[0];
    let keeper = Keeper::connect(address.to_string()).await.unwrap();
    let guard = keeper.mutex("watched").unwrap().lock().await.unwrap();

    let crowd: Vec<_> = (0..1000)
        .map(|_| spawn_waiter(&keeper, "watched"))
        .collect();
    eventually("a thousand watches", Duration::from_secs(30), || async {
        words::wchs(&words::word(address, "wchs").await).watches == 1000
    })
    .await;
    assert_eq!(
        words::wchs(&words::word(address, "wchs").await).paths,
        1000,
        "each watches another ticket"
    );

    drop(guard);
    drain(crowd).await;
    assert_eq!(words::wchs(&words::word(address, "wchs").await).watches, 0);
    keeper.close().await;
    tokio::task::spawn_blocking(move || drop(servers))
        .await
        .unwrap();
}

fn spawn_waiter(keeper: &Keeper, lock: &str) -> JoinHandle<lockkeeper::Result<Guard>> {
    let lock = keeper.mutex(lock).unwrap();
    tokio::spawn(async move { lock.lock().await })
}

/// Lets some more wait for an embedded lock that is held, until each has its watch.
async fn waiters(
    world: &World,
    keeper: &Keeper,
    lock: &str,
    count: usize,
) -> Vec<JoinHandle<lockkeeper::Result<Guard>>> {
    let watches = || world.embedded().counters().watches;
    let before = watches();
    let crowd: Vec<_> = (0..count).map(|_| spawn_waiter(keeper, lock)).collect();
    let queued = || async { watches() == before + count as u64 };
    eventually("all watch", Duration::from_secs(20), queued).await;
    crowd
}

/// Releases as they come; each waiter that was granted lets the next one in.
async fn drain(crowd: impl IntoIterator<Item = JoinHandle<lockkeeper::Result<Guard>>>) {
    let releases = crowd.into_iter().map(|waiter| async {
        waiter.await.unwrap().unwrap().release().await.unwrap();
    });
    timeout(Duration::from_secs(60), join_all(releases))
        .await
        .expect("the queue drains");
}
