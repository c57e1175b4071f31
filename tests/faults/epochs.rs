//! Real servers that begin another history: they are killed and start again, a replica takes over,
//! or all is gone. What holders, waiters and the store's next clients see of it.
//!
//! Each case has servers of its own. What a cut off primary does is in `cut_off.rs`.

mod cut_off;

use std::fs::File;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use lockkeeper::{Guard, Keeper};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::{SOON, T, granted, keeper, released, released_well, watched};
use testbench::checker::{Bounds, assert_clean, stays_alive, violations};
use testbench::children;
use testbench::client::Fleet;
use testbench::events::{Event, Log, Nanos, Outcome, What, now};
use testbench::pair::{self, Pair};
use testbench::protocol::Protocol;
use testbench::proxy::Proxy;
use testbench::stall::Stall;
use testbench::store::Fence;
use testbench::{World, case, eventually};

const LOCK: &str = "epochs";
/// What an old primary and the clock may take, in `src/protocol/epoch.rs`.
const MARGIN: Duration = Duration::from_secs(5);
/// Nobody is let in for so long, if the store still knows that no session was longer than T.
const KNOWN: Duration = T.saturating_add(MARGIN);
/// The same if it knows nothing any more.
const UNKNOWN: Duration = Duration::from_secs(30).saturating_add(MARGIN);

#[case(redis, within = 90)]
async fn a_redis_that_was_killed_lets_two_hold_at_no_time(_world: World) {
    let file = &["--appendonly", "yes"];
    let kept = async {
        let scene = Scene::on(Pair::alone(Protocol::Redis, file).await, KNOWN).await;
        scene.plays(killed, "killed").await;
    };
    let suffix_lost = async {
        let mut scene = Scene::on(Pair::alone(Protocol::Redis, file).await, KNOWN).await;
        let file = append_only_file(&mut scene.pair);
        let known = file.metadata().unwrap().len();
        let hurt = async |pair: &mut Pair, _: &Proxy| {
            pair.kill().await;
            // As after a crash of the machine: nothing of the holder was on disk yet.
            file.set_len(known).unwrap();
            let since = now();
            pair.launch().await;
            since
        };
        scene.plays(hurt, "a suffix is lost").await;
    };
    tokio::join!(kept, suffix_lost);
}

#[case(redis, within = 150)]
async fn a_redis_that_has_lost_all_lets_two_hold_at_no_time(_world: World) {
    let not_kept = async {
        let scene = Scene::on(Pair::alone(Protocol::Redis, &[]).await, UNKNOWN).await;
        scene.plays(killed, "nothing was kept").await;
    };
    let emptied = async {
        let scene = Scene::on(Pair::alone(Protocol::Redis, &[]).await, UNKNOWN).await;
        let hurt = async |pair: &mut Pair, _: &Proxy| {
            let since = now();
            drop(pair::redis::<String>(pair.address(), &["FLUSHALL"]).await);
            since
        };
        scene.plays(hurt, "emptied").await;
    };
    tokio::join!(not_kept, emptied);
}

#[case(redis, within = 90)]
async fn a_redis_replica_that_lagged_lets_two_hold_at_no_time(_world: World) {
    lagging(Protocol::Redis).await;
}

#[case(postgres, within = 90)]
async fn a_postgresql_standby_that_lagged_lets_two_hold_at_no_time(_world: World) {
    lagging(Protocol::Postgres).await;
}

/// What the holder has written never comes to the replica that takes over.
async fn lagging(protocol: Protocol) {
    let scene = Scene::on(Pair::start(protocol).await, KNOWN).await;
    scene.pair.catches_up().await;
    if protocol == Protocol::Redis {
        // The holder may be slow, and this primary would not wait for it.
        writes_alone(scene.pair.address()).await;
    }
    scene.pair.part();
    let hurt = async |pair: &mut Pair, front: &Proxy| {
        pair.kill().await;
        let since = now();
        drop(pair.promote().await);
        front.lead_to(pair.address());
        if pair.protocol() == Protocol::Redis {
            writes_alone(pair.address()).await;
        }
        since
    };
    scene.plays(hurt, "a replica that lagged").await;
}

