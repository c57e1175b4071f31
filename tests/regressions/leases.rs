//! Two holders, as a guard sees it: who has lost a lock is told before the next one gets it, once
//! and for all.

use std::future::Future;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use lockkeeper::{Guard, GuardState, Keeper};
use tokio::io::AsyncReadExt;
use tokio::net::TcpListener;
use tokio::time::{sleep, timeout};

use super::{A_WHILE, SOON, T, calm_keeper_by, keeper_by, own_session, session_of, way};
use testbench::frames::{Matching, Operation};
use testbench::proxy::{End, Proxy, Way};
use testbench::stall::Stall;
use testbench::zookeeper::Servers;
use testbench::{Make, World, case, eventually};
use testbench::{children, keeper};

/// For a busy machine, on top of what is promised.
const SLACK: Duration = Duration::from_millis(250);

/// Takes and releases nothing: just holds through a proxy.
async fn held_by(proxy: &Proxy, world: &World, lock: &str) -> (Keeper, Guard) {
    let keeper = keeper_by(proxy, world).await;
    let guard = keeper.mutex(lock).unwrap().lock().await.unwrap();
    (keeper, guard)
}

/// When a future ended, and with what.
async fn timed<T>(work: impl Future<Output = T>) -> (Instant, T) {
    let value = work.await;
    (Instant::now(), value)
}

fn assert_lost(guard: &Guard) {
    assert!(!guard.is_held());
    assert_eq!(guard.state(), GuardState::Lost);
    assert_eq!(guard.valid_for(), Duration::ZERO);
}

#[case]
async fn row_16_a_holder_in_a_partition_is_told_before_the_next_one_is_granted(world: World) {
    let (proxy, near) = (world.proxy(), keeper(&world).await);
    let (_far, first) = held_by(&proxy, &world, "cut").await;
    let lock = near.mutex("cut").unwrap();
    let next = tokio::spawn(async move { timed(lock.lock()).await });

    proxy.black_hole(Way::Both);
    let (told, error) = timeout(SOON, timed(first.lost()))
        .await
        .expect("it is told");
    let (granted, second) = timeout(SOON, next).await.expect("it is granted").unwrap();
    let second = second.unwrap();

    assert!(error.is_lost(), "{error}");
    assert!(told < granted, "told {:?} too late", told - granted);
    assert_lost(&first);
    assert!(second.is_held());
    assert!(first.token() < second.token());
    // Once it is back, nothing it does touches the other's nodes.
    proxy.heal();
    assert!(first.release().await.unwrap_err().is_lost());
    second.check().await.unwrap();
    second.release().await.unwrap();
}

#[case]
async fn row_20_two_reconnects_in_a_row_leave_each_participant_one_place(world: World) {
    let proxy = world.proxy();
    let (near, stranger) = (keeper(&world).await, world.raw().await);
    let held = near.mutex("twice").unwrap().lock().await.unwrap();
    let mut places = Vec::new();
    let mut keepers = Vec::new();
    for _ in 0..2 {
        let keeper = calm_keeper_by(&proxy, &world).await;
        places.push(keeper.mutex("twice").unwrap().enqueue().await.unwrap());
        keepers.push(keeper);
    }
    let before = near.queue("twice").await.unwrap();
    let waiting = places
        .into_iter()
        .map(|mut place| tokio::spawn(async move { place.granted().await }));
    let mut waiting: Vec<_> = waiting.collect();

    for _ in 0..3 {
        for _ in 0..2 {
            eventually("both are connected", SOON, || async {
                proxy.connections() == 2
            })
            .await;
            proxy.cut(End::Rst).await;
        }
    }
    let mut nodes = children(&stranger, "twice").await;
    nodes.sort_unstable();
    let expected: Vec<_> = before.iter().map(|entry| entry.node.clone()).collect();
    assert_eq!(nodes, expected);

    held.release().await.unwrap();
    let first = timeout(SOON, &mut waiting[0])
        .await
        .unwrap()
        .unwrap()
        .unwrap();
    assert_eq!(first.node(), expected[1]);
    let ended = timeout(A_WHILE, &mut waiting[1]).await;
    assert!(ended.is_err(), "{ended:?}");
    first.release().await.unwrap();
    let second = timeout(SOON, &mut waiting[1])
        .await
        .unwrap()
        .unwrap()
        .unwrap();
    second.release().await.unwrap();
}

