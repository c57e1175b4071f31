//! Finds Java and ZooKeeper's jars, and starts JVMs that cannot outlive this process.
//!
//! It never downloads and never looks for a running server. If something is missing, the error says
//! what to install.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, OnceLock, PoisonError};

const INSTALL: &str = "install them with `apt-get install zookeeper default-jre-headless`, \
    or set ZOOKEEPER_HOME to an unpacked release (and JAVA_HOME)";

const FLAGS: [&str; 10] = [
    "-Xmx96m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Dzookeeper.forceSync=no",
    "-Dzookeeper.extendedTypesEnabled=true",
    "-Dzookeeper.preAllocSize=1024",
    "-Dzookeeper.jmx.log4j.disable=true",
    // Empty containers stay: a case may be looking at one.
    "-Dznode.container.checkIntervalMs=3600000",
    // Its figures are in a file, and a busy disk would stop it at each write.
    "-XX:+PerfDisableSharedMem",
    // Of the logger that comes with 3.9 here.
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
];

const DEBIAN: [&str; 13] = [
    "zookeeper",
    "zookeeper-jute",
    "snappy-java",
    "metrics-core",
    // For TLS.
    "netty-buffer",
    "netty-codec",
    "netty-common",
    "netty-handler",
    "netty-resolver",
    "netty-transport",
    "slf4j-api",
    "slf4j-log4j12",
    "log4j-1.2",
];

/// What it takes to start a server.
#[derive(Debug)]
pub(crate) struct Java {
    binary: PathBuf,
    jars: String,
}

impl Java {
    pub(crate) fn find() -> Result<Self, String> {
        let binary = java().ok_or_else(|| {
            format!("Java is missing, and real ZooKeeper was asked for; {INSTALL}")
        })?;
        Ok(Self {
            binary,
            jars: jars()?,
        })
    }

    /// Starts a server. `conf` goes to the front of the class path, all output to `log`.
    pub(crate) fn start(
        &self,
        conf: &Path,
        flags: &[String],
        config: &Path,
        log: &Path,
    ) -> Result<Jvm, String> {
        let out = File::create(log).map_err(|error| format!("{}: {error}", log.display()))?;
        let err = out.try_clone().map_err(|error| error.to_string())?;
        let mut command = match on_path("setpriv") {
            // So that the servers end if the test binary is killed.
            Some(setpriv) => {
                let mut command = Command::new(setpriv);
                command.args(["--pdeathsig", "KILL"]).arg(&self.binary);
                command
            }
            None => Command::new(&self.binary),
        };
        command
            .args(FLAGS)
            .args(flags)
            .arg("-cp")
            .arg(format!("{}:{}", conf.display(), self.jars));
        command
            .arg("org.apache.zookeeper.server.quorum.QuorumPeerMain")
            .arg(config);
        command.stdin(Stdio::null()).stdout(out).stderr(err);
        spawn(command)
            .map(Jvm)
            .map_err(|error| format!("cannot start {}: {error}", self.binary.display()))
    }
}

/// A running JVM. Dropping it kills the JVM.
#[derive(Debug)]
pub(crate) struct Jvm(Child);

impl Jvm {
    pub(crate) fn pid(&self) -> u32 {
        self.0.id()
    }

    /// How it ended, if it did.
    pub(crate) fn end(&mut self) -> Option<String> {
        match self.0.try_wait() {
            Ok(status) => status.map(|status| status.to_string()),
            Err(error) => Some(error.to_string()),
        }
    }
}

impl Drop for Jvm {
    fn drop(&mut self) {
        // A failure means that it has ended already.
        self.0.kill().unwrap_or_default();
        self.0.wait().map(drop).unwrap_or_default();
    }
}

/// Spawns on a thread that lives as long as the process. The death signal comes when the spawning
/// *thread* ends.
fn spawn(command: Command) -> io::Result<Child> {
    type Order = (Command, Sender<io::Result<Child>>);
    static SPAWNER: OnceLock<Mutex<Sender<Order>>> = OnceLock::new();
    let spawner = SPAWNER.get_or_init(|| {
        let (sender, orders) = channel::<Order>();
        std::thread::spawn(move || {
            for (mut command, answer) in orders {
                answer.send(command.spawn()).unwrap_or_default();
            }
        });
        Mutex::new(sender)
    });
    let (answer, child) = channel();
    let sent = spawner
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .send((command, answer));
    sent.map_err(io::Error::other)?;
    child.recv().map_err(io::Error::other)?
}

fn java() -> Option<PathBuf> {
    match set("JAVA_HOME") {
        Some(home) => Some(Path::new(&home).join("bin/java")).filter(|java| java.is_file()),
        None => on_path("java"),
    }
}

fn jars() -> Result<String, String> {
    let Some(home) = set("ZOOKEEPER_HOME") else {
        let jars = DEBIAN.map(|name| format!("/usr/share/java/{name}.jar"));
        return match jars.iter().find(|jar| !Path::new(jar).is_file()) {
            None => Ok(jars.join(":")),
            Some(jar) => Err(format!(
                "ZooKeeper's jars are missing ({jar}), and real ZooKeeper was asked for; {INSTALL}"
            )),
        };
    };
    let folders = [format!("{home}/lib"), home.clone()];
    if folders
        .iter()
        .any(|folder| holds_zookeeper(Path::new(folder)))
    {
        return Ok(format!("{home}/lib/*:{home}/*"));
    }
    Err(format!(
        "ZOOKEEPER_HOME is {home}, and there is no zookeeper-*.jar in it or in its lib; {INSTALL}"
    ))
}

fn holds_zookeeper(folder: &Path) -> bool {
    let names = std::fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.file_name());
    names
        .filter_map(|name| name.into_string().ok())
        .any(|name| {
            name.strip_prefix("zookeeper-")
                .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
                && name.ends_with(".jar")
        })
}

fn set(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

fn on_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|folder| folder.join(program))
        .find(|file| file.is_file())
}
