//! The records of `tests/mutants/*.toml`: each is one bug, and the tests that must catch it.
//!
//! Invariant: each text to find stands in its file once. It changes no file.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::rows;

/// One bug.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Mutant {
    pub(crate) name: String,
    /// The row of `docs/failures.md`.
    row: u32,
    /// What is wrong then.
    why: String,
    /// Filters; each must have a test that fails.
    tests: Vec<String>,
    /// Its test reads the sources, where other bugs must not stand beside it.
    #[serde(default)]
    pub(crate) alone: bool,
    #[serde(default)]
    target: Target,
    /// The server that the integration suite runs on.
    #[serde(default)]
    on: On,
    file: String,
    find: String,
    replace: String,
    /// More of the same bug.
    #[serde(default)]
    also: Vec<Also>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Also {
    /// The same file unless it is said.
    file: Option<String>,
    find: String,
    replace: String,
}

/// Where its tests are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Target {
    /// `tests/`
    #[default]
    Suite,
    /// `tests/plain/`
    Plain,
    /// `crates/cli/tests/`
    Cli,
    /// `crates/embedded/tests/`
    Embedded,
    /// Unit tests of the package that the file belongs to.
    Unit,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum On {
    #[default]
    Embedded,
    Zookeeper,
    Ensemble,
    Redis,
    /// The stores of plain locks.
    Plain,
    /// The contract of a link, on PostgreSQL.
    Postgres,
}

impl On {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Embedded => "embedded",
            Self::Zookeeper => "zookeeper",
            Self::Ensemble => "ensemble",
            Self::Redis => "redis",
            Self::Plain => "plain",
            Self::Postgres => "postgres",
        }
    }
}

/// Some tests, as cargo is asked for them.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Asked {
    pub(crate) words: &'static [&'static str],
    pub(crate) on: On,
    pub(crate) filter: String,
}

impl Mutant {
    /// The edits, file by file.
    pub(crate) fn edits(&self) -> impl Iterator<Item = (&str, &str, &str)> {
        let first = (&*self.file, &*self.find, &*self.replace);
        let more = self.also.iter().map(|edit| {
            let file = edit.file.as_ref().unwrap_or(&self.file);
            (&**file, &*edit.find, &*edit.replace)
        });
        std::iter::once(first).chain(more)
    }

    /// The files with the bug in them.
    pub(crate) fn applied(&self, tree: &Path) -> Result<BTreeMap<PathBuf, String>, String> {
        let mut files = BTreeMap::new();
        for (file, find, replace) in self.edits() {
            let path = tree.join(file);
            let read = || fs::read_to_string(&path).map_err(|error| format!("{file}: {error}"));
            let text = match files.remove(&path) {
                Some(text) => text,
                None => read()?,
            };
            let found = text.matches(find).count();
            if found != 1 {
                return Err(format!("{file} has it {found} times: {find}"));
            }
            files.insert(path, text.replacen(find, replace, 1));
        }
        Ok(files)
    }

    pub(crate) fn asked(&self) -> impl Iterator<Item = Asked> {
        let words: &[&str] = match self.target {
            Target::Suite => &["-p", "lockkeeper", "--test", "it"],
            Target::Plain => &["-p", "lockkeeper", "--test", "plain"],
            Target::Cli => &["-p", "lockkeeper-cli", "--test", "cli"],
            Target::Embedded => &["-p", "zookeeper-embedded", "--test", "embedded"],
            Target::Unit if self.file.starts_with("crates/cli/") => {
                &["-p", "lockkeeper-cli", "--lib"]
            }
            Target::Unit if self.file.starts_with("crates/embedded/") => {
                &["-p", "zookeeper-embedded", "--lib"]
            }
            Target::Unit => &["-p", "lockkeeper", "--lib"],
        };
        let on = self.on;
        self.tests.iter().map(move |filter| Asked {
            words,
            on,
            filter: filter.clone(),
        })
    }
}

/// All records, in the order of their rows.
pub(crate) fn records(tree: &Path) -> Vec<Mutant> {
    #[derive(Deserialize)]
    struct Page {
        mutant: Vec<Mutant>,
    }

    let folder = tree.join("tests/mutants");
    let mut all = Vec::new();
    for entry in fs::read_dir(&folder).expect("tests/mutants") {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|end| end == "toml") {
            let text = fs::read_to_string(&path).unwrap();
            let page: Page =
                toml::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            all.extend(page.mutant);
        }
    }
    all.sort_by(|one, other| (one.row, &one.name).cmp(&(other.row, &other.name)));
    all
}

/// What is wrong with the records.
pub(crate) fn faults(tree: &Path, all: &[Mutant]) -> Vec<String> {
    let (mut faults, mut names) = (Vec::new(), BTreeSet::new());
    for mutant in all {
        let name = &mutant.name;
        if !names.insert(name) {
            faults.push(format!("{name}: there are two"));
        }
        if mutant.tests.is_empty() || mutant.why.is_empty() {
            faults.push(format!(
                "{name}: does not say why, or which test catches it"
            ));
        }
        if let Err(why) = mutant.applied(tree) {
            faults.push(format!("{name}: does not apply: {why}"));
        }
    }
    let cited = all.iter().map(|mutant| (&*mutant.name, mutant.row));
    faults.extend(rows::faults(tree, cited));
    faults
}
