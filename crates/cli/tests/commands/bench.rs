//! `bench`: what it prints, and that it leaves nothing behind, however it ends.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use zookeeper_client::{Acl, Acls, AuthId, Client, CreateMode, Permission};

use super::{Holder, one_line, outcome};
use crate::tool::{finished, lockkeeper};
use testbench::stranger::catch_up;
use testbench::{World, case, eventually, ports};

const SOON: Duration = Duration::from_secs(10);
const QUICK: [&str; 7] = [
    "bench",
    "--rounds",
    "1",
    "--waiters",
    "100,10,100",
    "--time",
    "50ms",
];

#[case(
    zookeeper,
    why = "`bench` measures ZooKeeper only",
    alone,
    within = 120
)]
async fn bench_prints_its_figures_as_json_and_leaves_nothing(world: World) {
    let ended = finished(lockkeeper(&world).args(QUICK).arg("--json")).await;

    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
    assert_eq!(ended.stdout.lines().count(), 1, "{ended:?}");
    let result: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(result["rounds"], 1);
    check_times(&result["uncontended"], 200);
    let sizes: Vec<u64> = result["hand_over"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| {
            // Five crowds of a hundred, and twenty of ten.
            let waiters = row["waiters"].as_u64().unwrap();
            check_times(row, if waiters == 10 { 200 } else { 500 });
            assert!(figure(row, "enqueue_ms") > 0.0 && figure(row, "baseline_enqueue_ms") > 0.0);
            waiters
        })
        .collect();
    assert_eq!(sizes, [10, 100]);
    check_times(&result["beside"], 200);
    assert_eq!(result["beside"]["waiters"], 100);
    let independent = &result["independent"];
    assert_eq!(independent["locks"], 64);
    assert!(
        figure(independent, "locks_per_s") > 1.0 && figure(independent, "baseline_per_s") > 1.0
    );
    assert!(figure(independent, "ratio") > 0.0);
    assert_eq!(result["linger"]["tasks"], 2);
    assert!(figure(&result["linger"], "locks_per_s") > 1.0);
    assert_eq!(result["memory"]["waiters"], 100);
    let bytes = figure(&result["memory"], "bytes_per_waiter");
    assert!((100.0..20_000.0).contains(&bytes), "{result}");

    assert_eq!(
        children(&world.zookeeper().await, "/").await,
        Vec::<String>::new()
    );
    // Another member may learn a moment later that a session was closed.
    let none = || async { world.watched_by_session().await.is_empty() };
    eventually("nothing is watched", SOON, none).await;
}

/// Each figure is there, and they are in order.
fn check_times(times: &Value, count: u64) {
    let in_order = [
        ["min_us", "mean_us", "max_us"],
        ["shortest_us", "p50_us", "p99_us"],
        ["shortest_us", "mean_us", "longest_us"],
        ["baseline_min_us", "baseline_us", "baseline_max_us"],
        ["ratio_min", "ratio", "ratio_max"],
    ];
    for names in in_order {
        let figures = names.map(|name| figure(times, name));
        assert!(
            figures[0] > 0.0 && figures.is_sorted(),
            "{names:?}: {times}"
        );
    }
    assert!(figure(times, "baseline_p50_us") <= figure(times, "baseline_p99_us"));
    assert!(figure(times, "mean_us") < 5e6, "{times}");
    assert_eq!(times["count"], count, "{times}");
}

fn figure(object: &Value, name: &str) -> f64 {
    let value = object[name].as_f64();
    value.unwrap_or_else(|| panic!("no number {name} in {object}"))
}

