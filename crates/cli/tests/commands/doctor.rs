//! `why`, `doctor`, `journal` and the live views, in a mess that was made for them: each names who
//! it is.

use std::process::Stdio;
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::Value;

use super::terminal::Shell;
use super::{Holder, one_line, outcome, queued, run};
use crate::tool::{Finished, lockkeeper};
use testbench::stranger::Make;
use testbench::{World, case, eventually};

const SOON: Duration = Duration::from_secs(10);
const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

/// Holds a lock with these options.
pub(crate) async fn holder(world: &World, words: &[&str]) -> Holder {
    let mut command = lockkeeper(world);
    command.arg("run").args(words);
    command.args(["--", "sh", "-c", "echo ready; read line"]);
    Holder::start(command.stdin(Stdio::piped())).await
}

/// What the doctor found: the word, the locks, and why.
async fn findings(world: &World) -> Vec<(String, String, String)> {
    let ended = outcome(world, &["doctor", "--json"]).await;
    let found: Vec<Value> = serde_json::from_str(&ended.stdout).unwrap();
    let code = i32::from(!found.is_empty());
    assert_eq!(
        (ended.code, ended.stderr.as_str()),
        (Some(code), ""),
        "{ended:?}"
    );
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let locks = |value: &Value| {
        value
            .as_array()
            .unwrap()
            .iter()
            .map(text)
            .collect::<Vec<_>>()
            .join(" ")
    };
    let each = found.iter();
    each.map(|one| {
        (
            text(&one["finding"]),
            locks(&one["locks"]),
            text(&one["why"]),
        )
    })
    .collect()
}

async fn why(world: &World, name: &str) -> Finished {
    let ended = outcome(world, &["why", name]).await;
    assert_eq!(
        (ended.code, ended.stderr.as_str()),
        (Some(0), ""),
        "{ended:?}"
    );
    ended
}

fn process(holder: &Holder) -> String {
    format!("process {} on", holder.pid())
}

#[case]
async fn a_lock_that_nobody_wants_is_said_in_words(world: World) {
    let said = why(&world, "free").await;
    let json = outcome(&world, &["why", "free", "--json"]).await;

    assert_eq!(said.stdout, "Nobody holds free.\nNobody waits for it.\n");
    let json: Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!(json["holders"], Value::Array(Vec::new()));
    assert_eq!((&json["waiting"], &json["next"]), (&0.into(), &Value::Null));
}

#[case]
async fn why_names_the_holder_and_the_next(world: World) {
    let mut command = lockkeeper(&world);
    command.env("TRACEPARENT", format!("00-{TRACE}-00f067aa0ba902b7-01"));
    command.args(["run", "--journal", "9", "--owner", "txn-7", "orders"]);
    command.args(["--", "sh", "-c", "echo ready; read line"]);
    let holder = Holder::start(command.stdin(Stdio::piped())).await;
    let waiting = run(&world, "orders", "true").spawn().unwrap();
    queued(&world, "orders", 2).await;
    let is_written = || async {
        why(&world, "orders")
            .await
            .stdout
            .contains("after a wait of")
    };
    eventually("its grant is in the journal", SOON, is_written).await;

    let said = why(&world, "orders").await.stdout;
    let json = outcome(&world, &["why", "orders", "--json"]).await;

    let lines: Vec<&str> = said.lines().collect();
    assert!(lines[0].starts_with("orders is held by \"sh\" ("), "{said}");
    assert!(lines[0].contains(&process(&holder)), "{said}");
    assert!(lines[0].contains("owner txn-7"), "{said}");
    assert!(lines[0].contains(&format!("trace {TRACE}")), "{said}");
    let next = format!("process {} on", waiting.id().unwrap());
    assert!(
        lines[1].starts_with("One waits: \"sh\" (") && lines[1].contains(&next),
        "{said}"
    );
    assert!(lines[2].contains("lockkeeper break orders"), "{said}");
    let json: Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!(json["holders"][0]["process"], "runs");
    assert_eq!(
        (&json["waiting"], &json["next"]["position"]),
        (&1.into(), &1.into())
    );
    holder.done().await;
}

#[case]
async fn why_says_that_the_holder_is_stopped(world: World) {
    let holder = holder(&world, &["stuck"]).await;
    holder.signal(Signal::SIGSTOP);

    let is_said = || async {
        let said = why(&world, "stuck").await.stdout;
        said.contains("Its process is stopped").then_some(said)
    };
    let said = eventually("it is stopped", SOON, is_said).await;

    assert!(said.contains(&process(&holder)), "{said}");
    assert!(said.contains("others get the lock"), "{said}");
}

