//! Real ZooKeeper servers, one or an ensemble: started on free loopback ports, with data in a
//! temporary folder.
//!
//! For tests only: nothing is synced to disk, and the folder is in memory unless a flag asks for
//! syncs. They stop when `Servers` goes, and die with this
//! process. A case that hurts servers starts its own (`Servers::start(3)` on a blocking thread) and
//! never touches the shared ones.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::daemon::in_memory;
use super::java::{Java, Jvm};
use super::ports::{self, Reserved};
use super::words;

const PATIENCE: Duration = Duration::from_secs(60);

/// The flag for [`Servers::live_bytes`]; a runtime without development tools knows it too.
pub const HISTOGRAM: &str = "-XX:+PrintClassHistogram";

/// The flag for servers that keep what they promise on a disk.
pub const SYNCS: &str = "-Dzookeeper.forceSync=yes";

const LOG4J: &str = "log4j.rootLogger=WARN, CONSOLE
log4j.appender.CONSOLE=org.apache.log4j.ConsoleAppender
log4j.appender.CONSOLE.layout=org.apache.log4j.PatternLayout
log4j.appender.CONSOLE.layout.ConversionPattern=%d{ISO8601} %-5p [%t:%C{1}] - %m%n
";

// Releases from 3.8 on bring logback instead.
const LOGBACK: &str = r#"<configuration>
  <appender name="CONSOLE" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%d{ISO8601} %-5p [%t:%C{1}] - %m%n</pattern></encoder>
  </appender>
  <root level="WARN"><appender-ref ref="CONSOLE"/></root>
</configuration>
"#;

/// Where a member listens, or is thought to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ports {
    pub client: u16,
    pub quorum: u16,
    pub election: u16,
}

/// One server, or an ensemble. All calls block.
#[derive(Debug)]
pub struct Servers {
    members: Vec<Member>,
    java: Java,
    flags: Vec<String>,
    folder: TempDir,
    _ports: Vec<Reserved>,
}

#[derive(Debug)]
struct Member {
    address: SocketAddr,
    config: PathBuf,
    log: PathBuf,
    jvm: Option<Jvm>,
}

impl Servers {
    /// Starts `count` servers and waits until all of them serve.
    pub fn start(count: usize) -> Result<Self, String> {
        Self::start_with(count, &[])
    }

    /// The same with more flags for the JVMs, such as `-Dznode.container.checkIntervalMs=200`.
    pub fn start_with(count: usize, flags: &[&str]) -> Result<Self, String> {
        Self::start_linked(count, flags, "", directly)
    }

    /// The same with more lines in the configuration.
    pub fn start_as(count: usize, more: &str) -> Result<Self, String> {
        Self::start_linked(count, &[], more, directly)
    }

