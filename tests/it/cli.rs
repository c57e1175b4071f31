//! The command-line tool, run as its users do: exit codes, what the command sees, and mutual exclusion of processes.

pub(crate) mod look;
pub(crate) mod signals;
pub(crate) mod terminal;

use std::net::{SocketAddr, TcpListener};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use zookeeper_client::{Acl, Acls, AuthId, CreateMode, Permission};

use crate::support::process::{Finished, finished, lockkeeper};
use crate::support::{World, eventually};

cases! {
    feature: "cli";
    both:
        run_ends_with_the_code_of_its_command,
        run_ends_with_128_plus_the_signal_that_ended_its_command,
        run_ends_with_127_or_126_and_lets_go_when_there_is_nothing_to_execute,
        wrong_usage_ends_with_64_before_any_server_is_asked,
        help_and_version_end_with_0,
        no_server_ends_with_69_and_one_line_that_names_it,
        a_lock_that_is_not_granted_in_time_ends_with_75,
        no_permission_ends_with_77,
        a_lock_that_was_lost_under_its_command_ends_with_70,
        a_place_that_was_lost_before_the_command_ends_with_75,
        the_command_sees_its_lock_and_nothing_of_the_launcher,
        eight_processes_count_without_losing_one within 120;
}

/// A command that holds a lock: it says so on stdout, and ends when it may.
pub(crate) struct Holder {
    pub(crate) tool: Child,
    pub(crate) lines: Lines<BufReader<ChildStdout>>,
}

impl Holder {
    /// Starts `run` and waits until the command's first line is `ready`.
    pub(crate) async fn start(command: &mut Command) -> Self {
        let mut tool = command.spawn().unwrap();
        let mut lines = BufReader::new(tool.stdout.take().unwrap()).lines();
        let first = lines.next_line().await.unwrap();
        assert_eq!(
            first.as_deref(),
            Some("ready"),
            "the first line of the command"
        );
        Self { tool, lines }
    }

    /// Holds `name` until it is dropped or its input ends.
    pub(crate) async fn of(world: &World, name: &str) -> Self {
        let mut command = run(world, name, "echo ready; read line");
        Self::start(command.stdin(std::process::Stdio::piped())).await
    }

    pub(crate) fn pid(&self) -> nix::unistd::Pid {
        nix::unistd::Pid::from_raw(self.tool.id().expect("it runs") as i32)
    }

    pub(crate) fn signal(&self, signal: nix::sys::signal::Signal) {
        nix::sys::signal::kill(self.pid(), signal).unwrap();
    }

    pub(crate) async fn code(&mut self) -> Option<i32> {
        self.tool.wait().await.unwrap().code()
    }
}

/// `lockkeeper run NAME -- sh -c SCRIPT`.
pub(crate) fn run(world: &World, name: &str, script: &str) -> Command {
    let mut command = lockkeeper(world);
    command.args(["run", name, "--", "sh", "-c", script]);
    command
}

pub(crate) async fn outcome(world: &World, words: &[&str]) -> Finished {
    finished(lockkeeper(world).args(words)).await
}

/// How many tickets there are in the queue of a lock.
pub(crate) async fn tickets(world: &World, name: &str) -> usize {
    let queue = outcome(world, &["queue", name, "--json"]).await;
    let queue: Vec<serde_json::Value> = serde_json::from_str(&queue.stdout).unwrap();
    queue.len()
}

/// Exactly one line on stderr, from the tool.
pub(crate) fn one_line(finished: &Finished) -> &str {
    let line = finished.stderr.trim_end_matches('\n');
    assert!(
        line.starts_with("lockkeeper: ") && !line.contains('\n'),
        "one line of the tool: {finished:?}"
    );
    line
}

async fn run_ends_with_the_code_of_its_command(world: World) {
    for code in [0, 1, 7, 64, 255] {
        let ended = finished(&mut run(&world, "code", &format!("echo out; exit {code}"))).await;

        assert_eq!(
            (ended.code, ended.stdout.as_str(), ended.stderr.as_str()),
            (Some(code), "out\n", "")
        );
    }
}

async fn run_ends_with_128_plus_the_signal_that_ended_its_command(world: World) {
    // 40 is a real-time signal, of which no library has a name.
    for signal in [9, 15, 40] {
        let ended = finished(&mut run(&world, "signal", &format!("kill -{signal} $$"))).await;

        assert_eq!(ended.code, Some(128 + signal), "{ended:?}");
    }
}

