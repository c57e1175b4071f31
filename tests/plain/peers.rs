//! Other programs with the same locks: redis-py, Redisson, node-redlock, redsync, pymemcache,
//! ShedLock, Spring Integration, and scripts with psql and MariaDB's client.
//!
//! `.ci/install` puts their clients below `target/peers`. Each case starts its members as processes
//! of their own. Where a machine lacks a language, its cases fail with what to install.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::bed::{Bed, TTL};

crate::cases![
    ["redis+setnx", "redis+redisson", "redis+redlock", "memcached+add", "postgres+shedlock",
     "mysql+shedlock", "postgres+spring", "mysql+spring", "postgres+advisory", "mysql+getlock"]
    a_crowd_of_several_languages_counts_exactly,
    they_hold_and_we_wait,
    we_hold_and_they_wait,
    a_killed_member_of_theirs_frees_the_lock_after_its_ttl,
    a_language_that_is_missing_is_told_with_its_package,
];

const ROUNDS: usize = 20;
/// All clients of a table of Spring Integration must have the same, so this is its default.
const SPRING_TTL: Duration = Duration::from_secs(10);

/// A library of others that locks as a kind does.
struct Library {
    name: &'static str,
    needs: Needs,
    /// What has it, as `apt-get install` is told.
    package: &'static str,
    /// What `.ci/install` made, below [`home`]; empty for what comes with the package.
    made: &'static str,
    /// How a member is started. A word that begins with `@` is below [`home`], one with `%` is a
    /// file beside the others of this suite.
    words: &'static [&'static str],
}

/// What runs a library, and is found by its name; or made it, and is no longer needed then.
enum Needs {
    Program(&'static str),
    Made,
}

const JAVA: [&str; 3] = ["java", "-XX:TieredStopAtLevel=1", "-cp"];

const REDIS_PY: Library = Library {
    name: "redis-py",
    needs: Needs::Made,
    package: "python3-venv",
    made: "python/bin/python",
    words: &["@python/bin/python", "%locks.py", "redis-py"],
};
const PYMEMCACHE: Library = Library {
    name: "pymemcache",
    words: &["@python/bin/python", "%locks.py", "pymemcache"],
    ..REDIS_PY
};
const NODE_REDLOCK: Library = Library {
    name: "node-redlock",
    needs: Needs::Program("node"),
    package: "nodejs npm",
    made: "node/wanted",
    words: &["node", "%redlock.mjs"],
};
const REDSYNC: Library = Library {
    name: "redsync",
    needs: Needs::Made,
    package: "golang-go",
    made: "redsync",
    words: &["@redsync"],
};
const REDISSON: Library = Library {
    name: "Redisson",
    needs: Needs::Program("java"),
    package: "default-jdk-headless maven",
    made: "java/pom.xml",
    words: &[
        JAVA[0],
        JAVA[1],
        JAVA[2],
        "@java/lib/*",
        "%RedissonPeer.java",
    ],
};
/// Told its kind.
const JDBC: Library = Library {
    name: "ShedLock and Spring Integration",
    made: "jdbc/pom.xml",
    words: &[
        JAVA[0],
        JAVA[1],
        JAVA[2],
        "@jdbc/lib/*",
        "%JdbcPeer.java",
        "KIND",
    ],
    ..REDISSON
};
const PSQL: Library = Library {
    name: "psql",
    needs: Needs::Program("psql"),
    package: "postgresql-client",
    made: "",
    words: &["bash", "%sessions.sh", "psql"],
};
const MARIADB: Library = Library {
    name: "MariaDB's client",
    needs: Needs::Program("mariadb"),
    package: "mariadb-client",
    words: &["bash", "%sessions.sh", "mariadb"],
    ..PSQL
};

fn libraries(kind: &str) -> &'static [Library] {
    match kind {
        // With one server, node-redlock's lock is the same.
        "redis+setnx" => &[REDIS_PY, NODE_REDLOCK],
        "memcached+add" => &[PYMEMCACHE],
        "redis+redlock" => &[NODE_REDLOCK, REDSYNC],
        "redis+redisson" => &[REDISSON],
        "postgres+advisory" => &[PSQL],
        "mysql+getlock" => &[MARIADB],
        jdbc if jdbc.ends_with("+shedlock") || jdbc.ends_with("+spring") => &[JDBC],
        other => panic!("{other} has no peers"),
    }
}

/// Where `.ci/install` puts what it makes.
const HOME: &str = "LOCKKEEPER_PEERS";

fn home() -> PathBuf {
    let named = std::env::var_os(HOME).map(PathBuf::from);
    named.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("target/peers"))
}