/// A resource that compares tokens.
#[derive(Debug, Default)]
struct Register {
    newest: Option<lockkeeper::Token>,
    values: Vec<u32>,
}

impl Register {
    /// Replaces the values; refused if a newer holder was here.
    fn write(&mut self, token: lockkeeper::Token, values: Vec<u32>) -> bool {
        let is_newest = self.newest.is_none_or(|newest| newest <= token);
        if is_newest {
            (self.newest, self.values) = (Some(token), values);
        }
        is_newest
    }
}

#[case]
async fn row_22_no_acknowledged_write_is_lost_to_a_holder_who_was_away(world: World) {
    let proxy = world.proxy();
    let (near, stranger) = (keeper(&world).await, world.raw().await);
    let options = Make::Persistent;
    stranger.create("/values", b"none", &options).await.unwrap();
    let mut register = Register::default();
    let mut acknowledged = Vec::new();
    for round in 0..2 {
        let (_far, away) = held_by(&proxy, &world, "values").await;
        let mut read = register.values.clone();

        // Between its read and its write it is away for too long, and another client reads and
        // writes.
        proxy.black_hole(Way::Both);
        let here = timeout(SOON, near.mutex("values").unwrap().lock()).await;
        let here = here.expect("it is granted").unwrap();
        let mut other = register.values.clone();
        other.push(2 * round);
        assert!(register.write(here.token(), other));
        acknowledged.push(2 * round);
        here.fenced()
            .set("/values", format!("{round}").as_bytes(), None)
            .commit()
            .await
            .unwrap();
        proxy.heal();
        read.push(2 * round + 1);
        if register.write(away.token(), read) {
            acknowledged.push(2 * round + 1);
        }
        let late = away.fenced().set("/values", b"late", None).commit().await;

        assert!(late.unwrap_err().is_lost());
        assert!(away.run(async {}).await.unwrap_err().is_lost());
        stranger.catch_up().await.unwrap();
        let (data, _) = stranger.get_data("/values").await.unwrap();
        assert_eq!(data, format!("{round}").as_bytes());
        here.release().await.unwrap();
    }
    assert_eq!(register.values, acknowledged);
    assert_eq!(acknowledged, [0, 2], "who was away was refused");
}

#[case]
async fn row_25_times_of_day_in_tickets_change_nothing(world: World) {
    let (keeper, stranger) = (keeper(&world).await, world.raw().await);
    let lock = keeper.mutex("times").unwrap();
    lock.lock().await.unwrap().release().await.unwrap();
    let options = Make::EphemeralSequential;
    // An hour behind, an hour ahead, the beginning and the end of time.
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap()
        .as_millis();
    for at in [now - 3_600_000, now + 3_600_000, 0, u128::from(u64::MAX)] {
        let line = format!(
            r#"{{"host":"elsewhere","pid":1,"attempt":"00000000-0000-0000-0000-000000000001","at":{at}}}"#
        );
        let create = stranger.create("/locks/times/lock-", line.as_bytes(), &options);
        let (_, number) = create.await.unwrap();
        let mut place = lock.enqueue().await.unwrap();

        assert!(timeout(A_WHILE, place.granted()).await.is_err(), "{at}");
        let path = format!("/locks/times/lock-{number}");
        stranger.delete(&path, None).await.unwrap();
        let guard = timeout(SOON, place.granted()).await.unwrap().unwrap();
        assert!(guard.is_held());
        guard.release().await.unwrap();
    }
}

