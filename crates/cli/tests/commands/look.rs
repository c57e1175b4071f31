//! `queue`, `ls` and `serve`: what they print, for people and for programs.

use std::net::SocketAddr;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

use super::{Holder, one_line, outcome, queued, run};
use crate::tool::lockkeeper;
use testbench::relay::pass_on;
use testbench::stall::Stall;
use testbench::stranger::Make;
use testbench::{World, case, eventually};

#[case]
async fn queue_shows_the_holder_and_who_waits(world: World) {
    let holder = Holder::of(&world, "shown").await;
    let mut waiting = run(&world, "shown", "true").spawn().unwrap();
    queued(&world, "shown", 2).await;

    let table = outcome(&world, &["queue", "shown"]).await;
    let json = outcome(&world, &["queue", "shown", "--json"]).await;

    assert_eq!((table.code, table.stderr.as_str()), (Some(0), ""));
    let rows: Vec<Vec<&str>> = table
        .stdout
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(
        rows[0],
        [
            "POS", "STATE", "LABEL", "HOST", "PID", "SINCE", "VALUE", "KIND", "OWNER", "TOKEN",
            "NODE", "SESSION"
        ]
    );
    let queue: Vec<Value> = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!((rows.len(), queue.len()), (3, 2));
    let pids = [holder.tool.id(), waiting.id()].map(|pid| u64::from(pid.unwrap()));
    for (at, ticket) in queue.iter().enumerate() {
        let state = ["holder", "waiting"][at];
        assert_eq!(ticket["position"], at);
        assert_eq!(ticket["holder"], at == 0);
        assert_eq!(ticket["shared"], false);
        assert_eq!(ticket["label"], "sh");
        assert_eq!(ticket["owner"], Value::Null);
        assert_eq!(ticket["trace"], Value::Null);
        assert_eq!(ticket["pid"], pids[at]);
        assert!(
            ticket["since_ms"].is_u64() && ticket["host"].is_string(),
            "{ticket}"
        );
        let text = |field: &str| ticket[field].as_str().unwrap().to_owned();
        let who = [
            ticket["position"].to_string(),
            state.to_owned(),
            "sh".to_owned(),
            text("host"),
            ticket["pid"].to_string(),
        ];
        assert_eq!(rows[at + 1][..5], who);
        let rest = rows[at + 1].iter().position(|word| *word == "ago").unwrap();
        let [token, node, session] = [ticket["token"].to_string(), text("node"), text("session")];
        let rest = &rows[at + 1][rest + 1..];
        assert_eq!(rest, ["-", "lock", "-", &token, &node, &session]);
    }
    assert!(queue[0]["token"].as_u64() < queue[1]["token"].as_u64());

    holder.done().await;
    assert!(waiting.wait().await.unwrap().success());
}

#[case]
async fn the_trace_that_a_run_belongs_to_is_in_its_ticket_and_goes_on_to_the_command(world: World) {
    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
    let traceparent = format!("00-{TRACE}-00f067aa0ba902b7-01");
    let script = "echo ready; echo $TRACEPARENT; read line";
    let mut command = run(&world, "traced", script);
    command
        .stdin(Stdio::piped())
        .env("TRACEPARENT", &traceparent);
    let mut holder = Holder::start(&mut command).await;
    let mut without = run(&world, "traced", "true");
    let mut waiting = without.env("TRACEPARENT", "nonsense").spawn().unwrap();
    queued(&world, "traced", 2).await;

    let json = outcome(&world, &["queue", "traced", "--json"]).await;

    let queue: Vec<Value> = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!(queue[0]["trace"], TRACE);
    assert_eq!(queue[1]["trace"], Value::Null);
    let line = holder.lines.next_line().await.unwrap();
    assert_eq!(line, Some(traceparent));
    holder.done().await;
    assert!(waiting.wait().await.unwrap().success());
}

#[case]
async fn an_empty_queue_is_said_on_stderr_and_is_not_an_error(world: World) {
    let table = outcome(&world, &["queue", "a/b"]).await;
    let json = outcome(&world, &["queue", "a/b", "--json"]).await;

    assert_eq!((table.code, table.stdout.as_str()), (Some(0), ""));
    assert_eq!(
        one_line(&table),
        "lockkeeper: nobody holds or waits for a/b"
    );
    assert_eq!(
        (json.code, json.stdout.as_str(), json.stderr.as_str()),
        (Some(0), "[]\n", "")
    );
}

