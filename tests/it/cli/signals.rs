//! Signals to the tool and to its command, and the death of either.

use std::process::Stdio;
use std::time::Duration;

use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use tempfile::TempDir;
use tokio::process::Command;

use super::{Holder, outcome, queued, run, tickets};
use crate::support::process::{heed_signals, lockkeeper};
use crate::support::{World, eventually};

cases! {
    feature: "cli";
    both:
        term_is_passed_on_and_the_lock_stays_until_the_command_ended,
        every_signal_is_passed_on_each_time,
        int_while_waiting_leaves_the_queue,
        signals_that_came_before_the_command_ended_do_not_cut_the_release_short,
        int_while_connecting_ends_the_tool,
        a_killed_tool_takes_its_command_down_and_frees_the_lock,
        the_command_has_a_process_group_of_its_own,
        signals_that_were_ignored_stay_ignored,
        a_command_that_is_stopped_by_hand_keeps_its_lock;
}

async fn term_is_passed_on_and_the_lock_stays_until_the_command_ended(world: World) {
    let script = "trap 'echo trapped; sleep 1; echo done; exit 3' TERM; echo ready; while :; do sleep 0.05; done";
    let mut holder = Holder::start(&mut run(&world, "term", script)).await;

    holder.signal(Signal::SIGTERM);
    let trapped = holder.lines.next_line().await.unwrap();
    let meanwhile = tickets(&world, "term").await;
    let done = holder.lines.next_line().await.unwrap();
    let code = holder.code().await;

    assert_eq!(
        [trapped.as_deref(), done.as_deref()],
        [Some("trapped"), Some("done")]
    );
    assert_eq!((meanwhile, code), (1, Some(3)));
    assert_eq!(tickets(&world, "term").await, 0);
}

async fn every_signal_is_passed_on_each_time(world: World) {
    let script = "for s in HUP INT QUIT TERM USR1 USR2; do trap \"echo $s\" $s; done; echo ready; \
                  while :; do sleep 0.02; done";
    let mut holder = Holder::start(&mut run(&world, "each", script)).await;

    for (signal, name) in [
        (Signal::SIGHUP, "HUP"),
        (Signal::SIGINT, "INT"),
        (Signal::SIGINT, "INT"),
        (Signal::SIGQUIT, "QUIT"),
        (Signal::SIGTERM, "TERM"),
        (Signal::SIGTERM, "TERM"),
        (Signal::SIGUSR1, "USR1"),
        (Signal::SIGUSR2, "USR2"),
    ] {
        holder.signal(signal);
        assert_eq!(
            holder.lines.next_line().await.unwrap().as_deref(),
            Some(name)
        );
    }
}

async fn int_while_waiting_leaves_the_queue(world: World) {
    let _holder = Holder::of(&world, "queued").await;
    for (signal, code) in [(Signal::SIGINT, 130), (Signal::SIGTERM, 143)] {
        let mut waiting = run(&world, "queued", "echo never").spawn().unwrap();
        queued(&world, "queued", 2).await;

        kill(Pid::from_raw(waiting.id().unwrap() as i32), signal).unwrap();
        let ended = waiting.wait().await.unwrap();

        assert_eq!(ended.code(), Some(code));
        assert_eq!(tickets(&world, "queued").await, 1);
    }
}

async fn signals_that_came_before_the_command_ended_do_not_cut_the_release_short(world: World) {
    let mut command = run(&world, "hurried", "echo ready; echo $$; read line");
    let mut holder = Holder::start(command.stdin(Stdio::piped())).await;
    let command = holder.lines.next_line().await.unwrap().unwrap();

    // All at once, as when a whole group is told to end: the tool finds its command ended, and two signals for it.
    holder.signal(Signal::SIGSTOP);
    holder.signal(Signal::SIGINT);
    holder.signal(Signal::SIGTERM);
    drop(holder.tool.stdin.take());
    let stat = format!("/proc/{command}/stat");
    let is_over =
        || async { std::fs::read_to_string(&stat).is_ok_and(|stat| stat.contains(") Z")) };
    eventually("the command has ended", Duration::from_secs(10), is_over).await;
    holder.signal(Signal::SIGCONT);

    assert_eq!(holder.code().await, Some(1), "the command's own code");
    assert_eq!(tickets(&world, "hurried").await, 0, "the lock is free");
}

