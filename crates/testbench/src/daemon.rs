//! A server of a store (Redis, PostgreSQL, MariaDB, memcached): one process on a free loopback
//! port, with its data in a temporary folder.
//!
//! It dies with its `Daemon`. All calls block.

use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, kill_process};
use tempfile::TempDir;

pub use rustix::process::Signal;

use crate::ports::{self, Reserved};

const PATIENCE: Duration = Duration::from_secs(30);

/// How a daemon is prepared and started: given its folder and its port.
pub type Recipe = Box<dyn Fn(&Path, u16) -> Result<Command, String> + Send + Sync>;

pub struct Daemon {
    recipe: Recipe,
    folder: TempDir,
    port: Reserved,
    child: Option<Child>,
}

impl Daemon {
    /// Starts it on a free port, and waits until it listens. `package` is the package that has the
    /// program.
    pub fn start(package: &str, recipe: Recipe) -> Result<Self, String> {
        Self::start_in(&std::env::temp_dir(), package, recipe)
    }

    /// The same with its folder in that one.
    pub fn start_in(parent: &Path, package: &str, recipe: Recipe) -> Result<Self, String> {
        let folder = tempfile::tempdir_in(parent).map_err(|error| format!("no folder: {error}"))?;
        let port = ports::reserve(1).map_err(|error| format!("no port: {error}"))?;
        let mut daemon = Self {
            recipe,
            folder,
            port: port.into_iter().next().expect("one was asked for"),
            child: None,
        };
        daemon
            .launch()
            .map_err(|why| format!("{why}\nIs it installed? apt-get install {package}"))?;
        Ok(daemon)
    }

    /// Starts it again on its port and its data.
    pub fn launch(&mut self) -> Result<(), String> {
        let log = self.log();
        let output = File::options().create(true).append(true).open(&log);
        let output = output.map_err(|error| format!("{}: {error}", log.display()))?;
        let mut command = (self.recipe)(self.folder.path(), self.port.number)?;
        command
            .stdin(Stdio::null())
            .stdout(output.try_clone().expect("a file can be shared"))
            .stderr(output)
            .process_group(0);
        let child = command
            .spawn()
            .map_err(|error| format!("cannot start {:?}: {error}", command.get_program()))?;
        self.child = Some(child);
        self.wait()
    }

    fn wait(&mut self) -> Result<(), String> {
        let deadline = Instant::now() + PATIENCE;
        while TcpStream::connect(self.address()).is_err() {
            let child = self.child.as_mut().expect("it was started");
            let ended = child.try_wait().map_err(|error| error.to_string())?;
            if ended.is_some() || Instant::now() > deadline {
                let log = std::fs::read_to_string(self.log()).unwrap_or_default();
                return Err(format!("the server does not listen ({ended:?}): {log}"));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port.number).into()
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    fn log(&self) -> PathBuf {
        self.folder.path().join("log")
    }

    /// Kills it with SIGKILL, and the processes that it has started. Its data stays.
    pub fn kill(&mut self) {
        let Some(mut child) = self.child.take() else {
            return;
        };
        // One that has ended was asked for already, and its number may be another's.
        if matches!(child.try_wait(), Ok(None)) {
            let pid = Pid::from_child(&child);
            // It starts no other one meanwhile.
            kill_process(pid, Signal::STOP).unwrap_or_default();
            let started = started_by(pid);
            child.kill().unwrap_or_default();
            for one in &started {
                kill_process(*one, Signal::KILL).unwrap_or_default();
            }
            child.wait().map(drop).unwrap_or_default();
            // They still have the server's memory until they are gone.
            let deadline = Instant::now() + PATIENCE;
            while started.iter().any(|one| is_there(*one)) && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(2));
            }
        }
    }

