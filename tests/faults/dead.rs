//! Every public call while no server answers: each ends within its promised time, with an error
//! that says why.

use std::future::Future;
use std::ops::ControlFlow;
use std::pin::Pin;
use std::time::Duration;

use futures_util::future::join_all;
use lockkeeper::embedded::{Code, Match, Op};
use lockkeeper::{Error, Keeper, Owner, SessionEvent};
use tokio::time::{Instant, timeout};

use super::{SOON, T, keeper};

use testbench::proxy::{End, Proxies, Way};
use testbench::stall::Stall;
use testbench::{World, case, eventually};

const CONNECT: Duration = Duration::from_secs(1);
const PATIENCE: Duration = Duration::from_millis(300);
const SLACK: Duration = Duration::from_millis(100);

/// A call that should fail: its name, the time that it promises, and its error.
type Call = (
    &'static str,
    Duration,
    Pin<Box<dyn Future<Output = Error> + Send>>,
);

#[case(within = 60)]
async fn calls_end_in_time_when_every_server_refuses(world: World) {
    for _ in 0..World::times(1, 10) {
        let mut proxies = Proxies::before(&world);
        let (keeper, calls) = calls(&proxies).await;

        proxies.refuse().await;
        proxies.cut(End::Rst).await;

        all_end(calls).await;
        closes(keeper).await;
    }
}

#[case(within = 60)]
async fn calls_end_in_time_when_every_server_is_silent(world: World) {
    for _ in 0..World::times(1, 10) {
        let proxies = Proxies::before(&world);
        let (keeper, calls) = calls(&proxies).await;

        proxies.black_hole(Way::Both);

        all_end(calls).await;
        closes(keeper).await;
    }
}

#[case(within = 60)]
async fn a_keeper_closes_within_its_close_timeout_when_no_server_answers(world: World) {
    let default = Duration::from_secs(5);
    let tries = [(None, default), (Some(PATIENCE), PATIENCE)];
    for (given, limit) in tries {
        let (a, b) = tokio::join!(
            closes_before_dead_servers(&world, given, false),
            closes_before_dead_servers(&world, given, true),
        );
        for (what, took) in [a, b] {
            println!("{what}: {took:?} of {limit:?}");
            assert!(took <= limit + SLACK, "{what}: {took:?} of {limit:?}");
        }
    }
}

/// How long a close takes, besides stalls of the machine, of a keeper that has something to tell
/// the servers: a lock that is held, a release that has begun, and lines of the journal.
async fn closes_before_dead_servers(
    world: &World,
    close_timeout: Option<Duration>,
    refused: bool,
) -> (String, Duration) {
    let mut proxies = Proxies::before(world);
    let builder = Keeper::builder(proxies.connect_string()).journal(10);
    let builder = match close_timeout {
        Some(timeout) => builder.close_timeout(timeout),
        None => builder,
    };
    let keeper = builder.connect().await.unwrap();
    let lock = async |name: &str| {
        let name = format!("{name}-{refused}-{close_timeout:?}");
        keeper.mutex(&*name).unwrap().lock().await.unwrap()
    };
    let (held, released) = (lock("held").await, lock("released").await);
    match refused {
        true => {
            proxies.refuse().await;
            proxies.cut(End::Rst).await;
        }
        false => proxies.black_hole(Way::Both),
    }
    drop(released);
    let (began, stall) = (Instant::now(), Stall::watch());

    let closed = timeout(4 * SOON, keeper.close()).await;

    let took = began.elapsed().saturating_sub(stall.longest());
    closed.expect("it closes");
    assert!(!held.is_held());
    (format!("refused: {refused}, {close_timeout:?}"), took)
}

/// The end of the session removes what the release did not, also where the process ends next.
#[case(embedded)]
async fn a_close_leaves_time_to_end_the_session_if_a_release_has_no_end(world: World) {
    let keeper = Keeper::builder(world.connect_string()).close_timeout(CONNECT * 4);
    let keeper = keeper.connect().await.unwrap();
    let guard = keeper.mutex("endless").unwrap().lock().await.unwrap();
    let faults = world.embedded().faults();
    let session = faults.sessions()[0].id;
    for op in [Op::Delete, Op::Multi] {
        let requests = Match::op(op).session(session);
        faults.on(requests).times(100_000).fail(Code::Throttled);
    }
    drop(guard);
    let began = Instant::now();

    keeper.close().await;

    let left = faults.sessions().iter().any(|open| open.id == session);
    assert!(!left, "{:?}", began.elapsed());
}

