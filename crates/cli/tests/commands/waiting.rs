//! What is said while a lock is waited for: on a terminal, with the log, and else nothing.

use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStderr};
use tokio::time::{sleep, timeout};

use super::terminal::Shell;
use super::{Holder, queued, run};
use crate::tool::{finished, lockkeeper};
use testbench::{World, case, eventually};

const LONG: Duration = Duration::from_secs(30);
const CTRL_S: &str = "\u{13}";
const CTRL_Q: &str = "\u{11}";

/// Holds with these words until it is dropped or its input ends.
async fn holder(world: &World, words: &[&str]) -> Holder {
    let mut command = lockkeeper(world);
    command
        .args(words)
        .args(["--", "sh", "-c", "echo ready; read line"]);
    Holder::start(command.stdin(Stdio::piped())).await
}

/// What a terminal shows after it got this.
fn shown(raw: &str) -> String {
    // The rest of a sequence may be still to come.
    let begun = ["\u{1b}[", "\u{1b}"];
    let whole = begun.iter().find_map(|begun| raw.strip_suffix(*begun));
    let raw = whole.unwrap_or(raw);
    let mut lines = vec![Vec::new()];
    let (mut column, mut rest) = (0, raw);
    while let Some(c) = rest.chars().next() {
        let line = lines.last_mut().expect("there is a line");
        if let Some(after) = rest.strip_prefix("\u{1b}[K") {
            line.truncate(column);
            rest = after;
            continue;
        }
        match c {
            '\r' => column = 0,
            '\n' => lines.push(Vec::new()),
            c => {
                line.resize(line.len().max(column + 1), ' ');
                line[column] = c;
                column += 1;
            }
        }
        rest = &rest[c.len_utf8()..];
    }
    let lines = lines.iter().map(|line| line.iter().collect::<String>());
    let lines: Vec<String> = lines.map(|line| line.trim_end().to_owned()).collect();
    lines.join("\n").trim_end().to_owned()
}

/// Waits until the last line of a terminal has this in it, and returns it.
async fn last_line(shell: &Shell, part: &str) -> String {
    let find = || async {
        let shown = shown(&shell.raw());
        let last = shown.lines().last()?;
        last.contains(part).then(|| last.to_owned())
    };
    eventually(&format!("{part} on the terminal"), LONG, find).await
}

#[case]
async fn a_wait_is_told_in_place_on_a_terminal_and_taken_away(world: World) {
    let first = holder(&world, &["run", "--label", "report.sh", "nightly"]).await;
    let second = run(&world, "nightly", "true").spawn().unwrap();
    queued(&world, "nightly", 2).await;
    let script = "stty rows 24 cols 200; $L run nightly echo got it; echo code $?";
    let shell = Shell::start(&world, script);
    let narrow = Shell::start(&world, "stty rows 24 cols 40; $L run nightly echo got it");

    let line = last_line(&shell, "before you").await;
    let host = gethostname::gethostname().to_string_lossy().into_owned();
    let begin = format!("waiting for nightly: held by report.sh on {host} for ");
    assert!(line.starts_with(&begin), "{line}");
    assert!(
        line.ends_with("s, 1 before you") || line.ends_with("s, 2 before you"),
        "{line}"
    );
    let cut = last_line(&narrow, "before you").await;
    assert!(
        cut.starts_with("nightly: held for ") && cut.len() < 40,
        "{cut}"
    );
    // Each second it is drawn again, and it stays one line.
    let again = || async { shell.raw().matches("waiting for nightly").count() > 3 };
    eventually("it is drawn again", LONG, again).await;
    assert_eq!(shown(&shell.raw()).lines().count(), 1);
    first.done().await;

    shell.line("code 0").await;
    let left = shown(&shell.raw());
    assert_eq!(left, "got it\ncode 0");
    drop(second);
}

#[case]
async fn a_job_in_the_background_leaves_the_line_to_the_shell(world: World) {
    let holder = holder(&world, &["run", "a"]).await;
    let script = "set -m; $L run a echo got it & sleep 3; echo slept; fg > /dev/null; echo code $?";
    let shell = Shell::start(&world, script);
    shell.line("slept").await;

    last_line(&shell, "waiting for a: held by sh").await;
    let raw = shell.raw();
    let (before, _) = raw.split_once("slept").unwrap();
    assert!(!before.contains("waiting"), "{before}");
    holder.done().await;
    shell.line("code 0").await;
}

