//! The members of a crowd: processes in Rust, Java and Python that take turns under one lock, and
//! write them into a book.
//!
//! It judges nothing.

use std::fmt::Display;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};
use std::time::Duration;

use lockkeeper::{Dialect, Error, Keeper};
use rustix::process::{Pid, Signal, kill_process, set_parent_process_death_signal};
use serde::{Deserialize, Serialize};
use tempfile::TempDir;
use tokio::process::{Child, Command};
use tokio::sync::watch;
use tokio::time::sleep;

use super::book::{self, Summary};
use super::tools::{java, kazoo};
use testbench::eventually;

/// The environment variable that makes this binary a member.
const MEMBER: &str = "LOCKKEEPER_MEMBER";
/// How a member takes its turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Recipe {
    Mutex,
    Read,
    Write,
    Election,
}

/// Whose code a process runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// This library, in this binary started again.
    Rust(Recipe, Dialect),
    /// `lockkeeper run`, again and again.
    Tool(&'static [&'static str]),
    /// Curator, with so many threads.
    Java(&'static str, usize),
    /// kazoo, with so many threads.
    Python(&'static str, usize),
}

impl Kind {
    /// The start of its names in the book.
    pub(super) fn language(self) -> &'static str {
        match self {
            Self::Rust(..) => "rust",
            Self::Tool(_) => "tool",
            Self::Java(..) => "java",
            Self::Python(..) => "python",
        }
    }
}

/// The order of a member in Rust.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Order {
    connect_string: String,
    lock: String,
    recipe: Recipe,
    is_kazoos: bool,
    book: PathBuf,
    work: Duration,
}

/// A lock, those who want it, and their book.
#[derive(Debug)]
pub(super) struct Crowd {
    folder: TempDir,
    connect_string: String,
    lock: String,
    work: Duration,
}

/// A process of the crowd. It is killed when this goes.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) kind: Kind,
    child: Child,
    /// The start of its names in the book.
    name: String,
}

impl Member {
    /// Its names in the book, one for each thread.
    pub(super) fn names(&self) -> impl Iterator<Item = String> {
        let threads = match self.kind {
            Kind::Rust(..) | Kind::Tool(_) => None,
            Kind::Java(_, threads) | Kind::Python(_, threads) => Some(threads),
        };
        let alone = threads.is_none().then(|| self.name.clone());
        let numbers = 0..threads.unwrap_or_default();
        alone
            .into_iter()
            .chain(numbers.map(|number| format!("{}-{number}", self.name)))
    }
}

impl Crowd {
    pub(super) fn new(connect_string: String, lock: &str, work: Duration) -> Self {
        let folder = tempfile::Builder::new().prefix("lockkeeper-it-").tempdir();
        let folder = folder.expect("a temporary folder");
        std::fs::write(folder.path().join("book"), "").expect("a book");
        Self {
            folder,
            connect_string,
            lock: lock.to_owned(),
            work,
        }
    }

    fn book(&self) -> PathBuf {
        self.folder.path().join("book")
    }

    pub(super) async fn start(&self, kind: Kind) -> Member {
        let path = format!("/locks/{}", self.lock);
        let work = self.work.as_millis().to_string();
        let mut command = match kind {
            Kind::Rust(recipe, dialect) => {
                let order = Order {
                    connect_string: self.connect_string.clone(),
                    lock: self.lock.clone(),
                    recipe,
                    is_kazoos: dialect == Dialect::Kazoo,
                    book: self.book(),
                    work: self.work,
                };
                let order = serde_json::to_string(&order).expect("an order is JSON");
                let mut command = Command::new(std::env::current_exe().expect("this binary"));
                command.env(MEMBER, order);
                command
            }
            Kind::Tool(options) => self.tool(options),
            Kind::Java(recipe, threads) => {
                let mut command = java("Member").await;
                command.args([&self.connect_string, &path, recipe, &threads.to_string()]);
                command.arg(self.book()).arg(&work);
                command
            }
            Kind::Python(recipe, threads) => {
                let mut command = kazoo("member.py");
                command.args([&self.connect_string, &path, recipe, &threads.to_string()]);
                command.arg(self.book()).arg(&work);
                command
            }
        };
        let errors = OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.folder.path().join("errors"));
        command
            .stdin(Stdio::piped())
            .stderr(errors.expect("a file for errors"))
            .kill_on_drop(true);
        let child = command.spawn().expect("a member starts");
        let name = format!(
            "{}-{}",
            kind.language(),
            child.id().expect("it was not awaited")
        );
        Member { kind, child, name }
    }

    /// A shell that runs the tool over and over, until its stdin ends.
    fn tool(&self, options: &[&str]) -> Command {
        let turn = r#"
            echo $$ >"$BOOK.$SHELL_PID"
            count=$(grep -c ^= "$BOOK")
            echo "+ tool-$SHELL_PID w $LOCKKEEPER_TOKEN" >>"$BOOK"
            sleep "$WORK"
            echo "= tool-$SHELL_PID $((count + 1))" >>"$BOOK"
            echo "- tool-$SHELL_PID w" >>"$BOOK"
            rm -f "$BOOK.$SHELL_PID""#;
        // Killed together, because the shell is the leader of a group.
        let script = r#"
            export SHELL_PID=$$
            while ! read -t 0; do
                "$TOOL" run --session-timeout 4s $OPTIONS "$LOCK" -- sh -c "$TURN" </dev/null
            done"#;
        let mut command = Command::new("bash");
        command.args(["-c", script]);
        command
            .env("TOOL", env!("CARGO_BIN_EXE_lockkeeper"))
            .env("TURN", turn);
        command
            .env("LOCKKEEPER_ZK", &self.connect_string)
            .env("LOCK", &self.lock);
        command
            .env("OPTIONS", options.join(" "))
            .env("BOOK", self.book());
        command.env("WORK", self.work.as_secs_f64().to_string());
        command.process_group(0);
        command
    }

    /// Kills it where it stands, and writes that down once it can write no more.
    pub(super) async fn kill(&self, mut member: Member) {
        let pid = Pid::from_raw(member.child.id().expect("it runs") as i32).expect("a process");
        match member.kind {
            Kind::Tool(_) => rustix::process::kill_process_group(pid, Signal::KILL),
            _ => kill_process(pid, Signal::KILL),
        }
        .expect("it is there");
        member.child.wait().await.expect("it has ended");
        let command = self
            .folder
            .path()
            .join(format!("book.{}", member.name.trim_start_matches("tool-")));
        if let Ok(pid) = std::fs::read_to_string(command) {
            // The tool's command ends with it, a moment later.
            let gone = || async { !is_running(pid.trim()) };
            eventually("the command has ended", Duration::from_secs(5), gone).await;
        }
        self.note(&format!("! {}", member.name));
    }

    /// Lets it end its turn and waits for its end.
    pub(super) async fn dismiss(&self, mut member: Member) {
        drop(member.child.stdin.take());
        let ended = tokio::time::timeout(Duration::from_secs(20), member.child.wait()).await;
        if ended.is_err() {
            panic!("{} does not end", member.name);
        }
    }

    pub(super) fn summary(&self) -> Summary {
        let book = std::fs::read_to_string(self.book()).expect("a book");
        book::judge(&book).unwrap_or_else(|breach| panic!("{breach}"))
    }

    fn note(&self, line: &str) {
        note(&self.book(), line);
    }
}