#[case(
    zookeeper,
    why = "`bench` measures ZooKeeper only",
    alone,
    within = 120
)]
async fn bench_prints_a_table_and_nothing_else_where_there_is_no_terminal(world: World) {
    let words = [
        "bench",
        "--rounds",
        "1",
        "--waiters",
        "20",
        "--time",
        "20ms",
    ];
    let ended = outcome(&world, &words).await;

    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
    assert!(!ended.stdout.contains('\u{1b}'), "{ended:?}");
    let lines: Vec<&str> = ended.stdout.lines().collect();
    let begins = [
        "WORKLOAD  ",
        "lock + release, us  ",
        "hand-over at 20, us  ",
        "lock + release beside 20, us  ",
        "64 locks at once, per s  ",
        "one lock that lingers, per s  ",
        "memory per waiter, bytes  ",
    ];
    assert_eq!(lines.len(), begins.len(), "{ended:?}");
    for (line, begin) in lines.iter().zip(begins) {
        assert!(line.starts_with(begin), "{begin}: {ended:?}");
    }
}

#[case(
    zookeeper,
    why = "`bench` measures ZooKeeper only",
    alone,
    within = 120
)]
async fn an_interrupted_bench_removes_what_is_its_own_and_nothing_else(world: World) {
    let stranger = world.zookeeper().await;
    let holder = Holder::of(&world, "other").await;
    let before = children(&stranger, "/locks/other").await;
    // It listens for whoever asks for its lock.
    let listens = || async { world.watched_by_session().await.len() == 1 };
    eventually("the holder watches", SOON, listens).await;
    let watched = world.watched_by_session().await;
    for (signal, code) in [(Signal::SIGINT, 130), (Signal::SIGTERM, 143)] {
        let bench = in_the_middle(&world, &stranger).await;

        kill(pid(&bench), signal).unwrap();
        let ended = bench.wait_with_output().await.unwrap();

        let said = String::from_utf8(ended.stderr).unwrap();
        assert_eq!(
            (ended.status.code(), &*ended.stdout),
            (Some(code), &b""[..])
        );
        assert!(
            said.contains("interrupted: removing /locks/bench-"),
            "{said}"
        );
        assert_eq!(said.lines().count(), 1, "{said}");
        assert_eq!(children(&stranger, "/locks").await, ["other"]);
        assert_eq!(children(&stranger, "/locks/other").await, before);
        let as_before = || async { world.watched_by_session().await == watched };
        eventually("its watches are gone", SOON, as_before).await;
    }
    holder.done().await;
}

#[case(zookeeper, why = "`bench` measures ZooKeeper only", alone)]
async fn bench_refuses_figures_that_mean_nothing(world: World) {
    for words in [
        &["--rounds", "0"] as &[&str],
        &["--waiters", "0"],
        &["--waiters", "1,,2"],
        &["--waiters", "many"],
        &["--locks", "0"],
        &["--time", "soon"],
        &["a-lock"],
    ] {
        let mut command = lockkeeper(&world);
        let ended = finished(command.arg("bench").args(words)).await;

        assert_eq!((ended.code, ended.stdout.as_str()), (Some(64), ""));
        assert!(ended.stderr.contains("--help"), "{ended:?}");
    }
    let ended = outcome(&world, &["--root", "locks", "bench"]).await;
    assert_eq!(ended.code, Some(64), "{ended:?}");
    assert!(
        one_line(&ended).contains("must start with '/'"),
        "{ended:?}"
    );
}

#[case(zookeeper, why = "`bench` measures ZooKeeper only", alone)]
async fn bench_without_a_server_ends_with_69(world: World) {
    let (_socket, address) = ports::refusing().unwrap();
    let address = address.to_string();
    let chroot = format!("{}/no/such", world.connect_string());

    for (zk, word) in [(&address, "refused"), (&chroot, "does not exist")] {
        let ended = outcome(&world, &["--zk", zk, "bench", "--connect-timeout", "1s"]).await;

        assert_eq!((ended.code, ended.stdout.as_str()), (Some(69), ""));
        assert!(one_line(&ended).contains(word), "{ended:?}");
    }
}

#[case(zookeeper, why = "`bench` measures ZooKeeper only", alone)]
async fn bench_without_permission_ends_with_77(world: World) {
    let acl = [Acl::new(Permission::READ, AuthId::anyone())];
    let read_only = CreateMode::Persistent.with_acls(Acls::from(&acl[..]));
    let stranger = world.zookeeper().await;
    stranger.create("/locks", b"", &read_only).await.unwrap();

    let ended = outcome(&world, &["bench"]).await;

    assert_eq!((ended.code, ended.stdout.as_str()), (Some(77), ""));
    let line = one_line(&ended);
    assert!(
        line.contains("no permission to create /locks/bench-"),
        "{line}"
    );
}

