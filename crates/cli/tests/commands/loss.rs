//! The command when its lock is lost, or soon may be: it gets TERM in time, KILL when that is not
//! enough, and `run` ends with 70.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::process::Stdio;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, pipe};
use tokio::io::AsyncReadExt;
use tokio::process::Command;
use tokio::time::timeout;

use super::{Holder, is_gone, job, queued, run};
use crate::tool::{finished, lockkeeper};
use testbench::relay::{Relay, Way};
use testbench::{World, case, eventually};

/// Longer than any server needs to end a session of these cases.
const LONG: Duration = Duration::from_secs(30);

/// Prints when it got TERM, in milliseconds, and ends as if all were well.
const HEEDS: &str = "trap 'echo TERM $(date +%s%3N); exit 0' TERM; echo ready; \
                     while :; do sleep 0.02; done";

/// `lockkeeper run` by way of a relay, with a short session.
fn run_by(relay: &Relay, world: &World, options: &[&str], script: &str) -> Command {
    let mut command = lockkeeper(world);
    command
        .args(["--zk", &world.connect_string_at(&[relay.address()])])
        .args(["--session-timeout", "1s", "run"])
        .args(options)
        .args(["a", "--", "sh", "-c", script]);
    command
}

/// The exit code and what the tool said; a shell tells of what was ended under it too.
pub(crate) async fn end(mut holder: Holder) -> (Option<i32>, Vec<String>) {
    let code = timeout(LONG, holder.code()).await.expect("the tool ends");
    let mut text = String::new();
    let mut stderr = holder.tool.stderr.take().unwrap();
    stderr.read_to_string(&mut text).await.unwrap();
    let said = text.lines().filter(|line| line.starts_with("lockkeeper: "));
    (code, said.map(str::to_owned).collect())
}

pub(crate) async fn next_line(holder: &mut Holder) -> String {
    let line = timeout(LONG, holder.lines.next_line());
    line.await.expect("a line in time").unwrap().unwrap()
}

