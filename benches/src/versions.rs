//! Which version of everything ran.
//!
//! It asks the programs themselves, the lock file that this binary was built from, and the names of
//! jars.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use crate::peer::Store;
use crate::servers::Servers;
use crate::tools::{HERE, Tools};
use crate::{Result, words};

const LOCK_FILE: &str = include_str!("../../Cargo.lock");

/// The version of a crate that is compiled in.
pub(crate) fn of_package(name: &str) -> &'static str {
    let entry = format!("name = \"{name}\"\nversion = \"");
    let version = LOCK_FILE
        .split_once(&entry)
        .and_then(|(_, rest)| rest.split_once('"'));
    version.map_or("unknown", |(version, _)| version)
}

/// The version of a Debian jar, from its other name, which has the version in it.
pub(crate) fn of_jar(name: &str) -> String {
    let files = std::fs::read_dir("/usr/share/java").into_iter().flatten();
    let names = files.filter_map(|file| file.ok()?.file_name().into_string().ok());
    let mut versions = names.filter_map(|file| {
        let version = file.strip_prefix(name)?.strip_prefix('-')?;
        Some(version.strip_suffix(".jar")?.to_owned())
    });
    versions.next().unwrap_or_else(|| "unknown".into())
}

/// Of the servers and of what builds and runs.
pub(crate) async fn of_all(servers: &Servers, tools: &Tools) -> Result<BTreeMap<String, String>> {
    let mut versions = BTreeMap::new();
    let mut add = |name: &str, version: String| drop(versions.insert(name.to_owned(), version));
    add("Rust", first_line(Command::new("rustc").arg("--version")));
    add("Lockkeeper's commit", commit());
    let address = servers.address(Store::ZooKeeper);
    if !address.is_empty() {
        let answer = words::zookeeper(address, "srvr").await?;
        let version = answer.lines().next().unwrap_or_default();
        let version = version.split([':', ',', '-']).nth(1).unwrap_or_default();
        add("ZooKeeper server", version.trim().to_owned());
        add(
            "Java of the server",
            first_line(Command::new(&tools.java).arg("--version")),
        );
    }
    if !servers.address(Store::Etcd).is_empty() {
        add(
            "etcd server",
            first_line(Command::new(&tools.etcd).arg("--version")),
        );
    }
    if !servers.address(Store::Redis).is_empty() {
        let line = first_line(Command::new(&tools.redis).arg("--version"));
        let version = line.split(' ').find_map(|word| word.strip_prefix("v="));
        add("Redis server", version.unwrap_or(&line).to_owned());
    }
    if !servers.address(Store::Postgres).is_empty() {
        let postgres = tools.postgres.join("postgres");
        add(
            "PostgreSQL server",
            first_line(Command::new(postgres).arg("--version")),
        );
    }
    Ok(versions)
}

fn first_line(command: &mut Command) -> String {
    let output = command.output().map(|output| output.stdout);
    let text = String::from_utf8_lossy(&output.unwrap_or_default()).into_owned();
    let line = text.lines().next().unwrap_or("unknown");
    line.to_owned()
}

/// With a plus if there are changes beside it.
fn commit() -> String {
    let git = |arguments: &[&str]| {
        let output = Command::new("git")
            .arg("-C")
            .arg(Path::new(HERE))
            .args(arguments)
            .output();
        String::from_utf8_lossy(&output.map(|output| output.stdout).unwrap_or_default())
            .trim()
            .to_owned()
    };
    let changes = git(&["status", "--porcelain", "--untracked-files=no"]);
    let plus = if changes.is_empty() { "" } else { "+" };
    format!("{}{plus}", git(&["rev-parse", "--short", "HEAD"]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lock_file_names_the_versions_that_are_compiled_in() {
        assert_eq!(of_package("zookeeper-client"), "0.11.2");
        assert_eq!(of_package("no-such-package"), "unknown");
    }
}
