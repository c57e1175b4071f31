//! Two holders: whatever ends, comes back or is late, one at a time is let in, and each with a
//! greater token.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use lockkeeper::Keeper;
use lockkeeper::embedded::{Match, Op};
use tokio::time::timeout;

use super::{A_WHILE, SOON, T, calm_keeper_by, keeper_by, own_session, session_of};
use testbench::proxy::{End, Way};
use testbench::zookeeper::Servers;
use testbench::{World, case, eventually};
use testbench::{children, keeper};

#[case(embedded)]
async fn row_18_a_ticket_of_an_earlier_session_is_a_strangers(world: World) {
    let (keeper, faults) = (keeper(&world).await, world.embedded().faults());
    let lock = keeper.mutex("late").unwrap();
    let old = lock.lock().await.unwrap();
    let earlier = session_of(&keeper, "late").await;

    // The session has expired, but the server is late to remove its ephemerals.
    assert!(faults.expire_session_but_keep_its_nodes(earlier));
    let first = || async { lock.enqueue().await.ok() };
    let mut first = eventually("there is a new session", SOON, first).await;
    let session = own_session(&keeper).await;
    assert_ne!(session, earlier);
    // The answer to this one is lost, so that it looks for what it made.
    let create = Match::op(Op::Create).session(session).path_contains("late");
    faults.on(create).drop_reply();
    let second = timeout(SOON, lock.enqueue()).await.unwrap().unwrap();

    assert_eq!(first.position().await.unwrap(), 1);
    assert_eq!(second.position().await.unwrap(), 2);
    assert!(
        timeout(A_WHILE, first.granted()).await.is_err(),
        "the old ticket is before it"
    );
    assert_eq!(faults.remove_ephemerals_of(earlier), 1);
    let first = timeout(SOON, first.granted()).await.unwrap().unwrap();
    assert!(first.token() > old.token());
    assert!(old.release().await.unwrap_err().is_lost());
    first.release().await.unwrap();
}

#[case]
async fn row_19_a_create_that_was_given_up_is_not_taken_for_the_next_one(world: World) {
    let (proxy, stranger) = (world.proxy(), world.raw().await);
    let keeper = calm_keeper_by(&proxy, &world).await;
    let lock = keeper.mutex("attempts").unwrap();
    lock.lock().await.unwrap().release().await.unwrap();
    for round in 0..3 {
        proxy.black_hole(Way::ToClient);
        let given_up = tokio::spawn({
            let lock = lock.clone();
            async move { lock.lock().await.map(drop) }
        });
        eventually("its ticket is there", SOON, || async {
            children(&stranger, "attempts").await.len() == 1
        })
        .await;
        given_up.abort();
        let lock = lock.clone();
        let next = tokio::spawn(async move { lock.lock().await });
        if round == 1 {
            // The answer never comes: both are looked for.
            proxy.cut(End::Rst).await;
            eventually("it connects again", SOON, || async { proxy.is_connected() }).await;
        }
        proxy.heal();

        let guard = timeout(SOON, next).await.unwrap().unwrap().unwrap();

        let alone = || async { children(&stranger, "attempts").await == [guard.node()] };
        eventually("the other ticket is gone", SOON, alone).await;
        guard.release().await.unwrap();
    }
}

#[case]
async fn row_19_creates_that_lost_their_answers_together_are_each_granted_their_own(world: World) {
    const CROWD: usize = 8;
    let (proxy, stranger) = (world.proxy(), world.raw().await);
    let keeper = calm_keeper_by(&proxy, &world).await;
    let lock = keeper.mutex("together").unwrap();
    lock.lock().await.unwrap().release().await.unwrap();
    let inside = Arc::new(AtomicUsize::new(0));

    proxy.black_hole(Way::ToClient);
    let crowd = (0..CROWD).map(|_| {
        let (lock, inside) = (lock.clone(), Arc::clone(&inside));
        tokio::spawn(async move {
            let guard = lock.lock().await.unwrap();
            assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two are inside");
            let token = guard.token();
            tokio::time::sleep(Duration::from_millis(5)).await;
            inside.fetch_sub(1, Ordering::SeqCst);
            guard.release().await.unwrap();
            token
        })
    });
    let crowd = join_all(crowd);
    eventually("all have a ticket", SOON, || async {
        children(&stranger, "together").await.len() == CROWD
    })
    .await;
    proxy.cut(End::Rst).await;
    eventually("they connect again", SOON, || async {
        proxy.is_connected()
    })
    .await;
    proxy.heal();

    let tokens = timeout(SOON, crowd).await.expect("all are granted");
    let mut tokens: Vec<_> = tokens.into_iter().map(Result::unwrap).collect();
    tokens.sort_unstable();
    tokens.dedup();
    assert_eq!(tokens.len(), CROWD, "no two had the same ticket");
    assert!(children(&stranger, "together").await.is_empty());
}