async fn run_ends_with_127_or_126_and_lets_go_when_there_is_nothing_to_execute(world: World) {
    for (command, code) in [
        ("no-such-command-anywhere", 127),
        ("/no/such/file", 127),
        ("/etc/passwd", 126),
        ("/etc", 126),
    ] {
        let ended = outcome(&world, &["run", "nothing", "--", command]).await;

        assert_eq!(ended.code, Some(code), "{ended:?}");
        assert!(one_line(&ended).contains(command), "{ended:?}");
        assert_eq!(tickets(&world, "nothing").await, 0);
    }
}

async fn wrong_usage_ends_with_64_before_any_server_is_asked(world: World) {
    let one = |words: &[&str]| {
        let mut command = lockkeeper(&world);
        command.env("LOCKKEEPER_ZK", "127.0.0.1:1").args(words);
        command
    };
    for words in [
        &["run", "a//b", "--", "true"] as &[&str],
        &["run", "/a", "--", "true"],
        &["run", "a/lock-0000000007", "--", "true"],
        &["queue", ""],
        &["--root", "locks", "ls"],
        &["--session-timeout", "0s", "ls"],
        &["--zk", "127.0.0.1:x", "ls"],
    ] {
        let ended = finished(&mut one(words)).await;

        assert_eq!(ended.code, Some(64), "{words:?}: {ended:?}");
        one_line(&ended);
    }
    for words in [
        &[] as &[&str],
        &["run"],
        &["run", "a"],
        &["run", "a", "--"],
        &["run", "a", "true"],
        &["run", "--what", "a", "--", "true"],
        &["run", "--wait", "soon", "a", "--", "true"],
        &["run", "--wait", "1s", "--no-wait", "a", "--", "true"],
        &["walk"],
        &["serve", "--listen", "nowhere"],
        &["__exec"],
    ] {
        let ended = finished(lockkeeper(&world).args(words)).await;

        assert_eq!(ended.code, Some(64), "{words:?}: {ended:?}");
        assert!(
            ended.stderr.contains("sage") || ended.stderr.contains("--help"),
            "{ended:?}"
        );
        assert_eq!(ended.stdout, "");
    }
}

async fn help_and_version_end_with_0(world: World) {
    for words in [
        &["--help"] as &[&str],
        &["run", "--help"],
        &["queue", "--help"],
        &["serve", "--help"],
    ] {
        let ended = outcome(&world, words).await;

        assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
        assert!(ended.stdout.contains("Usage: lockkeeper"), "{ended:?}");
        assert!(!ended.stdout.contains("__exec"), "{ended:?}");
    }
    let version = outcome(&world, &["--version"]).await;
    assert_eq!(
        version.stdout,
        concat!("lockkeeper ", env!("CARGO_PKG_VERSION"), "\n")
    );
}

async fn no_server_ends_with_69_and_one_line_that_names_it(world: World) {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let refused = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let chroot = format!("{}/no/such", world.connect_string());
    for (zk, word) in [
        (refused.to_string(), "refused"),
        ("no-such-host.invalid:2181".to_owned(), "not resolve"),
        (silent.local_addr().unwrap().to_string(), "silent"),
        (stranger().await.to_string(), "not a ZooKeeper"),
        (chroot, "does not exist"),
    ] {
        let began = Instant::now();
        let ended = outcome(
            &world,
            &[
                "--zk",
                &zk,
                "--connect-timeout",
                "1s",
                "run",
                "a",
                "--",
                "true",
            ],
        )
        .await;

        let address = zk.split('/').next().unwrap();
        let line = one_line(&ended);
        assert_eq!(ended.code, Some(69), "{ended:?}");
        assert!(line.contains(address) && line.contains(word), "{line}");
        assert!(
            began.elapsed() < Duration::from_millis(2500),
            "{line}: after {:?}",
            began.elapsed()
        );
    }
}

/// Something that answers, but is no ZooKeeper.
async fn stranger() -> SocketAddr {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let answer = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n";
            tokio::io::AsyncWriteExt::write_all(&mut stream, answer)
                .await
                .unwrap_or_default();
        }
    });
    address
}

async fn a_lock_that_is_not_granted_in_time_ends_with_75(world: World) {
    let _holder = Holder::of(&world, "busy").await;

    let began = Instant::now();
    let at_once = outcome(&world, &["run", "--no-wait", "busy", "--", "true"]).await;
    let later = outcome(&world, &["run", "--wait", "300ms", "busy", "--", "true"]).await;

    for ended in [at_once, later] {
        assert_eq!(ended.code, Some(75), "{ended:?}");
        assert!(one_line(&ended).contains("busy"), "{ended:?}");
    }
    assert!(began.elapsed() > Duration::from_millis(300));
    assert_eq!(tickets(&world, "busy").await, 1);
}

