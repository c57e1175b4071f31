//! Exit codes: each with the one line that explains it.

use std::net::{SocketAddr, TcpListener};
use std::time::{Duration, Instant};

use serde_json::Value;
use zookeeper_client::{Acl, Acls, AuthId, CreateMode, Permission};

use super::{Holder, one_line, outcome, queued, run, tickets};
use crate::tool::{finished, lockkeeper};
use testbench::stall::Stall;
use testbench::{World, case, ports};

#[case]
async fn run_ends_with_the_code_of_its_command(world: World) {
    for code in [0, 1, 7, 64, 255] {
        let ended = finished(&mut run(&world, "code", &format!("echo out; exit {code}"))).await;

        assert_eq!(
            (ended.code, ended.stdout.as_str(), ended.stderr.as_str()),
            (Some(code), "out\n", "")
        );
    }
}

#[case]
async fn run_ends_with_128_plus_the_signal_that_ended_its_command(world: World) {
    // 40 is a real-time signal, of which no library has a name.
    for signal in [9, 15, 40] {
        let ended = finished(&mut run(&world, "signal", &format!("kill -{signal} $$"))).await;

        assert_eq!(ended.code, Some(128 + signal), "{ended:?}");
    }
}

#[case]
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

#[case]
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
        &["__exec"],
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
        &["run", "a", "b", "--"],
        &["run", "a", "--wait", "1s", "true"],
        &["run", "--wait", "1month", "a", "true"],
        &["run", "--what", "a", "--", "true"],
        &["run", "--wait", "soon", "a", "--", "true"],
        &["run", "--wait", "1s", "--no-wait", "a", "--", "true"],
        &["walk"],
        &["serve", "--listen", "nowhere"],
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

#[case]
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

#[case(zookeeper, why = "the words are of ZooKeeper's handshake")]
async fn no_server_ends_with_69_and_one_line_that_names_it(world: World) {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let (_socket, refused) = ports::refusing().unwrap();
    let chroot = format!("{}/no/such", world.connect_string());
    for (zk, word) in [
        (refused.to_string(), "refused"),
        ("no-such-host.invalid:2181".to_owned(), "not resolve"),
        (silent.local_addr().unwrap().to_string(), "silent"),
        (stranger().await.to_string(), "not a ZooKeeper"),
        (chroot, "does not exist"),
    ] {
        let (began, stall) = (Instant::now(), Stall::watch());
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
        let took = began.elapsed();
        let limit = Duration::from_secs(3) + stall.longest();
        assert!(took < limit, "{line}: after {took:?}");
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

#[case]
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

#[case(
    zookeeper,
    why = "a user of Redis may do everything or connect not at all"
)]
async fn no_permission_ends_with_77(world: World) {
    let acl = [Acl::new(Permission::READ, AuthId::anyone())];
    let read_only = CreateMode::Persistent.with_acls(Acls::from(&acl[..]));
    world
        .zookeeper()
        .await
        .create("/locks", b"", &read_only)
        .await
        .unwrap();

    let ended = outcome(&world, &["run", "a", "--", "true"]).await;

    assert_eq!(ended.code, Some(77), "{ended:?}");
    assert!(one_line(&ended).contains("permission"), "{ended:?}");
}

/// Removes the last ticket of a lock behind everybody's back.
pub(crate) async fn remove_last(world: &World, name: &str) {
    let client = world.raw().await;
    client.catch_up().await.unwrap();
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

#[case]
async fn a_lock_that_was_lost_under_its_command_ends_with_70(world: World) {
    let holder = Holder::of(&world, "lost").await;

    remove_last(&world, "lost").await;
    let mut tool = holder.tool;
    drop(tool.stdin.take());
    let ended = tool.wait_with_output().await.unwrap();

    let stderr = String::from_utf8(ended.stderr).unwrap();
    assert_eq!(ended.status.code(), Some(70), "{stderr}");
    let mut lines: Vec<&str> = stderr.lines().collect();
    let last = lines.pop().unwrap();
    assert!(
        last.starts_with("lockkeeper: lost was lost while the command ran: "),
        "{stderr}"
    );
    // The tool hears of it at once, and may be before the end of its command.
    let told = |line: &&str| line.contains("the ticket was removed; the command gets SIGTERM");
    assert!(lines.len() <= 1 && lines.iter().all(told), "{stderr}");
}

#[case]
async fn a_place_that_was_lost_before_the_command_ends_with_75(world: World) {
    let holder = Holder::of(&world, "place").await;
    let mut waiting = run(&world, "place", "echo never");
    let waiting = tokio::spawn(async move { finished(&mut waiting).await });
    queued(&world, "place", 2).await;

    remove_last(&world, "place").await;
    holder.done().await;
    let ended = waiting.await.unwrap();

    assert_eq!(
        (ended.code, ended.stdout.as_str()),
        (Some(75), ""),
        "{ended:?}"
    );
    one_line(&ended);
}

/// Ends the session of the last ticket in the queue of a lock.
async fn expire_last(world: &World, name: &str) {
    let queue = outcome(world, &["queue", name, "--json"]).await;
    let queue: Vec<Value> = serde_json::from_str(&queue.stdout).unwrap();
    let session = queue.last().unwrap()["session"].as_str().unwrap();
    let session = i64::from_str_radix(session.trim_start_matches("0x"), 16).unwrap();
    assert!(world.embedded().faults().expire_session(session));
}

#[case(embedded)]
async fn a_session_that_ends_under_the_command_ends_with_70(world: World) {
    let mut holder = Holder::of(&world, "over").await;
    // The command would go on for ever.
    let _input = holder.tool.stdin.take();

    expire_last(&world, "over").await;
    let ended = holder.tool.wait_with_output().await.unwrap();

    let stderr = String::from_utf8(ended.stderr).unwrap();
    assert_eq!(ended.status.code(), Some(70), "{stderr}");
    let [told, last] = stderr.lines().collect::<Vec<_>>()[..] else {
        panic!("{stderr}")
    };
    assert!(told.contains("the command gets SIGTERM"), "{stderr}");
    assert!(last.contains("the session ended"), "{stderr}");
}

#[case(embedded)]
async fn a_session_that_ends_before_the_command_queues_up_again(world: World) {
    let holder = Holder::of(&world, "early").await;
    let mut waiting = run(&world, "early", "echo later");
    let waiting = tokio::spawn(async move { finished(&mut waiting).await });
    queued(&world, "early", 2).await;

    expire_last(&world, "early").await;
    queued(&world, "early", 2).await;
    drop(holder);
    let ended = waiting.await.unwrap();

    assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), "later\n"));
}