    /// The same with more lines in the configuration, and with the caller's links between members.
    /// Given the ports of all, `link` returns, for each member, the ports at which it finds the
    /// others.
    pub fn start_linked(
        count: usize,
        flags: &[&str],
        more: &str,
        mut link: impl FnMut(&[Ports]) -> std::io::Result<Vec<Vec<Ports>>>,
    ) -> Result<Self, String> {
        let mut tries = 0;
        loop {
            tries += 1;
            let mut servers = Self::lay_out(count, flags, more, &mut link)
                .map_err(|error| format!("cannot lay out servers: {error}"))??;
            match (0..count)
                .try_for_each(|member| servers.launch(member))
                .and_then(|()| servers.wait())
            {
                Ok(()) => return Ok(servers),
                // Between our check and the server's start, another process took a port.
                Err(why) if tries < 5 && why.contains("Address already in use") => {}
                Err(why) => return Err(why),
            }
        }
    }

    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.members.iter().map(|member| member.address).collect()
    }

    /// The member that leads now (or stands alone).
    pub fn leader(&self) -> Option<usize> {
        (0..self.members.len())
            .find(|member| matches!(self.mode(*member).as_deref(), Some("leader" | "standalone")))
    }

    /// `standalone`, `leader` or `follower`; None while it does not serve.
    pub fn mode(&self, member: usize) -> Option<String> {
        words::mode(&words::ask(self.members[member].address, "srvr").ok()?).map(str::to_owned)
    }

    /// Kills a member with SIGKILL. Its data stays.
    pub fn kill(&mut self, member: usize) {
        self.members[member].jvm = None;
    }

    /// Starts a killed member on its old port and data, without waiting for it.
    pub fn launch(&mut self, member: usize) -> Result<(), String> {
        let conf = self.folder.path();
        let member = &mut self.members[member];
        member.jvm = Some(
            self.java
                .start(conf, &self.flags, &member.config, &member.log)?,
        );
        Ok(())
    }

    /// Waits until every member that runs serves.
    pub fn wait(&mut self) -> Result<(), String> {
        let deadline = Instant::now() + PATIENCE;
        for member in 0..self.members.len() {
            while self.members[member].jvm.is_some() && self.mode(member).is_none() {
                let jvm = self.members[member].jvm.as_mut();
                if let Some(status) = jvm.and_then(Jvm::end) {
                    return Err(self.complaint(member, &format!("ended at once ({status})")));
                }
                if Instant::now() > deadline {
                    return Err(self.complaint(member, "does not serve after 60 s"));
                }
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        Ok(())
    }

    /// Stops the process with SIGSTOP: it accepts connections and never answers.
    pub fn freeze(&self, member: usize) {
        self.signal(member, "-STOP");
    }

    /// Lets a frozen member go on.
    pub fn thaw(&self, member: usize) {
        self.signal(member, "-CONT");
    }

    /// The bytes of the objects that are alive in a member's heap, after a full collection. It must
    /// have been started with [`HISTOGRAM`], which makes a JVM print what lives by class, and the
    /// sum, when it is told to.
    pub fn live_bytes(&self, member: usize) -> u64 {
        let log = &self.members[member].log;
        let sums = || {
            let text = std::fs::read_to_string(log).unwrap_or_default();
            let lines = text.lines().filter(|line| line.starts_with("Total "));
            let sums: Vec<u64> = lines
                .filter_map(|line| line.split_whitespace().nth(2)?.parse().ok())
                .collect();
            sums
        };
        let before = sums().len();
        self.signal(member, "-QUIT");
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(sum) = sums().get(before) {
                return *sum;
            }
            assert!(Instant::now() < deadline, "no histogram after {PATIENCE:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn signal(&self, member: usize, signal: &str) {
        let pid = self.members[member]
            .jvm
            .as_ref()
            .expect("a member that runs")
            .pid();
        let sent = Command::new("kill")
            .args([signal, &pid.to_string()])
            .status()
            .expect("kill runs");
        assert!(sent.success(), "kill {signal} {pid}: {sent}");
    }

    fn lay_out(
        count: usize,
        flags: &[&str],
        more: &str,
        link: &mut impl FnMut(&[Ports]) -> std::io::Result<Vec<Vec<Ports>>>,
    ) -> std::io::Result<Result<Self, String>> {
        let java = match Java::find() {
            Ok(java) => java,
            Err(why) => return Ok(Err(why)),
        };
        let parent = if flags.contains(&SYNCS) {
            std::env::temp_dir()
        } else {
            in_memory()
        };
        let folder = tempfile::Builder::new()
            .prefix("lockkeeper-it-")
            .tempdir_in(parent)?;
        std::fs::write(folder.path().join("log4j.properties"), LOG4J)?;
        std::fs::write(folder.path().join("logback.xml"), LOGBACK)?;
        let reserved = ports::reserve(3 * count)?;
        let ports: Vec<Ports> = reserved
            .chunks(3)
            .map(|three| Ports {
                client: three[0].number,
                quorum: three[1].number,
                election: three[2].number,
            })
            .collect();
        let views = link(&ports)?;

        let mut members = Vec::new();
        for (member, (ports, view)) in ports.iter().zip(&views).enumerate() {
            let id = member + 1;
            let data = folder.path().join(format!("data-{id}"));
            std::fs::create_dir(&data)?;
            std::fs::write(data.join("myid"), id.to_string())?;
            let mut text = config(ports.client, &data.display().to_string());
            if count > 1 {
                text += &peers(view);
            }
            text += more;
            let config = folder.path().join(format!("zoo-{id}.cfg"));
            std::fs::write(&config, text)?;
            let log = folder.path().join(format!("log-{id}.txt"));
            members.push(Member {
                address: (Ipv4Addr::LOCALHOST, ports.client).into(),
                config,
                log,
                jvm: None,
            });
        }
        let flags = flags.iter().map(|flag| (*flag).to_owned()).collect();
        Ok(Ok(Self {
            members,
            java,
            flags,
            folder,
            _ports: reserved,
        }))
    }

    fn complaint(&self, member: usize, how: &str) -> String {
        let log = std::fs::read_to_string(&self.members[member].log).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        let tail = lines[lines.len().saturating_sub(30)..].join("\n  | ");
        let (id, count) = (member + 1, self.members.len());
        format!("ZooKeeper server {id} of {count} {how}; the end of its log:\n  | {tail}")
    }
}

/// Every member finds the others where they listen.
fn directly(members: &[Ports]) -> std::io::Result<Vec<Vec<Ports>>> {
    Ok(vec![members.to_vec(); members.len()])
}

/// The lines that tell a member where the members are.
fn peers(view: &[Ports]) -> String {
    let line = |(member, ports): (usize, &Ports)| {
        let Ports {
            quorum, election, ..
        } = ports;
        format!("server.{}=127.0.0.1:{quorum}:{election}\n", member + 1)
    };
    view.iter().enumerate().map(line).collect()
}

/// A member that a busy machine stops for a while keeps its place, and its clients their
/// connections: it is given up after 20 s.
fn config(port: u16, data: &str) -> String {
    format!(
        "tickTime=200\nminSessionTimeout=400\nmaxSessionTimeout=60000\ninitLimit=100\nsyncLimit=100\ndataDir={data}\n\
         clientPort={port}\nclientPortAddress=127.0.0.1\nmaxClientCnxns=0\n4lw.commands.whitelist=*\n\
         admin.enableServer=false\n"
    )
}
