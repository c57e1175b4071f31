//! A primary that was cut off from its replica, which takes over meanwhile. One of Redis answers
//! those who are on its side for some seconds.

use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use super::*;

/// `CUT_OFF` in `src/protocol/epoch.rs`.
const ANSWERS: Duration = Duration::from_secs(3);

#[case(redis, within = 120)]
async fn a_primary_that_was_cut_off_lets_nobody_hold_beside_the_next_one(_world: World) {
    for round in 0..World::times(1, 20) {
        one_cut(&format!("cut-off-{round}")).await;
    }
}

async fn one_cut(lock: &str) {
    let mut pair = Pair::start(Protocol::Redis).await;
    pair.make(T).await;
    let fronts = [(); 2].map(|()| Proxy::of_bytes(pair.address()).unwrap());
    let [old_side, new_side] = fronts;
    let at = |front: &Proxy, pair: &Pair| pair.stored().at(front.address());
    let (theirs, ours) = (at(&old_side, &pair), at(&new_side, &pair));
    let stall = Stall::watch();
    let fleet = Fleet::new(theirs.clone(), lock, T, Fence::Refuses).await;
    let [log_a, log_b, log_c] = ["a", "b", "c"].map(|name| fleet.log().of(name));
    let [a, c, busy] = [
        keeper(&theirs).await,
        keeper(&theirs).await,
        keeper(&theirs).await,
    ];
    let guard = granted(&a, lock, &log_a).await;
    let waiting = {
        let (keeper, lock, log) = (c.clone(), lock.to_owned(), log_c.clone());
        tokio::spawn(async move { granted(&keeper, &lock, &log).await })
    };
    eventually("both are in the queue", SOON, || async {
        c.queue(lock).await.is_ok_and(|queue| queue.len() == 2)
    })
    .await;

    let kind = "cut off".to_owned();
    fleet.log().note(What::Fault { kind });
    pair.part();
    let cut = Instant::now();
    let answers = tokio::spawn(last_turn(busy, format!("{lock}-busy"), cut));
    let watched = watched(guard, &log_a);
    let old = pair.promote().await;
    new_side.lead_to(pair.address());
    // It would wait for a replica of its own.
    writes_alone(pair.address()).await;
    let b = keeper(&ours).await;
    let next = timeout(KNOWN + SOON, granted(&b, lock, &log_b))
        .await
        .unwrap();
    let let_in = cut.elapsed();
    let guard = watched.await.unwrap();
    let answered = answers.await.unwrap();

    println!(
        "a primary without its replica answered for {answered:?}, the next one let in after {let_in:?}"
    );
    assert!(answered < ANSWERS + 2 * stall.longest(), "{answered:?}");
    assert_eq!(released(guard, &log_a).await, Outcome::Lost);
    released_well(next, &log_b, &stall).await;
    // Who waits on the old side leaves it, though it is there and answers that it may not write.
    old_side.lead_to(pair.address());
    let last = timeout(SOON, waiting).await.unwrap().unwrap();
    drop(old);
    fleet.log().note(What::Healed);
    released_well(last, &log_c, &stall).await;
    let history = fleet.history();
    assert_clean(&violations(&history));
    let bounds = Bounds {
        notice: Duration::from_millis(50) + stall.longest(),
        ..Bounds::within(Duration::from_secs(5))
    };
    assert_clean(&stays_alive(&history, &bounds));
    let stranger = pair.stored().stranger().await.unwrap();
    eventually("no ticket is left", SOON, || async {
        children(&stranger, lock).await.is_empty()
    })
    .await;
    for keeper in [a, b, c] {
        keeper.close().await;
    }
}

/// What it was asked while it stood still would be answered before it looks for its replica.
#[case(redis, within = 60)]
async fn a_primary_that_stood_still_grants_nothing_of_what_was_asked_meanwhile(_world: World) {
    stands_still(Protocol::Redis).await;
}

#[case(postgres, within = 60)]
async fn a_postgresql_that_stood_still_grants_nothing_of_what_was_asked_meanwhile(_world: World) {
    stands_still(Protocol::Postgres).await;
}

async fn stands_still(protocol: Protocol) {
    const PATIENT: Duration = Duration::from_secs(20);
    let mut pair = Pair::start(protocol).await;
    if protocol == Protocol::Postgres {
        pair.wait_for_it().await;
    }
    pair.make(PATIENT).await;
    let builder = Keeper::builder(pair.stored().at(pair.address())).session_timeout(PATIENT);
    let keeper = builder.connect().await.unwrap();
    let lock = keeper.mutex("orders/42").unwrap();
    lock.lock().await.unwrap().release().await.unwrap();
    pair.catches_up().await;

    pair.primary().freeze();
    let old = pair.promote().await;
    let asked = tokio::spawn(async move { lock.lock().await });
    // Longer than it may answer, and not as long as its clients wait for an answer.
    sleep(ANSWERS + T).await;
    old.thaw();

    let granted = timeout(2 * ANSWERS, asked).await;
    assert!(granted.is_err(), "{granted:?}");
}

/// Takes turns until none has ended for long. When the last one did, after the cut.
async fn last_turn(keeper: Keeper, lock: String, cut: Instant) -> Duration {
    let lock = keeper.mutex(lock).unwrap();
    let mut last = Duration::ZERO;
    let turn = async || {
        let guard = lock.lock().await.ok()?;
        guard.release().await.ok()
    };
    while let Ok(turn) = timeout(2 * T, turn()).await {
        if turn.is_some() {
            last = cut.elapsed();
        } else if cut.elapsed() > 2 * ANSWERS {
            break;
        }
    }
    last
}