#[case]
async fn row_25_nothing_but_a_label_reads_the_time_of_day(_world: World) {
    fn rust_files(folder: &std::path::Path, found: &mut Vec<std::path::PathBuf>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                rust_files(&path, found);
            } else if path.extension().is_some_and(|end| end == "rs") {
                found.push(path);
            }
        }
    }
    let source = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    rust_files(&source, &mut files);
    let mut readers = Vec::new();
    for file in &files {
        let below = file.strip_prefix(&source).unwrap().to_str().unwrap();
        if below.starts_with("tests") {
            continue;
        }
        let text = std::fs::read_to_string(file).unwrap();
        let is_reader = [
            "SystemTime::now",
            "UNIX_EPOCH.elapsed",
            "Realtime",
            "CLOCK_REALTIME",
        ]
        .iter()
        .any(|word| text.contains(word));
        if is_reader {
            readers.push(below.to_owned());
        }
    }
    assert!(files.len() > 20, "{files:?}");
    // The time in a ticket's data line, for people.
    assert_eq!(readers, ["queue/mod.rs"]);
}

#[case]
async fn row_26_a_healthy_holder_that_reconnects_again_and_again_keeps_its_lock(world: World) {
    let proxy = world.proxy();
    let keeper = calm_keeper_by(&proxy, &world).await;
    let guard = keeper.mutex("healthy").unwrap().lock().await.unwrap();
    let token = guard.token();
    let mut lost = guard.lost();
    for round in 0..World::times(6, 150) {
        let connected = || async { proxy.connections() > 0 };
        eventually("it is connected", SOON, connected).await;
        // The life itself: a third of the session timeout.
        let ended = timeout(T * 4 / 3, &mut lost).await;
        assert!(ended.is_err(), "lost in round {round}: {ended:?}");
        proxy.cut(End::Rst).await;
    }

    assert!(guard.is_held());
    assert_eq!(guard.token(), token);
    guard.check().await.unwrap();
    guard.release().await.unwrap();
}

#[case(
    zookeeper,
    why = "a handshake that gives another session instead of the old one"
)]
async fn row_27_another_session_in_place_of_the_old_one_is_a_loss(world: World) {
    let proxy = world.proxy();
    let keeper = calm_keeper_by(&proxy, &world).await;
    let guards = join_all(["a", "b", "c"].map(|name| {
        let lock = keeper.mutex(name).unwrap();
        async move { lock.lock().await.unwrap() }
    }))
    .await;
    let session = session_of(&keeper, "a").await;
    let near = testbench::keeper(&world).await;
    let lock = near.mutex("a").unwrap();
    let next = tokio::spawn(async move { timed(lock.lock()).await });

    proxy.swap_next_session();
    proxy.cut(End::Fin).await;

    let lost = timed(join_all(guards.iter().map(Guard::lost)));
    let (told, errors) = timeout(SOON, lost).await.expect("all are told");
    assert_eq!(proxy.swapped(), 1);
    let (granted, next) = timeout(SOON * 3, next).await.unwrap().unwrap();
    assert!(told < granted, "told {:?} too late", told - granted);
    next.unwrap().release().await.unwrap();
    for (guard, error) in guards.iter().zip(errors) {
        assert!(error.is_lost(), "{error}");
        assert_lost(guard);
    }
    // The keeper goes on, behind its own old tickets.
    let again = timeout(SOON * 3, keeper.mutex("a").unwrap().lock()).await;
    let again = again.expect("the old session has ended").unwrap();
    assert!(again.token() > guards[0].token());
    assert_ne!(session_of(&keeper, "a").await, session);
    again.release().await.unwrap();
}

