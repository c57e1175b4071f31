//! The tool under a terminal and a shell with job control.

use std::fs::File;
use std::io::{Read, Write};
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use nix::pty::openpty;
use tokio::process::{Child, Command};

use super::signals::ended;
use super::{Holder, queued, tickets};
use crate::tool::heed_signals;
use testbench::{World, case, eventually};

const CTRL_C: &str = "\u{3}";
const CTRL_Z: &str = "\u{1a}";

/// A shell that leads a session of its own on a terminal of its own.
pub(crate) struct Shell {
    master: File,
    /// A read may end within a character.
    seen: Arc<Mutex<Vec<u8>>>,
    shell: Child,
}

impl Shell {
    /// Runs a script; in it, `$L` is the tool.
    pub(crate) fn start(world: &World, script: &str) -> Self {
        heed_signals();
        let pty = openpty(None, None).unwrap();
        let slave = File::from(pty.slave);
        let end = || Stdio::from(slave.try_clone().unwrap());
        // `setsid -c` makes the terminal the controlling one; doing it here would take unsafe code.
        let shell = Command::new("setsid")
            .args(["-c", "-w", "sh", "-c", script])
            .env("LOCKKEEPER_ZK", world.connect_string())
            .env("L", env!("CARGO_BIN_EXE_lockkeeper"))
            .stdin(end())
            .stdout(end())
            .stderr(end())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let master = File::from(pty.master);
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (mut reading, noting) = (master.try_clone().unwrap(), Arc::clone(&seen));
        // It ends when the last process has closed the terminal.
        std::thread::spawn(move || {
            let mut bytes = [0; 1024];
            while let Ok(count @ 1..) = reading.read(&mut bytes) {
                noting.lock().unwrap().extend(&bytes[..count]);
            }
        });
        Self {
            master,
            seen,
            shell,
        }
    }

    pub(crate) fn types(&mut self, keys: &str) {
        self.master.write_all(keys.as_bytes()).unwrap();
    }

    /// What the terminal got so far.
    pub(crate) fn raw(&self) -> String {
        String::from_utf8_lossy(&self.seen.lock().unwrap()).into_owned()
    }

    /// What was printed so far, without the terminal's own echo of control keys, and without a line
    /// that is drawn again and again.
    pub(crate) fn screen(&self) -> String {
        let seen = self.raw();
        let mut kept = String::new();
        for drawn in seen.split_inclusive("\u{1b}[K") {
            let line = drawn.strip_suffix("\u{1b}[K");
            let begin = line.and_then(|line| line.rfind('\r'));
            // A new line is not drawn over the one before.
            let begin = begin.filter(|begin| !drawn[*begin..].starts_with("\r\n"));
            kept += begin.map_or(drawn, |begin| &drawn[..begin]);
        }
        kept.replace('\r', "").replace("^C", "").replace("^Z", "")
    }

    /// Waits for a line that begins so, and returns its rest.
    pub(crate) async fn line(&self, begin: &str) -> String {
        let find = || async {
            let screen = self.screen();
            let (lines, _) = screen.rsplit_once('\n')?;
            let found = lines.lines().find_map(|line| line.strip_prefix(begin));
            found.map(str::to_owned)
        };
        let what = format!("a line `{begin}` on the terminal");
        // The shorter deadline shows the screen.
        tokio::select! {
            line = eventually(&what, Duration::from_secs(60), find) => line,
            () = tokio::time::sleep(Duration::from_secs(30)) => {
                panic!("no line `{begin}` on the terminal, but: {}", self.screen())
            }
        }
    }
}

#[case]
async fn the_command_has_the_terminal_and_gives_it_back(world: World) {
    // The fields are the process group and the foreground of the terminal.
    let script = "$L run a -- sh -c 'echo command $(cut -d\" \" -f 5,8 /proc/$$/stat); read x; echo got $x'; \
                  echo code $?; echo shell $(cut -d' ' -f 5,8 /proc/$$/stat); read y; echo shell got $y";
    let mut shell = Shell::start(&world, script);

    let command = shell.line("command ").await;
    shell.types("one\n");
    shell.line("got one").await;
    shell.line("code 0").await;
    let after = shell.line("shell ").await;
    shell.types("two\n");
    shell.line("shell got two").await;

    let groups = |line: &str| {
        let (group, foreground) = line.split_once(' ').unwrap();
        (group.to_owned(), foreground.to_owned())
    };
    let (command, after) = (groups(&command), groups(&after));
    assert_eq!(command.0, command.1, "the command is in the foreground");
    assert_eq!(after.0, after.1, "the shell is again");
    assert_ne!(command.0, after.0);
    assert!(shell.shell.wait().await.unwrap().success());
}

/// Waits until a shell has become `sleep`: one that is just about to may lose a key.
async fn sleeps(pid: &str) {
    let name = format!("/proc/{pid}/comm");
    let is_sleep = || async { std::fs::read_to_string(&name).is_ok_and(|name| name == "sleep\n") };
    eventually("it sleeps", Duration::from_secs(10), is_sleep).await;
}

#[case]
async fn ctrl_c_ends_the_command_and_not_the_shell(world: World) {
    let script = "$L run a -- sh -c 'echo up $$; exec sleep 60'; echo code $?";
    let mut shell = Shell::start(&world, script);
    sleeps(&shell.line("up ").await).await;

    shell.types(CTRL_C);

    shell.line("code 130").await;
    assert_eq!(tickets(&world, "a").await, 0);
}

