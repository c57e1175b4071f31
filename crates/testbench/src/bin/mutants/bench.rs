//! A copy of the tree, what is built of it, and how its tests are run.
//!
//! The copy is kept, so that a later run builds only what has changed. The tree itself is never
//! touched.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::record::Asked;
use crate::switched::VARIABLE;

/// So long may one run of a test take.
const LIMIT: Duration = Duration::from_secs(300);

/// The test binaries of one build, by package folder and target.
#[derive(Debug, Clone)]
pub(crate) struct Built(BTreeMap<(String, String), (PathBuf, PathBuf)>);

/// An error of the compiler, with the file and line of each place that it is about.
#[derive(Debug)]
pub(crate) struct Complaint {
    pub(crate) text: String,
    pub(crate) places: Vec<(String, usize)>,
}

/// A copy of the tree in which bugs are put back, and what is built of it.
pub(crate) struct Bench {
    pub(crate) tree: PathBuf,
    target: PathBuf,
    /// Where cargo keeps what lies between: what the tree stands on is built once for all copies.
    intermediate: PathBuf,
}

/// What came of some tests, with what was printed.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// So many.
    Passed(usize, String),
    Failed(String),
    Hung(String),
    NotBuilt(String),
    NotRun(String),
}

/// Writes the manifest of a copy, with a version of its own. Cargo would take copies for the same
/// package, and what was built of one, with its bug, for fresh in another.
fn set_apart(checkout: &Path, manifest: &Path, job: usize) {
    let text = fs::read_to_string(checkout.join("Cargo.toml")).unwrap();
    let (before, after) = text.split_once("\"\nedition").unwrap();
    let text = format!("{before}+mutants.{job}\"\nedition{after}");
    if fs::read_to_string(manifest).ok().as_ref() != Some(&text) {
        fs::create_dir_all(manifest.parent().unwrap()).unwrap();
        fs::write(manifest, text).unwrap();
    }
}

impl Bench {
    pub(crate) fn new(checkout: &Path, job: usize) -> Self {
        let target = std::env::var_os("CARGO_TARGET_DIR");
        let target = target.map_or_else(|| checkout.join("target"), PathBuf::from);
        let intermediate = std::env::var_os("CARGO_BUILD_BUILD_DIR");
        let intermediate = intermediate.map_or_else(|| target.clone(), PathBuf::from);
        let target = target.join("mutants").join(job.to_string());
        let tree = target.join("tree");
        let listed = Command::new("git")
            .args([
                "ls-files",
                "-z",
                "--cached",
                "--others",
                "--exclude-standard",
            ])
            .current_dir(checkout)
            .output()
            .unwrap();
        let listed = String::from_utf8(listed.stdout).unwrap();
        let files: BTreeSet<PathBuf> = listed.split('\0').map(|file| tree.join(file)).collect();
        forget_others(&tree, &files);
        let manifest = tree.join("Cargo.toml");
        set_apart(checkout, &manifest, job);
        for to in files.iter().filter(|to| **to != manifest) {
            let from = checkout.join(to.strip_prefix(&tree).unwrap());
            if from.is_file() && fs::read(&from).ok() != fs::read(to).ok() {
                fs::create_dir_all(to.parent().unwrap()).unwrap();
                // Its time is now, so that cargo sees what has changed.
                fs::copy(from, to).unwrap();
            }
        }
        Self {
            tree,
            target,
            intermediate,
        }
    }

    /// In a copy.
    fn built_here<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        command
            .current_dir(&self.tree)
            .env("CARGO_TARGET_DIR", &self.target)
            .env("CARGO_BUILD_BUILD_DIR", &self.intermediate)
    }

    /// Builds the tests that are asked for, all at once.
    pub(crate) fn build(&self, asked: &BTreeSet<&[&str]>) -> Result<Built, Vec<Complaint>> {
        let words: BTreeSet<&[&str]> = asked.iter().flat_map(|words| words.chunks(2)).collect();
        let output = self
            .built_here(&mut Command::new("cargo"))
            .args(["test", "--all-features", "--no-run"])
            .arg("--message-format=json")
            .args(words.into_iter().flatten())
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let lines = String::from_utf8_lossy(&output.stdout).into_owned();
        let lines = lines.lines().map(serde_json::from_str);
        let lines: Vec<Value> = lines.filter_map(Result::ok).collect();
        if output.status.success() {
            return Ok(Built(lines.iter().filter_map(binary).collect()));
        }
        let complaints: Vec<Complaint> = lines.iter().filter_map(complaint).collect();
        if complaints.is_empty() {
            let text = String::from_utf8_lossy(&output.stderr).into_owned();
            return Err(vec![Complaint {
                text,
                places: vec![],
            }]);
        }
        Err(complaints)
    }

    fn cargo(&self, asked: &Asked, more: &[&str]) -> (Option<i32>, String, String) {
        let limit = LIMIT * if more.is_empty() { 1 } else { 10 };
        let mut command = limited(limit, asked, "cargo");
        self.built_here(&mut command)
            .args(["test", "--all-features"])
            .args(asked.words)
            .args(more)
            .args(["--", &asked.filter]);
        ended(&mut command)
    }

    pub(crate) fn run(&self, asked: &Asked) -> Outcome {
        let (built, _, why) = self.cargo(asked, &["--no-run"]);
        if built != Some(0) {
            return Outcome::NotBuilt(why);
        }
        Outcome::of(self.cargo(asked, &[]))
    }
}