#[case(
    zookeeper,
    why = "a handshake that gives another session instead of the old one"
)]
async fn row_27_a_place_that_went_with_the_old_session_is_granted_to_nobody(world: World) {
    let (proxy, stranger) = (world.proxy(), world.raw().await);
    let (far, near) = (calm_keeper_by(&proxy, &world).await, keeper(&world).await);
    let lock = near.mutex("place").unwrap();
    let first = lock.lock().await.unwrap();
    let mut waiting = far.mutex("place").unwrap().enqueue().await.unwrap();
    let mut behind = lock.enqueue().await.unwrap();
    assert_eq!(behind.position().await.unwrap(), 2);
    let queue = near.queue("place").await.unwrap();
    let place = format!("/locks/place/{}", queue[1].node);

    proxy.swap_next_session();
    proxy.cut(End::Fin).await;
    let swapped = || async { proxy.swapped() == 1 };
    eventually("the session was swapped", SOON, swapped).await;
    let listed = proxy.hold_reply(Matching::op(Operation::GET_EPHEMERALS));
    first.release().await.unwrap();
    let turn = tokio::spawn(async move { waiting.granted().await });
    // Its turn came. Then its old session ends, before it knows what the new one owns.
    timeout(SOON, listed.reached()).await.expect("it asks");
    stranger.delete(&place, None).await.ok();
    let next = timeout(SOON, behind.granted()).await.unwrap().unwrap();
    listed.release();

    let error = timeout(SOON, turn).await.unwrap().unwrap().unwrap_err();
    assert!(error.is_lost(), "{error}");
    assert!(next.is_held());
    next.release().await.unwrap();
}

#[case]
async fn row_28_a_loss_is_final_whatever_comes_back(world: World) {
    let proxy = world.proxy();
    let stranger = world.raw().await;
    let (keeper, guard) = held_by(&proxy, &world, "final").await;
    let path = format!("/locks/final/{}", guard.node());
    stranger.catch_up().await.unwrap();
    let line = stranger.get_data(&path).await.unwrap().0;

    stranger.delete(&path, None).await.unwrap();
    let error = timeout(SOON, guard.lost()).await.expect("it is told");
    assert!(error.is_lost(), "{error}");
    // The very same node, as far as names and data go.
    let options = Make::Ephemeral;
    stranger.create(&path, &line, &options).await.unwrap();
    let began = Instant::now();
    while began.elapsed() < T / 2 {
        // Some beats long.
        assert_lost(&guard);
        sleep(SLACK / 50).await;
    }
    for _ in 0..3 {
        proxy.cut(End::Fin).await;
        let reads = || async { keeper.queue("final").await.is_ok() };
        eventually("it is connected again", SOON, reads).await;
        assert_lost(&guard);
        assert!(guard.check().await.unwrap_err().is_lost());
        assert!(timeout(A_WHILE, guard.lost()).await.is_ok());
    }

    assert!(guard.release().await.unwrap_err().is_lost());
    assert_eq!(
        children(&stranger, "final").await.len(),
        1,
        "it is another's"
    );
}

#[case]
async fn row_29_a_silent_server_does_not_keep_a_loss_from_being_told(world: World) {
    let proxy = world.proxy();
    let keeper = keeper_by(&proxy, &world).await;
    let guard = keeper.mutex("told").unwrap().lock().await.unwrap();
    let other = keeper.mutex("other").unwrap().lock().await.unwrap();

    proxy.black_hole(Way::ToClient);
    let (stall, began, left) = (Stall::watch(), Instant::now(), guard.valid_for());
    assert!(left > Duration::ZERO);
    // Calls that never get an answer are under way all the time.
    let (lost, checked, released, run) = timeout(
        SOON,
        futures_util::future::join4(
            timed(guard.lost()),
            timed(guard.check()),
            timed(other.release()),
            timed(guard.run(std::future::pending::<()>())),
        ),
    )
    .await
    .expect("all end by the clock");

    let limit = left + T / 6 + SLACK + stall.longest();
    assert!(lost.1.is_lost());
    assert!(checked.1.unwrap_err().is_lost());
    assert!(run.1.unwrap_err().is_lost());
    assert!(released.1.unwrap_err().is_lost());
    for (at, what) in [
        (lost.0, "lost"),
        (checked.0, "check"),
        (released.0, "release"),
        (run.0, "run"),
    ] {
        assert!(at - began < limit, "{what}: {:?} of {limit:?}", at - began);
    }
    assert_lost(&guard);
}

