//! The servers that a run needs: one ZooKeeper server, one etcd and one `PostgreSQL` that sync to
//! disk at each commit, and one Redis that does so each second.
//!
//! They listen on loopback, on free ports, keep their data in one temporary folder, and end when
//! `Servers` goes or the runner dies. It never uses a server that runs already.

use std::ffi::OsString;
use std::fs::Permissions;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio::process::Command;
use tokio::time::{Instant, sleep};
use uuid::Uuid;

use crate::peer::Store;
use crate::tools::Tools;
use crate::{Result, tied, words};

const PATIENCE: Duration = Duration::from_secs(60);
/// Below the range that the system gives to outgoing connections.
const PORTS: std::ops::Range<u16> = 12_000..32_000;

const LOG4J: &str = "log4j.rootLogger=WARN, CONSOLE
log4j.appender.CONSOLE=org.apache.log4j.ConsoleAppender
log4j.appender.CONSOLE.target=System.err
log4j.appender.CONSOLE.layout=org.apache.log4j.PatternLayout
log4j.appender.CONSOLE.layout.ConversionPattern=%d{ISO8601} %-5p [%t:%C{1}] - %m%n
";

// Releases from 3.8 on bring logback instead.
const LOGBACK: &str = r#"<configuration>
  <appender name="CONSOLE" class="ch.qos.logback.core.ConsoleAppender">
    <target>System.err</target>
    <encoder><pattern>%d{ISO8601} %-5p [%t:%C{1}] - %m%n</pattern></encoder>
  </appender>
  <root level="WARN"><appender-ref ref="CONSOLE"/></root>
</configuration>
"#;

/// The running servers, and the folder of the run.
#[derive(Debug)]
pub(crate) struct Servers {
    // The processes go before their folder.
    running: Vec<(Store, Server)>,
    folder: TempDir,
}

#[derive(Debug)]
struct Server {
    address: String,
    child: Child,
    /// What ends it at once.
    end: Signal,
    log: PathBuf,
}

impl Servers {
    /// Starts one server for each store, with data below `parent`, and waits until all serve.
    pub(crate) async fn start(stores: &[Store], tools: &Tools, parent: &Path) -> Result<Self> {
        // PostgreSQL may be another user's process, and passes through.
        let folder = tempfile::Builder::new()
            .prefix("lockkeeper-benches-")
            .permissions(Permissions::from_mode(0o711))
            .tempdir_in(parent)?;
        let mut servers = Self {
            running: Vec::new(),
            folder,
        };
        for store in stores {
            let server = servers.launch(*store, tools)?;
            servers.running.push((*store, server));
        }
        for (store, server) in &mut servers.running {
            server.serves(*store).await?;
        }
        Ok(servers)
    }

    /// `host:port`.
    pub(crate) fn address(&self, store: Store) -> &str {
        let mut running = self.running.iter();
        let found = running.find(|(which, _)| *which == store);
        found.map_or("", |(_, server)| &server.address)
    }

    /// The folder for data that is deleted with the servers.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// How many ephemeral nodes the ZooKeeper server holds.
    pub(crate) async fn ephemerals(&self) -> Result<usize> {
        match self.address(Store::ZooKeeper) {
            "" => Ok(0),
            address => words::ephemerals(address).await,
        }
    }

    /// Waits until the session of a killed driver has expired and its nodes are deleted, so that at
    /// most this many are left.
    pub(crate) async fn forget_the_dead(&self, before: usize) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while self.ephemerals().await? > before {
            if Instant::now() > deadline {
                return Err("a dead driver's nodes are still there after a minute".into());
            }
            sleep(Duration::from_millis(200)).await;
        }
        Ok(())
    }

    fn launch(&self, store: Store, tools: &Tools) -> Result<Server> {
        let name = format!("{store:?}").to_lowercase();
        let folder = self.folder.path();
        let (data, log) = (folder.join(&name), folder.join(format!("{name}.log")));
        std::fs::create_dir(&data)?;
        let [port, other] = free_ports()?;
        let address = format!("127.0.0.1:{port}");
        let mut command = match store {
            Store::ZooKeeper => zookeeper(tools, &data, &log, port)?,
            Store::Etcd => etcd(tools, &data, &log, [port, other])?,
            Store::Redis => redis(tools, &data, &log, port)?,
            Store::Postgres => postgres(tools, &data, &log, port)?,
        };
        let log_of_stdout = std::fs::File::options().append(true).open(&log)?;
        let child = command
            .as_std_mut()
            .stdout(Stdio::from(log_of_stdout))
            .spawn()?;
        let end = match store {
            Store::Postgres => Signal::QUIT,
            _ => Signal::KILL,
        };
        Ok(Server {
            address,
            child,
            end,
            log,
        })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Nothing to do about a failure: it has ended already. The folder goes only after its
        // process. PostgreSQL has processes of its own, and ends them on this signal.
        let pid = Pid::from_child(&self.child);
        kill_process(pid, self.end).unwrap_or_default();
        self.child.wait().map(drop).unwrap_or_default();
    }
}

