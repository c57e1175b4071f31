//! Chance: tasks that take, cancel, give back, lose their sessions and resize, and a count of the
//! permits at every transaction.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use lockkeeper::embedded::Deleted;
use lockkeeper::{Keeper, Semaphore};
use tokio::time::timeout;

use crate::recipes::cancel::cancelled_after;
use testbench::dice::Dice;
use testbench::{World, case, eventually};
use testbench::{children, keeper};

const TASKS: u64 = 8;
const OPERATIONS: usize = 2000;
const SOON: Duration = Duration::from_secs(3);

/// One operation of a task: takes some permits in some way, or gives up on it. How many it has
/// then.
async fn operation(
    semaphore: &Semaphore,
    dice: &mut Dice,
    limit: u32,
) -> Option<lockkeeper::Permit> {
    let permits = 1 + u32::try_from(dice.below(u64::from(limit))).unwrap();
    let polls = usize::try_from(1 + dice.below(12)).unwrap();
    match dice.below(10) {
        0..=3 => timeout(SOON * 5, semaphore.acquire_many(permits))
            .await
            .expect("it ends")
            .ok(),
        4 => semaphore.try_acquire_many(permits).await.ok().flatten(),
        5 => {
            let limit = Duration::from_millis(dice.below(8));
            semaphore.acquire_many_timeout(permits, limit).await.ok()
        }
        6 => {
            let limit = Duration::from_millis(1 + dice.below(8));
            let acquire = cancelled_after(polls, semaphore.acquire_many(permits));
            timeout(limit, acquire).await.ok().flatten()?.ok()
        }
        _ => {
            let acquire = cancelled_after(polls, semaphore.acquire_many(permits));
            timeout(SOON * 5, acquire)
                .await
                .expect("it ends")
                .and_then(Result::ok)
        }
    }
}

#[case(within = 120)]
async fn a_random_crowd_never_holds_more_than_the_limit(world: World) {
    const LIMIT: u32 = 5;
    let keepers = [keeper(&world).await, keeper(&world).await];
    let held = Arc::new(AtomicU32::new(0));
    let operations =
        World::times(OPERATIONS / 4, OPERATIONS * 10) / usize::try_from(TASKS).unwrap();
    let tasks = (0..TASKS).map(|task| {
        let semaphore = keepers[usize::try_from(task % 2).unwrap()]
            .semaphore("crowd", LIMIT)
            .unwrap();
        let (held, mut dice) = (held.clone(), Dice(task));
        tokio::spawn(async move {
            let mut granted = 0;
            for _ in 0..operations {
                let Some(permit) = operation(&semaphore, &mut dice, LIMIT).await else {
                    continue;
                };
                granted += 1;
                let now = held.fetch_add(permit.permits(), Ordering::SeqCst) + permit.permits();
                assert!(now <= LIMIT, "{now} are held");
                tokio::task::yield_now().await;
                held.fetch_sub(permit.permits(), Ordering::SeqCst);
                if dice.one_in(2) {
                    permit.release().await.unwrap();
                }
            }
            granted
        })
    });

    let mut granted = 0;
    for task in futures_util::future::join_all(tasks).await {
        granted += task.unwrap();
    }

    assert!(granted > operations, "{granted} grants");
    at_rest(&world, &keepers[0], "crowd", LIMIT).await;
}

/// No holder and no waiter is left, and all permits are there.
async fn at_rest(world: &World, keeper: &Keeper, name: &str, limit: u32) {
    let stranger = world.raw().await;
    for directory in ["queue", "held"] {
        let directory = format!("{name}/{directory}");
        let is_empty = || async { children(&stranger, &directory).await.is_empty() };
        eventually("nobody is left", SOON, is_empty).await;
    }
    let semaphore = keeper.semaphore(name, limit).unwrap();
    assert_eq!(semaphore.available_permits().await.unwrap(), limit);
    let all = timeout(SOON, semaphore.acquire_many(limit)).await.unwrap();
    all.unwrap().release().await.unwrap();
}