async fn int_while_connecting_ends_the_tool(world: World) {
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = silent.local_addr().unwrap().to_string();
    let mut command = lockkeeper(&world);
    command.args([
        "--zk",
        &address,
        "--connect-timeout",
        "1h",
        "run",
        "a",
        "--",
        "true",
    ]);
    let mut tool = command.spawn().unwrap();
    let _connection = silent.accept().await.unwrap();

    kill(Pid::from_raw(tool.id().unwrap() as i32), Signal::SIGINT).unwrap();

    assert_eq!(tool.wait().await.unwrap().code(), Some(130));
}

async fn a_killed_tool_takes_its_command_down_and_frees_the_lock(world: World) {
    let folder = TempDir::new().unwrap();
    let script = "trap 'echo TERM > marker; exit' TERM; echo ready; for i in $(seq 600); do sleep 0.05; done";
    let mut command = lockkeeper(&world);
    command
        .args([
            "--session-timeout",
            "1s",
            "run",
            "killed",
            "--",
            "sh",
            "-c",
            script,
        ])
        .current_dir(folder.path());
    let mut holder = Holder::start(&mut command).await;

    holder.signal(Signal::SIGKILL);
    assert_eq!(holder.code().await, None);

    let marked = || async { folder.path().join("marker").exists() };
    eventually("the command got TERM", Duration::from_secs(10), marked).await;
    let next = outcome(&world, &["run", "--wait", "10s", "killed", "--", "true"]).await;
    assert_eq!(next.code, Some(0), "{next:?}");
}

async fn the_command_has_a_process_group_of_its_own(world: World) {
    let script = "echo ready; echo $$ $(cut -d' ' -f 4,5 /proc/$$/stat)";
    let mut holder = Holder::start(&mut run(&world, "group", script)).await;
    let tool = holder.pid();

    let line = holder.lines.next_line().await.unwrap().unwrap();
    let numbers: Vec<i32> = line
        .split(' ')
        .map(|number| number.parse().unwrap())
        .collect();

    let [pid, parent, group] = numbers[..] else {
        panic!("{line}")
    };
    assert_eq!((parent, group), (tool.as_raw(), pid));
}

async fn signals_that_were_ignored_stay_ignored(world: World) {
    heed_signals();
    let mut command = Command::new("sh");
    command.args([
        "-c",
        "trap '' HUP; exec \"$0\" run ignored -- sh -c 'echo ready; grep SigIgn /proc/self/status; read x'",
        env!("CARGO_BIN_EXE_lockkeeper"),
    ]);
    command
        .env("LOCKKEEPER_ZK", world.connect_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true);
    let mut holder = Holder::start(&mut command).await;

    holder.signal(Signal::SIGHUP);
    let ignored = holder.lines.next_line().await.unwrap().unwrap();
    drop(holder.tool.stdin.take());

    let mask = ignored.strip_prefix("SigIgn:").unwrap().trim();
    assert_eq!(
        u64::from_str_radix(mask, 16).unwrap() & 0b1111,
        1,
        "{ignored}"
    );
    assert_eq!(holder.code().await, Some(1), "the command's own code");
}

async fn a_command_that_is_stopped_by_hand_keeps_its_lock(world: World) {
    let script = "echo ready; echo $$; read x; echo went on";
    let mut command = lockkeeper(&world);
    command
        .args([
            "--session-timeout",
            "3s",
            "run",
            "stopped",
            "--",
            "sh",
            "-c",
            script,
        ])
        .stdin(Stdio::piped());
    let mut holder = Holder::start(&mut command).await;
    let group = holder.lines.next_line().await.unwrap().unwrap();
    let group = Pid::from_raw(group.parse().unwrap());

    killpg(group, Signal::SIGSTOP).unwrap();
    let next = outcome(&world, &["run", "--wait", "5s", "stopped", "--", "true"]).await;
    killpg(group, Signal::SIGCONT).unwrap();
    drop(holder.tool.stdin.take());

    assert_eq!(next.code, Some(75), "{next:?}");
    let last = holder.lines.next_line().await.unwrap();
    assert_eq!(last.as_deref(), Some("went on"));
    assert_eq!(holder.code().await, Some(0));
}
