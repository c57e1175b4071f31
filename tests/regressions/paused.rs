//! Two holders and a pause: a process that was stopped learns what it missed before it does
//! anything.
//!
//! The process is this test binary again: with `LOCKKEEPER_PAUSED` set, `main` runs [`child`]
//! instead of the suite. It does what each line on stdin says, and answers with a line on stdout.

use std::io::{BufRead, Write};
use std::process::{ExitCode, Stdio};
use std::time::Duration;

use lockkeeper::{Guard, Keeper};
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::{Instant, timeout};

use super::{SOON, T};
use testbench::{World, case, eventually};
use testbench::{children, keeper};

const ENVIRONMENT: &str = "LOCKKEEPER_PAUSED";

#[case]
async fn row_17_a_holder_that_was_stopped_knows_before_it_acts(world: World) {
    let near = keeper(&world).await;
    // To the moment at which the next one is in, and to twice the session timeout.
    for (name, more) in [("stopped", Duration::ZERO), ("stopped-long", T)] {
        let mut process = Process::start(&world, name).await;
        assert_eq!(process.asks("lock").await[0], "granted");

        process.signal(Signal::STOP);
        // What it is to do first when it goes on.
        process.tell("look").await;
        let next = timeout(SOON, near.mutex(name).unwrap().lock()).await;
        let next = next.expect("its session ends without it").unwrap();
        tokio::time::sleep(more).await;
        process.signal(Signal::CONT);
        let look = process.answer().await;
        let checked = process.asks("check").await;
        let released = process.asks("release").await;

        assert_eq!(look, ["looked", "false", "0"], "at its first look");
        assert_eq!(checked, ["checked", "lost"]);
        assert_eq!(released, ["released", "lost"]);
        assert!(next.is_held());
        next.check().await.unwrap();
        next.release().await.unwrap();
        process.ends().await;
    }
}

#[case]
async fn row_81_a_lock_after_a_pause_is_held_for_as_long_as_it_says(world: World) {
    // On Redis a session ends when another one looks.
    let (_near, stranger) = (keeper(&world).await, world.raw().await);
    let step = if World::soak() { 3 } else { 25 };
    for percent in (80..=130).step_by(step) {
        let name = format!("after-{percent}");
        let mut process = Process::start(&world, &name).await;
        assert_eq!(process.asks("lock").await[0], "granted");
        assert_eq!(process.asks("release").await, ["released", "ok"]);

        process.signal(Signal::STOP);
        process.tell("lock").await;
        // The pause itself: around the session timeout.
        tokio::time::sleep(T * percent / 100).await;
        process.signal(Signal::CONT);
        let granted = process.answer().await;
        // Nothing that it does from here on keeps its session: what it said was said without that.
        let since = Instant::now();
        process.signal(Signal::STOP);

        let [word, node, valid_for] = &granted[..] else {
            panic!("{percent} %: {granted:?}")
        };
        assert_eq!(word, "granted");
        let valid_for = Duration::from_millis(valid_for.parse().unwrap());
        while since.elapsed() < valid_for {
            let tickets = children(&stranger, &name).await;
            let at = since.elapsed();
            assert!(
                tickets == [node.as_str()] || at >= valid_for,
                "{percent} %: gone after {at:?} of {valid_for:?}: {tickets:?}"
            );
        }
        eventually("its session ends", SOON, || async {
            children(&stranger, &name).await.is_empty()
        })
        .await;
        process.signal(Signal::CONT);
        process.ends().await;
    }
}

/// The process, seen from here.
struct Process {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Process {
    async fn start(world: &World, lock: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .env(ENVIRONMENT, format!("{} {lock}", world.connect_string()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines }
    }

    async fn tell(&mut self, word: &str) {
        let stdin = self.child.stdin.as_mut().unwrap();
        stdin
            .write_all(format!("{word}\n").as_bytes())
            .await
            .unwrap();
    }

    async fn answer(&mut self) -> Vec<String> {
        let line = timeout(SOON * 2, self.lines.next_line()).await;
        let line = line.expect("it answers").unwrap().expect("it goes on");
        line.split(' ').map(str::to_owned).collect()
    }

    async fn asks(&mut self, word: &str) -> Vec<String> {
        self.tell(word).await;
        self.answer().await
    }

    fn signal(&self, signal: Signal) {
        let id = i32::try_from(self.child.id().unwrap()).unwrap();
        kill_process(Pid::from_raw(id).unwrap(), signal).unwrap();
    }

    async fn ends(mut self) {
        drop(self.child.stdin.take());
        let ended = timeout(SOON * 2, self.child.wait()).await;
        assert!(ended.expect("it ends").unwrap().success());
    }
}

/// The process's `main`, if this is it.
pub(crate) fn child() -> Option<ExitCode> {
    let order = std::env::var(ENVIRONMENT).ok()?;
    let (connect_string, lock) = order.split_once(' ').unwrap();
    // The process that started us may be gone while we are stopped.
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    let keeper = runtime
        .block_on(Keeper::builder(connect_string).session_timeout(T).connect())
        .unwrap();
    let lock = keeper.mutex(lock).unwrap();
    let mut guard: Option<Guard> = None;
    // On this thread, so that a look is done before anything else once the process goes on.
    for word in std::io::stdin().lock().lines() {
        let ended = |result: lockkeeper::Result<()>| match result {
            Ok(()) => "ok",
            Err(error) if error.is_lost() => "lost",
            Err(_) => "failed",
        };
        let answer = match (word.unwrap().as_str(), guard.take()) {
            ("lock", _) => {
                let granted = runtime.block_on(lock.lock()).unwrap();
                let (node, valid_for) = (granted.node().to_owned(), granted.valid_for());
                guard = Some(granted);
                format!("granted {node} {}", valid_for.as_millis())
            }
            ("look", Some(held)) => {
                let look = format!("looked {} {}", held.is_held(), held.valid_for().as_millis());
                guard = Some(held);
                look
            }
            ("check", Some(held)) => {
                let checked = ended(runtime.block_on(held.check()));
                guard = Some(held);
                format!("checked {checked}")
            }
            ("release", Some(held)) => {
                format!("released {}", ended(runtime.block_on(held.release())))
            }
            (word, _) => panic!("{word}"),
        };
        let mut stdout = std::io::stdout().lock();
        writeln!(stdout, "{answer}").unwrap();
        stdout.flush().unwrap();
    }
    drop(guard);
    runtime.block_on(keeper.close());
    Some(ExitCode::SUCCESS)
}