#[case(embedded, within = 120)]
async fn at_every_transaction_of_a_random_run_no_permit_was_given_beyond_the_limit(world: World) {
    const START: u32 = 4;
    let server = world.embedded();
    server.journal(1_000_000);
    let (stranger, calm) = (world.raw().await, keeper(&world).await);
    calm.semaphore("run", START)
        .unwrap()
        .acquire()
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    let operations = World::times(OPERATIONS, OPERATIONS * 10) / usize::try_from(TASKS).unwrap();
    let tasks = (0..TASKS).map(|task| {
        let address = world.connect_string();
        tokio::spawn(async move {
            let builder = Keeper::builder(address).session_timeout(Duration::from_secs(30));
            let keeper = builder.connect().await.unwrap();
            let semaphore = keeper.semaphore("run", START).unwrap();
            let (mut dice, mut kept) = (Dice(task + 100), None);
            for _ in 0..operations {
                // What a task keeps it gives back before it waits: it would wait for itself.
                drop(kept.take());
                let permit = operation(&semaphore, &mut dice, 5).await;
                if dice.one_in(3) {
                    kept = permit;
                    tokio::task::yield_now().await;
                } else if let Some(permit) = permit {
                    // It may have been lost.
                    permit.release().await.ok();
                }
            }
            drop(kept);
            keeper.close().await;
        })
    });
    let tasks: Vec<_> = tasks.collect();

    // Meanwhile sessions end, directories go and the limit changes; a stranger's writes tell when.
    let mut limits = BTreeMap::from([(0, START)]);
    let (mut dice, mut expired, own) = (Dice(7), 0, own(&calm).await);
    while tasks.iter().any(|task| !task.is_finished()) {
        match dice.below(4) {
            0 => {
                let sessions = server.faults().sessions();
                let held = children(&stranger, "run/held").await;
                let owners = futures_util::future::join_all(held.iter().map(|permit| {
                    let path = format!("/locks/run/held/{permit}");
                    let stranger = stranger.clone();
                    async move {
                        stranger
                            .check_stat(&path)
                            .await
                            .ok()
                            .flatten()
                            .map(|stat| stat.ephemeral_owner)
                    }
                }))
                .await;
                let victim = owners.into_iter().flatten().find(|owner| *owner != own);
                if let Some(victim) = victim.filter(|_| !sessions.is_empty()) {
                    expired += usize::from(server.faults().expire_session(victim));
                }
            }
            1 => drop(server.faults().reap_containers()),
            _ => {
                let limit = 2 + u32::try_from(dice.below(5)).unwrap();
                set_limit(&stranger, limit, &mut limits).await;
            }
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    for task in tasks {
        task.await.unwrap();
    }

    set_limit(&stranger, START, &mut limits).await;
    at_rest(&world, &calm, "run", START).await;
    let granted = judge(&server.take_journal(), &world, &limits);
    assert!(
        granted > operations && expired > 3,
        "{granted} grants, {expired} expiries"
    );
}

/// Stores another limit, and notes when.
async fn set_limit(stranger: &testbench::Stranger, limit: u32, limits: &mut BTreeMap<i64, u32>) {
    let data = limit.to_string();
    let set = stranger.set_data("/locks/run/limit", data.as_bytes(), None);
    limits.insert(set.await.unwrap().mzxid, limit);
}

/// The session of a keeper.
async fn own(keeper: &Keeper) -> i64 {
    crate::regressions::own_session(keeper).await
}

/// Every permit that ever was, by its identity, until its end: none was created when it did not
/// fit. How many there were.
fn judge(journal: &[Deleted], world: &World, limits: &BTreeMap<i64, u32>) -> usize {
    let start = format!("{}/locks/run/held/permit-", world.chroot());
    // What happened at each transaction: permits that came, and permits that went.
    let mut changes: BTreeMap<i64, (u32, u32)> = BTreeMap::new();
    let mut granted = 0;
    for deleted in journal {
        let Some(rest) = deleted.path.strip_prefix(&start) else {
            continue;
        };
        let permits: u32 = rest.split('-').next().unwrap().parse().unwrap();
        changes.entry(deleted.czxid).or_default().0 += permits;
        changes.entry(deleted.zxid).or_default().1 += permits;
        granted += 1;
    }
    let mut held = 0;
    for (zxid, (came, went)) in changes {
        held -= went;
        held += came;
        let (_, limit) = limits.range(..zxid).next_back().unwrap();
        assert!(
            came == 0 || held <= *limit,
            "{held} of {limit} are held at {zxid:#x}"
        );
    }
    assert_eq!(held, 0);
    granted
}