#[case]
async fn row_21_a_waiter_whose_session_ended_in_silence_is_never_granted(world: World) {
    let (proxy, near, stranger) = (world.proxy(), keeper(&world).await, world.raw().await);
    let far = keeper_by(&proxy, &world).await;
    let held = near.mutex("silent").unwrap().lock().await.unwrap();
    let mut waiter = far.mutex("silent").unwrap().enqueue().await.unwrap();
    assert!(timeout(A_WHILE, waiter.granted()).await.is_err());
    let waiting = tokio::spawn(async move { waiter.granted().await.map(|guard| guard.token()) });

    proxy.black_hole(Way::Both);
    eventually("its session is over at the server", SOON, || async {
        children(&stranger, "silent").await == [held.node()]
    })
    .await;
    held.release().await.unwrap();
    let next = near.mutex("silent").unwrap().lock().await.unwrap();
    proxy.heal();

    let error = timeout(SOON, waiting).await.unwrap().unwrap().unwrap_err();
    assert!(error.is_session_over(), "{error}");
    assert_eq!(children(&stranger, "silent").await, [next.node()]);
    next.release().await.unwrap();
}

#[case(embedded)]
async fn row_23_an_expired_waiter_and_the_next_one_are_not_both_let_in(world: World) {
    let (a, b, c) = (
        keeper(&world).await,
        keeper(&world).await,
        keeper(&world).await,
    );
    let faults = world.embedded().faults();
    let held = a.mutex("three").unwrap().lock().await.unwrap();
    let mut second = b.mutex("three").unwrap().enqueue().await.unwrap();
    let mut third = c.mutex("three").unwrap().enqueue().await.unwrap();
    assert!(timeout(A_WHILE / 2, second.granted()).await.is_err());
    assert!(timeout(A_WHILE / 2, third.granted()).await.is_err());
    let waiter = a.queue("three").await.unwrap()[1].session;

    // The holder goes first, but the waiter hears only that its own session is over.
    faults.hold_watches();
    let (second, third) = (
        tokio::spawn(async move { second.granted().await.map(|guard| guard.token()) }),
        tokio::spawn(async move { third.granted().await }),
    );
    held.release().await.unwrap();
    faults.expire_session(waiter);
    let error = timeout(SOON, second).await.unwrap().unwrap().unwrap_err();
    faults.release_watches();

    let third = timeout(SOON, third).await.unwrap().unwrap().unwrap();
    assert!(error.is_session_over(), "{error}");
    let queue = a.queue("three").await.unwrap();
    assert_eq!(queue.len(), 1, "{queue:?}");
    assert_eq!(queue[0].node, third.node());
    third.release().await.unwrap();
}

/// Three servers of a case's own.
async fn ensemble() -> Servers {
    let started = tokio::task::spawn_blocking(|| Servers::start(3)).await;
    started.unwrap().unwrap()
}

/// Does what blocks with servers, and hands them back.
async fn with(mut servers: Servers, act: impl FnOnce(&mut Servers) + Send + 'static) -> Servers {
    let acted = tokio::task::spawn_blocking(move || {
        act(&mut servers);
        servers
    });
    acted.await.unwrap()
}

#[case]
async fn row_32_tokens_grow_from_session_to_session(world: World) {
    let stranger = world.raw().await;
    let mut tokens = Vec::new();
    for round in 0..12 {
        let keeper = keeper(&world).await;
        let lock = keeper.mutex("epochs").unwrap();
        let guard = timeout(SOON, lock.lock()).await.unwrap().unwrap();
        tokens.push(guard.token());
        match round % 4 {
            0 => guard.release().await.unwrap(),
            1 => drop(guard),
            2 => {
                // Broken by an operator, and its directory with it.
                let path = format!("/locks/epochs/{}", guard.node());
                stranger.delete(&path, None).await.unwrap();
                stranger.delete("/locks/epochs", None).await.unwrap();
            }
            // Ends with its session.
            _ => keeper.close().await,
        }
        keeper.close().await;
    }

    assert!(
        tokens.is_sorted_by(|before, after| before < after),
        "{tokens:?}"
    );
}

#[case(real, within = 90)]
async fn row_32_tokens_grow_across_a_change_of_leader(_world: World) {
    let servers = ensemble().await;
    let all: Vec<String> = servers
        .addresses()
        .iter()
        .map(ToString::to_string)
        .collect();
    let keeper = Keeper::builder(all.join(",")).session_timeout(T * 5);
    let keeper = keeper.connect().await.unwrap();
    let lock = keeper.mutex("epochs").unwrap();
    let first = lock.lock().await.unwrap();
    let (before, node) = (first.token(), first.node().to_owned());
    first.release().await.unwrap();

    let servers = with(servers, |servers| {
        // A busy member does not answer at once.
        let leader = (0..100).find_map(|_| {
            std::thread::sleep(Duration::from_millis(100));
            servers.leader()
        });
        servers.kill(leader.expect("somebody leads"));
    })
    .await;
    let locked = || async { lock.lock_timeout(T * 2).await.ok() };
    let second = eventually("the others grant", T * 30, locked).await;

    assert!(
        second.token() > before,
        "{before} on {node}, then {}",
        second.token()
    );
    second.release().await.unwrap();
    keeper.close().await;
    with(servers, |_| {}).await;
}