#[case]
async fn why_and_the_doctor_name_a_waiter_that_died(world: World) {
    let holder = holder(&world, &["line"]).await;
    let mut waiting = run(&world, "line", "true").spawn().unwrap();
    queued(&world, "line", 2).await;
    let dead = waiting.id().unwrap();
    waiting.kill().await.unwrap();

    let said = why(&world, "line").await.stdout;
    let found = findings(&world).await;

    assert!(
        said.contains("Its process has ended without a word: its place is given up"),
        "{said}"
    );
    let [(what, locks, why)] = &found[..] else {
        panic!("{found:?}");
    };
    assert_eq!((what.as_str(), locks.as_str()), ("dead", "line"));
    assert!(
        why.contains("waiter") && why.contains(&format!("process {dead} on")),
        "{why}"
    );
    holder.done().await;
}

#[case]
async fn the_doctor_names_a_holder_that_is_paused(world: World) {
    let holder = holder(&world, &["paused"]).await;
    holder.signal(Signal::SIGSTOP);

    let found = || async { Some(findings(&world).await).filter(|found| !found.is_empty()) };
    let found = eventually("it is seen", SOON, found).await;

    assert_eq!(
        (found.len(), found[0].0.as_str(), found[0].1.as_str()),
        (1, "paused", "paused")
    );
    assert!(
        found[0].2.contains(&process(&holder)) && found[0].2.contains("holder"),
        "{found:?}"
    );
    let table = outcome(&world, &["doctor"]).await;
    assert_eq!(table.code, Some(1));
    assert!(
        table
            .stdout
            .starts_with("FINDING  LOCKS   WHY\npaused   paused  "),
        "{table:?}"
    );
}

#[case]
async fn the_doctor_names_owners_that_wait_in_a_circle(world: World) {
    let first = holder(&world, &["--owner", "txn-1", "a"]).await;
    let second = holder(&world, &["--owner", "txn-2", "b"]).await;
    let mut waits = Vec::new();
    for (owner, lock) in [("txn-1", "b"), ("txn-2", "a")] {
        let mut command = lockkeeper(&world);
        command.args(["run", "--owner", owner, lock, "--", "true"]);
        waits.push(command.spawn().unwrap());
        queued(&world, lock, 2).await;
    }

    let found = findings(&world).await;

    let [(what, locks, why)] = &found[..] else {
        panic!("{found:?}");
    };
    assert_eq!((what.as_str(), locks.as_str()), ("deadlock", "a b"));
    assert_eq!(
        why,
        "txn-1 waits for b, which txn-2 has or gets first; txn-2 waits for a, which txn-1 has or gets first"
    );
    first.done().await;
    second.done().await;
}

#[case]
async fn the_doctor_names_tickets_that_do_not_see_each_other(world: World) {
    let stranger = world.raw().await;
    let persistent = Make::Persistent;
    let ephemeral = Make::EphemeralSequential;
    stranger.mkdir("/locks/both", &persistent).await.unwrap();
    for start in ["lock-", "0123456789abcdef0123456789abcdef__lock__"] {
        let path = format!("/locks/both/{start}");
        stranger.create(&path, b"", &ephemeral).await.unwrap();
    }

    let found = findings(&world).await;

    let [(what, locks, why)] = &found[..] else {
        panic!("{found:?}");
    };
    assert_eq!((what.as_str(), locks.as_str()), ("mixed", "both"));
    assert!(
        why.contains("lock-0000000000") && why.contains("__lock__0000000001"),
        "{why}"
    );
}

#[case]
async fn the_doctor_and_why_name_a_lock_beside_permits(world: World) {
    let stranger = world.raw().await;
    let permits = holder(&world, &["--permits", "1/1", "job"]).await;
    assert_eq!(findings(&world).await, []);
    let ephemeral = Make::EphemeralSequential;
    let path = "/locks/job/lock-";
    stranger.create(path, b"", &ephemeral).await.unwrap();

    let found = findings(&world).await;
    let why_it_is = why(&world, "job").await.stdout;

    let [(what, locks, why)] = &found[..] else {
        panic!("{found:?}");
    };
    assert_eq!((what.as_str(), locks.as_str()), ("mixed", "job"));
    assert!(
        why.contains("lock-00000000") && why.contains("permit-1-"),
        "{why}"
    );
    assert!(why_it_is.contains("job is shared by 2:"), "{why_it_is}");
    assert!(why_it_is.contains("do not see each other"), "{why_it_is}");
    permits.done().await;
}