/// Every call there is, ready to be made.
async fn calls(proxies: &Proxies) -> (Keeper, Vec<Call>) {
    let connect = || {
        Keeper::builder(proxies.connect_string())
            .session_timeout(T)
            .connect_timeout(CONNECT)
    };
    let keeper = connect().connect().await.unwrap();
    let lock = |name: &str| keeper.mutex(name).unwrap();
    let mut guards = Vec::new();
    for name in ["release", "check", "fenced", "run", "lost", "busy"] {
        guards.push(lock(name).lock().await.unwrap());
    }
    let [release, check, fenced, run, lost, busy]: [_; 6] = guards.try_into().unwrap();
    let (mut granted, mut advanced, position) = (
        lock("busy").enqueue().await.unwrap(),
        lock("busy").enqueue().await.unwrap(),
        lock("busy").enqueue().await.unwrap(),
    );
    // The client may take 1.8 T to know that its session is over, and then another one is tried
    // for.
    let over = T * 9 / 5 + CONNECT;
    let lease = T * 9 / 10;
    let (busy_lock, free, timed, tried, queued) = (
        lock("busy"),
        lock("free"),
        lock("timed"),
        lock("tried"),
        lock("queued"),
    );
    let (lister, looker) = (keeper.clone(), keeper.clone());
    let connecting = connect();
    let others = others(&keeper).await;
    let mut calls: Vec<Call> = vec![
        (
            "connect",
            CONNECT,
            Box::pin(async move { connecting.connect().await.unwrap_err() }),
        ),
        (
            "lock",
            over,
            Box::pin(async move { free.lock().await.unwrap_err() }),
        ),
        (
            "lock of a held one",
            over,
            Box::pin(async move { busy_lock.lock().await.unwrap_err() }),
        ),
        (
            "lock_timeout",
            PATIENCE,
            Box::pin(async move { timed.lock_timeout(PATIENCE).await.unwrap_err() }),
        ),
        (
            "try_lock",
            over,
            Box::pin(async move { tried.try_lock().await.unwrap_err() }),
        ),
        (
            "enqueue",
            over,
            Box::pin(async move { queued.enqueue().await.unwrap_err() }),
        ),
        (
            "Place::granted",
            over,
            Box::pin(async move { granted.granted().await.unwrap_err() }),
        ),
        (
            "Place::advanced",
            over,
            Box::pin(async move { advanced.advanced().await.unwrap_err() }),
        ),
        (
            "Place::position",
            over,
            Box::pin(async move { position.position().await.unwrap_err() }),
        ),
        (
            "queue",
            over,
            Box::pin(async move { looker.queue("busy").await.unwrap_err() }),
        ),
        (
            "locks",
            over,
            Box::pin(async move { lister.locks().await.unwrap_err() }),
        ),
        (
            "Guard::release",
            lease,
            Box::pin(async move { release.release().await.unwrap_err() }),
        ),
        (
            "Guard::check",
            lease,
            Box::pin(async move { check.check().await.unwrap_err() }),
        ),
        (
            "Guard::fenced",
            lease,
            Box::pin(async move { fenced.fenced().create("/x", "").commit().await.unwrap_err() }),
        ),
        (
            "Guard::run",
            lease,
            Box::pin(async move { run.run(std::future::pending::<()>()).await.unwrap_err() }),
        ),
        (
            "Guard::lost",
            lease,
            Box::pin(async move {
                let error = lost.lost().await;
                drop(busy);
                error
            }),
        ),
    ];
    calls.extend(others);
    (keeper, calls)
}

