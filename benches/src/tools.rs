//! Finds the tools that are not Rust: Java and jars, Python and Node with their packages, and the
//! servers.
//!
//! It never downloads. If tools are missing, one error names them and says how to install them.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Result;
use crate::peer::{Peer, Store};
use crate::plan::Plan;

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

const JDK: &str = "default-jdk-headless";
/// What Python must know for whom.
const MODULES: [(Peer, &str); 3] = [
    (Peer::Kazoo, "kazoo"),
    (Peer::RedisPy, "redis"),
    (Peer::PythonRedisLock, "redis_lock"),
];

/// The paths of the tools that the chosen peers need.
#[derive(Debug, Default)]
pub(crate) struct Tools {
    pub(crate) java: PathBuf,
    pub(crate) javac: PathBuf,
    /// Class paths.
    pub(crate) zookeeper: String,
    pub(crate) curator: String,
    pub(crate) redisson: String,
    pub(crate) python: PathBuf,
    pub(crate) node: PathBuf,
    /// The folder of Node's packages.
    pub(crate) modules: PathBuf,
    pub(crate) etcd: PathBuf,
    pub(crate) redis: PathBuf,
    /// The folder of its programs.
    pub(crate) postgres: PathBuf,
}

impl Tools {
    /// Looks for all tools, and names all that are missing.
    pub(crate) fn find(plans: &[Plan]) -> Result<Self> {
        let (mut tools, mut missing) = (Self::default(), Vec::new());
        let mut want = |found: Option<PathBuf>, what: &str, package: &'static str| {
            found.unwrap_or_else(|| {
                missing.push((what.to_owned(), package));
                PathBuf::new()
            })
        };
        let has = |some: &[Peer]| {
            plans
                .iter()
                .any(|plan| some.iter().any(|peer| plan.peers.contains(peer)))
        };
        let stores: Vec<Store> = plans.iter().flat_map(Plan::stores).collect();
        let redisson = has(&[Peer::Redisson]);
        if stores.contains(&Store::ZooKeeper) || redisson {
            tools.java = want(java("java"), "Java", JDK);
        }
        if has(&[Peer::Curator]) || redisson {
            tools.javac = want(java("javac"), "a Java compiler", JDK);
        }
        if stores.contains(&Store::ZooKeeper) {
            tools.zookeeper = match std::env::var("ZOOKEEPER_HOME") {
                Ok(home) if !home.is_empty() => format!("{home}/lib/*:{home}/*"),
                _ => jars(&ZOOKEEPER, &mut want, "zookeeper"),
            };
        }
        if has(&[Peer::Curator]) {
            tools.curator = jars(
                &CURATOR,
                &mut want,
                "libcurator-recipes-java libcurator-framework-java libcurator-client-java libslf4j-java",
            );
        }
        if redisson {
            let lib = Path::new(HERE).join(".redisson/lib");
            let lib = want(Some(lib).filter(|lib| lib.is_dir()), "Redisson", "maven");
            tools.redisson = format!("{}/*", lib.display());
        }
        for (peer, module) in MODULES {
            if has(&[peer]) {
                tools.python = want(
                    python(module),
                    &format!("Python with {module}"),
                    "python3-venv",
                );
            }
        }
        if has(&[Peer::NodeRedlock]) {
            tools.node = want(on_path("node"), "Node", "nodejs npm");
            let modules = Some(Path::new(HERE).join(".node"));
            let found = modules.filter(|modules| modules.join("node_modules/redlock").is_dir());
            tools.modules = want(found, "redlock for Node", "nodejs npm");
        }
        if stores.contains(&Store::Etcd) {
            tools.etcd = want(on_path("etcd"), "etcd", "etcd-server");
        }
        if stores.contains(&Store::Redis) {
            tools.redis = want(on_path("redis-server"), "redis-server", "redis-server");
        }
        if stores.contains(&Store::Postgres) {
            tools.postgres = want(postgres(), "PostgreSQL", "postgresql");
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
        "these are missing: {}; install them with `apt-get install {}` or let benches/install do it (what is of no Debian package \
         comes from there), or choose others with --peers",
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

/// The Python of the virtual environment that `install` makes, or any that knows the module.
fn python(module: &str) -> Option<PathBuf> {
    let venv = std::env::var_os("LOCKKEEPER_BENCH_VENV")
        .unwrap_or_else(|| OsString::from(format!("{HERE}/.venv")));
    let candidates = [
        Some(Path::new(&venv).join("bin/python")),
        on_path("python3"),
    ];
    candidates.into_iter().flatten().find(|python| {
        let knows = Command::new(python)
            .args(["-c", &format!("import {module}")])
            .output();
        knows.is_ok_and(|output| output.status.success())
    })
}

/// Debian keeps the programs of each version in a folder of its own, beside the path.
fn postgres() -> Option<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").ok()?;
    let bins = versions.flatten().map(|version| version.path().join("bin"));
    bins.filter(|bin| bin.join("initdb").is_file()).max()
}

fn on_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|folder| folder.join(program))
        .find(|file| file.is_file())
}