    /// Asks it to end with this signal, and waits for that.
    pub fn end(&mut self, signal: Signal) -> Result<(), String> {
        self.signal(signal);
        let deadline = Instant::now() + PATIENCE;
        loop {
            let child = self.child.as_mut().expect("it runs");
            if child
                .try_wait()
                .map_err(|error| error.to_string())?
                .is_some()
            {
                self.child = None;
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(format!("it does not end on {signal:?}"));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).expect("it runs");
    }

    /// Stops all its threads and processes.
    pub fn freeze(&self) {
        self.signal(Signal::STOP);
        for one in started_by(self.pid()) {
            kill_process(one, Signal::STOP).unwrap_or_default();
        }
    }

    /// Lets them go on.
    pub fn thaw(&self) {
        for one in started_by(self.pid()) {
            kill_process(one, Signal::CONT).unwrap_or_default();
        }
        self.signal(Signal::CONT);
    }

    fn pid(&self) -> Pid {
        Pid::from_child(self.child.as_ref().expect("it runs"))
    }
}

/// The processes that one has started.
fn started_by(pid: Pid) -> Vec<Pid> {
    let number = pid.as_raw_nonzero();
    let children = format!("/proc/{number}/task/{number}/children");
    let children = std::fs::read_to_string(children).unwrap_or_default();
    let children = children.split_whitespace();
    children
        .filter_map(|child| Pid::from_raw(child.parse().ok()?))
        .collect()
}

/// Not if only its end is left to be asked for.
fn is_there(pid: Pid) -> bool {
    let stat = format!("/proc/{}/stat", pid.as_raw_nonzero());
    let stat = std::fs::read_to_string(stat).unwrap_or_default();
    let state = stat
        .rsplit(") ")
        .next()
        .and_then(|rest| rest.chars().next());
    !matches!(state, None | Some('Z' | 'X'))
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.kill();
    }
}

impl std::fmt::Debug for Daemon {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Daemon")
            .field("port", &self.port.number)
            .finish_non_exhaustive()
    }
}

/// A Redis server that writes nothing, unless `more` says so; and then to memory. On a disk that is
/// busy it would stand still for as long as a sync takes.
pub fn redis(more: &[&str]) -> Result<Daemon, String> {
    let more: Vec<String> = more.iter().map(|&word| word.to_owned()).collect();
    Daemon::start_in(
        &in_memory(),
        "redis-server",
        Box::new(move |folder, port| {
            let mut command = Command::new("redis-server");
            command
                .args(["--bind", "127.0.0.1", "--save", "", "--dir"])
                .arg(folder)
                .args(["--port", &port.to_string()])
                .args(&more);
            Ok(command)
        }),
    )
}

/// A folder in memory, where there is one.
pub(crate) fn in_memory() -> PathBuf {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() {
        memory.to_owned()
    } else {
        std::env::temp_dir()
    }
}

/// A memcached server with little memory.
pub fn memcached(more: &[&str]) -> Result<Daemon, String> {
    let more: Vec<String> = more.iter().map(|&word| word.to_owned()).collect();
    Daemon::start(
        "memcached",
        Box::new(move |_, port| {
            let mut command = Command::new("memcached");
            // It refuses root without a user; for other users it does not look at it.
            command
                .args(["-u", "root", "-l", "127.0.0.1", "-m", "16"])
                .args(["-p", &port.to_string()])
                .args(&more);
            Ok(command)
        }),
    )
}

/// A PostgreSQL server with a superuser `postgres` and its database, without a password. `more` is
/// added to its configuration.
pub fn postgres(more: &[&str]) -> Result<Daemon, String> {
    postgres_with(&std::env::temp_dir(), more, initdb)
}