#[case]
async fn queue_shows_foreign_tickets_and_lets_nobody_write_to_the_terminal(world: World) {
    let stranger = world.raw().await;
    let ephemeral = Make::EphemeralSequential;
    let persistent = Make::Persistent;
    for folder in ["/locks", "/locks/mixed"] {
        stranger.create(folder, b"", &persistent).await.unwrap();
    }
    // What Curator and kazoo write, and one of ours with a label that clears the screen.
    let curator = "/locks/mixed/_c_9b4c3d6e-0a59-4b0c-8ec5-3d5ad2a2c9a1-lock-";
    stranger
        .create(curator, b"10.0.0.7", &ephemeral)
        .await
        .unwrap();
    let holder = Holder::start(
        lockkeeper(&world)
            .args(["run", "other", "--", "sh", "-c", "echo ready; sleep 60"])
            .stdin(Stdio::null()),
    )
    .await;
    let ours = stranger.list_children("/locks/other").await.unwrap();
    let (data, _) = stranger
        .get_data(&format!("/locks/other/{}", ours[0]))
        .await
        .unwrap();
    let data = String::from_utf8(data).unwrap();
    let evil = data.replace("\"sh\"", "\"\\u001b[2J\\nroot\"");
    assert_ne!(data, evil, "the data line holds the label");
    stranger
        .create("/locks/mixed/lock-", evil.as_bytes(), &ephemeral)
        .await
        .unwrap();

    let table = outcome(&world, &["queue", "mixed"]).await;
    let json = outcome(&world, &["queue", "mixed", "--json"]).await;

    let queue: Vec<Value> = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!(table.stdout.lines().count(), 3, "{table:?}");
    assert!(!table.stdout.contains('\u{1b}'), "{table:?}");
    assert_eq!(queue[0]["holder"], true);
    assert_eq!(
        [&queue[0]["host"], &queue[0]["pid"], &queue[0]["label"]],
        [&Value::Null; 3]
    );
    assert_eq!(queue[1]["label"], "\u{1b}[2J\nroot");
    drop(holder);
}

#[case]
async fn queue_watch_looks_again_until_it_is_told_to_end(world: World) {
    let mut command = lockkeeper(&world);
    command.args(["queue", "watched", "--watch", "--json"]);
    let mut watching = command.spawn().unwrap();
    let output = watching.stdout.take().unwrap();
    let mut lines = BufReader::new(output).lines();
    assert_eq!(lines.next_line().await.unwrap().as_deref(), Some("[]"));

    let _holder = Holder::of(&world, "watched").await;
    let seen = loop {
        let line = lines.next_line().await.unwrap().unwrap();
        let queue: Vec<Value> = serde_json::from_str(&line).unwrap();
        if !queue.is_empty() {
            break queue;
        }
    };
    let pid = Pid::from_raw(watching.id().unwrap() as i32);
    kill(pid, Signal::SIGINT).unwrap();

    assert_eq!(seen[0]["holder"], true);
    assert_eq!(watching.wait().await.unwrap().code(), Some(0));
}

#[case]
async fn ls_lists_the_locks_in_use(world: World) {
    let none = outcome(&world, &["ls"]).await;
    let no_json = outcome(&world, &["ls", "--json"]).await;
    let _holders = [
        Holder::of(&world, "b").await,
        Holder::of(&world, "a/deep").await,
    ];

    let some = outcome(&world, &["ls"]).await;
    let json = outcome(&world, &["ls", "--json"]).await;

    assert_eq!((none.code, none.stdout.as_str()), (Some(0), ""));
    one_line(&none);
    assert_eq!(
        (no_json.stdout.as_str(), no_json.stderr.as_str()),
        ("[]\n", "")
    );
    let names = some.stdout.lines().map(|line| {
        let (name, _) = line.split_once(' ').unwrap();
        name
    });
    assert_eq!(names.collect::<Vec<_>>(), ["NAME", "a/deep", "b"]);
    let json: Vec<Value> = serde_json::from_str(&json.stdout).unwrap();
    for (lock, name) in json.iter().zip(["a/deep", "b"]) {
        assert_eq!([&lock["name"], &lock["kind"]], [name, "lock"], "{lock}");
        for (field, count) in [("tickets", 1), ("holders", 1), ("waiting", 0)] {
            assert_eq!(lock[field], count, "{field} of {lock}");
        }
        assert_eq!(lock["denied"], false);
        assert_eq!(lock["since_ms"], lock["holder"]["since_ms"]);
        assert_eq!(lock["holder"]["label"], "sh", "{lock}");
    }
    assert_eq!(json.len(), 2);
}

