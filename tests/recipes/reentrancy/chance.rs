//! Owners by chance: tasks of a few owners in two keepers lock, try, give up and lose their
//! sessions; never are two owners inside at a time.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex as StdMutex};
use std::time::Duration;

use futures_util::future::join_all;
use lockkeeper::{Guard, Keeper};
use tokio::time::timeout;

use super::{SOON, is_empty, owned};
use testbench::dice::Dice;
use testbench::keeper;
use testbench::plan::seed;
use testbench::{Make, World, case, eventually};

const LOCK: &str = "chance";
const OWNERS: [&str; 3] = ["red", "green", "blue"];
const TASKS: u64 = 8;

/// Who is inside: guards of each hold that are alive and say so, by owner and token.
#[derive(Default)]
struct Inside(StdMutex<BTreeMap<(&'static str, u64), usize>>);

impl Inside {
    fn enter(&self, owner: &'static str, guard: &Guard) {
        let mut inside = self.0.lock().unwrap();
        *inside.entry((owner, guard.token().into())).or_default() += 1;
        if guard.is_held() {
            // Guards that are lost count as gone, and their tasks leave at once; but by then the
            // others are in.
            let owners: Vec<_> = inside.keys().filter(|(other, _)| *other != owner).collect();
            assert!(owners.is_empty(), "{owner} came in beside {owners:?}");
        }
    }

    fn leave(&self, owner: &'static str, guard: &Guard) {
        let mut inside = self.0.lock().unwrap();
        let key = (owner, guard.token().into());
        let count = inside.get_mut(&key).expect("it came in");
        *count -= 1;
        if *count == 0 {
            inside.remove(&key);
        }
    }
}

/// One task's calls. Losses and ends of sessions are allowed only where sessions end.
async fn play(keepers: [Keeper; 2], inside: Arc<Inside>, mut dice: Dice, calls: usize) -> usize {
    let mut grants = 0;
    let mut held: Vec<(&'static str, Guard)> = Vec::new();
    for _ in 0..calls {
        let keeper = &keepers[usize::try_from(dice.below(2)).unwrap()];
        // A holder as one owner never asks as another: it would wait for itself.
        let owner = held
            .first()
            .map_or_else(|| dice.pick(&OWNERS), |(owner, _)| owner);
        let lock = owned(keeper, LOCK, owner);
        let granted = match dice.below(8) {
            0..=2 => match timeout(SOON * 10, lock.lock()).await {
                Ok(granted) => Some(granted.unwrap()),
                Err(_) => panic!("{owner} waits for ever: {:?}", keeper.queue(LOCK).await),
            },
            3 | 4 => lock.try_lock().await.unwrap(),
            5 => {
                let soon = Duration::from_micros(dice.below(3000));
                timeout(soon, lock.lock()).await.ok().map(Result::unwrap)
            }
            6 => {
                tokio::task::yield_now().await;
                None
            }
            _ => {
                let polls = usize::try_from(dice.below(12)).unwrap();
                let cancelled = crate::recipes::cancel::cancelled_after(polls, lock.try_lock());
                let tried = timeout(SOON, cancelled).await.ok().flatten();
                tried.and_then(Result::unwrap)
            }
        };
        if let Some(guard) = granted {
            inside.enter(owner, &guard);
            grants += 1;
            held.push((owner, guard));
        }
        while held.len() > 3 || (!held.is_empty() && dice.one_in(2)) {
            let at = usize::try_from(dice.below(held.len() as u64)).unwrap();
            let (owner, guard) = held.swap_remove(at);
            inside.leave(owner, &guard);
            if dice.one_in(2) {
                guard.release().await.unwrap();
            }
        }
    }
    for (owner, guard) in held {
        inside.leave(owner, &guard);
    }
    grants
}

#[case(within = 120)]
async fn of_eight_tasks_of_three_owners_one_owner_is_inside_at_a_time(world: World) {
    let seed = seed();
    println!("owners: LOCKKEEPER_SEED={seed}");
    let keepers = [keeper(&world).await, keeper(&world).await];
    let inside = Arc::new(Inside::default());
    let calls = World::times(2000, 50_000) / 8;
    let tasks = (0..TASKS).map(|task| {
        let (keepers, inside) = (keepers.clone(), Arc::clone(&inside));
        tokio::spawn(play(keepers, inside, Dice(seed ^ task), calls))
    });

    let grants: usize = join_all(tasks).await.into_iter().map(Result::unwrap).sum();

    assert!(grants > calls, "{grants} grants");
    let stranger = world.raw().await;
    is_empty(&stranger, LOCK).await;
    if world.is_embedded() {
        let unwatched = || async { world.embedded().counters().watches == 0 };
        eventually("no watch is left", SOON, unwatched).await;
    }
}

/// A write that commits only under the ticket and only over what was read: no later holder may
/// have written yet.
async fn write(stranger: &testbench::Stranger, owner: &str, guard: &Guard) {
    stranger.catch_up().await.unwrap();
    let (data, stat) = stranger.get_data("/written").await.unwrap();
    let before = String::from_utf8(data).unwrap();
    let (token, writer) = before.split_once(' ').unwrap();
    let (token, mine): (u64, u64) = (token.parse().unwrap(), guard.token().into());
    let line = format!("{mine} {owner}");
    let set = guard.fenced().set("/written", line, Some(stat.version));
    if set.commit().await.is_ok() {
        assert!(token <= mine, "{owner} wrote with {mine} after {before}");
        assert!(
            token < mine || writer == owner,
            "{owner} shares {mine} with {before}"
        );
    }
}

#[case(embedded, within = 120)]
async fn of_tasks_whose_sessions_end_one_owner_is_inside_at_a_time(world: World) {
    let seed = seed();
    println!("owners: LOCKKEEPER_SEED={seed}");
    let keepers = [keeper(&world).await, keeper(&world).await];
    let stranger = world.raw().await;
    let options = Make::Persistent;
    stranger
        .create("/written", b"0 nobody", &options)
        .await
        .unwrap();
    let stranger_session = stranger.session_id().0;
    let calls = World::times(800, 20_000) / 8;
    let granted_in_all = Arc::new(AtomicUsize::new(0));
    let tasks = (0..TASKS).map(|task| {
        let (keepers, stranger) = (keepers.clone(), stranger.clone());
        let granted_in_all = Arc::clone(&granted_in_all);
        let mut dice = Dice(seed ^ task);
        tokio::spawn(async move {
            let mut grants = 0;
            for _ in 0..calls {
                let keeper = &keepers[usize::try_from(dice.below(2)).unwrap()];
                let owner = dice.pick(&OWNERS);
                let lock = owned(keeper, LOCK, owner);
                let granted = match dice.below(3) {
                    0 => timeout(SOON * 10, lock.lock())
                        .await
                        .expect("it comes in")
                        .ok(),
                    1 => lock.try_lock().await.ok().flatten(),
                    _ => {
                        let soon = Duration::from_micros(dice.below(5000));
                        timeout(soon, lock.lock()).await.ok().and_then(Result::ok)
                    }
                };
                let Some(guard) = granted else { continue };
                grants += 1;
                granted_in_all.fetch_add(1, Ordering::Relaxed);
                write(&stranger, owner, &guard).await;
                if let Ok(Some(inner)) = lock.try_lock().await {
                    write(&stranger, owner, &inner).await;
                    drop(guard);
                    write(&stranger, owner, &inner).await;
                }
            }
            grants
        })
    });
    let players = tokio::spawn(join_all(tasks));
    let faults = world.embedded().faults();
    let mut dice = Dice(seed);
    let (mut ended, mut seen) = (0, 0);
    while !players.is_finished() {
        tokio::time::sleep(Duration::from_millis(5 + dice.below(20))).await;
        // A session's end costs each waiter its place. On a busy machine sessions that end by the
        // clock alone would let no waiter in.
        let granted = granted_in_all.load(Ordering::Relaxed);
        if granted < seen + 2 {
            continue;
        }
        seen = granted;
        let sessions = faults.sessions();
        let theirs: Vec<i64> = sessions
            .iter()
            .map(|session| session.id)
            .filter(|id| *id != stranger_session)
            .collect();
        if !theirs.is_empty() && faults.expire_session(dice.pick(&theirs)) {
            ended += 1;
        }
    }

    let grants: usize = players.await.unwrap().into_iter().map(Result::unwrap).sum();

    assert!(
        ended > 3 && grants > calls,
        "{ended} ended, {grants} grants"
    );
    is_empty(&stranger, LOCK).await;
}
