//! Owners: counts that belong to no holder, and a guest that is inside together with the next in
//! line.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::future::join_all;
use lockkeeper::embedded::{Match, Op};
use lockkeeper::{Guard, Keeper, Mutex, Owner};
use tokio::time::timeout;

use super::{A_WHILE, SOON, own_session};
use testbench::dice::Dice;
use testbench::{World, case, eventually};
use testbench::{children, keeper};

fn owned(keeper: &Keeper, lock: &str, owner: &str) -> Mutex {
    let lock = keeper.mutex(lock).unwrap();
    lock.with_owner(&Owner::named(owner))
}

async fn granted(lock: &Mutex) -> Guard {
    timeout(SOON * 3, lock.lock())
        .await
        .expect("it is granted")
        .unwrap()
}

/// What the lock must do: one owner has it, so many times.
#[derive(Debug, Default)]
struct Model {
    holder: Option<(&'static str, u64)>,
    count: usize,
}

impl Model {
    fn lock(&mut self, owner: &'static str, token: u64) {
        match self.holder {
            None => self.holder = Some((owner, token)),
            Some(holder) => assert_eq!(holder, (owner, token), "two are inside"),
        }
        self.count += 1;
    }

    fn release(&mut self, owner: &'static str, token: u64) {
        assert_eq!(self.holder, Some((owner, token)), "it was freed before");
        self.count -= 1;
        if self.count == 0 {
            self.holder = None;
        }
    }
}

#[case(within = 120)]
async fn row_49_a_lock_counts_for_each_owner_as_a_model_does(world: World) {
    let (keeper, stranger) = (keeper(&world).await, world.raw().await);
    let model = Arc::new(std::sync::Mutex::new(Model::default()));
    let tasks = (0..8_u64).map(|task| {
        let owner = ["red", "green"][usize::from(task % 2 == 1)];
        let (lock, stranger) = (owned(&keeper, "count", owner), stranger.clone());
        let (model, mut dice) = (Arc::clone(&model), Dice(task));
        tokio::spawn(async move {
            let mut held: Vec<Guard> = Vec::new();
            for round in 0..60 {
                let guard = match dice.below(3) {
                    0 => lock.try_lock().await.unwrap(),
                    _ => Some(granted(&lock).await),
                };
                if let Some(guard) = guard {
                    model.lock().unwrap().lock(owner, guard.token().into());
                    held.push(guard);
                }
                if round % 10 == 0 && !held.is_empty() {
                    // What was freed by an inner release would be gone by now.
                    held[0].check().await.unwrap();
                    assert!(
                        children(&stranger, "count")
                            .await
                            .contains(&held[0].node().into())
                    );
                }
                // All of them now and then, or the other owner would never come in.
                let keep = if dice.one_in(3) { 0 } else { 2 };
                while held.len() > keep {
                    let at = usize::try_from(dice.below(held.len() as u64)).unwrap();
                    let guard = held.swap_remove(at);
                    model.lock().unwrap().release(owner, guard.token().into());
                    match dice.below(2) {
                        0 => guard.release().await.unwrap(),
                        _ => drop(guard),
                    }
                }
                tokio::task::yield_now().await;
            }
            for guard in held {
                model.lock().unwrap().release(owner, guard.token().into());
                guard.release().await.unwrap();
            }
        })
    });

    for task in join_all(tasks).await {
        task.unwrap();
    }

    assert_eq!(model.lock().unwrap().holder, None);
    let empty = || async { children(&stranger, "count").await.is_empty() };
    eventually("no ticket is left", SOON, empty).await;
}

#[case(embedded)]
async fn row_49_after_a_loss_the_count_is_zero(world: World) {
    let [keeper, other] = [keeper(&world).await, keeper(&world).await];
    let session = own_session(&keeper).await;
    let lock = owned(&keeper, "zero", "job");
    let lost = [
        granted(&lock).await,
        granted(&lock).await,
        granted(&lock).await,
    ];
    let told = lost[0].lost();
    assert!(world.embedded().faults().expire_session(session));
    timeout(SOON, told).await.unwrap();

    let anew = granted(&lock).await;
    let again = granted(&lock).await;

    assert!(anew.token() > lost[0].token());
    assert_eq!(again.token(), anew.token());
    // What is left of the old count frees nothing of the new one.
    for guard in lost {
        assert!(guard.release().await.unwrap_err().is_lost());
    }
    let lock = other.mutex("zero").unwrap();
    assert!(lock.try_lock().await.unwrap().is_none());
    again.release().await.unwrap();
    assert!(lock.try_lock().await.unwrap().is_none());
    anew.check().await.unwrap();
    anew.release().await.unwrap();
    granted(&lock).await.release().await.unwrap();
}

#[case]
async fn row_77_a_host_that_leaves_beside_its_guest_lets_nobody_in(world: World) {
    let [a, b] = [keeper(&world).await, keeper(&world).await];
    granted(&a.mutex("party").unwrap())
        .await
        .release()
        .await
        .unwrap();
    let mut tokens = BTreeMap::new();
    for round in 0..10 {
        let host = granted(&owned(&a, "party", "job")).await;
        let mut next = b.mutex("party").unwrap().enqueue().await.unwrap();
        assert!(timeout(A_WHILE / 10, next.granted()).await.is_err());
        let guest = granted(&owned(&b, "party", "job")).await;
        host.release().await.unwrap();

        // The mark of its host would call it in beside the guest.
        assert!(
            timeout(A_WHILE, next.granted()).await.is_err(),
            "round {round}"
        );
        assert_eq!(next.position().await.unwrap(), 1);
        guest.check().await.unwrap();
        tokens.insert(guest.token(), round);
        guest.release().await.unwrap();
        let next = timeout(SOON, next.granted()).await.unwrap().unwrap();
        assert!(tokens.keys().all(|token| *token < next.token()));
        next.release().await.unwrap();
    }
    assert_eq!(tokens.len(), 10);
}

#[case(embedded)]
async fn row_77_a_guest_that_read_what_was_before_the_release_is_not_let_in(world: World) {
    let [a, b, c] = [
        keeper(&world).await,
        keeper(&world).await,
        keeper(&world).await,
    ];
    let (session, faults) = (own_session(&b).await, world.embedded().faults());
    let host = granted(&owned(&a, "late", "job")).await;
    let mut next = c.mutex("late").unwrap().enqueue().await.unwrap();
    assert!(timeout(A_WHILE, next.granted()).await.is_err());
    let exchange = Match::op(Op::Multi).session(session).path_contains("late");
    let held_back = faults.on(exchange).stop_before();
    let guest = tokio::spawn({
        let lock = owned(&b, "late", "job");
        async move { lock.lock().await.unwrap() }
    });
    timeout(SOON, held_back.reached()).await.unwrap();

    // It is about to go in by what it has read, but the host leaves first, and the next one comes.
    let token = host.token();
    host.release().await.unwrap();
    let next = timeout(SOON, next.granted()).await.unwrap().unwrap();
    held_back.release();

    tokio::time::sleep(A_WHILE).await;
    assert!(!guest.is_finished(), "two are inside");
    next.check().await.unwrap();
    next.release().await.unwrap();
    let guest = timeout(SOON, guest).await.unwrap().unwrap();
    assert!(guest.token() > token, "it holds by itself");
    guest.release().await.unwrap();
}

#[case(embedded)]
async fn row_77_a_guest_that_read_what_was_before_the_hosts_end_is_not_let_in(world: World) {
    let [a, b, c] = [
        keeper(&world).await,
        keeper(&world).await,
        keeper(&world).await,
    ];
    let (host_session, session) = (own_session(&a).await, own_session(&b).await);
    let faults = world.embedded().faults();
    let host = granted(&owned(&a, "ended", "job")).await;
    let mut next = c.mutex("ended").unwrap().enqueue().await.unwrap();
    assert!(timeout(A_WHILE, next.granted()).await.is_err());
    let exchange = Match::op(Op::Multi).session(session).path_contains("ended");
    let held_back = faults.on(exchange).stop_before();
    let guest = tokio::spawn({
        let lock = owned(&b, "ended", "job");
        async move { lock.lock().await.unwrap() }
    });
    timeout(SOON, held_back.reached()).await.unwrap();

    // The end of a session writes nothing into the directory: only the host's own ticket tells.
    assert!(faults.expire_session(host_session));
    let next = timeout(SOON, next.granted()).await.unwrap().unwrap();
    held_back.release();

    tokio::time::sleep(A_WHILE).await;
    assert!(!guest.is_finished(), "two are inside");
    next.check().await.unwrap();
    next.release().await.unwrap();
    let guest = timeout(SOON, guest).await.unwrap().unwrap();
    assert!(guest.token() > host.token(), "it holds by itself");
    guest.release().await.unwrap();
}

#[case(embedded)]
async fn row_77_a_guest_that_comes_while_its_host_sees_its_turn_is_beside_it(world: World) {
    let [a, b, c] = [
        keeper(&world).await,
        keeper(&world).await,
        keeper(&world).await,
    ];
    let (session, faults) = (own_session(&a).await, world.embedded().faults());
    let before = granted(&c.mutex("turn").unwrap()).await;
    let mut host = owned(&a, "turn", "job").enqueue().await.unwrap();
    assert!(timeout(A_WHILE, host.granted()).await.is_err());
    let mut next = c.mutex("turn").unwrap().enqueue().await.unwrap();
    assert!(timeout(A_WHILE, next.granted()).await.is_err());
    let look = Match::op(Op::MultiRead)
        .session(session)
        .path_contains("turn");
    let held_back = faults.on(look).stop_before();
    let host = tokio::spawn(async move { host.granted().await.unwrap() });

    // It is the host's turn, but before the host looks, its guest is in already.
    before.release().await.unwrap();
    timeout(SOON, held_back.reached()).await.unwrap();
    let guest = granted(&owned(&b, "turn", "job")).await;
    held_back.release();
    let host = timeout(SOON, host).await.unwrap().unwrap();
    assert_eq!(host.token(), guest.token());
    host.release().await.unwrap();

    assert!(
        timeout(A_WHILE, next.granted()).await.is_err(),
        "two are inside"
    );
    guest.check().await.unwrap();
    guest.release().await.unwrap();
    let next = timeout(SOON, next.granted()).await.unwrap().unwrap();
    next.release().await.unwrap();
}