#[case]
async fn other_roots_are_other_locks(world: World) {
    let _holder = Holder::of(&world, "same").await;

    let ended = outcome(
        &world,
        &[
            "--root",
            "/others",
            "run",
            "--no-wait",
            "same",
            "--",
            "true",
        ],
    )
    .await;

    assert_eq!(ended.code, Some(0), "{ended:?}");
}

#[case]
async fn serve_serves_and_ends_when_told(world: World) {
    for (flag, before) in [(None, "listening on "), (Some("--json"), "{\"listen\":\"")] {
        let mut command = lockkeeper(&world);
        command
            .args(["serve", "--listen", "127.0.0.1:0"])
            .args(flag);
        let mut server = command.spawn().unwrap();
        let output = server.stdout.take().unwrap();
        let mut lines = BufReader::new(output).lines();
        let line = lines.next_line().await.unwrap().unwrap();
        let address = line.strip_prefix(before).unwrap().trim_end_matches("\"}");

        let held = outcome(&world, &["--zk", address, "run", "a", "--", "echo", "held"]).await;
        let pid = Pid::from_raw(server.id().unwrap() as i32);
        kill(pid, Signal::SIGTERM).unwrap();
        let ended = server.wait_with_output().await.unwrap();

        assert_eq!((held.code, held.stdout.as_str()), (Some(0), "held\n"));
        assert_eq!(ended.status.code(), Some(0));
        let stderr = String::from_utf8(ended.stderr).unwrap();
        assert!(stderr.contains("NOT FOR PRODUCTION"), "{stderr}");
    }
}

#[case]
async fn serve_says_when_its_address_is_taken(world: World) {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();

    let ended = outcome(&world, &["serve", "--listen", &address]).await;

    assert_eq!((ended.code, ended.stdout.as_str()), (Some(69), ""));
    assert!(one_line(&ended).contains(&address), "{ended:?}");
}

/// What a server does that has given a session.
#[derive(Debug, Clone, Copy)]
enum Then {
    /// But to pings.
    Silence,
    /// A byte of an answer now and then, and no pings either.
    Drips,
}

/// A server that gives sessions, of the longest timeout, and no answer.
async fn broken(then: Then) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            // However the client ends it.
            tokio::spawn(async move { answer(client, then).await.unwrap_or_default() });
        }
    });
    address
}

async fn answer(mut client: TcpStream, then: Then) -> std::io::Result<()> {
    let length = client.read_u32().await?;
    let mut request = vec![0; length as usize];
    client.read_exact(&mut request).await?;
    // The version, the timeout, the session, its password, and that it may write.
    let mut welcome = 37_u32.to_be_bytes().to_vec();
    welcome.extend(0_u32.to_be_bytes());
    welcome.extend(40_000_u32.to_be_bytes());
    welcome.extend(77_u64.to_be_bytes());
    welcome.extend(16_u32.to_be_bytes());
    welcome.extend([7; 16]);
    welcome.push(0);
    client.write_all(&welcome).await?;
    loop {
        let length = client.read_u32().await?;
        let mut request = vec![0; length as usize];
        client.read_exact(&mut request).await?;
        if request.ends_with(&11_u32.to_be_bytes()) {
            // A ping, without which there is no session: its xid, no transaction, no error.
            let mut answer = 16_u32.to_be_bytes().to_vec();
            answer.extend(&request[..4]);
            answer.extend([0; 12]);
            client.write_all(&answer).await?;
        } else if let Then::Drips = then {
            client.write_all(&[0, 0, 1, 0]).await?;
            loop {
                tokio::time::sleep(Duration::from_millis(100)).await;
                client.write_all(&[0]).await?;
            }
        }
    }
}

