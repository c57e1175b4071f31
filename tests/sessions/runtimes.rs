//! Where the tasks of a keeper run, and who may use its locks from where.

use std::collections::BTreeSet;
use std::time::Duration;

use lockkeeper::{Guard, Keeper};
use tokio::runtime::{Builder, Runtime};
use tokio::task::spawn_blocking;

use testbench::keeper;
use testbench::{World, case, eventually};

const SOON: Duration = Duration::from_secs(5);

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// Names that are so long that one session has no room for the tickets of all.
fn names(thread: usize) -> impl Iterator<Item = String> {
    let long = ["long".repeat(50).as_str(); 19].join("/");
    (0..30).map(move |number| format!("{long}/{thread}/{number}"))
}

/// Takes locks in a runtime of its own, which ends then.
fn take_all(keeper: &Keeper, thread: usize) -> Vec<Guard> {
    runtime().block_on(async {
        let mut guards = Vec::new();
        for name in names(thread) {
            guards.push(keeper.mutex(name).unwrap().lock().await.unwrap());
        }
        guards
    })
}

#[case]
async fn sessions_live_on_where_their_keeper_was_connected(world: World) {
    let keeper = keeper(&world).await;
    let mut threads = Vec::new();
    for thread in 0..6 {
        let keeper = keeper.clone();
        threads.push(spawn_blocking(move || take_all(&keeper, thread)));
    }
    let mut guards = Vec::new();
    for thread in threads {
        guards.extend(thread.await.unwrap());
    }
    let mut sessions = BTreeSet::new();
    for guard in &guards {
        let queue = keeper.queue(guard.name().clone()).await.unwrap();
        sessions.extend(queue.iter().map(|entry| entry.session));
    }

    let lost = guards.iter().filter(|guard| !guard.is_held()).count();
    assert_eq!(lost, 0, "of {}", guards.len());
    assert!(sessions.len() > 1, "one session is enough for all");
    for guard in guards.iter().step_by(20) {
        guard.check().await.unwrap();
    }
    keeper.close().await;
}

#[case]
async fn a_guard_may_go_on_a_thread_without_a_runtime(world: World) {
    let keeper = keeper(&world).await;
    let lock = keeper.mutex("plain").unwrap();
    let guard = lock.lock().await.unwrap();

    std::thread::spawn(move || {
        assert!(guard.is_held());
        drop(guard);
    })
    .join()
    .unwrap();

    let next = tokio::time::timeout(SOON, lock.lock()).await;
    next.expect("the ticket goes")
        .unwrap()
        .release()
        .await
        .unwrap();
    keeper.close().await;
}

#[case]
async fn a_keeper_may_be_closed_in_another_runtime(world: World) {
    let keeper = keeper(&world).await;
    let guard = keeper.mutex("closed").unwrap().lock().await.unwrap();
    let other = testbench::keeper(&world).await;

    spawn_blocking(move || runtime().block_on(keeper.close()))
        .await
        .unwrap();

    assert!(!guard.is_held());
    let is_free = || async { other.queue("closed").await.unwrap().is_empty() };
    eventually("its session is over", SOON, is_free).await;
    other.close().await;
}