/// The number at the end of a line.
pub(crate) fn number(line: &str) -> u64 {
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

#[case]
async fn the_command_gets_term_before_anybody_else_can_have_the_lock(world: World) {
    let relay = Relay::to(world.servers()[0]).await;
    let mut command = lockkeeper(&world);
    command
        .args(["--zk", &world.connect_string_at(&[relay.address()])])
        // It is told almost half a second before its lease ends: enough for a busy machine.
        .args(["--session-timeout", "8s", "run", "a", "--", "sh", "-c"])
        .arg(HEEDS);
    let mut holder = Holder::start(&mut command).await;
    let mut next = run(&world, "a", "echo granted $(date +%s%3N)");
    let next = tokio::spawn(async move { finished(&mut next).await });
    queued(&world, "a", 2).await;

    relay.set(Way::Silent);
    let told = next_line(&mut holder).await;
    let (code, stderr) = end(holder).await;
    let next = timeout(LONG, next).await.unwrap().unwrap();

    assert!(
        number(&told) < number(next.stdout.trim_end()),
        "{told}, then {next:?}"
    );
    assert_eq!(code, Some(70), "not the command's own: {stderr:?}");
    // It is still ours by then, and the tool says for how long.
    let first = &stderr[0];
    assert!(
        first.starts_with("lockkeeper: a: no server answers, and the lease lasts for only ")
            && first.ends_with("the command gets SIGTERM, and SIGKILL after 5s"),
        "{stderr:?}"
    );
    assert!(
        stderr[1].contains("lost while the command ran"),
        "{stderr:?}"
    );
    assert_eq!(stderr.len(), 2, "{stderr:?}");
}

#[case]
async fn a_command_that_ignores_term_is_killed_after_the_grace(world: World) {
    let relay = Relay::to(world.servers()[0]).await;
    // A shell tells there what was ended under it, before its trap.
    let script = "exec 2> /dev/null; trap 'echo TERM' TERM; echo ready; echo $$; \
                  while :; do sleep 0.02; done";
    // A busy machine may show the word of the trap late.
    let command = &mut run_by(&relay, &world, &["--grace", "2s"], script);
    let mut holder = Holder::start(command).await;
    let group = number(&next_line(&mut holder).await);

    relay.set(Way::Refusing);
    assert_eq!(next_line(&mut holder).await, "TERM");
    let told = Instant::now();
    let (code, stderr) = end(holder).await;

    assert_eq!(code, Some(70), "{stderr:?}");
    assert!(told.elapsed() > Duration::from_secs(1), "{stderr:?}");
    assert_eq!(
        stderr[1], "lockkeeper: the command did not end within 2s of SIGTERM: it gets SIGKILL",
        "{stderr:?}"
    );
    let gone = || async { kill(Pid::from_raw(-(group as i32)), None).is_err() };
    eventually("the command is gone", Duration::from_secs(2), gone).await;
}

#[case]
async fn words_that_nobody_reads_hold_up_no_signal(world: World) {
    let relay = Relay::to(world.servers()[0]).await;
    // A shell tells there what was ended under it, before its trap.
    let script = "exec 2> /dev/null; trap 'echo TERM' TERM; echo ready; echo $$; \
                  while :; do sleep 0.02; done";
    // A busy machine may be late with the trap, which SIGKILL would cut short.
    let mut command = run_by(&relay, &world, &["--grace", "2s"], script);
    // As `2>&1 | less` has it, once its page is full.
    let (reader, writer) = pipe().unwrap();
    let writer = File::from(writer);
    fill(&writer);
    let mut holder = Holder::start(command.stderr(writer)).await;
    let group = number(&next_line(&mut holder).await);

    relay.set(Way::Refusing);
    assert_eq!(next_line(&mut holder).await, "TERM");
    let gone = || async { is_gone(group) };
    eventually("SIGKILL follows", LONG, gone).await;
    // The last word waits for a reader.
    File::from(reader).read_exact(&mut [0; 4096]).unwrap();
    let code = timeout(LONG, holder.code()).await.expect("the tool ends");
    assert_eq!(code, Some(70));
}

fn fill(mut pipe: &File) {
    let takes_more = || {
        let mut ends = [PollFd::new(pipe.as_fd(), PollFlags::POLLOUT)];
        poll(&mut ends, PollTimeout::ZERO).unwrap() > 0
    };
    while takes_more() {
        pipe.write_all(&[b'x'; 4096]).unwrap();
    }
}

#[case]
async fn a_log_that_nobody_reads_ends_nothing(world: World) {
    let relay = Relay::to(world.servers()[0]).await;
    let mut command = lockkeeper(&world);
    command
        .args(["--zk", &world.connect_string_at(&[relay.address()])])
        .args(["-vv", "--session-timeout", "4s", "run", "a", "--", "sh"])
        .args(["-c", "echo ready; read x; exit 0"])
        .stdin(Stdio::piped());
    let mut holder = Holder::start(&mut command).await;
    drop(holder.tool.stderr.take());

    // It logs that it has no connection.
    relay.set(Way::Refusing);
    tokio::time::sleep(Duration::from_millis(500)).await;
    relay.set(Way::Open);
    drop(holder.tool.stdin.take());

    assert_eq!(holder.code().await, Some(0));
}

#[case]
async fn a_release_that_the_servers_do_not_answer_is_no_loss(world: World) {
    let relay = Relay::to(world.servers()[0]).await;
    let mut command = lockkeeper(&world);
    command
        .args(["--zk", &world.connect_string_at(&[relay.address()])])
        .args(["--session-timeout", "4s", "run", "a", "--", "sh", "-c"])
        .arg("echo ready; read x; exit 0")
        .stdin(Stdio::piped());
    let mut holder = Holder::start(&mut command).await;

    relay.set(Way::Silent);
    drop(holder.tool.stdin.take());
    let (code, stderr) = end(holder).await;

    assert_eq!(code, Some(0), "the command had ended: {stderr:?}");
    assert!(
        stderr[0].ends_with("; the end of the session frees a"),
        "{stderr:?}"
    );
}

#[case]
async fn a_worker_that_ignores_term_is_killed_after_the_grace(world: World) {
    let relay = Relay::to(world.servers()[0]).await;
    let command = &mut run_by(&relay, &world, &["--grace", "300ms"], &job(""));
    let mut holder = Holder::start(command).await;
    let group = number(&next_line(&mut holder).await);

    relay.set(Way::Refusing);
    let (code, stderr) = end(holder).await;

    assert!(is_gone(group), "nobody works on: {stderr:?}");
    assert_eq!(code, Some(70), "{stderr:?}");
    assert!(
        stderr[1].starts_with("lockkeeper: the rest of its process group (pid ")
            && stderr[1].ends_with(") did not end within 300ms: it gets SIGKILL"),
        "{stderr:?}"
    );
}

#[case]
async fn a_tool_that_stood_still_while_its_lock_was_given_away_ends_its_command(world: World) {
    let relay = Relay::to(world.servers()[0]).await;
    let mut holder = Holder::start(&mut run_by(&relay, &world, &[], HEEDS)).await;

    holder.signal(Signal::SIGSTOP);
    let next = finished(&mut run(&world, "a", "echo mine")).await;
    assert_eq!(next.stdout, "mine\n", "{next:?}");
    holder.signal(Signal::SIGCONT);
    let told = timeout(Duration::from_secs(2), holder.lines.next_line()).await;
    let (code, stderr) = end(holder).await;

    assert!(
        told.expect("at once").unwrap().unwrap().starts_with("TERM"),
        "{stderr:?}"
    );
    assert_eq!(code, Some(70), "{stderr:?}");
    assert!(
        stderr[0].starts_with("lockkeeper: a: the lock was lost: "),
        "{stderr:?}"
    );
}

#[case]
async fn a_ticket_that_somebody_removed_ends_the_command(world: World) {
    let mut command = lockkeeper(&world);
    let options = ["--session-timeout", "2s", "run", "a", "--", "sh", "-c"];
    let mut holder = Holder::start(command.args(options).arg(HEEDS)).await;
    let stranger = world.raw().await;
    stranger
        .delete("/locks/a/lock-0000000000", None)
        .await
        .unwrap();

    let told = next_line(&mut holder).await;
    let (code, stderr) = end(holder).await;

    assert!(told.starts_with("TERM"), "{told}");
    assert_eq!(code, Some(70), "{stderr:?}");
    assert!(stderr[0].contains("the ticket was removed"), "{stderr:?}");
}

#[case]
async fn a_part_of_the_command_that_stands_still_gets_term_too(world: World) {
    let script = "trap : TERM; sh -c 'echo ready; kill -STOP $$' & \
                  while kill -0 $! 2>/dev/null; do wait $!; done";
    let mut command = lockkeeper(&world);
    let options = ["--session-timeout", "2s", "run", "a", "--", "sh", "-c"];
    let holder = Holder::start(command.args(options).arg(script)).await;
    let stranger = world.raw().await;
    let ticket = "/locks/a/lock-0000000000";
    stranger.delete(ticket, None).await.unwrap();

    let (code, stderr) = end(holder).await;

    assert_eq!(code, Some(70), "{stderr:?}");
    assert!(
        !stderr.iter().any(|line| line.contains("it gets SIGKILL")),
        "{stderr:?}"
    );
}

#[case]
async fn a_command_that_was_told_to_end_ends_with_70_though_the_lock_was_saved(world: World) {
    let relay = Relay::to(world.servers()[0]).await;
    let mut command = lockkeeper(&world);
    command
        .args(["--zk", &world.connect_string_at(&[relay.address()])])
        // From TERM to the end of the session it is 2.5 s, and SIGKILL does not come before that.
        .args(["--session-timeout", "16s", "run", "--grace", "30s"])
        .args(["a", "--", "sh", "-c"])
        .arg("trap 'echo TERM; read x; exit 0' TERM; echo ready; while :; do sleep 0.02; done")
        .stdin(Stdio::piped());
    let mut holder = Holder::start(&mut command).await;

    relay.set(Way::Refusing);
    assert_eq!(next_line(&mut holder).await, "TERM");
    relay.set(Way::Open);
    // The session is alive again, so nobody else gets the lock; the command has been told all the
    // same.
    let next = finished(lockkeeper(&world).args(["run", "--wait", "8s", "a", "--", "true"])).await;
    drop(holder.tool.stdin.take());
    let (code, stderr) = end(holder).await;

    assert_eq!(next.code, Some(75), "{next:?} {stderr:?}");
    assert_eq!(code, Some(70), "{stderr:?}");
}

#[case]
async fn a_short_silence_disturbs_nobody(world: World) {
    let relay = Relay::to(world.servers()[0]).await;
    let mut command = lockkeeper(&world);
    command
        .args(["--zk", &world.connect_string_at(&[relay.address()])])
        .args(["--session-timeout", "4s", "run", "a", "--", "sh", "-c"])
        .arg("echo ready; read x; echo got $x")
        .stdin(Stdio::piped());
    let mut holder = Holder::start(&mut command).await;

    relay.set(Way::Refusing);
    tokio::time::sleep(Duration::from_millis(300)).await;
    relay.set(Way::Open);
    // Longer than the lease that there was.
    tokio::time::sleep(Duration::from_millis(3700)).await;
    drop(holder.tool.stdin.take());
    let last = next_line(&mut holder).await;
    let (code, stderr) = end(holder).await;

    assert_eq!((last.as_str(), code), ("got", Some(0)), "{stderr:?}");
    assert_eq!(stderr, Vec::<String>::new());
}
