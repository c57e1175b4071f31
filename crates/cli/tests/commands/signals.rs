//! Signals to the tool and to its command, and the death of either.

use std::process::Stdio;
use std::time::Duration;

use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use tempfile::TempDir;
use tokio::process::Command;
use tokio::time::timeout;

use super::loss::{end, next_line, number};
use super::{DONE_LATER, Holder, is_gone, job, outcome, queued, run, tickets};
use crate::tool::{finished, heed_signals, lockkeeper};
use testbench::{World, case, eventually};

#[case]
async fn term_is_passed_on_and_the_lock_stays_until_the_command_ended(world: World) {
    let script = "trap 'echo trapped; read x; echo done; exit 3' TERM; echo ready; while :; do sleep 0.05; done";
    let mut command = run(&world, "term", script);
    let mut holder = Holder::start(command.stdin(Stdio::piped())).await;

    holder.signal(Signal::SIGTERM);
    let trapped = holder.lines.next_line().await.unwrap();
    let meanwhile = tickets(&world, "term").await;
    drop(holder.tool.stdin.take());
    let done = holder.lines.next_line().await.unwrap();
    let code = holder.code().await;

    assert_eq!(
        [trapped.as_deref(), done.as_deref()],
        [Some("trapped"), Some("done")]
    );
    assert_eq!((meanwhile, code), (1, Some(3)));
    assert_eq!(tickets(&world, "term").await, 0);
}

#[case]
async fn the_lock_stays_until_the_whole_group_of_the_command_has_ended(world: World) {
    let mut holder = Holder::start(&mut run(&world, "job", &job(DONE_LATER))).await;
    next_line(&mut holder).await;
    let mut next = run(&world, "job", "echo granted $(date +%s%3N)");
    let next = tokio::spawn(async move { finished(&mut next).await });
    queued(&world, "job", 2).await;

    holder.signal(Signal::SIGTERM);
    let done = next_line(&mut holder).await;
    let (code, stderr) = end(holder).await;
    let granted = next.await.unwrap().stdout;

    assert!(
        number(&done) <= number(granted.trim_end()),
        "{done}, and {granted}"
    );
    assert_eq!(
        (code, stderr),
        (Some(143), Vec::new()),
        "the command's own code"
    );
}

#[case]
async fn what_is_left_of_a_command_that_was_told_to_end_is_killed_after_the_grace(world: World) {
    let mut command = lockkeeper(&world);
    let options = ["run", "--grace", "300ms", "left", "--", "sh", "-c"];
    let mut holder = Holder::start(command.args(options).arg(job(""))).await;
    let group = number(&next_line(&mut holder).await);

    holder.signal(Signal::SIGTERM);
    let (code, stderr) = end(holder).await;

    assert!(is_gone(group), "nobody works on: {stderr:?}");
    assert_eq!(code, Some(143), "{stderr:?}");
    assert_eq!(stderr.len(), 1, "{stderr:?}");
    assert!(
        stderr[0].starts_with("lockkeeper: the rest of its process group (pid ")
            && stderr[0].ends_with(") did not end within 300ms: it gets SIGKILL"),
        "{stderr:?}"
    );
}

#[case]
async fn a_second_signal_is_passed_on_to_what_the_command_left(world: World) {
    let on_term = "n=$((n+1)); echo told $n; if [ $n = 2 ]; then exit; fi";
    let mut command = lockkeeper(&world);
    let options = ["run", "--grace", "1h", "again", "--", "sh", "-c"];
    let mut holder = Holder::start(command.args(options).arg(job(on_term))).await;
    let group = next_line(&mut holder).await;

    holder.signal(Signal::SIGTERM);
    assert_eq!(next_line(&mut holder).await, "told 1");
    ended(&group).await;
    holder.signal(Signal::SIGTERM);

    assert_eq!(next_line(&mut holder).await, "told 2");
    assert_eq!(end(holder).await, (Some(143), Vec::new()));
}

/// Waits until a process has ended, and somebody has waited for it.
pub(crate) async fn ended(pid: &str) {
    let process = format!("/proc/{pid}");
    let is_gone = || async { !std::path::Path::new(&process).exists() };
    eventually(
        "the command itself has ended",
        Duration::from_secs(10),
        is_gone,
    )
    .await;
}

/// The fields of a process behind its name: its state, its parent, its group, its session.
fn fields(pid: &str) -> Vec<String> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let (_, fields) = stat.rsplit_once(") ").unwrap_or_default();
    fields.split(' ').map(str::to_owned).collect()
}

#[case]
async fn the_dead_of_a_parent_that_left_the_group_do_not_keep_the_lock(world: World) {
    dead_are_left(&world, "").await;
}

/// Each is one that the tool waits for.
#[case]
async fn orphans_that_end_all_the_time_do_not_keep_the_lock(world: World) {
    let orphans = "setsid sh -c 'while :; do (: &); done' >/dev/null 2>&1 & noise=$!;";
    dead_are_left(&world, orphans).await;
}