impl Outcome {
    fn of((code, stdout, stderr): (Option<i32>, String, String)) -> Self {
        let results = stdout
            .lines()
            .find_map(|line| line.strip_prefix("test result: "));
        let count = |word: &str| {
            let (before, _) = results?.split_once(&format!(" {word}"))?;
            before.rsplit(' ').next()?.parse::<usize>().ok()
        };
        let has_begun = stdout.lines().any(|line| line.starts_with("running "));
        // Why a test failed stands at the end of what the harness writes to stdout.
        let said = format!("{stderr}\n{stdout}");
        match (code, count("passed"), count("failed")) {
            (Some(0), Some(passed), Some(0)) if passed > 0 => Self::Passed(passed, said),
            (code, _, Some(failed)) if failed > 0 && code != Some(0) => Self::Failed(said),
            (Some(124), ..) if has_begun => Self::Hung(said),
            (code, ..) => Self::NotRun(format!("ended with {code:?}: {stdout}\n{stderr}")),
        }
    }
}

impl Built {
    /// Runs tests with a bug, or with none.
    pub(crate) fn run(&self, asked: &Asked, bug: &str) -> Outcome {
        let (package, target) = (asked.words[1], asked.words.get(3).copied());
        let key = (package.to_owned(), target.unwrap_or("lib").to_owned());
        let Some((binary, folder)) = self.0.get(&key) else {
            return Outcome::NotRun(format!("there is no binary {key:?}"));
        };
        let mut command = limited(LIMIT, asked, binary);
        command
            .arg(&asked.filter)
            .current_dir(folder)
            .env("CARGO_MANIFEST_DIR", folder)
            .env(VARIABLE, bug);
        Outcome::of(ended(&mut command))
    }
}

/// A command that is ended after a while, in the environment of tests.
fn limited(limit: Duration, asked: &Asked, program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("timeout");
    command
        .arg(limit.as_secs().to_string())
        .arg(program)
        .env("CARGO_TERM_COLOR", "never")
        .env("LOCKKEEPER_TEST_ON", asked.on.word())
        .env("RUST_BACKTRACE", "0")
        .env_remove("LOCKKEEPER_SOAK")
        .env_remove("RUST_LOG")
        .env_remove(VARIABLE)
        .stdin(Stdio::null());
    command
}

fn ended(command: &mut Command) -> (Option<i32>, String, String) {
    let output = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (
        output.status.code(),
        text(&output.stdout),
        text(&output.stderr),
    )
}

/// The test binary that a line of cargo tells of.
fn binary(line: &Value) -> Option<((String, String), (PathBuf, PathBuf))> {
    let executable = line["executable"].as_str()?;
    if line["profile"]["test"] != true {
        return None;
    }
    let target = &line["target"];
    let name = match target["kind"][0].as_str()? {
        "test" => target["name"].as_str()?.to_owned(),
        "lib" => "lib".to_owned(),
        _ => return None,
    };
    let folder = Path::new(line["manifest_path"].as_str()?).parent()?;
    let package = match folder.file_name()?.to_str()? {
        "cli" => "lockkeeper-cli",
        "embedded" => "zookeeper-embedded",
        _ => "lockkeeper",
    };
    Some((
        (package.to_owned(), name),
        (executable.into(), folder.to_owned()),
    ))
}

/// The error that a line of cargo tells of.
fn complaint(line: &Value) -> Option<Complaint> {
    let message = &line["message"];
    if message["level"] != "error" {
        return None;
    }
    let mut places = Vec::new();
    for span in message["spans"].as_array()? {
        // A place in a macro is seen through to where it is used.
        let mut span = span;
        let is_primary = span["is_primary"] == true;
        while is_primary && !span.is_null() {
            let (file, line) = (span["file_name"].as_str(), span["line_start"].as_u64());
            if let (Some(file), Some(line)) = (file, line) {
                places.push((file.to_owned(), usize::try_from(line).unwrap()));
            }
            span = &span["expansion"]["span"];
        }
    }
    let text = message["rendered"].as_str()?.to_owned();
    Some(Complaint { text, places })
}

/// Removes from a copy what is not in the tree any more.
fn forget_others(folder: &Path, files: &BTreeSet<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if entry.file_type().unwrap().is_dir() {
            forget_others(&path, files);
        } else if !files.contains(&path) {
            fs::remove_file(path).unwrap();
        }
    }
}
