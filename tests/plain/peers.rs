//! Other programs with the same locks: redis-py, Redisson, node-redlock, redsync, pymemcache,
//! ShedLock, Spring Integration, and scripts with psql and MariaDB's client.
//!
//! `.ci/install` puts their clients below `target/peers`. Each case starts its members as processes
//! of their own.

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
];

const ROUNDS: usize = 20;
/// All clients of a table of Spring Integration must have the same, so this is its default.
const SPRING_TTL: Duration = Duration::from_secs(10);

/// The programs for a kind of lock.
fn programs(kind: &str) -> Vec<Vec<String>> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (programs, home) = (here.join("tests/plain/peers"), here.join("target/peers"));
    let text = |path: PathBuf| path.to_str().unwrap().to_owned();
    let python = |library: &str| {
        let script = text(programs.join("locks.py"));
        vec![
            text(home.join("python/bin/python")),
            script,
            library.to_owned(),
        ]
    };
    let java = |jars: &str, program: &str| {
        vec![
            "java".to_owned(),
            "-XX:TieredStopAtLevel=1".to_owned(),
            "-cp".to_owned(),
            text(home.join(jars)),
            text(programs.join(program)),
        ]
    };
    let script = |client: &str| {
        let script = text(programs.join("sessions.sh"));
        vec!["bash".to_owned(), script, client.to_owned()]
    };
    let all = match kind {
        "redis+setnx" => vec![python("redis-py")],
        "memcached+add" => vec![python("pymemcache")],
        "redis+redlock" => vec![
            vec!["node".to_owned(), text(programs.join("redlock.mjs"))],
            vec![text(home.join("redsync"))],
        ],
        "redis+redisson" => vec![java("java/lib/*", "RedissonPeer.java")],
        jdbc if jdbc.ends_with("+shedlock") || jdbc.ends_with("+spring") => {
            let mut program = java("jdbc/lib/*", "JdbcPeer.java");
            program.push(jdbc.to_owned());
            vec![program]
        }
        "postgres+advisory" => vec![script("psql")],
        "mysql+getlock" => vec![script("mariadb")],
        other => panic!("{other} has no peers"),
    };
    let there = [
        "python/wanted",
        "node/wanted",
        "java/pom.xml",
        "jdbc/pom.xml",
        "redsync",
    ];
    for part in there.map(|part| home.join(part)) {
        assert!(
            part.exists(),
            "{} is missing: run .ci/install",
            part.display()
        );
    }
    all
}

struct Peer(Child);

impl Peer {
    fn start(bed: &Bed, program: &[String], name: &str, what: &[&str]) -> Self {
        let node = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/peers/node");
        let child = Command::new(&program[0])
            .args(&program[1..])
            .args([&bed.servers(), name, &TTL.as_millis().to_string()])
            .args(what)
            .env("PEERS_NODE", node)
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