#[case]
async fn the_doctor_names_sessions_with_many_locks(world: World) {
    let holder = holder(&world, &["one", "two", "three"]).await;

    let ended = outcome(&world, &["doctor", "--many", "2"]).await;

    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.stdout.contains("holds 3 locks"), "{ended:?}");
    assert!(ended.stdout.contains(&process(&holder)), "{ended:?}");
    assert_eq!(findings(&world).await, []);
    holder.done().await;
}

#[case]
async fn the_doctor_finds_nothing_where_nothing_is_wrong(world: World) {
    let empty = outcome(&world, &["doctor"]).await;
    let holder = holder(&world, &["fine"]).await;
    let fine = outcome(&world, &["doctor"]).await;

    for ended in [empty, fine] {
        assert_eq!(
            (ended.code, ended.stdout.as_str()),
            (Some(0), ""),
            "{ended:?}"
        );
        assert!(one_line(&ended).contains("nothing is wrong"), "{ended:?}");
    }
    holder.done().await;
}

#[case(embedded)]
async fn the_doctor_names_a_ticket_without_a_session(world: World) {
    let holder = holder(&world, &["orphan"]).await;
    let queue = outcome(&world, &["queue", "orphan", "--json"]).await;
    let queue: Vec<Value> = serde_json::from_str(&queue.stdout).unwrap();
    let session = queue[0]["session"].as_str().unwrap();
    let session = i64::from_str_radix(session.trim_start_matches("0x"), 16).unwrap();

    let faults = world.embedded().faults();
    assert!(faults.expire_session_but_keep_its_nodes(session));
    let found = findings(&world).await;

    let orphan = found.iter().find(|(what, ..)| what == "orphan");
    let (_, locks, why) = orphan.unwrap_or_else(|| panic!("{found:?}"));
    assert_eq!(locks, "orphan");
    assert!(why.contains(queue[0]["session"].as_str().unwrap()), "{why}");
    assert!(why.contains("--node lock-0000000000"), "{why}");
    faults.remove_ephemerals_of(session);
    drop(holder);
}

#[case(embedded)]
async fn the_doctor_names_a_directory_whose_numbers_run_out(world: World) {
    holder(&world, &["old"]).await.done().await;
    let directory = format!("{}/locks/old", world.chroot());
    world
        .embedded()
        .faults()
        .set_sequence(&directory, 2_000_000_000)
        .unwrap();
    let holder = holder(&world, &["old"]).await;

    let found = findings(&world).await;

    let [(what, locks, why)] = &found[..] else {
        panic!("{found:?}");
    };
    assert_eq!((what.as_str(), locks.as_str()), ("numbers", "old"));
    assert!(why.contains("2000000000 of 2147483647"), "{why}");
    holder.done().await;
}

#[case]
async fn the_journal_tells_released_from_killed(world: World) {
    let nothing = outcome(&world, &["journal", "nightly"]).await;
    assert_eq!((nothing.code, nothing.stdout.as_str()), (Some(0), ""));
    assert!(one_line(&nothing).contains("--journal"), "{nothing:?}");
    let words = ["--journal", "9", "--session-timeout", "4s", "nightly"];
    holder(&world, &words).await.done().await;
    let mut killed = holder(&world, &words).await;
    let rows = || async {
        let table = outcome(&world, &["journal", "nightly"]).await.stdout;
        let rows: Vec<String> = table.lines().skip(1).map(str::to_owned).collect();
        (rows.len() == 2).then_some(rows)
    };
    let both = eventually("both are written", SOON, rows).await;
    assert!(both[0].ends_with("released"), "{both:?}");
    assert!(both[1].ends_with("holds"), "{both:?}");

    killed.signal(Signal::SIGKILL);
    killed.code().await;
    let is_gone = || async {
        rows()
            .await
            .is_some_and(|rows| rows[1].ends_with("without a word"))
    };
    eventually("its session is over", 2 * SOON, is_gone).await;

    let json = outcome(&world, &["journal", "nightly", "--json"]).await;
    let json: Vec<Value> = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!(json[0]["ending"], "released");
    assert!(
        json[0]["held_ms"].is_u64() && json[0]["waited_ms"].is_u64(),
        "{json:?}"
    );
    assert_eq!(
        (&json[1]["ending"], &json[1]["holds"]),
        (&Value::Null, &false.into())
    );
    let said = why(&world, "nightly").await.stdout;
    assert!(said.contains("its end was not written"), "{said}");
}