impl Drop for Crowd {
    /// Keeps the book of a case that failed, and says where.
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.folder.disable_cleanup(true);
            println!("the book is in {}", self.folder.path().display());
        }
    }
}

/// Whether there is such a process, and not only what is left of it until somebody asks how it
/// ended.
fn is_running(pid: &str) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = status
        .rsplit(") ")
        .next()
        .and_then(|rest| rest.chars().next());
    !matches!(state, None | Some('Z' | 'X'))
}

fn note(book: &Path, line: &str) {
    let mut file = OpenOptions::new().append(true).open(book).expect("a book");
    file.write_all(format!("{line}\n").as_bytes())
        .expect("a line");
}

/// The process's `main`, if this is a member in Rust.
pub(crate) fn child() -> Option<ExitCode> {
    let order = std::env::var(MEMBER).ok()?;
    let order: Order = serde_json::from_str(&order).expect("an order");
    set_parent_process_death_signal(Some(Signal::KILL)).expect("a signal");
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    let (tell, told) = watch::channel(false);
    std::thread::spawn(move || {
        std::io::stdin().read_line(&mut String::new()).unwrap_or(0);
        tell.send_replace(true);
    });
    runtime.block_on(live(&order, told));
    Some(ExitCode::SUCCESS)
}

async fn live(order: &Order, told: watch::Receiver<bool>) {
    let dialect = if order.is_kazoos {
        Dialect::Kazoo
    } else {
        Dialect::Curator
    };
    let builder = Keeper::builder(&order.connect_string).dialect(dialect);
    let keeper = builder
        .session_timeout(Duration::from_secs(4))
        .connect()
        .await;
    let keeper = keeper.expect("a session");
    let who = format!("rust-{}", std::process::id());
    while !*told.borrow() {
        if let Err(error) = turn(order, &keeper, &who).await {
            eprintln!("{who}: {error}");
            sleep(Duration::from_millis(100)).await;
        }
    }
    keeper.close().await;
}

async fn turn(order: &Order, keeper: &Keeper, who: &str) -> Result<(), Error> {
    match order.recipe {
        Recipe::Mutex => {
            let guard = keeper.mutex(&*order.lock)?.lock().await?;
            work(order, who, 'w', guard.token()).await;
            guard.release().await
        }
        Recipe::Write => {
            let guard = keeper.rw_lock(&*order.lock)?.write().await?;
            work(order, who, 'w', guard.token()).await;
            guard.release().await
        }
        Recipe::Read => {
            let guard = keeper.rw_lock(&*order.lock)?.read().await?;
            work(order, who, 'r', 0).await;
            guard.release().await
        }
        Recipe::Election => {
            let leading = keeper.election(&*order.lock)?.campaign(who).await?;
            work(order, who, 'w', leading.token()).await;
            leading.resign().await
        }
    }
}

async fn work(order: &Order, who: &str, mode: char, token: impl Display) {
    let book = std::fs::read_to_string(&order.book).expect("a book");
    let count = book.lines().filter(|line| line.starts_with('=')).count();
    note(&order.book, &format!("+ {who} {mode} {token}"));
    sleep(order.work).await;
    if mode == 'w' {
        note(&order.book, &format!("= {who} {}", count + 1));
    }
    note(&order.book, &format!("- {who} {mode}"));
}
