//! Finds the tools that are not Rust: Java and jars, Python with kazoo, the servers of etcd and
//! Redis.
//!
//! It never downloads. If tools are missing, one error names them and says how to install them.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Result;
use crate::peer::{Peer, Store};

/// This package's folder, for `install` and what it makes.
pub(crate) const HERE: &str = env!("CARGO_MANIFEST_DIR");

const DEBIAN: &str = "/usr/share/java";
const ZOOKEEPER: [&str; 7] = [
    "zookeeper",
    "zookeeper-jute",
    "snappy-java",
    "metrics-core",
    "slf4j-api",
    "slf4j-log4j12",
    "log4j-1.2",
];
const CURATOR: [&str; 9] = [
    "zookeeper",
    "zookeeper-jute",
    "curator-client",
    "curator-framework",
    "curator-recipes",
    "guava",
    "slf4j-api",
    "slf4j-nop",
    "metrics-core",
];

/// The paths of the tools that the chosen peers need.
#[derive(Debug, Default)]
pub(crate) struct Tools {
    pub(crate) java: PathBuf,
    pub(crate) javac: PathBuf,
    /// Class paths.
    pub(crate) zookeeper: String,
    pub(crate) curator: String,
    pub(crate) python: PathBuf,
    pub(crate) etcd: PathBuf,
    pub(crate) redis: PathBuf,
}

impl Tools {
    /// Looks for all tools, and names all that are missing.
    pub(crate) fn find(peers: &[Peer]) -> Result<Self> {
        let (mut tools, mut missing) = (Self::default(), Vec::new());
        let mut want = |found: Option<PathBuf>, what: &str, package: &'static str| {
            found.unwrap_or_else(|| {
                missing.push((what.to_owned(), package));
                PathBuf::new()
            })
        };
        let stores: Vec<Store> = peers.iter().map(|peer| peer.store()).collect();
        if stores.contains(&Store::ZooKeeper) {
            tools.java = want(java("java"), "Java", "default-jdk-headless");
            tools.zookeeper = match std::env::var("ZOOKEEPER_HOME") {
                Ok(home) if !home.is_empty() => format!("{home}/lib/*:{home}/*"),
                _ => jars(&ZOOKEEPER, &mut want, "zookeeper"),
            };
        }
        if peers.contains(&Peer::Curator) {
            tools.javac = want(java("javac"), "a Java compiler", "default-jdk-headless");
            tools.curator = jars(
                &CURATOR,
                &mut want,
                "libcurator-recipes-java libcurator-framework-java libcurator-client-java libslf4j-java",
            );
        }
        if peers.contains(&Peer::Kazoo) {
            tools.python = want(python(), "Python with kazoo", "python3-venv");
        }
        if stores.contains(&Store::Etcd) {
            tools.etcd = want(on_path("etcd"), "etcd", "etcd-server");
        }
        if stores.contains(&Store::Redis) {
            tools.redis = want(on_path("redis-server"), "redis-server", "redis-server");
        }
        match missing.is_empty() {
            true => Ok(tools),
            false => Err(complaint(missing)),
        }
    }
}

fn complaint(missing: Vec<(String, &'static str)>) -> crate::Error {
    let (what, mut packages): (Vec<_>, Vec<_>) = missing.into_iter().unzip();
    packages.dedup();
    format!(
        "these are missing: {}; install them with `apt-get install {}` or let benches/install do it (kazoo comes from there), \
         or choose others with --peers",
        what.join(", "),
        packages.join(" "),
    )
    .into()
}

/// A class path of Debian's jars.
fn jars(
    names: &[&str],
    want: &mut impl FnMut(Option<PathBuf>, &str, &'static str) -> PathBuf,
    package: &'static str,
) -> String {
    let jars: Vec<String> = names
        .iter()
        .map(|name| format!("{DEBIAN}/{name}.jar"))
        .collect();
    if let Some(jar) = jars.iter().find(|jar| !Path::new(jar).is_file()) {
        want(None, jar, package);
    }
    jars.join(":")
}

fn java(program: &str) -> Option<PathBuf> {
    match std::env::var_os("JAVA_HOME").filter(|home| !home.is_empty()) {
        Some(home) => {
            Some(Path::new(&home).join("bin").join(program)).filter(|file| file.is_file())
        }
        None => on_path(program),
    }
}

/// The Python of the virtual environment that `install` makes, or any that knows kazoo.
fn python() -> Option<PathBuf> {
    let venv = std::env::var_os("LOCKKEEPER_BENCH_VENV")
        .unwrap_or_else(|| OsString::from(format!("{HERE}/.venv")));
    let candidates = [
        Some(Path::new(&venv).join("bin/python")),
        on_path("python3"),
    ];
    candidates.into_iter().flatten().find(|python| {
        let knows = Command::new(python).args(["-c", "import kazoo"]).output();
        knows.is_ok_and(|output| output.status.success())
    })
}

fn on_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|folder| folder.join(program))
        .find(|file| file.is_file())
}
