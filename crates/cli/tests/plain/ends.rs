//! How a hold of the tool ends: by a loss, by signals, by SIGKILL.

use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use testbench::eventually;
use testbench::relay::Way;
use tokio::time::sleep;

use crate::bed::Bed;
use crate::tool::{HEEDS, Holder, LONG, finished, now_ms, number, relayed, run, set};

crate::cases![
    a_removed_lock_ends_the_command,
    a_silent_store_ends_the_command_before_others_can_hold,
    the_lock_of_a_killed_tool_is_free_after_the_ttl,
    a_tool_that_stood_still_ends_its_command,
    a_signal_at_any_moment_leaves_no_lock_behind,
];

const TTL: [&str; 2] = ["--ttl", "2s"];

async fn a_removed_lock_ends_the_command(bed: Arc<Bed>, name: String) {
    let url = bed.url().await;
    let mut holder = Holder::start(&mut run(&url, &TTL, &name, HEEDS)).await;
    bed.remove(&name).await;
    let removed = Instant::now();

    let told = holder.next_line().await;
    let after = removed.elapsed();
    let (code, stderr) = holder.end().await;

    assert!(told.starts_with("TERM"), "{told}: {stderr}");
    // A third of the ttl, and what a busy machine needs.
    assert!(after < Duration::from_millis(1900), "{after:?}: {stderr}");
    assert_eq!(code, Some(70), "not the command's own: {stderr}");
    assert!(stderr.contains("the lock was lost: "), "{stderr}");
    assert!(stderr.contains("lost while the command ran"), "{stderr}");
}

async fn a_silent_store_ends_the_command_before_others_can_hold(bed: Arc<Bed>, name: String) {
    let (relays, url) = relayed(&bed).await;
    // It is told a sixteenth of its lease before that ends.
    let options = ["--ttl", "6s"];
    let mut holder = Holder::start(&mut run(&url, &options, &name, HEEDS)).await;
    set(&relays, Way::Silent);
    let lock = bed.lock(&name).await;
    let next = tokio::spawn(async move {
        let guard = lock.lock().await.unwrap();
        (now_ms(), guard)
    });

    let told = holder.next_line().await;
    let (code, stderr) = holder.end().await;
    let (granted, guard) = tokio::time::timeout(LONG, next).await.unwrap().unwrap();

    assert!(
        number(&told) < granted,
        "{told}, granted {granted}: {stderr}"
    );
    assert_eq!(code, Some(70), "{stderr}");
    assert!(
        stderr.contains("no server answers, and the lease lasts for only"),
        "{stderr}"
    );
    guard.release().await.unwrap();
}

async fn the_lock_of_a_killed_tool_is_free_after_the_ttl(bed: Arc<Bed>, name: String) {
    let url = bed.url().await;
    let (ends_with_connection, lock) = {
        let keeper = bed.keeper().await;
        let capabilities = keeper.store().capabilities();
        (
            capabilities.ends_with_connection,
            keeper.mutex(&name).unwrap(),
        )
    };
    let options = ["--ttl", "4s"];
    let mut holder = Holder::start(&mut run(&url, &options, &name, HEEDS)).await;
    assert!(lock.try_lock().await.unwrap().is_none());
    let killed = Instant::now();
    holder.signal(Signal::SIGKILL);

    // The system tells the command of it.
    assert!(holder.next_line().await.starts_with("TERM"));
    let guard = lock.lock_timeout(Duration::from_secs(12)).await.unwrap();
    let free = killed.elapsed();

    if ends_with_connection {
        assert!(free < Duration::from_secs(2), "{free:?}");
    } else {
        // It was renewed a third of the ttl ago at most.
        assert!(free > Duration::from_secs(2), "{free:?}");
    }
    guard.release().await.unwrap();
}

async fn a_tool_that_stood_still_ends_its_command(bed: Arc<Bed>, name: String) {
    let url = bed.url().await;
    let mut holder = Holder::start(&mut run(&url, &TTL, &name, HEEDS)).await;
    holder.signal(Signal::SIGSTOP);
    let next = finished(&mut run(&url, &TTL, &name, "echo mine")).await;
    holder.signal(Signal::SIGCONT);

    let told = holder.next_line().await;
    let (code, stderr) = holder.end().await;

    assert_eq!(next.stdout, "mine\n", "{next:?}");
    assert!(told.starts_with("TERM"), "{told}: {stderr}");
    assert_eq!(code, Some(70), "{stderr}");
}

/// Also in the middle of an acquire or of a release.
async fn a_signal_at_any_moment_leaves_no_lock_behind(bed: Arc<Bed>, name: String) {
    let url = bed.url().await;
    let lock = bed.lock(&name).await;
    let mut codes = Vec::new();
    for turn in 0..12 {
        let mut command = run(&url, &["--ttl", "60s"], &name, "sleep 0.03");
        let mut tool = command.spawn().unwrap();
        sleep(Duration::from_millis(20 + turn * 9)).await;
        if let Some(pid) = tool.id() {
            let pid = nix::unistd::Pid::from_raw(pid as i32);
            nix::sys::signal::kill(pid, Signal::SIGTERM).unwrap_or_default();
        }
        codes.push(tool.wait().await.unwrap().code());
        let what = format!("the lock is free after turn {turn}: {codes:?}");
        let free = eventually(&what, Duration::from_secs(5), || async {
            lock.try_lock().await.unwrap()
        });
        free.await.release().await.unwrap();
    }
    // 0 and 143 of the command; none if the signal came before the tool heeded it.
    let known = |code: &Option<i32>| matches!(code, None | Some(0 | 143));
    assert!(codes.iter().all(known), "{codes:?}");
}