#[case]
async fn what_others_write_does_not_steer_the_terminal_of_a_waiter(world: World) {
    let label = "\u{1b}[2Jevil\u{202e}\u{7}";
    let holder = holder(&world, &["run", "--label", label, "a"]).await;
    let shell = Shell::start(&world, "stty rows 24 cols 200; $L run a echo got it");

    let line = last_line(&shell, "evil").await;

    assert!(line.contains("[2Jevil\\u{202e}"), "{line:?}");
    let raw = shell.raw();
    for steers in ["\u{1b}[2J", "\u{202e}", "\u{7}"] {
        assert!(!raw.contains(steers), "{raw:?}");
    }
    holder.done().await;
    shell.line("got it").await;
}

#[case]
async fn a_terminal_that_is_held_does_not_keep_a_waiter_from_its_grant(world: World) {
    let folder = tempfile::TempDir::new().unwrap();
    let file = folder.path().join("granted");
    let holder = holder(&world, &["run", "a"]).await;
    let script = format!("$L run a touch {}; echo code $?", file.display());
    let mut shell = Shell::start(&world, &script);
    last_line(&shell, "waiting for a").await;

    shell.types(CTRL_S);
    let is_held = || async {
        let before = shell.raw().len();
        sleep(Duration::from_millis(2500)).await;
        shell.raw().len() == before
    };
    eventually("the terminal is held", LONG, is_held).await;
    holder.done().await;

    let granted = || async { file.exists() };
    eventually("the command runs", LONG, granted).await;
    shell.types(CTRL_Q);
    shell.line("code 0").await;
}

/// A tool that waits, with a log.
struct Waiter {
    tool: Child,
    log: Lines<BufReader<ChildStderr>>,
}

impl Waiter {
    /// `lockkeeper -v WORDS -- true`.
    fn start(world: &World, words: &[&str]) -> Self {
        let mut command = lockkeeper(world);
        command.arg("-v").args(words).args(["--", "true"]);
        let mut tool = command.spawn().unwrap();
        let log = BufReader::new(tool.stderr.take().unwrap()).lines();
        Self { tool, log }
    }

    /// The next thing that it says of its wait.
    async fn told(&mut self) -> String {
        loop {
            let line = timeout(LONG, self.log.next_line()).await;
            let line = line.expect("it tells in time").unwrap().unwrap();
            if let Some(told) = line.strip_prefix("lockkeeper: waiting for ") {
                return told.to_owned();
            }
        }
    }
}

#[case]
async fn a_wait_is_told_elsewhere_with_the_log_only(world: World) {
    let holder = holder(&world, &["run", "nightly"]).await;
    let mut silent = run(&world, "nightly", "true");
    let silent = tokio::spawn(async move { finished(&mut silent).await });
    queued(&world, "nightly", 2).await;

    let mut waiter = Waiter::start(&world, &["run", "nightly"]);
    // The second line comes a second after the first.
    for _ in 0..2 {
        let line = waiter.told().await;
        assert!(line.starts_with("nightly: held by sh on "), "{line}");
        assert!(line.ends_with(", 1 before you"), "{line}");
    }
    holder.done().await;
    assert!(waiter.tool.wait().await.unwrap().success());
    let silent = silent.await.unwrap();
    assert_eq!((silent.code, &*silent.stderr), (Some(0), ""));
}

#[case]
async fn a_wait_is_told_of_every_kind_of_lock(world: World) {
    for (holds, waits, says) in [
        (
            &["run", "a"] as &[&str],
            &["run", "--shared", "a"] as &[&str],
            "a: held by sh on ",
        ),
        (
            &["run", "--shared", "b"],
            &["run", "b"],
            "b: held by sh on ",
        ),
        (
            &["run", "--permits", "2/2", "c"],
            &["run", "--permits", "1/2", "c"],
            "c: held by sh on ",
        ),
        (&["run", "e"], &["run", "d", "e"], "e: held by sh on "),
        (&["elect", "f"], &["elect", "f"], "f: led by sh on "),
    ] {
        let _holder = holder(&world, holds).await;
        let line = Waiter::start(&world, waits).told().await;
        assert!(line.starts_with(says), "{waits:?}: {line}");
        assert!(line.ends_with(", you are next"), "{waits:?}: {line}");
    }
}
