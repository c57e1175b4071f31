//! Crowds that take several locks at once: philosophers, and a random run with cancels, expiries
//! and lost replies.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use lockkeeper::Keeper;
use lockkeeper::embedded::{Match, Op};
use tokio::time::{sleep, timeout};

use super::queued;
use crate::recipes::cancel::cancelled_after;
use testbench::dice::Dice;
use testbench::keeper;
use testbench::{World, case, plan};

const PHILOSOPHERS: usize = 16;

#[case(within = 120)]
async fn philosophers_all_eat_and_none_much_more_than_another(world: World) {
    let keepers = [
        keeper(&world).await,
        keeper(&world).await,
        keeper(&world).await,
    ];
    let forks: Arc<[AtomicUsize; PHILOSOPHERS]> = Arc::default();
    let dinner = if world.is_embedded() {
        Duration::from_secs(10)
    } else {
        Duration::from_secs(4)
    };
    let until = Instant::now() + dinner;
    let table = (0..PHILOSOPHERS).map(|philosopher| {
        let (keeper, forks) = (
            keepers[philosopher % keepers.len()].clone(),
            Arc::clone(&forks),
        );
        tokio::spawn(async move {
            let mut dice = Dice(philosopher as u64);
            let mut meals = 0;
            while Instant::now() < until {
                // The two beside the plate, whichever is taken up first.
                let mut both = [philosopher, (philosopher + 1) % PHILOSOPHERS];
                if dice.one_in(2) {
                    both.reverse();
                }
                let guard = keeper
                    .lock_all(both.map(|fork| format!("fork/{fork}")))
                    .await
                    .unwrap();
                for fork in both {
                    assert_eq!(
                        forks[fork].fetch_add(1, Ordering::SeqCst),
                        0,
                        "two hold fork {fork}"
                    );
                }
                meals += 1;
                // A meal takes its time, or the servers' speed would be all that is measured.
                sleep(Duration::from_millis(5)).await;
                for fork in both {
                    forks[fork].fetch_sub(1, Ordering::SeqCst);
                }
                guard.release().await.unwrap();
            }
            meals
        })
    });

    let meals: Vec<u64> = timeout(dinner + Duration::from_secs(20), join_all(table))
        .await
        .expect("nobody waits for ever")
        .into_iter()
        .map(Result::unwrap)
        .collect();

    println!("meals: {meals:?}");
    let (least, most) = (meals.iter().min().unwrap(), meals.iter().max().unwrap());
    assert!(*least > 0 && most <= &(least * 3), "{meals:?}");
}

const TASKS: usize = 8;
const OPERATIONS: usize = 2_000;
const LOCKS: u64 = 6;

/// The holders of each lock, as the tasks know them.
#[derive(Debug, Default)]
struct Inside(Mutex<HashMap<u64, usize>>);

impl Inside {
    fn enter(&self, task: usize, locks: &[u64]) {
        let mut inside = self.0.lock().unwrap();
        for lock in locks {
            let other = inside.insert(*lock, task);
            assert_eq!(other, None, "{task} and another hold lock {lock}");
        }
    }

    fn leave(&self, locks: &[u64]) {
        let mut inside = self.0.lock().unwrap();
        for lock in locks {
            inside.remove(lock);
        }
    }
}

#[case(within = 120)]
async fn a_random_run_of_sets_excludes_at_each_name_and_leaves_nothing(world: World) {
    let seed = plan::seed();
    println!("multi: LOCKKEEPER_SEED={seed}");
    let inside = Arc::new(Inside::default());
    let left = Arc::new(AtomicUsize::new(OPERATIONS));
    let tasks = (0..TASKS).map(|task| {
        let (world, inside, left) = (world.clone(), Arc::clone(&inside), Arc::clone(&left));
        tokio::spawn(async move {
            let mut own = keeper(&world).await;
            let mut dice = Dice(seed.wrapping_add(task as u64));
            let mut granted = 0;
            while left
                .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| {
                    left.checked_sub(1)
                })
                .is_ok()
            {
                granted += usize::from(operation(&world, &mut own, &inside, task, &mut dice).await);
            }
            own.close().await;
            granted
        })
    });

    let granted = timeout(Duration::from_secs(90), join_all(tasks)).await;
    let granted: Vec<usize> = granted
        .expect("nobody waits for ever")
        .into_iter()
        .map(Result::unwrap)
        .collect();

    println!("granted: {granted:?}");
    if world.is_embedded() {
        world.embedded().faults().clear_rules();
    }
    let stranger = world.raw().await;
    assert!(
        granted.iter().sum::<usize>() > OPERATIONS / 4,
        "{granted:?}"
    );
    for lock in 0..LOCKS {
        queued(&stranger, &[(&format!("random/{lock}"), 0)]).await;
    }
    if world.is_embedded() {
        assert_eq!(world.embedded().counters().watches, 0);
    }
}

/// One operation of a task; whether it was granted its locks. The end of a session takes all its
/// tickets; no other task loses a lock, because each has a keeper of its own. No real server
/// ends one when it is told to, so there the keeper does.
async fn end_session(world: &World, own: &mut Keeper, task: usize) {
    let name = format!("own/{task}");
    let mine = own.lock_all([name.as_str()]).await.unwrap();
    if world.is_embedded() {
        let session = i64::from(own.queue(name).await.unwrap()[0].session);
        world.embedded().faults().expire_session(session);
    } else {
        own.close().await;
        *own = keeper(world).await;
    }
    drop(mine);
}

/// Loses a reply or a connection, whose ever it is.
fn trouble(world: &World, dice: &mut Dice) {
    let faults = world.embedded().faults();
    match dice.below(30) {
        // A set that is made, or one that is released.
        0 => faults.on(Match::op(Op::Multi)).drop_reply(),
        1 => faults.on(Match::op(Op::MultiRead)).drop_reply(),
        2 => {
            let sessions = faults.sessions();
            faults.cut(sessions[dice.below(sessions.len() as u64) as usize].id);
        }
        _ => {}
    }
}

async fn operation(
    world: &World,
    own: &mut Keeper,
    inside: &Inside,
    task: usize,
    dice: &mut Dice,
) -> bool {
    let mut locks: Vec<u64> = (0..=dice.below(3)).map(|_| dice.below(LOCKS)).collect();
    locks.sort_unstable();
    locks.dedup();
    if dice.one_in(40) {
        end_session(world, own, task).await;
    }
    if world.is_embedded() {
        trouble(world, dice);
    }
    let set = own
        .multi_lock(locks.iter().map(|lock| format!("random/{lock}")))
        .unwrap();
    let guard = match dice.below(6) {
        0 => cancelled_after(dice.below(20) as usize, set.lock())
            .await
            .map(Result::unwrap),
        1 => set.try_lock().await.unwrap(),
        2 => match set.lock_timeout(Duration::from_millis(dice.below(8))).await {
            Ok(guard) => Some(guard),
            Err(error) if error.is_timeout() => None,
            Err(error) => panic!("{error}"),
        },
        _ => Some(set.lock().await.unwrap()),
    };
    let Some(guard) = guard else { return false };
    inside.enter(task, &locks);
    tokio::task::yield_now().await;
    inside.leave(&locks);
    match dice.below(4) {
        0 => drop(guard),
        1 => drop(
            cancelled_after(dice.below(6) as usize, guard.release())
                .await
                .map(Result::unwrap),
        ),
        _ => guard.release().await.unwrap(),
    }
    true
}
