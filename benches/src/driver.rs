//! The runner's end of the pipe to one driver: it starts the process, gives it one order at a time
//! and takes its answer.
//!
//! It never guesses: an order that failed, or took too long, is an outcome that says so.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

use crate::order::{Answer, Hello, Order};
use crate::peer::{PAUSE_MS, Peer, Store};
use crate::tools::{HERE, Tools};
use crate::{Result, tied, versions};

const START: Duration = Duration::from_secs(60);

/// How one order ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Outcome {
    Measured(Answer),
    /// There is no figure, and this is why.
    Failed(String),
    /// It was stopped after so many seconds.
    Over(u64),
}

/// A driver's process. It is killed when this goes.
#[derive(Debug)]
pub(crate) struct Driver {
    pub(crate) peer: Peer,
    pub(crate) version: String,
    child: Child,
    orders: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
    log: PathBuf,
    /// An order was given up: its answer may still come, and would be taken for the next one's.
    given_up: bool,
}

impl Driver {
    /// Starts it and waits until it is connected to `server`; `aside` is the same server for
    /// questions that are not counted.
    pub(crate) async fn start(
        (on, peer): (Store, Peer),
        tools: &Tools,
        folder: &Path,
        server: &str,
        aside: &str,
    ) -> Result<Self> {
        let log = folder.join(format!("driver-{}.log", peer.key()));
        let mut command = command((on, peer), tools, folder, &log)?;
        command.args([server, aside]);
        match peer {
            Peer::Curator => drop(command.arg(versions::of_jar("curator-recipes"))),
            Peer::RedisPy | Peer::PythonRedisLock => {
                command.arg(peer.key()).arg(PAUSE_MS.to_string());
            }
            Peer::NodeRedlock => drop(command.arg(PAUSE_MS.to_string())),
            _ => {}
        }
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let (Some(orders), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            unreachable!("both are pipes")
        };
        let mut driver = Self {
            peer,
            version: String::new(),
            child,
            orders,
            answers: BufReader::new(stdout).lines(),
            log,
            given_up: false,
        };
        let hello = timeout(START, driver.answers.next_line()).await;
        let hello = hello.map_err(|_| driver.complaint("does not start"))??;
        let hello = hello.ok_or_else(|| driver.complaint("ended at once"))?;
        driver.version = serde_json::from_str::<Hello>(&hello)?.version;
        Ok(driver)
    }

    /// Gives it an order. Once one was given up, or it has ended, it takes no more.
    pub(crate) async fn obey(&mut self, order: &Order, limit: Duration) -> Outcome {
        if self.given_up {
            return Outcome::Failed("an order before it was given up".into());
        }
        match timeout(limit, self.exchange(order)).await {
            Err(_) => {
                self.given_up = true;
                Outcome::Over(limit.as_secs())
            }
            Ok(Err(error)) => Outcome::Failed(error.to_string()),
            Ok(Ok(answer)) if answer.mean_us.is_none() && answer.locks_per_s.is_none() => {
                Outcome::Failed(answer.error.unwrap_or_default())
            }
            Ok(Ok(answer)) => Outcome::Measured(answer),
        }
    }

    pub(crate) fn is_useless(&mut self) -> bool {
        self.given_up || !matches!(self.child.try_wait(), Ok(None))
    }

    /// Ends it: it closes its connections and exits by itself. If it does not, it is killed.
    pub(crate) async fn dismiss(self) -> Result<()> {
        let Self {
            mut child, orders, ..
        } = self;
        drop(orders);
        match timeout(Duration::from_secs(10), child.wait()).await {
            Ok(ended) => drop(ended?),
            Err(_) => child.kill().await?,
        }
        Ok(())
    }

    /// Kills it, even in the middle of an order.
    pub(crate) async fn kill(mut self) -> Result<()> {
        Ok(self.child.kill().await?)
    }

    async fn exchange(&mut self, order: &Order) -> Result<Answer> {
        let line = serde_json::to_string(order)? + "\n";
        self.orders.write_all(line.as_bytes()).await?;
        match self.answers.next_line().await? {
            Some(answer) => Ok(serde_json::from_str(&answer)?),
            None => Err(self.complaint("ended")),
        }
    }

    fn complaint(&self, how: &str) -> crate::Error {
        let words = tied::last_words(&self.log);
        format!(
            "the driver of {} {how}; the end of its log:\n  | {words}",
            self.peer.title()
        )
        .into()
    }
}

/// The driver's program, up to the addresses.
fn command((on, peer): (Store, Peer), tools: &Tools, folder: &Path, log: &Path) -> Result<Command> {
    if let Some((class, jars)) = java(peer, tools) {
        let classes = folder.display();
        let mut command = tied::command(&tools.java, log)?;
        command
            .args(["-Xmx2g", "-cp"])
            .arg(format!("{classes}:{jars}"))
            .arg(class);
        return Ok(command);
    }
    let mut command = match peer {
        Peer::Kazoo | Peer::RedisPy | Peer::PythonRedisLock => tied::command(&tools.python, log)?,
        Peer::NodeRedlock => tied::command(&tools.node, log)?,
        _ => tied::command(std::env::current_exe()?, log)?,
    };
    match peer {
        Peer::Kazoo => command.arg(format!("{HERE}/python/kazoo_driver.py")),
        Peer::RedisPy | Peer::PythonRedisLock => {
            command.arg(format!("{HERE}/python/redis_driver.py"))
        }
        Peer::NodeRedlock => command
            .arg(format!("{HERE}/node/redlock_driver.mjs"))
            .arg(&tools.modules),
        _ => command.args(["driver", on.key(), peer.key()]),
    };
    Ok(command)
}

/// The class of a driver in Java, and the jars of what it drives.
fn java(peer: Peer, tools: &Tools) -> Option<(&'static str, &str)> {
    match peer {
        Peer::Curator => Some(("CuratorDriver", &tools.curator)),
        Peer::Redisson => Some(("RedissonDriver", &tools.redisson)),
        _ => None,
    }
}

/// Compiles the drivers in Java into the folder.
pub(crate) async fn compile(peers: &[Peer], tools: &Tools, folder: &Path) -> Result<()> {
    let mut drivers: Vec<_> = peers.iter().filter_map(|peer| java(*peer, tools)).collect();
    drivers.dedup();
    for (class, jars) in drivers {
        let output = Command::new(&tools.javac)
            .args(["-cp", jars, "-d"])
            .arg(folder)
            .arg(format!("{HERE}/java/Driver.java"))
            .arg(format!("{HERE}/java/{class}.java"))
            .output()
            .await?;
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).into());
        }
    }
    Ok(())
}

impl Outcome {
    pub(crate) fn measured(&self) -> Option<&Answer> {
        match self {
            Self::Measured(answer) => Some(answer),
            Self::Failed(_) | Self::Over(_) => None,
        }
    }
}