#[case(embedded, alone)]
async fn a_bench_that_loses_its_sessions_ends_with_69_and_leaves_nothing(world: World) {
    let stranger = world.zookeeper().await;
    let before = sessions(&world);
    let bench = in_the_middle(&world, &stranger).await;

    expire(&world, &before);
    let ended = bench.wait_with_output().await.unwrap();

    let said = String::from_utf8(ended.stderr).unwrap();
    assert_eq!((ended.status.code(), &*ended.stdout), (Some(69), &b""[..]));
    assert!(said.contains("cannot measure "), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    assert_eq!(children(&stranger, "/").await, Vec::<String>::new());
}

#[case(embedded, alone)]
async fn a_second_signal_does_not_wait_for_servers_that_are_silent(world: World) {
    let stranger = world.zookeeper().await;
    let before = sessions(&world);
    let mut bench = in_the_middle(&world, &stranger).await;
    let mut said = BufReader::new(bench.stderr.take().unwrap()).lines();
    for session in sessions(&world).difference(&before) {
        world.embedded().faults().freeze(*session);
    }

    let began = Instant::now();
    kill(pid(&bench), Signal::SIGTERM).unwrap();
    let first = said.next_line().await.unwrap().unwrap();
    kill(pid(&bench), Signal::SIGINT).unwrap();
    let second = said.next_line().await.unwrap().unwrap();
    let code = bench.wait().await.unwrap().code();

    assert!(first.contains("interrupted: removing"), "{first}");
    assert!(
        second.contains("may be left; the servers remove it"),
        "{second}"
    );
    assert_eq!(code, Some(130));
    assert!(
        began.elapsed() < Duration::from_secs(5),
        "half of a session timeout"
    );
}

#[case(embedded, alone)]
async fn what_a_killed_bench_leaves_goes_by_itself(world: World) {
    let stranger = world.zookeeper().await;
    let before = sessions(&world);
    let mut bench = in_the_middle(&world, &stranger).await;

    bench.kill().await.unwrap();
    assert_eq!(children(&stranger, "/locks").await.len(), 1);
    expire(&world, &before);
    while world.embedded().faults().reap_containers() > 0 {}

    assert_eq!(children(&stranger, "/locks").await, Vec::<String>::new());
}

/// A bench whose crowd is in its queue.
async fn in_the_middle(world: &World, stranger: &Client) -> Child {
    let mut command: Command = lockkeeper(world);
    let bench = command
        .args(["bench", "--rounds", "1000", "--waiters", "40"])
        .spawn()
        .unwrap();
    let is_queued = || async {
        let locks = stranger.list_children("/locks").await.unwrap_or_default();
        let ours = locks.iter().find(|name| name.starts_with("bench-"))?;
        let crowd = format!("/locks/{ours}/ours/crowd");
        let queue = stranger.list_children(&crowd).await.unwrap_or_default();
        (queue.len() > 20).then_some(())
    };
    eventually(
        "a crowd is in its queue",
        Duration::from_secs(30),
        is_queued,
    )
    .await;
    bench
}

fn pid(child: &Child) -> Pid {
    Pid::from_raw(child.id().unwrap() as i32)
}

async fn children(stranger: &Client, path: &str) -> Vec<String> {
    catch_up(stranger).await.unwrap();
    stranger.list_children(path).await.unwrap()
}

fn sessions(world: &World) -> HashSet<i64> {
    let sessions = world.embedded().faults().sessions();
    sessions.iter().map(|session| session.id).collect()
}

/// Ends all sessions but these.
fn expire(world: &World, but: &HashSet<i64>) {
    for session in sessions(world).difference(but) {
        world.embedded().faults().expire_session(*session);
    }
}