/// Those of elections, of read-write locks and of owners.
async fn others(keeper: &Keeper) -> Vec<Call> {
    let over = T * 9 / 5 + CONNECT;
    let lease = T * 9 / 10;
    let [campaign, leading, asked, followed] =
        ["campaign", "leading", "asked", "followed"].map(|name| keeper.election(name).unwrap());
    let (proclaiming, resigning) = (
        keeper.election("proclaiming").unwrap(),
        keeper.election("resigning").unwrap(),
    );
    let proclaiming = proclaiming.campaign("a").await.unwrap();
    let resigning = resigning.campaign("a").await.unwrap();
    let mut observer = followed.observe();
    let [reading, writing, down, up] =
        ["reading", "writing", "down", "up"].map(|name| keeper.rw_lock(name).unwrap());
    let (down, up) = (down.write().await.unwrap(), up.read().await.unwrap());
    let owned = keeper.mutex("owned").unwrap();
    let owned = owned.with_owner(&Owner::named("job"));
    let (first, timed) = (owned.clone(), owned);
    vec![
        (
            "Election::campaign_timeout",
            PATIENCE,
            Box::pin(async move { campaign.campaign_timeout("a", PATIENCE).await.unwrap_err() }),
        ),
        (
            "Election::lead",
            over,
            Box::pin(async move {
                let led = leading.lead("a", async |_| ControlFlow::Break(()));
                led.await.unwrap_err()
            }),
        ),
        (
            "Election::leader",
            over,
            Box::pin(async move { asked.leader().await.unwrap_err() }),
        ),
        (
            "Observer::changed",
            over,
            Box::pin(async move { observer.changed().await.unwrap_err() }),
        ),
        (
            "Leadership::proclaim",
            lease,
            Box::pin(async move { proclaiming.proclaim("b").await.unwrap_err() }),
        ),
        (
            "Leadership::resign",
            lease,
            Box::pin(async move { resigning.resign().await.unwrap_err() }),
        ),
        (
            "RwLock::read_timeout",
            PATIENCE,
            Box::pin(async move { reading.read_timeout(PATIENCE).await.unwrap_err() }),
        ),
        (
            "RwLock::write_timeout",
            PATIENCE,
            Box::pin(async move { writing.write_timeout(PATIENCE).await.unwrap_err() }),
        ),
        (
            "WriteGuard::downgrade",
            lease,
            Box::pin(async move { down.downgrade().await.unwrap_err() }),
        ),
        (
            "ReadGuard::try_upgrade",
            lease,
            Box::pin(async move { up.try_upgrade().await.unwrap_err().into() }),
        ),
        (
            "lock of an owner",
            over,
            Box::pin(async move { first.lock().await.unwrap_err() }),
        ),
        (
            "lock_timeout behind another call of the owner",
            PATIENCE,
            Box::pin(async move { timed.lock_timeout(PATIENCE).await.unwrap_err() }),
        ),
    ]
}

#[case(within = 60)]
async fn a_waiter_outlives_an_outage_that_is_longer_than_its_session(world: World) {
    let mut proxies = Proxies::before(&world);
    // Of the two only the waiter has an outage: the holder's lease outlasts a machine that stalls.
    let builder = Keeper::builder(world.connect_string()).session_timeout(T * 30);
    let (a, b) = (
        builder.connect().await.unwrap(),
        keeper(&proxies.connect_string()).await,
    );
    let guard = a.mutex("outage").unwrap().lock().await.unwrap();
    let lock = b.mutex("outage").unwrap();
    let waiting = tokio::spawn(async move { lock.lock().await });
    let both = || async { a.queue("outage").await.is_ok_and(|queue| queue.len() == 2) };
    eventually("both are in the queue", SOON, both).await;
    let mut events = b.session_events();

    proxies.refuse().await;
    proxies.cut(End::Rst).await;
    while !matches!(events.borrow(), SessionEvent::Over { .. }) {
        timeout(SOON, events.changed()).await.unwrap().unwrap();
    }
    // For a while no server gives another session either.
    let silence = timeout(T, events.changed()).await;
    proxies.accept().await;
    guard.release().await.unwrap();

    assert!(silence.is_err(), "{silence:?}");
    let guard = timeout(SOON, waiting).await.unwrap().unwrap();
    let guard = guard.expect("it has queued up again");
    // That it was granted is the point; a machine that stalls may take such a short lease at once.
    if let Err(error) = guard.release().await {
        assert!(error.is_lost(), "{error}");
    }
}

async fn all_end(calls: Vec<Call>) {
    let (began, stall) = (Instant::now(), Stall::watch());
    let ends = calls.into_iter().map(|(name, limit, call)| async move {
        let error = timeout(SOON, call).await;
        (name, limit, error, began.elapsed())
    });
    let mut late = Vec::new();
    for (name, limit, error, took) in join_all(ends).await {
        let Ok(error) = error else {
            late.push(format!("{name} never ended"));
            continue;
        };
        println!("{name}: {took:?} of {limit:?}: {error}");
        let is_typed =
            error.is_lost() || error.is_unreachable() || error.is_timeout() || error.is_unknown();
        assert!(is_typed, "{name}: {error:?}");
        if took > limit + SLACK + stall.longest() {
            late.push(format!("{name} took {took:?} of {limit:?}"));
        }
    }
    assert!(late.is_empty(), "{late:#?}");
}

async fn closes(keeper: Keeper) {
    let (began, stall) = (Instant::now(), Stall::watch());
    timeout(SOON, keeper.close())
        .await
        .expect("the keeper closes");
    let took = began.elapsed();
    assert!(took <= T + SLACK + stall.longest(), "close took {took:?}");
    let error = keeper.mutex("x").unwrap().lock().await.unwrap_err();
    assert!(error.is_closed(), "{error}");
}