#[case]
async fn row_30_each_holder_keeps_its_own_timeout(world: World) {
    let (hasty, patient) = (world.proxy(), world.proxy());
    let short = keeper_by(&hasty, &world).await;
    let long = Keeper::builder(way(&patient, &world)).session_timeout(T * 10);
    let long = long.connect().await.unwrap();

    // The long one is away for longer than the short one's timeout, and is not robbed.
    let held = long.mutex("mixed").unwrap().lock().await.unwrap();
    let lock = short.mutex("mixed").unwrap();
    let waiting = tokio::spawn(async move { timed(lock.lock()).await });
    patient.black_hole(Way::Both);
    let ended = timeout(T * 13 / 10, held.lost()).await;
    assert!(ended.is_err(), "{ended:?}");
    assert!(!waiting.is_finished());
    patient.heal();
    held.release().await.unwrap();

    // The short one is away for as long as that, and is told in its own time.
    let (_, first) = timeout(SOON, waiting).await.unwrap().unwrap();
    let first = first.unwrap();
    let lock = long.mutex("mixed").unwrap();
    let waiting = tokio::spawn(async move { timed(lock.lock()).await });
    let (stall, began) = (Stall::watch(), Instant::now());
    hasty.black_hole(Way::Both);
    let told = timeout(SOON, timed(first.lost())).await;
    let (told, _) = told.expect("it is told");
    let limit = T + SLACK + stall.longest();
    assert!(told - began < limit, "{:?} of {limit:?}", told - began);
    let (granted, second) = timeout(SOON, waiting).await.unwrap().unwrap();
    assert!(told < granted, "told {:?} too late", told - granted);
    second.unwrap().release().await.unwrap();
}

#[case(embedded)]
async fn row_31_a_loss_is_told_as_soon_as_it_can_be_known(world: World) {
    let keeper = keeper(&world).await;
    let faults = world.embedded().faults();
    for _ in 0..3 {
        let guard = keeper.mutex("known").unwrap().lock().await.unwrap();
        assert!(guard.is_held() && guard.state() == GuardState::Held);
        let lost = guard.lost();
        let elsewhere = tokio::spawn(guard.lost());
        let inside = tokio::spawn({
            let lost = lost.clone();
            async move { lost.await.is_lost() }
        });
        let session = session_of(&keeper, "known").await;

        // The server ends the connection too: the client comes back and is told, long before any
        // timeout.
        let expired = Instant::now();
        assert!(faults.expire_session(session));
        let (told, error) = timeout(SOON, timed(lost)).await.expect("it is told");

        assert!(error.is_lost(), "{error}");
        assert!(told - expired < T / 2 + SLACK, "{:?}", told - expired);
        assert_lost(&guard);
        assert!(timeout(SOON, elsewhere).await.unwrap().unwrap().is_lost());
        assert!(timeout(SOON, inside).await.unwrap().unwrap());
    }
}

#[case(embedded)]
async fn row_58_a_session_that_was_replaced_is_left_for_good(world: World) {
    let keeper = Keeper::builder(world.connect_string()).session_timeout(T);
    let keeper = keeper.connect().await.unwrap();
    let faults = world.embedded().faults();
    let session = own_session(&keeper).await;
    let guard = keeper.mutex("replaced").unwrap().lock().await.unwrap();
    let mut place = keeper.mutex("replaced").unwrap().enqueue().await.unwrap();
    let place = tokio::spawn(async move { place.granted().await.map(drop) });

    assert!(faults.replace_session_at_next_connection(session));
    assert!(faults.cut(session));
    let error = timeout(SOON, guard.lost()).await.expect("it is told");
    let waited = timeout(SOON, place)
        .await
        .expect("its waiter is told")
        .unwrap();

    assert!(error.to_string().contains("another session"), "{error}");
    assert!(waited.unwrap_err().is_session_over());
    assert!(guard.release().await.unwrap_err().is_lost());
    // The session that the server made up is not used, and the old one ends by itself.
    let again = timeout(SOON, keeper.mutex("replaced").unwrap().lock()).await;
    let again = again.expect("it is granted").unwrap();
    again.check().await.unwrap();
    let queue = keeper.queue("replaced").await.unwrap();
    assert_eq!(queue.len(), 1, "{queue:?}");
    again.release().await.unwrap();
    keeper.close().await;
    eventually("no session is left", SOON, || async {
        faults.sessions().is_empty()
    })
    .await;
}