#[case(postgres, within = 90)]
async fn a_postgresql_that_was_ended_at_once_lets_two_hold_at_no_time(_world: World) {
    let at_once = async |pair: &mut Pair, _: &Proxy| {
        pair.end_at_once().await;
        let since = now();
        pair.launch().await;
        since
    };
    let ended = async {
        let scene = Scene::on(Pair::alone(Protocol::Postgres, &[]).await, KNOWN).await;
        scene.plays(at_once, "ended at once").await;
    };
    let killed = async {
        let scene = Scene::on(Pair::alone(Protocol::Postgres, &[]).await, KNOWN).await;
        scene.plays(killed, "killed").await;
    };
    tokio::join!(ended, killed);
}

/// The old primary is there, and those who are connected go on asking it.
#[case(postgres, within = 90)]
async fn a_postgresql_standby_that_commits_wait_for_takes_over_and_loses_nothing(_world: World) {
    let scene = Scene::on(Pair::start(Protocol::Postgres).await, KNOWN).await;
    scene.pair.wait_for_it().await;
    let mut still_there = None;
    let hurt = async |pair: &mut Pair, front: &Proxy| {
        pair.part();
        let since = now();
        still_there = Some(pair.promote().await);
        front.lead_to(pair.address());
        since
    };
    scene.plays(hurt, "a standby that has all").await;
    drop(still_there);
}

/// Has a Redis server write without a replica.
async fn writes_alone(server: SocketAddr) {
    let alone = ["CONFIG", "SET", "min-replicas-to-write", "0"];
    drop(pair::redis::<String>(server, &alone).await);
}

async fn killed(pair: &mut Pair, _: &Proxy) -> Nanos {
    pair.kill().await;
    let since = now();
    pair.launch().await;
    since
}

fn append_only_file(pair: &mut Pair) -> File {
    let folder: PathBuf = pair.primary().folder().join("appendonlydir");
    let files = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap());
    let is_tail = |path: &PathBuf| path.to_string_lossy().ends_with(".incr.aof");
    let tail = files.map(|file| file.path()).find(is_tail).unwrap();
    File::options().write(true).open(tail).unwrap()
}

/// A store, whose address leads to another server after a promotion; a holder, a waiter, and one
/// whose patience is short.
struct Scene {
    pair: Pair,
    front: Proxy,
    fleet: Fleet,
    pause: Duration,
    holder: Keeper,
    waiter: Keeper,
    impatient: Keeper,
}

impl Scene {
    async fn on(pair: Pair, pause: Duration) -> Self {
        pair.make(T).await;
        let front = Proxy::of_bytes(pair.address()).unwrap();
        let at = pair.stored().at(front.address());
        let scene = Self {
            fleet: Fleet::new(at.clone(), LOCK, T, Fence::Refuses).await,
            holder: keeper(&at).await,
            waiter: keeper(&at).await,
            impatient: keeper(&at).await,
            pair,
            front,
            pause,
        };
        // Something is there before it is hurt.
        let guard = granted(&scene.waiter, LOCK, &scene.fleet.log().of("before")).await;
        released(guard, &scene.fleet.log().of("before")).await;
        scene
    }

    fn waits(&self, log: &Log) -> JoinHandle<Guard> {
        let (keeper, log) = (self.waiter.clone(), log.clone());
        tokio::spawn(async move { granted(&keeper, LOCK, &log).await })
    }