#[case]
async fn a_journal_that_cannot_be_written_is_said_once(world: World) {
    let stranger = world.raw().await;
    let persistent = Make::Persistent;
    stranger.mkdir("/locks-journal", &persistent).await.unwrap();
    for page in ["/locks-journal/one", "/locks-journal/two"] {
        stranger.create(page, b"theirs", &persistent).await.unwrap();
    }

    let words = ["run", "--journal", "9", "one", "two", "--", "echo", "done"];
    let ended = outcome(&world, &words).await;

    assert_eq!(
        (ended.code, &*ended.stdout),
        (Some(0), "done\n"),
        "{ended:?}"
    );
    let said = one_line(&ended);
    assert!(
        said.contains("a part of the journal is lost: cannot write the journal of"),
        "{said}"
    );
    assert!(said.contains("another program's data"), "{said}");
    let fine = outcome(&world, &["run", "--journal", "9", "three", "--", "true"]).await;
    assert_eq!((fine.code, &*fine.stderr), (Some(0), ""));
}

#[case]
async fn the_journal_knows_a_guest(world: World) {
    let words = ["--journal", "9", "--owner", "txn", "nested"];
    let outer = holder(&world, &words).await;
    let inner = holder(&world, &words).await;
    let endings = || async {
        let table = outcome(&world, &["journal", "nested"]).await.stdout;
        let rows = table.lines().skip(1);
        let last = rows.filter_map(|row| row.split_whitespace().next_back());
        last.map(str::to_owned).collect::<Vec<_>>()
    };
    let hold = || async { endings().await == ["holds", "holds"] };
    eventually("both hold", SOON, hold).await;

    inner.done().await;

    let hold = || async { endings().await == ["holds", "released"] };
    eventually("one is released", SOON, hold).await;
    outer.done().await;
}

#[case]
async fn queue_watch_is_drawn_in_place_and_gives_the_terminal_back(world: World) {
    let holder = holder(&world, &["seen"]).await;
    let script =
        "trap : INT; stty rows 20 cols 200; $L queue seen --watch; code=$?; echo; echo code $code";
    let mut shell = Shell::start(&world, script);
    let shows = |text: &'static str| {
        let shell = &shell;
        let is_shown = move || async move { shell.screen().contains(text) };
        eventually(text, SOON, is_shown)
    };
    shows("seen: held by 1, 0 waiting").await;
    shows("lock-0000000000").await;
    let waiting = run(&world, "seen", "true").spawn().unwrap();
    shows("seen: held by 1, 1 waiting").await;
    shows("lock-0000000001").await;
    drop(waiting);
    holder.done().await;

    shell.types("\u{3}");

    assert_eq!(shell.line("code ").await, "0");
    let screen = shell.screen();
    let (enter, leave) = (screen.find("\u{1b}[?1049h"), screen.find("\u{1b}[?1049l"));
    assert!(enter.is_some() && enter < leave, "{screen:?}");
    assert!(
        screen.find("\u{1b}[?25l") < screen.find("\u{1b}[?25h"),
        "the cursor is back"
    );
}

#[case]
async fn ls_watch_looks_again(world: World) {
    let mut watching = lockkeeper(&world);
    let mut watching = watching.args(["ls", "--watch", "--json"]).spawn().unwrap();
    let output = watching.stdout.take().unwrap();
    let mut lines = tokio::io::AsyncBufReadExt::lines(tokio::io::BufReader::new(output));
    assert_eq!(lines.next_line().await.unwrap().as_deref(), Some("[]"));

    let holder = holder(&world, &["new"]).await;

    loop {
        let line = lines.next_line().await.unwrap().unwrap();
        let locks: Value = serde_json::from_str(&line).unwrap();
        if locks[0]["name"] == "new" && locks[0]["tickets"] == 1 {
            break;
        }
    }
    let pid = nix::unistd::Pid::from_raw(watching.id().unwrap() as i32);
    nix::sys::signal::kill(pid, Signal::SIGTERM).unwrap();
    assert_eq!(watching.wait().await.unwrap().code(), Some(0));
    holder.done().await;
}