fn is_found(program: &str) -> bool {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&folders).any(|folder| folder.join(program).is_file())
}

impl Library {
    /// What this machine lacks of it, in one line with the way out.
    fn missing(&self) -> Option<String> {
        let Self { name, package, .. } = self;
        let lacks = match self.needs {
            Needs::Program(program) if !is_found(program) => format!("`{program}`"),
            _ if !home().join(self.made).exists() => {
                format!("{}", home().join(self.made).display())
            }
            _ => return None,
        };
        Some(format!(
            "{name} needs {lacks}: apt-get install {package}, and then .ci/install"
        ))
    }

    fn words(&self, kind: &str) -> Vec<String> {
        let programs = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/plain/peers");
        let words = self.words.iter().map(|word| match word.split_at(1) {
            ("@", made) => home().join(made).to_str().unwrap().to_owned(),
            ("%", file) => programs.join(file).to_str().unwrap().to_owned(),
            _ => word.replace("KIND", kind),
        });
        words.collect()
    }
}

/// The programs for a kind of lock.
fn programs(kind: &str) -> Vec<Vec<String>> {
    let libraries = libraries(kind).iter();
    let programs = libraries.map(|library| {
        if let Some(missing) = library.missing() {
            panic!("{missing}");
        }
        library.words(kind)
    });
    programs.collect()
}

struct Peer(Child);

impl Peer {
    fn start(bed: &Bed, program: &[String], name: &str, what: &[&str]) -> Self {
        let child = Command::new(&program[0])
            .args(&program[1..])
            .args([&bed.servers(), name, &TTL.as_millis().to_string()])
            .args(what)
            .env("PEERS_NODE", home().join("node"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .process_group(0)
            .spawn();
        Self(child.unwrap())
    }

    async fn holding(&mut self) {
        let output = self.0.stdout.as_mut().unwrap();
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line).await.unwrap();
        assert_eq!(line, "holding\n");
    }

    /// With SIGKILL, and its own children too.
    async fn kill(&mut self) {
        let group = format!("-{}", self.0.id().expect("it runs"));
        let killed = Command::new("kill").args(["-9", "--", &group]).status();
        assert!(killed.await.unwrap().success());
        self.0.wait().await.unwrap();
    }

    async fn ended(&mut self) {
        let ended = self.0.wait().await.unwrap();
        assert!(ended.success(), "{ended}");
    }
}

fn counter() -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "0").unwrap();
    file
}

/// One counter that nothing protects but the lock. A member of theirs is killed in the middle.
async fn a_crowd_of_several_languages_counts_exactly(bed: Arc<Bed>, name: String) {
    let file = counter();
    let path = file.path().to_str().unwrap().to_owned();
    let mut theirs = Vec::new();
    for program in programs(bed.kind) {
        for _ in 0..2 {
            let what = ["count", &*path, &ROUNDS.to_string()];
            theirs.push(Peer::start(&bed, &program, &name, &what));
        }
        // It is killed while it holds or waits, and writes nothing.
        let mut victim = Peer::start(&bed, &program, &name, &["hold"]);
        let holds = timeout(Duration::from_secs(2), victim.holding()).await;
        println!(
            "killed while it {}",
            if holds.is_ok() { "holds" } else { "waits" }
        );
        victim.kill().await;
    }
    let mut ours = JoinSet::new();
    for _ in 0..2 {
        let lock = bed.lock(&name).await;
        // Each try of Redlock takes some servers from the tries of others, so that nobody may get
        // a majority: pauses must be longer than tries on a busy machine.
        let (least, most) = match bed.kind {
            "redis+redlock" => (50, 500),
            _ => (5, 50),
        };
        let pauses = (Duration::from_millis(least), Duration::from_millis(most));
        let (lock, path) = (lock.with_poll(pauses.0, pauses.1).unwrap(), path.clone());
        ours.spawn(async move {
            for _ in 0..ROUNDS {
                let guard = lock.lock().await.unwrap();
                let count: usize = std::fs::read_to_string(&path).unwrap().parse().unwrap();
                sleep(Duration::from_millis(1)).await;
                std::fs::write(&path, (count + 1).to_string()).unwrap();
                guard.release().await.unwrap();
            }
        });
    }
    ours.join_all().await;
    let members = theirs.len() + 2;
    for mut peer in theirs {
        peer.ended().await;
    }
    let count: usize = std::fs::read_to_string(&path).unwrap().parse().unwrap();
    assert_eq!(count, members * ROUNDS);
}