async fn no_permission_ends_with_77(world: World) {
    let acl = [Acl::new(Permission::READ, AuthId::anyone())];
    let read_only = CreateMode::Persistent.with_acls(Acls::from(&acl[..]));
    world
        .raw()
        .await
        .create("/locks", b"", &read_only)
        .await
        .unwrap();

    let ended = outcome(&world, &["run", "a", "--", "true"]).await;

    assert_eq!(ended.code, Some(77), "{ended:?}");
    assert!(one_line(&ended).contains("permission"), "{ended:?}");
}

/// Removes the last ticket of a lock behind everybody's back.
async fn remove_last(world: &World, name: &str) {
    let client = world.raw().await;
    client.sync("/").await.unwrap();
    let mut nodes = client
        .list_children(&format!("/locks/{name}"))
        .await
        .unwrap();
    nodes.sort();
    let last = nodes.pop().unwrap();
    client
        .delete(&format!("/locks/{name}/{last}"), None)
        .await
        .unwrap();
}

async fn a_lock_that_was_lost_under_its_command_ends_with_70(world: World) {
    let holder = Holder::of(&world, "lost").await;

    remove_last(&world, "lost").await;
    let mut tool = holder.tool;
    drop(tool.stdin.take());
    let ended = tool.wait_with_output().await.unwrap();

    let stderr = String::from_utf8(ended.stderr).unwrap();
    assert_eq!(ended.status.code(), Some(70), "{stderr}");
    assert!(
        stderr.starts_with("lockkeeper: lost was lost while the command ran: "),
        "{stderr}"
    );
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
}

async fn a_place_that_was_lost_before_the_command_ends_with_75(world: World) {
    let _holder = Holder::of(&world, "place").await;
    let mut waiting = run(&world, "place", "echo never");
    let waiting = tokio::spawn(async move { finished(&mut waiting).await });
    let two = || async { tickets(&world, "place").await == 2 };
    eventually("the second one waits", Duration::from_secs(10), two).await;

    remove_last(&world, "place").await;
    // A removed waiter notices when its turn comes.
    drop(_holder);
    let ended = waiting.await.unwrap();

    assert_eq!(
        (ended.code, ended.stdout.as_str()),
        (Some(75), ""),
        "{ended:?}"
    );
    one_line(&ended);
}

async fn the_command_sees_its_lock_and_nothing_of_the_launcher(world: World) {
    let script = "echo $LOCKKEEPER_NAME; echo $LOCKKEEPER_NODE; echo $LOCKKEEPER_TOKEN; \
                  tr '\\0' ' ' < /proc/$$/cmdline | cut -c 1-5; awk '/SigBlk/ {print $2}' /proc/self/status";
    let ended = finished(&mut run(&world, "orders/42", script)).await;
    let lines: Vec<&str> = ended.stdout.lines().collect();

    assert_eq!(lines[..2], ["orders/42", "lock-0000000000"], "{ended:?}");
    assert!(lines[2].parse::<u64>().is_ok(), "{ended:?}");
    assert_eq!(lines[3..], ["sh -c", "0000000000000000"], "{ended:?}");
}

async fn eight_processes_count_without_losing_one(world: World) {
    let folder = TempDir::new().unwrap();
    std::fs::write(folder.path().join("count"), "0").unwrap();
    let times = if world.is_embedded() {
        World::times(10, 50)
    } else {
        50
    };
    let script = "n=$(cat count); echo $((n+1)) > count; echo $LOCKKEEPER_TOKEN >> log";

    let mut loops = Vec::new();
    for _ in 0..8 {
        let (world, path) = (world.clone(), folder.path().to_owned());
        loops.push(tokio::spawn(async move {
            for _ in 0..times {
                let ended = finished(run(&world, "counter", script).current_dir(&path)).await;
                assert_eq!(ended.code, Some(0), "{ended:?}");
            }
        }));
    }
    for counting in loops {
        counting.await.unwrap();
    }

    let count = std::fs::read_to_string(folder.path().join("count")).unwrap();
    let log = std::fs::read_to_string(folder.path().join("log")).unwrap();
    let tokens: Vec<u64> = log.lines().map(|line| line.parse().unwrap()).collect();
    assert_eq!(count.trim(), (8 * times).to_string());
    assert_eq!(tokens.len(), 8 * times);
    assert!(
        tokens.is_sorted_by(|a, b| a < b),
        "granted in the order of their creation: {tokens:?}"
    );
}