#[case]
async fn row_59_a_handshake_is_no_proof_of_a_hold(world: World) {
    let timeout_of = T * 2;
    let proxy = world.proxy();
    let keeper = Keeper::builder(way(&proxy, &world)).session_timeout(timeout_of);
    let keeper = keeper.connect().await.unwrap();
    let guard = keeper.mutex("handshake").unwrap().lock().await.unwrap();
    // A new session has nine tenths of its timeout from its creation on; after half of it the lease
    // rests on beats.
    sleep(timeout_of / 2).await;

    // The connection comes back, and dies before it has carried anything.
    let before = proxy.writes(Way::ToClient);
    proxy.cut(End::Fin).await;
    while proxy.writes(Way::ToClient) == before {
        tokio::task::yield_now().await;
    }
    proxy.black_hole(Way::Both);
    let (stall, began) = (Stall::watch(), Instant::now());
    let (told, error) = timeout(SOON, timed(guard.lost()))
        .await
        .expect("it is told");

    assert!(error.is_lost(), "{error}");
    let limit = timeout_of + SLACK + stall.longest();
    assert!(told - began < limit, "{:?} of {limit:?}", told - began);
    assert_lost(&guard);
}

#[case]
async fn row_68_no_session_with_a_server_that_only_reads_is_asked_for(_world: World) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let connecting = tokio::spawn(Keeper::builder(address).connect_timeout(T).connect());

    let (mut stream, _) = timeout(SOON, listener.accept()).await.unwrap().unwrap();
    let length = stream.read_i32().await.unwrap();
    let mut request = vec![0; usize::try_from(length).unwrap()];
    stream.read_exact(&mut request).await.unwrap();

    // Protocol, last zxid, timeout, session, password, and whether a server that only reads will
    // do.
    assert_eq!(request.len(), 4 + 8 + 4 + 8 + 4 + 16 + 1);
    assert_eq!(request.last(), Some(&0));
    drop((stream, listener));
    assert!(connecting.await.unwrap().unwrap_err().is_unreachable());
}

#[case(real, within = 90)]
async fn row_68_a_server_that_only_reads_grants_nothing_and_keeps_no_hold(_world: World) {
    let flags = ["-Dreadonlymode.enabled=true"];
    let servers = tokio::task::spawn_blocking(move || Servers::start_with(3, &flags)).await;
    let servers = servers.unwrap().unwrap();
    let address = servers.addresses()[0];
    let builder = Keeper::builder(address.to_string()).session_timeout(T);
    let keeper = builder.connect().await.unwrap();
    let guard = keeper.mutex("read-only").unwrap().lock().await.unwrap();

    let servers = tokio::task::spawn_blocking(move || {
        let mut servers = servers;
        servers.kill(1);
        servers.kill(2);
        servers
    });
    let servers = servers.await.unwrap();
    let (stall, began) = (Stall::watch(), Instant::now());
    timeout(SOON, guard.lost()).await.expect("it is told");
    let (took, limit) = (began.elapsed(), T + SLACK + stall.longest());
    assert!(took < limit, "{took:?} of {limit:?}");
    let reads_only = || {
        let asked = testbench::words::word(address, "isro");
        async move { asked.await == "ro" }
    };
    eventually("the server that is left only reads", SOON * 5, reads_only).await;

    let free = keeper.mutex("free").unwrap();
    let error = free.lock_timeout(T).await.unwrap_err();
    assert!(error.is_timeout() || error.is_unreachable(), "{error}");
    let other = Keeper::builder(address.to_string()).connect_timeout(T);
    assert!(other.connect().await.unwrap_err().is_unreachable());
    assert_lost(&guard);
    drop(guard);
    keeper.close().await;
    tokio::task::spawn_blocking(move || drop(servers))
        .await
        .unwrap();
}