async fn they_hold_and_we_wait(bed: Arc<Bed>, name: String) {
    for program in programs(bed.kind) {
        // Servers of Redlock must be counted first.
        let lock = bed.lock(&name).await;
        let mut peer = Peer::start(&bed, &program, &name, &["hold"]);
        peer.holding().await;
        assert!(lock.try_lock().await.unwrap().is_none(), "{program:?}");
        let waiter = tokio::spawn(async move { lock.lock().await });
        sleep(Duration::from_millis(300)).await;
        assert!(!waiter.is_finished(), "{program:?}");

        drop(peer.0.stdin.take());

        let begun = Instant::now();
        let guard = waiter.await.unwrap().unwrap();
        println!("{}: free after {:?}", bed.kind, begun.elapsed());
        assert!(begun.elapsed() < TTL, "{program:?}: {:?}", begun.elapsed());
        peer.ended().await;
        guard.release().await.unwrap();
    }
}

async fn we_hold_and_they_wait(bed: Arc<Bed>, name: String) {
    for program in programs(bed.kind) {
        let guard = bed.lock(&name).await.lock().await.unwrap();
        let mut peer = Peer::start(&bed, &program, &name, &["hold"]);
        let early = timeout(TTL * 2, peer.holding()).await;
        assert!(early.is_err() && guard.is_held(), "{program:?}");
        guard.check().await.unwrap();

        guard.release().await.unwrap();

        // Redisson is woken; the others ask again. A JVM may still be starting.
        let holding = timeout(Duration::from_secs(30), peer.holding());
        holding.await.expect("it is free");
        assert!(bed.lock(&name).await.try_lock().await.unwrap().is_none());
        drop(peer.0.stdin.take());
        peer.ended().await;
    }
}

async fn a_killed_member_of_theirs_frees_the_lock_after_its_ttl(bed: Arc<Bed>, name: String) {
    for program in programs(bed.kind) {
        let lock = bed.lock(&name).await;
        let mut peer = Peer::start(&bed, &program, &name, &["hold"]);
        peer.holding().await;
        peer.kill().await;
        let begun = Instant::now();
        let guard = lock.lock().await.unwrap();
        let waited = begun.elapsed();
        println!("{}: free after {waited:?}", bed.kind);
        let ttl = match bed.kind.ends_with("+spring") {
            true => SPRING_TTL,
            false => TTL,
        };
        assert!(
            waited < ttl + Duration::from_secs(2),
            "{program:?}: {waited:?}"
        );
        guard.release().await.unwrap();
    }
}

/// All programs of this machine but one, in a folder for everyone.
fn all_but(hidden: &str) -> tempfile::TempDir {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let folder = tempfile::tempdir().unwrap();
    let everyone = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(folder.path(), everyone).unwrap();
    for there in std::env::split_paths(&std::env::var_os("PATH").unwrap()) {
        for program in std::fs::read_dir(there).into_iter().flatten().flatten() {
            let link = folder.path().join(program.file_name());
            // The first one of a name is the one that counts.
            if program.file_name() != hidden && !link.exists() {
                symlink(program.path(), link).unwrap_or_default();
            }
        }
    }
    folder
}

/// By this suite on a machine that seems to lack it.
async fn a_language_that_is_missing_is_told_with_its_package(bed: Arc<Bed>, _name: String) {
    for library in libraries(bed.kind) {
        let mut suite = Command::new(std::env::current_exe().unwrap());
        let case = format!("{}::they_hold_and_we_wait", bed.kind);
        suite.args(["--exact", &case]).kill_on_drop(true);
        let hidden = match library.needs {
            Needs::Program(program) => {
                let folder = all_but(program);
                suite.env("PATH", folder.path());
                folder
            }
            Needs::Made => {
                let folder = tempfile::tempdir().unwrap();
                for made in ["python", "node", "java", "jdbc", "redsync"] {
                    if !library.made.starts_with(made) {
                        let there = home().join(made);
                        std::os::unix::fs::symlink(there, folder.path().join(made)).unwrap();
                    }
                }
                suite.env(HOME, folder.path());
                folder
            }
        };

        let ended = suite.output().await.unwrap();

        drop(hidden);
        let told = String::from_utf8_lossy(&ended.stdout);
        assert!(!ended.status.success(), "{}: {told}", library.name);
        let lines: Vec<&str> = told
            .lines()
            .filter(|line| line.contains("apt-get"))
            .collect();
        let [line] = lines[..] else {
            panic!("{}: {told}", library.name);
        };
        println!("{line}");
        let install = format!("apt-get install {}, and then .ci/install", library.package);
        assert!(
            line.contains(library.name) && line.contains(&install),
            "{line}"
        );
    }
}