async fn dead_are_left(world: &World, before: &str) {
    // `sleep 30` never waits for the other one, whose parent it has become.
    let left =
        "(sleep 0.2 & echo ready; echo $!; echo $noise; exec setsid sleep 30 >/dev/null 2>&1)";
    let script = &format!("{before} {left} & wait");
    let mut command = lockkeeper(world);
    let options = ["run", "--grace", "1h", "dead", "--", "sh", "-c", script];
    let mut holder = Holder::start(command.args(options)).await;
    let dead = next_line(&mut holder).await;
    let noise = next_line(&mut holder).await;
    let parent = fields(&dead)[1].clone();
    let has_left = || async { fields(&dead)[0] == "Z" && fields(&parent)[3] == parent };
    let seconds = Duration::from_secs(10);
    eventually("its parent has left the group", seconds, has_left).await;

    holder.signal(Signal::SIGTERM);
    let outcome = timeout(seconds, end(holder)).await;

    for left in [parent, noise].iter().filter_map(|pid| pid.parse().ok()) {
        kill(Pid::from_raw(left), Signal::SIGKILL).unwrap();
    }
    assert_eq!(outcome.expect("in time"), (Some(143), Vec::new()));
}

/// Leaves a process that ends with the input, says its own number and that one's, and ends.
const LEAVES: &str = "exec 3<&0; cat <&3 >/dev/null 2>&1 & echo ready; echo $$; echo $!";

#[case]
async fn what_a_command_leaves_at_its_end_is_said_and_does_not_keep_the_lock(world: World) {
    let mut command = run(&world, "leaves", LEAVES);
    let mut holder = Holder::start(command.stdin(Stdio::piped())).await;
    let _input = holder.tool.stdin.take();
    next_line(&mut holder).await;
    let left = next_line(&mut holder).await;

    let (code, stderr) = end(holder).await;

    assert_eq!(
        stderr,
        [format!(
            "lockkeeper: the command has ended, and the rest of its process group (pid {left}) goes on without the lock; \
             --wait-group keeps the lock for it"
        )]
    );
    assert_eq!(code, Some(0));
    assert_eq!(tickets(&world, "leaves").await, 0);
    assert!(!fields(&left).is_empty(), "it goes on");
}

#[case]
async fn wait_group_keeps_the_lock_for_what_the_command_left(world: World) {
    let mut command = lockkeeper(&world);
    let options = ["run", "--wait-group", "kept", "--", "sh", "-c", LEAVES];
    let mut holder = Holder::start(command.args(options).stdin(Stdio::piped())).await;
    let input = holder.tool.stdin.take();
    let command = next_line(&mut holder).await;

    ended(&command).await;
    let next = outcome(&world, &["run", "--wait", "1s", "kept", "--", "true"]).await;
    drop(input);

    assert_eq!(next.code, Some(75), "{next:?}");
    assert_eq!(end(holder).await, (Some(0), Vec::new()));
    assert_eq!(tickets(&world, "kept").await, 0);
}

#[case]
async fn process_1_waits_for_the_children_of_strangers(world: World) {
    let Some(unshare) = unshare().await else {
        eprintln!("nobody here may make a process 1");
        return;
    };
    let script = "for i in 1 2 3 4 5; do (sleep 0.05 &); done; echo ready; read x";
    let mut command = Command::new("unshare");
    command
        .args(unshare)
        .args(["--kill-child", env!("CARGO_BIN_EXE_lockkeeper")])
        .args(["run", "first", "--", "sh", "-c", script])
        .env("LOCKKEEPER_ZK", world.connect_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    let mut holder = Holder::start(&mut command).await;
    let tool = children(holder.pid().as_raw()).remove(0);

    let only_the_command = || async { children(tool).len() == 1 };
    let seconds = Duration::from_secs(10);
    eventually("the orphans are gone", seconds, only_the_command).await;
    drop(holder.tool.stdin.take());

    assert_eq!(holder.code().await, Some(1), "the command's own code");
}

/// The options with which this user may make a process 1, if with any.
async fn unshare() -> Option<&'static [&'static str]> {
    for options in [&["--pid", "--fork"] as &[&str], &["-r", "--pid", "--fork"]] {
        let tried = Command::new("unshare").args(options).arg("true").output();
        if tried.await.is_ok_and(|tried| tried.status.success()) {
            return Some(options);
        }
    }
    None
}

fn children(parent: i32) -> Vec<i32> {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = processes.filter_map(|process| process.file_name().into_string().ok());
    let of_parent = |pid: &String| fields(pid).get(1) == Some(&parent.to_string());
    pids.filter(of_parent)
        .filter_map(|pid| pid.parse().ok())
        .collect()
}

#[case]
async fn every_signal_is_passed_on_each_time(world: World) {
    // It heeds no signal, so it ends when it sees that its parent is gone.
    let script = "for s in HUP INT QUIT TERM USR1 USR2; do trap \"echo $s\" $s; done; echo ready; \
                  while kill -0 $PPID 2>/dev/null; do sleep 0.02; done";
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

#[case]
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

#[case]
async fn signals_that_came_before_the_command_ended_do_not_cut_the_release_short(world: World) {
    let mut command = run(&world, "hurried", "echo ready; echo $$; read line");
    let mut holder = Holder::start(command.stdin(Stdio::piped())).await;
    let command = holder.lines.next_line().await.unwrap().unwrap();

    // All at once, as when a whole group is told to end: the tool finds its command ended, and two
    // signals for it.
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

#[case]
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

#[case]
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

#[case]
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

#[case]
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

#[case]
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