/// The same with all its promises, and quick: its data is in memory, where there is a folder for
/// that.
pub fn postgres_in_memory(more: &[&str]) -> Result<Daemon, String> {
    let server = postgres_with(&in_memory(), &[more, &["fsync=on"]].concat(), initdb)?;
    // It listens before it serves.
    let port = server.address().port().to_string();
    let deadline = Instant::now() + PATIENCE;
    loop {
        let mut asked = Command::new(postgres_bin().join("pg_isready"));
        match prepare(asked.args(["-q", "-h", "127.0.0.1", "-p", &port])) {
            Ok(()) => return Ok(server),
            Err(why) if Instant::now() > deadline => return Err(why),
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}

/// Makes databases of these names.
pub fn postgres_databases(
    server: &Daemon,
    names: impl Iterator<Item = String>,
) -> Result<(), String> {
    let mut made = Command::new(postgres_bin().join("psql"));
    made.args([
        "-q",
        "-v",
        "ON_ERROR_STOP=1",
        "-U",
        "postgres",
        "-h",
        "127.0.0.1",
    ]);
    made.args(["-p", &server.address().port().to_string()]);
    for name in names {
        made.args(["-c", &format!("CREATE DATABASE {name}")]);
    }
    prepare(&mut made)
}

fn initdb(bin: &Path, data: &Path) -> Command {
    let mut init = as_user("postgres", &bin.join("initdb"));
    init.args(["-U", "postgres", "-A", "trust", "-N", "-E", "UTF8", "-D"]);
    init.arg(data);
    init
}

/// A standby that follows a server of [`postgres`], which is at this address.
pub fn postgres_standby(primary: SocketAddr) -> Result<Daemon, String> {
    postgres_standby_with(primary, &[])
}

/// `more` is added to its configuration.
pub fn postgres_standby_with(primary: SocketAddr, more: &[&str]) -> Result<Daemon, String> {
    let copy = move |bin: &Path, data: &Path| {
        let mut copy = as_user("postgres", &bin.join("pg_basebackup"));
        copy.args(["-R", "-X", "stream", "-c", "fast", "-N", "-U", "postgres"]);
        copy.args(["-h", "127.0.0.1", "-p", &primary.port().to_string(), "-D"]);
        copy.arg(data);
        copy
    };
    postgres_with(&std::env::temp_dir(), more, copy)
}

/// `fill` makes the data, given the folders of the programs and of the data.
fn postgres_with(
    parent: &Path,
    more: &[&str],
    fill: impl Fn(&Path, &Path) -> Command + Send + Sync + 'static,
) -> Result<Daemon, String> {
    let more: Vec<String> = more.iter().map(|&word| word.to_owned()).collect();
    Daemon::start_in(
        parent,
        "postgresql",
        Box::new(move |folder, port| {
            let bin = postgres_bin();
            let data = folder.join("data");
            if !data.exists() {
                own("postgres", folder)?;
                prepare(&mut fill(&bin, &data))?;
            }
            // A killed server leaves this file, and the process id may belong to another process
            // now. The server's remaining processes end once they notice that the file is gone.
            if std::fs::remove_file(data.join("postmaster.pid")).is_ok() {
                std::thread::sleep(Duration::from_millis(500));
            }
            let mut command = as_user("postgres", &bin.join("postgres"));
            command.arg("-D").arg(&data).args(["-p", &port.to_string()]);
            command.args(["-c", "listen_addresses=127.0.0.1", "-c", "fsync=off", "-k"]);
            command.arg(folder);
            for option in &more {
                command.args(["-c", option]);
            }
            Ok(command)
        }),
    )
}

/// A MariaDB server with a user `root` of this machine, without a password, and a database `test`.
///
/// Its temporary files are in its own folder. Every start removes those of all servers that it
/// finds, and one that is being installed would then have no users.
pub fn mariadb(more: &[&str]) -> Result<Daemon, String> {
    let more: Vec<String> = more.iter().map(|&word| word.to_owned()).collect();
    Daemon::start(
        "mariadb-server",
        Box::new(move |folder, port| {
            let data = folder.join("data");
            let datadir = format!("--datadir={}", data.display());
            let tmpdir = format!("--tmpdir={}", folder.display());
            if !data.exists() {
                own("mysql", folder)?;
                let mut init = as_user("mysql", Path::new("mariadb-install-db"));
                init.args(["--no-defaults", "--auth-root-authentication-method=normal"]);
                init.args(["--innodb-log-file-size=8M", "--skip-test-db", &tmpdir]);
                prepare(init.arg(&datadir))?;
                let first = "CREATE DATABASE IF NOT EXISTS test;\n";
                std::fs::write(folder.join("first.sql"), first).expect("the folder is ours");
            }
            let mut command = as_user("mysql", Path::new("mariadbd"));
            command.args([
                "--no-defaults",
                "--bind-address=127.0.0.1",
                &datadir,
                &tmpdir,
            ]);
            command.arg(format!("--port={port}"));
            command.arg(format!("--socket={}", folder.join("socket").display()));
            command.arg(format!(
                "--init-file={}",
                folder.join("first.sql").display()
            ));
            command.args([
                "--innodb-flush-log-at-trx-commit=2",
                "--max-connections=500",
            ]);
            command.args(&more);
            Ok(command)
        }),
    )
}

/// Debian keeps the programs of each version in a folder of its own, beside the path.
fn postgres_bin() -> PathBuf {
    let versions = std::fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten();
    let bins = versions.flatten().map(|version| version.path().join("bin"));
    bins.max().unwrap_or_default()
}

/// These servers refuse to run as root: then they run as a user of their own.
pub(crate) fn as_user(user: &str, program: &Path) -> Command {
    if !rustix::process::geteuid().is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid", user, "--regid", user, "--clear-groups"]);
    command.arg("--").arg(program);
    command
}

pub(crate) fn own(user: &str, folder: &Path) -> Result<(), String> {
    if rustix::process::geteuid().is_root() {
        return prepare(Command::new("chown").arg(user).arg(folder));
    }
    Ok(())
}

/// Runs a step before the server. A server that is not prepared would start all the same, and
/// behave in ways that nobody expects.
fn prepare(command: &mut Command) -> Result<(), String> {
    let output = command.stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("{command:?}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let (told, why) = (output.stdout, output.stderr);
    let [told, why] = [told, why].map(|text| String::from_utf8_lossy(&text).into_owned());
    Err(format!("{command:?}: {}: {told}{why}", output.status))
}