    /// Its call ends in time, whatever the store does.
    fn gives_up(&self, log: &Log) -> JoinHandle<()> {
        let (lock, log) = (self.impatient.mutex(LOCK).unwrap(), log.clone());
        let (attempt, limit) = (1, 3 * T);
        let within_ns = Some(u64::try_from(limit.as_nanos()).unwrap());
        tokio::spawn(async move {
            log.note(What::Asked { attempt, within_ns });
            let error = lock.lock_timeout(limit).await.unwrap_err();
            let is_typed = error.is_timeout() || error.is_unreachable();
            assert!(is_typed, "{error}");
            let why = error.to_string();
            log.note(What::Failed { attempt, why });
        })
    }

    /// `hurt` gives the moment before which the other history has surely not begun.
    async fn plays(mut self, hurt: impl AsyncFnOnce(&mut Pair, &Proxy) -> Nanos, kind: &str) {
        let stall = Stall::watch();
        let [log_a, log_b, log_c] = ["a", "b", "c"].map(|name| self.fleet.log().of(name));
        let guard = granted(&self.holder, LOCK, &log_a).await;
        let (token, waiting) = (guard.token(), self.waits(&log_b));
        let all_wait = async |count| {
            eventually("all are in the queue", SOON, || async {
                let queue = self.waiter.queue(LOCK).await;
                queue.is_ok_and(|queue| queue.len() == count)
            })
            .await;
        };
        all_wait(2).await;
        let gives_up = self.gives_up(&log_c);
        all_wait(3).await;

        let kind = kind.to_owned();
        self.fleet.log().note(What::Fault { kind: kind.clone() });
        let watched = watched(guard, &log_a);
        let since = hurt(&mut self.pair, &self.front).await;
        let next = timeout(self.pause + SOON, waiting).await;
        let next = next.expect("the call goes on").unwrap();
        let guard = watched.await.unwrap();
        self.fleet.log().note(What::Healed);
        gives_up.await.unwrap();

        assert!(next.token() > token, "{kind}: {} > {token}", next.token());
        assert_eq!(released(guard, &log_a).await, Outcome::Lost);
        released_well(next, &log_b, &stall).await;
        self.ends(since, &kind, &stall).await;
    }

    /// The pause was kept, nothing is left, and the judge finds nothing.
    async fn ends(self, since: Nanos, kind: &str, stall: &Stall) {
        let later = keeper(&self.pair.stored().at(self.front.address())).await;
        let lock = later.mutex(LOCK).unwrap();
        let at_once = timeout(SOON, lock.lock()).await.unwrap().unwrap();
        at_once.release().await.unwrap();
        let stored = self.pair.stored().clone();
        let stranger = stored.stranger().await.unwrap();
        eventually("no ticket is left", SOON, || async {
            children(&stranger, LOCK).await.is_empty()
        })
        .await;
        for keeper in [self.holder, self.waiter, self.impatient] {
            keeper.close().await;
        }
        // That of the keeper which came later, and the stranger's.
        eventually("no session of before is left", SOON, || async {
            stored.sessions().await.unwrap() == 2
        })
        .await;

        let history = self.fleet.history();
        let time = |who: &str, is: fn(&What) -> bool| {
            let theirs = |event: &&Event| event.client == who && is(&event.what);
            history.events.iter().find(theirs).unwrap().t_ns
        };
        let lost = time("a", |what| matches!(what, What::Lost { .. }));
        let next = time("b", |what| matches!(what, What::Granted { .. }));
        let waited = Duration::from_nanos(next.saturating_sub(since));
        println!(
            "{kind}: nobody was let in for {waited:?}, the holder knew {:?} before",
            Duration::from_nanos(next.saturating_sub(lost))
        );
        assert!(waited >= self.pause, "{kind}: {waited:?}");
        assert!(waited < self.pause + Duration::from_secs(5) + 10 * stall.longest());
        assert_clean(&violations(&history));
        let bounds = Bounds {
            notice: Duration::from_millis(50) + stall.longest(),
            call: Duration::from_millis(200) + 2 * stall.longest(),
            ..Bounds::within(Duration::from_secs(5))
        };
        assert_clean(&stays_alive(&history, &bounds));
        later.close().await;
    }
}