#[case]
async fn every_look_ends_in_time_whatever_the_server_does(world: World) {
    let stall = Stall::watch();
    let mut looks = Vec::new();
    for then in [Then::Silence, Then::Drips] {
        let address = broken(then).await.to_string();
        for words in [
            "ls",
            "queue a",
            "queue a --watch",
            "leader a",
            "why a",
            "journal a",
            "doctor",
        ] {
            let mut command = lockkeeper(&world);
            command.args([
                "--zk",
                &address,
                "--connect-timeout",
                "5s",
                "--read-timeout",
                "1s",
            ]);
            command.args(words.split(' '));
            looks.push(async move {
                let began = Instant::now();
                let ended = crate::tool::finished(&mut command).await;
                (then, words, began.elapsed(), ended)
            });
        }
    }

    for (then, words, took, ended) in join_all(looks).await {
        assert_eq!(ended.code, Some(69), "{words}, {then:?}: {ended:?}");
        let line = one_line(&ended);
        assert!(
            line.contains("the servers did not finish answering within "),
            "{words}, {then:?}: {line}"
        );
        let limit = Duration::from_secs(20) + stall.longest();
        assert!(took < limit, "{words}, {then:?}: {took:?}");
    }
}

/// A server whose `dump` never ends, and which is sound otherwise; and how much of that was read.
async fn endless_dump(server: SocketAddr) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let dumped = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&dumped);
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let count = Arc::clone(&count);
            tokio::spawn(async move {
                let mut begin = [0; 4];
                if client.peek(&mut begin).await.is_ok() && &begin != b"dump" {
                    return pass_on(client, server).await;
                }
                let sessions = b"Session 0x1\n".repeat(1 << 12);
                while client.write_all(&sessions).await.is_ok() {
                    count.fetch_add(sessions.len(), Ordering::Relaxed);
                }
            });
        }
    });
    (address, dumped)
}

#[case(zookeeper, why = "only ZooKeeper has the word `dump`")]
async fn an_endless_dump_is_not_read_on(world: World) {
    let (address, dumped) = endless_dump(world.servers()[0]).await;
    let zk = format!("{address}{}", world.chroot());

    let ended = outcome(&world, &["--zk", &zk, "doctor"]).await;

    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.stderr.contains("more than 16 MiB"), "{ended:?}");
    let dumped = dumped.load(Ordering::Relaxed);
    // What is on its way is not read.
    assert!(dumped < 64 << 20, "{dumped} bytes");
}

/// A server, and the address that it says.
async fn serving(world: &World, words: &[&str]) -> (tokio::process::Child, SocketAddr) {
    let mut command = lockkeeper(world);
    command.arg("serve").args(words);
    let mut server = command.spawn().unwrap();
    let mut lines = BufReader::new(server.stdout.take().unwrap()).lines();
    let line = lines.next_line().await.unwrap().unwrap();
    let address = line.strip_prefix("listening on ").unwrap();
    (server, address.parse().unwrap())
}

#[case]
async fn serve_says_when_others_can_reach_it(world: World) {
    for (listen, is_said) in [("0.0.0.0:0", true), ("127.0.0.2:0", false)] {
        let (mut server, _) = serving(&world, &["--listen", listen]).await;

        server.start_kill().unwrap();
        let ended = server.wait_with_output().await.unwrap();

        let stderr = String::from_utf8(ended.stderr).unwrap();
        assert_eq!(
            stderr.contains("is open to other machines, without TLS"),
            is_said,
            "{listen}: {stderr}"
        );
    }
}

#[case]
async fn serve_has_so_many_connections_of_one_address(world: World) {
    let words = ["--listen", "127.0.0.1:0", "--max-client-connections", "2"];
    let (_server, address) = serving(&world, &words).await;
    let is_served = || async {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let mut answer = Vec::new();
        let asked = stream.write_all(b"ruok").await;
        asked.is_ok() && stream.read_to_end(&mut answer).await.is_ok() && answer == b"imok"
    };
    let others = [
        TcpStream::connect(address).await.unwrap(),
        TcpStream::connect(address).await.unwrap(),
    ];

    assert!(!is_served().await, "a third one");

    drop(others);
    eventually("they are gone", Duration::from_secs(10), is_served).await;
}
