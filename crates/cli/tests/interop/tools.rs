//! The other languages: how a program on Curator or kazoo is started.
//!
//! What they need is found and never downloaded: what is missing is an error that says how to
//! install it.

use std::path::Path;

use tempfile::TempDir;
use tokio::process::Command;
use tokio::sync::OnceCell;

const HERE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/interop/members");
const INSTALL: &str = "run .ci/install, which installs Debian's libcurator-recipes-java and default-jdk-headless, and kazoo";
/// Where kazoo may be.
const VENVS: [&str; 2] = [
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/kazoo"),
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../benches/.venv"),
];
const JARS: [&str; 10] = [
    "zookeeper",
    "zookeeper-jute",
    "curator-client",
    "curator-framework",
    "curator-recipes",
    "guava",
    "slf4j-api",
    "slf4j-nop",
    "metrics-core",
    "snappy-java",
];
const PROGRAMS: [&str; 2] = ["Member.java", "Recipes.java"];

/// A program in Java; both are compiled once.
pub(super) async fn java(class: &str) -> Command {
    static CLASSES: OnceCell<(TempDir, String)> = OnceCell::const_new();
    let compiled = CLASSES.get_or_init(|| async {
        let jars = JARS.map(|name| format!("/usr/share/java/{name}.jar"));
        if let Some(missing) = jars.iter().find(|jar| !Path::new(jar).is_file()) {
            panic!("Curator is missing ({missing}): {INSTALL}");
        }
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut command = Command::new("javac");
        command
            .args(["-nowarn", "-cp", &jars.join(":"), "-d"])
            .arg(folder.path());
        command.args(PROGRAMS.map(|program| format!("{HERE}/{program}")));
        let output = command.output().await;
        let output = output.unwrap_or_else(|error| panic!("javac: {error}: {INSTALL}"));
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{errors}");
        let path = format!("{}:{}", folder.path().display(), jars.join(":"));
        (folder, path)
    });
    let (_, classes) = compiled.await;
    let mut command = Command::new("java");
    command.args([
        "-Xmx96m",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        "-cp",
    ]);
    command.args([classes, class]);
    command
}

/// A Python that has kazoo, and looks for modules among ours first.
pub(super) fn python() -> Command {
    let pythons = VENVS.map(|folder| Path::new(folder).join("bin/python"));
    let Some(python) = pythons.into_iter().find(|python| python.is_file()) else {
        panic!("kazoo is missing: {INSTALL}");
    };
    let mut command = Command::new(python);
    command
        .env("PYTHONPATH", HERE)
        .env("PYTHONDONTWRITEBYTECODE", "1");
    command
}

/// One of our programs with kazoo.
pub(super) fn kazoo(program: &str) -> Command {
    let mut command = python();
    command.arg(format!("{HERE}/{program}"));
    command
}