#[case]
async fn what_ignores_ctrl_c_is_killed_after_the_grace(world: World) {
    // A shell lets what it starts in the background ignore the key.
    let script = "$L run --grace 300ms a -- sh -c '(echo up $$; for i in $(seq 2000); do sleep 0.02; done) & \
                  exec sleep 60'; echo code $?";
    let mut shell = Shell::start(&world, script);
    sleeps(&shell.line("up ").await).await;

    shell.types(CTRL_C);

    let told = shell
        .line("lockkeeper: the rest of its process group (pid ")
        .await;
    assert!(
        told.ends_with(") did not end within 300ms: it gets SIGKILL"),
        "{told}"
    );
    shell.line("code 130").await;
    assert_eq!(tickets(&world, "a").await, 0);
}

#[case]
async fn ctrl_z_stops_a_tool_that_waits_for_what_the_command_left(world: World) {
    let script = "set -m; $L run --session-timeout 30s --wait-group a -- \
                  sh -c 'exec 3<&0; (read x <&3; echo got $x) & echo up $$'; \
                  echo stopped $?; fg; echo code $?";
    let mut shell = Shell::start(&world, script);
    let command = shell.line("up ").await;
    ended(&command).await;

    shell.types(CTRL_Z);
    // 128 and TSTP
    shell.line("stopped 148").await;
    shell.types("word\n");

    shell.line("got word").await;
    shell.line("code 0").await;
}

#[case]
async fn ctrl_z_stops_the_tool_too_and_both_go_on(world: World) {
    let script = "set -m; $L run --session-timeout 30s a -- sh -c 'echo up; read x; echo got $x'; \
                  echo stopped $?; fg; echo code $?";
    let mut shell = Shell::start(&world, script);
    shell.line("up").await;

    shell.types(CTRL_Z);
    // 128 and TSTP
    shell.line("stopped 148").await;
    shell.types("word\n");

    shell.line("got word").await;
    shell.line("code 0").await;
}

#[case]
async fn ctrl_z_does_not_stop_a_tool_that_waits(world: World) {
    let holder = Holder::of(&world, "a").await;
    let mut shell = Shell::start(&world, "set -m; $L run a -- echo got it; echo code $?");
    queued(&world, "a", 2).await;

    shell.types(CTRL_Z);
    // The terminal has sent the signal when it shows the key; the command must not get it in the
    // tool's place.
    let shown = || async { shell.raw().contains("^Z") };
    eventually(
        "the terminal has seen the key",
        Duration::from_secs(15),
        shown,
    )
    .await;
    holder.done().await;

    shell.line("got it").await;
    shell.line("code 0").await;
}

#[case]
async fn ctrl_c_ends_the_wait(world: World) {
    let _holder = Holder::of(&world, "a").await;
    let script = "set -m; $L run a -- echo never; echo code $?";
    let mut shell = Shell::start(&world, script);
    queued(&world, "a", 2).await;

    shell.types(CTRL_C);

    shell.line("code 130").await;
    assert_eq!(tickets(&world, "a").await, 1);
}

#[case]
async fn a_command_that_lost_its_lock_while_stopped_gets_term(world: World) {
    // It starts nothing: a shell that is stopped while it does is not seen to be stopped.
    let script = "set -m; $L --session-timeout 2s run a -- sh -c 'trap \"echo trapped; exit 5\" TERM; echo up; \
                  read y'; echo stopped $?; read x; fg; echo code $?";
    let mut shell = Shell::start(&world, script);
    shell.line("up").await;

    shell.types(CTRL_Z);
    shell.line("stopped 148").await;
    queued(&world, "a", 0).await;
    shell.types("\n");

    shell.line("trapped").await;
    shell.line("code 70").await;
}

#[case]
async fn a_command_in_a_pipeline_gets_the_terminal_when_it_asks(world: World) {
    let script = "set -m; $L run a -- sh -c 'read x; echo got $x' | cat; echo end";
    let mut shell = Shell::start(&world, script);
    queued(&world, "a", 1).await;

    shell.types("word\n");

    shell.line("got word").await;
    shell.line("end").await;
}

#[case]
async fn break_asks_on_the_terminal_and_takes_no_for_an_answer(world: World) {
    let mut holder = Holder::of(&world, "asked").await;
    let script = "$L break asked; echo first $?; $L break asked --grace 0s; echo second $?";
    let mut shell = Shell::start(&world, script);
    let seconds = Duration::from_secs(30);
    let questions = |shell: &Shell| shell.screen().matches("Remove it? [y/N]").count();

    eventually("it asks", seconds, || async { questions(&shell) == 1 }).await;
    shell.types("n\n");
    assert_eq!(shell.line("first ").await, "1");
    assert_eq!(tickets(&world, "asked").await, 1);
    eventually("it asks again", seconds, || async {
        questions(&shell) == 2
    })
    .await;
    shell.types("y\n");
    assert_eq!(shell.line("second ").await, "0");

    assert_eq!(tickets(&world, "asked").await, 0);
    assert_eq!(holder.code().await, Some(70), "its lock was lost");
}

#[case(
    zookeeper,
    why = "`bench` measures ZooKeeper only",
    alone,
    within = 120
)]
async fn bench_shows_how_far_it_is_until_ctrl_c(world: World) {
    let script =
        "set -m; out=$(mktemp); $L bench > $out; echo code $?; echo data $(wc -c < $out); rm $out";
    let mut shell = Shell::start(&world, script);
    let is_shown = || async { shell.screen().contains("lock + release: Lockkeeper") };
    eventually("the bar is there", Duration::from_secs(30), is_shown).await;

    shell.types(CTRL_C);

    shell.line("code 130").await;
    assert_eq!(shell.line("data ").await, "0");
    let removing = "interrupted: removing /locks/bench-";
    assert!(shell.screen().contains(removing), "{}", shell.screen());
}