impl Server {
    async fn serves(&mut self, store: Store) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let answer = match store {
                Store::ZooKeeper => words::zookeeper(&self.address, "srvr").await,
                Store::Etcd => words::http(&self.address, "/health").await,
                Store::Redis => words::redis(&self.address, "PING").await,
                Store::Postgres => words::postgres(&self.address).await,
            };
            let sign = match store {
                Store::ZooKeeper => "Mode:",
                Store::Etcd => "true",
                Store::Redis => "+PONG",
                Store::Postgres => "serves",
            };
            if answer.is_ok_and(|answer| answer.contains(sign)) {
                return Ok(());
            }
            let ended = self.child.try_wait()?.is_some();
            if ended || Instant::now() > deadline {
                let how = if ended {
                    "ended at once"
                } else {
                    "does not serve after a minute"
                };
                let words = tied::last_words(&self.log);
                return Err(format!("{store:?} {how}; the end of its log:\n  | {words}").into());
            }
            sleep(Duration::from_millis(50)).await;
        }
    }
}

fn zookeeper(tools: &Tools, data: &Path, log: &Path, port: u16) -> Result<Command> {
    std::fs::write(data.join("log4j.properties"), LOG4J)?;
    std::fs::write(data.join("logback.xml"), LOGBACK)?;
    let config = data.join("zoo.cfg");
    let settings = format!(
        "tickTime=2000\nmaxSessionTimeout=120000\ndataDir={}\nclientPort={port}\nclientPortAddress=127.0.0.1\n\
         maxClientCnxns=0\n4lw.commands.whitelist=*\nadmin.enableServer=false\n",
        data.display()
    );
    std::fs::write(&config, settings)?;
    let mut command = tied::command(&tools.java, log)?;
    command
        .args([
            "-Xmx1g",
            "-Dzookeeper.extendedTypesEnabled=true",
            "-Dzookeeper.jmx.log4j.disable=true",
        ])
        .arg("-cp")
        .arg(format!("{}:{}", data.display(), tools.zookeeper))
        .arg("org.apache.zookeeper.server.quorum.QuorumPeerMain")
        .arg(config);
    Ok(command)
}

fn etcd(tools: &Tools, data: &Path, log: &Path, [port, peers]: [u16; 2]) -> Result<Command> {
    let (client, peer) = (
        format!("http://127.0.0.1:{port}"),
        format!("http://127.0.0.1:{peers}"),
    );
    let mut command = tied::command(&tools.etcd, log)?;
    command
        .arg("--data-dir")
        .arg(data.join("data"))
        .args([
            "--listen-client-urls",
            &client,
            "--advertise-client-urls",
            &client,
        ])
        .args([
            "--listen-peer-urls",
            &peer,
            "--initial-advertise-peer-urls",
            &peer,
        ])
        .args(["--initial-cluster", &format!("default={peer}")])
        .args([
            "--logger",
            "zap",
            "--log-level",
            "warn",
            "--quota-backend-bytes",
            "4000000000",
        ]);
    Ok(command)
}

fn redis(tools: &Tools, data: &Path, log: &Path, port: u16) -> Result<Command> {
    let mut command = tied::command(&tools.redis, log)?;
    command
        .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--dir"])
        .arg(data)
        .args([
            "--save",
            "",
            "--appendonly",
            "yes",
            "--appendfsync",
            "everysec",
        ])
        .args(["--daemonize", "no"]);
    Ok(command)
}

/// Its superuser `postgres` needs no password. Each waiter of some peers is a connection.
fn postgres(tools: &Tools, data: &Path, log: &Path, port: u16) -> Result<Command> {
    let as_root = rustix::process::geteuid().is_root();
    // It refuses to run as root. A change of the user takes the signal at the runner's end away.
    let run = |program: &str| -> (PathBuf, Vec<OsString>) {
        let program = tools.postgres.join(program);
        if !as_root {
            return (program, Vec::new());
        }
        let words = [
            "--reuid",
            "postgres",
            "--regid",
            "postgres",
            "--clear-groups",
            "--pdeathsig",
            "QUIT",
            "--",
        ];
        let words = words.map(OsString::from).into_iter();
        ("setpriv".into(), words.chain([program.into()]).collect())
    };
    if as_root {
        prepare(
            std::process::Command::new("chown")
                .arg("postgres")
                .arg(data),
        )?;
    }
    let (program, words) = run("initdb");
    let made = data.join("data");
    prepare(
        std::process::Command::new(program)
            .args(words)
            .args(["-U", "postgres", "-A", "trust", "-E", "UTF8", "-D"])
            .arg(&made),
    )?;
    let (program, words) = run("postgres");
    let mut command = tied::command(program, log)?;
    command
        .args(words)
        .arg("-D")
        .arg(&made)
        .args(["-p", &port.to_string(), "-k"])
        .arg(data)
        .args([
            "-c",
            "listen_addresses=127.0.0.1",
            "-c",
            "max_connections=1200",
        ]);
    Ok(command)
}

/// Runs a step before a server.
fn prepare(command: &mut std::process::Command) -> Result<()> {
    let output = command.stdin(Stdio::null()).output()?;
    match output.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&output.stderr).into()),
    }
}

/// Two ports that are free now.
fn free_ports() -> Result<[u16; 2]> {
    let span = u128::from(PORTS.end - PORTS.start);
    let start = PORTS.start + u16::try_from(Uuid::new_v4().as_u128() % span)?;
    let mut free = (start..PORTS.end)
        .chain(PORTS.start..start)
        .filter(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok());
    match (free.next(), free.next()) {
        (Some(one), Some(other)) => Ok([one, other]),
        _ => Err(format!("no free ports between {} and {}", PORTS.start, PORTS.end).into()),
    }
}
